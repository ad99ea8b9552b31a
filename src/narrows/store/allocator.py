"""What the GNU C library does with memory that Lance has freed; with another C library nothing here does anything.

It keeps freed memory in a pool for each thread that asked for it, and Lance asks in more and more threads: a long
indexing run would hold the buffers of a few hundred megabytes several times over without using any of them.
"""

import ctypes
from collections.abc import Callable

import pyarrow as pa

__all__ = ["give_memory_back", "share_one_pool"]

# M_ARENA_MAX of malloc.h.
_MOST_POOLS = -8


def share_one_pool() -> None:
    """Let threads that are yet to come allocate from the pools there are, for the rest of the process.

    To be called before Lance is first used. It is what MALLOC_ARENA_MAX=1 does from outside.
    """
    set_option = _of_c_library("mallopt")
    if set_option is not None:
        set_option(_MOST_POOLS, 1)


def give_memory_back() -> None:
    """Return to the system what has been freed."""
    pa.default_memory_pool().release_unused()
    trim = _of_c_library("malloc_trim")
    if trim is not None:
        trim(0)


def _of_c_library(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None)
