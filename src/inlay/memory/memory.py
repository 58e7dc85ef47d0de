"""`Memory`: a descriptor with its bytes, checked once when they are wrapped, and the way back to a logical array.

An array of NumPy has dims, a type, strides and an address, so it is a memory as it lies, whatever its strides are:
negative in `a[::-1]`, 0 where it was broadcast, overlapping in sliding windows. Its memory begins at the lowest byte
that an element has.

>>> desc, buffer = view_of(np.arange(6, dtype=np.uint8)[::-1])
>>> desc.offset((0,)), desc.strides, buffer.tolist()
(5, (-1,), [0, 1, 2, 3, 4, 5])

`as_strided` is the way back from `Layout.from_array`. A plain layout has what an array needs, one stride per axis, and
nothing else: no data and no data type. `as_strided` lends it the elements of an array and checks first that every
offset lies among them, which NumPy's function of that name does not.

>>> import numpy as np
>>> from inlay.layout import Layout
>>> as_strided(np.arange(12), Layout.row_major((3, 4)).dimshuffle((1, 0)))[1]
array([1, 5, 9])
"""

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
    allocated,
    array_of,
    bytes_of,
    scalar_bytes,
    scalar_value,
    wrapped,
)
from inlay.memory.entries import dense_array
from inlay.memory.moves import logical_array, reach
from inlay.notation.format_tag import FormatTag


class Memory:
    """A descriptor and the bytes it describes.

    >>> import numpy as np
    >>> desc = MemoryDesc((2, 3), "f32", "ba")
    >>> memory = Memory(desc, np.array([1, 4, 2, 5, 3, 6], np.float32))
    >>> memory.unpack()
    array([[1., 2., 3.],
           [4., 5., 6.]], dtype=float32)
    """

    __slots__ = ("_buffer", "_desc", "_others", "address", "begin", "end")

    _buffer: Bytes
    _desc: MemoryDesc
    _others: tuple[Bytes, ...]
    address: int
    """Of the first byte of the buffer; offsets of the descriptor count from here. Of several buffers, the values'."""
    begin: int
    """Address of the lowest byte that an element or padding has."""
    end: int
    """Address past the highest byte that an element or padding has."""

    def __init__(self, desc: MemoryDesc | Layout | npt.NDArray[Any], buffer: object = None) -> None:
        """Wrap `buffer`, or new zero bytes (poison with INLAY_POISON=1, see `buffers`) if it is None.

        An array in the place of the descriptor is wrapped as it lies, with any strides: a view that is turned round,
        broadcast, or of sliding windows. A `Layout` in its place says where the elements of the array `buffer` lie; the
        lowest one is the first. Elements that share memory can be read and not written.

        A buffer is anything with the buffer protocol, `__array_interface__` or DLPack, contiguous, that holds elements
        of the descriptor's type or raw bytes (uint8). It is not copied, and may be longer than needed. New bytes are
        `desc.size`, or as many as the layout reaches if that is more, and start at a multiple of 64 (2 MiB if large).

        Memory of an opaque format is as many bytes as its engine asks for, which that engine alone can read and write.

        The memory of a host scalar takes its value, a number, in place of a buffer.

        Sparse memory takes a list of buffers, `desc.num_handles` of them: values, indices and pointers for CSR, values
        and the indices of each axis for COO. What they say is not checked here; `sparse.check` does.

        Raises:
            InvalidArguments: `desc` has no layout (any, the zero descriptor), is an array that `view_of` refuses or a
                Layout without an array, or is a host scalar without a value or with one that its type cannot hold; it
                reaches below the start of the buffer; or `buffer` is too small, not contiguous, of another type, not
                aligned to its elements, or no buffer; or there are not as many as sparse memory has.
            Unimplemented: a dim or stride of `desc` is RUNTIME, or `desc` is packed and has no tag.
            OutOfMemory: there is no room for new bytes.
        """
        desc, buffer = _described(desc, buffer)
        if getattr(desc, "kind", None) == "sparse":
            self._fill(desc, *(allocated(desc) if buffer is None else wrapped(desc, buffer)))
            return
        if getattr(desc, "kind", None) == "host_scalar" and buffer is not None:
            assert desc.data_type is not None
            self._fill(desc, scalar_bytes(buffer, desc.data_type))
            return
        low, high, data_type = reach(desc)
        if buffer is None:
            values = allocate(max(desc.size, high))
        else:
            values = bytes_of(buffer, data_type)
            _require_fit(desc, values, high, data_type)
        address = address_of(values)
        self._set(desc, values, (), address, address + low, address + high)

    def _fill(self, desc: MemoryDesc, values: Bytes, *others: Bytes) -> None:
        address = address_of(values)
        self._set(desc, values, others, address, address, address + desc.size)

    def _set(
        self, desc: MemoryDesc, buffer: Bytes, others: tuple[Bytes, ...], address: int, begin: int, end: int
    ) -> None:
        _set_desc(self, desc)
        _set_buffer(self, buffer)
        _set_others(self, others)
        _set_address(self, address)
        _set_begin(self, begin)
        _set_end(self, end)

    def __setattr__(self, name: str, value: object) -> None:
        """Set `value`, of a host scalar; everything else follows from descriptor and buffer.

        Machine code reads and writes at `address`, so nobody sets it; that reading it costs no call is why it is no
        property.

        Raises:
            AttributeError: it is another attribute.
        """
        if name != "value":
            raise AttributeError(f"{name} of a Memory cannot be set: make a new Memory of a descriptor and a buffer")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete nothing.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{name} of a Memory cannot be deleted: delete the Memory")

    @property
    def desc(self) -> MemoryDesc:
        """What the bytes mean."""
        return self._desc

    @property
    def buffer(self) -> Bytes:
        """All bytes, in address order: the memory itself, not a copy.

        Raises:
            InvalidArguments: there are several buffers.
        """
        if self._others:
            raise InvalidArguments(f"memory of {self._desc!r} has {self._desc.num_handles} buffers: read `buffers`")
        return self._buffer

    @property
    def buffers(self) -> tuple[Bytes, ...]:
        """The bytes of each buffer, in the order of `desc.data_types`: the memory itself, not a copy."""
        return (self._buffer, *self._others)

    @property
    def value(self) -> Any:
        """The value of a host scalar, as a NumPy or ml_dtypes scalar; it may be set.

        Raises:
            InvalidArguments: the descriptor is no host scalar, or its type cannot hold the new value.

        >>> zero_point = Memory(MemoryDesc.host_scalar("s32"), 3)
        >>> zero_point.value = 4
        >>> int(zero_point.value)
        4
        """
        return scalar_value(self._buffer, self._scalar_type())

    @value.setter
    def value(self, value: object) -> None:
        self._buffer[:] = scalar_bytes(value, self._scalar_type())

    def _scalar_type(self) -> DataType:
        if self._desc.kind != "host_scalar" or self._desc.data_type is None:
            raise InvalidArguments(f"value belongs to host scalars: {self._desc!r} has elements, see `unpack`")
        return self._desc.data_type

    @property
    def is_writable(self) -> bool:
        """Whether elements may be written."""
        if not self._others:
            return self._buffer.flags.writeable
        return all(buffer.flags.writeable for buffer in self.buffers)

    def unpack(self) -> npt.NDArray[Any]:
        """The elements as a new logical array of shape `desc.dims`, row-major, without padding.

        Types of 4 bits become ml_dtypes' arrays, which have one element in a byte. Sparse memory becomes dense.

        Post-condition: pack(memory.unpack(), memory.desc) has the elements of `memory`, bit for bit.

        Raises:
            OutOfMemory: there is no room for the array.
            InvalidArguments: sparse memory has wrong indices or pointers.
        """
        if self._others:
            return dense_array(self._desc, self.buffers)
        return logical_array(self._desc, self.address)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """`unpack`, for NumPy: the logical array is always a copy.

        Raises:
            InvalidArguments: no copy is allowed.

        >>> import numpy as np
        >>> np.asarray(Memory(MemoryDesc((2, 2), "f32", "ba"), np.arange(4, dtype=np.float32)))
        array([[0., 2.],
               [1., 3.]], dtype=float32)
        """
        if copy is False:
            raise InvalidArguments("the logical array of a memory is a copy: the bytes themselves are memory.buffer")
        array = self.unpack()
        return array if dtype is None else array.astype(dtype, copy=False)

    @property
    def extents(self) -> list[tuple[int, int]]:
        """The first address of each buffer and the one past its last byte that is used."""
        starts = map(address_of, self._others)
        others = [(at, at + nbytes) for at, nbytes in zip(starts, self._desc.sizes[1:], strict=True)]
        return [(self.begin, self.end), *others]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the descriptor and the bytes: an address is that of one buffer in one process."""
        if self._desc.kind == "host_scalar":
            return type(self), (self._desc, self.value)
        return type(self), (self._desc, self.buffers if self._others else self._buffer)

    def __repr__(self) -> str:
        """The descriptor and the number of bytes."""
        return f"<Memory of {self._desc!r}, {' + '.join(str(buffer.size) for buffer in self.buffers)} bytes>"


# Only these write through the slots.
_set_desc = vars(Memory)["_desc"].__set__

_set_buffer = vars(Memory)["_buffer"].__set__

_set_others = vars(Memory)["_others"].__set__

_set_address = vars(Memory)["address"].__set__

_set_begin = vars(Memory)["begin"].__set__

_set_end = vars(Memory)["end"].__set__

Format: TypeAlias = FormatTag | str | MemoryDesc
"""Where elements shall go: a format tag or alias, or a whole descriptor."""


def require_memory(value: object, name: str = "memory") -> None:
    """Refuse what is no `Memory`.

    Raises:
        InvalidArguments: `value`, which messages call `name`, is something else.
    """
    if not isinstance(value, Memory):
        raise InvalidArguments(
            f"{name} is a {type(value).__name__}: wrap it as Memory(desc, buffer), or use inlay.pack"
        )


# What a memory is made from


def _described(desc: Any, buffer: Any) -> tuple[MemoryDesc, Any]:
    """The descriptor and the buffer that a caller means: an array describes itself, a layout lies in an array."""
    if isinstance(desc, np.ndarray) and buffer is None:
        return view_of(desc)
    return layout_over(desc, buffer) if isinstance(desc, Layout) else (desc, buffer)


def view_of(array: object) -> tuple[MemoryDesc, Bytes]:
    """The descriptor of an array as it lies, and the bytes from its lowest element to its highest, without a copy.

    Raises:
        InvalidArguments: `array` cannot be read as memory, has no axes, strides that are no multiple of its elements,
            or a type that no descriptor has or that takes 4 bits in memory.
    """
    values = array_of(array, "array")
    desc = describe_array(values)
    layout, _ = desc.require_layout("a view")
    low, high = layout.byte_span(values.itemsize)
    return desc, np.asarray(_Span(values, low, high - low))


class _Span:
    """`nbytes` bytes of an array from `low` on, counted from its first element, without a copy; keeps it alive."""

    def __init__(self, array: npt.NDArray[Any], low: int, nbytes: int) -> None:
        self.array = array
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address_of(array) + low, not array.flags.writeable),
        }


def layout_over(layout: Layout, buffer: object) -> tuple[MemoryDesc, Any]:
    """The descriptor of elements that `layout` places in `buffer`, an array: the lowest one is its first.

    Raises:
        InvalidArguments: `buffer` cannot be read as memory, or has a type that no descriptor has.
        Unimplemented: a dim or stride is RUNTIME.
    """
    if buffer is None:
        raise InvalidArguments(
            "a Layout says no data type: give the array that it lies in, or describe the memory with "
            "MemoryDesc.from_layout(layout, 'f32')"
        )
    if layout.has_runtime:
        raise Unimplemented("memory needs known dims and strides: this layout has RUNTIME ones, bind them first")
    values = array_of(buffer)
    return place_lowest_first(layout, as_data_type(values.dtype)), values


def _require_fit(desc: MemoryDesc, buffer: Bytes, high: int, data_type: DataType) -> None:
    if buffer.size < high:
        raise InvalidArguments(f"buffer of {buffer.size} bytes is too small: {desc!r} reaches {high} bytes")
    if address_of(buffer) % min(data_type.itemsize, 8):
        raise InvalidArguments(
            f"buffer starts at an address that is no multiple of the {data_type.itemsize} bytes of {data_type}: "
            "copy it to an array of its own"
        )


# Views by a layout


Scalar = TypeVar("Scalar", bound=np.generic)


def as_strided(elements: npt.NDArray[Scalar], layout: Layout, offset0: int = 0) -> npt.NDArray[Scalar]:
    """The view of `elements`, an array of one dense axis, whose coordinates `layout` places from `offset0` on.

    The view can be written to if `elements` can and the layout nests (`is_non_overlapping`): one write would else
    change several elements.

    Post-conditions: result[x] is elements[offset0 + layout.offset(x)] for every coordinate x, and
    Layout.from_array(result) is equivalent to `layout`.

    Raises:
        InvalidArguments: `elements` is no array of one dense axis, `layout` is none or not plain, `offset0` is no
            integer, or the layout reaches beyond `elements`.
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
