"""The part of `narrows evaluate` that is for causal language models: how well they foretell a text."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows.cli import options
from narrows.cli.evaluation_files import default_file, write_json
from narrows.errors import NarrowsError, UsageError

if TYPE_CHECKING:
    from narrows.evaluation.language import LanguageEvaluation
    from narrows.training.language.data import TextLine

__all__ = ["Length", "Stride", "run"]

_NAMES = {"bits_per_byte": "bits per byte", "perplexity": "perplexity", "loss": "loss (nats a token)"}
# That a model which says nothing of itself reads at once.
_LENGTH = 1024

Length = Annotated[
    int | None,
    typer.Option(
        "--length",
        min=1,
        help="Of a language model: tokens read at once.",
        show_default="as it was trained, else as many as it can, at most 1024",
    ),
]
Stride = Annotated[
    int | None,
    typer.Option(
        "--stride",
        min=1,
        help="Of a language model: tokens scored anew in each window, with at least length - stride before them.",
        show_default="the length",
    ),
]


def run(model: str, data: Path, *, length: int | None, stride: int | None, work: Mapping[str, Any], json: bool) -> None:
    """Score each token of a text by a causal language model, and write what came of it.

    Args:
        data: file of the text: bytes as they stand (also .gz, .bz2, .xz) for a model of bytes, else UTF-8.
        length: tokens read at once, if said.
        stride: tokens scored anew in each window, if said.
        work: device, tokens of a batch, and whether to be quiet.
    """
    import tempfile
    import time

    from transformers.utils import logging

    from narrows.evaluation.language import evaluate_line
    from narrows.evaluation.language_models import load_language_model
    from narrows.training.language.data import require_ids
    from narrows.training.language.model import tokenizer_of

    logging.disable_progress_bar()
    tokenizer = tokenizer_of(model)
    trained = load_language_model(model)
    length = _length(trained.config, model, length)
    trained.to(options.place(work["device"]))
    with tempfile.TemporaryDirectory() as folder:
        line = _read(data, tokenizer, Path(folder))
        require_ids(line, tokenizer, trained.config.vocab_size)
        began = time.perf_counter()
        with options.progress(len(line) - 1, f"Reading with {model}, tokens", work["quiet"]) as advance:
            found = evaluate_line(
                trained, line, length=length, stride=stride, batch_tokens=work["batch_tokens"], on_tokens=advance
            )
        seconds = time.perf_counter() - began
    if not math.isfinite(found.scores()["perplexity"]):
        raise NarrowsError(
            f"expected a finite loss of {model} on {data}, got {found.loss}: its weights are lost; name another model"
        )
    reading = {"reads": "bytes" if tokenizer is None else "tokens", "length": length, "stride": stride or length}
    figures = _figures(found, model=model, data=data, seconds=seconds, reading=reading)
    target = default_file(model, data, None)
    target = target.with_name(f"{target.stem}-language-model.scores.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, figures)
    if json:
        options.emit_json(figures)
    else:
        _print_table(figures)
    options.stderr_console(quiet=work["quiet"]).print(f"figures in {target}", markup=False)


def _length(config: Any, model: str, asked: int | None) -> int:
    """The length that is asked for, else that of training, else what the model can read."""
    from narrows._plural import count
    from narrows.evaluation.language_models import positions_of, trained_language

    positions, noted = positions_of(config), trained_language(config)
    if asked is None:
        return noted.length if noted is not None else min(positions or _LENGTH, _LENGTH)
    if positions is not None and asked > positions:
        raise UsageError(
            f"expected --length of at most the {count(positions, 'position')} of {model}, got {asked:,}; lower it"
        )
    return asked


def _read(data: Path, tokenizer: Any | None, folder: Path) -> "TextLine":
    """The file as one line: of subwords one document, whatever blank lines there are in it."""
    from narrows.data import read_pieces
    from narrows.training.language.data import token_line
    from narrows.training.language.text import byte_line

    if tokenizer is None:
        return byte_line([data], folder)
    return token_line(read_pieces(data, layout="file"), tokenizer, folder)


def _figures(
    found: "LanguageEvaluation", *, model: str, data: Path, seconds: float, reading: Mapping[str, Any]
) -> dict[str, Any]:
    from importlib.metadata import version

    tokens = int(found.tokens.sum())
    return {
        "model": model,
        "data": data.name,
        "task": "language-model",
        "scores": {name: score._asdict() for name, score in found.intervals().items()},
        "tokens": tokens,
        "bytes": found.bytes,
        "tokens_per_second": round(tokens / seconds, 1),
        "reading": reading,
        "versions": {package: version(package) for package in ("narrows", "torch", "transformers")},
    }


def _print_table(figures: Mapping[str, Any]) -> None:
    for name, label in _NAMES.items():
        score = figures["scores"][name]
        typer.echo(f"{label:<22}{score['mean']:>12.4f}  [{score['low']:.4f}, {score['high']:.4f}]")
    for name in ("tokens", "bytes"):
        typer.echo(f"{name:<22}{figures[name]:>12,}")
    typer.echo(f"{'tokens a second':<22}{figures['tokens_per_second']:>12,.0f}")
