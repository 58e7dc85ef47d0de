"""`Memory` as an array: shape, indices and views equal those of the NumPy array that was packed; nothing is copied."""

import io
import pickle
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import inlay
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, InvalidIndex, Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory, pack, reorder
from inlay.testing import descriptors
from tests.support.bit_patterns import random_bits, same_bits
from tests.support.refusals import raises_exactly

SOME = settings(max_examples=50)
BLOCKED = MemoryDesc((2, 17), "f32", "aB8b")


CUT_BLOCK = (
    "axis 1 (b) of the submemory takes 8 from 3, which cuts a block of 8: start at a multiple of 8 and ta"
    "ke a multiple of it, less than one block, or all that follows\n"
    "    dims (2, 16) at offsets (0, 0) work and hold that box; to cut b, reorder to ab first (272 bytes "
    "moved)\n"
    "    m.unpack() copies the elements into an array that NumPy indexes"
)


def packed_bits(desc: MemoryDesc, seed: int = 0) -> tuple[Memory, Any]:
    """Return memory of random elements, and the same elements as an array."""
    assert desc.data_type is not None
    values = random_bits(desc.dims, desc.data_type, seed)
    return pack(values, desc), values


class TestLogicalProperties:
    @SOME
    @given(descriptors())
    def test_shape_type_and_axes_are_those_of_the_array(self, desc: MemoryDesc) -> None:
        memory, values = packed_bits(desc)
        assert (memory.shape, memory.ndim, memory.dtype) == (values.shape, values.ndim, values.dtype)
        assert (desc.shape, desc.dtype, desc.nbytes) == (values.shape, values.dtype, desc.size)
        assert memory.nbytes == desc.size
        assert same_bits(memory.T.unpack(), np.ascontiguousarray(values.T))

    @SOME
    @given(descriptors(), st.data())
    def test_an_index_of_integers_gives_the_scalar_in_any_layout(self, desc: MemoryDesc, data: st.DataObject) -> None:
        assume(0 not in desc.dims)
        memory, values = packed_bits(desc)
        point = tuple(data.draw(st.integers(-dim, dim - 1)) for dim in desc.dims)
        assert same_bits(np.array([memory[point]], memory.dtype), np.array([values[point]], memory.dtype))
        assert type(memory[point]) is type(values[point])

    @SOME
    @given(descriptors(), st.data())
    def test_a_slice_is_the_view_that_submemory_describes_or_refused(
        self, desc: MemoryDesc, data: st.DataObject
    ) -> None:
        memory, values = packed_bits(desc)
        ranges = [sorted(data.draw(st.tuples(st.integers(0, dim), st.integers(0, dim)))) for dim in desc.dims]
        removed = [dim > 0 and data.draw(st.booleans()) for dim in desc.dims]
        removed[data.draw(st.integers(0, desc.ndims - 1))] = False
        key = tuple(
            min(low, dim - 1) if is_removed else slice(low, high)
            for is_removed, (low, high), dim in zip(removed, ranges, desc.dims, strict=True)
        )
        try:
            view = memory[key]
        except Unimplemented:
            event("refused")
            whole = [slice(None) if len(digits) > 1 else part for digits, part in zip(desc.digits, key, strict=True)]
            assert any(len(digits) > 1 for digits in desc.digits)
            key = tuple(whole)
            view = memory[key]
        assert np.shares_memory(view.buffer, memory.buffer) or not memory.buffer.size
        assert same_bits(view.unpack(), np.ascontiguousarray(values[key]))

    def test_rows_of_half_bytes_are_refused(self) -> None:
        memory = Memory(MemoryDesc((2, 2, 1), "s4", pattern="(a ax2 ay3) b c -> a ax2 b ay3 c"))
        error = (
            "stride 3 of axis 0 (a) is odd: s4 has two elements in a byte, so strides other than 1 are even; 4 works\n"
            "    m.unpack() copies the elements into an array that NumPy indexes"
        )
        with raises_exactly(Unimplemented, error):
            memory[0]

    def test_negative_entries_ellipses_and_missing_entries_follow_numpy(self) -> None:
        memory, values = packed_bits(MemoryDesc((3, 4, 5), "f32", "cab"))
        for key in (-1, (..., 2), (1, ..., -2), (slice(-2, None), 1), (slice(1, 99),), slice(2, 1), (2, -4)):
            assert same_bits(memory[key].unpack(), np.ascontiguousarray(values[key]))
        assert [row.unpack().tolist() for row in memory] == values.tolist()
        assert len(memory) == 3
        assert memory

    @pytest.mark.parametrize(
        ("key", "error"),
        [
            (2, "index 2 is outside axis 0, which has 2 elements"),
            ((0, -18), "index -18 is outside axis 1, which has 17 elements"),
            ((0, 0, 0), "index (0, 0, 0) has 3 entries: the memory has 2 axes"),
            ((..., ...), "index (Ellipsis, Ellipsis) has several ellipses: the memory has 2 axes"),
            (
                [0, 1],
                "index [0, 1] is neither an integer nor a slice: m.unpack() copies the elements into an array that "
                "NumPy indexes",
            ),
            (
                (0, slice(0, 17, 2)),
                "index slice(0, 17, 2) of axis 1 has a step, and a view is a box: m.unpack() copies the elements into "
                "an array that NumPy indexes",
            ),
        ],
    )
    def test_a_wrong_index_is_refused(self, key: Any, error: str) -> None:
        with raises_exactly(InvalidIndex, error):
            Memory(BLOCKED)[key]

    def test_a_slice_that_cuts_a_block_names_the_nearest_box_and_unpack(self) -> None:
        with raises_exactly(Unimplemented, CUT_BLOCK):
            Memory(BLOCKED)[:, 3:11]


class TestViews:
    def test_reshape_infers_one_dim_in_memory_and_descriptor(self) -> None:
        memory, values = packed_bits(MemoryDesc((2, 16, 5, 4), "f32", "aBcd8b"))
        for dims in ((2, 16, -1), (-1, 16, 5, 4), (2, -1, 5, 4)):
            assert same_bits(memory.reshape(*dims).unpack(), values.reshape(dims))
            assert same_bits(memory.reshape(dims).unpack(), values.reshape(dims))
        plain, flat = packed_bits(MemoryDesc((3, 4), "s8", "ab"))
        assert same_bits(plain.reshape(-1).unpack(), flat.reshape(-1))
        assert plain.desc.reshape(-1).dims == (12,)
        with pytest.raises(InvalidArguments, match="blocks of 8"):
            memory.reshape(-1)

    @SOME
    @given(descriptors(), st.data())
    def test_permute_axes_takes_negative_axes(self, desc: MemoryDesc, data: st.DataObject) -> None:
        memory, values = packed_bits(desc)
        positions = data.draw(st.permutations(range(desc.ndims)))
        given = [p - desc.ndims if data.draw(st.booleans()) else p for p in positions]
        expected = values.transpose(np.argsort(positions))
        assert same_bits(memory.permute_axes(given).unpack(), np.ascontiguousarray(expected))
        assert memory.permute_axes(*given).desc == desc.permute_axes(positions)

    def test_a_write_to_a_view_changes_the_memory(self) -> None:
        memory, _ = packed_bits(BLOCKED)
        view = memory.submemory((1, 8), (1, 8))
        reorder(np.full((1, 8), 7, np.float32), view.desc, out=view)
        assert memory.unpack()[1, 8:16].tolist() == [7] * 8

    @SOME
    @given(descriptors())
    def test_a_copy_has_the_bytes_and_shares_none(self, desc: MemoryDesc) -> None:
        memory, values = packed_bits(desc)
        copied = memory.copy()
        assert copied.desc == desc
        assert same_bits(copied.unpack(), values)
        assert not np.shares_memory(copied.buffer, memory.buffer)

    def test_sparse_memory_and_host_scalars_are_copied(self) -> None:
        sparse = inlay.to_csr(np.array([[0, 7], [9, 0]], np.float32))
        copied = sparse.copy()
        assert copied.unpack().tolist() == [[0, 7], [9, 0]]
        assert sparse.nbytes == sum(sparse.desc.sizes)
        copied.buffers[0][:] = 0
        assert sparse.unpack().tolist() == [[0, 7], [9, 0]]
        assert Memory(MemoryDesc.host_scalar("s8"), 3).copy().value == 3


class TestArraysOfOtherLibraries:
    @SOME
    @given(descriptors())
    def test_numpy_is_a_strided_view_or_refused(self, desc: MemoryDesc) -> None:
        memory, values = packed_bits(desc)
        is_strided = not any(len(digits) > 1 and dim > 1 for digits, dim in zip(desc.digits, desc.dims, strict=True))
        if is_strided and desc.padded_dims == desc.dims and not desc.data_type.is_sub_byte:  # type: ignore[union-attr]
            for view in (memory.numpy(), np.asarray(memory), np.array(memory, copy=False)):
                assert same_bits(np.ascontiguousarray(view), values)
                assert np.shares_memory(view, memory.buffer) or not view.size
        else:
            for make in (Memory.numpy, np.asarray, Memory.__dlpack__, Memory.__dlpack_device__):
                with pytest.raises(InvalidArguments, match=r"m\.physical\(\) is the array as stored"):
                    make(memory)
        assert same_bits(np.array(memory), values)
        assert same_bits(np.array(memory, copy=True), values)

    def test_the_text_for_blocked_memory(self) -> None:
        text = (
            "np.asarray(m) is a view, and MemoryDesc((2, 17), 'f32', 'aB8b') is blocked: m.physical() is the array as "
            "stored, and m.unpack() copies the elements in logical order"
        )
        for refused in (lambda m: np.asarray(m), lambda m: m + np.float32(1)):
            with raises_exactly(InvalidArguments, text):
                refused(Memory(BLOCKED))

    @pytest.mark.parametrize(
        ("memory", "reason"),
        [
            (Memory(MemoryDesc((3, 5), "f32", padded_dims=(4, 8))), "is padded: m.physical()"),
            (Memory(MemoryDesc((3, 4), "s4")), "has two elements in a byte: m.physical()"),
            (inlay.to_csr(np.eye(2, dtype=np.float32)), "is of kind sparse: m.buffers are its arrays"),
            (Memory(MemoryDesc.host_scalar("f32"), 1), "is of kind host_scalar: read m.value"),
            (Memory(MemoryDesc.opaque((4,), "f32", "x", 64)), "is of kind opaque: m.physical() are its bytes"),
        ],
    )
    def test_the_reason_is_named(self, memory: Memory, reason: str) -> None:
        with pytest.raises(InvalidArguments) as raised:
            memory.numpy()
        assert reason in str(raised.value)

    def test_a_conversion_of_the_type_is_a_copy(self) -> None:
        memory, values = packed_bits(MemoryDesc((2, 3), "s8", "ba"))
        assert np.asarray(memory, np.float64).tolist() == values.tolist()
        with raises_exactly(
            InvalidArguments, "a view of MemoryDesc((2, 3), 's8', 'ba') has the type int8, not float64: copy it"
        ):
            np.asarray(memory, np.float64, copy=False)

    def test_dlpack_shares_the_bytes(self) -> None:
        memory, values = packed_bits(MemoryDesc((2, 3, 4), "s32", "cab"))
        taken = np.from_dlpack(memory)
        assert np.shares_memory(taken, memory.buffer)
        assert taken.tolist() == values.tolist()
        assert memory.__dlpack_device__() == (1, 0)

    def test_read_only_and_overlapping_memory_gives_read_only_views(self) -> None:
        held = np.arange(6, dtype=np.float32)
        held.flags.writeable = False
        assert not Memory(MemoryDesc((2, 3), "f32"), held).numpy().flags.writeable
        assert not Memory(np.broadcast_to(np.arange(3), (2, 3))).numpy().flags.writeable
        assert Memory(np.arange(6)[::-1]).numpy().tolist() == [5, 4, 3, 2, 1, 0]

    def test_torch_shares_the_bytes(self) -> None:
        torch = pytest.importorskip("torch")
        memory = pack(np.arange(24).reshape(1, 2, 3, 4).astype(ml_dtypes.bfloat16), "acdb")
        tensor = memory.torch()
        assert (tensor.dtype, tensor.shape, tensor.data_ptr()) == (torch.bfloat16, memory.shape, memory.address)
        tensor[0, 1, 2, 3] = 50
        assert float(memory[0, 1, 2, 3]) == 50
        assert torch.from_dlpack(pack(np.ones((2, 3), np.float32), "ba")).stride() == (1, 2)
        with pytest.raises(InvalidArguments, match=r"^m\.torch\(\) is a view, and .* is blocked: m\.physical\(\)"):
            Memory(BLOCKED).torch()
        reversed_text = "has a negative stride, which PyTorch does not support"
        with pytest.raises(InvalidArguments, match=reversed_text):
            Memory(np.arange(6)[::-1]).torch()


class TestPhysical:
    @SOME
    @given(descriptors())
    def test_it_shares_the_bytes_and_each_element_is_at_its_offset(self, desc: MemoryDesc) -> None:
        memory, values = packed_bits(desc)
        stored = memory.physical()
        assert np.shares_memory(stored, memory.buffer) or not stored.size
        if desc.data_type.is_sub_byte or not values.size:  # type: ignore[union-attr]
            return
        width = stored.itemsize
        assert stored.dtype == values.dtype
        steps = [stride // width * 8 for stride in stored.strides]
        every = np.arange(memory.buffer.size // width)
        places = np.ndarray(stored.shape, np.int64, every.data, 0, steps).ravel()
        start = (stored.__array_interface__["data"][0] - memory.address) // width
        held = np.ascontiguousarray(stored).view(f"V{width}").ravel()
        at = {int(place) + start: value for place, value in zip(places, held, strict=True)}
        for point in np.ndindex(*desc.dims):
            assert at[desc.offset(point)].tobytes() == values[point].tobytes()

    @pytest.mark.parametrize(
        ("desc", "shape"),
        [
            (MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), (2, 3, 5, 4, 8)),
            (MemoryDesc((2, 17, 5, 4), "f32", "nhwc"), (2, 5, 4, 17)),
            (MemoryDesc((2, 1, 5), "f32", "acb"), (2, 5, 1)),
            (MemoryDesc((64, 16, 3, 3), "f32", "OhwI16o64i"), (64 // 16, 3, 3, 1, 16, 64)),
            (MemoryDesc((3, 6), "s4"), (9,)),
            (MemoryDesc.opaque((4,), "f32", "x", 64), (64,)),
            (MemoryDesc((2, 3), "f32", strides=(0, 1)), (3,)),
        ],
    )
    def test_its_shape_is_that_of_the_digits(self, desc: MemoryDesc, shape: tuple[int, ...]) -> None:
        assert Memory(desc).physical().shape == shape

    def test_a_negative_stride_is_stored_from_its_lowest_element(self) -> None:
        assert Memory(np.arange(6).reshape(2, 3)[::-1]).physical().tolist() == [[0, 1, 2], [3, 4, 5]]
        windows = np.lib.stride_tricks.sliding_window_view(np.arange(5), 3)
        assert Memory(windows).physical().tolist() == [0, 1, 2, 3, 4]


class TestFiles:
    @settings(max_examples=25)
    @given(descriptors())
    def test_a_file_keeps_descriptor_and_elements(self, desc: MemoryDesc) -> None:
        memory, values = packed_bits(desc)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.npz"
            memory.save(path)
            loaded = Memory.load(path)
            assert [p.name for p in Path(folder).iterdir()] == ["m.npz"]
        assert loaded.desc == desc
        assert same_bits(loaded.unpack(), values)

    def test_numpy_opens_a_file_and_other_kinds_of_memory_are_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "m.npz"
        sparse = inlay.to_csr(np.array([[0, 7], [9, 0]], np.float32))
        for memory in (sparse, Memory(MemoryDesc.opaque((4,), "f32", "x", 64), np.arange(64, dtype=np.uint8))):
            memory.save(path)
            loaded = Memory.load(path)
            assert loaded.desc == memory.desc
            assert [b.tobytes() for b in loaded.buffers] == [b.tobytes()[: b.size] for b in memory.buffers]
        Memory(MemoryDesc.host_scalar("s4"), -3).save(path)
        assert Memory.load(path).value == -3
        with np.load(path) as arrays:
            assert sorted(arrays) == ["buffer0", "memory"]

    def test_a_view_is_loaded_with_its_elements(self, tmp_path: Path) -> None:
        memory, values = packed_bits(MemoryDesc((4, 32), "f32", "aB16b"))
        memory[2:, 16:].save(tmp_path / "m.npz")
        assert same_bits(Memory.load(tmp_path / "m.npz").unpack(), np.ascontiguousarray(values[2:, 16:]))

    def test_equal_memories_give_equal_files(self, tmp_path: Path) -> None:
        memory, _ = packed_bits(BLOCKED)
        for name in ("a.npz", "b.npz"):
            memory.save(tmp_path / name)
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()

    def test_a_wrong_name_is_refused(self, tmp_path: Path) -> None:
        with raises_exactly(FileError, "cannot write memory in 'm.npy': use the suffix .npz"):
            Memory(BLOCKED).save("m.npy")
        with raises_exactly(FileError, "cannot read memory in 'm.npy': use the suffix .npz"):
            Memory.load("m.npy")
        with raises_exactly(InvalidArguments, "path is 5: give the name of a file as text or a Path"):
            Memory.load(5)  # type: ignore[arg-type]
        with pytest.raises(FileError):
            Memory.load(tmp_path / "missing.npz")

    @settings(max_examples=60)
    @given(st.data())
    def test_a_damaged_file_is_an_error_and_not_a_crash(self, data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.npz"
            memory, _ = packed_bits(BLOCKED)
            memory.save(path)
            content = bytearray(path.read_bytes())
            for _ in range(data.draw(st.integers(1, 3))):
                content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
            path.write_bytes(
                content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
            )
            try:
                loaded = Memory.load(path)
            except FileError:
                return
            assert loaded.unpack().shape == loaded.shape

    def test_a_compressed_or_pickled_entry_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "m.npz"
        np.savez_compressed(path, memory=np.array("{}"), buffer0=np.zeros(8, np.uint8))
        with pytest.raises(FileError, match="compressed"):
            Memory.load(path)
        held = io.BytesIO()
        np.lib.format.write_array(held, np.array([{}], object), allow_pickle=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("memory.npy", held.getvalue())
        with pytest.raises(FileError, match="no text"):
            Memory.load(path)
        assert pickle.loads(pickle.dumps(Memory(BLOCKED))).desc == BLOCKED


class TestArraysAsArguments:
    def test_pack_takes_lists(self) -> None:
        assert pack([[1.5, 2], [3, 4]], "ba", "f32").buffer.view(np.float32).tolist() == [1.5, 3, 2, 4]
        assert pack([1, 2, 3], "a").desc.data_type.name == "s64"  # type: ignore[union-attr]
        assert pack(((1, 2), (3, 4)), MemoryDesc((2, 2), "s8", "ab")).unpack().tolist() == [[1, 2], [3, 4]]
        assert pack([1, -2], "a", "s4").buffer.tolist() == [0xE1]

    @pytest.mark.parametrize("transform", [lambda a: a, lambda a: a[:, ::-1], lambda a: a.T, lambda a: a[::2]])
    @pytest.mark.parametrize("dtype", ["f32", "bf16", "s4", "u8"])
    def test_reorder_takes_arrays(self, transform: Any, dtype: str) -> None:
        values = transform(random_bits((6, 10), dtype))
        assert same_bits(reorder(values, "aB8b").unpack(), np.ascontiguousarray(values))

    def test_reorder_of_an_array_takes_attributes_and_out(self) -> None:
        out = Memory(MemoryDesc((2, 3), "s8", "ba"))
        reorder(np.arange(6, dtype=np.float32).reshape(2, 3), out.desc, out=out, src_scales=2.0)
        assert out.unpack().tolist() == [[0, 2, 4], [6, 8, 10]]
        assert reorder([[1, 2]], "ba").unpack().tolist() == [[1, 2]]

    def test_show_takes_memory_arrays_and_tags(self) -> None:
        memory = Memory(BLOCKED)
        drawn, expected = (inlay.show(x, offsets=True, width=80, color=False) for x in (memory, BLOCKED))
        assert str(drawn) == str(expected)
        tag = inlay.show("nChw8c", width=80, color=False)
        assert str(tag) == str(inlay.show(MemoryDesc((2, 9, 2, 2), "f32", "nChw8c"), width=80, color=False))
        assert "2 x 3 of s64" in str(inlay.show(np.zeros((2, 3), np.int64), width=80, color=False))


class TestCoordinates:
    @SOME
    @given(descriptors())
    def test_coordinate_is_the_inverse_of_offset(self, desc: MemoryDesc) -> None:
        assert isinstance(desc.layout, Layout)
        assume(not desc.layout.overlaps and desc.layout.size <= 2000)
        points = list(np.ndindex(*desc.padded_dims))
        table = {desc.offset(point): point for point in points}
        everything = np.arange(min(table, default=0) - 2, max(table, default=0) + 3)
        found = desc.coordinate(everything)
        for offset, row in zip(everything.tolist(), found.tolist(), strict=True):
            expected = table.get(offset)
            assert desc.coordinate(offset) == expected
            assert tuple(row) == (expected or (-1,) * desc.ndims)
        if points:
            is_padding = [any(x >= dim for x, dim in zip(point, desc.dims, strict=True)) for point in points]
            assert desc.is_padding(np.array(points)).tolist() == is_padding
            assert [desc.is_padding(point) for point in points] == is_padding

    def test_interleaved_and_negative_strides(self) -> None:
        for strides in ((3, 2), (2, 3), (-3, 2), (7, -1)):
            desc = MemoryDesc.from_layout(Layout.from_strides((2, 3), strides), "u8", offset0=20)
            for point in np.ndindex(2, 3):
                assert desc.coordinate(desc.offset(point)) == point
        assert MemoryDesc((2, 3), "u8").coordinate(np.arange(6).reshape(3, 2)).shape == (3, 2, 2)
        assert MemoryDesc((2, 3), "u8").coordinate([]).shape == (0, 2)

    @pytest.mark.parametrize("offset0", [0, 5])
    def test_the_coordinate_of_a_swizzled_offset_is_the_one_that_has_it(self, offset0: int) -> None:
        desc = MemoryDesc((7, 60), "bf16", "Swizzle<3,2,3> o (8,60):(64,1)", offset0=offset0)
        points = np.indices((8, 60)).reshape(2, -1).T
        offsets = desc.offset(points)
        assert np.array_equal(desc.coordinate(offsets), points)
        assert [desc.coordinate(int(offset)) for offset in offsets[::37]] == [tuple(point) for point in points[::37]]
        gaps = np.setdiff1d(np.arange(-3, offset0 + 520), offsets)
        assert (desc.coordinate(gaps) == -1).all()
        assert [desc.coordinate(gap) for gap in (-1, int(gaps[-1]), 2**70)] == [None, None, None]
        assert np.array_equal(desc.is_padding(points), points[:, 0] == 7)
