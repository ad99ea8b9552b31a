"""What people get wrong, verb by verb: one sentence on stderr, nothing on stdout, exit code 1 or 2, nothing changed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from narrows.cli.main import main

QUESTION = "where was the boat?"


@pytest.fixture(scope="module")
def origin(tiny_bert, tmp_path_factory) -> Path:
    """A model, another one, a folder of documents and its store, a data set and a recipe."""
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    root = tmp_path_factory.mktemp("origin")
    for name, split_layer in (("model", 3), ("other-model", 2)):
        model, _ = convert_checkpoint(tiny_bert, split_layer=split_layer, task="question-answering")
        model.save_pretrained(root / name)
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(root / name)
    for name in ("library", "empty", "binary", "pictures", "locked"):
        (root / name).mkdir()
    (root / "library" / "town.txt").write_text("The boat was in the town. The night was cold.")
    (root / "binary" / "a.txt").write_bytes(b"a\0b")
    (root / "binary" / "b.md").write_bytes(b"caf\xe9")
    (root / "binary" / "c.jsonl").write_text("no json\n")
    (root / "pictures" / "a.png").write_bytes(b"\x89PNG")
    (root / "locked" / "a.txt").write_text("The boat.")
    context = "the king found gold."
    qas = [{"id": "a", "question": "what?", "answers": [{"text": "gold", "answer_start": 15}]}]
    data = [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]
    (root / "dev.json").write_text(json.dumps({"data": data}))
    recipe = {
        "name": "small",
        "model": {"checkpoint": str(tiny_bert), "split_layer": 3},
        "data": {"train": [{"format": "squad", "file": "dev.json"}]},
    }
    (root / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["index", str(root / "library"), "-o", str(root / "store"), "-m", str(root / "model"), "-q"]) == 0
    return root


@pytest.fixture
def world(origin, tmp_path, capsys) -> Path:
    """A copy of it all for one test."""
    shutil.copytree(origin, tmp_path / "w")
    capsys.readouterr()
    return tmp_path / "w"


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def check(world: Path, capsys, line: str, code: int, sentence: str) -> None:
    """Run a line in which `W` stands for the folder of the test."""
    before = contents(world)
    arguments = [argument.replace("W/", f"{world}/") for argument in line.split("|")]
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    *_, last = err.splitlines()
    # What is skipped on the way is told of before.
    assert all(told.startswith(("skipped: ", "Usage: ", "Try ")) or not told for told in err.splitlines()[:-1]), err
    assert sentence in last
    assert contents(world) == before


ASK = "ask|W/store|{}|-m|W/model|-q"
INDEX = "index|W/{}|-o|W/new|-m|W/model|-q"


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        # Folders and files that hold nothing to read.
        (INDEX.format("empty"), 2, "W/empty holds none; name another folder or convert the files"),
        (INDEX.format("pictures"), 2, "W/pictures holds none (1 other skipped); name another folder"),
        (INDEX.format("binary"), 2, "of the 3 in W/binary not one could be; correct the problems reported"),
        (INDEX.format("none"), 2, "W/none does not exist; check the path"),
        (INDEX.format("pictures/a.png"), 2, "a.png has the suffix '.png'; convert it to one of these formats"),
        ("store|estimate|W/empty|-m|W/model|-q", 2, "W/empty holds none; name another folder"),
        ("store|estimate|W/binary|-m|W/model|-q", 2, "not one could be; correct the problems reported"),
        (f"answer|{QUESTION}|-c|W/binary/a.txt|-m|W/model|-q", 2, "byte 1 is a NUL as in binary files; convert"),
        (f"answer|{QUESTION}|-c|W/binary/b.md|-m|W/model|-q", 2, "byte 3 is not UTF-8 (unexpected end of data); save"),
        (f"answer|{QUESTION}|-c|W/empty|-m|W/model|-q", 2, "W/empty holds none; name another folder"),
        # Questions.
        (ASK.format(""), 2, "expected a question, got an empty one; ask in at least one word"),
        (ASK.format(" \t"), 2, "expected a question, got an empty one; ask in at least one word"),
        (ASK.format("why " * 65), 2, "a question must have at most 64 tokens, got 65; ask it in fewer words"),
        ("answer||-c|W/library/town.txt|-m|W/model", 2, "expected a question, got an empty one; ask in at least"),
        (f"answer|{'why ' * 65}|-c|W/library/town.txt|-m|W/model", 2, "at most 64 tokens, got 65; ask it in fewer"),
        # Numbers out of range.
        (f"{ASK.format(QUESTION)}|--top|0", 2, "Input should be greater than or equal to 1"),
        (f"{ASK.format(QUESTION)}|--candidates|0", 2, "Input should be greater than or equal to 1"),
        (f"{ASK.format(QUESTION)}|--batch-tokens|0", 2, "Input should be greater than or equal to 1"),
        ("convert|W/model|W/new|-k|5", 2, "`split_layer` must be from 0 to 4 for 5 layers, got 5; keep at least one"),
        ("convert|W/model|W/new|-k|-1", 2, "`split_layer` must be from 0 to 4 for 5 layers, got -1; keep at least"),
        ("train|W/recipe.yaml|--data|W/|--runs|W/runs|--set|model.split_layer=5", 2, "for 5 layers, got 5; keep at le"),
        ("train|W/recipe.yaml|--data|W/|--runs|W/runs|--set|model.split_layer=-1", 2, "'model.split_layer' in"),
        # Recipes.
        ("train|W/recipe.yaml|--data|W/|--set|optimiser.epoch=2", 2, "got 'optimiser.epoch'; did you mean 'epochs'?"),
        ("train|W/recipe.yaml|--data|W/|--set|zzz=2", 2, "got 'zzz'; known keys are data, description, evaluate_every"),
        ("train|W/dev.json|--data|W/", 2, "expected a key 'name' in"),
        ("train|W/model/model.safetensors|--data|W/", 2, "got a file that cannot be read"),
        # Stores.
        (f"ask|W/none|{QUESTION}|-m|W/model", 1, "but nothing is there; create it with `narrows index`"),
        (f"ask|W/library|{QUESTION}|-m|W/model", 1, "is not a passage store: it has no manifest.json; give a folder"),
        (f"ask|W/dev.json|{QUESTION}|-m|W/model", 1, "is a file; give the folder that `narrows index` made"),
        (f"ask|W/store|{QUESTION}|-m|W/other-model", 1, "split layer 3 in the store, 2 in the model; use the model"),
        (
            "index|W/library|-o|W/store|-m|W/other-model|-q",
            1,
            "split layer 3 in the store, 2 in the model; use the mod",
        ),
        (f"{ASK.format(QUESTION)}|--retrieval|both", 2, "or make it anew with `narrows index --dense`"),
        # Models.
        (
            f"ask|W/store|{QUESTION}|-m|W/none/x",
            1,
            "which is neither here nor reachable; check the path or the network",
        ),
        ("evaluate|W/library|W/dev.json", 2, "without config.json; check the path"),
        ("evaluate|W/model|W/recipe.yaml|-q", 2, "expected JSON, got other text"),
        ("evaluate|W/model|W/dev.json|--calibrate|-q", 2, "got 1 and 0 in W/dev.json; calibrate on data in the layout"),
    ],
)
def test_one_sentence(world, capsys, line, code, sentence) -> None:
    check(world, capsys, line, code, sentence.replace("W/", f"{world}/"))


def newer(store: Path) -> None:
    manifest = store / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 2'))


def truncated(store: Path) -> None:
    for file in (store / "passages.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes()[:-50])


def no_manifest(store: Path) -> None:
    (store / "manifest.json").unlink()


VERBS = ("store|info|W/store", f"ask|W/store|{QUESTION}|-m|W/model", "index|W/library|-o|W/store|-m|W/model|-q")


@pytest.mark.parametrize("line", VERBS)
@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (newer, "has format version 2, but this narrows reads up to 1; upgrade narrows or build the store anew"),
        (truncated, "run `narrows store verify` on it and then `narrows index` again"),
        (
            no_manifest,
            "is damaged: its manifest.json is gone; bring it back from a copy, or run `narrows store delete`",
        ),
    ],
)
def test_a_store_that_cannot_be_used(world, capsys, line: str, harm: Callable[[Path], None], sentence: str) -> None:
    harm(world / "store")
    check(world, capsys, line, 1, sentence)


def test_a_truncated_file_is_reported_repaired_and_written_anew(world, capsys) -> None:
    truncated(world / "store")
    store, model = str(world / "store"), str(world / "model")
    assert main(["store", "verify", store]) == 1
    assert "damaged: 1 passage in the file passages.lance/data/" in capsys.readouterr().out
    assert main(["store", "verify", store, "--repair"]) == 1
    assert "and what cannot be read; run `narrows index` to write them anew" in capsys.readouterr().out
    assert main(["index", str(world / "library"), "-o", store, "-m", model, "-q"]) == 0
    assert "read 1 document " in capsys.readouterr().out
    assert main(["store", "verify", store]) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize(
    ("locked", "mode", "line", "code", "sentence"),
    [
        ("locked/a.txt", 0, INDEX.format("locked"), 2, "not one could be; correct the problems reported"),
        ("locked", 0, INDEX.format("locked"), 2, "locked' is not readable"),
        (
            "locked/a.txt",
            0,
            f"answer|{QUESTION}|-c|W/locked/a.txt|-m|W/model",
            2,
            "(Permission denied); change its perm",
        ),
        (
            "locked",
            0o500,
            "index|W/library|-o|W/locked/s|-m|W/model|-q",
            1,
            "(Permission denied); choose a folder that",
        ),
        ("store/manifest.json", 0, ASK.format(QUESTION), 1, "cannot be read (Permission denied); check its perm"),
        ("dev.json", 0, "evaluate|W/model|W/dev.json|-q", 2, "dev.json' is not readable"),
        ("recipe.yaml", 0, "train|W/recipe.yaml|--data|W/", 2, "recipe.yaml' is not readable"),
    ],
)
def test_no_permission(world, capsys, locked, mode, line, code, sentence) -> None:
    former = (world / locked).stat().st_mode
    (world / locked).chmod(mode)
    try:
        arguments = [argument.replace("W/", f"{world}/") for argument in line.split("|")]
        assert main(arguments) == code
    finally:
        (world / locked).chmod(former)
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and sentence in err.splitlines()[-1]
