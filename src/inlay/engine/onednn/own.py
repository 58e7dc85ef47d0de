"""What the engine computes by machine code of Inlay's own, since no oneDNN for processors has it: Winograd convolution.

That code runs on the library's threads, not beside them: after a call they wait for the next one busily, and a second
team would have to take the processors from them. So it needs the OpenMP that the library was linked to, and a library
on another runtime has none of it.
"""

from ctypes import c_void_p, cast
from typing import Any

from inlay.engine.onednn.library import Library
from inlay.engine.winograd import Team, is_transformed, transforming, winograd
from inlay.errors import Unimplemented
from inlay.primitives.operation import Implementation, Operation
from inlay.reordering.target import host_target

_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_AVX2 = 32  # bytes of its registers


def team_of(library: Library) -> Team | None:
    """The OpenMP that the library was linked to; None where machine code of our own is not to run on it.

    That is so where it is another runtime, or lacks GNU's names, and on processors that do not multiply and add at
    once: a function that does it for each float takes far longer than the library.
    """
    is_gnu = library.runtime == "omp" and all(hasattr(library.cdll, name) for name in _FUNCTIONS)
    if not is_gnu or not _is_fused():
        return None
    return Team(*(_address(library.cdll[name]) for name in _FUNCTIONS))


def _is_fused() -> bool:
    """Whether this processor multiplies and adds at once, and there is machine code for it at all."""
    try:
        target = host_target()
    except Unimplemented:
        return False
    return target.vector_bytes >= _AVX2 or not target.triple.startswith("x86_64")


def _address(function: Any) -> int:
    return cast(function, c_void_p).value or 0


def own_reorder(operation: Operation) -> Implementation | None:
    """What lays out weights for a Winograd convolution; None for any other operation.

    Raises:
        Unimplemented: the source has no layout.
    """
    dst = operation.descs.get("dst") if operation.kind == "reorder" else None
    return transforming(operation) if dst is not None and is_transformed(dst) else None


def own_convolution(operation: Operation, team: Team | None, threads: int) -> Implementation | None:
    """A Winograd convolution on so many threads of the library; None for any other operation, and without a team.

    Raises:
        Unimplemented: it is one that the machine code is not for.
    """
    asked = operation.kind, operation.prop_kind, operation.parameters.get("algorithm")
    if team is None or asked != ("convolution", "forward_inference", "winograd"):
        return None
    return winograd(operation, team, threads)
