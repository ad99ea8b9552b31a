"""`narrows convert`: a BERT checkpoint into a DeFormer."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from narrows.cli import options
from narrows.errors import UsageError

__all__ = ["command", "require_checkpoint"]


def command(
    checkpoint: Annotated[
        str, typer.Argument(help="A BERT checkpoint, or a DeFormer to split elsewhere: a folder or a hub id.")
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write the model to.")],
    split_layer: Annotated[
        int,
        typer.Option("--split-layer", "-k", help="Layers that read question and passage apart; 0 is the joint model."),
    ],
    to: Annotated[Literal["deformer"], typer.Option("--to", help="The family to convert to.")] = "deformer",
    task: Annotated[
        Literal["question-answering", "sequence-classification", "encoder"] | None,
        typer.Option("--task", help="The head; by default the checkpoint's own.", show_default=False),
    ] = None,
    passage_positions: Annotated[
        Literal["restart", "continue"],
        typer.Option("--passage-positions", help="Where the passage counts from; continue only with split layer 0."),
    ] = "restart",
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Turn a BERT checkpoint into a DeFormer, or split a DeFormer at another layer, with a report of every tensor.

    The report is kept beside the model as conversion.json.
    """
    _check_out(out, force=force)
    require_checkpoint(checkpoint)

    from transformers import AutoTokenizer
    from transformers.utils import logging

    from narrows.deformer.convert import convert_checkpoint
    from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
    from narrows.training.writing import fresh_folder

    logging.disable_progress_bar()
    folder = checkpoint_folder(checkpoint)
    require_tokenizer(folder)
    model, report = convert_checkpoint(folder, split_layer=split_layer, task=task, passage_positions=passage_positions)
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
    if json:
        options.emit_json({"model": out, "split_layer": split_layer, **report.as_dict()})
    console = options.stderr_console(quiet=quiet)
    console.print(report.summary(), markup=False)
    console.print(f"written to {out}", markup=False)


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
