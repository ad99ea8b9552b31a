"""Looking after a store as a whole: delete one, and say how large one is going to be."""

import os
import shutil
from pathlib import Path

from narrows.errors import StoreBusyError, StoreDamagedError, StoreError, StoreMismatchError
from narrows.store import layout
from narrows.store.codecs import get_codec

# Measured on stores of 50 to 5,000 passages of English text; tests/store/test_store_estimate.py holds them
# to it.
_BYTES_PER_STORE = 24_000
_BYTES_PER_PASSAGE = 40
_BYTES_PER_TOKEN_ID = 2.0
_INDEX_BYTES_PER_TEXT_BYTE = 0.3


def estimate_bytes(passages: int, tokens: int, text_bytes: int, codec: str, width: int, vector_width: int = 0) -> int:
    """Say how large a finished store is going to be on disk.

    Args:
        passages: number of passages.
        tokens: number of tokens of all passages together.
        text_bytes: size of all passages' texts in UTF-8.
        codec: name of the codec.
        width: size of one token's state.
        vector_width: size of the one vector a passage, 0 without.

    Returns:
        bytes, within 5 % for stores of more than about a hundred passages.

    Raises:
        UsageError: there is no codec of that name.

    Example:
        >>> estimate_bytes(1000, 293_000, 1_300_000, "int8", 384) // 10**6
        115
    """
    states = tokens * get_codec(codec).bytes_per_token(width)
    text = text_bytes * (1 + _INDEX_BYTES_PER_TEXT_BYTE)
    per_passage = _BYTES_PER_PASSAGE + (2 * vector_width + 4 if vector_width else 0)
    return round(_BYTES_PER_STORE + states + text + tokens * _BYTES_PER_TOKEN_ID + passages * per_passage)


def delete(path: str | os.PathLike) -> None:
    """Delete the store at `path` with everything in it, be it damaged or of a newer format.

    Raises:
        StoreError: there is no store at `path` or only a link to one, it holds files that are not the store's, or
            a part of it may not be deleted; nothing is then.
        StoreDamagedError: so much is gone that it might be another program's folder.
        StoreBusyError: somebody is writing to it or reading from it.
    """
    path = Path(path)
    # os.path: False where the folder above may not be looked into, which is said below.
    if os.path.islink(path):
        raise StoreError(
            f"a store to delete is a folder, but {path} is a link to {path.resolve()}; delete that and remove the link"
        )
    if not (layout.is_unborn(path) and os.listdir(path)):
        _require_store(path)
    _require_permission(path)
    writing = layout.lock_for_writing(path)
    reading = None
    try:
        if (path / layout.MANIFEST).exists():
            reading = layout.lock_for_reading(path)
            if not layout.try_alone(reading):
                raise StoreBusyError(f"the store {path} is being read and cannot be deleted; close it everywhere first")
        if (path / layout.PASSAGES).exists():
            shutil.rmtree(path / layout.PASSAGES)
        # The manifest goes after all that a store is known by: a deletion that is killed leaves one that can be
        # deleted again.
        for name in (layout.SOURCE, layout.CHECKSUMS, layout.MANIFEST):
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path)
    except OSError as error:
        cause = error.strerror or error
        raise StoreError(f"the store {path} cannot be deleted ({cause}); check its permissions") from error
    finally:
        os.close(writing)
        if reading is not None:
            os.close(reading)


def _require_permission(path: Path) -> None:
    """Make sure that no folder keeps what is in it: a deletion that stops half-way would leave no store to use."""
    effective = os.access in os.supports_effective_ids
    # By their names: `os.walk` passes over a folder that it may not look into.
    inner = (Path(above) / name for above, names, _ in os.walk(path) for name in names)
    for folder in (path.absolute().parent, path, *inner):
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
            raise StoreError(
                f"the store {path} cannot be deleted (no permission to remove what is in {folder}); "
                "check its permissions"
            )


def _require_store(path: Path) -> None:
    """Make sure that a folder is surely a store and nothing else, though it may be damaged or of a newer format."""
    if layout.is_recognisable(path):
        return
    try:
        layout.read_manifest(path)
    except (StoreDamagedError, StoreMismatchError) as error:
        if not layout.foreign_names(path):
            raise StoreDamagedError(
                f"a store to delete has a readable {layout.MANIFEST} or passages, but {path} has neither and may be "
                "another program's folder; look into it, and delete it by other means"
            ) from error
    if foreign := layout.foreign_names(path):
        raise StoreError(
            f"a store to delete holds nothing but its own files, but {path} has {foreign[0]!r} in it; "
            "move it away first"
        )
