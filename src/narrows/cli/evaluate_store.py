"""`narrows evaluate --candidates`: the same questions, asked of a store of all the data's texts."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from narrows.cli import options

if TYPE_CHECKING:
    from narrows.data import QAExample
    from narrows.evaluation.run import SpanEvaluation
    from narrows.evaluation.store_rule import StoreRule
    from narrows.serving import Reader
    from narrows.serving.trial import Asked

__all__ = ["StoreTrial", "print_store", "run_trial"]

Retrieval = Literal["bm25", "dense", "both"]


class StoreTrial(NamedTuple):
    """What questions to a store came to.

    Attributes:
        scores: as of an evaluation on single passages.
        figures: retrieval, recall of the candidates in percent, the weight of retrieval, and when it was fitted the
            best F1 by weight.
    """

    scores: "SpanEvaluation"
    figures: dict[str, Any]


def run_trial(
    model: str,
    examples: "Sequence[QAExample]",
    *,
    candidates: int,
    retrieval: Retrieval,
    questions: int,
    calibrate: bool,
    device: str,
    batch_tokens: int,
    quiet: bool,
) -> StoreTrial:
    """Index the contexts of the examples, ask a sample of the questions, score them; fit the model's rule if wanted.

    Args:
        model: a DeFormer; its folder, when `calibrate` is set.
        examples: whose contexts make the store.
        candidates: passages to read a question.
        retrieval: how they are found.
        questions: how many to ask, drawn with a seed; 0: all.
        calibrate: whether to fit the rule and write it into the model's config.
        device: `cpu` or `cuda`.
        batch_tokens: padded tokens of a forward pass.
        quiet: no progress.

    Raises:
        UsageError: what `require_both_kinds` and `fit_store_rule` say of questions that it cannot be fitted on.
        ConversionError: the model is no DeFormer with a trained span head.
    """
    from narrows.cli.evaluate_calibrate import require_both_kinds
    from narrows.evaluation.run import score
    from narrows.evaluation.store_rule import choose, fit_store_rule
    from narrows.serving import Reader
    from narrows.serving.answers import store_rule
    from narrows.serving.trial import sample_examples

    sample = sample_examples(examples, questions)
    if calibrate:
        require_both_kinds(sample, f"the {len(sample):,} drawn by --questions")
    reader = Reader.from_pretrained(model, device=device, batch_tokens=batch_tokens)
    asked = _ask(reader, examples, sample, candidates, retrieval, quiet=quiet)
    choices = {name: found.choices for name, found in asked.items()}
    weight, rule = reader.engine.config.retrieval_weight, store_rule(reader.engine.config)
    fitted: StoreRule | None = None
    if calibrate:
        fitted = fit_store_rule(choices, sample)
        weight, rule = fitted.retrieval_weight, fitted.rule
        _write_rule(Path(model), fitted)
    scores = score(
        {name: choose(found, weight) for name, found in choices.items()},
        sample,
        rule=rule,
        truncated_questions=sum(reader.engine.shorten_question(e.question) != e.question for e in sample),
    )
    held = [asked[example.id].held for example in sample if example.answers]
    figures: dict[str, Any] = {
        "candidates": candidates,
        "retrieval": retrieval,
        "recall": 100 * sum(held) / len(held) if held else None,
        "retrieval_weight": weight,
    }
    if fitted is not None:
        figures["best_f1_by_weight"] = [[tried, found] for tried, found in fitted.curve.items()]
    return StoreTrial(scores, figures)


def print_store(figures: Mapping[str, Any]) -> None:
    """What a store adds to the table of scores."""
    if figures["recall"] is not None:
        typer.echo(f"{'answer in a candidate':<22}{figures['recall']:>8.2f}")
    typer.echo(f"{'weight of retrieval':<22}{figures['retrieval_weight']:>8.3f}")
    if "best_f1_by_weight" in figures:
        curve = dict(figures["best_f1_by_weight"])
        typer.echo(f"{'best F1, this weight':<22}{curve[figures['retrieval_weight']]:>8.2f}")
        typer.echo(f"{'best F1, weight 0':<22}{curve[0.0]:>8.2f}")


def _ask(
    reader: "Reader",
    examples: "Sequence[QAExample]",
    sample: "Sequence[QAExample]",
    candidates: int,
    retrieval: Retrieval,
    *,
    quiet: bool,
) -> "dict[str, Asked]":
    from narrows.cli.index import index_progress
    from narrows.serving.trial import ask_examples, build_library

    with tempfile.TemporaryDirectory(prefix="narrows-") as folder:
        with index_progress(quiet=quiet) as indexed:
            library = build_library(examples, Path(folder), reader, retrieval=retrieval, on_progress=indexed)
        with options.progress(len(sample), "Asking", quiet) as advance:
            return ask_examples(
                reader, library, sample, candidates=candidates, retrieval=retrieval, on_questions=advance
            )


def _write_rule(folder: Path, fitted: "StoreRule") -> None:
    from narrows.cli.evaluate_calibrate import update_config

    update_config(
        folder,
        retrieval_weight=fitted.retrieval_weight,
        store_no_answer_scale=fitted.rule.scale,
        store_no_answer_bias=fitted.rule.bias,
        store_no_answer_threshold=fitted.rule.threshold,
    )
