import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.long_inputs import InputEncoder
from narrows.data.summaries import read_summaries
from narrows.data.tokens import plain_tokens
from narrows.data.truncation import Head, Windows, truncation
from narrows.errors import UsageError


def letters(text):
    return [ord(letter) for letter in text]


def encoder(max_tokens, choose=None):
    return InputEncoder(letters, truncation=choose or Head(), max_tokens=max_tokens, separator_ids=[0], ending_ids=[1])


def test_documents_are_joined_and_the_query_stands_before_them():
    made = encoder(20).encode(["ab", "c"], query="q")
    assert made.inputs == [[*letters("q"), 0, *letters("ab"), 0, *letters("c"), 1]]
    # The separator between the documents is among their tokens.
    assert made.report == (4, 4, 0, 1)
    assert encoder(20).encode(["ab"]).inputs == [[*letters("ab"), 1]]


def test_a_prefix_stands_before_all_and_takes_its_room():
    def made(max_tokens, choose=None):
        return InputEncoder(
            letters,
            truncation=choose or Head(),
            max_tokens=max_tokens,
            separator_ids=[0],
            ending_ids=[1],
            prefix_ids=letters("P:"),
        )

    assert made(20).encode(["ab"]).inputs == [[*letters("P:ab"), 1]]
    assert made(20).encode(["ab"], query="q").inputs == [[*letters("P:q"), 0, *letters("ab"), 1]]
    windows = made(8, Windows(overlap=1)).encode(["abcde"], query="q")
    assert windows.inputs == [[*letters("P:q"), 0, *letters(part), 1] for part in ("abc", "cde")]
    with pytest.raises(UsageError, match="a prefix that leaves room within 3 tokens, got 2 tokens; shorten that"):
        made(3).encode(["ab"])
    with pytest.raises(
        UsageError, match="a prefix and a query that together leave room within 5 tokens, got 3 tokens; shorten"
    ):
        made(5).encode(["ab"], query="q")
    with pytest.raises(UsageError, match="of at least 2 tokens, for one of the text and what ends it, got room for 1;"):
        InputEncoder(letters, truncation=Head(), max_tokens=1, ending_ids=[1]).encode(["ab"])


def test_every_window_reads_the_query():
    made = encoder(6, Windows(overlap=1)).encode(["abcde"], query="q")
    assert made.inputs == [[*letters("q"), 0, *letters(part), 1] for part in ("abc", "cde")]
    assert made.report == (5, 5, 0, 2)


@given(
    st.lists(st.text("abc", max_size=20), max_size=3),
    st.none() | st.text("qr", max_size=3),
    st.sampled_from([("head", {}), ("head+tail", {}), ("windows", {"overlap": 1}), ("retriever", {"part_tokens": 3})]),
    st.integers(8, 40),
)
def test_no_input_is_beyond_the_budget(documents, query, named, max_tokens):
    made = encoder(max_tokens, truncation(named[0], **named[1])).encode(documents, query=query)
    assert len(made.inputs) == made.report.parts
    assert all(len(ids) <= max_tokens and ids[-1] == 1 for ids in made.inputs)
    assert made.report.tokens == sum(map(len, documents)) + max(0, len(documents) - 1)
    assert made == encoder(max_tokens, truncation(named[0], **named[1])).encode_ids(
        [letters(text) for text in documents], query=query
    )


def test_what_leaves_no_room_is_refused():
    with pytest.raises(UsageError, match="expected max_tokens of at least 1, got 0; pass a larger one"):
        encoder(0)
    with pytest.raises(UsageError, match="expected a query that leaves room within 5 tokens, got 3 tokens; sh"):
        encoder(5).encode(["abc"], query="qqq")


def test_a_published_meeting(shared_data, tiny_bert):
    from transformers import AutoTokenizer

    path = shared_data / "longdoc" / "qmsum" / "ALL_val.jsonl.gz"
    if not path.exists():
        pytest.skip("needs QMSum under longdoc")
    example = next(read_summaries(path, layout="qmsum"))
    tokenize = plain_tokens(AutoTokenizer.from_pretrained(tiny_bert))
    whole = tokenize(example.documents[0])
    for name in ("head", "head+tail", "retriever"):
        made = InputEncoder(tokenize, truncation=truncation(name), max_tokens=2048, ending_ids=[3])
        inputs, report = made.encode(example.documents, query=example.query)
        assert [len(ids) for ids in inputs] == [2048]
        assert report == (len(whole), 2047 - len(tokenize(example.query)), report.dropped, 1)
        assert report.dropped == report.tokens - report.kept
