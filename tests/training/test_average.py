"""Averaged models: the mean of the weights, of models of one kind only."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from narrows.deformer import DeformerForQuestionAnswering
from narrows.deformer.convert import convert_checkpoint
from narrows.errors import UsageError
from narrows.hf.trained_spans import TrainedSpans, note_spans, trained_spans
from narrows.training.average import average_models, main


def _model(tiny_bert: Path, folder: Path, *, seed: int, split_layer: int = 2, **overrides) -> Path:
    torch.manual_seed(seed)
    model, _ = convert_checkpoint(tiny_bert, split_layer=split_layer, task="question-answering", **overrides)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    (folder / "README.md").write_text(f"card {seed}\n")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


def test_the_mean_of_three(tiny_bert, tmp_path, capsys) -> None:
    folders = [_model(tiny_bert, tmp_path / f"run-{seed}" / "model", seed=seed) for seed in range(3)]
    out = tmp_path / "mean"
    with pytest.raises(SystemExit) as caught:
        main([str(out), *map(str, folders)])
    assert caught.value.code == 0 and f"{out}: the mean of 3 models" in capsys.readouterr().err
    mean = DeformerForQuestionAnswering.from_pretrained(out)
    states = [DeformerForQuestionAnswering.from_pretrained(folder).state_dict() for folder in folders]
    for name, tensor in mean.state_dict().items():
        torch.testing.assert_close(tensor, torch.stack([state[name] for state in states]).mean(0))
    assert mean.config.split_layer == 2
    card = (out / "README.md").read_text()
    assert card.startswith("card 0") and "`run-0`, `run-1`, `run-2`" in card


def test_the_mean_of_two_readers_that_are_no_deformers(tiny_bert, tmp_path) -> None:
    folders, states = [], []
    for seed in range(2):
        torch.manual_seed(seed)
        model = BertForQuestionAnswering(BertConfig.from_pretrained(tiny_bert))
        note_spans(model.config, TrainedSpans(max_answer_tokens=7))
        folders.append(tmp_path / str(seed))
        model.save_pretrained(folders[-1])
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folders[-1])
        states.append(model.state_dict())
    mean = average_models(folders)
    assert type(mean) is BertForQuestionAnswering and trained_spans(mean.config).max_answer_tokens == 7
    for name, tensor in mean.state_dict().items():
        torch.testing.assert_close(tensor, (states[0][name] + states[1][name]) / 2)


def test_every_model_of_a_mean_has_a_name_in_its_card(tmp_path, monkeypatch) -> None:
    from narrows.training.average import _card

    for name in ("run/model", "run/checkpoint-1112", "plain"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run" / "model" / "README.md").write_text("card\n")
    monkeypatch.chdir(tmp_path / "run")
    assert _card(["model", "checkpoint-1112", "../plain"]) == (
        f"card\n\nThe mean of the weights of `run`, `run/checkpoint-1112`, `{tmp_path.name}/plain` "
        "(`python -m narrows.training.average`); the card, its scores included, is the first one's.\n"
    )


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tiny_bert, tmp_path, capsys, full_disk) -> None:
    folders = [_model(tiny_bert, tmp_path / f"run-{seed}" / "model", seed=seed) for seed in range(2)]
    before = sorted(path.name for path in tmp_path.iterdir())
    out = tmp_path / "mean"
    with full_disk(20_000), pytest.raises(SystemExit) as caught:
        main([str(out), *map(str, folders)])
    said = capsys.readouterr().err.splitlines()[-1]
    assert caught.value.code == 1
    assert said.startswith(f"narrows: error: expected room and permission to write {out}, got ")
    assert "File too large" in said and said.endswith("; make room or choose another place")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_place_that_cannot_be_written_is_told_before_the_work(tiny_bert, tmp_path, capsys) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path / "taken" / "mean"), "no-model", "no-other"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        f"narrows: error: expected a folder to write to, got {tmp_path / 'taken'} (File exists); choose another\n"
    )


def test_unlike_models_are_refused(tiny_bert, tmp_path, capsys) -> None:
    one = _model(tiny_bert, tmp_path / "one", seed=0)
    with pytest.raises(UsageError, match="expected two models or more to average, got 1; name another one"):
        average_models([one])
    split = _model(tiny_bert, tmp_path / "split", seed=1, split_layer=3)
    with pytest.raises(
        UsageError, match="expected models of one shape and split layer, got .*one and .*split; average"
    ):
        average_models([one, split])
    other = _model(tiny_bert, tmp_path / "other", seed=1)
    vocabulary = other / "tokenizer.json"
    with pytest.raises(SystemExit) as caught:
        main([str(one), str(one), str(one)])
    assert caught.value.code == 2 and "expected a new folder to write to" in capsys.readouterr().err
    vocabulary.write_text(vocabulary.read_text().replace('"lowercase": true', '"lowercase": false'))
    with pytest.raises(UsageError, match="expected models of one tokenizer, got another in .*other than in .*one"):
        average_models([one, other])
