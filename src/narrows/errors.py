"""The tree of errors. Each message is one sentence: what was expected, what came, what to do.

NarrowsError                 exit code 1
├── UsageError               exit code 2: the caller asked for something that cannot be (also a ValueError)
│   ├── RecipeError          a recipe has an unknown key, a wrong type or values that exclude each other
│   └── DocumentError        a file cannot be read as the text it claims to be
├── ConversionError          a checkpoint does not fit the model it is converted to
├── StoreError               a passage store cannot do what was asked
│   ├── StoreMismatchError   the store was written by another model, layout, codec or format
│   ├── StoreDamagedError    bytes on disk are not the bytes that were written
│   └── StoreBusyError       another process is writing
├── OutputError              a result cannot be written
└── MissingExtraError        an optional dependency is not installed (also an ImportError)
"""

__all__ = [
    "ConversionError",
    "DocumentError",
    "MissingExtraError",
    "NarrowsError",
    "OutputError",
    "RecipeError",
    "StoreBusyError",
    "StoreDamagedError",
    "StoreError",
    "StoreMismatchError",
    "UsageError",
]


class NarrowsError(Exception):
    """Base of every error that narrows raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(NarrowsError, ValueError):
    """The caller passed something that cannot be honoured."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe is not valid."""


class DocumentError(UsageError):
    """A file cannot be read as the text it claims to be."""


class ConversionError(NarrowsError):
    """A checkpoint and a target model do not fit together."""


class StoreError(NarrowsError):
    """A passage store cannot do what was asked."""


class StoreMismatchError(StoreError):
    """A store was written by another model, layout, codec or format version."""


class StoreDamagedError(StoreError):
    """Bytes on disk are not the bytes that were written."""


class StoreBusyError(StoreError):
    """Another process is writing to the store."""


class OutputError(NarrowsError):
    """A result cannot be written."""


class MissingExtraError(NarrowsError, ImportError):
    """An optional dependency is not installed."""
