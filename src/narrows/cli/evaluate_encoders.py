"""The part of `narrows evaluate` that is for encoders: how good their vectors are, with intervals, beside another's."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from narrows.cli import options
from narrows.cli.evaluation_files import default_file, write_json
from narrows.cli.texts import require_encoder
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.data import LabelledTexts, RetrievalData
    from narrows.evaluation.encoders import EncoderEvaluation

__all__ = ["PoolingName", "Task", "TrainRows", "run"]

Task = Annotated[
    Literal["retrieval", "probe", "classification", "language-model"] | None,
    typer.Option(
        "--task",
        help="Score an encoder's vectors. retrieval: DATA is a file in the layout of ReQA or a folder in that of BEIR; "
        "probe: DATA is a folder with train.tsv and test.tsv, or a .zip with a folder a class. classification: score "
        "what a model was fine-tuned to say; DATA is in the layout that it was trained on, or that of --layout. "
        "language-model: how well a causal language model foretells a text; DATA is a file.",
        show_default=False,
    ),
]
PoolingName = Annotated[
    Literal["mean", "cls", "max"] | None,
    typer.Option("--pooling", help="Of an encoder: as the checkpoint says, else mean.", show_default=False),
]
TrainRows = Annotated[
    int | None,
    typer.Option(
        "--train-rows", min=1, help="Of a probe: how many texts, evenly spread, to train on.", show_default="all"
    ),
]

_NAMES = {
    "mrr@10": "MRR@10",
    "ndcg@10": "nDCG@10",
    "recall@10": "recall@10",
    "recall@100": "recall@100",
    "accuracy": "accuracy",
}


def run(
    model: str,
    data: Path,
    *,
    task: str,
    against: str | None,
    given: Mapping[str, Any],
    work: Mapping[str, Any],
    json: bool,
) -> None:
    """Embed the texts of a task with an encoder, score the vectors, and write what came of it.

    Args:
        task: `retrieval` or `probe`.
        given: pooling, longest text and training texts, None where one was not given.
        work: device, padded tokens of a batch, and whether to be quiet.
    """
    from transformers.utils import logging

    from narrows.evaluation.encoders import compare_encoders

    logging.disable_progress_bar()
    if given["train_rows"] is not None and task != "probe":
        raise UsageError(f"expected --train-rows with --task probe, got --task {task}; leave it out")
    if against is not None:
        require_encoder(against)
    texts = _read(data, task, given["train_rows"])
    work = {**work, "device": options.place(work["device"])}
    found, reading = _evaluate(model, texts, given=given, **work)
    figures = _figures(found, model=model, data=data, task=task, reading=reading)
    if against is not None:
        theirs, other = _evaluate(against, texts, given=given, **work)
        figures["against"] = {
            "model": against,
            "scores": {name: score._asdict() for name, score in theirs.scores.items()},
            "reading": other,
            "differences": {name: one._asdict() for name, one in compare_encoders(found, theirs).items()},
        }
    target = default_file(model, data, None)
    target = target.with_name(f"{target.stem}-{task}.scores.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, figures)
    if json:
        options.emit_json(figures)
    else:
        _print_table(figures)
    options.stderr_console(quiet=work["quiet"]).print(f"figures in {target}", markup=False)


def _read(data: Path, task: str, train_rows: int | None) -> "RetrievalData | LabelledTexts":
    from narrows.data import LabelledTexts, evenly_spread, read_labelled, read_retrieval
    from narrows.data.labelled import TRAIN_ONLY

    if task == "retrieval":
        return read_retrieval(data)
    texts = read_labelled(data)
    if train_rows is None:
        return texts
    train = [number for number, part in enumerate(texts.parts) if part == TRAIN_ONLY]
    if not train:
        raise UsageError(
            f"expected --train-rows for data with a training part of its own, got {data}, whose parts train one "
            "another; leave it out"
        )
    kept = sorted({*evenly_spread(train, train_rows), *(n for n, part in enumerate(texts.parts) if part != TRAIN_ONLY)})
    return LabelledTexts(
        tuple(texts.texts[number] for number in kept),
        tuple(texts.labels[number] for number in kept),
        tuple(texts.parts[number] for number in kept),
        texts.classes,
    )


def _evaluate(
    model: str,
    texts: "RetrievalData | LabelledTexts",
    *,
    given: Mapping[str, Any],
    device: str,
    batch_tokens: int,
    quiet: bool,
) -> "tuple[EncoderEvaluation, dict[str, Any]]":
    """An evaluation, and how the texts were read."""
    import numpy as np

    from narrows.data import RetrievalData
    from narrows.evaluation.encoders import evaluate_probe, evaluate_retrieval
    from narrows.serving.embedder import Embedder

    embedder = Embedder.from_pretrained(
        model,
        pooling=given["pooling"],
        # Scores are of directions.
        normalize=True,
        max_tokens=given["max_tokens"],
        device=device,
        batch_tokens=batch_tokens,
    )
    cut = 0
    with options.progress(None, f"Embedding with {model}, tokens", quiet) as advance:

        def embed(chosen: Any, by: Embedder = embedder) -> Any:
            nonlocal cut
            windows = by.windows(chosen, truncate=True, wordless=True, on_tokens=advance)
            rows = [row for window in windows for row in window]
            cut += sum(row.tokens_not_read > 0 for row in rows)
            return np.stack([row.value for row in rows]) if rows else np.empty((0, by.width), dtype=np.float32)

        reading: dict[str, Any] = {"pooling": embedder.pooling, "max_input_tokens": embedder.max_tokens}
        if isinstance(texts, RetrievalData):
            sides = {"queries": embedder.of_queries(), "candidates": embedder.of_documents()}
            found = evaluate_retrieval(
                partial(embed, by=sides["candidates"]), texts, embed_queries=partial(embed, by=sides["queries"])
            )
            if any(side.prompt for side in sides.values()):
                reading["prompts"] = {name: side.prompt for name, side in sides.items()}
        else:
            found = evaluate_probe(embed, texts)
            if embedder.prompt:
                reading["prompts"] = {"texts": embedder.prompt}
    return found, {**reading, "texts_cut": cut}


def _figures(
    found: "EncoderEvaluation", *, model: str, data: Path, task: str, reading: Mapping[str, Any]
) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "model": model,
        "data": data.name,
        "task": task,
        "scores": {name: score._asdict() for name, score in found.scores.items()},
        **found.facts,
        "reading": reading,
        "versions": {package: version(package) for package in ("narrows", "torch", "transformers")},
    }


def _print_table(figures: Mapping[str, Any]) -> None:
    for name, score in figures["scores"].items():
        typer.echo(f"{_NAMES[name]:<22}{score['mean']:>8.2f}  [{score['low']:.2f}, {score['high']:.2f}]")
    for name in ("queries", "candidates", "texts", "train_texts", "width"):
        if name in figures:
            typer.echo(f"{name.replace('_', ' '):<22}{figures[name]:>8,}")
    typer.echo(f"{'texts cut':<22}{figures['reading']['texts_cut']:>8,}")
    for name, other in figures.get("against", {}).get("differences", {}).items():
        interval = f"[{other['low']:+.2f}, {other['high']:+.2f}]"
        typer.echo(f"{_NAMES[name] + ' over the other':<26}{other['mean_difference']:>+8.2f}  {interval}")
