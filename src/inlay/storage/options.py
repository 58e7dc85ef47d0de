"""Options of stores and targets that not every file format has: what raw bytes hold, sizes of shards, staging."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inlay.data_type import DataTypeLike
from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """Options of a store to open."""

    dims: Dims | None = None
    """Dims of the tensor in a file of raw bytes; None if all bytes are one axis."""
    data_type: DataTypeLike | None = None
    """Data type of the elements in a file of raw bytes; None for other formats."""
    offset: int | None = None
    """Offset of the tensor in a file of raw bytes, in bytes. None means 0, and that the file ends with the tensor."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Options of fsspec's file system, for a source at a URL."""

    @property
    def describes_bytes(self) -> bool:
        """True if they say what raw bytes hold."""
        return self.dims is not None or self.data_type is not None or self.offset is not None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a target to write."""

    shard_nbytes: int | None = None
    """Most bytes of the tensors of a shard; None for 5 GB. A tensor that is larger has a shard of its own."""
    staging: Path | None = None
    """Folder in which a target at a URL is written before it is uploaded; None for that of temporary files."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Options of fsspec's file system, for a target at a URL."""


OPEN_DEFAULTS = OpenOptions()
"""No option."""

WRITE_DEFAULTS = WriteOptions()
"""No option."""
