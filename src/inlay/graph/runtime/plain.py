"""The plain program of a graph: all tensors row-major, nothing fused, and a copy for each view that is not row-major.

Runtimes without a planner execute such programs. It is the baseline of plans, and the oracle in their tests.

>>> from inlay.graph.network import Tensor
>>> from inlay.graph.op_graph import PermuteView
>>> flat = Op("flat", "view", {"src": "x"}, {"dst": "y"}, transforms=(ReshapeView((2, 6)),))
>>> turn = Op("turn", "view", {"src": "y"}, {"dst": "z"}, transforms=(PermuteView((1, 0)),))
>>> tensors = {n: Tensor(n, d, np.dtype(np.float32)) for n, d in (("x", (2, 3, 2)), ("y", (2, 6)), ("z", (6, 2)))}
>>> program = plain_program(OpGraph("small", 17, ("x",), ("z",), (flat, turn), tensors))
>>> [(step.kind, dict(step.reads), dict(step.writes)) for step in program.steps]
[('reorder', {'src': 'z:view'}, {'dst': 'z'})]
"""

from dataclasses import replace

import numpy as np

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import Op, OpGraph, ReshapeView, operation_of
from inlay.graph.planner.formats import Formats
from inlay.graph.program import Buffer, Program, Step
from inlay.graph.view_transforms import apply_transform
from inlay.layout import Layout
from inlay.primitives.engine import Operation


def plain_program(graph: OpGraph) -> Program:
    """Return the program that executes the operations of `graph` one by one in row-major formats.

    Post-condition: each operation is one step, in the order of the graph, except views, and concatenations of computed
    tensors of types other than float32, which are reorders.

    Raises:
        InvalidArguments: a primitive or view reads a tensor that has no descriptor.
    """
    return _PlainProgramBuilder(graph).program()


class _PlainProgramBuilder:
    """The steps and buffers of a plain program so far."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph, self._formats = graph, Formats()
        self._buffers: dict[str, Buffer] = {}
        self._steps: list[Step] = []
        for name in graph.inputs:
            self._add_buffer(name)

    def program(self) -> Program:
        """Convert all operations and return the program."""
        for op in self._graph.ops:
            if op.kind == "view":
                self._view(op)
            elif self._is_joined_by_reorders(op):
                self._concatenation(op)
            else:
                self._step(op)
        graph = self._graph
        for state in graph.states:
            if state.output in self._buffers:
                self._buffers[state.output] = replace(self._buffers[state.output], base=state.input)
        kept = [state.input for state in graph.states]
        ends = ({name: name for name in names} for names in (graph.inputs, graph.outputs, kept))
        return Program(tuple(self._steps), self._buffers, *ends)

    def _is_joined_by_reorders(self, op: Op) -> bool:
        """Return whether an operation is a concatenation of computed tensors in a type other than float32."""
        is_other = op.kind == "concat" and self._graph.tensors[op.writes["dst"]].dtype != np.float32
        return is_other and not op.constants

    def _add_buffer(self, tensor: str) -> Buffer:
        """Add a buffer with memory of its own for a tensor."""
        buffer = self._buffers[tensor] = Buffer(tensor, tensor, self._desc(tensor), tensor)
        return buffer

    def _desc(self, tensor: str) -> MemoryDesc | None:
        """Return the row-major descriptor of a tensor; None where oneDNN has no such type."""
        return self._formats.desc(self._formats.plain(self._graph.tensors[tensor]))

    def _step(self, op: Op) -> None:
        """Add the step of a primitive or reference."""
        written = {tensor: self._add_buffer(tensor) for tensor in op.writes.values()}
        assert written.keys() <= self._buffers.keys()
        operation = None
        if op.kind != "reference":
            used = {**op.reads, **op.writes}
            operation = operation_of(
                op, {argument: self._require_desc(op, tensor) for argument, tensor in used.items()}
            )
        nbytes = sum(self._graph.tensors[tensor].nbytes for tensor in (*op.reads.values(), *op.writes.values()))
        nbytes += sum(array.nbytes for array in op.constants.values())
        fields = op.name, op.kind, op.reads, op.writes, operation, op.constants, op.node, (op.name,)
        self._steps.append(Step(*fields, nbytes=nbytes, why=op.why))

    def _require_desc(self, op: Op, tensor: str) -> MemoryDesc:
        """Return the descriptor of a tensor that a primitive uses."""
        desc = self._buffers[tensor].desc
        if desc is None:
            its = self._graph.tensors[tensor]
            raise InvalidArguments(
                f"{op.name}, a {op.kind}, uses {tensor}, {its.dtype} of dims {its.dims}, which oneDNN cannot describe: "
                "it is for a reference"
            )
        return desc

    def _concatenation(self, op: Op) -> None:
        """Add a concatenation: a reorder of each source into its part of the result."""
        (tensor,), axis = op.writes.values(), op.parameters["axis"]
        assert isinstance(axis, int)
        self._add_buffer(tensor)
        parts = [self._graph.tensors[source].dims for source in op.reads.values()]
        slices = self._formats.slices(self._formats.plain(self._graph.tensors[tensor]), parts, axis)
        assert slices is not None  # a row-major result has no blocks
        for (argument, source), (fmt, offset) in zip(op.reads.items(), slices, strict=True):
            part = Buffer(f"{tensor}:{argument}", source, self._formats[fmt], tensor, offset)
            self._buffers[part.name] = part
            descs = {"src": self._require_desc(op, source), "dst": self._formats[fmt]}
            operation, nbytes = Operation("reorder", "forward_inference", descs), 2 * descs["src"].size
            step = f"{op.name}:{argument}"
            self._steps.append(
                Step(step, "reorder", {"src": source}, {"dst": part.name}, operation, ops=(op.name,), nbytes=nbytes)
            )

    def _view(self, op: Op) -> None:
        """Add a view: a buffer in the bytes of its source if these are in row-major order, else a copy."""
        (source,), (tensor,) = op.reads.values(), op.writes.values()
        its = self._graph.tensors[tensor]
        desc = MemoryDesc(self._graph.tensors[source].dims or (1,), as_data_type(its.dtype))
        for transform in op.transforms:
            # A descriptor has at least one axis: a scalar becomes one element.
            desc = apply_transform(
                desc, ReshapeView(transform.dims or (1,)) if isinstance(transform, ReshapeView) else transform
            )
        layout = desc.layout
        if not desc.dims or (isinstance(layout, Layout) and layout.is_contiguous):
            offset = desc.offset0 * its.dtype.itemsize if desc.dims else 0
            self._buffers[tensor] = Buffer(tensor, tensor, self._desc(tensor), source, offset)
            return
        own = self._add_buffer(tensor)
        view = self._buffers[f"{tensor}:view"] = Buffer(f"{tensor}:view", tensor, desc, source)
        assert own.desc is not None
        operation = Operation("reorder", "forward_inference", {"src": desc, "dst": own.desc})
        nbytes, why = 2 * its.nbytes, f"{op.name} is no view of row-major memory"
        self._steps.append(
            Step(op.name, "reorder", {"src": view.name}, {"dst": own.name}, operation, nbytes=nbytes, why=why)
        )
