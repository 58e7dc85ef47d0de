"""Formulas of inner product and matrix multiplication, dense and with one sparse factor.

    inner product   dst(n, o) = bias(o) + sum over c and space of src(n, c, x) * weights(o, c, x)
    matmul          dst(b, m, n) = bias(b, m, n) + sum over k of src(b, m, k) * weights(b, k, n)

In matmul, b stands for any number of axes, and an axis of length 1 is repeated.

Elements of a sparse factor that are not stored are never touched:

    src sparse       row m of dst = sum over the stored src(m, k) of src(m, k) * row k of weights
    weights sparse   the same of the transposed matrices: dst = (weights^T src^T)^T

So an infinity or NaN of the dense factor spreads only where an element is stored for it.

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
    """The formula above."""
    dst = _flat(src) @ _flat(weights).T
    return {"dst": dst if bias is None else dst + bias}


def inner_product_backward_data(*, diff_dst: Array, weights: Array, shapes: Shapes) -> Results:
    """The gradient of the source."""
    return {"diff_src": (diff_dst @ _flat(weights)).reshape(shapes["diff_src"])}


def inner_product_backward_weights(*, src: Array, diff_dst: Array, shapes: Shapes) -> Results:
    """The gradients of weights and bias."""
    diff_weights = (diff_dst.T @ _flat(src)).reshape(shapes["diff_weights"])
    return {"diff_weights": diff_weights, "diff_bias": diff_dst.sum(axis=0)}


def matmul(*, src: Array, weights: Array, bias: Array | None = None) -> Results:
    """The formula above."""
    dst = src @ weights
    return {"dst": dst if bias is None else dst + bias}


def _flat(array: Array) -> Array:
    """All axes but the first as one."""
    return array.reshape(len(array), prod(array.shape[1:]))


@dataclass(frozen=True, slots=True)
class SparseArray:
    """A logical array of which only some elements are stored."""

    shape: Shape
    """Its dims."""
    places: npt.NDArray[np.int64]
    """The row-major index of each stored element, rising."""
    values: Array
    """The stored elements."""

    def reshape(self, rows: int, columns: int) -> "SparseArray":
        """The same elements as a matrix; it has as many elements as this array."""
        return SparseArray((rows, columns), self.places, self.values)

    def matrix(self, batch: Shape) -> "SparseArray":
        """The last two axes at one coordinate of the others."""
        size = prod(self.shape[-2:])
        first = size * int(np.ravel_multi_index(batch, self.shape[:-2])) if batch else 0
        begin, end = np.searchsorted(self.places, (first, first + size))
        return SparseArray(self.shape[-2:], self.places[begin:end] - first, self.values[begin:end])

    def transposed(self) -> "SparseArray":
        """The matrix with rows for columns."""
        rows, columns = self.shape
        places = self.places % columns * rows + self.places // columns
        order = np.argsort(places)
        return SparseArray((columns, rows), places[order], self.values[order])

    def multiply(self, dense: Array) -> Array:
        """The product of this matrix with a dense one."""
        rows, columns = self.shape
        product = np.zeros((rows, dense.shape[1]))
        bounds = np.searchsorted(self.places, np.arange(rows + 1) * columns)
        for row in np.flatnonzero(np.diff(bounds)):
            stored = slice(bounds[row], bounds[row + 1])
            product[row] = self.values[stored] @ dense[self.places[stored] - row * columns]
        return product


Factor: TypeAlias = Array | SparseArray


def real_sparse(name: str, memory: Memory, attributes: PrimitiveAttributes, memories: Memories) -> SparseArray:
    """What the stored elements of argument `name` mean: each times its scale.

    Raises:
        InvalidArguments: the memory has wrong positions.
    """
    entries = read_sparse(memory.desc, memory.buffers)
    shape, values = memory.desc.dims, entries.values.astype(np.float64)
    if name in attributes.scales:
        scale, _ = scale_of(name, shape, attributes, memories)
        values *= np.broadcast_to(scale, shape)[np.unravel_index(entries.flat_indices, shape)]
    return SparseArray(shape, entries.flat_indices, values)


def sparse_matmul(*, src: Factor, weights: Factor, bias: Array | None = None, shapes: Shapes) -> Results:
    """The product of each pair of matrices in the batch."""
    product = np.zeros(shapes["dst"])
    for batch in np.ndindex(product.shape[:-2]):
        product[batch] = _product(_matrix(src, batch), _matrix(weights, batch))
    return {"dst": product if bias is None else product + bias}


def sparse_inner_product(*, src: Factor, weights: Factor, bias: Array | None = None) -> Results:
    """The product of images and weights, each flattened."""
    left, right = (array.reshape(array.shape[0], prod(array.shape[1:])) for array in (src, weights))
    dst = _product(left, right.transposed() if isinstance(right, SparseArray) else right.T)
    return {"dst": dst if bias is None else dst + bias}


def _matrix(array: Factor, batch: Shape) -> Factor:
    """The matrix that takes part at a coordinate of the batch: an axis of one element is repeated."""
    own = tuple(0 if n == 1 else i for n, i in zip(array.shape[:-2], batch, strict=True))
    return array.matrix(own) if isinstance(array, SparseArray) else array[own]


def _product(src: Factor, weights: Factor) -> Array:
    if isinstance(src, SparseArray):
        assert not isinstance(weights, SparseArray)
        return src.multiply(weights)
    assert isinstance(weights, SparseArray)
    return weights.transposed().multiply(src.T).T
