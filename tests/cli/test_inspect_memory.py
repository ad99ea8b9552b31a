"""`narrows inspect memory` from the command line."""

import json
import subprocess
import sys

import pytest

from narrows.cli.main import main


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main(["inspect", "memory", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture(scope="module")
def tiny(tiny_seq2seq) -> tuple[object, ...]:
    return ("-m", tiny_seq2seq("mulla"), "--target-length", 8)


def test_a_plan_for_people(capsys, tiny) -> None:
    code, out, err = run(capsys, *tiny, "--length", 1000, "--batch", 6, "--budget", "20M")
    assert code == 0 and "Tracing" in err
    assert out.startswith("dynamic Mulla: ") and "training in bfloat16 with adafactor, targets of 8 tokens\n" in out
    for part in ("  weights", "  gradients", "  optimiser's state", "  a text of 1,000 tokens", "budget 20.0 MiB, for"):
        assert f"\n{part}" in out
    assert "= 6 texts a step, " in out and "in a recipe: optimiser: {batch_tokens: " in out
    assert "\n  longest text that fits alone: " in out and "LongT5's local: " in out


def test_a_plan_for_programs(capsys, tiny) -> None:
    arguments = (*tiny, "--length", 1000, "--batch", 6, "--json", "-q")
    code, out, err = run(capsys, *arguments, "--budget", "20M")
    found = json.loads(out)
    assert code == 0 and err == ""
    assert list(found) == [
        "length",
        "batch",
        "budget",
        "run",
        "static",
        "activations_per_text",
        "one_text",
        "most_texts",
        "micro_batch",
        "accumulation",
        "peak",
        "longest_length",
        "keys_per_query",
        "peers",
        "one_level_up_to",
        "check",
    ]
    assert found["micro_batch"] * found["accumulation"] == 6 and found["peak"] <= found["budget"] == 20 << 20
    assert found["run"]["dtype"] == "bfloat16" and set(found["peers"]) == {"full", "local", "tglobal"}
    assert found["check"] == []


def test_inference(capsys, tiny) -> None:
    code, out, _ = run(capsys, *tiny, "--length", 1000, "--batch", 6, "--budget", "1G", "--inference", "-q")
    assert code == 0 and "inference in float32" in out and "gradients" not in out
    assert "micro-batch 6 × rounds 1 = 6 texts, " in out


def test_a_text_that_does_not_fit_is_told_with_one_that_does(capsys, tiny) -> None:
    code, out, _ = run(capsys, *tiny, "--length", 900_000, "--budget", "50M", "--inference", "-q")
    assert code == 0 and "micro-batch: none, as one such text takes " in out and "longest text that fits alone" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--budget", "much"), "expected a size such as 16G, 800M or 1.5GiB, got 'much'"),
        (("--length", 0), "`length` must be at least 1, got 0"),
        (("--layers", 0), "`num_layers` must be at least 1, got 0"),
        (("--num-levels", 3), "`num_levels` must be None for the dynamic variant"),
        (("--dtype", "float16"), "got float16, in which T5's unscaled attention scores overflow; use bfloat16"),
        (("--dtype", "int8"), "expected a dtype of float32 or bfloat16, got 'int8'; choose one of them"),
        (("--inference", "--recompute"), "expected no --recompute with --inference"),
        (("--inference", "--checkpointing"), "expected no --checkpointing with --inference"),
    ],
)
def test_wrong_use(capsys, arguments, sentence: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and err.count("\n") == 1 and sentence in err


def test_too_small_a_budget(capsys, tiny) -> None:
    code, out, err = run(capsys, *tiny, "--length", 1000, "--budget", "10K", "-q")
    assert code == 2 and out == "" and "expected a budget of at least " in err and "got 10.0 KiB" in err


def test_another_checkpoint(capsys, checkpoint) -> None:
    code, _, err = run(capsys, "-m", checkpoint, "-q")
    assert code == 1 and "expected a checkpoint of the T5 family" in err


def test_a_check_that_would_not_fit_this_machine(capsys) -> None:
    code, out, err = run(capsys, "--layers", 1, "--length", 1 << 24, "--budget", "100T", "--inference", "-q", "--check")
    assert code == 2 and out == "" and "of free memory to check one text of 16,777,216 tokens, got " in err


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [(), ("--inference",)])
def test_a_check_measures(capsys, mode) -> None:
    arguments = ("--layers", 2, "--length", 8192, "--target-length", 32, "--check")
    code, out, err = run(capsys, *arguments, *mode, "--json")
    found = json.loads(out)["check"]
    assert code == 0 and "Measuring" in err and [reading["length"] for reading in found] == [2048, 4096, 8192]
    assert all(abs(reading["error"]) < 0.15 for reading in found)


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from narrows.cli.main import main; code = main(['inspect', 'memory', '--help']);"
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules); sys.exit(f'{code} {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--budget" in done.stdout
