"""The notes beside the passages: that one is lost, cut off or changed is noticed, and never said of a killed run."""

import json
import random
from pathlib import Path

import pytest

from narrows.store import Store, layout, verify

GONE = "the file checksums.json is gone, which held the checksums of all others"
CHANGED = "the file {} is not what was written"


@pytest.fixture
def finished(tmp_path, fingerprint, document) -> Path:
    path = tmp_path / "s"
    with Store.create(path, fingerprint) as store, store.writer() as writer:
        layout.write_source(path, "/somewhere/café\ud800")
        writer.put([document("a"), document("b")])
        writer.finish()
    return path


def reasons(path: Path) -> list[str]:
    return [damage.reason for damage in verify(path).damages]


def repair(path: Path) -> None:
    report = verify(path)
    assert not report.ok and not report.beyond_repair
    with Store.open(path, expect=None) as store, store.writer() as writer:
        assert writer.repair(report) == []
        assert set(store.documents()) == {"a", "b"}
    assert verify(path).ok


def test_lost_checksums_are_reported_and_written_anew(finished) -> None:
    (finished / "checksums.json").unlink()
    assert reasons(finished) == [GONE]
    repair(finished)
    # The note covers everything again.
    (finished / "source.json").unlink()
    assert reasons(finished) == [CHANGED.format("source.json")]


@pytest.mark.parametrize("name", ["checksums.json", "source.json"])
def test_a_note_that_is_cut_off_is_reported(finished, name) -> None:
    content = (finished / name).read_bytes()
    for length in {0, 1, len(content) // 2, len(content) - 1}:
        (finished / name).write_bytes(content[:length])
        assert reasons(finished) == [CHANGED.format(name)]
    repair(finished)


def test_a_lost_source_is_reported_until_it_is_known_again(finished) -> None:
    (finished / "source.json").unlink()
    with Store.open(finished, expect=None) as store, store.writer() as writer:
        writer.finish()
    assert reasons(finished) == [CHANGED.format("source.json")]
    layout.write_source(finished, "/somewhere/notes")
    assert verify(finished).ok
    (finished / "source.json").unlink()
    repair(finished)


def test_every_flipped_bit_of_a_source_is_noticed(finished) -> None:
    content = (finished / "source.json").read_bytes()
    choice = random.Random(0)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << choice.randrange(8)
        (finished / "source.json").write_bytes(changed)
        assert not layout.has_whole_source(finished)
    for position in (place for place, letter in enumerate(content) if chr(letter).isalpha()):
        changed = bytearray(content)
        changed[position] ^= 0x20
        (finished / "source.json").write_bytes(changed)
        assert not layout.has_whole_source(finished)
    (finished / "source.json").write_bytes(content)
    assert verify(finished).ok and layout.read_source(finished) == "/somewhere/café\ud800"


def test_the_source_may_change_without_a_run_that_finishes(finished) -> None:
    layout.write_source(finished, "elsewhere")
    assert verify(finished).ok


class Killed(BaseException):
    pass


def test_a_run_that_is_killed_between_any_two_notes_verifies(tmp_path, fingerprint, document, monkeypatch) -> None:
    write, stages = layout.write_whole, []

    def stop_after(number: int, *, before: bool):
        def write_or_stop(path, name, content):
            stages.append(name)
            if before and len(stages) == number:
                raise Killed
            write(path, name, content)
            if len(stages) == number:
                raise Killed

        return write_or_stop

    for number in range(1, 11):
        for before in (True, False):
            stages.clear()
            path = tmp_path / f"s{number}{before}"
            monkeypatch.setattr(layout, "write_whole", stop_after(number, before=before))
            try:
                with Store.create(path, fingerprint) as store, store.writer() as writer:
                    layout.write_source(path, "a")
                    writer.put([document("a")])
                    writer.finish()
                    layout.write_source(path, "b")
                    writer.remove(["a"])
                    writer.put([document("b")])
                    writer.finish()
            except Killed:
                pass
            monkeypatch.setattr(layout, "write_whole", write)
            assert verify(path).ok, (stages, verify(path).damages)
            if layout.is_unborn(path):
                Store.create(path, fingerprint).close()
            with Store.open(path, expect=None) as store, store.writer() as writer:
                writer.put([document("c")])
                writer.finish()
            assert verify(path).ok
    assert stages == [
        "manifest.json",
        "checksums.json",
        # Of the empty index.
        "checksums.json",
        "source.json",
        # Of a file that is about to be named by a commit.
        "checksums.json",
        "checksums.json",
        "source.json",
        "checksums.json",
        "checksums.json",
    ]


def as_an_older_narrows_wrote_it(path: Path) -> None:
    """Without the new word in the manifest, a checksum of the source, and what the note says of it."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["noted"]
    (path / "manifest.json").write_text(json.dumps(manifest, indent=2))
    source = layout.read_source(path)
    (path / "source.json").write_text(json.dumps({"source": source}, indent=2))
    from narrows.store.checksums import _checksum, _of_note

    files = json.loads((path / "checksums.json").read_text())["files"]
    files["manifest.json"] = _checksum(path / "manifest.json")
    (path / "checksums.json").write_text(json.dumps({"checksum": _of_note(files), "files": files}, indent=2))


def test_an_older_store_verifies_with_a_remark(finished, document) -> None:
    as_an_older_narrows_wrote_it(finished)
    assert verify(finished).ok and not verify(finished).remarks
    (finished / "checksums.json").unlink()
    report = verify(finished)
    assert report.ok and report.remarks == [
        "there is no checksums.json to compare the files with, only the passages were compared; the next "
        "`narrows index` writes one"
    ]
    with Store.open(finished, expect=None) as store, store.writer() as writer:
        writer.put([document("c")])
        writer.finish()
    assert verify(finished).ok and not verify(finished).remarks
    assert layout.has_whole_source(finished)
    (finished / "source.json").unlink()
    assert reasons(finished) == [CHANGED.format("source.json")]


def test_the_command_says_what_is_lost(finished, capsys) -> None:
    from narrows.cli.main import main

    (finished / "checksums.json").unlink()
    assert main(["store", "verify", str(finished)]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"damaged: {GONE}",
        "run `narrows store verify --repair` and then `narrows index` to write them anew",
    ]
    assert main(["store", "verify", str(finished), "--repair"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "repaired, without dropping a document"
    assert main(["store", "verify", str(finished)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "everything is as it was written"
    as_an_older_narrows_wrote_it(finished)
    (finished / "checksums.json").unlink()
    assert main(["store", "verify", str(finished)]) == 0
    _, remark, verdict = capsys.readouterr().out.splitlines()
    assert remark.startswith("remark: there is no checksums.json") and verdict == "every passage is as it was written"
