"""Makes a trained run one of the models that come with narrows: `python -m narrows.training.ship RUN NAME`.

The other way round, `python -m narrows.training.ship --export NAME DIR` writes one of them as a checkpoint.
"""

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from narrows._plural import count
from narrows.deformer import DeformerConfig, DeformerForQuestionAnswering
from narrows.deformer.convert import convert_checkpoint
from narrows.deformer.delta import BITS, compress_delta
from narrows.deformer.shipped import WEIGHTS, load_shipped, shipped_fields
from narrows.errors import ConversionError, NarrowsError, UsageError
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder
from narrows.training.writing import require_place, written_whole

__all__ = ["export", "ship"]


def ship(model_folder: Path, name: str, *, bits: int = 4, embedding_rank: int = 32, weights: Path = WEIGHTS) -> Path:
    """Write what training changed of the default checkpoint, with config and card, to `weights/NAME`.

    Args:
        model_folder: `model/` of a run that started from the default checkpoint.
        name: what `load_shipped` will call it.
        bits: a value of a matrix's change takes; 4 as a rule.
        embedding_rank: directions kept of the word embeddings' change.
        weights: folder of the shipped models.

    Returns:
        The folder written.

    Raises:
        UsageError: a name that is no plain one, or a folder without a model.
        ConversionError: the model is of another kind or shape than the default checkpoint, or damaged.
    """
    if not re.fullmatch("[a-z0-9][a-z0-9_-]*", name):
        raise UsageError(f"expected a name of small letters, digits, - and _, got {name!r}; choose another one")
    if not (model_folder / "config.json").is_file():
        raise UsageError(f"expected a model's folder, got {str(model_folder)!r} without config.json; check the path")
    kind = json.loads((checkpoint_folder(model_folder) / "config.json").read_bytes()).get("model_type")
    if kind != DeformerConfig.model_type:
        raise ConversionError(
            f"expected a DeFormer to ship, got {model_folder} of type {kind!r}; convert and train it first"
        )
    trained = DeformerForQuestionAnswering.from_pretrained(model_folder, dtype=torch.float32)
    split_layer = trained.config.split_layer
    base, report = convert_checkpoint(
        checkpoint_folder(DEFAULT_CHECKPOINT), split_layer=split_layer, task="question-answering"
    )
    known = {key: value for key, value in base.state_dict().items() if key not in report.new}
    shapes = {key: value.shape for key, value in trained.state_dict().items()}
    if shapes != {key: value.shape for key, value in base.state_dict().items()}:
        raise ConversionError(
            f"expected a model of the shape of {DEFAULT_CHECKPOINT}, got another in {model_folder}; "
            "ship what started from that checkpoint"
        )
    delta = compress_delta(trained.state_dict(), known, bits=bits, embedding_rank=embedding_rank)
    folder = weights / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(delta, folder / "delta.safetensors", metadata={"base": DEFAULT_CHECKPOINT, "bits": str(bits)})
    (folder / "config.json").write_text(json.dumps(shipped_fields(trained.config), indent=1) + "\n", encoding="utf-8")
    if (model_folder / "README.md").is_file():
        shutil.copyfile(model_folder / "README.md", folder / "README.md")
    return folder


def export(name: str, folder: Path) -> Path:
    """Write a shipped model as an ordinary checkpoint, with its tokenizer and card: where a recipe may start from.

    Args:
        name: `reader` or `teacher`.
        folder: to write to, not there yet.

    Returns:
        The folder written, whole or not at all.

    Raises:
        UsageError: no model of that name, or the folder is there.
        OutputError: it cannot be written.
        ConversionError: the default checkpoint is not here.

    Example:
        >>> export("teacher", Path("runs/shipped-teacher/model"))  # doctest: +SKIP
    """
    if folder.exists():
        raise UsageError(f"expected a new folder to write to, got {folder}, which is there; choose another")
    model, tokenizer = load_shipped(name)
    require_place(folder)
    with written_whole(folder) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        shutil.copyfile(WEIGHTS / name / "README.md", unfinished / "README.md")
    return folder


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line, whose help tells the arguments; ends the process."""
    parser = argparse.ArgumentParser(prog="python -m narrows.training.ship", description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="model/ of a run that started from the default checkpoint")
    parser.add_argument("name", nargs="?", help="what load_shipped will call it")
    parser.add_argument(
        "--export", nargs=2, metavar=("NAME", "DIR"), help="write the shipped model NAME to the folder DIR"
    )
    parser.add_argument("--bits", type=int, choices=BITS, default=4, help="bits of a value of a matrix's change")
    parser.add_argument("--embedding-rank", type=int, default=32, help="directions kept of the embeddings' change")
    arguments = parser.parse_args(argv)
    try:
        if (arguments.export is None) == (arguments.name is None) or (arguments.export and arguments.model):
            raise UsageError("expected RUN and NAME, or --export NAME DIR, got neither or both; give one of the two")
        if arguments.export:
            name, out = arguments.export
            parser.exit(0, f"{export(name, Path(out))}: the shipped {name}\n")
        folder = ship(arguments.model, arguments.name, bits=arguments.bits, embedding_rank=arguments.embedding_rank)
    except NarrowsError as error:
        parser.exit(error.exit_code, f"narrows: error: {error}\n")
    size = (folder / "delta.safetensors").stat().st_size
    parser.exit(0, f"{folder}: {count(size, 'byte')}\n")


if __name__ == "__main__":
    main()
