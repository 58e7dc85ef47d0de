"""The size of the cache directory is bounded: the files that were used longest ago are removed.

    INLAY_CACHE_MB=512    so many MB (10^6 bytes) are kept, 256 by default; 0 keeps nothing beyond a process

A file counts as used when it is written and when it is read: reading sets its time of modification, once a day, as
times of access are not kept on most systems. Other processes may write and remove files meanwhile: that is no error.
"""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from inlay.errors import InvalidArguments
from inlay.forks import ForkResetLock

VARIABLE = "INLAY_CACHE_MB"
DEFAULT_BYTES = 256_000_000
KEPT = 0.75
"""The part of the bound that is left when files are removed, so that it is not done for each new file."""
_LOOKS = 16
"""How often the directory is looked through while as many bytes are written as it may hold."""
_STRAY_AFTER = 86_400.0
"""Seconds after which a temporary file belongs to a process that ended in the middle of writing."""
_OBJECT = re.compile(r"[0-9a-f]{64}\.[a-z]+")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}-.+")

_written: float = float("inf")  # bytes since the directory was looked through last; it was not yet
_counting = ForkResetLock()


def cache_limit() -> int:
    """The bytes that the cache directory may hold.

    Raises:
        InvalidArguments: INLAY_CACHE_MB is no number of at least 0.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return DEFAULT_BYTES
    try:
        limit = int(float(text) * 1e6)
    except (ValueError, OverflowError):
        limit = -1
    if limit < 0:
        raise InvalidArguments(f"{VARIABLE} is {text!r}: set it to the MB that the cache may hold, or unset it")
    return limit


def count_written(directory: Path, nbytes: int) -> None:
    """Take note of a file of so many bytes that was written, and trim the directory now and then.

    Raises:
        InvalidArguments: as `cache_limit`.
    """
    global _written
    limit = cache_limit()
    with _counting:
        _written += nbytes
        if _written < limit / _LOOKS:
            return
        _written = 0
    trim(directory, limit)


def trim(directory: Path, limit: int) -> int:
    """Remove the files used longest ago if the directory holds over `limit` bytes; return the bytes that it holds then.

    Files that Inlay did not write stay. Stray temporary files of processes that ended go.
    """
    found = []
    now = time.time()
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_file(follow_symlinks=False):
                    continue
                status = entry.stat(follow_symlinks=False)
                if _OBJECT.fullmatch(entry.name) and not entry.name.endswith(".lock"):
                    found.append((status.st_mtime, status.st_size, entry.path))
                elif _TEMPORARY.fullmatch(entry.name) and now - status.st_mtime > _STRAY_AFTER:
                    Path(entry.path).unlink()
    total = sum(size for _, size, _ in found)
    wanted = limit * KEPT if total > limit else total
    for _, size, path in sorted(found):
        if total <= wanted:
            break
        with suppress(OSError):
            Path(path).unlink()
            total -= size
    return total
