"""Products with a sparse factor: results are those of SciPy and NumPy on each engine; broken memory is an error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

import inlay
from inlay import Memory, MemoryDesc, pack, primitives, reorder
from inlay.errors import InvalidArguments
from inlay.memory import sparse
from inlay.primitives import PrimitiveAttributes, attributes
from tests.oracles import onednn as oracle

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))
ENGINES = pytest.mark.parametrize("engine", ["reference", pytest.param("onednn", marks=needs_onednn)])
EPSILON = float(np.finfo(np.float32).eps)


def any_of(dims: tuple[int, ...], data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, "any")


def random_csr(rng: np.random.Generator, rows: int, columns: int) -> Any:
    """Return a random matrix with empty, sparse and full rows."""
    share = rng.choice([0.0, 0.03, 0.2, 1.0])
    matrix = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < share)
    matrix[rng.random(rows) < 0.2] = 0
    return scipy.sparse.csr_array(matrix.astype(np.float32))


def csr_memory(array: Any) -> Memory:
    """Return memory on the buffers of a `csr_array`."""
    desc = MemoryDesc.csr(array.shape, array.dtype.name, array.nnz)
    return Memory(desc, [array.data, array.indices.astype(np.int32), array.indptr.astype(np.int32)])


def coo_memory(array: Any) -> Memory:
    points = array.tocoo()
    desc = MemoryDesc.coo(array.shape, array.dtype.name, array.nnz)
    return Memory(desc, [points.data, *(along.astype(np.int32) for along in points.coords)])


def multiply(src: Memory | npt.NDArray[Any], weights: Memory | npt.NDArray[Any], **more: Any) -> npt.NDArray[Any]:
    """Multiply by a primitive; arrays are packed to the format that it chooses."""
    left, right = (m.desc if isinstance(m, Memory) else any_of(m.shape, str(m.dtype)) for m in (src, weights))
    product = primitives.MatMul(left, right, **more)
    memories = {
        name: m if isinstance(m, Memory) else pack(m, product.desc(name))
        for name, m in (("src", src), ("weights", weights))
    }
    found: npt.NDArray[Any] = product(**memories).unpack()
    return found


def has_descriptor(engine: str, desc: MemoryDesc) -> bool:
    """Return whether an engine supports descriptors of this encoding; all releases of oneDNN support CSR."""
    if engine == "reference" or desc.sparse_encoding == "csr":
        return True
    return hasattr(oracle.library(), f"dnnl_memory_desc_create_with_{desc.sparse_encoding}_encoding")


# Numbers


@ENGINES
@pytest.mark.parametrize("memory_of", [csr_memory, coo_memory])
def test_a_product_is_scipys(engine: str, memory_of: Callable[[Any], Memory]) -> None:
    if not has_descriptor(engine, memory_of(scipy.sparse.csr_array(np.eye(2, dtype=np.float32))).desc):
        pytest.skip("this oneDNN has no such descriptors")
    rng = np.random.default_rng(20)
    for _ in range(200):
        m, k, n = (int(extent) for extent in rng.integers(1, 80, 3))
        kept, dense = random_csr(rng, m, k), rng.normal(size=(k, n)).astype(np.float32)
        bound = EPSILON * (k + 1) * (abs(kept) @ abs(dense))
        found = multiply(memory_of(kept), dense, engine=engine)
        assert (abs(found - kept.astype(np.float64) @ dense.astype(np.float64)) <= bound).all()
        turned = kept.T.tocsr()
        found = multiply(dense.T, memory_of(turned), engine=engine)
        assert (abs(found - dense.T.astype(np.float64) @ turned.astype(np.float64)) <= bound.T).all()


@needs_onednn
def test_onednn_computes_csr_of_f32() -> None:
    rows = csr_memory(scipy.sparse.csr_array(np.eye(4, dtype=np.float32)))
    assert primitives.MatMul(rows.desc, any_of((4, 5))).engine.name.startswith("onednn")
    assert primitives.MatMul(any_of((5, 4)), rows.desc).engine.name.startswith("onednn")


@needs_onednn
def test_halves_are_rounded_once() -> None:
    """A sum of 4096 ones in f16 stands still at 2048 where each partial sum is rounded."""
    ones = np.ones((1, 4096), np.float16)
    for src, weights in ((sparse.to_csr(ones), ones.T), (ones, sparse.to_csr(ones.T))):
        assert multiply(src, weights).tolist() == [[4096.0]]


@ENGINES
@pytest.mark.parametrize("which", ["src", "weights"])
def test_elements_that_are_not_stored_contribute_nothing(engine: str, which: str) -> None:
    few = csr_memory(scipy.sparse.csr_array(np.array([[0, 2], [0, 0]], np.float32)))
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
    product = primitives.MatMul(memories["src"].desc, memories["weights"].desc, dst=any_of((6, 9), "f32"))
    assert np.array_equal(product(**memories).unpack(), arrays["src"] @ arrays["weights"])


def in_rows(dims: tuple[int, ...], data_type: str) -> MemoryDesc:
    """Return a row-major descriptor whose rows start at whole bytes."""
    return MemoryDesc(dims, data_type, strides=(dims[1] + dims[1] % 2, 1))


@pytest.mark.parametrize("which", ["src", "weights"])
def test_batches_of_coo_are_broadcast(which: str) -> None:
    rng = np.random.default_rng(4)
    left = (rng.normal(size=(3, 1, 4, 5)) * (rng.random((3, 1, 4, 5)) < 0.4)).astype(np.float32)
    right = (rng.normal(size=(1, 2, 5, 6)) * (rng.random((1, 2, 5, 6)) < 0.4)).astype(np.float32)
    expected = left.astype(np.float64) @ right
    src: Any = sparse.to_coo(left) if which == "src" else left
    weights: Any = sparse.to_coo(right) if which == "weights" else right
    assert np.allclose(multiply(src, weights), expected, atol=1e-5)


@pytest.mark.parametrize("which", ["src", "weights"])
def test_bias_scales_and_post_operations_follow(which: str) -> None:
    rng = np.random.default_rng(5)
    left, right = rng.normal(size=(4, 7)).astype(np.float32), rng.normal(size=(7, 3)).astype(np.float32)
    (left if which == "src" else right)[rng.random((4, 7) if which == "src" else (7, 3)) < 0.6] = 0
    bias, before = rng.normal(size=(1, 3)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    scales = np.array([2, 3, 5], np.float32)
    memories = {"src": pack(left, "ab"), "weights": pack(right, "ab")}
    memories[which] = sparse.to_csr(memories[which])
    wanted = PrimitiveAttributes(
        scales={"weights": inlay.Scales(mask=0b10)},
        post_ops=(attributes.SumPostOp(0.5), attributes.EltwisePostOp("relu")),
    )
    product = primitives.MatMul(
        memories["src"].desc, memories["weights"].desc, MemoryDesc((1, 3), "f32", "ab"), attributes=wanted
    )
    dst = pack(before, product.dst_desc)
    product(**memories, bias=pack(bias, product.bias_desc), weights_scales=scales, dst=dst)
    assert np.allclose(dst.unpack(), np.maximum(left @ (right * scales) + bias + before / 2, 0), atol=1e-5)


@pytest.mark.parametrize("shape", [(6,), (3, 2), (3, 2, 2)])
@pytest.mark.parametrize("which", ["src", "weights"])
@pytest.mark.parametrize("encoding", ["csr", "coo", "packed"])
def test_an_inner_product_with_a_sparse_factor(shape: tuple[int, ...], which: str, encoding: str) -> None:
    if encoding == "csr" and len(shape) > 1:
        pytest.skip("CSR has rows and columns only")
    rng = np.random.default_rng(6)
    images, weights = (
        np.where(rng.random((n, *shape)) < 0.4, rng.normal(size=(n, *shape)), 0).astype(np.float32) for n in (5, 4)
    )
    arrays = {"src": images, "weights": weights, "bias": np.arange(4, dtype=np.float32)}
    count = int(np.count_nonzero(arrays[which]))
    describe: Any = getattr(MemoryDesc, encoding)
    descs: dict[str, Any] = {name: any_of(array.shape) for name, array in arrays.items()}
    descs[which] = describe(arrays[which].shape, "f32", count)
    product = primitives.InnerProduct(**descs)
    found = product(**{name: pack(array, product.desc(name)) for name, array in arrays.items()}).unpack()
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
        product = primitives.MatMul(
            any_of((m, k), src_type), MemoryDesc.packed((k, n), weights_type, nnz), dst=any_of((m, n), "f32")
        )
        assert product.weights_desc.sparse_encoding == "packed"
        assert product.weights_desc.num_handles == 3
        assert product.weights_desc.sizes[0] == nnz * (pack(right, "ab", weights_type).desc.size // (k * n))
        kept = reorder(pack(right, "ab", weights_type), product.weights_desc)
        assert np.array_equal(kept.unpack(), right)
        src = reorder(pack(left, "ab"), product.src_desc)
        assert np.array_equal(product(src=src, weights=kept).unpack(), left @ right)


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
    array = (rng.normal(size=(19, 70)) * (rng.random((19, 70)) < 0.2)).astype(np.float32)
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
    product = primitives.MatMul(any_of((2, 8)), weights)
    assert product.weights_desc == weights
    matrix = np.diag(np.arange(8, dtype=np.float32))[:, :4]
    ones = pack(np.ones((2, 8), np.float32), product.src_desc)
    assert product(src=ones, weights=pack(matrix, weights)).unpack().tolist() == [[0, 1, 2, 3]] * 2


# Reorders as primitives


def test_reorder_supports_all_sparse_encodings() -> None:
    array = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
    descs = [
        MemoryDesc((3, 4), "f32", "ba"),
        MemoryDesc.csr((3, 4), "f32", 2),
        MemoryDesc.coo((3, 4), "f32", 2, "s64"),
        MemoryDesc.packed((3, 4), "f32", 2, "aB64b"),
    ]
    for src in descs:
        for dst in descs:
            for engine in (None, "reference"):
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
    "negative": (broken_csr([-1, 0], [0, 1, 1, 2]), "entry 0 has coordinate -1 along axis 1 (b): its dim is 4"),
    "falls": (
        broken_csr([1, 0], [0, 2, 1, 2]),
        "pointers[2] is 1, less than pointers[1], which is 2: each row starts where the one before it ends",
    ),
    "begin": (broken_csr([1, 0], [1, 1, 1, 2]), "pointers[0] is 1: the first row starts at entry 0"),
    "end": (
        broken_csr([1, 0], [0, 1, 1, 2000000000]),
        "pointers[3] is 2000000000, but nnz is 2: the last row ends with the values",
    ),
    "twice": (
        broken_csr([1, 1], [0, 2, 2, 2]),
        "entries 0 and 1 are both for element (0, 1): each is stored once; add them up first, as sum_duplicates() of "
        "SciPy and coalesce() of torch do",
    ),
    "order": (
        broken_csr([2, 1], [0, 2, 2, 2]),
        "entry 1 is for element (0, 1), after one for (0, 2): entries are in row-major order; "
        "inlay.reorder(memory, memory.desc) sorts them",
    ),
    "rows": (
        Memory(
            MemoryDesc.coo((3, 4), "f32", 2),
            [np.ones(2, np.float32), np.array([2, 0], np.int32), np.array([0, 0], np.int32)],
        ),
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
    product = primitives.MatMul(**descs, engine=engine)
    memories = {
        name: pack(np.ones(dims, np.float32), product.desc(name)) for name, dims in dense.items() if name != which
    }
    dst = pack(np.full(product.dst_desc.dims, 7, np.float32), product.dst_desc)
    with pytest.raises(InvalidArguments) as refused:
        product(**memories, **{which: memory}, dst=dst)
    assert str(refused.value) == text
    assert (dst.unpack() == 7).all()


@ENGINES
def test_memory_is_checked_at_each_run(engine: str) -> None:
    rows = broken_csr([1, 0], [0, 1, 1, 2])
    product = primitives.MatMul(rows.desc, any_of((4, 2)), engine=engine)
    weights, dst = pack(np.ones((4, 2), np.float32), product.weights_desc), Memory(product.dst_desc)
    run = product.bind(src=rows, weights=weights, dst=dst)
    run()
    product(src=rows, weights=weights, dst=dst)
    rows.buffers[1].view(np.int32)[0] = 1 << 30
    for again in (run, lambda: product(src=rows, weights=weights, dst=dst)):
        with pytest.raises(InvalidArguments) as refused:
            again()
        assert str(refused.value) == f"entry 0 has coordinate {1 << 30} along axis 1 (b): its dim is 4"


def test_a_stored_element_of_the_padding_is_an_error() -> None:
    memory = pack(np.eye(3, 4, dtype=np.float32), MemoryDesc.packed((3, 4), "f32", 4, "aB64b"))
    memory.buffers[0].view(np.float32)[3] = 1
    memory.buffers[2][23] = 1
    with pytest.raises(InvalidArguments) as refused:
        memory.unpack()
    assert str(refused.value) == (
        "bitmask stores an element of the padding of MemoryDesc.packed((3, 4), 'f32', 4, tag='aB64b'), which is zero"
    )


def test_sums_over_no_elements_are_the_bias() -> None:
    empty = Memory(MemoryDesc.csr((2, 0), "f32", 0))
    product = primitives.MatMul(empty.desc, any_of((0, 3)), MemoryDesc((1, 3), "f32", "ab"))
    found = product(src=empty, weights=Memory(product.weights_desc), bias=pack(np.array([[1, 2, 3]], np.float32), "ab"))
    assert found.unpack().tolist() == [[1, 2, 3], [1, 2, 3]]
