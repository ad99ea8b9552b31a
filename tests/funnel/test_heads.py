"""Heads: transformers' own on the same weights, labels of every kind, and padding that changes nothing."""

import pytest
import torch
from transformers import FunnelConfig as TheirConfig
from transformers import Trainer, TrainingArguments
from transformers.models.funnel import modeling_funnel as theirs

from narrows.errors import UsageError
from narrows.funnel import heads
from narrows.funnel.config import FunnelConfig

SIZES = {
    "vocab_size": 43,
    "d_model": 16,
    "n_head": 2,
    "d_head": 8,
    "d_inner": 24,
    "block_sizes": [1, 2, 1],
    "num_decoder_layers": 1,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}
PAIRS = {
    "classes": (heads.FunnelForSequenceClassification, theirs.FunnelForSequenceClassification, {"num_labels": 3}),
    "number": (heads.FunnelForSequenceClassification, theirs.FunnelForSequenceClassification, {"num_labels": 1}),
    "numbers": (
        heads.FunnelForSequenceClassification,
        theirs.FunnelForSequenceClassification,
        {"num_labels": 4, "problem_type": "regression"},
    ),
    "labels": (
        heads.FunnelForSequenceClassification,
        theirs.FunnelForSequenceClassification,
        {"num_labels": 4, "problem_type": "multi_label_classification"},
    ),
    "choice": (heads.FunnelForMultipleChoice, theirs.FunnelForMultipleChoice, {}),
    "tokens": (heads.FunnelForTokenClassification, theirs.FunnelForTokenClassification, {"num_labels": 5}),
    "span": (heads.FunnelForQuestionAnswering, theirs.FunnelForQuestionAnswering, {}),
    "words": (heads.FunnelForMaskedLM, theirs.FunnelForMaskedLM, {}),
    "replaced": (heads.FunnelForReplacedTokenDetection, theirs.FunnelForPreTraining, {}),
}


def build(kind, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(FunnelConfig(**{**SIZES, "initializer_std": 0.3, **changes}))
    return model.eval()


def pair_of(name):
    ours, their_kind, changes = PAIRS[name]
    model = build(ours, **changes, semantics="hf")
    peer = their_kind(TheirConfig(**SIZES, **changes)).eval()
    peer.load_state_dict(model.state_dict())
    return model, peer


def rows(batch=3, length=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 43, (batch, length), generator=generator)


def labels_of(name, ids):
    generator = torch.Generator().manual_seed(7)
    batch, length = ids.shape[0], ids.shape[-1]
    if name == "span":
        return {"start_positions": torch.tensor([1, 4, 0]), "end_positions": torch.tensor([2, 9, 0])}
    labels = {
        "classes": torch.randint(3, (batch,), generator=generator),
        "number": torch.randn(batch, generator=generator),
        "numbers": torch.randn(batch, 4, generator=generator),
        "labels": torch.randint(2, (batch, 4), generator=generator).float(),
        "choice": torch.randint(2, (batch,), generator=generator),
        "tokens": torch.randint(5, (batch, length), generator=generator),
        "words": torch.where(torch.rand(batch, length, generator=generator) < 0.3, ids, -100)
        if ids.dim() == 2
        else ids,
        "replaced": torch.randint(2, (batch, length), generator=generator),
    }
    return {"labels": labels[name]}


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", PAIRS)
def test_a_head_is_that_of_transformers_on_the_same_weights(name, padded) -> None:
    model, peer = pair_of(name)
    ids = rows() if name != "choice" else torch.stack([rows(), rows(seed=1)], 1)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, ..., 11:] = 0
    with torch.no_grad():
        ours = model(ids, attention_mask=mask, **labels_of(name, ids))
        reference = peer(ids, attention_mask=mask, **labels_of(name, ids))
    outputs = ("start_logits", "end_logits") if name == "span" else ("logits",)
    for output in outputs:
        torch.testing.assert_close(ours[output], reference[output], atol=2e-5, rtol=1e-4)
    # Of a span, transformers counts padding among the places where an answer may be.
    if not (padded and name == "span"):
        torch.testing.assert_close(ours.loss, reference.loss, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", PAIRS)
def test_a_loss_does_not_depend_on_how_a_step_is_split(name) -> None:
    model = build(PAIRS[name][0], **PAIRS[name][2])
    ids = rows() if name != "choice" else torch.stack([rows(), rows(seed=1)], 1)
    given = labels_of(name, ids)
    labels = next(iter(given.values()))
    # As transformers' Trainer counts them.
    items = len(ids) if name == "span" else int((labels != -100).sum())
    with torch.no_grad():
        whole = model(ids, **given).loss
        parts = [
            model(ids[part], **{key: value[part] for key, value in given.items()}, num_items_in_batch=items).loss
            for part in (slice(0, 1), slice(1, 3))
        ]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", PAIRS)
def test_padding_changes_nothing(name, side) -> None:
    model = build(PAIRS[name][0], **PAIRS[name][2])
    ids = rows(1, 6) if name != "choice" else torch.stack([rows(1, 6), rows(1, 6, seed=1)], 1)
    before = 5 if side == "left" else 0
    pads = (before, 5 - before)
    padded = torch.nn.functional.pad(ids, pads, value=2)
    mask = torch.nn.functional.pad(torch.ones_like(ids), pads)
    with torch.no_grad():
        alone, batched = model(ids), model(padded, attention_mask=mask)
    for output in {"logits", "start_logits", "end_logits"} & set(alone):
        ours, expected = batched[output], alone[output]
        if name in ("tokens", "words", "replaced", "span"):
            ours = ours[:, before : before + 6]
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_plain_encoder_finds_the_first_token_behind_padding(side) -> None:
    model = build(heads.FunnelForSequenceClassification, block_sizes=[2], num_decoder_layers=0)
    ids = rows(1, 5)
    pads = (3, 0) if side == "left" else (0, 3)
    padded, mask = (torch.nn.functional.pad(each, pads) for each in (ids, torch.ones_like(ids)))
    with torch.no_grad():
        torch.testing.assert_close(model(padded, attention_mask=mask).logits, model(ids).logits, atol=1e-5, rtol=1e-5)


def test_labels_of_another_shape_are_refused() -> None:
    model = build(heads.FunnelForSequenceClassification, num_labels=4, problem_type="regression")
    with pytest.raises(UsageError, match=r"`labels` must be \[batch, labels\], \[3, 4\], for regression, got \[3\]"):
        model(rows(), labels=torch.zeros(3))
    with pytest.raises(UsageError, match="`problem_type` must be one of regression, .* got 'ranking'"):
        build(heads.FunnelForSequenceClassification, problem_type="ranking")
    choice = build(heads.FunnelForMultipleChoice)
    with pytest.raises(UsageError, match=r"expected inputs of 3 dimensions, \[batch, choices, length\], got a shape"):
        choice(rows())
    with pytest.raises(UsageError, match=r"expected inputs of 4 dimensions, \[batch, choices, length, embed\]"):
        choice(inputs_embeds=torch.zeros(2, 3, 16))


def test_choices_may_be_embedded() -> None:
    model = build(heads.FunnelForMultipleChoice)
    ids = torch.stack([rows(), rows(seed=1)], 1)
    embedded = model.get_input_embeddings()(ids)
    with torch.no_grad():
        torch.testing.assert_close(model(inputs_embeds=embedded).logits, model(ids).logits)


def test_floats_as_labels_are_several_labels_and_none_are_ignored() -> None:
    model = build(heads.FunnelForSequenceClassification, num_labels=2)
    logits = model(rows()).logits
    labels = torch.tensor([[0.0, 1.0]] * 3)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    torch.testing.assert_close(model(rows(), labels=labels).loss, expected)
    tokens = build(heads.FunnelForTokenClassification)
    assert tokens(rows(), labels=torch.full((3, 16), -100)).loss.item() == 0.0


def test_a_head_reads_the_states_of_all_layers_when_asked() -> None:
    model = build(heads.FunnelForSequenceClassification)
    outputs = model(rows(), output_hidden_states=True)
    assert [len(block) for block in outputs.hidden_states] == [2, 2, 1]
    assert model(rows(), return_dict=False)[0].shape == (3, 2)


def test_the_dropout_of_heads_is_that_of_the_model_unless_it_is_set() -> None:
    assert build(heads.FunnelForTokenClassification, hidden_dropout=0.25).dropout.p == 0.25
    assert build(heads.FunnelForMultipleChoice, classifier_dropout=0.5).classifier.dropout.p == 0.5


@pytest.mark.parametrize("name", ["classes", "numbers", "labels"])
def test_transformers_trainer_reports_the_mean_loss_whatever_the_accumulation(name, tmp_path) -> None:
    model = build(PAIRS[name][0], **PAIRS[name][2])
    ids, labels = rows(4), labels_of(name, rows(4))["labels"]
    with torch.no_grad():
        want = float(model(ids, labels=labels).loss)
    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[],
        use_cpu=True, logging_steps=1, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    examples = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]
    trainer = Trainer(model, arguments, train_dataset=examples)  # type: ignore[arg-type]
    assert trainer.train().training_loss == pytest.approx(want, rel=1e-4)
