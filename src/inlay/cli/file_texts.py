"""Texts of `inlay info` and `inlay diff` for files of tensors."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inlay.errors import FileError, InvalidArguments, printable

if TYPE_CHECKING:
    from inlay.storage import StoreContents


def describe_file(location: str, as_json: bool) -> str:
    """Return a table of the tensors of a file, or JSON.

    Raises:
        InvalidArguments: `location` is the text of a format and no file.
        FileError: the file cannot be read.
    """
    from inlay.storage import list_contents, open_store

    _require_location(location)
    contents = list_contents(open_store(location))
    return json.dumps(contents.to_json(), indent=2) if as_json else _contents_text(contents)


def compare_files(first: str, second: str, as_json: bool) -> tuple[str, bool]:
    """Return the comparison of the tensors of two files as text or JSON, and True if all elements are equal.

    Raises:
        InvalidArguments: `first` or `second` is the text of a format and no file.
        FileError: a file cannot be read.
    """
    from inlay.storage import compare_stores, open_store

    for location in (first, second):
        _require_location(location)
    found = compare_stores(open_store(first), open_store(second))
    if as_json:
        return json.dumps(found.to_json(), indent=2), found.has_equal_elements
    elements = "equal elements" if found.has_equal_elements else "different elements"
    formats = "equal formats" if found.has_equal_formats else "different formats"
    return "\n".join([*str(found).splitlines(), f"{elements}, {formats}"]), found.has_equal_elements


def _require_location(location: str) -> None:
    """Check that a text names a file that exists, or a URL, and not a format whose dims were forgotten.

    Raises:
        InvalidArguments: it names a format.
        FileError: there is no such file.
    """
    if "://" in location or Path(location).exists():
        return
    if not (Path(location).suffix or "/" in location):
        raise InvalidArguments(f"{location!r} names no file of tensors: give DIMS after a format, such as 2x17x5x4")
    raise FileError(f"cannot read {location}: there is no such file; check the name")


def _contents_text(contents: "StoreContents") -> str:
    """Return the tensors as a table, with their total and the texts of the file below it."""
    from rich.filesize import decimal

    rows = [("name", "dims", "type", "format", "bytes", "padding")]
    for tensor in contents.tensors:
        dims = "x".join(map(str, tensor.dims)) or "scalar"
        padding = f"{100 * tensor.padding_share:.1f} %" if tensor.padding_share else "-"
        rows.append((printable(tensor.name), dims, tensor.data_type, tensor.format or "-", f"{tensor.nbytes}", padding))
    lines = _align(rows)
    count = f"{len(contents.tensors)} tensor{'s' * (len(contents.tensors) != 1)}"
    padding = f"{100 * contents.padding_share:.1f} % of them padding" if contents.padding_share else "no padding"
    lines.append(f"{count}, {decimal(contents.nbytes)}, {padding}")
    lines += [f"{printable(key)}: {_shorten(printable(text))}" for key, text in sorted(contents.metadata.items())]
    return "\n".join(lines)


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines, with aligned columns: the last two are numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    numbers = len(widths) - 2
    return [
        "  ".join(
            cell.rjust(width) if i >= numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _shorten(text: str, most: int = 60) -> str:
    """Return the start of a text of the file."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
