"""Errors of a plan in narrow types against f32, layer by layer, and the report of them.

>>> layer = LayerError("conv1", "bf16", error=0.0021, ms_saved=0.41, kept=True)
>>> print(PrecisionReport((layer,), {"y": 0.0034}, tolerance=0.01))
layer  type  error    ms saved  used
conv1  bf16  2.1e-03     0.410  yes
1 of 1 layers in a narrow type
error of y: 3.4e-03, tolerance 1.0e-02
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from inlay.graph.background import yield_to_runs
from inlay.graph.op_graph import Array, Op, OpGraph
from inlay.graph.passes.value_ranges import is_float
from inlay.graph.precision import convert_weights, round_to
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives.engine import EngineLike

_HEAD = ("layer", "type", "error", "ms saved", "used")


@dataclass(frozen=True, slots=True)
class LayerError:
    """The error that one operation has in a narrow type."""

    op: str
    """Name of the operation."""
    data_type: str
    """Narrow type of its tensors, `bf16` or `f16`."""
    error: float
    """Largest absolute difference from the result in f32, as part of the largest element of that result.

    Both results are of the same f32 sources, so that errors of earlier layers do not count.
    """
    ms_saved: float
    """Predicted time in f32 less that in the narrow type, in milliseconds."""
    kept: bool
    """True if the plan computes the operation in the narrow type."""


@dataclass(frozen=True, slots=True)
class PrecisionReport:
    """The errors of a plan against f32."""

    layers: tuple[LayerError, ...]
    """Errors of the operations that have a kernel in a narrow type, in the order in which they run."""
    outputs: Mapping[str, float]
    """Error of each output of the network, in the measure of `LayerError.error`, by name."""
    tolerance: float | None = None
    """Limit of the errors of outputs; None without a limit."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as dicts, lists, numbers and texts; an infinite error is null."""
        return {
            "tolerance": self.tolerance,
            "outputs": {name: _finite_or_none(error) for name, error in self.outputs.items()},
            "layers": [asdict(one) | {"error": _finite_or_none(one.error)} for one in self.layers],
        }

    def __str__(self) -> str:
        """Return a table of the layers, the number of narrow ones, and a line for each output."""
        rows = [
            (one.op, one.data_type, f"{one.error:.1e}", f"{one.ms_saved:.3f}", "yes" if one.kept else "no")
            for one in self.layers
        ]
        widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
        table = [_format_row(row, widths) for row in (_HEAD, *rows)]
        if self.layers:
            kept = sum(one.kept for one in self.layers)
            table.append(f"{kept} of {len(self.layers)} layers in a narrow type")
        else:
            table = ["no layer may be in a narrow type"]
        limit = "" if self.tolerance is None else f", tolerance {self.tolerance:.1e}"
        return "\n".join([*table, *(f"error of {name}: {error:.1e}{limit}" for name, error in self.outputs.items())])


def _finite_or_none(error: float) -> float | None:
    """Return an error for JSON, which has no infinity."""
    return error if isfinite(error) else None


def _format_row(row: tuple[str, ...], widths: list[int]) -> str:
    """Return a row of the table, with the milliseconds aligned to the right."""
    cells = [
        text.rjust(width) if title == "ms saved" else text.ljust(width)
        for title, text, width in zip(_HEAD, row, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


@dataclass(frozen=True, slots=True)
class Layer:
    """Operations that one kernel computes, and the narrow type that it may compute in."""

    ops: tuple[str, ...]
    """Names of the operations, in the order of the graph; the first one names the layer."""
    data_type: str
    """Narrow type of the tensors that the layer reads and writes."""


def measure_error(found: Array, expected: Array) -> float:
    """Return the largest absolute difference, as part of the largest element of `expected`; 0 without elements.

    Elements of `expected` that are not finite do not count. It is infinite where `found` has NaN or an infinity in
    place of a number.

    >>> measure_error(np.float32([1.5, -4.0]), np.float32([1.0, -4.0]))
    0.125
    """
    one, other = (np.asarray(array).astype(np.float64, copy=False) for array in (found, expected))
    counted = np.isfinite(other)
    if not counted.any():
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = float(np.abs(one - other)[counted].max())
    if not difference:
        return 0.0
    largest = float(np.abs(other[counted]).max())
    return difference / largest if largest and np.isfinite(difference) else float("inf")


def measure_outputs(found: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """Return the error of each output of floating-point numbers, by name."""
    floats = {name: array for name, array in expected.items() if is_float(array.dtype)}
    return {name: measure_error(found[name], array) for name, array in floats.items()}


def run_in_f32(graph: OpGraph, arrays: Mapping[str, Array], engine: EngineLike = None) -> dict[str, Array]:
    """Return the outputs of a graph for these inputs, computed in f32 without fused operations.

    Raises:
        Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    plain = replace(graph, storage_types={})
    with ProgramSession(plain_program(plain), plain, engine=engine) as session:
        return session.run(arrays)


@dataclass(frozen=True, slots=True)
class RoundingErrors:
    """Errors that rounding to narrow types causes in one place each, in the measure of `LayerError.error`."""

    layers: Mapping[str, float]
    """Error of each layer with rounded sources, weights and result, by the name of its first operation."""
    tensors: Mapping[str, float]
    """For each tensor that may be stored in a narrow type, the largest error in a result of a reader of it, if the
    tensor alone is rounded."""


def measure_layers(
    graph: OpGraph, layers: Sequence[Layer], arrays: Mapping[str, Array], engine: EngineLike = None
) -> RoundingErrors:
    """Return the errors of the layers of a graph in their narrow types, and those of its tensors.

    The sources of an operation are those of a run in f32, and sums are of f32, as kernels compute.

    Args:
        graph: the graph, with the types of storage of its tensors.
        layers: groups of its operations; no operation is in two of them.
        arrays: its inputs, by name.
        engine: engine that computes.

    Raises:
        Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    values = {name: np.asarray(array) for name, array in arrays.items()}
    errors: dict[str, float] = {}
    tensors = dict.fromkeys(graph.storage_types, 0.0)
    units = list(_list_units(graph, layers))
    last_reads = {name: i for i, (ops, _) in enumerate(units) for op in ops for name in op.reads.values()}
    for i, (ops, data_type) in enumerate(units):
        yield_to_runs()
        part = _part_of(graph, ops)
        sources = {name: values[name] for name in part.inputs}
        with ProgramSession(plain_program(part), part, engine=engine) as session:
            results = session.run(sources)
            for name in part.inputs if ops[0].kind != "view" else ():
                for narrow in graph.storage_types.get(name, ()):
                    seen = session.run({**sources, name: _rounded(sources[name], narrow)})
                    tensors[name] = max(tensors[name], _largest_error(seen, results))
        if data_type is not None:
            errors[ops[0].name] = _largest_error(_run_rounded(part, sources, data_type, engine), results)
        values |= results
        for name in [name for name in sources if last_reads[name] <= i]:
            del values[name]
    return RoundingErrors(errors, _through_views(graph, tensors))


def _through_views(graph: OpGraph, errors: Mapping[str, float]) -> dict[str, float]:
    """Return errors of tensors in which the readers of a view read its source."""
    found = dict(errors)
    for op in reversed(graph.ops):
        if op.kind == "view" and op.reads["src"] in found:
            found[op.reads["src"]] = max(found[op.reads["src"]], found.get(op.writes["dst"], 0.0))
    return found


def _largest_error(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Return the largest error of an output; 0 without outputs of floating-point numbers."""
    return max(measure_outputs(found, expected).values(), default=0.0)


def _list_units(graph: OpGraph, layers: Sequence[Layer]) -> Iterator[tuple[tuple[Op, ...], str | None]]:
    """Yield the operations of each layer with its type, and each other operation, in an order in which they can run.

    A layer follows the last of its operations in the graph: only then everything that it reads is known.
    """
    layer_of = {name: layer for layer in layers for name in layer.ops}
    waiting: dict[str, list[Op]] = {}
    for op in graph.ops:
        layer = layer_of.get(op.name)
        if layer is None:
            yield (op,), None
            continue
        ops = waiting.setdefault(layer.ops[0], [])
        ops.append(op)
        if len(ops) == len(layer.ops):
            yield tuple(ops), layer.data_type


def _part_of(graph: OpGraph, ops: Sequence[Op]) -> OpGraph:
    """Return the graph of some operations: it reads what none of them writes, and returns what others read."""
    written = [name for op in ops for name in op.writes.values()]
    read = {name for op in ops for name in op.reads.values()}
    inputs = tuple(dict.fromkeys(n for op in ops for n in op.reads.values() if n not in written))
    outputs = tuple(name for name in written if name not in read or len(ops) == 1)
    tensors = {name: graph.tensors[name] for name in (*inputs, *written)}
    return OpGraph(ops[0].name, graph.opset, inputs, outputs, tuple(ops), tensors)


def _run_rounded(part: OpGraph, sources: Mapping[str, Array], data_type: str, engine: EngineLike) -> dict[str, Array]:
    """Return the results of operations whose f32 sources, weights and results are rounded to a narrow type."""
    narrow = convert_weights(part, lambda array: _rounded(array, data_type))
    results = run_in_f32(narrow, {name: _rounded(array, data_type) for name, array in sources.items()}, engine)
    return {name: _rounded(array, data_type) for name, array in results.items()}


def _rounded(array: Array, data_type: str) -> Array:
    """Return the elements of an f32 array, rounded to a narrow type; any other array as it is."""
    return round_to(array, data_type).astype(np.float32) if array.dtype == np.float32 else array
