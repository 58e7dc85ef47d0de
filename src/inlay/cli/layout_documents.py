"""Layouts, offsets and names as JSON documents: what `--json` of the commands on layouts prints.

`docs/json.md` describes the documents, and `inlay/data/documents.schema.json` has a definition for each.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from inlay.cli.name_lists import match_tags, match_types, match_vendor_names
from inlay.cli.picture_options import AnyPicture
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InvalidArguments
from inlay.layout import Digit, Dims, Layout
from inlay.notation.dictionary import NamedLayout, find_named, has_vendor, list_equivalent
from inlay.render import ComparisonPicture, CompoundPicture
from inlay.render.legend import list_notations, names_of, offset_formula

Document = dict[str, Any]
"""A JSON object."""


def layout_document(desc: MemoryDesc, names: Sequence[str] | None = None) -> Document:
    """Return what is known of a layout: its texts, digits, formula and sizes; null where it has none.

    `names` are the names of its axes; None for those of its notation.
    """
    layout = _layout_of(desc)
    names = names_of(desc) if names is None else names
    bits = None if desc.data_type is None else desc.data_type.bits
    notations = dict(list_notations(desc, names))
    document: Document = {
        "text": str(desc),
        "kind": desc.kind,
        "data_type": None if desc.data_type is None else desc.data_type.name,
        "element_bits": bits,
        "names": list(names),
        "dims": list(desc.dims),
        "padded_dims": None if layout is None else list(desc.padded_dims),
        "digits": None if layout is None else [[_digit_document(digit) for digit in axis] for axis in layout.digits],
        "offset0": desc.offset0,
        "swizzle": None if desc.swizzle is None else str(desc.swizzle),
        "formula": None,
        "nbytes": None if desc.has_runtime else desc.size,
        "padding_elements": None if layout is None else prod(desc.padded_dims) - prod(desc.dims),
        "tag": notations.get("tag"),
        "pattern": notations.get("pattern"),
        "shape_stride": notations.get("shape:stride"),
    }
    if layout is not None and desc.swizzle is None and not desc.has_runtime:
        document["formula"] = offset_formula(desc, names)
    return document


def _layout_of(desc: MemoryDesc) -> Layout | None:
    """Return the digits of a descriptor, before its swizzle; None if it has no layout."""
    with suppress(InvalidArguments):
        return addressed_layout(desc, "the digits")[0]
    return None


def _digit_document(digit: Digit) -> Document:
    """Return a digit of an axis: its extent, and its stride in elements."""
    return {"extent": digit.extent, "stride": digit.stride}


def compound_document(desc: CompoundDesc) -> Document:
    """Return a compound format with dims: its name, size, and streams with their bits."""
    return {
        "format": desc.format.name,
        "dims": list(desc.dims),
        "nbytes": desc.size,
        "streams": [
            {"name": stream.name, "data_type": stream.data_type, "bits": stream.bits} for stream in desc.format.streams
        ],
    }


def picture_document(desc: MemoryDesc | CompoundDesc, drawn: AnyPicture, file: Path | None) -> Document:
    """Return a layout, and the one beside it, with their picture in characters or the file that has it."""
    names = None if isinstance(drawn, CompoundPicture) else drawn.names
    return {
        "layout": None if isinstance(desc, CompoundDesc) else layout_document(desc, names),
        "destination": layout_document(drawn.dst.desc, names) if isinstance(drawn, ComparisonPicture) else None,
        "compound": compound_document(desc) if isinstance(desc, CompoundDesc) else None,
        "picture": str(drawn) if file is None else None,
        "file": None if file is None else str(file),
    }


def offset_document(desc: MemoryDesc, coordinate: Dims) -> Document:
    """Return the offset of an element, with the digits of its coordinate.

    Raises:
        InvalidArguments: as `MemoryDesc.offset`.
    """
    element, byte = desc.offset(coordinate), desc.byte_offset(coordinate)
    layout, _ = addressed_layout(desc, "offset")
    rows = zip(names_of(desc), coordinate, layout.digits, strict=True)
    return {
        "text": str(desc),
        "coordinate": list(coordinate),
        "axes": [
            {"name": name, "index": index, "digits": _digit_values(index, digits)} for name, index, digits in rows
        ],
        "element_offset": element,
        "byte_offset": byte,
        "is_padding": desc.is_padding(coordinate),
    }


def _digit_values(index: int, digits: Sequence[Digit]) -> list[Document]:
    """Return the digits of an index, the most significant first, each with its value."""
    values: list[Document] = []
    for digit in reversed(digits):
        is_first = len(values) == len(digits) - 1
        index, value = (0, index) if is_first else divmod(index, digit.extent)
        values.append({"value": value, **_digit_document(digit)})
    return values[::-1]


def difference_document(first: MemoryDesc, second: MemoryDesc, coordinate: Dims | None) -> Document:
    """Return whether two layouts are equal; else the first coordinate of different offsets, and these offsets."""
    offsets = None if coordinate is None else [first.offset(coordinate), second.offset(coordinate)]
    return {
        "is_equal": coordinate is None,
        "layouts": [str(first), str(second)],
        "coordinate": None if coordinate is None else list(coordinate),
        "offsets": offsets,
    }


def names_document(name: str, fmt: CompoundFormat | None, *, is_one: bool, types: bool) -> Document:
    """Return the names of one layout, or the names that match a shell pattern.

    Raises:
        InvalidArguments: `name` names nothing, or nothing matches it.
    """
    if fmt is not None:
        return {"compound_formats": [_format_document(fmt)]}
    if is_one:
        found = list_equivalent(name)
        named = _row_document(find_named(name)) if has_vendor(name) else None
        return {
            "named": named,
            "tag": found.tag,
            "pattern": found.pattern,
            "names": [_row_document(row) for row in found.rows],
        }
    if types:
        return {
            "types": [
                {"name": each.name, "bits": each.bits, "kind": each.kind, "numpy": each.dtype.name}
                for each in match_types(name)
            ]
        }
    if ":" in name:
        rows, formats = match_vendor_names(name)
        return {
            "names": [_row_document(row) for row in rows],
            "compound_formats": [_format_document(each) for each in formats],
        }
    return {"tags": [{"tag": tag, "aliases": aliases} for tag, aliases in match_tags(name).items()]}


def _row_document(row: NamedLayout) -> Mapping[str, Any]:
    """Return a row of the dictionary: the name, pattern, roles of axes, types and source of a vendor's layout."""
    return {
        "name": row.name,
        "pattern": row.pattern,
        "roles": list(row.roles),
        "data_types": list(row.data_types),
        "source": row.source,
    }


def _format_document(fmt: CompoundFormat) -> Document:
    """Return a compound format without dims."""
    streams = [{"name": each.name, "data_type": each.data_type, "bits": each.bits} for each in fmt.streams]
    return {"format": fmt.name, "source": fmt.source, "streams": streams}
