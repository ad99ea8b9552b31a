"""A file of ROUGE scores that grows by a line a summary, so that a stopped evaluation goes on where it was."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType

from narrows.errors import OutputError, UsageError
from narrows.evaluation.rouge import Rouge, RougeScore

__all__ = ["RougeResults"]


class RougeResults:
    """Scores summaries into JSON lines, and knows which ones it holds.

    Each line holds `id`, the five measures of `RougeScore`, `words` (how the words were found) and `of`, a sha256 of
    the summary and its references. It is written at once and whole. What a kill left of a last line is cut off.
    One program writes to a file at a time.

    Args:
        path: the file; made when it is not there, with its folder.
        rouge: scores the summaries.

    Raises:
        UsageError: the file holds something else, an id twice, or scores with other words.
        OutputError: the file cannot be written.

    Example:
        ```
        results = RougeResults("rouge.jsonl", rouge=Rouge())
        for example in examples:
            if example.id not in results:
                results.add(example.id, summarize(example), example.references)
        rouge_summary(results.scores.values())
        ```
    """

    def __init__(self, path: str | PathLike[str], *, rouge: Rouge) -> None:
        self._path = Path(path)
        self._rouge = rouge
        self._scores: dict[str, RougeScore] = {}
        self._of: dict[str, str] = {}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a+b") as file:
                file.seek(0)
                whole = 0
                for number, line in enumerate(file, start=1):
                    if line.endswith(b"\n"):
                        self._read(line, number)
                        whole += len(line)
                file.truncate(whole)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    @property
    def scores(self) -> Mapping[str, RougeScore]:
        """Id to score, in the order of the file."""
        return MappingProxyType(self._scores)

    def __contains__(self, name: object) -> bool:
        return name in self._scores

    def __len__(self) -> int:
        return len(self._scores)

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def add(self, name: str, prediction: str, references: Sequence[str]) -> RougeScore:
        """Scores a summary and writes its line; of one that is there already, gives what was written.

        Args:
            name: the id of the example.
            prediction: what a model wrote.
            references: what people wrote; see `Rouge.score`.

        Raises:
            UsageError: the id is there with another summary or other references, or there is no reference.
            OutputError: the file cannot be written.
        """
        of = _digest(prediction, references)
        if name in self._scores:
            if self._of[name] != of:
                raise UsageError(
                    f"{self._path}: expected the summary of {name!r} that was scored, got another one; "
                    "name another file for another run, or remove this one."
                )
            return self._scores[name]
        score = self._rouge.score(prediction, references)
        record = {"id": name, **score._asdict(), "words": self._rouge.words, "of": of}
        line = f"{json.dumps(record, ensure_ascii=False)}\n".encode("utf-8", "surrogatepass")
        try:
            # Unbuffered, so that a line is one call of the system, which a kill does not tear.
            with self._path.open("ab", buffering=0) as file:
                written = file.write(line) or 0
                if written < len(line):
                    file.truncate(file.tell() - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self._scores[name], self._of[name] = score, of
        return score

    def _read(self, line: bytes, number: int) -> None:
        where = f"{self._path}: line {number}"
        try:
            record = json.loads(line)
            name, words, of = (str(record[key]) for key in ("id", "words", "of"))
            score = RougeScore(*(float(record[key]) for key in RougeScore._fields))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise UsageError(
                f"{where}: expected a ROUGE score of an earlier run, got {line[:40]!r}; name another file."
            ) from error
        if words != self._rouge.words:
            raise UsageError(
                f"{where}: expected scores with the words {self._rouge.words!r}, got {words!r}; "
                "name another file or score with the same words."
            )
        if name in self._scores:
            raise UsageError(f"{where}: expected each id once, got {name!r} twice; remove one of the two lines.")
        self._scores[name], self._of[name] = score, of


def _digest(prediction: str, references: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([prediction, list(references)]).encode()).hexdigest()


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"expected a file to write scores to, got {path} ({error.strerror}); make room or choose another place."
    )
