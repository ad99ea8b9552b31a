"""Import what only an extra brings, or say which extra brings it."""

from importlib import import_module
from types import ModuleType

from narrows.errors import MissingExtraError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency.

    Args:
        module: dotted name of the module, such as `matplotlib.pyplot`.
        extra: the extra of narrows that installs it, such as `report`.
        purpose: what it is needed for, as the end of "... is needed to ...".

    Returns:
        The module.

    Raises:
        MissingExtraError: the package is not installed. An installed package that fails to import raises its
            own error, since installing it again would not help.

    Example:
        >>> require("json", extra="report", purpose="write the report").__name__
        'json'
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtraError(
            f"`{package}` is needed to {purpose}, but it is not installed; "
            f"install it with: pip install 'narrows[{extra}]'"
        ) from error
