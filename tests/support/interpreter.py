"""`interpret`: an `OpGraph` computed one operation after the other, in plain formats: the oracle of all faster ways.

Primitives are computed by the reference engine in f64 and rounded, views by NumPy, references by `graph.nodes`.
"""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import (
    Array,
    Op,
    OpGraph,
    PermuteView,
    ReshapeView,
    ViewTransform,
    constant_desc,
    operation_of,
)
from inlay.memory import Memory, pack
from inlay.primitives.engine import get_engine


def interpret(graph: OpGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, given those that a run is given.

    Raises:
        InvalidArguments: an input is missing, unknown, or has other dims or another type than the graph's.
        MissingExtra: there is a reference, and the package onnx is not installed.
        Unimplemented: there is a reference that nothing here computes.
    """
    _require_inputs(graph, inputs)
    found: dict[str, Array] = dict(inputs)
    for op in graph.ops:
        compute = _WAYS.get(op.kind, _primitive)
        found |= compute(graph, op, found)
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


def _reference(graph: OpGraph, op: Op, found: Mapping[str, Array]) -> dict[str, Array]:
    assert op.node is not None
    reads = {name: found[name] for name in op.reads.values()}
    return compute_node(op.node, graph.opset, {**op.constants, **reads})


def _view(graph: OpGraph, op: Op, found: Mapping[str, Array]) -> dict[str, Array]:
    array = found[op.reads["src"]]
    for move in op.transforms:
        array = moved(array, move)
    return {op.writes["dst"]: array}


def moved(array: Array, move: ViewTransform) -> Array:
    """The elements after a move.

    >>> moved(np.arange(6).reshape(2, 3), PermuteView((1, 0))).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    if isinstance(move, ReshapeView):
        return array.reshape(move.dims)
    if isinstance(move, PermuteView):
        return array.transpose(move.perm)
    return array[tuple(slice(at, at + n) for at, n in zip(move.offsets, move.dims, strict=True))]


def _primitive(graph: OpGraph, op: Op, found: Mapping[str, Array]) -> dict[str, Array]:
    arrays = {**op.constants, **{argument: found[name] for argument, name in op.reads.items()}}
    descs = {argument: constant_desc(array) for argument, array in arrays.items()}
    written = {argument: graph.tensors[name] for argument, name in op.writes.items()}
    dense = {
        argument: constant_desc(np.broadcast_to(np.zeros((), tensor.dtype), tensor.dims))
        for argument, tensor in written.items()
    }
    implementation = get_engine("reference").create(operation_of(op, {**descs, **dense}))
    memories = {argument: pack(np.ascontiguousarray(array), descs[argument]) for argument, array in arrays.items()}
    results = {
        argument: Memory(dense[argument], np.zeros(prod(tensor.dims), tensor.dtype))
        for argument, tensor in written.items()
    }
    implementation.bind({**memories, **results})()
    return {op.writes[argument]: memory.unpack() for argument, memory in results.items()}


_WAYS: Mapping[str, Callable[[OpGraph, Op, Mapping[str, Array]], dict[str, Array]]] = {
    "reference": _reference,
    "view": _view,
}
