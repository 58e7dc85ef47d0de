"""Errors of primitives with sparse descriptors: golden/mistakes/sparse.txt has calls and the text of their errors."""

from collections.abc import Callable
from functools import partial

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
from tests.support.refusals import raises_exactly

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
    text = "MatMul: src and dst share 20 bytes, and it does not work in place: give dst another buffer"
    with raises_exactly(InvalidArguments, text):
        product(src=rows, weights=pack(np.eye(4, dtype=np.float32), "ab"), dst=Memory(product.dst_desc, buffer))


def any_of(*dims: int, data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, "any")


CSR, COO, PACKED = MemoryDesc.csr, MemoryDesc.coo, MemoryDesc.packed
FOLLOWED = PrimitiveAttributes(post_ops=(attributes.EltwisePostOp("relu"),))
multiply, connect = primitives.MatMul, primitives.InnerProduct
UNSUPPORTED: list[tuple[Callable[..., primitives.Primitive], str]] = [
    (
        partial(multiply, any_of(4, 4, data_type="u8"), CSR((4, 4), "s8", 3)),
        "sparse matmul of f32, s8, u8 with sparse weights",
    ),
    (partial(multiply, CSR((4, 4), "f32", 3, "s64"), F32), "sparse matmul with positions of other types than s32"),
    (partial(multiply, ROWS, F32, MemoryDesc((1, 4), "f32")), "sparse matmul with a bias or attributes"),
    (partial(multiply, ROWS, F32, attributes=FOLLOWED), "sparse matmul with a bias or attributes"),
    (partial(multiply, COO((2, 4, 4), "f32", 3), any_of(2, 4, 4)), "sparse matmul of 3 axes"),
    (partial(connect, F32, ROWS), "inner_product with sparse weights"),
    (partial(connect, COO((4, 4), "f32", 3), F32), "inner_product with sparse src"),
    (partial(multiply, PACKED((4, 4), "f32", 3), F32), "matmul with packed tensors other than weights of s8"),
    (partial(multiply, CSR((4, 0), "f32", 0), any_of(0, 4)), "sparse matmul of tensors without elements"),
    (partial(primitives.Reorder, F32, ROWS), "reorder with sparse dst"),
]


@needs_onednn
@pytest.mark.parametrize(("make", "lack"), UNSUPPORTED, ids=[lack for _, lack in UNSUPPORTED])
def test_products_that_onednn_would_compute_as_dense_are_not_passed_to_it(
    make: Callable[..., primitives.Primitive], lack: str
) -> None:
    """Some releases accept these, and read the values as a dense matrix, past their end."""
    with raises_exactly(Unimplemented, f"{make_engine().library.name} has no {lack}"):
        make(engine="onednn")
    assert make().engine.name in ("reference", "inlay")
