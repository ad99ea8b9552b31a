"""The authors' layouts: their real outputs from their weights, and every tensor there and back."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from narrows.errors import ConversionError, MissingExtraError, UsageError
from narrows.funnel.authors import config_of_authors, export_tensors, layout_of, net_config_of, read_arrays, task_of
from narrows.funnel.config import FunnelConfig
from narrows.funnel.convert import TASKS, convert_arrays, convert_checkpoint
from narrows.funnel.rules import Entry

CASES = (
    "unpadded-16",
    "padded-16",
    "padded-truncated-20",
    "repeats-max-17",
    "factorized-18",
    "pool-all-no-cls-13",
)
SIZES = {
    "vocab_size": 43,
    "d_model": 16,
    "d_embed": 24,
    "n_head": 4,
    "d_head": 8,
    "d_inner": 24,
    "block_sizes": [1, 2, 1],
    "block_repeats": [1, 1, 2],
    "num_decoder_layers": 2,
    "decoder_repeats": [3, 3],
    "generator_ratio": 0.5,
    "lm_head_transform": True,
    "discriminator_positive": "original",
    "layer_norm_eps": 1e-8,
}
TENSORFLOW = ("encoder", "full", "masked-lm", "replaced-token-detection", "electra")
FINE_TUNED = ("sequence-classification", "multiple-choice", "conditional-question-answering")


@pytest.fixture(scope="module")
def golden(shared_data):
    """Reads a case of the authors' outputs: config, weights, inputs and outputs."""
    folder = shared_data.parent / "golden" / "funnel-official"
    if not folder.is_dir():
        pytest.skip("needs the outputs of the authors' code in golden/funnel-official; set NARROWS_SHARED")

    def read(name):
        with safe_open(folder / f"{name}.safetensors", "pt") as file:
            keys = file.keys()
            tensors = {key: file.get_tensor(key) for key in keys}
            fields = json.loads(file.metadata()["config"])
        weights = {key.removeprefix("weight."): tensors[key] for key in tensors if key.startswith("weight.")}
        return fields, weights, tensors

    return read


def build(task, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TASKS[task](FunnelConfig(**{**SIZES, "initializer_std": 0.3, **changes})).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def tensors_of(model):
    return {name: value for name, value in model.state_dict().items() if name not in model.all_tied_weights_keys}


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_the_authors_weights_give_the_authors_outputs(golden, case) -> None:
    fields, weights, tensors = golden(case)
    model, report = convert_arrays(weights, fields, semantics="official")
    assert not report.new and not report.dropped and set(report.used) == set(weights)
    outputs = model(
        tensors["input.ids"], attention_mask=1 - tensors["input.pad"], token_type_ids=tensors["input.segments"]
    )
    torch.testing.assert_close(outputs.logits, tensors["output.logits"], atol=2e-5, rtol=1e-4)
    back = export_tensors(model, layout="torch", task="sequence-classification")
    assert set(back) == set(weights)
    for name, tensor in weights.items():
        assert torch.equal(back[name], tensor), name


@pytest.mark.parametrize(
    ("layout", "said", "semantics", "truncates"),
    [
        ("torch", {}, "official", False),
        ("torch", {}, None, False),
        ("torch", {}, "hf", True),
        ("torch", {"truncate_seq": True}, "official", True),
        ("tensorflow", {}, "official", True),
        ("tensorflow", {"truncate_seq": False}, "official", False),
    ],
)
def test_what_a_net_config_leaves_out_of_truncation_is_as_in_the_code_it_belongs_to(
    layout, said, semantics, truncates
) -> None:
    """Their PyTorch code has it as a flag of a run that is off, their TensorFlow code and transformers as on."""
    model = build("encoder", d_embed=16)
    fields = {name: value for name, value in net_config_of(model.config).items() if name != "truncate_seq"}
    arrays = export_tensors(model, layout=layout, task="encoder")
    changes = {} if semantics is None else {"semantics": semantics}
    assert convert_arrays(arrays, {**fields, **said}, **changes)[0].config.truncate_seq is truncates
    kept, _ = convert_arrays(arrays, {**fields, **said}, **changes, truncate_seq=not truncates)
    assert kept.config.truncate_seq is not truncates


@torch.no_grad()
def test_without_a_word_about_truncation_the_outputs_are_the_authors(golden) -> None:
    fields, weights, tensors = golden("unpadded-16")
    model, _ = convert_arrays(weights, {k: v for k, v in fields.items() if k != "truncate_seq"}, semantics="official")
    outputs = model(
        tensors["input.ids"], attention_mask=1 - tensors["input.pad"], token_type_ids=tensors["input.segments"]
    )
    # With truncation they would be off by 5e-5.
    torch.testing.assert_close(outputs.logits, tensors["output.logits"], atol=5e-6, rtol=0)


@pytest.mark.parametrize("task", [*TENSORFLOW, *FINE_TUNED])
def test_every_tensor_of_tensorflow_there_and_back(task) -> None:
    model = build(task)
    arrays = export_tensors(model, layout="tensorflow", task=task)
    assert task_of(arrays) == task and layout_of(arrays) == "tensorflow"
    fields = net_config_of(model.config)
    again, report = convert_arrays(arrays, fields, generator_ratio=0.5)
    assert type(again) is type(model) and not report.new and not report.dropped
    for name, tensor in tensors_of(model).items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert again.config.discriminator_positive == "original" and again.config.lm_head_transform
    assert net_config_of(again.config) == fields


def test_names_and_shapes_are_those_of_tensorflow() -> None:
    arrays = export_tensors(build("electra"), layout="tensorflow", task="electra")
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    assert shapes["model/input/word_embedding/lookup_table"] == (43, 24)
    assert shapes["model/encoder/input_projection/kernel"] == (24, 16)
    assert shapes["model/encoder/layer_3/rel_attn/q/kernel"] == (16, 4, 8)
    assert shapes["model/encoder/layer_0/rel_attn/o/kernel"] == (4, 8, 16)
    assert shapes["model/encoder/layer_0/rel_attn/r/kernel"] == (16, 4, 8)
    assert shapes["model/encoder/layer_0/ff/layer_1/kernel"] == (16, 24)
    # The count of layers goes on in the decoder.
    assert shapes["model/decoder/layer_5/ff/layer_norm/gamma"] == (16,)
    assert shapes["model/binary_loss/weight"] == (16,)
    assert shapes["generator/encoder/layer_3/rel_attn/seg_embed"] == (2, 2, 8)
    assert shapes["generator/lm_proj/dense/kernel"] == (8, 24)
    assert shapes["generator/lm_loss/bias"] == (43,)
    assert not any(name.startswith("generator/input/") for name in shapes)


@pytest.mark.parametrize("task", TASKS)
def test_any_task_from_what_electra_trained(task) -> None:
    model = build("electra")
    arrays = export_tensors(model, layout="tensorflow", task="electra")
    converted, report = convert_arrays(arrays, net_config_of(model.config), task=task, generator_ratio=0.5)
    words = converted.get_input_embeddings().weight
    assert torch.equal(words, model.get_input_embeddings().weight)
    assert not any("encoder" in name for name in report.new)
    if task in ("electra", "replaced-token-detection"):
        assert not report.new
    if task == "encoder":
        assert set(report.dropped.values()) == {
            "an encoder alone does not decode",
            "generator of ELECTRA",
            "head of another task",
        }


def test_classes_have_the_name_of_a_data_set_and_their_number_is_kept() -> None:
    model = build("sequence-classification", num_labels=3)
    arrays = export_tensors(model, layout="tensorflow", task="sequence-classification")
    renamed = {name.replace("model/classes/", "model/mnli/"): array for name, array in arrays.items()}
    again, report = convert_arrays(renamed, net_config_of(model.config))
    assert again.config.num_labels == 3 and not report.new
    assert torch.equal(again.classifier.linear_out.weight, model.classifier.linear_out.weight)


def test_absolute_positions_there_and_back() -> None:
    model = build("full", position_type="absolute")
    arrays = export_tensors(model, layout="tensorflow", task="full")
    fields = net_config_of(model.config)
    assert fields["rel_attn_type"] == "null" and arrays["model/input/position_embedding/lookup_table"].shape == (
        512,
        24,
    )
    again, report = convert_arrays(arrays, fields)
    assert again.config.position_type == "absolute" and not report.new


def test_a_net_config_there_and_back() -> None:
    fields = {
        "block_size": "6_3x2_3x2",
        "decoder_size": "1x2",
        "vocab_size": 30522,
        "d_embed": 768,
        "d_model": 768,
        "n_head": 12,
        "d_head": 64,
        "d_inner": 3072,
        "dropout": 0.1,
        "dropatt": 0.2,
        "dropact": 0.0,
        "ff_activation": "relu",
        "rel_attn_type": "factorized",
        "pooling_type": "max",
        "pooling_size": 2,
        "pool_q_only": False,
        "separate_cls": True,
        "truncate_seq": False,
    }
    config = config_of_authors(fields)
    assert (config.block_sizes, config.block_repeats) == ([6, 3, 3], [1, 2, 2])
    assert (config.num_decoder_layers, config.decoder_repeats) == (1, [2])
    assert (config.attention_dropout, config.hidden_act, config.attention_type) == (0.2, "relu", "factorized")
    assert net_config_of(config) == fields


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt"])
def test_a_folder_of_theirs_is_read(suffix, tmp_path) -> None:
    model = build("replaced-token-detection")
    arrays = export_tensors(model, layout="tensorflow", task="replaced-token-detection")
    states = {
        "global_step": torch.tensor(7),
        "model/encoder/layer_0/ff/layer_1/kernel/adam_m": torch.ones(2),
    }
    # Checkpoints of before the release call the encoder and the decoder by other names.
    old = {name.replace("model/encoder", "model/transformer_xl"): array for name, array in arrays.items()}
    old = {name.replace("model/decoder/", "model/"): array for name, array in old.items()}
    if suffix == "npz":
        np.savez(tmp_path / "weights.npz", **{name: array.numpy() for name, array in {**old, **states}.items()})
    elif suffix == "pt":
        torch.save({**old, **states}, tmp_path / "model.pt")
    else:
        save_file({**old, **states}, tmp_path / "model.safetensors")
    (tmp_path / "net_config.json").write_text(json.dumps(net_config_of(model.config)))
    again, report = convert_checkpoint(tmp_path, semantics="official")
    assert not report.new and not report.dropped
    for name, tensor in tensors_of(model).items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_tensorflows_own_files_need_an_extra(tmp_path) -> None:
    (tmp_path / "net_config.json").write_text("{}")
    (tmp_path / "model.ckpt.index").write_bytes(b"")
    with pytest.raises(
        MissingExtraError, match=r"`tensorflow` is needed to read the TensorFlow checkpoint .*model.ckpt"
    ):
        read_arrays(tmp_path)


def test_what_is_not_theirs_is_refused(tmp_path) -> None:
    fields = net_config_of(FunnelConfig(**SIZES))
    for tensors, text in (
        ({"embeddings.word_embeddings.weight": torch.zeros(1)}, "got transformers' names; pass the checkpoint that"),
        ({"some.weight": torch.zeros(1)}, "got 'some.weight'"),
        ({}, "got 'no tensor'"),
    ):
        with pytest.raises(ConversionError, match=text):
            convert_arrays(tensors, fields)
    with pytest.raises(
        ConversionError, match="expected a net_config .* with block_size, .* got none of block_size; copy"
    ):
        config_of_authors({name: value for name, value in fields.items() if name != "block_size"})
    with pytest.raises(ConversionError, match="expected layers of blocks such as 6_3x2_3x2 .*, got '6-6-6'; copy"):
        config_of_authors({**fields, "block_size": "6-6-6"})
    with pytest.raises(ConversionError, match="an activation of gelu, relu, tanh .*, got 'rel_shift' and 'silu'"):
        config_of_authors({**fields, "ff_activation": "silu"})
    (tmp_path / "net_config.json").write_text("[]")
    with pytest.raises(ConversionError, match=r"expected a JSON object in .*net_config.json, got other JSON"):
        convert_checkpoint(tmp_path)
    (tmp_path / "net_config.json").write_text("{")
    with pytest.raises(ConversionError, match=r"net_config.json, got a file that cannot be read; copy it again"):
        convert_checkpoint(tmp_path)
    (tmp_path / "net_config.json").write_text(json.dumps(fields))
    for name in ("model.pt", "weights.npz"):
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(ConversionError, match=rf"expected weights in .*{name}, got a file that cannot be read"):
            convert_checkpoint(tmp_path)
    with pytest.raises(ConversionError, match=r"expected a/kernel of 3 dimensions, got a shape of \(2, 2\); it is not"):
        Entry("a/kernel", "a.weight", "into_heads").to_ours(torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_act": "silu"}, "`hidden_act` must be gelu_new, relu, tanh for the authors' code, got 'silu'"),
        ({"pooling_type": "top_attention"}, "`pooling_type` must be mean or max"),
        ({"decoder_repeats": [1, 2]}, "`decoder_repeats` must be equal for all layers of the decoder"),
        ({"cls_token_type_id": 0}, "`cls_token_type_id` must be 2 for the authors' code, got 0"),
    ],
)
def test_what_the_authors_have_no_place_for(changes, text) -> None:
    with pytest.raises(UsageError, match=text):
        net_config_of(FunnelConfig(**{**SIZES, **changes}))


def test_export_used_wrongly() -> None:
    model = build("full", d_embed=16)
    with pytest.raises(UsageError, match="`layout` must be 'torch' or 'tensorflow', got 'jax'; choose one of them"):
        export_tensors(model, layout="jax", task="full")
    with pytest.raises(UsageError, match="a model that the authors' torch code has, got one with decoder.layers.0"):
        export_tensors(model, layout="torch", task="full")
