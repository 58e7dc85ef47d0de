"""The text on quantized tensors in the metadata of a file: the scales of quants, and the formats of blocks.

    {"version": 1, "tensors": {
        "fc.weight": {"data_type": "bf16", "groups": [1, 128], "scales": ["fc.weight_scale"]},
        "up.weight": {"data_type": "f32", "blocks": "ggml:Q4_0", "dims": [64, 256]}}}

`data_type` is that of the source, to which `--dequantize` returns. The text is one of the metadata, so every format of
files that keeps texts keeps it. Files may be untrusted: the text must have exactly this form, and the tensors must fit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.compound_table import find_compound
from inlay.errors import FileError, InvalidArguments, printable
from inlay.layout import Dims

QUANTIZATION_KEY = "inlay_quantization"
"""Key of the text in the metadata of a file."""

VERSION = 1
"""Version of the text."""


@dataclass(frozen=True, slots=True)
class ScaledTensor:
    """Quants with scales in other tensors."""

    data_type: DataType
    """Data type before the quantization."""
    groups: Dims
    """Number of elements along each axis that share a scale."""
    scales: tuple[str, ...]
    """Names of the scales, whose product is the factor of a quant."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"data_type": self.data_type.name, "groups": list(self.groups), "scales": list(self.scales)}


@dataclass(frozen=True, slots=True)
class BlockTensor:
    """Bytes that are blocks of a compound format."""

    data_type: DataType
    """Data type before the quantization."""
    desc: CompoundDesc
    """Format and dims."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"data_type": self.data_type.name, "blocks": self.desc.format.name, "dims": list(self.desc.dims)}


QuantizedTensor: TypeAlias = ScaledTensor | BlockTensor


def write_quantization(tensors: Mapping[str, QuantizedTensor]) -> dict[str, str]:
    """Return the metadata with the text on these tensors; empty if there are none.

    >>> write_quantization({})
    {}
    """
    if not tensors:
        return {}
    described = {name: tensor.to_json() for name, tensor in tensors.items()}
    return {QUANTIZATION_KEY: json.dumps({"version": VERSION, "tensors": described}, separators=(",", ":"))}


def read_quantization(location: str, metadata: Mapping[str, str]) -> dict[str, QuantizedTensor]:
    """Return what the metadata of a file says on its quantized tensors, by name.

    Raises:
        FileError: the text is damaged, or of a later version.
    """
    text = metadata.get(QUANTIZATION_KEY)
    if text is None:
        return {}
    try:
        value = json.loads(text)
        if value["version"] != VERSION:
            raise InvalidArguments(f"it has version {value['version']!r}, this Inlay reads {VERSION}")
        return {name: _parse_tensor(name, item) for name, item in value["tensors"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidArguments) as error:
        reason = str(error) if isinstance(error, InvalidArguments) else "it has another form"
        raise FileError(
            f"cannot read {location}: its text on quantized tensors is damaged, {reason}; convert the original again"
        ) from error


def _parse_tensor(name: str, item: dict[str, Any]) -> QuantizedTensor:
    """Return what a JSON object says on one tensor."""
    data_type = DATA_TYPES[item["data_type"]]
    if item.keys() == {"data_type", "blocks", "dims"}:
        found = find_compound(item["blocks"])
        if found is None or not has_rows_of_blocks(found):
            raise InvalidArguments(f"tensor {printable(name)} is in unknown blocks")
        return BlockTensor(data_type, CompoundDesc(found, _numbers(name, item["dims"])))
    if item.keys() != {"data_type", "groups", "scales"} or not item["scales"]:
        raise InvalidArguments(f"tensor {printable(name)} has other entries")
    names = tuple(item["scales"])
    if not all(isinstance(scale, str) for scale in names):
        raise InvalidArguments(f"tensor {printable(name)} has scales without names")
    return ScaledTensor(data_type, _numbers(name, item["groups"]), names)


def _numbers(name: str, values: object) -> Dims:
    """Return a JSON list of numbers above 0."""
    if not isinstance(values, list) or not all(type(value) is int and 0 < value < 2**63 for value in values):
        raise InvalidArguments(f"tensor {printable(name)} has {values!r} in place of whole numbers above 0")
    return tuple(values)


def has_rows_of_blocks(format: CompoundFormat) -> bool:
    """Return True if the blocks of a format follow one another along the last axis, and nothing else is in the buffer.

    >>> from inlay.descriptor.compound_table import compound
    >>> has_rows_of_blocks(compound("ggml:Q6_K")), has_rows_of_blocks(compound("nvidia:NVFP4_128x4"))
    (True, False)
    """
    section, *others = format.sections
    return not others and len(section.block) == 1 and not section.footer_nbytes and not format.repeats_edge
