"""The texts of element values in the cells of a picture: read when it is drawn, and only the elements that it shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.layout import Dims


class ElementValues(Protocol):
    """A source of values."""

    def texts(self, coordinates: Sequence[Dims]) -> list[str]:
        """Return the text of the element at each coordinate; empty for padding without a value or with a zero."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrayValues:
    """The values of an array, which has no padding."""

    array: npt.NDArray[Any]
    """The elements, by their coordinates."""

    def texts(self, coordinates: Sequence[Dims]) -> list[str]:
        """Return the text of the element at each coordinate; empty where the array has none."""
        points = np.array(coordinates, np.int64).reshape(len(coordinates), self.array.ndim)
        inside: npt.NDArray[np.bool_] = np.all(points < self.array.shape, axis=1)
        values = iter(number_texts(np.asarray(self.array)[tuple(points[inside].T)]))
        return [next(values) if is_inside else "" for is_inside in inside]


class _Bytes(Protocol):
    """A `Memory`, by what reading elements needs."""

    @property
    def desc(self) -> MemoryDesc:
        """Descriptor of the bytes."""

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """The bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryValues:
    """The values in a `Memory`, padding included."""

    memory: _Bytes
    """The memory that has the elements."""

    def texts(self, coordinates: Sequence[Dims]) -> list[str]:
        """Return the text of the element at each coordinate; empty for padding that holds zero."""
        if not coordinates:
            return []
        from inlay.memory.buffers import decode_elements  # whoever has a Memory has loaded it

        desc = self.memory.desc
        assert desc.data_type is not None
        points = np.array(coordinates, np.int64)
        starts = np.asarray(desc.byte_offset(points))
        nbytes = 1 if desc.data_type.is_sub_byte else desc.data_type.itemsize
        codes: npt.NDArray[Any] = np.ascontiguousarray(self.memory.buffer[starts[:, None] + np.arange(nbytes)])
        if desc.data_type.is_sub_byte:
            codes = codes[:, 0] >> (4 * (np.asarray(desc.offset(points)) % 2)).astype(np.uint8) & 15
        is_padding = np.any(points >= np.array(desc.dims), axis=1)
        is_zero_padding = is_padding & np.all(codes.reshape(len(points), -1) == 0, axis=1)
        texts = number_texts(decode_elements(codes, desc.data_type).reshape(len(points)))
        return ["" if is_zero else text for is_zero, text in zip(is_zero_padding, texts, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class MovedValues:
    """The values of a source, for cells of another layout of the same tensor."""

    source: ElementValues
    """The values by coordinate."""
    dims: Dims
    """Dims of the tensor: there are no values outside."""

    def texts(self, coordinates: Sequence[Dims]) -> list[str]:
        """Return the text of the element at each coordinate; empty for padding."""
        is_data = [all(x < n for x, n in zip(point, self.dims, strict=True)) for point in coordinates]
        known = iter(self.source.texts([p for p, has_value in zip(coordinates, is_data, strict=True) if has_value]))
        return [next(known) if has_value else "" for has_value in is_data]


@dataclass(frozen=True, slots=True)
class OffsetTexts:
    """The offsets of elements in one layout, for cells of another."""

    desc: MemoryDesc
    """The layout that has the offsets."""

    def texts(self, coordinates: Sequence[Dims]) -> list[str]:
        """Return the offset of the element at each coordinate, in elements; empty for padding."""
        dims = self.desc.dims
        is_data = [all(x < n for x, n in zip(point, dims, strict=True)) for point in coordinates]
        return [
            str(self.desc.offset(p)) if has_offset else "" for p, has_offset in zip(coordinates, is_data, strict=True)
        ]


def number_texts(values: npt.NDArray[Any]) -> list[str]:
    """Return each number as text: whole ones in full, others rounded to 4 digits.

    >>> number_texts(np.array([1.5, 1 / 3, -2e-7], np.float32))
    ['1.5', '0.3333', '-2e-07']
    """
    is_whole = values.dtype.kind in "iub" or "int" in values.dtype.name
    number = int if is_whole else complex if values.dtype.kind == "c" else float
    return [str(number(x)) if is_whole else f"{number(x):.4g}" for x in values.reshape(-1)]
