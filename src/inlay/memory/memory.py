"""`Memory`: a descriptor with its bytes, checked once when they are wrapped.

A NumPy array has dims, a type, strides and an address, so a `Memory` can wrap it whatever its strides are: negative in
`a[::-1]`, 0 after a broadcast, overlapping in sliding windows. The memory begins at the lowest byte of any element.

>>> desc, buffer = describe_view(np.arange(6, dtype=np.uint8)[::-1])
>>> desc.offset((0,)), desc.strides, buffer.tolist()
(5, (-1,), [0, 1, 2, 3, 4, 5])

`as_strided` is the inverse of `Layout.from_array`. A plain layout has one stride per axis, but no data and no data
type. `as_strided` takes both from an array, and checks that every offset is an index of that array. NumPy's function
of the same name does not check.

>>> import numpy as np
>>> from inlay.layout import Layout
>>> as_strided(np.arange(12), Layout.row_major((3, 4)).dimshuffle((1, 0)))[1]
array([1, 5, 9])
"""

from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_integer
from inlay.data_type import DataType, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.descriptor.arrays import describe_array, place_lowest_first
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.memory.buffers import (
    Bytes,
    address_of,
    allocate,
    allocate_buffers,
    decode_scalar,
    encode_scalar,
    is_poison_requested,
    view_as_array,
    view_as_bytes,
    wrap_buffers,
)
from inlay.memory.logical_array import LogicalArray
from inlay.memory.padding_contents import (
    UNDEFINED,
    ZERO,
    PaddingContents,
    PaddingRecord,
    count_lanes,
    from_text,
    require_contents,
    to_text,
)
from inlay.memory.reorder_cache import byte_extent, logical_array
from inlay.memory.result_pool import allocate_result
from inlay.memory.sparse_entries import unpack_sparse
from inlay.notation import Notation


class Memory(LogicalArray):
    """A descriptor and the bytes it describes.

    >>> import numpy as np
    >>> desc = MemoryDesc((2, 3), "f32", "ba")
    >>> memory = Memory(desc, np.array([1, 4, 2, 5, 3, 6], np.float32))
    >>> memory.unpack()
    array([[1., 2., 3.],
           [4., 5., 6.]], dtype=float32)
    """

    __slots__ = ("__weakref__", "_buffer", "_desc", "_index_buffers", "_padding", "address", "begin", "end")

    _padding: PaddingContents | PaddingRecord
    """Contents of the padding; a record once views share it."""
    _buffer: Bytes
    _desc: MemoryDesc
    _index_buffers: tuple[Bytes, ...]
    address: int
    """Address of the first byte of the buffer, from which the descriptor counts offsets; of sparse memory, the address
    of the values."""
    begin: int
    """Address of the lowest byte of any element or padding."""
    end: int
    """Address after the highest byte of any element or padding."""

    def __init__(
        self,
        desc: MemoryDesc | Layout | npt.NDArray[Any],
        buffer: object = None,
        *,
        padding: PaddingContents | None = None,
    ) -> None:
        """Wrap `buffer`, or allocate zero bytes (poison with INLAY_POISON=1, see `buffers`) if it is None.

        In place of the descriptor, `desc` may be an array, which is wrapped with its own strides: reversed, broadcast
        and sliding-window views too. Or it is a `Layout` that gives the offsets of the elements of the array `buffer`,
        counted so that the lowest is 0. If elements overlap, the memory can be read, but no reorder writes to it.

        `buffer` is contiguous, has the buffer protocol, `__array_interface__` or DLPack, and holds elements of the
        descriptor's type or raw bytes (uint8). It is not copied, and may be longer than needed. A new buffer has
        `desc.size` bytes, or all bytes that the layout can address if these are more. It starts at a multiple of 64
        bytes, or of 2 MiB if it is that large.

        `padding` states what the padding holds; it is not checked (`check_padding` does it). By default, the padding of
        new bytes is zero, and that of a wrapped buffer undefined.

        Memory of an opaque format has the number of bytes that its engine specifies; only this engine can read and
        write it.

        Memory of a host scalar takes a number in place of a buffer.

        Sparse memory takes a list of `desc.num_handles` buffers: values, indices and pointers for CSR; values and the
        indices of each axis for COO. Indices and pointers are not validated here, but by `sparse.check`.

        Raises:
            InvalidArguments: `desc` has no layout (any, the zero descriptor), is an array that `describe_view` refuses,
                is a Layout without an array, or is a host scalar without a value or with one that its type cannot hold;
                `desc` addresses bytes before the start of the buffer; `buffer` is too small, not contiguous, of another
                type, not aligned to its elements, or cannot be read as memory; or sparse memory gets the wrong number
                of buffers; or `padding` is none.
            Unimplemented: a dim or stride of `desc` is RUNTIME, or `desc` is packed and has no tag.
            OutOfMemory: the operating system cannot provide the bytes.
        """
        desc, buffer = _resolve_arguments(desc, buffer)
        _set_padding(self, UNDEFINED if padding is None else require_contents(padding))
        if getattr(desc, "kind", None) == "sparse":
            self._fill(desc, *(allocate_buffers(desc) if buffer is None else wrap_buffers(desc, buffer)))
            return
        if getattr(desc, "kind", None) == "host_scalar" and buffer is not None:
            assert desc.data_type is not None
            self._fill(desc, encode_scalar(buffer, desc.data_type))
            return
        low, high, data_type = byte_extent(desc)
        if buffer is None:
            values = allocate(max(desc.size, high))
            if padding is None and not is_poison_requested():
                _set_padding(self, ZERO)
        else:
            values = view_as_bytes(buffer, data_type)
            _require_fit(desc, values, high, data_type)
        address = address_of(values)
        self._set(desc, values, (), address, address + low, address + high)

    def _fill(self, desc: MemoryDesc, values: Bytes, *index_buffers: Bytes) -> None:
        """Set all fields of sparse memory or of a host scalar, in which values begin at the first byte."""
        address = address_of(values)
        self._set(desc, values, index_buffers, address, address, address + desc.size)

    def _set(
        self, desc: MemoryDesc, buffer: Bytes, index_buffers: tuple[Bytes, ...], address: int, begin: int, end: int
    ) -> None:
        """Set all fields, by the setters of the slots."""
        _set_desc(self, desc)
        _set_buffer(self, buffer)
        _set_index_buffers(self, index_buffers)
        _set_address(self, address)
        _set_begin(self, begin)
        _set_end(self, end)

    def __setattr__(self, name: str, value: object) -> None:
        """Set `value`, the number of a host scalar; all other attributes are read-only.

        Machine code reads and writes at `address`, so callers must not change it. `address` is a slot and not a
        property because a slot is read without a call.

        Raises:
            AttributeError: `name` is another attribute.
        """
        if name != "value":
            raise AttributeError(f"{name} of a Memory cannot be set: make a new Memory of a descriptor and a buffer")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Refuse to delete an attribute.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{name} of a Memory cannot be deleted: delete the Memory")

    @property
    def desc(self) -> MemoryDesc:
        """Descriptor of the bytes."""
        return self._desc

    @property
    def buffer(self) -> Bytes:
        """All bytes in address order: a view of the memory, not a copy.

        Raises:
            InvalidArguments: the memory has several buffers.
        """
        if self._index_buffers:
            raise InvalidArguments(f"memory of {self._desc!r} has {self._desc.num_handles} buffers: read `buffers`")
        return self._buffer

    @property
    def buffers(self) -> tuple[Bytes, ...]:
        """Bytes of each buffer, in the order of `desc.data_types`: views of the memory, not copies."""
        return (self._buffer, *self._index_buffers)

    @property
    def value(self) -> Any:
        """Number of a host scalar, as a NumPy or ml_dtypes scalar; may be assigned.

        Raises:
            InvalidArguments: the descriptor is no host scalar, or its type cannot hold the assigned number.

        >>> zero_point = Memory(MemoryDesc.host_scalar("s32"), 3)
        >>> zero_point.value = 4
        >>> int(zero_point.value)
        4
        """
        return decode_scalar(self._buffer, self._scalar_type())

    @value.setter
    def value(self, value: object) -> None:
        self._buffer[:] = encode_scalar(value, self._scalar_type())

    def _scalar_type(self) -> DataType:
        """Return the data type of a host scalar; other memory raises an error."""
        if self._desc.kind != "host_scalar" or self._desc.data_type is None:
            raise InvalidArguments(f"value belongs to host scalars: {self._desc!r} has elements, see `unpack`")
        return self._desc.data_type

    @property
    def padding(self) -> PaddingContents:
        """Contents of the padding: `ZERO`, `Filled(value)` or `UNDEFINED`; `ZERO` if there is none.

        It is a statement that follows operations of Inlay, and is shared with views of the same bytes. Code that
        writes to `buffer` may make it wrong, which `check_padding` finds.
        """
        if not count_lanes(self._desc):
            return ZERO
        padding = self._padding
        return padding.contents if isinstance(padding, PaddingRecord) else padding

    def note_padding(self, contents: PaddingContents) -> None:
        """Record what the padding of this memory holds now, after code of the caller wrote it.

        Raises:
            InvalidArguments: `contents` are none.
        """
        checked = require_contents(contents)
        if isinstance(self._padding, PaddingRecord):
            self._padding.note(checked, count_lanes(self._desc))
        else:
            _set_padding(self, checked)

    @property
    def is_writable(self) -> bool:
        """True if every buffer may be written."""
        if not self._index_buffers:
            return self._buffer.flags.writeable
        return all(buffer.flags.writeable for buffer in self.buffers)

    def unpack(self) -> npt.NDArray[Any]:
        """Return the elements as a new row-major array of shape `desc.dims`, without padding.

        4-bit types become arrays of ml_dtypes, with one element in each byte. Sparse memory becomes a dense array.

        Post-condition: pack(memory.unpack(), memory.desc) has the elements of `memory`, bit for bit.

        Raises:
            OutOfMemory: the operating system cannot provide the bytes of the array.
            InvalidArguments: sparse memory has wrong indices or pointers.
        """
        if self._index_buffers:
            return unpack_sparse(self._desc, self.buffers)
        return logical_array(self._desc, self.address)

    def copy(self) -> "Memory":
        """Return new memory with the same descriptor and bytes, padding and gaps included.

        Raises:
            OutOfMemory: the operating system cannot provide the bytes.
        """
        if self._desc.kind == "host_scalar":
            return Memory(self._desc, self.value)
        copies = [allocate(end) for _, end in self._stored_ends()]
        for copied, (buffer, end) in zip(copies, self._stored_ends(), strict=True):
            copied[:] = buffer[:end]
        return Memory(self._desc, copies if self._index_buffers else copies[0], padding=self.padding)

    def _view(self, desc: MemoryDesc) -> "Memory":
        """Return memory of the same bytes with a descriptor of some of its elements."""
        view = Memory.__new__(Memory)
        if not isinstance(self._padding, PaddingRecord):
            _set_padding(self, PaddingRecord(self._padding, count_lanes(self._desc)))
        _set_padding(view, self._padding)
        low, high, _ = byte_extent(desc)
        view._set(desc, self._buffer, (), self.address, self.address + low, self.address + high)
        return view

    def _sizes(self) -> tuple[int, ...]:
        """Return the number of bytes from the start of each buffer that the descriptor addresses."""
        if self._index_buffers or self._desc.kind == "host_scalar":
            return self._desc.sizes
        return (max(byte_extent(self._desc)[1], self._desc.size),)

    def _file_fields(self) -> dict[str, Any]:
        """Return further fields of the JSON object in a file: the contents of the padding, if there is any."""
        if not count_lanes(self._desc) or self._desc.data_type is None:
            return {}
        return {"padding": to_text(self.padding, self._desc.data_type)}

    @classmethod
    def _from_file(cls, desc: MemoryDesc, buffers: list[Bytes], fields: dict[str, Any]) -> "Memory":
        """Return the memory of the parts of a file."""
        if len(buffers) != desc.num_handles or desc.data_type is None:
            raise InvalidArguments(f"{desc!r} has {desc.num_handles} buffers, not {len(buffers)}")
        if desc.kind == "host_scalar" and buffers[0].size >= desc.size:
            return Memory(desc, decode_scalar(buffers[0][: desc.size], desc.data_type))
        padding = from_text(fields.get("padding", "undefined"), desc.data_type)
        return Memory(desc, buffers if desc.kind == "sparse" else buffers[0], padding=padding)

    @property
    def extents(self) -> list[tuple[int, int]]:
        """Address range of each buffer: the first address, and the address after the last byte in use."""
        starts = map(address_of, self._index_buffers)
        index_ranges = [(start, start + nbytes) for start, nbytes in zip(starts, self._desc.sizes[1:], strict=True)]
        return [(self.begin, self.end), *index_ranges]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the descriptor and the bytes; addresses are valid in one process only."""
        if self._desc.kind == "host_scalar":
            return type(self), (self._desc, self.value)
        return _restored, (self._desc, self.buffers if self._index_buffers else self._buffer, self.padding)

    def __repr__(self) -> str:
        """Return the descriptor and the number of bytes as text."""
        return f"<Memory of {self._desc!r}, {' + '.join(str(buffer.size) for buffer in self.buffers)} bytes>"

    def _repr_html_(self) -> str:
        """Return the picture that a notebook shows: the values in the tensor and in memory."""
        from inlay.render import show

        return show(self).html()


# Setters of the slots. `Memory.__setattr__` refuses assignment, so only these write them.
_set_desc = vars(Memory)["_desc"].__set__

_set_padding = vars(Memory)["_padding"].__set__

_set_buffer = vars(Memory)["_buffer"].__set__

_set_index_buffers = vars(Memory)["_index_buffers"].__set__

_set_address = vars(Memory)["address"].__set__

_set_begin = vars(Memory)["begin"].__set__

_set_end = vars(Memory)["end"].__set__


def _restored(desc: MemoryDesc, buffers: Any, padding: PaddingContents) -> Memory:
    """Recreate pickled memory; pickles contain the name of this function."""
    return Memory(desc, buffers, padding=padding)


Format: TypeAlias = Notation | str | MemoryDesc
"""Destination format: a format tag or alias, or a whole descriptor."""


def require_memory(value: object, name: str = "memory") -> None:
    """Raise an error if `value` is not a `Memory`; the message calls it `name`.

    Raises:
        InvalidArguments: `value` is not a `Memory`.
    """
    if not isinstance(value, Memory):
        raise InvalidArguments(
            f"{name} is a {type(value).__name__}: wrap it as Memory(desc, buffer), or use inlay.pack"
        )


def new_result(desc: MemoryDesc) -> Memory:
    """Return new memory for the result of a reorder, whose buffer is from the pool of `result_pool` if it is large.

    The memory states that its padding is zero, as every reorder leaves it.

    Post-condition: each byte that a reorder into `desc` does not write is zero, or poison if INLAY_POISON is 1.

    Raises:
        InvalidArguments, Unimplemented, OutOfMemory: as `Memory`; or INLAY_POOL is wrong.
    """
    extent = _result_extent(desc)
    if extent is None:
        memory = Memory(desc)
        _set_padding(memory, ZERO)
        return memory
    low, high = extent
    memory = Memory.__new__(Memory)
    buffer = allocate_result(desc, high)
    address = address_of(buffer)
    memory._set(desc, buffer, (), address, address + low, address + high)
    _set_padding(memory, ZERO)
    return memory


@lru_cache(maxsize=512)
def _result_extent(desc: MemoryDesc) -> tuple[int, int] | None:
    """Return the range of bytes that a descriptor addresses, or None if its memory has no strided elements."""
    return None if desc.kind in ("sparse", "host_scalar") else byte_extent(desc)[:2]


# Descriptors of arrays and layouts


def _resolve_arguments(desc: Any, buffer: Any) -> tuple[MemoryDesc, Any]:
    """Return descriptor and buffer for the arguments of `Memory`: `desc` may also be an array or a layout."""
    if isinstance(desc, np.ndarray) and buffer is None:
        return describe_view(desc)
    return describe_layout_view(desc, buffer) if isinstance(desc, Layout) else (desc, buffer)


def describe_view(array: object) -> tuple[MemoryDesc, Bytes]:
    """Return the descriptor of an array with its strides, and the bytes from its lowest element to its highest.

    The bytes are a view of the array, not a copy.

    Raises:
        InvalidArguments: `array` cannot be read as memory; it has no axes; a stride is not a multiple of the element
            size; or no descriptor has its data type, or the type takes 4 bits in memory.
    """
    values = view_as_array(array, "array")
    desc = describe_array(values)
    layout, _ = desc.require_layout("a view")
    low, high = layout.byte_span(values.itemsize)
    return desc, np.asarray(_ByteView(values, low, high - low))


class _ByteView:
    """An object that exports `nbytes` bytes of an array, from `low` bytes after its first element on.

    It implements `__array_interface__`, copies nothing, and holds a reference to the array.
    """

    def __init__(self, array: npt.NDArray[Any], low: int, nbytes: int) -> None:
        self.array = array
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address_of(array) + low, not array.flags.writeable),
        }


def describe_layout_view(layout: Layout, buffer: object) -> tuple[MemoryDesc, Any]:
    """Return a descriptor with `layout` for the elements of the array `buffer`, and the array.

    Offsets are shifted so that the lowest offset of the layout is the first element of the array.

    Raises:
        InvalidArguments: `buffer` cannot be read as memory, or no descriptor has its data type.
        Unimplemented: a dim or stride is RUNTIME.
    """
    if buffer is None:
        raise InvalidArguments(
            "a Layout has no data type: give the array of its elements, or describe the memory with "
            "MemoryDesc.from_layout(layout, 'f32')"
        )
    if layout.has_runtime:
        raise Unimplemented("memory needs known dims and strides: this layout has RUNTIME ones, bind them first")
    values = view_as_array(buffer)
    return place_lowest_first(layout, as_data_type(values.dtype)), values


def _require_fit(desc: MemoryDesc, buffer: Bytes, high: int, data_type: DataType) -> None:
    """Check that a buffer has at least `high` bytes and is aligned to its elements, to at most 8 bytes."""
    if buffer.size < high:
        raise InvalidArguments(f"buffer of {buffer.size} bytes is too small: {desc!r} reaches {high} bytes")
    if address_of(buffer) % min(data_type.itemsize, 8):
        raise InvalidArguments(
            f"buffer starts at an address that is no multiple of the {data_type.itemsize} bytes of {data_type}: "
            "copy it to an array of its own"
        )


# NumPy views described by a layout


Scalar = TypeVar("Scalar", bound=np.generic)


def as_strided(elements: npt.NDArray[Scalar], layout: Layout, offset0: int = 0) -> npt.NDArray[Scalar]:
    """Return a view of the one-dimensional dense array `elements` with the dims and strides of `layout`.

    `offset0` is the index of the element at the origin. The view is writable if `elements` is writable and
    `layout.is_non_overlapping`; otherwise one write could change several elements.

    Post-conditions: result[x] is elements[offset0 + layout.offset(x)] for every coordinate x, and
    Layout.from_array(result) is equivalent to `layout`.

    Raises:
        InvalidArguments: `elements` is not a dense array of one axis, `layout` is not a plain `Layout`, `offset0` is
            not an integer, or the layout addresses elements outside the array.
        Unimplemented: `layout` has RUNTIME dims or strides.

    >>> backwards = as_strided(np.arange(6), Layout.from_strides((6,), (-1,)), 5)
    >>> backwards.tolist()
    [5, 4, 3, 2, 1, 0]
    """
    if not all(isinstance(value, kind) for value, kind in ((elements, np.ndarray), (layout, Layout))):
        raise InvalidArguments(
            f"elements is a {type(elements).__name__} and layout a {type(layout).__name__}: give a NumPy array of one "
            "axis and a Layout"
        )
    offset0 = as_integer("offset0", offset0)
    if elements.ndim != 1 or not elements.flags.c_contiguous:
        raise InvalidArguments(
            f"elements of shape {elements.shape} and strides {elements.strides}: give one dense axis, as array.ravel()"
        )
    low, high = layout.span
    strides = layout.byte_strides(elements.itemsize)
    if layout.size == 0:
        return np.lib.stride_tricks.as_strided(elements[:0], layout.dims, strides, writeable=elements.flags.writeable)
    if offset0 + low < 0 or offset0 + high > len(elements):
        raise InvalidArguments(
            f"the layout reaches elements {offset0 + low} to {offset0 + high - 1} from offset0 {offset0}, "
            f"outside the {len(elements)} there are"
        )
    writeable = bool(elements.flags.writeable) and layout.is_non_overlapping
    return np.lib.stride_tricks.as_strided(elements[offset0:], layout.dims, strides, writeable=writeable)
