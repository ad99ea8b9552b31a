"""Token ids of many texts, made once: by several processes, kept in files that are found by what they hold.

Texts are taken in shards, as they come. A shard's file is named by a sha256 of everything that decides its content:
the texts, the tokenizer's rules and vocabulary, the settings, and the version of the tokenizers library. So a file is
never out of date, and the folder can be deleted, shared and written to by several programs at once. A file that is
not what was written is made again. A killed program may leave a `.partial` file, which nothing reads.
"""

import hashlib
import json
import os
import secrets
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from narrows.data.tokens import plain_tokenizer, tokenizer_rules
from narrows.errors import OutputError, UsageError

__all__ = ["TokenCache", "TokenizedTexts", "shard_key"]

_FORMAT = 1
# Open files of a corpus: each is mapped, not read, but counts against the system's limit.
_MOST_OPEN = 32
# Shards that wait for each process: enough that none idles, few enough for memory.
_WAITING = 2


class _Shard(NamedTuple):
    path: Path
    texts: int


def shard_key(texts: Iterable[str], *, rules: str, settings: Mapping[str, Any]) -> str:
    """The name of a shard: a sha256 of all that decides which ids it holds, the same on every machine.

    Args:
        texts: in order.
        rules: of the tokenizer; see `narrows.data.tokens.tokenizer_rules`.
        settings: of the tokenizing, as JSON can hold them.

    Raises:
        UsageError: a text cannot be written as UTF-8.
    """
    digest = hashlib.sha256()
    for part in (json.dumps({"format": _FORMAT, **settings}, sort_keys=True), rules, *texts):
        try:
            data = part.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"expected Unicode text, got half of a surrogate pair at character {error.start} of "
                f"{part[:20]!r}...; correct or remove it."
            ) from error
        # Its length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class TokenizedTexts(Sequence[np.ndarray]):
    """The token ids of texts, in their order, read from files as they are asked for.

    An item is an int32 array `[tokens]`. Memory holds the lengths of a few shards, and no ids.

    Attributes:
        made: shards that were tokenized for this.
        reused: shards that were found.
    """

    def __init__(self, shards: Sequence[_Shard], *, made: int = 0, reused: int = 0) -> None:
        self._shards = list(shards)
        self._ends = np.cumsum([shard.texts for shard in self._shards], dtype=np.int64).tolist()
        self._open: OrderedDict[int, tuple[Any, np.ndarray]] = OrderedDict()
        self.made = made
        self.reused = reused

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The ids of one text; slices are not supported.

        Raises:
            IndexError: there is no such text.
            UsageError: a file of the cache was deleted or damaged since.
        """
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"expected a text from 0 to {len(self) - 1}, got {index}; pass one of them.")
        number = bisect_right(self._ends, place)
        within = place - (self._ends[number - 1] if number else 0)
        ids, starts = self._of(number)
        return ids[int(starts[within]) : int(starts[within + 1])]

    def lengths(self) -> np.ndarray:
        """Tokens of each text, int64 `[texts]`, without reading the ids.

        Raises:
            UsageError: as an item.
        """
        each = [np.diff(self._of(number)[1]) for number in range(len(self._shards))]
        return np.concatenate([np.empty(0, dtype=np.int64), *each])

    def __reduce__(self) -> tuple[Any, ...]:
        # A data loader's workers open the files themselves.
        return TokenizedTexts, (self._shards,)

    def _of(self, number: int) -> tuple[Any, np.ndarray]:
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        path = self._shards[number].path
        try:
            file = safe_open(path, framework="numpy")
            opened = file.get_slice("ids"), file.get_tensor("starts")
        except (OSError, SafetensorError) as error:
            raise UsageError(
                f"{path}: expected token ids of the cache, got {error}; tokenize the texts again."
            ) from error
        self._open[number] = opened
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        return opened


class TokenCache:
    """Tokenizes texts whole, as plain text, and keeps the ids in a folder.

    Args:
        folder: where files are kept; made when it is not there.
        tokenizer: a fast tokenizer, of transformers or of the tokenizers library.
        add_special_tokens: whether to add what the tokenizer puts around a text, such as T5's `</s>`.
        workers: processes; as many as this one may use cores when None.
        shard_characters: characters from which on a shard is full.
        serial_below: characters to be tokenized up to which no processes are started, as that takes longer.

    Raises:
        UsageError: the tokenizer is no fast one, or a number is below 1 (`serial_below`: below 0).

    Example:
        `TokenCache("cache", tokenizer=tokenizer).tokenize(texts)[0]`
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        tokenizer: Any,
        add_special_tokens: bool = False,
        workers: int | None = None,
        shard_characters: int = 4_000_000,
        serial_below: int = 2_000_000,
    ) -> None:
        for name, value, least in (
            ("workers", 1 if workers is None else workers, 1),
            ("shard_characters", shard_characters, 1),
            ("serial_below", serial_below, 0),
        ):
            if value < least:
                raise UsageError(f"expected {name} of at least {least}, got {value}; pass a larger one.")
        self._folder = Path(folder)
        self._rules = tokenizer_rules(tokenizer)
        self._settings = {"add_special_tokens": add_special_tokens, "tokenizers": tokenizers.__version__}
        self._workers = _cores() if workers is None else workers
        self._shard_characters = shard_characters
        self._serial_below = serial_below
        self._maker = _Maker(self._rules, add_special_tokens)

    def tokenize(self, texts: Iterable[str], *, on_shard: Callable[[int], None] | None = None) -> TokenizedTexts:
        """Tokenizes what the folder does not hold yet.

        Texts are taken from the iterable as they are needed; a few shards of them are held at once.

        Args:
            texts: what to tokenize.
            on_shard: told how many texts were taken, for a progress bar.

        Raises:
            UsageError: a text is no Unicode string, or a worker process ended.
            OutputError: the folder cannot be written to.
        """
        self._make_folder()
        shards: list[_Shard] = []
        begun: set[str] = set()
        made = unmade_characters = 0
        with ExitStack() as stack:
            pool: _Pool | None = None
            for batch in _batches(texts, self._shard_characters):
                key = shard_key(batch, rules=self._rules, settings=self._settings)
                shard = _Shard(self._folder / f"{key}.safetensors", len(batch))
                if key not in begun and not _is_whole(shard, key):
                    begun.add(key)
                    made += 1
                    unmade_characters += sum(map(len, batch))
                    if pool is None and self._workers > 1 and unmade_characters > self._serial_below:
                        pool = stack.enter_context(_Pool(self._workers, self._maker))
                    (self._maker.make if pool is None else pool.make)(shard.path, key, batch)
                shards.append(shard)
                if on_shard is not None:
                    on_shard(len(batch))
            if pool is not None:
                pool.finish()
        return TokenizedTexts(shards, made=made, reused=len(shards) - made)

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"expected a folder for token ids, got {self._folder} ({error.strerror}); choose another."
            ) from error


class _Maker:
    """Tokenizes a shard and writes its file."""

    def __init__(self, rules: str, add_special_tokens: bool) -> None:
        self.arguments = (rules, add_special_tokens)
        self._tokenizer = plain_tokenizer(rules)
        self._add_special_tokens = add_special_tokens

    def make(self, path: Path, key: str, texts: Sequence[str]) -> None:
        # A text at a time: the library's batches hold offsets and words of all their texts at once.
        each = [
            np.array(self._tokenizer.encode(text, add_special_tokens=self._add_special_tokens).ids, dtype=np.int32)
            for text in texts
        ]
        starts = np.zeros(len(each) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in each], out=starts[1:])
        ids = np.concatenate([np.empty(0, dtype=np.int32), *each])
        # One entry: the library writes several in any order, and equal shards are to be equal files.
        data = save({"ids": ids, "starts": starts}, {"sha256": _digest(key, ids, starts)})
        # A name of its own: another process may be making the same shard.
        partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
        try:
            partial.write_bytes(data)
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OutputError(
                f"expected room and permission to write {path}, got {error.strerror}; "
                "make room or choose another folder."
            ) from error


_maker_here: _Maker


def _start_worker(rules: str, add_special_tokens: bool) -> None:
    global _maker_here
    # The processes are the parallelism; threads in each would be too many.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _maker_here = _Maker(rules, add_special_tokens)


def _make_in_worker(path: Path, key: str, texts: Sequence[str]) -> None:
    _maker_here.make(path, key, texts)


class _Pool:
    """Processes that make shards; holds back the caller when enough shards wait."""

    def __init__(self, workers: int, maker: _Maker) -> None:
        # Spawned, not forked: a fork copies locks of torch's and tokenizers' threads in whatever state they are.
        self._executor = ProcessPoolExecutor(
            workers, mp_context=get_context("spawn"), initializer=_start_worker, initargs=maker.arguments
        )
        self._most_waiting = _WAITING * workers
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)

    def make(self, path: Path, key: str, texts: Sequence[str]) -> None:
        try:
            self._waiting.append(self._executor.submit(_make_in_worker, path, key, texts))
        except BrokenProcessPool as error:
            raise _ended() from error
        while len(self._waiting) > self._most_waiting:
            self._take()

    def finish(self) -> None:
        while self._waiting:
            self._take()

    def _take(self) -> None:
        try:
            self._waiting.popleft().result()
        except BrokenProcessPool as error:
            raise _ended() from error


def _ended() -> UsageError:
    return UsageError(
        "expected worker processes to tokenize to the end, got one that ended; call it under "
        '`if __name__ == "__main__":` in a script, or pass workers=1 where memory is short.'
    )


def _batches(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    batch: list[str] = []
    held = 0
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"expected texts as strings, got {type(text).__name__}; pass the text itself.")
        batch.append(text)
        held += len(text)
        if held >= characters:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _is_whole(shard: _Shard, key: str) -> bool:
    """Whether the file is there and holds what was written for this key."""
    try:
        with safe_open(shard.path, framework="numpy") as file:
            metadata = file.metadata() or {}
            ids, starts = file.get_tensor("ids"), file.get_tensor("starts")
    except (OSError, SafetensorError):
        return False
    return metadata.get("sha256") == _digest(key, ids, starts)


def _digest(key: str, ids: np.ndarray, starts: np.ndarray) -> str:
    digest = hashlib.sha256(f"{key} {ids.dtype} {ids.shape} {starts.dtype} {starts.shape}".encode())
    for array in (ids, starts):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
