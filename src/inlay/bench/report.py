"""What was measured of one reorder, and how it is said.

The yardstick is a copy of as many bytes as the reorder must move, on as many threads: Inlay's own of a flat array, or
NumPy's, whichever is faster. Memory is aligned and on huge pages where the system gives them, and has been written
before anything is timed. What fits a cache is timed in that cache.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from statistics import median
from typing import Any

import numpy as np

from inlay.bench.peers import agreeing
from inlay.bench.tables import table_text
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.measure.interleaved import Call, measure_interleaved
from inlay.measure.statistics import Spread, paired_ratio
from inlay.memory import Memory
from inlay.memory.packing import pack
from inlay.memory.tuned import tuned
from inlay.reordering import CompiledReorder, compile_reorder
from inlay.reordering.choice import BY_MODEL, UNMEASURED
from inlay.reordering.compiled import compile_problem
from inlay.reordering.problem import reorder_problem
from inlay.reordering.processors import get_num_threads

ROUNDS = 9
"""How many rounds are measured unless told otherwise."""
_PERIOD = 97  # a prime: no layout repeats with it, and every type holds such numbers or rounds them
INLAY, MODEL, COPY = "Inlay", "Inlay, by the model", "copy"
"""How lines are called: Inlay as it is, what its model would decide where tuning found better, the yardstick."""


@dataclass(frozen=True, slots=True)
class Line:
    """One who took part."""

    name: str
    """Who."""
    seconds: tuple[float, ...]
    """Seconds of a call in each round in which it took a turn."""

    @property
    def time(self) -> float:
        """Their median."""
        return median(self.seconds)


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured of one reorder."""

    src: MemoryDesc
    """The source."""
    dst: MemoryDesc
    """The destination."""
    moved_bytes: int
    """Bytes of the source's elements and of the destination's, padding included."""
    threads: int
    """How many threads may share the work."""
    decision: str
    """Who decided how it is done, in words."""
    lines: tuple[Line, ...]
    """The copy, Inlay, then the others."""
    absent: Mapping[str, str]
    """Who did not take part, and why."""

    def percent(self, line: Line) -> Spread:
        """The speed of one, where that of the copy is 100."""
        return paired_ratio(self.lines[0].seconds, line.seconds).times(100)

    def ratio(self, line: Line) -> Spread:
        """How many times as fast as `line` Inlay is."""
        return paired_ratio(line.seconds, self.lines[1].seconds)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON holds it: seconds, percent of the copy and ratios with their quartiles."""
        lines = {
            line.name: {
                "seconds": list(line.seconds),
                "percent_of_copy": asdict(self.percent(line)),
                "inlay_is_times_as_fast": asdict(self.ratio(line)),
            }
            for line in self.lines
        }
        return {
            "src": repr(self.src),
            "dst": repr(self.dst),
            "moved_bytes": self.moved_bytes,
            "threads": self.threads,
            "decision": self.decision,
            "measured": lines,
            "absent": dict(self.absent),
        }

    def __str__(self) -> str:
        """A table: time, percent of the copy with its spread, and how many times as fast Inlay is."""
        dims = "x".join(map(str, self.src.dims))
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        head = f"{dims}, {self.moved_bytes / 1e6:.3g} MB moved, {threads}, {self.decision}"
        rows = []
        for line in self.lines:
            percent, gbps = self.percent(line), self.moved_bytes / line.time / 1e9
            share = f"{percent.median:.0f} ({percent.low:.0f} to {percent.high:.0f})"
            faster = "" if line.name in (COPY, INLAY) else f"{self.ratio(line).median:.2f} times as fast"
            rows.append((line.name, f"{1e6 * line.time:.1f}", f"{gbps:.1f}", share, faster))
        table = table_text({"": "left", "us": "right", "GB/s": "right", "% of copy": "left", "Inlay is": "left"}, rows)
        return "\n".join([head, table, *(f"{name}: {reason}" for name, reason in self.absent.items())])


def bench(src: MemoryDesc, dst: MemoryDesc, *, rounds: int = ROUNDS, tune: float | None = None) -> Report:
    """Time the reorder from `src` to `dst`, a copy of as many bytes, and whoever else can do it.

    Args:
        rounds: how often everybody takes a turn.
        tune: seconds to tune in first, whatever is remembered; None to take what is remembered.

    Raises:
        InvalidArguments: there is no such reorder (see `Reorder`), it moves nothing, or there is to be no round.
        Unimplemented: a side is sparse or has RUNTIME dims.
        OutOfMemory: there is no room for both sides, and twice where it is tuned.
    """
    if rounds < 1:
        raise InvalidArguments(f"rounds is {rounds}: everybody takes at least 1 turn")
    reorder = compile_reorder(src, dst)
    if reorder.plan is None:
        raise InvalidArguments(f"a tensor of dims {src.dims} has no elements: there is nothing to time")
    if tune is not None:
        tuned(src, dst, reorder.problem, tune, again=True)
        reorder = compile_reorder(src, dst)
    two, one, moved = Memory(dst), _filled(src), reorder.problem.moved_bytes
    calls = {INLAY: _call(reorder, one, two)}
    if reorder.decision.choice != BY_MODEL:
        calls[MODEL] = _call(compile_problem(reorder.problem, UNMEASURED), one, two)
    others, absent = agreeing(calls[INLAY], one, two)
    times = measure_interleaved(calls | others | _copies(moved // 2), rounds)
    copy = min((times.pop(name) for name in _COPIES), key=median)
    lines = [Line(name, tuple(seconds)) for name, seconds in ({COPY: copy} | times).items()]
    return Report(src, dst, moved, get_num_threads(), str(reorder.decision), tuple(lines), absent)


def _filled(desc: MemoryDesc) -> Memory:
    """Memory with small whole numbers."""
    _, data_type = desc.require_layout("bench")
    numbers = np.arange(_PERIOD).astype(data_type.dtype)
    return pack(np.resize(numbers, prod(desc.dims)).reshape(desc.dims), desc)


def _call(reorder: CompiledReorder, src: Memory, dst: Memory) -> Call:
    run, addresses = reorder.run, (src.address, dst.address)
    return lambda: run(*addresses)


_COPIES = ("copy by Inlay", "copy by NumPy")


def _copies(nbytes: int) -> dict[str, Call]:
    """Ways to copy so many bytes."""
    flat = MemoryDesc((max(1, nbytes),), "u8", "a")
    one, two = Memory(flat), Memory(flat)
    one.buffer.fill(1)
    two.buffer.fill(2)
    own = compile_problem(reorder_problem(flat, flat), UNMEASURED)
    return dict(zip(_COPIES, (_call(own, one, two), lambda: np.copyto(two.buffer, one.buffer)), strict=True))
