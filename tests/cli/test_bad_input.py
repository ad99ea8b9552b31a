"""What people get wrong, verb by verb: one sentence on stderr, nothing on stdout, exit code 1 or 2, nothing changed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
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
    # The last is a question to `strip`, and none to a tokenizer.
    for name, asked in (("blank", " \n"), ("half", "\ud800"), ("silent", "\u200b")):
        text = json.dumps({"data": data}).replace('"id": "a"', '"id": "b"').replace('"what?"', json.dumps(asked))
        (root / f"{name}.json").write_text(text)
    (root / "deep.json").write_text("[" * 100_000)
    (root / "digits.json").write_text("1" * 5000)
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
    assert all(told.startswith("skipped: ") for told in err.splitlines()[:-1]), err
    assert last.startswith("narrows: error: ") and sentence in last and "set_int_max_str_digits" not in err
    assert contents(world) == before


LONG = "a" * 300
HUGE = "99999999999999999999999"
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
        (f"answer|{QUESTION}|-c|W/empty|-m|W/model|-q", 2, "but W/empty is a folder; name a file, or use `narrows"),
        (f"answer|{QUESTION}|-c|W/library|-m|W/model", 2, "but W/library is a folder; name a file, or use `narrows in"),
        *(
            (line, 2, "expected a path that can be used, got '")
            for line in (
                f"index|{LONG}|-o|W/new|-m|W/model",
                f"index|W/library|-o|W/{LONG}|-m|W/model",
                f"answer|{QUESTION}|-c|{LONG}|-m|W/model",
                f"embed|{LONG}",
                f"embed|W/library|-o|W/{LONG}.npy",
                f"embed|W/library|-m|{LONG}",
                f"classify|W/library|-m|{LONG}",
                f"summarize|W/library|-m|{LONG}",
                f"convert|{LONG}|W/new|-k|2",
                f"convert|W/model|W/{LONG}|-k|2",
                f"evaluate|{LONG}|W/dev.json",
                f"inspect|levels|{LONG}",
            )
        ),
        ("convert|W/model|W/caf\udce9|-k|2", 2, "expected a folder whose path is UTF-8, got 'W/caf\\udce9'; choose"),
        ("embed|W/library|-m|W/model|--prompt|caf\udce9", 2, "expected a prompt in Unicode, but its character 3 is a"),
        # Questions.
        (ASK.format("caf\udce9"), 2, "expected a question in Unicode, but its character 3 is a byte that is not UTF-8"),
        ("answer|\ud800|-c|W/library/town.txt|-m|W/model", 2, "a question in Unicode, but its character 0 is a byte"),
        (ASK.format(""), 2, "expected a question, got an empty one; ask in at least one word"),
        (ASK.format(" \t"), 2, "expected a question, got an empty one; ask in at least one word"),
        (ASK.format("why " * 65), 2, "a question must have at most 64 tokens, got 65; ask it in fewer words"),
        ("answer||-c|W/library/town.txt|-m|W/model", 2, "expected a question, got an empty one; ask in at least"),
        (f"answer|{'why ' * 65}|-c|W/library/town.txt|-m|W/model", 2, "at most 64 tokens, got 65; ask it in fewer"),
        # Numbers out of range.
        (
            f"{ASK.format(QUESTION)}|--top|0",
            2,
            "Invalid value for '--top': Input should be greater than or equal to 1; see `narrows ask --help`",
        ),
        (f"{ASK.format(QUESTION)}|--top|{HUGE}", 2, "'--top': Input should be less than or equal to 10000; see"),
        (f"{ASK.format(QUESTION)}|--candidates|{HUGE}", 2, "Input should be less than or equal to 1000000; see"),
        (f"{ASK.format(QUESTION)}|--candidates|{'9' * 5000}", 2, "Invalid value for '--candidates': "),
        (f"{ASK.format(QUESTION)}|--batch-tokens|{HUGE}", 2, "Input should be less than or equal to 16777216; see"),
        (f"{ASK.format(QUESTION)}|--device|tpu", 2, "Invalid value for '--device': "),
        (f"evaluate|W/model|W/dev.json|--candidates|{HUGE}", 2, "less than or equal to 1000000; see `narrows evaluate"),
        (f"evaluate|W/model|W/dev.json|--candidates|2|--questions|{HUGE}", 2, "less than or equal to 1000000000; see"),
        (f"convert|W/model|W/new|-k|{HUGE}", 2, f"from 0 to 4 for 5 layers, got {HUGE}; keep at least one"),
        ("convert|W/model|W/new|-k|x", 2, "Invalid value for '--split-layer' / '-k': "),
        ("convert|W/model", 2, "; see `narrows convert --help`"),
        (f"inspect|mask|mulla|--length|{HUGE}", 2, "`length` must be at most 1,048,576, got 99,999,999"),
        (f"inspect|mask|tglobal|--global-block-size|{HUGE}", 2, "`global_block_size` must be at most 1,048,576, got"),
        ("inspect|mask|mulla|--length|x", 2, "; see `narrows inspect mask --help`"),
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
        ("evaluate|W/model|W/deep.json|-q", 2, "expected JSON, got other text (it is nested too deep); pass a file in"),
        ("evaluate|W/model|W/digits.json|-q", 2, "expected JSON, got other text (a number has too many digits); pass"),
        (
            "evaluate|W/model|W/dev.json|--split|W/digits.json|--part|a",
            2,
            "(a number has too many digits); pass a file",
        ),
        (
            "evaluate|W/model|W/blank.json|-q",
            2,
            "question b: expected a question, got an empty one; write it or remove",
        ),
        ("evaluate|W/model|W/half.json|-q", 2, "question b: expected 'question' in Unicode, got half of a surrogate"),
        (
            "evaluate|W/model|W/silent.json|--candidates|1|-q",
            2,
            "question b: expected a question, got an empty one; ask",
        ),
        ("evaluate|W/model|W/dev.json|--calibrate|-q", 2, "got 1 and 0 in W/dev.json; calibrate on data in the layout"),
    ],
)
def test_one_sentence(world, capsys, line, code, sentence) -> None:
    check(world, capsys, line, code, sentence.replace("W/", f"{world}/"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize(
    "line",
    [
        ASK.format(QUESTION),
        f"answer|{QUESTION}|-c|W/library/town.txt|-m|W/model",
        INDEX.format("library"),
        "store|estimate|W/library|-m|W/model|-q",
        "evaluate|W/model|W/dev.json|-q",
    ],
)
def test_a_gpu_that_is_not_here(world, capsys, line) -> None:
    check(world, capsys, f"{line}|--device|cuda", 2, "expected a device that is here (cpu), got --device cuda; use --d")


@pytest.mark.parametrize(
    ("field", "value", "code", "sentence"),
    [
        ("max_answer_tokens", -1, 2, "`max_answer_tokens` must be at least 1, got -1; give it room for a token"),
        ("no_answer_scale", float("nan"), 2, "`no_answer_scale` must be a finite number, got nan; fit it with"),
        ("vocab_size", 41, 1, "word.weight of shape (41, 24), as W/model/config.json says, got ("),
        ("hidden_size", 27, 1, "as W/model/config.json says, got ("),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        ASK.format(QUESTION),
        f"answer|{QUESTION}|-c|W/library/town.txt|-m|W/model",
        INDEX.format("library"),
        "store|estimate|W/library|-m|W/model|-q",
        "evaluate|W/model|W/dev.json|-q",
        "evaluate|W/model|W/dev.json|--candidates|1|-q",
        "convert|W/model|W/new|-k|1",
    ],
)
def test_a_config_that_does_not_fit(world, capsys, line, field, value, code, sentence) -> None:
    path = world / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    if line.startswith("convert") and code == 1:
        sentence = "shape"
    check(world, capsys, line, code, sentence.replace("W/", f"{world}/"))


@pytest.mark.parametrize(
    ("line", "skipped"),
    [
        (INDEX.format("binary"), ["a.txt, but byte 1 is a NUL", "b.md, but byte 3 is not", "line 1 of c.jsonl, but"]),
        (INDEX.format("binary/b.md"), ["b.md, but byte 3 is not UTF-8"]),
        ("store|estimate|W/binary|-m|W/model", ["a.txt, but byte 1", "b.md, but byte 3", "line 1 of c.jsonl, but"]),
        (INDEX.format("binary").removesuffix("|-q"), ["a.txt, but byte 1", "b.md, but byte 3", "line 1 of c.jsonl"]),
        (f"answer|{QUESTION}|-c|W/two.jsonl|-m|W/model|-q", ["line 1 of two.jsonl", "line 2 of two.jsonl"]),
    ],
)
def test_where_nothing_can_be_read_the_reasons_are_said(world, capsys, line, skipped) -> None:
    (world / "two.jsonl").write_text("no json\n[1]\n")
    assert main([argument.replace("W/", f"{world}/") for argument in line.split("|")]) == 2
    *reasons, last = capsys.readouterr().err.splitlines()
    # A folder's files have a sentence for all, a single file has its own.
    assert "not one could be; correct the problems reported for each of them" in last or (
        "nothing in it could be; correct the problems reported" in last
    )
    assert len(reasons) == len(skipped)
    for reason, part in zip(reasons, skipped, strict=True):
        assert reason.startswith("skipped: ") and part in reason


def test_names_of_any_bytes(world, capsys) -> None:
    library = world / "library"
    for name in (b"caf\xe9.txt", b"caf\xe9.png", b"two\nlines\x1b[31m.png"):
        Path(os.fsdecode(bytes(library) + b"/" + name)).write_text("The boat.")
    arguments = [argument.replace("W/", f"{world}/") for argument in INDEX.format("library").split("|")]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted(skipped["name"] for skipped in report["skipped"]) == [
        "caf\udce9.png",
        "caf\udce9.txt",
        "two\nlines\x1b[31m.png",
    ]
    assert main(arguments[:-1]) == 0
    err = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("skipped", "lines"))]
    assert len(err) == 3 and any("but two lines [31m.png has the suffix '.png'" in line for line in err)


def test_converting_deletes_nothing_of_others(world, capsys, monkeypatch) -> None:
    theirs = world / "out.partial" / "diary.txt"
    theirs.parent.mkdir()
    theirs.write_text("dear")
    assert main(["convert", str(world / "model"), str(world / "out"), "-k", "1", "-q"]) == 0
    assert theirs.read_text() == "dear"
    assert (world / "out" / "config.json").is_file()
    (world / "here").mkdir()
    monkeypatch.chdir(world / "here")
    assert main(["convert", str(world / "model"), ".", "-k", "1", "-q"]) == 0
    assert contents(world / "here") == contents(world / "out")
    (world / "here" / "below").mkdir()
    monkeypatch.chdir(world / "here" / "below")
    assert main(["convert", str(world / "model"), "..", "-k", "2", "-q", "--force"]) == 0
    assert json.loads((world / "here" / "config.json").read_text())["split_layer"] == 2
    assert not [path for path in world.rglob(".*")]
    assert capsys.readouterr() == ("", "")


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
        (truncated, "run `narrows store verify --repair "),
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
    assert (
        "dropped 1 passage of documents whose names cannot be read; run `narrows index` to write them"
        in capsys.readouterr().out
    )
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
