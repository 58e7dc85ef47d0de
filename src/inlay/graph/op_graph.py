"""`OpGraph`: a network as primitives, views of memory, and references.

    primitive    kind is one of `inlay.primitives`; an engine computes it, in formats that the planner chooses
    view         kind is "view": another description of the same elements, at no cost where the format allows it
    reference    kind is "reference": an operator without a primitive, which NumPy computes in plain formats, or several
                 such operators, which ONNX Runtime computes together

Nothing is fused in an `OpGraph`: whether a convolution applies its ReLU is a choice of the planner, which knows the
costs. `operation_of` returns the operation that an engine is asked to implement, given the formats:

>>> function = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
>>> relu = Op("relu", "eltwise", {"src": "x"}, {"dst": "y"}, parameters=function)
>>> image = MemoryDesc((1, 16, 4, 4), "f32", "nhwc")
>>> operation_of(relu, {"src": image, "dst": image}).descs["dst"].tag
'acdb'
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from inlay.data_type import as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.network import Node, StructuralEquality, Tensor
from inlay.graph.states import TensorState
from inlay.layout import Dims
from inlay.memory.reorder_cache import cached_desc
from inlay.primitives.attributes import PLAIN, PostOp, PrimitiveAttributes
from inlay.primitives.engine import Operation, Parameter
from inlay.primitives.rules import SIGNATURES

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""A NumPy array of any type."""
_FLOATS = ("f32", "bf16", "f16")  # types between which weights are converted when they are packed


@dataclass(frozen=True, slots=True)
class ReshapeView:
    """A view with the same elements in the same order, in other dims (`MemoryDesc.reshape`)."""

    dims: Dims
    """Dims of the result."""


@dataclass(frozen=True, slots=True)
class PermuteView:
    """A view with the axes in another order, as by ONNX's Transpose.

    Axis i of the result is axis `perm[i]` of the source.
    """

    perm: tuple[int, ...]
    """For each axis of the result, the axis of the source."""


@dataclass(frozen=True, slots=True)
class SubmemoryView:
    """A view of a box of the elements (`MemoryDesc.submemory`), or of elements at equal distances."""

    offsets: tuple[int, ...]
    """Coordinates of the first element."""
    dims: Dims
    """Extents of the result."""
    steps: tuple[int, ...] = ()
    """For each axis, the positive distance between the elements that are taken; empty if it is 1 for all axes."""


@dataclass(frozen=True, slots=True)
class BroadcastView:
    """A view that repeats elements, as by ONNX's Expand: axes with an extent of 1 get a longer one."""

    dims: Dims
    """Extents of the result; those of the source, except where they are 1."""


ViewTransform: TypeAlias = ReshapeView | PermuteView | SubmemoryView | BroadcastView


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op(StructuralEquality):
    """One operation on tensors."""

    name: str
    """Name, unique in the graph: that of its node, with a suffix where a node became several operations."""
    kind: str
    """A kind of `primitives.rules.SIGNATURES`, or `view`, or `reference`."""
    reads: Mapping[str, str]
    """Tensor of each argument that is read: `src`, `src_1`, or `weights` where another operation computes them.

    A view reads `src`. A reference reads `src_0`, `src_1` ... in the order of its node's inputs, without constants and
    omitted inputs.
    """
    writes: Mapping[str, str]
    """Tensor of each argument that is written, mostly `dst`; a reference writes `dst_0`, `dst_1` ..."""
    constants: Mapping[str, Array] = field(default_factory=dict)
    """Array of each constant argument, of the argument's dims: `weights`, `bias`, `mean`, `scale`, `src_1` ...

    Constants are converted and packed once, when the plan is compiled.
    """
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """Every parameter of the kind's signature, as in `primitives.engine.Operation`.

    Dense windows have dilation 0; windows have an entry for each spatial axis.
    """
    attributes: PrimitiveAttributes = PLAIN
    """Scales and zero points, and whether integer weights become floating-point numbers.

    Post-operations here belong to the operation itself, such as the bounds of a quantized result; nothing is fused
    after them. Those that a planner fuses are its own choice.

    Values of scales and zero points are arguments in `reads` or `constants`, by the names of
    `PrimitiveAttributes.value_names`, with one axis: one number for the tensor, or those of `Scales.shape` in row-major
    order.
    """
    transforms: tuple[ViewTransform, ...] = ()
    """For a view: its transforms in order."""
    node: Node | None = None
    """For a reference: the node that NumPy computes, or the `Subgraph` that ONNX Runtime computes.

    Its constants are in `constants` under the names of the inputs.
    """
    nodes: tuple[str, ...] = ()
    """Names of the network's nodes that the operation computes."""
    why: str = ""
    """For a reference: the reason why no primitive computes it, such as `there is no primitive for Erf`."""
    exact: "OpGraph | None" = None
    """For an operation that is right only if the tensors it reads are finite: operations that are right always.

    They write the same tensor, and read tensors before the operation. See `exact_graph`.
    """


class ProcessObjects(dict[str, Any]):
    """Objects that only this process can use, by name; a copy or a pickle of them is empty.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(ProcessObjects(a=1)))
    {}
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[type["ProcessObjects"], tuple[()]]:
        """Pickle no objects."""
        return ProcessObjects, ()


@dataclass(frozen=True, slots=True)
class OpGraph:
    """A list of operations in which each follows those whose results it reads; every tensor is written once."""

    name: str
    """Name of the network."""
    opset: int
    """Version of ONNX's operator set, for references."""
    inputs: tuple[str, ...]
    """Tensors that the caller passes to a run, in plain formats."""
    outputs: tuple[str, ...]
    """Tensors that a run returns, in plain formats."""
    ops: tuple[Op, ...]
    """The operations in the order in which they run."""
    tensors: Mapping[str, Tensor]
    """Dims and types of all tensors that are read or written, without constants."""
    storage_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further data types in which a plan may store an f32 tensor, by its name, such as `("bf16",)`.

    A tensor may always have its own type, in which callers see it. Arithmetic is that of f32 with rounded results.
    """
    states: tuple[TensorState, ...] = ()
    """Inputs that sessions keep between the steps of decoding, with the outputs that replace them."""
    sessions: ProcessObjects = field(default_factory=ProcessObjects, repr=False, compare=False)
    """Sessions of ONNX Runtime by the name of their operation, for compilation, which removes those that it uses."""


def readers_of(graph: OpGraph) -> dict[str, list[int]]:
    """Return the numbers of the operations that read each tensor, once for each argument."""
    readers: dict[str, list[int]] = {name: [] for name in graph.tensors}
    for i, op in enumerate(graph.ops):
        for name in op.reads.values():
            readers[name].append(i)
    return readers


def writers_of(graph: OpGraph) -> dict[str, int]:
    """Return the number of the operation that writes each tensor; inputs are left out."""
    return {name: i for i, op in enumerate(graph.ops) for name in op.writes.values()}


def exact_graph(graph: OpGraph) -> OpGraph:
    """Return the graph with the operations `Op.exact` in place of those that are right for finite tensors only."""
    forms = [op.exact for op in graph.ops if op.exact is not None]
    ops = [one for op in graph.ops for one in ((op,) if op.exact is None else op.exact.ops)]
    tensors = {name: tensor for form in (*forms, graph) for name, tensor in form.tensors.items()}
    return replace(graph, ops=tuple(ops), tensors=tensors)


def operation_of(
    op: Op, descs: Mapping[str, MemoryDesc], post_ops: Sequence[PostOp] = (), *, weights_type: str | None = None
) -> Operation:
    """Return the engine's operation for the primitive `op`, whose tensors have the formats of `descs`.

    `descs` has a descriptor for each argument that is read or written, `any` where the engine may choose, and may have
    one for a constant. Other constants are `any` if they are weights, else dense and row-major. Values of scales and
    zero points have no descriptors in the operation: those of `descs` are left out.

    Weights of f32, bf16 or f16 without a descriptor get the data type `weights_type`; if it is None, that of `src`
    among these types. Other constants, such as the bias, always have the type of their array.

    Raises:
        InvalidArguments: `op` is a view or a reference, an argument has no descriptor, or there is no such argument; a
            value of its attributes is missing; or a constant has a type that oneDNN lacks.
    """
    row = SIGNATURES.get((op.kind, "forward"))
    if row is None:
        raise InvalidArguments(f"{op.name} is a {op.kind}: an engine computes primitives only")
    values = op.attributes.value_names
    _require_arguments(op, descs, values)
    constants = {
        name: describe_constant(op.kind, name, op.constants[name].shape, op.constants[name].dtype, descs, weights_type)
        for name in op.constants  # not items(), which would read each constant of a saved plan
        if name not in descs and name not in values
    }
    used = {name: desc for name, desc in descs.items() if name not in values} if values else descs
    attributes = replace(op.attributes, post_ops=tuple(post_ops)) if post_ops else op.attributes
    return Operation(op.kind, "forward_inference", {**constants, **used}, dict(op.parameters), attributes)


def _require_arguments(op: Op, descs: Mapping[str, MemoryDesc], values: Sequence[str]) -> None:
    """Check that each argument has a descriptor, and each value of the attributes an argument."""
    needed, known = {*op.reads, *op.writes}.difference(values), {*op.reads, *op.writes, *op.constants}
    if missing := sorted(needed - descs.keys()):
        raise InvalidArguments(f"{op.name}, a {op.kind}: descs lack {', '.join(missing)}: give a format, or any")
    if unknown := sorted(descs.keys() - known):
        raise InvalidArguments(
            f"{op.name}, a {op.kind}, has no {', '.join(unknown)}: it has {', '.join(sorted(known))}"
        )
    if absent := sorted(set(values) - known):
        raise InvalidArguments(
            f"{op.name}, a {op.kind}: its attributes need {', '.join(absent)}: add them to its reads or its constants"
        )


def describe_constant(
    kind: str,
    argument: str,
    dims: Dims,
    dtype: np.dtype[Any],
    descs: Mapping[str, MemoryDesc],
    weights_type: str | None = None,
) -> MemoryDesc:
    """Return the descriptor of a constant argument of a primitive as `operation_of` makes it.

    Raises:
        InvalidArguments: oneDNN has no such type.
    """
    row, data_type = SIGNATURES.get((kind, "forward")), as_number_type(dtype)
    is_weights = row is not None and argument in row.free and "weights" in argument
    if is_weights and data_type.name in _FLOATS:
        src = descs["src"].data_type if "src" in descs else None
        beside = None if src is None or src.name not in _FLOATS else src
        data_type = as_number_type(weights_type) if weights_type else beside or data_type
    return cached_desc(dims, data_type, "any" if is_weights else None)


def constant_desc(array: Array, is_free: bool = False, data_type: str | None = None) -> MemoryDesc:
    """Return the descriptor of a constant: `any` if `is_free`, else dense and row-major.

    It has the type `data_type`; None for that of the array.

    Raises:
        InvalidArguments: oneDNN has no such type.
    """
    return MemoryDesc(array.shape, as_number_type(data_type or array.dtype), "any" if is_free else None)
