"""Sizes of memory as people write them, and back."""

import math
import re

from narrows.errors import UsageError

__all__ = ["parse_size", "show_size"]

_STEPS = {"K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([KMGT]?)(I?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes: a number and K, M, G or T. These, and KiB and so on, are powers of 1,024; KB and so on, of 1,000.

    Raises:
        UsageError: anything else, or less than a byte.

    Example:
        >>> parse_size("16G"), parse_size("1.5GiB"), parse_size("800 MB"), parse_size("4096")
        (17179869184, 1610612736, 800000000, 4096)
    """
    found = _SIZE.fullmatch(text.strip())
    if found:
        number, step, ending = found.groups()
        base = 1000 if (ending or "").upper() == "B" else 1024
        # `I` belongs to a step: there is no "5iB".
        if step or (ending or "").upper() != "IB":
            value = float(number) * base ** _STEPS.get(step.upper(), 0)
            if math.isfinite(value) and value >= 1:
                return int(value)
    raise UsageError(f"expected a size such as 16G, 800M or 1.5GiB, got {text!r}; write a number and K, M, G or T")


def show_size(size: int) -> str:
    """Bytes in the largest unit of 1,024 that leaves a number of at least 1, with three figures.

    Example:
        >>> show_size(17179869184), show_size(1610612736), show_size(700), show_size(104857600)
        ('16.0 GiB', '1.50 GiB', '700 bytes', '100 MiB')
    """
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        # 1,023.6 would be shown as 1,024.
        if value < 1023.5:
            break
        value, unit = value / 1024, larger
    if unit == "bytes":
        return f"{size:,} byte{'' if size == 1 else 's'}"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} {unit}"
