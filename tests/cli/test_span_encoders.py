"""A Funnel from transformers' checkpoint to a score on SQuAD, as a person types it."""

import json

import pytest
import torch
import yaml
from transformers import AutoTokenizer, FunnelConfig, FunnelModel, FunnelTokenizer

from narrows.cli.main import main

_PLACES = ("old mill", "gold road", "green island", "stone house", "white horse", "long river")


@pytest.fixture
def data(tmp_path):
    """`train.json` and `dev.json`, in the layout of SQuAD v2.0."""
    for name, numbers in (("train", range(18)), ("dev", range(18, 24))):
        paragraphs = []
        for number in numbers:
            place = _PLACES[number % 6]
            context = f"in the year {number} a child found the {place} beside the water."
            answer = {"text": place, "answer_start": context.index(place)}
            asked = {"id": f"a{number}", "question": "what was found?", "answers": [answer], "is_impossible": False}
            unknown = {"id": f"n{number}", "question": "who read it?", "answers": [], "is_impossible": True}
            paragraphs.append({"context": context, "qas": [asked, unknown]})
        text = json.dumps({"version": "v2.0", "data": [{"title": name, "paragraphs": paragraphs}]})
        (tmp_path / f"{name}.json").write_text(text)
    return tmp_path


@pytest.fixture
def source(tiny_bert, tmp_path):
    """A random Funnel of transformers."""
    words = AutoTokenizer.from_pretrained(tiny_bert).get_vocab()
    vocabulary = {word.lower().replace("[", "<").replace("]", ">"): number for word, number in words.items()}
    vocabulary |= {
        "[": len(vocabulary),
        "]": len(vocabulary) + 1,
        "<s>": len(vocabulary) + 2,
        "</s>": len(vocabulary) + 3,
    }
    FunnelTokenizer(vocab=vocabulary).save_pretrained(tmp_path / "source")
    torch.manual_seed(0)
    sizes = {"d_model": 24, "n_head": 3, "d_head": 8, "d_inner": 30, "block_sizes": [1, 1], "num_decoder_layers": 1}
    FunnelModel(FunnelConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(tmp_path / "source")
    return tmp_path / "source"


def _run(capsys, *arguments):
    code = main([*map(str, arguments)])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return shown.out


def test_converted_trained_and_evaluated(source, data, tmp_path, capsys) -> None:
    runs = tmp_path / "runs"
    _run(capsys, "convert", source, runs / "funnel-start", "--to", "funnel", "--task", "question-answering", "-q")
    recipe = {
        "name": "squad",
        "model": {"checkpoint": "funnel-start", "head": "conditional"},
        "data": {
            "train": [{"format": "squad", "file": "train.json"}],
            "tune": [{"format": "squad", "file": "dev.json"}],
        },
        "optimiser": {"epochs": 2, "batch_rows": 6, "learning_rate": 3e-3, "layer_decay": 0.75},
    }
    (tmp_path / "squad.yaml").write_text(yaml.safe_dump(recipe))
    call = ["train", tmp_path / "squad.yaml", "--data", data, "--runs", runs]
    assert "36 rows of" in _run(capsys, *call, "--dry-run")
    trained = json.loads(_run(capsys, *call, "--json", "-q"))
    assert trained["steps"] == 12
    assert AutoTokenizer.from_pretrained(trained["model"])("a")["token_type_ids"][0] == 2
    figures = json.loads(_run(capsys, "evaluate", trained["model"], data / "dev.json", "--json", "-q"))
    assert figures["scores"]["total"] == 12 and figures["scores"]["f1"] == pytest.approx(trained["tune"]["eval_f1"])
    low, high = figures["f1_interval"]
    assert low <= figures["scores"]["f1"] <= high
    out = _run(capsys, "evaluate", trained["model"], data / "dev.json", "--against", trained["model"], "-q")
    assert "F1 over the other" in out and "+0.00  [+0.00, +0.00]" in out
