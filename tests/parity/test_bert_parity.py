"""Converted with split 0 and running positions, a DeFormer gives the logits of the BERT it was made from."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
)

from narrows.deformer import DeformerForQuestionAnswering, DeformerForSequenceClassification, DeformerModel
from narrows.deformer.convert import convert_checkpoint

SOURCES = [
    BertModel,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForMaskedLM,
    BertForPreTraining,
]


def save_source(kind, folder, **fields):
    config = BertConfig(
        vocab_size=53,
        hidden_size=14,
        num_hidden_layers=5,
        num_attention_heads=2,
        intermediate_size=23,
        max_position_embeddings=31,
        initializer_range=0.3,
        **fields,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).eval()
        # Fresh biases and norms are 0 and 1, which would hide two that were swapped.
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
    model.save_pretrained(folder)
    return model


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([[17], [11], [13]])
    mask = (torch.arange(17) < lengths).long()
    ids = torch.randint(1, 53, (3, 17), generator=generator) * mask
    segments = (torch.arange(17) >= torch.tensor([[5], [3], [7]])).long() * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def run(model, batch: dict[str, Tensor]):
    with torch.no_grad():
        return model(**batch, output_hidden_states=True)


def same_states(ours, theirs, mask: Tensor) -> None:
    real = mask == 1
    assert len(ours.hidden_states) == len(theirs.hidden_states) == 6
    for got, expected in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", SOURCES)
def test_hidden_states_of_the_encoder(kind, tmp_path):
    source = save_source(kind, tmp_path)
    model, _ = convert_checkpoint(tmp_path, split_layer=0, task="encoder", passage_positions="continue")
    assert type(model) is DeformerModel
    batch = inputs()
    same_states(run(model, batch), run(source, batch), batch["attention_mask"])


def test_logits_of_question_answering(tmp_path):
    source = save_source(BertForQuestionAnswering, tmp_path)
    model, report = convert_checkpoint(tmp_path, split_layer=0, passage_positions="continue")
    assert type(model) is DeformerForQuestionAnswering and report.new == {}
    batch = inputs()
    ours, theirs = run(model, batch), run(source, batch)
    real = batch["attention_mask"] == 1
    torch.testing.assert_close(ours.start_logits[real], theirs.start_logits[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.end_logits[real], theirs.end_logits[real], atol=1e-5, rtol=0)
    same_states(ours, theirs, batch["attention_mask"])


@pytest.mark.parametrize("names", [["contradiction", "entailment", "neutral"], ["score"]])
def test_logits_and_names_of_classes(names, tmp_path):
    labels = dict(enumerate(names))
    source = save_source(
        BertForSequenceClassification,
        tmp_path,
        id2label=labels,
        label2id={name: i for i, name in labels.items()},
    )
    model, report = convert_checkpoint(tmp_path, split_layer=0, passage_positions="continue")
    assert type(model) is DeformerForSequenceClassification and report.new == {}
    assert model.config.id2label == labels and model.config.num_labels == len(names)
    assert model.config.label2id == {name: i for i, name in labels.items()}
    batch = inputs()
    ours, theirs = run(model, batch), run(source, batch)
    assert ours.logits.shape == (3, len(names))
    torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-5, rtol=0)
    same_states(ours, theirs, batch["attention_mask"])


def test_a_split_changes_the_logits(tmp_path):
    source = save_source(BertForQuestionAnswering, tmp_path)
    model, _ = convert_checkpoint(tmp_path, split_layer=3)
    batch = inputs()
    apart = (run(model, batch).start_logits - run(source, batch).start_logits).abs().max()
    assert float(apart) > 1e-3


def test_old_names_of_the_norms(tmp_path):
    source = save_source(BertForQuestionAnswering, tmp_path)
    path = tmp_path / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(path).items()
    }
    assert sum(name.endswith("gamma") for name in old) == 11
    save_file(old, path)
    model, _ = convert_checkpoint(tmp_path, split_layer=0, passage_positions="continue")
    batch = inputs()
    same_states(run(model, batch), run(source, batch), batch["attention_mask"])
