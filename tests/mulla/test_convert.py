"""Checkpoints of the T5 family into Mullas: every tensor accounted for, and every misfit refused by name."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertModel,
    GenerationConfig,
    LongT5Config,
    LongT5EncoderModel,
    LongT5ForConditionalGeneration,
    MT5Config,
    MT5EncoderModel,
    MT5ForConditionalGeneration,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
    T5ForQuestionAnswering,
    T5ForSequenceClassification,
    T5Model,
)

from narrows.errors import ConversionError, UsageError
from narrows.mulla import (
    MullaT5EncoderModel,
    MullaT5ForConditionalGeneration,
    MullaT5ForSequenceClassification,
    convert_checkpoint,
)
from narrows.mulla.convert import TASKS

SIZES = {
    "vocab_size": 53,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 23,
    "num_layers": 2,
    "num_heads": 3,
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 33,
}
LOCAL = LongT5Config(**SIZES, local_radius=9, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
GLOBAL = LongT5Config(**SIZES, local_radius=9, encoder_attention_type="transient-global")
PLAIN = T5Config(**SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
SOURCES = {
    "longt5-local": (LongT5ForConditionalGeneration, LOCAL),
    "longt5-global": (LongT5ForConditionalGeneration, GLOBAL),
    "longt5-encoder": (LongT5EncoderModel, GLOBAL),
    "t5": (T5ForConditionalGeneration, T5Config(**SIZES)),
    "t5-v1.1": (T5ForConditionalGeneration, PLAIN),
    "t5-without-a-head": (T5Model, PLAIN),
    "t5-encoder": (T5EncoderModel, PLAIN),
    "t5-classifier": (T5ForSequenceClassification, PLAIN),
    "t5-reader": (T5ForQuestionAnswering, PLAIN),
    "mt5": (MT5ForConditionalGeneration, MT5Config(**SIZES)),
    "mt5-encoder": (MT5EncoderModel, MT5Config(**SIZES)),
}
LOCAL_TABLE = "encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias.weight"
TABLES = "encoder.relative_attention_bias"


def save_source(folder, name="longt5-local"):
    kind, config = SOURCES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config)
    model.save_pretrained(folder)
    return model


def change_tensors(folder, change) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def change_config(folder, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def has_decoder(name: str) -> bool:
    return not name.endswith("-encoder")


@pytest.mark.parametrize(
    ("task", "variant"),
    [
        ("generation", "dynamic"),
        ("generation", "fixed"),
        ("encoder", "dynamic"),
        ("question-answering", "fixed"),
        ("sequence-classification", "dynamic"),
        ("embedding", "fixed"),
    ],
)
@pytest.mark.parametrize("name", SOURCES)
def test_every_tensor_is_accounted_for(name, task, variant, tmp_path):
    save_source(tmp_path, name)
    if task == "generation" and not has_decoder(name):
        with pytest.raises(
            ConversionError, match="expected the checkpoint to hold a tensor for decoder.block.0.* got no"
        ):
            convert_checkpoint(tmp_path, task=task, variant=variant)
        return
    source = load_file(tmp_path / "model.safetensors")
    model, report = convert_checkpoint(tmp_path, task=task, variant=variant)
    assert type(model) is TASKS[task] and not model.training
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}
    assert set(report.used) | set(report.dropped) == set(source) and not set(report.used) & set(report.dropped)
    assert set(report.used.values()) | set(report.new) == set(state)
    assert not set(report.used.values()) & set(report.new)
    for theirs, ours in report.used.items():
        assert torch.equal(state[ours], source[theirs]), ours
    assert all(parameter.requires_grad and not parameter.is_meta for parameter in model.parameters())
    assert model.shared.weight is model.encoder.embed_tokens.weight
    heads = {"question-answering": "qa_outputs.", "sequence-classification": "classification_head."}
    tables = {f"{TABLES}.{level}.weight" for level in (1, 2)} if variant == "fixed" else set()
    assert {new for new in report.new if not new.startswith(heads.get(task, "-"))} == tables
    assert any(new.startswith(heads.get(task, "-")) for new in report.new) == (task in heads)
    assert all(report.dropped.values()) and all(report.new.values())
    assert all(torch.isfinite(parameter).all() and parameter.abs().max() < 10 for parameter in model.parameters())


def test_the_task_follows_from_the_decoder(tmp_path):
    for name in SOURCES:
        save_source(tmp_path / name, name)
        expected = MullaT5ForConditionalGeneration if has_decoder(name) else MullaT5EncoderModel
        assert type(convert_checkpoint(tmp_path / name)[0]) is expected


@pytest.mark.parametrize("kind", TASKS.values())
def test_each_class_converts_to_itself(kind, tmp_path):
    save_source(tmp_path)
    model = kind.from_longt5(tmp_path, variant="fixed", num_levels=2, pooling_rate=5, encoder_feed_forward_chunk=64)
    assert type(model) is kind
    fields = model.config
    assert (fields.variant, fields.num_levels, fields.pooling_rate, fields.local_radius) == ("fixed", 2, 5, 9)
    assert (fields.relative_attention_num_buckets, fields.relative_attention_max_distance) == (8, 33)
    assert fields.encoder_feed_forward_chunk == 64


def test_new_tables_are_copies_of_the_sources_own(tmp_path):
    source = save_source(tmp_path, "longt5-global").encoder.block[0].layer[0].TransientGlobalSelfAttention
    local, of_global = source.relative_attention_bias.weight, source.global_relative_attention_bias.weight
    model, report = convert_checkpoint(tmp_path, variant="fixed")
    assert all(torch.equal(table.weight, local) for table in model.encoder.relative_attention_bias)
    pointers = {table.weight.data_ptr() for table in model.encoder.relative_attention_bias}
    assert len(pointers) == 3
    assert report.new[f"{TABLES}.2.weight"] == "a copy of the source's local table"
    assert sorted(set(report.dropped.values())) == [
        "there are no global tokens",
        "there are no global tokens; new_tables='global' would keep it",
    ]
    # What would not help is not advised.
    assert "there are no global tokens; one table serves all levels" in convert_checkpoint(tmp_path)[1].dropped.values()
    model, report = convert_checkpoint(tmp_path, variant="fixed", new_tables="global")
    first, *others = (table.weight for table in model.encoder.relative_attention_bias)
    assert torch.equal(first, local) and all(torch.equal(other, of_global) for other in others)
    assert report.new == {f"{TABLES}.2.weight": "a copy of the source's global table"}
    model, report = convert_checkpoint(tmp_path, level_scales=True)
    assert torch.equal(model.encoder.level_scales, torch.ones(8))
    assert report.new == {"encoder.level_scales": "1 for every level"}


@pytest.mark.parametrize("name", ["longt5-local", "t5", "t5-v1.1", "mt5"])
def test_scaling_of_the_output_is_kept(name, tmp_path):
    source = save_source(tmp_path, name)
    model, _ = convert_checkpoint(tmp_path)
    assert (
        model.config.scale_decoder_outputs == getattr(source.config, "scale_decoder_outputs", False) == (name == "t5")
    )
    assert model.config.tie_word_embeddings and model.lm_head.weight is model.shared.weight


def test_an_output_layer_of_its_own_stays_its_own(tmp_path):
    save_source(tmp_path)
    head = torch.randn(53, 12)
    change_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": head}))
    model, report = convert_checkpoint(tmp_path)
    assert not model.config.tie_word_embeddings and report.used["lm_head.weight"] == "lm_head.weight"
    assert torch.equal(model.lm_head.weight, head) and not torch.equal(model.shared.weight, head)
    model.save_pretrained(tmp_path / "out")
    again = MullaT5ForConditionalGeneration.from_pretrained(tmp_path / "out")
    assert torch.equal(again.lm_head.weight, head) and not again.config.tie_word_embeddings


def test_copies_of_the_embeddings_are_dropped_and_others_refused(tmp_path):
    save_source(tmp_path)
    change_tensors(
        tmp_path,
        lambda tensors: tensors.update(
            {name: tensors["shared.weight"].clone() for name in ("decoder.embed_tokens.weight", "lm_head.weight")}
        ),
    )
    model, report = convert_checkpoint(tmp_path)
    assert report.dropped == dict.fromkeys(("decoder.embed_tokens.weight", "lm_head.weight"), "a copy of shared.weight")
    assert model.config.tie_word_embeddings
    change_tensors(
        tmp_path, lambda tensors: tensors.update({"encoder.embed_tokens.weight": tensors.pop("shared.weight")})
    )
    model, report = convert_checkpoint(tmp_path)
    assert report.used["encoder.embed_tokens.weight"] == "shared.weight"
    change_tensors(tmp_path, lambda tensors: tensors["decoder.embed_tokens.weight"].add_(1))
    with pytest.raises(
        ConversionError, match="one table of embeddings .* got encoder.embed_tokens.weight and decoder.emb"
    ):
        convert_checkpoint(tmp_path)


def test_an_unused_table_of_old_checkpoints_is_dropped(tmp_path):
    save_source(tmp_path)
    old = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    change_tensors(tmp_path, lambda tensors: tensors.update({old: torch.zeros(8, 3)}))
    _, report = convert_checkpoint(tmp_path)
    assert report.dropped == {old: "cross-attention has no positions; T5 does not read it either"}


@pytest.mark.parametrize(
    ("stored", "kept"),
    [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32), (torch.float32, torch.float32)],
)
def test_the_dtype_is_kept_but_for_fp16(stored, kept, tmp_path):
    save_source(tmp_path)
    change_tensors(tmp_path, lambda tensors: tensors.update({name: t.to(stored) for name, t in tensors.items()}))
    change_config(tmp_path, dtype=str(stored).removeprefix("torch."))
    model, _ = convert_checkpoint(tmp_path, task="question-answering", variant="fixed", level_scales=False)
    assert {parameter.dtype for parameter in model.parameters()} == {kept} and model.config.dtype == kept
    source = load_file(tmp_path / "model.safetensors")
    assert torch.equal(model.shared.weight, source["shared.weight"].to(kept))


def test_labels_and_options_of_generation_come_along(tmp_path):
    save_source(tmp_path)
    GenerationConfig(num_beams=4, max_new_tokens=7, decoder_start_token_id=0).save_pretrained(tmp_path)
    change_config(tmp_path, id2label={"0": "x", "1": "y", "2": "z"}, label2id={"x": 0, "y": 1, "z": 2})
    model, _ = convert_checkpoint(tmp_path)
    assert (model.generation_config.num_beams, model.generation_config.max_new_tokens) == (4, 7)
    model.save_pretrained(tmp_path / "out")
    again = MullaT5ForConditionalGeneration.from_pretrained(tmp_path / "out")
    assert again.generation_config.num_beams == 4
    classifier = MullaT5ForSequenceClassification.from_longt5(tmp_path)
    assert classifier.config.id2label == {0: "x", 1: "y", 2: "z"}
    assert classifier.classification_head.out_proj.out_features == 3
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(
        ConversionError, match="expected options of generation in .*, got a file that cannot be read; copy"
    ):
        convert_checkpoint(tmp_path)


def test_a_converted_model_survives_the_disk_and_its_report_too(tmp_path):
    save_source(tmp_path, "longt5-global")
    model, report = convert_checkpoint(tmp_path, variant="fixed")
    model.save_pretrained(tmp_path / "out")
    assert json.loads(report.save(tmp_path / "out").read_text()) == report.as_dict()
    again, told = MullaT5ForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


def test_a_pickled_and_a_sharded_checkpoint_give_the_same_model(tmp_path):
    source = save_source(tmp_path / "whole")
    expected = convert_checkpoint(tmp_path / "whole")[0].state_dict()
    source.save_pretrained(tmp_path / "parts", max_shard_size="8KB")
    (tmp_path / "whole" / "model.safetensors").unlink()
    torch.save(source.state_dict(), tmp_path / "whole" / "pytorch_model.bin")
    for folder in ("whole", "parts"):
        got = convert_checkpoint(tmp_path / folder)[0].state_dict()
        assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


def test_training_a_converted_model_leaves_its_source_alone(tmp_path):
    save_source(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    model, _ = convert_checkpoint(tmp_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (tmp_path / "model.safetensors").read_bytes() == before


_CONVERT = """
import resource, sys
from narrows.mulla.model import MullaT5ForConditionalGeneration
from transformers import LongT5Config
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
MullaT5ForConditionalGeneration.from_longt5(sys.argv[1], variant="fixed").save_pretrained(sys.argv[2])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
def test_memory_stays_near_the_size_of_the_weights(tmp_path):
    base = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12}
    config = LongT5Config(**base, feed_forward_proj="gated-gelu", encoder_attention_type="transient-global")
    LongT5ForConditionalGeneration(config).save_pretrained(tmp_path / "base")
    weights = (tmp_path / "base" / "model.safetensors").stat().st_size
    arguments = [sys.executable, "-c", _CONVERT, str(tmp_path / "base"), str(tmp_path / "out")]
    peak = int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    assert weights > 800e6 and peak < 1.5 * weights


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    save_source(tmp_path)
    cases = [
        (
            lambda t: t.pop(LOCAL_TABLE),
            "expected the checkpoint to hold a tensor for encoder.relative_attention_bias.0",
        ),
        (
            lambda t: t.update({"adapter.weight": torch.zeros(1)}),
            "a rule for every tensor .* got none for adapter.weight",
        ),
        (
            lambda t: t.pop("shared.weight"),
            "expected a tensor of embeddings, shared.weight, got none among 50; it is inc",
        ),
        (
            lambda t: t.update({"shared.weight": torch.zeros(5, 12)}),
            r"expected shared.weight of shape \(53, 12\), got \(5, 1",
        ),
    ]
    original = (tmp_path / "model.safetensors").read_bytes()
    for change, text in cases:
        change_tensors(tmp_path, change)
        with pytest.raises(ConversionError, match=text):
            convert_checkpoint(tmp_path)
        (tmp_path / "model.safetensors").write_bytes(original)
    change_config(tmp_path, num_layers=1)
    with pytest.raises(
        ConversionError, match="expected encoder.block.1.* to fill .*, got a target without it; the checkpoint"
    ):
        convert_checkpoint(tmp_path)


def test_a_global_table_must_be_there_when_it_is_asked_for(tmp_path):
    save_source(tmp_path, "longt5-global")
    name = "encoder.block.0.layer.0.TransientGlobalSelfAttention.global_relative_attention_bias.weight"
    change_tensors(tmp_path, lambda tensors: tensors.pop(name))
    with pytest.raises(ConversionError, match=r"hold a tensor for encoder.relative_attention_bias.1.weight, got none"):
        convert_checkpoint(tmp_path, variant="fixed", new_tables="global")


def test_used_wrongly(tmp_path):
    save_source(tmp_path / "global", "longt5-global")
    save_source(tmp_path / "t5", "t5")
    wrong = [
        ({"task": "fill-mask"}, "`task` must be one of generation, encoder, .*, got 'fill-mask'; choose one of them"),
        (
            {"split_layer": 3},
            "expected fields of MullaT5Config, got split_layer; see its documentation for their names",
        ),
        ({"new_tables": "zero"}, "`new_tables` must be 'local' or 'global', got 'zero'; choose one of them"),
        (
            {"new_tables": "global"},
            "`new_tables` must be 'local' where one table serves all levels, got 'global'; leave",
        ),
        ({"variant": "both"}, "`variant` must be one of dynamic, fixed, got 'both'; choose one of them"),
        ({"num_levels": 2}, "`num_levels` must be None for the dynamic variant"),
    ]
    for options, text in wrong:
        with pytest.raises(UsageError, match=text):
            convert_checkpoint(tmp_path / "global", **options)
    with pytest.raises(
        UsageError, match="`new_tables` must be 'local' for a checkpoint without global tokens, got 'global'"
    ):
        convert_checkpoint(tmp_path / "t5", variant="fixed", new_tables="global")
    BertModel(BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)).save_pretrained(
        tmp_path / "bert"
    )
    with pytest.raises(
        ConversionError, match=r"of the T5 family \(longt5, t5, mt5\), got model type 'bert'; convert a Lon"
    ):
        convert_checkpoint(tmp_path / "bert")
    MullaT5EncoderModel.from_longt5(tmp_path / "t5").save_pretrained(tmp_path / "mulla")
    with pytest.raises(
        ConversionError, match="of the T5 family .*, got model type 'narrows-mulla-t5'; convert a LongT5"
    ):
        convert_checkpoint(tmp_path / "mulla")
    change_config(tmp_path / "t5", model_type="no-such-model")
    with pytest.raises(
        ConversionError, match="expected a config.json of a known model in .*, got none that can be read"
    ):
        convert_checkpoint(tmp_path / "t5")
