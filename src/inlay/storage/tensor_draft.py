"""Drafts of conversions: what becomes of a stored tensor, before the new tensors have places in the target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.layout import Dims
from inlay.storage.operation import BoxOperation
from inlay.storage.store import StoredTensor
from inlay.storage.target import NewTensor, TargetTensor

Targets: TypeAlias = Mapping[str, TargetTensor]
"""The tensors of a target by name."""


class TensorDraft(Protocol):
    """The conversion of one stored tensor by an operation of its own, before places are known."""

    @property
    def tensor(self) -> StoredTensor:
        """The tensor of the source."""

    @property
    def src(self) -> MemoryDesc:
        """Descriptor of the bytes that are read."""

    @property
    def news(self) -> tuple[NewTensor, ...]:
        """The tensors that the target is to have; the first one has the elements."""

    def place(self, targets: Targets, limit: int) -> tuple[BoxOperation, Dims]:
        """Return the operation, and the extents of boxes of at most `limit` bytes.

        Raises:
            InvalidArguments: a box does not fit.
        """


@dataclass(frozen=True, slots=True)
class ReorderDraft:
    """A tensor to reorder, or to copy unchanged; its boxes depend on nothing but both layouts."""

    tensor: StoredTensor
    """The tensor of the source."""
    src: MemoryDesc
    """Descriptor of the bytes that are read; `raw_bytes` if they are copied unchanged."""
    news: tuple[NewTensor, ...]
    """The tensor that the target is to have."""
