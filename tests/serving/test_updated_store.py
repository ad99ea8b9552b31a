"""Asking a store that was updated again and again is asking a new store of the same folder."""

import random
from pathlib import Path

import pytest

from narrows.serving.indexing import index_folder
from narrows.store import Store, tidying

QUESTIONS = [
    "Where was the boat?",
    "Which bird sat on the stone of the house at night?",
    "What did the father say of the clock in the town?",
    "Who is it?",
    "café",
]


def change(root: Path, choice: random.Random, prose) -> None:
    """Write, change and remove some files."""
    for _ in range(choice.randrange(1, 8)):
        (root / f"note{choice.randrange(30)}.txt").write_text(prose(choice.randrange(10**6), choice.randrange(1, 20)))
    for file in choice.sample(sorted(root.iterdir()), choice.randrange(3)):
        if len(list(root.iterdir())) > 1:
            file.unlink()


@pytest.mark.parametrize("seed", range(2))
def test_asking_is_as_asking_a_new_store(tmp_path, reader, prose, monkeypatch, seed) -> None:
    monkeypatch.setattr(tidying, "_ROWS_OF_FULL_SEGMENT", 60)
    reader.engine.config.retrieval_weight = 0.4
    choice = random.Random(seed)
    root = tmp_path / "library"
    root.mkdir()
    for number in range(20):
        (root / f"note{number}.txt").write_text(prose(100 * seed + number, 12))
    index_folder(root, tmp_path / "updated", reader.engine, codec="fp32")
    for turn in range(2):
        change(root, choice, prose)
        index_folder(root, tmp_path / "updated", reader.engine, codec="fp32")
        index_folder(root, tmp_path / f"new{turn}", reader.engine, codec="fp32")
        with (
            Store.open(tmp_path / "updated", expect=None) as updated,
            Store.open(tmp_path / f"new{turn}", expect=None) as new,
        ):
            assert updated.documents() == new.documents()
            for question in QUESTIONS:
                evidences = [
                    sorted(candidate.evidence for candidate in reader.find(store, question)) for store in (updated, new)
                ]
                assert evidences[0] == pytest.approx(evidences[1], abs=1e-5)
            # All that a question finds is read, so that equal scores at the border make no difference.
            for question in set(QUESTIONS) - {"Who is it?"}:
                mine, theirs = (reader.ask(store, question, candidates=1000) for store in (updated, new))
                assert mine.no_answer_score == pytest.approx(theirs.no_answer_score, abs=1e-5)
                assert mine.candidates == theirs.candidates
                scores = [[answer.score for answer in result.answers] for result in (mine, theirs)]
                assert scores[0] == pytest.approx(scores[1], abs=1e-5)
