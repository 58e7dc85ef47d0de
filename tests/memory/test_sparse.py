"""Conversions between sparse and dense memory are exact, for every encoding, data type, order and layout."""

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from inlay import Memory, MemoryDesc, check_padding, pack, reorder, to_coo, to_csr, to_dense
from inlay.data_type import DATA_TYPES, DataType
from inlay.memory import sparse
from inlay.memory.buffers import index_arrays
from inlay.testing import Seeded, data_types, descriptors, draw_sparse_memory, shapes, sparse_memories

MATRIX = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
few = settings(max_examples=60, deadline=None)


def bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements as unsigned integers; of 4-bit types the low half, which alone means something."""
    codes = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    return codes & 15 if array.dtype.name in ("int4", "uint4", "float4_e2m1fn") else codes


def same(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and bool(np.array_equal(bits(one), bits(two)))


def scattered(memory: Memory) -> npt.NDArray[Any]:
    """The dense array, entry by entry: what each encoding means."""
    desc = memory.desc
    assert desc.data_type is not None
    values = memory.buffers[0][: desc.size].view(desc.data_type.dtype)
    dense = np.zeros(desc.dims, f"u{desc.data_type.itemsize}").view(desc.data_type.dtype)
    held = index_arrays(desc, memory.buffers)
    if not desc.nnz:
        return dense
    if desc.sparse_encoding == "csr":
        held = [np.repeat(np.arange(desc.dims[0]), np.diff(held[1])), held[0]]
    dense[tuple(held)] = values
    return dense


@st.composite
def dense_arrays(draw: st.DrawFn, data_type: DataType | None = None, ndims: int | None = None) -> npt.NDArray[Any]:
    """Arrays of any bits, at least half of them zero."""
    element = draw(data_types()) if data_type is None else data_type
    dims = draw(shapes(ndims, max_size=200))
    codes = draw(arrays.arrays(f"u{element.itemsize}", dims, fill=st.just(0)))
    return (codes & 15 if element.is_sub_byte else codes).view(element.dtype)


def views(memory: Memory) -> list[list[int]]:
    """Every buffer of sparse memory but the values, as numbers."""
    return [part.tolist() for part in index_arrays(memory.desc, memory.buffers)]


# Between dense, CSR and COO


@few
@given(dense_arrays(ndims=2))
def test_dense_to_csr_to_coo_to_dense_is_the_identity(array: npt.NDArray[Any]) -> None:
    rows = to_csr(array)
    points = to_coo(rows)
    for memory in (rows, points, to_dense(points), to_csr(points), to_csr(to_dense(rows))):
        assert same(memory.unpack(), array)
    assert rows.desc.nnz == points.desc.nnz == np.count_nonzero(bits(array))
    sparse.check(rows)
    sparse.check(points)


@few
@given(dense_arrays())
def test_coo_holds_any_number_of_dims(array: npt.NDArray[Any]) -> None:
    memory = to_coo(array)
    assert memory.desc.num_handles == array.ndim + 1
    assert same(memory.unpack(), array)
    assert same(scattered(memory), array)


@few
@given(sparse_memories(ordered=False))
def test_unpack_puts_each_entry_where_its_indices_say(memory: Memory) -> None:
    assert same(memory.unpack(), scattered(memory))


@few
@given(sparse_memories(ordered=False), st.data())
def test_any_encoding_becomes_any_other_and_any_layout(memory: Memory, data: st.DataObject) -> None:
    desc = memory.desc
    made = [to_coo(memory), reorder(memory, desc), reorder(memory, "any" if 0 not in desc.dims else desc)]
    if desc.ndims == 2:
        made.append(to_csr(memory))
    for other in made:
        sparse.check(other)
        assert other.desc.nnz == desc.nnz
        assert same(scattered(other), scattered(memory))
    dense = reorder(memory, data.draw(descriptors(desc.dims, desc.data_type)))
    assert same(dense.unpack(), scattered(memory))
    assert check_padding(dense).is_clean


@few
@given(st.data())
def test_elements_are_converted_as_a_dense_reorder_does(data: st.DataObject) -> None:
    src, dst = (data.draw(st.sampled_from(("f32", "bf16", "f16", "s8", "u8", "s32"))) for _ in range(2))
    memory = data.draw(sparse_memories((5, 6), src, ordered=False))
    expected = reorder(to_dense(memory), MemoryDesc((5, 6), dst)).unpack()
    assert same(reorder(memory, MemoryDesc.coo((5, 6), dst, memory.desc.nnz)).unpack(), expected)
    assert same(reorder(memory, MemoryDesc((5, 6), dst, "BA4a2b")).unpack(), expected)
    assert reorder(memory, MemoryDesc((5, 6), dst, "any")).desc.sparse_encoding == memory.desc.sparse_encoding


@few
@given(st.data())
def test_pack_and_reorder_take_sparse_descriptors(data: st.DataObject) -> None:
    array = data.draw(dense_arrays(ndims=2))
    nnz = int(np.count_nonzero(bits(array)))
    desc = MemoryDesc.csr(array.shape, array.dtype, nnz, "s64", "u8" if nnz < 256 else "s32")
    packed = pack(array, desc)
    assert packed.desc == desc
    assert same(scattered(packed), array)
    dense = pack(array, data.draw(descriptors(array.shape, array.dtype)))
    assert same(scattered(reorder(dense, desc)), array)


def test_pack_converts_elements() -> None:
    packed = pack(MATRIX, MemoryDesc.coo((3, 4), "bf16", 2))
    assert same(packed.unpack(), MATRIX.astype(ml_dtypes.bfloat16))


def test_negative_zero_is_stored_and_a_stored_zero_stays() -> None:
    assert to_csr(np.array([[0.0, -0.0]], np.float32)).desc.nnz == 1
    stored = Memory(MemoryDesc.coo((4,), "f32", 1), [np.zeros(1, np.float32), np.array([2], np.int32)])
    assert to_coo(stored).desc.nnz == 1
    assert to_coo(to_dense(stored)).desc.nnz == 0


def test_entries_are_written_in_row_major_order() -> None:
    desc = MemoryDesc.coo((3, 4), "f32", 3)
    held = [np.array([3, 1, 2], np.float32), np.array([2, 0, 2], np.int32), np.array([1, 2, 0], np.int32)]
    memory = Memory(desc, held)
    rows = to_csr(memory)
    assert views(rows) == [[2, 0, 1], [0, 1, 1, 3]]
    assert rows.buffers[0].view(np.float32).tolist() == [1, 2, 3]
    assert views(reorder(memory, desc)) == [[0, 2, 2], [2, 0, 1]]


@pytest.mark.parametrize("dims", [(0, 4), (4, 0), (3, 4), (1, 1)])
def test_matrices_without_entries(dims: tuple[int, int]) -> None:
    empty = np.zeros(dims, np.float32)
    by_hand = Memory(MemoryDesc.csr(dims, "f32", 0), [b"", b"", np.zeros(dims[0] + 1, np.int32)])
    for memory in (to_csr(empty), to_coo(empty), to_csr(to_coo(empty)), by_hand):
        sparse.check(memory)
        assert memory.desc.nnz == 0
        assert same(memory.unpack(), empty)


def test_empty_rows_are_rows() -> None:
    assert views(to_csr(MATRIX)) == [[2, 0], [0, 1, 1, 2]]
    assert views(to_csr(np.array([[0], [0], [1]], np.int8))) == [[0], [0, 0, 0, 1]]


def test_indices_are_as_wide_as_the_dims_need() -> None:
    far = 2**31 + 5
    wide = Memory(MemoryDesc.coo((3, far + 1), "u8", 1, "s64"), [b"\x07", np.array([2]), np.array([far])])
    rows = to_csr(wide)
    assert rows.desc == MemoryDesc.csr((3, far + 1), "u8", 1, "s64")
    assert views(rows) == [[far], [0, 0, 0, 1]]
    assert views(to_coo(rows)) == [[2], [far]]
    huge = Memory(
        MemoryDesc.coo((2**31, 2**31, 1), "u8", 1, "s64"),
        [b"\x07", *(np.array([n]) for n in (2**31 - 1,) * 2), np.array([0])],
    )
    assert views(to_coo(huge)) == [[2**31 - 1], [2**31 - 1], [0]]


# Buffers


def test_buffers_are_wrapped_without_a_copy_and_may_be_longer() -> None:
    values, indices = np.arange(9, dtype=np.float32), np.array([0, 3, *[0] * 7], np.int32)
    pointers = np.array([0, 1, 1, 2, 99], np.int32)
    memory = Memory(MemoryDesc.csr((3, 4), "f32", 2), [values, indices.view(np.uint8), pointers])
    assert all(map(np.shares_memory, memory.buffers, (values, indices, pointers)))
    values[1] = 42
    assert memory.unpack()[2, 3] == 42
    assert memory.address == values.ctypes.data
    assert (memory.begin, memory.end) == (memory.address, memory.address + 8)
    assert repr(memory) == "<Memory of MemoryDesc.csr((3, 4), 'f32', 2), 36 + 36 + 20 bytes>"


def test_new_buffers_have_the_sizes_of_the_descriptor() -> None:
    desc = MemoryDesc.coo((3, 4, 5), "bf16", 7, "s64")
    memory = Memory(desc)
    assert tuple(buffer.size for buffer in memory.buffers) == desc.sizes
    assert memory.is_writable
    assert len({buffer.ctypes.data % 64 for buffer in memory.buffers}) == 1
    assert Memory(MemoryDesc((2, 3), "f32")).buffers[0].size == 24


def test_memory_is_writable_if_every_buffer_is() -> None:
    assert not Memory(MemoryDesc.coo((4,), "u8", 2), [bytearray(2), bytes(8)]).is_writable


def test_values_of_4_bits_lie_one_in_a_byte() -> None:
    desc = MemoryDesc.coo((4,), "s4", 2)
    for values in (
        np.array([-1, 3], ml_dtypes.int4),
        np.array([0xFF, 0x03], np.uint8),
        np.array([0x0F, 0x03], np.uint8),
    ):
        memory = Memory(desc, [values, np.array([1, 3], np.int32)])
        assert memory.unpack().astype(int).tolist() == [0, -1, 0, 3]
        assert to_dense(memory).buffer.tolist() == [0xF0, 0x30]


def test_out_is_filled_and_returned() -> None:
    rows = to_csr(MATRIX)
    out = Memory(MemoryDesc.coo((3, 4), "f32", 2))
    assert reorder(rows, out.desc, out=out) is out
    assert same(out.unpack(), MATRIX)
    dense = Memory(MemoryDesc((3, 4), "f32", "ba"))
    assert reorder(out, dense.desc, out=dense) is dense
    assert same(dense.unpack(), MATRIX)


# SciPy

SCIPY_TYPES = ("f32", "f64", "s8", "u8", "s32", "s64")


@few
@given(dense_arrays(DATA_TYPES["s8"], 2))
def test_csr_and_coo_are_those_of_scipy(array: npt.NDArray[np.int8]) -> None:
    rows, points = to_csr(array), to_coo(array)
    theirs = scipy.sparse.csr_array(array)
    theirs_too = theirs.tocoo()
    assert rows.buffers[0].view(np.int8).tolist() == theirs.data.tolist()
    if array.size:
        assert views(rows) == [theirs.indices.tolist(), theirs.indptr.tolist()]
    assert views(points) == [along.tolist() for along in theirs_too.coords]


@few
@given(st.sampled_from(SCIPY_TYPES), st.data())
def test_scipy_round_trip(name: str, data: st.DataObject) -> None:
    memory = data.draw(sparse_memories(None, name, ordered=False))
    array = sparse.to_scipy(memory)
    assert array.format == memory.desc.sparse_encoding
    assert array.shape == memory.desc.dims
    expected = memory.unpack()
    # SciPy adds what is stored to zeros: -0.0 becomes 0.0.
    assert same(np.asarray(array.toarray()), expected + expected.dtype.type(0))
    back = sparse.from_scipy(array)
    assert same(back.unpack(), memory.unpack())
    assert back.desc.nnz == memory.desc.nnz


def test_scipy_arrays_share_their_memory() -> None:
    for array in (scipy.sparse.csr_array(MATRIX), scipy.sparse.coo_array(MATRIX)):
        memory = sparse.from_scipy(array)
        array.data[0] = 9
        assert memory.unpack()[0, 2] == 9
        again = sparse.to_scipy(memory)
        again.data[1] = 11
        assert array.toarray()[2, 0] == 11


def test_scipys_matrices_and_vectors_are_taken_too() -> None:
    assert sparse.from_scipy(scipy.sparse.coo_matrix(MATRIX)).desc == MemoryDesc.coo((3, 4), "f32", 2)
    vector = sparse.from_scipy(scipy.sparse.csr_array(np.array([0, 3, 0], np.int64)))
    assert vector.desc == MemoryDesc.coo((3,), "s64", 1)
    assert vector.unpack().tolist() == [0, 3, 0]


@pytest.mark.parametrize("narrow", ["s8", "u8"])
def test_scipy_gets_indices_it_can_compute_with(narrow: str) -> None:
    array = sparse.to_scipy(to_csr(MATRIX, index_type=narrow, pointer_type=narrow))
    assert (array @ np.ones(4)).tolist() == [5, 0, 7]


# Laws of the strategies


def test_the_strategy_reaches_what_matters() -> None:
    drawn = [draw_sparse_memory(Seeded(seed), ordered=False) for seed in range(400)]
    rows = [m for m in drawn if m.desc.sparse_encoding == "csr"]
    points = [m for m in drawn if m.desc.sparse_encoding == "coo"]
    assert any(m.desc.nnz > 2 and 0 in np.diff(views(m)[1]) for m in rows)
    assert any(m.desc.ndims > 2 and m.desc.nnz > 1 for m in points)
    assert any(m.desc.nnz == prod(m.desc.dims) > 3 for m in drawn)
    assert any(m.desc.nnz == 0 < prod(m.desc.dims) for m in drawn)
    assert any(0 in m.desc.dims for m in drawn)
    assert any(views(m)[0] != sorted(views(m)[0]) for m in points)
    for seed in range(100):
        sparse.check(draw_sparse_memory(Seeded(seed)))
