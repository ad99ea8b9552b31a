"""What models write in a stream: in the order of the examples, whatever the batches, and its comparison."""

import pytest

from narrows.data import SummaryExample, truncation
from narrows.errors import UsageError
from narrows.evaluation.resuming import append_lines, claim, read_lines
from narrows.evaluation.rouge import Rouge
from narrows.evaluation.summaries import compare_summaries, mean_scores, score_texts, write_summaries
from narrows.hf.seq2seq import input_encoder, load_seq2seq

EXAMPLES = [
    SummaryExample(f"e{n}", ("the old mill near the river . " * (1 + 7 * n % 5), "a boat ."), ("the mill .",), q)
    for n, q in enumerate([None, "what ?", None, "who was it ?", None] * 4)
]


@pytest.mark.parametrize("kind", ["mulla", "longt5", "t5"])
@pytest.mark.parametrize("name", ["head", "windows"])
def test_summaries_do_not_depend_on_the_batches(kind, name, tiny_seq2seq) -> None:
    model, tokenizer = load_seq2seq(tiny_seq2seq(kind))
    options = {"overlap": 4} if name == "windows" else {}
    encoder = input_encoder(tokenizer, truncation=truncation(name, **options), max_tokens=26)
    found = [
        list(
            write_summaries(
                model, tokenizer, EXAMPLES, encoder=encoder, options={"max_new_tokens": 5}, batch_tokens=batch_tokens
            )
        )
        for batch_tokens in (1, 60, 100_000)
    ]
    assert [one.example.id for one in found[0]] == [example.id for example in EXAMPLES]
    assert found[0] == found[1] == found[2]
    assert all(one.longest <= 26 for one in found[0])
    assert any(one.report.parts > 1 for one in found[0]) == (name == "windows")
    assert len({one.text for one in found[0]}) > 1


def test_examples_are_taken_as_they_are_needed(tiny_seq2seq) -> None:
    model, tokenizer = load_seq2seq(tiny_seq2seq("t5"))
    encoder = input_encoder(tokenizer, truncation=truncation("head"), max_tokens=12)
    taken = []

    def stream():
        for example in EXAMPLES:
            taken.append(example.id)
            yield example

    written = write_summaries(
        model, tokenizer, stream(), encoder=encoder, options={"max_new_tokens": 2}, batch_tokens=100
    )
    next(written)
    assert len(taken) == 16
    assert len(list(written)) == len(EXAMPLES) - 1 == 19


def test_differences_are_ours_less_theirs() -> None:
    rouge = Rouge()
    ours = score_texts({e.id: "the mill ." for e in EXAMPLES}, EXAMPLES, rouge=rouge)
    theirs = score_texts({e.id: "a boat ." for e in EXAMPLES}, EXAMPLES, rouge=rouge)
    differences = compare_summaries(ours, theirs)
    assert differences["rouge1"] == pytest.approx((100, 100, 100))
    assert compare_summaries(ours, ours)["average"] == pytest.approx((0, 0, 0))
    assert mean_scores(ours.values())["rouge2"] == pytest.approx(100)
    with pytest.raises(UsageError, match="expected at least one scored summary, got none; check that the data"):
        mean_scores([])
    with pytest.raises(UsageError, match="expected summaries of the same records, got none for 'e0'; evaluate both"):
        score_texts({}, EXAMPLES, rouge=rouge)


def test_a_file_is_of_one_evaluation_and_a_half_line_is_cut_off(tmp_path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    claim(path, "first")
    append_lines(path, [{"id": "é"}, {"id": "b"}])
    with path.open("a") as file:
        file.write('{"id": "c')
    assert read_lines(path, ("id",)) == [{"id": "é"}, {"id": "b"}]
    claim(path, "first")
    append_lines(path, [{"id": "d"}])
    assert [record["id"] for record in read_lines(path, ("id",))] == ["é", "b", "d"]
    with pytest.raises(
        UsageError, match="expected predictions of the same model and questions in .*, got others; choose"
    ):
        claim(path, "second")
    with pytest.raises(
        UsageError, match="expected `id` and `text` in line 1 of .*; pass a file that `narrows evaluate`"
    ):
        read_lines(path, ("id", "text"))
    assert read_lines(tmp_path / "none.jsonl", ("id",)) == []
    with pytest.raises(UsageError, match="expected a file to write to at .*b.jsonl, got .*; choose another one"):
        claim(path / "b.jsonl", "first")
