"""A store: named tensors to read, independent of the format of its files.

    weights.safetensors
        conv1.weight   F32  (64, 3, 7, 7)   bytes 37632 from 1024
        conv1.bias     F32  (64,)           bytes   256 from 38656

A `Store` is a value that is made from headers alone; other processes open it too. `Store.open` returns a `StoreReader`,
which reads a tensor box by box. `file_store` implements both for formats that store a tensor as one range of bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from types import TracebackType
from typing import Protocol, Self

from inlay.data_type import DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.errors import InvalidArguments, printable
from inlay.layout import Dims
from inlay.layout.axis import LETTERS
from inlay.memory import Memory
from inlay.notation.format_tag import FormatTag
from inlay.storage.array_properties import ArrayProperties
from inlay.storage.box import Box


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a store."""

    name: str
    """Name in the file; the stem of the file name in formats without names."""
    stored_type: str
    """Element type in the notation of the file: `F32`, `BOOL`, or NumPy's type string in a .npy file."""
    shape: Dims
    """Shape in the file."""
    begin: int
    """Offset of the first byte from the start of its file, in bytes; 0 in stores that are no ranges of bytes."""
    nbytes: int
    """Size, in bytes."""
    desc: MemoryDesc | None
    """Descriptor of the bytes; None for a scalar or a type without descriptors, such as F6_E2M3."""
    refusal: str = ""
    """Reason why `desc` is None, with a remedy; empty if there is a descriptor."""
    is_packed: bool = False
    """True if `desc` is from Inlay's metadata; False if it follows from type and shape."""
    file: int = 0
    """Number of the file that holds it, in a store of several files."""
    chunks: Dims | None = None
    """Shape of the chunks that are read as a whole; None if any range of bytes can be read."""
    data_type: str | None = None
    """Name of the type of the elements, if `desc` is None only because no layout has the dims, as of a scalar."""
    is_view: bool = False
    """True if `desc` is a view of a larger storage; where no format is stated, it is copied to row-major order."""
    compound: CompoundDesc | None = None
    """Format and dims of blocks, if the file says that the bytes are blocks; `desc` is None then."""
    properties: ArrayProperties | None = None
    """Properties of a chunked array besides its elements; None in other stores."""
    is_unnamed: bool = False
    """True if the store has no name for it, so that `name` is the stem of the file name."""

    @property
    def label(self) -> str:
        """Name without control characters, for messages."""
        return printable(self.name)


class StoreReader(Protocol):
    """A store that is open in this process; a context manager that closes it."""

    def read_box(self, tensor: StoredTensor, desc: MemoryDesc, box: Box) -> Memory:
        """Return the elements of a box as memory of their own, in any layout of their dims.

        `desc` describes the bytes of `tensor`: its own descriptor, that of the caller, or `raw_bytes`.

        Raises:
            FileError: a file cannot be read, or became shorter.
            OutOfMemory: the operating system cannot provide the bytes of the box.
        """

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the store since `Store` was made, so that all bytes are from one version.

        Raises:
            FileError: the size or the time of modification of a file changed.
        """

    def __enter__(self) -> Self:
        """Return the reader."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""


class Store(Protocol):
    """Named tensors to read: a value that other processes open too (it can be pickled)."""

    @property
    def location(self) -> str:
        """Path or URL, for messages."""

    @property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """All tensors, in the order of their bytes."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Texts beside the tensors, without those that Inlay writes."""

    @property
    def version(self) -> str:
        """Text that changes when a file of the store changes: sizes and times of modification, or the like."""

    def open(self) -> StoreReader:
        """Open the store in this process.

        Raises:
            FileError: a file is missing, or this user may not read it.
        """


def source_units(tensor: StoredTensor, src: MemoryDesc, units: Dims | None) -> Dims | None:
    """Return the units of the boxes of a tensor: whole chunks of the store, and whole `units` of the target.

    A tensor whose dims are not those of its chunks, such as one that is copied as bytes, is read as a whole.

    >>> chunked = StoredTensor("w", "F32", (64, 64), 0, 16384, None, chunks=(8, 64))
    >>> source_units(chunked, MemoryDesc((64, 64), "f32", "ab"), (16, 1))
    (16, 64)
    """
    if tensor.chunks is None:
        return units
    chunks = tensor.chunks if src.dims == tensor.shape else src.dims
    return tuple(lcm(max(chunk, 1), unit) for chunk, unit in zip(chunks, units or (1,) * src.ndims, strict=True))


def raw_bytes(nbytes: int) -> MemoryDesc:
    """Return the descriptor of bytes that are copied unchanged, of any type.

    >>> raw_bytes(8)
    MemoryDesc((8,), 'u8', 'a')
    """
    return MemoryDesc((nbytes,), "u8", "a")


def require_dims_for_layout(shape: Dims) -> None:
    """Check that a descriptor can have as many dims as `shape`.

    Raises:
        InvalidArguments: there are no dims, or more than 12.
    """
    if not 1 <= len(shape) <= len(LETTERS):
        has = "it is a scalar" if not shape else f"it has {len(shape)} dims"
        raise InvalidArguments(f"{has}, and a layout places 1 to {len(LETTERS)} dims; reshape it first")


def row_major(dims: Dims, data_type: DataTypeLike) -> MemoryDesc:
    """Return the descriptor of a row-major tensor; dims may be 0.

    Raises:
        InvalidArguments: there are no dims, or more than 12, or they are too large.
    """
    require_dims_for_layout(dims)
    return MemoryDesc(dims, data_type, FormatTag(tuple(range(len(dims)))))


@lru_cache(4096)
def plain_order(desc: MemoryDesc) -> Dims | None:
    """Return the axes from outermost to innermost if `desc` is dense without blocks and padding, else None."""
    tag = None if desc.tag is None else FormatTag.parse(desc.tag)
    return tag.order if tag is not None and not tag.inner_blocks else None


def is_row_major(desc: MemoryDesc) -> bool:
    """Return True if `desc` is dense and row-major with elements of whole bytes: type and shape define its layout."""
    data_type = desc.data_type
    return data_type is not None and not data_type.is_sub_byte and plain_order(desc) == tuple(range(desc.ndims))
