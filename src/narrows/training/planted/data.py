"""Texts with planted facts, made when they are asked for: nothing is stored, and a number names a text for ever."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from narrows.data.files import UNREADABLE, open_text
from narrows.data.planted import PlantedFacts, PlantedText, words_of
from narrows.errors import UsageError
from narrows.training.planted.recipe import PlantedDataSection

__all__ = ["PlantedRows", "Texts", "collate_texts", "read_texts"]


class Texts(NamedTuple):
    """The same facts in two running texts: one to learn from, one to test with."""

    train: PlantedFacts
    test: PlantedFacts


class PlantedRows(Dataset[PlantedText]):
    """Text number i of a seed is always the same one.

    Args:
        task: makes the texts.
        lengths: tokens of each.
        seed: another one gives other texts.
    """

    def __init__(self, task: PlantedFacts, lengths: Sequence[int], *, seed: int):
        self.lengths, self._task, self._seed = list(lengths), task, seed

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> PlantedText:
        return self._task.sample(self.lengths[index], Random(f"{self._seed}-{index}"))


def read_texts(section: PlantedDataSection, folder: Path) -> Texts:
    """The makers of training and test texts.

    Test words that the training text does not have are unknown words, since both share one vocabulary.

    Raises:
        UsageError: a file that is not there, or too little text in it.
    """
    train, test = (_words(folder / name) for name in (section.train_text, section.test_text))
    shape = {name: getattr(section, name) for name in ("vocabulary", "names", "values", "facts", "questions")}
    task = PlantedFacts(train, **shape)
    return Texts(task, task.over(test))


def collate_texts(texts: Sequence[PlantedText]) -> dict[str, Tensor]:
    """Texts padded on the right, and all their questions.

    Returns:
        `input_ids`, `attention_mask` `[batch, length]`; `places` `[questions, 2]`: text and token of each question
        mark; `answers`, `distances` `[questions]`.
    """
    ids = [torch.tensor(text.ids) for text in texts]
    mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    asked = [(number, question) for number, text in enumerate(texts) for question in text.questions]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": mask,
        "places": torch.tensor([(number, question.place) for number, question in asked]),
        "answers": torch.tensor([question.answer for _, question in asked]),
        "distances": torch.tensor([question.distance for _, question in asked]),
    }


def _words(path: Path) -> list[str]:
    try:
        with open_text(path) as file:
            return words_of(file.read())
    except UNREADABLE as error:
        raise UsageError(
            f"expected running text in {path}, got a file that cannot be read ({error}); check the path and --data"
        ) from error
