"""Operations on boxes: what a conversion does with the elements of one box of a tensor.

    operation = ReorderOperation("conv.weight", src_type, dst)      a value, made by the plan
    counts = operation.apply(memory, box, writer)                   in any process: reorders and writes

The boxes of a tensor are independent of one another, so their order and the process do not matter. An operation that
needs numbers of the whole tensor first, such as its greatest magnitude, has `scan`: it is called for every box before
the first `apply`. An operation that reads more tensors of the source, such as the scales of quants, has `with_inputs`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import lcm
from typing import Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.layout import Dims
from inlay.memory import Memory, reorder
from inlay.storage.box import Box
from inlay.storage.loss import ConversionLoss, LossCounter
from inlay.storage.store import StoreReader
from inlay.storage.target import TargetTensor, TargetWriter

ScanResult: TypeAlias = float | npt.NDArray[np.float64]
"""A number of a tensor, or one for each coordinate of an axis."""


@dataclass(frozen=True, slots=True)
class BoxCounts:
    """Counts of an operation in one box, or in several: sums, and the greatest error."""

    nonzero: int = 0
    """Number of nonzero elements, including NaN; 0 where the new type represents every number."""
    zeroed: int = 0
    """Number of nonzero elements that became zero."""
    saturated: int = 0
    """Number of nonzero elements beyond the range of the new type."""
    squared_error: float = 0.0
    """Sum of the squared differences between the stored numbers and those of the source."""
    squared: float = 0.0
    """Sum of the squares of the source, where errors are counted."""
    greatest_error: float = 0.0
    """Greatest magnitude of a difference."""

    def __add__(self, other: "BoxCounts") -> "BoxCounts":
        """Return the counts of the boxes of both."""
        return BoxCounts(
            self.nonzero + other.nonzero,
            self.zeroed + other.zeroed,
            self.saturated + other.saturated,
            self.squared_error + other.squared_error,
            self.squared + other.squared,
            max(self.greatest_error, other.greatest_error),
        )

    def loss(self, name: str, data_type: DataType) -> ConversionLoss:
        """Return the loss of a tensor of this name that was converted to `data_type`."""
        relative = (self.squared_error / self.squared) ** 0.5 if self.squared else None
        return ConversionLoss(name, data_type, self.nonzero, self.zeroed, self.saturated, relative, self.greatest_error)


class BoxOperation(Protocol):
    """The work of a conversion on each box of a tensor: a value that can be pickled."""

    @property
    def targets(self) -> tuple[TargetTensor, ...]:
        """The tensors of the target that it writes, such as quants and scales."""

    @property
    def units(self) -> Dims | None:
        """For `cut_extents`: a box has a multiple of these extents, or the whole axis; None if any size will do."""

    @property
    def needs_scan(self) -> bool:
        """True if `scan` is called for every box before the first `apply`."""

    def scan(self, memory: Memory) -> ScanResult:
        """Return a number of the elements of a box, or one for each coordinate of an axis that no box cuts."""

    def with_scan(self, greatest: ScanResult) -> "BoxOperation":
        """Return the operation that knows the greatest numbers of `scan` of all boxes (`greatest_scan`)."""

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        """Convert the elements of a box, write them, and return what was counted.

        Raises:
            FileError: the target cannot be written.
            OutOfMemory: the operating system cannot provide the bytes of the result.
        """


@runtime_checkable
class InputOperation(Protocol):
    """A `BoxOperation` that reads a box of other tensors of the source too."""

    def with_inputs(self, reader: StoreReader, box: Box) -> BoxOperation:
        """Return the operation that has what it needs of the other tensors for the elements of a box.

        Raises:
            FileError: the source cannot be read.
            OutOfMemory: the operating system cannot provide the bytes.
        """


class OnePassOperation:
    """The part of a `BoxOperation` that operations on one tensor of the target share, if they need no scan."""

    __slots__ = ()

    target: TargetTensor

    @property
    def targets(self) -> tuple[TargetTensor, ...]:
        """The one tensor."""
        return (self.target,)

    @property
    def needs_scan(self) -> bool:
        """False."""
        return False

    def scan(self, memory: Memory) -> ScanResult:
        """Return 0."""
        return 0.0

    def with_scan(self, greatest: ScanResult) -> Self:
        """Return the same operation."""
        return self


@dataclass(frozen=True, slots=True)
class ReorderOperation(OnePassOperation):
    """A reorder to the descriptor of one tensor of the target; counts what another data type cannot represent."""

    target: TargetTensor
    """The tensor to write."""
    src_type: DataType
    """Data type of the source."""

    @property
    def units(self) -> Dims | None:
        """The chunks of the target."""
        return self.target.chunks

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        """Reorder the elements of a box to the layout of the target, and write them.

        Raises:
            FileError: the target cannot be written.
            OutOfMemory: the operating system cannot provide the bytes of the result.
        """
        desc = writer.box_desc(self.target, box)
        counter = LossCounter(self.target.name, self.src_type, desc.require_layout(self.target.name)[1])
        counter.add(memory)
        writer.write_box(self.target, box, memory if memory.desc == desc else reorder(memory, desc))
        loss = counter.loss
        return BoxCounts(loss.nonzero, loss.zeroed, loss.saturated)


def join_units(units: Dims, chunks: Dims | None, dims: Dims) -> Dims:
    """Return extents that are multiples of `units` and of the chunks, or the whole axis.

    >>> join_units((4, 1), (6, 5), (100, 3))
    (12, 3)
    """
    sizes = (lcm(unit, chunk) for unit, chunk in zip(units, chunks or (1,) * len(units), strict=True))
    return tuple(min(size, max(n, 1)) for size, n in zip(sizes, dims, strict=True))


def greatest_scan(results: Iterable[ScanResult]) -> ScanResult:
    """Return the greatest number of several boxes, for each coordinate if there is one for each; 0 of no box.

    >>> greatest_scan([np.array([1.0, 5.0]), np.array([3.0, 2.0])]).tolist()
    [3.0, 5.0]
    """
    greatest: ScanResult = 0.0
    for result in results:
        greatest = np.maximum(greatest, result)
    return greatest


def total_counts(counts: Iterable[BoxCounts]) -> BoxCounts:
    """Return the counts of several boxes together.

    >>> total_counts([BoxCounts(nonzero=3, greatest_error=0.5), BoxCounts(nonzero=2, greatest_error=0.25)])
    BoxCounts(nonzero=5, zeroed=0, saturated=0, squared_error=0.0, squared=0.0, greatest_error=0.5)
    """
    return sum(counts, BoxCounts())
