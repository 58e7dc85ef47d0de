"""Formulas of inner product and matrix multiplication, dense and with one sparse factor.

    inner product   dst(n, o) = bias(o) + sum over c and space of src(n, c, x) * weights(o, c, x)
    matmul          dst(b, m, n) = bias(b, m, n) + sum over k of src(b, m, k) * weights(b, k, n)

In matmul, b stands for any number of batch axes; a dim of 1 is broadcast.

Only the stored elements of a sparse factor contribute:

    src sparse       row m of dst = sum over the stored src(m, k) of src(m, k) * row k of weights
    weights sparse   the same formula for the transposed matrices: dst = (weights^T src^T)^T

An infinity or NaN of the dense factor therefore reaches the result only if a stored element is multiplied by it.

Source: oneAPI specification, "Inner product" and "Matrix multiplication"; oneDNN, `ref_sparse_matmul_t`.
"""

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.engines.reference.values import Array, Memories, Results, Shape, Shapes, scale_of
from inlay.memory import Memory
from inlay.memory.sparse_entries import read_sparse
from inlay.primitives.attributes import PrimitiveAttributes


def inner_product(*, src: Array, weights: Array, bias: Array | None = None) -> Results:
    """Multiply the flattened images by the flattened weights."""
    dst = _flatten(src) @ _flatten(weights).T
    return {"dst": dst if bias is None else dst + bias}


def inner_product_backward_data(*, diff_dst: Array, weights: Array, shapes: Shapes) -> Results:
    """Compute the gradient of the source."""
    return {"diff_src": (diff_dst @ _flatten(weights)).reshape(shapes["diff_src"])}


def inner_product_backward_weights(*, src: Array, diff_dst: Array, shapes: Shapes) -> Results:
    """Compute the gradients of weights and bias."""
    diff_weights = (diff_dst.T @ _flatten(src)).reshape(shapes["diff_weights"])
    return {"diff_weights": diff_weights, "diff_bias": diff_dst.sum(axis=0)}


def matmul(*, src: Array, weights: Array, bias: Array | None = None) -> Results:
    """Multiply two batches of matrices."""
    dst = src @ weights
    return {"dst": dst if bias is None else dst + bias}


def _flatten(array: Array) -> Array:
    """Merge all axes but the first."""
    return array.reshape(len(array), prod(array.shape[1:]))


@dataclass(frozen=True, slots=True)
class SparseArray:
    """A sparse logical array: the stored elements and their indices."""

    shape: Shape
    """Dims of the array."""
    indices: npt.NDArray[np.int64]
    """Row-major index of each stored element, in increasing order."""
    values: Array
    """Stored elements, in the order of `indices`."""

    def reshape(self, rows: int, columns: int) -> "SparseArray":
        """Return the array with the dims (rows, columns), which must have the same number of elements."""
        return SparseArray((rows, columns), self.indices, self.values)

    def select_matrix(self, batch: Shape) -> "SparseArray":
        """Return the matrix of the last two axes at one coordinate of the batch axes."""
        size = prod(self.shape[-2:])
        first = size * int(np.ravel_multi_index(batch, self.shape[:-2])) if batch else 0
        begin, end = np.searchsorted(self.indices, (first, first + size))
        return SparseArray(self.shape[-2:], self.indices[begin:end] - first, self.values[begin:end])

    def transpose(self) -> "SparseArray":
        """Return the transposed matrix."""
        rows, columns = self.shape
        indices = self.indices % columns * rows + self.indices // columns
        order = np.argsort(indices)
        return SparseArray((columns, rows), indices[order], self.values[order])

    def multiply(self, dense: Array) -> Array:
        """Return the product of this matrix and a dense one."""
        rows, columns = self.shape
        product = np.zeros((rows, dense.shape[1]))
        bounds = np.searchsorted(self.indices, np.arange(rows + 1) * columns)
        for row in np.flatnonzero(np.diff(bounds)):
            stored = slice(bounds[row], bounds[row + 1])
            product[row] = self.values[stored] @ dense[self.indices[stored] - row * columns]
        return product


Factor: TypeAlias = Array | SparseArray


def dequantize_sparse(name: str, memory: Memory, attributes: PrimitiveAttributes, memories: Memories) -> SparseArray:
    """Read the stored elements of argument `name`, multiplied by their scales.

    Raises:
        InvalidArguments: an index or pointer of the memory is wrong.
    """
    entries = read_sparse(memory.desc, memory.buffers)
    shape, values = memory.desc.dims, entries.values.astype(np.float64)
    if name in attributes.scales:
        scale, _ = scale_of(name, shape, attributes, memories)
        values *= np.broadcast_to(scale, shape)[np.unravel_index(entries.flat_indices, shape)]
    return SparseArray(shape, entries.flat_indices, values)


def sparse_matmul(*, src: Factor, weights: Factor, bias: Array | None = None, shapes: Shapes) -> Results:
    """Multiply two batches of matrices, one of which is sparse."""
    product = np.zeros(shapes["dst"])
    for batch in np.ndindex(product.shape[:-2]):
        product[batch] = _multiply(_select_matrix(src, batch), _select_matrix(weights, batch))
    return {"dst": product if bias is None else product + bias}


def sparse_inner_product(*, src: Factor, weights: Factor, bias: Array | None = None) -> Results:
    """Multiply the flattened images by the flattened weights, one of which is sparse."""
    left, right = (array.reshape(array.shape[0], prod(array.shape[1:])) for array in (src, weights))
    dst = _multiply(left, right.transpose() if isinstance(right, SparseArray) else right.T)
    return {"dst": dst if bias is None else dst + bias}


def _select_matrix(array: Factor, batch: Shape) -> Factor:
    """Return the matrix of a factor at a coordinate of the batch; a batch axis with a dim of 1 is broadcast."""
    own = tuple(0 if n == 1 else i for n, i in zip(array.shape[:-2], batch, strict=True))
    return array.select_matrix(own) if isinstance(array, SparseArray) else array[own]


def _multiply(src: Factor, weights: Factor) -> Array:
    """Return the product of two matrices, exactly one of which is sparse."""
    if isinstance(src, SparseArray):
        assert not isinstance(weights, SparseArray)
        return src.multiply(weights)
    assert isinstance(weights, SparseArray)
    return weights.transpose().multiply(src.T).T
