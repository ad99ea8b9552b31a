"""Lines of bytes and subwords, and rows out of them: pure functions of the seed, each token once an epoch."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from narrows.data import Piece, read_pieces
from narrows.errors import UsageError
from narrows.training.language.data import LanguageRows, collate_rows, read_lines, require_ids, token_line
from narrows.training.language.text import ByteLine, byte_line, split_line
from narrows.training.pretraining.data import Item


def _line(tokens: int) -> ByteLine:
    return ByteLine((np.arange(tokens) % 251).astype(np.uint8))


def test_bytes_of_files_stand_as_they_are_one_after_another(tmp_path) -> None:
    blocks = [bytes(range(256)), b"\xef\xbb\xbfa\r\n\r\n", b"x", "naïve".encode() * 9]
    openers = {"a.bin": open, "b.gz": gzip.open, "c.bz2": bz2.open, "d.xz": lzma.open}
    for (name, opener), block in zip(openers.items(), blocks, strict=True):
        with opener(tmp_path / name, "wb") as file:
            file.write(block)
    line = byte_line([tmp_path / name for name in openers], tmp_path / "made")
    whole = b"".join(blocks)
    assert len(line) == len(whole) and line.scored_bytes == len(whole) - 1
    ids = line.read(0, len(line))
    assert ids.dtype == np.int64 and bytes(ids.tolist()) == whole
    assert line.read(60, 70).tolist() == list(whole[60:70])
    assert np.array_equal(line.counts(), np.bincount(ids, minlength=256))
    # Mapped, not read.
    assert isinstance(line._values, np.memmap)
    assert len(line.head(0.25)) == -(-len(whole) // 4) and len(line.head(1.0)) == len(whole)


@given(tokens=st.integers(300, 900), shares=st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
def test_a_split_leaves_no_byte_out(tokens, shares) -> None:
    line = _line(tokens)
    parts = split_line(line, [share / sum(shares) for share in shares])
    whole = np.concatenate([part.read(0, len(part)) for part in parts])
    assert np.array_equal(whole, line.read(0, tokens))
    for part, share in zip(parts, shares, strict=True):
        assert abs(len(part) - tokens * share / sum(shares)) <= 1


@given(rows=st.integers(1, 40), length=st.integers(2, 30), rest=st.integers(1, 30), seed=st.integers(0, 2**32 - 1))
def test_an_epoch_sees_each_token_once_but_for_two_rows(rows, length, rest, seed) -> None:
    tokens = rows * length + min(rest, length)
    line = ByteLine(np.zeros(tokens, dtype=np.uint8))
    places: list[tuple[int, int]] = []
    line.read = lambda start, stop: places.append((start, stop)) or np.zeros(stop - start, dtype=np.int64)
    found = LanguageRows(line, length=length, seed=seed)
    for epoch in (0, 1):
        places.clear()
        for row in range(len(found)):
            assert found[Item(epoch, row)].shape == (length + 1,)
        # One behind the other, and nothing outside of the line.
        assert [stop - start for start, stop in places] == [length + 1] * len(found)
        assert [start for start, _ in places[1:]] == [stop - 1 for _, stop in places[:-1]]
        assert places[0][0] >= 0 and places[-1][1] <= tokens
        assert tokens - 1 - len(found) * length < 2 * length


def test_rows_move_from_epoch_to_epoch_and_with_the_seed() -> None:
    rows, same, other = (LanguageRows(_line(1000), length=50, seed=seed) for seed in (1, 1, 2))
    first = [tuple(rows[Item(epoch, 3)]) for epoch in range(6)]
    assert len(set(first)) > 3
    assert first == [tuple(same[Item(epoch, 3)]) for epoch in range(6)]
    assert first != [tuple(other[Item(epoch, 3)]) for epoch in range(6)]


def test_labels_are_the_tokens_behind() -> None:
    rows = LanguageRows(_line(200), length=10, seed=0)
    batch = collate_rows([rows[Item(0, 2)], rows[Item(4, 5)]])
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 10)
    assert torch.equal(batch["labels"], batch["input_ids"] + 1)


def test_too_little_text() -> None:
    assert len(LanguageRows(_line(11), length=10, seed=0)) == 1
    with pytest.raises(
        UsageError, match="expected text to train on for a row of 10 tokens and the one behind it, got 10 tokens; name"
    ):
        LanguageRows(_line(10), length=10, seed=0)


@pytest.mark.parametrize("layout", ["text", "file", "lines"])
def test_subwords_are_documents_behind_an_end_of_text(layout, subwords, tmp_path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("the mill\nand the naïve child\n\nanother the\n\n\nlast\n" + "the old road " * 2000)
    tokenizer = AutoTokenizer.from_pretrained(subwords)
    pieces = list(read_pieces(path, layout=layout))
    line = token_line(iter(pieces), tokenizer, tmp_path / "ids")
    expected: list[int] = []
    begins = True
    for piece in pieces:
        expected += [tokenizer.eos_token_id] if begins else []
        expected += tokenizer(piece.text).input_ids
        begins = piece.ends
    assert line.read(0, len(line)).tolist() == expected
    assert all(line.read(n, n + 9).tolist() == expected[n : n + 9] for n in range(0, len(expected) - 9, 37))
    assert line.scored_bytes == len("".join(piece.text for piece in pieces).encode())
    assert np.array_equal(line.counts(), np.bincount(expected))
    # The beginning, in whole pieces.
    head = line.head(0.3)
    assert 0.3 * len(line) <= len(head) <= len(line)
    assert head.read(0, len(head)).tolist() == expected[: len(head)]
    assert len(line.head(1.0)) == len(line) and len(line.head(1e-9)) == len(line.head(1e-6)) > 0


def test_without_a_separator_documents_join(subwords, tmp_path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(subwords)
    tokenizer.eos_token = None
    line = token_line(iter([Piece("the", True), Piece("mill", True)]), tokenizer, tmp_path)
    assert tokenizer.decode(line.read(0, len(line))) == "themill"
    tokenizer.bos_token = "<|endoftext|>"
    line = token_line(iter([Piece("the", True), Piece("mill", True)]), tokenizer, tmp_path)
    assert line.read(0, 2).tolist() == [258, 257]


def test_ids_outside_of_the_vocabulary(subwords, tmp_path) -> None:
    require_ids(_line(300), None, 251)
    with pytest.raises(
        UsageError, match="expected ids below 250, the model's vocabulary, got 250 in the text; name the"
    ):
        require_ids(_line(300), None, 250)
    tokenizer = AutoTokenizer.from_pretrained(subwords)
    line = token_line(iter([Piece("the", True)]), tokenizer, tmp_path)
    require_ids(line, tokenizer, 259)
    with pytest.raises(UsageError, match="expected ids below 258, the model's vocabulary, got 258 in the text"):
        require_ids(line, tokenizer, 258)


def test_what_a_recipe_reads(language_recipe, byte_folder, text_folder, subwords, tmp_path) -> None:
    whole = bz2.decompress((byte_folder / "train.xml.bz2").read_bytes())

    def read(recipe, tokenizer=None, folder: Path = byte_folder, uses=("train", "tune", "test")):
        return read_lines(recipe, tokenizer, data=folder, folder=tmp_path, uses=uses)

    lines = read(language_recipe())
    assert b"".join(bytes(line.read(0, len(line)).tolist()) for line in lines.values()) == whole
    assert list(read(language_recipe(), uses=["test"])) == ["test"]
    files = {"split": None, "tune": [{"file": "tune.txt"}], "test": [{"file": "test.txt"}]}
    lines = read(language_recipe(data=files))
    assert bytes(lines["tune"].read(0, 600).tolist()) == whole[600:1200]
    assert list(read(language_recipe(data={**files, "test": []}))) == ["train", "tune"]
    # A part that stands twice is seen twice; several files by one name in their order.
    twice = language_recipe(data={"split": None, "train": [{"file": "t*.txt"}] * 2})
    line = read(twice)["train"]
    assert bytes(line.read(0, 2400).tolist()) == (whole[1200:1800] + whole[600:1200]) * 2
    tokenizer = AutoTokenizer.from_pretrained(subwords)
    named = language_recipe(data={"split": None, "train": [{"file": "train-*.txt"}], "tune": [{"file": "tune.txt"}]})
    lines = read(named, tokenizer, text_folder)
    assert (lines["train"].counts()[258], lines["tune"].counts()[258]) == (120, 20)


def test_what_a_recipe_cannot_read(language_recipe, byte_folder, subwords, tmp_path) -> None:
    options = {"data": byte_folder, "folder": tmp_path, "uses": ["train"]}
    with pytest.raises(UsageError, match="expected data at .*away.txt, got nothing there; pass --data DIR"):
        read_lines(language_recipe(data={"train": [{"file": "away.txt"}]}), None, **options)
    lines = language_recipe(data={"split": None, "train": [{"file": "tune.txt", "format": "lines"}]})
    with pytest.raises(UsageError, match="expected no format in data.train for the tokenizer 'bytes', .* got 'lines'"):
        read_lines(lines, None, **options)
    going_on = language_recipe(model={"family": None, "config": {}, "tokenizer": None, "checkpoint": "gpt2"})
    tokenizer = AutoTokenizer.from_pretrained(subwords)
    with pytest.raises(
        UsageError, match="expected a model of bytes for data.split, got gpt2, which reads subwords; na"
    ):
        read_lines(going_on, tokenizer, **options)
