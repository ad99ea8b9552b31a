"""`narrows store` from the command line."""

import json
from pathlib import Path

import pytest

from narrows.cli.main import main


@pytest.fixture
def store(tmp_path, folder, checkpoint, capsys) -> Path:
    path = tmp_path / "s"
    assert main(["index", str(folder), "-o", str(path), "--model", str(checkpoint), "--quiet"]) == 0
    capsys.readouterr()
    return path


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main(["store", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_info(store, capsys) -> None:
    code, out, _ = run(capsys, "info", store)
    assert code == 0 and "holds 2 documents, 2 passages" in out and "split layer 3, width 24" in out
    code, out, _ = run(capsys, "info", store, "--json")
    assert json.loads(out)["fingerprint"]["split_layer"] == 3


def test_estimate_builds_nothing(tmp_path, folder, checkpoint, capsys) -> None:
    code, out, _ = run(capsys, "estimate", folder, "--model", checkpoint, "--quiet")
    assert code == 0 and "2 documents, 2 passages" in out and "time to build it" in out
    code, out, _ = run(capsys, "estimate", folder, "--model", checkpoint, "--quiet", "--json", "--codec", "fp32")
    found = json.loads(out)
    assert (found["documents"], found["codec"]) == (2, "fp32") and found["bytes"] > found["tokens"] * 96
    assert list(tmp_path.iterdir()) == [folder]


def test_verify_and_repair(store, folder, checkpoint, capsys) -> None:
    code, out, _ = run(capsys, "verify", store)
    assert code == 0 and "everything is as it was written" in out
    [data] = (store / "passages.lance" / "data").iterdir()
    content = data.read_bytes()
    at = content.index(b"Two birds")
    data.write_bytes(content[:at] + b"Six" + content[at + 3 :])
    code, out, _ = run(capsys, "verify", store)
    assert code == 1 and "damaged: passage 'birds.md:0'" in out and "verify --repair" in out
    code, out, _ = run(capsys, "verify", store, "--repair", "--json")
    assert code == 1 and json.loads(out)["dropped"] == ["birds.md"]
    assert main(["index", str(folder), "-o", str(store), "--model", str(checkpoint), "--quiet"]) == 0
    assert "read 1 document " in capsys.readouterr().out
    assert run(capsys, "verify", store)[0] == 0


def test_repair_says_how_many_were_dropped(store, capsys) -> None:
    [data] = (store / "passages.lance" / "data").iterdir()
    content = data.read_bytes()
    data.write_bytes(content.replace(b"Two birds", b"Six birds"))
    code, out, _ = run(capsys, "verify", store, "--repair")
    assert code == 1 and "dropped 1 damaged document (birds.md); run `narrows index`" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("back", "gone"), [(20, "2 passages of documents whose names cannot be read"), (800, "2 damaged documents (")]
)
def test_what_an_error_says_to_do_leads_to_a_store_that_answers(tmp_path, folder, capsys, back, gone) -> None:
    import re
    import shlex

    # With the shipped reader, as the commands say; a name that a shell would take apart.
    path = tmp_path / "my store"
    assert main(["index", str(folder), "-o", str(path), "--quiet"]) == 0
    [data] = (path / "passages.lance" / "data").iterdir()
    content = bytearray(data.read_bytes())
    content[-back : 20 - back or None] = b"\xff" * 20
    data.write_bytes(content)
    capsys.readouterr()
    assert main(["ask", str(path), "Where did the boat go?"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and "reading the store" in shown.err
    commands = [shlex.split(command) for command in re.findall("`narrows (.*?)`", shown.err)]
    assert [command[0] for command in commands] == ["store", "index"]
    assert main(commands[0]) == 1
    assert f"dropped {gone}" in capsys.readouterr().out
    assert main(commands[1]) == 0 and "read 2 documents" in capsys.readouterr().out
    assert main(["ask", str(path), "Where did the boat go?", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["candidates"] == 1 and "left_out" not in json.loads(shown.out) and shown.err == ""
    assert main(["store", "verify", str(path)]) == 0


def test_what_is_whole_answers_and_what_is_left_out_is_told(store, checkpoint, capsys) -> None:
    [data] = (store / "passages.lance" / "data").iterdir()
    content = data.read_bytes()
    data.write_bytes(content.replace(b"Two birds", b"Six birds"))
    ask = ["ask", str(store), "--model", str(checkpoint), "--quiet"]
    assert main([*ask, "Where is the stone of the river?", "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["candidates"] == 1 and {answer["document"] for answer in found["answers"]} <= {"river.txt", ""}
    assert found["left_out"]["passages"] == 1 and found["left_out"]["documents"] == ["birds.md"]
    assert shown.err.startswith(
        "narrows: warning: damaged and left out: 1 passage found for this question, of 1 document (birds.md); "
        f"run `narrows store verify --repair {store}` and then `narrows index "
    )
    # A question that finds nothing damaged is answered without a word; one that finds nothing else is not answered.
    assert main([*ask, "Where did the boat go?"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*ask, "Where are birds?"]) == 1
    assert "passage 'birds.md:0' in the store" in capsys.readouterr().err


def test_a_warning_names_some_documents_and_counts_the_others(capsys) -> None:
    from narrows.cli.ask import _warn
    from narrows.store import LeftOut

    _warn(LeftOut(9, [f"{letter}.md" for letter in "abcdefg"], 2, "mend it"))
    assert capsys.readouterr().err == (
        "narrows: warning: damaged and left out: 9 passages found for this question, of 7 documents (a.md, b.md, c.md, "
        "d.md, e.md and 2 more) and of others whose names cannot be read; mend it\n"
    )
    _warn(LeftOut(2, [], 2, "mend it"))
    assert "of documents whose names cannot be read; mend it" in capsys.readouterr().err


def test_a_store_whose_versions_are_gone_says_so_everywhere(store, folder, checkpoint, capsys) -> None:
    import shutil

    shutil.rmtree(store / "passages.lance" / "_versions")
    code, out, _ = run(capsys, "verify", store)
    assert code == 1 and "damaged: the store" in out and "_versions, which says which of them count, is gone" in out
    assert "this cannot be repaired: bring the store back from a copy, or run `narrows store delete` on it" in out
    code, out, _ = run(capsys, "verify", store, "--repair", "--json")
    assert code == 1 and json.loads(out)["beyond_repair"] and json.loads(out)["dropped"] == []
    for arguments in (
        ["store", "info", store],
        ["ask", store, "where?", "--model", checkpoint],
        ["index", folder, "-o", store, "--model", checkpoint, "--quiet"],
    ):
        assert main([*map(str, arguments)]) == 1
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.count("\n") == 1 and "is gone; bring it back from a copy" in shown.err
    assert run(capsys, "delete", store, "--yes")[0] == 0 and not store.exists()


def test_a_damaged_index_is_repaired_without_dropping_a_document(store, checkpoint, capsys) -> None:
    file = max((store / "passages.lance" / "_indices").rglob("*.lance"), key=lambda file: file.stat().st_size)
    file.write_bytes(file.read_bytes()[:-20])
    code, out, _ = run(capsys, "verify", store)
    assert code == 1 and f"damaged: the file passages.lance/_indices/{file.parent.name}" in out
    code, out, _ = run(capsys, "verify", store, "--repair")
    assert code == 1 and "repaired, without dropping a document" in out
    assert run(capsys, "verify", store)[0] == 0
    assert main(["ask", str(store), "Where are birds?", "--model", str(checkpoint), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"] == 1


def test_a_damaged_manifest_and_how_to_be_rid_of_it(store, capsys) -> None:
    (store / "manifest.json").write_text("{")
    for verb in ("info", "verify"):
        code, out, err = run(capsys, verb, store)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "is not the manifest of a passage store; bring it back from a copy, or run `narrows store del" in err
    assert run(capsys, "delete", store, "--yes")[0] == 0 and not store.exists()


def test_delete_asks_first(store, capsys, monkeypatch) -> None:
    code, _, err = run(capsys, "delete", store, "--json")
    assert code == 2 and "expected --yes beside --json" in err and store.exists()
    code, out, _ = run(capsys, "delete", store, "--yes", "--json")
    assert code == 0 and json.loads(out) == {"deleted": str(store)} and not store.exists()


def test_a_deletion_that_is_not_confirmed(store, capsys, monkeypatch) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert run(capsys, "delete", store)[0] == 1 and store.exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, out, _ = run(capsys, "delete", store)
    assert code == 0 and out.strip() == f"deleted {store}" and not store.exists()


@pytest.mark.parametrize("verb", ["info", "verify", "delete"])
def test_what_is_no_store(tmp_path, verb, capsys) -> None:
    options = ["--yes"] if verb == "delete" else []
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("mine")
    for path, words in (
        (tmp_path / "none", "nothing is there"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "folder", "is not a passage store"),
    ):
        code, out, err = run(capsys, verb, path, *options)
        assert (code, out, err.count("\n")) == (1, "", 1) and words in err
    assert (tmp_path / "folder" / "a.txt").exists()
