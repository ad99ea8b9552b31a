"""A store that was changed again and again is searched as a new one of the same documents."""

import random
import zlib
from pathlib import Path

import pytest

from narrows.store import Fingerprint, Store, StoredDocument, tidying, verify

WORDS = [f"word{number}" for number in range(40)]
QUERIES = ["word0 word3", "word1", "word9 word12 word2", "word30", "the word5 of word0 word20"]


@pytest.fixture
def prose(document):
    """Makes a document from its id and revision; some passages have no word to look for, others have rare ones."""

    def make(name: str, revision: int) -> StoredDocument:
        choice = random.Random(zlib.crc32(f"{name} {revision}".encode()))
        texts = [
            " ".join(WORDS[min(39, int(choice.expovariate(0.15)))] for _ in range(choice.randrange(25))) or "the of"
            for _ in range(choice.randrange(1, 6))
        ]
        return document(name, texts, sha256=f"{revision:064d}", tokens=choice.randrange(20, 400))

    return make


def found(store: Store, limit: int) -> dict[str, list[tuple[str, float]]]:
    """What each query finds, by passage; those that score like the last one are left out when the limit cuts."""
    results = {}
    for query in QUERIES:
        hits = store.search(query, limit)
        last = hits[-1].score if len(hits) == limit else -1.0
        ids = store.load([hit.row_id for hit in hits]).ids
        pairs = [(name, hit.score) for name, hit in zip(ids, hits, strict=True) if hit.score > last + 1e-5]
        results[query] = sorted(pairs)
    return results


def assert_found_alike(changed: Store, new: Store) -> None:
    for limit in (32, 1000):
        mine, theirs = found(changed, limit), found(new, limit)
        for query in QUERIES:
            assert [name for name, _ in mine[query]] == [name for name, _ in theirs[query]]
            scores = [score for _, score in theirs[query]]
            assert [score for _, score in mine[query]] == pytest.approx(scores, abs=1e-5)


def a_new_store(path: Path, fingerprint: Fingerprint, documents: list[StoredDocument]) -> Store:
    with Store.create(path, fingerprint) as store, store.writer() as writer:
        writer.put(documents)
        writer.finish()
    return Store.open(path, expect=fingerprint)


@pytest.mark.parametrize("seed", range(6))
def test_any_changes_leave_what_a_new_store_would_find(tmp_path, fingerprint, prose, monkeypatch, seed) -> None:
    # Files are joined, and segments of the index filled, again and again.
    monkeypatch.setattr(tidying, "_MANY_FILES", 4)
    monkeypatch.setattr(tidying, "_BYTES_OF_FULL_FILE", 40_000)
    monkeypatch.setattr(tidying, "_ROWS_OF_FULL_SEGMENT", 50)
    choice = random.Random(seed)
    there: dict[str, int] = {}
    with Store.create(tmp_path / "changed", fingerprint) as store:
        for turn in range(6):
            with store.writer() as writer:
                for _ in range(choice.randrange(1, 5)):
                    names = {f"d{choice.randrange(40)}" for _ in range(choice.randrange(1, 12))}
                    there.update({name: there.get(name, 0) + 1 for name in names})
                    writer.put([prose(name, there[name]) for name in names])
                    gone = choice.sample(sorted(there), choice.randrange(min(len(there), 1 + turn)))
                    writer.remove(gone)
                    there = {name: revision for name, revision in there.items() if name not in gone}
                    if choice.random() < 0.3:
                        writer.tidy()
                writer.finish()
            documents = [prose(name, revision) for name, revision in there.items()]
            with a_new_store(tmp_path / f"new{turn}", fingerprint, documents) as new:
                assert_found_alike(store, new)
    assert verify(tmp_path / "changed").ok


def segments_of(store: Store) -> list[str]:
    (index,) = store._dataset.describe_indices()
    return [segment.uuid for segment in index.segments]


def test_only_what_lost_rows_is_made_anew(store, prose, fingerprint, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tidying, "_ROWS_OF_FULL_SEGMENT", 20)
    there = {f"d{number}": 0 for number in range(40)}
    with store.writer() as writer:
        for name in there:
            writer.put([prose(name, 0)])
            writer.finish()
        store.refresh()
        before = segments_of(store)
        assert len(before) > 4
        writer.remove(["d3"])
        # Now and then in a long run nothing is made anew: once at its end is enough.
        writer.tidy()
        store.refresh()
        assert segments_of(store) == before
        writer.finish()
        store.refresh()
        assert set(before[1:]) < set(segments_of(store)) and before[0] not in segments_of(store)
        again = segments_of(store)
        writer.finish()
        store.refresh()
        assert segments_of(store) == again
    del there["d3"]
    with a_new_store(tmp_path / "new", fingerprint, [prose(name, 0) for name in there]) as new:
        assert_found_alike(store, new)


def test_a_segment_that_is_too_large_is_made_anew_in_several(store, prose, fingerprint, tmp_path, monkeypatch) -> None:
    names = [f"d{number}" for number in range(30)]
    with store.writer() as writer:
        for name in names:
            writer.put([prose(name, 0)])
        writer.finish()
        monkeypatch.setattr(tidying, "_ROWS_OF_FULL_SEGMENT", 20)
        writer.remove(names[:1])
        writer.finish()
    assert len(segments_of(store)) > 3
    with a_new_store(tmp_path / "new", fingerprint, [prose(name, 0) for name in names[1:]]) as new:
        assert_found_alike(store, new)


@pytest.mark.parametrize("tidied", [False, True])
def test_a_store_that_has_lost_all_is_filled_again(store, prose, fingerprint, tmp_path, tidied) -> None:
    names = [f"d{number}" for number in range(8)]
    with store.writer() as writer:
        for turn in range(3):
            writer.put([prose(name, turn) for name in names])
            writer.finish()
            writer.remove(names)
            (writer.tidy if tidied else writer.finish)()
            assert store.search("word0", 5) == []
        writer.put([prose(name, 9) for name in names])
        writer.finish()
    with a_new_store(tmp_path / "new", fingerprint, [prose(name, 9) for name in names]) as new:
        assert_found_alike(store, new)
