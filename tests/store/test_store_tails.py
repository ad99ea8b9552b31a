"""Files whose last bytes are damaged: Lance believes them and may end the process, which no store may do."""

import json
import random
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrows.errors import StoreDamagedError
from narrows.store import Store, load_whole, verify
from narrows.store.tails import Tail, is_suspect, tail_of

# Forks a child for each line, as Lance may not be forked once it runs; so many bytes are no machine's whole memory.
USER = f"""
import os, resource, sys
from narrows.errors import NarrowsError
from narrows.store import Store, load_whole, verify

resource.setrlimit(resource.RLIMIT_AS, ({16 << 30}, {16 << 30}))

def use(path):
    with Store.open(path, expect=None) as store:
        found = store.first(99)
        for act in (
            store.documents,
            store.info,
            lambda: store.search("harbour festival", 99),
            lambda: store.load(found),
            lambda: load_whole(store, found),
            lambda: store.take(["first:0"]),
        ):
            try:
                act()
            except NarrowsError as error:
                os.write(1, f"{{error}}\\n".encode())

print("ready", flush=True)
for line in sys.stdin:
    action, path = line.split(maxsplit=1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            {{"use": use, "verify": verify}}[action](path.strip())
            status = 0
        except NarrowsError as error:
            os.write(1, f"{{error}}\\n".encode())
            status = 0
        finally:
            os._exit(status)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class User:
    """Another process, which tells how a child of it got on with a store."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def __call__(self, action: str, path: Path) -> list[str]:
        """The errors that the child met; fails where it did not come to its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{action} {path}\n")
        self._process.stdin.flush()
        lines = []
        while not (line := self._process.stdout.readline()).startswith("ended"):
            assert line, "the process is gone"
            lines.append(line.rstrip("\n"))
        assert line == "ended 0\n", (line, lines)
        return lines


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    with subprocess.Popen(
        [sys.executable, "-c", USER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield User(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(autouse=True)
def less_memory() -> Iterator[None]:
    """What the tests' own process tries in another one has no more memory either."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def unfinished(tmp_path, fingerprint, document) -> Path:
    path = tmp_path / "s"
    with Store.create(path, fingerprint) as store, store.writer() as writer:
        writer.put([document("first", ["harbour one", "harbour two"]), document("early", ["harbour"])])
        writer.put([document("second", ["harbour three", "festival"])])
    return path


@pytest.fixture
def finished(unfinished) -> Path:
    with Store.open(unfinished, expect=None) as store, store.writer() as writer:
        writer.finish()
    return unfinished


def data_of(path: Path, document: str) -> Path:
    """The file that holds a document."""
    files = (path / "passages.lance" / "data").iterdir()
    (file,) = (file for file in files if f"{document}:0".encode() in file.read_bytes())
    return file


def index_of(path: Path) -> list[Path]:
    return sorted((path / "passages.lance" / "_indices").rglob("*.lance"))


def ask_for_34_gb(file: Path) -> None:
    """Set the highest bit of the number of buffers."""
    content = bytearray(file.read_bytes())
    content[-13] ^= 0x80
    file.write_bytes(content)


def without_tails(path: Path) -> None:
    """Make the note one that an older narrows wrote."""
    from narrows.store.checksums import _of_note

    content = json.loads((path / "checksums.json").read_text())
    old = {"files": content["files"], "source": content["source"]}
    (path / "checksums.json").write_text(json.dumps({"checksum": _of_note(old), **old}))


def tails_of(path: Path) -> dict[str, list[int]]:
    return json.loads((path / "checksums.json").read_text())["tails"]


def repair(path: Path) -> list[str]:
    """What a repair drops; the store answers afterwards."""
    report = verify(path)
    assert not report.ok and not report.beyond_repair
    with Store.open(path, expect=None) as store, store.writer() as writer:
        dropped = writer.repair(report)
        writer.finish()
        assert store.load([hit.row_id for hit in store.search("harbour", 9)]).ids
    assert verify(path).ok
    return dropped


def refusal(path: Path, file: Path) -> str:
    name = file.relative_to(path).as_posix()
    return (
        f"the end of the file {name} in the store {path} is not what was written, and reading it could end the "
        f"process; run `narrows store verify --repair {path}` and then `narrows index FOLDER -o {path}`"
    )


def test_one_damaged_tail_costs_only_its_own_rows(finished, user) -> None:
    file = data_of(finished, "second")
    ask_for_34_gb(file)
    sentence = refusal(finished, file)
    # Documents, counts, all rows together and an id look into each file; a search and the rest of the rows do not.
    assert user("use", finished) == [sentence] * 4
    with Store.open(finished, expect=None) as store:
        found = [hit.row_id for hit in store.search("harbour festival", 9)]
        assert len(found) == 5
        salvage = load_whole(store, found)
        assert sorted(salvage.loaded.ids) == ["early:0", "first:0", "first:1"]
        assert salvage.left_out[:3] == (2, [], 2)
        for act in (store.documents, store.info, lambda: store.load(found)):
            with pytest.raises(StoreDamagedError, match=re.escape(sentence)):
                act()
        with store.writer() as writer:
            for act in (writer.finish, writer.tidy, lambda: writer.remove(["first"])):
                with pytest.raises(StoreDamagedError, match=re.escape(sentence)):
                    act()
    assert repair(finished) == []
    with Store.open(finished, expect=None) as store:
        assert set(store.documents()) == {"first", "early"}


def test_a_store_that_was_never_finished_is_kept_from_a_damaged_tail(unfinished, user) -> None:
    file = data_of(unfinished, "second")
    ask_for_34_gb(file)
    # The rows are in no index yet, so that a search looks into the file too.
    assert user("use", unfinished) == [refusal(unfinished, file)] * 5
    (damage,) = verify(unfinished).damages
    assert damage.reason.endswith(f"{file.name} cannot be read")
    repair(unfinished)


def test_every_file_is_noted_before_a_version_names_it(unfinished) -> None:
    written = {file.relative_to(unfinished).as_posix(): tail_of(file) for file in index_of(unfinished)}
    for document in ("first", "second"):
        file = data_of(unfinished, document)
        written[file.relative_to(unfinished).as_posix()] = tail_of(file)
    assert tails_of(unfinished) == {name: list(tail) for name, tail in written.items() if tail is not None}
    assert None not in written.values()


def test_an_older_note_is_completed_by_the_next_finish(finished) -> None:
    before = tails_of(finished)
    without_tails(finished)
    assert verify(finished).ok
    with Store.open(finished, expect=None) as store, store.writer() as writer:
        assert len(store.documents()) == 3
        writer.finish()
    assert tails_of(finished) == before


def test_of_an_older_note_the_footers_are_looked_at(finished, user) -> None:
    without_tails(finished)
    file = data_of(finished, "second")
    ask_for_34_gb(file)
    assert user("use", finished) == [refusal(finished, file)] * 4


def test_a_tail_that_was_damaged_under_an_older_note_is_not_noted_as_written(finished) -> None:
    without_tails(finished)
    file = data_of(finished, "second")
    content = bytearray(file.read_bytes())
    # The name of a column that nothing reads before `finish` ends.
    content[content.index(b"passage_count")] ^= 0x20
    file.write_bytes(content)
    assert tail_of(file) is not None
    with Store.open(finished, expect=None) as store, store.writer() as writer:
        writer.finish()
    name = file.relative_to(finished).as_posix()
    assert name not in tails_of(finished) and not verify(finished).ok


def test_a_damaged_note_is_left_to_verify(unfinished, document, user) -> None:
    (unfinished / "checksums.json").write_text("{}")
    with Store.open(unfinished, expect=None) as store, store.writer() as writer:
        writer.put([document("third")])
    assert (unfinished / "checksums.json").read_text() == "{}"
    ask_for_34_gb(data_of(unfinished, "second"))
    assert len(user("use", unfinished)) == 5
    assert [damage.reason for damage in verify(unfinished).damages][1:] == [
        "the file checksums.json is not what was written"
    ]


def test_a_damaged_tail_in_the_index_costs_the_search_alone(finished, document, user) -> None:
    file = index_of(finished)[1]
    ask_for_34_gb(file)
    assert user("use", finished) == [refusal(finished, file)]
    with Store.open(finished, expect=None) as store, store.writer() as writer:
        assert len(store.load(store.first(9)).ids) == 5
        writer.put([document("third", ["harbour"])])
        with pytest.raises(StoreDamagedError, match=re.escape(refusal(finished, file))):
            writer.finish()
    assert repair(finished) == []
    with Store.open(finished, expect=None) as store:
        assert len(store.search("harbour festival", 9)) == 6


def test_verify_survives_an_index_that_is_not_noted(finished, user) -> None:
    (finished / "checksums.json").unlink()
    for file in index_of(finished):
        ask_for_34_gb(file)
    assert user("verify", finished) == []
    report = verify(finished)
    assert "searching the full-text index ends the process" in [damage.reason for damage in report.damages]
    assert report.damaged_index


def test_a_file_is_looked_at_once_and_a_new_one_on_refresh(finished, document) -> None:
    with Store.open(finished, expect=None) as store:
        with Store.open(finished, expect=None) as other, other.writer() as writer:
            writer.put([document("third", ["harbour"])])
        file = data_of(finished, "third")
        ask_for_34_gb(file)
        assert len(store.documents()) == 3
        store.refresh()
        with pytest.raises(StoreDamagedError, match=re.escape(refusal(finished, file))):
            store.documents()
        with pytest.raises(StoreDamagedError, match=re.escape(refusal(finished, file))):
            store.search("harbour", 9)


def check(finished: Path, tmp_path: Path, user: User, file: Path, changes: list[tuple[int, bytes]]) -> None:
    """Nothing that is written over the end of a file ends a process that uses the store."""
    copy = tmp_path / "copy"
    for place, written in changes:
        shutil.copytree(finished, copy)
        damaged = copy / file.relative_to(finished)
        content = bytearray(damaged.read_bytes())
        content[place : place + len(written)] = written
        damaged.write_bytes(content[: file.stat().st_size])
        for line in user("use", copy):
            assert "narrows store verify --repair" in line, (place, written)
        shutil.rmtree(copy)


def flips_of_the_footer(file: Path) -> list[tuple[int, bytes]]:
    content = file.read_bytes()
    start = len(content) - 40
    return [(start + bit // 8, bytes([content[start + bit // 8] ^ 1 << bit % 8])) for bit in range(320)]


def blocks(file: Path, number: int, seed: int) -> list[tuple[int, bytes]]:
    """Zeros, ones and garbage over the last 8 kB."""
    moments, size = random.Random(seed), file.stat().st_size
    changes = []
    for _ in range(number):
        length = moments.choice([1, 2, 4, 8, 64, 512, 4096])
        place = moments.randrange(max(0, size - 8192), size)
        changes.append((place, moments.choice([bytes(length), b"\xff" * length, moments.randbytes(length)])))
    return changes


def test_some_damages_of_an_end_do_not_end_the_process(finished, tmp_path, user) -> None:
    file = data_of(finished, "second")
    check(finished, tmp_path, user, file, random.Random(0).sample(flips_of_the_footer(file), 3))
    check(finished, tmp_path, user, file, blocks(file, 3, seed=0))
    for file in index_of(finished):
        check(finished, tmp_path, user, file, blocks(file, 4, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_flip_of_a_footer_ends_the_process(finished, tmp_path, user) -> None:
    file = data_of(finished, "second")
    check(finished, tmp_path, user, file, flips_of_the_footer(file))
    for file in index_of(finished):
        check(finished, tmp_path, user, file, flips_of_the_footer(file))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_block_over_an_end_ends_the_process(finished, tmp_path, user) -> None:
    file = data_of(finished, "second")
    check(finished, tmp_path, user, file, blocks(file, 200, seed=2))
    for file in index_of(finished):
        check(finished, tmp_path, user, file, blocks(file, 100, seed=3))


def test_what_has_no_tail(tmp_path, finished) -> None:
    file = data_of(finished, "second")
    content = file.read_bytes()
    tail = tail_of(file)
    assert tail is not None and not is_suspect(file, tail) and not is_suspect(file, None)
    # The schema, which names the columns, belongs to the tail, and what the rows say does not.
    assert b"passage_count" in content[tail.start :] and b"harbour" not in content[tail.start :]
    other = tmp_path / "other.lance"
    assert tail_of(other) is None and not is_suspect(other, None) and not is_suspect(other, Tail(0, 0))
    for wrong in (b"", b"LANC", bytes(40), bytes(36) + b"LANC" + b"!", content[:-1], content[-40:], content[1:]):
        other.write_bytes(wrong)
        assert tail_of(other) is None and is_suspect(other, None) and is_suspect(other, tail)
