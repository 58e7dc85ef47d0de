"""`widen_narrow_floats`: rewrite a `Network` of float16 and bfloat16 to compute in float32.

    x f16 ─ Conv ─ Relu ─ y f16        x f16 ─ Cast ─ Conv ─ Relu ─ Cast ─ y f16, all between of float32

Few processors have float16 or bfloat16 arithmetic. Inputs and outputs keep their types, and constants are converted
once. Results are rounded to the narrow type at outputs only. So they are at least as exact as those of kernels that
round after each node, and intermediate results cannot overflow the narrow type. `Network.declared_types` has the
narrow type of each tensor that has become float32, and `f32` for each that was float32 before.

A Cast from float32 to a narrow type stays if its only consumers are Casts and outputs: the model uses it for its
rounding. Any other Cast between float types becomes a no-op.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from inlay.data_type import as_data_type
from inlay.graph.network import Network, Node, Subgraph, Tensor, read_only, unused_name
from inlay.graph.op_graph import Array

F32 = np.dtype(np.float32)
NARROW = frozenset((np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)))
"""Types that are computed in float32."""

_FLOAT = 1
"""ONNX's code of float32 (TensorProto.FLOAT)."""
_TYPED = frozenset(("ConstantOfShape", "EyeLike"))
"""Operators whose attributes state the type of the result, besides those with an attribute `dtype`."""


def widen_narrow_floats(network: Network) -> Network:
    """Return the network with float32 for every float16 or bfloat16 tensor that is neither input nor output."""
    if not any(tensor.dtype in NARROW for tensor in network.tensors.values()):
        return network
    return _FloatWidening(network).widen()


class _FloatWidening:
    """Rewrite of one network: the original, and the nodes, tensors and constants of the result so far."""

    def __init__(self, network: Network) -> None:
        self._old = network
        self._rounding_casts = _rounding_casts(network)
        self._tensors: dict[str, Tensor] = {}
        self._constants: dict[str, Array] = {}
        self._nodes: list[Node] = []
        self._float32_names: dict[str, str] = {}  # narrow tensors that stay, to their elements in float32

    def widen(self) -> Network:
        """Return the widened network."""
        old = self._old
        for name in (*old.inputs, *old.constants):
            self._add_source(name)
        for node in old.nodes:
            self._add_node(node)
        declared = {name: "f32" for name, tensor in old.tensors.items() if tensor.dtype == F32}
        declared |= {wide: as_data_type(old.tensors[name].dtype).name for name, wide in self._widened()}
        nodes = tuple(self._nodes)
        return replace(old, nodes=nodes, tensors=self._tensors, constants=self._constants, declared_types=declared)

    def _widened(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each narrow tensor and that of its elements in float32."""
        for name, tensor in self._tensors.items():
            if tensor.dtype == F32 and name in self._old.tensors and self._is_narrow(name):
                yield name, name
        yield from self._float32_names.items()

    def _is_narrow(self, name: str) -> bool:
        """Return whether a tensor of the original network has a narrow type."""
        return bool(name) and self._old.tensors[name].dtype in NARROW

    def _add_source(self, name: str) -> None:
        """Add an input, which keeps its type, or a constant."""
        tensor, constant = self._old.tensors[name], self._old.constants.get(name)
        if constant is not None and self._is_narrow(name) and name not in self._old.outputs:
            constant, tensor = read_only(constant.astype(F32)), replace(tensor, dtype=F32)
        if constant is not None:
            self._constants[name] = constant
        self._tensors[name] = tensor
        if tensor.dtype in NARROW:
            self._cast_to_float32(name)

    def _cast_to_float32(self, name: str) -> None:
        """Append a Cast to float32 of a tensor that stays narrow."""
        wide = self._add_tensor(f"{name}:f32", self._old.tensors[name].dims)
        self._float32_names[name] = wide
        self._nodes.append(Node(self._node_name(wide), "Cast", (name,), (wide,), {"to": _FLOAT}))

    def _add_tensor(self, name: str, dims: tuple[int, ...]) -> str:
        """Add a float32 tensor under `name`, or a similar name if that is in use, and return its name."""
        name = unused_name(name, self._old.tensors, self._tensors)
        self._tensors[name] = Tensor(name, dims, F32)
        return name

    def _node_name(self, name: str) -> str:
        """Return a name for a new node."""
        return unused_name(name, {node.name for node in self._old.nodes})

    def _add_node(self, node: Node) -> None:
        """Append a node on float32, with a Cast after each result that stays narrow."""
        if isinstance(node, Subgraph):
            self._keep_node(replace(node, inputs=tuple(map(self._to_narrow, node.inputs))))
            return
        if node.name in self._rounding_casts or self._is_typed(node):
            self._keep_node(node)
            return
        results = {name: self._add_result(name) for name in node.outputs if name}
        inputs = tuple(self._float32_names.get(name, name) for name in node.inputs)
        outputs = tuple(results.get(name, "") for name in node.outputs)
        self._nodes.append(_on_float32(replace(node, inputs=inputs, outputs=outputs), self._tensors))
        for name, wide in results.items():
            if wide != name:
                to = _onnx_code(self._old.tensors[name].dtype)
                self._nodes.append(Node(self._node_name(f"{name}:cast"), "Cast", (wide,), (name,), {"to": to}))

    def _to_narrow(self, name: str) -> str:
        """Return the name of a tensor in its original type, which a subgraph requires, appending a Cast if needed."""
        old = self._old.tensors[name]
        if old.dtype not in NARROW or self._tensors[name].dtype in NARROW:
            return name
        narrow = unused_name(f"{name}:narrow", self._old.tensors, self._tensors)
        self._tensors[narrow] = replace(old, name=narrow)
        self._nodes.append(Node(self._node_name(narrow), "Cast", (name,), (narrow,), {"to": _onnx_code(old.dtype)}))
        return narrow

    def _is_typed(self, node: Node) -> bool:
        """Return whether attributes of a node state that its result is narrow."""
        is_narrow = any(self._is_narrow(name) for name in node.outputs)
        return is_narrow and (node.operator in _TYPED or "dtype" in node.attributes)

    def _add_result(self, name: str) -> str:
        """Add a result of a node, and return the name under which the node writes it.

        A narrow output is written in float32 under another name; a Cast then writes the output.
        """
        tensor = self._old.tensors[name]
        if tensor.dtype not in NARROW:
            self._tensors[name] = tensor
            return name
        if name not in self._old.outputs:
            self._tensors[name] = replace(tensor, dtype=F32)
            return name
        self._tensors[name] = tensor
        self._float32_names[name] = self._add_tensor(f"{name}:f32", tensor.dims)
        return self._float32_names[name]

    def _keep_node(self, node: Node) -> None:
        """Append a node whose results keep their types."""
        is_narrow = isinstance(node, Subgraph) or _is_cast(node)
        inputs = tuple(
            name if name in self._float32_names and is_narrow else self._float32_names.get(name, name)
            for name in node.inputs
        )
        self._nodes.append(replace(node, inputs=inputs))
        for name in filter(None, node.outputs):
            self._tensors[name] = self._old.tensors[name]
            if self._is_narrow(name):
                self._cast_to_float32(name)


def _on_float32(node: Node, tensors: Mapping[str, Tensor]) -> Node:
    """Return a node whose operands are float32 now: a Cast to float32 becomes Identity, CastLike becomes Cast."""
    to_float32 = tensors[node.outputs[0]].dtype == F32 if node.outputs and node.outputs[0] else False
    if node.operator == "CastLike":
        attributes = {**node.attributes, "to": _onnx_code(tensors[node.outputs[0]].dtype)}
        node = replace(node, operator="Cast", inputs=node.inputs[:1], attributes=attributes)
    if node.operator != "Cast" or not to_float32:
        return node
    if tensors[node.inputs[0]].dtype == F32:
        return replace(node, operator="Identity", attributes={})
    return replace(node, attributes={**node.attributes, "to": _FLOAT})


def _rounding_casts(network: Network) -> frozenset[str]:
    """Return the names of Casts that the model uses for their rounding, and of the Casts that read their results.

    These are Casts from float32 to a narrow type whose only consumers are Casts and outputs.
    """
    readers: dict[str, list[Node]] = {}
    for node in network.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return frozenset(_roundings(network, readers))


def _roundings(network: Network, readers: Mapping[str, list[Node]]) -> Iterator[str]:
    """Yield the names that `_rounding_casts` returns."""
    for node in network.nodes:
        if not _is_cast(node):
            continue
        source, result = network.tensors[node.inputs[0]], network.tensors[node.outputs[0]]
        after = readers.get(result.name, [])
        if source.dtype == F32 and result.dtype in NARROW and after and all(_is_cast(other) for other in after):
            yield node.name
            yield from (other.name for other in after)


def _is_cast(node: Node) -> bool:
    """Return whether a node is a Cast."""
    return node.operator == "Cast"


def _onnx_code(dtype: np.dtype[Any]) -> int:
    """Return ONNX's code of a type."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))
