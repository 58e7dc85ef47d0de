"""What a check of padding answers: how many lanes are not zero, and where the first of them lie.

>>> from inlay.descriptor import MemoryDesc
>>> desc = MemoryDesc((2, 17), "f32", "aB8b")
>>> print(PaddingReport(desc, lanes=14, dirty=0, first=()))
clean: all 14 padding lanes of MemoryDesc((2, 17), 'f32', 'aB8b') are zero
"""

from dataclasses import dataclass

import numpy as np

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.format_tag import LETTERS
from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class DirtyLane:
    """A lane of padding that is not zero."""

    coordinate: Dims
    """Its coordinate, of which at least one entry is beyond the dims."""
    offset: int
    """Elements from the start of the buffer, `offset0` included."""
    byte_offset: int
    """Bytes from the start of the buffer; of two elements of 4 bits in a byte, that with the odd `offset` is high."""
    held: bytes
    """What it holds, in address order; an element of 4 bits as one byte."""


@dataclass(frozen=True, slots=True)
class PaddingReport:
    """What the padding of a memory holds."""

    desc: MemoryDesc
    """What was checked."""
    lanes: int
    """How many lanes of padding there are, in elements."""
    dirty: int
    """How many of them are not zero."""
    first: tuple[DirtyLane, ...]
    """The first dirty lanes, in row-major order of their coordinates."""

    @property
    def is_clean(self) -> bool:
        """Whether every lane of padding is zero."""
        return not self.dirty

    def __str__(self) -> str:
        """What was found, for a reader: one line if clean, otherwise one more for each of the first dirty lanes."""
        if not self.lanes:
            return f"clean: {self.desc!r} has no padding"
        if self.is_clean:
            return f"clean: all {self.lanes} padding lanes of {self.desc!r} are zero"
        _, data_type = self.desc.require_layout("the report")
        rows = [_row(self.desc, data_type, lane) for lane in self.first]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        more = [f"... and {self.dirty - len(rows)} more"] if self.dirty > len(rows) else []
        title = f"{self.dirty} of {self.lanes} padding lanes of {self.desc!r} are not zero:"
        return "\n    ".join([title, *table, *more])


def _row(desc: MemoryDesc, data_type: DataType, lane: DirtyLane) -> tuple[str, ...]:
    beyond = [f"{LETTERS[i]} >= {dim}" for i, dim in enumerate(desc.dims) if lane.coordinate[i] >= dim]
    return (
        f"({', '.join(map(str, lane.coordinate))}{',' * (desc.ndims == 1)})",
        f"beyond {', '.join(beyond)}",
        f"element {lane.offset}",
        f"byte {lane.byte_offset}",
        f"holds {_value(lane.held, data_type)} ({lane.held.hex(' ')})",
    )


def _value(held: bytes, data_type: DataType) -> str:
    """The number that these bytes are."""
    code = np.frombuffer(held, np.uint8)
    if data_type.is_sub_byte and data_type.kind == "signed":
        return str((held[0] ^ 8) - 8)
    return str(code.view(data_type.dtype)[0])
