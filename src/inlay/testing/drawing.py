"""Shapes, tags, layouts and descriptors as functions of `Choices`: small, and as unlike as the rules allow.

    >>> from inlay.testing.choices import Seeded
    >>> draw_descriptor(Seeded(3), (17, 3), "f32").dims
    (17, 3)
    >>> draw_sparse_memory(Seeded(2), (3, 4), "f32").desc.dims
    (3, 4)

What is drawn has thousands of elements at most: unit and zero dims, blocks of odd sizes, two or three blocks on one
axis, padding, gaps, submemories, digits in an order no tag can say. Sparse memory is filled from the meaning of each
encoding: no code is shared with `inlay.memory.sparse`, so what is drawn here can judge it.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.memory import Memory
from inlay.notation.format_tag import FormatTag
from inlay.testing.choices import Choices, check_arguments

BLOCK_SIZES = (2, 3, 4, 5, 8, 12, 16)
"""The sizes that inner blocks are drawn from."""

CONVERTIBLE = tuple(DATA_TYPES)
"""The types between which a reorder converts."""

_LARGEST_BLOCK = 256
_LARGEST_PADDED = 20_000
_SELDOM = (False,) * 19 + (True,)
_EITHER = (False, True)

Form: TypeAlias = Callable[[Choices, Dims, DataType], MemoryDesc]
"""Draws a descriptor of given dims and type."""


@check_arguments()
def draw_data_type(choose: Choices, *, sub_byte: bool = True) -> DataType:
    """Any data type; without those of 4 bits where `sub_byte` is False."""
    return choose.pick([t for t in DATA_TYPES.values() if sub_byte or not t.is_sub_byte])


@check_arguments()
def draw_shape(choose: Choices, ndims: int | None = None, *, max_size: int = 5000, zero: bool = True) -> Dims:
    """Dims with at most `max_size` elements, 1 to 5 of them unless `ndims` says how many; 0 among them if `zero`."""
    count = choose.integer(1, 5) if ndims is None else ndims
    dims: list[int] = []
    for left in reversed(range(count)):
        # What is left is shared out, or the first axis would take nearly all of it.
        room = int((max_size // prod(dims)) ** (1 / (left + 1)) * 2)
        dims.append(choose.integer(1, max(1, min(room, max_size // prod(dims)))))
    if zero and count and choose.pick(_SELDOM):
        dims[0] = 0
    return tuple(choose.shuffled(dims))


@check_arguments()
def draw_tag(choose: Choices, ndims: int | None = None, *, min_blocks: int = 0, max_blocks: int = 3) -> FormatTag:
    """Any order of 1 to 6 axes, or of `ndims`, with so many inner blocks, several on one axis too."""
    count = choose.integer(1, 6) if ndims is None else ndims
    if not count or min_blocks > max_blocks:
        raise InvalidArguments(
            f"a tag of {count} axes with {min_blocks} to {max_blocks} blocks cannot be drawn: give 1 axis or more, and "
            "as many blocks at most as at least"
        )
    order = tuple(choose.shuffled(range(count)))
    blocks = choose.several([(i, size) for i in range(count) for size in BLOCK_SIZES], min_blocks, max_blocks)
    while prod(size for _, size in blocks) > _LARGEST_BLOCK:
        blocks.pop()
    return FormatTag(order, tuple(blocks))


@check_arguments()
def draw_layout(choose: Choices, *, max_size: int = 1000) -> Layout:
    """Any layout of 0 to 4 axes: strides of any sign, zero and overlapping ones, digits that end inside a block."""
    dims = draw_shape(choose, choose.integer(0, 4), max_size=max_size)
    extents = [choose.several((1, *BLOCK_SIZES), 0, 3) for _ in dims]
    if choose.pick(_EITHER):
        axes = [
            Axis(choose.integer(-30, 30), tuple(Digit(e, choose.integer(-30, 30)) for e in inner)) for inner in extents
        ]
        return Layout(dims, tuple(axes))
    return _nested_layout(choose, dims, extents)


def _nested_layout(choose: Choices, dims: Dims, extents: list[list[int]]) -> Layout:
    """The digits one inside another in a drawn order, sometimes with a gap, sometimes backwards."""
    counts = [(-(-dim // prod(inner)), *inner) for dim, inner in zip(dims, extents, strict=True)]
    strides = [[0] * len(digits) for digits in counts]
    places = [(i, j) for i, digits in enumerate(counts) for j in range(len(digits))]
    need = 1
    for i, j in choose.shuffled(places):
        stride = need + choose.pick((0, 0, 0, 1, 5))
        strides[i][j] = stride * choose.pick((1, 1, -1))
        need = stride * max(1, counts[i][j])
    axes = [
        Axis(steps[0], tuple(Digit(e, s) for e, s in zip(digits[1:], steps[1:], strict=True)))
        for digits, steps in zip(counts, strides, strict=True)
    ]
    return Layout(dims, tuple(axes))


@check_arguments()
def draw_descriptor(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, broadcast: bool = False
) -> MemoryDesc:
    """A descriptor with addresses: by tag, strides with gaps, a pattern, or a submemory of one of these.

    Its elements do not overlap, so it can be a destination, unless `broadcast` lets strides be 0.
    """
    chosen_dims = draw_shape(choose) if dims is None else dims
    chosen_type = draw_data_type(choose) if data_type is None else as_data_type(data_type)
    forms: list[Form] = [_strided, _tagged, _tagged, _patterned, _part, *([_broadcast] if broadcast else [])]
    return choose.pick(forms)(choose, chosen_dims, chosen_type)


def _tagged(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By a tag with up to three blocks."""
    tag = draw_tag(choose, len(dims), min_blocks=choose.pick((0, 1, 1, 2, 3)))
    while tag.inner_blocks and prod(tag.layout(dims).dims) > max(_LARGEST_PADDED, 4 * prod(dims)):
        tag = FormatTag(tag.order, tag.inner_blocks[:-1])
    try:
        return MemoryDesc(dims, data_type, tag)
    except InvalidArguments:
        # Two elements of 4 bits share a byte, so that type has no odd strides; `_strided` rounds its own up.
        return _strided(choose, dims, data_type)


def _strided(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By nested strides, some with a gap, some dims padded."""
    padded = tuple(dim + choose.pick((0, 0, 0, 1, 3)) if dim else 0 for dim in dims)
    strides = nested_strides(choose, padded, data_type)
    return MemoryDesc(dims, data_type, strides=strides, padded_dims=padded)


def nested_strides(choose: Choices, padded: Sequence[int], data_type: DataType) -> list[int]:
    """Strides that oneDNN accepts for these padded dims, in some order, some with a gap."""
    strides = [0] * len(padded)
    need = 1
    for i in choose.shuffled(range(len(padded))):
        gap = choose.pick((0, 0, 0, 1, 2, 7))
        stride = need + gap
        if data_type.is_sub_byte and stride > 1:
            stride += stride % 2
        strides[i] = stride
        need = stride * max(1, padded[i])
    return strides


def _patterned(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By a pattern: every axis split into up to three digits, and all digits in any order."""
    groups: list[list[str]] = []
    for i, dim in enumerate(dims):
        sizes = choose.several(BLOCK_SIZES, 0, 2)
        while prod(sizes) > max(1, 4 * dim):
            sizes.pop()
        groups.append([LETTERS[i], *(f"{LETTERS[i]}{'xy'[k]}{size}" for k, size in enumerate(sizes))])
    order = choose.shuffled([name for group in groups for name in group])
    left = " ".join(f"({' '.join(group)})" if len(group) > 1 else group[0] for group in groups)
    try:
        return MemoryDesc(dims, data_type, pattern=f"{left} -> {' '.join(order)}")
    except InvalidArguments:
        return _strided(choose, dims, data_type)


def _part(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """A submemory: whole blocks, the end of a parent, or part of one block."""
    tag = draw_tag(choose, len(dims), min_blocks=1, max_blocks=2)
    offsets, parent_dims = [], []
    for i, dim in enumerate(dims):
        block = tag.blocks(i)
        offset = block * choose.integer(0, 1) if block <= 16 else 0
        beyond = choose.integer(0, 5) if dim % block == 0 or dim < block else 0
        offsets.append(offset)
        parent_dims.append(offset + dim + beyond)
    if prod(tag.layout(parent_dims).dims) > max(_LARGEST_PADDED, 6 * prod(dims)):
        return _strided(choose, dims, data_type)
    try:
        parent = MemoryDesc(tuple(parent_dims), data_type, tag)
    except InvalidArguments:
        return _strided(choose, dims, data_type)
    return parent.submemory(dims, tuple(offsets))


def _broadcast(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By strides of which at least one is 0."""
    repeated = set(choose.several(range(len(dims)), 1, len(dims)))
    strides = nested_strides(choose, [1 if i in repeated else dim for i, dim in enumerate(dims)], data_type)
    return MemoryDesc(dims, data_type, strides=[0 if i in repeated else s for i, s in enumerate(strides)])


@check_arguments()
def draw_reorder_problem(
    choose: Choices, *, sub_byte: bool = False, convert: bool = False, large: bool = False
) -> tuple[MemoryDesc, MemoryDesc]:
    """A source and a destination of equal dims that a reorder accepts: see `reorder_problems`."""
    if convert:
        src_type, dst_type = (as_data_type(choose.pick(CONVERTIBLE)) for _ in range(2))
    else:
        src_type = dst_type = draw_data_type(choose, sub_byte=sub_byte)
    dims = draw_tile_shape(choose) if large else draw_shape(choose)
    return draw_descriptor(choose, dims, src_type, broadcast=True), draw_descriptor(choose, dims, dst_type)


@check_arguments()
def draw_tile_shape(choose: Choices) -> Dims:
    """Two dims of 64 to 130, which fill whole vector tiles and leave tails, and up to two of 1 or 2."""
    wide = [choose.integer(64, 130) for _ in range(2)]
    return tuple(choose.shuffled(wide + choose.several((1, 2), 0, 2)))


INDEX_TYPES = ("s32", "s64", "s8", "u8")
"""The types that indices and pointers are drawn from."""

_LARGEST = 60


@check_arguments()
def draw_sparse_descriptor(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, packed: bool = False
) -> MemoryDesc:
    """A CSR or COO descriptor, or a packed one if `packed`, that stores none, some or all of its elements.

    Types of indices and pointers are wide enough for every coordinate and for `nnz`.
    """
    element = draw_data_type(choose) if data_type is None else as_data_type(data_type)
    wants_rows = choose.pick(_EITHER) if dims is None else len(dims) == 2 and choose.pick(_EITHER)
    shape = draw_shape(choose, 2 if wants_rows else None, max_size=_LARGEST) if dims is None else dims
    nnz = choose.integer(0, prod(shape))
    index_type, pointer_type = (_wide_enough(choose, limit) for limit in (max(shape), nnz))
    if packed and choose.pick(_EITHER):
        return MemoryDesc.packed(shape, element, nnz)
    if wants_rows:
        return MemoryDesc.csr(shape, element, nnz, index_type, pointer_type)
    return MemoryDesc.coo(shape, element, nnz, index_type)


def _wide_enough(choose: Choices, limit: int) -> DataType:
    return DATA_TYPES[choose.pick([name for name in INDEX_TYPES if limit <= DATA_TYPES[name].highest])]


@check_arguments()
def draw_sparse_memory(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, ordered: bool = True
) -> Memory:
    """CSR or COO memory with any bits for values, zeros among them; entries in any order unless `ordered`."""
    desc = draw_sparse_descriptor(choose, dims, data_type)
    places = choose.shuffled(range(prod(desc.dims)))[: desc.nnz]
    if ordered:
        places.sort()
    elif desc.sparse_encoding == "csr":
        places.sort(key=lambda place: place // desc.dims[1])
    positions = [axis.tolist() for axis in np.unravel_index(np.array(places, np.int64), desc.dims)]
    if desc.sparse_encoding == "csr":
        rows, columns = positions
        positions = [columns, [sum(row < i for row in rows) for i in range(desc.dims[0] + 1)]]
    assert desc.data_type is not None
    codes = [choose.integer(0, 2**desc.data_type.bits - 1) for _ in places]
    values = np.array(codes, f"u{desc.data_type.itemsize}").view(np.uint8)
    held = [np.array(p, t.dtype) for p, t in zip(positions, desc.data_types[1:], strict=True) if t is not None]
    return Memory(desc, [values, *held])
