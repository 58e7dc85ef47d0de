"""`PaddingContents`: the statement of what the padding of a memory holds.

    ZERO            every lane is 0, as kernels require (-0.0 counts as 0)
    Filled(value)   every lane holds one value
    UNDEFINED       nothing is known

The statement belongs to the bytes, so a memory and its views share one `PaddingRecord`. A record counts the lanes that
it speaks of: if a view with fewer lanes is filled with another value, the padding as a whole is undefined.

>>> ZERO == Filled(0.0), Filled(1) == ZERO, Filled(float("nan")) == Filled(float("nan"))
(True, False, True)
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, number_kind
from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments, shown
from inlay.layout import Layout
from inlay.memory.buffers import Bytes, decode_elements, encode_elements


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """Padding of which every lane holds one value."""

    value: Any
    """The value, a number."""

    def __eq__(self, other: object) -> bool:
        """Return True if both values are equal or both are NaN."""
        if not isinstance(other, Filled):
            return NotImplemented
        return bool(self.value == other.value) or bool(self.value != self.value and other.value != other.value)

    def __hash__(self) -> int:
        """Return a hash; equal contents have equal hashes."""
        return hash("nan" if self.value != self.value else self.value)

    def __str__(self) -> str:
        """Return the value as text, `zero` for 0."""
        return "zero" if self.value == 0 else str(self.value)


@dataclass(frozen=True, slots=True)
class UndefinedPadding:
    """Padding of which nothing is known."""

    def __str__(self) -> str:
        """Return `undefined`."""
        return "undefined"


PaddingContents: TypeAlias = Filled | UndefinedPadding
"""The contents of padding."""

ZERO = Filled(0)
"""Every lane of padding is 0."""

UNDEFINED = UndefinedPadding()
"""Nothing is known about the padding."""


class PaddingRecord:
    """The statement about some lanes of padding, shared by all views of their bytes."""

    __slots__ = ("contents", "lanes")

    def __init__(self, contents: PaddingContents, lanes: int) -> None:
        """Create the record of `lanes` lanes."""
        self.contents = contents
        self.lanes = lanes

    def note(self, contents: PaddingContents, lanes: int) -> None:
        """Record that `lanes` of the lanes hold `contents` now; a part of them must hold what the rest holds."""
        if lanes >= self.lanes or self.contents == contents:
            self.contents = contents
        elif lanes:
            self.contents = UNDEFINED


def count_lanes(desc: MemoryDesc) -> int:
    """Return the number of lanes of padding; 0 if there is no layout.

    >>> count_lanes(MemoryDesc((2, 17), "f32", "aB8b"))
    14
    """
    layout = desc.layout.layout if isinstance(desc.layout, kinds.SwizzledLayout) else desc.layout
    if not isinstance(layout, Layout) or layout.dims == desc.dims:
        return 0
    return prod(layout.dims) - prod(desc.dims)


def require_contents(padding: object) -> PaddingContents:
    """Return `padding` after checking its type.

    Raises:
        InvalidArguments: it is neither `Filled` with a number nor `UNDEFINED`.
    """
    if padding is ZERO or isinstance(padding, UndefinedPadding):
        return padding
    if isinstance(padding, Filled) and _number_of(padding.value).size:
        return padding
    raise InvalidArguments(f"padding is {shown(padding)}: give ZERO, UNDEFINED or Filled with a number")


def _number_of(value: object) -> npt.NDArray[Any]:
    """Return one number as an array without axes; an empty array if `value` is no number."""
    try:
        number = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
    is_number = number.ndim == 0 and (number.dtype.kind in "bc" or number_kind(number.dtype) is not None)
    return number if is_number else np.empty(0)


def element_bytes(value: object, data_type: DataType) -> Bytes:
    """Return the bytes of one element that holds `value`, rounded to the type; a 4-bit element is one byte.

    Raises:
        InvalidArguments: `value` is no number, an integer type cannot hold it, or it is complex and the type real.
    """
    number = _number_of(value)
    if not number.size:
        raise InvalidArguments(f"value is {shown(value)}: give one number")
    if number.dtype.kind == "c" != data_type.dtype.kind:
        raise InvalidArguments(f"value is {shown(value)}: {data_type} holds real numbers")
    with np.errstate(all="ignore"):
        element = number.reshape(1).astype(data_type.dtype)
    if data_type.kind in ("signed", "unsigned") and not data_type.lowest <= number.item() <= data_type.highest:
        raise InvalidArguments(f"value is {shown(value)}: {data_type} holds {data_type.lowest} to {data_type.highest}")
    codes = encode_elements(element, data_type) if data_type.is_sub_byte else element
    return codes.view(np.uint8).reshape(-1)


@lru_cache(maxsize=64, typed=True)
def cached_bytes(value: Hashable, data_type: DataType) -> Bytes:
    """Return `element_bytes` of a value, as an array that cannot be written.

    Equal values of one type have equal bytes, apart from zeros of both signs.
    """
    element = element_bytes(value, data_type)
    element.flags.writeable = False
    return element


def to_text(contents: PaddingContents, data_type: DataType) -> str:
    """Return the contents as text for a file: `undefined`, or the bytes of one element as hexadecimal digits.

    >>> from inlay.data_type import DATA_TYPES
    >>> to_text(Filled(1), DATA_TYPES["f32"]), to_text(UNDEFINED, DATA_TYPES["f32"])
    ('0000803f', 'undefined')
    """
    if isinstance(contents, UndefinedPadding):
        return "undefined"
    return element_bytes(contents.value, data_type).tobytes().hex()


def from_text(text: object, data_type: DataType) -> PaddingContents:
    """Return the contents for a text that `to_text` wrote.

    Raises:
        InvalidArguments: `text` is another one.
    """
    if text == "undefined":
        return UNDEFINED
    digits = 2 if data_type.is_sub_byte else 2 * data_type.itemsize
    if not isinstance(text, str) or len(text) != digits or not set(text) <= set("0123456789abcdef"):
        raise InvalidArguments(f"padding is {shown(text)}: it is 'undefined' or {digits} hexadecimal digits")
    held = np.frombuffer(bytes.fromhex(text), np.uint8)
    return filled_with(held, data_type)


def filled_with(held: Bytes, data_type: DataType) -> Filled:
    """Return the contents of lanes that all hold the element with these bytes; the code 0 is `ZERO` in every type."""
    if not held.any():
        return ZERO
    return Filled(decode_elements(held.copy(), data_type)[0].item())
