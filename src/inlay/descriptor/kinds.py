"""The kinds of descriptors, oneDNN's format kinds: the closed union `Placement`.

Most descriptors have a `Layout`. Each other kind is a class: `Undefined` for the zero descriptor, `Any` for a layout
that a primitive will choose, `Opaque` for a format that only its engine knows, `CSR`, `COO` and `Packed` for sparse
tensors in several buffers, `HostScalar` for one value that the host passes, `SwizzledLayout` for a layout with a
swizzle. The instances are frozen values. A function
that handles all kinds is a `match` statement, which mypy checks for completeness.

>>> from inlay.descriptor import kinds
>>> kinds.Opaque("wino", 4096).name
'wino'
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from inlay.data_type import DataType
from inlay.layout import Layout, Swizzle

KindName = Literal["undef", "any", "blocked", "digits", "opaque", "sparse", "host_scalar", "swizzled"]
"""Names of oneDNN's format kinds; `digits` and `swizzled` for layouts that oneDNN cannot represent."""

SparseEncoding = Literal["csr", "coo", "packed"]
"""Names of oneDNN's sparse encodings."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """The kind of the zero descriptor, which has no elements."""


@dataclass(frozen=True, slots=True)
class Any:
    """The kind `any`: the primitive that the descriptor is passed to chooses the layout."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A format that only one engine knows: the buffer can be passed to its primitives, but its elements not read."""

    name: str
    """Engine's name of the format, such as `wino`."""
    nbytes: int
    """Size of the buffer in bytes."""


@dataclass(frozen=True, slots=True)
class HostScalar:
    """One value that the host passes with each execution."""


@dataclass(frozen=True, slots=True)
class CSR:
    """Compressed sparse rows (CSR): buffer 0 holds the values by rows, buffer 1 their columns, buffer 2 row starts."""

    nnz: int
    """Number of stored elements; all other elements are zero."""
    index_type: DataType
    """Data type of the column indices."""
    pointer_type: DataType
    """Data type of the row starts. Buffer 2 has one entry per row and a last one, `nnz`."""
    encoding: ClassVar[SparseEncoding] = "csr"
    """oneDNN's name of the encoding."""


@dataclass(frozen=True, slots=True)
class COO:
    """Coordinate format (COO): buffer 0 holds the values, buffer 1 + i their coordinates along axis i."""

    nnz: int
    """Number of stored elements; all other elements are zero."""
    index_type: DataType
    """Data type of the coordinates."""
    encoding: ClassVar[SparseEncoding] = "coo"
    """oneDNN's name of the encoding."""


@dataclass(frozen=True, slots=True)
class Packed:
    """oneDNN's packed encoding: the nonzero elements in the order of a format tag.

    Buffer 0 holds the values, buffer 1 the start of each block, buffer 2 a bitmask of the stored elements. Without a
    tag, the primitive that the descriptor is passed to chooses the tag, as for `any`.
    """

    nnz: int
    """Largest number of stored elements; all other elements are zero."""
    tag: str = ""
    """Format tag in abstract letters, with inner blocks of a multiple of 64 elements; empty until it is chosen."""
    encoding: ClassVar[SparseEncoding] = "packed"
    """oneDNN's name of the encoding."""


@dataclass(frozen=True, slots=True)
class SwizzledLayout:
    """A layout whose offsets, counted from the origin, are permuted by a swizzle.

    It is not a `Layout`: what works on digits, such as views, does not accept it.
    """

    layout: Layout
    """Layout of the padded dims, before the swizzle; its offsets are 0 or more."""
    swizzle: Swizzle
    """Permutation of the offsets of `layout`."""


Sparse: TypeAlias = CSR | COO | Packed
"""The kinds of sparse tensors."""

Placement: TypeAlias = Undefined | Any | Layout | Opaque | CSR | COO | Packed | HostScalar | SwizzledLayout
"""The kinds of all descriptors: a `Layout`, or a value of another kind."""
