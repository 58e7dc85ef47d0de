"""What a descriptor can say about the place of its elements: the closed union `Placement`.

Most descriptors hold a `Layout`. The other kinds are values that say why there is none: the zero descriptor has no
elements, `any` leaves the choice to a primitive, an opaque format is known to its engine only, a sparse encoding keeps
some elements and their coordinates in several buffers, and a host scalar is one value passed by the host. Each is a
frozen value, so a function that must understand all of them is a `match` that mypy checks for completeness.

>>> from inlay.descriptor import kinds
>>> kinds.Opaque("wino", 4096).name
'wino'
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from inlay.data_type import DataType
from inlay.layout import Layout

KindName = Literal["undef", "any", "blocked", "digits", "opaque", "sparse", "host_scalar"]
"""oneDNN's format kinds, and `digits` for a layout whose inner digits are in no order that oneDNN can say."""

SparseEncoding = Literal["csr", "coo", "packed"]
"""oneDNN's sparse encodings."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """The zero descriptor's: there is nothing to place."""


@dataclass(frozen=True, slots=True)
class Any:
    """The primitive that takes the descriptor chooses the layout."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Known to one engine only: it can be passed on, but not read."""

    name: str
    """The engine's name of the format, such as `wino`."""
    nbytes: int
    """How many bytes the engine asks for."""


@dataclass(frozen=True, slots=True)
class HostScalar:
    """One value that the host passes with each execution."""


@dataclass(frozen=True, slots=True)
class CSR:
    """Compressed sparse rows: buffer 0 holds the values row by row, 1 their columns, 2 where each row starts."""

    nnz: int
    """How many elements are stored; every other one is zero."""
    index_type: DataType
    """Of the columns."""
    pointer_type: DataType
    """Of the starts of rows, which are one more than the rows: the last one is `nnz`."""
    encoding: ClassVar[SparseEncoding] = "csr"
    """oneDNN's name of the encoding."""


@dataclass(frozen=True, slots=True)
class COO:
    """Coordinates: buffer 0 holds the values, buffer 1 + i their coordinates along axis i."""

    nnz: int
    """How many elements are stored; every other one is zero."""
    index_type: DataType
    """Of the coordinates."""
    encoding: ClassVar[SparseEncoding] = "coo"
    """oneDNN's name of the encoding."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The elements in the order of a format tag with the zeros left out: values, where each block starts, a bitmask.

    Without a tag it is a question, like `any`: the primitive that takes the descriptor chooses the tag.
    """

    nnz: int
    """How many elements are stored at most; every other one is zero."""
    tag: str = ""
    """The format tag in oneDNN's letters, with inner blocks of a multiple of 64 elements; empty until it is chosen."""
    encoding: ClassVar[SparseEncoding] = "packed"
    """oneDNN's name of the encoding."""


Sparse: TypeAlias = CSR | COO | Packed
"""The sparse encodings."""

Placement: TypeAlias = Undefined | Any | Layout | Opaque | CSR | COO | Packed | HostScalar
