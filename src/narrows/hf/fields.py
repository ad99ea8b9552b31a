"""Config fields of the wrong type, refused in one sentence of ours."""

from typing import TypeVar

from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import PreTrainedConfig

from narrows.errors import UsageError

__all__ = ["in_our_words"]

_Config = TypeVar("_Config", bound=PreTrainedConfig)


def in_our_words(config: type[_Config]) -> type[_Config]:
    """A field of the wrong type is refused in one sentence, wherever it is set: a call, a file, an option.

    A decorator for a `strict` config class.
    """
    checked = config.__setattr__

    def __setattr__(self: _Config, key: str, value: object) -> None:
        try:
            checked(self, key, value)
        except StrictDataclassFieldValidationError as error:
            kind = config.__dataclass_fields__[key].type  # type: ignore[attr-defined]
            raise UsageError(
                f"`{key}` must be of type {getattr(kind, '__name__', kind)}, got {value!r}; "
                "change it in config.json or where it is passed"
            ) from error

    config.__setattr__ = __setattr__
    return config
