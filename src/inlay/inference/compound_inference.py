"""Compound formats from the places of the bits of streams: a row of the table, or a new `CompoundFormat`.

A field is a run of bits of a number that stay together in all numbers. Its places have digits, as elements of a layout
do. The block is the smallest one along the last axes whose repetition gives all places:

    streams in one section          blocks with a part of each stream, as ggml's
    streams in several sections     each with its own block, as planes of quants and of scales
    otherwise                       one block, the whole tensor
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import lcm, prod

import numpy as np

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import BitField, CompoundFormat, Section, Stream
from inlay.descriptor.compound_table import compound_formats
from inlay.errors import InvalidArguments, shown
from inlay.inference.digits import FactorFault, factor_offsets
from inlay.inference.observation import coordinate_of
from inlay.inference.results import Diagnosis, Offsets
from inlay.inference.stream_bits import (
    BitPlaces,
    ProbedStream,
    observe_stream_packer,
    observe_stream_pairs,
    read_streams,
)
from inlay.layout import Dims, Layout

_MOST_RANKS = 3
_MOST_BLOCKS = 2048
"""Number of blocks that are compared for one section."""
NEW_NAME = "inferred"
"""Name of a format that is not in the table."""


@dataclass(frozen=True, slots=True)
class InferredCompound:
    """The compound format that explains the places of all bits of the streams."""

    desc: CompoundDesc
    """Format and dims. The format is a row of the table, or a new one called "inferred"."""
    streams: tuple[tuple[str, str], ...]
    """Name of each stream for the packer, and in the format."""
    length: int
    """Size of the buffer in bytes."""
    notes: tuple[str, ...]
    """Sentences on ambiguities and on what the places do not show."""

    def __str__(self) -> str:
        """Return the format on one line, then each stream and each note on a line of its own."""
        blocks = ", ".join(
            f"blocks of {'x'.join(map(str, section.block))} elements in {section.nbytes} bytes"
            for section in self.desc.format.sections
        )
        lines = [f"{self.desc}: {blocks}"]
        for ours, name in self.streams:
            stream = self.desc.format.stream(name)
            dims = "x".join(map(str, self.desc.stream_dims(name)))
            of = "" if ours == name else f" of {name}"
            zero = f", zero {stream.zero}" if stream.zero else ""
            fields = f" in {len(stream.fields)} fields" if len(stream.fields) > 1 else ""
            lines.append(f"{ours}{of}: {dims} of {stream.bits} bits{fields}, as {stream.data_type}{zero}")
        return "\n    ".join([*lines, *self.notes])


def infer_compound(
    source: object, dims: Dims, streams: object, pairs: object = None, length: int | None = None
) -> InferredCompound | Diagnosis:
    """Return the compound format of a packer of streams, or of pairs of buffers and streams; or the diagnosis.

    The arguments are those of `infer`, `pairs` is its `logical`.

    Post-condition: bit b of the number at x of a stream is in the bit of the buffer that result.desc.locate names.

    Raises:
        InvalidArguments: as `infer`.
    """
    probed = read_streams(streams, len(dims))
    if callable(source):
        if pairs is not None:
            raise InvalidArguments("a packer of streams gets numbers that are chosen here: leave logical= out")
        found = observe_stream_packer(source, probed, length)
    else:
        if length is not None:
            raise InvalidArguments(f"length {length} is that of the buffer of a packer: leave it out with pairs")
        found = observe_stream_pairs(source, pairs, probed)
    return found if isinstance(found, Diagnosis) else explain_bits(found, dims)


def explain_bits(found: BitPlaces, dims: Dims) -> InferredCompound | Diagnosis:
    """Return the compound format with these places of bits, or the reason why there is none."""
    stored = []
    notes: list[str] = []
    for stream, inverted in zip(found.streams, found.inverted, strict=True):
        one = _stored_stream(stream, inverted)
        if isinstance(one, Diagnosis):
            return one
        stored.append(one)
        if one.zero or one.data_type != stream.data_type:
            notes.append(f"the highest bit of {stream.name} is inverted: it is stored as {one.data_type[0]}{one.bits}")
    named = _find_rows(found, tuple(stored), dims)
    if named:
        others = [name for name, _ in named[1:]]
        notes += [f"also {', '.join(others)}: the same bits with another meaning"] if others else []
        desc = CompoundDesc(compound_formats()[named[0][0]], dims)
        return InferredCompound(desc, named[0][1], found.nbytes, (*notes, *_rest_note(desc, found)))
    made = _make_format(found, tuple(stored), dims)
    if isinstance(made, Diagnosis):
        return made
    notes.append("the places do not show scales and minima: name them in the format to unpack values")
    desc = CompoundDesc(made, dims)
    names = tuple((stream.name, stream.name) for stream in made.streams)
    return InferredCompound(desc, names, found.nbytes, (*notes, *_rest_note(desc, found)))


def _rest_note(desc: CompoundDesc, found: BitPlaces) -> list[str]:
    """Return the sentence on bytes after the last block, or nothing."""
    rest = found.nbytes - desc.size
    return [f"{rest} bytes follow the blocks" if rest > 1 else "1 byte follows the blocks"] if rest else []


# Streams


@dataclass(frozen=True, slots=True)
class _StoredStream:
    """The numbers of a stream as they are stored."""

    name: str
    data_type: str
    bits: int
    dims: Dims
    zero: int


def _stored_stream(
    stream: ProbedStream, inverted: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"
) -> _StoredStream | Diagnosis:
    """Return a stream with the sign that its bits have in the buffer, or the diagnosis of inverted bits.

    A signed number whose highest bit is inverted is the unsigned number that is greater by half the range.
    """
    if not inverted.any():
        return _StoredStream(stream.name, stream.data_type, stream.bits, stream.dims, 0)
    is_offset = inverted[:, -1].all() and not inverted[:, :-1].any()
    if is_offset and stream.data_type == "s8":
        return _StoredStream(stream.name, "u8", stream.bits, stream.dims, 1 << stream.bits - 1)
    if is_offset and stream.data_type == "u8":
        return _StoredStream(stream.name, "s8", stream.bits, stream.dims, 0)
    number, bit = (int(x) for x in np.argwhere(inverted)[0])
    at = coordinate_of(number, stream.dims)
    return Diagnosis("xor", f"bit {bit} of {stream.name} {at} is inverted in the buffer", (number,))


def bit_positions(desc: CompoundDesc, name: str) -> Offsets:
    """Return the bit of the buffer for each number and bit of a stream, of shape (numbers, bits); no padding.

    >>> from inlay.descriptor.compound_table import compound
    >>> bit_positions(CompoundDesc(compound("ggml:Q4_0"), (64,)), "quants")[17].tolist()
    [28, 29, 30, 31]
    """
    dims = desc.stream_dims(name)
    coordinates = np.indices(dims).reshape(len(dims), -1).T
    places = np.full((prod(dims), desc.format.stream(name).bits), -1)
    for field in desc.fields(name):
        start = field.offset + np.asarray(field.layout.offset(coordinates))
        places[:, field.shift : field.shift + field.width] = start[:, None] + np.arange(field.width)
    return places


# The table


def _find_rows(
    found: BitPlaces, streams: tuple[_StoredStream, ...], dims: Dims
) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return the name of each format of the table with these places, and the streams; those of equal types first."""
    rows = []
    for name, fmt in compound_formats().items():
        if len(fmt.streams) != len(streams) or len(dims) < fmt.ndims:
            continue
        try:
            desc = CompoundDesc(fmt, dims)
        except InvalidArguments:
            continue
        pairs = _pair_streams(desc, found, streams) if desc.size <= found.nbytes else None
        if pairs is not None:
            types = [fmt.stream(theirs).data_type for _, theirs in pairs]
            unlike = sum(own.data_type != other for own, other in zip(streams, types, strict=True))
            rows.append((unlike, name, pairs))
    return [(name, pairs) for _, name, pairs in sorted(rows, key=lambda row: row[0])]


def _pair_streams(
    desc: CompoundDesc, found: BitPlaces, streams: tuple[_StoredStream, ...]
) -> tuple[tuple[str, str], ...] | None:
    """Return the stream of a format that has the places of each stream, or None if one has none."""
    places = {one.name: bit_positions(desc, one.name) for one in desc.format.streams}
    pairs = []
    for stream, own in zip(streams, found.places, strict=True):
        same = [name for name, other in places.items() if np.array_equal(own, other)]
        if not same or desc.stream_dims(same[0]) != stream.dims:
            return None
        pairs.append((stream.name, same[0]))
    return tuple(pairs)


# New formats


def _make_format(found: BitPlaces, streams: tuple[_StoredStream, ...], dims: Dims) -> CompoundFormat | Diagnosis:
    """Return a new format with these places, or the diagnosis of a stream without digits."""
    if streams[0].dims != dims:
        raise InvalidArguments(
            f"the first stream {streams[0].name!r} has dims {streams[0].dims}: give a number for each element of {dims}"
        )
    everything = _Part(tuple(streams), found.places, 0, found.nbytes)
    one = _repeat_block(everything, dims)
    if one is not None and one.count > 1:
        return _format_of([one], streams[0].name)
    parts = [_repeat_block(part, dims) for part in _split_parts(everything)]
    if len(parts) > 1 and all(parts) and any(part is not None and part.count > 1 for part in parts):
        several = _format_of([part for part in parts if part is not None], streams[0].name)
        if _has_places(several, everything, dims):
            return several
    if one is not None:
        return _format_of([one], streams[0].name)
    return _diagnose_digits(everything)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Streams that share a range of bytes."""

    streams: tuple[_StoredStream, ...]
    places: tuple[Offsets, ...]
    start: int
    """First byte."""
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _RepeatedBlock:
    """The block of a section and its streams."""

    part: _Part
    section: Section
    streams: tuple[Stream, ...]
    count: int
    """Number of blocks."""


def _split_parts(part: _Part) -> list[_Part]:
    """Return the streams in groups whose bytes do not interleave, in the order of their bytes."""
    spans = sorted((int(p.min()) // 8, int(p.max()) // 8, k) for k, p in enumerate(part.places))
    groups: list[tuple[int, int, list[int]]] = []
    for first, last, k in spans:
        if groups and first <= groups[-1][1]:
            start, end, members = groups.pop()
            groups.append((start, max(end, last), [*members, k]))
        else:
            groups.append((first, last, [k]))
    starts = [0, *(first for first, _, _ in groups[1:]), part.nbytes]
    return [
        _Part(
            tuple(part.streams[k] for k in sorted(members)),
            tuple(part.places[k] for k in sorted(members)),
            starts[i],
            starts[i + 1] - starts[i],
        )
        for i, (_, _, members) in enumerate(groups)
    ]


def _repeat_block(part: _Part, dims: Dims) -> _RepeatedBlock | None:
    """Return the smallest block whose repetition has the places of a part, or None if there is none."""
    for block in _blocks(dims):
        made = _block_of(part, dims, block)
        if made is not None:
            return made
    return None


def _blocks(dims: Dims) -> Iterator[Dims]:
    """Yield dims of blocks along the last axes, the smallest first; at the end the whole tensor."""
    choices = set()
    for rank in range(1, min(_MOST_RANKS, len(dims)) + 1):
        divisors = [[d for d in range(1, n + 1) if n % d == 0] for n in dims[-rank:]]
        choices |= {block for block in product(*divisors) if rank == 1 or block[0] > 1}
    yield from sorted(choices - {dims}, key=lambda block: (prod(block), len(block), block))[:_MOST_BLOCKS]
    yield dims


def _block_of(part: _Part, dims: Dims, block: Dims) -> _RepeatedBlock | None:
    """Return the block of these dims if its repetition has the places of a part, or None."""
    before = len(dims) - len(block)
    count = prod(dims) // prod(block)
    nbytes = part.nbytes if count == 1 else _block_distance(part, dims, block)
    if nbytes is None or not 0 < nbytes * count <= part.nbytes:
        return None
    streams = []
    for stream, places in zip(part.streams, part.places, strict=True):
        own = _dims_in_block(stream.dims, dims, block)
        if own is None:
            return None
        inside = places.reshape(*stream.dims, -1)[(0,) * before + tuple(map(slice, own))] - 8 * part.start
        if inside.min() < 0 or inside.max() >= 8 * nbytes:
            return None
        fields = _fields(inside)
        if isinstance(fields, FactorFault):
            return None
        streams.append(Stream(stream.name, stream.data_type, fields, stream.zero))
    made = _RepeatedBlock(part, Section(block, nbytes), tuple(streams), count)
    return made if _repeats(made, dims) else None


def _block_distance(part: _Part, dims: Dims, block: Dims) -> int | None:
    """Return the number of bytes from the first block to the second, or None if it is not whole."""
    own = _dims_in_block(part.streams[0].dims, dims, block)
    if own is None:
        return None
    whole = (1,) * (len(dims) - len(block)) + own
    axis = max(i for i, (n, m) in enumerate(zip(part.streams[0].dims, whole, strict=True)) if n > m)
    second = int(np.ravel_multi_index([m * (i == axis) for i, m in enumerate(whole)], part.streams[0].dims))
    nbytes, rest = divmod(int(part.places[0][second, 0] - part.places[0][0, 0]), 8)
    return None if rest else nbytes


def _dims_in_block(dims: Dims, whole: Dims, block: Dims) -> Dims | None:
    """Return the dims of a stream in one block, or None if the blocks divide its numbers unevenly."""
    before = len(whole) - len(block)
    if dims[:before] != whole[:before]:
        return None
    counts = [n // b for n, b in zip(whole[before:], block, strict=True)]
    own = tuple(d // c for d, c in zip(dims[before:], counts, strict=True))
    uneven = any(d % c for d, c in zip(dims[before:], counts, strict=True))
    return None if uneven or any(not d or b % d for d, b in zip(own, block, strict=True)) else own


def _fields(places: Offsets) -> tuple[BitField, ...] | FactorFault:
    """Return the fields of a stream from the place of each bit of each number in the block, or the fault of one."""
    bits = places.shape[-1]
    steps = np.diff(places, axis=-1).reshape(-1, bits - 1)
    ends = [0, *(int(k) + 1 for k in np.flatnonzero((steps != 1).any(axis=0))), bits]
    fields = []
    for low, high in pairwise(ends):
        factored = factor_offsets(places[..., low])
        if isinstance(factored, FactorFault):
            return factored
        for i, (n, axis) in enumerate(zip(factored.dims, factored.axes, strict=True)):
            if n % axis.block:
                corner = tuple(n - 1 if j == i else 0 for j in range(len(factored.dims)))
                return FactorFault(i, corner, factored.offset0, factored.offset0)
        fields.append(BitField(high - low, factored.offset0, Layout(factored.dims, factored.axes), low))
    return tuple(fields)


def _repeats(made: _RepeatedBlock, dims: Dims) -> bool:
    """Return True if the blocks in row-major order have the places of all numbers."""
    counts = (*dims[: len(dims) - len(made.section.block)],)
    counts += tuple(n // b for n, b in zip(dims[len(counts) :], made.section.block, strict=True))
    number = np.arange(prod(counts)).reshape(counts)
    for stream, places, fields in zip(made.part.streams, made.part.places, made.streams, strict=True):
        at = np.indices(stream.dims)
        own = (1,) * (len(dims) - len(made.section.block)) + fields.dims
        blocks = number[tuple(x // n for x, n in zip(at, own, strict=True))]
        rest = np.stack([x % n for x, n in zip(at, own, strict=True)], axis=-1)[..., len(dims) - len(fields.dims) :]
        start = 8 * (made.part.start + blocks * made.section.nbytes)
        for field in fields.fields:
            inner = np.asarray(field.layout.offset(rest.reshape(-1, rest.shape[-1])))
            if not np.array_equal(start.reshape(-1) + field.offset + inner, places[:, field.shift]):
                return False
    return True


def _format_of(blocks: Sequence[_RepeatedBlock], first: str) -> CompoundFormat:
    """Return the format of the blocks of each section; `first` names the stream of the elements."""
    named = {stream.name: replace(stream, section=k) for k, made in enumerate(blocks) for stream in made.streams}
    rank = len(blocks[0].section.block)
    multiple = [1] * rank
    for made in blocks:
        for axis, n in enumerate(reversed(made.section.block[-rank:]), 1):
            multiple[-axis] = lcm(multiple[-axis], n)
    streams = (named.pop(first), *named.values())
    sections = [blocks[0].section]
    end = blocks[0].section.nbytes * blocks[0].count
    for made in blocks[1:]:
        alignment = 1
        while -(-end // alignment) * alignment < made.part.start:
            alignment *= 2
        sections.append(replace(made.section, alignment=alignment))
        end = made.part.start + made.section.nbytes * made.count
    return CompoundFormat(NEW_NAME, tuple(sections), streams, multiple=tuple(multiple))


def _has_places(fmt: CompoundFormat, part: _Part, dims: Dims) -> bool:
    """Return True if a format has the places of all streams."""
    try:
        desc = CompoundDesc(fmt, dims)
    except InvalidArguments:
        return False
    pairs = zip(part.streams, part.places, strict=True)
    return all(np.array_equal(bit_positions(desc, stream.name), places) for stream, places in pairs)


def _diagnose_digits(part: _Part) -> Diagnosis:
    """Return the diagnosis of the first stream whose places are not made of digits."""
    for stream, places in zip(part.streams, part.places, strict=True):
        fault = _fields(places.reshape(*stream.dims, -1))
        if isinstance(fault, FactorFault):
            number = int(np.ravel_multi_index(fault.coordinate, stream.dims))
            problem = (
                f"the places of {stream.name} are not made of digits: a field of the number at {fault.coordinate} is "
                f"at bit {fault.found}, expected {fault.expected}"
            )
            return Diagnosis("digits", problem, (number,))
    names = ", ".join(shown(stream.name) for stream in part.streams)
    return Diagnosis("digits", f"dims of streams {names} do not divide the tensor: give dims of whole groups")
