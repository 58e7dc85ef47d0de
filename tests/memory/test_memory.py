"""`Memory`: buffers are wrapped without a copy or refused; unpacked arrays equal packed arrays bit for bit."""

import array
import copy
import ctypes
import gc
import mmap
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Layout
from inlay.memory import Memory, Reorder, pack, reorder
from inlay.memory.buffers import allocate
from inlay.testing import descriptors, reorder_problems
from tests.support.bit_patterns import random_bits, same_bits

SOME = settings(max_examples=100)
ROWS = MemoryDesc((2, 3), "f32", "ab")
COLUMNS = MemoryDesc((2, 3), "f32", "ba")


class TestPack:
    @SOME
    @given(descriptors(), st.integers(0, 9))
    def test_pack_stores_each_element_at_its_offset_and_unpack_undoes_it(self, desc: MemoryDesc, seed: int) -> None:
        assert desc.data_type is not None
        values = random_bits(desc.dims, desc.data_type, seed)
        memory = pack(values, desc)
        assert same_bits(memory.unpack(), values)
        if desc.data_type.is_sub_byte or 0 in desc.dims:
            return
        width = desc.data_type.itemsize
        held = memory.buffer[: memory.buffer.size // width * width].view(f"u{width}").copy()
        offsets = desc.offset(np.indices(desc.dims).reshape(desc.ndims, -1).T)
        assert held[offsets].tobytes() == values.tobytes()
        held[offsets] = 0
        assert not held.any()

    @pytest.mark.parametrize("format", ["abcd", "acdb", "aBcd8b", "aBcd16b"])
    @pytest.mark.parametrize(
        "view",
        [
            lambda a: a,
            lambda a: a[::-1],
            lambda a: a[:, ::-1, :, ::-1],
            lambda a: a[:, ::2],
            lambda a: a.transpose(3, 1, 0, 2),
            lambda a: np.broadcast_to(a[:, :1], a.shape),
            lambda a: np.asfortranarray(a),
            lambda a: np.lib.stride_tricks.sliding_window_view(a[0, 0, 0], 2).reshape(1, 1, -1, 2),
            lambda a: a[:0],
        ],
    )
    def test_any_view_of_numpy_is_packed(self, view: Callable[[Any], Any], format: str) -> None:
        values = view(random_bits((2, 17, 3, 5), "f32"))
        kept = values.copy()
        assert same_bits(pack(values, format).unpack(), kept)
        assert same_bits(values.copy(), kept)

    def test_a_field_of_records_is_packed(self) -> None:
        records = np.zeros(5, dtype=[("x", "u1"), ("y", "<f4")])
        records["y"] = range(5)
        assert pack(records["y"], "a").unpack().tolist() == [0, 1, 2, 3, 4]

    def test_pack_converts(self) -> None:
        memory = pack(np.array([[0.5, 1.5, 300.0]], np.float32), "aB4b", "u8")
        assert memory.buffer.tolist() == [0, 2, 255, 0]
        assert str(memory.desc) == "u8:p:blocked:aB4b::f0"

    @pytest.mark.parametrize(("name", "kind"), [("s4", ml_dtypes.int4), ("u4", ml_dtypes.uint4)])
    def test_integers_of_4_bits_pack_two_in_a_byte(self, name: str, kind: type) -> None:
        memory = pack(np.array([1, 2, 3], np.int8).astype(kind), "a")
        assert memory.buffer.tolist() == [0x21, 0x03]
        assert memory.unpack().dtype == np.dtype(kind)
        assert memory.unpack().astype(int).tolist() == [1, 2, 3]


class TestWrap:
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda a: a,
            lambda a: a.reshape(3, 2).T,
            lambda a: a.view(np.uint8),
            lambda a: array.array("f", a),
            bytearray,
            lambda a: memoryview(bytearray(a)),
            lambda a: (ctypes.c_float * 6)(*a),
        ],
        ids=["array", "fortran", "raw", "array.array", "bytearray", "memoryview", "ctypes"],
    )
    def test_a_buffer_is_seen_not_copied(self, wrap: Callable[[Any], Any]) -> None:
        buffer = wrap(np.arange(6, dtype=np.float32))
        memory = Memory(ROWS, buffer)
        assert memory.unpack().tolist() == [[0, 1, 2], [3, 4, 5]]
        reorder(pack(np.full((2, 3), 7, np.float32), "ab"), ROWS, out=memory)
        back = buffer if isinstance(buffer, np.ndarray) else np.array(memoryview(buffer))
        flat = back.T.reshape(-1) if back.flags.f_contiguous else back
        assert flat.view(np.float32).tolist() == [7] * 6

    def test_array_interface_and_dlpack_are_seen_not_copied(self) -> None:
        held = np.arange(6, dtype=np.float32)

        interface = SimpleNamespace(__array_interface__=held.__array_interface__)

        class Exchange:
            __dlpack__, __dlpack_device__ = held.__dlpack__, held.__dlpack_device__

        for owner in (interface, Exchange()):
            memory = Memory(ROWS, owner)
            held[1] = 40
            assert memory.unpack().tolist() == [[0, 40, 2], [3, 4, 5]]
            assert memory.address == held.ctypes.data
            held[1] = 1

    @pytest.mark.parametrize("name", ["bf16", "f8_e5m2", "f8_e4m3", "e8m0"])
    def test_ml_dtypes_are_seen_not_copied(self, name: str) -> None:
        values = random_bits((6,), name)
        memory = Memory(MemoryDesc((2, 3), name, "ab"), values)
        assert same_bits(memory.unpack(), values.reshape(2, 3))
        assert memory.address == values.__array_interface__["data"][0]

    def test_a_memory_map_is_wrapped(self, tmp_path: Path) -> None:
        path = tmp_path / "raw"
        np.arange(6, dtype=np.float32).tofile(path)
        with path.open("rb") as file:
            memory = Memory(ROWS, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        assert not memory.is_writable
        assert memory.unpack().tolist() == [[0, 1, 2], [3, 4, 5]]

    def test_a_longer_buffer_is_welcome(self) -> None:
        assert Memory(ROWS, np.zeros(99, np.float32)).buffer.size == 396

    def test_a_buffer_lives_as_long_as_its_memory(self) -> None:
        memories = [Memory(ROWS, np.full(6, i, np.float32)) for i in range(50)]
        gc.collect()
        assert [m.unpack()[0, 0] for m in memories] == list(range(50))

    def test_reaching_is_what_counts_not_size(self) -> None:
        # All-zero strides have size 0 and reach one element; a submemory reaches past its own size.
        broadcast = MemoryDesc((4, 4), "f32", strides=(0, 0))
        assert broadcast.size == 0
        assert Memory(broadcast, np.array([5], np.float32)).unpack().tolist() == [[5] * 4] * 4
        part = MemoryDesc((4, 6), "f32").submemory((2, 3), (2, 3))
        held = np.arange(24, dtype=np.float32)
        assert Memory(part, held).unpack().tolist() == [[15, 16, 17], [21, 22, 23]]

    def test_a_free_digit_order_may_run_backwards(self) -> None:
        layout = Layout((4, 2), (Axis(-4, (Digit(2, 2),)), Axis(1)))
        memory = Memory(MemoryDesc.from_layout(layout, "u8", offset0=4), np.arange(8).astype(np.uint8))
        assert memory.unpack().tolist() == [[4, 5], [6, 7], [0, 1], [2, 3]]

    def test_no_dims_of_a_zero_dim_need_no_bytes(self) -> None:
        memory = Memory(MemoryDesc((0, 3), "f32"), b"")
        assert memory.unpack().shape == (0, 3)


class TestAllocation:
    @SOME
    @given(descriptors())
    def test_new_memory_is_zero_aligned_and_large_enough(self, desc: MemoryDesc) -> None:
        memory = Memory(desc)
        assert memory.address % 64 == 0 or not memory.buffer.size
        assert memory.buffer.size >= desc.size
        assert not memory.buffer.any()
        assert isinstance(desc.layout, Layout)
        assert desc.data_type is not None
        low, high = desc.layout.span
        if low < high:
            assert memory.buffer.size * 8 >= (high + desc.offset0) * desc.data_type.bits

    @pytest.mark.parametrize("nbytes", [1, 63, 64, 2**21 - 1])
    def test_small_memory_starts_at_a_cache_line(self, nbytes: int) -> None:
        assert (allocate(nbytes).size, allocate(nbytes).ctypes.data % 64) == (nbytes, 0)

    @pytest.mark.parametrize("nbytes", [2**21, 2**21 + 1, 5 * 2**20])
    def test_large_memory_starts_at_a_huge_page(self, nbytes: int) -> None:
        buffer = allocate(nbytes)
        assert (buffer.size, buffer.ctypes.data % 2**21, buffer[0], buffer[-1]) == (nbytes, 0, 0, 0)
        buffer[-1] = 1

    def test_large_memory_outlives_its_maker(self) -> None:
        kept = [allocate(2**21)[i : i + 3] for i in range(8)]
        gc.collect()
        for piece in kept:
            piece[:] = 9
        assert all(piece.tolist() == [9, 9, 9] for piece in kept)


class TestReorder:
    @SOME
    @given(reorder_problems(sub_byte=True))
    def test_reorder_keeps_every_element(self, pair: tuple[MemoryDesc, MemoryDesc]) -> None:
        src, dst = pair
        memory = Memory(src)
        memory.buffer[:] = np.random.default_rng(5).integers(0, 256, memory.buffer.size, np.uint8)
        assert same_bits(reorder(memory, dst).unpack(), memory.unpack())

    def test_a_tag_keeps_the_type(self) -> None:
        memory = reorder(pack(np.ones((2, 17, 3, 3), ml_dtypes.bfloat16), "nchw"), "nChw16c")
        assert repr(memory.desc) == "MemoryDesc((2, 17, 3, 3), 'bf16', 'nChw16c')"

    def test_any_takes_the_format_of_the_source(self) -> None:
        blocked = pack(random_bits((2, 17, 3, 3), "f32"), "nChw16c")
        assert reorder(blocked, "any").desc == blocked.desc
        assert reorder(blocked, MemoryDesc((2, 17, 3, 3), "bf16", "any")).desc.tag == "aBcd16b"
        broadcast = Memory(MemoryDesc((2, 3), "f32", strides=(0, 1)))
        assert reorder(broadcast, "any").desc == ROWS

    def test_out_is_written_and_returned(self) -> None:
        out = Memory(COLUMNS)
        src = pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ab")
        assert reorder(src, "ba", out=out) is out
        assert out.buffer.view(np.float32).tolist() == [0, 3, 1, 4, 2, 5]

    def test_a_part_of_a_memory_is_written_through_its_own_memory(self) -> None:
        whole = pack(np.zeros((1, 32, 2, 2), np.float32), "nChw16c")
        part = whole.desc.submemory((1, 16, 2, 2), (0, 16, 0, 0))
        ones = pack(np.ones((1, 16, 2, 2), np.float32), "nchw")
        reorder(ones, part, out=Memory(part, whole.buffer))
        assert whole.unpack().sum(axis=(0, 2, 3)).tolist() == [0] * 16 + [4] * 16

    def test_neighbors_in_one_buffer_may_be_moved(self) -> None:
        held = np.arange(12, dtype=np.float32)
        reorder(Memory(ROWS, held[:6]), "ba", out=Memory(COLUMNS, held[6:]))
        assert held[6:].tolist() == [0, 3, 1, 4, 2, 5]

    def test_one_reorder_serves_many_calls_and_threads(self) -> None:
        src, dst = MemoryDesc((70, 130), "f32", "ab"), MemoryDesc((70, 130), "f32", "BA16a16b")
        run = Reorder(src, dst)
        values = [random_bits((70, 130), "f32", seed) for seed in range(4)]
        results = [Memory(dst) for _ in values]

        def work(i: int) -> None:
            for _ in range(20):
                run(Memory(src, values[i]), results[i])

        with ThreadPoolExecutor(4) as workers:
            list(workers.map(work, range(4)))
        assert all(same_bits(result.unpack(), value) for result, value in zip(results, values, strict=True))

    def test_equal_descriptors_serve_as_well_as_the_same_bits(self) -> None:
        run = Reorder(ROWS, COLUMNS)
        src = Memory(MemoryDesc((2, 3), "f32"), np.arange(6, dtype=np.float32))
        out = Memory(MemoryDesc((2, 3), "f32", strides=(1, 2)))
        run(src, out)
        assert out.unpack().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert (run.src, run.dst) == (ROWS, COLUMNS)

    def test_explain_tells_both_sides(self) -> None:
        assert "f32 -> f32" in Reorder(ROWS, COLUMNS).explain()
        nibbles = MemoryDesc((2, 4), "s4", "ab"), MemoryDesc((2, 4), "s4", "ba")
        assert "s4 -> s4" in Reorder(*nibbles).explain()

    def test_repr_shows_descriptor_and_bytes(self) -> None:
        assert repr(Memory(ROWS)) == "<Memory of MemoryDesc((2, 3), 'f32', 'ab'), 24 bytes>"


each_copy = pytest.mark.parametrize(
    "copied", [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy], ids=["pickle", "deepcopy"]
)


@each_copy
@pytest.mark.parametrize(
    "desc", [MemoryDesc((2, 3), "f32", "ba"), MemoryDesc((5, 3), "f32").submemory((2, 3), (1, 0))], ids=repr
)
def test_a_copy_has_memory_of_its_own(copied: Callable[[Memory], Memory], desc: MemoryDesc) -> None:
    original = pack(np.arange(6, dtype=np.float32).reshape(2, 3), desc)
    twin = copied(original)
    assert not np.shares_memory(twin.buffer, original.buffer)
    reorder(pack(np.full((2, 3), 7, np.float32), "ab"), desc, out=twin)
    assert np.array_equal(twin.unpack(), np.full((2, 3), 7))
    assert np.array_equal(twin.buffer.view(np.float32)[desc.offset((1, 2))], np.float32(7))
    assert np.array_equal(original.unpack(), np.arange(6).reshape(2, 3))


@each_copy
def test_a_copy_of_sparse_memory_has_every_buffer(copied: Callable[[Memory], Memory]) -> None:
    dense = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    original = pack(dense, MemoryDesc.csr((2, 3), "f32", 3))
    twin = copied(original)
    assert np.array_equal(twin.unpack(), dense)
    assert not any(np.shares_memory(a, b) for a, b in zip(twin.buffers, original.buffers, strict=True))


def test_a_shallow_copy_is_another_view_of_the_same_memory() -> None:
    original = pack(np.zeros((2, 3), np.float32), "ab")
    assert copy.copy(original).address == original.address


@each_copy
def test_a_copy_of_a_reorder_moves_the_same_bits(copied: Callable[[Reorder], Reorder]) -> None:
    src, dst = MemoryDesc((2, 3), "f32", "ab"), MemoryDesc((2, 3), "bf16", "ba")
    one, two = pack(np.arange(6, dtype=np.float32).reshape(2, 3), src), Memory(dst)
    copied(Reorder(src, dst))(one, two)
    assert np.array_equal(two.unpack().astype(np.float32), one.unpack())


def test_a_refused_reorder_writes_nothing() -> None:
    out = Memory(COLUMNS, np.full(6, 7, np.float32))
    with pytest.raises(InvalidArguments):
        Reorder(ROWS, COLUMNS)(Memory(COLUMNS), out)
    assert out.unpack().tolist() == [[7] * 3] * 2


OPAQUE = MemoryDesc.opaque((4, 6), "f32", "wino", 1000)


class TestOpaque:
    """Memory of a format whose bytes only its engine can read and write."""

    def test_it_has_as_many_bytes_as_its_engine_needs(self) -> None:
        memory = Memory(OPAQUE)
        assert (memory.buffer.size, memory.end - memory.begin, memory.address % 64) == (1000, 1000, 0)

    @each_copy
    def test_bytes_are_wrapped_without_a_copy(self, copied: Callable[[Memory], Memory]) -> None:
        data = np.arange(1200, dtype=np.uint16).view(np.uint8)
        memory = Memory(OPAQUE, data)
        assert np.shares_memory(memory.buffer, data)
        assert copied(memory).desc == OPAQUE
        assert np.array_equal(copied(memory).buffer, data)

    def test_its_elements_are_neither_read_nor_written(self) -> None:
        for src, dst in ((Memory(OPAQUE), "ab"), (pack(np.zeros((4, 6), np.float32), "ab"), OPAQUE)):
            with pytest.raises(InvalidArguments, match="of a reorder is of kind opaque: give it a layout with addr"):
                reorder(src, dst)
