"""`LoweringContext`: a node that is being lowered, with the operations and tensors that its rule has emitted.

    def relu(context: LoweringContext) -> Operand:
        src = context.source(0)
        return context.emit("eltwise", {"src": src}, context.dims(src), algorithm="relu", alpha=0.0, beta=0.0)

A rule returns the operand that holds each of the node's results. If no primitive computes exactly what ONNX specifies,
it raises `UnsupportedNode`. Then the node becomes a reference operation, and the emitted operations are discarded.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from inlay.data_type import ALL_TYPES
from inlay.errors import InlayError
from inlay.graph.network import Network, Node, Tensor, unused_name
from inlay.graph.op_graph import Array, BroadcastView, Op, PermuteView, ReshapeView, SubmemoryView, ViewTransform
from inlay.layout import Dims
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.engine import Parameter

Operand: TypeAlias = str | Array
"""Argument of a primitive: a tensor by name, or a constant."""

F32 = np.dtype(np.float32)
DESCRIBABLE = frozenset(data_type.dtype for data_type in ALL_TYPES.values() if not data_type.is_sub_byte)
"""NumPy types of tensors that descriptors support, so that views and reorders do too; NumPy moves elements of other
types: texts, and integers of 4 bits, which have a byte each in an array and half of one in a descriptor."""
MOST_AXES = 12
"""Limit on the axes of a descriptor, oneDNN's DNNL_MAX_NDIMS."""


class UnsupportedNode(InlayError):
    """No primitive computes a node exactly; the text is a clause that states why."""


@dataclass(slots=True)
class LoweringContext:
    """State of one node's lowering: the node, its surroundings, and the operations and tensors emitted so far."""

    node: Node
    """Node that is lowered."""
    network: Network
    """Network of the node."""
    tensors: Mapping[str, Tensor]
    """Tensors that earlier nodes' operations write, by name."""
    writers: Mapping[str, Op]
    """Operations of earlier nodes, by the tensor that they write."""
    used_tensors: frozenset[str]
    """Tensors of the network that a node reads or that are outputs."""
    ops: list[Op] = field(default_factory=list)
    """Operations emitted so far."""
    new_tensors: dict[str, Tensor] = field(default_factory=dict)
    """Tensors that the emitted operations write, by name."""

    @property
    def opset(self) -> int:
        """Version of ONNX's operators."""
        return self.network.opset

    # Node

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node, or `default` if the node does not have it."""
        return self.node.attributes.get(name, default)

    def has_input(self, index: int) -> bool:
        """Return whether the node has an input `index` that is not left out."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def constant(self, index: int, what: str) -> Array:
        """Return the elements of input `index`; `what` names the input in the reason.

        Raises:
            UnsupportedNode: the input is not constant.
        """
        tensor = self.network.constants.get(self.node.inputs[index])
        if tensor is None:
            raise UnsupportedNode(f"its {what} is computed by the network, and has to be known before it runs")
        return tensor

    def integers(self, name: str, index: int, input_since: int, what: str = "") -> tuple[int, ...]:
        """Return integers that are an attribute before an opset, and a constant input from then on.

        `name` is the attribute's name, `index` the input's, `input_since` the opset. The result is empty if they are
        left out. `what` names the input in the reason of an `UnsupportedNode`.
        """
        if self.opset < input_since:
            return tuple(self.attribute(name) or ())
        return tuple(self.constant(index, what or name).reshape(-1).tolist()) if self.has_input(index) else ()

    def output(self, index: int = 0) -> Tensor:
        """Return the tensor of output `index`, as the network describes it."""
        return self.network.tensors[self.node.outputs[index]]

    def is_output_used(self, index: int) -> bool:
        """Return whether output `index` is read by a node or is an output of the network."""
        return index < len(self.node.outputs) and self.node.outputs[index] in self.used_tensors

    # Operands

    def operand(self, index: int, dtypes: Collection[np.dtype[Any]] = (F32,)) -> Operand:
        """Return input `index` as an operand of a primitive: a tensor or constant of a type in `dtypes`.

        Raises:
            UnsupportedNode: the input has another type, too many axes, or no elements.
        """
        name = self.node.inputs[index]
        operand = self.network.constants.get(name, name)
        dtype = self._tensor(name).dtype if isinstance(operand, str) else operand.dtype
        wanted = " or ".join(map(str, dtypes))
        require(dtype in dtypes, f"{name} is {dtype}, and primitives are used for {wanted}")
        return self._require_describable(operand)

    def source(self, index: int) -> str:
        """Return input `index` as the source of a primitive: a float32 tensor that is not constant.

        Raises:
            UnsupportedNode: the input is constant; or a reason of `operand`.
        """
        operand = self.operand(index)
        if not isinstance(operand, str):
            raise UnsupportedNode(f"{self.node.inputs[index]} is a constant")
        return operand

    def view_source(self, index: int) -> str:
        """Return input `index` as the source of a view: a tensor of a type in `DESCRIBABLE` that is not constant.

        Raises:
            UnsupportedNode: the input is constant, or no descriptor can describe it.
        """
        name = self.node.inputs[index]
        require(name not in self.network.constants, f"{name} is a constant")
        dtype = self._tensor(name).dtype
        require(dtype in DESCRIBABLE, f"{name} is {dtype}, which has no descriptors")
        self._require_describable(name)
        return name

    def dims(self, operand: Operand) -> Dims:
        """Return the dims of an operand."""
        return self._tensor(operand).dims if isinstance(operand, str) else operand.shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the data type of a tensor."""
        return self._tensor(name).dtype

    def writer(self, operand: Operand) -> Op | None:
        """Return the operation that writes a tensor; None for constants and inputs of the network."""
        if not isinstance(operand, str):
            return None
        own = next((op for op in self.ops if operand in op.writes.values()), None)
        return own or self.writers.get(operand)

    def _require_describable(self, operand: Operand) -> Operand:
        """Return an operand; raise UnsupportedNode if it has no elements, or if a tensor has too many or no axes."""
        dims = self.dims(operand)
        if isinstance(operand, str):
            require(0 < len(dims) <= MOST_AXES, f"{operand} has {len(dims)} axes, a descriptor has 1 to {MOST_AXES}")
        require(prod(dims) > 0, f"{operand if isinstance(operand, str) else 'a constant'} has no elements")
        return operand

    def _tensor(self, name: str) -> Tensor:
        """Return a tensor: an emitted one, one of earlier operations, or one of the network."""
        tensor = self.new_tensors.get(name) or self.tensors.get(name)
        return tensor or self.network.tensors[name]

    # Emission

    def emit(
        self,
        kind: str,
        operands: Mapping[str, Operand],
        dims: Dims,
        dtype: np.dtype[Any] | None = None,
        attributes: PrimitiveAttributes = PLAIN,
        /,
        **parameters: Parameter,
    ) -> str:
        """Append a primitive whose one result has these dims, and return the name of the result.

        The result has the type `dtype`; None for that of the sources of a concatenation, and float32 of others.
        `operands` has the values of `attributes` too: see `Op.attributes`.

        Raises:
            UnsupportedNode: all operands are constant, or the result has too many or no axes.
        """
        dtypes = {} if dtype is None else {"dst": dtype}
        return self.emit_all(kind, operands, {"dst": dims}, dtypes, attributes, **parameters)["dst"]

    def emit_all(
        self,
        kind: str,
        operands: Mapping[str, Operand],
        results: Mapping[str, Dims],
        dtypes: Mapping[str, np.dtype[Any]] = MappingProxyType({}),
        attributes: PrimitiveAttributes = PLAIN,
        /,
        **parameters: Parameter,
    ) -> dict[str, str]:
        """Append a primitive with several results, and return the name of each result, by argument.

        Results have the types of `dtypes`, by argument, and those without one the type that `emit` states.

        Raises:
            UnsupportedNode: a reason of `emit`.
        """
        reads = {argument: operand for argument, operand in operands.items() if isinstance(operand, str)}
        constants = {argument: operand for argument, operand in operands.items() if not isinstance(operand, str)}
        require(bool(reads), "all of its inputs are constant")
        dtype = self.dtype(next(iter(reads.values()))) if kind == "concat" else F32
        writes = {
            argument: self._add_tensor(self._checked_dims(dims), dtypes.get(argument, dtype))
            for argument, dims in results.items()
        }
        fixed = {argument: np.ascontiguousarray(array) for argument, array in constants.items()}
        self._add_op(kind, reads, writes, constants=fixed, parameters=parameters, attributes=attributes)
        return writes

    def convert(self, operand: str, dtype: np.dtype[Any]) -> str:
        """Append a reorder that converts a tensor to another type, and return the name of the result."""
        result = self._add_tensor(self._checked_dims(self.dims(operand)), dtype)
        self._add_op("reorder", {"src": operand}, {"dst": result})
        return result

    def reshape(self, operand: Operand, dims: Dims) -> Operand:
        """Return an operand in other dims; for a tensor, append a view unless the dims are its own."""
        if not isinstance(operand, str):
            return operand.reshape(dims)
        return operand if self.dims(operand) == dims else self._view(operand, ReshapeView(dims), dims)

    def permute(self, operand: Operand, perm: Sequence[int]) -> Operand:
        """Return an operand with permuted axes; for a tensor, append a view unless the order is its own."""
        if not isinstance(operand, str):
            return operand.transpose(perm)
        dims = self.dims(operand)
        order = tuple(perm)
        if order == tuple(range(len(dims))):
            return operand
        return self._view(operand, PermuteView(order), tuple(dims[axis] for axis in order))

    def submemory(self, operand: str, offsets: Dims, dims: Dims, steps: Dims = ()) -> str:
        """Return a box of a tensor, or every `steps`-th element of it; append a view unless it is the whole tensor."""
        if self.dims(operand) == dims:
            return operand
        return self._view(operand, SubmemoryView(offsets, dims, steps if any(n > 1 for n in steps) else ()), dims)

    def broadcast(self, operand: str, dims: Dims) -> str:
        """Return a tensor broadcast to `dims`; append views that add leading axes and repeat axes of length 1."""
        own = self.dims(operand)
        aligned = str(self.reshape(operand, (1,) * (len(dims) - len(own)) + own))
        return aligned if self.dims(aligned) == dims else self._view(aligned, BroadcastView(dims), dims)

    def alias(self, operand: str) -> str:
        """Append a view of the whole tensor, and return its name."""
        return self._view(operand, None, self.dims(operand))

    def _view(self, operand: str, transform: ViewTransform | None, dims: Dims) -> str:
        """Append a view, and return the name of its result."""
        result = self._add_tensor(self._checked_dims(dims), self._tensor(operand).dtype)
        self._add_op("view", {"src": operand}, {"dst": result}, transforms=() if transform is None else (transform,))
        return result

    def _checked_dims(self, dims: Dims) -> Dims:
        """Return the dims of a result as ints; raise UnsupportedNode if no descriptor has that many axes."""
        require(0 < len(dims) <= MOST_AXES, f"a result has {len(dims)} axes, a descriptor has 1 to {MOST_AXES}")
        return tuple(int(n) for n in dims)

    def _add_tensor(self, dims: Dims, dtype: np.dtype[Any]) -> str:
        """Add a tensor under an unused name, and return the name."""
        first = next(name for name in self.node.outputs if name)
        name = unused_name(f"{first}:{len(self.new_tensors)}", self.network.tensors)
        self.new_tensors[name] = Tensor(name, dims, dtype)
        return name

    def _add_op(self, kind: str, reads: Mapping[str, str], writes: Mapping[str, str], **rest: Any) -> None:
        """Append an operation, named after the node; all but the first of a node get a number as suffix."""
        name = f"{self.node.name}:{len(self.ops)}" if self.ops else self.node.name
        self.ops.append(Op(name, kind, reads, writes, nodes=(self.node.name,), **rest))


def require(condition: bool, reason: str) -> None:
    """Raise UnsupportedNode unless a condition holds.

    Raises:
        UnsupportedNode: the condition is false; its text is `reason`.
    """
    if not condition:
        raise UnsupportedNode(reason)


LoweringRule: TypeAlias = Callable[[LoweringContext], Operand | tuple[Operand | None, ...]]
"""A function from the state of a node's lowering to the operands that hold the node's results."""
