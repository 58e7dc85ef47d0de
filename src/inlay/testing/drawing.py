"""Functions that draw small shapes, tags, layouts, descriptors and sparse memory from a source of choices.

    >>> from inlay.testing.choices import Seeded
    >>> draw_descriptor(Seeded(3), (17, 3), "f32").dims
    (17, 3)
    >>> draw_sparse_memory(Seeded(2), (3, 4), "f32").desc.dims
    (3, 4)

Tensors have at most a few thousand elements. They include dims of 1 and 0, blocks of odd sizes, two or three blocks on
one axis, padding, gaps, submemories, and digits in orders that no tag describes. Sparse memory is filled according to
the definition of each encoding, without code of `inlay.memory.sparse`, so tests can check that module against it.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Dims, Layout, Swizzle
from inlay.layout.axis import LETTERS
from inlay.memory import Memory
from inlay.notation.format_tag import FormatTag
from inlay.testing.choices import Choices, check_arguments

BLOCK_SIZES = (2, 3, 4, 5, 8, 12, 16)
"""Sizes of inner blocks."""

CONVERTIBLE = tuple(DATA_TYPES)
"""Names of the data types between which a reorder converts."""

_LARGEST_BLOCK = 256
_LARGEST_PADDED = 20_000
_SELDOM = (False,) * 19 + (True,)
_EITHER = (False, True)

Form: TypeAlias = Callable[[Choices, Dims, DataType], MemoryDesc]
"""A function that draws a descriptor with these dims and this data type."""


@check_arguments()
def draw_data_type(choose: Choices, *, sub_byte: bool = True) -> DataType:
    """Draw a data type; 4-bit types only if `sub_byte`."""
    return choose.pick([t for t in DATA_TYPES.values() if sub_byte or not t.is_sub_byte])


@check_arguments(whole_bytes=bool)
def draw_swizzle(choose: Choices, *, whole_bytes: bool = False) -> Swizzle:
    """Draw a swizzle of 1 to 3 bits in either direction; with `whole_bytes`, elements of 4 bits stay in pairs."""
    bits = choose.integer(1, 3)
    shift = choose.integer(bits, 4)
    return Swizzle(bits, choose.integer(1 if whole_bytes else 0, 3), -shift if choose.pick(_EITHER) else shift)


@check_arguments()
def draw_shape(choose: Choices, ndims: int | None = None, *, max_size: int = 5000, zero: bool = True) -> Dims:
    """Draw dims with a product of at most `max_size`: `ndims` of them, or 1 to 5 if None; if `zero`, one may be 0."""
    count = choose.integer(1, 5) if ndims is None else ndims
    dims: list[int] = []
    for left in reversed(range(count)):
        # Limit each dim to about the same share, since the first could otherwise use nearly all elements.
        share = int((max_size // prod(dims)) ** (1 / (left + 1)) * 2)
        dims.append(choose.integer(1, max(1, min(share, max_size // prod(dims)))))
    if zero and count and choose.pick(_SELDOM):
        dims[0] = 0
    return tuple(choose.shuffled(dims))


@check_arguments()
def draw_tag(choose: Choices, ndims: int | None = None, *, min_blocks: int = 0, max_blocks: int = 3) -> FormatTag:
    """Draw a tag of `ndims` axes (1 to 6 if None) in any order, with inner blocks; an axis may have several."""
    count = choose.integer(1, 6) if ndims is None else ndims
    if not count or min_blocks > max_blocks:
        raise InvalidArguments(
            f"a tag of {count} axes with {min_blocks} to {max_blocks} blocks cannot be drawn: give at least 1 axis, "
            "and max_blocks not less than min_blocks"
        )
    order = tuple(choose.shuffled(range(count)))
    blocks = choose.several([(i, size) for i in range(count) for size in BLOCK_SIZES], min_blocks, max_blocks)
    while prod(size for _, size in blocks) > _LARGEST_BLOCK:
        blocks.pop()
    return FormatTag(order, tuple(blocks))


@check_arguments()
def draw_layout(choose: Choices, *, max_size: int = 1000) -> Layout:
    """Draw a layout of 0 to 4 axes, with strides of any sign or 0, overlapping elements, and incomplete blocks."""
    dims = draw_shape(choose, choose.integer(0, 4), max_size=max_size)
    extents = [choose.several((1, *BLOCK_SIZES), 0, 3) for _ in dims]
    if choose.pick(_EITHER):
        axes = [
            Axis(choose.integer(-30, 30), tuple(Digit(e, choose.integer(-30, 30)) for e in inner)) for inner in extents
        ]
        return Layout(dims, tuple(axes))
    return _draw_nested_layout(choose, dims, extents)


def _draw_nested_layout(choose: Choices, dims: Dims, extents: list[list[int]]) -> Layout:
    """Draw a layout whose digits nest in random order; some strides leave a gap, some are negative."""
    all_extents = [(-(-dim // prod(inner)), *inner) for dim, inner in zip(dims, extents, strict=True)]
    strides = [[0] * len(axis_extents) for axis_extents in all_extents]
    digits = [(i, j) for i, axis_extents in enumerate(all_extents) for j in range(len(axis_extents))]
    min_stride = 1
    for i, j in choose.shuffled(digits):
        stride = min_stride + choose.pick((0, 0, 0, 1, 5))
        strides[i][j] = stride * choose.pick((1, 1, -1))
        min_stride = stride * max(1, all_extents[i][j])
    axes = [
        Axis(steps[0], tuple(Digit(e, s) for e, s in zip(axis_extents[1:], steps[1:], strict=True)))
        for axis_extents, steps in zip(all_extents, strides, strict=True)
    ]
    return Layout(dims, tuple(axes))


@check_arguments()
def draw_descriptor(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, broadcast: bool = False
) -> MemoryDesc:
    """Draw a descriptor with a layout, made by a tag, by strides, by a pattern, or as a submemory.

    Elements do not overlap, so the descriptor can be a destination. If `broadcast`, strides may be 0 and elements
    overlap.
    """
    chosen_dims = draw_shape(choose) if dims is None else dims
    chosen_type = draw_data_type(choose) if data_type is None else as_data_type(data_type)
    forms: list[Form] = [
        _draw_by_strides,
        _draw_by_tag,
        _draw_by_tag,
        _draw_by_pattern,
        _draw_submemory,
        *([_draw_broadcast] if broadcast else []),
    ]
    return choose.pick(forms)(choose, chosen_dims, chosen_type)


def _draw_by_tag(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """Draw a descriptor made by a tag with up to three blocks."""
    tag = draw_tag(choose, len(dims), min_blocks=choose.pick((0, 1, 1, 2, 3)))
    while tag.inner_blocks and prod(tag.layout(dims).dims) > max(_LARGEST_PADDED, 4 * prod(dims)):
        tag = FormatTag(tag.order, tag.inner_blocks[:-1])
    try:
        return MemoryDesc(dims, data_type, tag)
    except InvalidArguments:
        # Strides of 4-bit types must be even, because two elements share a byte; `_draw_by_strides` ensures that.
        return _draw_by_strides(choose, dims, data_type)


def _draw_by_strides(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """Draw a descriptor with nested strides; some strides leave a gap, some dims are padded."""
    padded = tuple(dim + choose.pick((0, 0, 0, 1, 3)) if dim else 0 for dim in dims)
    strides = nested_strides(choose, padded, data_type)
    return MemoryDesc(dims, data_type, strides=strides, padded_dims=padded)


def nested_strides(choose: Choices, padded: Sequence[int], data_type: DataType) -> list[int]:
    """Draw strides that oneDNN accepts for these padded dims: axes nest in random order, some strides leave a gap."""
    strides = [0] * len(padded)
    min_stride = 1
    for i in choose.shuffled(range(len(padded))):
        gap = choose.pick((0, 0, 0, 1, 2, 7))
        stride = min_stride + gap
        if data_type.is_sub_byte and stride > 1:
            stride += stride % 2
        strides[i] = stride
        min_stride = stride * max(1, padded[i])
    return strides


def _draw_by_pattern(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """Draw a descriptor made by a pattern that splits every axis into up to three digits, in any order."""
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
        return _draw_by_strides(choose, dims, data_type)


def _draw_submemory(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """Draw a submemory of a blocked descriptor: whole blocks, the end of the parent, or a part of one block."""
    tag = draw_tag(choose, len(dims), min_blocks=1, max_blocks=2)
    offsets, parent_dims = [], []
    for i, dim in enumerate(dims):
        block = tag.blocks(i)
        offset = block * choose.integer(0, 1) if block <= 16 else 0
        beyond = choose.integer(0, 5) if dim % block == 0 or dim < block else 0
        offsets.append(offset)
        parent_dims.append(offset + dim + beyond)
    if prod(tag.layout(parent_dims).dims) > max(_LARGEST_PADDED, 6 * prod(dims)):
        return _draw_by_strides(choose, dims, data_type)
    try:
        parent = MemoryDesc(tuple(parent_dims), data_type, tag)
    except InvalidArguments:
        return _draw_by_strides(choose, dims, data_type)
    return parent.submemory(dims, tuple(offsets))


def _draw_broadcast(choose: Choices, dims: Dims, data_type: DataType) -> MemoryDesc:
    """Draw a descriptor with strides of which at least one is 0."""
    repeated = set(choose.several(range(len(dims)), 1, len(dims)))
    strides = nested_strides(choose, [1 if i in repeated else dim for i, dim in enumerate(dims)], data_type)
    return MemoryDesc(dims, data_type, strides=[0 if i in repeated else s for i, s in enumerate(strides)])


@check_arguments()
def draw_reorder_problem(
    choose: Choices, *, sub_byte: bool = False, convert: bool = False, large: bool = False
) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw a source and a destination of equal dims that a reorder accepts: see `inlay.testing.reorder_problems`."""
    if convert:
        src_type, dst_type = (as_data_type(choose.pick(CONVERTIBLE)) for _ in range(2))
    else:
        src_type = dst_type = draw_data_type(choose, sub_byte=sub_byte)
    dims = draw_tile_shape(choose) if large else draw_shape(choose)
    return draw_descriptor(choose, dims, src_type, broadcast=True), draw_descriptor(choose, dims, dst_type)


@check_arguments()
def draw_tile_shape(choose: Choices) -> Dims:
    """Draw two dims of 64 to 130, which make whole vector tiles and remainders, and up to two dims of 1 or 2."""
    large = [choose.integer(64, 130) for _ in range(2)]
    return tuple(choose.shuffled(large + choose.several((1, 2), 0, 2)))


INDEX_TYPES = ("s32", "s64", "s8", "u8")
"""Data types of indices and pointers."""

_LARGEST = 60
"""Maximum number of elements of a sparse tensor whose dims are drawn."""


@check_arguments()
def draw_sparse_descriptor(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, packed: bool = False
) -> MemoryDesc:
    """Draw a CSR or COO descriptor, or sometimes a packed one if `packed`, that stores none, some or all elements.

    The types of indices and pointers can represent every coordinate and `nnz`.
    """
    element = draw_data_type(choose) if data_type is None else as_data_type(data_type)
    is_csr = choose.pick(_EITHER) if dims is None else len(dims) == 2 and choose.pick(_EITHER)
    shape = draw_shape(choose, 2 if is_csr else None, max_size=_LARGEST) if dims is None else dims
    nnz = choose.integer(0, prod(shape))
    index_type, pointer_type = (_draw_index_type(choose, limit) for limit in (max(shape), nnz))
    if packed and choose.pick(_EITHER):
        return MemoryDesc.packed(shape, element, nnz)
    if is_csr:
        return MemoryDesc.csr(shape, element, nnz, index_type, pointer_type)
    return MemoryDesc.coo(shape, element, nnz, index_type)


def _draw_index_type(choose: Choices, largest: int) -> DataType:
    """Draw an index type that can represent `largest`."""
    return DATA_TYPES[choose.pick([name for name in INDEX_TYPES if largest <= DATA_TYPES[name].highest])]


@check_arguments()
def draw_sparse_memory(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, ordered: bool = True
) -> Memory:
    """Draw CSR or COO memory with random bits as values; entries are in row-major order only if `ordered`."""
    desc = draw_sparse_descriptor(choose, dims, data_type)
    flat_indices = choose.shuffled(range(prod(desc.dims)))[: desc.nnz]
    if ordered:
        flat_indices.sort()
    elif desc.sparse_encoding == "csr":
        flat_indices.sort(key=lambda flat_index: flat_index // desc.dims[1])
    positions = [axis.tolist() for axis in np.unravel_index(np.array(flat_indices, np.int64), desc.dims)]
    if desc.sparse_encoding == "csr":
        rows, columns = positions
        positions = [columns, [sum(row < i for row in rows) for i in range(desc.dims[0] + 1)]]
    assert desc.data_type is not None
    codes = [choose.integer(0, 2**desc.data_type.bits - 1) for _ in flat_indices]
    values = np.array(codes, f"u{desc.data_type.itemsize}").view(np.uint8)
    indices = [np.array(p, t.dtype) for p, t in zip(positions, desc.data_types[1:], strict=True) if t is not None]
    return Memory(desc, [values, *indices])
