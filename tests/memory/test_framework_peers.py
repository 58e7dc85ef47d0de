"""Conversion of PyTorch tensors and JAX arrays: without a copy if possible, with equal elements always."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Layout
from inlay.memory import Memory, pack, reorder, sparse
from inlay.memory.frameworks import from_array, from_jax, from_torch, to_jax, to_torch
from inlay.memory.sparse import to_coo, to_csr
from inlay.testing import sparse_memories
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.refusals import raises_exactly

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:Sparse invariant checks"),
]

IMAGE = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
MATRIX = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
INDICES, POINTERS = np.array([3, 1], np.int32), np.array([0, 0, 2, 2], np.int32)
UNSORTED = Memory(MemoryDesc.csr((3, 4), "f32", 2), [np.ones(2, np.float32), INDICES, POINTERS])
each_type_of_whole_bytes = pytest.mark.parametrize(
    "data_type", [t for t in DATA_TYPES.values() if not t.is_sub_byte], ids=str
)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: make test-all brings it")


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="jax is not installed: make test-all brings it")


def patterns(data_type: DataType) -> Any:
    return np.arange(6 * data_type.itemsize, dtype=np.uint8).view(data_type.dtype).reshape(2, 3)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize(("call", "error"), read_mistakes("torch_memory"))
def test_a_mistake_raises_this_error(torch: Any, call: str, error: str) -> None:
    assert_mistake(call, error, {**globals(), "torch": torch})


class TestFromTorch:
    @each_type_of_whole_bytes
    def test_every_type_of_whole_bytes_goes_in_and_out(self, torch: Any, data_type: DataType) -> None:
        values = patterns(data_type)
        tensor = to_torch(pack(values, "ba"), copy=True)
        assert str(tensor.dtype) == f"torch.{data_type.dtype.name}"
        back = from_torch(tensor)
        assert back.desc == MemoryDesc((2, 3), data_type)
        assert back.unpack().tobytes() == values.tobytes()

    def test_values_are_those_of_torch(self, torch: Any) -> None:
        tensor = torch.tensor([[1.5, -2.25, 3.0]], dtype=torch.bfloat16)
        assert from_torch(tensor).unpack().astype(np.float32).tolist() == [[1.5, -2.25, 3.0]]

    def test_channels_last_is_nhwc(self, torch: Any) -> None:
        memory = from_torch(torch.tensor(IMAGE).contiguous(memory_format=torch.channels_last))
        assert memory.desc == MemoryDesc((2, 17, 5, 4), "f32", "nhwc")
        assert np.array_equal(memory.unpack(), IMAGE)
        volume = torch.zeros(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)
        assert from_torch(volume).desc == MemoryDesc((2, 3, 4, 5, 6), "f32", "ndhwc")

    @pytest.mark.parametrize("type_name", ["float32", "bfloat16", "uint8"])
    def test_memory_is_shared(self, torch: Any, type_name: str) -> None:
        tensor = torch.zeros(4, 6, dtype=getattr(torch, type_name))
        for view in (tensor, tensor.T, tensor[1:3, 2:], tensor[:, 1], tensor[3]):
            memory = from_torch(view)
            assert memory.desc.dims == tuple(view.shape)
            view.fill_(3)
            assert (memory.unpack().astype(np.float32) == 3).all()
            reorder(pack(np.full(view.shape, 5, memory.unpack().dtype), "ab"[: view.ndim]), memory.desc, out=memory)
            assert bool((view == 5).all())
            tensor.zero_()

    def test_a_broadcast_axis_has_stride_zero(self, torch: Any) -> None:
        memory = from_torch(torch.arange(3, dtype=torch.int32).expand(4, 3))
        assert memory.desc.strides == (0, 1)
        assert memory.unpack().tolist() == [[0, 1, 2]] * 4

    def test_gradients_are_left_behind(self, torch: Any) -> None:
        assert from_torch(torch.ones(3, requires_grad=True)).unpack().tolist() == [1, 1, 1]

    def test_the_memory_outlives_the_tensor(self, torch: Any) -> None:
        assert from_torch(torch.full((1000,), 7, dtype=torch.int16).to(torch.int32)).unpack().sum() == 7000

    def test_no_elements(self, torch: Any) -> None:
        assert from_torch(torch.zeros(0, 3)).unpack().shape == (0, 3)

    def test_a_sliding_window_is_read_and_not_written(self, torch: Any) -> None:
        windows = torch.arange(10.0).unfold(0, 3, 1)
        memory = from_torch(windows)
        assert np.array_equal(memory.unpack(), windows.numpy())
        with pytest.raises(InvalidArguments, match=r"^elements of the destination overlap"):
            reorder(pack(memory.unpack(), "ab"), memory.desc, out=memory)


@pytest.mark.usefixtures("torch")
class TestToTorch:
    def test_plain_memory_is_shared(self, torch: Any) -> None:
        memory = pack(IMAGE, "nhwc")
        tensor = to_torch(memory)
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        tensor[1, 16, 4, 3] = -1
        assert memory.unpack()[1, 16, 4, 3] == -1
        assert to_torch(memory, copy=False).data_ptr() == memory.address

    def test_blocks_are_copied_without_their_padding(self) -> None:
        memory = pack(IMAGE, "nChw8c")
        tensor = to_torch(memory)
        assert np.array_equal(tensor.numpy(), IMAGE)
        tensor.zero_()
        assert np.array_equal(memory.unpack(), IMAGE)

    def test_part_of_a_memory_is_shared(self) -> None:
        whole = pack(IMAGE, "nchw")
        part = Memory(whole.desc.submemory((1, 3, 5, 4), (1, 2, 0, 0)), whole.buffer)
        assert np.array_equal(to_torch(part, copy=False).numpy(), IMAGE[1:, 2:5])

    def test_a_part_without_elements_may_start_anywhere(self) -> None:
        part = MemoryDesc((4, 6), "f16").submemory((0, 2), (4, 3))
        assert tuple(to_torch(Memory(part), copy=False).shape) == (0, 2)

    def test_an_axis_of_one_in_blocks_that_step_backwards_is_plain(self) -> None:
        layout = Layout((4, 2), (Axis(-8, (Digit(4, 2),)), Axis(1)))
        memory = Memory(MemoryDesc.from_layout(layout, "s8", dims=(1, 2)), np.arange(8, dtype=np.int8))
        assert to_torch(memory, copy=False).tolist() == [[0, 1]]

    def test_memory_that_is_turned_round_is_copied(self) -> None:
        assert to_torch(from_array(np.arange(6, dtype=np.float32)[::-1])).tolist() == [5, 4, 3, 2, 1, 0]

    def test_read_only_memory_is_copied(self) -> None:
        memory = Memory(MemoryDesc((3,), "u8"), b"\1\2\3")
        to_torch(memory).zero_()
        assert memory.unpack().tolist() == [1, 2, 3]

    def test_a_copy_is_one(self) -> None:
        memory = pack(IMAGE, "nchw")
        to_torch(memory, copy=True).zero_()
        assert np.array_equal(memory.unpack(), IMAGE)


class TestSparseTorch:
    @pytest.mark.parametrize(
        "name", ["f32", "f64", "f16", "bf16", "f8_e5m2", "f8_e4m3", "e8m0", "s8", "u8", "s32", "s64"]
    )
    def test_from_torch_undoes_to_torch(self, torch: Any, name: str) -> None:
        @settings(max_examples=60, deadline=None)
        @given(sparse_memories(None, name))
        def check(memory: Memory) -> None:
            tensor = sparse.to_torch(memory)
            assert tensor.layout == (torch.sparse_csr if memory.desc.sparse_encoding == "csr" else torch.sparse_coo)
            assert tuple(tensor.shape) == memory.desc.dims
            assert str(tensor.dtype) == f"torch.{DATA_TYPES[name].dtype.name}"
            back = sparse.from_torch(tensor)
            assert (back.unpack().tobytes(), back.unpack().dtype) == (memory.unpack().tobytes(), memory.unpack().dtype)
            assert back.desc.dims == memory.desc.dims
            assert back.desc.nnz == memory.desc.nnz

        check()

    def test_torch_computes_with_what_it_is_given(self, torch: Any) -> None:
        for memory in (to_csr(MATRIX), to_coo(MATRIX), to_csr(MATRIX, index_type="s64")):
            for tensor in (sparse.to_torch(memory), to_torch(memory), to_torch(memory, copy=True)):
                assert np.array_equal(tensor.to_dense().numpy(), MATRIX)
        for tensor in (torch.from_numpy(MATRIX).to_sparse_csr(), torch.from_numpy(MATRIX).to_sparse()):
            for memory in (sparse.from_torch(tensor), from_torch(tensor)):
                assert memory.desc.kind == "sparse"
                assert np.array_equal(memory.unpack(), MATRIX)
        loose = torch.sparse_coo_tensor(torch.tensor([[2, 0], [0, 2]]), torch.tensor([7.0, 5.0]), (3, 4))
        assert not loose.is_coalesced()
        assert np.array_equal(sparse.from_torch(loose).unpack(), MATRIX)


class TestJax:
    @each_type_of_whole_bytes
    def test_every_type_of_whole_bytes_goes_out_and_in(self, jax: Any, data_type: DataType) -> None:
        values = patterns(data_type)
        with jax.enable_x64(True):
            array = to_jax(pack(values, "ba"))
            assert (array.dtype, array.shape) == (data_type.dtype, (2, 3))
            back = from_jax(array)
        assert back.desc == MemoryDesc((2, 3), data_type)
        assert back.unpack().tobytes() == values.tobytes()

    def test_a_jax_array_is_read_only_memory(self, jax: Any) -> None:
        memory = from_jax(jax.numpy.arange(6.0).reshape(2, 3))
        assert memory.unpack().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert not memory.is_writable

    def test_what_jax_holds_never_changes(self, jax: Any) -> None:
        memory = pack(IMAGE, "nchw")
        array = to_jax(memory)
        memory.buffer[:] = 0
        assert np.array_equal(np.asarray(array), IMAGE)

    def test_blocks_and_nibbles_are_copied(self, jax: Any) -> None:
        assert np.array_equal(np.asarray(to_jax(pack(IMAGE, "nChw8c"))), IMAGE)
        nibbles = np.array([1, -2, 3], np.int8).astype(ml_dtypes.int4)
        assert np.asarray(to_jax(pack(nibbles, "a"))).astype(int).tolist() == [1, -2, 3]

    def test_a_mistake_raises_this_error(self, jax: Any) -> None:
        with raises_exactly(InvalidArguments, "array is a ndarray: give a jax.Array, or use from_array"):
            from_jax(IMAGE)
        text = "JAX would turn int64 into int32: allow 64 bits with jax.config.update('jax_enable_x64', True)"
        with raises_exactly(InvalidArguments, text):
            to_jax(from_array(np.zeros(3, np.int64)))
