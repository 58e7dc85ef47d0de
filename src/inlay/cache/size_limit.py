"""The size limit of the cache directory: the least recently used files are removed.

    INLAY_CACHE_MB=512    limit in MB (10^6 bytes); 256 by default; 0: a file is removed when it has been written

A file is used when it is written or read. A read sets its modification time, at most once a day, because most systems
do not record access times. Other processes may write and remove files at the same time.
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
TRIM_SHARE = 0.75
"""Share of the limit that remains after files are removed, so that not every new file exceeds the limit again."""
_SCANS_PER_LIMIT = 16
"""Number of scans of the directory while as many bytes as the limit are written."""
_STRAY_AGE = 86_400.0
"""Age after which a temporary file is assumed to be left by a process that was killed, in seconds."""
_OBJECT = re.compile(r"[0-9a-f]{64}\.[a-z]+")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}-.+")

_written: float = float("inf")  # bytes written since the last scan of the directory; infinity before the first scan
_counter_lock = ForkResetLock()


def cache_limit() -> int:
    """Return the limit of the size of the cache directory, in bytes.

    Raises:
        InvalidArguments: INLAY_CACHE_MB is not a number of at least 0.
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
    """Record that a file of `nbytes` bytes was written, and trim the directory after every sixteenth of the limit.

    Raises:
        InvalidArguments: as `cache_limit`.
    """
    global _written
    limit = cache_limit()
    with _counter_lock:
        _written += nbytes
        if _written < limit / _SCANS_PER_LIMIT:
            return
        _written = 0
    trim(directory, limit)


def trim(directory: Path, limit: int) -> int:
    """Remove the least recently used files if the directory has more than `limit` bytes; return its size afterwards.

    Only files of the cache are counted and removed. Old temporary files of killed processes are removed too.
    """
    files = []
    now = time.time()
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_file(follow_symlinks=False):
                    continue
                status = entry.stat(follow_symlinks=False)
                if _OBJECT.fullmatch(entry.name) and not entry.name.endswith(".lock"):
                    files.append((status.st_mtime, status.st_size, entry.path))
                elif _TEMPORARY.fullmatch(entry.name) and now - status.st_mtime > _STRAY_AGE:
                    Path(entry.path).unlink()
    total = sum(size for _, size, _ in files)
    target = limit * TRIM_SHARE if total > limit else total
    for _, size, path in sorted(files):
        if total <= target:
            break
        with suppress(OSError):
            Path(path).unlink()
            total -= size
    return total
