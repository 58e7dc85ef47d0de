"""Contents of a store: names, dims, types, formats and sizes of its tensors, and the share of padding.

    contents = list_contents(inlay.storage.open_store("packed.safetensors"))
    print(contents.tensors[0].format, contents.padding_share)

Only headers are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.errors import InlayError
from inlay.layout import Dims
from inlay.notation.pattern import pattern_of
from inlay.storage.quantization_text import BlockTensor, read_quantization
from inlay.storage.store import Store, StoredTensor, is_row_major

ROW_MAJOR = "row-major"
"""Format of a tensor whose type and dims define its layout."""


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """One tensor of a store, for people."""

    name: str
    """Name."""
    dims: Dims
    """Logical dims; the shape in the file if there is no descriptor."""
    data_type: str
    """Name of the data type; `blocks` for those of compound formats; that in the file if there is no descriptor."""
    format: str
    """`row-major`, a tag, a pattern, or a compound format; empty if there is no descriptor."""
    nbytes: int
    """Size in the store, in bytes."""
    data_nbytes: int
    """Size of the elements without padding, in bytes."""

    @property
    def padding_share(self) -> float:
        """Share of the bytes that hold no element, from 0 to 1."""
        return 1 - self.data_nbytes / self.nbytes if self.nbytes else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the tensor as a JSON object."""
        return {
            "name": self.name,
            "dims": list(self.dims),
            "data_type": self.data_type,
            "format": self.format or None,
            "bytes": self.nbytes,
            "padding_share": self.padding_share,
        }


@dataclass(frozen=True, slots=True)
class StoreContents:
    """All tensors of a store, and its texts."""

    location: str
    """Path or URL."""
    tensors: tuple[TensorSummary, ...]
    """The tensors, in the order of their bytes."""
    metadata: dict[str, str]
    """Texts beside the tensors."""

    @property
    def nbytes(self) -> int:
        """Size of all tensors, in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def padding_share(self) -> float:
        """Share of the bytes of all tensors that hold no element, from 0 to 1."""
        return 1 - sum(tensor.data_nbytes for tensor in self.tensors) / self.nbytes if self.nbytes else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the contents as a JSON object."""
        return {
            "location": self.location,
            "bytes": self.nbytes,
            "padding_share": self.padding_share,
            "metadata": self.metadata,
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def list_contents(store: Store) -> StoreContents:
    """Return the tensors of a store with their formats and sizes.

    Raises:
        FileError: the text on quantized tensors in the metadata is damaged.
    """
    known = read_quantization(store.location, store.metadata)
    blocks = {name: each.desc for name, each in known.items() if isinstance(each, BlockTensor)}
    blocks |= {tensor.name: tensor.compound for tensor in store.tensors if tensor.compound is not None}
    tensors = tuple(_summarize(tensor, blocks) for tensor in store.tensors)
    return StoreContents(store.location, tensors, dict(store.metadata))


def _summarize(tensor: StoredTensor, blocks: Mapping[str, CompoundDesc]) -> TensorSummary:
    """Return the summary of one tensor; `blocks` are the tensors in blocks of compound formats, by name."""
    desc = tensor.desc
    if tensor.name in blocks:
        compound = blocks[tensor.name]
        return TensorSummary(tensor.name, compound.dims, "blocks", compound.format.name, tensor.nbytes, tensor.nbytes)
    if desc is None:
        data_type = tensor.data_type or tensor.stored_type
        return TensorSummary(tensor.name, tensor.shape, data_type, "", tensor.nbytes, tensor.nbytes)
    element = desc.require_layout(tensor.label)[1]
    nbytes = -(-prod(desc.dims) * element.bits // 8)
    return TensorSummary(tensor.name, desc.dims, element.name, format_of(desc), tensor.nbytes, nbytes)


def format_of(desc: MemoryDesc) -> str:
    """Return a short text for the format of a descriptor.

    >>> format_of(MemoryDesc((2, 17), "f32", "ab")), format_of(MemoryDesc((2, 17), "f32", "aB8b"))
    ('row-major', 'aB8b')
    >>> format_of(MemoryDesc((256, 8), "u8", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4"))
    '(a a4 a32) (b b4) -> a b a32 a4 b4'
    """
    if is_row_major(desc):
        return ROW_MAJOR
    if desc.tag is not None:
        return desc.tag
    try:
        return pattern_of(desc.require_layout("a format")[0])
    except InlayError:
        return str(desc)
