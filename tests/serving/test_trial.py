"""Questions asked of a store of the data's own texts: the answers of `ask`, and where the data says they lie."""

import pytest

from narrows.data import Answer, QAExample
from narrows.errors import UsageError
from narrows.evaluation.store_rule import choose
from narrows.serving.trial import ask_examples, build_library, sample_examples


@pytest.fixture
def examples(prose) -> list[QAExample]:
    found = []
    for number in range(8):
        context = f"{prose(number, 6)}\r\nIn the year 19{number:02} a cafe\u0301 opened 🙂 there."
        start = context.index(f"19{number:02}")
        question = f"what opened in 19{number:02}?" if number else "why " * 100
        answers = () if number == 7 else (Answer(f"19{number:02}", start),)
        found.append(QAExample(f"q{number}", f"title {number // 4}", question, context, answers, number == 7))
    return found


def test_the_choices_are_the_answers_of_a_reader(reader, examples, tmp_path) -> None:
    library = build_library(examples, tmp_path, reader)
    told: list[int] = []
    asked = ask_examples(reader, library, examples, candidates=5, on_questions=told.append)
    assert told == [1] * 8
    reader.engine.config.no_answer_threshold = 0.0
    for weight in (0.0, 3.0):
        reader.engine.config.retrieval_weight = weight
        for example in examples[1:]:
            [answer] = reader.ask(library.path, example.question, candidates=5, top_k=1).answers
            assert choose(asked[example.id].choices, weight).text == answer.answer
    again = ask_examples(reader, library, examples, candidates=5)
    assert {name: found.choices for name, found in again.items()} == {n: f.choices for n, f in asked.items()}


def test_an_answer_is_held_where_the_data_says(reader, examples, tmp_path) -> None:
    library = build_library(examples, tmp_path, reader)
    found = ask_examples(reader, library, examples, candidates=1000)
    assert [found[f"q{number}"].held for number in range(1, 8)] == [True] * 6 + [False]
    with reader.open_store(library.path) as store:
        texts = {name: (tmp_path / "documents" / name).read_bytes().decode() for name in store.documents()}
    for example in examples:
        document, start = library.places[example.title, example.context]
        assert texts[document][start:].startswith(example.context)
    assert len(texts) == 2
    elsewhere = ask_examples(reader, library, [examples[1]], candidates=1)
    assert len(elsewhere["q1"].choices) == 1


def test_a_sample_is_drawn_with_a_seed(examples) -> None:
    assert sample_examples(examples, 0) == sample_examples(examples, 8) == sample_examples(examples, 99) == examples
    three = sample_examples(examples, 3)
    assert len(three) == 3 and three == sample_examples(examples, 3) == sorted(three, key=lambda e: e.id)
    assert any(sample_examples(examples, 3, seed=seed) != three for seed in range(1, 6))
    with pytest.raises(UsageError, match="expected a number of questions of at least 0 .0: all., got -1; pass"):
        sample_examples(examples, -1)
