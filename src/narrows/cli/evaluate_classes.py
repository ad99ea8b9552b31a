"""The part of `narrows evaluate` that is for classifiers: scores with intervals, beside always saying the commonest."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows.cli import options
from narrows.cli.evaluation_files import default_file, write_json
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.data import ClassExample, ClassRows
    from narrows.evaluation.classification import ClassEvaluation, ClassModel

__all__ = ["Truncate", "run"]

Truncate = Annotated[
    bool, typer.Option("--truncate", help="Of a classifier: cut longer texts; else as it was trained.")
]


def run(
    model: str, data: Path, *, against: str | None, given: Mapping[str, Any], work: Mapping[str, Any], json: bool
) -> None:
    """Score a classifier on labelled data, and write what came of it.

    Args:
        against: another classifier with the same labels.
        given: layout, longest text, None where one was not given, and whether to truncate.
        work: device, padded tokens of a batch, and whether to be quiet.
    """
    from transformers.utils import logging

    from narrows.cli.convert import require_checkpoint
    from narrows.evaluation.classification import compare_classes

    logging.disable_progress_bar()
    if against is not None:
        require_checkpoint(against)
    work = {**work, "device": options.place(work["device"])}
    found, rows, trained = _evaluate(model, data, given=given, **work)
    figures = _figures(found, rows, trained, model=model, data=data)
    if against is not None:
        theirs, _, _ = _evaluate(against, data, given=given, **work)
        figures["against"] = {
            "model": against,
            "scores": {name: score._asdict() for name, score in theirs.scores.items()},
            "differences": {name: one._asdict() for name, one in compare_classes(found, theirs).items()},
        }
    target = default_file(model, data, None)
    target = target.with_name(f"{target.stem}-classification.scores.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, figures)
    if json:
        options.emit_json(figures)
    else:
        _print_table(figures)
    options.stderr_console(quiet=work["quiet"]).print(f"figures in {target}", markup=False)


def _evaluate(
    model: str, data: Path, *, given: Mapping[str, Any], device: str, batch_tokens: int, quiet: bool
) -> "tuple[ClassEvaluation, ClassRows, ClassModel]":
    from narrows.data import encode_classes
    from narrows.evaluation.classification import evaluate_classes, load_class_model, predict_classes

    loaded = load_class_model(model)
    examples = _read(data, loaded, model, given["layout"])
    noted = loaded.trained
    longest = _longest(loaded, model, given["max_tokens"])
    rows = encode_classes(
        examples,
        loaded.tokenizer,
        problem=loaded.problem,
        labels=loaded.labels,
        max_tokens=longest,
        truncate=given["truncate"] or (noted is not None and noted.truncate),
    )
    loaded.model.to(device)
    with options.progress(len(rows), f"Classifying with {model}", quiet) as advance:
        said = predict_classes(loaded.model, rows, loaded.tokenizer, batch_tokens=batch_tokens, on_rows=advance)
    majority = None if noted is None else noted.majority
    return evaluate_classes(said, rows, labels=loaded.labels, majority=majority), rows, loaded


def _read(data: Path, loaded: "ClassModel", model: str, layout: str | None) -> "list[ClassExample]":
    """The examples, in the layout that is asked for, or that the model was trained on."""
    from narrows.data import read_examples

    if layout is None:
        if loaded.trained is None:
            raise UsageError(
                f"expected --layout, since {model} does not say what it was trained on, got none; name one"
            )
        return read_examples(data, layout=loaded.trained.layout, fields=loaded.trained.fields)
    return read_examples(data, **_options(layout))


def _longest(loaded: "ClassModel", model: str, asked: int | None) -> int:
    """The longest text that is asked for, else that of training, else that the model can read."""
    from narrows.hf.encoders import Encoder

    encoder = Encoder(model, loaded.model, loaded.tokenizer)
    if asked is not None and encoder.positions is not None and asked > encoder.positions:
        raise UsageError(
            f"expected --max-input-tokens of at most {encoder.positions:,}, the positions of {model}, got {asked:,}; "
            "pass a smaller number"
        )
    if asked is not None:
        return asked
    if loaded.trained is not None:
        return loaded.trained.max_tokens
    return encoder.trained_tokens or loaded.tokenizer.model_max_length


def _options(layout: str) -> dict[str, Any]:
    """A format by its name, or with options as a recipe's part has them."""
    import yaml
    from pydantic import ValidationError

    from narrows.training.classification.recipe import LabelledPart

    try:
        read = yaml.safe_load(layout)
        named = dict(read) if isinstance(read, dict) else {"format": layout}
        part = LabelledPart.model_validate({**named, "file": "-"})
    except (yaml.YAMLError, ValidationError) as error:
        raise UsageError(
            f"expected --layout as a format, or as a part of a recipe such as '{{format: folders, folds: 10, take: "
            f"[9]}}', got {layout!r}; correct it"
        ) from error
    made = {"layout": part.format, "fields": part.fields, "skip_broken": part.skip_broken}
    return {**made, "folds": part.folds, "take": part.take}


def _figures(
    found: "ClassEvaluation", rows: "ClassRows", loaded: "ClassModel", *, model: str, data: Path
) -> dict[str, Any]:
    from importlib.metadata import version

    of_training = loaded.trained is not None
    majority: Any = found.majority
    if loaded.labels and loaded.problem != "regression":
        majority = loaded.labels[int(found.majority)]
    return {
        "model": model,
        "data": data.name,
        "task": "classification",
        "problem": loaded.problem,
        "labels": list(loaded.labels),
        "scores": {name: score._asdict() for name, score in found.scores.items()},
        "baseline": {
            "says": majority,
            "commonest_of": "the training data" if of_training else "this data",
            "scores": {name: score._asdict() for name, score in found.baseline.items()},
            "differences": {name: one._asdict() for name, one in found.over_baseline.items()},
        },
        "rows": len(rows),
        "texts_cut": rows.truncated,
        "versions": {package: version(package) for package in ("narrows", "torch", "transformers")},
    }


def _in_words(majority: Any, problem: str) -> str:
    if problem == "regression":
        return f"{majority:.4g}, the mean"
    if problem == "choices":
        # Counted from 1 where people read it.
        return f"choice {majority + 1:.0f}, the commonest"
    return f"{majority}, the commonest"


def _print_table(figures: Mapping[str, Any]) -> None:
    baseline = figures["baseline"]
    for name, score in figures["scores"].items():
        typer.echo(f"{name:<22}{score['mean']:>8.2f}  [{score['low']:.2f}, {score['high']:.2f}]")
    source = baseline["commonest_of"]
    typer.echo(f"always {_in_words(baseline['says'], figures['problem'])} of {source}:")
    for name, score in baseline["scores"].items():
        over = baseline["differences"][name]
        interval = f"[{over['low']:+.2f}, {over['high']:+.2f}]"
        typer.echo(f"{'  ' + name:<22}{score['mean']:>8.2f}  model over it {over['mean_difference']:+.2f} {interval}")
    typer.echo(f"{'examples':<22}{figures['rows']:>8,}")
    typer.echo(f"{'texts cut':<22}{figures['texts_cut']:>8,}")
    for name, other in figures.get("against", {}).get("differences", {}).items():
        interval = f"[{other['low']:+.2f}, {other['high']:+.2f}]"
        typer.echo(f"{name + ' over the other':<26}{other['mean_difference']:>+8.2f}  {interval}")
