"""What a process that dies, a disk that is full and a second writer leave behind."""

import dataclasses
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from narrows.errors import StoreBusyError, StoreError
from narrows.store import Store, layout, verify

WRITER = """
import os, sys, traceback
sys.path.insert(0, sys.argv[1])
from conftest import build_document, WIDTH
from narrows.store import Fingerprint, Store, tidying, writer as writing
writing._BYTES_PER_FRAGMENT = 1
# Files are joined and segments of the index filled again and again.
tidying._MANY_FILES, tidying._BYTES_OF_FULL_FILE, tidying._ROWS_OF_FULL_SEGMENT = 4, 30_000, 40
fingerprint = Fingerprint(
    weights="a" * 64, tokenizer="b" * 64, split_layer=4, layout="joint", width=WIDTH, codec="int8"
)

def say(line):
    # One call of the system: print() could be killed between a line and its end, and the next line would join it.
    os.write(1, f"{line}\\n".encode())

def write(path, first, count):
    try:
        store = Store.open(path, expect=fingerprint)
    except Exception:
        store = Store.create(path, fingerprint)
    with store.writer() as writer:
        for n in range(first, first + count):
            # Every third one replaces a document that is there already.
            name = f"d{n if n % 3 else max(n - 2, 0)}"
            document = build_document(name, ["harbour clock"] * (1 + n % 4), sha256=f"{n:064d}", tokens=40)
            if n % 2:
                writer.put([document])
            else:
                # Comes in groups, each in a file of its own.
                writer.put_large(document, len(document.passages), ([passage] for passage in document.passages))
            say(f"{name} {n:064d}")
            if n % 10 == 9:
                writer.finish()
    say("done")

say("ready")
"""

ONE_WRITER = f"{WRITER}\nwrite(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))"

# Importing torch takes seconds, so one process imports everything and forks a child for each writer; Lance,
# which may not be forked once it runs, is first used in the child.
NURSERY = f"""{WRITER}
for line in sys.stdin:
    path, first, count = line.rsplit(maxsplit=2)
    child = os.fork()
    if child == 0:
        try:
            write(path, int(first), int(count))
        except BaseException:
            say(" ".join(["failed", *traceback.format_exc().split()]))
        os._exit(0)
    say(f"child {{child}}")
    os.waitpid(child, 0)
    say("ended")
"""


def start(script: str, *arguments: object, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", script, str(Path(__file__).parent), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def start_writer(path: Path, first: int, count: int) -> subprocess.Popen:
    return start(ONE_WRITER, path, first, count)


def reported(lines: list[str]) -> dict[str, str]:
    """The sha256 of each document that a writer reported as committed, the newest of each."""
    return dict(line.split() for line in lines if line.startswith("d") and line != "done")


def killed_at_random_moments(path: Path, in_a_child: Callable[..., list[str]], times: int, seed: int) -> None:
    moments = random.Random(seed)
    known: dict[str, str] = {}
    first = 0
    commits = 0
    with start(NURSERY, stdin=subprocess.PIPE) as nursery:
        assert nursery.stdout.readline() == "ready\n", nursery.stderr.read()
        for turn in range(times):
            if turn and turn % 7 == 0:
                path, known = path.with_name(f"{path.name}-{turn}"), {}
            reports = moments.randrange(8)
            # The first commit takes longest.
            seconds = moments.uniform(0, 0.1 if reports else 0.3)
            lines = in_a_child(nursery, f"{path} {first} 10000", kill_after=(reports, seconds))
            assert "done" not in lines and not any(line.startswith("failed") for line in lines), lines[-1]
            known.update(reported(lines))
            commits += len(reported(lines))
            first = max([first, *(int(sha256) + 1 for sha256 in reported(lines).values())])
            if not path.exists():
                continue
            report = verify(path)
            assert report.ok, report.damages
            if not (path / "manifest.json").exists():
                assert not known
                continue
            with Store.open(path, expect=None) as store:
                there = store.documents()
            # What was reported is there, or replaced by a newer commit whose report died with the process.
            assert all(there.get(name, "") >= sha256 for name, sha256 in known.items())
        assert commits > times
        lines = in_a_child(nursery, f"{path} {first} 12")
        assert lines[-1] == "done", lines
    assert verify(path).ok


@pytest.mark.timeout(900)
def test_a_killed_writer_loses_nothing_reported(tmp_path, in_a_child) -> None:
    killed_at_random_moments(tmp_path / "s", in_a_child, 20, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_killed_writer_loses_nothing_reported_fifty_times(tmp_path, in_a_child) -> None:
    killed_at_random_moments(tmp_path / "s", in_a_child, 50, seed=2)


def test_killed_before_the_first_commit(tmp_path, store, fingerprint, document) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / ".manifest.json.new").write_text("{")
    (tmp_path / "half" / "writer.lock").touch()
    # The first commit comes before any passage: without it there is at most the note of what it was to be.
    (store.path / "passages.lance" / "_transactions").mkdir(parents=True)
    (store.path / "passages.lance" / "_transactions" / "0-half.txn").write_bytes(b"half")
    for path in (tmp_path / "empty", tmp_path / "half", store.path):
        report = verify(path)
        assert report.ok and report.documents == 0
    Store.create(tmp_path / "half", fingerprint).close()
    with store.writer() as writer:
        writer.put([document("a")])
        half = store.path / "passages.lance" / "data" / "half.lance"
        half.write_bytes(b"LANC")
        assert verify(store.path).ok
        writer.finish()
    assert verify(store.path).ok and not half.exists()


def test_a_store_whose_manifest_was_lost_is_not_taken_for_a_new_one(store, fingerprint, document) -> None:
    from narrows.errors import StoreError

    with store.writer() as writer:
        writer.put([document("a")])
    (store.path / "manifest.json").unlink()
    with pytest.raises(StoreError, match="holds something already"):
        Store.create(store.path, fingerprint)


def test_of_two_that_create_a_store_at_once_one_does(tmp_path, fingerprint, document, monkeypatch) -> None:
    """The other is done between the first one's look into the folder and its lock: its states are of another model."""
    lock, others = layout.lock_for_writing, []

    def late(path):
        if not others:
            others.append(None)
            others[0] = Store.create(path, dataclasses.replace(fingerprint, weights="c" * 64))
        return lock(path)

    monkeypatch.setattr(layout, "lock_for_writing", late)
    with pytest.raises(StoreError, match="a store is created in a new or empty folder, but .* holds something already"):
        Store.create(tmp_path / "new", fingerprint)
    with others[0] as store, store.writer() as writer:
        writer.put([document("first")])
    with Store.open(tmp_path / "new", expect=None) as store:
        assert store.fingerprint.weights == "c" * 64


def test_two_writers_one_is_busy_at_once(store, document) -> None:
    with Store.open(store.path, expect=None) as other, store.writer() as writer:
        writer.put([document("a")])
        with pytest.raises(StoreBusyError, match="takes one writer at a time and another one is writing"):
            other.writer().__enter__()
        process = start_writer(store.path, 0, 1)
        output, errors = process.communicate()
        assert output == "ready\n" and "StoreBusyError" in errors
        writer.put([document("b")])
    assert verify(store.path).ok
    output, errors = start_writer(store.path, 0, 1).communicate()
    assert output.endswith("done\n"), errors


def test_a_reader_keeps_its_snapshot_while_a_writer_cleans_up(store, document) -> None:
    with store.writer() as writer:
        writer.put([document("a", ["one harbour"]), document("b", ["two harbours"])])
        writer.finish()
    with Store.open(store.path, expect=None) as reader:
        rows = [hit.row_id for hit in reader.search("harbour", 5)]
        before = [bytes(states) for states in reader.load(rows).states]
        failures: list[BaseException] = []
        stop = threading.Event()

        def read() -> None:
            try:
                while not stop.is_set():
                    assert [bytes(states) for states in reader.load(rows).states] == before
                    assert set(reader.documents()) == {"a", "b"}
                    assert len(reader.search("harbour", 5)) == 2
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        output, errors = start_writer(store.path, 0, 40).communicate()
        with store.writer() as writer:
            writer.remove(["a"])
            writer.put([document("b", ["nothing"], sha256="2" * 64)])
            writer.finish()
        stop.set()
        thread.join()
        assert output.endswith("done\n"), errors
        assert not failures
        reader.refresh()
        assert "a" not in reader.documents() and len(reader.documents()) > 20
    with store.writer() as writer:
        writer.finish()
    assert len(list((store.path / "passages.lance" / "_versions").glob("*.manifest"))) == 1
    assert verify(store.path).ok


LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from conftest import build_document
from narrows.errors import StoreError
from narrows.store import Store, verify
with Store.open(sys.argv[1], expect=None) as store, store.writer() as writer:
    if sys.argv[3] == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    for texts in (["big"], ["again"]):
        big = build_document("b", texts, sha256="2" * 64, tokens=60_000)
        try:
            writer.put([big, build_document("n", ["new"])])
        except StoreError as error:
            print(error)
    writer.put([build_document("small", ["still works"])])
"""


def run_out_of_room(path: Path, how: str) -> list[str]:
    command = [sys.executable, "-c", LIMITED, str(path), str(Path(__file__).parent), how]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def check_after_running_out_of_room(path: Path, lines: list[str], cause: str) -> None:
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"writing to the store {path} failed (") and cause in line
        assert "everything committed before is intact" in line
    report = verify(path)
    assert report.ok, report.damages
    with Store.open(path, expect=None) as store:
        assert store.documents() == {"a": "1" * 64, "b": "1" * 64, "small": "1" * 64}


def test_a_write_that_fails_leaves_earlier_commits(store, document) -> None:
    with store.writer() as writer:
        writer.put([document("a"), document("b")])
    check_after_running_out_of_room(store.path, run_out_of_room(store.path, "limit"), "File too large")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a small file system")
def test_a_full_disk_leaves_earlier_commits(tmp_path, fingerprint, document) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        with Store.create(disk / "s", dataclasses.replace(fingerprint)) as store, store.writer() as writer:
            writer.put([document("a"), document("b")])
        check_after_running_out_of_room(disk / "s", run_out_of_room(disk / "s", "full"), "No space left")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
