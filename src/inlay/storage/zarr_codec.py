"""The Zarr 3 codec `inlay` (array -> bytes): chunks stored in any memory format, read by any zarr-python with Inlay.

    from inlay.storage.zarr_codec import InlayCodec
    zarr.create_array("w.zarr", shape=..., chunks=..., dtype="float32", serializer=InlayCodec(tag="aBcd16b"))

zarr-python finds the codec by the entry point `inlay` of the group `zarr.codecs`. Numbers are little-endian. zarr is
imported when `InlayCodec` is first used, so this module can be imported without it.

Source: Zarr core specification 3, "Codecs"; zarr-python, `zarr.abc.codec`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.memory import Memory, pack
from inlay.storage.box import Box, whole_box
from inlay.storage.box_bytes import locate_box
from inlay.storage.chunk_format import ChunkFormat, chunk_nbytes

CODEC_NAME = "inlay"
"""Name of the codec in the metadata of an array."""


def encode_chunk(array: npt.NDArray[Any], desc: MemoryDesc) -> npt.NDArray[np.uint8]:
    """Return the bytes of a chunk in the layout of `desc`; padding and gaps are 0."""
    nbytes = chunk_nbytes(desc)
    memory = pack(array, desc)
    data = memory.buffer.reshape(-1).view(np.uint8)
    if data.size >= nbytes:
        return data[:nbytes]
    return np.concatenate([data, np.zeros(nbytes - data.size, np.uint8)])


def decode_chunk(data: npt.NDArray[np.uint8], desc: MemoryDesc) -> npt.NDArray[Any]:
    """Return the elements of a chunk from its bytes.

    Raises:
        InvalidArguments: the bytes are fewer or more than those of the chunk.
    """
    if data.size != chunk_nbytes(desc):
        raise InvalidArguments(
            f"a chunk of the codec inlay has {data.size} bytes, and {desc} takes {chunk_nbytes(desc)}: it is damaged, "
            "or was written with another configuration"
        )
    return _unpack(data, desc)


def _unpack(data: npt.NDArray[np.uint8], desc: MemoryDesc) -> npt.NDArray[Any]:
    """Return the elements in these bytes, which may have gaps behind the last element."""
    return Memory(desc, np.ascontiguousarray(data)).unpack()


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """The bytes of a part of a chunk: one range of the chunk that contains them, and the elements in it."""

    begin: int
    """First byte."""
    end: int
    """End of the bytes, exclusive."""
    desc: MemoryDesc
    """Descriptor of the elements of a box that contains the part, in the bytes from `begin` on."""
    slices: tuple[slice, ...]
    """The part, as an index of the box."""


def locate_part(desc: MemoryDesc, begin: Dims, end: Dims) -> ChunkPart | None:
    """Return the range of bytes that holds a part of a chunk; None if it is over half of the chunk, or not to be found.

    The part is extended to whole blocks along each axis, so that its digits are independent of one another.

    >>> found = locate_part(MemoryDesc((64, 4), "f32", "aB4b"), (3, 0), (5, 4))
    >>> found.begin, found.end, found.slices
    (48, 80, (slice(0, 2, None), slice(0, 4, None)))
    """
    layout, data_type = desc.require_layout("a chunk")
    blocks = [axis.block for axis in layout.axes]
    first = tuple(b // block * block for b, block in zip(begin, blocks, strict=True))
    last = tuple(min(-(-e // block) * block, n) for e, block, n in zip(end, blocks, desc.dims, strict=True))
    place = locate_box(desc, Box(first, last))
    if place is None:
        return None
    size = sum((count - 1) * step for count, step in place.loops) + place.run_nbytes
    if size * 2 > chunk_nbytes(desc):
        return None
    slices = tuple(slice(b - f, e - f) for b, e, f in zip(begin, end, first, strict=True))
    dims = tuple(e - f for e, f in zip(last, first, strict=True))
    padded = tuple(-(-n // block) * block for n, block in zip(dims, blocks, strict=True))
    part = MemoryDesc.from_layout(type(layout)(padded, layout.axes), data_type, dims=dims)
    return ChunkPart(place.begin, place.begin + size, part, slices)


def _box_of(selection: object, shape: Dims) -> Box | None:
    """Return the box that a selection of zarr selects; None if it is no range with step 1 along each axis."""
    entries = selection if isinstance(selection, tuple) else (selection,)
    if len(entries) != len(shape) or not all(isinstance(entry, slice) for entry in entries):
        return None
    ranges = [entry.indices(n) for entry, n in zip(entries, shape, strict=True) if isinstance(entry, slice)]
    if any(step != 1 or end <= begin for begin, end, step in ranges):
        return None
    return Box(tuple(begin for begin, _, _ in ranges), tuple(end for _, end, _ in ranges))


@dataclass(frozen=True, init=False)
class ChunkCodec:
    """The methods of the codec `inlay`; `InlayCodec` is this class as a subclass of zarr's `ArrayBytesCodec`."""

    form: ChunkFormat
    """The layout of the elements of a chunk."""

    is_fixed_size = True

    def __init__(self, *, tag: str | None = None, pattern: str | None = None, digits: object = None) -> None:
        """Create the codec from a format tag, a pattern or another notation, or the digits of each axis.

        Raises:
            InvalidArguments: not exactly one of the three is given, or the digits are malformed.
            FormatTagError, PatternError, NotationError: the text is no format.
        """
        given = {"tag": tag, "pattern": pattern, "digits": digits}
        configuration = {key: value for key, value in given.items() if value is not None}
        object.__setattr__(self, "form", ChunkFormat.from_configuration(configuration))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Create the codec from the metadata of an array.

        Raises:
            InvalidArguments, FormatTagError, PatternError, NotationError: see `ChunkFormat.from_configuration`.
        """
        form = ChunkFormat.from_configuration(data.get("configuration"))
        codec = cls.__new__(cls)
        object.__setattr__(codec, "form", form)
        return codec

    def to_dict(self) -> dict[str, Any]:
        """Return the metadata of the codec."""
        return {"name": CODEC_NAME, "configuration": self.form.configuration}

    def validate(self, *, shape: Dims, dtype: Any, chunk_grid: Any) -> None:
        """Check that the format can store the chunks of an array.

        Raises:
            InvalidArguments: it has another number of axes, or cannot store the data type.
        """
        chunk_shape = getattr(chunk_grid, "chunk_shape", None)
        self.chunk_desc(tuple(chunk_shape if chunk_shape is not None else shape), dtype)

    def evolve_from_array_spec(self, array_spec: Any) -> Self:
        """Return the same codec: nothing of it depends on the array."""
        return self

    def chunk_desc(self, shape: Dims, dtype: Any) -> MemoryDesc:
        """Return the descriptor of the bytes of a chunk of a shape and a data type of zarr.

        Raises:
            InvalidArguments: it has another number of axes, or no descriptor has the data type.
        """
        native = np.dtype(dtype.to_native_dtype() if hasattr(dtype, "to_native_dtype") else dtype)
        try:
            data_type = as_data_type(native.newbyteorder("="))
        except InvalidArguments as error:
            raise InvalidArguments(f"the codec inlay cannot store elements of type {shown(native)}: {error}") from None
        return self.form.chunk_desc(tuple(int(n) for n in shape), data_type)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Return the size of a stored chunk, in bytes."""
        return chunk_nbytes(self.chunk_desc(chunk_spec.shape, chunk_spec.dtype))

    def _encode_sync(self, chunk_array: Any, chunk_spec: Any) -> Any:
        """Return the buffer of zarr with the bytes of a chunk."""
        desc = self.chunk_desc(chunk_spec.shape, chunk_spec.dtype)
        array = np.asarray(chunk_array.as_ndarray_like())
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return chunk_spec.prototype.buffer.from_array_like(encode_chunk(array, desc))

    def _decode_sync(self, chunk_data: Any, chunk_spec: Any) -> Any:
        """Return the buffer of zarr with the elements of a chunk."""
        desc = self.chunk_desc(chunk_spec.shape, chunk_spec.dtype)
        array = decode_chunk(np.asarray(chunk_data.as_array_like()).view(np.uint8).reshape(-1), desc)
        return _as_chunk(array, chunk_spec)

    async def _encode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        """Return the buffer of zarr with the bytes of a chunk."""
        return self._encode_sync(chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        """Return the buffer of zarr with the elements of a chunk."""
        return self._decode_sync(chunk_data, chunk_spec)

    async def _decode_partial_single(self, byte_getter: Any, selection: Any, chunk_spec: Any) -> Any:
        """Return the selected elements of a chunk; reads one range of its bytes if that is at most half of it."""
        from zarr.abc.store import RangeByteRequest

        desc = self.chunk_desc(chunk_spec.shape, chunk_spec.dtype)
        box = _box_of(selection, desc.dims)
        part = None if box is None or box == whole_box(desc.dims) else locate_part(desc, box.begin, box.end)
        if part is None:
            data = await byte_getter.get(prototype=chunk_spec.prototype)
            return None if data is None else self._decode_sync(data, chunk_spec)[selection]
        request = RangeByteRequest(part.begin, part.end)
        data = await byte_getter.get(prototype=chunk_spec.prototype, byte_range=request)
        if data is None:
            return None
        found = np.asarray(data.as_array_like()).view(np.uint8).reshape(-1)
        if found.size != part.end - part.begin:
            raise InvalidArguments(f"a chunk of the codec inlay ends before byte {part.end}: it is damaged")
        return _as_chunk(_unpack(found, part.desc)[part.slices], chunk_spec)


def _as_chunk(array: npt.NDArray[Any], chunk_spec: Any) -> Any:
    """Return the buffer of zarr of an array, in the data type of zarr."""
    native = chunk_spec.dtype.to_native_dtype()
    return chunk_spec.prototype.nd_buffer.from_ndarray_like(np.asarray(array, native))


if TYPE_CHECKING:
    InlayCodec = ChunkCodec


def __getattr__(name: str) -> Any:
    """Return the class `InlayCodec`, which is made at first use because it derives from a class of zarr."""
    if name != "InlayCodec":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zarr.abc.codec import ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin

    bases = (ChunkCodec, ArrayBytesCodecPartialDecodeMixin, ArrayBytesCodec)
    made = type(name, bases, {"__doc__": ChunkCodec.__doc__, "__module__": __name__})
    setattr(sys.modules[__name__], name, made)
    return made
