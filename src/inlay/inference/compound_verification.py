"""Verification of packers and buffers of compound formats: the first number of a stream that differs.

The buffer is compared bit by bit with one that is assembled from the streams. Bits of no stream are not compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.errors import InvalidArguments, shown
from inlay.inference.observation import coordinate_of
from inlay.inference.stream_bits import Arrays, Bits, ProbedStream, buffer_bits, call_stream_packer
from inlay.layout import Dims
from inlay.memory.buffers import view_as_array
from inlay.memory.compound import CompoundMemory, assemble

_SERIES = 2


@dataclass(frozen=True, slots=True)
class CompoundVerification:
    """The result of `verify` for a compound format; true as a truth value if the source agrees with it."""

    desc: CompoundDesc
    """Format and dims that the source was compared with."""
    stream: str | None
    """Name of the stream with the first difference; None if nothing differs."""
    coordinate: Dims | None
    """Coordinate of the number in its stream, in the padding too; None if nothing differs."""
    expected: int | None
    """Bits of the number that the format requires; None if nothing differs, or if values were compared."""
    found: int | None
    """Bits of the number in the buffer; None as `expected`."""
    bit: int | None
    """Lowest wrong bit of the buffer; of a wrong value, the lowest bit of its quant; None if nothing differs."""
    problem: str
    """Text: the first difference, or the agreement."""

    @property
    def byte(self) -> int | None:
        """The byte of the buffer that has the lowest wrong bit; None if nothing differs."""
        return None if self.bit is None else self.bit // 8

    def __bool__(self) -> bool:
        """Return True if the source agrees with the format."""
        return self.bit is None

    def __str__(self) -> str:
        """Return the difference or the agreement."""
        return self.problem


def verify_compound(
    desc: CompoundDesc, source: object, logical: object = None, length: int | None = None
) -> CompoundVerification:
    """Compare a packer of streams or a packed buffer with a compound format; return the first difference, if any.

    `logical` are the arrays of the streams, or the values, that the buffer holds. A packer gets them; without
    `logical`, it gets random bits and then their opposite, in a dict of arrays by name. With `length` in bytes, it
    fills a buffer.

    Post-condition: `bool(result)` is False exactly if a bit of a stream, or of its padding, differs in a call.

    Raises:
        InvalidArguments: `source` is neither a packer nor a buffer, a buffer lacks `logical`, or the arrays do not fit.

    >>> from inlay.descriptor.compound_table import compound
    >>> desc = CompoundDesc(compound("ggml:Q4_0"), (1, 32))
    >>> streams = {"quants": np.full((1, 32), 9, np.uint8), "scale": np.ones((1, 1), np.float16)}
    >>> buffer = assemble(desc, streams).buffer
    >>> buffer[3] ^= 0x40
    >>> print(verify_compound(desc, buffer, streams))
    quants at (0, 17) is 13, expected 9: bit 6 of byte 3 is wrong
    """
    if callable(source) and not isinstance(source, np.ndarray):
        given = _random_streams(desc) if logical is None else [logical]
        packed = [(arrays, call_stream_packer(source, arrays, length)) for arrays in given]
    elif logical is None:
        raise InvalidArguments(f"source is {shown(source)}: give a packer, or a packed buffer with logical=")
    else:
        packed = [(logical, buffer_bits(source))]
    results = [_compare(desc, arrays, bits) for arrays, bits in packed]
    return min(results, key=lambda result: 8 * desc.size if result.bit is None else result.bit)


def _compare(desc: CompoundDesc, logical: object, bits: Bits) -> CompoundVerification:
    """Return the verification of the bits of one buffer."""
    if len(bits) < 8 * desc.size:
        short = len(bits) // 8
        raise InvalidArguments(f"packed buffer has {short} bytes: {desc} takes {desc.size}")
    if isinstance(logical, Mapping):
        return _compare_streams(desc, logical, bits)
    return _compare_values(desc, view_as_array(logical, "logical"), bits)


def _random_streams(desc: CompoundDesc) -> list[Arrays]:
    """Return arrays of random bits for every stream, and the arrays of the opposite bits."""
    random = np.random.default_rng(18)
    series: list[Arrays] = [{} for _ in range(_SERIES)]
    for stream in desc.format.streams:
        dims = desc.stream_dims(stream.name)
        probed = ProbedStream(stream.name, stream.data_type, stream.bits, dims)
        bits = random.integers(0, 2, probed.nbits, np.uint8)
        for k, arrays in enumerate(series):
            arrays[stream.name] = probed.numbers(bits ^ np.uint8(k))
    return series


def _compare_streams(desc: CompoundDesc, streams: Mapping[str, Any], bits: Bits) -> CompoundVerification:
    """Return the first difference between the bits of a buffer and those of its streams."""
    want = np.unpackbits(assemble(desc, streams).buffer, bitorder="little")
    bits = bits[: len(want)]
    first: tuple[int, str, int] | None = None
    for stream in desc.format.streams:
        for field in desc.fields(stream.name):
            starts = field.bit_offsets()
            places = starts[:, None] + np.arange(field.width)
            wrong = np.where(want[places] != bits[places], places, len(want))
            if wrong.min() < len(want):
                number = int(wrong.min(axis=1).argmin())
                found = int(wrong.min()), stream.name, number
                first = found if first is None else min(first, found)
    if first is None:
        return _agreement(desc)
    bit, name, number = first
    coordinate = coordinate_of(number, desc.fields(name)[0].layout.dims)
    expected, have = (_number_at(desc, name, coordinate, source) for source in (want, bits))
    inside = all(x < n for x, n in zip(coordinate, desc.stream_dims(name), strict=True))
    what = f"{name} at {coordinate}" if inside else f"padding of {name} at {coordinate}"
    problem = f"{what} is {have}, expected {expected}: bit {bit % 8} of byte {bit // 8} is wrong"
    return CompoundVerification(desc, name, coordinate, expected, have, bit, problem)


def _number_at(desc: CompoundDesc, name: str, coordinate: Dims, bits: Bits) -> int:
    """Return the bits of one number of a stream, as an unsigned integer."""
    total = 0
    for piece in desc.locate(name, coordinate):
        for k in range(piece.width):
            total |= int(bits[piece.offset + k]) << piece.shift + k
    return total


def _compare_values(desc: CompoundDesc, values: npt.NDArray[Any], bits: Bits) -> CompoundVerification:
    """Return the first difference, in row-major order, between the values of a buffer and those that are given."""
    if values.shape != desc.dims or values.dtype != np.float32:
        raise InvalidArguments(
            f"logical is {values.dtype} of shape {values.shape}: give the f32 values of shape {desc.dims}, or a dict "
            "of the arrays of all streams"
        )
    found = CompoundMemory(desc, np.packbits(bits, bitorder="little")).unpack()
    differs = (found != values) & ~(np.isnan(found) & np.isnan(values))
    if not differs.any():
        return _agreement(desc)
    at = tuple(int(x) for x in np.argwhere(differs)[0])
    name = desc.format.values.name
    piece = min(desc.locate(name, at), key=lambda one: one.offset)
    problem = (
        f"element {at} has the value {found[at]}, expected {values[at]}: its {name} {_number_at(desc, name, at, bits)} "
        f"is at bit {piece.offset % 8} of byte {piece.offset // 8}"
    )
    return CompoundVerification(desc, name, at, None, None, piece.offset, problem)


def _agreement(desc: CompoundDesc) -> CompoundVerification:
    """Return the verification without a difference."""
    count = sum(prod(desc.stream_dims(stream.name)) for stream in desc.format.streams)
    text = f"{desc}: all {count} numbers of {len(desc.format.streams)} streams are in their places"
    return CompoundVerification(desc, None, None, None, None, None, text)
