"""How a classifier was trained to read, as its config says it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from narrows.errors import ConversionError

__all__ = ["TrainedClasses", "note_classes", "trained_classes"]

# The config's field; transformers keeps fields that it does not know.
_FIELD = "narrows_classes"


class TrainedClasses(NamedTuple):
    """What a classifier was trained on.

    Attributes:
        problem: `classes`, `regression`, `choices` or `tags`.
        layout: of the data.
        fields: that the layout was read with.
        max_tokens: of a text or pair.
        truncate: whether longer ones were cut.
        majority: the commonest class or choice of the training data by its number, the mean of a regression.
    """

    problem: str
    layout: str
    fields: Mapping[str, str]
    max_tokens: int
    truncate: bool
    majority: float


def note_classes(config: Any, classes: TrainedClasses) -> None:
    """Write into a config what its model was trained on."""
    setattr(config, _FIELD, {**classes._asdict(), "fields": dict(classes.fields)})


def trained_classes(config: Any) -> TrainedClasses | None:
    """What a classifier was trained on; None where its config does not say.

    Raises:
        ConversionError: the config says something else there.
    """
    noted = getattr(config, _FIELD, None)
    if noted is None:
        return None
    try:
        return TrainedClasses(**noted)
    except TypeError as error:
        raise ConversionError(
            f"expected {', '.join(TrainedClasses._fields)} under {_FIELD!r} of config.json, got {noted!r:.80}; mend or "
            "remove it"
        ) from error
