"""Hypothesis strategies for everything that describes memory: for tests of Inlay and of code that uses it.

Each strategy draws small values (thousands of elements) that are as unlike as the rules allow: unit and zero dims,
blocks of odd sizes, two or three blocks on one axis, padding, gaps, submemories, digits in an order no tag can say.
A law that holds for what is drawn here is worth more than any list of formats:

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=20, deadline=None, database=None)
    ... @given(descriptors())
    ... def every_coordinate_has_an_address(desc):
    ...     if 0 not in desc.dims:
    ...         assert desc.offset([0] * desc.ndims) == desc.offset0
    >>> every_coordinate_has_an_address()
"""

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.format_tag import LETTERS, FormatTag
from inlay.layout import Axis, Digit, Dims, Layout

BLOCK_SIZES = (2, 3, 4, 5, 8, 12, 16)
"""The sizes that inner blocks are drawn from."""

CONVERTIBLE = ("f32", "bf16", "f16", "s8", "u8", "s32")
"""The types between which a reorder converts."""

_LARGEST_BLOCK = 256
_LARGEST_PADDED = 20_000
_SELDOM = (False,) * 19 + (True,)

Draw: TypeAlias = st.DrawFn
Form: TypeAlias = Callable[[Draw, Dims, DataType], MemoryDesc]
"""Draws a descriptor of given dims and type."""


def data_types(*, sub_byte: bool = True) -> st.SearchStrategy[DataType]:
    """Any data type; without those of 4 bits where `sub_byte` is False.

    >>> from hypothesis import find
    >>> find(data_types(), lambda t: t.bits == 64).bits
    64
    """
    return st.sampled_from([t for t in DATA_TYPES.values() if sub_byte or not t.is_sub_byte])


@st.composite
def shapes(draw: Draw, ndims: int | None = None, *, max_size: int = 5000, zero: bool = True) -> Dims:
    """Dims with at most `max_size` elements, 1 to 5 of them unless `ndims` says how many; 0 among them if `zero`.

    >>> from hypothesis import find
    >>> find(shapes(3), lambda dims: min(dims) > 1)
    (2, 2, 2)
    """
    count = draw(st.integers(1, 5)) if ndims is None else ndims
    dims: list[int] = []
    for left in reversed(range(count)):
        # What is left is shared out, or the first axis would take nearly all of it.
        room = int((max_size // prod(dims)) ** (1 / (left + 1)) * 2)
        dims.append(draw(st.integers(1, max(1, min(room, max_size // prod(dims))))))
    if zero and count and draw(st.sampled_from(_SELDOM)):
        dims[0] = 0
    return tuple(draw(st.permutations(dims)))


@st.composite
def format_tags(draw: Draw, ndims: int | None = None, *, min_blocks: int = 0, max_blocks: int = 3) -> FormatTag:
    """Any order of 1 to 6 axes, or of `ndims`, with so many inner blocks, several on one axis too.

    >>> from hypothesis import find
    >>> str(find(format_tags(2), lambda tag: tag.blocks(0) == 4 and tag.blocks(1) == 1))
    'Ab4a'
    """
    count = draw(st.integers(1, 6)) if ndims is None else ndims
    order = tuple(draw(st.permutations(range(count))))
    block = st.tuples(st.integers(0, count - 1), st.sampled_from(BLOCK_SIZES))
    blocks = draw(st.lists(block, min_size=min_blocks, max_size=max_blocks))
    while prod(size for _, size in blocks) > _LARGEST_BLOCK:
        blocks.pop()
    return FormatTag(order, tuple(blocks))


@st.composite
def layouts(draw: Draw, *, max_size: int = 1000) -> Layout:
    """Any layout of 0 to 4 axes: strides of any sign, zero and overlapping ones, digits that end inside a block.

    >>> from hypothesis import find
    >>> find(layouts(), lambda layout: layout.overlaps).overlaps
    True
    """
    dims = draw(shapes(draw(st.integers(0, 4)), max_size=max_size))
    extents = [draw(st.lists(st.sampled_from((1, *BLOCK_SIZES)), max_size=3)) for _ in dims]
    if draw(st.booleans()):
        stride = st.integers(-30, 30)
        axes = [Axis(draw(stride), tuple(Digit(e, draw(stride)) for e in inner)) for inner in extents]
        return Layout(dims, tuple(axes))
    return _nested_layout(draw, dims, extents)


def _nested_layout(draw: Draw, dims: Dims, extents: list[list[int]]) -> Layout:
    """The digits one inside another in a drawn order, sometimes with a gap, sometimes backwards."""
    counts = [(-(-dim // prod(inner)), *inner) for dim, inner in zip(dims, extents, strict=True)]
    strides = [[0] * len(digits) for digits in counts]
    places = [(i, j) for i, digits in enumerate(counts) for j in range(len(digits))]
    need = 1
    for i, j in draw(st.permutations(places)):
        stride = need + draw(st.sampled_from((0, 0, 0, 1, 5)))
        strides[i][j] = stride * draw(st.sampled_from((1, 1, -1)))
        need = stride * max(1, counts[i][j])
    axes = [
        Axis(steps[0], tuple(Digit(e, s) for e, s in zip(digits[1:], steps[1:], strict=True)))
        for digits, steps in zip(counts, strides, strict=True)
    ]
    return Layout(dims, tuple(axes))


@st.composite
def descriptors(
    draw: Draw, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, broadcast: bool = False
) -> MemoryDesc:
    """A descriptor with addresses: by tag, strides with gaps, a pattern, or a submemory of one of these.

    Its elements do not overlap, so it can be a destination, unless `broadcast` lets strides be 0.

    >>> from hypothesis import find
    >>> find(descriptors((17, 3), "f32"), lambda d: d.padded_dims[0] == 20).padded_dims
    (20, 3)
    """
    chosen_dims = draw(shapes()) if dims is None else dims
    chosen_type = draw(data_types()) if data_type is None else as_data_type(data_type)
    forms = [_strided, _tagged, _tagged, _patterned, _part, *([_broadcast] if broadcast else [])]
    return draw(st.sampled_from(forms))(draw, chosen_dims, chosen_type)


def _tagged(draw: Draw, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By a tag with up to three blocks."""
    tag = draw(format_tags(len(dims), min_blocks=draw(st.sampled_from((0, 1, 1, 2, 3)))))
    while tag.inner_blocks and prod(tag.layout(dims).dims) > max(_LARGEST_PADDED, 4 * prod(dims)):
        tag = FormatTag(tag.order, tag.inner_blocks[:-1])
    try:
        return MemoryDesc(dims, data_type, tag)
    except InvalidArguments:
        # Two elements of 4 bits share a byte, so that type has no odd strides; `_strided` rounds its own up.
        return _strided(draw, dims, data_type)


def _strided(draw: Draw, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By nested strides, some with a gap, some dims padded."""
    padded = tuple(dim + draw(st.sampled_from((0, 0, 0, 1, 3))) if dim else 0 for dim in dims)
    strides = _nested_strides(draw, padded, data_type)
    return MemoryDesc(dims, data_type, strides=strides, padded_dims=padded)


def _nested_strides(draw: Draw, padded: Dims, data_type: DataType) -> list[int]:
    strides = [0] * len(padded)
    need = 1
    for i in draw(st.permutations(range(len(padded)))):
        gap = draw(st.sampled_from((0, 0, 0, 1, 2, 7)))
        stride = need + gap
        if data_type.is_sub_byte and stride > 1:
            stride += stride % 2
        strides[i] = stride
        need = stride * max(1, padded[i])
    return strides


def _patterned(draw: Draw, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By a pattern: every axis split into up to three digits, and all digits in any order."""
    groups: list[list[str]] = []
    for i, dim in enumerate(dims):
        sizes = draw(st.lists(st.sampled_from(BLOCK_SIZES), max_size=2))
        while prod(sizes) > max(1, 4 * dim):
            sizes.pop()
        groups.append([LETTERS[i], *(f"{LETTERS[i]}{'xy'[k]}{size}" for k, size in enumerate(sizes))])
    order = draw(st.permutations([name for group in groups for name in group]))
    left = " ".join(f"({' '.join(group)})" if len(group) > 1 else group[0] for group in groups)
    try:
        return MemoryDesc(dims, data_type, pattern=f"{left} -> {' '.join(order)}")
    except InvalidArguments:
        return _strided(draw, dims, data_type)


def _part(draw: Draw, dims: Dims, data_type: DataType) -> MemoryDesc:
    """A submemory: whole blocks, the end of a parent, or part of one block."""
    tag = draw(format_tags(len(dims), min_blocks=1, max_blocks=2))
    offsets, parent_dims = [], []
    for i, dim in enumerate(dims):
        block = tag.blocks(i)
        offset = block * draw(st.integers(0, 1)) if block <= 16 else 0
        beyond = draw(st.integers(0, 5)) if dim % block == 0 or dim < block else 0
        offsets.append(offset)
        parent_dims.append(offset + dim + beyond)
    if prod(tag.layout(parent_dims).dims) > max(_LARGEST_PADDED, 6 * prod(dims)):
        return _strided(draw, dims, data_type)
    try:
        parent = MemoryDesc(tuple(parent_dims), data_type, tag)
    except InvalidArguments:
        return _strided(draw, dims, data_type)
    return parent.submemory(dims, tuple(offsets))


def _broadcast(draw: Draw, dims: Dims, data_type: DataType) -> MemoryDesc:
    """By strides of which at least one is 0."""
    repeated = draw(st.sets(st.integers(0, len(dims) - 1), min_size=1))
    strides = _nested_strides(draw, tuple(1 if i in repeated else dim for i, dim in enumerate(dims)), data_type)
    return MemoryDesc(dims, data_type, strides=[0 if i in repeated else s for i, s in enumerate(strides)])


@st.composite
def reorder_problems(
    draw: Draw, *, sub_byte: bool = False, convert: bool = False, large: bool = False
) -> tuple[MemoryDesc, MemoryDesc]:
    """A source and a destination of equal dims that a reorder accepts.

    Sources may be broadcast; both may be padded, hold gaps, or be part of a larger memory; indivisible pairs of blocks
    (8 and 12) occur. `sub_byte` admits types of 4 bits, `convert` asks for two types with a conversion instead of one
    type, and `large` for two dims of 64 to 130, which fill whole vector tiles and leave tails.

    >>> from hypothesis import find
    >>> src, dst = find(reorder_problems(convert=True), lambda pair: pair[0].data_type != pair[1].data_type)
    >>> src.dims == dst.dims
    True
    """
    if convert:
        src_type, dst_type = (as_data_type(draw(st.sampled_from(CONVERTIBLE))) for _ in range(2))
    else:
        src_type = dst_type = draw(data_types(sub_byte=sub_byte))
    dims = draw(_tile_shapes()) if large else draw(shapes())
    return draw(descriptors(dims, src_type, broadcast=True)), draw(descriptors(dims, dst_type))


@st.composite
def _tile_shapes(draw: Draw) -> Dims:
    wide = [draw(st.integers(64, 130)) for _ in range(2)]
    narrow = draw(st.lists(st.integers(1, 2), max_size=2))
    return tuple(draw(st.permutations(wide + narrow)))
