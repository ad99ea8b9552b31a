"""Funnels by the names of the paper: `B6-3x2-3x2H768` is three blocks of width 768."""

import re
from typing import Any

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig

__all__ = ["HUB_NAMES", "PRESETS", "preset"]

HUB_NAMES = {
    "B4-4-4H768": "small",
    "B6-3x2-3x2H768": "medium",
    "B6-6-6H768": "intermediate",
    "B8-8-8H1024": "large",
    "B10-10-10H1024": "xlarge",
}
"""The released models: the paper's name → the hub's, `funnel-transformer/NAME`, and `NAME-base` without the decoder."""

PRESETS = tuple(HUB_NAMES)
"""The paper's models; any other name of the same form is read by the same rule."""

_HEAD_WIDTH = 64
_NAME = re.compile(r"(?:B(?P<blocks>[0-9]+(?:x[0-9]+)?(?:-[0-9]+(?:x[0-9]+)?)*)|L(?P<layers>[0-9]+))H(?P<width>[0-9]+)")


def preset(name: str, **changes: Any) -> FunnelConfig:
    """The config that a name of the paper stands for.

    `B` is followed by the layers of each block; `3x2` are three layers that run twice each, one after the other. `L12`
    is a plain encoder of twelve layers: one block, nothing pooled, no decoder. `H` is the width, with heads of 64 and
    an inner width of four times as much.

    Args:
        name: such as `B4-4-4H768`, `B6-3x2-3x2H768`, `B2-2-2H384` or `L12H768`.
        changes: fields of `FunnelConfig` in the place of the name's.

    Raises:
        UsageError: another form of name, a width that heads of 64 do not divide where `n_head` is not given, an unknown
            field or a value out of its range.

    Example:
        >>> config = preset("B6-3x2-3x2H768", vocab_size=1000)
        >>> config.block_sizes, config.block_repeats, config.n_head
        ([6, 3, 3], [1, 2, 2], 12)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(
            f"expected a name such as B4-4-4H768, B6-3x2-3x2H768 or L12H768, got {name!r}; "
            "write the layers of each block and the width"
        )
    unknown = sorted(set(changes) - set(FunnelConfig.__dataclass_fields__))
    if unknown:
        raise UsageError(
            f"expected fields of FunnelConfig, got {', '.join(unknown)}; see its documentation for their names"
        )
    width = int(match["width"])
    if (width % _HEAD_WIDTH or not width) and not {"n_head", "d_head"} <= set(changes):
        raise UsageError(
            f"expected a width that is a multiple of {_HEAD_WIDTH}, the width of a head, got {width}; "
            "give `n_head` and `d_head`, or choose another width"
        )
    fields: dict[str, Any] = {"d_model": width, "n_head": width // _HEAD_WIDTH, "d_head": _HEAD_WIDTH}
    fields["d_inner"] = 4 * width
    if match["layers"] is not None:
        fields |= {"block_sizes": [int(match["layers"])], "num_decoder_layers": 0}
    else:
        blocks = [block.split("x") for block in match["blocks"].split("-")]
        fields["block_sizes"] = [int(block[0]) for block in blocks]
        fields["block_repeats"] = [int(block[1]) if len(block) > 1 else 1 for block in blocks]
    return FunnelConfig(**{**fields, **changes})
