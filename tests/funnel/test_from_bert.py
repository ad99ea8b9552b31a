"""BERTs into funnels: equal without pooling, and with it every tensor is mapped, dropped or new by name."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from narrows.errors import ConversionError, UsageError
from narrows.funnel.convert import TASKS, convert_checkpoint
from narrows.funnel.from_bert import spread_layers
from narrows.funnel.heads import save_sentence_modules
from narrows.hf.sentence_layout import SentenceLayout, save_layout

SOURCES = {
    "encoder": BertModel,
    "sequence-classification": BertForSequenceClassification,
    "token-classification": BertForTokenClassification,
    "question-answering": BertForQuestionAnswering,
    "masked-lm": BertForMaskedLM,
}


def save_source(folder, task="encoder", layers=6, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=43,
            hidden_size=16,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=24,
            max_position_embeddings=40,
            initializer_range=0.3,
            **changes,
        )
        model = SOURCES[task](config).eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return model


def rows(length=13):
    return torch.randint(1, 43, (2, length), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize("task", SOURCES)
def test_one_block_with_absolute_positions_is_the_bert(task, tmp_path) -> None:
    """No pooling, nothing to distil: the degenerate case that ties a funnel to a plain encoder."""
    source = save_source(tmp_path, task, layers=3, **({} if task in ("encoder", "masked-lm") else {"num_labels": 2}))
    model, report = convert_checkpoint(
        tmp_path, block_sizes=[3], position_type="absolute", num_decoder_layers=0, separate_cls=False
    )
    assert type(model) is TASKS[task] and not report.new
    ids, segments = rows(), (torch.arange(13) > 6).long().expand(2, 13)
    mask = torch.ones_like(ids)
    mask[0, 9:] = 0
    arguments = {"attention_mask": mask, "token_type_ids": segments}
    ours, expected = model(ids, **arguments), source(ids, **arguments)
    real = mask != 0
    if task == "encoder":
        torch.testing.assert_close(ours.last_hidden_state[real], expected.last_hidden_state[real], atol=1e-5, rtol=1e-4)
    elif task == "sequence-classification":
        torch.testing.assert_close(ours.logits, expected.logits, atol=1e-5, rtol=1e-4)
    elif task == "question-answering":
        for name in ("start_logits", "end_logits"):
            torch.testing.assert_close(ours[name][real], expected[name][real], atol=1e-5, rtol=1e-4)
    else:
        torch.testing.assert_close(ours.logits[real], expected.logits[real], atol=1e-5, rtol=1e-4)


def test_a_funnel_of_a_bert_says_what_is_to_be_distilled(tmp_path) -> None:
    source = save_source(tmp_path)
    model, report = convert_checkpoint(tmp_path, block_sizes=[2, 2, 2])
    assert {name.rsplit(".", 1)[-1]: reason for name, reason in report.new.items()} == {
        "r_kernel": "relative positions, random: to be distilled",
        "r_r_bias": "relative positions, random: to be distilled",
        "seg_embed": "relative segments, random: to be distilled",
        "r_s_bias": "relative segments, random: to be distilled",
    }
    assert len(report.new) == 4 * 6
    assert {name.split(".")[0] for name in report.dropped} == {"embeddings", "pooler"}
    # Every tensor, by the name that the checkpoint has for it.
    assert set(report.used) | set(report.dropped) == set(load_file(tmp_path / "model.safetensors"))
    weights, ours = source.state_dict(), model.state_dict()
    third = "encoder.layer.2"
    assert torch.equal(ours["encoder.blocks.1.0.ffn.linear_1.weight"], weights[f"{third}.intermediate.dense.weight"])
    query = weights[f"{third}.attention.self.query.bias"].view(4, 4)
    assert torch.equal(ours["encoder.blocks.1.0.attention.r_w_bias"], query)
    added = (
        weights["embeddings.position_embeddings.weight"].mean(0) + weights["embeddings.token_type_embeddings.weight"][0]
    )
    words = weights["embeddings.word_embeddings.weight"] + added
    torch.testing.assert_close(ours["embeddings.word_embeddings.weight"], words)
    assert model.config.d_head == 4 and model.config.hidden_act == "gelu" and model.config.layer_norm_eps == 1e-12
    assert model(rows(1)).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("source_task", ["encoder", "question-answering"])
def test_any_task_from_any_bert(source_task, task, tmp_path) -> None:
    save_source(tmp_path, source_task)
    sizes = {"generator_ratio": 0.5} if task == "electra" else {}
    model, report = convert_checkpoint(tmp_path, block_sizes=[1, 1, 1], task=task, num_decoder_layers=1, **sizes)
    assert type(model) is TASKS[task]
    assert "a layer between those that were taken" in report.dropped.values()
    layers = {re.sub(r".*encoder\.layer\.(\d+)\..*", r"\1", name) for name in report.used if ".layer." in name}
    assert layers == {"1", "3", "5"}
    has_new_head = any(reason.startswith("head") for reason in report.new.values())
    assert has_new_head == (task not in ("encoder", "full", "embedding", source_task))


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_sources_pooling_is_taken_over(pooling, tmp_path) -> None:
    save_source(tmp_path)
    save_layout(SentenceLayout(tmp_path, pooling=pooling), width=16)
    sizes = {"block_sizes": [1, 1], "task": "embedding"}
    assert convert_checkpoint(tmp_path, **sizes)[0].config.embedding_pooling == pooling
    assert convert_checkpoint(tmp_path, **sizes, embedding_pooling="cls")[0].config.embedding_pooling == "cls"
    assert convert_checkpoint(tmp_path, block_sizes=[1, 1], task="encoder")[0].config.embedding_pooling == "mean"


def test_a_pooling_that_has_no_place_is_refused(tmp_path) -> None:
    save_source(tmp_path)
    save_layout(SentenceLayout(tmp_path, pooling="mean"), width=16)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    sizes = {"block_sizes": [1, 1], "task": "embedding"}
    with pytest.raises(
        ConversionError, match="expected a checkpoint with a pooling of cls, max, mean, got .* with lasttoken; choose"
    ):
        convert_checkpoint(tmp_path, **sizes)
    assert convert_checkpoint(tmp_path, **sizes, embedding_pooling="max")[0].config.embedding_pooling == "max"


def test_a_funnel_that_pools_itself_keeps_its_own_pooling(tmp_path) -> None:
    save_source(tmp_path / "bert")
    model, _ = convert_checkpoint(tmp_path / "bert", block_sizes=[1, 1], task="embedding", embedding_pooling="cls")
    model.save_pretrained(tmp_path / "funnel")
    save_sentence_modules(tmp_path / "funnel", model.config, max_tokens=9)
    assert convert_checkpoint(tmp_path / "funnel", task="embedding")[0].config.embedding_pooling == "cls"


def test_layers_are_spread_evenly_and_end_with_the_last() -> None:
    assert spread_layers(12, 12) == list(range(12))
    assert spread_layers(12, 4) == [2, 5, 8, 11]
    assert spread_layers(6, 4) == [1, 2, 4, 5]
    assert spread_layers(2, 6) == [0, 0, 0, 1, 1, 1]


def test_a_layer_that_is_taken_twice_is_named_twice(tmp_path) -> None:
    source = save_source(tmp_path, layers=2)
    model, report = convert_checkpoint(tmp_path, block_sizes=[2, 2, 2])
    weight = source.encoder.layer[0].output.dense.weight
    layers = model.encoder.blocks
    assert all(torch.equal(layer.ffn.linear_2.weight, weight) for layer in (*layers[0], layers[1][0]))
    again = [name for name in report.used if name.startswith("encoder.layer.0.output.dense.weight")]
    assert again == [f"encoder.layer.0.output.dense.weight{end}" for end in ("", " (again) 1", " (again) 2")]
    places = [parameter.data_ptr() for parameter in model.parameters()]
    assert len({*places}) == len(places), "layers over the same memory would be trained as one"
    model.save_pretrained(tmp_path / "funnel")


def test_repeated_layers_take_fewer_of_the_bert(tmp_path) -> None:
    save_source(tmp_path)
    model, _ = convert_checkpoint(tmp_path, block_sizes=[2, 1, 1], block_repeats=[1, 2, 2])
    assert model.config.block_repeats == [1, 2, 2] and len(model.encoder.blocks[1]) == 1


def test_old_names_of_norms(tmp_path) -> None:
    save_source(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    expected, _ = convert_checkpoint(tmp_path, block_sizes=[2, 2])
    save_file(old, tmp_path / "model.safetensors")
    model, _ = convert_checkpoint(tmp_path, block_sizes=[2, 2])
    name = "encoder.blocks.1.1.ffn.layer_norm.weight"
    assert torch.equal(model.state_dict()[name], expected.state_dict()[name])


def test_used_wrongly(tmp_path) -> None:
    save_source(tmp_path)
    with pytest.raises(
        UsageError, match="expected block sizes for a BERT of 6 layers, got none; pass the layers of each"
    ):
        convert_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="`block_sizes` must be numbers of at least 1"):
        convert_checkpoint(tmp_path, block_sizes=[2, 0])
    config = json.loads((tmp_path / "config.json").read_text())
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if "word" not in name}, tmp_path / "model.safetensors")
    with pytest.raises(
        ConversionError, match="expected a tensor of embeddings, bert.embeddings.word_embeddings.weight"
    ):
        convert_checkpoint(tmp_path, block_sizes=[2, 2])
    assert config["model_type"] == "bert"
