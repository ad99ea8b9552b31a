"""The first stage: by words, by vectors, by both."""

import dataclasses
import statistics

import numpy as np
import pytest

from narrows.errors import UsageError
from narrows.serving import Reader
from narrows.serving.candidates import find_candidates, fuse
from narrows.serving.embedding import PassageEmbedder
from narrows.store import Store, StoredDocument


@pytest.fixture(scope="module")
def embedder(tiny_bert) -> PassageEmbedder:
    return PassageEmbedder(tiny_bert)


@pytest.fixture
def dense_store(tiny_store, reader, embedder, tmp_path):
    """The tiny library's passages with vectors of the tiny encoder."""
    with Store.open(tiny_store, expect=None) as plain:
        passages = plain.take(plain.first(1000))
    vectors = embedder.embed([passage.text for passage in passages])
    by_document: dict[str, list] = {}
    for passage, vector in zip(passages, vectors, strict=True):
        by_document.setdefault(passage.document_id, []).append(dataclasses.replace(passage, vector=vector))
    path = tmp_path / "dense.store"
    with Store.create(path, reader.engine.fingerprint("fp32"), vector_width=embedder.width) as store:
        with store.writer() as writer:
            writer.put(
                [
                    StoredDocument(document_id=name, sha256="1" * 64, title="", passages=passages)
                    for name, passages in by_document.items()
                ]
            )
            writer.finish()
        yield store


def test_ranks_are_fused_and_nothing_is_lost() -> None:
    assert fuse([]) == []
    assert fuse([[3, 1, 2]]) == [3, 1, 2]
    assert fuse([[1, 2, 3], [4, 3]]) == [3, 1, 4, 2]


def test_vectors_are_of_length_one_and_do_not_depend_on_company(embedder) -> None:
    texts = ["the boat", "the night was cold and the river was long", "gold"]
    together = embedder.embed(texts)
    assert together.shape == (3, 24) and together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(together[:1], embedder.embed(texts[:1]), atol=1e-5)
    assert embedder.embed([]).shape == (0, 24)
    assert np.isfinite(embedder.embed(["why " * 500])).all()


def test_the_nearest_passage_is_found_by_its_own_text(dense_store, embedder) -> None:
    rows = dense_store.first(1000)
    text = dense_store.load(rows[:3]).texts[2]
    found = find_candidates(
        dense_store, text, limit=4, retrieval="dense", embed=lambda asked: embedder.embed([asked])[0]
    )
    assert len(found) == 4 and found[0].row_id == rows[2]


def test_both_holds_the_best_of_each(dense_store, embedder) -> None:
    def find(retrieval, limit=3):
        found = find_candidates(
            dense_store,
            "where was the boat at night?",
            limit=limit,
            retrieval=retrieval,
            embed=lambda asked: embedder.embed([asked])[0],
        )
        return [candidate.row_id for candidate in found]

    both = find("both")
    assert len(both) == len(set(both)) == 3
    assert {find("bm25")[0], find("dense")[0]} <= set(both)
    assert set(find("both", 1000)) == set(dense_store.first(1000))


def test_words_alone_need_no_vector(dense_store) -> None:
    def never(asked):
        raise AssertionError(asked)

    assert find_candidates(dense_store, "boat", limit=2, retrieval="bm25", embed=never)
    first = [(row, 0.0) for row in dense_store.first(2)]
    assert find_candidates(dense_store, "who is it?", limit=2, embed=never) == first
    assert find_candidates(dense_store, "?!", limit=2, embed=never) == first


def test_both_is_what_is_near_where_no_word_tells(dense_store, embedder) -> None:
    def find(retrieval):
        return find_candidates(
            dense_store, "who is it?", limit=2, retrieval=retrieval, embed=lambda asked: embedder.embed([asked])[0]
        )

    assert find("both") == find("dense")


@pytest.mark.parametrize("retrieval", ["bm25", "dense", "both"])
@pytest.mark.parametrize("limit", [2, 5, 1000])
def test_evidence_is_of_the_words_however_a_passage_was_found(dense_store, embedder, retrieval, limit) -> None:
    question = "where was the boat at night?"
    scores = {hit.row_id: hit.score for hit in dense_store.search(question, 1000)}
    best = [*sorted(scores.values(), reverse=True), *[0.0] * 32][:32]
    mean, spread = statistics.fmean(best), statistics.pstdev(best)
    found = find_candidates(
        dense_store, question, limit=limit, retrieval=retrieval, embed=lambda asked: embedder.embed([asked])[0]
    )
    assert len(found) >= min(limit, len(scores))
    assert [c.evidence for c in found] == pytest.approx([(scores.get(c.row_id, 0.0) - mean) / spread for c in found])


def test_a_reader_asks_with_vectors(dense_store, tiny_reader_folder, embedder, texts) -> None:
    reader = Reader(Reader.from_pretrained(tiny_reader_folder).engine, embedder=embedder)
    for retrieval in ("dense", "both"):
        result = reader.ask(dense_store, "where was the boat?", candidates=3, retrieval=retrieval)
        assert result.candidates == 3
        for answer in result.answers:
            assert answer.answer == (texts[answer.document][answer.start : answer.end] if answer.document else "")


@pytest.mark.parametrize("retrieval", ["dense", "both"])
def test_a_store_without_vectors_is_refused_with_the_option_that_makes_them(tiny_store, retrieval) -> None:
    def never(asked):
        raise AssertionError("no encoder is loaded for a store without vectors")

    sentence = "has no vectors to compare with; search it by words .* or make it anew with `narrows index --dense`"
    with Store.open(tiny_store, expect=None) as store:
        with pytest.raises(UsageError, match=sentence):
            find_candidates(store, "boat", limit=2, retrieval=retrieval, embed=never)
        with pytest.raises(UsageError, match=sentence):
            store.nearest(np.ones(24), 2)


def test_at_least_one_row_is_asked_for(tiny_store) -> None:
    with Store.open(tiny_store, expect=None) as store, pytest.raises(UsageError, match="limit is 0"):
        store.first(0)
