"""Layer-wise learning rates: the paper's formula, by the names of many models or by what a model says itself."""

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    FunnelConfig,
    FunnelForMaskedLM,
)

from narrows.errors import UsageError
from narrows.funnel import FunnelConfig as OurFunnelConfig
from narrows.funnel import FunnelForElectraPreTraining
from narrows.training.optimiser import parameter_groups, pretraining_learning_rate


def _rates(model: nn.Module, layer_decay: float) -> dict[str, float]:
    groups = parameter_groups(model, learning_rate=2.0, weight_decay=0.01, layer_decay=layer_decay)
    of = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    return {name: of[id(parameter)] for name, parameter in model.named_parameters()}


def _bert() -> BertForMaskedLM:
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForMaskedLM(BertConfig(vocab_size=20, **sizes))


def test_a_berts_rates_fall_from_the_top_layer_down() -> None:
    for name, rate in _rates(_bert(), 0.5).items():
        layer = 0 if "embeddings." in name else 3
        if "encoder.layer." in name:
            layer = int(name.split("encoder.layer.")[1].split(".")[0]) + 1
        assert rate == 2.0 * 0.5 ** (3 - layer), name
    assert set(_rates(_bert(), 1.0).values()) == {2.0}


def test_distilberts_layers_are_found() -> None:
    model = DistilBertForMaskedLM(DistilBertConfig(vocab_size=20, dim=16, n_layers=2, n_heads=2, hidden_dim=32))
    rates = _rates(model, 0.5)
    assert rates["distilbert.transformer.layer.0.ffn.lin1.weight"] == 1.0
    assert rates["distilbert.embeddings.word_embeddings.weight"] == 0.5


def test_a_funnels_layers_are_counted_across_blocks_and_on_in_the_decoder() -> None:
    sizes = {"d_model": 16, "n_head": 4, "d_head": 4, "d_inner": 24, "d_embed": 8, "vocab_size": 20}
    config = OurFunnelConfig(block_sizes=[2, 1], block_repeats=[1, 3], num_decoder_layers=2, **sizes)
    model = FunnelForElectraPreTraining(config)
    rates = _rates(model, 0.5)
    expected = {
        "embeddings.word_embeddings.weight": 0,
        "embeddings.projection.weight": 0,
        "encoder.blocks.0.0.attention.r_kernel": 1,
        "encoder.blocks.0.1.ffn.linear_1.weight": 2,
        "encoder.blocks.1.0.attention.layer_norm.bias": 3,
        "decoder.layers.0.attention.q_head.weight": 4,
        "decoder.layers.1.ffn.linear_2.bias": 5,
    }
    for name, layer in expected.items():
        assert rates[f"funnel.{name}"] == 2.0 * 0.5 ** (5 - layer), name
        if "word_embeddings" not in name:
            assert rates[f"generator.funnel.{name}"] == 2.0 * 0.5 ** (5 - layer), name
    assert rates["discriminator_predictions.dense.weight"] == rates["generator.lm_head.bias"] == 2.0


class _Blocks(nn.Module):
    """Two blocks of two layers, and a decoder that goes on counting."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList(nn.ModuleList(nn.Linear(4, 4) for _ in range(2)) for _ in range(2))
        self.decoder = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5)

    def layer_of(self, name: str) -> int | None:
        if name.startswith("blocks."):
            block, layer = map(int, name.split(".")[1:3])
            return 1 + 2 * block + layer
        return {"embeddings": 0, "decoder": 5}.get(name.split(".")[0])


def test_a_model_may_say_which_layer_a_parameter_is_of() -> None:
    rates = _rates(_Blocks(), 0.1)
    expected = {
        "embeddings.weight": 5,
        "blocks.0.0.bias": 4,
        "blocks.1.1.weight": 1,
        "decoder.weight": 0,
        "head.bias": 0,
    }
    for name, below in expected.items():
        assert abs(rates[name] - 2.0 * 0.1**below) < 1e-12, name


def test_a_lower_rate_moves_a_layer_less() -> None:
    torch.manual_seed(0)
    model = _bert().eval()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, learning_rate=1e-2, weight_decay=0.0, layer_decay=0.1)
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    ids = torch.randint(0, 20, (2, 6))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    moved = [
        (model.get_parameter(name) - before[name]).abs().max().item()
        for name in (f"bert.encoder.layer.{layer}.output.dense.weight" for layer in range(3))
    ]
    # AdamW's first step is as large as the rate, whatever the gradient's size.
    for layer, size in enumerate(moved):
        assert abs(size - 1e-2 * 0.1 ** (2 - layer)) < 1e-2 * 0.1 ** (2 - layer) * 0.05


def test_layers_that_cannot_be_told_are_refused() -> None:
    config = FunnelConfig(vocab_size=20, block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=16)
    with pytest.raises(
        UsageError, match=r"expected numbered layers for a layer_decay of 0.5, got funnel.encoder.blocks"
    ):
        _rates(FunnelForMaskedLM(config), 0.5)
    assert set(_rates(FunnelForMaskedLM(config), 1.0).values()) == {2.0}
    with pytest.raises(UsageError, match="expected numbered layers for a layer_decay of 0.5, got none in Linear; give"):
        _rates(nn.Linear(2, 2), 0.5)


def test_the_papers_rates() -> None:
    assert [pretraining_learning_rate(layers) for layers in (12, 24, 25, 30)] == [1e-4, 1e-4, 8e-5, 8e-5]


def test_a_funnels_layers_are_counted_through_blocks_and_decoder() -> None:
    from narrows.funnel import FunnelConfig as OurConfig
    from narrows.funnel.heads import FunnelForTokenClassification

    sizes = {"block_sizes": [2, 1], "block_repeats": [1, 2], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 16}
    model = FunnelForTokenClassification(OurConfig(vocab_size=20, num_decoder_layers=1, **sizes))
    found = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert {layer for layer in found.values() if layer is not None} == {0, 1, 2, 3, 4}
    for part, layer in (("embeddings", 0), ("blocks.0.1", 2), ("blocks.1.0", 3), ("decoder.layers.0", 4)):
        assert {number for name, number in found.items() if f"{part}." in name} == {layer}
    assert found["classifier.weight"] is None
    assert _rates(model, 0.5)["funnel.embeddings.word_embeddings.weight"] == 2.0 * 0.5**4
