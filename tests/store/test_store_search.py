import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.store import Store

TEXTS = {
    "run": ["The runners were running in state-of-the-art shoes."],
    "tokyo": ["東京都は日本の首都です。人口はとても多いです。"],
    "cafe": ['At the naïve café, O\'Brien said "quoted" things.'],
    "lake": ["The harbour at the lake, and a harbour master."],
    "error": ["error E-1042 on host db_primary.local"],
}
QUERIES = [
    ("run", "run"),
    ("a running shoe?", "run"),
    ("state-of-the-art", "run"),
    ("首都はどこですか", "tokyo"),
    ("東京", "tokyo"),
    ("CAFE", "cafe"),
    ("O'Brien", "cafe"),
    ('"quoted', "cafe"),
    ("harbours", "lake"),
    ("E-1042", "error"),
    ("primary", "error"),
]


@pytest.fixture(params=[False, True], ids=["before finish", "after finish"])
def searchable(request, store, document) -> Store:
    with store.writer() as writer:
        writer.put([document(name, texts) for name, texts in TEXTS.items()])
        if request.param:
            writer.finish()
    return store


@pytest.mark.parametrize(("query", "expected"), QUERIES)
def test_words_are_found(searchable, query, expected) -> None:
    hits = searchable.search(query, 5)
    assert [searchable.load([hit.row_id]).documents[0] for hit in hits][0] == expected
    assert hits == sorted(hits, key=lambda hit: -hit.score)


@given(query=st.text(min_size=1, max_size=60))
def test_any_text_is_a_query(searchable, query) -> None:
    if any(letter.isalnum() for letter in query):
        assert isinstance(searchable.search(query, 3), list)
    else:
        with pytest.raises(UsageError, match="at least one word"):
            searchable.search(query, 3)


@pytest.mark.parametrize(
    "query",
    ["run AND (lake", 'a "b" OR -c* ~2 ^3 field:value', "\\'; DROP TABLE x; --", "run" * 5000, "the of"],
)
def test_operators_mean_nothing(searchable, query) -> None:
    assert isinstance(searchable.search(query, 3), list)


@pytest.mark.parametrize("query", ["", "  \n", "?!", '"'])
def test_an_empty_query_is_refused(searchable, query) -> None:
    with pytest.raises(UsageError, match="a search needs at least one word, but the query is"):
        searchable.search(query, 3)


def test_a_query_that_is_not_unicode_is_refused(searchable) -> None:
    with pytest.raises(
        UsageError, match="a search needs words in Unicode, but character 3 is no UTF-8; type the query anew"
    ):
        searchable.search("caf\udce9 clock", 3)


def test_new_and_replaced_rows_are_found_beside_the_index(searchable, document) -> None:
    with searchable.writer() as writer:
        writer.put([document("lake", ["An aardvark."], sha256="2" * 64), document("new", ["Another harbour."])])
        writer.remove(["run"])
    documents = searchable.load([hit.row_id for hit in searchable.search("harbour aardvark running", 9)]).documents
    assert sorted(documents) == ["lake", "new"]


def test_the_limit_holds(searchable, document) -> None:
    with searchable.writer() as writer:
        writer.put([document(f"h{n}", ["harbour"]) for n in range(6)])
    assert len(searchable.search("harbour", 4)) == 4
    with pytest.raises(UsageError, match="at least 1 passage, but the limit is 0"):
        searchable.search("harbour", 0)
    assert len(searchable.search("harbour", 10**20)) >= 6 and searchable.first(10**20)


def test_nearest_is_the_cosine(tmp_path, fingerprint, document) -> None:
    with Store.create(tmp_path / "s", fingerprint, vector_width=8) as store:
        assert store.nearest(np.ones(8), 3) == []
        with store.writer() as writer:
            documents = [document(f"d{n}", vector_width=8) for n in range(10)]
            writer.put(documents[:5])
            writer.put(documents[5:])
        query = np.random.default_rng(3).standard_normal(8)
        cosine = {
            passage.passage_id: float(vector @ query / np.linalg.norm(vector) / np.linalg.norm(query))
            for one in documents
            for passage in one.passages
            for vector in [passage.vector.astype(np.float64)]
        }
        expected = sorted(cosine, key=cosine.get, reverse=True)[:6]
        hits = store.nearest(query, 6)
        assert store.load([hit.row_id for hit in hits]).ids == expected
        assert [hit.score for hit in hits] == pytest.approx([cosine[id] for id in expected], abs=2e-3)
        # The squares of the one are 0 in fp32, those of the other infinite.
        for scale in (1e-30, 1e30):
            assert store.nearest(query * scale, 6) == hits
        assert len(store.nearest(query, 10**20)) == sum(len(one.passages) for one in documents)
        for bad in (np.ones(7), np.zeros(8), np.full(8, np.nan)):
            with pytest.raises(UsageError, match="has to be 8 finite numbers that are not all 0"):
                store.nearest(bad, 3)


def test_nearest_needs_vectors(store) -> None:
    with pytest.raises(UsageError, match="has no vectors to compare with"):
        store.nearest(np.ones(3), 3)
