"""The header of a safetensors file: entries of named tensors, and texts as metadata.

    8 bytes   length of the header, little-endian
    header    JSON: name -> type, shape, byte range; "__metadata__" -> texts
    data      the tensors, one after the other without gaps

The data starts at a multiple of 64 bytes. Tensors whose size is a multiple of 64 bytes come first, so each of them also
starts at a multiple of 64.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inlay.layout import Dims

ALIGNMENT = 64
"""Alignment of the data in a file, in bytes."""

TYPE_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "C64": 64}
TYPE_BITS |= {"F32": 32, "I32": 32, "U32": 32, "F64": 64, "I64": 64, "U64": 64}
"""Bits per element, by the name of the type in safetensors; types that are not listed have 8."""


METADATA = "__metadata__"
"""Key of the metadata in the header."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """The header entry of one tensor."""

    name: str
    """Name of the tensor."""
    stored_type: str
    """Name of the data type in safetensors, such as `BF16`."""
    shape: Dims
    """Shape, in elements."""
    nbytes: int
    """Size, in bytes."""
    begin: int = 0
    """Offset of the first byte from the start of the file, in bytes; ignored by the writer."""


def in_file_order(entries: Iterable[TensorEntry]) -> list[TensorEntry]:
    """Sort entries in the order in which they are written, so that each begins at a multiple of its element size.

    Tensors whose size is a multiple of 64 bytes come first. The others follow by decreasing element size. Ties are
    sorted by name, so that the same tensors always result in the same file.
    """
    return sorted(entries, key=lambda e: (e.nbytes % ALIGNMENT != 0, -TYPE_BITS.get(e.stored_type, 8), e.name))


def build_header(ordered: Iterable[TensorEntry], metadata: Mapping[str, str]) -> bytes:
    """Return length and header of a file with these entries, padded with spaces to a multiple of `ALIGNMENT`."""
    header: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    begin = 0
    for entry in ordered:
        offsets = [begin, begin + entry.nbytes]
        header[entry.name] = {"dtype": entry.stored_type, "shape": list(entry.shape), "data_offsets": offsets}
        begin += entry.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
