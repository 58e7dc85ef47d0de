"""`Memory`, a descriptor with its bytes, and the moves from memory to memory.

A move is compiled for a pair of descriptors and then works on two addresses. `pack`, `unpack` and `reorder` keep what
they compiled, so the second call with equal descriptors finds it; a `Reorder` holds it in the caller's hands.

Types of 4 bits are moved coordinate by coordinate, by the reference; every other type by compiled code.
"""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.format_tag import FormatTag
from inlay.layout import Layout
from inlay.memory.buffers import Bytes, address_of, allocate, array_of, bytes_of
from inlay.reordering import compile_reorder
from inlay.reordering.reference import read_codes, reference_reorder, write_codes

Format: TypeAlias = FormatTag | str | MemoryDesc
"""Where elements shall go: a format tag or alias, or a whole descriptor."""

_REMEMBERED = 512


class Memory:
    """A descriptor and the bytes it describes.

    >>> desc = MemoryDesc((2, 3), "f32", "ba")
    >>> memory = Memory(desc, np.array([1, 4, 2, 5, 3, 6], np.float32))
    >>> memory.unpack()
    array([[1., 2., 3.],
           [4., 5., 6.]], dtype=float32)
    """

    __slots__ = ("_buffer", "_desc", "address", "begin", "end")

    address: int
    """Of the first byte of the buffer; offsets of the descriptor count from here."""
    begin: int
    """Address of the lowest byte that an element or padding has."""
    end: int
    """Address past the highest byte that an element or padding has."""

    def __init__(self, desc: MemoryDesc, buffer: object = None) -> None:
        """Wrap `buffer`, or new zero bytes if it is None.

        A buffer is anything with the buffer protocol, `__array_interface__` or DLPack, contiguous, that holds elements
        of the descriptor's type or raw bytes (uint8). It is not copied, and may be longer than needed. New bytes are
        `desc.size`, or as many as the layout reaches if that is more, and start at a multiple of 64 (2 MiB if large).

        Raises:
            InvalidArguments: `desc` has no layout (any, opaque, host scalar, the zero descriptor) or reaches below the
                start of the buffer; or `buffer` is too small, not contiguous, of another type, not aligned to its
                elements, or no buffer.
            Unimplemented: a dim or stride of `desc` is RUNTIME.
            OutOfMemory: there is no room for new bytes.
        """
        low, high, data_type = _reach(desc)
        if buffer is None:
            self._buffer = allocate(max(desc.size, high))
        else:
            self._buffer = bytes_of(buffer, data_type)
            _require_fit(desc, self._buffer, high, data_type)
        self._desc = desc
        self.address = address_of(self._buffer)
        self.begin = self.address + low
        self.end = self.address + high

    @property
    def desc(self) -> MemoryDesc:
        """What the bytes mean."""
        return self._desc

    @property
    def buffer(self) -> Bytes:
        """All bytes, in address order: the memory itself, not a copy."""
        return self._buffer

    @property
    def is_writable(self) -> bool:
        """Whether elements may be written."""
        return bool(self._buffer.flags.writeable)

    def unpack(self) -> npt.NDArray[Any]:
        """The elements as a new logical array of shape `desc.dims`, row-major, without padding.

        Types of 4 bits become ml_dtypes' arrays, which have one element in a byte.

        Post-condition: pack(memory.unpack(), memory.desc) has the elements of `memory`, bit for bit.

        Raises:
            OutOfMemory: there is no room for the array.
        """
        _, data_type = self._desc.require_layout("unpack")
        if data_type.is_sub_byte:
            return _decoded(read_codes(self._desc, self._buffer), data_type)
        plain = MemoryDesc(self._desc.dims, data_type)
        array = allocate(plain.size).view(data_type.numpy).reshape(plain.dims)
        _move_for(self._desc, plain).run(self.address, address_of(array))
        return array

    def __repr__(self) -> str:
        """The descriptor and the number of bytes."""
        return f"<Memory of {self._desc!r}, {self._buffer.size} bytes>"


def _reach(desc: object) -> tuple[int, int, DataType]:
    """The bytes from the start of the buffer that `desc` reaches, first and past the last, and its type."""
    if not isinstance(desc, MemoryDesc):
        raise InvalidArguments(f"desc is {desc!r}: describe the memory first, as in MemoryDesc((2, 3), 'f32', 'ab')")
    if not isinstance(desc.layout, Layout) or desc.data_type is None:
        raise InvalidArguments(f"memory needs a layout: {desc!r} is of kind {desc.kind}; {_NO_LAYOUT[desc.kind]}")
    if desc.has_runtime:
        raise Unimplemented(f"memory needs known dims and strides: {desc!r} has RUNTIME ones, bind them first")
    low, high = desc.layout.span
    if low == high:
        return 0, 0, desc.data_type
    if low + desc.offset0 < 0:
        raise InvalidArguments(
            f"{desc!r} reaches {-low - desc.offset0} elements below the start of its buffer: give it a larger offset0"
        )
    bits = desc.data_type.bits
    return (low + desc.offset0) * bits // 8, -(-(high + desc.offset0) * bits // 8), desc.data_type


_NO_LAYOUT = {
    "undef": "it describes nothing",
    "any": "give a format tag, or ask a primitive which format it takes",
    "opaque": "only the engine that made it can allocate it",
    "host_scalar": "its value is passed with the call",
}


def _require_fit(desc: MemoryDesc, buffer: Bytes, high: int, data_type: DataType) -> None:
    if buffer.size < high:
        raise InvalidArguments(f"buffer of {buffer.size} bytes is too small: {desc!r} reaches {high} bytes")
    if address_of(buffer) % data_type.itemsize:
        raise InvalidArguments(
            f"buffer starts at an address that is no multiple of the {data_type.itemsize} bytes of {data_type}: "
            "copy it to an array of its own"
        )


def _decoded(codes: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """The values of 4-bit codes."""
    if data_type.kind == "signed":
        return ((codes.astype(np.int8) ^ 8) - 8).astype(data_type.numpy)
    return codes.astype(np.uint8).view(data_type.numpy)


def _encoded(array: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """The 4-bit codes of values."""
    signed = data_type.kind == "signed"
    return (array.astype(np.int8).view(np.uint8) & 15) if signed else np.ascontiguousarray(array).view(np.uint8) & 15


class _Move(Protocol):
    """What runs a reorder between two addresses."""

    def run(self, src_address: int, dst_address: int) -> None: ...
    def explain(self) -> str: ...


class _ByCoordinate:
    """A move of elements of 4 bits, by the reference."""

    def __init__(self, src: MemoryDesc, dst: MemoryDesc) -> None:
        if src.dims != dst.dims:
            raise InvalidArguments(f"a reorder keeps the dims: source {src.dims}, destination {dst.dims}")
        if dst.require_layout("reorder")[0].overlaps:
            raise InvalidArguments("elements of the destination overlap: give every element an offset of its own")
        self._sides = (src, dst)
        self._nbytes = (_reach(src)[1], _reach(dst)[1])

    def run(self, src_address: int, dst_address: int) -> None:
        pairs = zip(self._nbytes, (src_address, dst_address), strict=True)
        src, dst = (np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(at)) for n, at in pairs)
        reference_reorder(self._sides[0], src, self._sides[1], dst)

    def explain(self) -> str:
        return f"{self._sides[0]} -> {self._sides[1]}\n  elements of 4 bits, moved coordinate by coordinate"


def _new_move(src: MemoryDesc, dst: MemoryDesc) -> _Move:
    if src.data_type is not None and src.data_type == dst.data_type and src.data_type.is_sub_byte:
        return _ByCoordinate(src, dst)
    return compile_reorder(src, dst)


_move_for = lru_cache(maxsize=_REMEMBERED)(_new_move)


class Reorder:
    """A move from one descriptor to another, compiled once and called many times, from any number of threads.

    >>> src, dst = (MemoryDesc((64, 32), "u8", tag) for tag in ("ab", "ba"))
    >>> transpose = Reorder(src, dst)
    >>> one, two = Memory(src, np.arange(2048).astype(np.uint8)), Memory(dst)
    >>> transpose(one, two)
    >>> np.array_equal(one.unpack(), two.unpack())
    True
    """

    __slots__ = ("_dst", "_move", "_run", "_src")

    def __init__(self, src: MemoryDesc, dst: MemoryDesc) -> None:
        """Compile the move.

        Raises:
            InvalidArguments: the dims differ, a side has no layout, or elements of the destination overlap.
            Unimplemented: a dim or stride is RUNTIME, or no conversion exists between the types.
        """
        self._src = src
        self._dst = dst
        self._move = _new_move(src, dst)
        self._run: Callable[[int, int], None] = self._move.run

    @property
    def src(self) -> MemoryDesc:
        """What sources look like."""
        return self._src

    @property
    def dst(self) -> MemoryDesc:
        """What destinations look like."""
        return self._dst

    def __call__(self, src: Memory, dst: Memory) -> None:
        """Write the elements of `src` into `dst`; its padding becomes zero, and nothing else in it changes.

        Raises:
            InvalidArguments: a memory has another descriptor than was compiled for, the two lie on one another, or
                `dst` is read-only.
        """
        if not (src._desc is self._src or src._desc == self._src):
            _refuse_other("source", src._desc, self._src)
        if not (dst._desc is self._dst or dst._desc == self._dst):
            _refuse_other("destination", dst._desc, self._dst)
        _require_apart(src, dst)
        self._run(src.address, dst.address)

    def explain(self) -> str:
        """What was compiled and why, as text."""
        return self._move.explain()


def _refuse_other(side: str, given: MemoryDesc, compiled: MemoryDesc) -> NoReturn:
    raise InvalidArguments(f"the {side} is {given!r}, but this reorder was compiled for {compiled!r}: make one for it")


def _require_apart(src: Memory, dst: Memory) -> None:
    if not dst._buffer.flags.writeable:
        raise InvalidArguments("the destination is read-only: give a writable buffer, or none to have one allocated")
    if src.begin < dst.end and dst.begin < src.end:
        shared = min(src.end, dst.end) - max(src.begin, dst.begin)
        raise InvalidArguments(
            f"source and destination share {shared} bytes of memory: a reorder is not done in place, "
            "give another buffer"
        )


def reorder(src: Memory, dst: Format, *, out: Memory | None = None) -> Memory:
    """The elements of `src` in memory described by `dst`: `out` if given, else new memory.

    A tag as `dst` keeps the data type; `any` takes the format of `src`. The compiled move is remembered.

    Post-condition: result.unpack() equals src.unpack(), converted to the type of `dst`.

    Raises:
        InvalidArguments: the dims differ, `dst` has no layout or its elements overlap, or `out` has another
            descriptor, is read-only, or lies on the memory of `src`.
        FormatTagError: `dst` cannot be read.
        Unimplemented: no conversion exists between the types.
        OutOfMemory: there is no room for the result.

    >>> rows = pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ab")
    >>> reorder(rows, "ba").buffer.view(np.float32).tolist()
    [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    """
    _require_memory("src", src)
    desc = _resolved(src.desc, dst)
    move = _move_for(src.desc, desc)
    if out is None:
        result = Memory(desc)
    else:
        _require_memory("out", out)
        if out.desc != desc:
            raise InvalidArguments(
                f"out is {out.desc!r}, but the destination is {desc!r}: give both the same descriptor"
            )
        _require_apart(src, out)
        result = out
    move.run(src.address, result.address)
    return result


def _require_memory(name: str, value: object) -> None:
    if not isinstance(value, Memory):
        raise InvalidArguments(
            f"{name} is a {type(value).__name__}: wrap it as Memory(desc, buffer), or use inlay.pack"
        )


def _resolved(src: MemoryDesc, dst: Format) -> MemoryDesc:
    """The descriptor that `dst` means for elements of `src`."""
    layout, data_type = src.require_layout("reorder")
    wanted = dst if isinstance(dst, MemoryDesc) else MemoryDesc(src.dims, data_type, dst)
    if wanted.kind != "any" or wanted.dims != src.dims or wanted.data_type is None:
        return wanted
    if layout.overlaps:
        return MemoryDesc(src.dims, wanted.data_type)
    return MemoryDesc.from_layout(layout, wanted.data_type, dims=src.dims)


def pack(array: object, format: Format, data_type: DataTypeLike | None = None) -> Memory:
    """The elements of a logical array in new memory of this format, converted to `data_type` if that is given.

    `array` is a NumPy or ml_dtypes array with any strides, or what NumPy can see as one. `format` is a tag, an alias,
    or a whole descriptor of the array's dims.

    Post-condition: pack(array, format).unpack() equals `array`, bit for bit.

    Raises:
        InvalidArguments: the array has no axes, a type that cannot be stored, or other dims than `format`; or
            `data_type` is given beside a descriptor of another type.
        FormatTagError: `format` cannot be read.
        Unimplemented: no conversion exists between the types.
        OutOfMemory: there is no room for the result.

    >>> pack(np.ones((2, 3, 4, 4), np.float32), "nhwc", "bf16").desc
    MemoryDesc((2, 3, 4, 4), 'bf16', 'acdb')
    """
    logical = np.asarray(array) if isinstance(array, (list, tuple)) else array_of(array)
    src_type = as_data_type(logical.dtype)
    if not logical.ndim:
        raise InvalidArguments("array is a scalar, which has no axes to place: give it one with reshape(1)")
    memory = Memory(_destination(logical.shape, src_type, format, data_type))
    if src_type.is_sub_byte and memory.desc.data_type == src_type:
        write_codes(memory.desc, memory.buffer, _encoded(logical, src_type))
        return memory
    src, logical = _described(logical, src_type)
    _move_for(src, memory.desc).run(address_of(logical), memory.address)
    return memory


def _destination(
    dims: tuple[int, ...], src_type: DataType, format: Format, data_type: DataTypeLike | None
) -> MemoryDesc:
    wanted = None if data_type is None else as_data_type(data_type)
    if not isinstance(format, MemoryDesc):
        return MemoryDesc(dims, wanted or src_type, format)
    if format.dims != dims:
        raise InvalidArguments(f"array has dims {dims}, but format {format!r} has {format.dims}: give equal dims")
    if wanted not in (None, format.data_type):
        raise InvalidArguments(f"data_type is {wanted}, but format {format!r} is {format.data_type}: leave one out")
    return format


def _described(array: npt.NDArray[Any], data_type: DataType) -> tuple[MemoryDesc, npt.NDArray[Any]]:
    """A descriptor of an array, and the array, copied where descriptors cannot say its strides."""
    steps = [stride // array.itemsize for stride in array.strides]
    if all(stride % array.itemsize == 0 for stride in array.strides):
        desc = MemoryDesc(array.shape, data_type, strides=steps, allow_empty=True)
        if not desc.is_zero and address_of(array) % array.itemsize == 0:
            return desc, array
    return MemoryDesc(array.shape, data_type), np.ascontiguousarray(array)
