"""`narrows embed`: texts into vectors, to a file or to stdout."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from narrows.cli import options
from narrows.cli.texts import (
    Field,
    Force,
    Inputs,
    MaxTokens,
    Truncate,
    report,
    require_encoder,
    run_texts,
    texts_of,
    to_stdout,
)

if TYPE_CHECKING:
    from narrows.serving.embedder import Embedder

# The name of `narrows.hf.checkpoints.DEFAULT_CHECKPOINT`, which imports more than `--help` may.
_DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def command(
    inputs: Inputs,
    out: Annotated[
        str, typer.Option("--out", "-o", help="Where to: .npy, .safetensors, .jsonl, or - for JSON Lines on stdout.")
    ] = "-",
    model: options.Model = _DEFAULT_MODEL,
    field: Field = None,
    pooling: Annotated[
        Literal["mean", "cls", "max"] | None,
        typer.Option(
            "--pooling", help="How tokens become one vector.", show_default="as the checkpoint says, else mean"
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize", help="Give vectors length 1.", show_default="as the checkpoint says"
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="What stands before every text, such as 'query: '.", show_default=False),
    ] = None,
    prompt_name: Annotated[
        str | None, typer.Option("--prompt-name", help="The checkpoint's own prompt of this name.", show_default=False)
    ] = None,
    max_tokens: MaxTokens = None,
    truncate: Truncate = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    batch_tokens: options.BatchTokens = 8192,
    force: Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Turn texts into vectors, one each, with any encoder.

    A file is one text, a line of JSON Lines another. A run that was stopped goes on where it was, by the same command.
    Beside .npy and .safetensors lie the ids, in .ids.jsonl.
    """
    from narrows.documents.texts import require_inputs

    require_inputs(inputs, field=field)
    target = None if out == "-" else _checked_target(Path(out), force=force)
    began = time.perf_counter()
    embedder = _load(
        model,
        pooling=pooling,
        normalize=normalize,
        max_tokens=max_tokens,
        prompt=prompt,
        prompt_name=prompt_name,
        device=options.place(device),
        dtype=dtype,
        batch_tokens=batch_tokens,
    )
    with texts_of(inputs, field=field, quiet=quiet) as texts:
        if target is None:
            totals = _show(embedder, texts, truncate=truncate, quiet=quiet)
        else:
            totals = _write(embedder, texts, target, truncate=truncate, force=force, quiet=quiet)
    seconds = time.perf_counter() - began
    report(totals, seconds=seconds, max_tokens=embedder.max_tokens, quiet=quiet)
    if json and target is not None:
        options.emit_json({"out": target, "width": embedder.width, **totals._asdict(), "seconds": seconds})


def _checked_target(path: Path, *, force: bool) -> Path:
    from narrows.serving.result_files import require_free
    from narrows.serving.result_formats import embedding_format
    from narrows.training.writing import require_place

    embedding_format(path, 1, {})
    require_free(path, force=force)
    require_place(path)
    return path


def _load(model: str, **settings: Any) -> "Embedder":
    from transformers.utils import logging

    from narrows.serving.embedder import Embedder

    require_encoder(model)
    logging.disable_progress_bar()
    return Embedder.from_pretrained(model, **settings)


def _show(embedder: "Embedder", texts: Any, *, truncate: bool, quiet: bool) -> Any:
    from narrows.serving.result_formats import vector_lines

    lines = vector_lines()
    windows = partial(embedder.windows, truncate=truncate)
    return to_stdout(windows, texts, lambda row: options.emit_json(lines.record(row), indent=None), quiet=quiet)


def _write(embedder: "Embedder", texts: Any, target: Path, *, truncate: bool, force: bool, quiet: bool) -> Any:
    from narrows.serving.result_formats import embedding_format

    settings = embedder.settings()
    said = {name: str(value) for name, value in settings.items()}
    return run_texts(
        partial(embedder.windows, truncate=truncate),
        texts,
        out=target,
        rows=embedding_format(target, embedder.width, said),
        settings=settings,
        force=force,
        label="Embedding",
        quiet=quiet,
    )
