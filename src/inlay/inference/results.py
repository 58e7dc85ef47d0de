"""Results of inference: `InferredLayout`, `SwizzleParameters` and `Diagnosis`.

>>> from inlay.descriptor import MemoryDesc
>>> print(InferredLayout(MemoryDesc((2, 3), "u8", "ba"), None, "ba", 6, ()))
ba: dims 2x3 of u8
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.notation.format_tag import FormatTag

Offsets: TypeAlias = npt.NDArray[np.int64]
"""Element offsets in a packed buffer."""

DiagnosisRule: TypeAlias = Literal[
    "lost", "twice", "overlap", "exchanged", "moved", "xor", "coordinates", "digits", "values", "foreign", "outside"
]
"""The reason why there is no layout.

`lost`: elements are missing. `twice`: an element has two places. `overlap`: two elements have one place. `exchanged`:
two elements have each other's place. `moved`: few elements violate a layout. `xor`: bits of the place are XORs of bits
of the index, and not a Swizzle. `coordinates`: the place is not a sum of functions of the coordinates. `digits`: the
function of one axis is not made of digits. `values`: the place depends on the values. `foreign`: the buffer holds
values that are no element. `outside`: the packer writes outside of its buffer.
"""


@dataclass(frozen=True, slots=True)
class SwizzleParameters:
    """CuTe's `Swizzle<bits, base, shift>`: an XOR of bits of the element offset into other bits of it.

    Bits `base + shift` to `base + shift + bits - 1` are XORed into bits `base` to `base + bits - 1`; with a negative
    `shift`, the lower of the two groups is the source: bits `base` are XORed into bits `base - shift`.

    Source: CUTLASS, `include/cute/swizzle.hpp`.

    >>> SwizzleParameters(2, 0, 3).apply(np.array([0, 8, 9, 24])).tolist()
    [0, 9, 8, 27]
    """

    bits: int
    """Number of bits in each group; 1 or more."""
    base: int
    """Lowest bit of the lower group."""
    shift: int
    """Distance from the lower group to the upper group, in bits; its magnitude is at least `bits`."""
    origin: int = 0
    """Offset that the bits are counted from, in elements: 0, or `offset0` of the descriptor."""

    def apply(self, offsets: Offsets) -> Offsets:
        """Return the swizzled offsets; the function is its own inverse.

        Post-condition: apply(apply(offsets)) == offsets.
        """
        mask = (1 << self.bits) - 1
        relative = offsets - self.origin
        if self.shift > 0:
            moved = ((relative >> (self.base + self.shift)) & mask) << self.base
        else:
            moved = ((relative >> self.base) & mask) << (self.base - self.shift)
        return (relative ^ moved) + self.origin

    def __str__(self) -> str:
        """Return CuTe's notation, with the origin if it is not 0."""
        text = f"Swizzle<{self.bits},{self.base},{self.shift}>"
        return f"{text} from offset {self.origin}" if self.origin else text


@dataclass(frozen=True, slots=True)
class InferredLayout:
    """The layout that explains all observed places."""

    desc: MemoryDesc
    """Descriptor with dims, padded dims and header (`offset0`); `desc.offset` gives the places before the swizzle."""
    swizzle: SwizzleParameters | None
    """The swizzle of the offsets; None if there is none."""
    tag: str | None
    """Format tag, without regard to header and pitch; None if no tag has these inner blocks."""
    length: int | None
    """Length of the packed buffer in elements; None if only the places of elements were given."""
    notes: tuple[str, ...]
    """Sentences on ambiguities and how they were resolved, and on places outside the layout."""

    def offset(self, coordinates: npt.ArrayLike) -> Any:
        """Return the element offset of each coordinate, with header and swizzle; arrays as `MemoryDesc.offset`.

        Raises:
            InvalidArguments, Unimplemented: as `MemoryDesc.offset`.

        >>> InferredLayout(MemoryDesc((2, 8), "u8"), SwizzleParameters(1, 0, 3), "ab", 16, ()).offset((1, 0))
        9
        """
        offsets = self.desc.offset(coordinates)
        if self.swizzle is None:
            return offsets
        swizzled = self.swizzle.apply(np.asarray(offsets, np.int64))
        return swizzled if isinstance(offsets, np.ndarray) else int(swizzled)

    @property
    def format(self) -> str:
        """The layout in its shortest notation: a tag, else a pattern, else the digits."""
        if self.tag is not None:
            return self.tag
        try:
            return self.desc.pattern
        except InlayError:
            digits = (" ".join(f"({d.extent},{d.stride})" for d in axis) for axis in self.desc.digits)
            return "digits " + ", ".join(digits)

    @property
    def pitch(self) -> tuple[int, ...] | None:
        """The outer strides in elements, if they are larger than those of the dense `tag`; None otherwise."""
        if self.tag is None:
            return None
        dense = FormatTag.parse(self.tag).layout(self.desc.padded_dims)
        steps = tuple(axis.stride for axis in dense.axes)
        long_axes = [n // axis.block > 1 for n, axis in zip(dense.dims, dense.axes, strict=True)]
        pairs = zip(steps, self.desc.strides, long_axes, strict=True)
        return self.desc.strides if any(a != b for a, b, is_long in pairs if is_long) else None

    def __str__(self) -> str:
        """Return the layout on one line, and each note on a line of its own."""
        dims, padded = ("x".join(map(str, sizes)) for sizes in (self.desc.dims, self.desc.padded_dims))
        parts = [f"{self.format}: dims {dims} of {self.desc.data_type}"]
        if padded != dims:
            parts.append(f"padded to {padded}")
        if self.desc.offset0:
            parts.append(f"header of {self.desc.offset0} elements")
        if self.pitch is not None:
            parts.append(f"strides {self.pitch}")
        if self.swizzle is not None:
            parts.append(str(self.swizzle))
        return "\n    ".join([", ".join(parts), *self.notes])


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

    def __bool__(self) -> bool:
        """Return False."""
        return False

    def __str__(self) -> str:
        """Return the reason on one line, and the nearest layout on the next."""
        return self.problem if self.nearest is None else f"{self.problem}\n    nearest layout: {self.nearest}"
