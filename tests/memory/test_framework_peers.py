"""Conversion of PyTorch tensors and JAX arrays: without a copy if possible, with equal elements always."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from inlay.data_type import DATA_TYPES, MOVED_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Layout
from inlay.memory import Memory, pack, reorder
from inlay.memory.frameworks import from_array, from_jax, from_torch, to_jax, to_torch

pytestmark = pytest.mark.heavy

IMAGE = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
WHOLE_BYTES = [t for t in DATA_TYPES.values() if not t.is_sub_byte]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: make test-all brings it")


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="jax is not installed: make test-all brings it")


def patterns(data_type: DataType) -> Any:
    return np.arange(6 * data_type.itemsize, dtype=np.uint8).view(data_type.dtype).reshape(2, 3)


class TestFromTorch:
    @pytest.mark.parametrize("data_type", WHOLE_BYTES, ids=str)
    def test_every_type_of_whole_bytes_goes_in_and_out(self, torch: Any, data_type: DataType) -> None:
        values = patterns(data_type)
        memory = pack(values, "ba")
        tensor = to_torch(memory, copy=True)
        assert str(tensor.dtype) == f"torch.{data_type.dtype.name}"
        back = from_torch(tensor)
        assert back.desc == MemoryDesc((2, 3), data_type)
        assert back.unpack().tobytes() == values.tobytes()

    def test_values_are_those_of_torch(self, torch: Any) -> None:
        tensor = torch.tensor([[1.5, -2.25, 3.0]], dtype=torch.bfloat16)
        assert from_torch(tensor).unpack().astype(np.float32).tolist() == [[1.5, -2.25, 3.0]]

    def test_channels_last_is_nhwc(self, torch: Any) -> None:
        tensor = torch.tensor(IMAGE).contiguous(memory_format=torch.channels_last)
        memory = from_torch(tensor)
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

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
    def test_sparse_tensors_become_sparse_memory(self, torch: Any) -> None:
        tensor = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
        for held in (tensor.to_sparse(), tensor.to_sparse_csr()):
            memory = from_torch(held)
            assert memory.desc.kind == "sparse"
            assert np.array_equal(memory.unpack(), tensor.numpy())
            for copy in (None, True):
                assert bool((to_torch(memory, copy=copy).to_dense() == tensor).all())

    @pytest.mark.filterwarnings("ignore:ComplexHalf support")
    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda torch: IMAGE, "tensor is a ndarray: give a torch.Tensor, or use from_array"),
            (
                lambda torch: torch.ones(()),
                "tensor is a scalar, which has no axes to place: give it one with reshape(1)",
            ),
            (
                lambda torch: torch.ones(3, device="meta"),
                "tensor is on meta: copy it to the CPU with tensor.cpu()",
            ),
            (
                lambda torch: torch.zeros(2, dtype=torch.complex64).conj().imag,
                "tensor has its negative bit set, so its memory holds negated values: call resolve_neg() first",
            ),
            (
                lambda torch: torch.ones(3, dtype=torch.complex32),
                f"unknown data type 'complex32': use one of {', '.join((*DATA_TYPES, *MOVED_TYPES))}, or the NumPy or "
                "ml_dtypes type of the same meaning",
            ),
        ],
        ids=["array", "scalar", "device", "negative", "type"],
    )
    def test_a_mistake_says_rule_value_and_remedy(self, torch: Any, make: Callable[[Any], Any], text: str) -> None:
        with pytest.raises(InvalidArguments) as caught:
            from_torch(make(torch))
        assert str(caught.value) == text

    def test_a_sliding_window_is_read_and_not_written(self, torch: Any) -> None:
        windows = torch.arange(10.0).unfold(0, 3, 1)
        memory = from_torch(windows)
        assert np.array_equal(memory.unpack(), windows.numpy())
        with pytest.raises(InvalidArguments, match=r"^elements of the destination overlap"):
            reorder(pack(memory.unpack(), "ab"), memory.desc, out=memory)

    def test_memory_that_is_turned_round_is_copied(self, torch: Any) -> None:
        turned = from_array(np.arange(6, dtype=np.float32)[::-1])
        assert to_torch(turned).tolist() == [5, 4, 3, 2, 1, 0]


class TestToTorch:
    def test_plain_memory_is_shared(self, torch: Any) -> None:
        memory = pack(IMAGE, "nhwc")
        tensor = to_torch(memory)
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        tensor[1, 16, 4, 3] = -1
        assert memory.unpack()[1, 16, 4, 3] == -1
        assert to_torch(memory, copy=False).data_ptr() == memory.address

    def test_blocks_are_copied_without_their_padding(self, torch: Any) -> None:
        memory = pack(IMAGE, "nChw8c")
        tensor = to_torch(memory)
        assert np.array_equal(tensor.numpy(), IMAGE)
        tensor.zero_()
        assert np.array_equal(memory.unpack(), IMAGE)

    def test_part_of_a_memory_is_shared(self, torch: Any) -> None:
        whole = pack(IMAGE, "nchw")
        part = Memory(whole.desc.submemory((1, 3, 5, 4), (1, 2, 0, 0)), whole.buffer)
        assert np.array_equal(to_torch(part, copy=False).numpy(), IMAGE[1:, 2:5])

    def test_a_part_without_elements_may_start_anywhere(self, torch: Any) -> None:
        part = MemoryDesc((4, 6), "f16").submemory((0, 2), (4, 3))
        assert tuple(to_torch(Memory(part), copy=False).shape) == (0, 2)

    def test_an_axis_of_one_in_blocks_that_step_backwards_is_plain(self, torch: Any) -> None:
        layout = Layout((4, 2), (Axis(-8, (Digit(4, 2),)), Axis(1)))
        memory = Memory(MemoryDesc.from_layout(layout, "s8", dims=(1, 2)), np.arange(8, dtype=np.int8))
        assert to_torch(memory, copy=False).tolist() == [[0, 1]]

    def test_read_only_memory_is_copied(self, torch: Any) -> None:
        memory = Memory(MemoryDesc((3,), "u8"), b"\1\2\3")
        to_torch(memory).zero_()
        assert memory.unpack().tolist() == [1, 2, 3]

    def test_a_copy_is_one(self, torch: Any) -> None:
        memory = pack(IMAGE, "nchw")
        to_torch(memory, copy=True).zero_()
        assert np.array_equal(memory.unpack(), IMAGE)

    def test_a_view_that_cannot_be_is_refused(self, torch: Any) -> None:
        with pytest.raises(InvalidArguments) as caught:
            to_torch(pack(IMAGE, "nChw8c"), copy=False)
        assert str(caught.value) == (
            "MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c') has no plain strides, so no array can be a view of it: "
            "allow a copy, or reorder it to a plain format first"
        )

    def test_types_that_torch_has_not_are_refused(self, torch: Any) -> None:
        with pytest.raises(InvalidArguments) as caught:
            to_torch(Memory(MemoryDesc((4,), "s4")))
        assert str(caught.value) == "PyTorch has no tensors of s4: memory.unpack() returns an array"


class TestJax:
    @pytest.mark.parametrize("data_type", WHOLE_BYTES, ids=str)
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

    def test_mistakes_say_rule_value_and_remedy(self, jax: Any) -> None:
        with pytest.raises(InvalidArguments) as caught:
            from_jax(IMAGE)
        assert str(caught.value) == "array is a ndarray: give a jax.Array, or use from_array"
        with pytest.raises(InvalidArguments) as caught:
            to_jax(from_array(np.zeros(3, np.int64)))
        assert str(caught.value) == (
            "JAX would turn int64 into int32: allow 64 bits with jax.config.update('jax_enable_x64', True)"
        )
