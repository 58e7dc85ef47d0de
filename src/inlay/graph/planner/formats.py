"""`Formats`: the one table of the formats of a plan; all else names a format by its number there.

Numbers are small, equal where descriptors are, and what the states of tensors, the tables of groups and the prices of
kernels and reorders are keyed by. `NO_FORMAT` stands for a tensor without a descriptor, and for a format that does not
exist; every other number is true.

A format of one tensor becomes that of another by its tag: `acdb` of a convolution's destination is `acdb` of the
pooling that follows. A view carries a format through, where it can.

>>> formats = Formats()
>>> image = formats.tagged((1, 16, 4, 4), "f32", "acdb")
>>> formats.tag(formats.like(image, (1, 32, 2, 2), "f32"))
'acdb'
>>> image == formats.add(MemoryDesc((1, 16, 4, 4), "f32", "nhwc")), formats.viewed(image, (Reshape((1, 256)),))
(True, None)
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from inlay.data_type import DataType, as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.costs.paces import Form, tag_of
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Move, Part, Permute, Reshape
from inlay.layout import Dims, Layout

MOST_NDIMS = 12
"""Of oneDNN."""

Format: TypeAlias = int
"""The number of a format in the table."""
NO_FORMAT: Format = 0
"""The number of no format."""
Moves: TypeAlias = tuple[Move, ...]
"""What a view does, in order."""

_IMAGES = (3, 4, 5)  # axes


class Formats:
    """Descriptors of a plan, without offset, each with a number."""

    def __init__(self) -> None:
        """Begin without any."""
        self._numbers: dict[MemoryDesc, Format] = {}
        self._descs: list[MemoryDesc | None] = [None]
        self.type_of: Callable[[np.dtype[np.generic]], str | None] = cache(_type_of)
        """The name of a data type; None where descriptors have no such type."""
        self.tagged: Callable[[Dims, str, str | None], Format] = cache(self._tagged)
        """The format of these dims and this type by tag; None is row-major."""
        self.tag: Callable[[Format], str | None] = cache(lambda number: self[number].tag)
        """The format tag of a format, if it has one."""
        self.size: Callable[[Format], int] = cache(lambda number: self[number].size)
        """Bytes of a format."""
        self.equivalent: Callable[[Format, Format], bool] = cache(self._equivalent)
        """Whether both place each element alike and take the same bytes, so that neither needs a reorder."""
        self.viewed: Callable[[Format, Moves], tuple[Format, int] | None] = cache(self._viewed)
        """What a format is after some moves, and the byte at which that begins; None where it would have to move."""
        self.origin: Callable[[Format, Moves, Dims], Format] = cache(self._origin)
        """The format of these dims that becomes a format by some moves; none where a part has many."""

    def add(self, desc: MemoryDesc) -> Format:
        """The number of this descriptor."""
        number = self._numbers.setdefault(desc, len(self._descs))
        if number == len(self._descs):
            self._descs.append(desc)
        return number

    def __getitem__(self, number: Format) -> MemoryDesc:
        """The descriptor of a format, which is not `NO_FORMAT`."""
        desc = self._descs[number]
        assert desc is not None
        return desc

    def desc(self, number: Format) -> MemoryDesc | None:
        """The descriptor of a format; None of no format."""
        return self._descs[number]

    def plain(self, tensor: Tensor) -> Format:
        """The dense row-major format; none where a tensor has no descriptor: no axes, too many, or its type."""
        name = self.type_of(tensor.dtype)
        if name is None or not 0 < len(tensor.dims) <= MOST_NDIMS:
            return NO_FORMAT
        return self.tagged(tensor.dims, name, None)

    def like(self, number: Format, dims: Dims, data_type: str) -> Format:
        """The format of the same tag for other dims; none where it has no tag, or new blocks would not be full."""
        desc, tag = self[number], self.tag(number)
        if tag is None or desc.ndims != len(dims):
            return NO_FORMAT
        if desc.dims != dims and any(dims[axis] % block for axis, block in desc.inner_blocks):
            return NO_FORMAT
        return self.tagged(dims, data_type, tag)

    def slices(self, whole: Format, parts: Sequence[Dims], axis: int) -> tuple[tuple[Format, int], ...] | None:
        """Parts of `whole` that follow each other along `axis`, each with its byte; None where a block is cut."""
        found, at = [], 0
        for dims in parts:
            offsets = tuple(at if i == axis else 0 for i in range(len(dims)))
            part = self[whole].submemory(dims, offsets, allow_empty=True)
            if part.is_zero:
                return None
            found.append(self._at_start(part))
            at += dims[axis]
        return tuple(found)

    def _tagged(self, dims: Dims, data_type: str, tag: str | None) -> Format:
        return self.add(MemoryDesc(dims, data_type, tag))

    def _equivalent(self, one: Format, other: Format) -> bool:
        return one == other or (self.size(one) == self.size(other) and self[one].equivalent(self[other]))

    def _viewed(self, number: Format, moves: Moves) -> tuple[Format, int] | None:
        desc = self.desc(number)
        if desc is None:
            return NO_FORMAT, 0
        for move in moves:
            desc = moved(desc, move, allow_empty=True)
            if desc.is_zero:
                return None
        return self._at_start(desc)

    def _at_start(self, desc: MemoryDesc) -> tuple[Format, int]:
        """The format of a descriptor without its offset, and the offset in bytes."""
        kind = desc.data_type
        assert isinstance(kind, DataType)
        if not desc.offset0 or not isinstance(desc.layout, Layout):
            return self.add(desc), 0
        return self.add(MemoryDesc.from_layout(desc.layout, kind, dims=desc.dims)), desc.offset0 * kind.itemsize

    def _origin(self, number: Format, moves: Moves, dims: Dims) -> Format:
        found = self[number]
        for move, before in zip(reversed(moves), reversed(_dims_before(dims, moves)), strict=True):
            match move:
                case Reshape():
                    found = found.reshape(before, allow_empty=True)
                case Permute(perm):
                    found = found.permute_axes(perm, allow_empty=True)
                case Part():
                    return NO_FORMAT
            if found.is_zero:
                return NO_FORMAT
        source = self.add(found)
        seen = self.viewed(source, moves)
        return source if seen is not None and seen[0] == number else NO_FORMAT


def moved(desc: MemoryDesc, move: Move, *, allow_empty: bool = False) -> MemoryDesc:
    """The descriptor after a move; the zero descriptor where elements would have to move, if `allow_empty`.

    Raises:
        InvalidArguments, Unimplemented: as the view of `MemoryDesc`, unless `allow_empty`.
    """
    match move:
        case Reshape(dims):
            return desc.reshape(dims, allow_empty=allow_empty)
        case Permute(perm):
            return desc.rename_axes(perm, allow_empty=allow_empty)
        case Part(offsets, dims):
            return desc.submemory(dims, offsets, allow_empty=allow_empty)


def _type_of(dtype: np.dtype[np.generic]) -> str | None:
    try:
        found = as_number_type(dtype)
    except InvalidArguments:
        return None
    # Elements of 4 bits take a byte each in an array, and half of one in a descriptor.
    return None if found.is_sub_byte else found.name


def _dims_before(dims: Dims, moves: Sequence[Move]) -> list[Dims]:
    """The dims that each move begins with."""
    found = []
    for move in moves:
        found.append(dims)
        match move:
            case Permute(perm):
                dims = tuple(dims[axis] for axis in perm)
            case Reshape(after) | Part(_, after):
                dims = after
    return found


def channels_last(ndims: int) -> str | None:
    """The tag with channels innermost, for images of one to three spatial axes.

    >>> channels_last(4)
    'acdb'
    """
    return tag_of(Form("nxc"), ndims) if ndims in _IMAGES else None


def blocked(ndims: int, block: int) -> str | None:
    """The tag with channels in blocks, for images of one to three spatial axes.

    >>> blocked(4, 16)
    'aBcd16b'
    """
    return tag_of(Form("blocked", block), ndims) if ndims in _IMAGES else None
