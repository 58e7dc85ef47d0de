"""A target: the place that a conversion writes, which gets its name when all of it is written.

A `Target` is a value, made from the descriptors of its tensors alone; other processes open it too. A conversion of one
target has a token, a short text. All that is written before the end has the token in its name, so that the conversion
can go on after its process ended:

    target.create(token)                make files of the final size, with their headers
    with target.open(token) as writer:  in each process
        writer.write_box(tensor, box, memory)
    target.sync(token)                  wait until everything is on disk, whatever process wrote it
    target.commit(token)                give the final names
    target.discard(token)               or remove everything

`file_target` implements it for formats that store a tensor as one range of bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from inlay.descriptor import MemoryDesc
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.storage.array_properties import ArrayProperties
from inlay.storage.box import Box


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor that a target is to have, before its place in the target is known."""

    name: str
    """Name."""
    shape: Dims
    """Dims of the tensor, in elements; empty for a scalar."""
    bytes_desc: MemoryDesc
    """Descriptor of the bytes that are written: that of the elements, or `raw_bytes` if they are copied unchanged."""
    desc: MemoryDesc | None
    """Descriptor of the elements; None if there is none, as of a scalar or of a compound format."""
    stored_type: str | None = None
    """Element type in the notation of the source, if `desc` is None and the bytes are copied unchanged."""
    refusal: str = ""
    """Reason why `desc` is None, with a remedy; empty if there is a descriptor or a compound format."""
    compound: str | None = None
    """Name of the compound format of the bytes, such as `ggml:Q4_0`; `shape` then has elements, not bytes."""
    data_type: str | None = None
    """Name of the type of the elements, if `desc` is None only because no layout has the dims, as of a scalar."""
    chunks: Dims | None = None
    """Shape of the chunks of a chunked target; None if the target chooses it."""
    properties: ArrayProperties | None = None
    """Properties of a chunked array besides its elements; None for the properties of a new array."""
    is_unnamed: bool = False
    """True if `name` is the stem of the name of its source, so that a target of one array needs no name."""

    @property
    def nbytes(self) -> int:
        """Size of `bytes_desc`, in bytes."""
        return self.bytes_desc.size


@dataclass(frozen=True, slots=True)
class TargetTensor:
    """One tensor of a target."""

    name: str
    """Name."""
    desc: MemoryDesc
    """Descriptor of its bytes; `raw_bytes` if they are copied unchanged."""
    nbytes: int
    """Size in the file, in bytes, with what lies behind the last element."""
    begin: int = 0
    """Offset of the first byte from the start of its file, in bytes; 0 in targets that are no ranges of bytes."""
    file: int = 0
    """Number of the file that holds it, in a target of several files."""
    chunks: Dims | None = None
    """Shape of the chunks that are written as a whole; None if any range of bytes can be written."""


class TargetWriter(Protocol):
    """A target that is open in this process; a context manager that closes it."""

    def box_desc(self, tensor: TargetTensor, box: Box) -> MemoryDesc:
        """Return the descriptor that the memory of a box has to have."""

    def write_box(self, tensor: TargetTensor, box: Box, memory: Memory) -> None:
        """Write the elements of a box, and the padding beside them; `memory` has the descriptor of `box_desc`.

        Processes write different boxes at the same time.

        Raises:
            FileError: the target cannot be written, as on a full disk.
        """

    def sync(self) -> None:
        """Wait until all boxes that this writer wrote are on disk.

        Raises:
            FileError: they cannot be written.
        """

    def __enter__(self) -> Self:
        """Return the writer."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the target."""


class Target(Protocol):
    """Named tensors to write: a value that other processes open too (it can be pickled)."""

    @property
    def location(self) -> str:
        """Path or URL, for messages."""

    @property
    def last_name(self) -> str:
        """Path or URL that is given last; targets that write the same files have the same one."""

    @property
    def tensors(self) -> Mapping[str, TargetTensor]:
        """The tensors by name, in the order of their bytes."""

    def find_existing(self) -> str | None:
        """Return the path of something that `commit` would replace; None if there is nothing."""

    def create(self, token: str) -> None:
        """Make everything that is not a box: files of the final size with their headers, all other bytes zero.

        Raises:
            FileError: it cannot be written, as on a full disk.
        """

    def is_whole(self, token: str) -> bool:
        """Return True if all that `create` made still exists in its size."""

    def open(self, token: str) -> TargetWriter:
        """Open what `create` made, in this process.

        Raises:
            FileError: it does not exist, or this user may not write it.
        """

    def sync(self, token: str) -> None:
        """Wait until all that `create` made is on disk with the boxes that any process wrote, before `commit`.

        Raises:
            FileError: it cannot be written.
        """

    def commit(self, token: str, *, again: bool = False) -> None:
        """Give the target its final names; an old target is replaced. Everything is on disk (`sync`).

        `again` is True if an earlier call for this token was interrupted: what has its final name already counts.

        Post-condition: under each final name is the old content or the new one, at every moment.

        Raises:
            FileError: a name cannot be given.
        """

    def discard(self, token: str) -> None:
        """Remove what `create` made; the old target is unchanged."""
