"""What `Writer.finish` joins and indexes, and what it leaves alone."""

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import lance
import pytest
from lance.file import LanceFileReader

from narrows.store import Store, allocator, tidying, verify
from narrows.store.tidying import INDEX_NAME

FULL = 40_000


@pytest.fixture
def small_limits(monkeypatch) -> None:
    """Files are full after two or three documents, and a handful of them is many."""
    monkeypatch.setattr(tidying, "_BYTES_OF_FULL_FILE", FULL)
    monkeypatch.setattr(tidying, "_MANY_FILES", 4)


def put_one_by_one(writer, document, names: list[str]) -> None:
    for name in names:
        writer.put([document(name, [f"harbour {name}", "a clock"], tokens=400)])


def sizes_of_files(store: Store) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (store.path / "passages.lance" / "data").iterdir()}


def everything(store: Store) -> dict[str, bytes]:
    ids = [row["passage_id"] for row in store._scan(columns=["passage_id"]).to_pylist()]
    return {one.passage_id: one.text.encode() + one.token_ids.tobytes() + bytes(one.states) for one in store.take(ids)}


def segments_of(store: Store) -> dict[str, int]:
    """The rows of each segment of the full-text index, oldest first."""
    dataset = lance.dataset(str(store.path / "passages.lance"))
    rows = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
    index = next(index for index in dataset.describe_indices() if index.name == INDEX_NAME)
    return {segment.uuid: sum(rows.get(one, 0) for one in segment.fragment_ids) for segment in index.segments}


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("vector_width", [0, 8])
def test_files_are_joined_until_they_are_full_and_never_again(tmp_path, fingerprint, document, vector_width) -> None:
    with Store.create(tmp_path / "s", fingerprint, vector_width=vector_width) as store, store.writer() as writer:
        full: dict[str, int] = {}
        for turn in range(6):
            names = [f"{turn}-{number}" for number in range(8)]
            for name in names:
                writer.put([document(name, [f"harbour {name}", ""], tokens=400, vector_width=vector_width)])
            store.refresh()
            before = everything(store)
            writer.finish()
            assert everything(store) == before and len(before) == 16 * (turn + 1)
            sizes = sizes_of_files(store)
            assert full.items() <= sizes.items()
            assert max(sizes.values()) < 4 * FULL
            assert sum(size < FULL for size in sizes.values()) <= 4
            full = {name: size for name, size in sizes.items() if size >= FULL}
        assert len(full) >= 6
        assert len(store.search("harbour", 100)) == 48
    assert verify(tmp_path / "s").ok


@pytest.mark.usefixtures("small_limits")
def test_joining_copies_states_without_decoding_them(store, document) -> None:
    with store.writer() as writer:
        put_one_by_one(writer, document, [f"{number}" for number in range(5)])
        writer.finish()
    (path,) = (store.path / "passages.lance" / "data").iterdir()
    # Lance copies a file's pages as they are, and makes one of them when it decodes.
    assert {len(column.pages) for column in LanceFileReader(str(path)).metadata().columns} == {5}
    assert verify(store.path).ok


@pytest.mark.usefixtures("small_limits")
def test_full_files_are_written_anew_for_many_deleted_rows_only(store, document) -> None:
    names = [f"{number:02}" for number in range(40)]
    with store.writer() as writer:
        writer.put([document(name, [f"harbour {name}", "a clock"], tokens=400) for name in names[:20]])
        writer.put([document(name, [f"harbour {name}", "a clock"], tokens=400) for name in names[20:]])
        writer.finish()
        old = sizes_of_files(store)
        writer.remove(["00"])
        writer.finish()
        assert sizes_of_files(store) == old
        writer.remove(names[1:12])
        store.refresh()
        before = everything(store)
        writer.finish()
        new = sizes_of_files(store)
        assert len(old.keys() & new.keys()) == 1 and sum(new.values()) < 0.8 * sum(old.values())
        assert everything(store) == before and set(store.documents()) == set(names[12:])
        assert len(store.search("harbour", 100)) == 28 and not store.search("00", 100)
    assert verify(store.path).ok


def found(store: Store) -> list[tuple[str, float]]:
    hits = store.search("harbour", 100)
    return sorted((store.take([hit.row_id])[0].passage_id, round(hit.score, 4)) for hit in hits)


def test_full_segments_of_the_index_are_left_alone(tmp_path, fingerprint, document, monkeypatch) -> None:
    names = [f"{number:02}" for number in range(30)]
    with Store.create(tmp_path / "one", fingerprint) as store, store.writer() as writer:
        put_one_by_one(writer, document, names)
        writer.finish()
        assert list(segments_of(store).values()) == [60]
        expected = found(store)
    monkeypatch.setattr(tidying, "_ROWS_OF_FULL_SEGMENT", 20)
    with Store.create(tmp_path / "many", fingerprint) as store, store.writer() as writer:
        full: dict[str, int] = {}
        for first in range(0, 30, 3):
            put_one_by_one(writer, document, names[first : first + 3])
            writer.finish()
            segments = segments_of(store)
            assert full.items() <= segments.items()
            full = {name: rows for name, rows in segments.items() if rows == 18}
        assert list(segments.values()) == [18, 18, 18, 6]
        # Words weigh the same, in however many segments they are.
        assert found(store) == expected and len(expected) == 30
        writer.finish()
        assert segments_of(store) == segments
        # Rows that are in the index already can still move to other files.
        monkeypatch.setattr(tidying, "_MANY_FILES", 4)
        writer.finish()
        assert len(sizes_of_files(store)) == 4 and list(segments_of(store).values()) == [18, 18, 18, 6]
        assert found(store) == expected
    assert verify(tmp_path / "many").ok


def test_segments_of_replaced_rows_make_room(store, document, monkeypatch) -> None:
    monkeypatch.setattr(tidying, "_ROWS_OF_FULL_SEGMENT", 20)
    for turn in range(6):
        with store.writer() as writer:
            writer.put([document(f"{n}", [f"harbour turn{turn}"], sha256=f"{turn}" * 64) for n in range(15)])
            writer.finish()
        assert len(segments_of(store)) <= 2
        assert len(store.search("harbour", 100)) == len(store.search(f"turn{turn}", 100)) == 15
    assert not store.search("turn0", 100) and verify(store.path).ok


PEAK = """
import ctypes, sys
sys.path.insert(0, sys.argv[2])
from conftest import WIDTH, build_document
from narrows.bench.probes import peak_above
from narrows.store import Fingerprint, Store
from narrows.store.allocator import share_one_pool
share_one_pool()
fingerprint = Fingerprint(
    weights="a" * 64, tokenizer="b" * 64, split_layer=4, layout="joint", width=WIDTH, codec="int8"
)
with Store.create(sys.argv[1], fingerprint) as store, store.writer() as writer:
    for turn in range(2):
        for number in range(40):
            writer.put([build_document(f"{turn}-{number}", ["harbour"] * 20, tokens=8000)])
        print(peak_above(writer.finish))
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
library.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
library.fclose.argtypes = [ctypes.c_void_p]
file = library.fopen(sys.argv[1].encode() + b".pools", b"w")
library.malloc_info(0, file)
library.fclose(file)
print(open(sys.argv[1] + ".pools").read().count("<heap nr="))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="asks the GNU C library")
def test_tidying_does_not_hold_the_rows_it_joins(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "s"), str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *peaks, pools = map(int, done.stdout.split())
    # Each time 128 MB are joined.
    assert len(peaks) == 2 and max(peaks) < 40_000_000, peaks
    # Threads that came before may have one each; Lance alone would make a dozen.
    assert pools <= 4


def test_another_c_library_is_left_as_it_is(monkeypatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    allocator.share_one_pool()
    allocator.give_memory_back()
