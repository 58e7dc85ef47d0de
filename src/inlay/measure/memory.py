"""`usable_memory`: the most bytes that this process can have in use, as far as the system says.

The least of: physical memory and swap space together, the limits of control groups (`processors.memory_limit`), and the
limit of the process's address space (`ulimit -v`). How much of it other processes have in use is left out: that
changes.
"""

import os
from contextlib import suppress
from pathlib import Path

from inlay.measure.processors import memory_limit

_MEMINFO = Path("/proc/meminfo")


def usable_memory() -> int | None:
    """Bytes that can be in use at most; None where the system says nothing.

    >>> (usable_memory() or 1) > 0
    True
    """
    found = (_installed(), memory_limit(), _address_space())
    return min((nbytes for nbytes in found if nbytes is not None), default=None)


def _installed() -> int | None:
    """Physical memory and swap space."""
    with suppress(OSError, ValueError, IndexError):
        lines = (line.partition(":") for line in _MEMINFO.read_text().splitlines())
        sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in lines if name in ("MemTotal", "SwapTotal")}
        if sizes.get("MemTotal"):
            return sum(sizes.values())
    with suppress(AttributeError, OSError, ValueError):  # no sysconf, or not these names
        nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return nbytes if nbytes > 0 else None
    return None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
