"""The patterns that can be drawn. A new family is a line here, naming a function that makes its pattern."""

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.inspection.patterns import Subject

__all__ = ["FAMILIES", "build", "options_of"]

FAMILIES = {
    "deformer": "narrows.inspection.families:deformer",
    "mulla": "narrows.inspection.families:mulla",
    "funnel": "narrows.inspection.families:funnel",
    "local": "narrows.inspection.families:local",
    "tglobal": "narrows.inspection.families:tglobal",
    "full": "narrows.inspection.families:full",
}
"""Module and function by name; the function's keyword arguments are the options that belong to the family."""


def build(family: str, given: Mapping[str, Any]) -> "Subject":
    """The pattern of a family.

    Args:
        family: a name of `FAMILIES`.
        given: options by name; those not given take the family's own defaults.

    Raises:
        UsageError: no such family, an option of another one, or a number out of its range.

    Example:
        >>> build("full", {"length": 5}).settings
        {'length': 5}
    """
    if family not in FAMILIES:
        raise UsageError(f"expected a family, one of {', '.join(FAMILIES)}, got {family!r}; choose one of these")
    own = options_of(family)
    for name in given:
        if name not in own:
            owners = [other for other in FAMILIES if name in options_of(other)]
            raise UsageError(
                f"`{name}` must come with {' or '.join(owners) or 'no family'}, got it with {family}; leave it out"
            )
    return _function(family)(**given)


def options_of(family: str) -> dict[str, Any]:
    """Options of a family with their defaults; None where the default depends on another option.

    Example:
        >>> options_of("local")
        {'length': 16384, 'local_radius': 127}
    """
    return {name: parameter.default for name, parameter in signature(_function(family)).parameters.items()}


def _function(family: str) -> Callable[..., "Subject"]:
    module, _, name = FAMILIES[family].partition(":")
    return getattr(import_module(module), name)
