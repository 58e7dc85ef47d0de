"""Sparse descriptors where primitives do not take them, each with the whole text of its error."""

from collections.abc import Callable

import numpy as np
import pytest

import inlay
from inlay import Memory, MemoryDesc, pack, primitives
from inlay.engines.onednn import make_engine
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.memory import sparse
from inlay.primitives import PrimitiveAttributes, attributes
from tests.oracles import onednn as oracle

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

F32 = MemoryDesc((4, 4), "f32", "ab")
ROWS = MemoryDesc.csr((4, 4), "f32", 3)
ELSEWHERE = (
    "is sparse, as only src and weights of MatMul and InnerProduct and both sides of Reorder may be: describe the "
    "result of inlay.to_dense"
)
REFUSED: dict[str, tuple[Callable[[], object], type[InlayError], str]] = {
    "both": (
        lambda: primitives.MatMul(ROWS, ROWS),
        Unimplemented,
        "MatMul: src and weights are sparse, and products have one sparse factor: describe the result of "
        "inlay.to_dense for the other",
    ),
    "both_of_an_inner_product": (
        lambda: primitives.InnerProduct(ROWS, ROWS),
        Unimplemented,
        "InnerProduct: src and weights are sparse, and products have one sparse factor: describe the result of "
        "inlay.to_dense for the other",
    ),
    "dst": (lambda: primitives.MatMul(F32, F32, dst=ROWS), InvalidArguments, f"MatMul: dst {ELSEWHERE}"),
    "bias": (lambda: primitives.MatMul(F32, F32, ROWS), InvalidArguments, f"MatMul: bias {ELSEWHERE}"),
    "eltwise": (
        lambda: primitives.Eltwise(ROWS, algorithm="relu"),
        InvalidArguments,
        f"Eltwise: src {ELSEWHERE}",
    ),
    "gradient": (
        lambda: primitives.InnerProductBackwardData(
            weights=ROWS, hint_forward=primitives.InnerProduct(F32, F32, prop_kind="forward_training")
        ),
        InvalidArguments,
        f"InnerProductBackwardData: weights {ELSEWHERE}",
    ),
    "post_operation": (
        lambda: primitives.MatMul(F32, F32, attributes=PrimitiveAttributes(post_ops=(attributes.Binary("add", ROWS),))),
        InvalidArguments,
        f"MatMul: post_op 0: src_1 {ELSEWHERE}",
    ),
    "zero_points": (
        lambda: primitives.MatMul(
            MemoryDesc((4, 4), "u8", "ab"),
            MemoryDesc.csr((4, 4), "s8", 3),
            attributes=PrimitiveAttributes(zero_points={"weights": inlay.ZeroPoints()}),
        ),
        InvalidArguments,
        "MatMul: zero_points of weights, which is sparse, would make elements that are not stored differ from zero: "
        "leave them out",
    ),
    "batch_of_rows": (
        lambda: primitives.MatMul(MemoryDesc((2, 4, 4), "f32", "abc"), ROWS),
        InvalidArguments,
        "MatMul: weights (4, 4) has 2 axes, it takes 3: src has 3 axes",
    ),
    "untagged_reorder": (
        lambda: primitives.Reorder(F32, MemoryDesc.packed((4, 4), "f32", 3)),
        Unimplemented,
        "MemoryDesc.packed((4, 4), 'f32', 3) has no tag yet: take the descriptor of a primitive that was created with "
        "it, such as product.weights_desc, or use MemoryDesc.csr",
    ),
    "no_room": (
        lambda: pack(np.ones((4, 4), np.float32), MemoryDesc.packed((4, 4), "f32", 3, "aB64b")),
        InvalidArguments,
        "the source has 16 elements that are not zero, but MemoryDesc.packed((4, 4), 'f32', 3, tag='aB64b') has room "
        "for nnz 3: describe it with nnz=16 or more",
    ),
    "narrow_blocks": (
        lambda: MemoryDesc.packed((4, 4), "f32", 3, "aB8b"),
        InvalidArguments,
        "the inner blocks of tag 'aB8b' hold 8 elements: those of the packed encoding hold a multiple of 64, as in "
        "'aB64b'",
    ),
    "another_spelling_of_a_tag": (
        lambda: MemoryDesc.from_json(
            MemoryDesc.packed((4, 4), "f32", 3, "aB64b").to_json().replace("aB64b", "AB1a64b")
        ),
        InvalidArguments,
        "tag of the packed encoding is 'AB1a64b': write it as 'aB64b'",
    ),
    "other_nnz": (
        lambda: primitives.MatMul(ROWS, F32, engine="reference")(
            src=sparse.to_csr(np.eye(4, dtype=np.float32)), weights=pack(np.eye(4, dtype=np.float32), "ab")
        ),
        InvalidArguments,
        "MatMul: src is MemoryDesc.csr((4, 4), 'f32', 4), and the primitive was created for MemoryDesc.csr((4, 4), "
        "'f32', 3): create one for the memory, or reorder it, inlay.reorder(src, primitive.src_desc), if it stores as "
        "many elements",
    ),
    "attributes_of_a_reorder": (
        lambda: primitives.Reorder(
            F32, ROWS, attributes=PrimitiveAttributes(scales={"src": inlay.Scales()}), engine="reference"
        )(src=pack(np.eye(4, dtype=np.float32), "ab"), src_scales=2),
        Unimplemented,
        "attributes are for dense memory: convert with inlay.to_dense first, or after",
    ),
}


@pytest.mark.parametrize(("make", "kind", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_left_is_refused(make: Callable[[], object], kind: type[InlayError], text: str) -> None:
    with pytest.raises(kind) as refused:
        make()
    assert str(refused.value) == text


def test_what_is_written_lies_on_no_buffer_of_sparse_memory() -> None:
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
DECLINED: dict[str, tuple[Callable[..., primitives.Primitive], str]] = {
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
            ROWS, F32, attributes=PrimitiveAttributes(post_ops=(attributes.Eltwise("relu"),)), **more
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
@pytest.mark.parametrize(("make", "lack"), DECLINED.values(), ids=DECLINED)
def test_onednn_is_not_asked_for_what_it_reads_as_dense(make: Callable[..., primitives.Primitive], lack: str) -> None:
    """Releases have kernels that accept these and read values as a dense matrix, past their end."""
    with pytest.raises(Unimplemented) as refused:
        make(engine="onednn")
    assert str(refused.value) == f"{make_engine().library.name} has no {lack}"
    assert make().engine.name in ("reference", "inlay")
