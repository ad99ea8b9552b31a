"""The folder of a store on disk: its files, its locks, and Lance's errors in our words.

    STORE/manifest.json     format version, fingerprint, width of the vectors; never changes after it was created
    STORE/passages.lance/   the Lance dataset; each of its versions is one commit
    STORE/checksums.json    of the dataset's files that have none of their own, see `checksums`
    STORE/source.json       where the documents come from
    STORE/writer.lock       held exclusively (flock) by the one writer

Readers hold a shared flock on the manifest, so that the writer knows when nobody needs the old versions.
"""

import errno
import fcntl
import json
import os
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

from narrows.errors import (
    NarrowsError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreMismatchError,
    UsageError,
)
from narrows.store.codecs import get_codec
from narrows.store.fingerprint import FORMAT_VERSION, Fingerprint

MANIFEST = "manifest.json"
PASSAGES = "passages.lance"
CHECKSUMS = "checksums.json"
SOURCE = "source.json"
WRITER_LOCK = "writer.lock"
_FORMAT = "narrows passage store"
# What reading damaged JSON raises: other text, another shape, too many brackets, a number that is infinite.
NOT_AS_WRITTEN = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
ANEW = "bring it back from a copy, or run `narrows store delete` on the store and `narrows index` again"
_WRITTEN_WHOLE = (MANIFEST, CHECKSUMS, SOURCE)
_OWN_NAMES = {PASSAGES, WRITER_LOCK, *_WRITTEN_WHOLE, *(f".{name}.new" for name in _WRITTEN_WHOLE)}
# What Lance puts into a dataset's folder.
_LANCE_NAMES = {"data", "_versions", "_transactions", "_deletions", "_indices", "_refs"}


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says.

    Attributes:
        fingerprint: of the model that wrote the store.
        vector_width: 0 without vectors.
        is_noted: there is a `checksums.json` from before the first commit on; None is missed in older stores.
    """

    fingerprint: Fingerprint
    vector_width: int
    is_noted: bool = True


def dataset_uri(path: Path) -> str:
    """The dataset of the store at `path`, as Lance is told it.

    In full, for a name like `s3:x` that begins a path would be an address elsewhere; with links followed, for Lance
    takes `link/..` for the folder that the link is in.

    Raises:
        UsageError: Lance cannot be told the path.
    """
    _require_sayable(str(path))
    whole = os.path.realpath(path)
    _require_sayable(whole)
    return os.path.join(whole, PASSAGES)


def _require_sayable(path: str) -> None:
    """Lance takes paths apart as addresses, in which it refuses control characters, and takes UTF-8 only."""
    for letter in path:
        is_control = letter < " " or letter == "\x7f"
        if is_control or "\ud800" <= letter <= "\udfff":
            what = "a control character" if is_control else "not UTF-8"
            raise UsageError(
                f"expected a path of UTF-8 without control characters for a store, got {path!r}, in which {letter!r} "
                f"is {what}; choose another path, or rename the folder"
            )


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `manifest.json`."""
    content = {
        "format": _FORMAT,
        "format_version": manifest.fingerprint.format_version,
        "vector_width": manifest.vector_width,
        "noted": manifest.is_noted,
        "fingerprint": manifest.fingerprint.as_dict(),
    }
    write_whole(path, MANIFEST, content)


def write_whole(path: Path, name: str, content: dict[str, Any]) -> None:
    """Write a JSON file of the store so that it is there whole or not at all, also after a power cut."""
    unfinished = path / f".{name}.new"
    with open(unfinished, "wb") as file:
        file.write(_as_written(content))
        file.flush()
        os.fsync(file.fileno())
    os.rename(unfinished, path / name)
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _as_written(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode()


def write_source(path: Path, source: str) -> None:
    """Note the folder or file that the documents come from.

    With its own checksum: it changes when `checksums.json` does not.
    """
    write_whole(path, SOURCE, _source_note(source))


def _source_note(source: str) -> dict[str, Any]:
    return {"checksum": zlib.crc32(json.dumps(source).encode()), "source": source}


def read_source(path: Path) -> str | None:
    """The folder or file that the documents come from; None where that is not known.

    Older stores have it without a checksum.
    """
    try:
        content = json.loads((path / SOURCE).read_bytes())
        source = content["source"]
    except (OSError, *NOT_AS_WRITTEN):
        return None
    is_it = isinstance(source, str) and content in ({"source": source}, _source_note(source))
    return source if is_it else None


def has_whole_source(path: Path) -> bool:
    """Whether the note of the folder is there, to the byte as `write_source` writes it."""
    source = read_source(path)
    return source is not None and (path / SOURCE).read_bytes() == _as_written(_source_note(source))


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the store at `path`.

    Raises:
        StoreError: there is no store at `path` or it may not be read.
        StoreMismatchError: the store has a newer format.
        StoreDamagedError: the manifest is not what was written.
    """
    try:
        if not path.exists():
            raise StoreError(
                f"a passage store was expected at {path}, but nothing is there; create it with `narrows index`"
            )
        if not path.is_dir():
            raise StoreError(
                f"a passage store is a folder, but {path} is a file; give the folder that `narrows index` made"
            )
        raw = (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        if is_recognisable(path):
            raise StoreDamagedError(f"the store {path} is damaged: its {MANIFEST} is gone; {ANEW}") from None
        raise StoreError(
            f"{path} is not a passage store: it has no {MANIFEST}; give a folder that `narrows index` made"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        content = json.loads(raw)
        version = int(content["format_version"])
        if version > FORMAT_VERSION:
            raise StoreMismatchError(
                f"the store {path} has format version {version}, but this narrows reads up to "
                f"{FORMAT_VERSION}; upgrade narrows or build the store anew"
            )
        fingerprint = Fingerprint.from_dict(content["fingerprint"])
        # Of a codec that this format version does not have: not a mistake of the caller, but damage.
        get_codec(fingerprint.codec)
        return Manifest(fingerprint, int(content["vector_width"]), bool(content.get("noted", False)))
    except NOT_AS_WRITTEN as error:
        raise StoreDamagedError(f"{path / MANIFEST} is not the manifest of a passage store; {ANEW}") from error


def is_recognisable(path: Path) -> bool:
    """Whether a folder is surely a store's, though its manifest may be damaged or gone.

    The name `manifest.json` alone says nothing: other programs have one too.
    """
    try:
        if foreign_names(path):
            return False
        content = json.loads((path / MANIFEST).read_bytes())
        if isinstance(content, dict) and content.get("format") == _FORMAT:
            return True
    except (OSError, *NOT_AS_WRITTEN):
        pass
    passages = path / PASSAGES
    try:
        names = set() if passages.is_symlink() else set(os.listdir(passages))
    except OSError:
        return False
    return bool(names) and names <= _LANCE_NAMES


def is_unborn(path: Path) -> bool:
    """True for a folder in which a store was about to be created and that holds nothing else."""
    try:
        if not path.is_dir() or foreign_names(path):
            return False
        return not (path / MANIFEST).exists() and not _holds_passages(path)
    except OSError as error:
        raise unreadable(path, error) from error


def require_unborn(path: Path) -> None:
    """Refuse a folder that holds anything but the beginning of a store.

    Raises:
        StoreError: it does, or it may not be read.
    """
    if not is_unborn(path):
        raise StoreError(
            f"a store is created in a new or empty folder, but {path} holds something already; "
            "open it with Store.open if it is a store, or choose another folder"
        )


def foreign_names(path: Path) -> list[str]:
    """Names in the folder that are not part of a store, sorted."""
    return sorted(set(os.listdir(path)) - _OWN_NAMES)


def has_dataset(path: Path) -> bool:
    """True when the dataset has at least one commit."""
    versions = path / PASSAGES / "_versions"
    return versions.is_dir() and any(name.endswith(".manifest") for name in os.listdir(versions))


def data_file(fragment: lance.LanceFragment) -> str:
    """The name of the one file that holds a fragment's rows, below the store."""
    return f"{PASSAGES}/data/{fragment.data_files()[0].path}"


def _holds_passages(path: Path) -> bool:
    """True when something is there that only a store with a commit has: the first one comes before any passage."""
    later = (path / PASSAGES / "data", path / PASSAGES / "_indices")
    return has_dataset(path) or any(one.exists() for one in later) or _notes_passages(path)


def _notes_passages(path: Path) -> bool:
    """Whether `checksums.json` is not just the one that is written before the first commit."""
    try:
        return f'"{PASSAGES}/'.encode() in (path / CHECKSUMS).read_bytes()
    except FileNotFoundError:
        return False


def require_versions(path: Path) -> None:
    """Make sure that passages have not lost the versions that say which of them count.

    Raises:
        StoreDamagedError: they have.
    """
    if _holds_passages(path) and not has_dataset(path):
        raise StoreDamagedError(
            f"the store {path} is damaged: it holds passages, but {PASSAGES}/_versions, which says which of them "
            f"count, is gone; {ANEW}"
        )


def bytes_on_disk(path: Path) -> int:
    """The sum of the sizes of all files below `path`."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # a writer cleaned it up between listing and looking
    return total


def lock_for_writing(path: Path) -> int:
    """Become the only writer; returns the open file that holds the lock.

    Raises:
        StoreBusyError: another process, or another writer of this one, holds it.
        StoreError: the folder may not be written to.
    """
    try:
        handle = os.open(path / WRITER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreError(f"the store {path} cannot be written to ({error.strerror}); check its permissions") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise StoreError(
                f"the store {path} cannot be locked ({error.strerror}); put it on a file system with locks"
            ) from error
        raise StoreBusyError(
            f"the store {path} takes one writer at a time and another one is writing to it; wait until it has finished"
        ) from None
    return handle


def lock_for_reading(path: Path) -> int:
    """Keep the versions of the dataset from being cleaned up; returns the open file that holds the lock."""
    try:
        handle = os.open(path / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_SH)
    except OSError as error:
        raise unreadable(path, error) from error
    return handle


def holds_nothing(path: Path) -> StoreError:
    """Indexing has not come to a first passage, or found none."""
    folder = shlex.quote(read_source(path) or "FOLDER")
    return StoreError(
        f"the store {path} holds no passages yet; run `narrows index {folder} -o {shlex.quote(str(path))}` to fill it"
    )


def mend(path: Path) -> str:
    """What to do about passages that cannot be read: the commands as they are typed, behind another sentence."""
    folder = shlex.quote(read_source(path) or "FOLDER")
    store = shlex.quote(str(path))
    return f"run `narrows store verify --repair {store}` and then `narrows index {folder} -o {store}`"


def without_remedy(path: Path, error: StoreDamagedError) -> str:
    """What an error says is wrong, for a report that says what to do about all damages together."""
    return str(error).removesuffix(f"; {ANEW}").removesuffix(f"; {mend(path)}")


def unreadable(path: Path, error: OSError) -> StoreError:
    """The operating system would not give a file of the store."""
    return StoreError(f"the store {path} cannot be read ({error.strerror}); check its permissions")


def try_alone(handle: int) -> bool:
    """Try to turn the shared lock of `handle` into an exclusive one: True when no other reader is left."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        fcntl.flock(handle, fcntl.LOCK_SH)
        return False
    return True


def share_again(handle: int) -> None:
    """Let other readers in again."""
    fcntl.flock(handle, fcntl.LOCK_SH)


# What Lance and Arrow raise for what lies on disk; a TypeError or the like is a mistake in our code and
# stays itself.
_LANCE_FAILURES = (OSError, ValueError, RuntimeError, LookupError, MemoryError)


def _is_lance_failure(error: BaseException) -> bool:
    # A panic of Lance's Rust code arrives as pyo3's PanicException, which is no Exception and has no name to
    # import.
    return isinstance(error, _LANCE_FAILURES) or type(error).__name__ == "PanicException"


@contextmanager
def lance_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn what Lance raises while `doing` ("reading", "writing to", "searching") into one sentence."""
    try:
        yield
    except NarrowsError:
        raise
    except BaseException as error:
        if not _is_lance_failure(error):
            raise
        cause = " ".join(str(error).split(", /")[0].split())[:300] or type(error).__name__
        if doing.startswith("writing"):
            raise StoreError(
                f"{doing} the store {path} failed ({cause}) and everything committed before is intact; "
                "make room or fix the permissions, and run `narrows index` again"
            ) from error
        raise StoreDamagedError(f"{doing} the store {path} failed ({cause}); {mend(path)}") from error
