"""BERT with bottleneck layers: a dense reference, padding, saving, heads, and what is refused."""

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertModel,
)

from narrows import register_all
from narrows.bottleneck import BottleneckAttention, SelfAttention
from narrows.bottleneck.bert import (
    BottleneckBertConfig,
    BottleneckBertForMaskedLM,
    BottleneckBertForQuestionAnswering,
    BottleneckBertForSequenceClassification,
    BottleneckBertForTokenClassification,
    BottleneckBertModel,
)
from narrows.bottleneck.reach import Reach
from narrows.bottleneck.reference import reference
from narrows.errors import UsageError

HEADS = [
    (AutoModelForMaskedLM, BottleneckBertForMaskedLM),
    (AutoModelForQuestionAnswering, BottleneckBertForQuestionAnswering),
    (AutoModelForSequenceClassification, BottleneckBertForSequenceClassification),
    (AutoModelForTokenClassification, BottleneckBertForTokenClassification),
]


def config(**changes) -> BottleneckBertConfig:
    fields = {
        "vocab_size": 43,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "max_position_embeddings": 30,
        "initializer_range": 0.3,
        "bottleneck_layers": [1, 3],
    }
    return BottleneckBertConfig(**{**fields, **changes})


def make(kind=BottleneckBertModel, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config(**changes)).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return model


def rows(batch=2, length=9):
    return torch.randint(1, 43, (batch, length), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize("act", ["linear", "gelu"])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_the_attention_is_the_dense_reference(act, kernel) -> None:
    model = make(bottleneck_act=act)
    model.set_attn_implementation(kernel)
    attention = model.encoder.layer[0].attention
    inner = SelfAttention(12, heads=3, reach=Reach(causal=False), rotary_base=None)
    dense = BottleneckAttention(24, inner=12, attention=inner, activation=attention.self.activation)
    for ours, theirs in (
        (dense.down_proj, attention.self.down),
        (inner.q_proj, attention.self.query),
        (inner.k_proj, attention.self.key),
        (inner.v_proj, attention.self.value),
        (dense.up_proj, attention.output.dense),
    ):
        ours.load_state_dict(theirs.state_dict())
    inner.o_proj.weight.copy_(torch.eye(12))
    inner.o_proj.bias.zero_()
    dense.scale = None
    states = torch.randn(7, 24, generator=torch.Generator().manual_seed(1))
    found = attention.output.dense(attention.self(states[None])[0])[0]
    torch.testing.assert_close(found, reference(dense, states), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(kernel, side) -> None:
    model, ids = make(), rows()
    model.set_attn_implementation(kernel)
    alone = model(ids).last_hidden_state
    before, after = (4, 0) if side == "left" else (0, 4)
    padded = torch.nn.functional.pad(ids, (before, after))
    mask = torch.nn.functional.pad(torch.ones_like(ids), (before, after))
    found = model(padded, attention_mask=mask).last_hidden_state[:, before : before + 9]
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-4)
    # A row without a token harms none of the others.
    mask[1] = 0
    torch.testing.assert_close(
        model(padded, attention_mask=mask).last_hidden_state[0, before : before + 9], alone[0], atol=1e-5, rtol=1e-4
    )


@torch.no_grad()
def test_without_narrow_layers_it_is_a_bert() -> None:
    model = make(bottleneck_layers=[])
    source = BertModel(model.config).eval()
    source.load_state_dict(model.state_dict())
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
    real = mask.bool()
    for segments in (None, (torch.arange(9) > 3).long().expand(2, 9)):
        inputs = {"attention_mask": mask, "token_type_ids": segments}
        ours, theirs = model(rows(), **inputs), source(rows(), **inputs)
        torch.testing.assert_close(ours.last_hidden_state[real], theirs.last_hidden_state[real])
        torch.testing.assert_close(ours.pooler_output, theirs.pooler_output)


@torch.no_grad()
def test_names_outside_of_attention_are_berts() -> None:
    ours, theirs = set(make().state_dict()), set(BertModel(config()).state_dict())
    layers = [f"encoder.layer.{layer}.attention.self.down.{part}" for layer in (0, 2) for part in ("weight", "bias")]
    assert ours - theirs == set(layers) and not theirs - ours


@torch.no_grad()
def test_saved_and_loaded(tmp_path) -> None:
    register_all()
    model = make(bottleneck_heads=2)
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    assert type(again) is BottleneckBertModel and AutoConfig.from_pretrained(tmp_path).bottleneck_layers == [1, 3]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert torch.equal(again(rows()).last_hidden_state, model(rows()).last_hidden_state)
    outputs = model(rows(), output_hidden_states=True)
    assert len(outputs.hidden_states) == 4
    model.set_attn_implementation("eager")
    weights = model(rows(), output_attentions=True).attentions
    assert [each.shape for each in weights] == [(2, 2, 9, 9), (2, 3, 9, 9), (2, 2, 9, 9)]


@pytest.mark.parametrize(("auto", "kind"), HEADS, ids=lambda kind: kind.__name__)
def test_heads_train_and_come_back(auto, kind, tmp_path) -> None:
    register_all()
    model = make(kind, num_labels=2 if kind is BottleneckBertForQuestionAnswering else 3).train()
    labels = {
        "BottleneckBertForSequenceClassification": {"labels": torch.tensor([0, 2])},
        "BottleneckBertForQuestionAnswering": {
            "start_positions": torch.tensor([1, 2]),
            "end_positions": torch.tensor([3, 4]),
        },
    }.get(kind.__name__, {"labels": rows() % 3})
    model.activation_checkpointing_enable()
    model(rows(), **labels).loss.backward()
    down = model.bert.encoder.layer[2].attention.self.down.weight
    assert down.grad is not None and down.grad.abs().sum() > 0
    model.eval().save_pretrained(tmp_path)
    again = auto.from_pretrained(tmp_path)
    assert type(again) is kind
    with torch.no_grad():
        ours, theirs = again(rows()).to_tuple(), model(rows()).to_tuple()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    if kind is BottleneckBertForMaskedLM:
        assert again.cls.predictions.decoder.weight is again.bert.embeddings.word_embeddings.weight


def test_sizes() -> None:
    assert config(bottleneck_layers=None).bottleneck_layers == [1, 2, 3]
    found = config(bottleneck_ratio=1.5, num_attention_heads=6)
    # Six heads do not divide sixteen numbers.
    assert (found.inner_size, found.inner_heads) == (16, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bottleneck_layers": [0]}, "`bottleneck_layers` must be numbers from 1 to 3, each once, .* got 0; change"),
        ({"bottleneck_layers": [4, 1]}, "numbers from 1 to 3, each once, for 3 layers, got 4, 1"),
        ({"bottleneck_layers": [2, 2]}, "each once, for 3 layers, got 2, 2"),
        ({"bottleneck_layers": "1"}, "`bottleneck_layers` must be of type"),
        ({"bottleneck_ratio": 0}, "`bottleneck_ratio` must be from 1 to hidden_size, 24, and divide it, got 0"),
        ({"bottleneck_ratio": 5}, "and divide it, got 5; 2 is usual"),
        ({"bottleneck_ratio": 48}, "from 1 to hidden_size, 24, and divide it, got 48"),
        ({"bottleneck_ratio": float("nan")}, "and divide it, got nan"),
        ({"bottleneck_heads": 5}, "`bottleneck_heads` must divide the inner width of 12, got 5; change it"),
        ({"bottleneck_heads": 0}, "must divide the inner width of 12, got 0"),
        (
            {"bottleneck_act": "curve"},
            "`bottleneck_act` must be an activation of transformers or 'linear', got 'curve'",
        ),
        ({"is_decoder": True}, "expected a BERT whose tokens see both sides, got is_decoder or add_cross_attention"),
    ],
)
def test_used_wrongly(changes, message) -> None:
    with pytest.raises(UsageError, match=message):
        config(**changes)
