"""The guards of a program: which buffers a run checks, and after which step.

guards = guards_of(program, graph)          placed once, when the program is compiled
guards.after["conv3"]                       buffers to check after this step
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.graph.algorithms import algorithm_of
from inlay.graph.magnitude_scan import exceeds, scan_addresses, team_table
from inlay.graph.op import OpGraph
from inlay.graph.program import Program
from inlay.graph.range_guards import MASKED, THRESHOLD, place_guards
from inlay.memory.buffers import address_of
from inlay.primitives.operation import Engine, MemoryCheck

_SHARED = 1 << 14  # bytes from which on a check is shared among threads
_MOST_FAILURES = 2  # runs in a row whose guards failed, after which guards are checked seldom
_SKIPPED = 16  # of so many runs then one checks them


class GuardFailed(Exception):
    """A guarded tensor holds NaN, an infinity or a very large number: this run is to be done by exact kernels."""


@dataclass(frozen=True, slots=True)
class RunGuards:
    """What a run checks."""

    inputs: tuple[str, ...] = ()
    """Buffers of inputs, checked first."""
    after: Mapping[str, tuple[str, ...]] | None = None
    """By step, buffers that are checked after it; None where no guards are enough, so that exact kernels compute."""
    masked: frozenset[str] = frozenset()
    """Of these buffers, those that may hold minus infinity."""


NO_GUARDS = RunGuards(after={})
"""Of a program whose kernels are exact."""


class GuardHistory:
    """Whether guards failed of late: where they do again and again, runs begin with exact kernels."""

    __slots__ = ("_failures", "_skipped")

    def __init__(self) -> None:
        """Know of no run."""
        self._failures = 0
        self._skipped = 0

    def is_exact_next(self, guards: RunGuards) -> bool:
        """Whether the next run is done by exact kernels alone."""
        if guards.after is None:
            return True
        if self._failures < _MOST_FAILURES:
            return False
        self._skipped = (self._skipped + 1) % _SKIPPED
        return self._skipped != 0

    def note(self, *, failed: bool) -> None:
        """Count a run whose guards were checked."""
        self._failures = self._failures + 1 if failed else 0


def guards_of(program: Program, graph: OpGraph) -> RunGuards:
    """The guards that prove that `program`, which computes `graph`, loses no NaN and no infinity."""
    inputs = {tensor: name for tensor, name in program.inputs.items() if _is_scanned(program, graph, name)}
    written: dict[str, tuple[str, str]] = {}
    for step in program.steps:
        for name in step.writes.values():
            tensor = program.buffers[name].tensor
            if tensor not in program.inputs and _is_scanned(program, graph, name):
                written.setdefault(tensor, (step.name, name))
    sizes = {tensor: 4 * prod(graph.tensors[tensor].dims) for tensor in (*inputs, *written)}
    strict = {name for step in program.steps if step.operation and algorithm_of(step.operation) for name in step.ops}
    chosen = place_guards(graph, sizes, frozenset(strict))
    if chosen is None:
        return RunGuards()
    after: dict[str, tuple[str, ...]] = {}
    for tensor in sorted(chosen.keys() & written.keys()):
        step_name, name = written[tensor]
        after[step_name] = (*after.get(step_name, ()), name)
    first = {tensor: name for tensor, name in inputs.items() if tensor in chosen}
    buffers = first | {tensor: name for tensor, (_, name) in written.items()}
    masked = frozenset(buffers[tensor] for tensor, known in chosen.items() if known == MASKED)
    return RunGuards(tuple(first.values()), after, masked)


def _is_scanned(program: Program, graph: OpGraph, name: str) -> bool:
    """Whether all bytes of a buffer are elements of float32, or padding, which is 0."""
    desc, tensor = program.buffers[name].desc, graph.tensors[program.buffers[name].tensor]
    if tensor.dtype != np.dtype(np.float32) or not prod(tensor.dims):
        return False
    return desc is None or (desc.offset0 == 0 and desc.size == 4 * prod(desc.padded_dims))


def guard(data: npt.NDArray[np.uint8], *, is_masked: bool = False) -> None:
    """Check the bytes of a buffer of float32.

    Raises:
        GuardFailed: an element is NaN, infinite, or over `THRESHOLD` in magnitude; of one `is_masked`, what is negative
            may be any number.
    """
    elements = data.view(np.float32)
    fails = not elements.max() <= THRESHOLD if is_masked else exceeds(elements, THRESHOLD)
    if fails:
        raise GuardFailed


def joined_guard(engine: Engine, data: npt.NDArray[np.uint8]) -> MemoryCheck | None:
    """What does so between calls that `engine` executes together; None where it cannot."""
    found = scan_addresses(THRESHOLD) if engine.batches_checks else None
    if found is None:
        return None
    elements, team, threads = data.view(np.float32), engine.thread_team, engine.num_threads
    if team is None or threads < 2 or data.size < _SHARED:
        return MemoryCheck(found[0], address_of(elements), elements.size, GuardFailed, elements)
    table = team_table(elements, team.parallel, team.thread_num, team.num_threads)
    return MemoryCheck(found[1], address_of(table), threads, GuardFailed, (elements, table))
