"""Checkpoints into DeFormers: every tensor accounted for, and every misfit refused by name."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
)

from narrows.deformer import (
    DeformerConfig,
    DeformerForQuestionAnswering,
    DeformerForSequenceClassification,
    DeformerModel,
)
from narrows.deformer.convert import TASKS, convert_checkpoint, from_pretrained_encoder
from narrows.errors import ConversionError, UsageError

SOURCES = [
    BertModel,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForMaskedLM,
    BertForPreTraining,
]


def save_source(folder, kind=BertForQuestionAnswering, **fields):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(
            BertConfig(
                vocab_size=53,
                hidden_size=14,
                num_hidden_layers=5,
                num_attention_heads=2,
                intermediate_size=23,
                max_position_embeddings=31,
                **fields,
            )
        )
    model.save_pretrained(folder)
    return model


def change_tensors(folder, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def change_config(folder, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", SOURCES)
def test_every_tensor_is_accounted_for(kind, task, tmp_path):
    save_source(tmp_path, kind)
    source = load_file(tmp_path / "model.safetensors")
    model, report = convert_checkpoint(tmp_path, split_layer=3, task=task)
    assert type(model) is TASKS[task] and not model.training and model.config.split_layer == 3
    state = model.state_dict()
    assert set(report.used) | set(report.dropped) == set(source) and not set(report.used) & set(report.dropped)
    assert set(report.used.values()) | set(report.new) == set(state)
    assert not set(report.used.values()) & set(report.new)
    for theirs, ours in report.used.items():
        assert torch.equal(state[ours], source[theirs]), ours
    assert all(not name.startswith(("deformer.", "backbone.")) for name in report.new)
    head = {
        "question-answering": BertForQuestionAnswering,
        "sequence-classification": BertForSequenceClassification,
    }
    assert (not report.new) == (task == "encoder" or kind is head[task])
    assert all(report.dropped.values()) and all(report.new.values())


def test_the_task_is_that_of_the_checkpoint(tmp_path):
    expected = {
        BertModel: DeformerForQuestionAnswering,
        BertForQuestionAnswering: DeformerForQuestionAnswering,
        BertForSequenceClassification: DeformerForSequenceClassification,
    }
    for source, kind in expected.items():
        save_source(tmp_path / source.__name__, source)
        assert type(convert_checkpoint(tmp_path / source.__name__, split_layer=1)[0]) is kind


def test_a_converted_model_survives_the_disk_and_its_report_too(tmp_path):
    save_source(tmp_path)
    model, report = convert_checkpoint(tmp_path, split_layer=2, max_question_tokens=7)
    model.save_pretrained(tmp_path / "out")
    assert json.loads(report.save(tmp_path / "out").read_text()) == report.as_dict()
    again = DeformerForQuestionAnswering.from_pretrained(tmp_path / "out")
    assert again.config.max_question_tokens == 7 and again.config.split_layer == 2
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


def test_a_pickled_checkpoint_gives_the_same_model(tmp_path):
    source = save_source(tmp_path)
    expected = convert_checkpoint(tmp_path, split_layer=2)[0].state_dict()
    (tmp_path / "model.safetensors").unlink()
    torch.save(source.state_dict(), tmp_path / "pytorch_model.bin")
    got = convert_checkpoint(tmp_path, split_layer=2)[0].state_dict()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


def test_a_sharded_checkpoint_gives_the_same_model(tmp_path):
    source = save_source(tmp_path / "whole")
    source.save_pretrained(tmp_path / "parts", max_shard_size="8KB")
    shards = sorted((tmp_path / "parts").glob("model-*.safetensors"))
    assert len(shards) > 2
    expected = convert_checkpoint(tmp_path / "whole", split_layer=2)[0].state_dict()
    got = convert_checkpoint(tmp_path / "parts", split_layer=2)[0].state_dict()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())
    shards[-1].unlink()
    with pytest.raises(
        ConversionError, match=f"expected {len(shards)} files of weights in .*, got {len(shards) - 1}; fetch"
    ):
        convert_checkpoint(tmp_path / "parts", split_layer=2)


def test_the_student_of_a_teacher_keeps_weights_head_and_labels(tmp_path):
    save_source(tmp_path, BertForSequenceClassification, id2label={0: "x", 1: "y", 2: "z"})
    teacher, _ = convert_checkpoint(tmp_path, split_layer=0, passage_positions="continue")
    teacher.config.no_answer_scale, teacher.config.retrieval_weight = 2.0, 1.5
    student = from_pretrained_encoder(teacher, split_layer=3)
    assert (student.config.no_answer_scale, student.config.retrieval_weight) == (1.0, 0.0)
    assert type(student) is type(teacher) and student is not teacher
    assert (student.config.split_layer, student.config.passage_positions) == (3, "restart")
    assert (teacher.config.split_layer, teacher.config.passage_positions) == (0, "continue")
    assert student.config.id2label == {0: "x", 1: "y", 2: "z"}
    assert all(torch.equal(student.state_dict()[name], tensor) for name, tensor in teacher.state_dict().items())
    with pytest.raises(UsageError, match="`split_layer` must be from 0 to 4 for 5 layers, got 5; keep at least"):
        from_pretrained_encoder(teacher, split_layer=5)


MISFITS = [
    (
        lambda t: t.pop("bert.encoder.layer.3.output.dense.bias"),
        "expected the checkpoint to hold a tensor for deformer.backbone.layers.3.down.bias, got none among",
    ),
    (
        lambda t: t.update({"bert.adapter.weight": torch.zeros(2)}),
        "expected a rule for every tensor of the checkpoint, got none for bert.adapter.weight; this",
    ),
    (
        lambda t: t.update({"bert.encoder.layer.1.intermediate.dense.weight": torch.zeros(29, 14)}),
        r"expected bert.encoder.layer.1.intermediate.dense.weight of shape \(23, 14\), got \(29, 14\)",
    ),
    (
        lambda t: t.update({"embeddings.LayerNorm.gamma": torch.zeros(14)}),
        "expected one source for deformer.backbone.embeddings.norm.weight, got a second one, "
        "(embeddings.LayerNorm.gamma|bert.embeddings.LayerNorm.weight); the checkpoint holds a part twice",
    ),
]


@pytest.mark.parametrize(("change", "text"), MISFITS, ids=["missing", "unknown", "shape", "double"])
def test_a_tensor_that_does_not_fit_is_named(change, text, tmp_path):
    save_source(tmp_path)
    change_tensors(tmp_path, change)
    with pytest.raises(ConversionError, match=text):
        convert_checkpoint(tmp_path, split_layer=2)


def test_a_config_with_fewer_layers_than_the_weights_is_refused(tmp_path):
    save_source(tmp_path)
    change_config(tmp_path, num_hidden_layers=3)
    text = r"expected bert.encoder.layer.[34].* to fill deformer.backbone.layers.[34].*, got a target without it"
    with pytest.raises(ConversionError, match=text):
        convert_checkpoint(tmp_path, split_layer=2)


def test_a_folder_without_config_or_of_an_unknown_model_is_refused(tmp_path):
    save_source(tmp_path)
    change_config(tmp_path, model_type="nobody-knows")
    with pytest.raises(
        ConversionError, match="expected a config.json of a known model in .*; pass a checkpoint's folder"
    ):
        convert_checkpoint(tmp_path, split_layer=2)
    (tmp_path / "config.json").unlink()
    with pytest.raises(
        ConversionError, match="expected a config.json of a known model in .*; pass a checkpoint's folder"
    ):
        convert_checkpoint(tmp_path, split_layer=2)


def test_a_model_of_another_kind_is_refused(tmp_path):
    GPT2Config().save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ConversionError, match="whose encoder is a BertModel, got model type 'gpt2'; convert a BERT or"):
        convert_checkpoint(tmp_path, split_layer=2)


def test_wrong_requests_are_refused(tmp_path):
    save_source(tmp_path)
    for k in (-1, 5):
        with pytest.raises(UsageError, match=f"`split_layer` must be from 0 to 4 for 5 layers, got {k}; keep at least"):
            convert_checkpoint(tmp_path, split_layer=k)
    with pytest.raises(UsageError, match="`task` must be one of question-answering, .*, encoder, got 'ner'; choose"):
        convert_checkpoint(tmp_path, split_layer=2, task="ner")
    with pytest.raises(UsageError, match="expected fields of DeformerConfig, got max_question; see its documentation"):
        convert_checkpoint(tmp_path, split_layer=2, max_question=7)
    with pytest.raises(UsageError, match="`passage_positions` must be 'restart' when split_layer is above 0"):
        convert_checkpoint(tmp_path, split_layer=2, passage_positions="continue")


def test_an_encoder_has_no_head(tmp_path):
    save_source(tmp_path)
    model, report = convert_checkpoint(tmp_path, split_layer=2, task="encoder")
    assert type(model) is DeformerModel
    assert report.dropped == {"qa_outputs.weight": "head", "qa_outputs.bias": "head"}
    assert "2 dropped, 0 new" in report.summary() and "dropped qa_outputs.bias: head" in report.summary()


@pytest.mark.parametrize("task", TASKS)
def test_a_deformer_is_split_elsewhere_with_the_same_weights(task, tmp_path):
    save_source(tmp_path / "bert")
    fitted = {
        "no_answer_scale": 0.5,
        "no_answer_bias": -2.0,
        "no_answer_threshold": 0.7,
        "retrieval_weight": 2.0,
        "store_no_answer_scale": 0.1,
        "store_no_answer_bias": 0.2,
        "store_no_answer_threshold": 0.3,
    }
    first, _ = convert_checkpoint(tmp_path / "bert", split_layer=1, task=task, max_question_tokens=7, **fitted)
    first.save_pretrained(tmp_path / "first")
    again, report = convert_checkpoint(tmp_path / "first", split_layer=3)
    assert type(again) is type(first) is TASKS[task] and not again.training
    assert report.used == {name: name for name in first.state_dict()} and not report.dropped and not report.new
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in first.state_dict().items())
    before, after = first.config.to_dict(), again.config.to_dict()
    changed = {name for name in after if after[name] != before.get(name)} - {"_name_or_path", "architectures", "dtype"}
    assert changed == {"split_layer", *fitted}
    plain = DeformerConfig(num_hidden_layers=5)
    assert all(getattr(again.config, name) == getattr(plain, name) for name in fitted)
    again.save_pretrained(tmp_path / "again")
    assert type(again).from_pretrained(tmp_path / "again").config.split_layer == 3


def test_a_deformer_may_change_its_head_and_positions(tmp_path):
    save_source(tmp_path / "bert")
    convert_checkpoint(tmp_path / "bert", split_layer=2)[0].save_pretrained(tmp_path / "spans")
    source = load_file(tmp_path / "spans" / "model.safetensors")
    for task in TASKS:
        model, report = convert_checkpoint(
            tmp_path / "spans", split_layer=0, task=task, passage_positions="continue", no_answer_bias=-1.0
        )
        assert type(model) is TASKS[task] and model.config.passage_positions == "continue"
        assert model.config.no_answer_bias == -1.0
        assert set(report.used) | set(report.dropped) == set(source)
        assert set(report.used.values()) | set(report.new) == set(model.state_dict())
        head = set() if task == "question-answering" else {"qa_outputs.weight", "qa_outputs.bias"}
        assert set(report.dropped) == head
    encoder, _ = convert_checkpoint(tmp_path / "spans", split_layer=4, task="encoder")
    encoder.save_pretrained(tmp_path / "encoder")
    back, report = convert_checkpoint(tmp_path / "encoder", split_layer=1, task="question-answering")
    assert set(report.new) == {"qa_outputs.weight", "qa_outputs.bias"}
    words = "deformer.backbone.embeddings.word.weight"
    assert torch.equal(back.state_dict()[words], source[words])


def test_a_deformer_that_does_not_fit_is_refused(tmp_path):
    save_source(tmp_path / "bert")
    convert_checkpoint(tmp_path / "bert", split_layer=2)[0].save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="`split_layer` must be from 0 to 4 for 5 layers, got 5; keep at least"):
        convert_checkpoint(tmp_path, split_layer=5)
    change_tensors(tmp_path, lambda t: t.update({"deformer.adapter.weight": torch.zeros(2)}))
    with pytest.raises(ConversionError, match="expected a rule for every tensor .*, got none for deformer.adapter"):
        convert_checkpoint(tmp_path, split_layer=1)
    change_tensors(tmp_path, lambda t: t.pop("deformer.adapter.weight"))
    change_tensors(tmp_path, lambda t: t.pop("deformer.backbone.layers.3.down.bias"))
    with pytest.raises(ConversionError, match="expected the checkpoint to hold a tensor for .*layers.3.down.bias"):
        convert_checkpoint(tmp_path, split_layer=1)
    change_config(tmp_path, split_layer="two")
    with pytest.raises(UsageError, match="^`split_layer` must be of type int, got 'two'"):
        convert_checkpoint(tmp_path, split_layer=1)


def test_a_source_config_with_a_field_of_another_type_is_refused(tmp_path):
    save_source(tmp_path)
    change_config(tmp_path, num_hidden_layers="five")
    text = "expected a config.json of a known model in .*Field 'num_hidden_layers' expected int, got str .*; pass a"
    with pytest.raises(ConversionError, match=text) as caught:
        convert_checkpoint(tmp_path, split_layer=1)
    assert "\n" not in str(caught.value)
