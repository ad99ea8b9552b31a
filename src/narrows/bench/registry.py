"""The families that can be measured. A new one is a module with `CHECKS` and `groups()`, and a line here."""

from importlib import import_module
from types import ModuleType

from narrows.errors import UsageError

__all__ = ["FAMILIES", "family"]

FAMILIES = {
    "bottleneck": "narrows.bench.bottleneck",
    "deformer": "narrows.bench.deformer",
    "funnel": "narrows.bench.funnel",
    "mulla": "narrows.bench.mulla",
}


def family(name: str) -> ModuleType:
    """The module of a family: `CHECKS` are its gate, `groups(context)` its rows.

    Raises:
        UsageError: no family of that name.
    """
    if name not in FAMILIES:
        raise UsageError(
            f"expected a family to measure, one of {', '.join(FAMILIES)}, got {name!r}; choose one of these"
        )
    return import_module(FAMILIES[name])
