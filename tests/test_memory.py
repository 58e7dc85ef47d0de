"""The laws of memory: buffers are wrapped without a copy or refused, packed arrays come back bit for bit."""

import array
import ctypes
import gc
import mmap
import threading
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments, OutOfMemory, Unimplemented
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.memory import Memory, Reorder, pack, reorder
from inlay.memory.buffers import allocate
from inlay.testing import descriptors, reorder_problems

SOME = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS = MemoryDesc((2, 3), "f32", "ab")
COLUMNS = MemoryDesc((2, 3), "f32", "ba")


def noise(dims: tuple[int, ...], name: str, seed: int = 0) -> npt.NDArray[Any]:
    """A logical array of all bit patterns of a type."""
    kind = DATA_TYPES[name]
    size = int(np.prod(dims))
    if kind.is_sub_byte:
        codes = np.random.default_rng(seed).integers(0, 16, dims)
        if kind.kind == "signed":
            return (codes - 8).astype(np.int8).astype(kind.numpy)
        return codes.astype(np.uint8).view(kind.numpy)
    raw = np.random.default_rng(seed).integers(0, 256, size * kind.itemsize, np.uint8)
    return raw.view(kind.numpy).reshape(dims)


def bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of an array: equal exactly when every bit is, NaNs included."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def same(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> bool:
    return (one.shape, one.dtype) == (two.shape, two.dtype) and bits(one).tobytes() == bits(two).tobytes()


class TestPack:
    @SOME
    @given(descriptors(), st.integers(0, 9))
    def test_unpack_undoes_pack_bit_for_bit(self, desc: MemoryDesc, seed: int) -> None:
        assert desc.data_type is not None
        values = noise(desc.dims, desc.data_type.name, seed)
        assert same(pack(values, desc).unpack(), values)

    @SOME
    @given(descriptors(), st.integers(0, 9))
    def test_every_element_lies_at_its_offset_and_all_else_is_zero(self, desc: MemoryDesc, seed: int) -> None:
        assert desc.data_type is not None
        if desc.data_type.is_sub_byte or 0 in desc.dims:
            return
        values = noise(desc.dims, desc.data_type.name, seed)
        memory = pack(values, desc)
        width = desc.data_type.itemsize
        held = memory.buffer[: memory.buffer.size // width * width].view(f"u{width}").copy()
        points = np.indices(desc.dims).reshape(desc.ndims, -1).T
        offsets = desc.offset(points)
        assert held[offsets].tolist() == bits(values).view(f"u{width}").tolist()
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
        values = view(noise((2, 17, 3, 5), "f32"))
        kept = values.copy()
        assert same(pack(values, format).unpack(), kept)
        assert same(values.copy(), kept)

    def test_a_window_whose_elements_overlap_is_packed(self) -> None:
        window = np.lib.stride_tricks.sliding_window_view(np.arange(10, dtype=np.float32), 3)
        assert same(pack(window, "ba").unpack(), window.copy())

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

    def test_negative_integers_of_4_bits(self) -> None:
        values = np.arange(-8, 8).astype(np.int8).astype(ml_dtypes.int4)
        assert pack(values, "a").unpack().astype(int).tolist() == list(range(-8, 8))

    def test_floats_of_4_bits(self) -> None:
        values = np.array([0.5, -6, 3, -0.0], np.float32).astype(ml_dtypes.float4_e2m1fn)
        assert pack(values, "a").unpack().astype(np.float32).tolist() == [0.5, -6, 3, -0.0]


class TestWrap:
    @pytest.mark.parametrize(
        "buffer",
        [
            np.arange(6, dtype=np.float32),
            np.arange(6, dtype=np.float32).reshape(3, 2).T,
            np.arange(6, dtype=np.float32).view(np.uint8),
            array.array("f", range(6)),
            bytearray(np.arange(6, dtype=np.float32).tobytes()),
            memoryview(bytearray(np.arange(6, dtype=np.float32).tobytes())),
            (ctypes.c_float * 6)(*range(6)),
        ],
        ids=["array", "fortran", "raw", "array.array", "bytearray", "memoryview", "ctypes"],
    )
    def test_a_buffer_is_seen_not_copied(self, buffer: Any) -> None:
        memory = Memory(ROWS, buffer)
        assert memory.unpack().tolist() == [[0, 1, 2], [3, 4, 5]]
        reorder(pack(np.full((2, 3), 7, np.float32), "ab"), ROWS, out=memory)
        back = buffer if isinstance(buffer, np.ndarray) else np.array(memoryview(buffer))
        flat = back.T.reshape(-1) if back.flags.f_contiguous else back
        assert flat.view(np.float32).tolist() == [7] * 6

    def test_array_interface_and_dlpack_are_seen_not_copied(self) -> None:
        held = np.arange(6, dtype=np.float32)

        class Interface:
            __array_interface__ = held.__array_interface__

        class Exchange:
            def __dlpack__(self, **options: Any) -> Any:
                return held.__dlpack__(**options)

            def __dlpack_device__(self) -> Any:
                return held.__dlpack_device__()

        for owner in (Interface(), Exchange()):
            memory = Memory(ROWS, owner)
            held[1] = 40
            assert memory.unpack().tolist() == [[0, 40, 2], [3, 4, 5]]
            assert memory.address == held.ctypes.data
            held[1] = 1

    @pytest.mark.parametrize("name", ["bf16", "f8_e5m2", "f8_e4m3", "e8m0"])
    def test_ml_dtypes_are_seen_not_copied(self, name: str) -> None:
        values = noise((6,), name)
        memory = Memory(MemoryDesc((2, 3), name, "ab"), values)
        assert same(memory.unpack(), values.reshape(2, 3))
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
        assert same(reorder(memory, dst).unpack(), memory.unpack())

    def test_a_tag_keeps_the_type(self) -> None:
        memory = reorder(pack(np.ones((2, 17, 3, 3), ml_dtypes.bfloat16), "nchw"), "nChw16c")
        assert repr(memory.desc) == "MemoryDesc((2, 17, 3, 3), 'bf16', 'aBcd16b')"

    def test_any_takes_the_format_of_the_source(self) -> None:
        blocked = pack(noise((2, 17, 3, 3), "f32"), "nChw16c")
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
        values = [noise((70, 130), "f32", seed) for seed in range(4)]
        results = [Memory(dst) for _ in values]

        def work(i: int) -> None:
            for _ in range(20):
                run(Memory(src, values[i]), results[i])

        workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert all(same(result.unpack(), value) for result, value in zip(results, values, strict=True))

    def test_equal_descriptors_serve_as_well_as_the_same(self) -> None:
        run = Reorder(ROWS, COLUMNS)
        src = Memory(MemoryDesc((2, 3), "f32"), np.arange(6, dtype=np.float32))
        out = Memory(MemoryDesc((2, 3), "f32", strides=(1, 2)))
        run(src, out)
        assert out.unpack().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert (run.src, run.dst) == (ROWS, COLUMNS)

    def test_a_repeated_call_costs_less_than_10_us(self) -> None:
        run, src, dst = Reorder(ROWS, COLUMNS), Memory(ROWS), Memory(COLUMNS)
        # The least of many: a shared machine delays some calls, never all.
        best = min(timeit.repeat(lambda: run(src, dst), number=100, repeat=50)) / 100
        assert best < 10e-6

    def test_explain_tells_both_sides(self) -> None:
        assert "f32 -> f32" in Reorder(ROWS, COLUMNS).explain()
        nibbles = MemoryDesc((2, 4), "s4", "ab"), MemoryDesc((2, 4), "s4", "ba")
        assert Reorder(*nibbles).explain() == (
            "s4::blocked:ab::f0 -> s4::blocked:ba::f0\n  elements of 4 bits, moved coordinate by coordinate"
        )

    def test_repr_shows_descriptor_and_bytes(self) -> None:
        assert repr(Memory(ROWS)) == "<Memory of MemoryDesc((2, 3), 'f32', 'ab'), 24 bytes>"


def read_only() -> npt.NDArray[np.float32]:
    held = np.zeros(6, np.float32)
    held.flags.writeable = False
    return held


def misaligned() -> npt.NDArray[np.uint8]:
    held = np.zeros(64, np.uint8)
    return held[1 - held.ctypes.data % 4 :][:24]


SHARED = np.zeros(9, np.float32)
THREE = pack(np.zeros((2, 3), np.float32), "ab")
NIBBLES = MemoryDesc((2, 4), "s4", "ab")
REPEATED = MemoryDesc((2, 4), "s4", strides=(0, 1))
BELOW = MemoryDesc.from_layout(Layout((4, 2), (Axis(-4, (Digit(2, 2),)), Axis(1))), "u8")

MISTAKES: list[tuple[str, Callable[[], object], type[InlayError], str]] = [
    (
        "desc_is_text",
        lambda: Memory("nchw"),  # type: ignore[arg-type]
        InvalidArguments,
        "desc is 'nchw': describe the memory first, as in MemoryDesc((2, 3), 'f32', 'ab')",
    ),
    (
        "kind_any",
        lambda: Memory(MemoryDesc((2, 3), "f32", "any")),
        InvalidArguments,
        "memory needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any; "
        "give a format tag, or ask a primitive which format it takes",
    ),
    (
        "kind_undef",
        lambda: Memory(MemoryDesc()),
        InvalidArguments,
        "memory needs a layout: MemoryDesc() is of kind undef; it describes nothing",
    ),
    (
        "kind_host_scalar",
        lambda: Memory(MemoryDesc.host_scalar("f32")),
        InvalidArguments,
        "memory needs a layout: MemoryDesc.host_scalar('f32') is of kind host_scalar; "
        "its value is passed with the call",
    ),
    (
        "runtime",
        lambda: Memory(MemoryDesc((RUNTIME, 3), "f32", strides=(RUNTIME, 1))),
        Unimplemented,
        "memory needs known dims and strides: MemoryDesc((RUNTIME, 3), 'f32', strides=(RUNTIME, 1)) has RUNTIME ones, "
        "bind them first",
    ),
    (
        "below_the_start",
        lambda: Memory(BELOW),
        InvalidArguments,
        f"{BELOW!r} reaches 4 elements below the start of its buffer: give it a larger offset0",
    ),
    (
        "too_small",
        lambda: Memory(ROWS, np.zeros(5, np.float32)),
        InvalidArguments,
        "buffer of 20 bytes is too small: MemoryDesc((2, 3), 'f32', 'ab') reaches 24 bytes",
    ),
    (
        "too_small_for_offset0",
        lambda: Memory(MemoryDesc((4, 6), "f32").submemory((2, 3), (2, 3)), np.zeros(23, np.float32)),
        InvalidArguments,
        f"buffer of 92 bytes is too small: {MemoryDesc((4, 6), 'f32').submemory((2, 3), (2, 3))!r} reaches 96 bytes",
    ),
    (
        "too_small_for_padding",
        lambda: Memory(MemoryDesc((1, 17), "u8", "aB8b"), bytes(17)),
        InvalidArguments,
        "buffer of 17 bytes is too small: MemoryDesc((1, 17), 'u8', 'aB8b') reaches 24 bytes",
    ),
    (
        "wrong_type",
        lambda: Memory(ROWS, np.zeros(6)),
        InvalidArguments,
        "buffer holds float64, the descriptor f32 (float32): convert it with astype, or pass raw bytes with view('u1')",
    ),
    (
        "wrong_byte_order",
        lambda: Memory(ROWS, np.zeros(6, ">f4")),
        InvalidArguments,
        "buffer holds >f4, the descriptor f32 (float32): convert it with astype, or pass raw bytes with view('u1')",
    ),
    (
        "integers_of_4_bits_in_bytes",
        lambda: Memory(NIBBLES, np.zeros(8, ml_dtypes.int4)),
        InvalidArguments,
        "buffer holds int4, one element in a byte, and s4 memory two: "
        "pass its bytes as uint8, or make the memory with inlay.pack",
    ),
    (
        "not_contiguous",
        lambda: Memory(ROWS, np.zeros(12, np.float32)[::2]),
        InvalidArguments,
        "buffer of shape (6,) and byte strides (8,) is not contiguous: wrap the array it is a view of, "
        "or move its elements with inlay.pack",
    ),
    (
        "no_buffer",
        lambda: Memory(ROWS, [0.0] * 6),
        InvalidArguments,
        "buffer of type list cannot be wrapped "
        "(it has neither the buffer protocol, nor __array_interface__, nor DLPack): "
        "pass a NumPy array or bytes",
    ),
    (
        "scalar_buffer",
        lambda: Memory(MemoryDesc((1,), "f32"), np.float32(3)),
        InvalidArguments,
        "buffer of type float32 cannot be wrapped (a NumPy scalar has no memory of its own): "
        "pass a NumPy array or bytes",
    ),
    (
        "misaligned",
        lambda: Memory(ROWS, misaligned()),
        InvalidArguments,
        "buffer starts at an address that is no multiple of the 4 bytes of f32: copy it to an array of its own",
    ),
    (
        "no_room",
        lambda: Memory(MemoryDesc((2**58,), "u8")),
        OutOfMemory,
        "288230376151711744 bytes cannot be allocated: reorder in parts (`submemory`), or give a memory-mapped buffer",
    ),
    (
        "read_only_destination",
        lambda: reorder(THREE, ROWS, out=Memory(ROWS, read_only())),
        InvalidArguments,
        "the destination is read-only: give a writable buffer, or none to have one allocated",
    ),
    (
        "bytes_as_destination",
        lambda: Reorder(ROWS, ROWS)(THREE, Memory(ROWS, bytes(24))),
        InvalidArguments,
        "the destination is read-only: give a writable buffer, or none to have one allocated",
    ),
    (
        "in_place",
        lambda: reorder(THREE, "ba", out=Memory(COLUMNS, THREE.buffer)),
        InvalidArguments,
        "source and destination share 24 bytes of memory: a reorder is not done in place, give another buffer",
    ),
    (
        "partly_in_place",
        lambda: Reorder(ROWS, COLUMNS)(Memory(ROWS, SHARED[:6]), Memory(COLUMNS, SHARED[3:])),
        InvalidArguments,
        "source and destination share 12 bytes of memory: a reorder is not done in place, give another buffer",
    ),
    (
        "overlapping_destination",
        lambda: reorder(THREE, MemoryDesc((2, 3), "f32", strides=(0, 1))),
        InvalidArguments,
        "elements of the destination overlap: give every element an offset of its own",
    ),
    (
        "overlapping_destination_of_4_bits",
        lambda: reorder(Memory(NIBBLES), REPEATED),
        InvalidArguments,
        "elements of the destination overlap: give every element an offset of its own",
    ),
    (
        "other_dims",
        lambda: reorder(THREE, MemoryDesc((3, 2), "f32")),
        InvalidArguments,
        "a reorder keeps the dims: source (2, 3), destination (3, 2)",
    ),
    (
        "other_dims_of_4_bits",
        lambda: reorder(Memory(NIBBLES), MemoryDesc((4, 2), "s4")),
        InvalidArguments,
        "a reorder keeps the dims: source (2, 4), destination (4, 2)",
    ),
    (
        "no_conversion",
        lambda: reorder(THREE, MemoryDesc((2, 3), "f64")),
        Unimplemented,
        "no conversion f32 -> f64: conversions exist among bf16, f16, f32, s32, s8, u8",
    ),
    (
        "array_as_source",
        lambda: reorder(np.zeros(6), "ba"),  # type: ignore[arg-type]
        InvalidArguments,
        "src is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
    (
        "array_as_out",
        lambda: reorder(THREE, "ba", out=np.zeros(6)),  # type: ignore[arg-type]
        InvalidArguments,
        "out is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
    (
        "array_to_reorder",
        lambda: Reorder(ROWS, COLUMNS)(np.zeros(6), Memory(COLUMNS)),  # type: ignore[arg-type]
        InvalidArguments,
        "src is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
    (
        "out_of_another_descriptor",
        lambda: reorder(THREE, "ba", out=Memory(ROWS)),
        InvalidArguments,
        "out is MemoryDesc((2, 3), 'f32', 'ab'), but the destination is MemoryDesc((2, 3), 'f32', 'ba'): "
        "give both the same descriptor",
    ),
    (
        "other_source_than_compiled",
        lambda: Reorder(ROWS, COLUMNS)(Memory(COLUMNS), Memory(COLUMNS)),
        InvalidArguments,
        "the source is MemoryDesc((2, 3), 'f32', 'ba'), but this reorder was compiled for "
        "MemoryDesc((2, 3), 'f32', 'ab'): make one for it",
    ),
    (
        "other_destination_than_compiled",
        lambda: Reorder(ROWS, COLUMNS)(Memory(ROWS), Memory(ROWS)),
        InvalidArguments,
        "the destination is MemoryDesc((2, 3), 'f32', 'ab'), but this reorder was compiled for "
        "MemoryDesc((2, 3), 'f32', 'ba'): make one for it",
    ),
    (
        "reorder_of_text",
        lambda: Reorder("ab", "ba"),  # type: ignore[arg-type]
        InvalidArguments,
        "src is 'ab': a Reorder is made from two MemoryDescs; inlay.reorder(memory, 'nhwc') takes a tag",
    ),
    (
        "pack_a_scalar",
        lambda: pack(np.float32(3), "a"),
        InvalidArguments,
        "array is a scalar, which has no axes to place: give it one with reshape(1)",
    ),
    (
        "pack_a_scalar_array",
        lambda: pack(np.array(3.0), "a"),
        InvalidArguments,
        "array is a scalar, which has no axes to place: give it one with reshape(1)",
    ),
    (
        "pack_text",
        lambda: pack("image.png", "nchw"),
        InvalidArguments,
        "array is of type str, which says no data type: give an array, as np.asarray(values, np.float32) is",
    ),
    (
        "pack_lists",
        lambda: pack([[1, 2], [3, 4]], "ab"),
        InvalidArguments,
        "array is of type list, which says no data type: give an array, as np.asarray(values, np.float32) is",
    ),
    (
        "pack_truth_values",
        lambda: pack(np.zeros((2, 3), bool), "ab"),
        InvalidArguments,
        "no descriptor can be made of data type bool: boolean (code 8) is the result type of comparisons only; "
        "store truth values as u8",
    ),
    (
        "pack_another_byte_order",
        lambda: pack(np.zeros((2, 3), ">f4"), "ab"),
        InvalidArguments,
        "data type >f4 is not in this machine's byte order: convert with array.astype('float32')",
    ),
    (
        "pack_without_format",
        lambda: pack(np.zeros((2, 3), np.float32), (1, 0)),  # type: ignore[arg-type]
        InvalidArguments,
        "format is (1, 0): give a format tag such as 'nChw16c', or a MemoryDesc",
    ),
    (
        "reorder_by_number",
        lambda: reorder(THREE, 16),  # type: ignore[arg-type]
        InvalidArguments,
        "dst is 16: give a format tag such as 'nChw16c', or a MemoryDesc",
    ),
    (
        "pack_other_dims",
        lambda: pack(np.zeros((3, 2), np.float32), ROWS),
        InvalidArguments,
        "array has dims (3, 2), but format MemoryDesc((2, 3), 'f32', 'ab') has (2, 3): give equal dims",
    ),
    (
        "pack_two_types",
        lambda: pack(np.zeros((2, 3), np.float32), ROWS, "bf16"),
        InvalidArguments,
        "data_type is bf16, but format MemoryDesc((2, 3), 'f32', 'ab') is f32: leave one out",
    ),
    (
        "pack_any",
        lambda: pack(np.zeros((2, 3), np.float32), "any"),
        InvalidArguments,
        "memory needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any; "
        "give a format tag, or ask a primitive which format it takes",
    ),
    (
        "pack_to_4_bits",
        lambda: pack(np.zeros((2, 4), np.int8), "ab", "s4"),
        Unimplemented,
        "no conversion s8 -> s4: convert the array with astype(ml_dtypes.int4) before it is packed",
    ),
    (
        "pack_from_4_bits",
        lambda: pack(np.zeros((2, 4), ml_dtypes.int4), "ab", "s8"),
        Unimplemented,
        "no conversion s4 -> s8: convert the array with astype(int8) before it is packed",
    ),
    (
        "device_tensor",
        lambda: Memory(ROWS, OnDevice()),
        InvalidArguments,
        "buffer of type OnDevice cannot be wrapped (unsupported device): pass a NumPy array or bytes",
    ),
]


class OnDevice:
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("unsupported device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


@pytest.mark.parametrize(("mistake", "error", "text"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_told_whole(mistake: Callable[[], object], error: type[InlayError], text: str) -> None:
    with pytest.raises(error) as caught:
        mistake()
    assert str(caught.value) == text
    assert type(caught.value) is error


def test_a_refused_reorder_writes_nothing() -> None:
    out = Memory(COLUMNS, np.full(6, 7, np.float32))
    with pytest.raises(InvalidArguments):
        Reorder(ROWS, COLUMNS)(Memory(COLUMNS), out)
    assert out.unpack().tolist() == [[7] * 3] * 2
