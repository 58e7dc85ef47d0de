"""Places of the bits of streams: from functions that pack streams into one buffer, or from pairs of both.

A pattern gives each bit of each stream a value. In several patterns, the values of one bit are its signature, and all
signatures differ. A bit of the buffer with the same values is the place of that bit:

    signature of a bit of the buffer      the bit holds
    that of a bit of a stream             this bit
    that of one, inverted                 this bit, inverted
    0 or 1 in all patterns                padding
    anything else                         a value that was computed

For a packer of N bits, pattern j gives bit number i the digit j of i + 1 in base 2, and a second series the opposite:
2 log N calls. No signature equals another one inverted, as the highest digit is 0. Patterns of a pair are the caller's.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES
from inlay.descriptor.compound_format import STREAM_TYPES
from inlay.errors import InvalidArguments, shown
from inlay.inference.observation import coordinate_of
from inlay.inference.packers import call_packer
from inlay.inference.results import Diagnosis, Offsets
from inlay.inference.tables import require_row_major
from inlay.layout import Dims
from inlay.layout.address import as_numbers
from inlay.memory.buffers import view_as_array

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
"""An array of numbers for each stream, by name."""
Bits: TypeAlias = npt.NDArray[np.uint8]
"""Bits, one in each entry, 0 or 1."""
StreamPacker: TypeAlias = Callable[..., Any]
"""A function of a dict of arrays, which returns the packed buffer, or fills the one that is its second argument."""

_MOST_BITS = 1 << 22
_INTEGER_TYPE = re.compile(r"([us])([1-8])")
_CONFIRMATIONS = 2


@dataclass(frozen=True, slots=True)
class ProbedStream:
    """A stream that a packer takes: its name, the type of its numbers and its dims."""

    name: str
    """Name, the key of the array in the dict that the packer takes."""
    data_type: str
    """Data type of the array; u8 or s8 for integers of fewer bits."""
    bits: int
    """Number of bits of a number that are packed."""
    dims: Dims
    """Dims of the array."""

    @classmethod
    def of(cls, name: object, spec: object, ndims: int) -> "ProbedStream":
        """Return the stream of an entry such as `("u4", (2, 64))`.

        Raises:
            InvalidArguments: the name is no text, or the entry no pair of a type and `ndims` positive dims.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidArguments(f"streams has the name {shown(name)}: give identifiers such as 'scale'")
        if not isinstance(spec, tuple) or len(spec) != 2 or not isinstance(spec[0], str):
            raise InvalidArguments(f"stream {name!r} is {shown(spec)}: give its type and dims, as ('u4', (2, 64))")
        dims = as_numbers("dim", spec[1])
        if len(dims) != ndims or min(dims) < 1:
            raise InvalidArguments(
                f"stream {name!r} has dims {dims}: give {ndims} positive dims, as many as the tensor"
            )
        match = _INTEGER_TYPE.fullmatch(spec[0])
        if match is not None:
            return cls(name, f"{match[1]}8", int(match[2]), dims)
        if spec[0] not in STREAM_TYPES:
            known = ", ".join(STREAM_TYPES)
            raise InvalidArguments(f"stream {name!r} is of {shown(spec[0])}: give u1 to u8, s1 to s8 or one of {known}")
        return cls(name, spec[0], DATA_TYPES[spec[0]].bits, dims)

    @property
    def nbits(self) -> int:
        """Number of bits of all numbers."""
        return prod(self.dims) * self.bits

    def numbers(self, bits: Bits) -> npt.NDArray[Any]:
        """Return the array whose numbers have these bits, the lowest of each number first."""
        weights = np.uint64(1) << np.arange(self.bits, dtype=np.uint64)
        codes = (bits.reshape(-1, self.bits).astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
        dtype = DATA_TYPES[self.data_type].dtype
        if self.data_type[0] == "s" and self.bits < 8 * dtype.itemsize:
            codes |= np.where(codes >> np.uint64(self.bits - 1), np.uint64(2**64 - 2**self.bits), np.uint64(0))
        numbers: npt.NDArray[Any] = codes.astype(f"u{dtype.itemsize}").view(dtype).reshape(self.dims)
        return numbers

    def bits_of(self, array: object) -> Bits:
        """Return the bits of an array, the lowest of each number first.

        Post-condition: bits_of(numbers(bits)) == bits.

        Raises:
            InvalidArguments: it has another shape or type, or a number has more bits.
        """
        values = view_as_array(array, self.name)
        dtype = DATA_TYPES[self.data_type].dtype
        if values.shape != self.dims or values.dtype != dtype:
            raise InvalidArguments(
                f"stream {self.name!r} is {values.dtype} of shape {values.shape}: give {dtype} of shape {self.dims}"
            )
        codes = np.ascontiguousarray(values).reshape(-1).view(f"u{dtype.itemsize}")
        shifts = np.arange(self.bits, dtype=codes.dtype)
        bits = (codes[:, None] >> shifts & codes.dtype.type(1)).astype(np.uint8)
        if not np.array_equal(self.numbers(bits).view(codes.dtype).reshape(-1), codes):
            raise InvalidArguments(f"stream {self.name!r} holds numbers of more than its {self.bits} bits")
        flat: Bits = bits.reshape(-1)
        return flat


@dataclass(frozen=True, slots=True, eq=False)
class BitPlaces:
    """The place of each bit of each stream in the buffer."""

    streams: tuple[ProbedStream, ...]
    """The streams."""
    places: tuple[Offsets, ...]
    """For each stream, the bit of the buffer for each number and bit, of shape (numbers, bits)."""
    inverted: tuple[npt.NDArray[np.bool_], ...]
    """True where the bit of the buffer is the inverted one, of the same shape."""
    nbytes: int
    """Size of the buffer in bytes."""


def read_streams(streams: object, ndims: int) -> tuple[ProbedStream, ...]:
    """Return the streams of a mapping such as `{"quants": ("u4", (2, 64)), "scale": ("f16", (2, 2))}`.

    Raises:
        InvalidArguments: it is no such mapping, or the streams have more than 2**22 bits.
    """
    if not isinstance(streams, Mapping) or not streams:
        raise InvalidArguments(f"streams is {shown(streams)}: give a dict such as {{'quants': ('u4', (2, 64))}}")
    result = tuple(ProbedStream.of(name, spec, ndims) for name, spec in streams.items())
    total = sum(stream.nbits for stream in result)
    if total > _MOST_BITS:
        raise InvalidArguments(f"streams have {total} bits: infer the format from a tensor of at most {_MOST_BITS}")
    return result


def call_stream_packer(packer: StreamPacker, arrays: object, length: int | None, initial: int = 0) -> Bits:
    """Return the bits of the buffer that a packer returns, or fills; one of `length` bytes whose bits are `initial`.

    Raises:
        InvalidArguments: the packer fails, changes its input, or returns no buffer.
    """
    named = arrays if isinstance(arrays, Mapping) else {"values": arrays}
    before = {name: np.array(array) for name, array in named.items()}
    what, advice = ", ".join(named), "; it is called with a dict of arrays by name"
    buffer = None if length is None else np.full(length, 255 * initial, np.uint8)
    result = call_packer(packer, arrays, buffer, what, advice)
    for name, array in named.items():
        if np.asarray(array).tobytes() != before[name].tobytes():
            raise InvalidArguments(f"packer changes the array {name} of its input: let it read a copy")
    return buffer_bits(result)


def buffer_bits(buffer: object) -> Bits:
    """Return the bits of a buffer, the lowest of each byte first.

    Raises:
        InvalidArguments: it is no row-major buffer.
    """
    array = require_row_major(buffer, "packed buffer")
    return np.unpackbits(array.reshape(-1).view(np.uint8), bitorder="little")


def observe_stream_packer(
    packer: StreamPacker, streams: tuple[ProbedStream, ...], length: int | None
) -> BitPlaces | Diagnosis:
    """Return the places of all bits of the streams that a packer takes, or the reason why there are none.

    Raises:
        InvalidArguments: the packer fails, or returns buffers of different sizes.
    """
    count = sum(stream.nbits for stream in streams)
    numbers = np.arange(1, count + 1)
    digits = count.bit_length() + 1
    given = [(numbers >> j & 1).astype(np.uint8) ^ np.uint8(series) for series in (0, 1) for j in range(digits)]
    packed = [
        call_stream_packer(packer, _split(bits, streams), length, int(k < digits)) for k, bits in enumerate(given)
    ]
    untouched = np.arange(len(given)) < digits
    found = _match(np.stack(given), _stack(packed), streams, untouched if length is not None else None)
    if isinstance(found, Diagnosis):
        return found
    random = np.random.default_rng(18)
    for _ in range(_CONFIRMATIONS):
        bits = random.integers(0, 2, count, np.uint8)
        fault = _confirm(found, bits, call_stream_packer(packer, _split(bits, streams), length))
        if fault is not None:
            return fault
    return found


def observe_stream_pairs(buffers: object, arrays: object, streams: tuple[ProbedStream, ...]) -> BitPlaces | Diagnosis:
    """Return the places of all bits of the streams that pairs of a packed buffer and its arrays show.

    Raises:
        InvalidArguments: the two are no lists of equal length, an array does not fit its stream, or two bits are equal
            in all pairs.
    """
    if not isinstance(buffers, Sequence) or not isinstance(arrays, Sequence) or not 1 <= len(buffers) == len(arrays):
        raise InvalidArguments("with streams=, give a packer; or a list of buffers, and as logical= a list of dicts")
    given = []
    for one in arrays:
        if not isinstance(one, Mapping) or set(one) != {stream.name for stream in streams}:
            names = ", ".join(stream.name for stream in streams)
            raise InvalidArguments(f"logical has the entry {shown(one)}: give a dict of arrays {names}")
        given.append(np.concatenate([stream.bits_of(one[stream.name]) for stream in streams]))
    rows = np.unique(np.packbits(np.stack(given), axis=0), axis=1).shape[1]
    if rows < len(given[0]):
        raise InvalidArguments(
            f"only {rows} of {len(given[0])} bits of the streams differ in {len(given)} pairs: give more, of random "
            f"numbers, such as {3 * len(given[0]).bit_length()} pairs"
        )
    return _match(np.stack(given), _stack([buffer_bits(one) for one in buffers]), streams, None)


def _split(bits: Bits, streams: tuple[ProbedStream, ...]) -> Arrays:
    """Return the array of each stream from the bits of all."""
    ends = np.cumsum([stream.nbits for stream in streams])
    parts = np.split(bits, ends[:-1])
    return {stream.name: stream.numbers(part) for stream, part in zip(streams, parts, strict=True)}


def _stack(packed: list[Bits]) -> Bits:
    """Return the bits of several buffers as rows.

    Raises:
        InvalidArguments: the buffers have different sizes, or none.
    """
    sizes = {len(bits) // 8 for bits in packed}
    if len(sizes) > 1 or not min(sizes):
        raise InvalidArguments(
            f"packed buffers have {min(sizes)} to {max(sizes)} bytes: for arrays of the same dims the size has to be "
            "the same, and at least one"
        )
    return np.stack(packed)


def _match(
    given: Bits, packed: Bits, streams: tuple[ProbedStream, ...], untouched: npt.NDArray[np.bool_] | None
) -> BitPlaces | Diagnosis:
    """Return the places of bits of streams, rows of `given`, in the buffer, rows of `packed`; or the diagnosis.

    `untouched` is the signature of bits that were not written.
    """
    count, total = given.shape[1], packed.shape[1]
    signatures = np.packbits(np.concatenate([given, packed, 1 - packed], axis=1), axis=0)
    ids = np.unique(signatures, axis=1, return_inverse=True)[1].reshape(-1)
    owner = np.full(ids.max() + 1, -1)
    owner[ids[:count]] = np.arange(count)
    copied, opposite = owner[ids[count : count + total]], owner[ids[count + total :]]
    source = np.where(copied >= 0, copied, opposite)
    known = (source >= 0) | (packed == packed[:1]).all(axis=0)
    if untouched is not None:
        known |= (packed == untouched[:, None]).all(axis=0)
    if not known.all():
        at = np.flatnonzero(~known)
        text = (
            f"{len(at)} bits of the buffer are no bits of a stream, the first is bit {at[0] % 8} of byte {at[0] // 8}"
        )
        return Diagnosis("foreign", f"{text}: the packer computes them, or leaves them unwritten")
    places = np.full(count, -1)
    used = np.flatnonzero(source >= 0)
    places[source[used[::-1]]] = used[::-1]
    repeats = np.bincount(source[used], minlength=count)
    for rule, wrong in (("lost", repeats == 0), ("twice", repeats > 1)):
        if wrong.any():
            return _wrong_bit(rule, int(np.flatnonzero(wrong)[0]), streams, source)
    is_inverted = np.zeros(count, bool)
    is_inverted[source[used]] = copied[used] < 0
    ends = np.cumsum([stream.nbits for stream in streams])[:-1]
    shapes = [(-1, stream.bits) for stream in streams]
    split = [tuple(p.reshape(s) for p, s in zip(np.split(x, ends), shapes, strict=True)) for x in (places, is_inverted)]
    return BitPlaces(streams, split[0], split[1], total // 8)


def _wrong_bit(rule: Any, index: int, streams: tuple[ProbedStream, ...], source: Offsets) -> Diagnosis:
    """Return the diagnosis of a bit of a stream, counted through all of them, without or with several places."""
    for stream in streams:
        if index < stream.nbits:
            break
        index -= stream.nbits
    before = sum(one.nbits for one in streams[: streams.index(stream)])
    number, bit = divmod(index, stream.bits)
    at = coordinate_of(number, stream.dims)
    what = f"bit {bit} of {stream.name} {at}"
    both = np.flatnonzero(source == before + index)
    text = "has no place" if rule == "lost" else f"is in several places, bits {both[0]} and {both[1]} of the buffer"
    return Diagnosis(rule, f"{what} {text}", (number,))


def _confirm(found: BitPlaces, bits: Bits, packed: Bits) -> Diagnosis | None:
    """Return the diagnosis of a bit that is no copy of its bit of a stream, or None."""
    start = 0
    for stream, places, inverted in zip(found.streams, found.places, found.inverted, strict=True):
        own = bits[start : start + stream.nbits].reshape(places.shape)
        start += stream.nbits
        wrong = np.argwhere(packed[places] != own ^ inverted)
        if wrong.size:
            number, bit = (int(x) for x in wrong[0])
            at = coordinate_of(number, stream.dims)
            problem = f"bit {bit} of {stream.name} {at} is not always in bit {places[number, bit]} of the buffer"
            return Diagnosis("values", f"{problem}: the place depends on the values", (number,))
    return None
