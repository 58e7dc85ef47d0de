"""Products of matrices: inner products where the weights are constant, else matmul.

A fully connected layer behind Flatten reads the image as it is: its weights have the axes of the image, so that the
image may come in any format. In matmul with one constant matrix, all axes but the last are rows.
"""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from inlay.graph.lowering.arithmetic import binary, spread, with_axes
from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.graph.lowering.elementwise import eltwise
from inlay.graph.op import Array, Reshape

MOST_AXES_OF_INNER_PRODUCT = 5


def gemm(draft: Draft) -> Operand:
    """alpha A B + beta C, where A and B may be transposed."""
    first, second = draft.operand(0), draft.operand(1)
    require(len(draft.dims(first)) == len(draft.dims(second)) == 2, "its matrices have other axes than two")
    alpha, beta = draft.attribute("alpha", 1.0), draft.attribute("beta", 1.0)
    one = draft.permuted(first, (1, 0)) if draft.attribute("transA", 0) else first
    other = draft.permuted(second, (1, 0)) if draft.attribute("transB", 0) else second
    added = draft.operand(2) if draft.given(2) and beta else None
    dims = draft.result().dims
    if isinstance(one, str) and not isinstance(other, str):
        bias = _bias(added, beta, dims[1])
        product = _inner_product(draft, one, np.float32(alpha) * other, bias)
        added = added if bias is None else None
    else:
        product = draft.put("matmul", {"src": one, "weights": other}, dims)
        product = product if alpha == 1 else eltwise(draft, product, "linear", alpha)
    return product if added is None else _plus(draft, product, added, beta)


def _bias(added: Operand | None, beta: float, outputs: int) -> Array | None:
    """C as a vector, where it is the same for all rows."""
    if added is None or isinstance(added, str) or (added.ndim == 2 and added.shape[0] != 1):
        return None
    return np.float32(beta) * np.broadcast_to(added.reshape(-1), (outputs,))


def _inner_product(draft: Draft, src: str, matrix: Array, bias: Array | None) -> str:
    """src times `matrix` (K, O), where a view that only flattens src is passed over."""
    rows, outputs = draft.dims(src)[0], matrix.shape[1]
    weights = matrix.T
    writer = draft.writer(src)
    if writer is not None and writer.kind == "view" and all(isinstance(move, Reshape) for move in writer.moves):
        image = writer.reads["src"]
        dims = draft.dims(image)
        if 2 < len(dims) <= MOST_AXES_OF_INNER_PRODUCT and dims[0] == rows:
            src, weights = image, weights.reshape(outputs, *dims[1:])
    constants = {"weights": weights} if bias is None else {"weights": weights, "bias": bias}
    return draft.put("inner_product", {"src": src, **constants}, (rows, outputs))


def _plus(draft: Draft, product: str, added: Operand, beta: float) -> str:
    dims = draft.dims(product)
    if not isinstance(added, str):
        return binary(draft, "add", product, np.float32(beta) * added, dims)
    return binary(draft, "add", product, added if beta == 1 else eltwise(draft, added, "linear", beta), dims)


def matmul(draft: Draft) -> Operand:
    """NumPy's matmul: leading axes are spread, vectors are rows or columns."""
    first, second = draft.operand(0), draft.operand(1)
    left, right = draft.dims(first), draft.dims(second)
    dims = draft.result().dims
    one = draft.reshaped(first, (1, *left)) if len(left) == 1 else first
    other = draft.reshaped(second, (*right, 1)) if len(right) == 1 else second
    rows, columns = draft.dims(one), draft.dims(other)[-1]
    if len(draft.dims(other)) == 2 and not isinstance(other, str):
        flat = draft.reshaped(one, (prod(rows[:-1]), rows[-1]))
        product = draft.put("matmul", {"src": flat, "weights": other}, (prod(rows[:-1]), columns))
    else:
        count = max(len(rows), len(draft.dims(other)))
        one, other = (with_axes(draft, operand, count) for operand in (one, other))
        product = draft.put("matmul", {"src": one, "weights": other}, _product_dims(draft, one, other))
    return draft.reshaped(product, dims)


def _product_dims(draft: Draft, one: Operand, other: Operand) -> tuple[int, ...]:
    left, right = draft.dims(one), draft.dims(other)
    return (*spread(left[:-2], right[:-2]), left[-2], right[-1])


PRODUCTS: Mapping[str, Callable[[Draft], Operand]] = {"Gemm": gemm, "MatMul": matmul}
"""The rule of each operator."""
