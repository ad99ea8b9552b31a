"""`narrows convert`: a BERT checkpoint into a DeFormer, or one of the T5 family into a LongT5-Mulla."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from narrows.cli import options
from narrows.errors import UsageError

__all__ = ["command", "require_checkpoint"]

# Which options each family has; those of another are refused by name.
_OF_DEFORMER = ("split_layer", "passage_positions")
_OF_MULLA = ("variant", "pooling_rate", "num_levels", "local_radius", "new_tables")
_OF_FAMILY = {"deformer": _OF_DEFORMER, "mulla": _OF_MULLA}
_TASKS = {
    "deformer": ("question-answering", "sequence-classification", "encoder"),
    "mulla": ("generation", "question-answering", "sequence-classification", "encoder", "embedding"),
}


_Checkpoint = Annotated[
    str,
    typer.Argument(
        help="A folder or a hub id: for deformer a BERT, or a DeFormer to split elsewhere; for mulla a LongT5, T5, "
        "Flan-T5 or mT5."
    ),
]
_Task = Annotated[
    Literal["generation", "question-answering", "sequence-classification", "encoder", "embedding"] | None,
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


def command(
    checkpoint: _Checkpoint,
    out: Annotated[Path, typer.Argument(help="Folder to write the model to.")],
    to: Annotated[Literal["deformer", "mulla"], typer.Option("--to", help="The family to convert to.")] = "deformer",
    task: _Task = None,
    split_layer: _SplitLayer = None,
    passage_positions: _PassagePositions = None,
    variant: _Variant = None,
    pooling_rate: _PoolingRate = None,
    num_levels: _NumLevels = None,
    local_radius: _LocalRadius = None,
    new_tables: _NewTables = None,
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
    }
    given = {name: value for name, value in given.items() if value is not None}
    _refuse_other_families(to, given, task)
    _check_out(out, force=force)
    require_checkpoint(checkpoint)

    from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer

    folder = checkpoint_folder(checkpoint)
    if out.resolve() == folder.resolve():
        raise UsageError(f"expected another folder than the checkpoint's own, got {out}; its weights would be lost")
    require_tokenizer(folder)
    model, report = _converter(to)(folder, task=task, **given)
    _write(model, report, folder, out)
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


def _refuse_other_families(family: str, given: dict[str, Any], task: str | None) -> None:
    for name in given:
        if name not in _OF_FAMILY[family]:
            raise UsageError(
                f"expected options of {family}, got --{name.replace('_', '-')}, which it does not have; leave it out, "
                "or choose another family with --to"
            )
    if task is not None and task not in _TASKS[family]:
        raise UsageError(
            f"--task must be one of {', '.join(_TASKS[family])} for {family}, got {task}; choose one of them"
        )
    if family == "deformer" and "split_layer" not in given:
        raise UsageError("expected --split-layer (-k) for deformer, got none; 0 is the joint model")


def _converter(family: str) -> Callable[..., tuple[Any, Any]]:
    if family == "mulla":
        from narrows.mulla.convert import convert_checkpoint
    else:
        from narrows.deformer.convert import convert_checkpoint
    return convert_checkpoint


def _write(model: Any, report: Any, folder: Path, out: Path) -> None:
    """Model, tokenizer and report into a folder beside `out`, then all of it into `out`."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    from narrows.training.writing import fresh_folder

    logging.disable_progress_bar()
    # "." and ".." have no name of their own.
    target = out.resolve()
    place = target if target.is_dir() else target.parent
    place.mkdir(parents=True, exist_ok=True)
    with fresh_folder(place, target) as partial:
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(folder).save_pretrained(partial)
        report.save(partial)
        target.mkdir(exist_ok=True)
        # The config comes last: a folder that has one is whole.
        for path in sorted(partial.iterdir(), key=lambda path: path.name == "config.json"):
            os.replace(path, target / path.name)


def _check_out(out: Path, *, force: bool) -> None:
    if out.is_file():
        raise UsageError(f"expected a folder to write to, got the file {out}; choose another one")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(
            f"expected an empty or new folder, got {out}, which holds files; pass --force or choose another"
        )
    parent = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UsageError(f"expected a folder to write to, got {out}, which cannot be made; choose another one")
