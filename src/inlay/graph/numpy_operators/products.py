"""Functions of products of matrices and tensors: MatMul, Gemm, Einsum, Det.

Floats of 16 bits are multiplied and summed in f32. Integers are multiplied in their own type, so that they wrap around:

>>> from inlay.graph.network import Node
>>> node = Node("n", "Einsum", ("x",), ("y",), {"equation": "ii->"})
>>> einsum(OperatorCall(node, 12, (np.array([[100, 1], [1, 100]], np.int8),))).tolist()
-56
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, is_float
from inlay.graph.op_graph import Array

_OPTIONAL_ADDEND = 11
"""Opset from which on the third input of Gemm may be left out."""


def product_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which products are summed: f32 or f64 for floats, the same type for integers.

    >>> product_dtype(np.dtype(np.float16)), product_dtype(np.dtype(np.int8))
    (dtype('float32'), dtype('int8'))
    """
    return accumulation_dtype(dtype) if is_float(dtype) else dtype


def multiply_matrices(call: OperatorCall, left: Array, right: Array) -> Array:
    """Return the matrix product of two arrays, with leading axes broadcast.

    Raises:
        InvalidArguments: an array has no axes, or their dims do not fit.
    """
    rows, depth = left.shape[:-2], right.shape[max(right.ndim - 2, 0) :][:1]
    if not left.ndim or not right.ndim or left.shape[-1:] != depth or not _can_broadcast(rows, right.shape[:-2]):
        raise call.invalid(f"dims {left.shape} and {right.shape} have no matrix product")
    return np.asarray(np.matmul(left, right))


def _can_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Return whether dims can be broadcast to each other."""
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def matmul(call: OperatorCall) -> Array:
    """Compute MatMul, the matrix product."""
    left, right = call.input(0), call.input(1)
    working = product_dtype(left.dtype)
    return multiply_matrices(call, left.astype(working), right.astype(working)).astype(left.dtype)


def gemm(call: OperatorCall) -> Array:
    """Compute Gemm: alpha * A * B + beta * C, with A or B transposed where the node states it.

    C is broadcast to the dims of the product. It is not read if beta is 0.
    """
    factors = [call.input(index) for index in (0, 1)]
    if any(factor.ndim != 2 for factor in factors):
        raise call.invalid(f"dims {factors[0].shape} and {factors[1].shape} are not those of two matrices")
    dtype, working = factors[0].dtype, product_dtype(factors[0].dtype)
    left, right = (
        factor.astype(working).T if call.attribute(name, 0) else factor.astype(working)
        for factor, name in zip(factors, ("transA", "transB"), strict=True)
    )
    result = _scale(multiply_matrices(call, left, right), float(call.attribute("alpha", 1.0)))
    addend, beta = call.input(2) if call.opset < _OPTIONAL_ADDEND else call.optional(2), call.attribute("beta", 1.0)
    if addend is None or not beta:
        return result.astype(dtype)
    if addend.ndim > 2 or any(n not in (1, m) for n, m in zip(addend.shape[::-1], result.shape[::-1], strict=False)):
        raise call.invalid(f"C of dims {addend.shape} cannot be broadcast to the product's, {result.shape}")
    return np.asarray((result + _scale(addend.astype(working), float(beta))).astype(dtype))


def _scale(values: Array, factor: float) -> Array:
    """Return elements times a factor in their type; integers by a factor that is not whole are truncated."""
    if factor == 1:
        return values
    if is_float(values.dtype):
        return np.asarray(values * values.dtype.type(factor))
    if factor.is_integer():
        return np.asarray(values * np.array(int(factor)).astype(values.dtype))
    return np.asarray((values.astype(np.float64) * factor).astype(values.dtype))


def einsum(call: OperatorCall) -> Array:
    """Compute Einsum: sums of products over the labels that the result does not have."""
    operands = [call.input(index) for index in range(len(call.inputs))]
    dtype = operands[0].dtype
    working = product_dtype(dtype)
    equation = str(call.attribute("equation", "")).replace(" ", "")
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(operands):
        raise call.invalid(f"equation {equation!r} has {len(terms)} terms for {len(operands)} inputs")
    arrays = [operand.astype(working) for operand in operands]
    return np.asarray(np.einsum(equation, *arrays, optimize=len(arrays) > 1)).astype(dtype)


def determinant(call: OperatorCall) -> Array:
    """Compute Det: the determinant of the matrices in the last two axes."""
    src = call.input(0)
    if src.ndim < 2 or src.shape[-1] != src.shape[-2]:
        raise call.invalid(f"dims {src.shape} end in no square matrix")
    return np.asarray(np.linalg.det(src.astype(accumulation_dtype(src.dtype)))).astype(src.dtype)


PRODUCTS: Mapping[str, Callable[[OperatorCall], Array]] = {
    "Det": determinant,
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": matmul,
}
"""Function of each product of matrices or tensors."""
