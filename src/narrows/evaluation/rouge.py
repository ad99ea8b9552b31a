"""ROUGE of summaries, with the rouge-score package: F-measures, several references, other scripts, results that
can be taken up again.

Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries"; rouge-score repeats the numbers of its Perl script.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from narrows._optional import require
from narrows.documents.sentences import sentences
from narrows.errors import UsageError
from narrows.evaluation.bootstrap import MeanInterval, bootstrap

__all__ = ["ROUGE_WORDS", "Rouge", "RougeScore", "RougeSummary", "UnicodeWords", "rouge_summary"]

ROUGE_WORDS = ("english-stemmed", "english", "unicode")
"""How words are found: English ones, cut to their stems or not, as rouge-score does; or those of any script."""

_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_PURPOSE = "score summaries with ROUGE"
# Scripts that write no space between words, a character each: Chinese and Japanese; Thai, Lao, Burmese and Khmer with
# their vowel signs.
_UNSPACED = "".join(
    rf"\p{{scx={script}}}" for script in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Myanmar", "Khmer")
)
_UNICODE_WORD = rf"[{_UNSPACED}&&[\p{{L}}\p{{N}}]]\p{{M}}*|[[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]+"


class RougeScore(NamedTuple):
    """F-measures of one summary, in percent, from 0 to 100.

    Attributes:
        rouge1: of its words.
        rouge2: of its pairs of neighbouring words.
        rougeL: of the longest common subsequence of words.
        rougeLsum: of such subsequences, sentence by sentence of the reference.
        average: arithmetic mean of the four.
    """

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float
    average: float


class RougeSummary(NamedTuple):
    """Means over the summaries of a data set, in percent, with bootstrap intervals; `total` counts summaries."""

    rouge1: MeanInterval
    rouge2: MeanInterval
    rougeL: MeanInterval
    rougeLsum: MeanInterval
    average: MeanInterval
    total: int


class UnicodeWords:
    """Words of any script, for rouge-score's `tokenizer`: runs of letters, marks and digits, in small letters.

    Compatible forms are made one (full-width letters, ligatures). Where a script writes no spaces (Chinese,
    Japanese, Thai, Lao, Burmese, Khmer), each character is a word, with the signs that belong to it.

    Raises:
        MissingExtraError: the extra `eval` is not installed.

    Example:
        `UnicodeWords().tokenize("Größe: 東京 2024")` gives `["grösse", "東", "京", "2024"]`
    """

    def __init__(self) -> None:
        regex = require("regex", extra="eval", purpose=_PURPOSE)
        self._word = regex.compile(_UNICODE_WORD, flags=regex.V1)

    def tokenize(self, text: str) -> list[str]:
        """The words of a text in order."""
        return self._word.findall(unicodedata.normalize("NFKC", text).casefold())


class Rouge:
    """Scores summaries.

    Args:
        words: one of `ROUGE_WORDS`. `english` and `english-stemmed` know the letters a to z only: of other
            scripts they see nothing, and give 0.

    Raises:
        UsageError: another name.
        MissingExtraError: the extra `eval` is not installed.

    Example:
        `Rouge().score("The cat sat.", ["A cat sat."]).rouge1`
    """

    def __init__(self, *, words: str = "english-stemmed") -> None:
        if words not in ROUGE_WORDS:
            raise UsageError(f"expected words to be one of {', '.join(ROUGE_WORDS)}, got {words!r}; name one of them.")
        scorer: Any = require("rouge_score.rouge_scorer", extra="eval", purpose=_PURPOSE)
        self.words = words
        self._scorer = scorer.RougeScorer(
            list(_TYPES),
            use_stemmer=words == "english-stemmed",
            tokenizer=UnicodeWords() if words == "unicode" else None,
        )

    def score(self, prediction: str, references: Sequence[str]) -> RougeScore:
        """Scores one summary.

        Args:
            prediction: what a model wrote; "" scores 0.
            references: what people wrote. With several, each measure is that of the reference that gives the
                highest F-measure (the maximum, not the mean), as in rouge-score's `score_multi`.

        Raises:
            UsageError: there is no reference.
        """
        if not references:
            raise UsageError("expected at least one reference to score a summary with, got none; pass one or more.")
        best = self._scorer.score_multi([_by_sentence(text) for text in references], _by_sentence(prediction))
        values = [100 * float(best[name].fmeasure) for name in _TYPES]
        return RougeScore(*values, average=math.fsum(values) / len(values))


def rouge_summary(
    scores: Iterable[RougeScore], *, samples: int = 2000, seed: int = 0, level: float = 0.95
) -> RougeSummary:
    """Means and intervals of a data set's scores.

    Args:
        scores: one a summary.
        samples, seed, level: as in `narrows.evaluation.bootstrap`.

    Raises:
        UsageError: there are no scores, or as `bootstrap`.
    """
    columns = list(zip(*scores, strict=True))
    if not columns:
        raise UsageError("expected at least one scored summary, got none; check that the data are not empty.")
    intervals = [bootstrap(column, samples=samples, seed=seed, level=level) for column in columns]
    return RougeSummary(*intervals, total=len(columns[0]))


def _by_sentence(text: str) -> str:
    """A sentence a line, which is how rouge-score is told of sentences; a line's end ends one too."""
    made = (line[s.start : s.end] for line in text.splitlines() for s in sentences(line))
    return "\n".join(" ".join(sentence.split()) for sentence in made)
