"""Quantized tensors of a `Network`: tensors of f32 that a DequantizeLinear computes, and their scales and zero points.

Rules for operators on integers read them. Quantizations are usual ones only: see `read_quantization`.

Source: ONNX, "Operators": DequantizeLinear, QuantizeLinear.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from inlay.graph.network import Node, TensorQuantization
from inlay.graph.passes.rewriting import NetworkRewriter

BYTES = ("s8", "u8")
"""Types of integers of 8 bits."""


def read_quantization(rewriter: NetworkRewriter, node: Node) -> TensorQuantization | None:
    """Return scales and zero points of a QuantizeLinear or DequantizeLinear; None unless they are usual constants.

    Scales are positive and finite numbers of f32: one, or one for each coordinate of an axis.
    """
    integers = node.inputs[0] if node.operator == "DequantizeLinear" else node.outputs[0]
    dtype, dims = rewriter.tensors[integers].dtype, rewriter.dims(integers)
    scales = rewriter.constants.get(node.inputs[1])
    has_zero = len(node.inputs) > 2 and node.inputs[2]
    zeros = rewriter.constants.get(node.inputs[2]) if has_zero else None
    if scales is None or (has_zero and zeros is None) or scales.dtype != np.float32 or scales.size == 0:
        return None
    if dtype not in _INTEGERS or not np.isfinite(scales).all() or not (scales > 0).all():
        return None
    axis = int(node.attributes.get("axis", 1)) if scales.size > 1 else None
    if axis is not None:
        axis += len(dims) if axis < 0 else 0
        if scales.ndim != 1 or not 0 <= axis < len(dims) or dims[axis] != scales.size:
            return None
    zeros = None if zeros is None or not zeros.any() else zeros.reshape(-1)
    if zeros is not None and zeros.size != scales.size:
        return None
    dims = () if axis is None else (scales.size,)
    return TensorQuantization(
        _INTEGERS[dtype], scales.reshape(dims), None if zeros is None else zeros.reshape(dims), axis
    )


_INTEGERS: Mapping[np.dtype[Any], str] = {np.dtype(np.int8): "s8", np.dtype(np.uint8): "u8", np.dtype(np.int32): "s32"}


def zero_point(quantization: TensorQuantization) -> int:
    """Return the zero point of a tensor that has one."""
    return 0 if quantization.zero_points is None else int(quantization.zero_points)


class DequantizedTensor(NamedTuple):
    """An f32 tensor of the network that a DequantizeLinear computes."""

    integers: str
    """Name of the tensor of integers."""
    quantization: TensorQuantization
    """Scales and zero points."""


def dequantized(rewriter: NetworkRewriter, name: str) -> DequantizedTensor | None:
    """Return the integers of an f32 tensor that a DequantizeLinear computes; None for any other tensor."""
    node = rewriter.producer_of_kind(name, "DequantizeLinear")
    quantization = None if node is None else read_quantization(rewriter, node)
    return None if node is None or quantization is None else DequantizedTensor(node.inputs[0], quantization)


def dequantized_bytes(rewriter: NetworkRewriter, name: str) -> DequantizedTensor | None:
    """Return the integers of an f32 tensor if they have 8 bits and one scale, and are no constant."""
    found = dequantized(rewriter, name)
    if found is None or found.integers in rewriter.constants:
        return None
    quantization = found.quantization
    return found if quantization.data_type in BYTES and quantization.axis is None else None


def changes_bytes(rewriter: NetworkRewriter, node: Node) -> bool:
    """Return whether a QuantizeLinear or DequantizeLinear has one constant scale, and integers of 8 bits."""
    quantization = read_quantization(rewriter, node)
    return quantization is not None and quantization.axis is None and quantization.data_type in BYTES
