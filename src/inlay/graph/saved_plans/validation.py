"""Checks of a plan that comes from a file: `require_valid_plan` refuses whatever planning could not have made.

The records of the file have the right types (`record_codec`); here they are checked against one another:

    graph      each tensor is written once, before it is read; each operation is one that its primitive's class derives
               from the dims of its tensors
    program    names, kinds, and which arguments a step reads and writes; the bytes of buffers and the order of reads
               and writes are checked when it is compiled (`runtime.checking`), formats by the engine
    guards     buffers that a run can check

So sizes reach generated code and engines only if they follow from one another.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from inlay.data_type import as_data_type, as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, shown
from inlay.graph.fallback.serialized_models import require_own_tensors
from inlay.graph.network import Node, Subgraph, Tensor
from inlay.graph.op_graph import (
    BroadcastView,
    Op,
    OpGraph,
    PermuteView,
    ReshapeView,
    SubmemoryView,
    ViewTransform,
    describe_constant,
    exact_graph,
    operation_of,
)
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.precision import NARROW_TYPES
from inlay.graph.program import Program, Step
from inlay.graph.runtime.checking import OLD_DST, require_names
from inlay.graph.runtime.guards import RunGuards, can_scan
from inlay.graph.stored_constants import StoredConstants
from inlay.graph.view_transforms import apply_transform
from inlay.memory.reorder_cache import cached_desc
from inlay.primitives.attributes import EltwisePostOp
from inlay.primitives.calls import attribute_value_descs
from inlay.primitives.engine import Operation
from inlay.primitives.operation_checks import require_operation

MOST_PARTS = 1 << 17
"""Limit of the numbers of operations, steps, buffers and tensors."""
_MOST_AXES = 64
_MOST_BYTES = 2**62
_POST_OP = "post_op_"


def require_valid_plan(plan: PlannedProgram, guards: RunGuards) -> None:
    """Check a plan and its guards.

    Raises:
        FileError: planning could not have made them.
        InvalidArguments, Unimplemented: as `require_operation` and `require_names`.
    """
    graph, program = plan.graph, plan.program
    for what, parts in (
        ("operations", graph.ops),
        ("tensors", graph.tensors),
        ("steps", program.steps),
        ("buffers", program.buffers),
    ):
        if len(parts) > MOST_PARTS:
            raise FileError(f"it has {len(parts)} {what}, and {MOST_PARTS} are the limit")
    _require_graph(graph)
    _require_tables(graph)
    if any(op.exact is not None for op in graph.ops):
        _require_graph(exact_graph(graph))
    _require_program(program, graph)
    _require_guards(guards, program, graph)


# The graph


def _require_graph(graph: OpGraph) -> None:
    """Check tensors, order and operations of a graph."""
    for name, tensor in graph.tensors.items():
        _require_tensor(name, tensor)
    _require_unique(graph.inputs, "input")
    _require_unique((op.name for op in graph.ops), "operation")
    written = {_known(name, graph.tensors, "an input") for name in graph.inputs}
    for op in graph.ops:
        for name in op.reads.values():
            if name not in written:
                raise FileError(f"operation {shown(op.name)} reads {shown(name)} before it is written")
        for name in op.writes.values():
            if name in written:
                raise FileError(f"operation {shown(op.name)} writes {shown(name)}, which is written already")
            written.add(_known(name, graph.tensors, f"a result of {shown(op.name)}"))
        _require_op(op, graph)
    for name in graph.outputs:
        if name not in written:
            raise FileError(f"output {shown(name)} is not written")


def _require_tables(graph: OpGraph) -> None:
    """Check the types of storage and the states of a graph."""
    for name, types in graph.storage_types.items():
        tensor = graph.tensors[_known(name, graph.tensors, "a tensor with types of storage")]
        if tensor.dtype != np.float32 or not types or not set(types) <= NARROW_TYPES:
            raise FileError(f"tensor {shown(name)}, {tensor.dtype}, has the types of storage {shown(types)}")
    _require_unique((state.input for state in graph.states), "state")
    for state in graph.states:
        if state.input not in graph.inputs or (state.output is not None and state.output not in graph.outputs):
            raise FileError(f"state {shown(state.input)} is no input of the graph, or has no output of it")
        if not 0 <= state.axis < len(graph.tensors[state.input].dims) or state.maximum < 1:
            raise FileError(f"state {shown(state.input)} has axis {state.axis} and maximum {state.maximum}")


def _require_tensor(name: str, tensor: Tensor) -> None:
    """Check name, dims and size of a tensor."""
    if tensor.name != name:
        raise FileError(f"tensor {shown(name)} has the name {shown(tensor.name)} too")
    if len(tensor.dims) > _MOST_AXES or any(n < 0 for n in tensor.dims):
        raise FileError(f"tensor {shown(name)} has dims {shown(tensor.dims)}")
    if math.prod(max(n, 1) for n in tensor.dims) * tensor.dtype.itemsize > _MOST_BYTES:
        raise FileError(f"tensor {shown(name)} of dims {shown(tensor.dims)} is too large for any memory")


def _require_unique(names: Iterable[str], what: str) -> None:
    """Check that no name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FileError(f"{what} {shown(name)} occurs twice")
        seen.add(name)


def _known(name: str, tensors: Mapping[str, Tensor], what: str) -> str:
    """Return the name of a tensor of the graph."""
    if name not in tensors:
        raise FileError(f"{what} is {shown(name)}, which is no tensor of the graph")
    return name


def _require_op(op: Op, graph: OpGraph) -> None:
    """Check one operation against the tensors that it reads and writes."""
    if op.kind == "view":
        _require_view(op, graph.tensors)
    elif op.kind == "reference":
        _require_reference(op.name, op.node, [*op.reads.values(), *op.constants], list(op.writes.values()))
    elif op.kind == "concat" and any(graph.tensors[name].dtype != np.float32 for name in op.writes.values()):
        _require_concatenation(op, graph.tensors)
    else:
        used = {**op.reads, **op.writes}
        descs = {argument: _plain_desc(graph.tensors[name]) for argument, name in used.items()}
        descs |= _constant_descs(op, descs) if op.constants else {}
        operation = operation_of(op, descs)
        require_operation(operation)
        _require_values(op.name, descs, operation)
        _require_sides(op.name, op.reads, op.writes, operation)


def _require_values(name: str, descs: Mapping[str, MemoryDesc], operation: Operation) -> None:
    """Check dims and types of the values of an operation's scales and zero points."""
    if not all(isinstance(post_op, EltwisePostOp) for post_op in operation.attributes.post_ops):
        raise FileError(f"{shown(name)}, a {operation.kind}, has post-operations with operands, which only steps have")
    for argument, desc in attribute_value_descs(operation).items():
        if descs[argument] != desc:
            raise FileError(f"{argument} of {shown(name)} is {descs[argument]!r}, and {desc!r} follows")


def _constant_descs(op: Op, descs: Mapping[str, MemoryDesc]) -> dict[str, MemoryDesc]:
    """Return the descriptors of constants in a file as `operation_of` makes them, without reading the constants."""
    assert isinstance(op.constants, StoredConstants)
    stored = {name: op.constants.stored(name) for name in op.constants}
    return {name: describe_constant(op.kind, name, one.dims, one.dtype, descs) for name, one in stored.items()}


def _plain_desc(tensor: Tensor) -> MemoryDesc:
    """Return the row-major descriptor of a tensor; one without axes has one element."""
    return cached_desc(tensor.dims or (1,), as_number_type(tensor.dtype), None)


def _require_view(op: Op, tensors: Mapping[str, Tensor]) -> None:
    """Check that a view makes the dims of its result of those of its source."""
    if set(op.reads) != {"src"} or set(op.writes) != {"dst"}:
        raise FileError(f"view {shown(op.name)} has other arguments than src and dst")
    src, dst = tensors[op.reads["src"]], tensors[op.writes["dst"]]
    desc = MemoryDesc(src.dims or (1,), as_data_type(src.dtype))
    for transform in op.transforms:
        _require_transform(op.name, transform, desc.ndims)
        desc = apply_transform(
            desc, ReshapeView(transform.dims or (1,)) if isinstance(transform, ReshapeView) else transform
        )
    if desc.dims != (dst.dims or (1,)) or src.dtype != dst.dtype:
        raise FileError(f"view {shown(op.name)} makes dims {desc.dims}, and its result has {dst.dims} of {dst.dtype}")


def _require_transform(name: str, transform: ViewTransform, count: int) -> None:
    """Check that a transform has an entry for each of `count` axes."""
    match transform:
        case PermuteView(perm=perm):
            lengths = {len(perm)}
        case SubmemoryView(offsets=offsets, dims=dims, steps=steps):
            lengths = {len(offsets), len(dims), len(steps) or count}
            if any(step < 1 for step in steps):
                raise FileError(f"view {shown(name)} has steps {shown(steps)}: they are positive")
        case BroadcastView(dims=dims):
            lengths = {len(dims)}
        case _:
            lengths = {count}
    if lengths != {count}:
        raise FileError(f"view {shown(name)} has a transform for another number of axes than {count}")


def _require_concatenation(op: Op, tensors: Mapping[str, Tensor]) -> None:
    """Check a concatenation of elements that no primitive concatenates."""
    axis = op.parameters.get("axis")
    sources = [tensors[name] for name in op.reads.values()]
    result = tensors[next(iter(op.writes.values()))]
    is_known = set(op.writes) == {"dst"} and list(op.reads) == [f"src_{i}" for i in range(len(sources))]
    if not is_known or type(axis) is not int or not 0 <= axis < len(result.dims) or not sources:
        raise FileError(f"concatenation {shown(op.name)} has other arguments than sources, a result and an axis")
    total = sum(tensor.dims[axis] for tensor in sources if len(tensor.dims) == len(result.dims))
    wanted = {(*t.dims[:axis], total, *t.dims[axis + 1 :]) for t in sources} | {result.dims}
    if len(wanted) != 1 or any(tensor.dtype != result.dtype for tensor in sources):
        raise FileError(f"concatenation {shown(op.name)} has sources that do not make dims {result.dims}")


def _require_reference(name: str, node: Node | None, sources: list[str], results: list[str]) -> None:
    """Check the names of the node of a reference, and the model of a subgraph."""
    if node is None:
        raise FileError(f"reference {shown(name)} has no node")
    if {one for one in node.inputs if one} != set(sources) or not set(results) <= {one for one in node.outputs if one}:
        raise FileError(f"reference {shown(name)} has other inputs or outputs than its node")
    if isinstance(node, Subgraph):
        if len(node.inner_names) != len(node.inputs) or not node.model:
            raise FileError(f"reference {shown(name)} has no model for its inputs")
        require_own_tensors(node.model)


def _require_sides(name: str, reads: Iterable[str], writes: Iterable[str], operation: Operation) -> None:
    """Check that an operation reads and writes its arguments on the sides that they have by its signature."""
    row = operation.signature
    wrong = [argument for argument in writes if argument not in row.writes]
    wrong += [argument for argument in reads if argument in row.writes and argument not in row.reads]
    if wrong:
        raise FileError(f"{shown(name)}, a {operation.kind}, reads or writes {shown(wrong[0])} on the wrong side")


# The program


def _require_program(program: Program, graph: OpGraph) -> None:
    """Check buffers and steps of a program for a graph."""
    for name, buffer in program.buffers.items():
        if buffer.name != name:
            raise FileError(f"buffer {shown(name)} has the name {shown(buffer.name)} too")
    require_names(program)
    for what, ends, names in (("input", program.inputs, graph.inputs), ("output", program.outputs, graph.outputs)):
        if set(ends) != set(names):
            raise FileError(f"the program has another {what} than the graph")
        for tensor, name in ends.items():
            if program.buffers[name].tensor != tensor:
                raise FileError(f"{what} {shown(tensor)} is in buffer {shown(name)}, which has another tensor")
    if program.states != {state.input: program.inputs[state.input] for state in graph.states}:
        raise FileError("the program has other states than the graph")
    for step in program.steps:
        _require_step(step, program)


def _require_step(step: Step, program: Program) -> None:
    """Check the arguments of a step, and its predicted time."""
    if not (math.isfinite(step.ms) and step.ms >= 0):
        raise FileError(f"step {shown(step.name)} has the predicted time {step.ms} ms")
    if step.operation is None:
        tensors = ([program.buffers[name].tensor for name in side.values()] for side in (step.reads, step.writes))
        sources, results = tensors
        _require_reference(step.name, step.node, [*sources, *step.constants], results)
        return
    if step.kind != step.operation.kind:
        raise FileError(f"step {shown(step.name)}, a {step.kind}, has an operation {step.operation.kind}")
    require_operation(step.operation)
    _require_sides(step.name, (name for name in step.reads if name != OLD_DST), step.writes, step.operation)


# Guards


def _require_guards(guards: RunGuards, program: Program, graph: OpGraph) -> None:
    """Check that a run can check the buffers of guards."""
    steps = {step.name for step in program.steps}
    after = guards.after or {}
    for name in guards.inputs:
        if name not in program.inputs.values():
            raise FileError(f"{shown(name)} is guarded as an input and is none")
    for step in after:
        if step not in steps:
            raise FileError(f"a guard follows step {shown(step)}, which the program does not have")
    for name in (*guards.inputs, *(name for names in after.values() for name in names)):
        if name not in program.buffers or not can_scan(program, graph, name):
            raise FileError(f"{shown(name)} is guarded, and no run can check it")
