"""`LogicalArray`: the properties and views that make a `Memory` an array as people know it.

Shape, type and indices are those of the logical elements, in every format. Views are `Memory` of the same bytes. Arrays
of NumPy and tensors of PyTorch are views too, and exist where every axis has one stride; nothing here copies unless its
name says so (`copy`, `np.array(memory)`, `unpack`).

>>> from inlay.memory import pack
>>> memory = pack(np.arange(2 * 17, dtype=np.float32).reshape(2, 17), "aB8b")
>>> memory.shape, memory.T.shape, float(memory[1, 16]), memory[1, 8:].shape
((2, 17), (17, 2), 33.0, (9,))
>>> memory.physical().shape
(2, 3, 8)
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InlayError, InvalidArguments
from inlay.layout import Dims
from inlay.memory.buffers import Bytes
from inlay.memory.indexing import index_view, is_one_element, read_element, require_axes
from inlay.memory.memory_file import read_memory, write_memory
from inlay.memory.strided_views import physical_array, require_strides, strided_array, torch_view

_CPU = (1, 0)
"""DLPack's type and number of the CPU (`kDLCPU`)."""


class LogicalArray:
    """The base class of `Memory` with the properties of an array."""

    __slots__ = ()

    @property
    @abstractmethod
    def desc(self) -> MemoryDesc:
        """Descriptor of the bytes."""

    @property
    @abstractmethod
    def buffers(self) -> tuple[Bytes, ...]:
        """Bytes of each buffer."""

    @abstractmethod
    def unpack(self) -> npt.NDArray[Any]:
        """Return the elements as a new row-major array."""

    @abstractmethod
    def _view(self, desc: MemoryDesc) -> Self:
        """Return memory of the same bytes with another descriptor."""

    @property
    def shape(self) -> Dims:
        """Number of elements along each axis, without padding: `desc.dims`."""
        return self.desc.dims

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.desc.dims)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """NumPy type of the elements, of ml_dtypes where NumPy has none."""
        data_type = self.desc.data_type
        assert data_type is not None  # the zero descriptor has no memory
        return data_type.dtype

    @property
    def nbytes(self) -> int:
        """Size of all buffers as stored, in bytes, padding and gaps included: the sum of `desc.sizes`."""
        return sum(self.desc.sizes)

    def __len__(self) -> int:
        """Return the number of elements along the first axis."""
        return self.desc.dims[0]

    __contains__ = None  # NumPy would search the elements, Python the views of the first axis

    def __bool__(self) -> bool:
        """Return True: memory exists, whatever its elements are."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the first axis: elements of memory with one axis, else views."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: object) -> Any:
        """Return the element at an index of integers, in every layout, or a view for an index with slices.

        Slices are those that `MemoryDesc.submemory` can describe: without a step, and a blocked axis is cut between its
        blocks or inside one of them. Missing entries and `...` are whole axes. A write to a view changes the memory.

        Raises:
            InvalidIndex: an entry is neither an integer nor a slice, is outside its axis, or has a step.
            InvalidArguments: the memory has no layout, as sparse memory.
            Unimplemented: a slice cuts a block; the text names the nearest box, and `unpack`.

        >>> from inlay.memory import pack
        >>> memory = pack(np.arange(34, dtype=np.int8).reshape(2, 17), "aB8b")
        >>> int(memory[-1, 0]), memory[:, 8:].unpack()[0].tolist()
        (17, [8, 9, 10, 11, 12, 13, 14, 15, 16])
        """
        if is_one_element(self.desc, key):
            return read_element(self.desc, self.buffers[0], key)
        return self._view(index_view(self.desc, key))

    @property
    def T(self) -> Self:  # noqa: N802  NumPy's name
        """View with the axes in reverse order; no data moves, and blocks stay blocks.

        Raises:
            InvalidArguments: the memory has no layout.
        """
        return self._view(self.desc.rename_axes(range(self.ndim)[::-1]))

    def permute_axes(self, permutation: int | Iterable[int], *more: int) -> Self:
        """Return the view in which axis i of this memory is axis `permutation[i]`; no data moves.

        The direction is that of `MemoryDesc.permute_axes`: the inverse of NumPy's `transpose`. Negative axes, which
        `MemoryDesc.permute_axes` refuses as oneDNN does, count from the last one. The axes are one sequence or several
        arguments, as in NumPy.

        Post-condition: result.unpack() equals self.unpack().transpose(inverse of `permutation`).

        Raises:
            InvalidArguments: `permutation` is not each axis once, or the memory has no layout.

        >>> from inlay.memory import pack
        >>> pack(np.zeros((2, 16, 5, 7), np.float32), "aBcd8b").permute_axes(0, -1, 1, 2).desc
        MemoryDesc((2, 5, 7, 16), 'f32', 'aDbc8d')
        """
        return self._view(self.desc.permute_axes(require_axes(self.ndim, _join(permutation, more))))

    def reshape(self, dims: int | Iterable[int], *more: int, digits: bool = False) -> Self:
        """Return the view of the same elements under other dims, as `MemoryDesc.reshape`; one entry may be -1.

        The dims are one sequence or several arguments, as in NumPy.

        Post-condition: result.unpack() equals self.unpack().reshape(dims).

        Raises:
            InvalidArguments: the volumes differ, or the layout has no such view; the text names the repairs.

        >>> from inlay.memory import pack
        >>> pack(np.zeros((2, 16, 5, 4), np.float32), "aBcd8b").reshape(2, 16, -1).desc
        MemoryDesc((2, 16, 20), 'f32', 'aBc8b')
        """
        return self._view(self.desc.reshape(_join(dims, more), digits=digits))

    def submemory(self, dims: Dims, offsets: Dims) -> Self:
        """Return the view of the box of `dims` elements that starts at coordinate `offsets`; no data moves.

        Post-condition: result.unpack() equals the box of self.unpack().

        Raises:
            InvalidArguments: the box is not within the dims.
            Unimplemented: there is no layout, or the box cuts a block (see `MemoryDesc.submemory`).
        """
        return self._view(self.desc.submemory(dims, offsets))

    # Arrays of other libraries

    def physical(self) -> npt.NDArray[Any]:
        """Return the array as stored, with padding: one axis for each digit of the layout, outermost first; a view.

        See `strided_views.physical_array`.

        Raises:
            InvalidArguments: the memory is sparse, or a host scalar.
        """
        return physical_array(self.desc, self.buffers[0])

    def numpy(self) -> npt.NDArray[Any]:
        """Return the elements as a strided array in logical order: a view of the memory, never a copy.

        Raises:
            InvalidArguments: no such view exists, since the memory is blocked, padded or sparse, or has 4-bit elements;
                the text names `physical` and `unpack`.

        >>> from inlay.memory import pack
        >>> memory = pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ba")
        >>> memory.numpy().strides, memory.numpy().tolist()
        ((4, 8), [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        """
        return self._strided("m.numpy()")

    def _strided(self, purpose: str) -> npt.NDArray[Any]:
        """Return the strided view; errors begin with `purpose`."""
        strides = require_strides(self.desc, purpose)
        return strided_array(self.desc, self.buffers[0], strides)

    def torch(self) -> Any:
        """Return the elements as a strided PyTorch tensor in logical order: a view of the memory, never a copy.

        Raises:
            MissingExtra: PyTorch is not installed.
            InvalidArguments: as `numpy`; or the memory is read-only, has a negative stride, or a type that PyTorch
                lacks.
        """
        strides = require_strides(self.desc, "m.torch()")
        return torch_view(self.desc, self.buffers[0], strides, "m.torch()")

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the elements in logical order, for NumPy: a view for `np.asarray`, a copy for `np.array`.

        `copy=True` gives a new row-major array in every format. Otherwise the result is the view that `numpy` returns,
        converted if another `dtype` is requested.

        Raises:
            InvalidArguments: `copy` is not True and no view exists; or `copy` is False and `dtype` is another one.

        >>> from inlay.memory import pack
        >>> memory = pack(np.arange(4, dtype=np.float32).reshape(2, 2), "ba")
        >>> np.shares_memory(np.asarray(memory), memory.buffer), np.array(memory).tolist()
        (True, [[0.0, 1.0], [2.0, 3.0]])
        """
        if copy:
            array = self.unpack()
            return array if dtype is None else array.astype(dtype, copy=False)
        view = self._strided("np.asarray(m)")
        if dtype is None or np.dtype(dtype) == view.dtype:
            return view
        if copy is False:
            raise InvalidArguments(f"a view of {self.desc!r} has the type {view.dtype}, not {np.dtype(dtype)}: copy it")
        return view.astype(dtype)

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        """Return a DLPack capsule of the view that `numpy` returns; with `copy=True`, of the array of `unpack`.

        `options` are those of the protocol: `stream`, `max_version` and `dl_device`.

        Raises:
            InvalidArguments: no such view exists, and `copy` is not True.
            BufferError: DLPack or NumPy has no such type, the memory is read-only and the consumer does not support
                that, or the device is another one.
        """
        return (self.unpack() if copy else self._strided("DLPack")).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's type and number of the device: the CPU.

        Raises:
            InvalidArguments: the memory is blocked, padded or sparse, or has 4-bit elements.
        """
        require_strides(self.desc, "DLPack")
        return _CPU

    # Files

    def save(self, path: str | Path) -> None:
        """Write descriptor and bytes into a .npz file, which `Memory.load` reads; `np.load` opens it as arrays.

        The file has the bytes up to the last one that the descriptor addresses. It replaces an older file at once, or
        not at all.

        Raises:
            InvalidArguments: `path` is neither text nor a Path.
            FileError: the suffix is not .npz, or the file cannot be written.
        """
        write_memory(path, self.desc, [buffer[:end] for buffer, end in self._stored_ends()], self._file_fields())

    def _stored_ends(self) -> list[tuple[Bytes, int]]:
        """Return each buffer, and the number of bytes from its start that the descriptor addresses."""
        return [(buffer, min(buffer.size, size)) for buffer, size in zip(self.buffers, self._sizes(), strict=True)]

    @abstractmethod
    def _sizes(self) -> tuple[int, ...]:
        """Return the number of bytes from the start of each buffer that the descriptor addresses."""

    @abstractmethod
    def _file_fields(self) -> dict[str, Any]:
        """Return further fields of the JSON object in a file."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the memory that `save` wrote into new buffers.

        Post-condition: Memory.load(path) has the descriptor, the elements and the padding of the memory that was saved.

        Raises:
            InvalidArguments: `path` is neither text nor a Path.
            FileError: the suffix is not .npz, or the file is missing or damaged.
            OutOfMemory: the operating system cannot provide the bytes.
        """
        desc, buffers, fields = read_memory(path)
        try:
            return cls._from_file(desc, buffers, fields)
        except InlayError as error:
            raise FileError(f"cannot read {path}: it is no file of Memory.save, or damaged: {error}") from error

    @classmethod
    @abstractmethod
    def _from_file(cls, desc: MemoryDesc, buffers: list[Bytes], fields: dict[str, Any]) -> Self:
        """Return the memory of the parts of a file."""


def _join(first: Any, more: tuple[int, ...]) -> Any:
    """Return the arguments of `f(1, 2)` or `f((1, 2))` as one sequence."""
    return (first, *more) if more else first
