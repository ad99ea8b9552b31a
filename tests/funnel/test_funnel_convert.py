"""transformers' checkpoints into funnels and back: every tensor accounted for, heads kept, numbers the same."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import FunnelConfig as TheirConfig
from transformers import T5Config, T5EncoderModel
from transformers.models.funnel import modeling_funnel as theirs

from narrows.errors import ConversionError, UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.convert import TASKS, convert_checkpoint
from narrows.funnel.heads import FunnelForElectraPreTraining, FunnelForSequenceClassification
from narrows.funnel.to_transformers import to_transformers

SIZES = {
    "vocab_size": 43,
    "d_model": 16,
    "n_head": 2,
    "d_head": 8,
    "d_inner": 24,
    "block_sizes": [1, 2, 1],
    "block_repeats": [1, 1, 2],
    "num_decoder_layers": 2,
    "pad_token_id": 0,
}
SOURCES = {
    "encoder": theirs.FunnelBaseModel,
    "full": theirs.FunnelModel,
    "replaced-token-detection": theirs.FunnelForPreTraining,
    "masked-lm": theirs.FunnelForMaskedLM,
    "sequence-classification": theirs.FunnelForSequenceClassification,
    "multiple-choice": theirs.FunnelForMultipleChoice,
    "token-classification": theirs.FunnelForTokenClassification,
    "question-answering": theirs.FunnelForQuestionAnswering,
}


def save_source(folder, task="full", **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = TheirConfig(**{**SIZES, "initializer_std": 0.3, **changes})
        model = SOURCES[task](config).eval()
    model.save_pretrained(folder)
    return model


def rows(shape=(2, 17)):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, 43, shape, generator=generator)


def outputs_of(model, ids):
    with torch.no_grad():
        outputs = model(ids, attention_mask=torch.ones_like(ids).index_fill(-1, torch.tensor([15, 16]), 0))
    names = ("last_hidden_state", "logits", "start_logits", "end_logits")
    return [outputs[name] for name in names if name in outputs]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("task", SOURCES)
def test_a_checkpoint_of_transformers_computes_the_same_and_goes_back(task, tmp_path) -> None:
    labels = {"num_labels": 3} if task in ("sequence-classification", "token-classification") else {}
    source = save_source(tmp_path / "source", task, **labels)
    ids = rows((2, 3, 17)) if task == "multiple-choice" else rows()
    model, report = convert_checkpoint(tmp_path / "source", semantics="hf")
    assert type(model) is TASKS[task] and not report.new and not report.dropped
    assert_same(outputs_of(model, ids), outputs_of(source, ids))

    model.save_pretrained(tmp_path / "ours")
    again = TASKS[task].from_pretrained(tmp_path / "ours").eval()
    assert_same(outputs_of(again, ids), outputs_of(source, ids))

    back, report = to_transformers(tmp_path / "ours")
    assert type(back) is SOURCES[task] and not report.new and not report.dropped
    for name, tensor in source.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    back.save_pretrained(tmp_path / "back")
    assert_same(outputs_of(SOURCES[task].from_pretrained(tmp_path / "back").eval(), ids), outputs_of(source, ids))


def test_the_default_is_exact_and_equal_where_nothing_is_padded_or_truncated(tmp_path) -> None:
    source = save_source(tmp_path, "full", truncate_seq=False)
    model, _ = convert_checkpoint(tmp_path)
    assert model.config.semantics == "exact"
    with torch.no_grad():
        ours, expected = model(rows()).last_hidden_state, source(rows()).last_hidden_state
    torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_any_task_from_a_model_with_a_decoder(task, tmp_path) -> None:
    save_source(tmp_path)
    changes = {"generator_ratio": 0.5} if task == "electra" else {}
    model, report = convert_checkpoint(tmp_path, task=task, **changes)
    assert type(model) is TASKS[task]
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert not any("encoder" in name for name in report.new if not name.startswith("generator."))
    without_decoder = task in ("encoder", "embedding", "sequence-classification", "multiple-choice")
    assert bool(report.dropped) == without_decoder


def test_a_head_of_another_task_and_a_missing_decoder_are_named(tmp_path) -> None:
    save_source(tmp_path, "sequence-classification", num_labels=3)
    model, report = convert_checkpoint(tmp_path, task="token-classification", num_labels=5)
    assert report.dropped == {
        f"classifier.{layer}.{part}": "head of another task"
        for layer in ("linear_hidden", "linear_out")
        for part in ("weight", "bias")
    }
    reasons = {name.removeprefix("funnel.").split(".")[0]: reason for name, reason in report.new.items()}
    assert reasons == {
        "classifier": "head, random: to be trained",
        "decoder": "decoder, random: to be trained or distilled",
    }
    assert model.classifier.out_features == 5
    assert 0 < model.classifier.weight.std() < 0.4 and not model.classifier.bias.any()


def test_labels_and_sizes_are_kept(tmp_path) -> None:
    names = {0: "bad", 1: "fair", 2: "good"}
    save_source(tmp_path, "sequence-classification", id2label=names, label2id={v: k for k, v in names.items()})
    model, _ = convert_checkpoint(tmp_path, hidden_dropout=0.0)
    assert model.config.id2label == names and model.config.hidden_dropout == 0.0
    assert model.config.block_repeats == [1, 1, 2] and model.config.pad_token_id == 0
    assert isinstance(model, FunnelForSequenceClassification)
    assert convert_checkpoint(tmp_path, task="encoder")[0].config.id2label == names


def test_weights_keep_their_precision_and_their_ties(tmp_path) -> None:
    save_source(tmp_path / "half", "masked-lm").half().save_pretrained(tmp_path / "half")
    model, _ = convert_checkpoint(tmp_path / "half")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}
    assert model.lm_head.weight is model.funnel.embeddings.word_embeddings.weight
    save_source(tmp_path / "untied", "masked-lm", tie_word_embeddings=False)
    model, _ = convert_checkpoint(tmp_path / "untied")
    assert model.lm_head.weight is not model.funnel.embeddings.word_embeddings.weight
    assert not model.config.tie_word_embeddings


def test_a_copy_of_the_embeddings_is_dropped(tmp_path) -> None:
    save_source(tmp_path, "masked-lm")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["funnel.embeddings.word_embeddings.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    model, report = convert_checkpoint(tmp_path)
    assert report.dropped == {"lm_head.weight": "a copy of funnel.embeddings.word_embeddings.weight"}
    assert model.lm_head.weight is model.funnel.embeddings.word_embeddings.weight


def test_a_funnel_of_narrows_gets_another_head_or_semantics(tmp_path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = FunnelConfig(**SIZES, generator_ratio=0.5, discriminator_positive="original", semantics="official")
        FunnelForElectraPreTraining(config).save_pretrained(tmp_path / "electra")
    model, report = convert_checkpoint(tmp_path / "electra", task="replaced-token-detection")
    assert model.config.semantics == "official" and not report.new
    assert set(report.dropped.values()) == {"head of another task"}
    assert all(name.startswith("generator.") for name in report.dropped)
    same, _ = convert_checkpoint(tmp_path / "electra", semantics="exact")
    assert same.config.semantics == "exact"
    assert torch.equal(same.generator.lm_head.bias, FunnelForElectraPreTraining(config).generator.lm_head.bias)
    back, report = to_transformers(tmp_path / "electra")
    assert set(report.dropped.values()) == {"generator of ELECTRA; transformers has no place for it"}
    # Its sign is turned, since there a logit above 0 says `replaced`.
    last = model.discriminator_predictions.dense_prediction.weight
    assert torch.equal(back.discriminator_predictions.dense_prediction.weight, -last)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"d_embed": 8}, "`d_embed` must be `d_model` for transformers' Funnel, got 8; it would not compute the same"),
        ({"decoder_repeats": [2, 1]}, "`decoder_repeats` must be ones"),
        ({"pooling_size": 3}, "`pooling_size` must be 2"),
        ({"pooling_type": "top_attention"}, "`pooling_type` must be mean or max"),
        ({"position_type": "absolute"}, "`position_type` must be relative"),
        ({"cls_token_type_id": 0}, "`cls_token_type_id` must be 2 for transformers' Funnel, got 0"),
    ],
)
def test_what_transformers_has_no_place_for(changes, text, tmp_path) -> None:
    TASKS["full"](FunnelConfig(**{**SIZES, **changes})).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=text):
        to_transformers(tmp_path)


def test_heads_that_transformers_lacks(tmp_path) -> None:
    TASKS["conditional-question-answering"](FunnelConfig(**SIZES)).save_pretrained(tmp_path / "spans")
    with pytest.raises(UsageError, match="expected a head that transformers' Funnel has, got FunnelForConditional"):
        to_transformers(tmp_path / "spans")
    lm = FunnelConfig(**SIZES, lm_head_transform=True)
    TASKS["masked-lm"](lm).save_pretrained(tmp_path / "lm")
    with pytest.raises(UsageError, match="`lm_head_transform` must be False for transformers' Funnel, got True"):
        to_transformers(tmp_path / "lm")
    save_source(tmp_path / "theirs")
    with pytest.raises(ConversionError, match="expected a Funnel of narrows in .*, got model type 'funnel'; convert"):
        to_transformers(tmp_path / "theirs")
    TASKS["embedding"](FunnelConfig(**SIZES)).save_pretrained(tmp_path / "vectors")
    assert type(to_transformers(tmp_path / "vectors")[0]) is theirs.FunnelBaseModel


def test_another_checkpoint_is_named(tmp_path) -> None:
    sizes = {"vocab_size": 9, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    T5EncoderModel(T5Config(**sizes)).save_pretrained(tmp_path / "t5")
    with pytest.raises(ConversionError, match="or of narrows, or a BERT, got model type 't5'; choose another"):
        convert_checkpoint(tmp_path / "t5")
    save_source(tmp_path / "funnel")
    tensors = {"input_layer.0.lookup_table": torch.zeros(43, 16)}
    save_file(tensors, tmp_path / "funnel" / "model.safetensors")
    with pytest.raises(
        ConversionError, match="got those of the authors' PyTorch code; put their net_config.json there"
    ):
        convert_checkpoint(tmp_path / "funnel")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "nothing"}')
    save_file(tensors, tmp_path / "broken" / "model.safetensors")
    with pytest.raises(ConversionError, match="expected a config.json of a known model in .*; pass a checkpoint's"):
        convert_checkpoint(tmp_path / "broken")


def test_used_wrongly(tmp_path) -> None:
    save_source(tmp_path)
    with pytest.raises(
        UsageError, match="`task` must be one of encoder, full, .*, got 'summaries'; choose one of them"
    ):
        convert_checkpoint(tmp_path, task="summaries")
    with pytest.raises(UsageError, match="expected fields of FunnelConfig, got split_layer; see its documentation"):
        convert_checkpoint(tmp_path, split_layer=3)
    with pytest.raises(UsageError, match=r"expected block sizes for a BERT only, got \[2, 2\] for a funnel"):
        convert_checkpoint(tmp_path, block_sizes=[2, 2])
    with pytest.raises(UsageError, match="`semantics` must be one of exact, official, hf, got 'both'"):
        convert_checkpoint(tmp_path, semantics="both")


def test_a_part_too_many_or_too_few_is_refused(tmp_path) -> None:
    save_source(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for sizes, text in (([1, 1, 1], "the checkpoint has more layers or parts"), ([1, 2, 2], "it is incomplete or of")):
        (tmp_path / "config.json").write_text(json.dumps({**config, "block_sizes": sizes}))
        with pytest.raises(ConversionError, match=text):
            convert_checkpoint(tmp_path)
