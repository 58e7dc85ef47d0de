"""A reorder beside a copy and whoever else can do it; the machine model beside what the operating system reports.

The yardstick is a copy of as many bytes as the reorder must move, on as many threads: Inlay's own of a flat array, or
NumPy's, whichever is faster. Memory is aligned and on huge pages where the system gives them, and has been written
before anything is timed. What fits a cache is timed in that cache.

oneDNN, NumPy and PyTorch take part where they are installed and can do the reorder. Each is a call between the same two
memories, as its user would write it once everything is prepared. NumPy and PyTorch copy one strided view into another,
of the loops that both layouts share; where a side has padding, or a loop has no stride, one copy does not do it, and
they are left out. Who leaves other bytes than Inlay is left out too: conversions differ in rounding and saturation.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from math import prod
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.bench.tables import table_text
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import make_engine
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.machine import MemoryModel, ReportedCache, model_document, reported_caches
from inlay.measure.interleaved import Call, measure_interleaved
from inlay.measure.statistics import Spread, paired_ratio
from inlay.memory import Memory
from inlay.memory.pack_reorder import pack, tune_reorder
from inlay.primitives.engine import Operation
from inlay.reordering import CompiledReorder, compile_reorder
from inlay.reordering.choice import BY_MODEL, UNMEASURED
from inlay.reordering.compiled import CompiledCopies, compile_problem
from inlay.reordering.memory_levels import measure_all
from inlay.reordering.nest import build_loop_nest
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.threads import get_num_threads

Peer = Callable[[Memory, Memory], Call]
TORCH_BY_SIZE = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64"}
"""By bytes of an element, the type of PyTorch as which it moves."""
_TORCH = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64", "s32": "int32", "s8": "int8"}


def onednn(src: Memory, dst: Memory) -> Call:
    """oneDNN's reorder primitive.

    Raises:
        InlayError: the library is not there, or has no such reorder.
    """
    operation = Operation("reorder", "forward_inference", {"src": src.desc, "dst": dst.desc})
    return make_engine().create(operation).bind({"src": src, "dst": dst})


def numpy(src: Memory, dst: Memory) -> Call:
    """One `numpy.copyto`; what keeps its type moves as integers.

    Raises:
        Unimplemented: one strided copy does not do it.
    """
    shape, strides = _one_copy(src, dst)
    views = []
    for memory, steps in zip((src, dst), strides, strict=True):
        kind = _numpy_type(memory, src.desc.data_type == dst.desc.data_type)
        elements = _elements(memory, kind)
        views.append(np.lib.stride_tricks.as_strided(elements, shape, [step * kind.itemsize for step in steps]))
    return lambda: np.copyto(views[1], views[0], casting="unsafe")


def torch(src: Memory, dst: Memory) -> Call:
    """One `copy_` of PyTorch, on as many threads as Inlay may use.

    Raises:
        Unimplemented: PyTorch is not installed or lacks a type, or one strided copy does not do it.
    """
    shape, strides = _one_copy(src, dst)
    library = require_installed("torch")
    library.set_num_threads(get_num_threads())
    moves = src.desc.data_type == dst.desc.data_type
    views = []
    for memory, steps in zip((src, dst), strides, strict=True):
        item = _numpy_type(memory, True).itemsize
        name = TORCH_BY_SIZE[item] if moves else _TORCH.get(str(memory.desc.data_type))
        if name is None:
            raise Unimplemented(f"has no {memory.desc.data_type}")
        elements = library.from_numpy(_elements(memory, np.dtype(np.uint8))).view(getattr(library, name))
        views.append(elements.as_strided(shape, steps))
    return lambda: views[1].copy_(views[0])


def require_installed(package: str) -> Any:
    """Return the package of a peer.

    Raises:
        Unimplemented: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise Unimplemented(f"not installed (pip install {package})") from None


PEERS: dict[str, Peer] = {"oneDNN": onednn, "NumPy": numpy, "torch": torch}
"""Everybody, by name."""


_LEFTOVER = 0xA5


def agreeing(inlay: Call, src: Memory, dst: Memory) -> tuple[dict[str, Call], dict[str, str]]:
    """The calls of those peers that leave the bytes in `dst` that `inlay` does, and why the others are left out.

    Post-condition: `dst` holds what `inlay` leaves in it.
    """
    dst.buffer.fill(_LEFTOVER)
    inlay()
    expected = dst.buffer.copy()
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    for name, peer in PEERS.items():
        try:
            call = peer(src, dst)
            dst.buffer.fill(_LEFTOVER)
            call()
        except InlayError as reason:
            absent[name] = str(reason)
            continue
        if np.array_equal(dst.buffer, expected):
            calls[name] = call
        else:
            absent[name] = "its bytes differ from Inlay's"
    dst.buffer[:] = expected
    return calls, absent


def _one_copy(src: Memory, dst: Memory) -> tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]:
    """The shape of one strided copy that does the reorder, and the strides of both sides in elements.

    Raises:
        Unimplemented: there is none.
    """
    problem = build_reorder_problem(src.desc, dst.desc)
    if problem.src_type.is_sub_byte or problem.dst_type.is_sub_byte:
        raise Unimplemented("has no views of elements of 4 bits")
    nest = build_loop_nest(problem)
    if nest.guards or not all(loop.is_affine for loop in nest.loops):
        raise Unimplemented("takes more than one copy")
    loops: Any = sorted(nest.loops, key=lambda loop: loop.dst, reverse=True)
    strides = tuple(loop.src for loop in loops), tuple(loop.dst for loop in loops)
    return tuple(loop.extent for loop in loops), strides


def _numpy_type(memory: Memory, moves: bool) -> np.dtype[Any]:
    _, data_type = memory.desc.require_layout("bench")
    return np.dtype(f"u{data_type.itemsize}") if moves else data_type.dtype


def _elements(memory: Memory, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """The elements from the coordinate of all zeros on."""
    _, data_type = memory.desc.require_layout("bench")
    return memory.buffer[memory.desc.offset0 * data_type.itemsize :].view(kind)


@dataclass(frozen=True, slots=True)
class MachineReport:
    """The machine model, and the caches that the operating system reports."""

    model: MemoryModel
    """What was measured."""
    reported: tuple[ReportedCache, ...]
    """Caches of the first processor; empty where the system reports none."""

    def as_json(self) -> Any:
        """Return the document that INLAY_MACHINE reads."""
        return model_document(self.model, self.reported)

    def __str__(self) -> str:
        """A row for each level: capacity measured, capacity reported, bandwidth."""
        model = self.model
        rows = [
            ("L2, per thread", _megabytes(model.l2), _megabytes(self._reported(2)), f"{model.l2_bandwidth:.1f}"),
            ("last level", _megabytes(model.last_level), _megabytes(self._reported(3)), f"{model.l3_bandwidth:.1f}"),
            ("memory", "", "", f"{model.memory_bandwidth:.1f}"),
        ]
        threads = f"{model.threads} thread{'s' * (model.threads != 1)}"
        table = table_text({"": "left", "measured": "right", "reported": "right", "GB/s a thread": "right"}, rows)
        return (
            f"capacities in bytes of source plus destination, bandwidths of copies on {threads}\n{table}\n"
            f"streaming stores win from {_megabytes(model.streaming_from)} where nothing reads the result"
        )

    def _reported(self, level: int) -> int:
        """Bytes of the data cache of a level, 0 where the system reports none."""
        return max((c.nbytes for c in self.reported if c.level == level and c.holds_data), default=0)


def measure_machine() -> MachineReport:
    """Measure the machine model anew, remember it, and return it beside what the system reports: some 0.3 seconds."""
    return MachineReport(measure_all(CompiledCopies()), reported_caches())


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:g} MB" if nbytes else "-"


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
        tune_reorder(src, dst, reorder.problem, tune, again=True)
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
    own = compile_problem(build_reorder_problem(flat, flat), UNMEASURED)
    return dict(zip(_COPIES, (_call(own, one, two), lambda: np.copyto(two.buffer, one.buffer)), strict=True))
