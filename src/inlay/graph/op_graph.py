"""`OpGraph`: a network in operations that have formats: primitives, views of memory, and what only NumPy computes.

    primitive    kind is one of `inlay.primitives`; an engine computes it, in formats that the planner chooses
    view         kind is "view": another description of the same elements, at no cost where the format allows it
    reference    kind is "reference": an operator without a primitive, computed by NumPy in plain formats

Nothing is fused yet: that a convolution may take its ReLU along is a choice with a cost, and the planner's. Once the
formats are chosen, `operation_of` says what an engine is asked for a primitive:

>>> function = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
>>> relu = Op("relu", "eltwise", {"src": "x"}, {"dst": "y"}, parameters=function)
>>> image = MemoryDesc((1, 16, 4, 4), "f32", "nhwc")
>>> operation_of(relu, {"src": image, "dst": image}).descs["dst"].tag
'acdb'
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from inlay.data_type import as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.network import Compared, Node, Tensor
from inlay.layout import Dims
from inlay.primitives.attributes import PLAIN, PostOp, PrimitiveAttributes
from inlay.primitives.engine import Operation, Parameter
from inlay.primitives.rules import SIGNATURES

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in the same order, in other dims: `MemoryDesc.reshape`."""

    dims: Dims
    """The dims after it."""


@dataclass(frozen=True, slots=True)
class Permute:
    """Axes in another order: axis `perm[i]` of what it reads is axis i of what it gives, as ONNX's Transpose."""

    perm: tuple[int, ...]
    """Which axis each one is."""


@dataclass(frozen=True, slots=True)
class Part:
    """A box of the elements: `MemoryDesc.submemory`."""

    offsets: tuple[int, ...]
    """Where it begins along each axis."""
    dims: Dims
    """Its extents."""


Move: TypeAlias = Reshape | Permute | Part


@dataclass(frozen=True, slots=True, eq=False)
class Op(Compared):
    """One operation on tensors."""

    name: str
    """Unique in the graph: the name of the node that it came from, with a suffix where that became several."""
    kind: str
    """A kind of `primitives.rules.KINDS`, or view, or reference."""
    reads: Mapping[str, str]
    """Argument to tensor: `src`, `src_1`, also `weights` where another operation computes them. A view reads `src`; a
    reference `src_0`, `src_1` ... in the order of its node's inputs, constants and omitted inputs left out."""
    writes: Mapping[str, str]
    """Argument to tensor, mostly `dst`; a reference writes `dst_0`, `dst_1` ..."""
    constants: Mapping[str, Array] = field(default_factory=dict)
    """Argument to array of the argument's dims: `weights`, `bias`, `mean`, `scale`, `src_1` ..., converted and laid out
    once when the plan is compiled."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """Every parameter of the kind's signature, as `primitives.engine.Operation` has them: dense windows have
    dilation 0, windows have an entry for each spatial axis."""
    moves: tuple[Move, ...] = ()
    """Of a view: what is done in order."""
    node: Node | None = None
    """Of a reference: what NumPy computes, with its constants in `constants` under the names of the inputs."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes of the network that it stands for."""
    why: str = ""
    """Of a reference: why no primitive computes it, such as `there is no primitive for Erf`."""


@dataclass(frozen=True, slots=True)
class OpGraph:
    """Operations, each after those whose results it reads; every tensor is written once."""

    name: str
    """The network's."""
    opset: int
    """Version of ONNX's operators, for references."""
    inputs: tuple[str, ...]
    """Tensors that a run is given, in plain formats."""
    outputs: tuple[str, ...]
    """Tensors that a run answers, in plain formats."""
    ops: tuple[Op, ...]
    """What is computed."""
    tensors: Mapping[str, Tensor]
    """Every tensor that is read or written, constants left out."""


def readers_of(graph: OpGraph) -> dict[str, list[int]]:
    """The operations that read each tensor, once for each argument."""
    found: dict[str, list[int]] = {name: [] for name in graph.tensors}
    for i, op in enumerate(graph.ops):
        for name in op.reads.values():
            found[name].append(i)
    return found


def writers_of(graph: OpGraph) -> dict[str, int]:
    """The operation that writes each tensor; inputs are left out."""
    return {name: i for i, op in enumerate(graph.ops) for name in op.writes.values()}


def operation_of(op: Op, descs: Mapping[str, MemoryDesc], post_ops: Sequence[PostOp] = ()) -> Operation:
    """What an engine is asked for `op`, a primitive, whose tensors have these formats, `any` where it may choose.

    `descs` has a descriptor for each argument that is read or written, and may have one for a constant. Constants
    without one are `any` where they are weights, else dense in row-major order.

    Raises:
        InvalidArguments: `op` is a view or a reference, an argument has no descriptor, or there is no such argument; or
            a constant has a type that oneDNN lacks.
    """
    row = SIGNATURES.get((op.kind, "forward"))
    if row is None:
        raise InvalidArguments(f"{op.name} is a {op.kind}: only primitives are asked of an engine")
    needed, known = {*op.reads, *op.writes}, {*op.reads, *op.writes, *op.constants}
    if missing := sorted(needed - descs.keys()):
        raise InvalidArguments(f"{op.name}, a {op.kind}: descs lack {', '.join(missing)}: give a format, or any")
    if unknown := sorted(descs.keys() - known):
        raise InvalidArguments(
            f"{op.name}, a {op.kind}, has no {', '.join(unknown)}: it has {', '.join(sorted(known))}"
        )
    constants = {
        name: constant_desc(array, name in row.free and "weights" in name) for name, array in op.constants.items()
    }
    attributes = PrimitiveAttributes(post_ops=tuple(post_ops)) if post_ops else PLAIN
    return Operation(op.kind, "forward_inference", {**constants, **descs}, dict(op.parameters), attributes)


def constant_desc(array: Array, is_free: bool = False) -> MemoryDesc:
    """The descriptor of a constant: in a format that the engine chooses if it `is_free`, else dense and row-major.

    Raises:
        InvalidArguments: oneDNN has no such type.
    """
    return MemoryDesc(array.shape, as_number_type(array.dtype), "any" if is_free else None)
