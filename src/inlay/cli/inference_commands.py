"""Commands that find and check layouts: `inlay infer` and `inlay verify`."""

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from inlay.cli.application import DimsArgument, JsonOption, app, parse_dims
from inlay.cli.layout_documents import layout_document
from inlay.cli.output import echo, print_json
from inlay.data_type import DataType, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc, parse_desc
from inlay.errors import InvalidArguments
from inlay.layout import Dims

if TYPE_CHECKING:
    import numpy.typing as npt

    from inlay.inference import CompoundVerification, InferredLayout, Verification
    from inlay.inference.tables import TableKind

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A table of indices or a packed buffer: .npy, .json, .csv, or raw.")
]
TableOption = Annotated[
    str | None,
    typer.Option("--table", metavar="KIND", help="physical: the element in each place; logical: the place of each."),
]
MarkerOption = Annotated[int, typer.Option("--marker", metavar="N", help="Entry of places without an element.")]
LogicalOption = Annotated[
    Path | None,
    typer.Option("--logical", metavar="FILE", help="FILE is the packed buffer of this array: .npy, or raw."),
]
ElementOption = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="TYPE", help="Data type of the elements; by default that of a .npy --logical, or f32."
    ),
]
IndexTypeOption = Annotated[
    str | None, typer.Option("--index-type", metavar="TYPE", help="Type of the entries of a raw table, such as s32.")
]


@app.command(short_help="Find the layout behind a table or a packed buffer.")
def infer(
    source: FileArgument,
    dims: DimsArgument,
    data_type: ElementOption = None,
    table: TableOption = None,
    marker: MarkerOption = -1,
    logical: LogicalOption = None,
    index_type: IndexTypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the layout behind a table of indices, or behind one packed buffer and its logical array.

    Exit with 2 if there is none. By default, a table of shape DIMS or with entries beyond the last element is logical.

    Examples: inlay infer table.csv 2x17x5x4    inlay infer packed.bin 2x17x5x4 --logical image.npy
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.inference import Diagnosis
    from inlay.inference import infer as infer_layout

    sizes = parse_dims(dims)
    packed, array, element = _read_source(source, logical, data_type, index_type, sizes)
    found = infer_layout(packed, sizes, element, table=cast("TableKind | None", table), marker=marker, logical=array)
    if isinstance(found, Diagnosis):
        raise InvalidArguments(str(found))
    if as_json:
        print_json(_inferred_document(found))
    else:
        echo(str(found))


def _inferred_document(found: "InferredLayout") -> dict[str, Any]:
    """Return an inferred layout: its formats, names and digits, and notes on ambiguities."""
    return {
        "layout": layout_document(found.desc),
        "format": found.format,
        "names": list(found.names),
        "length": found.length,
        "notes": list(found.notes),
    }


@app.command(short_help="Check a table or a packed buffer against a layout.")
def verify(
    tag: Annotated[str, typer.Argument(metavar="TAG", help="Any text of a layout, or a name such as ggml:Q4_0.")],
    dims: DimsArgument,
    source: FileArgument,
    data_type: ElementOption = None,
    table: TableOption = None,
    marker: MarkerOption = -1,
    logical: LogicalOption = None,
    index_type: IndexTypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a table of indices, or a packed buffer with its logical array, against a layout; exit with 2 if it differs.

    For a compound format such as ggml:Q4_0, FILE is the packed buffer, and --logical the quants, scales and minima by
    name in an .npz file, or the values.

    Example: inlay verify nChw8c 2x17x5x4 packed.bin --logical image.npy
    """
    from inlay.inference import verify as verify_layout
    from inlay.inference.index_files import read_indices, read_streams

    desc = parse_desc(tag, parse_dims(dims), data_type or "f32")
    result: CompoundVerification | Verification
    if isinstance(desc, CompoundDesc):
        if logical is None:
            raise InvalidArguments(f"{desc} is a compound format: give its streams or its values as --logical FILE")
        is_streams = logical.suffix.lower() == ".npz"
        streams = read_streams(logical) if is_streams else _read_logical(logical, "f32", desc.dims)
        result = verify_layout(desc, read_indices(source, "u8"), streams)
    else:
        packed, array, element = _read_source(source, logical, data_type, index_type, desc.dims)
        desc = MemoryDesc(desc.dims, element, tag)
        result = verify_layout(desc, packed, array, table=cast("TableKind | None", table), marker=marker)
    if not result:
        raise InvalidArguments(str(result))
    if as_json:
        print_json({"is_equal": True, "text": str(result), "format": str(desc), "dims": list(desc.dims)})
    else:
        echo(str(result))


def _read_source(
    source: Path, logical: Path | None, data_type: str | None, index_type: str | None, dims: Dims
) -> "tuple[npt.NDArray[Any], npt.NDArray[Any] | None, DataType]":
    """Return the array of the source, the logical array if there is one, and the data type of the elements."""
    from inlay.inference.index_files import read_indices

    if logical is None:
        return read_indices(source, index_type), None, as_data_type(data_type or "f32")
    array = _read_logical(logical, data_type or "f32", dims)
    element = as_data_type(data_type or array.dtype)
    return read_indices(source, element), array, element


def _read_logical(path: Path, data_type: str, dims: Dims) -> "npt.NDArray[Any]":
    """Return the logical array of a file, with its dims if it has as many elements."""
    from inlay.inference.index_files import read_indices

    array = read_indices(path, data_type)
    return array.reshape(dims) if array.size == prod(dims) else array
