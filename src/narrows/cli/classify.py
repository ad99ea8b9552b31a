"""`narrows classify`: a label and its probability for each text, or a score."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows._text import one_line
from narrows.cli import options
from narrows.cli.texts import Field, Force, Inputs, MaxTokens, Truncate, report, run_texts, texts_of, to_stdout
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.serving.batching import Row
    from narrows.serving.classifier import Classifier


def command(
    inputs: Inputs,
    model: options.Model,
    out: Annotated[str, typer.Option("--out", "-o", help="Where to: .jsonl, or - for stdout.", show_default="-")] = "-",
    field: Field = None,
    pair_field: Annotated[
        str | None,
        typer.Option(
            "--field-pair", help="Field that holds the second text, for a model of pairs.", show_default=False
        ),
    ] = None,
    all_scores: Annotated[bool, typer.Option("--all-scores", help="Give the number of every label.")] = False,
    threshold: Annotated[
        float,
        typer.Option("--threshold", min=0, max=1, help="From where on a label counts, where there may be several."),
    ] = 0.5,
    max_tokens: MaxTokens = None,
    truncate: Truncate = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    batch_tokens: options.BatchTokens = 8192,
    force: Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Classify texts, or pairs of them, with any encoder that has a trained head; labels are the checkpoint's.

    A file is one text, a line of JSON Lines another. A model with one output gives a score in place of a label, one for
    several labels those from the threshold on. A run that was stopped goes on where it was, by the same command.
    """
    from narrows.documents.texts import require_inputs

    require_inputs(inputs, field=field, pair_field=pair_field)
    target = None if out == "-" else _checked_target(Path(out), force=force)
    began = time.perf_counter()
    classifier = _load(
        model,
        max_tokens=max_tokens,
        threshold=threshold,
        device=options.place(device),
        dtype=dtype,
        batch_tokens=batch_tokens,
    )
    windows = partial(classifier.windows, truncate=truncate)
    with texts_of(inputs, field=field, pair_field=pair_field, quiet=quiet) as texts:
        if target is None:
            totals = to_stdout(windows, texts, partial(_show, classifier, all_scores, json), quiet=quiet)
        else:
            totals = run_texts(
                windows,
                texts,
                out=target,
                rows=_lines(classifier, all_scores),
                settings={**classifier.settings(), "all_scores": all_scores},
                force=force,
                label="Classifying",
                quiet=quiet,
            )
    seconds = time.perf_counter() - began
    report(totals, seconds=seconds, max_tokens=classifier.max_tokens, quiet=quiet)
    if json and target is not None:
        options.emit_json({"out": target, "labels": classifier.labels, **totals._asdict(), "seconds": seconds})


def _checked_target(path: Path, *, force: bool) -> Path:
    from narrows.serving.result_files import require_free
    from narrows.training.writing import require_place

    if path.suffix != ".jsonl":
        raise UsageError(f"expected an output of .jsonl, or - for stdout, got {path.name}; give it this suffix")
    require_free(path, force=force)
    require_place(path)
    return path


def _load(model: str, **settings: Any) -> "Classifier":
    from transformers.utils import logging

    from narrows.cli.convert import require_checkpoint
    from narrows.serving.classifier import Classifier

    require_checkpoint(model)
    logging.disable_progress_bar()
    return Classifier.from_pretrained(model, **settings)


def _lines(classifier: "Classifier", all_scores: bool) -> Any:
    from narrows.serving.result_formats import JsonLines

    return JsonLines(partial(_record, classifier, all_scores))


def _record(classifier: "Classifier", all_scores: bool, row: "Row") -> dict[str, Any]:
    found = classifier.read(row)
    if classifier.problem == "regression":
        # Of several values none stands for the others.
        return {"scores": found.scores} if all_scores or found.score is None else {"score": found.score}
    if classifier.problem == "multi_label":
        said: dict[str, Any] = {"labels": {label: found.scores[label] for label in found.labels}}
    else:
        said = {"label": found.label, "probability": found.score}
    return {**said, "scores": found.scores} if all_scores else said


def _show(classifier: "Classifier", all_scores: bool, json: bool, row: "Row") -> None:
    if json:
        options.emit_json(_lines(classifier, all_scores).record(row), indent=None)
        return
    found = classifier.read(row)
    if classifier.problem == "regression" or all_scores:
        shown = [f"{label} {score:.4f}" for label, score in found.scores.items()]
        if classifier.problem == "regression" and len(shown) == 1:
            shown = [f"{found.score:.4f}"]
    else:
        shown = [f"{label} {found.scores[label]:.4f}" for label in found.labels] or ["none"]
    typer.echo("\t".join([one_line(str(row.text.id)), *map(one_line, shown)]))
