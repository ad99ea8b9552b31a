"""A language model by the command line: counted, trained, chosen among, and evaluated on a text."""

import json
import math
from pathlib import Path

import pytest
import torch
import yaml
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from narrows.cli.main import main
from narrows.evaluation.language import evaluate_line
from narrows.evaluation.language_models import TrainedLanguage, load_language_model, note_language
from narrows.training.language.text import byte_line

_TEXT = "".join(f"in the year {n} a child found the old mill.\n" for n in range(60))
_SIZES = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 32}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds `text.txt`, `recipe.yaml` and `sweep.yaml`."""
    (tmp_path / "text.txt").write_text(_TEXT)
    recipe = {
        "name": "tiny",
        "task": "causal-lm",
        "model": {"family": "gpt2", "tokenizer": "bytes", "config": _SIZES},
        "data": {"train": [{"file": "text.txt"}], "split": [0.8, 0.1, 0.1], "length": 16},
        "optimiser": {"steps": 8, "batch_tokens": 128, "learning_rate": 1e-2},
        "evaluate_every": 4,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    sweep = {
        "name": "rates",
        "recipe": "recipe.yaml",
        "over": {"optimiser.learning_rate": [1.0e-5, 1.0e-2]},
        "choose": {"keys": ["optimiser.learning_rate"], "score": "bits_per_byte"},
    }
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    return tmp_path


@pytest.fixture
def byte_model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=260, **_SIZES, bos_token_id=None, eos_token_id=None))
    note_language(model.config, TrainedLanguage("bytes", 24))
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def _run(capsys, *arguments) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, " ".join(shown.err.split())


def test_a_dry_run_counts(folder, capsys) -> None:
    code, out, _ = _run(capsys, "train", folder / "recipe.yaml", "--data", folder, "--dry-run")
    rows = (int(0.8 * len(_TEXT)) - 1) // 16 - 1
    assert code == 0 and f"# {rows} rows of {16 * rows:,} tokens an epoch, 8 steps in all" in out


def test_a_sweep_chooses_the_lowest_and_scores_it_on_the_test_part(folder, capsys) -> None:
    call = ["sweep", folder / "sweep.yaml", "--data", folder, "--runs", folder / "runs", "-q"]
    code, out, err = _run(capsys, *call)
    assert code == 0, err
    chosen = json.loads((folder / "runs" / "rates" / "chosen.json").read_text())
    assert chosen[0]["chosen"] == {"optimiser.learning_rate": 0.01}
    assert "chosen on tune data: optimiser.learning_rate 0.01" in out
    bits = chosen[0]["test"]["bits_per_byte"]
    assert f"test bits_per_byte: mean {bits['mean']:.3f}, knowing how often each token is {bits['majority']:.3f}" in out
    assert 2 < bits["majority"] < bits["mean"] < 8
    # Its model evaluates itself: the config says how.
    model = folder / "runs" / "rates" / "tiny-0.01" / "model"
    code, out, _ = _run(capsys, "evaluate", model, folder / "text.txt", "--task", "language-model", "--json", "-q")
    assert code == 0 and json.loads(out)["reading"] == {"reads": "bytes", "length": 16, "stride": 16}


def test_an_evaluation_is_what_the_library_finds(byte_model, folder, capsys) -> None:
    call = ["evaluate", byte_model, folder / "text.txt", "--task", "language-model", "--stride", 10, "-q"]
    code, out, _ = _run(capsys, *call, "--json")
    assert code == 0
    figures = json.loads(out)
    line = byte_line([folder / "text.txt"], folder)
    expected = evaluate_line(load_language_model(byte_model), line, length=24, stride=10)
    assert figures["scores"]["bits_per_byte"]["mean"] == pytest.approx(expected.scores()["bits_per_byte"])
    assert figures["scores"]["perplexity"]["mean"] == pytest.approx(math.exp(expected.loss))
    assert (figures["tokens"], figures["bytes"]) == (len(_TEXT) - 1,) * 2 and figures["tokens_per_second"] > 0
    kept = json.loads((byte_model / "evaluation" / "text.txt-language-model.scores.json").read_text())
    assert kept == figures
    code, out, _ = _run(capsys, *call, "--length", 32)
    assert code == 0 and "bits per byte" in out and "tokens a second" in out
    other = evaluate_line(load_language_model(byte_model), line, length=32, stride=10).scores()["bits_per_byte"]
    assert f"{other:.4f}" in out


def test_subwords_are_read_by_the_models_tokenizer(folder, tmp_path, capsys) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate([*letters, "th", "the", "<|endoftext|>"])}
    made = Tokenizer(BPE(vocabulary, [("t", "h"), ("th", "e")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>")
    tokenizer.save_pretrained(tmp_path / "words")
    GPT2LMHeadModel(GPT2Config(vocab_size=259, **_SIZES)).save_pretrained(tmp_path / "words")
    # A blank line is text: the file is one document.
    (folder / "text.txt").write_text(_TEXT + "\n\n" + _TEXT)
    code, out, _ = _run(
        capsys, "evaluate", tmp_path / "words", folder / "text.txt", "--task", "language-model", "--json", "-q"
    )
    figures = json.loads(out)
    assert code == 0 and figures["reading"] == {"reads": "tokens", "length": 32, "stride": 32}
    assert figures["bytes"] == 2 * len(_TEXT) + 2
    # All of them, as the end of text stands before the first.
    assert figures["tokens"] == len(tokenizer(_TEXT + "\n\n" + _TEXT).input_ids)


def test_what_is_refused(byte_model, folder, capsys) -> None:
    call = ["evaluate", byte_model, folder / "text.txt", "--task", "language-model"]
    for more, text in (
        (["--length", 33], "expected --length of at most the 32 positions of"),
        (["--stride", 25], "expected a stride from 1 to the length, 24, got 25"),
        (["--against", "a"], "expected --against without --task language-model only, got a; leave it out"),
        (["--pooling", "cls"], "expected --pooling without --task language-model only, got cls; leave it out"),
    ):
        code, _, err = _run(capsys, *call, *more)
        assert code == 2 and text in err, err
    code, _, err = _run(capsys, *call[:-1], "retrieval", "--stride", 3)
    assert code == 2 and "expected --stride beside --task language-model only, got 3; leave it out" in err
    (folder / "short.txt").write_text("a")
    code, _, err = _run(capsys, "evaluate", byte_model, folder / "short.txt", *call[3:])
    assert code == 2 and "expected at least 2 tokens of text to score" in err


def test_weights_that_are_lost(byte_model, folder, capsys) -> None:
    model = load_language_model(byte_model)
    torch.nn.init.constant_(model.transformer.ln_f.weight, 1e6)
    torch.nn.init.constant_(model.transformer.wte.weight[:30], 1e6)
    model.save_pretrained(byte_model)
    code, _, err = _run(capsys, "evaluate", byte_model, folder / "text.txt", "--task", "language-model", "-q")
    assert code == 1 and "expected a finite loss of" in err and "its weights are lost; name another model" in err
