"""Where a run looks at the elements of an `OpGraph`'s tensors, so that no NaN and no infinity can vanish.

Kernels of oneDNN compute max(0, NaN) = 0, and more of this kind: a ReLU, a maximum or a softmax of NaN or infinities
may give plausible numbers. These operations are used where all that they read is proved finite: by value range
analysis from bounds of a few tensors, and these bounds are *guards*, which each run checks. Where a guard fails, the
run is done again by `exact` kernels.

    x  conv  relu  conv  relu  ...      a guard on x: |x| <= 2^32 proves some twenty layers

Guards are placed one after the other: where a range grows too large for an operation, the smallest tensor before it
that brings it back gets a guard. Linear maps, sums and products compute with NaN and infinities as IEEE 754 says, and
need none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from inlay.graph.algorithms import ALGORITHMS
from inlay.graph.op_graph import Op, OpGraph, writers_of
from inlay.graph.passes.value_ranges import (
    ANY,
    FINITE,
    SQUARABLE,
    ValueRange,
    infer_range,
    infer_reference_range,
    range_of_array,
    range_of_dtype,
)
from inlay.layout import Dims
from inlay.primitives.rules import WEIGHTED

THRESHOLD = 2.0**32
"""What elements of guarded tensors may be at most, in magnitude: 4.3e9."""
GUARDED = ValueRange(-THRESHOLD, THRESHOLD)
"""What a guard lets through."""
MASKED = ValueRange(-inf, THRESHOLD)
"""What a guard of scores with a mask lets through: minus infinity too."""
_MOST_TRIED = 6
"""How many tensors are tried, smallest first."""
_HORIZON = 40
"""How many operations further the proof is followed to compare them."""
_CALL_BYTES = 1 << 18
"""Bytes that could be checked in the time that a call takes besides."""

_MOVING = frozenset(("concat", "reorder", "shuffle", "sum", "view", "reference"))
_MASKING = frozenset(("binary", "concat", "eltwise", "reference", "sum", "view"))
"""Kinds that bring infinities of masks into scores."""
_ARITHMETIC = frozenset(("add", "sub", "mul", "div"))
_SQUARING = frozenset(("gelu_erf", "gelu_tanh", "mish", "pow", "square", "swish", "hardswish"))


def propagates(kind: str, algorithm: object) -> bool:
    """Whether primitives of this kind compute with NaN and infinities as IEEE 754 says, in every implementation."""
    if kind in WEIGHTED:
        return algorithm not in ALGORITHMS
    if kind in ("binary", "eltwise"):
        return algorithm in (_ARITHMETIC if kind == "binary" else ("linear",))
    return kind in _MOVING


def may_leave_range(op: Op) -> bool:
    """Whether an operation may give NaN or infinities where it reads small numbers."""
    algorithm = op.parameters.get("algorithm")
    return (op.kind == "binary" and algorithm == "div") or (
        op.kind == "eltwise" and algorithm in ("exp", "log", "pow", "sqrt")
    )


def place_guards(graph: OpGraph, sizes: Mapping[str, int], strict: frozenset[str]) -> dict[str, ValueRange] | None:
    """Tensors to guard, of those in `sizes`, which has their bytes; None where no guards are enough.

    `strict` are operations that spread an infinity, such as convolutions by Winograd's algorithm.

    Post-condition: if every element of each tensor is in its range, `GUARDED` or `MASKED`, and none is NaN, no
    operation reads NaN or infinities that it does not propagate.
    """
    placement = _GuardPlacement(graph, sizes, strict)
    return placement.guards if placement.place() else None


@dataclass(slots=True)
class _GuardPlacement:
    """Guards as they are placed."""

    graph: OpGraph
    sizes: Mapping[str, int]
    strict: frozenset[str]
    guards: dict[str, ValueRange] = field(default_factory=dict)
    ranges: dict[str, ValueRange] = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)
    constants: dict[str, dict[str, ValueRange]] = field(default_factory=dict)
    dims: dict[str, dict[str, Dims]] = field(default_factory=dict)
    masked: set[str] = field(default_factory=set)

    def place(self) -> bool:
        """Add guards until no operation is left that may read what it does not propagate."""
        self.initialize()
        for i in range(len(self.graph.ops)):
            while (failing := self.advance(self.ranges, i)) is not None:
                if not self._guard_before(i, failing):
                    return False
        return True

    def initialize(self) -> None:
        """Know the ranges of inputs and constants."""
        tensors, ops = self.graph.tensors, self.graph.ops
        self.ranges = {name: range_of_dtype(tensors[name].dtype) for name in self.graph.inputs}
        self.writers = writers_of(self.graph)
        self.constants = {op.name: {name: range_of_array(array) for name, array in op.constants.items()} for op in ops}
        self.dims = {op.name: self._dims(op) for op in ops}
        for op in ops:
            if op.kind in _MASKING and self._is_masked(op):
                self.masked.update(op.writes.values())

    def _is_masked(self, op: Op) -> bool:
        """Whether an operation brings minus infinity, or what stands for it, into its result, as masks do."""
        known = list(self.constants[op.name].values())
        if op.parameters.get("algorithm") == "linear" and isinstance(factor := op.parameters["alpha"], float):
            known.append(ValueRange(-abs(factor), 0.0))  # as (1 - mask) times the least number
        return any(one.low < -THRESHOLD for one in known) or not self.masked.isdisjoint(op.reads.values())

    def advance(self, ranges: dict[str, ValueRange], i: int) -> str | None:
        """Infer the ranges of what operation `i` writes, or return the tensor whose range it cannot read."""
        op, tensors = self.graph.ops[i], self.graph.tensors
        for name in op.reads.values():
            if tensors[name].dtype.kind == "f" and not _is_readable(op, ranges[name], op.name in self.strict):
                return name
        if not all(_is_readable(op, known, False) for known in self.constants[op.name].values()):
            return next(iter(op.reads.values()))
        found = self._infer(op, ranges)
        for name in op.writes.values():
            own = found if tensors[name].dtype.kind == "f" else range_of_dtype(tensors[name].dtype)
            ranges[name] = _intersect(own, self.guards.get(name))
            if op.name in self.strict and not own.is_finite:
                return next(iter(op.reads.values()))
        return None

    def _infer(self, op: Op, ranges: Mapping[str, ValueRange]) -> ValueRange:
        used = {argument: ranges[name] for argument, name in op.reads.items()} | self.constants[op.name]
        if op.kind == "reference":
            return ANY if op.node is None else infer_reference_range(op.node.operator, used.values())
        return infer_range(op, used, self.dims[op.name])

    def _dims(self, op: Op) -> dict[str, Dims]:
        tensors = {
            argument: self.graph.tensors[name].dims for argument, name in (*op.reads.items(), *op.writes.items())
        }
        return tensors | {argument: array.shape for argument, array in op.constants.items()}

    def _guard_before(self, i: int, failing: str) -> bool:
        """Guard a tensor before operation `i`, which cannot read `failing`; False if none is left.

        It is the one that proves the most operations for what its check costs, else the nearest one.
        """
        nearest = list(self._upstream(failing))
        if not nearest:
            return self._forbid_infinity(failing, i)
        tried = [*sorted(nearest, key=lambda name: self.sizes[name])[:_MOST_TRIED], nearest[0]]
        gains = {name: (self._last_proved(name, i) - i) / (self.sizes[name] + _CALL_BYTES) for name in tried}
        best = max(gains, key=gains.__getitem__)
        chosen = best if gains[best] > 0 else nearest[0]
        self._add_guard(chosen, i)
        return True

    def _add_guard(self, name: str, i: int) -> None:
        self.guards[name] = self._guard_of(name)
        self._propagate(self.ranges, name, i)

    def _guard_of(self, name: str) -> ValueRange:
        return MASKED if name in self.masked else GUARDED

    def _forbid_infinity(self, failing: str, i: int) -> bool:
        """Let a guard of scores refuse minus infinity too, where nothing else helps; False if there is none."""
        if self.guards.get(failing) != MASKED:
            return False
        self.masked.discard(failing)
        self._add_guard(failing, i)
        return True

    def _upstream(self, failing: str) -> Iterator[str]:
        """Tensors before an operation that can be guarded and whose ranges are too large, nearest first."""
        waiting, seen = [failing], {failing}
        while waiting:
            name = waiting.pop(0)
            if name in self.guards or _is_within(self.ranges[name], self._guard_of(name)):
                continue
            if name in self.sizes:
                yield name
            reads = self.graph.ops[self.writers[name]].reads.values() if name in self.writers else ()
            more = [other for other in reads if other not in seen and self.graph.tensors[other].dtype.kind == "f"]
            waiting += more
            seen.update(more)

    def _last_proved(self, name: str, i: int) -> int:
        """The operation before which the proof ends with one more guard: `i` if that does not help."""
        ranges, self.guards = dict(self.ranges), self.guards | {name: self._guard_of(name)}
        self._propagate(ranges, name, i)
        last = min(i + _HORIZON, len(self.graph.ops))
        proved = next((k for k in range(i, last) if self.advance(ranges, k) is not None), last)
        del self.guards[name]
        return proved

    def _propagate(self, ranges: dict[str, ValueRange], name: str, end: int) -> None:
        """Infer the ranges of what follows a guarded tensor anew, up to operation `end`."""
        ranges[name] = _intersect(ranges[name], self.guards[name])
        for i in range(self.writers.get(name, -1) + 1, end):
            self.advance(ranges, i)


def _is_within(known: ValueRange, guard: ValueRange) -> bool:
    return not known.may_be_nan and guard.low <= known.low and known.high <= guard.high


def _intersect(known: ValueRange, guard: ValueRange | None) -> ValueRange:
    """What is known of a tensor once its guard has let it through."""
    return known if guard is None else ValueRange(max(known.low, guard.low), min(known.high, guard.high))


def _is_readable(op: Op, known: ValueRange, is_strict: bool) -> bool:
    """Whether an operation computes what ONNX defines of elements in this range."""
    algorithm = op.parameters.get("algorithm")
    if propagates(op.kind, algorithm) and not is_strict:
        return True
    if op.kind == "softmax":  # rows with -inf are right, rows of nothing else NaN
        return not known.may_be_nan and known.high <= FINITE
    squares = op.kind in ("layer_normalization", "lrn") or algorithm in _SQUARING
    squares = squares or (op.kind == "reduction" and str(algorithm).startswith("norm"))
    return not known.may_be_nan and known.magnitude <= (SQUARABLE if squares else FINITE)
