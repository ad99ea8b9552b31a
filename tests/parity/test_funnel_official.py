"""`semantics="official"` equals the authors' PyTorch code: outputs of it on random weights, padded and unpadded.

Cases are safetensors files with the authors' configuration as metadata, and their weights, inputs and outputs. One is
kept here; the others are read where they lie.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from narrows.funnel import FunnelBaseModel, FunnelConfig

_KEPT = Path(__file__).parent.parent / "funnel" / "data"
_CASES = [
    "factorized-18",
    "padded-16",
    "padded-truncated-20",
    "pool-all-no-cls-13",
    "repeats-max-17",
    "unpadded-16",
]


def _read(name: str, shared_data: Path) -> tuple[dict, dict[str, Tensor]]:
    kept = _KEPT / f"{name}.safetensors"
    path = kept if kept.is_file() else shared_data.parent / "golden" / "funnel-official" / kept.name
    if not path.is_file():
        pytest.skip(f"needs the authors' outputs; {path.name} is not beside the real data sets")
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["config"]), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def _model(theirs: dict, tensors: dict[str, Tensor]) -> FunnelBaseModel:
    layout = [[int(number) for number in (block + "x1").split("x")[:2]] for block in theirs["block_size"].split("_")]
    named = {name: theirs[name] for name in ("d_model", "d_embed", "n_head", "d_head", "d_inner", "vocab_size")}
    flags = {name: theirs[name] for name in ("pooling_type", "separate_cls", "pool_q_only", "truncate_seq")}
    config = FunnelConfig(
        **named,
        **flags,
        block_sizes=[size for size, _ in layout],
        block_repeats=[repeats for _, repeats in layout],
        attention_type={"rel_shift": "relative_shift"}.get(theirs["attn_type"], theirs["attn_type"]),
        semantics="official",
    )
    model = FunnelBaseModel(config).eval()
    weights, number = {}, 0
    for half in ("weight", "bias"):
        weights[f"embeddings.layer_norm.{half}"] = tensors[f"weight.input_layer.1.{half}"]
    weights["embeddings.word_embeddings.weight"] = tensors["weight.input_layer.0.lookup_table"]
    for block, (size, _) in enumerate(layout):
        for layer in range(size):
            weights |= {f"encoder.blocks.{block}.{layer}.{k}": v for k, v in _layer(tensors, number).items()}
            number += 1
    model.load_state_dict(weights)
    return model


def _layer(tensors: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    attention, forward = f"weight.attn_layers.{number}.", f"weight.pffn_layers.{number}."
    layer = {f"attention.{name}": tensors[attention + name] for name in ("r_kernel", "seg_embed", "post_proj.bias")}
    layer |= {f"attention.r_{name}_bias": tensors[f"{attention}r_{name}_bias"] for name in "wrs"}
    for name in ("q_head", "k_head", "v_head"):
        layer[f"attention.{name}.weight"] = tensors[f"{attention}{name}.weight"].flatten(1).T
    for name in ("k_head", "v_head"):
        layer[f"attention.{name}.bias"] = tensors[f"{attention}{name}.bias"].flatten()
    layer["attention.post_proj.weight"] = tensors[attention + "post_proj.weight"].flatten(0, 1).T
    for ours, place in (("linear_1", 0), ("linear_2", 3)):
        layer[f"ffn.{ours}.weight"] = tensors[f"{forward}pffn.{place}.weight"].T
        layer[f"ffn.{ours}.bias"] = tensors[f"{forward}pffn.{place}.bias"]
    for half in ("weight", "bias"):
        layer[f"attention.layer_norm.{half}"] = tensors[f"{attention}layer_norm.{half}"]
        layer[f"ffn.layer_norm.{half}"] = tensors[f"{forward}layer_norm.{half}"]
    return layer


def _check(config: dict, tensors: dict[str, Tensor]) -> None:
    model = _model(config, tensors)
    with torch.no_grad():
        outputs = model(
            tensors["input.ids"],
            attention_mask=1 - tensors["input.pad"],
            token_type_ids=tensors["input.segments"],
            output_hidden_states=True,
        )
    got = [states for block in outputs.hidden_states for states in block]
    want = [tensors[name] for name in sorted(tensors) if name.startswith("output.hidden.")]
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_every_layer_equals_the_kept_case(tmp_path):
    _check(*_read("repeats-max-17", tmp_path))


@pytest.mark.parametrize("name", _CASES)
def test_every_layer_equals_the_authors(name, shared_data):
    _check(*_read(name, shared_data))
