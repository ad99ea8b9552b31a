"""`narrows convert`: a checkpoint into a DeFormer, a LongT5-Mulla or a Funnel, or a Funnel back to transformers."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from narrows._text import surrogate_in
from narrows.cli import options
from narrows.errors import UsageError

__all__ = ["command", "require_checkpoint"]

# Which options each family has; those of another are refused by name.
_OF_DEFORMER = ("split_layer", "passage_positions")
_OF_MULLA = ("variant", "pooling_rate", "num_levels", "local_radius", "new_tables")
_OF_FUNNEL = (
    "block_sizes",
    "block_repeats",
    "position_type",
    "num_decoder_layers",
    "semantics",
    "embedding_pooling",
)
_OF_FAMILY = {"deformer": _OF_DEFORMER, "mulla": _OF_MULLA, "funnel": _OF_FUNNEL, "transformers": ()}
_TASKS = {
    "deformer": ("question-answering", "sequence-classification", "encoder"),
    "mulla": ("generation", "question-answering", "sequence-classification", "encoder", "embedding"),
    "funnel": (
        "encoder",
        "full",
        "embedding",
        "sequence-classification",
        "multiple-choice",
        "token-classification",
        "question-answering",
        "conditional-question-answering",
        "masked-lm",
        "replaced-token-detection",
        "electra",
    ),
    "transformers": (),
}


_Checkpoint = Annotated[
    str,
    typer.Argument(
        help="A folder or a hub id: for deformer a BERT, or a DeFormer to split elsewhere; for mulla a LongT5, T5, "
        "Flan-T5 or mT5; for funnel a Funnel of transformers or of its authors, or a BERT; for transformers a Funnel "
        "of narrows."
    ),
]
_Task = Annotated[
    Literal[
        "generation",
        "question-answering",
        "sequence-classification",
        "encoder",
        "embedding",
        "full",
        "multiple-choice",
        "token-classification",
        "conditional-question-answering",
        "masked-lm",
        "replaced-token-detection",
        "electra",
    ]
    | None,
    typer.Option("--task", help="The head; by default the checkpoint's own.", show_default=False),
]
_SplitLayer = Annotated[
    int | None,
    typer.Option(
        "--split-layer",
        "-k",
        help="deformer: layers that read question and passage apart; 0 is the joint model.",
        show_default=False,
    ),
]
_PassagePositions = Annotated[
    Literal["restart", "continue"] | None,
    typer.Option(
        "--passage-positions",
        help="deformer: where the passage counts from (restart); continue only with split layer 0.",
        show_default=False,
    ),
]
_Variant = Annotated[
    Literal["dynamic", "fixed"] | None,
    typer.Option(
        "--variant", help="mulla: as many levels as a text needs (dynamic), or a fixed number.", show_default=False
    ),
]
_PoolingRate = Annotated[
    int | None,
    typer.Option(
        "--pooling-rate",
        help="mulla: slots of a level that one of the next covers (8 for dynamic, 4 for fixed).",
        show_default=False,
    ),
]
_NumLevels = Annotated[
    int | None,
    typer.Option("--num-levels", help="mulla: levels of the fixed variant (3).", show_default=False),
]
_LocalRadius = Annotated[
    int | None,
    typer.Option(
        "--local-radius",
        help="mulla: slots seen to each side, at every level (the checkpoint's, or 127).",
        show_default=False,
    ),
]
_NewTables = Annotated[
    Literal["local", "global"] | None,
    typer.Option(
        "--new-tables",
        help="mulla: the checkpoint's table that the fixed variant's pooled levels start from (local).",
        show_default=False,
    ),
]
_BlockSizes = Annotated[
    str | None,
    typer.Option(
        "--block-sizes",
        help="funnel, from a BERT: layers of each block, such as 2,2,2, spread over the BERT's.",
        show_default=False,
    ),
]
_BlockRepeats = Annotated[
    str | None,
    typer.Option(
        "--block-repeats",
        help="funnel: how often each layer of a block runs, such as 1,2,2 (the checkpoint's; once for a BERT).",
        show_default=False,
    ),
]
_PositionType = Annotated[
    Literal["relative", "absolute"] | None,
    typer.Option(
        "--position-type",
        help="funnel, from a BERT: new relative positions, for texts of any length (relative), or the BERT's own, so "
        "that less has to be distilled.",
        show_default=False,
    ),
]
_DecoderLayers = Annotated[
    int | None,
    typer.Option(
        "--num-decoder-layers",
        help="funnel: layers of the decoder (the checkpoint's; 2 for a BERT whose head reads tokens).",
        show_default=False,
    ),
]
_Semantics = Annotated[
    Literal["exact", "official", "hf"] | None,
    typer.Option(
        "--semantics",
        help="funnel: padding changes nothing (exact), or as the authors' code or transformers has it.",
        show_default=False,
    ),
]
_EmbeddingPooling = Annotated[
    Literal["mean", "cls", "max"] | None,
    typer.Option(
        "--embedding-pooling",
        help="funnel, of --task embedding: how slots become one vector (as the checkpoint says, else mean).",
        show_default=False,
    ),
]


def command(
    checkpoint: _Checkpoint,
    out: Annotated[Path, typer.Argument(help="Folder to write the model to.")],
    to: Annotated[
        Literal["deformer", "mulla", "funnel", "transformers"],
        typer.Option("--to", help="The family to convert to; transformers: a Funnel back to its own format."),
    ] = "deformer",
    task: _Task = None,
    split_layer: _SplitLayer = None,
    passage_positions: _PassagePositions = None,
    variant: _Variant = None,
    pooling_rate: _PoolingRate = None,
    num_levels: _NumLevels = None,
    local_radius: _LocalRadius = None,
    new_tables: _NewTables = None,
    block_sizes: _BlockSizes = None,
    block_repeats: _BlockRepeats = None,
    position_type: _PositionType = None,
    num_decoder_layers: _DecoderLayers = None,
    semantics: _Semantics = None,
    embedding_pooling: _EmbeddingPooling = None,
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
        "block_sizes": _numbers("--block-sizes", block_sizes),
        "block_repeats": _numbers("--block-repeats", block_repeats),
        "position_type": position_type,
        "num_decoder_layers": num_decoder_layers,
        "semantics": semantics,
        "embedding_pooling": embedding_pooling,
    }
    given = {name: value for name, value in given.items() if value is not None}
    _refuse_other_families(to, given, task)
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
        fields = {name: getattr(model.config, name) for name in _OF_FAMILY[to] if hasattr(model.config, name)}
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


def _numbers(option: str, text: str | None) -> list[int] | None:
    """Numbers with commas between them."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"{option} must be numbers with commas between them, such as 2,2,2, got {text!r}; change it")
    return [int(part) for part in parts]


def _of_authors(folder: Path) -> bool:
    """Whether a folder holds a checkpoint of Funnel's authors, who have configs of their own."""
    return any((folder / name).is_file() for name in ("net_config.json", "net_config.pytorch.json"))


def _refuse_other_families(family: str, given: dict[str, Any], task: str | None) -> None:
    for name in given:
        if name not in _OF_FAMILY[family]:
            raise UsageError(
                f"expected options of {family}, got --{name.replace('_', '-')}, which it does not have; leave it out, "
                "or choose another family with --to"
            )
    if task is not None and not _TASKS[family]:
        raise UsageError(f"expected no --task for {family}, got {task}; the checkpoint's own head is kept")
    if task is not None and task not in _TASKS[family]:
        raise UsageError(
            f"--task must be one of {', '.join(_TASKS[family])} for {family}, got {task}; choose one of them"
        )
    if family == "deformer" and "split_layer" not in given:
        raise UsageError("expected --split-layer (-k) for deformer, got none; 0 is the joint model")


def _converter(family: str) -> Callable[..., tuple[Any, Any]]:
    if family == "transformers":
        from narrows.funnel.to_transformers import to_transformers

        return lambda folder, *, task: to_transformers(folder)
    return import_module(f"narrows.{family}.convert").convert_checkpoint


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
        if type(model).__name__ in ("FunnelForEmbedding", "DeformerModel"):
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
    if type(model).__name__ == "DeformerModel":
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
