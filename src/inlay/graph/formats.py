"""`Formats`: one object for each descriptor, and what the planner asks of descriptors again and again.

A format of one tensor becomes that of another by its tag: `acdb` of a convolution's destination is `acdb` of the
pooling that follows. A view carries a format through, where it can.

>>> formats = Formats()
>>> image = formats.tagged((1, 16, 4, 4), "f32", "acdb")
>>> formats.tag(formats.like(image, (1, 32, 2, 2), "f32"))
'acdb'
>>> formats.viewed(image, (Reshape((1, 256)),)) is None
True
"""

from collections.abc import Sequence

import numpy as np

from inlay.data_type import DataType, as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.costs.forms import Form, tag_of
from inlay.graph.network import Tensor
from inlay.graph.op import Move, Part, Permute, Reshape
from inlay.layout import Dims, Layout

MOST_NDIMS = 12
"""Of oneDNN."""

_IMAGES = (3, 4, 5)  # axes


class Formats:
    """Descriptors of a plan, without offset, each of them one object, so that `is` compares them."""

    def __init__(self) -> None:
        """Begin without any."""
        self._one: dict[MemoryDesc, MemoryDesc] = {}
        self._tagged: dict[tuple[Dims, str, str | None], MemoryDesc] = {}
        self._tags: dict[int, str | None] = {}
        self._equal: dict[tuple[int, int], bool] = {}
        self._sizes: dict[int, int] = {}
        self._views: dict[tuple[int, tuple[Move, ...]], tuple[MemoryDesc, int] | None] = {}
        self._origins: dict[tuple[int, tuple[Move, ...], Dims], MemoryDesc | None] = {}
        self._types: dict[np.dtype[np.generic], str | None] = {}

    def one(self, desc: MemoryDesc) -> MemoryDesc:
        """The object that stands for this descriptor."""
        return self._one.setdefault(desc, desc)

    def type_of(self, dtype: np.dtype[np.generic]) -> str | None:
        """The name of the data type; None where descriptors have no such type."""
        if dtype not in self._types:
            try:
                found = as_number_type(dtype)
                # Elements of 4 bits take a byte each in an array, and half of one in a descriptor.
                self._types[dtype] = None if found.is_sub_byte else found.name
            except InvalidArguments:
                self._types[dtype] = None
        return self._types[dtype]

    def plain(self, tensor: Tensor) -> MemoryDesc | None:
        """The dense row-major format; None where a tensor has no descriptor: no axes, too many, or its type."""
        name = self.type_of(tensor.dtype)
        if name is None or not 0 < len(tensor.dims) <= MOST_NDIMS:
            return None
        return self.tagged(tensor.dims, name, None)

    def tagged(self, dims: Dims, data_type: str, tag: str | None) -> MemoryDesc:
        """The descriptor by tag; None is row-major."""
        key = (dims, data_type, tag)
        if key not in self._tagged:
            self._tagged[key] = self.one(MemoryDesc(dims, data_type, tag))
        return self._tagged[key]

    def tag(self, desc: MemoryDesc) -> str | None:
        """Its format tag, if it has one."""
        key = id(desc)
        if key not in self._tags:
            self._tags[key] = desc.tag
        return self._tags[key]

    def size(self, desc: MemoryDesc) -> int:
        """Bytes of it."""
        key = id(desc)
        if key not in self._sizes:
            self._sizes[key] = desc.size
        return self._sizes[key]

    def like(self, desc: MemoryDesc, dims: Dims, data_type: str) -> MemoryDesc | None:
        """The format of `desc` for other dims; None where it has no tag, or new blocks would not be full."""
        tag = self.tag(desc)
        if tag is None or desc.ndims != len(dims):
            return None
        if desc.dims == dims:
            return self.tagged(dims, data_type, tag)
        if any(dims[axis] % block for axis, block in desc.inner_blocks):
            return None
        return self.tagged(dims, data_type, tag)

    def equivalent(self, one: MemoryDesc, other: MemoryDesc) -> bool:
        """Whether both place each element alike and take the same bytes, so that neither needs a reorder."""
        key = (id(one), id(other))
        if key not in self._equal:
            self._equal[key] = one is other or (self.size(one) == self.size(other) and one.equivalent(other))
        return self._equal[key]

    def viewed(self, desc: MemoryDesc, moves: tuple[Move, ...]) -> tuple[MemoryDesc, int] | None:
        """What `desc` is after `moves`, and the byte at which that begins; None where it would have to move."""
        key = (id(desc), moves)
        if key not in self._views:
            self._views[key] = self._moved(desc, moves)
        return self._views[key]

    def _moved(self, desc: MemoryDesc, moves: tuple[Move, ...]) -> tuple[MemoryDesc, int] | None:
        for move in moves:
            match move:
                case Reshape(dims):
                    desc = desc.reshape(dims, allow_empty=True)
                case Permute(perm):
                    desc = desc.rename_axes(perm, allow_empty=True)
                case Part(offsets, dims):
                    desc = desc.submemory(dims, offsets, allow_empty=True)
            if desc.is_zero:
                return None
        return self.at_start(desc)

    def at_start(self, desc: MemoryDesc) -> tuple[MemoryDesc, int]:
        """The descriptor without its offset, and the offset in bytes."""
        kind = desc.data_type
        assert isinstance(kind, DataType)
        if not desc.offset0 or not isinstance(desc.layout, Layout):
            return self.one(desc), 0
        found = MemoryDesc.from_layout(desc.layout, kind, dims=desc.dims)
        return self.one(found), desc.offset0 * kind.itemsize

    def origin(self, desc: MemoryDesc, moves: tuple[Move, ...], dims: Dims) -> MemoryDesc | None:
        """The format of `dims` that becomes `desc` by `moves`; None where there is none, or a part has many."""
        key = (id(desc), moves, dims)
        if key not in self._origins:
            self._origins[key] = self._unmoved(desc, moves, dims)
        return self._origins[key]

    def _unmoved(self, desc: MemoryDesc, moves: tuple[Move, ...], dims: Dims) -> MemoryDesc | None:
        before = _dims_before(dims, moves)
        found = desc
        for move, wanted in zip(reversed(moves), reversed(before), strict=True):
            match move:
                case Reshape():
                    found = found.reshape(wanted, allow_empty=True)
                case Permute(perm):
                    found = found.permute_axes(perm, allow_empty=True)
                case Part():
                    return None
            if found.is_zero:
                return None
        found = self.one(found)
        back = self.viewed(found, moves)
        return found if back is not None and back[0] is desc else None

    def slices(self, whole: MemoryDesc, parts: Sequence[Dims], axis: int) -> tuple[tuple[MemoryDesc, int], ...] | None:
        """Parts of `whole` that follow each other along `axis`, each with its byte; None where a block is cut."""
        found, at = [], 0
        for dims in parts:
            part = whole.submemory(dims, tuple(at if i == axis else 0 for i in range(len(dims))), allow_empty=True)
            if part.is_zero:
                return None
            found.append(self.at_start(part))
            at += dims[axis]
        return tuple(found)


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
