"""Documents into passages whose tokens are those of their own text, and words that are not cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.documents import Document
from narrows.errors import UsageError
from narrows.serving.passages import passages_of
from narrows.serving.words import is_inside_word

PIECES = [
    "the river ",
    "boat. ",
    "narrowed",
    "1,250.5 ",
    "\r\n\r\n",
    "渡し船",
    "café ",
    "한국어 ",
    "🙂",
    "x" * 40,
    "- ",
]


def document(text: str) -> Document:
    return Document(id="d", title="", text=text, sha256="")


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=60),
    room=st.integers(4, 30),
    overlap=st.integers(0, 20),
)
def test_passages_cover_every_token_and_read_again_alike(tiny_reader_folder, pieces, room, overlap) -> None:
    engine = _engine(tiny_reader_folder)
    text = "".join(pieces)
    passages = passages_of(engine, document(text), max_tokens=room, overlap_tokens=overlap)
    covered = set()
    for passage, ids in passages:
        again = engine.tokenize([text[passage.start : passage.end]])[0].ids
        assert ids == engine.close_passage(again)
        assert 1 <= len(again) <= room
        covered.update(range(passage.start, passage.end))
    for start, end in engine.tokenize([text])[0].offsets:
        assert covered.issuperset(range(start, end))


_ENGINES: dict = {}


def _engine(folder):
    from narrows.serving.engine import Engine

    if folder not in _ENGINES:
        _ENGINES[folder] = Engine.from_pretrained(folder)
    return _ENGINES[folder]


def test_a_model_with_less_room_makes_shorter_passages(reader) -> None:
    text = "The boat went down the river. " * 40
    assert max(len(ids) for _, ids in passages_of(reader.engine, document(text))) <= 61


def test_no_room_is_refused(reader) -> None:
    message = "max_tokens of at least 1 and overlap_tokens of at least 0, got 0 and 64"
    with pytest.raises(UsageError, match=message):
        passages_of(reader.engine, document("a boat"), max_tokens=0)


def test_a_character_that_fits_in_no_passage_is_refused(reader, monkeypatch) -> None:
    # Three tokens of one character, as for a Hangul syllable that is taken apart.
    def three_at_once(texts):
        return [type(tokens)([7] * 3, [(0, 1)] * 3) for tokens in plain(texts)]

    plain = reader.engine.tokenize
    monkeypatch.setattr(reader.engine, "tokenize", three_at_once)
    with pytest.raises(UsageError, match="a passage of at most 2 tokens cannot hold the character '한'"):
        passages_of(reader.engine, document("한"), max_tokens=2, overlap_tokens=0)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the boat", ["the", " ", "boat"]),
        ("no. 1,250.75 at 10:30.", ["no", ".", " ", "1,250.75", " ", "at", " ", "10:30", "."]),
        ("渡し船", ["渡", "し", "船"]),
        ("cafe\u0301s", ["cafe\u0301s"]),
        ("Anna's", ["Anna", "'", "s"]),
        ("v2, 3", ["v2", ",", " ", "3"]),
    ],
)
def test_where_words_end(text, pieces) -> None:
    borders = [place for place in range(len(text) + 1) if not is_inside_word(text, place)]
    assert [text[a:b] for a, b in zip(borders, borders[1:], strict=False)] == pieces
