"""What a model was trained to read, as its config says it; and the number formats that the T5 family can have."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from narrows.data import Truncation, truncation
from narrows.errors import ConversionError, UsageError

__all__ = ["SEQ2SEQ_TYPES", "TrainedInputs", "check_dtype", "is_fp16", "note_inputs", "trained_inputs"]

SEQ2SEQ_TYPES = ("narrows-mulla-t5", "longt5", "t5", "mt5", "umt5")
"""Types of models that read a text and write one, as config.json names them."""

# The config's field; transformers keeps fields that it does not know.
_FIELD = "narrows_inputs"
_DTYPES = ("float32", "bfloat16")
# The names that people have for it, whatever their letters.
_HALVES = ("float16", "fp16", "half")


class TrainedInputs(NamedTuple):
    """What a model was trained to read.

    Attributes:
        max_input_tokens: of the longest inputs.
        truncation: how longer documents were cut: a `name`, and its options.
        prefix: what every input began with, such as plain T5's `summarize: `.
    """

    max_input_tokens: int
    truncation: Mapping[str, Any]
    prefix: str = ""

    def truncation_named(self, name: str) -> dict[str, Any]:
        """A truncation by its name, with the options it was trained with where it is that one.

        Example:
            >>> TrainedInputs(512, {"name": "windows", "overlap": 9}).truncation_named("windows")
            {'name': 'windows', 'overlap': 9}
        """
        return dict(self.truncation) if name == self.truncation["name"] else {"name": name}

    def make_truncation(self) -> Truncation:
        """The truncation itself."""
        options = dict(self.truncation)
        return truncation(options.pop("name"), **options)


def is_fp16(dtype: str) -> bool:
    """Whether a name means fp16.

    Example:
        >>> [is_fp16(name) for name in ("torch.float16", "FP16", "bfloat16")]
        [True, True, False]
    """
    return dtype.lower().removeprefix("torch.") in _HALVES


def check_dtype(dtype: str) -> None:
    """Refuse number formats that a model of the T5 family must not have.

    Raises:
        UsageError: fp16, in which T5's scores overflow, or another one.
    """
    if is_fp16(dtype):
        raise UsageError(
            f"expected a dtype of float32 or bfloat16, got {dtype}, in which T5's unscaled attention scores overflow; "
            "use bfloat16"
        )
    if dtype not in _DTYPES:
        raise UsageError(f"expected a dtype of float32 or bfloat16, got {dtype!r}; choose one of them")


def note_inputs(config: Any, inputs: TrainedInputs) -> None:
    """Write into a config what its model is trained to read."""
    noted = {"max_input_tokens": inputs.max_input_tokens, "truncation": dict(inputs.truncation)}
    setattr(config, _FIELD, noted | ({"prefix": inputs.prefix} if inputs.prefix else {}))


def trained_inputs(config: Any) -> TrainedInputs | None:
    """What a model was trained to read; None where its config does not say.

    Raises:
        ConversionError: the config says something else there.
    """
    noted = getattr(config, _FIELD, None)
    if noted is None:
        return None
    try:
        found = TrainedInputs(int(noted["max_input_tokens"]), dict(noted["truncation"]), noted.get("prefix", ""))
        found.make_truncation()
        if not isinstance(found.prefix, str):
            raise TypeError
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConversionError(
            f"expected `max_input_tokens`, `truncation` and perhaps a `prefix` under {_FIELD!r} of config.json, "
            f"got {noted!r:.80}; mend or remove it"
        ) from error
    return found
