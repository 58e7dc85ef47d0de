"""Sums of integers as post-operations of the product of integers that computes one of their operands.

A convolution or matrix product of integers writes q0, and a sum of integers follows (`lowering.quantized.add`):

    q0 = round(x / s0) + z0, in bounds                      x is the real result of the product
    q2 = round(r0 * q0 + r1 * q1 + c), in bounds            q1 has the type of q0, or is a constant of f32

The product computes q2 instead. It has no scale and no zero point of a destination: post-operations round and bound x
as q0 is, so that the integers are those of the two operations.

    linear (1 / s0), round, clip (low - z0, high - z0)      q0 - z0; without a scale of the destination, x is x / s0
    linear (r0, z0 * r0 + c), sum (r1)                      if the result overwrites q1
    linear (r0 / r1, z0 * r0 / r1), add, linear (r1, c)     else: a binary addition reads q1 without a scale

The order of the arithmetic is another one, so a number halfway between two integers may be rounded to the other one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inlay.graph.op_graph import Op, OpGraph
from inlay.primitives.attributes import EltwisePostOp, PostOp, SumPostOp
from inlay.primitives.rules import WEIGHTED

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_MOST_RATIO = 2.0**20
"""Largest ratio of two scales, and the inverse of the smallest one, with which sums are computed in this way."""


def quantizes_bytes(op: Op, graph: OpGraph) -> bool:
    """Return whether a product writes integers of 8 bits with one constant scale and zero point, if it has these."""
    if op.kind not in WEIGHTED or graph.tensors[op.writes["dst"]].dtype not in _BYTES:
        return False
    names = (name for name in op.attributes.value_names if name.startswith("dst_"))
    return all(name in op.constants and op.constants[name].size == 1 for name in names)


def is_quantized_sum(graph: OpGraph, tensor: str, op: Op) -> bool:
    """Return whether `op` adds to the integers of `tensor` others of the same dims and type, or a constant of f32."""
    if op.kind != "binary" or op.parameters["algorithm"] != "add" or op.attributes.zero_points:
        return False
    (dst,) = op.writes.values()
    alike = [graph.tensors[name] for name in (*op.reads.values(), dst)]
    if any((one.dims, one.dtype) != (alike[-1].dims, alike[-1].dtype) for one in alike):
        return False
    if list(op.reads.values()).count(tensor) != 1:
        return False
    if any(name not in op.constants or op.constants[name].size != 1 for name in op.attributes.value_names):
        return False
    added = op.constants.get("src_1")
    if (added is None) == (len(op.reads) < 2) or (added is not None and added.dtype != np.float32):
        return False
    return all(1 / _MOST_RATIO < _ratio(op, argument) < _MOST_RATIO for argument in ("src_0", "src_1"))


def normalize_sum(op: Op, tensor: str) -> Op:
    """Return a sum of integers with `tensor` as its first operand."""
    if op.reads.get("src_0") == tensor:
        return op
    swapped = {"src_0": "src_1", "src_1": "src_0"}
    constants = {f"{swapped[name[:5]]}{name[5:]}": array for name, array in op.constants.items()}
    scales = {swapped[name]: entry for name, entry in op.attributes.scales.items()}
    reads = {"src_0": tensor, "src_1": op.reads["src_0"]}
    return replace(op, reads=reads, constants=constants, attributes=replace(op.attributes, scales=scales))


def omit_quantization(op: Op) -> Op:
    """Return a product without the scale and the zero point of its destination."""
    own = op.attributes
    scales = {name: entry for name, entry in own.scales.items() if name != "dst"}
    zero_points = {name: entry for name, entry in own.zero_points.items() if name != "dst"}
    constants = {n: array for n, array in op.constants.items() if n not in ("dst_scales", "dst_zero_points")}
    attributes = replace(own, scales=scales, zero_points=zero_points)
    return replace(op, constants=constants, attributes=attributes)


def chain_sums(product: Op, sums: Sequence[Op], operands: Sequence[PostOp], dtype: np.dtype[Any]) -> tuple[PostOp, ...]:
    """Return the post-operations of a product without quantization that compute it and sums of its integers.

    `operands` are the post-operations that add the operand of each sum; `dtype` is the type of all integers.
    """
    zero = int(product.constants["dst_zero_points"][0]) if "dst" in product.attributes.zero_points else 0
    limits, chain = np.iinfo(dtype), list(product.attributes.post_ops)
    if "dst" in product.attributes.scales:
        chain.append(EltwisePostOp("linear", float(np.float32(1) / np.float32(product.constants["dst_scales"][0]))))
    for op, operand in zip(sums, operands, strict=True):
        chain += (EltwisePostOp("round"), EltwisePostOp("clip", limits.min - zero, limits.max - zero))
        chain += _add_operand(op, operand, zero)
        zero = 0
    return tuple(chain)


def quantization_values(ops: Sequence[Op]) -> tuple[bytes, ...]:
    """Return the scales and zero points of results and operands, on which the post-operations of a product depend."""
    arguments = ("dst_scales", "dst_zero_points", "src_0_scales", "src_1_scales")
    return tuple(op.constants[name].tobytes() for op in ops for name in arguments if name in op.constants)


def _add_operand(op: Op, operand: PostOp, zero: int) -> tuple[PostOp, ...]:
    """Return the post-operations that compute a sum of integers less `zero` and an operand."""
    ratio, scale = _ratio(op, "src_0"), _ratio(op, "src_1")
    shift, own = 0.0, op.attributes.post_ops
    match own:
        case (EltwisePostOp("linear", 1.0, shift), *others):
            own = tuple(others)
    if isinstance(operand, SumPostOp):
        return EltwisePostOp("linear", ratio, zero * ratio + shift), replace(operand, scale=scale), *own
    ratio /= scale
    after = () if (scale, shift) == (1, 0) else (EltwisePostOp("linear", scale, shift),)
    return EltwisePostOp("linear", ratio, zero * ratio), operand, *after, *own


def _ratio(op: Op, argument: str) -> float:
    """Return the scale of an operand of a sum, which is relative to that of the result; 1 without one."""
    return float(op.constants[f"{argument}_scales"][0]) if argument in op.attributes.scales else 1.0
