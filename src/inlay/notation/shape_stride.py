"""CuTe's `shape:stride` texts of layouts, and their prefix for a swizzle. Parser and printer.

CuTe writes a layout as the extents of its modes, a colon, and their strides in elements. Each mode of the outermost
tuple is one axis. A mode may be a tuple again: these are the digits of the axis, **least significant first**, the other
way round than the digits of a `Layout` and of a pattern. Deeper tuples are the same digits with more parentheses.

    (4,6):(6,1)                             rows of 6, C order
    (2,(8,3),5,4):(480,(1,160),32,8)        oneDNN's nChw8c of (2, 24, 5, 4): 8 channels side by side, 3 blocks of them
    ((4,8),(2,4)):((1,16),(4,64))           two axes of 32 and 8 coordinates

    >>> layout = ShapeStride.parse("((4,8),(2,4)):((1,16),(4,64))").layout((32, 8))
    >>> [[(digit.extent, digit.stride) for digit in digits] for digits in layout.digits]
    [[(8, 16), (4, 1)], [(4, 64), (2, 4)]]
    >>> shape_stride_of(layout)
    '((4,8),(2,4)):((1,16),(4,64))'

The extents fix the padded dims; dims may be smaller, and the rest of each axis is padding.

    text     = shape , ":" , stride ;      of the same form
    shape    = extent | "(" , shape , { "," , shape } , ")" ;
    extent   = [ "_" ] , number ;          1 or more; CuTe prints "_" before an extent known to the compiler
    stride   = [ "_" ] , [ "-" ] , number | "(" , stride , { "," , stride } , ")" ;
    prefix   = ( "Swizzle" | "Sw" | "S" ) , "<" , bits , "," , base , "," , shift , ">" , "o" , [ "0" , "o" ] ;

A composition of CuTe is printed as `Sw<3,4,3> o 0 o (8,64):(64,1)`; the number in the middle is an offset that is added
before the swizzle, and must be 0 here. Swizzles count elements here; one that CuTe prints before `smem_ptr[16b](unset)`
counts bytes, and is refused with the one that counts elements.

Source: NVIDIA CUTLASS, `cute/layout.hpp`, `cute/swizzle.hpp` and `cute/swizzle_layout.hpp` (`print`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

from inlay.errors import InvalidArguments, NotationError, shown
from inlay.layout import RUNTIME, Axis, Digit, Layout, Swizzle
from inlay.layout.axis import LETTERS
from inlay.notation.token_reader import TokenReader

_LARGEST = 2**63 - 1
_DEEPEST = 16

_TOKEN = re.compile(r"\s*(?:(?P<number>_?-?[0-9]+)|(?P<sign>[(),:])|(?P<end>$)|(?P<foreign>.))", re.DOTALL)
_PREFIX = re.compile(
    r"\s*(?:Swizzle|Sw|S)\s*<\s*(-?[0-9]{1,9})\s*,\s*(-?[0-9]{1,9})\s*,\s*(-?[0-9]{1,9})\s*>\s*"
    r"(?:o\b|∘)\s*(?:(?:_?(-?[0-9]{1,19})|smem_ptr\[([0-9]{1,3})b\]\(unset\))\s*(?:o\b|∘)\s*)?"
)
_SWIZZLE = re.compile(r"\s*(?:Swizzle|Sw|S)\s*<[^>]*>?", re.IGNORECASE)
"""A text that is meant as a swizzle, well formed or not."""
_EXAMPLE = "'Swizzle<3,4,3> o (8,64):(64,1)'"

Modes: TypeAlias = tuple[tuple[int, int], ...]
"""Extent and stride of each digit of one axis, least significant first."""


@dataclass(frozen=True, slots=True)
class ShapeStride:
    """A layout in CuTe's notation: the modes of each axis."""

    spelling: str
    """The text that it was parsed from."""
    modes: tuple[Modes, ...]
    """Digits of each axis, least significant first."""

    @classmethod
    def parse(cls, text: str) -> "ShapeStride":
        """Parse a text such as `(4,6):(6,1)`.

        Raises:
            NotationError: `text` has another form, or shape and stride have different forms.
            InvalidArguments: `text` is not a `str`.

        >>> ShapeStride.parse("(2,(8,3)):(24,(1,8))").modes
        (((2, 24),), ((8, 1), (3, 8)))
        """
        if not isinstance(text, str):
            raise InvalidArguments(f"a layout of CuTe is text such as '(4,6):(6,1)', not {shown(text)}")
        return _parse(text)

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.modes)

    @property
    def names(self) -> tuple[str, ...]:
        """One name per axis: a, b, c, ..., as the notation has none."""
        return tuple(LETTERS[: self.ndims]) if self.ndims <= len(LETTERS) else ()

    @property
    def dims(self) -> tuple[int, ...]:
        """The number of coordinates of each axis, padding included."""
        return tuple(prod(extent for extent, _ in modes) for modes in self.modes)

    def layout(self, dims: Sequence[int]) -> Layout:
        """Return the layout of a tensor of `dims`, each padded to the product of its extents.

        Post-condition: the offset of a coordinate is the sum, over axes and modes, of digit times stride, where the
        digits of an axis are those of its coordinate in colexicographic order, as in CuTe.

        Raises:
            InvalidArguments: `dims` differ in number from the axes, or one is RUNTIME or larger than its extents hold.

        >>> ShapeStride.parse("(4,8):(8,1)").layout((3, 8)).dims
        (4, 8)
        """
        if len(dims) != self.ndims:
            raise InvalidArguments(
                f"layout {self.spelling} has {self.ndims} axes, but dims {tuple(dims)} are {len(dims)}: give one dim "
                "for each mode of the outermost tuple"
            )
        for i, (dim, padded) in enumerate(zip(dims, self.dims, strict=True)):
            if dim == RUNTIME or dim > padded:
                known = "RUNTIME" if dim == RUNTIME else dim
                raise InvalidArguments(
                    f"dim {i} is {known}, but axis {i} of layout {self.spelling} has {padded} coordinates: write it "
                    "with larger extents, or use a pattern, whose extents follow from the dims"
                )
        padded_dims = tuple(0 if dim == 0 else padded for dim, padded in zip(dims, self.dims, strict=True))
        return Layout(padded_dims, tuple(map(_axis_of, self.modes)))

    def __str__(self) -> str:
        """Return the text, with the parentheses that `shape_stride_of` writes."""
        return _text_of(self.modes)


def shape_stride_of(layout: Layout) -> str:
    """Return the layout in CuTe's notation, as CuTe prints it: the digits of an axis least significant first.

    Post-condition: ShapeStride.parse(result).layout(layout.dims) is equivalent to `layout`.

    Raises:
        InvalidArguments: the notation cannot say the layout: a dim or stride is RUNTIME, a dim is 0, there are no axes,
            or the last block of an axis is partial.

    >>> shape_stride_of(Layout((2, 24), (Axis(24), Axis(8, (Digit(8, 1),)))))
    '(2,(8,3)):(24,(1,8))'
    """
    if layout.has_runtime or not layout.dims or 0 in layout.dims:
        raise InvalidArguments(
            "shape:stride needs an extent of 1 or more for each axis and known strides: this layout has dims "
            + ("x".join("*" if dim == RUNTIME else str(dim) for dim in layout.dims) or "of no axis")
        )
    modes = tuple(tuple((digit.extent, digit.stride) for digit in reversed(digits)) for digits in layout.digits)
    for i, (dim, digits) in enumerate(zip(layout.dims, modes, strict=True)):
        if dim != prod(extent for extent, _ in digits):
            raise InvalidArguments(
                f"shape:stride needs whole blocks: axis {i} has {dim} coordinates in blocks of {layout.axes[i].block}"
            )
    return _text_of(modes)


def split_swizzle(text: str) -> tuple[Swizzle | None, str]:
    """Return the swizzle before a layout, None if there is none, and the text of the layout.

    Raises:
        NotationError: a swizzle is written in another form, or there are two.
        InvalidArguments: the numbers are not those of a swizzle (`Swizzle`), the offset between swizzle and layout
            is not 0, or the swizzle is one of byte addresses, as CuTe writes it before `smem_ptr[16b](unset)`.

    >>> split_swizzle("Sw<3,4,3> o 0 o (8,64):(64,1)"), split_swizzle("nhwc")
    ((Swizzle(bits=3, base=4, shift=3), '(8,64):(64,1)'), (None, 'nhwc'))
    """
    match = _PREFIX.match(text)
    other = _SWIZZLE.match(text, match.end() if match else 0)
    if other is not None:
        problem = "a layout has one swizzle: leave out this one" if match else f"write a swizzle as in {_EXAMPLE}"
        raise NotationError(problem, text, *other.span())
    if match is None:
        return None, text
    bits, base, shift = map(int, match.group(1, 2, 3))
    rest = text[match.end() :]
    if match[4] is not None and int(match[4]):
        raise InvalidArguments(
            f"the offset {match[4]} between swizzle and layout is not 0: it belongs to a part of a swizzled tensor; "
            "describe the whole tensor, and give offset0 for elements before it"
        )
    if match[5] is not None:
        raise InvalidArguments(
            f"the swizzle before smem_ptr is one of byte addresses: for elements of {match[5]} bits, write "
            f"Swizzle<{bits},{base + 4 - int(match[5]).bit_length()},{shift}> o {rest}"
        )
    return Swizzle(bits, base, shift), rest


# Printing


def _text_of(modes: Sequence[Modes]) -> str:
    """Return the text of the modes of all axes."""
    shape, stride = (_tuple_text([[digit[side] for digit in axis] for axis in modes]) for side in (0, 1))
    return f"{shape}:{stride}"


def _tuple_text(axes: Sequence[Sequence[int]]) -> str:
    """Return one side of the colon: a number for an axis of one digit, else a tuple."""
    parts = [str(axis[0]) if len(axis) == 1 else f"({','.join(map(str, axis))})" for axis in axes]
    return parts[0] if len(parts) == 1 and len(axes[0]) == 1 else f"({','.join(parts)})"


def _axis_of(modes: Modes) -> Axis:
    """Return the axis with these digits."""
    *inner, (_, stride) = modes
    return Axis(stride, tuple(Digit(*digit) for digit in reversed(inner)))


# Parsing


_Tree: TypeAlias = "int | list[_Tree]"
"""A number, or a tuple of trees."""


class _ShapeStrideReader(TokenReader):
    """The tokens of a layout of CuTe, and how deeply the parser is nested in tuples."""

    def __init__(self, text: str) -> None:
        super().__init__(text, _TOKEN, NotationError)
        self.depth = 0

    def expect(self, sign: str, what: str) -> None:
        """Consume `sign`, or raise an error that says where it is missing."""
        if self.token != sign or self.kind != "sign":
            self.fail(f"'{sign}' is expected {what}")
        self.take()


@lru_cache(maxsize=512)
def _parse(text: str) -> ShapeStride:
    """Parse a text; equal texts return a cached value."""
    reader = _ShapeStrideReader(text)
    shape = _read_tree(reader, 1)
    reader.expect(":", "between shape and stride")
    start = reader.start
    stride = _read_tree(reader, -_LARGEST)
    if reader.kind != "end":
        reader.fail("the text goes on after the strides")
    axes = list(zip(_children(shape), _children(stride), strict=False))
    if _form(shape) != _form(stride):
        reader.fail("the strides are not nested as the shape is: each extent has one stride", start, len(text))
    modes = tuple(tuple(zip(_leaves(one), _leaves(other), strict=True)) for one, other in axes)
    if any(prod(extent for extent, _ in axis) > _LARGEST for axis in modes):
        reader.fail("an axis has more than 2**63 - 1 coordinates", 0, start - 1)
    return ShapeStride(text, modes)


def _read_tree(reader: _ShapeStrideReader, least: int) -> _Tree:
    """Parse a number of at least `least`, or a tuple."""
    if reader.kind == "number":
        return _read_number(reader, least)
    if reader.token != "(":
        reader.fail("a number or '(' is expected")
    reader.depth += 1
    if reader.depth > _DEEPEST:
        reader.fail(f"tuples are nested deeper than {_DEEPEST}")
    reader.take()
    children = [_read_tree(reader, least)]
    while reader.token == ",":
        reader.take()
        if reader.token == ")":  # Python writes (8,) for a tuple of one
            break
        children.append(_read_tree(reader, least))
    reader.expect(")", "at the end of the tuple")
    reader.depth -= 1
    return children


def _read_number(reader: _ShapeStrideReader, least: int) -> int:
    """Parse one extent or stride."""
    digits = reader.token.lstrip("_")
    if len(digits) > 20 or abs(int(digits)) > _LARGEST:
        reader.fail("the number exceeds 2**63 - 1")
    if int(digits) < least:
        reader.fail("an extent is 1 or more")
    reader.take()
    return int(digits)


def _children(tree: _Tree) -> list[_Tree]:
    """Return the modes of the outermost tuple; a number alone is one mode."""
    return tree if isinstance(tree, list) else [tree]


def _leaves(tree: _Tree) -> list[int]:
    """Return the numbers of a tree from left to right."""
    return [tree] if isinstance(tree, int) else [leaf for child in tree for leaf in _leaves(child)]


def _form(tree: _Tree) -> object:
    """Return the nesting of a tree without its numbers."""
    return None if isinstance(tree, int) else tuple(map(_form, tree))
