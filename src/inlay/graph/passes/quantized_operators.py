"""`expand_quantized_operators`: operators on quantized tensors become DequantizeLinear, f32 operator, QuantizeLinear.

So QLinearConv and the like, ONNX's own and those of com.microsoft, are recognized as what quantizers write otherwise.
Operators whose scales are no constants stay as they are.

Source: ONNX, "Operators": QLinearConv, QLinearMatMul; ONNX Runtime, "Contrib Operators".
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.passes.rewriting import NetworkRewriter, rewrite_nodes

_F32 = np.dtype(np.float32)


def expand_quantized_operators(network: Network) -> Network:
    """Return the network with operators on f32 tensors between DequantizeLinear and QuantizeLinear.

    >>> from inlay.graph.network import Tensor
    >>> names = {"x": np.uint8, "y": np.uint8}
    >>> scale, zero = np.array(0.5, np.float32), np.array(3, np.uint8)
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(dtype)) for name, dtype in names.items()}
    >>> tensors |= {"s": Tensor("s", (), scale.dtype), "z": Tensor("z", (), zero.dtype)}
    >>> node = Node("n", "QLinearSigmoid", ("x", "s", "z", "s", "z"), ("y",), domain="com.microsoft")
    >>> network = Network("", 17, ("x",), ("y",), (node,), tensors, {"s": scale, "z": zero})
    >>> [node.operator for node in expand_quantized_operators(network).nodes]
    ['DequantizeLinear', 'Sigmoid', 'QuantizeLinear']
    """
    return rewrite_nodes(network, _expand)


def _expand(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the QuantizeLinear that ends an expanded operator, or the operator itself if its result is f32."""
    rule = _RULES.get((node.domain, node.operator))
    return None if rule is None else rule(rewriter, node)


def _input(node: Node, place: int) -> str:
    """Return the name of an input; an empty text for one that is left out."""
    return node.inputs[place] if place < len(node.inputs) else ""


def _dequantize(rewriter: NetworkRewriter, node: Node, place: int, axis: int | None = None) -> str:
    """Insert a DequantizeLinear of an input, whose scale and zero point are the next two, and return the f32 tensor."""
    names = tuple(_input(node, i) for i in range(place, place + 3))
    scale = _shape_values(rewriter, names[1], axis)
    inputs = (names[0], scale, *((_shape_values(rewriter, names[2], axis),) if names[2] else ()))
    attributes = {} if axis is None else {"axis": axis}
    return rewriter.insert_node(node, "DequantizeLinear", inputs, rewriter.dims(names[0]), attributes, _F32)


def _shape_values(rewriter: NetworkRewriter, name: str, axis: int | None) -> str:
    """Return a scale or zero point without axes, or several along one axis; `name` itself if it has these dims."""
    array = rewriter.constants[name]
    dims = () if array.size == 1 else (array.size,)
    return name if array.shape == dims else rewriter.add_constant(name, array.reshape(dims))


def _quantize(
    rewriter: NetworkRewriter,
    node: Node,
    operator: str,
    inputs: Sequence[str],
    place: int,
    attributes: Mapping[str, Any] | None = None,
) -> Node:
    """Insert an f32 operator, and return the QuantizeLinear of its result; scale and zero point begin at `place`."""
    real = rewriter.insert_node(node, operator, tuple(inputs), rewriter.dims(node.outputs[0]), attributes or {}, _F32)
    values = tuple(_shape_values(rewriter, name, None) for i in (place, place + 1) if (name := _input(node, i)))
    return Node(node.name, "QuantizeLinear", (real, *values), node.outputs)


def _bias(rewriter: NetworkRewriter, node: Node, place: int, src: int, weights: int) -> tuple[str, ...]:
    """Return the bias at `place` as an f32 constant; its scale is the product of those of source and weights."""
    name = _input(node, place)
    if not name:
        return ()
    scale = rewriter.constants[node.inputs[src]].reshape(-1) * rewriter.constants[node.inputs[weights]].reshape(-1)
    bias = rewriter.constants[name].astype(np.float64) * scale
    return (rewriter.add_constant(f"{name}:f32", bias.astype(np.float32)),)


def _are_constant(rewriter: NetworkRewriter, node: Node, places: Sequence[int]) -> bool:
    """Return whether inputs are constants or left out."""
    return all(not (name := _input(node, place)) or name in rewriter.constants for place in places)


def _expand_conv(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Expand QLinearConv."""
    if not _are_constant(rewriter, node, (1, 2, 4, 5, 6, 7, 8)):
        return None
    inputs = [_dequantize(rewriter, node, 0), _dequantize(rewriter, node, 3, axis=0)]
    inputs += _bias(rewriter, node, 8, 1, 4)
    return _quantize(rewriter, node, "Conv", inputs, 6, node.attributes)


def _expand_matmul(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Expand QLinearMatMul whose first factor and result have one scale each, and whose second is no stack if not."""
    if not _are_constant(rewriter, node, (1, 2, 4, 5, 6, 7)):
        return None
    sizes = [rewriter.constants[node.inputs[place]].size for place in (1, 2, 6, 7)]
    columns = [rewriter.constants[node.inputs[place]].size for place in (4, 5)]
    if max(sizes) > 1 or (max(columns) > 1 and (len(rewriter.dims(node.inputs[3])) != 2 or columns[0] != columns[1])):
        return None
    inputs = [
        _dequantize(rewriter, node, 0),
        _dequantize(rewriter, node, 3, axis=len(rewriter.dims(node.inputs[3])) - 1),
    ]
    return _quantize(rewriter, node, "MatMul", inputs, 6)


def _expand_gemm(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Expand QGemm; `alpha` scales the product with the bias, which has the product of both scales."""
    axis = 0 if node.attributes.get("transB") else 1
    inputs = [_dequantize(rewriter, node, 0), _dequantize(rewriter, node, 3, axis=axis)]
    bias = _bias(rewriter, node, 6, 1, 4)
    attributes = {name: value for name, value in node.attributes.items() if name in ("transB", "alpha")}
    if attributes.get("alpha", 1.0) != 1.0 and bias:
        attributes["beta"] = attributes["alpha"]
    if not _input(node, 7):
        return Node(node.name, "Gemm", (*inputs, *bias), node.outputs, attributes)
    return _quantize(rewriter, node, "Gemm", (*inputs, *bias), 7, attributes)


def _expand_concat(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Expand QLinearConcat, whose first inputs are scale and zero point of the result."""
    inputs = [_dequantize(rewriter, node, place) for place in range(2, len(node.inputs), 3)]
    return _quantize(rewriter, node, "Concat", inputs, 0, {"axis": node.attributes["axis"]})


def _expand_softmax(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Expand QLinearSoftmax; before opset 13, it normalizes all axes from `axis` on together."""
    dims, opset = rewriter.dims(node.inputs[0]), node.attributes.get("opset", 13)
    axis = node.attributes.get("axis", 1 if opset < 13 else -1) % len(dims)
    src = _dequantize(rewriter, node, 0)
    if opset >= 13 or axis == len(dims) - 1:
        return _quantize(rewriter, node, "Softmax", (src,), 3, {"axis": axis})
    rows = (int(np.prod(dims[:axis])), int(np.prod(dims[axis:])))
    flat = rewriter.insert_reshape(node, src, rows)
    normalized = rewriter.insert_node(node, "Softmax", (flat,), rows, {"axis": 1})
    shape = rewriter.add_constant(f"{node.outputs[0]}:dims", np.array(dims, np.int64))
    return _quantize(rewriter, node, "Reshape", (normalized, shape), 3)


def _unary(operator: str) -> Callable[[NetworkRewriter, Node], Node | None]:
    """Return the rule of an operator on one tensor."""

    def rule(rewriter: NetworkRewriter, node: Node) -> Node:
        attributes = {name: value for name, value in node.attributes.items() if name != "channels_last"}
        return _quantize(rewriter, node, operator, (_dequantize(rewriter, node, 0),), 3, attributes)

    return rule


def _binary(operator: str) -> Callable[[NetworkRewriter, Node], Node | None]:
    """Return the rule of an operator on two tensors."""

    def rule(rewriter: NetworkRewriter, node: Node) -> Node:
        inputs = [_dequantize(rewriter, node, place) for place in (0, 3)]
        return _quantize(rewriter, node, operator, inputs, 6)

    return rule


_RULES: Mapping[tuple[str, str], Callable[[NetworkRewriter, Node], Node | None]] = MappingProxyType(
    {
        ("", "QLinearConv"): _expand_conv,
        ("", "QLinearMatMul"): _expand_matmul,
        ("com.microsoft", "QGemm"): _expand_gemm,
        ("com.microsoft", "QLinearAdd"): _binary("Add"),
        ("com.microsoft", "QLinearAveragePool"): _unary("AveragePool"),
        ("com.microsoft", "QLinearConcat"): _expand_concat,
        ("com.microsoft", "QLinearGlobalAveragePool"): _unary("GlobalAveragePool"),
        ("com.microsoft", "QLinearLeakyRelu"): _unary("LeakyRelu"),
        ("com.microsoft", "QLinearMul"): _binary("Mul"),
        ("com.microsoft", "QLinearSigmoid"): _unary("Sigmoid"),
        ("com.microsoft", "QLinearSoftmax"): _expand_softmax,
    }
)
"""Rule of each operator on quantized tensors, by domain and name."""
