"""Products with a sparse factor: results are those of dense matrices on each engine; broken memory is an error."""

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import inlay
from inlay import Memory, MemoryDesc, pack, primitives, reorder
from inlay.errors import InvalidArguments
from inlay.memory import sparse
from inlay.primitives import PrimitiveAttributes, attributes
from tests.oracles import onednn as oracle
from tests.support.refusals import raises_exactly

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))
ENGINES = pytest.mark.parametrize("engine", ["reference", pytest.param("onednn", marks=needs_onednn)])
EPSILON = float(np.finfo(np.float32).eps)


def any_of(dims: tuple[int, ...], data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, "any")


def random_sparse(rng: np.random.Generator, *shape: int, share: float = 0.4) -> Any:
    """Return a random array of f32 with this share of elements that are not 0."""
    return np.where(rng.random(shape) < share, rng.normal(size=shape), 0).astype(np.float32)


def multiply(src: Memory | npt.NDArray[Any], weights: Memory | npt.NDArray[Any], **more: Any) -> npt.NDArray[Any]:
    """Multiply by a primitive; arrays are packed to the format that it chooses."""
    left, right = (m.desc if isinstance(m, Memory) else any_of(m.shape, str(m.dtype)) for m in (src, weights))
    matmul = primitives.MatMul(left, right, **more)
    memories = {
        name: m if isinstance(m, Memory) else pack(m, matmul.desc(name))
        for name, m in (("src", src), ("weights", weights))
    }
    found: npt.NDArray[Any] = matmul(**memories).unpack()
    return found


def has_descriptor(engine: str, encoding: str) -> bool:
    """Return whether an engine supports descriptors of this encoding; all releases of oneDNN support CSR."""
    if engine == "reference" or encoding == "csr":
        return True
    return hasattr(oracle.library(), f"dnnl_memory_desc_create_with_{encoding}_encoding")


# Numbers


@ENGINES
@pytest.mark.parametrize("encoding", ["csr", "coo"])
def test_a_product_is_that_of_the_dense_matrices(engine: str, encoding: str) -> None:
    if not has_descriptor(engine, encoding):
        pytest.skip("this oneDNN has no such descriptors")
    rng, encode = np.random.default_rng(20), getattr(sparse, f"to_{encoding}")
    for _ in range(200):
        m, k, n = (int(extent) for extent in rng.integers(1, 80, 3))
        kept = random_sparse(rng, m, k, share=rng.choice([0.0, 0.03, 0.2, 1.0]))
        dense = random_sparse(rng, k, n, share=1)
        kept[rng.random(m) < 0.2] = 0
        wanted, bound = kept.astype(np.float64) @ dense, EPSILON * (k + 1) * (abs(kept) @ abs(dense))
        assert (abs(multiply(encode(kept), dense, engine=engine) - wanted) <= bound).all()
        turned = multiply(dense.T, encode(np.ascontiguousarray(kept.T)), engine=engine)
        assert (abs(turned - wanted.T) <= bound.T).all()


@needs_onednn
def test_onednn_computes_csr_of_f32() -> None:
    rows = MemoryDesc.csr((4, 4), "f32", 4)
    assert primitives.MatMul(rows, any_of((4, 5))).engine.name.startswith("onednn")
    assert primitives.MatMul(any_of((5, 4)), rows).engine.name.startswith("onednn")


@needs_onednn
def test_halves_are_rounded_once() -> None:
    """A sum of 4096 ones in f16 stands still at 2048 where each partial sum is rounded."""
    ones = np.ones((1, 4096), np.float16)
    for src, weights in ((sparse.to_csr(ones), ones.T), (ones, sparse.to_csr(ones.T))):
        assert multiply(src, weights).tolist() == [[4096.0]]


@ENGINES
@pytest.mark.parametrize("which", ["src", "weights"])
def test_elements_that_are_not_stored_contribute_nothing(engine: str, which: str) -> None:
    few = sparse.to_csr(np.array([[0, 2], [0, 0]], np.float32))
    dense = np.array([[np.inf, np.nan], [1, np.inf]], np.float32)
    if which == "src":
        np.testing.assert_array_equal(multiply(few, dense, engine=engine), [[2, np.inf], [0, 0]])
    else:
        np.testing.assert_array_equal(multiply(dense, few, engine=engine), [[0, np.inf], [0, 2]])


@pytest.mark.parametrize("types", ["f32", "bf16", "f16", "f64", "f8_e5m2", "u8 s8", "s8 s8", "bf16 s8", "u8 u4"])
@pytest.mark.parametrize("which", ["src", "weights"])
def test_all_types_of_dense_products_are_supported(types: str, which: str) -> None:
    left, right = (types.split() * 2)[:2]
    rng = np.random.default_rng(3)
    names = {"src": left, "weights": right}
    dims = {"src": (6, 20), "weights": (20, 9)}
    arrays = {name: rng.integers(0, 4, dims[name]) * (rng.random(dims[name]) < 0.3) for name in dims}
    memories = {
        name: reorder(pack(array.astype(np.float32), "ab"), in_rows(array.shape, names[name]))
        for name, array in arrays.items()
    }
    memories[which] = sparse.to_csr(memories[which])
    matmul = primitives.MatMul(memories["src"].desc, memories["weights"].desc, dst=any_of((6, 9), "f32"))
    assert np.array_equal(matmul(**memories).unpack(), arrays["src"] @ arrays["weights"])


def in_rows(dims: tuple[int, ...], data_type: str) -> MemoryDesc:
    """Return a row-major descriptor whose rows start at whole bytes."""
    return MemoryDesc(dims, data_type, strides=(dims[1] + dims[1] % 2, 1))


@pytest.mark.parametrize("which", ["src", "weights"])
def test_batches_of_coo_are_broadcast(which: str) -> None:
    rng = np.random.default_rng(4)
    left, right = random_sparse(rng, 3, 1, 4, 5), random_sparse(rng, 1, 2, 5, 6)
    expected = left.astype(np.float64) @ right
    src: Any = sparse.to_coo(left) if which == "src" else left
    weights: Any = sparse.to_coo(right) if which == "weights" else right
    assert np.allclose(multiply(src, weights), expected, atol=1e-5)


@pytest.mark.parametrize("which", ["src", "weights"])
def test_bias_scales_and_post_operations_follow(which: str) -> None:
    rng = np.random.default_rng(5)
    left, right = random_sparse(rng, 4, 7), random_sparse(rng, 7, 3)
    bias, before = rng.normal(size=(1, 3)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    scales = np.array([2, 3, 5], np.float32)
    memories = {"src": pack(left, "ab"), "weights": pack(right, "ab")}
    memories[which] = sparse.to_csr(memories[which])
    wanted = PrimitiveAttributes(
        scales={"weights": inlay.Scales(mask=0b10)},
        post_ops=(attributes.SumPostOp(0.5), attributes.EltwisePostOp("relu")),
    )
    matmul = primitives.MatMul(
        memories["src"].desc, memories["weights"].desc, MemoryDesc((1, 3), "f32", "ab"), attributes=wanted
    )
    dst = pack(before, matmul.dst_desc)
    matmul(**memories, bias=pack(bias, matmul.bias_desc), weights_scales=scales, dst=dst)
    assert np.allclose(dst.unpack(), np.maximum(left @ (right * scales) + bias + before / 2, 0), atol=1e-5)


@pytest.mark.parametrize("shape", [(6,), (3, 2), (3, 2, 2)])
@pytest.mark.parametrize("which", ["src", "weights"])
@pytest.mark.parametrize("encoding", ["csr", "coo", "packed"])
def test_an_inner_product_with_a_sparse_factor(shape: tuple[int, ...], which: str, encoding: str) -> None:
    if encoding == "csr" and len(shape) > 1:
        pytest.skip("CSR has rows and columns only")
    rng = np.random.default_rng(6)
    images, weights = random_sparse(rng, 5, *shape), random_sparse(rng, 4, *shape)
    arrays = {"src": images, "weights": weights, "bias": np.arange(4, dtype=np.float32)}
    count = int(np.count_nonzero(arrays[which]))
    describe: Any = getattr(MemoryDesc, encoding)
    descs: dict[str, Any] = {name: any_of(array.shape) for name, array in arrays.items()}
    descs[which] = describe(arrays[which].shape, "f32", count)
    matmul = primitives.InnerProduct(**descs)
    found = matmul(**{name: pack(array, matmul.desc(name)) for name, array in arrays.items()}).unpack()
    assert np.allclose(found, images.reshape(5, -1) @ weights.reshape(4, -1).T + np.arange(4), atol=1e-5)


# Packed weights


@pytest.mark.parametrize(("src_type", "weights_type"), [("f32", "f32"), ("u8", "s8"), ("s8", "s8"), ("bf16", "bf16")])
def test_a_product_with_packed_weights_is_the_dense_one(src_type: str, weights_type: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        m, k, n = (int(extent) for extent in rng.integers(1, 150, 3))
        left = rng.integers(0, 5, (m, k)).astype(np.float32)
        right = (rng.integers(-4, 5, (k, n)) * (rng.random((k, n)) < rng.choice([0, 0.1, 0.9]))).astype(np.float32)
        nnz = int(np.count_nonzero(right))
        matmul = primitives.MatMul(
            any_of((m, k), src_type), MemoryDesc.packed((k, n), weights_type, nnz), dst=any_of((m, n), "f32")
        )
        assert matmul.weights_desc.sparse_encoding == "packed"
        assert matmul.weights_desc.num_handles == 3
        assert matmul.weights_desc.sizes[0] == nnz * (pack(right, "ab", weights_type).desc.size // (k * n))
        kept = reorder(pack(right, "ab", weights_type), matmul.weights_desc)
        assert np.array_equal(kept.unpack(), right)
        src = reorder(pack(left, "ab"), matmul.src_desc)
        assert np.array_equal(matmul(src=src, weights=kept).unpack(), left @ right)


def packed_by_hand(array: npt.NDArray[Any], tag: str) -> tuple[list[Any], list[int], list[int]]:
    """Compute values, block offsets and bit mask element by element, from `MemoryDesc.offset` of the blocked format."""
    blocked = MemoryDesc(array.shape, "f32", tag)
    block = int(np.prod([size for _, size in blocked.inner_blocks]))
    whole = [0.0] * (blocked.size // 4)
    for point in np.ndindex(array.shape):
        whole[int(blocked.offset(point))] = float(array[point])
    before = np.concatenate([[0], np.cumsum([value != 0 for value in whole])])
    bits = [sum((whole[8 * i + j] != 0) << j for j in range(8)) for i in range(len(whole) // 8)]
    return [value for value in whole if value], before[:-1:block].tolist(), bits


@pytest.mark.parametrize("tag", ["aB64b", "bA64a", "BA16a64b4a", "AB8a8b", "aB4b32b"])
def test_packed_buffers_have_the_documented_encoding(tag: str) -> None:
    rng = np.random.default_rng(8)
    array = random_sparse(rng, 19, 70, share=0.2)
    nnz = int(np.count_nonzero(array))
    memory = pack(array, MemoryDesc.packed(array.shape, "f32", nnz, tag))
    values, offsets, bits = memory.buffers
    found = values.view(np.float32).tolist(), offsets.view(np.int64).tolist(), bits.tolist()
    assert found == packed_by_hand(array, tag)
    sparse.check(memory)
    for other in (memory, sparse.to_csr(memory), sparse.to_coo(memory), sparse.to_dense(memory)):
        assert np.array_equal(other.unpack(), array)
    assert np.array_equal(sparse.to_scipy(memory).toarray(), array)


def test_packed_memory_leaves_out_minus_zero_as_onednn_does() -> None:
    memory = pack(np.array([[-0.0, 1.0]], np.float32), MemoryDesc.packed((1, 2), "f32", 1, "aB64b"))
    assert memory.unpack().tolist() == [[0.0, 1.0]]
    assert not np.signbit(memory.unpack()).any()


def test_packed_descriptors_compare_and_serialize() -> None:
    desc = MemoryDesc.packed((19, 70), "s8", 30, "BA16a64b4a")
    assert repr(desc) == "MemoryDesc.packed((19, 70), 's8', 30, tag='BA16a64b4a')"
    assert eval(repr(desc)) == desc == MemoryDesc.from_json(desc.to_json()) == MemoryDesc.from_blob(desc.to_blob())
    assert desc != MemoryDesc.packed((19, 70), "s8", 30)
    assert desc != MemoryDesc.packed((19, 70), "s8", 30, "aB64b")
    assert desc.sizes == (30, 8 * 2, 64 * 128 // 8)
    assert [str(t) for t in desc.data_types] == ["s8", "s64", "u8"]


def test_packed_memory_can_be_shared_between_products() -> None:
    weights = MemoryDesc.packed((8, 4), "f32", 3, "bA64a")
    matmul = primitives.MatMul(any_of((2, 8)), weights)
    assert matmul.weights_desc == weights
    matrix = np.diag(np.arange(8, dtype=np.float32))[:, :4]
    ones = pack(np.ones((2, 8), np.float32), matmul.src_desc)
    assert matmul(src=ones, weights=pack(matrix, weights)).unpack().tolist() == [[0, 1, 2, 3]] * 2


# Reorders as primitives


def test_reorder_supports_all_sparse_encodings() -> None:
    array = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
    descs = [
        MemoryDesc((3, 4), "f32", "ba"),
        MemoryDesc.csr((3, 4), "f32", 2),
        MemoryDesc.coo((3, 4), "f32", 2, "s64"),
        MemoryDesc.packed((3, 4), "f32", 2, "aB64b"),
    ]
    for src, dst, engine in product(descs, descs, (None, "reference")):
        move = primitives.Reorder(src, dst, engine=engine)
        assert np.array_equal(move(src=pack(array, src)).unpack(), array)
    assert primitives.Reorder(descs[1], any_of((3, 4), "bf16")).dst_desc == MemoryDesc.csr((3, 4), "bf16", 2)
    swapped = Memory(descs[2], [np.array([7, 5], np.float32), np.array([2, 0], np.int64), np.array([0, 2], np.int64)])
    assert np.array_equal(primitives.Reorder(descs[2], descs[0])(src=swapped).unpack(), array)


# Broken memory


def broken_csr(indices: list[int], pointers: list[int]) -> Memory:
    desc = MemoryDesc.csr((3, 4), "f32", len(indices))
    return Memory(desc, [np.ones(len(indices), np.float32), np.array(indices, np.int32), np.array(pointers, np.int32)])


def broken_packed(position: int, change: int) -> Memory:
    memory = pack(np.eye(3, 4, dtype=np.float32), MemoryDesc.packed((3, 4), "f32", 3, "aB64b"))
    memory.buffers[position][0] = change
    return memory


BROKEN = {
    "column": (broken_csr([1, 4], [0, 1, 1, 2]), "entry 1 has coordinate 4 along axis 1 (b): its dim is 4"),
    "order": (
        broken_csr([2, 1], [0, 2, 2, 2]),
        "entry 1 is for element (0, 1), after one for (0, 2): entries are in row-major order; "
        "inlay.reorder(memory, memory.desc) sorts them",
    ),
    "rows": (
        Memory(MemoryDesc.coo((3, 4), "f32", 2), [np.ones(2, np.float32), *np.array([[2, 0], [0, 0]], np.int32)]),
        "entry 1 is for element (0, 0), after one for (2, 0): entries are in row-major order; "
        "inlay.reorder(memory, memory.desc) sorts them",
    ),
    "offset": (broken_packed(1, 9), "block offsets[0] is 9: 0 elements are stored in the blocks before it"),
    "bits": (broken_packed(2, 255), "bitmask stores 10 elements, but nnz is 3"),
}


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("which", ["src", "weights"])
@pytest.mark.parametrize(("memory", "text"), BROKEN.values(), ids=BROKEN)
def test_broken_memory_is_an_error_and_nothing_is_written(
    memory: Memory, text: str, which: str, engine: str | None
) -> None:
    dense = {"src": (2, 3), "weights": (4, 2)}
    descs: dict[str, Any] = {name: any_of(dims) for name, dims in dense.items()} | {which: memory.desc}
    matmul = primitives.MatMul(**descs, engine=engine)
    memories = {
        name: pack(np.ones(dims, np.float32), matmul.desc(name)) for name, dims in dense.items() if name != which
    }
    dst = pack(np.full(matmul.dst_desc.dims, 7, np.float32), matmul.dst_desc)
    with raises_exactly(InvalidArguments, text):
        matmul(**memories, **{which: memory}, dst=dst)
    assert (dst.unpack() == 7).all()


@ENGINES
def test_memory_is_checked_at_each_run(engine: str) -> None:
    rows = broken_csr([1, 0], [0, 1, 1, 2])
    matmul = primitives.MatMul(rows.desc, any_of((4, 2)), engine=engine)
    weights, dst = pack(np.ones((4, 2), np.float32), matmul.weights_desc), Memory(matmul.dst_desc)
    run = matmul.bind(src=rows, weights=weights, dst=dst)
    run()
    matmul(src=rows, weights=weights, dst=dst)
    rows.buffers[1].view(np.int32)[0] = 1 << 30
    for again in (run, lambda: matmul(src=rows, weights=weights, dst=dst)):
        with raises_exactly(InvalidArguments, f"entry 0 has coordinate {1 << 30} along axis 1 (b): its dim is 4"):
            again()


def test_a_stored_element_of_the_padding_is_an_error() -> None:
    memory = pack(np.eye(3, 4, dtype=np.float32), MemoryDesc.packed((3, 4), "f32", 4, "aB64b"))
    memory.buffers[0].view(np.float32)[3] = 1
    memory.buffers[2][23] = 1
    text = (
        "bitmask marks an element of the padding of MemoryDesc.packed((3, 4), 'f32', 4, tag='aB64b'): padding stores "
        "no elements"
    )
    with raises_exactly(InvalidArguments, text):
        memory.unpack()


def test_sums_over_no_elements_are_the_bias() -> None:
    empty = Memory(MemoryDesc.csr((2, 0), "f32", 0))
    matmul = primitives.MatMul(empty.desc, any_of((0, 3)), MemoryDesc((1, 3), "f32", "ab"))
    found = matmul(src=empty, weights=Memory(matmul.weights_desc), bias=pack(np.array([[1, 2, 3]], np.float32), "ab"))
    assert found.unpack().tolist() == [[1, 2, 3], [1, 2, 3]]
