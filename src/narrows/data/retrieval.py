"""Queries, candidates and judgements: ReQA's files and the folders of BEIR."""

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from narrows.data.files import field, lines, load_json, parse_json, require_unicode
from narrows.errors import UsageError

__all__ = ["RetrievalData", "read_retrieval"]

_REQA = "a ReQA test file, or one that names its questions"
_KINDS = "a .json[.gz] file in the layout of ReQA, or a folder with corpus.jsonl, queries.jsonl and qrels"


class RetrievalData(NamedTuple):
    """What is looked for, and in what.

    Attributes:
        queries: those with at least one right candidate.
        candidates: all texts that are looked through.
        gains: of each query, gain by the number of the candidate; what is not named gains 0.
        left_out: queries without a right candidate.
    """

    queries: tuple[str, ...]
    candidates: tuple[str, ...]
    gains: tuple[dict[int, float], ...]
    left_out: int


def read_retrieval(path: str | PathLike[str]) -> RetrievalData:
    """Reads a retrieval task; the layout is told by what lies at the path.

    Args:
        path: `.json[.gz]` of ReQA, with `questions`, `candidates` and `ground_truths`; or one whose `questions` are
            numbers into the `test.json[.gz]` beside it, of which all candidates are looked through; or a folder in the
            layout of BEIR (`corpus.jsonl[.gz]`, `queries.jsonl[.gz]`, `qrels-test.tsv` or `qrels/test.tsv`), where a
            candidate is its title and its text.

    Raises:
        UsageError: another layout, a file that cannot be read, or no query with a right candidate.

    Example:
        `len(read_retrieval("squad_reqa/eval-500.json.gz").queries)`
    """
    path = Path(path)
    if path.is_dir():
        data = _read_beir(path)
    elif path.name.removesuffix(".gz").endswith(".json"):
        data = _read_reqa(path)
    else:
        raise UsageError(f"{path}: expected {_KINDS}, got another name; pass one of these.")
    if not data.queries:
        raise UsageError(f"{path}: expected queries with a right candidate, got none; check the judgements.")
    return data


def _read_reqa(path: Path) -> RetrievalData:
    document = load_json(path, _REQA)
    where = f"{path}: the file"
    questions = field(document, "questions", list, where)
    if questions and all(isinstance(number, int) for number in questions):
        whole = _beside(path)
        document, where = load_json(whole, _REQA), f"{whole}: the file"
        chosen = questions
    else:
        chosen = range(len(questions))
    texts = _strings(document, "questions", where)
    candidates = _strings(document, "candidates", where)
    truths = field(document, "ground_truths", list, where)
    if len(truths) != len(texts):
        raise UsageError(
            f"{where}: expected as many ground_truths as questions, got {len(truths)} and {len(texts)}; "
            "pass a whole ReQA test file."
        )
    queries, gains = [], []
    for number in chosen:
        if not 0 <= number < len(texts):
            raise UsageError(
                f"{path}: expected questions from 0 to {len(texts) - 1}, got {number}; pass the file that belongs to "
                f"{where.removesuffix(': the file')}."
            )
        right = truths[number]
        if not isinstance(right, list) or not all(isinstance(c, int) and 0 <= c < len(candidates) for c in right):
            raise UsageError(
                f"{where}: expected numbers of candidates as the ground truth of question {number}, got "
                f"{str(right)[:40]}; pass a whole ReQA test file."
            )
        if right:
            queries.append(texts[number])
            gains.append(dict.fromkeys(right, 1.0))
    return RetrievalData(tuple(queries), tuple(candidates), tuple(gains), len(chosen) - len(queries))


def _beside(path: Path) -> Path:
    found = next(
        (path.with_name(name) for name in ("test.json.gz", "test.json") if path.with_name(name).is_file()), None
    )
    if found is None:
        raise UsageError(
            f"{path}: expected test.json or test.json.gz beside it, whose questions it names by number, got neither; "
            "put them in one folder."
        )
    return found


def _strings(document: Any, key: str, where: str) -> list[str]:
    values = field(document, key, list, where)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise UsageError(
                f"{where}: expected strings as {key!r}, got {type(value).__name__} at {number}; correct the place."
            )
        require_unicode(value, f"{where}: expected Unicode at {number} of {key!r}")
    return values


def _read_beir(folder: Path) -> RetrievalData:
    corpus = _records(folder, "corpus")
    numbers = {name: number for number, name in enumerate(corpus)}
    queries = _records(folder, "queries")
    judged = _judgements(folder, queries, numbers)
    kept = [name for name, gains in judged.items() if any(gain > 0 for gain in gains.values())]
    return RetrievalData(
        tuple(queries[name] for name in kept),
        tuple(corpus.values()),
        tuple(judged[name] for name in kept),
        len(queries) - len(kept),
    )


def _records(folder: Path, name: str) -> dict[str, str]:
    path = _one_of(folder, f"{name}.jsonl.gz", f"{name}.jsonl")
    found: dict[str, str] = {}
    for number, line in enumerate(lines(path), start=1):
        where = f"{path}: line {number}"
        record = parse_json(line, where)
        title = field(record, "title", str, where) if "title" in record else ""
        found[field(record, "_id", str, where)] = f"{title} {field(record, 'text', str, where)}".strip()
    return found


def _judgements(folder: Path, queries: dict[str, str], numbers: dict[str, int]) -> dict[str, dict[int, float]]:
    path = _one_of(folder, "qrels-test.tsv", "qrels/test.tsv")
    judged: dict[str, dict[int, float]] = {}
    for number, line in enumerate(lines(path), start=1):
        parts = line.rstrip("\r\n").split("\t")
        if number == 1 and parts[-1] == "score":
            continue
        try:
            query, candidate, gain = parts[0], numbers[parts[1]], max(0.0, float(parts[2]))
            queries[query]
        except (IndexError, KeyError, ValueError) as error:
            raise UsageError(
                f"{path}: line {number}: expected a query, a candidate and a number, all known and between tabs, got "
                f"{line[:60]!r}; correct the line."
            ) from error
        judged.setdefault(query, {})[candidate] = gain
    return judged


def _one_of(folder: Path, *names: str) -> Path:
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise UsageError(f"{folder}: expected {' or '.join(names)} in it, got neither; pass {_KINDS}.")
    return found
