"""`narrows convert`: a checkpoint into one of a narrows family, or a Funnel back to transformers."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from narrows._text import surrogate_in
from narrows.cli import convert_options as has
from narrows.cli import options
from narrows.errors import UsageError

__all__ = ["command", "require_checkpoint"]

# Encoders whose vectors are pooled as their source's.
_BARE = ("DeformerModel", "BottleneckBertModel")


def command(
    checkpoint: has.Checkpoint,
    out: Annotated[Path, typer.Argument(help="Folder to write the model to.")],
    to: Annotated[
        Literal["deformer", "mulla", "funnel", "bottleneck", "transformers"],
        typer.Option("--to", help="The family to convert to; transformers: a Funnel back to its own format."),
    ] = "deformer",
    task: has.Task = None,
    split_layer: has.SplitLayer = None,
    passage_positions: has.PassagePositions = None,
    variant: has.Variant = None,
    pooling_rate: has.PoolingRate = None,
    num_levels: has.NumLevels = None,
    local_radius: has.LocalRadius = None,
    new_tables: has.NewTables = None,
    block_sizes: has.BlockSizes = None,
    block_repeats: has.BlockRepeats = None,
    position_type: has.PositionType = None,
    num_decoder_layers: has.DecoderLayers = None,
    semantics: has.Semantics = None,
    embedding_pooling: has.EmbeddingPooling = None,
    layers: has.Layers = None,
    bottleneck_ratio: has.BottleneckRatio = None,
    bottleneck_heads: has.BottleneckHeads = None,
    calibrate: has.Calibrate = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Turn a checkpoint into a cheaper model, with a report of every tensor.

    The report is kept beside the model as conversion.json.
    """
    given = {
        "split_layer": split_layer,
        "passage_positions": passage_positions,
        "variant": variant,
        "pooling_rate": pooling_rate,
        "num_levels": num_levels,
        "local_radius": local_radius,
        "new_tables": new_tables,
        "block_sizes": has.numbers("--block-sizes", block_sizes),
        "block_repeats": has.numbers("--block-repeats", block_repeats),
        "position_type": position_type,
        "num_decoder_layers": num_decoder_layers,
        "semantics": semantics,
        "embedding_pooling": embedding_pooling,
        "layers": has.numbers("--layers", layers, example="4,5,6"),
        "bottleneck_ratio": bottleneck_ratio,
        "bottleneck_heads": bottleneck_heads,
        "calibrate": calibrate,
    }
    given = {name: value for name, value in given.items() if value is not None}
    has.refuse_other_families(to, given, task)
    _check_out(out, force=force)
    if to != "funnel" or not _of_authors(Path(checkpoint)):
        require_checkpoint(checkpoint)

    from narrows.hf.checkpoints import checkpoint_folder

    folder = checkpoint_folder(checkpoint)
    if out.resolve() == folder.resolve():
        raise UsageError(f"expected another folder than the checkpoint's own, got {out}; its weights would be lost")
    tokenizer = _tokenizer(folder, to)
    model, report = _converter(to)(folder, task=task, **given)
    _write(model, report, tokenizer, out, source=folder)
    if json:
        fields = {name: getattr(model.config, name) for name in has.OF_FAMILY[to] if hasattr(model.config, name)}
        options.emit_json({"model": out, **fields, **report.as_dict()})
    console = options.stderr_console(quiet=quiet)
    console.print(report.summary(), markup=False, soft_wrap=True)
    console.print(f"written to {out}, each tensor in conversion.json", markup=False, soft_wrap=True)


def require_checkpoint(checkpoint: str) -> None:
    """Refuse what can be neither a checkpoint's folder nor a hub id, before anything is loaded.

    Raises:
        UsageError: a path to nothing or to a file, or a folder without config.json.
    """
    path = Path(checkpoint)
    is_path = path.is_absolute() or checkpoint.startswith((".", "~")) or len(path.parts) > 2
    if path.is_file() or (is_path and not path.is_dir()):
        kind = "a file" if path.is_file() else "nothing there"
        raise UsageError(f"expected a checkpoint's folder or a hub id, got {checkpoint!r} ({kind}); check the path")
    if path.is_dir() and not (path / "config.json").is_file():
        raise UsageError(f"expected a checkpoint's folder, got {checkpoint!r} without config.json; check the path")


def _of_authors(folder: Path) -> bool:
    """Whether a folder holds a checkpoint of Funnel's authors, who have configs of their own."""
    return any((folder / name).is_file() for name in ("net_config.json", "net_config.pytorch.json"))


def _converter(family: str) -> Callable[..., tuple[Any, Any]]:
    if family == "transformers":
        from narrows.funnel.to_transformers import to_transformers

        return lambda folder, *, task: to_transformers(folder)
    if family == "bottleneck":
        return _to_bottleneck
    return import_module(f"narrows.{family}.convert").convert_checkpoint


def _to_bottleneck(folder: Path, *, calibrate: Path | None = None, **given: Any) -> tuple[Any, Any]:
    """As the library's, with texts from a file."""
    from narrows.bottleneck.from_encoder import convert_checkpoint
    from narrows.data.files import lines

    texts = [] if calibrate is None else [line.strip() for line in lines(calibrate) if line.strip()]
    if calibrate is not None and not texts:
        raise UsageError(f"expected texts in {calibrate}, one a line, got none; name another file")
    return convert_checkpoint(folder, texts=texts, **given)


def _tokenizer(folder: Path, family: str) -> Any:
    """A checkpoint's tokenizer; that of Funnel's authors is a vocabulary with a name of its own."""
    if _of_authors(folder):
        from narrows.funnel.authors import tokenizer_of

        return tokenizer_of(folder)
    from transformers import AutoTokenizer

    from narrows.hf.checkpoints import require_tokenizer
    from narrows.hf.register import register_all

    # transformers warns of a type that it does not know, even where only the tokenizer is read.
    register_all()
    require_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if family == "funnel":
        from narrows.funnel.authors import with_segments

        tokenizer = with_segments(tokenizer)
    return tokenizer


def _write(model: Any, report: Any, tokenizer: Any, out: Path, *, source: Path) -> None:
    """Model, tokenizer and report into a folder beside `out`, then all of it into `out`."""
    import shutil

    from transformers.utils import logging

    from narrows.training.writing import fresh_folder

    logging.disable_progress_bar()
    # "." and ".." have no name of their own.
    target = out.resolve()
    place = target if target.is_dir() else target.parent
    place.mkdir(parents=True, exist_ok=True)
    with fresh_folder(place, target) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        report.save(partial)
        if type(model).__name__ in ("FunnelForEmbedding", *_BARE):
            _write_layout(model, tokenizer, partial, source)
        target.mkdir(exist_ok=True)
        # The config comes last: a folder that has one is whole.
        for path in sorted(partial.iterdir(), key=lambda path: path.name == "config.json"):
            if (target / path.name).is_dir():
                shutil.rmtree(target / path.name)
            os.replace(path, target / path.name)


def _write_layout(model: Any, tokenizer: Any, folder: Path, source: Path) -> None:
    """How vectors are made, taken over from a source that says so."""
    from narrows.hf.sentence_layout import POOLINGS, load_dense, read_layout, save_layout

    layout = read_layout(source)
    if type(model).__name__ in _BARE:
        if layout.pooling in POOLINGS:
            save_layout(layout._replace(folder=folder), width=model.config.hidden_size, dense=load_dense(layout))
        return
    from narrows.funnel.heads import save_sentence_modules

    # A tokenizer without a limit says one of this size.
    known = [limit for limit in (layout.max_tokens, tokenizer.model_max_length) if limit and limit < 1_000_000]
    save_sentence_modules(
        folder,
        model.config,
        max_tokens=min(known, default=512),
        dense=load_dense(layout),
        source=None if layout.pooling is None else layout,
    )


def _check_out(out: Path, *, force: bool) -> None:
    if out.is_file():
        raise UsageError(f"expected a folder to write to, got the file {out}; choose another one")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(
            f"expected an empty or new folder, got {out}, which holds files; pass --force or choose another"
        )
    if surrogate_in(str(out.resolve())) is not None:
        # Weights and tokenizers are written by libraries that take no other.
        raise UsageError(f"expected a folder whose path is UTF-8, got {str(out)!r}; choose another one")
    parent = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UsageError(f"expected a folder to write to, got {out}, which cannot be made; choose another one")
