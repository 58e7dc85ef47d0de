"""`place_guards`: choose the tensors whose elements a run checks, so that no NaN and no infinity is lost.

oneDNN's implementations may return plausible numbers for NaN or infinities: a ReLU returns max(0, NaN) = 0, and a
maximum or softmax are similar. Such operations are used only if all of their inputs are proved finite. The proof is a
value range analysis from bounds of a few tensors. These bounds are *guards*, which each run checks. If a check fails,
the run is repeated with exact implementations.

    x  conv  relu  conv  relu  ...      a guard on x: |x| <= 2^32 proves some twenty layers

Guards are placed one after another: if a range becomes too large for an operation, a tensor before it gets a guard. It
is the tensor that proves the most operations for the cost of its check. Linear maps, sums and products propagate NaN
and infinities as IEEE 754 specifies, and need no guard.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from inlay.graph.algorithms import ALGORITHMS
from inlay.graph.background import yield_to_runs
from inlay.graph.op_graph import Op, OpGraph, writers_of
from inlay.graph.passes.value_ranges import (
    ANY,
    FINITE,
    SQUARABLE,
    ValueRange,
    infer_range,
    infer_reference_range,
    is_float,
    range_of_array,
    range_of_dtype,
    result_range,
)
from inlay.layout import Dims
from inlay.primitives.rules import WEIGHTED

THRESHOLD = 2.0**32
"""Largest magnitude of an element of a guarded tensor: 4.3e9."""
GUARDED = ValueRange(-THRESHOLD, THRESHOLD)
"""Range that a guard accepts."""
MASKED = ValueRange(-inf, THRESHOLD)
"""Range that the guard of masked attention scores accepts: masks add minus infinity."""
_MOST_TRIED = 6
"""Limit on the tensors that are tried for one guard, smallest first."""
_HORIZON = 40
"""Number of operations for which each tried guard's proof is continued, to compare the guards."""
_CALL_BYTES = 1 << 18
"""Bytes that could be checked during the overhead of a call."""

_MOVING = frozenset(("cache_write", "concat", "reorder", "shuffle", "sum", "view", "reference"))
"""Kinds of operations that only move or add elements."""
_MASKING = frozenset(("binary", "concat", "eltwise", "reference", "sum", "view"))
"""Kinds of operations that bring infinities of masks into scores."""
_ARITHMETIC = frozenset(("add", "sub", "mul", "div"))
"""Algorithms of binary that propagate NaN and infinities."""
_SQUARING = frozenset(("gelu_erf", "gelu_tanh", "mish", "pow", "square", "swish", "hardswish"))
"""Algorithms of eltwise whose intermediate results are as large as squares."""


def propagates(kind: str, algorithm: object) -> bool:
    """Return whether every implementation of a primitive treats NaN and infinities as IEEE 754 specifies."""
    if kind in WEIGHTED:
        return algorithm not in ALGORITHMS
    if kind in ("binary", "eltwise"):
        return algorithm in (_ARITHMETIC if kind == "binary" else ("linear",))
    return kind in _MOVING


def may_leave_range(op: Op) -> bool:
    """Return whether an operation may return NaN or infinities for small numbers."""
    algorithm = op.parameters.get("algorithm")
    return (op.kind == "binary" and algorithm == "div") or (
        op.kind == "eltwise" and algorithm in ("exp", "log", "pow", "sqrt")
    )


def place_guards(
    graph: OpGraph,
    sizes: Mapping[str, int],
    strict: frozenset[str],
    types: Mapping[str, np.dtype[Any]] = MappingProxyType({}),
) -> dict[str, ValueRange] | None:
    """Return the guarded tensors with their ranges, chosen among those in `sizes`; None if no guards suffice.

    `sizes` has the bytes of each tensor that may be guarded. `strict` has the names of operations that spread an
    infinity to other elements, such as convolutions by Winograd's algorithm. `types` has the type of each tensor that
    is stored in another one than its own: numbers beyond its largest one become infinite.

    Post-condition: if every element of each tensor is in its range, `GUARDED` or `MASKED`, and none is NaN, no
    operation reads NaN or infinities that it does not propagate.
    """
    placement = _GuardPlacement(graph, sizes, strict, types)
    return placement.guards if placement.place() else None


@dataclass(slots=True)
class _GuardPlacement:
    """State of the placement: guards so far, and the value ranges that follow from them."""

    graph: OpGraph
    """Operations and tensors."""
    sizes: Mapping[str, int]
    """Bytes of each tensor that may be guarded."""
    strict: frozenset[str]
    """Names of operations that spread an infinity to other elements."""
    types: Mapping[str, np.dtype[Any]] = field(default_factory=dict)
    """Type in which a tensor is stored, where that is not its own."""
    guards: dict[str, ValueRange] = field(default_factory=dict)
    """Range that each guard accepts, by tensor."""
    ranges: dict[str, ValueRange] = field(default_factory=dict)
    """Value range of each tensor so far."""
    writers: dict[str, int] = field(default_factory=dict)
    """Index of the operation that writes a tensor, by tensor."""
    constants: dict[str, dict[str, ValueRange]] = field(default_factory=dict)
    """Ranges of the constant arguments of each operation."""
    dims: dict[str, dict[str, Dims]] = field(default_factory=dict)
    """Dims of the arguments of each operation."""
    masked: set[str] = field(default_factory=set)
    """Tensors that masks bring minus infinity into."""

    def place(self) -> bool:
        """Add guards until every operation reads ranges that it treats correctly; return False if no guards suffice."""
        self.initialize()
        for i in range(len(self.graph.ops)):
            while (failing := self.advance(self.ranges, i)) is not None:
                if not self._guard_before(i, failing):
                    return False
        return True

    def initialize(self) -> None:
        """Compute the ranges of inputs and constants, and the tensors to which masks bring minus infinity."""
        tensors, ops = self.graph.tensors, self.graph.ops
        self.ranges = {name: range_of_dtype(tensors[name].dtype) for name in self.graph.inputs}
        self.writers = writers_of(self.graph)
        self.constants = {op.name: {name: range_of_array(array) for name, array in op.constants.items()} for op in ops}
        self.dims = {op.name: self._dims(op) for op in ops}
        for op in ops:
            if op.kind in _MASKING and self._is_masked(op):
                self.masked.update(op.writes.values())

    def _is_masked(self, op: Op) -> bool:
        """Return whether an operation brings minus infinity into its result, as masks do.

        A number below -`THRESHOLD` counts as minus infinity.
        """
        bounds = list(self.constants[op.name].values())
        if op.parameters.get("algorithm") == "linear" and isinstance(factor := op.parameters["alpha"], float):
            bounds.append(ValueRange(-abs(factor), 0.0))  # as in (1 - mask) times the least number
        return any(one.low < -THRESHOLD for one in bounds) or not self.masked.isdisjoint(op.reads.values())

    def advance(self, ranges: dict[str, ValueRange], i: int) -> str | None:
        """Infer the ranges of operation `i`'s results; return None.

        If the operation does not support the range of an input, or a strict operation may have an infinite result,
        return that input.
        """
        yield_to_runs()
        op, tensors = self.graph.ops[i], self.graph.tensors
        for name in op.reads.values():
            is_readable = _is_readable(op, ranges[name], op.name in self.strict)
            is_readable &= op.exact is None or ranges[name].is_finite
            if is_float(tensors[name].dtype) and not is_readable:
                return name
        if not all(_is_readable(op, bounds, False) for bounds in self.constants[op.name].values()):
            return next(iter(op.reads.values()))
        inferred = self._infer(op, ranges)
        for argument, name in op.writes.items():
            own = result_range(op, argument, inferred, self.types.get(name, tensors[name].dtype))
            ranges[name] = _intersect(own, self.guards.get(name))
            if op.name in self.strict and not own.is_finite:
                return next(iter(op.reads.values()))
        return None

    def _infer(self, op: Op, ranges: Mapping[str, ValueRange]) -> ValueRange:
        """Return the range of an operation's results."""
        used = {argument: ranges[name] for argument, name in op.reads.items()} | self.constants[op.name]
        if op.kind == "reference":
            return ANY if op.node is None else infer_reference_range(op.node.operator, used.values())
        return infer_range(op, used, self.dims[op.name])

    def _dims(self, op: Op) -> dict[str, Dims]:
        """Return the dims of an operation's arguments."""
        tensors = {
            argument: self.graph.tensors[name].dims for argument, name in (*op.reads.items(), *op.writes.items())
        }
        return tensors | {argument: array.shape for argument, array in op.constants.items()}

    def _guard_before(self, i: int, failing: str) -> bool:
        """Guard a tensor before operation `i`, which does not support the range of `failing`.

        The choice is the tensor that proves the most operations for the cost of its check, or the nearest one if none
        proves any. Return False if no tensor is left.
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
        """Guard a tensor, and infer the ranges that follow from it up to operation `i`."""
        self.guards[name] = self._guard_of(name)
        self._propagate(self.ranges, name, i)

    def _guard_of(self, name: str) -> ValueRange:
        """Return the range that a guard of a tensor accepts."""
        return MASKED if name in self.masked else GUARDED

    def _forbid_infinity(self, failing: str, i: int) -> bool:
        """Let the guard of scores reject minus infinity, too; return False if `failing` has no such guard."""
        if self.guards.get(failing) != MASKED:
            return False
        self.masked.discard(failing)
        self._add_guard(failing, i)
        return True

    def _upstream(self, failing: str) -> Iterator[str]:
        """Yield tensors before an operation that can be guarded and whose ranges are too large, nearest first."""
        waiting, seen = [failing], {failing}
        while waiting:
            name = waiting.pop(0)
            if name in self.guards or _is_within(self.ranges[name], self._guard_of(name)):
                continue
            if name in self.sizes:
                yield name
            reads = self.graph.ops[self.writers[name]].reads.values() if name in self.writers else ()
            more = [other for other in reads if other not in seen and is_float(self.graph.tensors[other].dtype)]
            waiting += more
            seen.update(more)

    def _last_proved(self, name: str, i: int) -> int:
        """Return the operation at which the proof ends with one more guard; it is `i` if the guard does not help."""
        ranges, self.guards = dict(self.ranges), self.guards | {name: self._guard_of(name)}
        self._propagate(ranges, name, i)
        last = min(i + _HORIZON, len(self.graph.ops))
        proved = next((k for k in range(i, last) if self.advance(ranges, k) is not None), last)
        del self.guards[name]
        return proved

    def _propagate(self, ranges: dict[str, ValueRange], name: str, end: int) -> None:
        """Infer the ranges of operations after a guarded tensor again, up to operation `end`."""
        ranges[name] = _intersect(ranges[name], self.guards[name])
        for i in range(self.writers.get(name, -1) + 1, end):
            self.advance(ranges, i)


def _is_within(bounds: ValueRange, guard: ValueRange) -> bool:
    """Return whether a range is within the range that a guard accepts."""
    return not bounds.may_be_nan and guard.low <= bounds.low and bounds.high <= guard.high


def _intersect(bounds: ValueRange, guard: ValueRange | None) -> ValueRange:
    """Return the range of a tensor whose guard has accepted it."""
    if guard is None:
        return bounds
    return ValueRange(max(bounds.low, guard.low), min(bounds.high, guard.high), peak=bounds.peak)


def _is_readable(op: Op, bounds: ValueRange, is_strict: bool) -> bool:
    """Return whether an operation computes ONNX's result for elements in this range."""
    algorithm = op.parameters.get("algorithm")
    if propagates(op.kind, algorithm) and not is_strict:
        return True
    if (
        op.kind == "softmax"
    ):  # rows with some -inf are correct; a row with only -inf gives NaN, which value ranges account for
        return not bounds.may_be_nan and bounds.high <= FINITE
    squares = op.kind in ("layer_normalization", "lrn") or algorithm in _SQUARING
    squares = squares or (op.kind == "reduction" and str(algorithm).startswith("norm"))
    return not bounds.may_be_nan and bounds.magnitude <= (SQUARABLE if squares else FINITE)
