"""`StoredConstants`: constants of operations and steps that are in a file, in the formats in which kernels read them.

A constant has one or more copies, each in memory of a format; the memory is a read-only map of the file. Compiled steps
use a copy in the format that they need (`find_packed`). Code that asks for the elements gets a plain array: a view of a
row-major copy if there is one, else the elements of another copy, unpacked at the first access.

>>> import numpy as np
>>> from inlay.memory import pack
>>> packed = pack(np.arange(4, dtype=np.float32).reshape(2, 2), "ba")
>>> weights = StoredConstant((2, 2), np.dtype(np.float32), (StoredCopy(packed.desc, packed.buffer),))
>>> weights.array.tolist()
[[0.0, 1.0], [2.0, 3.0]]
>>> weights.find_packed(packed.desc) is not None, weights.find_packed(MemoryDesc((2, 2), "f32", "ab")) is None
(True, True)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.forks import ForkResetLock
from inlay.graph.network import read_only
from inlay.graph.op_graph import Array
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import Bytes


@dataclass(frozen=True, slots=True, eq=False)
class StoredCopy:
    """The elements of a constant in one format."""

    desc: MemoryDesc | None
    """Format; None for a dense row-major array of a type that oneDNN lacks."""
    data: Bytes
    """The bytes, read-only."""

    @property
    def is_row_major(self) -> bool:
        """True if the bytes are those of a row-major array."""
        return self.desc is None or self.desc == MemoryDesc(self.desc.dims, self.desc.data_type)

    def is_readable(self, dtype: np.dtype[np.generic]) -> bool:
        """Return whether an array of this type can be made of the copy, whose type is the same or wider.

        The wider one is f32 for bf16 and f16, whose elements were converted to it.
        """
        if self.desc is None:
            return True
        if self.desc.kind not in ("blocked", "digits") or self.desc.data_type is None:
            return False
        own = self.desc.data_type.dtype
        return own == dtype or (own == np.float32 and dtype.name in ("bfloat16", "float16"))


@dataclass(slots=True, eq=False)
class StoredConstant:
    """A constant that is in a file."""

    dims: Dims
    """Extents of the axes."""
    dtype: np.dtype[np.generic]
    """Type of the elements."""
    copies: tuple[StoredCopy, ...]
    """The copies in different formats and types; an array can be made of one of them."""
    _array: Array | None = field(default=None, repr=False)
    _lock: ForkResetLock = field(default_factory=ForkResetLock, repr=False)

    @property
    def array(self) -> Array:
        """The elements as a read-only array; the first access unpacks a copy if none is row-major.

        Raises:
            OutOfMemory: the array cannot be allocated.
        """
        with self._lock:
            if self._array is None:
                self._array = self._make_array()
            return self._array

    def _make_array(self) -> Array:
        copies = [copy for copy in self.copies if copy.is_readable(self.dtype)]
        for copy in copies:
            if copy.is_row_major and (copy.desc is None or copy.desc.data_type == as_data_type(self.dtype)):
                size = int(np.prod(self.dims, dtype=np.int64)) * self.dtype.itemsize
                return read_only(copy.data[:size].view(self.dtype).reshape(self.dims))
        (desc, data), *_ = ((copy.desc, copy.data) for copy in copies if copy.desc is not None)
        unpacked = np.ascontiguousarray(Memory(desc, data).unpack())
        is_wider = desc.data_type is not None and desc.data_type.dtype != self.dtype
        return read_only(unpacked.astype(self.dtype) if is_wider else unpacked.view(self.dtype))

    def find_packed(self, desc: MemoryDesc) -> Memory | None:
        """Return the copy in this format as memory; None if there is none."""
        copy = next((copy for copy in self.copies if copy.desc == desc), None)
        return None if copy is None else Memory(desc, copy.data)


class StoredConstants(Mapping[str, Array]):
    """Constants in a file by the names of arguments; each becomes an array at its first access."""

    __slots__ = ("_constants",)

    def __init__(self, constants: Mapping[str, StoredConstant]) -> None:
        """Wrap these constants."""
        self._constants = dict(constants)

    def __getitem__(self, name: str) -> Array:
        """Return a constant as a read-only array."""
        return self._constants[name].array

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._constants)

    def __len__(self) -> int:
        """Return the number of constants."""
        return len(self._constants)

    def stored(self, name: str) -> StoredConstant:
        """Return a constant without making an array of it."""
        return self._constants[name]

    def find_packed(self, name: str, desc: MemoryDesc) -> Memory | None:
        """Return a constant in this format, if the file has it so; else None."""
        return self._constants[name].find_packed(desc)

    def __reduce__(self) -> tuple[type[dict[str, Array]], tuple[dict[str, Array]]]:
        """Pickle the arrays."""
        return dict, (dict(self),)
