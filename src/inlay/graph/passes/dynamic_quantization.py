"""`recognize_dynamic_quantization`: products of integers that a network quantizes itself become one operator each.

A dynamic quantizer writes several nodes for a product with constant weights:

    q, scale, zero = DynamicQuantizeLinear(x)
    y = Cast(MatMulInteger(q, weights, zero, weights_zero)) * (scale * weights_scale) + bias

ConvInteger takes the place of MatMulInteger in convolutions. The factors may be multiplied in any order. They become
operators of the domain `inlay`:

    DynamicQuantize     q, scale (1,), zero point (1,) of s32 from x; products of one tensor share it
    DynamicMatMul       product of q, scale, zero point, weights of s8 and bias, if there is one
    DynamicConv         convolution of these

with the attributes of ONNX's operator, and `weights_scales` and `weights_zero_point` as in `passes.quantization`. Other
products of integers stay as they are.

Source: ONNX, "Operators": ConvInteger, DynamicQuantizeLinear, MatMulInteger.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from inlay.graph.network import Network, Node, Tensor, unused_name
from inlay.graph.op_graph import Array
from inlay.graph.passes.quantization import INTERNAL_DOMAIN
from inlay.graph.passes.rewriting import NetworkRewriter, is_describable, remove_dead_nodes, rewrite_nodes

_F32 = np.dtype(np.float32)
_PRODUCTS: Mapping[str, str] = MappingProxyType({"MatMulInteger": "DynamicMatMul", "ConvInteger": "DynamicConv"})
"""Operator of the domain `inlay` for each product of integers."""


def recognize_dynamic_quantization(network: Network) -> Network:
    """Return the network with one operator in place of each product of dynamically quantized elements.

    Results differ from those of the network by the rounding of f32.
    """
    if not any(node.operator == "DynamicQuantizeLinear" for node in network.nodes):
        return network
    network, quantizers = _add_quantizers(network)
    network = rewrite_nodes(network, partial(_recognize_product, quantizers=quantizers))
    return remove_dead_nodes(rewrite_nodes(network, _absorb_constant))


def _add_quantizers(network: Network) -> tuple[Network, Mapping[str, Node]]:
    """Return the network with a DynamicQuantize after each DynamicQuantizeLinear, and these by that node's name."""
    tensors, nodes, quantizers = dict(network.tensors), list[Node](), dict[str, Node]()
    used_names = {node.name for node in network.nodes}
    for node in network.nodes:
        nodes.append(node)
        if node.operator != "DynamicQuantizeLinear" or node.domain or not _is_source(network, node.inputs[0]):
            continue
        forms = {"q": (network.tensors[node.inputs[0]].dims, np.uint8), "scale": ((1,), np.float32)}
        forms["zero_point"] = ((1,), np.int32)
        names = [unused_name(f"{node.name}:{end}", tensors) for end in forms]
        for name, (dims, dtype) in zip(names, forms.values(), strict=True):
            tensors[name] = Tensor(name, dims, np.dtype(dtype))
        name = unused_name(f"{node.name}:dynamic", used_names)
        used_names.add(name)
        quantizers[node.name] = Node(name, "DynamicQuantize", node.inputs, tuple(names), {}, INTERNAL_DOMAIN)
        nodes.append(quantizers[node.name])
    return replace(network, nodes=tuple(nodes), tensors=tensors), quantizers


def _is_source(network: Network, name: str) -> bool:
    """Return whether primitives can read a tensor of f32 that is not constant."""
    tensor = network.tensors[name]
    return is_describable(tensor.dims) and tensor.dtype == _F32 and name not in network.constants


class _IntegerProduct(NamedTuple):
    """A product of integers in a network, with all that follows it up to the real result."""

    node: Node
    """The MatMulInteger or ConvInteger."""
    quantize: Node
    """The DynamicQuantizeLinear of its source."""
    scales: Array
    """Scales of the weights, with the axes of the result or fewer."""


def _recognize_product(rewriter: NetworkRewriter, node: Node, quantizers: Mapping[str, Node]) -> Node | None:
    """Return the operator for a product of integers whose last Mul a node is; None for any other node."""
    found = _find_product(rewriter, node) if node.operator == "Mul" and not node.domain else None
    if found is None or found.quantize.name not in quantizers:
        return None
    is_conv = found.node.operator == "ConvInteger"
    weights = rewriter.constants.get(found.node.inputs[1])
    zero = _weights_zero_point(rewriter, found.node)
    dims = rewriter.dims(node.outputs[0])
    if weights is None or zero is None or not _is_supported(rewriter, found.node, weights) or 0 in dims:
        return None
    axis = 1 if is_conv else len(dims) - 1
    scales = _values_along(found.scales, axis, dims)
    if scales is None or dims != rewriter.dims(found.node.outputs[0]):
        return None
    if weights.dtype == np.uint8:
        weights, zero = (weights.astype(np.int16) - 128).astype(np.int8), zero - 128
    name = rewriter.add_constant(f"{found.node.inputs[1]}:s8", weights)
    inputs = (*quantizers[found.quantize.name].outputs, name)
    attributes = {**found.node.attributes, "weights_scales": scales, "weights_zero_point": zero}
    return Node(node.name, _PRODUCTS[found.node.operator], inputs, node.outputs, attributes, INTERNAL_DOMAIN)


def _find_product(rewriter: NetworkRewriter, node: Node) -> _IntegerProduct | None:
    """Return the product of integers that is multiplied by the scale of its source and constants alone."""
    factors = _list_factors(rewriter, node)
    casts = [found for name in factors if (found := rewriter.producer_of_kind(name, "Cast")) is not None]
    product = rewriter.producer(casts[0].inputs[0]) if len(casts) == 1 else None
    if product is None or product.operator not in _PRODUCTS or product.domain:
        return None
    quantize = rewriter.producer_of_kind(product.inputs[0], "DynamicQuantizeLinear")
    if (
        quantize is None
        or quantize.outputs[0] != product.inputs[0]
        or tuple(product.inputs[2:3]) != quantize.outputs[2:]
    ):
        return None
    rest = sorted(name for name in factors if name not in (casts[0].outputs[0], quantize.outputs[1]))
    constants = [rewriter.constants.get(name) for name in rest]
    arrays = [array for array in constants if array is not None and array.dtype == _F32]
    is_whole = factors.count(quantize.outputs[1]) == 1 and len(arrays) == len(rest)
    if not is_whole or rewriter.tensors[casts[0].outputs[0]].dtype != _F32:
        return None
    scales = np.ones((), np.float32)
    for array in arrays:
        scales = np.asarray(scales * array)
    return _IntegerProduct(product, quantize, scales) if np.isfinite(scales).all() else None


def _list_factors(rewriter: NetworkRewriter, node: Node) -> list[str]:
    """Return the factors of a product, of which each may be a product itself."""
    factors = list[str]()
    for name in node.inputs:
        inner = rewriter.producer_of_kind(name, "Mul")
        factors += (name,) if inner is None or inner.domain else inner.inputs
    return factors


def _weights_zero_point(rewriter: NetworkRewriter, product: Node) -> int | None:
    """Return the zero point of the weights of a product; None if it is no constant, or there are several."""
    if len(product.inputs) < 4 or not product.inputs[3]:
        return 0
    zeros = np.unique(rewriter.constants.get(product.inputs[3], np.zeros(0)))
    return int(zeros[0]) if zeros.size == 1 else None


def _is_supported(rewriter: NetworkRewriter, product: Node, weights: Array) -> bool:
    """Return whether primitives compute a product with weights of a matrix, or of up to three spatial axes."""
    if weights.dtype not in (np.int8, np.uint8) or weights.size == 0:
        return False
    rank = len(rewriter.dims(product.inputs[0]))
    if product.operator == "MatMulInteger":
        return weights.ndim == 2 and rank >= 2
    return weights.ndim == rank and rank in (3, 4, 5) and all(pad >= 0 for pad in product.attributes.get("pads", ()))


def _values_along(values: Array, axis: int, dims: tuple[int, ...]) -> Array | None:
    """Return values as one number, or one for each coordinate of an axis of a result; None for others."""
    if values.size == 1:
        return values.reshape(1) if values.ndim <= len(dims) else None
    aligned = (1,) * (len(dims) - values.ndim) + values.shape
    is_along = len(aligned) == len(dims) and aligned[axis] == dims[axis] == values.size
    return values.reshape(-1) if is_along else None


def _absorb_constant(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a product of integers with other scales for a Mul by constants, or with a bias for an Add of constants.

    There is a constant for each channel or column, or one for all.
    """
    if node.operator not in ("Mul", "Add") or node.domain:
        return None
    for name, other in (node.inputs, node.inputs[::-1]):
        product, constant = rewriter.producer(name), rewriter.constants.get(other)
        if product is None or product.domain != INTERNAL_DOMAIN or product.operator not in _PRODUCTS.values():
            continue
        dims = rewriter.dims(name)
        is_possible = constant is not None and constant.dtype == _F32 and rewriter.is_read_once(name)
        if not is_possible or constant is None or len(product.inputs) > 4 or 0 in dims:
            return None
        axis = 1 if product.operator == "DynamicConv" else len(dims) - 1
        values = _values_along(constant, axis, dims)
        if values is None or not np.isfinite(values).all():
            return None
        absorbed = replace(product, name=node.name, outputs=node.outputs)
        if node.operator == "Mul":
            scales = np.asarray(product.attributes["weights_scales"] * values)
            return replace(absorbed, attributes={**product.attributes, "weights_scales": scales})
        full = np.ascontiguousarray(np.broadcast_to(values, (dims[axis],)))
        return replace(absorbed, inputs=(*product.inputs, rewriter.add_constant(f"{node.outputs[0]}:bias", full)))
    return None
