"""Files and folders that are there whole or not at all."""

import os

import pytest

from narrows.errors import OutputError, UsageError
from narrows.training.writing import require_place, room_for, written_whole


def test_a_file_gets_its_name_when_it_is_whole(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("former")
    with written_whole(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "former"
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_nothing_of_others_is_touched(tmp_path) -> None:
    (tmp_path / "a.partial").mkdir()
    (tmp_path / "a.partial" / "theirs").write_text("x")
    with written_whole(tmp_path / "a") as partial:
        partial.mkdir()
        (partial / "new").write_text("y")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "a",
        "a.partial",
        "a.partial/theirs",
        "a/new",
    ]
    # As any folder that is made here, not as a temporary one.
    (tmp_path / "b").mkdir()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_the_longest_name_can_be_written(tmp_path) -> None:
    path = tmp_path / ("ü" * 127)
    with written_whole(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (Exception("I/O error:\nNo space left on device (os error 28)"), "I/O error: No space left on device"),
    ],
    ids=["of Python", "of Rust"],
)
def test_the_disk_fails(tmp_path, error, reason) -> None:
    path = tmp_path / "a.txt"
    path.write_text("former")
    sentence = f"expected room and permission to write .*a.txt, got {reason}.*; make room or choose another place"
    with pytest.raises(OutputError, match=sentence), written_whole(path) as partial:
        partial.write_text("half")
        raise error
    assert path.read_text() == "former" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt()])
def test_a_mistake_of_ours_is_not_taken_for_the_disk(tmp_path, error) -> None:
    with pytest.raises(type(error)), written_whole(tmp_path / "a") as partial:
        partial.write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_places(tmp_path) -> None:
    require_place(tmp_path / "new" / "folder" / "a")
    assert (tmp_path / "new" / "folder").is_dir()
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match=r"expected a folder to write to, got .*taken \(File exists\); choose another"):
        require_place(tmp_path / "taken" / "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_without_permission(tmp_path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="expected a folder to write to, got .*locked without permission; choose"):
        require_place(tmp_path / "locked" / "a")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(122, "Disk quota exceeded"), "Disk quota exceeded"),
        (Exception("Error while serializing: I/O error: File too large (os error 27)"), "Error while serializing.*"),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), "PytorchStreamWriter.*"),
    ],
    ids=["disk", "quota", "safetensors", "torch"],
)
def test_a_run_on_a_full_disk(tmp_path, error, reason) -> None:
    sentence = f"expected room to write to {tmp_path}, got {reason}; make room, and the same command goes on from"
    with pytest.raises(OutputError, match=sentence), room_for(tmp_path):
        raise error


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), ValueError("other"), KeyboardInterrupt()])
def test_what_is_not_of_a_full_disk_stays_as_it_is(tmp_path, error) -> None:
    with pytest.raises(type(error)) as caught, room_for(tmp_path):
        raise error
    assert caught.value is error
