"""Raw text into packed rows: every token once, documents apart and on one side, whatever lies where in the files."""

import gzip
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.pretraining import (
    RAW_LAYOUTS,
    PackedRows,
    Piece,
    TokenizedPieces,
    hold_out,
    read_pieces,
    tokenize_pieces,
)
from narrows.data.token_cache import TokenCache
from narrows.errors import UsageError

CLS, SEP = 1, 2


def _tokenized(documents: list[list[int]], held_out: list[bool] | None = None) -> TokenizedPieces:
    """Documents of pieces of so many tokens; the tokens are 100, 101, …"""
    sizes = [size for document in documents for size in document]
    line = np.arange(100, 100 + sum(sizes), dtype=np.int32)
    sides = [
        side for side, document in zip(held_out or [False] * len(documents), documents, strict=True) for _ in document
    ]
    return TokenizedPieces(
        np.split(line, np.cumsum(sizes)[:-1]),
        np.array(sizes),
        np.array([piece + 1 == len(document) for document in documents for piece in range(len(document))]),
        np.array(sides),
    )


def _documents(path: Path, layout: str) -> list[str]:
    documents, held = [], ""
    for piece in read_pieces(path, layout=layout):
        assert 0 < len(piece.text) <= 32_000 and not piece.text.isspace()
        held += piece.text
        if piece.ends:
            documents.append(held)
            held = ""
    assert not held
    return documents


@given(
    documents=st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=12),
    length=st.integers(3, 20),
)
def test_one_segment_holds_every_token_once(documents, length) -> None:
    pieces = _tokenized(documents)
    line = [token for ids, ends in zip(pieces.tokens, pieces.ends, strict=True) for token in [*ids, *[SEP] * int(ends)]]
    if len(line) < length - 2:
        with pytest.raises(UsageError, match=rf"expected text to train on for a row of {length} tokens at least, got"):
            PackedRows(pieces, held_out=False, length=length, cls=CLS, sep=SEP)
        return
    rows = PackedRows(pieces, held_out=False, length=length, cls=CLS, sep=SEP)
    made = [rows.row(index, np.random.default_rng(0)) for index in range(len(rows))]
    assert rows.tokens == len(line) and len(line) - len(rows) * (length - 2) < length - 2
    for row in made:
        assert (len(row.input_ids), row.input_ids[0], row.input_ids[-1]) == (length, CLS, SEP)
        assert row.input_ids.dtype == np.int64 and not row.segments.any() and row.follows
    inner = np.concatenate([row.input_ids[1:-1] for row in made])
    assert inner.tolist() == line[: len(inner)]


@given(length=st.integers(5, 30), seed=st.integers(0, 50))
def test_two_segments_are_a_pair_that_follows_or_does_not(length, seed) -> None:
    rows = PackedRows(_tokenized([[400]]), held_out=False, length=length, cls=CLS, sep=SEP, segments=2)
    for index in range(len(rows)):
        row = rows.row(index, np.random.default_rng([seed, index]))
        again = rows.row(index, np.random.default_rng([seed, index]))
        assert (row.input_ids == again.input_ids).all()
        first, second = row.input_ids[row.segments == 0], row.input_ids[row.segments == 1]
        assert len(first) + len(second) == length and (np.diff(row.segments) >= 0).all()
        assert (first[0], first[-1], second[-1]) == (CLS, SEP, SEP)
        assert first[1] == 100 + index * (length - 3)
        assert row.follows == (second[0] == first[-2] + 1)
        assert (np.diff(second[:-1]) == 1).all()


def test_half_of_the_pairs_follow() -> None:
    rows = PackedRows(_tokenized([[4000]]), held_out=False, length=7, cls=CLS, sep=SEP, segments=2)
    follows = [rows.row(index, np.random.default_rng(index)).follows for index in range(len(rows))]
    assert abs(np.mean(follows) - 0.5) < 0.06
    alone = PackedRows(_tokenized([[4]]), held_out=False, length=7, cls=CLS, sep=SEP, segments=2)
    assert all(alone.row(0, np.random.default_rng(seed)).follows for seed in range(20))


def test_sides_are_of_whole_documents() -> None:
    pieces = _tokenized([[3, 4], [5], [2, 2]], held_out=[False, True, False])
    trained = PackedRows(pieces, held_out=False, length=15, cls=CLS, sep=SEP).row(0, np.random.default_rng(0))
    tuned = PackedRows(pieces, held_out=True, length=8, cls=CLS, sep=SEP).row(0, np.random.default_rng(0))
    assert trained.input_ids.tolist() == [CLS, *range(100, 107), SEP, *range(112, 116), SEP, SEP]
    assert tuned.input_ids.tolist() == [CLS, *range(107, 112), SEP, SEP]
    with pytest.raises(UsageError, match="expected held-out text for a row of 9 tokens at least, got 6 tokens"):
        PackedRows(pieces, held_out=True, length=9, cls=CLS, sep=SEP)


def test_documents_are_held_out_by_what_they_begin_with() -> None:
    texts = [f"document {number}" for number in range(4000)]
    pieces = [piece for text in texts for piece in (Piece(text, ends=False), Piece("and more", ends=True))]
    made = list(hold_out(pieces, share=0.1))
    assert [piece[:2] for piece in made] == [piece[:2] for piece in pieces]
    assert all(one.held_out == other.held_out for one, other in zip(made[::2], made[1::2], strict=True))
    assert abs(np.mean([piece.held_out for piece in made]) - 0.1) < 0.02
    sides = {piece.text: piece.held_out for piece in made[::2]}
    assert all(sides[piece.text] == piece.held_out for piece in list(hold_out(pieces[1000:], share=0.1))[::2])
    assert not any(piece.held_out for piece in hold_out(pieces, share=0.0))


def test_layouts_tell_documents_apart(tmp_path) -> None:
    text = "\none\ntwo\n\n \nthree\n\n"
    (tmp_path / "a.txt").write_text(text)
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write(text)
    for name in ("a.txt", "a.txt.gz"):
        assert _documents(tmp_path / name, "text") == ["one\ntwo\n", "three\n"]
        assert _documents(tmp_path / name, "lines") == ["one\n", "two\n", "three\n"]
        assert _documents(tmp_path / name, "file") == [text]
    (tmp_path / "wiki.txt").write_text(" = A = \n\n one \n\n two \n\n = B = \n\n three \n")
    assert _documents(tmp_path / "wiki.txt", "articles") == ["one\ntwo\n", "three\n"]
    assert set(RAW_LAYOUTS) == {"text", "lines", "file", "articles"}


def test_long_documents_come_in_pieces_without_loss(tmp_path) -> None:
    line = "many words " * 4000
    text = f"{line}\n{'x' * 50_000}\n" + "short line\n" * 9000 + "\nanother\n"
    (tmp_path / "a.txt").write_text(text)
    first, second = _documents(tmp_path / "a.txt", "text")
    assert (first, second) == (text.removesuffix("\nanother\n"), "another\n")
    pieces = list(read_pieces(tmp_path / "a.txt", layout="text"))
    assert len(pieces) > 9 and sum(piece.ends for piece in pieces) == 2
    # Between words, where there are any.
    assert all(piece.text[0] == " " for piece in pieces[1:2])


def test_tokens_are_those_of_the_text(tmp_path, tiny_bert) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    (tmp_path / "a.txt").write_text("the old mill\n\na long river\nby the sea\n")
    cache = TokenCache(tmp_path / "tokens", tokenizer=tokenizer)
    pieces = tokenize_pieces(read_pieces(tmp_path / "a.txt", layout="text"), cache)
    rows = PackedRows(
        pieces, held_out=False, length=13, cls=tokenizer.cls_token_id, sep=tokenizer.sep_token_id, segments=1
    )
    words = tokenizer.convert_ids_to_tokens(rows.row(0, np.random.default_rng(0)).input_ids)
    assert " ".join(words) == "[CLS] the old mill [SEP] a long river by the sea [SEP] [SEP]"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path, tiny_bert) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    cache = TokenCache(tmp_path / "tokens", tokenizer=tokenizer, shard_characters=200_000, workers=1)

    def read(megabytes: int) -> float:
        path = tmp_path / f"{megabytes}.txt"
        with path.open("w") as file:
            for number in range(megabytes * 10_000):
                file.write(
                    f"{number:08} the old mill by the long river was there and we saw it all the way up there\n\n"
                )
        rows = PackedRows(
            tokenize_pieces(read_pieces(path, layout="file"), cache), held_out=False, length=128, cls=CLS, sep=SEP
        )
        for index in range(0, len(rows), 50):
            rows.row(index, np.random.default_rng(0))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    read(1)
    before = read(2)
    assert read(16) - before < 16


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"segments": 3}, "expected 1 or 2 segments, got 3; the paper has 2"),
        ({"length": 2}, "expected rows with room for text, got 2 tokens; raise the length"),
        ({"length": 4, "segments": 2}, "expected rows with room for text, got 4 tokens; raise the length"),
    ],
)
def test_rows_that_cannot_be(options, text) -> None:
    with pytest.raises(UsageError, match=text):
        PackedRows(_tokenized([[9]]), **{"held_out": False, "length": 5, "cls": CLS, "sep": SEP, **options})


def test_files_that_cannot_be_read(tmp_path) -> None:
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 10)
    for name, layout, text in (
        ("blank.txt", "text", r"expected text in .*blank\.txt, got none; mend the recipe"),
        ("none.txt", "lines", r"none\.txt: expected a file, got nothing at this path"),
        ("latin.txt", "file", r"latin\.txt: expected UTF-8 text"),
        ("blank.txt", "page", "expected a layout of raw text, text, lines, file, articles, got 'page'"),
    ):
        with pytest.raises(UsageError, match=text):
            list(read_pieces(tmp_path / name, layout=layout))
