"""The plain program of a graph: every tensor row-major, nothing fused, a copy wherever a view is not row-major itself.

What runtimes without a planner do: the baseline of plans, and the oracle of their tests.

>>> from inlay.graph.network import Tensor
>>> from inlay.graph.op_graph import Permute
>>> flat = Op("flat", "view", {"src": "x"}, {"dst": "y"}, moves=(Reshape((2, 6)),))
>>> turn = Op("turn", "view", {"src": "y"}, {"dst": "z"}, moves=(Permute((1, 0)),))
>>> tensors = {n: Tensor(n, d, np.dtype(np.float32)) for n, d in (("x", (2, 3, 2)), ("y", (2, 6)), ("z", (6, 2)))}
>>> program = plain_program(OpGraph("small", 17, ("x",), ("z",), (flat, turn), tensors))
>>> [(step.kind, dict(step.reads), dict(step.writes)) for step in program.steps]
[('reorder', {'src': 'z:view'}, {'dst': 'z'})]
"""

from typing import TypeAlias

import numpy as np

from inlay.data_type import DataType, as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.op_graph import Op, OpGraph, Reshape, operation_of
from inlay.graph.planner.formats import Formats, moved
from inlay.graph.program import Buffer, Program, Step
from inlay.layout import Layout
from inlay.primitives.engine import Operation

_Dtype: TypeAlias = np.dtype[np.generic]
_CARRIERS = {1: "u8", 2: "f16", 4: "f32", 8: "f64"}


def plain_program(graph: OpGraph) -> Program:
    """The steps of `graph` one by one, all formats row-major.

    Post-condition: each operation that is no view is one step, in the order of the graph.

    Raises:
        InvalidArguments: a primitive reads a tensor of a type that oneDNN lacks.
        Unimplemented: a view moves elements of a width that nothing has.
    """
    return _Plain(graph).program()


class _Plain:
    """A plain program as it grows."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph, self._formats = graph, Formats()
        self._buffers: dict[str, Buffer] = {}
        self._steps: list[Step] = []
        for name in graph.inputs:
            self._own(name)

    def program(self) -> Program:
        for op in self._graph.ops:
            if op.kind == "view":
                self._view(op)
            else:
                self._step(op)
        graph = self._graph
        ends = ({name: name for name in names} for names in (graph.inputs, graph.outputs))
        return Program(tuple(self._steps), self._buffers, *ends)

    def _own(self, tensor: str) -> Buffer:
        """The buffer of a tensor in a home of its own."""
        buffer = self._buffers[tensor] = Buffer(tensor, tensor, self._desc(tensor), tensor)
        return buffer

    def _desc(self, tensor: str) -> MemoryDesc | None:
        return self._formats.desc(self._formats.plain(self._graph.tensors[tensor]))

    def _step(self, op: Op) -> None:
        written = {tensor: self._own(tensor) for tensor in op.writes.values()}
        assert written.keys() <= self._buffers.keys()
        operation = None
        if op.kind != "reference":
            used = {**op.reads, **op.writes}
            operation = operation_of(op, {argument: self._described(op, tensor) for argument, tensor in used.items()})
        nbytes = sum(self._graph.tensors[tensor].nbytes for tensor in (*op.reads.values(), *op.writes.values()))
        nbytes += sum(array.nbytes for array in op.constants.values())
        said = op.name, op.kind, op.reads, op.writes, operation, op.constants, op.node, (op.name,)
        self._steps.append(Step(*said, nbytes=nbytes, why=op.why))

    def _described(self, op: Op, tensor: str) -> MemoryDesc:
        desc = self._buffers[tensor].desc
        if desc is None:
            its = self._graph.tensors[tensor]
            raise InvalidArguments(
                f"{op.name}, a {op.kind}, uses {tensor}, {its.dtype} of dims {its.dims}, which oneDNN cannot describe: "
                "it is for a reference"
            )
        return desc

    def _view(self, op: Op) -> None:
        """A view: the same bytes if they are in row-major order, else a copy."""
        (source,), (tensor,) = op.reads.values(), op.writes.values()
        its = self._graph.tensors[tensor]
        bits = _carrier(its.dtype, op)
        desc = MemoryDesc(self._graph.tensors[source].dims or (1,), bits)
        for move in op.moves:
            # A descriptor has an axis at least: that of a scalar has one element.
            desc = moved(desc, Reshape(move.dims or (1,)) if isinstance(move, Reshape) else move)
        layout = desc.layout
        if not desc.dims or (isinstance(layout, Layout) and layout.is_contiguous):
            offset = desc.offset0 * its.dtype.itemsize if desc.dims else 0
            self._buffers[tensor] = Buffer(tensor, tensor, self._desc(tensor), source, offset)
            return
        own = self._own(tensor)
        view = Buffer(f"{tensor}:view", tensor, desc, source)
        dst = Buffer(f"{tensor}:bits", tensor, MemoryDesc(its.dims, bits), tensor)
        if dst.desc == own.desc:
            dst = own
        self._buffers |= {view.name: view, dst.name: dst}
        assert dst.desc is not None
        operation = Operation("reorder", "forward_inference", {"src": desc, "dst": dst.desc})
        nbytes, why = 2 * its.nbytes, f"{op.name} is no view of row-major memory"
        self._steps.append(
            Step(op.name, "reorder", {"src": view.name}, {"dst": dst.name}, operation, nbytes=nbytes, why=why)
        )


def _carrier(dtype: _Dtype, op: Op) -> DataType:
    """A type whose elements a reorder moves as they are: the tensor's own, or one of the same width."""
    try:
        return as_number_type(dtype)
    except InvalidArguments:
        if dtype.itemsize not in _CARRIERS:
            raise Unimplemented(f"{op.name}, a view, is of {dtype}: no reorder moves elements of its width") from None
        return as_number_type(_CARRIERS[dtype.itemsize])
