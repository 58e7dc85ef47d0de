"""`recognize_block_products`: products with a constant matrix of few bits become `BlockMatMul` of the domain `inlay`.

MatMulNBits of com.microsoft is one, and so is MatMul or Gemm with a DequantizeLinear whose scales are of blocks. The
weights stay integers. The inputs of BlockMatMul:

    src           (..., K) f32
    weights       (K, N) int4, uint4, int8 or uint8
    scales        (K / group, N) f32
    zero points   (K / group, N) int32; left out if all are 0
    bias          (N,) f32; may be left out

Its attribute `group` divides K: a last block that is shorter than the others is cut into groups with equal scales. If
MatMulNBits has `accuracy_level` 4, the attribute `rounds_source` is 1: the source may be rounded to 8 bits.

Source: ONNX Runtime, "Contrib Operators": MatMulNBits; ONNX, "Operators": DequantizeLinear.
"""

from math import gcd
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlay.graph.network import Network, Node
from inlay.graph.op_graph import Array
from inlay.graph.passes.rewriting import NetworkRewriter, is_describable, rewrite_nodes

_Real = npt.NDArray[np.float32]
_S4, _U4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
_SIGNED = {_U4: (_S4, 8), np.dtype(np.uint8): (np.dtype(np.int8), 128)}
"""Signed type of each unsigned one, and the zero point that becomes 0 with it."""
_ROUNDED = 4
"""The `accuracy_level` that allows a source that is rounded to integers of 8 bits."""
_TYPES = (_S4, _U4, np.dtype(np.int8), np.dtype(np.uint8))


class _Blocks(NamedTuple):
    """A matrix of integers with scales of blocks along its first axis."""

    weights: Array
    """Integers (K, N)."""
    scales: _Real
    """Scales (blocks, N)."""
    zeros: Array | None
    """Zero points (blocks, N); None if all are 0."""
    block: int
    """Rows of a block; the last one may be shorter."""


def recognize_block_products(network: Network) -> Network:
    """Return the network with `BlockMatMul` in place of products with weights in blocks.

    >>> from inlay.graph.network import Tensor
    >>> constants = {"w": np.ones((3, 2, 8), np.uint8), "s": np.ones((3, 2), np.float32)}
    >>> tensors = {name: Tensor(name, array.shape, array.dtype) for name, array in constants.items()}
    >>> tensors |= {name: Tensor(name, (1, n), np.dtype(np.float32)) for name, n in (("x", 32), ("y", 3))}
    >>> attributes = {"K": 32, "N": 3, "bits": 4, "block_size": 16}
    >>> node = Node("n", "MatMulNBits", ("x", "w", "s"), ("y",), attributes, domain="com.microsoft")
    >>> found = recognize_block_products(Network("", 21, ("x",), ("y",), (node,), tensors, constants))
    >>> found.nodes[0].operator, found.nodes[0].attributes, found.constants[found.nodes[0].inputs[1]].dtype
    ('BlockMatMul', {'group': 16}, dtype(int4))
    """
    return rewrite_nodes(network, _recognize)


def _recognize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the product that replaces a node; None if the node stays."""
    if node.operator == "MatMulNBits" and node.domain == "com.microsoft":
        emit = _emit_product if _is_usual(rewriter, node.inputs[0]) else _emit_real_product
        return emit(rewriter, node, _read_packed(rewriter, node), _input(node, 5))
    if node.operator not in ("MatMul", "Gemm") or node.domain or not _is_usual(rewriter, node.inputs[0]):
        return None
    attributes = node.attributes
    if attributes.get("transA") or attributes.get("alpha", 1.0) != 1 or len(rewriter.dims(node.inputs[0])) < 2:
        return None
    blocks = _read_dequantized(rewriter, node.inputs[1], bool(attributes.get("transB")))
    bias = _input(node, 2)
    if blocks is None or (bias and not _is_bias(rewriter, node, bias)):
        return None
    return _emit_product(rewriter, node, blocks, bias)


def _is_usual(rewriter: NetworkRewriter, name: str) -> bool:
    """Return whether a tensor may be the source of a primitive: it is f32, no constant, and has axes and elements."""
    dims = rewriter.dims(name)
    is_real = rewriter.tensors[name].dtype == np.float32 and name not in rewriter.constants
    return is_real and is_describable(dims)


def _input(node: Node, place: int) -> str:
    """Return the name of an input; an empty text for one that is left out."""
    return node.inputs[place] if place < len(node.inputs) else ""


def _is_bias(rewriter: NetworkRewriter, node: Node, name: str) -> bool:
    """Return whether the third factor of a Gemm is a constant number for each column."""
    array, columns = rewriter.constants.get(name), rewriter.dims(node.outputs[0])[-1]
    return array is not None and array.size == columns == array.shape[-1] and node.attributes.get("beta", 1.0) == 1


def _read_packed(rewriter: NetworkRewriter, node: Node) -> _Blocks:
    """Return the weights of a MatMulNBits, whose constants `contrib_inference.is_known` has checked."""
    attributes, constants = node.attributes, rewriter.constants
    rows, columns, block = (int(attributes[name]) for name in ("K", "N", "block_size"))
    bits, blocks = int(attributes.get("bits", 4)), -(-rows // block)
    weights = _unpack(constants[node.inputs[1]].reshape(columns, -1), bits)[:, :rows].T
    scales = constants[node.inputs[2]].reshape(columns, blocks).T
    zeros = np.full((blocks, columns), 1 << (bits - 1), np.int32)
    if _input(node, 3):
        packed = constants[node.inputs[3]].reshape(columns, -1)
        zeros = _unpack(packed, bits)[:, :blocks].T.astype(np.int32)
    return _Blocks(weights, scales, zeros, block)


def _unpack(packed: Array, bits: int) -> Array:
    """Return the integers in bytes, along the last axis; of two in a byte, that in the lower bits is first."""
    if bits == 8:
        return packed
    pairs = np.stack([packed & 15, packed >> 4], axis=-1)
    return pairs.reshape(*packed.shape[:-1], -1).astype(_U4)


def _read_dequantized(rewriter: NetworkRewriter, name: str, is_transposed: bool) -> _Blocks | None:
    """Return the weights that a DequantizeLinear of a constant matrix in blocks along K computes; None for others."""
    node = rewriter.producer_of_kind(name, "DequantizeLinear")
    if node is None or not all(one in rewriter.constants for one in node.inputs if one):
        return None
    weights, scales = (rewriter.constants[one] for one in node.inputs[:2])
    zeros = rewriter.constants[node.inputs[2]] if _input(node, 2) else None
    block = int(node.attributes.get("block_size", 0))
    axis = int(node.attributes.get("axis", 1)) % max(weights.ndim, 1)
    if weights.ndim != 2 or block < 1 or axis != int(is_transposed) or weights.dtype not in _TYPES:
        return None
    dims = list(weights.shape)
    dims[axis] = -(-dims[axis] // block)
    is_usual = scales.dtype == np.float32 and 0 not in weights.shape
    if not is_usual or any(array is not None and array.shape != tuple(dims) for array in (scales, zeros)):
        return None
    arrays = [weights, scales] if zeros is None else [weights, scales, zeros.astype(np.int32)]
    turned = [array.T if is_transposed else array for array in arrays]
    return _Blocks(turned[0], turned[1], turned[2] if zeros is not None else None, block)


def _emit_product(rewriter: NetworkRewriter, node: Node, blocks: _Blocks, bias: str) -> Node:
    """Return the product with weights in groups of equal extents."""
    weights, scales, zeros, block = _with_signed_weights(blocks)
    rows = weights.shape[0]
    group = gcd(rows, block)
    first = np.arange(0, rows, group) // block
    names: list[str] = [node.inputs[0]]
    values: list[tuple[str, Any]] = [("weights", weights), ("scales", scales[first])]
    if zeros is not None:
        values.append(("zero_points", zeros[first]))
    names += [rewriter.add_constant(f"{node.outputs[0]}:{what}", array) for what, array in values]
    if bias:
        flat = rewriter.constants[bias].reshape(-1)
        names += [""] * (4 - len(names)) + [rewriter.add_constant(f"{node.outputs[0]}:bias", flat)]
    attributes: dict[str, Any] = {"group": group}
    if node.attributes.get("accuracy_level") == _ROUNDED:
        attributes["rounds_source"] = 1
    return Node(node.name, "BlockMatMul", tuple(names), node.outputs, attributes, domain="inlay")


def _emit_real_product(rewriter: NetworkRewriter, node: Node, blocks: _Blocks, bias: str) -> Node:
    """Return the product with weights of f32, and with the sum with the bias after it."""
    weights, scales, zeros, block = blocks
    of_row = np.arange(weights.shape[0]) // block
    real = weights.astype(np.float32) - (0 if zeros is None else zeros[of_row].astype(np.float32))
    matrix = rewriter.add_constant(f"{node.outputs[0]}:weights", np.asarray(real * scales[of_row], np.float32))
    inputs = (node.inputs[0], matrix)
    if not bias:
        return Node(node.name, "MatMul", inputs, node.outputs)
    product = rewriter.insert_node(node, "MatMul", inputs, rewriter.dims(node.outputs[0]), {}, np.dtype(np.float32))
    return Node(node.name, "Add", (product, bias), node.outputs)


def _with_signed_weights(blocks: _Blocks) -> _Blocks:
    """Return the weights as signed integers if their zero points vanish with that; no zero points instead of zeros."""
    weights, scales, zeros, block = blocks
    signed = _SIGNED.get(weights.dtype)
    if zeros is not None and signed is not None and bool((zeros == signed[1]).all()):
        return _Blocks((weights.astype(np.int16) - signed[1]).astype(signed[0]), scales, None, block)
    return _Blocks(weights, scales, zeros if zeros is not None and zeros.any() else None, block)
