"""The configuration of the Zarr codec `inlay`: the layout of the elements of a chunk, checked before any byte is read.

    {"tag": "aBcd16b"}                                     a format tag, with oneDNN's padding to whole blocks
    {"pattern": "(o o16) i -> o i o16"}                    a pattern, or another text of `parse_notation`
    {"digits": [[[2, 64], [16, 1]], [[4, 16]]]}            (extent, stride) of each digit of each axis, outermost first

A configuration is read from files of other people. `ChunkFormat.chunk_desc` refuses layouts in which elements overlap,
lie before the start of the chunk, or take much more space than the elements do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from inlay.data_type import DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.notation import parse_notation
from inlay.notation.format_tag import FormatTag
from inlay.storage.box_bytes import can_cut

Digits = tuple[tuple[tuple[int, int], ...], ...]
"""Extent and stride (in elements) of each digit of each axis, outermost digit first."""

_MOST_PADDING = 1024
"""Most bytes of a chunk for each byte of its elements: two axes of extent 1 in blocks of 32."""
_SMALL_NBYTES = 1 << 16
"""Size of a chunk that is never refused for its padding, in bytes."""
_MOST_CHARACTERS = 1000
"""Longest text of a tag or pattern."""
_MOST_DIGITS = 64
"""Most digits of all axes together."""


@dataclass(frozen=True, slots=True)
class ChunkFormat:
    """The layout of the elements of a chunk, as a text or as digits."""

    key: str
    """Name of the entry of the configuration: `tag`, `pattern` or `digits`."""
    value: "str | Digits"
    """Text of the notation, or the digits."""

    @classmethod
    def from_configuration(cls, configuration: object) -> "ChunkFormat":
        """Parse the configuration of a codec.

        Raises:
            InvalidArguments: it has not exactly one of the entries `tag`, `pattern` and `digits`, or that is malformed.
            FormatTagError, PatternError, NotationError: the text is no format.

        >>> ChunkFormat.from_configuration({"tag": "aBcd16b"}).value
        'aBcd16b'
        """
        keys = list(configuration) if isinstance(configuration, Mapping) else []
        if not isinstance(configuration, Mapping) or len(keys) != 1 or keys[0] not in ("tag", "pattern", "digits"):
            raise InvalidArguments(
                f"the configuration of the codec inlay is {shown(configuration)}: give one entry, tag, pattern or "
                'digits, as in {"tag": "aBcd16b"}'
            )
        value = configuration[keys[0]]
        return cls(keys[0], _read_digits(value) if keys[0] == "digits" else _read_text(keys[0], value))

    @classmethod
    def from_descriptor(cls, desc: MemoryDesc) -> "ChunkFormat":
        """Return the format of chunks whose layout is that of `desc`: its tag if it has one, else its digits.

        >>> ChunkFormat.from_descriptor(MemoryDesc((32, 4), "f32", "aB4b")).value
        'aB4b'
        """
        if desc.tag is not None:
            return cls("tag", desc.tag)
        layout, _ = desc.require_layout("a chunk")
        return cls("digits", tuple(tuple((d.extent, d.stride) for d in digits) for digits in layout.digits))

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration of the codec, as JSON."""
        if isinstance(self.value, str):
            return {self.key: self.value}
        return {self.key: [[list(digit) for digit in digits] for digits in self.value]}

    def chunk_desc(self, shape: Dims, data_type: DataTypeLike) -> MemoryDesc:
        """Return the descriptor of the bytes of a chunk.

        Raises:
            InvalidArguments: the layout has another number of axes than `shape`, its elements overlap or lie before the
                start, or it takes over 1,024 bytes for each byte of the elements.
        """
        return _chunk_desc(self, tuple(shape), as_data_type(data_type).name)


def _read_text(key: str, value: object) -> str:
    """Return the text of a tag or pattern, after a check that it can be parsed."""
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        raise InvalidArguments(
            f"{key} of the codec inlay is {shown(value)}: give a text of at most {_MOST_CHARACTERS} characters"
        )
    if key == "tag":
        FormatTag.parse(value)
    else:
        parse_notation(value)
    return value


def _read_digits(value: object) -> Digits:
    """Return digits from JSON: for each axis a list of pairs of integers."""
    axes = value if isinstance(value, (list, tuple)) else ()
    pairs = [pair for axis in axes if isinstance(axis, (list, tuple)) for pair in axis]
    is_list = bool(axes) and all(isinstance(axis, (list, tuple)) and axis for axis in axes)
    if not is_list or len(pairs) > _MOST_DIGITS or not all(map(_is_digit, pairs)):
        raise InvalidArguments(
            f"digits of the codec inlay are {shown(value)}: give for each axis a list of pairs, extent from 1 and "
            f"stride from 0, at most {_MOST_DIGITS} in all, as in [[[2, 64], [16, 1]], [[4, 16]]]"
        )
    return tuple(tuple((extent, stride) for extent, stride in axis) for axis in axes)


def _is_digit(pair: object) -> bool:
    """Return True if `pair` is an extent from 1 and a stride from 0 below 2**48, both integers."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return False
    extent, stride = pair
    return type(extent) is int and type(stride) is int and 1 <= extent < 1 << 48 and 0 <= stride < 1 << 48


@lru_cache(1024)
def _chunk_desc(form: ChunkFormat, shape: Dims, data_type: str) -> MemoryDesc:
    """Return the descriptor of the bytes of a chunk, after all checks."""
    desc = _describe(form, shape, data_type)
    layout, element = desc.require_layout("a chunk")
    if not can_cut(desc) or layout.span[0] < 0 or desc.offset0:
        raise InvalidArguments(
            f"the codec inlay cannot store chunks {shape} as {shown(form.value)}: elements overlap, or lie before the "
            "start of the chunk; give each element a place of its own"
        )
    limit = max(_SMALL_NBYTES, _MOST_PADDING * prod(shape) * element.itemsize)
    nbytes = chunk_nbytes(desc)
    if nbytes > limit:
        raise InvalidArguments(
            f"the codec inlay takes {nbytes} bytes for a chunk {shape} of {element} as {shown(form.value)}, and "
            f"{limit} are allowed: choose smaller blocks or larger chunks"
        )
    return desc


def _describe(form: ChunkFormat, shape: Dims, data_type: str) -> MemoryDesc:
    """Return the descriptor of a chunk, unchecked but for its number of axes."""
    value = form.value
    if isinstance(value, str):
        notation = FormatTag.parse(value) if form.key == "tag" else parse_notation(value)
        _require_ndims(form, notation.ndims, shape)
        return MemoryDesc(shape, data_type, notation)
    _require_ndims(form, len(value), shape)
    axes = tuple(Axis(digits[0][1], tuple(Digit(*digit) for digit in digits[1:])) for digits in value)
    padded = tuple(prod(extent for extent, _ in digits) for digits in value)
    if any(n > whole for n, whole in zip(shape, padded, strict=True)):
        raise InvalidArguments(f"the codec inlay has digits for {padded} elements, and chunks are {shape}")
    return MemoryDesc.from_layout(Layout(padded, axes), data_type, dims=shape)


def _require_ndims(form: ChunkFormat, count: int, shape: Dims) -> None:
    """Check that a format of `count` axes fits a chunk."""
    if count != len(shape):
        raise InvalidArguments(
            f"the codec inlay has {form.key} {shown(form.value)} for {count} axes, and chunks {shape} have {len(shape)}"
        )


def chunk_nbytes(desc: MemoryDesc) -> int:
    """Return the size of a stored chunk, in bytes: up to its last element, padding included.

    >>> chunk_nbytes(MemoryDesc((3, 5), "f32", "aB4b"))
    96
    """
    layout, data_type = desc.require_layout("a chunk")
    return -(-layout.span[1] * data_type.bits // 8)
