"""`Formats`: the table of the formats of a plan, in which each descriptor has a number.

All other modules of the planner name formats by these small integers. They are the keys of the states of tensors, the
tables of groups, and the costs of kernels and reorders; equal descriptors have equal numbers. `NO_FORMAT`, 0, stands
for a tensor without a descriptor and for a format that does not exist.

A format of one tensor becomes a format of another by its tag: from `acdb` of a convolution's result follows `acdb` of
the pooling after it. A view converts a format where it can.

>>> formats = Formats()
>>> image = formats.from_tag((1, 16, 4, 4), "f32", "acdb")
>>> formats.tag(formats.like(image, (1, 32, 2, 2), "f32"))
'acdb'
>>> image == formats.add(MemoryDesc((1, 16, 4, 4), "f32", "nhwc")), formats.view(image, (ReshapeView((1, 256)),))
(True, None)
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from inlay.data_type import DataType, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.costs.kernel_models import ChannelLayout, tag_of
from inlay.graph.network import Tensor
from inlay.graph.op_graph import BroadcastView, PermuteView, ReshapeView, SubmemoryView, ViewTransform
from inlay.graph.view_transforms import apply_transform
from inlay.layout import Dims, Layout

MOST_NDIMS = 12
"""Most axes of a descriptor (oneDNN, DNNL_MAX_NDIMS)."""

Format: TypeAlias = int
"""The number of a format in the table."""
NO_FORMAT: Format = 0
"""The number that means no format."""
ViewTransforms: TypeAlias = tuple[ViewTransform, ...]
"""The transforms of a view in order."""

_IMAGES = (3, 4, 5)  # axes


class Formats:
    """The descriptors of a plan, without offsets, by number."""

    def __init__(self) -> None:
        """Begin with an empty table."""
        self._numbers: dict[MemoryDesc, Format] = {}
        self._descs: list[MemoryDesc | None] = [None]
        self.type_of: Callable[[np.dtype[np.generic]], str | None] = cache(_type_of)
        """The name of a data type, by its NumPy type; None where descriptors have no such type."""
        self.from_tag: Callable[[Dims, str, str | None], Format] = cache(self._from_tag)
        """The format of these dims and this data type with a tag; None means row-major."""
        self.tag: Callable[[Format], str | None] = cache(lambda fmt: self[fmt].tag)
        """The tag of a format; None where it has none."""
        self.data_type: Callable[[Format], str] = cache(lambda fmt: _name_of_type(self[fmt]))
        """The name of the data type of a format."""
        self.size: Callable[[Format], int] = cache(lambda fmt: self[fmt].size)
        """The size of a format in bytes."""
        self.equivalent: Callable[[Format, Format], bool] = cache(self._equivalent)
        """True if two formats place each element alike and have the same size, so that no reorder is needed."""
        self.repeats: Callable[[Format], bool] = cache(lambda fmt: _repeats(self[fmt]))
        """True if several elements of a format share bytes: it is a view that only reorders and NumPy may read."""
        self.axis_order: Callable[[Format], tuple[int, ...] | None] = cache(lambda fmt: _axis_order(self[fmt]))
        """The axes of several elements, those with the longest strides first; None for a format with blocks."""
        self.view: Callable[[Format, ViewTransforms], tuple[Format, int] | None] = cache(self._view)
        """The format of a view, and its offset in bytes; None where the view would have to copy elements."""
        self.view_source: Callable[[Format, ViewTransforms, Dims], Format] = cache(self._view_source)
        """The format of these dims of which a view has a given format; `NO_FORMAT` where none or many do."""

    def add(self, desc: MemoryDesc) -> Format:
        """Return the number of a descriptor, adding it to the table if it is new."""
        fmt = self._numbers.setdefault(desc, len(self._descs))
        if fmt == len(self._descs):
            self._descs.append(desc)
        return fmt

    def __getitem__(self, fmt: Format) -> MemoryDesc:
        """Return the descriptor of a format other than `NO_FORMAT`."""
        desc = self._descs[fmt]
        assert desc is not None
        return desc

    def desc(self, fmt: Format) -> MemoryDesc | None:
        """Return the descriptor of a format; None for `NO_FORMAT`."""
        return self._descs[fmt]

    def plain(self, tensor: Tensor) -> Format:
        """Return the dense row-major format of a tensor.

        `NO_FORMAT` is returned for a tensor without axes, with too many, or of a type that descriptors lack.
        """
        name = self.type_of(tensor.dtype)
        if name is None or not 0 < len(tensor.dims) <= MOST_NDIMS:
            return NO_FORMAT
        return self.from_tag(tensor.dims, name, None)

    def like(self, fmt: Format, dims: Dims, data_type: str) -> Format:
        """Return the format with the same tag for other dims.

        `NO_FORMAT` is returned where the format has no tag, or where the last block of an axis would be partly filled.
        """
        desc, tag = self[fmt], self.tag(fmt)
        if tag is None or desc.ndims != len(dims):
            return NO_FORMAT
        if desc.dims != dims and any(dims[axis] % block for axis, block in desc.inner_blocks):
            return NO_FORMAT
        return self.from_tag(dims, data_type, tag)

    def slices(self, whole: Format, parts: Sequence[Dims], axis: int) -> tuple[tuple[Format, int], ...] | None:
        """Return the formats and byte offsets of parts of `whole` that follow one another along `axis`.

        None is returned where the boundary between parts cuts a block.
        """
        found, at = [], 0
        for dims in parts:
            offsets = tuple(at if i == axis else 0 for i in range(len(dims)))
            part = self[whole].submemory(dims, offsets, allow_empty=True)
            if part.is_zero:
                return None
            found.append(self._at_start(part))
            at += dims[axis]
        return tuple(found)

    def _from_tag(self, dims: Dims, data_type: str, tag: str | None) -> Format:
        """Return the format of new dims with a tag."""
        return self.add(MemoryDesc(dims, data_type, tag))

    def _equivalent(self, one: Format, other: Format) -> bool:
        """Return whether two formats place each element alike and have the same size."""
        return one == other or (self.size(one) == self.size(other) and self[one].equivalent(self[other]))

    def _view(self, fmt: Format, transforms: ViewTransforms) -> tuple[Format, int] | None:
        """Return the format of a view and its offset in bytes; None if the view would have to copy."""
        desc = self.desc(fmt)
        if desc is None:
            return NO_FORMAT, 0
        for transform in transforms:
            desc = apply_transform(desc, transform, allow_empty=True)
            if desc.is_zero:
                return None
        return self._at_start(desc)

    def _at_start(self, desc: MemoryDesc) -> tuple[Format, int]:
        """Return the format of a descriptor without its offset, and the offset in bytes."""
        kind = desc.data_type
        assert isinstance(kind, DataType)
        if not desc.offset0 or not isinstance(desc.layout, Layout):
            return self.add(desc), 0
        return self.add(MemoryDesc.from_layout(desc.layout, kind, dims=desc.dims)), desc.offset0 * kind.itemsize

    def _view_source(self, view: Format, transforms: ViewTransforms, dims: Dims) -> Format:
        """Return the format of a source of `dims` whose view has the format `view`; `NO_FORMAT` if there is none.

        The transforms are undone in reverse order; then they are applied again, as a check.
        """
        desc = self[view]
        for transform, before in zip(reversed(transforms), reversed(_dims_before(dims, transforms)), strict=True):
            match transform:
                case ReshapeView():
                    desc = desc.reshape(before, allow_empty=True)
                case PermuteView(perm):
                    desc = desc.permute_axes(perm, allow_empty=True)
                case SubmemoryView() | BroadcastView():
                    return NO_FORMAT
            if desc.is_zero:
                return NO_FORMAT
        source = self.add(desc)
        viewed = self.view(source, transforms)
        return source if viewed is not None and viewed[0] == view else NO_FORMAT


def _name_of_type(desc: MemoryDesc) -> str:
    """Return the name of the data type of a descriptor of elements."""
    assert desc.data_type is not None
    return desc.data_type.name


def _axis_order(desc: MemoryDesc) -> tuple[int, ...] | None:
    """Return the axes of several elements, those with the longest strides first; None for a format with blocks."""
    if desc.kind != "blocked" or desc.inner_blocks:
        return None
    longer = (axis for axis, n in enumerate(desc.dims) if n > 1)
    return tuple(sorted(longer, key=lambda axis: -desc.strides[axis]))


def _repeats(desc: MemoryDesc) -> bool:
    """Return whether a stride is 0 along an axis of several elements."""
    layout = desc.layout
    if not isinstance(layout, Layout):
        return False
    return any(axis.stride == 0 and n > 1 for n, axis in zip(layout.dims, layout.axes, strict=True))


def _type_of(dtype: np.dtype[np.generic]) -> str | None:
    """Return the name of the data type of NumPy elements; None if descriptors have none."""
    try:
        found = as_data_type(dtype)
    except InvalidArguments:
        return None
    # Elements of 4 bits take a byte each in an array, and half of one in a descriptor.
    return None if found.is_sub_byte else found.name


def _dims_before(dims: Dims, transforms: Sequence[ViewTransform]) -> list[Dims]:
    """Return the dims before each transform."""
    found = []
    for transform in transforms:
        found.append(dims)
        match transform:
            case PermuteView(perm):
                dims = tuple(dims[axis] for axis in perm)
            case ReshapeView(after) | SubmemoryView(_, after) | BroadcastView(after):
                dims = after
    return found


def channels_last(ndims: int) -> str | None:
    """Return the tag with channels innermost, for images of one to three spatial axes; None for others.

    >>> channels_last(4)
    'acdb'
    """
    return tag_of(ChannelLayout("nxc"), ndims) if ndims in _IMAGES else None


def blocked(ndims: int, block: int) -> str | None:
    """Return the tag with channels in blocks, for images of one to three spatial axes; None for others.

    >>> blocked(4, 16)
    'aBcd16b'
    """
    return tag_of(ChannelLayout("blocked", block), ndims) if ndims in _IMAGES else None
