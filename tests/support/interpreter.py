"""`interpret`: an `OpGraph` computed one operation after the other, in plain formats: the oracle of all faster ways.

Primitives are computed by the reference engine in f64 and rounded, views by NumPy, references by `graph.nodes`.
"""

from collections.abc import Mapping

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import (
    Array,
    BroadcastView,
    Op,
    OpGraph,
    PermuteView,
    ReshapeView,
    constant_desc,
    operation_of,
)
from inlay.memory import Memory, pack
from inlay.primitives.engine import get_engine


def interpret(graph: OpGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, given those that a run is given.

    Raises:
        InvalidArguments: an input is missing, unknown, or has other dims or another type than the graph's.
    """
    _require_inputs(graph, inputs)
    found: dict[str, Array] = dict(inputs)
    for op in graph.ops:
        if op.node is not None and op.kind == "reference":
            reads = {name: found[name] for name in op.reads.values()}
            found |= compute_node(op.node, graph.opset, {**op.constants, **reads})
        elif op.kind == "view":
            found[op.writes["dst"]] = viewed(op, found[op.reads["src"]])
        else:
            found |= _primitive(graph, op, found)
    return found


def _require_inputs(graph: OpGraph, inputs: Mapping[str, Array]) -> None:
    if inputs.keys() != set(graph.inputs):
        raise InvalidArguments(
            f"graph {graph.name!r} is given {', '.join(sorted(inputs)) or 'nothing'}: it takes "
            f"{', '.join(sorted(graph.inputs)) or 'nothing'}"
        )
    for name, array in inputs.items():
        tensor = graph.tensors[name]
        if (array.shape, array.dtype) != (tensor.dims, tensor.dtype):
            raise InvalidArguments(
                f"input {name} is {array.dtype} {array.shape}: graph {graph.name!r} takes {tensor.dtype} {tensor.dims}"
            )


def viewed(op: Op, array: Array) -> Array:
    """The elements after the moves of a view."""
    for move in op.transforms:
        if isinstance(move, ReshapeView):
            array = array.reshape(move.dims)
        elif isinstance(move, PermuteView):
            array = array.transpose(move.perm)
        elif isinstance(move, BroadcastView):
            array = np.broadcast_to(array, move.dims)
        else:
            steps = move.steps or (1,) * array.ndim
            sizes = zip(move.offsets, move.dims, steps, strict=True)
            array = array[tuple(slice(at, at + n * step, step) for at, n, step in sizes)]
            assert array.shape == move.dims
    return array


def _primitive(graph: OpGraph, op: Op, found: Mapping[str, Array]) -> dict[str, Array]:
    arrays = {**op.constants, **{argument: found[name] for argument, name in op.reads.items()}}
    results = {
        argument: np.zeros(graph.tensors[name].dims, graph.tensors[name].dtype) for argument, name in op.writes.items()
    }
    descs = {argument: constant_desc(array) for argument, array in {**arrays, **results}.items()}
    implementation = get_engine("reference").create(operation_of(op, descs))
    memories = {argument: pack(np.ascontiguousarray(array), descs[argument]) for argument, array in arrays.items()}
    memories |= {argument: Memory(descs[argument], array.reshape(-1)) for argument, array in results.items()}
    implementation.bind(memories)()
    return {op.writes[argument]: memories[argument].unpack() for argument in results}
