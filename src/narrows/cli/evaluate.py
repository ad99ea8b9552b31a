"""`narrows evaluate`: the scores of a reader, a summariser or an encoder on a data set, alone or beside another's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from narrows.cli import evaluate_classes, evaluate_encoders, evaluate_language, evaluate_summaries, options
from narrows.cli.ask import MOST_CANDIDATES
from narrows.cli.evaluate_calibrate import fit_rule, read_config, require_both_kinds
from narrows.cli.evaluation_files import default_file, write_json
from narrows.cli.summarize import Beams, MaxInputTokens, MaxNewTokens, Prefix, TruncationName
from narrows.cli.texts import require_encoder
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.data import QAExample
    from narrows.evaluation.run import NoAnswerRule, Prediction, SpanEvaluation

__all__ = ["command"]

# Enough to fit four numbers on, and read in minutes.
_QUESTIONS = 200
_MOST_QUESTIONS = 1_000_000_000


def command(
    model: Annotated[str, typer.Argument(help="A reader, a summariser or an encoder: a folder or a hub id.")],
    data: Annotated[
        Path,
        typer.Argument(
            help="Of a reader: questions in the layout of SQuAD v1.1 or v2.0, .json or .json.gz. Of a summariser: see "
            "--layout. Of an encoder: see --task."
        ),
    ],
    task: evaluate_encoders.Task = None,
    split: Annotated[
        Path | None,
        typer.Option("--split", help="JSON file with lists of titles, or of ids, by part.", show_default=False),
    ] = None,
    part: Annotated[
        str | None, typer.Option("--part", help="The part of the split to read.", show_default=False)
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Another model of the kind, or its predictions (.jsonl), to compare with.",
            show_default=False,
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", help="JSON Lines file to write, or to go on with.", show_default=False),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Fit when to refuse an answer on this data (with --candidates also how much retrieval counts), "
            "and write it into the model's config.",
        ),
    ] = False,
    candidates: Annotated[
        int | None,
        typer.Option(
            "--candidates",
            min=1,
            max=MOST_CANDIDATES,
            help="Ask the questions of a store of all the data's texts, reading this many passages for each; "
            "else each is asked of its own text.",
            show_default=False,
        ),
    ] = None,
    retrieval: Annotated[
        Literal["bm25", "dense", "both"] | None,
        typer.Option("--retrieval", help="How --candidates are found: bm25 unless said.", show_default=False),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(
            "--questions",
            min=0,
            max=_MOST_QUESTIONS,
            help=f"How many questions, drawn at random, to ask of the store: {_QUESTIONS} unless said, 0 for all.",
            show_default=False,
        ),
    ] = None,
    layout: evaluate_summaries.Layout = None,
    records: evaluate_summaries.Records = None,
    words: evaluate_summaries.Words = None,
    max_input_tokens: MaxInputTokens = None,
    truncation: TruncationName = None,
    beams: Beams = None,
    max_new_tokens: MaxNewTokens = None,
    prefix: Prefix = None,
    pooling: evaluate_encoders.PoolingName = None,
    train_rows: evaluate_encoders.TrainRows = None,
    truncate: evaluate_classes.Truncate = False,
    length: evaluate_language.Length = None,
    stride: evaluate_language.Stride = None,
    device: options.Device = "auto",
    batch_tokens: options.BatchTokens = 8192,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score a checkpoint on a task and compare it with another.

    What is done follows from the model. A reader is asked each question of its own text; with --candidates of a
    store of all texts, as `narrows ask` does. A summariser (LongT5-Mulla, LongT5, T5) writes a summary of each
    record, scored with ROUGE. With --task the vectors of any encoder are scored, the classes, choices or tags that
    a model was fine-tuned to give (classification), or how well a causal language model foretells a text
    (language-model). Predictions and figures are kept in MODEL/evaluation, or beside --predictions; a stopped
    evaluation of a reader or a summariser goes on there.
    """
    from narrows.cli.convert import require_checkpoint

    if task is None:
        require_checkpoint(model)
    else:
        require_encoder(model)
    if predictions is not None and predictions.is_dir():
        raise UsageError(f"expected a file for --predictions, got the folder {predictions}; name a .jsonl file")
    if calibrate and not Path(model).is_dir():
        raise UsageError(f"expected a model's folder to calibrate, got {model!r}; --calibrate writes into its config")
    of_readers = {
        "--calibrate": calibrate or None,
        "--candidates": candidates,
        "--retrieval": retrieval,
        "--questions": questions,
    }
    of_summarisers = {
        "--layout": layout,
        "--records": records,
        "--words": words,
        "--max-input-tokens": max_input_tokens,
        "--truncation": truncation,
        "--beams": beams,
        "--max-new-tokens": max_new_tokens,
        "--prefix": prefix,
    }
    of_texts = {"--split": split, "--part": part, "--predictions": predictions, **of_readers, **of_summarisers}
    of_encoders = {"--pooling": pooling, "--train-rows": train_rows}
    of_windows = {"--length": length, "--stride": stride}
    if task == "language-model":
        others = {**of_texts, **of_encoders, "--against": against, "--truncate": truncate or None}
        _refuse("without --task language-model only", others)
        work = {"device": device, "batch_tokens": batch_tokens, "quiet": quiet}
        evaluate_language.run(model, data, length=length, stride=stride, work=work, json=json)
        return
    _refuse("beside --task language-model only", of_windows)
    if task == "classification":
        others = {**of_texts, **of_encoders, "--layout": None, "--max-input-tokens": None}
        _refuse("without --task classification only", others)
        work = {"device": device, "batch_tokens": batch_tokens, "quiet": quiet}
        reading = {"layout": layout, "max_tokens": max_input_tokens, "truncate": truncate}
        evaluate_classes.run(model, data, against=against, given=reading, work=work, json=json)
        return
    _refuse("beside --task classification only", {"--truncate": truncate or None})
    if task is not None:
        _refuse("without --task only", {**of_texts, "--max-input-tokens": None})
        given = {"pooling": pooling, "train_rows": train_rows, "max_tokens": max_input_tokens}
        work = {"device": device, "batch_tokens": batch_tokens, "quiet": quiet}
        evaluate_encoders.run(model, data, task=task, against=against, given=given, work=work, json=json)
        return
    _refuse("beside --task only", of_encoders)
    if evaluate_summaries.is_summariser(model):
        _refuse("for readers only, and the model is a summariser", of_readers)
        evaluate_summaries.run(
            model,
            data,
            split=split,
            part=part,
            against=against,
            predictions=predictions,
            given={name[2:].replace("-", "_"): value for name, value in of_summarisers.items()},
            work={"device": device, "batch_tokens": batch_tokens, "quiet": quiet},
            json=json,
        )
        return
    _refuse("for summarisers only, and the model is a reader", of_summarisers)
    if candidates is None:
        _refuse("beside --candidates only", {"--retrieval": retrieval, "--questions": questions})
    else:
        _refuse("without --candidates only", {"--against": against, "--predictions": predictions})
    examples = _examples(data, split, part)

    from transformers.utils import logging

    logging.disable_progress_bar()
    if calibrate:
        read_config(Path(model))
        require_both_kinds(examples, str(data))
    work: dict[str, Any] = {"device": options.place(device), "batch_tokens": batch_tokens, "quiet": quiet}
    if candidates is not None:
        store = {"candidates": candidates, "retrieval": retrieval or "bm25", "calibrate": calibrate}
        store["questions"] = _QUESTIONS if questions is None else questions
        _from_store(model, examples, data, part, json=json, work=work, **store)
        return
    _from_own_texts(
        model, examples, data, part, against=against, target=predictions, calibrate=calibrate, json=json, work=work
    )


def _refuse(where: str, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"expected {name} {where}, got {value}; leave it out")


def _examples(data: Path, split: Path | None, part: str | None) -> "list[QAExample]":
    from narrows.data import read_split, read_squad

    if (split is None) != (part is None):
        raise UsageError("expected --split and --part together, got one of them; pass both or none")
    titles = None
    if split is not None and part is not None:
        parts = read_split(split)
        if part not in parts:
            raise UsageError(f"expected --part to be one of {', '.join(parts)}, got {part!r}; choose one of them")
        titles = parts[part]
    examples = list(read_squad(data, titles=titles))
    if not examples:
        raise UsageError(f"expected questions in {data}, got none; check the file and --part")
    # Predictions are kept by id: of two alike, one would be scored with the other's answer.
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise UsageError(f"expected every id once in {data}, got {example.id!r} twice; give each question its own")
        seen.add(example.id)
    return examples


def _evaluate(
    model: str, examples: "Sequence[QAExample]", target: Path, *, device: str, batch_tokens: int, quiet: bool
) -> "SpanEvaluation":
    from narrows.evaluation.run import evaluate_spans

    with options.progress(len(examples), f"Reading with {model}", quiet) as advance:
        return evaluate_spans(
            model,
            examples,
            predictions=target,
            device=device,
            batch_tokens=batch_tokens,
            on_examples=advance,
        )


def _rival(
    against: str, examples: "Sequence[QAExample]", data: Path, part: str | None, work: Mapping[str, Any]
) -> "tuple[Mapping[str, Prediction], NoAnswerRule | None]":
    """Another model's predictions and rule, or those of a file, whose texts are final."""
    from narrows.cli.convert import require_checkpoint
    from narrows.evaluation.run import read_predictions

    if against.endswith(".jsonl"):
        if not Path(against).is_file():
            raise UsageError(f"expected predictions at {against}, got no such file; check --against")
        return read_predictions(Path(against)), None
    require_checkpoint(against)
    found = _evaluate(against, examples, default_file(against, data, part), **work)
    return found.predictions, found.rule


def _from_own_texts(
    model: str,
    examples: "Sequence[QAExample]",
    data: Path,
    part: str | None,
    *,
    against: str | None,
    target: Path | None,
    calibrate: bool,
    json: bool,
    work: Mapping[str, Any],
) -> None:
    """Ask each question of its own text, and write what came of it."""
    from narrows.evaluation.run import compare, score

    target = target or default_file(model, data, part)
    found = _evaluate(model, examples, target, **work)
    if calibrate:
        rule = fit_rule(found.predictions, examples, Path(model))
        found = score(found.predictions, examples, rule=rule, truncated_questions=found.truncated_questions)
    difference = None
    if against is not None:
        theirs, rule = _rival(against, examples, data, part, work)
        difference = compare(found, theirs, examples, rule=rule)
    figures = _figures(found, model=model, data=data, part=part, against=against, difference=difference)
    write_json(target.with_name(target.name + ".scores.json"), figures)
    if json:
        options.emit_json(figures)
    else:
        _print_table(figures)
    options.stderr_console(quiet=work["quiet"]).print(f"predictions in {target}", markup=False)


def _from_store(
    model: str,
    examples: "Sequence[QAExample]",
    data: Path,
    part: str | None,
    *,
    json: bool,
    work: Mapping[str, Any],
    **store: Any,
) -> None:
    """Ask the questions of a store, and write what came of it."""
    from narrows.cli.evaluate_store import print_store, run_trial

    trial = run_trial(model, examples, **store, **work)
    figures = _figures(trial.scores, model=model, data=data, part=part, against=None, difference=None)
    figures["store"] = trial.figures
    target = default_file(model, data, part)
    target = target.with_name(f"{target.stem}-store.scores.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, figures)
    if json:
        options.emit_json(figures)
    else:
        _print_table(figures)
        print_store(figures["store"])
    options.stderr_console(quiet=work["quiet"]).print(f"figures in {target}", markup=False)


def _figures(
    found: "SpanEvaluation", *, model: str, data: Path, part: str | None, against: str | None, difference: Any
) -> dict[str, Any]:
    from importlib.metadata import version

    figures: dict[str, Any] = {
        "model": model,
        "data": data.name,
        "part": part,
        "scores": found.scores._asdict(),
        "f1_interval": [found.f1.low, found.f1.high],
        "rule": None if found.rule is None else found.rule._asdict(),
        "truncated_questions": found.truncated_questions,
        "versions": {package: version(package) for package in ("narrows", "torch", "transformers")},
    }
    if difference is not None:
        figures["against"] = {"model": against, "f1_difference": difference._asdict()}
    return figures


def _print_table(figures: Mapping[str, Any]) -> None:
    names = {
        "f1": "F1",
        "exact": "exact match",
        "has_answer_f1": "F1, answerable",
        "no_answer_accuracy": "refused, impossible",
        "balanced_accuracy": "balanced accuracy",
        "total": "questions",
    }
    for name, label in names.items():
        value = figures["scores"][name]
        if value is None:
            continue
        shown = f"{value:,}" if name == "total" else f"{value:.2f}"
        low, high = figures["f1_interval"]
        typer.echo(f"{label:<22}{shown:>8}" + (f"  [{low:.2f}, {high:.2f}]" if name == "f1" else ""))
    if "against" in figures:
        other = figures["against"]["f1_difference"]
        interval = f"[{other['low']:+.2f}, {other['high']:+.2f}]"
        typer.echo(f"{'F1 over the other':<22}{other['mean_difference']:>+8.2f}  {interval}")
