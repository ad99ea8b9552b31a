"""Training data of span readers: examples into rows of tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from narrows.data import (
    PairLayout,
    QAExample,
    SpanEncoder,
    SpanFeature,
    add_unanswerable_pairs,
    bert_pairs,
    cloze_examples,
    join_contexts,
    read_articles,
    read_pairs,
    read_qamr,
    read_squad,
)
from narrows.errors import UsageError
from narrows.evaluation.spans import answer_mask
from narrows.training.spans.recipe import DataPart, DataSection
from narrows.training.spans.states import Side, StoredStates
from narrows.training.titles import titles_of

__all__ = ["Row", "SpanRows", "collate_rows", "is_labelled", "read_part", "read_parts"]


def read_parts(parts: Sequence[DataPart], folder: Path, *, seed: int, runs: Path | None = None) -> list[QAExample]:
    """All examples of some parts, as often as each asks; an id in several parts is taken from the first."""
    examples: list[QAExample] = []
    seen: set[str] = set()
    for part in parts:
        fresh = [example for example in read_part(part, folder, seed=seed, runs=runs) if example.id not in seen]
        seen.update(example.id for example in fresh)
        examples += fresh * part.times
    return examples


def read_part(part: DataPart, folder: Path, *, seed: int, runs: Path | None = None) -> list[QAExample]:
    """The examples of one part of a recipe.

    Args:
        part: what to read.
        folder: of the data.
        seed: chooses what is made up: unanswerable pairs, cloze questions, places in joined contexts.
        runs: where a file that another run made is looked for first.

    Raises:
        UsageError: a missing file, an unknown part of the split, or nothing left.
    """
    path = folder / part.file
    if runs is not None and (runs / part.file).is_file():
        path = runs / part.file
    if not path.is_file():
        raise UsageError(f"expected data at {path}, got no such file; pass --data DIR or set NARROWS_DATA")
    titles = titles_of(part, folder)
    if part.format == "squad":
        examples = list(read_squad(path, titles=titles))
    elif part.format == "cloze":
        examples = cloze_examples(read_articles(path, titles=titles), seed=seed)
    else:
        examples = list(read_qamr(path) if part.format == "qamr" else read_pairs(path))
    if part.answers != "all":
        examples = [example for example in examples if bool(example.answers) == (part.answers == "answerable")]
    if not examples:
        raise UsageError(
            f"expected examples in {path}, got none after the choice of titles and answers; mend the recipe"
        )
    if part.join > 1:
        examples = join_contexts(examples, contexts=part.join, seed=seed)
    return add_unanswerable_pairs(examples, share=part.negatives, seed=seed) if part.negatives else examples


class Row(NamedTuple):
    """One pair as the model reads it; `start` −1 says that nothing is known of the answer.

    `passage` says where the passage's tokens stand. `lower_states` are the states of all tokens after layer k,
    `[length, width]`, when they were stored.
    """

    input_ids: list[int]
    token_type_ids: list[int]
    start: int
    end: int
    passage: range
    lower_states: Tensor | None = None


class SpanRows(Dataset[Row]):
    """Windows of span examples as rows of question and passage, joined as a layout says; BERT's where none is given.

    A window of an answerable question that holds no answer is labelled as unanswerable ([CLS]); an example
    without answers that is not marked impossible is unlabelled.
    """

    def __init__(
        self, examples: Sequence[QAExample], tokenizer: Any, section: DataSection, *, layout: PairLayout | None = None
    ):
        encoder = SpanEncoder(
            tokenizer,
            max_question_tokens=section.max_question_tokens,
            max_passage_tokens=section.max_passage_tokens,
            overlap=section.overlap,
        )
        encoded = encoder.encode(examples)
        self.truncated_questions = encoded.truncated_questions
        self.examples = examples
        self.features = encoded.features
        self._cls, self._sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        self._layout = layout or bert_pairs(cls=self._cls, sep=self._sep, pad=tokenizer.pad_token_id)
        self._states: StoredStates | None = None

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Row:
        feature = self.features[index]
        ids, segments = self._layout.join(feature.question_ids, feature.passage_ids)
        first = self._layout.passage_start(feature.question_ids)
        start, end = self._labels(feature)
        states = None if self._states is None else self._states.row(*self._sides(feature))
        return Row(ids, segments, start, end, range(first, first + len(feature.passage_ids)), states)

    def sides(self) -> list[Side]:
        """Both sides of every row, for `store_states`."""
        return [side for feature in self.features for side in self._sides(feature)]

    def use_states(self, states: StoredStates) -> None:
        """Give each row its stored states from now on."""
        self._states = states

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        special = self._layout.special_tokens
        return [len(feature.question_ids) + len(feature.passage_ids) + special for feature in self.features]

    def _sides(self, feature: SpanFeature) -> tuple[Side, Side]:
        question = Side(0, (self._cls, *feature.question_ids, self._sep))
        return question, Side(1, (*feature.passage_ids, self._sep))

    def _labels(self, feature: SpanFeature) -> tuple[int, int]:
        if feature.answerable:
            shift = self._layout.passage_start(feature.question_ids)
            return feature.start + shift, feature.end + shift
        return (0, 0) if is_labelled(self.examples[feature.example]) else (-1, -1)


def is_labelled(example: QAExample) -> bool:
    """Whether it is known where an example's answer is, or that there is none."""
    return example.impossible or bool(example.answers)


def collate_rows(rows: Sequence[Row], *, pad: int, pad_segment: int = 1) -> dict[str, Tensor]:
    """Rows padded on the right to the longest.

    Returns:
        `input_ids`, `attention_mask`, `token_type_ids`, `p_mask` (see `answer_mask`) `[batch, length]`;
        `start_positions`, `end_positions` `[batch]`; `lower_states` `[batch, length, width]` when the rows have them.
    """
    longest = max(len(row.input_ids) for row in rows)

    def padded(values: list[int], fill: int) -> list[int]:
        return values + [fill] * (longest - len(values))

    states = [row.lower_states for row in rows if row.lower_states is not None]
    stored = {"lower_states": pad_sequence(states, batch_first=True)} if states else {}
    return {
        "input_ids": torch.tensor([padded(row.input_ids, pad) for row in rows]),
        "attention_mask": torch.tensor([padded([1] * len(row.input_ids), 0) for row in rows]),
        "token_type_ids": torch.tensor([padded(row.token_type_ids, pad_segment) for row in rows]),
        "p_mask": answer_mask([row.passage for row in rows], longest),
        "start_positions": torch.tensor([row.start for row in rows]),
        "end_positions": torch.tensor([row.end for row in rows]),
        **stored,
    }
