"""Tuning a reorder: its candidates are timed on memory of the size that it will work on.

The memory is our own, as large as the two descriptors reach, and given back afterwards. It holds numbers that no
processor finds hard in any type: bytes of 0x3F are 0.75 as f32, 1.8 as f16, 63 as u8.
"""

from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.memory.buffers import address_of, allocate
from inlay.memory.moves import find_reorder, reach
from inlay.reordering.choice import Decision
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.tuning import SECONDS, tune

_EASY = 0x3F


def seconds_of(wanted: Any) -> float | None:
    """How long a `tune` argument lets tuning take; None where it asks for none.

    Raises:
        InvalidArguments: it is neither a truth value nor a positive number.

    >>> seconds_of(True), seconds_of(False), seconds_of(2.5)
    (1.0, None, 2.5)
    """
    if isinstance(wanted, bool):
        return SECONDS if wanted else None
    if not isinstance(wanted, (int, float)) or not 0 < wanted < 2**63:
        raise InvalidArguments(
            f"tune is {shown(wanted)}: give True to tune for {SECONDS:g} s, or the seconds that it may take, more than "
            "0"
        )
    return float(wanted)


def tuned(
    src: MemoryDesc, dst: MemoryDesc, problem: ReorderProblem, seconds: float, *, again: bool = False
) -> Decision:
    """Time the candidates for `problem`, which is made of the two descriptors, and remember the best: see `tune`.

    Post-condition: reorders of `problem` that are made from now on are done as the result says.

    Raises:
        OutOfMemory: there is no room for a second source and destination.
    """
    source, destination = (allocate(reach(desc)[1]) for desc in (src, dst))
    for buffer in (source, destination):
        buffer.fill(_EASY)  # which also brings in its pages
    decision = tune(problem, address_of(source), address_of(destination), seconds, again=again)
    find_reorder.cache_clear()
    return decision
