"""Makes transformers' Auto classes know the narrows models. Explicit: importing narrows registers nothing."""

from importlib import import_module

__all__ = ["register_all"]

# One line a family: module with a function `register()`.
_FAMILIES = (
    "narrows.bottleneck.register",
    "narrows.deformer.register",
    "narrows.funnel.register",
    "narrows.mulla.register",
)


def register_all() -> None:
    """Register every family with AutoConfig, AutoModel and the Auto classes of its heads. May be called again.

    Example:
        >>> import narrows; narrows.register_all()
        >>> from transformers import AutoModelForQuestionAnswering
        >>> AutoModelForQuestionAnswering.from_pretrained("my-deformer")  # doctest: +SKIP
    """
    for name in _FAMILIES:
        import_module(name).register()
