"""`Draft`: one node on its way to operations. A rule asks what the node reads, and puts primitives and views.

    def relu(draft: Draft) -> Operand:
        src = draft.source(0)
        return draft.put("eltwise", {"src": src}, draft.dims(src), algorithm="relu", alpha=0.0, beta=0.0)

A rule answers the operand that holds each of the node's results, or raises `Declined` where no primitive computes
exactly what the node says; then the node becomes a reference, and what was put is dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from inlay.data_type import as_data_type
from inlay.errors import InlayError
from inlay.graph.network import Network, Node, Tensor, unused_name
from inlay.graph.op_graph import Array, Op, PermuteView, ReshapeView, SubmemoryView, ViewTransform
from inlay.layout import Dims
from inlay.primitives.engine import Parameter

Operand: TypeAlias = str | Array
"""A tensor by its name, or a constant."""

F32 = np.dtype(np.float32)
MOVED = frozenset({"f64", "f32", "f16", "bf16", "s32", "s8", "u8"})
"""Types whose descriptors are viewed and reordered; of others, NumPy makes the views."""
MOST_AXES = 12
"""oneDNN's limit on the axes of a descriptor."""


class Declined(InlayError):
    """No primitive computes a node; the text is a clause that says why."""


@dataclass(slots=True)
class Draft:
    """What one node becomes."""

    node: Node
    """The node."""
    network: Network
    """Where it stands."""
    tensors: Mapping[str, Tensor]
    """Tensors of the operations before it."""
    writers: Mapping[str, Op]
    """The operation before it that writes a tensor, by tensor."""
    wanted: frozenset[str]
    """Tensors of the network that are read by a node or answered."""
    ops: list[Op] = field(default_factory=list)
    """What was put."""
    made: dict[str, Tensor] = field(default_factory=dict)
    """Tensors that were put."""

    @property
    def opset(self) -> int:
        """Version of ONNX's operators."""
        return self.network.opset

    # What the node says

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.node.attributes.get(name, default)

    def given(self, index: int) -> bool:
        """Whether there is an input `index`."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def constant(self, index: int, what: str) -> Array:
        """An input whose elements must be known: `what` it is, for the reason."""
        found = self.network.constants.get(self.node.inputs[index])
        if found is None:
            raise Declined(f"its {what} is computed by the network, and has to be known before it runs")
        return found

    def numbers(self, name: str, index: int, input_since: int, what: str = "") -> tuple[int, ...]:
        """Integers that are attribute `name` before that opset and then constant input `index`; none if left out."""
        if self.opset < input_since:
            return tuple(self.attribute(name) or ())
        return tuple(self.constant(index, what or name).reshape(-1).tolist()) if self.given(index) else ()

    def result(self, index: int = 0) -> Tensor:
        """The tensor of output `index`."""
        return self.network.tensors[self.node.outputs[index]]

    def wants(self, index: int) -> bool:
        """Whether anybody reads output `index`."""
        return index < len(self.node.outputs) and self.node.outputs[index] in self.wanted

    # Operands

    def operand(self, index: int) -> Operand:
        """An input that a primitive reads: of f32."""
        name = self.node.inputs[index]
        operand = self.network.constants.get(name, name)
        dtype = self._tensor(name).dtype if isinstance(operand, str) else operand.dtype
        require(dtype == F32, f"{name} is {dtype}, and primitives are used for float32")
        return self._described(operand)

    def source(self, index: int) -> str:
        """An input that a primitive reads and the network computes."""
        operand = self.operand(index)
        if not isinstance(operand, str):
            raise Declined(f"{self.node.inputs[index]} is a constant")
        return operand

    def viewed(self, index: int) -> str:
        """An input that is only moved: of any type that oneDNN has."""
        name = self.node.inputs[index]
        require(name not in self.network.constants, f"{name} is a constant")
        dtype = self._tensor(name).dtype
        require(_is_moved(dtype), f"{name} is {dtype}, which oneDNN has no descriptors of")
        self._described(name)
        return name

    def dims(self, operand: Operand) -> Dims:
        """The dims of an operand."""
        return self._tensor(operand).dims if isinstance(operand, str) else operand.shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of a tensor."""
        return self._tensor(name).dtype

    def writer(self, operand: Operand) -> Op | None:
        """The operation that computes a tensor; none for constants and inputs of the network."""
        if not isinstance(operand, str):
            return None
        mine = next((op for op in self.ops if operand in op.writes.values()), None)
        return mine or self.writers.get(operand)

    def _described(self, operand: Operand) -> Operand:
        dims = self.dims(operand)
        if isinstance(operand, str):
            require(0 < len(dims) <= MOST_AXES, f"{operand} has {len(dims)} axes, a descriptor has 1 to {MOST_AXES}")
        require(prod(dims) > 0, f"{operand if isinstance(operand, str) else 'a constant'} has no elements")
        return operand

    def _tensor(self, name: str) -> Tensor:
        found = self.made.get(name) or self.tensors.get(name)
        return found or self.network.tensors[name]

    # What it becomes

    def put(self, kind: str, operands: Mapping[str, Operand], dims: Dims, **parameters: Parameter) -> str:
        """A primitive with one result, of `dims`."""
        return self.put_all(kind, operands, {"dst": dims}, **parameters)["dst"]

    def put_all(
        self, kind: str, operands: Mapping[str, Operand], results: Mapping[str, Dims], **parameters: Parameter
    ) -> dict[str, str]:
        """A primitive with several results, by argument."""
        reads = {argument: operand for argument, operand in operands.items() if isinstance(operand, str)}
        constants = {argument: operand for argument, operand in operands.items() if not isinstance(operand, str)}
        require(bool(reads), "all that it reads is constant")
        writes = {argument: self._new(self._prepared(dims), F32) for argument, dims in results.items()}
        fixed = {argument: np.ascontiguousarray(array) for argument, array in constants.items()}
        self._append(kind, reads, writes, constants=fixed, parameters=parameters)
        return writes

    def reshaped(self, operand: Operand, dims: Dims) -> Operand:
        """The operand with other dims."""
        if not isinstance(operand, str):
            return operand.reshape(dims)
        return operand if self.dims(operand) == dims else self._view(operand, ReshapeView(dims), dims)

    def permuted(self, operand: Operand, perm: Sequence[int]) -> Operand:
        """The operand with its axes in another order."""
        if not isinstance(operand, str):
            return operand.transpose(perm)
        dims = self.dims(operand)
        order = tuple(perm)
        if order == tuple(range(len(dims))):
            return operand
        return self._view(operand, PermuteView(order), tuple(dims[axis] for axis in order))

    def part(self, operand: str, offsets: Dims, dims: Dims) -> str:
        """A box of a tensor."""
        return operand if self.dims(operand) == dims else self._view(operand, SubmemoryView(offsets, dims), dims)

    def same(self, operand: str) -> str:
        """The tensor under another name."""
        return self._view(operand, None, self.dims(operand))

    def _view(self, operand: str, move: ViewTransform | None, dims: Dims) -> str:
        result = self._new(self._prepared(dims), self._tensor(operand).dtype)
        self._append("view", {"src": operand}, {"dst": result}, transforms=() if move is None else (move,))
        return result

    def _prepared(self, dims: Dims) -> Dims:
        require(0 < len(dims) <= MOST_AXES, f"a result has {len(dims)} axes, a descriptor has 1 to {MOST_AXES}")
        return tuple(int(n) for n in dims)

    def _new(self, dims: Dims, dtype: np.dtype[Any]) -> str:
        first = next(name for name in self.node.outputs if name)
        name = unused_name(f"{first}:{len(self.made)}", self.network.tensors)
        self.made[name] = Tensor(name, dims, dtype)
        return name

    def _append(self, kind: str, reads: Mapping[str, str], writes: Mapping[str, str], **rest: Any) -> None:
        name = f"{self.node.name}:{len(self.ops)}" if self.ops else self.node.name
        self.ops.append(Op(name, kind, reads, writes, nodes=(self.node.name,), **rest))


def require(holds: bool, otherwise: str) -> None:
    """Go on if it holds.

    Raises:
        Declined: it does not; `otherwise` is the reason.
    """
    if not holds:
        raise Declined(otherwise)


def _is_moved(dtype: np.dtype[Any]) -> bool:
    return any(as_data_type(name).dtype == dtype for name in MOVED)
