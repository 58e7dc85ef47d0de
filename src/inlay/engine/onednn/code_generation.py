"""Creation of primitives in spite of errors that the library's code generator keeps.

oneDNN generates code with Xbyak. Xbyak stores an error, such as a displacement of more than 32 bits, in a thread-local
variable that oneDNN reads and never clears: after one `runtime_error` every creation on that thread fails, and one that
reports success there may lack a part. A new thread has a new variable. Hence

    an ordinary operation       is created by the calling thread
    one that is prone to fail   is created by a new thread, and the calling thread keeps a clear variable
    after an error              the creation is repeated by a new thread, and so is every later one of this thread

A new thread costs 0.1 ms, an ordinary creation 0.03 ms and more: so not every creation gets one.

Source: `Xbyak::local::GetErrorRef` in xbyak.h, `jit_generator_t::create_kernel` in oneDNN.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, OutOfMemory
from inlay.layout import Layout

_Result = TypeVar("_Result")

_FAR: Final = 1 << 28
"""Elements between the ends of an axis from which on displacements may not fit in 32 bits; for a blocked axis, a bound
of them. The shortest axis that failed had 3 * 2^28."""
_EMULATED: Final = frozenset((DATA_TYPES["f8_e5m2"], DATA_TYPES["f8_e4m3"]))
"""Types whose conversions are generated, not single instructions: 3.13 fails at one of them with AMX."""


class RuntimeFailure(InlayError):
    """The status `runtime_error` of the library."""


class _ThreadState(threading.local):
    """State of one Python thread."""

    has_failed = False
    """Whether the library reported a runtime error to it."""


class CodeGeneration:
    """Chooses the thread that generates code for one library."""

    def __init__(self) -> None:
        """Begin without errors."""
        self._state = _ThreadState()

    def run(self, create: Callable[[], _Result], prepare: Callable[[], object], *, isolate: bool = False) -> _Result:
        """Return `create()`, called on a thread on which the code generator has not failed.

        Args:
            create: calls the library; a runtime error is raised as `RuntimeFailure`.
            prepare: called before it on a new thread, to set what the calling thread has set.
            isolate: a new thread creates, whatever happened before.

        Raises:
            RuntimeFailure: code generation fails on a new thread too.
            OutOfMemory: the system starts no thread.
        """
        if not (isolate or self._state.has_failed):
            try:
                return create()
            except RuntimeFailure:
                self._state.has_failed = True

        def prepared() -> _Result:
            prepare()
            return create()

        return run_on_new_thread(prepared)


def run_on_new_thread(call: Callable[[], _Result]) -> _Result:
    """Return `call()`, or raise its error; a thread is started for it and ends with it.

    Raises:
        OutOfMemory: the system starts no thread.

    >>> run_on_new_thread(threading.current_thread) is threading.current_thread()
    False
    """
    try:
        with ThreadPoolExecutor(1, "inlay-code-generation") as threads:
            created = threads.submit(call)
    except RuntimeError as error:
        raise OutOfMemory(f"the system starts no thread to create a primitive with: {error}") from error
    return created.result()


def is_prone(descs: Iterable[MemoryDesc]) -> bool:
    """Whether code generation for tensors of these descriptors is likely to fail.

    >>> is_prone([MemoryDesc((2, 17), "f32")]), is_prone([MemoryDesc((2, 17), "f8_e5m2")])
    (False, True)
    """
    for desc in descs:
        if desc.data_type in _EMULATED:
            return True
        if isinstance(desc.layout, Layout):
            for dim, axis in zip(desc.dims, desc.layout.axes, strict=True):
                if dim * axis.stride >= _FAR:
                    return True
        elif desc.size >= _FAR:
            return True
    return False
