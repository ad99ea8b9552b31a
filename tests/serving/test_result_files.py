"""Files of results: what any reader of the format reads, whole or not at all, and going on where a run stopped."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from narrows.documents.texts import Text
from narrows.errors import OutputError, UsageError
from narrows.serving.batching import Row
from narrows.serving.result_files import ResultFile, ids_path, require_free
from narrows.serving.result_formats import NpyRows, SafetensorsRows, embedding_format, numbers, vector_lines

WIDTH = 3
SUFFIXES = [".npy", ".jsonl", ".safetensors"]


def _text(number: int, words: str = "words") -> Text:
    return Text(f"text {number}", f"{words} {number}")


def _row(text: Text) -> Row:
    number = int(text.text.split()[-1])
    return Row(text, np.array([number, number / 3, -number], dtype=np.float32), 5, 2 if number % 4 == 3 else 0)


def _windows(texts, size: int = 3):
    window = []
    for text in texts:
        window.append(_row(text))
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def _open(path: Path, **options) -> ResultFile:
    given = {"settings": {"model": "a"}, **options}
    return ResultFile(path, embedding_format(path, WIDTH, {"model": "a"}), **given)


def _write(path: Path, texts: list[Text], *, stop_after: int | None = None, **options) -> int:
    """Returns how many texts were worked on; `stop_after` windows it stops as a killed process does."""
    worked = 0
    file = _open(path, **options)
    with file:
        for number, window in enumerate(_windows(file.remaining(texts))):
            if number == stop_after:
                return worked
            file.append(window)
            worked += len(window)
        file.finish()
    return worked


def _load(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        return np.array([json.loads(line)["embedding"] for line in lines], dtype=np.float32)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"model": "a"}
        return file.get_tensor("embeddings")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("number", [1, 3, 11])
def test_files_hold_the_rows_in_order(tmp_path, suffix, number) -> None:
    path, texts = tmp_path / f"out{suffix}", [_text(each) for each in range(number)]
    _write(path, texts)
    np.testing.assert_array_equal(_load(path), np.stack([_row(text).value for text in texts]))
    ids = ids_path(path) if suffix != ".jsonl" else path
    found = [json.loads(line) for line in ids.read_text().splitlines()]
    assert [line["id"] for line in found] == [text.id for text in texts]
    assert [line.get("tokens_not_read", 0) for line in found] == [_row(text).tokens_not_read for text in texts]
    assert sorted(tmp_path.iterdir()) == sorted({path, ids})


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("stop", [1, 2, 3])
@pytest.mark.parametrize("torn", ["", "data", "notes", "lost"])
def test_a_stopped_run_goes_on_and_does_nothing_twice(tmp_path, suffix, stop, torn) -> None:
    straight, path, texts = tmp_path / f"straight{suffix}", tmp_path / f"out{suffix}", [_text(n) for n in range(11)]
    _write(straight, texts)
    assert _write(path, texts, stop_after=stop) == 3 * stop
    assert not path.exists()
    data, notes = path.with_name(path.name + ".partial"), path.with_name(path.name + ".partial.texts")
    if torn == "data":
        data.write_bytes(data.read_bytes() + b"half")
    if torn == "notes":
        notes.write_bytes(notes.read_bytes() + b'{"id": "text 9", "text": "half')
    if torn == "lost":
        # A machine that lost power may have kept the notes and not the rows.
        data.write_bytes(data.read_bytes()[:-1])
    assert _write(path, texts) == 11 - 3 * (stop - (torn == "lost"))
    assert path.read_bytes() == straight.read_bytes()


@given(kept=st.integers(0, 2000))
def test_whatever_a_killed_process_left_goes_on(tmp_path_factory, kept) -> None:
    folder, texts = tmp_path_factory.mktemp("cut"), [_text(n) for n in range(8)]
    path = folder / "out.npy"
    _write(path, texts, stop_after=2)
    notes = folder / "out.npy.partial.texts"
    notes.write_bytes(notes.read_bytes()[:kept])
    _write(path, texts)
    np.testing.assert_array_equal(np.load(path), np.stack([_row(text).value for text in texts]))


def test_totals_count_what_was_done_before(tmp_path) -> None:
    path, texts = tmp_path / "out.npy", [_text(n) for n in range(11)]
    _write(path, texts, stop_after=2)
    with _open(path) as file:
        for window in _windows(file.remaining(texts)):
            file.append(window)
        assert file.resumed == 6
        assert file.finish() == (11, 55, 2, 4)


def test_other_texts_are_refused_or_done_again(tmp_path) -> None:
    path, texts = tmp_path / "out.npy", [_text(n) for n in range(11)]
    _write(path, texts, stop_after=3)
    changed = [*texts[:4], _text(40), *texts[5:]]
    with pytest.raises(
        UsageError,
        match="expected text 'text 4' as in the run that left out.npy.partial, got 'text 40' with another text; pass",
    ):
        _write(path, changed)
    with pytest.raises(
        UsageError, match="expected text 'text 6' as in .*, got no more texts with another text; pass --"
    ):
        _write(path, texts[:6])
    # The first window is kept.
    assert _write(path, changed, force=True) == 8
    np.testing.assert_array_equal(np.load(path), np.stack([_row(text).value for text in changed]))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_refused_run_keeps_what_the_one_before_has_done(tmp_path, suffix) -> None:
    path, texts = tmp_path / f"out{suffix}", [_text(n) for n in range(11)]
    _write(path, texts, stop_after=3)
    left = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def unreadable():
        yield texts[0]
        raise KeyboardInterrupt

    for others in ([_text(99), *texts[1:]], [], unreadable()):
        with pytest.raises((UsageError, KeyboardInterrupt)):
            _write(path, others)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == left
    with _open(path):
        pass
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == left
    assert _write(path, texts) == 2


def test_a_run_that_is_stopped_before_its_first_text_leaves_nothing(tmp_path) -> None:
    path = tmp_path / "out.npy"
    with pytest.raises(KeyboardInterrupt), _open(path):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    _write(path, [_text(n) for n in range(5)], stop_after=1)
    with pytest.raises(KeyboardInterrupt), _open(path, force=True) as file:
        file.remaining([_text(9)])
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_other_settings_are_refused_or_begin_anew(tmp_path) -> None:
    path, texts = tmp_path / "out.npy", [_text(n) for n in range(5)]
    _write(path, texts, stop_after=1)
    with pytest.raises(
        UsageError, match="expected the settings of the run that left out.npy.partial, got another model; give the same"
    ):
        _write(path, texts, settings={"model": "b"})
    assert _write(path, texts, settings={"model": "b"}, force=True) == 5


def test_a_run_that_did_nothing_leaves_nothing(tmp_path) -> None:
    with _open(tmp_path / "out.npy") as file:
        list(file.remaining([]))
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path) -> None:
    (tmp_path / "there.npy").write_bytes(b"")
    with pytest.raises(
        UsageError, match=r"expected a new file to write to, got .*there\.npy, which is there; name anot"
    ):
        require_free(tmp_path / "there.npy", force=False)
    require_free(tmp_path / "there.npy", force=True)
    with pytest.raises(UsageError, match="expected a file to write to, got the folder .*; name a file in it"):
        require_free(tmp_path, force=True)
    with pytest.raises(OutputError, match="expected room and permission to write .*, got No such file or directory; m"):
        _open(tmp_path / "nowhere" / "out.npy")
    with pytest.raises(
        UsageError, match=r"expected an output of \.npy, \.jsonl, \.safetensors or - for stdout, got a\.c"
    ):
        embedding_format(Path("a.csv"), WIDTH, {})


@pytest.mark.parametrize("rows", [NpyRows(384), SafetensorsRows(384, {"model": "é"})])
def test_a_header_has_one_length(rows) -> None:
    assert len({len(rows.header(10**power)) for power in range(13)}) == 1


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5))
def test_numbers_come_back(values) -> None:
    array = np.array(values, dtype=np.float32)
    np.testing.assert_array_equal(np.array(json.loads(json.dumps(numbers(array))), dtype=np.float32), array)


def test_lines_are_short() -> None:
    line = vector_lines().encode([Row(_text(1), np.array([0.1, -2], dtype=np.float32), 3, 0)])
    assert line == b'{"id": "text 1", "embedding": [0.1, -2.0]}\n'


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_two_runs_never_write_the_same_file(suffix, tmp_path) -> None:
    path, texts = tmp_path / f"out{suffix}", [_text(number) for number in range(7)]
    with _open(path) as first:
        windows = _windows(first.remaining(texts))
        first.append(next(windows))
        with pytest.raises(
            UsageError, match="expected .*out.* for this run alone, got another process that writes it;"
        ):
            _open(path)
        with pytest.raises(UsageError, match="for this run alone, got another process"):
            _open(path, force=True)
        for window in windows:
            first.append(window)
        first.finish()
    assert {found.name for found in tmp_path.iterdir()} <= {path.name, ids_path(path).name}
    with pytest.raises(UsageError, match="expected a new file to write to, got .*, which is there; name another"):
        _open(path)
    assert {found.name for found in tmp_path.iterdir()} <= {path.name, ids_path(path).name}


def test_a_run_that_waited_for_another_does_not_take_its_file(tmp_path, monkeypatch) -> None:
    """Between opening the journal and locking it, the other run comes to its end and takes it away."""
    from narrows.serving import result_files

    path, texts = tmp_path / "out.npy", [_text(number) for number in range(4)]
    first = _open(path)
    hold, ended = result_files.hold, []

    def late(handle: int) -> bool:
        if not ended:
            ended.append(True)
            with first:
                for window in _windows(first.remaining(texts)):
                    first.append(window)
                first.finish()
        return hold(handle)

    monkeypatch.setattr(result_files, "hold", late)
    with pytest.raises(UsageError, match="expected a new file to write to, got .*, which is there; name another"):
        _open(path)
    assert np.load(path).shape == (4, WIDTH) and not list(tmp_path.glob("*.partial*"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_ids_of_paths_that_are_no_utf8_come_back(tmp_path, suffix) -> None:
    path, texts = tmp_path / f"out{suffix}", [Text("caf\udce9.txt#1", "words 1"), Text("café", "words 2")]
    _write(path, texts)
    ids = ids_path(path) if suffix != ".jsonl" else path
    assert [json.loads(line)["id"] for line in ids.read_text(encoding="utf-8").splitlines()] == [t.id for t in texts]


@pytest.mark.parametrize(("first", "second"), [(".npy", ".safetensors"), (".safetensors", ".npy")])
def test_ids_of_another_file_stay(tmp_path, first, second) -> None:
    _write(tmp_path / f"out{first}", [_text(1)])
    there = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(UsageError, match="expected a new file to write to, got .*out.ids.jsonl, which is there; name"):
        _write(tmp_path / f"out{second}", [_text(2)])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == there
    _write(tmp_path / "out.jsonl", [_text(2)])
    _write(tmp_path / f"out{second}", [_text(2)], force=True)
    assert json.loads(ids_path(tmp_path / "out.npy").read_text()) == {"id": "text 2"}


def test_a_run_killed_before_its_last_step_goes_on(tmp_path, monkeypatch) -> None:
    path, texts, replace = tmp_path / "out.npy", [_text(n) for n in range(5)], os.replace

    def killed(source: Path, target: Path) -> None:
        if target == path:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        _write(path, texts)
    monkeypatch.undo()
    assert ids_path(path).is_file() and not path.exists()
    assert _write(path, texts) == 0
    assert sorted(tmp_path.iterdir()) == sorted([path, ids_path(path)])
