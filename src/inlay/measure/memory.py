"""`usable_memory`: the maximum number of bytes that this process can use, as reported by the system.

It is the smallest of: physical memory plus swap space, the memory limits of control groups
(`processors.memory_limit`), and the limit of the address space (`ulimit -v`). The use by other processes is ignored,
because it changes.
"""

import os
from contextlib import suppress
from pathlib import Path

from inlay.measure.processors import memory_limit

_MEMINFO = Path("/proc/meminfo")


def usable_memory() -> int | None:
    """Return the maximum number of bytes that this process can use; None if the system reports no limit.

    >>> (usable_memory() or 1) > 0
    True
    """
    limits = (_installed_memory(), memory_limit(), _address_space_limit())
    return min((nbytes for nbytes in limits if nbytes is not None), default=None)


def _installed_memory() -> int | None:
    """Return the bytes of physical memory plus swap space; None if unknown."""
    with suppress(OSError, ValueError, IndexError):
        lines = (line.partition(":") for line in _MEMINFO.read_text().splitlines())
        sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in lines if name in ("MemTotal", "SwapTotal")}
        if sizes.get("MemTotal"):
            return sum(sizes.values())
    with suppress(AttributeError, OSError, ValueError):  # sysconf or these names do not exist
        nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return nbytes if nbytes > 0 else None
    return None


def _address_space_limit() -> int | None:
    """Return the limit of the address space in bytes; None without a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
