"""Kinds of arrays that a rearrangement reads and returns: NumPy, PyTorch, JAX, and anything with DLPack.

A kind states the form of an array, on which a plan depends, and the address of its first element; it makes new arrays,
and applies the steps of a rearrangement with the functions of its own framework, which return views where strides
suffice. These steps are also the way for arrays that no reorder moves: on other devices, under automatic
differentiation or tracing, and of types such as objects.

PyTorch and JAX are never imported here: an array of theirs is recognized by the modules that are loaded already.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, as_data_type
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.memory.buffers import address_of
from inlay.memory.result_pool import SMALLEST, result_pool_of_process
from inlay.rearranging.axis_moves import row_major_strides
from inlay.rearranging.einops_notation import ResolvedAxes

AnyArray: TypeAlias = Any
"""An array of any kind."""


@dataclass(frozen=True, slots=True)
class StridedForm:
    """The form of an array that a reorder can read or write."""

    shape: Dims
    """Lengths of the axes."""
    strides: Dims
    """Strides, in elements."""
    dtype: Any
    """Type of the elements in the words of the framework."""
    data_type: DataType
    """Type of the elements, or another type of as many bits, as which they are moved."""
    is_described: bool = True
    """True if `data_type` is the type of the elements."""

    @property
    def is_number(self) -> bool:
        """True if reorders can convert the elements."""
        return self.is_described and self.data_type.is_number

    def has_type_of(self, other: "StridedForm") -> bool:
        """Return True if the elements have the type of those of another form, perhaps of another framework."""
        if self.is_described and other.is_described:
            return self.data_type == other.data_type
        return self.is_described == other.is_described and bool(self.dtype == other.dtype)


@dataclass(frozen=True, slots=True)
class AxisSteps:
    """A rearrangement as steps of a framework, each None if it changes nothing."""

    split: Dims | None
    """Shape with each axis split into its elementary axes."""
    order: tuple[int, ...] | None
    """Permutation of the elementary axes."""
    with_ones: Dims | None
    """Shape with an axis of length one for each new axis."""
    lengths: Dims | None
    """Shape with the new axes in their lengths."""
    joined: Dims | None
    """Shape of the result."""

    @staticmethod
    def of(resolved: ResolvedAxes) -> "AxisSteps":
        """Return the steps of a rearrangement."""
        split, order = resolved.split, tuple(i for i in resolved.order if i >= 0)
        lengths = tuple(n for group in resolved.groups for n in group)
        with_ones = tuple(split[i] if i >= 0 else 1 for i in resolved.order)
        return AxisSteps(
            None if all(len(group) == 1 for group in resolved.left) else split,
            None if order == tuple(range(len(order))) else order,
            None if len(order) == len(resolved.order) else with_ones,
            None if with_ones == lengths else lengths,
            None if all(len(group) == 1 for group in resolved.groups) else resolved.shape,
        )


class ArrayKind(Protocol):
    """The functions of one kind of arrays."""

    def form(self, array: AnyArray) -> tuple[Any, ...]:
        """Return what a plan for the array depends on, as a key."""

    def describe(self, array: AnyArray) -> StridedForm | None:
        """Return the form of an array, or None if no reorder can read or write it."""

    def address(self, array: AnyArray) -> int:
        """Return the address of the first element."""

    def is_writable(self, array: AnyArray) -> bool:
        """Return True if the elements may be written."""

    def dtype_of(self, data_type: DataType) -> Any:
        """Return the type of the framework for a data type."""

    def allocator(self, shape: Dims, strides: Dims, dtype: Any) -> Callable[[], AnyArray]:
        """Return the function that makes a new dense array with these strides, in elements, and any contents."""

    def viewer(self, steps: AxisSteps, shape: Dims, strides: Dims) -> Callable[[AnyArray], AnyArray]:
        """Return the function that makes a view by these steps, which has this shape and these strides."""

    def apply(self, array: AnyArray, steps: AxisSteps) -> AnyArray:
        """Rearrange by the functions of the framework: a view where strides suffice."""

    def copy(self, array: AnyArray) -> AnyArray:
        """Return a row-major copy."""

    def assign(self, dst: AnyArray, src: AnyArray) -> None:
        """Write the elements of `src` to `dst` by the functions of the framework."""

    def permute(self, array: AnyArray, axes: Sequence[int]) -> AnyArray:
        """Return a view with the axes permuted."""

    def stack(self, arrays: Sequence[AnyArray]) -> AnyArray:
        """Return an array with a new first axis."""


# NumPy

_BITS_TYPES = {
    size: as_data_type(dtype) for size, dtype in ((1, np.uint8), (2, np.uint16), (4, np.uint32), (8, np.uint64))
}
_BITS_TYPES[16] = as_data_type(np.complex128)


class NumpyArrays:
    """NumPy's arrays, those of ml_dtypes too."""

    address = staticmethod(address_of)

    @staticmethod
    def form(array: npt.NDArray[Any]) -> tuple[Any, ...]:
        """Return shape, strides and type of an array."""
        return array.shape, array.strides, array.dtype

    @staticmethod
    def describe(array: npt.NDArray[Any]) -> StridedForm | None:
        """Return the form of an array; None for objects, odd sizes, and strides that cut through elements."""
        dtype, size = array.dtype, array.dtype.itemsize
        if dtype.hasobject or size not in _BITS_TYPES or any(stride % size for stride in array.strides):
            return None
        data_type, is_described = numpy_data_type(dtype)
        return StridedForm(array.shape, tuple(s // size for s in array.strides), dtype, data_type, is_described)

    @staticmethod
    def is_writable(array: npt.NDArray[Any]) -> bool:
        """Return the flag of an array."""
        return bool(array.flags.writeable)

    @staticmethod
    def dtype_of(data_type: DataType) -> "np.dtype[Any]":
        """Return the NumPy type."""
        return data_type.dtype

    @staticmethod
    def allocator(shape: Dims, strides: Dims, dtype: "np.dtype[Any]") -> Callable[[], npt.NDArray[Any]]:
        """Return the function that makes a new array, from the pool of results if it is large."""
        nbytes, steps = prod(shape) * dtype.itemsize, tuple(stride * dtype.itemsize for stride in strides)
        if nbytes >= SMALLEST:
            return lambda: result_pool_of_process().allocate_array(shape, dtype, nbytes, steps)
        if strides == row_major_strides(shape):
            return partial(np.empty, shape, dtype)
        return lambda: np.ndarray(shape, dtype, None, 0, steps)

    @staticmethod
    def viewer(steps: AxisSteps, shape: Dims, strides: Dims) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
        """Return the function that makes a view; one of permuted axes alone does nothing else."""
        order = steps.order
        if order is not None and steps == AxisSteps(None, order, None, None, None):
            return lambda array: array.transpose(order)
        return lambda array: NumpyArrays.apply(array, steps)

    @staticmethod
    def apply(array: npt.NDArray[Any], steps: AxisSteps) -> npt.NDArray[Any]:
        """Rearrange by reshape, transpose and broadcast_to; a view that repeats elements is read-only."""
        view: npt.NDArray[Any] = _apply_steps(array, steps, np.ndarray.transpose, np.broadcast_to)
        return view

    @staticmethod
    def copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a row-major copy."""
        return np.array(array, order="C")

    @staticmethod
    def assign(dst: npt.NDArray[Any], src: npt.NDArray[Any]) -> None:
        """Write the elements of `src` to `dst`."""
        np.copyto(dst, src)

    @staticmethod
    def permute(array: npt.NDArray[Any], axes: Sequence[int]) -> npt.NDArray[Any]:
        """Return a view with the axes permuted."""
        return array.transpose(*axes)

    @staticmethod
    def stack(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return an array with a new first axis."""
        return np.stack(arrays)


@lru_cache(maxsize=256)
def numpy_data_type(dtype: "np.dtype[Any]") -> tuple[DataType, bool]:
    """Return the data type of NumPy's elements of whole bytes, and True.

    Types that descriptors lack (other byte orders, dates, texts, structures) or that take 4 bits in memory become a
    type of as many bits, and False.

    >>> numpy_data_type(np.dtype(">f4"))[0].name, numpy_data_type(np.dtype("f4"))[0].name
    ('u32', 'f32')
    """
    bits = _BITS_TYPES[dtype.itemsize]
    try:
        data_type = as_data_type(dtype)
    except InvalidArguments:
        return bits, False
    return (bits, False) if data_type.is_sub_byte else (data_type, True)


def _apply_steps(
    array: AnyArray,
    steps: AxisSteps,
    permute: Callable[[AnyArray, tuple[int, ...]], AnyArray],
    broadcast: Callable[[AnyArray, Dims], AnyArray],
) -> AnyArray:
    """Split the axes of an array, permute them, repeat along new ones, and join the groups of the result."""
    if steps.split is not None:
        array = array.reshape(steps.split)
    if steps.order is not None:
        array = permute(array, steps.order)
    if steps.with_ones is not None:
        array = array.reshape(steps.with_ones)
    if steps.lengths is not None:
        array = broadcast(array, steps.lengths)
    return array if steps.joined is None else array.reshape(steps.joined)


# PyTorch


class TorchTensors:
    """Tensors of PyTorch."""

    def __init__(self, torch: Any) -> None:
        """Hold the loaded module."""
        self._torch = torch
        self._transform_level = torch._C._functorch.maybe_current_level
        self._forward_mode = torch.autograd.forward_ad
        self._permute, self._expand = torch.Tensor.permute, torch.Tensor.expand
        self.address: Callable[[Any], int] = torch.Tensor.data_ptr
        self._ordinary = (torch.Tensor, torch.nn.Parameter)

    def form(self, tensor: Any) -> tuple[Any, ...]:
        """Return shape, strides and type, and the flags by which a reorder cannot read a tensor."""
        is_tracked = self._is_tracked(tensor)
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.is_cpu, tensor.is_neg(), is_tracked

    def _is_tracked(self, tensor: Any) -> bool:
        """Return True if PyTorch may differentiate or batch what happens to a tensor."""
        if tensor.requires_grad and self._torch.is_grad_enabled():
            return True
        # Inside a transform of torch.func or a dual level, a tensor of equal form may have a tangent, or no data.
        return self._transform_level() is not None or self._forward_mode._current_level >= 0

    def describe(self, tensor: Any) -> StridedForm | None:
        """Return the form of a tensor; None on other devices, with gradients, and for types that only PyTorch has."""
        torch = self._torch
        is_plain = type(tensor) in self._ordinary and tensor.is_cpu and tensor.layout == torch.strided
        if not is_plain or tensor.is_neg() or tensor.is_complex() or tensor.is_quantized:
            return None
        if self._is_tracked(tensor):
            return None
        try:
            data_type = as_data_type(str(tensor.dtype).removeprefix("torch."))
            tensor.data_ptr()
        except (InvalidArguments, RuntimeError):
            return None  # vmap and grad of torch.func wrap tensors that have no data of their own
        return StridedForm(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, data_type)

    @staticmethod
    def is_writable(tensor: Any) -> bool:
        """Return True: PyTorch has no read-only tensors."""
        return True

    def dtype_of(self, data_type: DataType) -> Any:
        """Return PyTorch's type.

        Raises:
            InvalidArguments: PyTorch has no such type.
        """
        dtype = None if data_type.is_sub_byte else getattr(self._torch, data_type.dtype.name, None)
        if dtype is None:
            raise InvalidArguments(f"PyTorch has no tensors of {data_type}: rearrange tensor.numpy() instead")
        return dtype

    def allocator(self, shape: Dims, strides: Dims, dtype: Any) -> Callable[[], Any]:
        """Return the function that makes a new tensor, over a buffer of the pool of results if it is large."""
        nbytes, from_numpy = prod(shape) * dtype.itemsize, self._torch.from_numpy
        if nbytes < SMALLEST:  # `empty` takes half as long again
            return partial(self._torch.empty_strided, shape, strides, dtype=dtype, device=self._torch.device("cpu"))

        def pooled() -> Any:
            buffer = result_pool_of_process().allocate(nbytes, is_overwritten=True)
            return from_numpy(buffer).view(dtype).as_strided(shape, strides)

        return pooled

    @staticmethod
    def viewer(steps: AxisSteps, shape: Dims, strides: Dims) -> Callable[[Any], Any]:
        """Return the function that makes a view in one step, since each takes a microsecond."""
        order = steps.order
        if order is not None and steps == AxisSteps(None, order, None, None, None):
            return lambda tensor: tensor.permute(*order)  # a tuple takes half as long again
        return lambda tensor: tensor.as_strided(shape, strides, tensor.storage_offset())

    def apply(self, tensor: Any, steps: AxisSteps) -> Any:
        """Rearrange by reshape, permute and expand, which PyTorch differentiates and traces."""
        return _apply_steps(tensor, steps, self._permute, self._expand)

    def copy(self, tensor: Any) -> Any:
        """Return a row-major copy."""
        return tensor.clone(memory_format=self._torch.contiguous_format)

    @staticmethod
    def assign(dst: Any, src: Any) -> None:
        """Write the elements of `src` to `dst`."""
        dst.copy_(src)

    @staticmethod
    def permute(tensor: Any, axes: Sequence[int]) -> Any:
        """Return a view with the axes permuted."""
        return tensor.permute(tuple(axes))

    def stack(self, tensors: Sequence[Any]) -> Any:
        """Return a tensor with a new first axis."""
        return self._torch.stack(list(tensors))


def numpy_of_torch(torch: Any, tensor: Any) -> npt.NDArray[Any]:
    """Return the elements of a PyTorch tensor on the CPU as an array that shares its memory.

    Types that NumPy lacks become those of ml_dtypes. A tensor whose memory holds negated or conjugate values is copied.

    Raises:
        RuntimeError, TypeError: the tensor is on another device, sparse, or of a type that has no array.
    """
    try:
        array: npt.NDArray[Any] = tensor.numpy()
    except (RuntimeError, TypeError):
        tensor = tensor.detach().resolve_conj().resolve_neg()
        dtype = getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch."), None)
        if dtype is None:
            return tensor.numpy()  # type: ignore[no-any-return]
        array = tensor.view(torch.int16 if tensor.itemsize == 2 else torch.uint8).numpy().view(dtype)
    return array


def torch_of_numpy(torch: Any, array: npt.NDArray[Any]) -> Any:
    """Return a PyTorch tensor that shares the memory of a writable NumPy or ml_dtypes array.

    Raises:
        TypeError: PyTorch has no such type.
    """
    try:
        return torch.from_numpy(array)
    except TypeError:
        dtype = getattr(torch, array.dtype.name, None)
        if dtype is None or array.dtype.itemsize > 2:
            raise
        return torch.from_numpy(array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)).view(dtype)


# JAX and other libraries, whose arrays are read through NumPy


def jax_steps(jax: Any, array: Any, resolved: ResolvedAxes) -> Any:
    """Rearrange a JAX array by JAX's functions, which JAX differentiates and traces."""
    return _apply_steps(array, AxisSteps.of(resolved), jax.numpy.transpose, jax.numpy.broadcast_to)


def jax_of_numpy(jax: Any, array: npt.NDArray[Any]) -> Any:
    """Return a JAX array over the memory of a new NumPy array where JAX can share it.

    Raises:
        InvalidArguments: JAX is configured to convert the type to a narrower one.
    """
    target = jax.dtypes.canonicalize_dtype(array.dtype)
    if target != array.dtype:
        raise InvalidArguments(
            f"JAX would turn {array.dtype} into {target}: allow 64 bits with jax.config.update('jax_enable_x64', True)"
        )
    try:
        return jax.numpy.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return jax.numpy.asarray(array)  # NumPy exports no types of ml_dtypes


def from_numpy_like(array: AnyArray) -> Callable[[npt.NDArray[Any]], AnyArray]:
    """Return the function that makes an array of the library of `array` from one of NumPy; NumPy's own if it has none.

    >>> from_numpy_like(memoryview(b"abc"))(np.zeros(2)).tolist()
    [0.0, 0.0]
    """
    namespace = getattr(array, "__array_namespace__", None)
    module = namespace() if callable(namespace) else sys.modules.get(type(array).__module__.partition(".")[0])
    convert = getattr(module, "from_dlpack", None) if hasattr(array, "__dlpack__") else None
    return convert if callable(convert) else np.asarray
