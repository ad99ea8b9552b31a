"""A flipped byte anywhere in a finished store: reported, or out of reach of every answer."""

import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrows.errors import NarrowsError, StoreDamagedError
from narrows.store import Store, verify
from narrows.store.checksums import changed_files

WIDTH = 8
VECTOR = np.arange(1, WIDTH + 1, dtype=np.float32)
# What Lance reads when it writes, never when it answers: the newest version's own note of its change, and a hint.
OUT_OF_REACH = ("passages.lance/_transactions/", "passages.lance/_versions/latest_version_hint.json", "writer.lock")


@pytest.fixture
def finished(tmp_path, fingerprint, document) -> Path:
    """A store with several files, deleted rows, vectors, and an index in several parts."""
    path = tmp_path / "s"
    with Store.create(path, fingerprint, vector_width=WIDTH) as store, store.writer() as writer:
        writer.put(
            [
                document("first", ["harbour one", "harbour two"], vector_width=WIDTH),
                document("early", ["harbour", "ship", "sea", "sail"], vector_width=WIDTH),
                document("gone", ["harbour"], vector_width=WIDTH),
            ]
        )
        writer.put([document("second", ["harbour three", "harbour four"], vector_width=WIDTH)])
        writer.finish()
        writer.put([document("third", ["harbour five"], vector_width=WIDTH)])
        writer.remove(["gone"])
        writer.finish()
    return path


def files_of(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


def flip(file: Path, position: int, bit: int) -> bytes:
    """Flip a bit, and give the file's former bytes."""
    content = file.read_bytes()
    changed = bytearray(content)
    changed[position] ^= bit
    file.write_bytes(changed)
    return content


@contextmanager
def flipped(file: Path, position: int, bit: int) -> Iterator[None]:
    content = flip(file, position, bit)
    yield
    file.write_bytes(content)


def everything(path: Path) -> dict[str, Any]:
    """All that a store can be asked."""
    with Store.open(path, expect=None) as store:
        rows = store.first(99)
        loaded = store.load(rows)
        info = store.info()
        return {
            "documents": store.documents(),
            "info": (info.documents, info.passages, info.tokens, info.bytes_text),
            "search": store.search("harbour five", 99),
            "nearest": store.nearest(VECTOR, 99),
            "ids": loaded.ids,
            "texts": loaded.texts,
            "states": [bytes(states) for states in loaded.states],
            "vectors": [passage.vector.tobytes() for passage in store.take(loaded.ids) if passage.vector is not None],
        }


def test_every_flipped_byte_of_every_file_is_noticed(finished) -> None:
    names = [name for name in files_of(finished) if not name.startswith((*OUT_OF_REACH, "checksums.json"))]
    kinds = {"/".join(name.split("/")[:2]) for name in names}
    assert kinds == {
        "manifest.json",
        *(f"passages.lance/{kind}" for kind in ("_versions", "_deletions", "_indices", "data")),
    }
    moments = random.Random(0)
    for name in names:
        size = (finished / name).stat().st_size
        for position in moments.sample(range(size), min(size, 60)):
            with flipped(finished / name, position, 1 << moments.randrange(8)):
                assert changed_files(finished) == [name]
    assert changed_files(finished) == [] and verify(finished).ok


def test_a_flip_that_is_not_reported_is_out_of_reach(finished) -> None:
    before = everything(finished)
    names = [name for name in files_of(finished) if name.startswith(OUT_OF_REACH) and (finished / name).stat().st_size]
    assert len(names) == 2
    moments = random.Random(1)
    for name in names:
        size = (finished / name).stat().st_size
        for position in moments.sample(range(size), min(size, 20)):
            with flipped(finished / name, position, 0x10):
                assert verify(finished).ok and everything(finished) == before
        (finished / name).unlink()
        assert verify(finished).ok and everything(finished) == before


def test_a_damaged_note_of_checksums_is_reported_and_written_anew(finished) -> None:
    content = (finished / "checksums.json").read_bytes()
    moments = random.Random(2)
    before = everything(finished)
    for position in moments.sample(range(len(content)), 30):
        with flipped(finished / "checksums.json", position, 0x02):
            assert everything(finished) == before
            with pytest.raises(StoreDamagedError, match="is not what was written; run `narrows store verify --repair`"):
                changed_files(finished)
    flip(finished / "checksums.json", 40, 0x02)
    report = verify(finished)
    assert [damage.reason for damage in report.damages] == ["the file checksums.json is not what was written"]
    with Store.open(finished, expect=None) as store, store.writer() as writer:
        assert writer.repair(report) == []
    assert verify(finished).ok and everything(finished) == before


def repaired(path: Path, copy: Path, name: str, position: int, bit: int) -> tuple[list[str], dict[str, Any]]:
    """The reasons that are reported, and what a repaired copy says; it must verify."""
    shutil.copytree(path, copy)
    flip(copy / name, position, bit)
    report = verify(copy)
    assert not report.ok and not report.beyond_repair
    with Store.open(copy, expect=None) as store, store.writer() as writer:
        writer.repair(report)
    assert verify(copy).ok
    with Store.open(copy, expect=None) as store, store.writer() as writer:
        writer.finish()
    assert verify(copy).ok
    found = everything(copy)
    shutil.rmtree(copy)
    return [damage.reason for damage in report.damages], found


def check_random_flips(finished: Path, tmp_path: Path, of: str, flips: int) -> None:
    """Each is reported and repaired; what is left afterwards is what was there, without the damaged documents."""
    before = everything(finished)
    moments = random.Random(3)
    names = [name for name in files_of(finished) if name.startswith(f"passages.lance/{of}/")]
    for turn in range(flips):
        name = moments.choice(names)
        position = moments.randrange((finished / name).stat().st_size)
        reasons, after = repaired(finished, tmp_path / f"copy{turn}", name, position, 1 << moments.randrange(8))
        assert reasons and all("\n" not in reason and len(reason) < 900 for reason in reasons)
        assert after["documents"].items() <= before["documents"].items()
        rows = dict(zip(before["ids"], zip(before["texts"], before["states"], strict=True), strict=True))
        left = zip(after["ids"], zip(after["texts"], after["states"], strict=True), strict=True)
        assert all(rows[name] == row for name, row in left)
        if of == "_indices":
            assert after["documents"] == before["documents"] and len(after["search"]) == len(before["search"])


def test_random_flips_in_the_index_are_reported_and_repaired(finished, tmp_path) -> None:
    check_random_flips(finished, tmp_path, "_indices", 12)


def test_random_flips_in_the_data_are_reported_and_repaired(finished, tmp_path) -> None:
    check_random_flips(finished, tmp_path, "data", 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_flips_in_the_data_are_reported_and_repaired(finished, tmp_path) -> None:
    check_random_flips(finished, tmp_path, "data", 120)


def test_a_flip_that_makes_lance_end_the_process_is_reported(finished, tmp_path) -> None:
    """The highest bit of the number of buffers, in the last lines of a file: Lance asks for 34 GB and aborts."""
    name = next(name for name in files_of(finished) if name.startswith("passages.lance/data/"))
    reasons, after = repaired(finished, tmp_path / "copy", name, (finished / name).stat().st_size - 13, 0x80)
    assert any(name in reason and "cannot be read" in reason for reason in reasons)
    assert set(after["documents"]) < set(everything(finished)["documents"])


def test_padding_that_is_changed_costs_no_document(finished, tmp_path, data_files) -> None:
    """Lance fills pages up with bytes that nothing reads; the file is not what was written all the same."""
    with Store.open(finished, expect=None) as store:
        file = max(data_files(store), key=lambda file: file.stat().st_size)
    padding = re.search(rb"(.)\1{19}", file.read_bytes(), re.DOTALL)
    assert padding is not None
    place = padding.start() + 10
    reasons, after = repaired(finished, tmp_path / "copy", file.relative_to(finished).as_posix(), place, 0x10)
    assert after["documents"] == everything(finished)["documents"]
    assert reasons == [
        f"the file {file.relative_to(finished).as_posix()} is not what was written, though each of its passages is"
    ]


@pytest.mark.parametrize("kind", ["_versions", "_deletions"])
def test_what_says_which_rows_there_are_is_beyond_repair(finished, kind) -> None:
    name = next(name for name in files_of(finished) if f"/{kind}/" in name and not name.endswith(".json"))
    with flipped(finished / name, 30, 0x10):
        report = verify(finished)
        assert report.beyond_repair
        assert [damage.reason for damage in report.damages] == [f"the file {name} is not what was written"]
        with pytest.raises(StoreDamagedError, match=f"{name} in the store .* is not what was written; run `narrows st"):
            Store.open(finished, expect=None)
    (finished / name).unlink()
    assert verify(finished).beyond_repair


def test_a_changed_manifest_is_beyond_repair(finished) -> None:
    content = (finished / "manifest.json").read_text()
    (finished / "manifest.json").write_text(content.replace('"split_layer": 4', '"split_layer": 5'))
    assert verify(finished).beyond_repair
    with pytest.raises(StoreDamagedError, match="manifest.json in the store .* is not what was written"):
        Store.open(finished, expect=None)
    (finished / "manifest.json").write_text(content.replace("int8", "int9"))
    with pytest.raises(StoreDamagedError, match="is not the manifest of a passage store; bring it back from a copy"):
        verify(finished)


def test_other_columns_are_beyond_repair(store, document) -> None:
    import lance

    with store.writer() as writer:
        writer.put([document("a")])
    lance.dataset(str(store.path / "passages.lance")).drop_columns(["title"])
    (damage,) = verify(store.path).damages
    assert damage.reason == f"the columns of the store {store.path} are not those that were written"
    assert verify(store.path).beyond_repair


def test_counts_that_are_wrong_are_damage(store, document) -> None:
    """No checksum of a row covers its counts, which `info` adds up."""
    import lance

    with store.writer() as writer:
        writer.put([document("a", ["harbour"], tokens=5), document("b", ["sea"])])
    lance.dataset(str(store.path / "passages.lance")).update({"tokens": "6"}, where="document_id = 'a'")
    (damage,) = verify(store.path).damages
    assert damage.reason == "passage 'a:0' is damaged: its counts of tokens and bytes differ from what it holds"


def test_a_damaged_index_without_a_note_is_found_by_a_search(store, document) -> None:
    with store.writer() as writer:
        writer.put([document("a", ["harbour"]), document("b", ["sea"])])
        writer.finish()
    (store.path / "checksums.json").unlink()
    for file in (store.path / "passages.lance" / "_indices").rglob("*.lance"):
        file.write_bytes(b"not an index")
    report = verify(store.path)
    assert report.damaged_index and report.damages[0].reason.startswith("searching the store")
    with Store.open(store.path, expect=None) as opened, opened.writer() as writer:
        assert writer.repair(report) == []
        assert len(opened.search("harbour", 9)) == 1
    assert verify(store.path).ok


def test_damage_after_the_note_is_not_noted_as_what_was_written(finished) -> None:
    name = next(name for name in files_of(finished) if "/_indices/" in name)
    content = (finished / name).read_bytes()
    (finished / name).write_bytes(content[:-30] + b"!" + content[-29:])
    with Store.open(finished, expect=None) as store, store.writer() as writer:
        try:
            writer.finish()
        except NarrowsError:
            return
    assert verify(finished).damaged_index or not (finished / name).exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read_are_one_sentence(finished) -> None:
    from narrows.errors import StoreError

    for name in ("checksums.json", next(name for name in files_of(finished) if name.endswith(".manifest"))):
        (finished / name).chmod(0)
        with pytest.raises(StoreError, match=r"cannot be read \(Permission denied\); check its permissions"):
            changed_files(finished)
        (finished / name).chmod(0o644)
