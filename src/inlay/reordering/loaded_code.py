"""Machine code in this process: object files that LLVM links into memory, and unloads once nothing refers to them.

**Linker.** JITLink puts all sections of an object into one block of memory. RuntimeDyld, the other linker of LLVM, maps
each section by itself: where the sections end up more than 2 GiB apart, as in the gaps that freed memory leaves, the
relocations of the small code model cannot reach, and LLVM calls abort().

**Sessions.** A session of LLVM (LLJIT) keeps some 9 KB of each object for its own life, also after the object was
unloaded. So a session links `_SESSION_OBJECTS` objects, and ends when the last of them is unloaded.

**Unloading.** A garbage collector may drop the last reference at any moment: in the middle of a call of LLVM, on any
thread, in a forked child. So it only queues the object, and `make_room` unloads what is queued.

**Bound.** The code of an object takes two memory mappings, of which Linux allows a process 65,530, and LLVM calls
abort() where the system refuses one. So `make_room` refuses before that.
"""

import sys
import weakref
from collections import deque
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from inlay.errors import OutOfMemory
from inlay.reordering.target import host_target, llvm_lock, target_machine

_SESSION_OBJECTS = 16
_LIMIT, _MAPPINGS = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")
_MOST_UNCHECKED = 256  # loads between two counts of the mappings, which take a microsecond for every two mappings

_unused: deque[Any] = deque()  # resource trackers of objects that nothing refers to
_libraries = count()
_unchecked_loads = 0  # so many loads may follow before the mappings are counted again


class LoadedCode:
    """The functions of one object file, which stay loaded while this object is referred to.

    Whoever keeps an address of a function has to keep this object too.
    """

    __slots__ = ("__weakref__", "addresses")

    def __init__(self, addresses: tuple[int, ...], tracker: object) -> None:
        """Take over the resource `tracker` of the object file."""
        self.addresses = addresses
        """Addresses of the functions, in the order in which they were asked for."""
        weakref.finalize(self, _unused.append, tracker).atexit = False


def load_object(data: bytes, symbols: tuple[str, ...]) -> LoadedCode:
    """Link an object file into this process.

    Args:
        data: the object file, for this machine.
        symbols: the functions of it that are wanted.

    Raises:
        RuntimeError: LLVM cannot link it.
    """
    with llvm_lock:
        number = next(_libraries)
        builder = llvm.JITLibraryBuilder().add_object_img(data)
        for symbol in symbols:
            builder.export_symbol(symbol)
        tracker = builder.link(_session(number // _SESSION_OBJECTS), f"inlay-{number}")
        return LoadedCode(tuple(int(tracker[symbol]) for symbol in symbols), tracker)


def make_room() -> None:
    """Unload code that nothing refers to, and check that there is room for more.

    Raises:
        OutOfMemory: the process has three quarters of the memory mappings that the system allows.
    """
    with llvm_lock:
        unload_unused()
        _require_mappings()


def unload_unused() -> None:
    """Give back the memory of code that nothing refers to."""
    with llvm_lock:
        while _unused:
            _unused.popleft().close()


@lru_cache(maxsize=1)
def _session(number: int) -> Any:
    """The session that links now; resource trackers keep the sessions before it as long as they need them."""
    # Windows has RuntimeDyld alone.
    return llvm.create_lljit_compiler(target_machine(host_target()), use_jit_link=sys.platform != "win32")


def _require_mappings() -> None:
    """Raise OutOfMemory if the process has three quarters of the mappings that it may have.

    The rest is for whatever maps memory between two counts, and for code that every process needs.
    """
    global _unchecked_loads
    if _unchecked_loads > 0:
        _unchecked_loads -= 1
        return
    limit = _mapping_limit()
    if limit is None:
        return
    mappings = _MAPPINGS.read_bytes().count(b"\n")
    left = limit * 3 // 4 - mappings
    if left <= 0:
        raise OutOfMemory(
            f"this process has {mappings} memory mappings, and the system allows {limit}: no more machine code is "
            "loaded; delete reorders and other objects that are not needed, or continue in a new process"
        )
    _unchecked_loads = min(_MOST_UNCHECKED, left // 8)


@lru_cache(maxsize=1)
def _mapping_limit() -> int | None:
    """How many memory mappings a process may have; None where the system has no such limit."""
    try:
        return int(_LIMIT.read_text())
    except (OSError, ValueError):
        return None
