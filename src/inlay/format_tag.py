"""Format tags: oneDNN's notation for layouts, read, printed, and turned into digits.

A tag names the axes of a tensor a, b, c, ... and writes them in the order they lie in memory, outermost first; after
them come the inner blocks, again outermost first, each a size and the axis it takes coordinates from. An axis with
inner blocks is written in upper case. So `aBcd8b` is: images, blocks of 8 channels, rows, columns, and inside all that
the 8 channels of a block. Letters may also name the axes by their role: `nChw8c` is `aBcd8b`. See `tag_grammar`.

    >>> tag = FormatTag.parse("nChw8c")
    >>> str(tag), tag.order, tag.inner_blocks
    ('aBcd8b', (0, 1, 2, 3), ((1, 8),))
    >>> tag.layout((2, 17, 5, 4)).dims
    (2, 24, 5, 4)

A tag is a rule for any dims; a layout is what the rule gives for some. oneDNN enumerates 873 tags; the grammar reads
every tag that could be spelled, and `ENUMERATED` tells which of them oneDNN has a code for.

Source: oneDNN, `dnnl_format_tag_t` and `memory_desc_init_by_tag`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NoReturn

from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.layout.address import as_numbers
from inlay.tag_grammar import ALIASES, ENUMERATED, LETTERS, ROLE_ORDERS, read_tag

__all__ = ["ALIASES", "ENUMERATED", "LETTERS", "ROLE_ORDERS", "FormatTag", "creates", "order_by_stride", "tag_of"]

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FormatTag:
    """One format tag.

    Tags are equal when they have the same order and blocks, whatever letters they were read from.

    Post-conditions: `FormatTag.parse(str(tag)) == tag == FormatTag.parse(tag.spelling)`.
    """

    order: tuple[int, ...]
    """The axes, outermost first."""
    inner_blocks: tuple[tuple[int, int], ...] = ()
    """Axis and size of each inner block, outermost first; sizes are 2 or more."""
    _inner: tuple[tuple[Digit, ...], ...] = field(init=False, repr=False, compare=False)
    """Per axis, the digits of its inner blocks: they depend on no dims."""
    _blocks: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Per axis, the product of its inner blocks."""
    _typed: str = field(init=False, repr=False, compare=False)
    """The text that the tag was read from; empty where it was read from none."""
    _letters: str = field(init=False, repr=False, compare=False)
    """The letters that the text names the axes by, in the order of the axes."""

    def __post_init__(self) -> None:
        """Refuse what cannot be spelled.

        Raises:
            InvalidArguments: `order` does not use each of 0..n-1 once with n from 1 to 12, or an inner block has an
                axis outside them or a size below 2.
        """
        order, blocks = _as_order(self.order), _as_blocks(self.inner_blocks)
        n = len(order)
        if not 1 <= n <= len(LETTERS) or sorted(order) != list(range(n)):
            raise InvalidArguments(
                f"the order of a format tag uses each of 0..n-1 once, n from 1 to 12: {shown(self.order)}"
            )
        inner: list[list[Digit]] = [[] for _ in order]
        stride = 1
        for axis, size in reversed(blocks):
            if not 0 <= axis < n or size < 2:
                raise InvalidArguments(
                    f"inner block ({shown(axis)}, {shown(size)}) needs an axis of 0..{n - 1} and a size of 2 or more"
                )
            inner[axis].append(Digit(size, stride))
            stride *= size
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "inner_blocks", blocks)
        object.__setattr__(self, "_inner", tuple(tuple(reversed(digits)) for digits in inner))
        object.__setattr__(self, "_blocks", tuple(prod(digit.extent for digit in digits) for digits in inner))
        object.__setattr__(self, "_typed", "")
        object.__setattr__(self, "_letters", LETTERS[:n])

    @classmethod
    def parse(cls, text: str) -> "FormatTag":
        """The tag that `text` spells, in abstract or in role letters; blocks of one element are dropped.

        Raises:
            FormatTagError: `text` is no tag, can be read in two ways, or is `any` or `undef`, which give no layout.
            InvalidArguments: `text` is no text.

        >>> FormatTag.parse("OIhw4i16o4i") == FormatTag.parse("ABcd4b16a4b")
        True
        >>> str(FormatTag.parse("aB1b"))
        'ab'
        """
        if not isinstance(text, str):
            raise InvalidArguments(f"a format tag is text such as 'nChw16c', not {shown(text)}")
        return _parse(text)

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.order)

    def blocks(self, axis: int) -> int:
        """The product of the inner blocks of `axis`, 1 if it has none: its dim is padded to a multiple of this.

        Raises:
            InvalidArguments: `axis` is no integer of 0..ndims-1.

        >>> FormatTag.parse("ABcd4b16a4b").blocks(1)
        16
        """
        if type(axis) is not int or not 0 <= axis < self.ndims:
            raise InvalidArguments(f"axis is {shown(axis)}: the axes of {self.spelling} are 0..{self.ndims - 1}")
        return self._blocks[axis]

    @property
    def spelling(self) -> str:
        """The text that the tag was read from, letters and all; `str(tag)` where it was made of numbers.

        >>> tag = FormatTag.parse("OhwI16o64i")
        >>> tag.spelling, str(tag)
        ('OhwI16o64i', 'AcdB16a64b')
        """
        return self._typed or str(self)

    @property
    def letters(self) -> str:
        """The letter of each axis in `spelling`, in lower case and in the order of the axes.

        >>> FormatTag.parse("nhwc").letters, FormatTag.parse("acdb").letters
        ('nchw', 'abcd')
        """
        return self._letters

    def __str__(self) -> str:
        """The tag in oneDNN's letters."""
        blocked = {axis for axis, _ in self.inner_blocks}
        outer = (LETTERS[axis].upper() if axis in blocked else LETTERS[axis] for axis in self.order)
        return "".join(outer) + "".join(f"{size}{LETTERS[axis]}" for axis, size in self.inner_blocks)

    def layout(self, dims: Sequence[int]) -> Layout:
        """The layout of a tensor of `dims`, padded to whole blocks and dense; a dim of 0 counts as 1 in the strides.

        Where a dim is RUNTIME, so is the stride of every axis outside it.

        Raises:
            InvalidArguments: `dims` differ in number from the axes of the tag, one is negative, or the padded tensor
                has more than 2**63 - 1 elements.

        >>> [axis.stride for axis in FormatTag.parse("nChw8c").layout((2, 17, 5, 4)).axes]
        [480, 160, 32, 8]
        """
        n = len(self.order)
        for dim in dims if type(dims) is tuple else ("",):
            if type(dim) is not int:
                dims = as_numbers("dim", dims)
        if len(dims) != n:
            raise InvalidArguments(f"format tag {self.spelling} places {n} axes, dims {shown(dims)} have {len(dims)}")
        padded = list(dims)
        axes: list[Axis] = [_NO_AXIS] * n
        blocks, inner = self._blocks, self._inner
        stride = prod(blocks)
        for axis in reversed(self.order):
            axes[axis] = Axis(stride, inner[axis])
            dim, block = dims[axis], blocks[axis]
            if dim < 0:
                if dim != RUNTIME:
                    raise InvalidArguments(f"dim {axis} is {dim}: dims are 0 or more")
                stride = RUNTIME
                continue
            if block > 1:
                dim = -(-dim // block)
                padded[axis] = dim * block
            reach = padded[axis]
            if stride > 0:
                # No padded dim so far is larger.
                stride *= dim or 1
                reach = stride
            if reach > _LARGEST:
                self._refuse_size(tuple(dims), axis)
        return Layout(tuple(padded), tuple(axes))

    def _refuse_size(self, dims: tuple[int, ...], axis: int) -> NoReturn:
        raise InvalidArguments(
            f"format tag {self.spelling} of dims {dims} needs more than 2**63 - 1 elements"
            f" once axis {axis} ({self.letters[axis]}) is counted: use smaller dims or blocks"
        )


_NO_AXIS = Axis(0)


def _as_order(order: object) -> tuple[int, ...]:
    """The order of a tag as a tuple of integers.

    Raises:
        InvalidArguments: it is none.
    """
    if not isinstance(order, (tuple, list)) or not all(type(axis) is int for axis in order):
        raise InvalidArguments(f"the order of a format tag is a tuple of axes such as (0, 2, 1), not {shown(order)}")
    return tuple(order)


def _as_blocks(blocks: object) -> tuple[tuple[int, int], ...]:
    """The inner blocks of a tag as pairs of integers.

    Raises:
        InvalidArguments: they are none.
    """
    if isinstance(blocks, (tuple, list)) and all(_is_pair(block) for block in blocks):
        return tuple((axis, size) for axis, size in blocks)
    raise InvalidArguments(f"inner_blocks are pairs of axis and size such as ((1, 8),), not {shown(blocks)}")


def _is_pair(block: object) -> bool:
    return isinstance(block, (tuple, list)) and len(block) == 2 and all(type(number) is int for number in block)


@lru_cache(maxsize=4096)
def _parse(text: str) -> FormatTag:
    reading = read_tag(text)
    tag = FormatTag(reading.order, reading.blocks)
    object.__setattr__(tag, "_typed", text)
    object.__setattr__(tag, "_letters", reading.letters)
    return tag


def tag_of(layout: Layout) -> FormatTag | None:
    """The tag that gives `layout` for its own dims, or None where none does; strides of axes of one do not count.

    Post-condition: a tag that is not None gives the dims and inner digits of `layout`, and its strides wherever the
    dim is not 1.

    >>> str(tag_of(FormatTag.parse("nhwc").layout((2, 3, 4, 5))))
    'acdb'
    >>> tag_of(Layout.from_strides((4, 6), (8, 1))) is None
    True
    """
    if not 1 <= layout.ndims <= len(LETTERS):
        return None
    digits = [(d.stride, i, d.extent) for i, axis in enumerate(layout.axes) for d in axis.inner if d.extent > 1]
    blocks = tuple((i, extent) for _, i, extent in sorted(digits, reverse=True))
    by_stride = FormatTag(order_by_stride(layout), blocks)
    if creates(by_stride, layout, every_stride=True):
        return by_stride
    moved = FormatTag(_after_their_predecessors(by_stride.order, layout.dims), blocks)
    return moved if creates(moved, layout, every_stride=False) else None


def order_by_stride(layout: Layout) -> tuple[int, ...]:
    """The axes by falling stride; of equal strides, the axis that repeats lies outside the one that does not.

    The sign of a stride does not count: an axis that runs backwards lies where it would lie forwards.

    >>> order_by_stride(Layout.from_strides((2, 3, 4), (1, -8, 2)))
    (1, 2, 0)
    """

    def place(i: int) -> tuple[float, float, int]:
        dim, stride = layout.dims[i], layout.axes[i].stride
        count = float("inf") if dim == RUNTIME else max(1, -(-dim // layout.axes[i].block))
        return (-float("inf") if stride == RUNTIME else -abs(stride), -count, i)

    return tuple(sorted(range(layout.ndims), key=place))


def _after_their_predecessors(order: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """`order` with every axis of one moved just inside the axis named before it, where plain orders have it."""
    moved = [i for i in order if dims[i] != 1]
    for i in range(len(dims)):
        if dims[i] == 1:
            moved.insert(moved.index(i - 1) + 1 if i else 0, i)
    return tuple(moved)


def creates(tag: FormatTag, layout: Layout, every_stride: bool) -> bool:
    """Whether `tag` gives the dims, blocks and strides of `layout`; unless `every_stride`, axes of one are excused.

    >>> creates(FormatTag.parse("ba"), Layout.from_strides((3, 4), (1, 3)), every_stride=True)
    True
    """
    try:
        rebuilt = tag.layout(layout.dims)
    except InvalidArguments:
        return False
    if rebuilt.dims != layout.dims:
        return False
    for mine, theirs, dim in zip(rebuilt.axes, layout.axes, layout.dims, strict=True):
        if mine.stride != theirs.stride and (every_stride or dim != 1):
            return False
        if mine.inner != tuple(digit for digit in theirs.inner if digit.extent > 1):
            return False
    return True
