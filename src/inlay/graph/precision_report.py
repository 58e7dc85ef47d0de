"""The report of the errors of a plan against f32: `report_precision`."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_variants, as_direct
from inlay.graph.costs import MeasuredCosts
from inlay.graph.costs.estimates import Costs
from inlay.graph.layer_errors import Layer, LayerError, PrecisionReport, measure_layers, measure_outputs, run_in_f32
from inlay.graph.op_graph import Array
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.precision import NARROW_TYPES
from inlay.graph.precision_search import is_narrow, list_layers, run_planned
from inlay.graph.program import Step
from inlay.layout import Layout
from inlay.primitives.attributes import BinaryPostOp
from inlay.primitives.engine import EngineLike, Operation


def report_precision(
    planned: PlannedProgram,
    costs: Costs | None,
    arrays: Mapping[str, Array],
    tolerance: float | None,
    engine: EngineLike = None,
) -> PrecisionReport:
    """Return the errors of a planned program against f32 on these inputs.

    Args:
        planned: the program.
        costs: costs of its kernels, which are not measured; None if unknown, so that no layer has a time.
        arrays: the inputs, by name.
        tolerance: limit of the errors of outputs, for the report.
        engine: engine that computes.

    Raises:
        InvalidArguments, Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    layers = list_layers(planned.program, planned.graph)
    errors = measure_layers(planned.graph, layers, arrays, engine).layers if layers else {}
    outputs = measure_outputs(run_planned(planned, arrays, engine), run_in_f32(planned.graph, arrays, engine))
    with costs.without_measuring() if isinstance(costs, MeasuredCosts) else nullcontext():
        rows = tuple(_list_rows(planned, layers, errors, costs))
    return PrecisionReport(rows, outputs, tolerance)


def _list_rows(
    planned: PlannedProgram, layers: list[Layer], errors: Mapping[str, float], costs: Costs | None
) -> Iterator[LayerError]:
    """Yield the row of each layer that has a kernel in its narrow type."""
    steps = {step.ops[0]: step for step in planned.program.steps if step.ops}
    for layer in layers:
        step = steps[layer.ops[0]]
        saved = _saved_ms(step, layer.data_type, costs)
        if saved is not None:
            yield LayerError(layer.ops[0], layer.data_type, errors[layer.ops[0]], saved, is_narrow(step))


def _saved_ms(step: Step, data_type: str, costs: Costs | None) -> float | None:
    """Return the time of a step in f32 less that in a narrow type, in these formats; None without a kernel in both."""
    if costs is None or step.operation is None:
        return None
    wide, narrow = (_least_ms(_in_type(step.operation, name), costs) for name in ("f32", data_type))
    return None if wide is None or narrow is None else wide - narrow


def _least_ms(operation: Operation, costs: Costs) -> float | None:
    """Return the time of an operation by the fastest of its algorithms; None without a kernel."""
    direct = as_direct(operation) or operation
    kernels = (costs.kernel(one) for one in algorithm_variants(direct, "auto"))
    return min((kernel.ms for kernel in kernels if kernel is not None), default=None)


def _in_type(operation: Operation, data_type: str) -> Operation:
    """Return the operation with sources, weights and results in one type; other arguments keep theirs.

    Operands of post-operations become f32 with them, and keep their type in a narrow one, whose kernels read f32 too.
    """
    row = operation.signature
    descs = {
        name: _with_type(desc, data_type, is_weights=name in row.free and "weights" in name)
        if name.startswith(("src", "dst", "weights"))
        else desc
        for name, desc in operation.descs.items()
    }
    if data_type != "f32" or not operation.attributes.post_ops:
        return replace(operation, descs=descs)
    post_ops = tuple(
        replace(one, src_1=_with_type(one.src_1, data_type, is_weights=False)) if isinstance(one, BinaryPostOp) else one
        for one in operation.attributes.post_ops
    )
    return replace(operation, descs=descs, attributes=replace(operation.attributes, post_ops=post_ops))


def _with_type(desc: MemoryDesc, data_type: str, *, is_weights: bool) -> MemoryDesc:
    """Return a format with another floating-point type; weights get any format."""
    known = desc.data_type
    if known is None or known.name not in NARROW_TYPES | {"f32"}:
        return desc
    if is_weights:
        return MemoryDesc(desc.dims, data_type, "any")
    layout = desc.layout
    if not isinstance(layout, Layout):
        return desc
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims)
