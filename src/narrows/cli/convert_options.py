"""The options of `narrows convert`: which family each is of, and its help."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from narrows.errors import UsageError

__all__ = [
    "OF_FAMILY",
    "TASKS",
    "BlockRepeats",
    "BlockSizes",
    "BottleneckHeads",
    "BottleneckRatio",
    "Calibrate",
    "Checkpoint",
    "DecoderLayers",
    "EmbeddingPooling",
    "Layers",
    "LocalRadius",
    "NewTables",
    "NumLevels",
    "PassagePositions",
    "PoolingRate",
    "PositionType",
    "Semantics",
    "SplitLayer",
    "Task",
    "Variant",
    "numbers",
    "refuse_other_families",
]

# Which options each family has; those of another are refused by name.
_OF_DEFORMER = ("split_layer", "passage_positions")
_OF_BOTTLENECK = ("layers", "bottleneck_ratio", "bottleneck_heads", "calibrate")
_OF_MULLA = ("variant", "pooling_rate", "num_levels", "local_radius", "new_tables")
_OF_FUNNEL = (
    "block_sizes",
    "block_repeats",
    "position_type",
    "num_decoder_layers",
    "semantics",
    "embedding_pooling",
)
OF_FAMILY = {
    "deformer": _OF_DEFORMER,
    "mulla": _OF_MULLA,
    "funnel": _OF_FUNNEL,
    "bottleneck": _OF_BOTTLENECK,
    "transformers": (),
}
TASKS = {
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
    "bottleneck": (
        "encoder",
        "sequence-classification",
        "token-classification",
        "question-answering",
        "masked-lm",
    ),
    "transformers": (),
}


Checkpoint = Annotated[
    str,
    typer.Argument(
        help="A folder or a hub id: for deformer a BERT, or a DeFormer to split elsewhere; for mulla a LongT5, T5, "
        "Flan-T5 or mT5; for funnel a Funnel of transformers or of its authors, or a BERT; for bottleneck a BERT; for "
        "transformers a Funnel of narrows."
    ),
]
Task = Annotated[
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
SplitLayer = Annotated[
    int | None,
    typer.Option(
        "--split-layer",
        "-k",
        help="deformer: layers that read question and passage apart; 0 is the joint model.",
        show_default=False,
    ),
]
PassagePositions = Annotated[
    Literal["restart", "continue"] | None,
    typer.Option(
        "--passage-positions",
        help="deformer: where the passage counts from (restart); continue only with split layer 0.",
        show_default=False,
    ),
]
Variant = Annotated[
    Literal["dynamic", "fixed"] | None,
    typer.Option(
        "--variant", help="mulla: as many levels as a text needs (dynamic), or a fixed number.", show_default=False
    ),
]
PoolingRate = Annotated[
    int | None,
    typer.Option(
        "--pooling-rate",
        help="mulla: slots of a level that one of the next covers (8 for dynamic, 4 for fixed).",
        show_default=False,
    ),
]
NumLevels = Annotated[
    int | None,
    typer.Option("--num-levels", help="mulla: levels of the fixed variant (3).", show_default=False),
]
LocalRadius = Annotated[
    int | None,
    typer.Option(
        "--local-radius",
        help="mulla: slots seen to each side, at every level (the checkpoint's, or 127).",
        show_default=False,
    ),
]
NewTables = Annotated[
    Literal["local", "global"] | None,
    typer.Option(
        "--new-tables",
        help="mulla: the checkpoint's table that the fixed variant's pooled levels start from (local).",
        show_default=False,
    ),
]
BlockSizes = Annotated[
    str | None,
    typer.Option(
        "--block-sizes",
        help="funnel, from a BERT: layers of each block, such as 2,2,2, spread over the BERT's.",
        show_default=False,
    ),
]
BlockRepeats = Annotated[
    str | None,
    typer.Option(
        "--block-repeats",
        help="funnel: how often each layer of a block runs, such as 1,2,2 (the checkpoint's; once for a BERT).",
        show_default=False,
    ),
]
PositionType = Annotated[
    Literal["relative", "absolute"] | None,
    typer.Option(
        "--position-type",
        help="funnel, from a BERT: new relative positions, for texts of any length (relative), or the BERT's own, so "
        "that less has to be distilled.",
        show_default=False,
    ),
]
DecoderLayers = Annotated[
    int | None,
    typer.Option(
        "--num-decoder-layers",
        help="funnel: layers of the decoder (the checkpoint's; 2 for a BERT whose head reads tokens).",
        show_default=False,
    ),
]
Semantics = Annotated[
    Literal["exact", "official", "hf"] | None,
    typer.Option(
        "--semantics",
        help="funnel: padding changes nothing (exact), or as the authors' code or transformers has it.",
        show_default=False,
    ),
]
EmbeddingPooling = Annotated[
    Literal["mean", "cls", "max"] | None,
    typer.Option(
        "--embedding-pooling",
        help="funnel, of --task embedding: how slots become one vector (as the checkpoint says, else mean).",
        show_default=False,
    ),
]
Layers = Annotated[
    str | None,
    typer.Option("--layers", help="bottleneck: the layers to replace, from 1, such as 4,5,6.", show_default=False),
]
BottleneckRatio = Annotated[
    float | None,
    typer.Option(
        "--bottleneck-ratio",
        help="bottleneck: width of the model / width of the attention in these layers (2).",
        show_default=False,
    ),
]
BottleneckHeads = Annotated[
    int | None,
    typer.Option(
        "--bottleneck-heads",
        help="bottleneck: heads in these layers (with --calibrate those with the least error, else the most).",
        show_default=False,
    ),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        "--calibrate",
        help="bottleneck: texts like those to be read, one a line (.gz or not), that the layers are fitted by; 256 "
        "are taken, evenly spread. Without them the fit is far worse.",
        show_default=False,
    ),
]


def numbers(option: str, text: str | None, *, example: str = "2,2,2") -> list[int] | None:
    """Numbers with commas between them.

    Raises:
        UsageError: something else.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise UsageError(
            f"{option} must be numbers with commas between them, such as {example}, got {text!r}; change it"
        )
    return [int(part) for part in parts]


def refuse_other_families(family: str, given: dict[str, Any], task: str | None) -> None:
    """Refuse options and tasks that a family does not have, and say what it needs.

    Raises:
        UsageError: one of these.
    """
    for name in given:
        if name not in OF_FAMILY[family]:
            raise UsageError(
                f"expected options of {family}, got --{name.replace('_', '-')}, which it does not have; leave it out, "
                "or choose another family with --to"
            )
    if task is not None and not TASKS[family]:
        raise UsageError(f"expected no --task for {family}, got {task}; the checkpoint's own head is kept")
    if task is not None and task not in TASKS[family]:
        raise UsageError(
            f"--task must be one of {', '.join(TASKS[family])} for {family}, got {task}; choose one of them"
        )
    if family == "deformer" and "split_layer" not in given:
        raise UsageError("expected --split-layer (-k) for deformer, got none; 0 is the joint model")
    if family == "bottleneck" and "layers" not in given:
        raise UsageError("expected --layers for bottleneck, got none; name the layers to replace, such as 4,5,6")
