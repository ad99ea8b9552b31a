"""What a model writes of long documents: in a stream, scored with ROUGE, and taken up again after a stop."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from narrows.data import InputEncoder, SummaryExample, TruncationReport, token_budget_batches
from narrows.errors import UsageError
from narrows.evaluation.bootstrap import Interval, paired_bootstrap
from narrows.evaluation.resuming import append_lines, claim, read_lines, require_unique
from narrows.evaluation.rouge import Rouge, RougeScore, RougeSummary, rouge_summary
from narrows.evaluation.rouge_results import RougeResults
from narrows.hf.seq2seq import write_texts
from narrows.hf.tokenizers import tokenizer_digest

__all__ = [
    "SummaryEvaluation",
    "Written",
    "compare_summaries",
    "evaluate_summaries",
    "mean_scores",
    "read_summaries_written",
    "score_texts",
    "write_summaries",
]

# Examples that are sorted by their length together: enough to pad little, few enough for memory and for a stop.
_EXAMPLES_AT_ONCE = 16


class Written(NamedTuple):
    """A summary that a model wrote, and what it read of the documents."""

    example: SummaryExample
    text: str
    report: TruncationReport
    longest: int


@dataclass(frozen=True)
class SummaryEvaluation:
    """What an evaluation found.

    Attributes:
        rouge: means and their 95 % intervals, in percent.
        scores: id to score.
        texts: id to what was written.
        tokens: of all documents.
        dropped: of them that were not read.
        cut: examples of which something was not read.
    """

    rouge: RougeSummary
    scores: Mapping[str, RougeScore]
    texts: Mapping[str, str]
    tokens: int
    dropped: int
    cut: int


def write_summaries(
    model: Any,
    tokenizer: Any,
    examples: Iterable[SummaryExample],
    *,
    encoder: InputEncoder,
    options: Mapping[str, Any],
    batch_tokens: int,
    autocast: bool = False,
) -> Iterator[Written]:
    """What a model writes of each example, in their order, a few of them in memory at a time.

    Where a truncation gives several parts, each is summarised, and the summary is theirs, a line a part.

    Args:
        model: as `narrows.hf.seq2seq.load_seq2seq` gives it, with its tokenizer.
        examples: their references are not looked at.
        encoder: of their documents.
        options: of `generate`.
        batch_tokens: padded tokens of the inputs that are read at once.
        autocast: compute in bf16, whatever the weights are.
    """
    stream = iter(examples)
    while chunk := list(islice(stream, _EXAMPLES_AT_ONCE)):
        encoded = [encoder.encode(example.documents, query=example.query) for example in chunk]
        rows = [(number, ids) for number, made in enumerate(encoded) for ids in made.inputs]
        texts = [""] * len(rows)
        for batch in token_budget_batches([len(ids) for _, ids in rows], batch_tokens=batch_tokens):
            found = write_texts(
                model, tokenizer, [rows[place][1] for place in batch], options=options, autocast=autocast
            )
            for place, text in zip(batch, found, strict=True):
                texts[place] = text
        for number, (example, made) in enumerate(zip(chunk, encoded, strict=True)):
            parts = [text for (owner, _), text in zip(rows, texts, strict=True) if owner == number]
            yield Written(example, "\n".join(filter(None, parts)), made.report, max(map(len, made.inputs)))


def evaluate_summaries(
    model: Any,
    tokenizer: Any,
    examples: Sequence[SummaryExample],
    *,
    encoder: InputEncoder,
    rouge: Rouge,
    predictions: Path,
    reading: Mapping[str, Any],
    options: Mapping[str, Any],
    batch_tokens: int = 16384,
    on_examples: Callable[[int], None] | None = None,
) -> SummaryEvaluation:
    """Summarise every example with a model and score it.

    Args:
        model: as `narrows.hf.seq2seq.load_seq2seq` gives it, with its tokenizer.
        examples: each id once.
        encoder: of their documents.
        rouge: scores what is written.
        predictions: JSON Lines of `id`, `text` and what was read, written as they come; a file of the same model,
            reading and examples is gone on with. Scores stand beside it.
        reading: what `encoder` was made with, by which a file is known to be the same evaluation's.
        options: of `generate`.
        batch_tokens: padded tokens of the inputs that are read at once.
        on_examples: told how many examples are done, for a progress bar.

    Raises:
        UsageError: an id twice, or the file is of another evaluation or cannot be written.
    """
    require_unique(example.id for example in examples)
    claim(predictions, _identity(model, tokenizer, examples, {**reading, **options}))
    found = {str(record["id"]): record for record in _records(predictions)}
    if on_examples is not None:
        on_examples(sum(example.id in found for example in examples))
    rest = [example for example in examples if example.id not in found]
    for one in write_summaries(model, tokenizer, rest, encoder=encoder, options=options, batch_tokens=batch_tokens):
        record = {"id": one.example.id, "text": one.text, "tokens": one.report.tokens, "dropped": one.report.dropped}
        append_lines(predictions, [record])
        found[one.example.id] = record
        if on_examples is not None:
            on_examples(1)
    texts = {example.id: str(found[example.id]["text"]) for example in examples}
    scores = score_texts(texts, examples, rouge=rouge, results=_scores_file(predictions, rouge))
    dropped = [int(found[example.id]["dropped"]) for example in examples]
    return SummaryEvaluation(
        rouge_summary(scores.values()),
        scores,
        texts,
        sum(int(found[example.id]["tokens"]) for example in examples),
        sum(dropped),
        sum(map(bool, dropped)),
    )


def score_texts(
    texts: Mapping[str, str], examples: Sequence[SummaryExample], *, rouge: Rouge, results: Path | None = None
) -> dict[str, RougeScore]:
    """The scores of texts by the ids of examples.

    Args:
        texts: id to text.
        examples: with their references.
        rouge: scores them.
        results: a file of scores to write and to take up; see `RougeResults`.

    Raises:
        UsageError: an example without a text.
    """
    for example in examples:
        if example.id not in texts:
            raise UsageError(
                f"expected summaries of the same records, got none for {example.id!r}; evaluate both on the same data"
            )
    if results is None:
        return {example.id: rouge.score(texts[example.id], example.references) for example in examples}
    kept = RougeResults(results, rouge=rouge)
    return {example.id: kept.add(example.id, texts[example.id], example.references) for example in examples}


def compare_summaries(ours: Mapping[str, RougeScore], theirs: Mapping[str, RougeScore]) -> dict[str, Interval]:
    """Our scores less theirs, in points, with 95 % intervals: each measure of `RougeScore`.

    Args:
        ours: id to score.
        theirs: of the same ids.
    """
    names = list(ours)
    return {
        measure: paired_bootstrap(
            [getattr(ours[name], measure) for name in names], [getattr(theirs[name], measure) for name in names]
        )
        for measure in RougeScore._fields
    }


def mean_scores(scores: Iterable[RougeScore]) -> dict[str, float]:
    """The mean of each measure, in percent.

    Raises:
        UsageError: there are no scores.
    """
    columns = list(zip(*scores, strict=True))
    if not columns:
        raise UsageError("expected at least one scored summary, got none; check that the data are not empty")
    return {name: math.fsum(column) / len(column) for name, column in zip(RougeScore._fields, columns, strict=True)}


def read_summaries_written(path: Path) -> dict[str, str]:
    """Id to text, of a file that `narrows evaluate` wrote, or another of JSON Lines with `id` and `text`.

    Raises:
        UsageError: a line that is no such record.
    """
    return {str(record["id"]): str(record["text"]) for record in read_lines(path, ("id", "text"))}


def _records(path: Path) -> list[dict[str, Any]]:
    return read_lines(path, ("id", "text", "tokens", "dropped"))


def _scores_file(predictions: Path, rouge: Rouge) -> Path:
    return predictions.with_name(f"{predictions.name}.rouge-{rouge.words}.jsonl")


def _identity(model: Any, tokenizer: Any, examples: Sequence[SummaryExample], settings: Mapping[str, Any]) -> str:
    """sha256 of all that summaries depend on."""
    # Where the model lies is no part of it.
    config = {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}
    digest = hashlib.sha256(json.dumps([settings, config], sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    digest.update(tokenizer_digest(tokenizer).encode())
    for example in examples:
        digest.update(json.dumps([example.id, example.query, *example.documents]).encode())
    return digest.hexdigest()
