"""The DeFormer as a transformers model: padding, losses, files, and the two-step form for serving."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import narrows
from narrows.deformer import (
    DeformerConfig,
    DeformerForQuestionAnswering,
    DeformerForSequenceClassification,
    DeformerModel,
)
from narrows.errors import UsageError

HEADS = [DeformerForQuestionAnswering, DeformerForSequenceClassification]
CLASSES = [DeformerModel, *HEADS]


def build(kind=DeformerForQuestionAnswering, **fields):
    """A random model of five layers in eval mode; large weights, so that a wrong one shows."""
    sizes = {
        "vocab_size": 53,
        "hidden_size": 14,
        "num_hidden_layers": 5,
        "num_attention_heads": 2,
        "intermediate_size": 23,
        "max_position_embeddings": 31,
        "split_layer": 3,
        "initializer_range": 0.3,
        "num_labels": 3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(DeformerConfig(**{**sizes, **fields})).eval()


@pytest.fixture(scope="module")
def span_model():
    return build()


@pytest.fixture(scope="module")
def class_model():
    return build(DeformerForSequenceClassification)


def row(question: int, passage: int, pads: tuple[int, int, int] = (0, 0, 0), seed: int = 0) -> dict[str, Tensor]:
    """One pair of random ids with padding before, between and after the sides."""
    ids = torch.randint(1, 53, (question + passage,), generator=torch.Generator().manual_seed(seed)).tolist()
    left, middle, right = pads
    tokens = [0] * left + ids[:question] + [0] * middle + ids[question:] + [0] * right
    segments = [0] * (left + question + middle) + [1] * (passage + right)
    return {
        "input_ids": torch.tensor([tokens]),
        "attention_mask": torch.tensor([[int(token != 0) for token in tokens]]),
        "token_type_ids": torch.tensor([segments]),
    }


def batch(*sizes: tuple[int, int]) -> dict[str, Tensor]:
    """Pairs of several lengths in one batch, padded on the right."""
    longest = max(sum(size) for size in sizes)
    rows = [row(*size, pads=(0, 0, longest - sum(size)), seed=i) for i, size in enumerate(sizes)]
    return {name: torch.cat([r[name] for r in rows]) for name in rows[0]}


RAGGED = batch((5, 7), (3, 11), (2, 4), (6, 1), (4, 9))


def labels_for(model) -> dict[str, Tensor]:
    if isinstance(model, DeformerForQuestionAnswering):
        return {
            "start_positions": torch.tensor([6, 0, 3, 2, 5]),
            "end_positions": torch.tensor([8, 0, 5, 6, 12]),
        }
    if model.config.num_labels == 1:
        return {"labels": torch.tensor([0.5, -1.0, 2.0, 0.0, 1.5])}
    return {"labels": torch.tensor([0, 2, 1, 1, 0])}


def logits_of(model, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        out = model(**inputs)
    if isinstance(model, DeformerModel):
        return out.last_hidden_state
    if isinstance(model, DeformerForQuestionAnswering):
        return torch.stack([out.start_logits, out.end_logits], -1)
    return out.logits


def close(got: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=0)


PADS = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))


@given(question=st.integers(1, 9), passage=st.integers(1, 9), pads=PADS, seed=st.integers(0, 9))
def test_padding_anywhere_is_a_no_op(question, passage, pads, seed, span_model, class_model):
    alone, padded = row(question, passage, seed=seed), row(question, passage, pads, seed=seed)
    real = padded["attention_mask"][0] == 1
    close(logits_of(span_model, padded)[0, real], logits_of(span_model, alone)[0])
    close(logits_of(class_model, padded), logits_of(class_model, alone))
    without_mask = {name: value for name, value in alone.items() if name != "attention_mask"}
    close(logits_of(span_model, without_mask), logits_of(span_model, alone))


@pytest.mark.parametrize("kind", HEADS)
def test_a_pair_alone_equals_the_pair_in_a_batch(kind):
    model = build(kind)
    together = logits_of(model, RAGGED)
    for i, mask in enumerate(RAGGED["attention_mask"]):
        alone = {name: value[i : i + 1, : int(mask.sum())] for name, value in RAGGED.items()}
        got = together[i : i + 1, : int(mask.sum())] if kind is DeformerForQuestionAnswering else together[i : i + 1]
        close(got, logits_of(model, alone))


@pytest.mark.parametrize("split_layer", range(5))
@pytest.mark.parametrize("kind", HEADS)
def test_two_steps_give_the_logits_of_one(kind, split_layer):
    model = build(kind, split_layer=split_layer)
    question, lengths = row(5, 0)["input_ids"], (7, 3, 11)
    passages = torch.zeros(3, 11, dtype=torch.long)
    for i, length in enumerate(lengths):
        passages[i, :length] = row(0, length, seed=i + 1)["input_ids"]
    real = passages != 0
    with torch.no_grad():
        states = model.deformer.encode_side(passages, real, segment=1)
        asked = model.deformer.encode_side(question, segment=0)
        score = model.score_spans if kind is DeformerForQuestionAnswering else model.score_pairs
        got = score(asked, states, real)
    for i, length in enumerate(lengths):
        ids = torch.cat([question, passages[i : i + 1, :length]], 1)
        pair = {"input_ids": ids, "token_type_ids": (torch.arange(ids.shape[1]) >= 5).long()[None]}
        whole = logits_of(model, pair)[0]
        if kind is DeformerForQuestionAnswering:
            close(got[i, 0], whole[0])
            close(got[i, 1 : 1 + length], whole[5:])
        else:
            close(got[i], whole)


@pytest.mark.parametrize("kind", CLASSES)
def test_stored_lower_states_give_the_logits_of_the_whole(kind):
    model = build(kind)
    with torch.no_grad():
        states = model(**RAGGED, output_hidden_states=True).hidden_states
        assert len(states) == 6 and states[0].shape == (5, 14, 14)
        short = model(**RAGGED, lower_states=states[3], output_hidden_states=True).hidden_states
    assert len(short) == 3
    assert all(torch.equal(a, b) for a, b in zip(short, states[3:], strict=True))
    assert torch.equal(logits_of(model, {**RAGGED, "lower_states": states[3]}), logits_of(model, RAGGED))
    assert model(**RAGGED).hidden_states is None


@pytest.mark.parametrize("kind", HEADS)
def test_eager_equals_sdpa(kind):
    model = build(kind)
    assert model.attention_backend == "sdpa"
    expected = logits_of(model, RAGGED)
    model.set_attn_implementation("eager")
    assert model.attention_backend == model.deformer.attention_backend == "matmul"
    real = RAGGED["attention_mask"] == 1
    got = logits_of(model, RAGGED)
    close(got[real], expected[real]) if kind is DeformerForQuestionAnswering else close(got, expected)


def test_an_attention_that_the_model_lacks_is_refused(tmp_path, span_model):
    span_model.save_pretrained(tmp_path)
    for name in ("flash_attention_2", "flex_attention", "nothing"):
        with pytest.raises(ValueError, match="support"):
            DeformerForQuestionAnswering.from_pretrained(tmp_path, attn_implementation=name)
    model = build()
    model.config._attn_implementation = "paged"
    with pytest.raises(UsageError, match="`attn_implementation` must be one of eager, sdpa, got 'paged'; choose one"):
        logits_of(model, RAGGED)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", HEADS)
def test_gradient_checkpointing_gives_the_same_gradients(kind, reentrant):
    def gradients(checkpointing: bool) -> tuple[Tensor, list[Tensor]]:
        model = build(kind, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        if checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": reentrant})
            assert model.is_activation_checkpointing
        loss = model(**RAGGED, **labels_for(model)).loss
        loss.backward()
        return loss.detach(), [parameter.grad for parameter in model.parameters()]

    (loss, plain), (same_loss, again) = gradients(False), gradients(True)
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("kind", HEADS)
def test_every_trainable_parameter_gets_a_gradient(kind):
    model = build(kind).train()
    model(**RAGGED, **labels_for(model)).loss.backward()
    untouched = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # Every query gains the same from the key's bias, which softmax takes away again, up to rounding.
    assert [name for name in untouched if not name.endswith("key.bias")] == []
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (DeformerForQuestionAnswering, 2),
        (DeformerForSequenceClassification, 3),
        (DeformerForSequenceClassification, 1),
    ],
)
def test_a_step_does_not_depend_on_how_the_batch_is_split(kind, labels):
    model = build(kind, num_labels=labels)
    inputs = {**RAGGED, **labels_for(model)}
    whole = model(**inputs).loss
    expected = torch.autograd.grad(whole, list(model.parameters()))
    assert model.accepts_loss_kwargs
    for cuts in ([0, 1, 5], [0, 3, 4, 5]):
        parts = []
        for low, high in zip(cuts, cuts[1:], strict=False):
            cut = {name: value[low:high] for name, value in inputs.items()}
            width = int(cut["attention_mask"].sum(-1).max())
            cut = {name: value[:, :width] if value.dim() == 2 else value for name, value in cut.items()}
            parts.append(model(**cut, num_items_in_batch=torch.tensor(5)).loss)
        close(sum(parts), whole)
        for got, wanted in zip(torch.autograd.grad(sum(parts), list(model.parameters())), expected, strict=True):
            torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)
    without = model(**{**RAGGED, **labels_for(model)}, num_items_in_batch=5).loss
    assert torch.equal(without, whole)


@pytest.mark.parametrize("kind", CLASSES)
def test_saving_and_loading_gives_every_tensor_back(kind, tmp_path):
    model = build(kind, id2label={0: "no", 1: "yes", 2: "maybe"}, label2id={"no": 0, "yes": 1, "maybe": 2})
    model.save_pretrained(tmp_path)
    again, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    ours, theirs = dict(again.named_buffers()), dict(model.named_buffers())
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(logits_of(again, RAGGED), logits_of(model, RAGGED))
    assert again.config.id2label == {0: "no", 1: "yes", 2: "maybe"}
    assert again.config.label2id == {"no": 0, "yes": 1, "maybe": 2}


def test_a_partial_checkpoint_keeps_what_it_has(tmp_path, span_model):
    span_model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    gone = [
        "qa_outputs.weight",
        "deformer.backbone.layers.2.attention_norm.bias",
        "deformer.backbone.layers.1.up.weight",
    ]
    kept = {name: tensor for name, tensor in tensors.items() if name not in gone}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    again, report = DeformerForQuestionAnswering.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(gone)
    state = again.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in kept.items())
    assert not torch.equal(state["qa_outputs.weight"], tensors["qa_outputs.weight"])
    assert 0 < float(state["deformer.backbone.layers.1.up.weight"].std()) < 0.5
    assert all(bool(tensor.isfinite().all()) for tensor in state.values())


def test_auto_classes_know_the_models_after_registration(tmp_path):
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForQuestionAnswering,
        AutoModelForSequenceClassification,
    )

    narrows.register_all()
    narrows.register_all()
    autos = [AutoModel, AutoModelForQuestionAnswering, AutoModelForSequenceClassification]
    for auto, kind in zip(autos, CLASSES, strict=True):
        folder = tmp_path / kind.__name__
        model = build(kind)
        model.save_pretrained(folder)
        again = auto.from_pretrained(folder)
        assert type(again) is kind and type(AutoConfig.from_pretrained(folder)) is DeformerConfig
        assert torch.equal(logits_of(again, RAGGED), logits_of(model, RAGGED))


@pytest.mark.parametrize("change", [7, -7])
@pytest.mark.parametrize("kind", CLASSES)
def test_resizing_the_vocabulary(kind, change, tmp_path):
    model = build(kind)
    names, old = set(model.state_dict()), model.get_input_embeddings().weight.detach().clone()
    model.resize_token_embeddings(53 + change, mean_resizing=False)
    assert set(model.state_dict()) == names and model.config.vocab_size == 53 + change
    table = model.get_input_embeddings().weight
    shared = min(53, 53 + change)
    assert table.shape[0] == 53 + change and torch.equal(table[:shared], old[:shared])
    inputs = {**RAGGED, "input_ids": RAGGED["input_ids"].clamp_max(52 + change)}
    inputs["input_ids"][0, 2] = 52 + change
    expected = logits_of(model, inputs)
    model.save_pretrained(tmp_path)
    again, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(logits_of(again, inputs), expected)


def test_other_embeddings_can_be_put_in_place(span_model):
    model = build()
    table = nn.Embedding(53, 14, padding_idx=0)
    model.set_input_embeddings(table)
    assert model.get_input_embeddings() is table and model.deformer.backbone.embeddings.word is table
    assert set(model.state_dict()) == set(span_model.state_dict())
    assert not torch.allclose(logits_of(model, RAGGED), logits_of(span_model, RAGGED))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", HEADS)
def test_loading_in_half_precision(kind, dtype, tmp_path):
    model = build(kind, initializer_range=0.1)
    model.save_pretrained(tmp_path)
    half = kind.from_pretrained(tmp_path, dtype=dtype)
    assert {p.dtype for p in half.parameters()} == {dtype}
    got, expected = logits_of(half, RAGGED), logits_of(model, RAGGED)
    assert got.dtype == dtype
    real = RAGGED["attention_mask"] == 1
    if kind is DeformerForQuestionAnswering:
        got, expected = got[real], expected[real]
    close(got.float(), expected, 0.1)
    half.save_pretrained(tmp_path / "half")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    assert torch.equal(logits_of(kind.from_pretrained(tmp_path / "half"), RAGGED), logits_of(half, RAGGED))


def test_a_text_longer_than_the_positions_is_refused(span_model):
    text = "a text must have at most 31 tokens, got 32; cut it into windows or convert"
    with pytest.raises(UsageError, match=text):
        logits_of(span_model, row(1, 32))
    with pytest.raises(UsageError, match=text):
        span_model.deformer.encode_side(row(0, 32)["input_ids"], segment=1)
    # Each side counts for itself, and padding does not count.
    assert logits_of(span_model, row(31, 31, pads=(5, 5, 5))).shape == (1, 77, 2)


def test_given_positions_are_used(span_model):
    inputs = row(5, 7)
    counted = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]])
    assert torch.equal(logits_of(span_model, {**inputs, "position_ids": counted}), logits_of(span_model, inputs))
    assert not torch.equal(
        logits_of(span_model, {**inputs, "position_ids": counted + 1}), logits_of(span_model, inputs)
    )


def test_without_labels_there_is_no_loss_and_a_tuple_on_request(span_model):
    assert span_model(**RAGGED).loss is None
    start, end = span_model(**RAGGED, return_dict=False)
    assert start.shape == end.shape == (5, 14)
