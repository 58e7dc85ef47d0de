"""Adaptation of a plan to other dims of its inputs: its formats and algorithms for the same operations.

A network for another batch has the same operations on tensors of other dims. Its plan has nearly always the same
formats by tag. So these are taken over, and few kernels remain to be compared; weights then have equal formats, and are
stored once for all dims.
"""

from collections.abc import Mapping
from dataclasses import replace

from inlay.graph.background import yield_to_runs
from inlay.graph.network import has_equal_bits
from inlay.graph.op_graph import Array, Op, OpGraph
from inlay.graph.planner.problem import PlanChoices
from inlay.graph.program import Buffer, Program


def has_same_operations(graph: OpGraph, other: OpGraph) -> bool:
    """Return whether two graphs have operations of the same names and kinds on tensors that differ in extents alone."""
    if len(graph.ops) != len(other.ops) or graph.tensors.keys() != other.tensors.keys():
        return False
    pairs = ((tensor, other.tensors[name]) for name, tensor in graph.tensors.items())
    is_alike = all((one.dtype, len(one.dims)) == (two.dtype, len(two.dims)) for one, two in pairs)
    return is_alike and all(map(_is_same, graph.ops, other.ops))


def _is_same(op: Op, other: Op) -> bool:
    """Return whether two operations have the same name, kind, tensors, attributes and constant arguments."""
    mine = op.name, op.kind, op.reads, op.writes, op.constants.keys(), op.attributes
    return mine == (other.name, other.kind, other.reads, other.writes, other.constants.keys(), other.attributes)


def collect_choices(program: Program, graph: OpGraph) -> PlanChoices:
    """Return the formats of a graph's tensors in its program, by tag and type, and the algorithms of its convolutions.

    A tensor between operations that one step computes counts with the formats of the result of the step.
    """
    tags: dict[str, set[tuple[str, str]]] = {}
    for buffer in program.buffers.values():
        _add_tag(tags, buffer.tensor, buffer)
    writes = {op.name: tuple(op.writes.values()) for op in graph.ops}
    for step in program.steps:
        for name in step.writes.values() if len(step.ops) > 1 else ():
            for tensor in (tensor for op in step.ops for tensor in writes[op]):
                _add_tag(tags, tensor, program.buffers[name])
    algorithms = {
        step.ops[0]: str(step.operation.parameters["algorithm"])
        for step in program.steps
        if step.operation is not None and step.ops and step.kind == "convolution"
    }
    steps = frozenset(step.ops for step in program.steps)
    return PlanChoices({name: frozenset(found) for name, found in tags.items()}, algorithms, steps)


def _add_tag(tags: dict[str, set[tuple[str, str]]], tensor: str, buffer: Buffer) -> None:
    """Add the tag of a buffer, if it has one, with its data type to those of a tensor."""
    desc = buffer.desc
    if desc is not None and desc.tag is not None and desc.data_type is not None:
        tags.setdefault(tensor, set()).add((desc.tag, desc.data_type.name))


def lacks_kernels(program: Program, known: Program) -> bool:
    """Return whether NumPy computes an operation of a program that a kernel computes in another program."""
    fallen = {step.ops for step in known.steps if step.impl == "reference"}
    return any(step.impl == "reference" and step.ops not in fallen for step in program.steps)


def share_constants(graph: OpGraph, other: OpGraph) -> OpGraph:
    """Return the graph with the arrays of another graph in place of equal constants of operations of the same name.

    So the graphs of a network for several dims hold each constant once, and sessions recognize it without a comparison.
    """
    if graph is other:
        return graph
    known = {op.name: op.constants for op in other.ops}
    return replace(graph, ops=tuple(_with_shared(op, known.get(op.name, {})) for op in graph.ops))


def _with_shared(op: Op, known: Mapping[str, Array]) -> Op:
    """Return an operation with the arrays of `known` in place of equal constants."""
    yield_to_runs()
    shared = {name: known[name] for name, array in op.constants.items() if _is_equal(array, known.get(name))}
    return replace(op, constants={**op.constants, **shared}) if shared else op


def _is_equal(array: Array, other: Array | None) -> bool:
    """Return whether two arrays have the same type, dims and elements."""
    if other is None or array.dtype != other.dtype or array.shape != other.shape:
        return False
    if array.strides == other.strides and array.ctypes.data == other.ctypes.data:
        return True
    return has_equal_bits(array, other)
