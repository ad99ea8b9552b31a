"""`narrows inspect`: pictures of what attention sees, what the levels of a text hold, and (`inspect_memory`) memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.cli.inspect_memory import memory
from narrows.cli.inspect_options import LocalRadius, NumLevels, PoolingRate, Variant, console
from narrows.errors import UsageError
from narrows.inspection.registry import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from narrows.inspection.levels import Levels
    from narrows.inspection.patterns import Counts, Pattern, Runs, Subject
    from narrows.mulla.levels import Pyramid

Length = Annotated[
    int | None, typer.Option("--length", help="Tokens of the text (all but deformer).", show_default="16384")
]
GlobalBlockSize = Annotated[
    int | None, typer.Option("--global-block-size", help="Tokens of a global block (tglobal).", show_default="16")
]
SplitLayer = Annotated[
    int | None,
    typer.Option("--split-layer", help="Layers that read the sides apart (deformer).", show_default="2"),
]
QuestionTokens = Annotated[
    int | None, typer.Option("--question-tokens", help="Tokens of the question's side (deformer).", show_default="27")
]
NumBlocks = Annotated[
    int | None, typer.Option("--num-blocks", help="Blocks of the encoder (funnel).", show_default="3")
]
PoolingSize = Annotated[
    int | None,
    typer.Option("--pooling-size", help="Slots that one of the next block covers (funnel).", show_default="2"),
]
PassageTokens = Annotated[
    int | None, typer.Option("--passage-tokens", help="Tokens of the passage's side (deformer).", show_default="293")
]

# Queries that are looked at in about a second.
_QUICK = 150_000

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
app.command()(memory)


@app.command()
def mask(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=f"What to draw: {', '.join(FAMILIES)}.")],
    length: Length = None,
    variant: Variant = None,
    local_radius: LocalRadius = None,
    pooling_rate: PoolingRate = None,
    num_levels: NumLevels = None,
    global_block_size: GlobalBlockSize = None,
    split_layer: SplitLayer = None,
    question_tokens: QuestionTokens = None,
    passage_tokens: PassageTokens = None,
    num_blocks: NumBlocks = None,
    pooling_size: PoolingSize = None,
    view: Annotated[
        Literal["mask", "reach"],
        typer.Option("--view", help="Draw the visible keys, or the tokens that they cover."),
    ] = "mask",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the picture to this PNG file too (extra `report`).")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw which keys each query sees, and count them beside full attention.

    local and tglobal are LongT5's own, to compare. Options of other families are refused.
    """
    from narrows.inspection.registry import build

    choices = {
        "length": length,
        "variant": variant,
        "local_radius": local_radius,
        "pooling_rate": pooling_rate,
        "num_levels": num_levels,
        "global_block_size": global_block_size,
        "split_layer": split_layer,
        "question_tokens": question_tokens,
        "passage_tokens": passage_tokens,
        "num_blocks": num_blocks,
        "pooling_size": pooling_size,
    }
    if output is not None:
        from narrows.inspection.plot import check_place

        check_place(output)
    subject = build(family, {name: value for name, value in choices.items() if value is not None})
    if view == "reach" and all(len(pattern.blocks) == 1 for pattern in subject.patterns):
        raise UsageError(
            f"`view` must be mask where a query sees one kind of keys, got reach for {family} with these settings; "
            "leave it out"
        )
    looked_at = _look_at(subject, quiet=quiet)
    title = f"{family}: " + ", ".join(f"{name} {_number(value)}" for name, value in subject.settings.items())
    if json:
        masks = [_summary(pattern, counts) for pattern, _, counts in looked_at]
        options.emit_json({"family": family, "settings": subject.settings, "masks": masks})
    else:
        _show_masks(title, looked_at, reach=view == "reach")
    if output is not None:
        from narrows.inspection.plot import write_png

        write_png(output, title, subject.patterns, [runs for _, runs, _ in looked_at], reach=view == "reach")
        options.stderr_console(quiet=quiet).print(f"wrote {output}", markup=False, soft_wrap=True)


def _look_at(subject: "Subject", *, quiet: bool) -> "list[tuple[Pattern, Runs, Counts]]":
    from narrows.inspection.patterns import count_pairs, runs_of

    with _progress(sum(pattern.length for pattern in subject.patterns), quiet=quiet) as advance:
        runs = [runs_of(pattern, advance) for pattern in subject.patterns]
    return [(pattern, own, count_pairs(pattern, own)) for pattern, own in zip(subject.patterns, runs, strict=True)]


def _progress(total: int, *, quiet: bool) -> "AbstractContextManager[Callable[[int], None]]":
    """A bar where it takes more than a moment."""
    return options.progress(total, "Asking what queries see", quiet or total < _QUICK)


def _summary(pattern: "Pattern", counts: "Counts") -> dict[str, Any]:
    blocks = [
        {
            "name": block.name,
            "keys": block.keys,
            "visible_pairs": pairs,
            "share_of_block": pairs / (pattern.length * block.keys),
            "least_reach": reach,
        }
        for block, pairs, reach in zip(pattern.blocks, counts.visible_pairs, counts.least_reach, strict=True)
    ]
    return {
        "name": pattern.name,
        "queries": pattern.length,
        "keys": sum(block.keys for block in pattern.blocks),
        "visible_pairs": sum(counts.visible_pairs),
        "full_pairs": counts.full_pairs,
        "share_of_full": counts.share_of_full,
        "sees_whole_text": counts.sees_whole_text,
        "blocks": blocks,
    }


def _show_masks(title: str, looked_at: "list[tuple[Pattern, Runs, Counts]]", *, reach: bool) -> None:
    """Pictures with their legend and numbers, for people."""
    from narrows.inspection.pictures import text_picture

    shown = console()
    shown.print(title, style="bold")
    for pattern, runs, counts in looked_at:
        shown.print()
        if len(looked_at) > 1:
            shown.print(pattern.name)
        for line in text_picture(pattern, runs, width=shown.width, reach=reach):
            shown.print(line)
        shown.print(_legend(pattern, reach=reach), style="dim")
        for block, pairs in zip(pattern.blocks, counts.visible_pairs, strict=True):
            share = _percent(pairs / (pattern.length * block.keys))
            shown.print(f"  {block.name}: {count(block.keys, 'key')}, {count(pairs, 'visible pair')} ({share})")
        shown.print(
            f"{count(sum(counts.visible_pairs), 'visible pair')}, {_percent(counts.share_of_full)} of full attention's "
            f"{counts.full_pairs:,}"
        )
        shown.print(f"every query sees the whole text: {'yes' if counts.sees_whole_text else 'no'}")


def _legend(pattern: "Pattern", *, reach: bool) -> str:
    from narrows.inspection.pictures import REACH, SHADES

    if not reach:
        texts = ("none", "up to a third", "up to two thirds", "more", "all of a cell's pairs are visible")
        return "  ".join(f"[{shade}] {text}" for shade, text in zip(SHADES, texts, strict=True))
    names = ["not reached", *(block.name for block in pattern.blocks)]
    shown = [f"[{shade}] {name}" for shade, name in zip(REACH, names, strict=False)]
    return "  ".join([*shown, "(the first that reaches into a cell)"])


@app.command()
def levels(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A text (.txt, .md, .html, .pdf, .jsonl of one record); - is stdin."),
    ],
    model: options.OptionalModel = None,
    variant: Variant = None,
    local_radius: LocalRadius = None,
    pooling_rate: PoolingRate = None,
    num_levels: NumLevels = None,
    slots: Annotated[int, typer.Option("--slots", help="Slots of each level to show with their text.")] = 3,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the levels that Mulla makes of a text, what their slots cover and how much of it a query sees.

    --model names the checkpoint whose tokenizer cuts the text, and of the T5 family also its levels (as converted,
    where it is no Mulla yet); without it, the tokenizer is that of the reader that comes with narrows.
    """
    from narrows.cli.answer import read_context

    documents = read_context(file, quiet=quiet)
    if len(documents) != 1:
        raise UsageError(f"expected one text, got {count(len(documents), 'document')} in {file}; name a file of one")
    from narrows.inspection.families import pyramid_settings
    from narrows.inspection.levels import describe_levels, load_tokenizer, token_places

    given: dict[str, Any] = {"variant": variant, "local_radius": local_radius}
    given |= {"pooling_rate": pooling_rate, "num_levels": num_levels}
    tokenizer = load_tokenizer(model)
    pyramid = _pyramid(model, {name: value for name, value in given.items() if value is not None})
    text = documents[0].text
    places = token_places(tokenizer, text, name=file)
    with _progress(len(places), quiet=quiet) as advance:
        found = describe_levels(text, places, pyramid, slots=slots, advance=advance)
    settings = pyramid_settings(pyramid, len(places))
    if json:
        options.emit_json({"file": file, "settings": settings, **found._asdict()})
    else:
        _show_levels(file, settings, found)


def _pyramid(model: str | None, given: dict[str, Any]) -> "Pyramid":
    """A model's own levels where it has or would have some, with what was given in their place."""
    from narrows.cli.evaluate_summaries import is_summariser
    from narrows.hf.checkpoints import checkpoint_folder
    from narrows.inspection.families import make_pyramid

    # A tokenizer alone has no config.
    if model is None or not (checkpoint_folder(model) / "config.json").is_file() or not is_summariser(model):
        return make_pyramid(**given)
    from narrows.inspection.memory_plan import describe_config
    from narrows.mulla import MullaT5Config

    return MullaT5Config(**describe_config(model, **given)).pyramid


def _show_levels(file: str, settings: dict[str, Any], found: "Levels") -> None:
    """The table of levels, their samples and the check, for people."""
    from rich.table import Table

    shown = console()
    shown.print(f"{file}: {count(found.tokens, 'token')}", style="bold")
    shown.print(", ".join(f"{name} {_number(value)}" for name, value in settings.items()))
    table = Table(box=None, pad_edge=False)
    for name in ("level", "slots", "tokens a slot", "tokens a window", "a query sees", "at least"):
        table.add_column(name, justify="right")
    for level in found.levels:
        numbers = (level.level, level.slots, level.tokens_per_slot, level.tokens_per_window)
        table.add_row(*map(_number, numbers), _percent(level.mean_seen), _percent(level.least_seen))
    shown.print(table)
    for level in found.levels:
        for slot in level.samples:
            first, end = slot.tokens
            tokens = f"token {first:,}" if end - first == 1 else f"tokens {first:,}–{end - 1:,}"
            shown.print(f"level {level.level}, slot {slot.slot:,} ({tokens}): {slot.text}")
    rest = "" if found.sees_whole_text else f" (the one that sees least sees {_percent(found.least_seen)})"
    shown.print(f"every query sees the whole text: {'yes' if found.sees_whole_text else 'no'}{rest}")


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _percent(share: float) -> str:
    """A share in per cent with three figures; never 100 or 0 for what is only near."""
    value = 100 * share
    shown = f"{value:.1f}" if value >= 10 else f"{value:.3g}"
    if share < 1 and float(shown) >= 100:
        shown = "over 99.9"
    return f"{shown} %"
