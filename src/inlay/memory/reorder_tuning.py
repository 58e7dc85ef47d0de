"""Tuning of a reorder between two descriptors: its alternatives are timed on buffers of the sizes that they need."""

from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.memory.buffers import address_of, allocate
from inlay.memory.reorder_cache import byte_extent, find_reorder
from inlay.reordering.choice import Decision
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.tuning import SECONDS, tune


def tuning_seconds(tune: Any) -> float | None:
    """Return the seconds that the argument `tune` allows for tuning, or None if it is False.

    Raises:
        InvalidArguments: `tune` is neither a bool nor a positive number.

    >>> tuning_seconds(True), tuning_seconds(False), tuning_seconds(2.5)
    (1.0, None, 2.5)
    """
    if isinstance(tune, bool):
        return SECONDS if tune else None
    if not isinstance(tune, (int, float)) or not 0 < tune < 2**63:
        raise InvalidArguments(
            f"tune is {shown(tune)}: give True to tune for {SECONDS:g} s, or the seconds that it may take, more than 0"
        )
    return float(tune)


_FILL_BYTE = 0x3F
"""Byte that fills buffers for tuning: in every type a normal number (0.75 as f32, 1.8 as f16, 63 as u8), since
arithmetic on subnormal numbers is slow on some processors."""


def tune_reorder(
    src: MemoryDesc, dst: MemoryDesc, problem: ReorderProblem, seconds: float, *, again: bool = False
) -> Decision:
    """Time candidate schedules for `problem`, the reorder from `src` to `dst`, and store the fastest on disk.

    `seconds` and `again` are those of `reordering.tuning.tune`.

    Post-condition: reorders of `problem` that are made after this call use the returned decision.

    Raises:
        OutOfMemory: the operating system cannot provide the bytes of a second source and destination.
    """
    source, destination = (allocate(byte_extent(desc)[1]) for desc in (src, dst))
    for buffer in (source, destination):
        buffer.fill(_FILL_BYTE)  # the write also makes the operating system allocate the pages
    decision = tune(problem, address_of(source), address_of(destination), seconds, again=again)
    find_reorder.cache_clear()
    return decision
