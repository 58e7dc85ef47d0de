"""`CompoundMemory`: a buffer in a compound format; pack, assemble and unpack.

>>> import numpy as np
>>> x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
>>> memory = pack_compound(x, "ggml:Q4_0")
>>> memory.desc.size, memory.stream("quants")[0, :4].tolist()
(36, [0, 0, 1, 1])
>>> again = assemble("ggml:Q4_0", memory.streams())
>>> again.buffer.tobytes() == memory.buffer.tobytes()
True
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat, Stream
from inlay.descriptor.compound_table import code_values, compound
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.layout.address import as_numbers
from inlay.memory.buffers import address_of, allocate, view_as_array, view_as_bytes
from inlay.memory.compound.bits import gather_stream, portions, scatter_stream
from inlay.memory.compound.fused import unpack_compiled
from inlay.memory.compound.quantize import QUANTIZERS
from inlay.memory.reorder_cache import find_reorder

_U8 = DATA_TYPES["u8"]
_FLOAT_DTYPES = frozenset(t.dtype for t in DATA_TYPES.values() if t.kind == "float")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompoundMemory:
    """A buffer that holds a tensor in a compound format."""

    desc: CompoundDesc
    """Format and dims."""
    buffer: npt.NDArray[np.uint8]
    """The bytes, of which the first `desc.size` belong to the tensor."""

    def __post_init__(self) -> None:
        """Wrap the buffer without a copy, and check its size.

        Raises:
            InvalidArguments: `desc` is no CompoundDesc, or `buffer` is no contiguous buffer of bytes or integers, or is
                too small.
        """
        if not isinstance(self.desc, CompoundDesc):
            raise InvalidArguments(f"desc is {shown(self.desc)}: give a CompoundDesc, as inlay.CompoundDesc(...) is")
        array = view_as_array(self.buffer)
        if array.dtype.kind in "fc" or array.dtype in _FLOAT_DTYPES:
            raise InvalidArguments(
                f"buffer holds {array.dtype}, and that of {self.desc} holds bytes: inlay.pack_compound quantizes "
                "floats, and array.view(np.uint8) passes bits as they are"
            )
        has_bytes = array.flags.c_contiguous and array.ndim and not array.dtype.hasobject
        data = view_as_bytes(array.view(np.uint8) if has_bytes else array, _U8)
        if data.size < self.desc.size:
            raise InvalidArguments(
                f"buffer of {data.size} bytes is too small: {self.desc} takes {self.desc.size} bytes"
            )
        object.__setattr__(self, "buffer", data)

    def __repr__(self) -> str:
        """Return format, dims and the number of bytes as text."""
        return f"<CompoundMemory of {self.desc}, {self.buffer.size} bytes>"

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the values that `unpack` computes, for `np.array`, which copies.

        Raises:
            InvalidArguments: `copy` is not True, as in `np.asarray`: values are no view of the buffer.
        """
        if not copy:
            raise InvalidArguments(
                f"np.asarray(m) is a view, and {self.desc} has several streams: m.unpack() computes the values, and "
                "m.stream(name) copies the numbers of a stream"
            )
        values = self.unpack()
        return values if dtype is None else values.astype(dtype, copy=False)

    def stream(self, name: str, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return a copy of the numbers of a stream as a logical array, in `out` if it is not None, without padding.

        The shape is `desc.stream_dims(name)`; quants are stored numbers, before `zero` is subtracted.

        Raises:
            InvalidArguments: there is no such stream, or `out` is not of the type and shape of the stream, is not in
                row-major order, is read-only, or shares memory with the buffer.
        """
        stream, dims = self.desc.format.stream(name), self.desc.stream_dims(name)
        if out is None:
            out = allocate(stream.dtype.itemsize * prod(dims)).view(stream.dtype).reshape(dims)
        else:
            _require_out(out, self, stream.dtype, dims)
        if not _move_stream(self, stream, out):
            gather_stream(self.buffer, self.desc, stream, out)
        return out

    def streams(self) -> dict[str, npt.NDArray[Any]]:
        """Return the numbers of every stream by name."""
        return {stream.name: self.stream(stream.name) for stream in self.desc.format.streams}

    def stream_values(self, name: str) -> npt.NDArray[np.float32]:
        """Return the values that the numbers of a stream stand for, in f32: codes decoded, `zero` subtracted.

        Raises:
            InvalidArguments: there is no such stream.
        """
        stream = self.desc.format.stream(name)
        return _decode(self.stream(name), stream)

    def unpack(self, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """Return the values of the elements in f32, of shape `desc.dims`, in `out` if it is not None.

        Post-condition: the result is scale * (quant - zero), minus or plus the minimum, each operation in f32.

        Raises:
            InvalidArguments: `out` is no f32 array of that shape in row-major order, is read-only, or shares memory
                with the buffer.
            OutOfMemory: the result cannot be allocated.
        """
        dims = self.desc.dims
        if out is None:
            out = allocate(4 * prod(dims)).view(np.float32).reshape(dims)
        else:
            _require_out(out, self, np.dtype(np.float32), dims)
        if not unpack_compiled(self.desc, self.buffer, out):
            _compute_values(self, out)
        return out


def _require_out(out: object, memory: CompoundMemory, dtype: np.dtype[Any], dims: Dims) -> None:
    """Check an array that results are written to."""
    if not isinstance(out, np.ndarray) or out.dtype != dtype or out.shape != dims:
        text = f"{out.dtype} of {out.shape}" if isinstance(out, np.ndarray) else shown(out)
        raise InvalidArguments(f"out is {text}: give a {dtype} array of shape {dims}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise InvalidArguments(f"out of shape {dims} is read-only or not in row-major order: give a new array")
    if np.may_share_memory(out, memory.buffer):
        raise InvalidArguments("out shares bytes with the buffer that is read: give a new array")


def _decode(numbers: npt.NDArray[Any], stream: Stream) -> npt.NDArray[np.float32]:
    """Return numbers as values in f32."""
    if stream.codebook:
        return np.take(code_values(stream), numbers)
    return numbers.astype(np.float32) - np.float32(stream.zero) if stream.zero else numbers.astype(np.float32)


def _compute_values(memory: CompoundMemory, out: npt.NDArray[np.float32]) -> None:
    """Compute the values of the elements with NumPy."""
    fmt = memory.desc.format
    out[...] = memory.stream_values(fmt.values.name)
    with np.errstate(all="ignore"):
        if fmt.scales:
            out *= _product(memory, fmt.scales)
        if fmt.minima:
            minimum = _product(memory, fmt.minima)
            np.add(out, minimum, out=out) if fmt.adds_minimum else np.subtract(out, minimum, out=out)


def _product(memory: CompoundMemory, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return the product of streams, with a number for each element."""
    desc = memory.desc
    total: npt.NDArray[np.float32] | np.float32 = np.float32(1)
    for name in names:
        factor = memory.stream_values(name)
        for axis, size in enumerate(desc.group(name)):
            factor = np.repeat(factor, size, axis=axis) if size > 1 else factor
        factor = factor[tuple(map(slice, desc.dims))]
        total = total * factor
    return np.asarray(total, np.float32)


def _move_stream(memory: CompoundMemory, stream: Stream, out: npt.NDArray[Any]) -> bool:
    """Copy the numbers of a stream by a compiled reorder; return False if they are not single fields of whole bytes."""
    piece, *others = memory.desc.fields(stream.name)
    nbytes, base = stream.dtype.itemsize, address_of(memory.buffer)
    width = 8 * nbytes
    if others or piece.width != width or piece.offset % width or base % nbytes:
        return False
    layout = _in_units(piece.layout, width)
    if layout is None:
        return False
    dims, data_type = memory.desc.stream_dims(stream.name), DATA_TYPES[stream.data_type]
    src = MemoryDesc.from_layout(layout, data_type, dims=dims, offset0=piece.offset // width)
    find_reorder(src, MemoryDesc(dims, data_type)).run(base, address_of(out))
    return True


def _in_units(layout: Layout, bits: int) -> Layout | None:
    """Return a layout in units of `bits` bits; None if a stride is no multiple."""
    strides = [axis.stride for axis in layout.axes] + [digit.stride for axis in layout.axes for digit in axis.inner]
    if any(stride % bits for stride in strides):
        return None
    axes = (
        Axis(axis.stride // bits, tuple(Digit(digit.extent, digit.stride // bits) for digit in axis.inner))
        for axis in layout.axes
    )
    return Layout(layout.dims, tuple(axes))


# Into memory


def as_compound_format(format: CompoundFormat | str) -> CompoundFormat:
    """Return a compound format, by its name if it is text.

    Raises:
        InvalidArguments: there is no such format.
    """
    return format if isinstance(format, CompoundFormat) else compound(format)


def pack_compound(array: object, format: CompoundFormat | str) -> CompoundMemory:
    """Quantize an array of floats to a compound format, by ggml's rules.

    Post-condition: the bytes are those of the `quantize` function of the `gguf` package.

    Raises:
        InvalidArguments: `array` is no float array or holds NaN or infinities, its dims are no whole blocks, or
            there is no such format.
        Unimplemented: the format has no rule of quantization; `assemble` takes its streams.

    >>> pack_compound(np.ones((1, 32), np.float32), "ggml:Q8_0").stream("scale").item()
    0.00787353515625
    """
    fmt = as_compound_format(format)
    quantize = QUANTIZERS.get(fmt.name)
    if quantize is None:
        raise Unimplemented(
            f"{fmt.name} has no rule that quantizes floats: pass {', '.join(s.name for s in fmt.streams)} to "
            f"inlay.assemble; floats can be packed as {', '.join(QUANTIZERS)}"
        )
    floats = _as_floats(array)
    desc = CompoundDesc(fmt, floats.shape)
    memory = CompoundMemory(desc, _zero_bytes(desc.size))
    section = fmt.sections[0]
    blocks = np.ascontiguousarray(floats).reshape(-1, section.block[-1])
    whole = CompoundDesc(fmt, blocks.shape)
    parts = []
    for part in portions(len(blocks), 4 * section.block[-1]):
        with np.errstate(all="ignore"):
            parts.append((part, quantize(blocks[part])))
    for stream in fmt.streams:
        numbers = np.concatenate([streams[stream.name] for _, streams in parts])
        scatter_stream(memory.buffer, whole, stream, numbers)
    return memory


def _as_floats(array: object) -> npt.NDArray[np.float32]:
    """Return an array of finite numbers as f32."""
    logical = view_as_array(array, "array")
    if np.dtype(logical.dtype).name not in ("float32", "float16", "bfloat16", "float64") or not logical.ndim:
        raise InvalidArguments(f"array is {logical.dtype} of shape {logical.shape}: give floats with one axis or more")
    with np.errstate(over="ignore"):
        floats = logical.astype(np.float32, copy=False)
    finite = np.isfinite(floats)
    if not finite.all():
        at = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise InvalidArguments(f"array holds {logical[at]} at {at}: quantize numbers that are finite in f32")
    return floats


def _zero_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return new bytes of zeros, also when INLAY_POISON is set: bits of streams are added to them."""
    buffer = allocate(nbytes)
    buffer.fill(0)
    return buffer


def assemble(
    format: CompoundFormat | CompoundDesc | str,
    streams: Mapping[str, object],
    dims: Sequence[int] | None = None,
) -> CompoundMemory:
    """Write the numbers of every stream, given as logical arrays, to new memory.

    `dims` are those of the tensor; None for the shape of the first stream, which has a number for each element.

    Post-condition: assemble(format, streams).streams() equals `streams`, bit for bit.

    Raises:
        InvalidArguments: a stream is missing, unknown, of another shape or type, or holds integers that its bits cannot
            represent; or dims are no whole blocks.

    >>> streams = {"quants": np.full((1, 32), 9, np.uint8), "scale": np.full((1, 1), 0.5, np.float16)}
    >>> assemble("ggml:Q4_0", streams).unpack()[0, 0].item()
    0.5
    """
    given: object = streams
    if not isinstance(given, Mapping):
        raise InvalidArguments(f"streams is {shown(given)}: give a dict of arrays by name")
    desc = format if isinstance(format, CompoundDesc) else _infer_desc(as_compound_format(format), streams, dims)
    fmt = desc.format
    unknown = [name for name in streams if name not in {stream.name for stream in fmt.streams}]
    if unknown:
        raise InvalidArguments(
            f"{fmt.name} has no stream {shown(unknown[0])}: give {', '.join(s.name for s in fmt.streams)}"
        )
    arrays = {stream.name: _as_numbers(desc, stream, streams.get(stream.name)) for stream in fmt.streams}
    memory = CompoundMemory(desc, _zero_bytes(desc.size))
    for stream in fmt.streams:
        scatter_stream(memory.buffer, desc, stream, arrays[stream.name])
    return memory


def _infer_desc(fmt: CompoundFormat, streams: Mapping[str, object], dims: Sequence[int] | None) -> CompoundDesc:
    """Return the descriptor with the dims of a caller, or of the first stream."""
    if dims is not None:
        return CompoundDesc(fmt, as_numbers("dim", dims))
    first = streams.get(fmt.values.name)
    if first is None:
        raise InvalidArguments(f"stream {fmt.values.name!r} of {fmt.name} is missing: give its numbers")
    return CompoundDesc(fmt, np.shape(view_as_array(first, fmt.values.name)))


def _as_numbers(desc: CompoundDesc, stream: Stream, values: object) -> npt.NDArray[Any]:
    """Return the numbers of a stream in its type, after checking shape, type and range."""
    dims, text = desc.stream_dims(stream.name), f"stream {stream.name!r} of {desc}"
    if values is None:
        if stream.is_optional:
            return np.zeros(dims, stream.dtype)
        raise InvalidArguments(f"{text} is missing: give an array of {stream.dtype} of shape {dims}")
    numbers = view_as_array(values, stream.name)
    if numbers.shape != dims:
        raise InvalidArguments(f"{text} has shape {numbers.shape}: give shape {dims}")
    limits = stream.limits
    if limits is None:
        if numbers.dtype != stream.dtype:
            raise InvalidArguments(f"{text} is {numbers.dtype}: convert it with astype to {stream.dtype}")
        return numbers
    if numbers.dtype.kind not in "iu":
        raise InvalidArguments(f"{text} is {numbers.dtype}: give integers from {limits[0]} to {limits[1]}")
    outside = (numbers < limits[0]) | (numbers > limits[1])
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        zero = f", where {stream.zero} stands for zero" if stream.zero else ""
        raise InvalidArguments(
            f"{text} holds {numbers[at]} at {at}: its {stream.bits} bits hold {limits[0]} to {limits[1]}{zero}"
        )
    return numbers.astype(stream.dtype, copy=False)
