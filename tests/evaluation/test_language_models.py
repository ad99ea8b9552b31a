"""Language models from checkpoints: all of their weights or none, and no look ahead."""

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2LMHeadModel, GPT2Model, T5Config

from narrows.errors import ConversionError, UsageError
from narrows.evaluation.language_models import (
    TrainedLanguage,
    load_language_model,
    note_language,
    positions_of,
    require_left_to_right,
    trained_language,
)

_SIZES = {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 16, "vocab_size": 20}


def _bert(**fields) -> BertLMHeadModel:
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    return BertLMHeadModel(BertConfig(vocab_size=20, initializer_range=0.5, **sizes, **fields))


def test_a_model_comes_with_all_of_its_weights(tmp_path) -> None:
    model = GPT2LMHeadModel(GPT2Config(**_SIZES))
    note_language(model.config, TrainedLanguage("bytes", 16))
    model.save_pretrained(tmp_path / "whole")
    loaded = load_language_model(tmp_path / "whole")
    assert not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])
    assert trained_language(loaded.config) == TrainedLanguage("bytes", 16) and positions_of(loaded.config) == 16


def test_a_part_is_refused(tmp_path) -> None:
    model = GPT2LMHeadModel(GPT2Config(**_SIZES))
    state = {name: tensor for name, tensor in model.state_dict().items() if "mlp" not in name}
    model.save_pretrained(tmp_path / "part", state_dict=state)
    with pytest.raises(ConversionError, match="expected all weights of a causal language model in .*part, got none th"):
        load_language_model(tmp_path / "part")
    untied = GPT2Model(GPT2Config(**_SIZES, tie_word_embeddings=False))
    untied.save_pretrained(tmp_path / "headless")
    with pytest.raises(ConversionError, match="got none that fits lm_head.weight; train it first with `narrows train`"):
        load_language_model(tmp_path / "headless")


def test_a_family_without_a_causal_language_model(tmp_path) -> None:
    T5Config(num_layers=1).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(
        UsageError, match="expected a family with a causal language model, got t5; choose another, such"
    ):
        load_language_model(tmp_path)


def test_a_model_that_looks_ahead_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a model that reads from left to right, got bert, which looks ahead"):
        require_left_to_right(_bert())
    model = _bert(is_decoder=True).train()
    require_left_to_right(model)
    assert model.training


def test_a_note_of_something_else() -> None:
    config = GPT2Config(**_SIZES)
    assert trained_language(config) is None
    config.narrows_language = {"reads": "bytes"}
    with pytest.raises(
        ConversionError, match="expected reads, length under 'narrows_language' of config.json, got {'r"
    ):
        trained_language(config)
