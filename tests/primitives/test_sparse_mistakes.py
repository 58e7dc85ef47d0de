"""Errors of primitives with sparse descriptors: golden/mistakes/sparse.txt has calls and the text of their errors."""

from collections.abc import Callable

import numpy as np
import pytest

import inlay  # noqa: F401  expressions of the file use it
from inlay import Memory, MemoryDesc, pack, primitives
from inlay.engines.onednn import make_engine
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import sparse  # noqa: F401  expressions of the file use it
from inlay.primitives import PrimitiveAttributes, attributes
from tests.oracles import onednn as oracle
from tests.support.golden_mistakes import assert_mistake, read_mistakes

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

F32 = MemoryDesc((4, 4), "f32", "ab")
ROWS = MemoryDesc.csr((4, 4), "f32", 3)


@pytest.mark.parametrize(("call", "error"), read_mistakes("sparse"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, globals())


def test_a_result_must_not_overlap_sparse_memory() -> None:
    product = primitives.MatMul(ROWS, F32)
    buffer = np.zeros(16, np.float32)
    indices, pointers = np.arange(3, dtype=np.int32), buffer.view(np.int32)[8:13]
    pointers[:] = [0, 1, 2, 3, 3]
    rows = Memory(ROWS, [np.ones(3, np.float32), indices, pointers])
    with pytest.raises(InvalidArguments) as refused:
        product(src=rows, weights=pack(np.eye(4, dtype=np.float32), "ab"), dst=Memory(product.dst_desc, buffer))
    assert str(refused.value) == (
        "MatMul: src and dst share 20 bytes, and it does not work in place: give dst another buffer"
    )


S8 = MemoryDesc.csr((4, 4), "s8", 3)
UNSUPPORTED: dict[str, tuple[Callable[..., primitives.Primitive], str]] = {
    "integers": (
        lambda **more: primitives.MatMul(MemoryDesc((4, 4), "u8", "any"), S8, **more),
        "sparse matmul of f32, s8, u8 with sparse weights",
    ),
    "wide_positions": (
        lambda **more: primitives.MatMul(MemoryDesc.csr((4, 4), "f32", 3, "s64"), F32, **more),
        "sparse matmul with positions of other types than s32",
    ),
    "bias": (
        lambda **more: primitives.MatMul(ROWS, F32, MemoryDesc((1, 4), "f32", "ab"), **more),
        "sparse matmul with a bias or attributes",
    ),
    "post_operation": (
        lambda **more: primitives.MatMul(
            ROWS, F32, attributes=PrimitiveAttributes(post_ops=(attributes.EltwisePostOp("relu"),)), **more
        ),
        "sparse matmul with a bias or attributes",
    ),
    "batch": (
        lambda **more: primitives.MatMul(
            MemoryDesc.coo((2, 4, 4), "f32", 3), MemoryDesc((2, 4, 4), "f32", "any"), **more
        ),
        "sparse matmul of 3 axes",
    ),
    "inner_product": (
        lambda **more: primitives.InnerProduct(F32, ROWS, **more),
        "inner_product with sparse weights",
    ),
    "inner_product_of_a_sparse_src": (
        lambda **more: primitives.InnerProduct(MemoryDesc.coo((4, 4), "f32", 3), F32, **more),
        "inner_product with sparse src",
    ),
    "packed_src": (
        lambda **more: primitives.MatMul(MemoryDesc.packed((4, 4), "f32", 3), F32, **more),
        "matmul with packed tensors other than weights of s8",
    ),
    "nothing_to_sum": (
        lambda **more: primitives.MatMul(MemoryDesc.csr((4, 0), "f32", 0), MemoryDesc((0, 4), "f32", "any"), **more),
        "sparse matmul of tensors without elements",
    ),
    "reorder": (lambda **more: primitives.Reorder(F32, ROWS, **more), "reorder with sparse dst"),
}


@needs_onednn
@pytest.mark.parametrize(("make", "lack"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_products_that_onednn_would_compute_as_dense_are_not_passed_to_it(
    make: Callable[..., primitives.Primitive], lack: str
) -> None:
    """Some releases accept these, and read the values as a dense matrix, past their end."""
    with pytest.raises(Unimplemented) as refused:
        make(engine="onednn")
    assert str(refused.value) == f"{make_engine().library.name} has no {lack}"
    assert make().engine.name in ("reference", "inlay")
