"""Answers for questions that have none yet: `python -m narrows.training.label MODEL PAIRS OUT`.

A reader that knows which sentence holds the answer finds it far more surely than one that reads a whole passage.
Its answers, joined into passages again by a recipe (`join`), teach the next reader.
"""

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from narrows._plural import count
from narrows.data import QAExample, read_pairs
from narrows.errors import NarrowsError, UsageError
from narrows.evaluation.run import load_span_model, predict_examples
from narrows.evaluation.spans import SpanPrediction
from narrows.training.writing import require_place, written_whole

__all__ = ["label_examples", "surest", "write_squad"]

# Between two steps of the progress bar.
_EXAMPLES_A_CHUNK = 256


def label_examples(
    checkpoint: str | Path, examples: Sequence[QAExample], *, batch_tokens: int = 8192
) -> list[SpanPrediction]:
    """A model's best span for every question in its context, with a progress bar on stderr.

    Args:
        checkpoint: of a span model.
        examples: questions; their answers are not looked at.
        batch_tokens: padded tokens of a forward pass.

    Raises:
        ConversionError: a checkpoint without a trained span head.
    """
    model, tokenizer = load_span_model(checkpoint)
    spans: list[SpanPrediction] = []
    with tqdm(total=len(examples), desc="Labelling", unit=" questions") as bar:
        for first in range(0, len(examples), _EXAMPLES_A_CHUNK):
            chunk = examples[first : first + _EXAMPLES_A_CHUNK]
            spans += predict_examples(model, tokenizer, chunk, batch_tokens=batch_tokens)[0]
            bar.update(len(chunk))
    return spans


def surest(
    examples: Sequence[QAExample], spans: Sequence[SpanPrediction], *, share: float
) -> tuple[list[QAExample], list[SpanPrediction]]:
    """The share of the questions whose spans lie farthest above "no answer", in their old order.

    Raises:
        UsageError: a share that is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise UsageError(f"expected a share above 0 and at most 1, got {share}; pass one such as 0.8")
    order = sorted(range(len(spans)), key=lambda index: -spans[index].margin)
    kept = sorted(order[: round(share * len(order))])
    return [examples[index] for index in kept], [spans[index] for index in kept]


def write_squad(examples: Sequence[QAExample], spans: Sequence[SpanPrediction], path: Path) -> int:
    """Writes questions with their spans in the SQuAD layout, gzipped; one whose span is empty is left out.

    Returns:
        Questions written.

    Raises:
        OutputError: the disk is full or cannot be written; a file that was there is left as it was.
    """
    articles: dict[str, dict[str, list[dict[str, Any]]]] = {}
    written = 0
    for example, span in zip(examples, spans, strict=True):
        if not span.text:
            continue
        answers = [{"text": span.text, "answer_start": span.start}]
        record = {"id": example.id, "question": example.question, "answers": answers}
        articles.setdefault(example.title, {}).setdefault(example.context, []).append(record)
        written += 1
    data = [
        {"title": title, "paragraphs": [{"context": context, "qas": qas} for context, qas in paragraphs.items()]}
        for title, paragraphs in articles.items()
    ]
    with written_whole(path) as partial, gzip.open(partial, "wt", encoding="utf-8") as file:
        json.dump({"version": "labelled", "data": data}, file, ensure_ascii=False)
    return written


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line, whose help tells the arguments; ends the process."""
    parser = argparse.ArgumentParser(prog="python -m narrows.training.label", description=__doc__)
    parser.add_argument("model", help="checkpoint of a span model")
    parser.add_argument("pairs", type=Path, help="questions and texts: .jsonl, or the layout of ReQA")
    parser.add_argument("out", type=Path, help="SQuAD file to write, ending in .json.gz")
    parser.add_argument("--share", type=float, default=1.0, help="of the questions, the surest, to keep (1: all)")
    arguments = parser.parse_args(argv)
    try:
        # Before the reading, which takes long.
        _check_out(arguments.out)
        surest([], [], share=arguments.share)
        examples = _in_order(list(read_pairs(arguments.pairs)))
        spans = label_examples(arguments.model, examples)
        written = write_squad(*surest(examples, spans, share=arguments.share), arguments.out)
    except NarrowsError as error:
        parser.exit(error.exit_code, f"narrows: error: {error}\n")
    parser.exit(0, f"{arguments.out}: {written:,} of {count(len(examples), 'question')}\n")


def _check_out(path: Path) -> None:
    if not path.name.endswith(".json.gz"):
        raise UsageError(f"expected a file to write that ends in .json.gz, got {path}; rename it")
    if path.is_dir():
        raise UsageError(f"expected a file to write, got the folder {path}; choose another name")
    require_place(path)


def _in_order(examples: list[QAExample]) -> list[QAExample]:
    """By id where all ids are numbers, as in ReQA's training pairs: places in SQuAD's training file.

    Their order brings the sentences of an article together.
    """
    if all(example.id.isascii() and example.id.isdigit() for example in examples):
        examples.sort(key=lambda example: int(example.id))
    return examples


if __name__ == "__main__":
    main()
