"""`PrimitiveBatch`: bound primitives that are executed one after the other in one call, without Python in between.

    together = PrimitiveBatch(bound)
    together.submit()               as `for one in bound: one.submit()`

From Python an execution costs 0.8 us more than the library's own call; a network of small tensors has hundreds. The
loop over a table of arguments is machine code, four words for each primitive:

    primitive | stream | how many arguments | their array
    0 | function | a number | an address                        a check before or after a primitive
"""

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.engines.onednn.execution import Bound, Lane
from inlay.primitives.engine import MemoryCheck
from inlay.reordering.target import host_target, load_permanently

_ENTRY = "inlay_execute_all"
_STATUS_BITS = 8
_FOUND = (1 << _STATUS_BITS) - 1  # no status of the library
_IR = f"""\
define i64 @{_ENTRY}(ptr %table, i64 %count, ptr %execute) {{
entry:
  %is_none = icmp eq i64 %count, 0
  br i1 %is_none, label %done, label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %fine ]
  %at = mul i64 %i, 4
  %p0 = getelementptr i64, ptr %table, i64 %at
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %primitive = load ptr, ptr %p0
  %stream = load ptr, ptr %p1
  %arguments = load i64, ptr %p2
  %array = load ptr, ptr %p3
  %is_check = icmp eq ptr %primitive, null
  br i1 %is_check, label %check, label %primitive_row
check:
  %is_found = call i32 %stream(ptr %array, i64 %arguments)
  %code = mul i32 %is_found, {_FOUND}
  br label %executed
primitive_row:
  %arguments32 = trunc i64 %arguments to i32
  %answer = call i32 %execute(ptr %primitive, ptr %stream, i32 %arguments32, ptr %array)
  br label %executed
executed:
  %status = phi i32 [ %code, %check ], [ %answer, %primitive_row ]
  %after = add i64 %i, 1
  %is_fine = icmp eq i32 %status, 0
  br i1 %is_fine, label %fine, label %failed
fine:
  %is_last = icmp eq i64 %after, %count
  br i1 %is_last, label %done, label %next
failed:
  %wide = zext i32 %status to i64
  %place = shl i64 %i, {_STATUS_BITS}
  %both = or i64 %place, %wide
  ret i64 %both
done:
  ret i64 0
}}
"""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


@cache
def _execute_all() -> Callable[[int, int, int], int]:
    """The loop, as machine code; its text is the key that it is kept by."""
    (address,) = load_permanently(_IR, lambda: _IR, host_target(), _ENTRY)
    return _FUNCTION(address)


class PrimitiveBatch:
    """Bound primitives of one engine, in the order in which they are executed; one thread uses it at a time.

    Whoever uses it keeps it until the engine was waited for.
    """

    __slots__ = (
        "_address",
        "_arrays",
        "_bound",
        "_execute",
        "_first",
        "_lane",
        "_run",
        "_scratch",
        "_table",
        "_threads",
    )

    def __init__(self, bound: Iterable[Bound | MemoryCheck]) -> None:
        """Make a table of at least one primitive, and checks; all primitives are of one engine, for as many threads."""
        self._bound = list(bound)
        executables = [one.executable for one in self._bound if isinstance(one, Bound)]
        first = self._first = executables[0]
        self._run = _execute_all()
        self._execute = ctypes.cast(first.execute, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
        self._threads = first.threads
        self._scratch = max(one.scratch for one in executables)
        self._table: npt.NDArray[np.int64] = np.zeros((len(self._bound), 4), np.int64)
        self._address = int(self._table.ctypes.data)
        self._arrays: list[Any] = [None] * len(self._bound)
        self._lane: Lane | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(self._bound)

    def put(self, i: int, call: Callable[[], None]) -> None:
        """Execute `call` in place of what is at `i`: the same primitive with other memories."""
        assert isinstance(call, Bound)
        self._bound[i] = call
        if self._lane is not None:
            self._write(i, self._lane)

    def _write(self, i: int, lane: Lane) -> None:
        bound = self._bound[i]
        if isinstance(bound, MemoryCheck):
            self._table[i] = (0, bound.function, bound.number, bound.address)
            return
        executable, array = bound.executable, bound.arguments(lane)
        self._arrays[i] = array
        self._table[i] = (executable.primitive, lane.stream, executable.count, ctypes.addressof(array))

    def submit(self) -> None:
        """Begin to compute all, in order.

        Raises:
            OutOfMemory: there is no room for the scratchpad.
            InlayError: the library fails.
            Exception: the failure of a check.
        """
        lane = self._first.lanes.lane
        if lane.threads != self._threads:
            lane.tell(self._threads)
        if lane.size < self._scratch:
            lane.reserve(self._scratch)
        if lane is not self._lane:
            self._lane = lane
            for i in range(len(self._bound)):
                self._write(i, lane)
        failed = self._run(self._address, len(self._bound), self._execute)
        if failed:
            bound, status = self._bound[failed >> _STATUS_BITS], failed & _FOUND
            if isinstance(bound, MemoryCheck):
                raise bound.failure
            executable = bound.executable
            raise executable.library.error(status, f"an execution of {executable.plan.what}")


def batches(calls: Iterable[Callable[[], None] | MemoryCheck]) -> list[PrimitiveBatch]:
    """Bound primitives of one engine, in order, as one batch for each number of threads in a row."""
    found: list[list[Bound | MemoryCheck]] = [[]]
    threads: int | None = None
    for one in calls:
        assert isinstance(one, (Bound, MemoryCheck))
        if isinstance(one, Bound):
            if threads not in (None, one.executable.threads):
                found.append([])
            threads = one.executable.threads
        found[-1].append(one)
    return [PrimitiveBatch(batch) for batch in found if batch]
