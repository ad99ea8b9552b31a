"""One process at a time over a file or a folder."""

import fcntl

__all__ = ["hold"]


def hold(handle: int) -> bool:
    """Lock an open file or folder, until it is closed or the process ends.

    Returns:
        False where another process, or another handle of this one, holds it; True also on a file system without locks.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file, open(file.name) as other:
        ...     hold(file.fileno()), hold(other.fileno())
        (True, False)
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
