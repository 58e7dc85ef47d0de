"""Results of inference: `InferredLayout` and `Diagnosis`.

>>> from inlay.descriptor import MemoryDesc
>>> print(InferredLayout(MemoryDesc((2, 3), "u8", "ba"), "ba", 6, ()))
ba: dims 2x3 of u8
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InlayError
from inlay.layout import Layout, Swizzle
from inlay.notation import parse_notation
from inlay.notation.dictionary import ONEDNN, list_equivalent
from inlay.notation.format_tag import FormatTag
from inlay.notation.pattern import pattern_of

_MOST_NAMES = 3

Offsets: TypeAlias = npt.NDArray[np.int64]
"""Element offsets in a packed buffer."""

DiagnosisRule: TypeAlias = Literal[
    "lost", "twice", "overlap", "exchanged", "moved", "xor", "coordinates", "digits", "values", "foreign"
]
"""The reason why there is no layout.

`lost`: elements are missing. They were not written, or overwritten by an element in its own place: the buffer does not
show which. `overlap`: two elements have one place. Another element is where the layout of most has the missing one, or
two places in a table are equal. `twice`: an element has two places. `exchanged`: two elements have each other's place.
`moved`: few elements violate a layout. `xor`: bits of the place are XORs of bits of the index, and not a Swizzle.
`coordinates`: the place is not a sum of functions of the coordinates. `digits`: the function of one axis is not made of
digits. `values`: the place depends on the values. `foreign`: the buffer holds values that are no element.
"""


@dataclass(frozen=True, slots=True)
class InferredLayout:
    """The layout that explains all observed places."""

    desc: MemoryDesc
    """Descriptor with dims, padded dims, header (`offset0`) and swizzle; `desc.offset` gives the places."""
    tag: str | None
    """Format tag, without regard to header and pitch; None if no tag has these inner blocks."""
    length: int | None
    """Length of the packed buffer in elements; None if only the places of elements were given."""
    notes: tuple[str, ...]
    """Sentences on ambiguities and how they were resolved, and on places outside the layout."""

    @property
    def swizzle(self) -> Swizzle | None:
        """The swizzle of the offsets from the header on; None if there is none."""
        return self.desc.swizzle

    @property
    def format(self) -> str:
        """The layout in its shortest notation: a tag, else a pattern, else the digits."""
        if self.tag is not None:
            return self.tag
        layout = self._linear
        try:
            return pattern_of(layout)
        except InlayError:
            digits = (" ".join(f"({d.extent},{d.stride})" for d in axis) for axis in layout.digits)
            return "digits " + ", ".join(digits)

    @property
    def digit_count(self) -> int:
        """Number of digits of the layout before the swizzle."""
        return sum(map(len, self._linear.digits))

    @property
    def pitch(self) -> tuple[int, ...] | None:
        """The outer strides in elements, if they are larger than those of the dense `tag`; None otherwise."""
        if self.tag is None:
            return None
        dense = FormatTag.parse(self.tag).layout(self.desc.padded_dims)
        steps = tuple(axis.stride for axis in dense.axes)
        long_axes = [n // axis.block > 1 for n, axis in zip(dense.dims, dense.axes, strict=True)]
        strides = tuple(axis.stride for axis in self._linear.axes)
        pairs = zip(steps, strides, long_axes, strict=True)
        return strides if any(a != b for a, b, is_long in pairs if is_long) else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layout in the dictionary, of vendors who make it for this data type; empty if it has none.

        Names express neither swizzle nor pitch, and pad to whole blocks; a header before the tensor is ignored.

        >>> InferredLayout(MemoryDesc((2, 17, 5, 4), "s8", "aBcd32b"), "aBcd32b", None, ()).names[2:4]
        ('tensorrt:CHW32', 'cudnn:NCHW_VECT_C_x32')
        """
        if self.desc.swizzle is not None or self.pitch is not None:
            return ()
        text = self.format
        try:
            if parse_notation(text).layout(self.desc.dims).dims != self.desc.padded_dims:
                return ()
            rows = list_equivalent(text).rows
        except InlayError:
            return ()
        name = str(self.desc.data_type)
        return tuple(row.name for row in rows if not row.data_types or name in row.data_types)

    @property
    def _linear(self) -> Layout:
        """The layout before the swizzle."""
        return addressed_layout(self.desc, "an inferred layout")[0]

    def __str__(self) -> str:
        """Return the layout on one line, then notes and vendors' names of a blocked layout on further lines."""
        dims, padded = ("x".join(map(str, sizes)) for sizes in (self.desc.dims, self.desc.padded_dims))
        parts = [f"{self.format}: dims {dims} of {self.desc.data_type}"]
        if padded != dims:
            parts.append(f"padded to {padded}")
        header = self.desc.offset0 + min(0, self._linear.span[0])
        if header:
            parts.append(f"header of {header} element{'s' * (header > 1)}")
        if header < self.desc.offset0:
            parts.append(f"element 0 in place {self.desc.offset0}")
        if self.pitch is not None:
            parts.append(f"strides {self.pitch}")
        if self.swizzle is not None:
            parts.append(str(self.swizzle))
        return "\n    ".join([", ".join(parts), *self.notes, *self._other_names()])

    def _other_names(self) -> list[str]:
        """Return the line of the vendors' names, or nothing; layouts without blocks have too many."""
        if self.tag is not None and not FormatTag.parse(self.tag).inner_blocks:
            return []
        names = [name for name in self.names if not name.startswith(f"{ONEDNN}:")]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return [f"also {', '.join(names[:_MOST_NAMES])}{more}"] if names else []


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The reason why no layout explains the observed places; false as a truth value."""

    rule: DiagnosisRule
    """Kind of the reason."""
    problem: str
    """Text: the reason, with the elements and places concerned."""
    elements: tuple[int, ...] = ()
    """Row-major indices of the elements concerned, ascending; at most 16."""
    nearest: InferredLayout | None = None
    """The layout that explains most of the elements; None if none explains three quarters of them."""
    notes: tuple[str, ...] = ()
    """Sentences about decisions that were made while reading the source, such as the direction of a table."""

    def __bool__(self) -> bool:
        """Return False."""
        return False

    def __str__(self) -> str:
        """Return the reason on one line, and on the next ones the nearest layout with its notes, or else the notes."""
        more = self.notes if self.nearest is None else (f"nearest layout: {self.nearest}",)
        return "\n    ".join([self.problem, *more])
