"""`PrimitiveBatch`: bound primitives that one call executes one after the other, without Python in between.

    batch = PrimitiveBatch(bound)
    batch.submit()               same result as `for primitive in bound: primitive.submit()`

From Python, an execution takes 0.8 us more than the call of the library alone, and a network of small tensors executes
hundreds. A batch therefore stores the arguments of all executions in a table, and machine code iterates over its rows.
A row has four words of 64 bits:

    primitive, stream, number of arguments, address of the argument array     an execution of a primitive
    0, function, number, address                                              a `MachineCall`
"""

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.engines.onednn.execution import BoundPrimitive, Executable, ThreadContext
from inlay.primitives.engine import MachineCall
from inlay.reordering.target import host_target, load_permanently

_ENTRY = "inlay_execute_all"
_STATUS_BITS = 8
_STOPPED = (1 << _STATUS_BITS) - 1  # the status of machine code that returned 1; the library has no such status
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
  %is_function = icmp eq ptr %primitive, null
  br i1 %is_function, label %function, label %primitive_row
function:
  %is_stopped = call i32 %stream(ptr %array, i64 %arguments)
  %code = mul i32 %is_stopped, {_STOPPED}
  br label %executed
primitive_row:
  %arguments32 = trunc i64 %arguments to i32
  %answer = call i32 %execute(ptr %primitive, ptr %stream, i32 %arguments32, ptr %array)
  br label %executed
executed:
  %status = phi i32 [ %code, %function ], [ %answer, %primitive_row ]
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
    """Return the loop over the rows as machine code; its text is the key in the cache of machine code."""
    (address,) = load_permanently(_IR, lambda: _IR, host_target(), _ENTRY)
    return _FUNCTION(address)


class PrimitiveBatch:
    """Bound primitives of one engine in the order of execution.

    Only one thread may use a batch at a time. The caller keeps the batch alive until `OnednnEngine.wait` returns.
    """

    __slots__ = (
        "_address",
        "_arrays",
        "_bound",
        "_context",
        "_execute",
        "_first",
        "_run",
        "_scratch",
        "_table",
    )

    def __init__(self, bound: Iterable[BoundPrimitive | MachineCall]) -> None:
        """Build the table.

        Args:
            bound: primitives and machine code; all primitives are of one engine and of one number of threads.
        """
        self._bound = list(bound)
        executables = [call.executable for call in self._bound if isinstance(call, BoundPrimitive)]
        first = self._first = executables[0] if executables else None
        self._run = _execute_all()
        self._execute = ctypes.cast(first.execute, ctypes.c_void_p).value or 0 if first else 0  # type: ignore[arg-type]
        self._scratch = max((executable.scratch for executable in executables), default=0)
        self._table: npt.NDArray[np.int64] = np.zeros((len(self._bound), 4), np.int64)
        self._address = int(self._table.ctypes.data)
        self._arrays: list[Any] = [None] * len(self._bound)
        self._context: ThreadContext | None = None
        for i, call in enumerate(self._bound):
            if not isinstance(call, BoundPrimitive):
                self._write_function(i, call)

    def __len__(self) -> int:
        """Return the number of rows: executions and calls of machine code."""
        return len(self._bound)

    def put(self, i: int, call: Callable[[], None]) -> None:
        """Replace row `i` by `call`, which is the same primitive or machine code bound to other memories."""
        assert isinstance(call, (BoundPrimitive, MachineCall))
        self._bound[i] = call
        if isinstance(call, MachineCall):
            self._write_function(i, call)
        elif self._context is not None:
            self._write(i, self._context)

    def _write_function(self, i: int, call: MachineCall) -> None:
        """Write row `i` for machine code: (0, function, number, address)."""
        self._table[i] = (0, call.function, call.number, call.address)

    def _write(self, i: int, context: ThreadContext) -> None:
        """Write row `i` for an execution in the thread of `context`, if it is one of a primitive.

        A row is (primitive, stream, number of arguments, address of the arguments).
        """
        bound = self._bound[i]
        if not isinstance(bound, BoundPrimitive):
            return
        executable, array = bound.executable, bound.arguments(context)
        self._arrays[i] = array
        self._table[i] = (executable.primitive, context.stream, executable.count, ctypes.addressof(array))

    def _prepare_context(self, first: Executable) -> None:
        """Set the number of threads and the scratchpad of the calling thread, and write its rows."""
        context = first.thread_contexts.current
        if context.threads != first.threads:
            context.set_num_threads(first.threads)
        if context.size < self._scratch:
            context.reserve(self._scratch)
        if context is not self._context:
            self._context = context
            for i in range(len(self._bound)):
                self._write(i, context)

    def submit(self) -> None:
        """Start all executions and run all machine code, in order.

        Raises:
            OutOfMemory: the scratchpad cannot be allocated.
            InlayError: the library fails.
            Exception: machine code stopped the batch; the exception is that of `MachineCall.failure`.
        """
        if self._first is not None:
            self._prepare_context(self._first)
        failure = self._run(self._address, len(self._bound), self._execute)
        if failure:  # the number of the row, and its status in the low bits
            bound, status = self._bound[failure >> _STATUS_BITS], failure & _STOPPED
            if isinstance(bound, MachineCall):
                raise bound.failure()
            assert isinstance(bound, BoundPrimitive)
            executable = bound.executable
            raise executable.library.error(status, f"an execution of {executable.plan.operation_name}")


def make_batches(calls: Iterable[Callable[[], None]]) -> list[PrimitiveBatch]:
    """Split calls of one engine, in order, into batches; a new batch begins where the number of threads changes."""
    groups: list[list[BoundPrimitive | MachineCall]] = [[]]
    threads: int | None = None
    for call in calls:
        assert isinstance(call, (BoundPrimitive, MachineCall))
        if isinstance(call, BoundPrimitive):
            if threads not in (None, call.executable.threads):
                groups.append([])
            threads = call.executable.threads
        groups[-1].append(call)
    return [PrimitiveBatch(group) for group in groups if group]
