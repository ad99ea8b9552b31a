"""Configs that no model can have are refused in one sentence of ours, wherever they come from."""

import json

import pytest

from narrows.deformer import DeformerConfig, DeformerForQuestionAnswering, DeformerModel
from narrows.errors import UsageError

SIZES = {
    "vocab_size": 53,
    "hidden_size": 14,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "intermediate_size": 23,
    "max_position_embeddings": 31,
}

BAD = [
    (
        {"split_layer": 5},
        "`split_layer` must be from 0 to 4 for 5 layers, got 5; keep at least one layer joint",
    ),
    (
        {"split_layer": -1},
        "`split_layer` must be from 0 to 4 for 5 layers, got -1; keep at least one layer joint",
    ),
    (
        {"passage_positions": "reset"},
        "`passage_positions` must be 'restart' or 'continue', got 'reset'; choose",
    ),
    (
        {"passage_positions": "continue", "split_layer": 2},
        "`passage_positions` must be 'restart' when split_layer is above 0, got 'continue' with split_layer",
    ),
    (
        {"num_attention_heads": 3},
        "`hidden_size` must be a multiple of `num_attention_heads`, got 14 and 3; change",
    ),
    (
        {"type_vocab_size": 1},
        "`type_vocab_size` must be at least 2 .question, passage., got 1; convert a checkpoint",
    ),
    ({"num_attention_heads": 0}, "`num_attention_heads` must be at least 1, got 0; give the encoder a size"),
    ({"retrieval_weight": -0.5}, "`retrieval_weight` must be a number of at least 0, got -0.5; fit it with"),
    ({"retrieval_weight": float("inf")}, "`retrieval_weight` must be a number of at least 0, got inf; fit it with"),
    (
        {"store_no_answer_scale": 1.0, "store_no_answer_threshold": 0.5},
        "expected store_no_answer_scale, store_no_answer_bias, store_no_answer_threshold together, got no "
        "store_no_answer_bias; give all of them or none",
    ),
    ({"max_answer_tokens": -1}, "`max_answer_tokens` must be at least 1, got -1; give it room for a token"),
    ({"max_question_tokens": 0}, "`max_question_tokens` must be at least 1, got 0; give it room for a token"),
    ({"max_passage_tokens": 0}, "`max_passage_tokens` must be at least 1, got 0; give it room for a token"),
    ({"max_position_embeddings": 0}, "`max_position_embeddings` must be at least 1, got 0; give it room for a"),
    ({"no_answer_scale": float("nan")}, "`no_answer_scale` must be a finite number, got nan; fit it with `narrows"),
    ({"no_answer_bias": float("-inf")}, "`no_answer_bias` must be a finite number, got -inf; fit it with"),
    ({"no_answer_threshold": float("nan")}, "`no_answer_threshold` must be a finite number, got nan; fit it with"),
    ({"store_no_answer_bias": float("nan")}, "`store_no_answer_bias` must be a finite number, got nan; fit it with"),
    ({"retrieval_weight": float("nan")}, "`retrieval_weight` must be a number of at least 0, got nan; fit it with"),
    ({"pad_token_id": 53}, "`pad_token_id` must be from 0 to 52 for a `vocab_size` of 53, got 53; name the"),
    ({"hidden_act": "x"}, "`hidden_act` must be a name that transformers knows, got 'x'; see ACT2FN"),
    ({"num_hidden_layers": 0}, "`num_hidden_layers` must be at least 1, got 0; give the encoder a size"),
]


@pytest.mark.parametrize(("change", "text"), BAD, ids=lambda value: str(value)[:30])
def test_a_bad_field_is_named(change, text):
    with pytest.raises(UsageError, match=f"^{text}"):
        DeformerConfig(**{**SIZES, **change})


@pytest.mark.parametrize(("change", "text"), BAD, ids=lambda value: str(value)[:30])
def test_a_bad_config_file_is_refused_with_the_same_words(change, text, tmp_path):
    DeformerConfig(**SIZES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UsageError, match=f"^{text}"):
        DeformerConfig.from_pretrained(tmp_path)


def test_an_option_that_spoils_a_good_checkpoint_is_refused(tmp_path):
    DeformerForQuestionAnswering(DeformerConfig(**SIZES, split_layer=2)).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="`split_layer` must be from 0 to 4 for 5 layers, got 9"):
        DeformerForQuestionAnswering.from_pretrained(tmp_path, split_layer=9)
    with pytest.raises(UsageError, match="`passage_positions` must be 'restart' when split_layer is above 0"):
        DeformerForQuestionAnswering.from_pretrained(tmp_path, passage_positions="continue")
    assert DeformerForQuestionAnswering.from_pretrained(tmp_path, split_layer=4).config.split_layer == 4


def test_an_unknown_backbone_is_named():
    with pytest.raises(UsageError, match="`backbone` must be one of bert, got 'xlnet'; convert a checkpoint whose"):
        DeformerModel(DeformerConfig(**SIZES, backbone="xlnet"))


OF_ANOTHER_TYPE = [
    ("split_layer", "two", "`split_layer` must be of type int, got 'two'; change it in config.json or where it is"),
    ("split_layer", 2.0, "`split_layer` must be of type int, got 2.0; change it in config.json"),
    ("split_layer", True, "`split_layer` must be of type int, got True; change it in config.json"),
    ("hidden_act", 3, "`hidden_act` must be of type str, got 3; change it in config.json"),
    ("pad_token_id", "x", r"`pad_token_id` must be of type int \| None, got 'x'; change it in config.json"),
    ("no_answer_scale", [1], r"`no_answer_scale` must be of type float \| int, got \[1\]; change it in config.json"),
    ("id2label", 3, "`id2label` must be of type dict, got 3; name every class by its number"),
]


@pytest.mark.parametrize(("field", "value", "text"), OF_ANOTHER_TYPE)
def test_a_field_of_another_type_is_named(field, value, text, tmp_path):
    with pytest.raises(UsageError, match=f"^{text}"):
        DeformerConfig(**{**SIZES, field: value})
    DeformerConfig(**SIZES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(UsageError, match=f"^{text}"):
        DeformerConfig.from_pretrained(tmp_path)


def test_a_field_set_later_is_checked_too():
    config = DeformerConfig(**SIZES)
    with pytest.raises(UsageError, match="^`split_layer` must be of type int, got '3'; change it"):
        config.split_layer = "3"
    config.name_of_nothing = "3"
    assert (config.split_layer, config.name_of_nothing) == (0, "3")


def test_whole_numbers_are_numbers():
    config = DeformerConfig(**SIZES, no_answer_threshold=1, no_answer_bias=0, layer_norm_eps=1)
    assert (config.no_answer_threshold, config.no_answer_bias) == (1, 0)


def test_a_store_is_answered_from_as_a_text_is_where_nothing_was_fitted():
    config = DeformerConfig(**SIZES)
    assert config.retrieval_weight == 0.0
    assert config.store_no_answer_scale is config.store_no_answer_bias is config.store_no_answer_threshold is None
    with pytest.raises(UsageError, match="`retrieval_weight` must be of type"):
        DeformerConfig(**SIZES, retrieval_weight="3")


def test_every_field_survives_the_file(tmp_path):
    config = DeformerConfig(
        **SIZES,
        split_layer=3,
        max_question_tokens=7,
        no_answer_scale=0.5,
        no_answer_bias=-2.0,
        retrieval_weight=0.7,
        store_no_answer_scale=0.25,
        store_no_answer_bias=-1.5,
        store_no_answer_threshold=0.4,
    )
    config.id2label, config.label2id = {0: "no", 1: "yes", 2: "maybe"}, {"no": 0, "yes": 1, "maybe": 2}
    config.save_pretrained(tmp_path)
    again = DeformerConfig.from_pretrained(tmp_path)
    assert again.id2label == {0: "no", 1: "yes", 2: "maybe"} and again.num_labels == 3
    ours, theirs = again.to_dict(), config.to_dict()
    assert {k: v for k, v in ours.items() if k != "_name_or_path"} == {
        k: v for k, v in theirs.items() if k != "_name_or_path"
    }
