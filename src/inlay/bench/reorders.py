"""A reorder timed beside a copy of as many bytes, oneDNN, NumPy and PyTorch.

The yardstick is a copy of as many bytes as the reorder must move, on as many threads: Inlay's own copy of a flat array
or NumPy's, whichever is faster. Memory is aligned, on huge pages where the system provides them, and was written before
anything is timed. What fits a cache is timed in that cache. Contenders that leave other bytes than Inlay are not timed.
"""

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from inlay.bench import contenders
from inlay.bench.contenders import agreeing_calls, flat_copies, inlay_call, numpy
from inlay.bench.measurement import INLAY, Measurement, table_text
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.measure.interleaved import Call, measure_interleaved
from inlay.memory import Memory
from inlay.memory.pack_reorder import pack
from inlay.memory.reorder_tuning import tune_reorder
from inlay.reordering import compile_reorder
from inlay.reordering.choice import BY_MODEL, UNMEASURED
from inlay.reordering.compiled import compile_problem
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.threads import get_num_threads

ROUNDS = 9
"""The default number of rounds."""
_PERIOD = 97  # a prime: no layout repeats with it, and every type holds such numbers or rounds them
MODEL, COPY = "Inlay, by the model", "copy"
"""Names of two lines: the reorder as the model alone decides, where tuning found a better one; and the fastest copy."""


@dataclass(frozen=True, slots=True)
class Report:
    """The measurement of one reorder."""

    src: MemoryDesc
    """The source."""
    dst: MemoryDesc
    """The destination."""
    moved_bytes: int
    """Bytes of the source's elements and of the destination's, padding included."""
    threads: int
    """The number of threads that may share the work."""
    decision: str
    """The origin of the reorder's schedule: the model, or tuning."""
    measured: Measurement
    """Times of Inlay and of all other contenders."""

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON holds it: seconds, percent of the copy and ratios with their quartiles."""
        return {
            "src": repr(self.src),
            "dst": repr(self.dst),
            "moved_bytes": self.moved_bytes,
            "threads": self.threads,
            "decision": self.decision,
            "measured": {name: self.measured.figures(key) for name, key in _lines(self.measured).items()},
            "absent": dict(self.measured.absent),
        }

    def __str__(self) -> str:
        """Return a table: time, percent of the copy with its spread, and how many times as fast Inlay is."""
        dims = "x".join(map(str, self.src.dims))
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        head = f"{dims}, {self.moved_bytes / 1e6:.3g} MB moved, {threads}, {self.decision}"
        absent = (f"{name}: {reason}" for name, reason in self.measured.absent.items())
        return "\n".join([head, comparison_text(self.measured, self.moved_bytes), *absent])


def _lines(measured: Measurement, copy: str = COPY) -> dict[str, str]:
    return {copy: measured.best_copy} | {name: name for name in measured.seconds}


def comparison_text(measured: Measurement, nbytes: int, copy: str = COPY) -> str:
    """Return a table of contenders that move `nbytes` bytes: the first line is the fastest copy."""
    rows = []
    for name, key in _lines(measured, copy).items():
        percent, seconds = measured.percent_of_copy(key), measured.time(key)
        share = f"{percent.median:.0f} ({percent.low:.0f} to {percent.high:.0f})"
        has_ratio = name not in (copy, INLAY) and INLAY in measured.seconds
        faster = f"{measured.times_faster_than(key).median:.2f} times as fast" if has_ratio else ""
        rows.append((name, f"{1e6 * seconds:.1f}", f"{nbytes / seconds / 1e9:.1f}", share, faster))
    headings = ("", "us", "GB/s", "% of copy", *(["Inlay is"] if INLAY in measured.seconds else []))
    return table_text(headings, (row[: len(headings)] for row in rows), left=("% of copy", "Inlay is"))


def bench(src: MemoryDesc, dst: MemoryDesc, *, rounds: int = ROUNDS, tune: float | None = None) -> Report:
    """Time the reorder from `src` to `dst`, a copy of as many bytes, and every other contender that can do it.

    Args:
        rounds: how many turns each contender takes.
        tune: seconds of tuning before, whatever an earlier tuning stored; None to use what is stored.

    Raises:
        InvalidArguments: there is no such reorder (see `Reorder`), it moves nothing, or there is to be no round.
        Unimplemented: a side is sparse or has RUNTIME dims.
        OutOfMemory: there is no room for both sides, and twice where it is tuned.
    """
    if rounds < 1:
        raise InvalidArguments(f"rounds is {rounds}: give a whole number from 1 on")
    reorder = compile_reorder(src, dst)
    if reorder.plan is None:
        raise InvalidArguments(f"a tensor of dims {src.dims} has no elements: there is nothing to time")
    if tune is not None:
        tune_reorder(src, dst, reorder.problem, tune, again=True)
        reorder = compile_reorder(src, dst)
    two, one, moved = Memory(dst), _filled(src), reorder.problem.moved_bytes
    others = {name: partial(make, one, two) for name, make in contenders.CONTENDERS.items()}
    calls, absent = agreeing_calls({INLAY: lambda: inlay_call(reorder, one, two)} | others, src, two)
    if reorder.decision.choice != BY_MODEL:
        calls = {INLAY: calls.pop(INLAY), MODEL: _by_model(one, two)} | calls
    copies = copies_of(moved)
    times = measure_interleaved(calls | copies, rounds)
    measured = Measurement(times, {name: times.pop(name) for name in copies}, absent)
    return Report(src, dst, moved, get_num_threads(), str(reorder.decision), measured)


def _filled(desc: MemoryDesc) -> Memory:
    """Return memory with small whole numbers."""
    _, data_type = desc.require_layout("bench")
    numbers = np.arange(_PERIOD).astype(data_type.dtype)
    return pack(np.resize(numbers, prod(desc.dims)).reshape(desc.dims), desc)


def _by_model(src: Memory, dst: Memory) -> Call:
    return inlay_call(compile_problem(build_reorder_problem(src.desc, dst.desc), UNMEASURED), src, dst)


def copies_of(nbytes: int) -> dict[str, Call]:
    """Return copies between two new buffers that read and write `nbytes` bytes together."""
    half = max(1, nbytes // 2)
    one, two = (Memory(MemoryDesc((half,), "u8", "a")).buffer for _ in range(2))
    one.fill(1)
    two.fill(2)
    return flat_copies({"copy by Inlay": _by_model, "copy by NumPy": numpy}, one, two, half)
