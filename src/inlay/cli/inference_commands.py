"""Commands that find and check layouts: `inlay infer` and `inlay verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from inlay.cli.application import DimsArgument, TagArgument, TypeOption, app, parse_dims
from inlay.cli.output import echo
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_table import compound
from inlay.errors import InvalidArguments

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
    typer.Option("--logical", metavar="FILE", help="FILE is the packed buffer of this array; .npz: of these streams."),
]
IndexTypeOption = Annotated[
    str | None, typer.Option("--index-type", metavar="TYPE", help="Type of the entries of a raw table, such as s32.")
]


@app.command(short_help="Find the layout behind a table or a packed buffer.")
def infer(
    source: FileArgument,
    dims: DimsArgument,
    data_type: TypeOption = "f32",
    table: TableOption = None,
    marker: MarkerOption = -1,
    logical: LogicalOption = None,
    index_type: IndexTypeOption = None,
) -> None:
    """Find the layout behind a table of indices, or behind one packed buffer and its logical array.

    Example: inlay infer table.csv 2x17x5x4
    """
    # Imported here because it loads LLVM, which doubles the start-up time of other commands.
    from inlay.inference import infer as infer_layout

    sizes = parse_dims(dims)
    packed, array = _read_source(source, logical, data_type, index_type, sizes)
    echo(str(infer_layout(packed, sizes, data_type, table=_table_kind(table), marker=marker, logical=array)))


@app.command(short_help="Check a table or a packed buffer against a layout.")
def verify(
    tag: TagArgument,
    dims: DimsArgument,
    source: FileArgument,
    data_type: TypeOption = "f32",
    table: TableOption = None,
    marker: MarkerOption = -1,
    logical: LogicalOption = None,
    index_type: IndexTypeOption = None,
) -> None:
    """Check a table of indices, or a packed buffer with its logical array, against a layout; exit with 2 if it differs.

    With an .npz file of quants, scales and minima as --logical, TAG is a compound format such as ggml:Q4_0.

    Example: inlay verify nChw8c 2x17x5x4 packed.bin --logical image.npy
    """
    from inlay.inference import verify as verify_layout

    sizes = parse_dims(dims)
    if logical is not None and logical.suffix == ".npz":
        _verify_streams(CompoundDesc(compound(tag), sizes), source, logical)
        return
    desc = MemoryDesc(sizes, data_type, tag)
    packed, array = _read_source(source, logical, data_type, index_type, sizes)
    result = verify_layout(desc, packed, array, table=_table_kind(table), marker=marker)
    if not result:
        raise InvalidArguments(str(result))
    echo(str(result))


def _verify_streams(desc: CompoundDesc, source: Path, logical: Path) -> None:
    """Check a raw buffer against the streams of a compound format.

    Raises:
        FileError: a file cannot be read.
        InvalidArguments: the buffer differs, or the streams are not those of the format.
    """
    from inlay.inference import verify as verify_layout
    from inlay.inference.index_files import read_indices, read_streams

    result = verify_layout(desc, read_indices(source, "u8"), read_streams(logical))
    if not result:
        raise InvalidArguments(str(result))
    echo(str(result))


def _table_kind(text: str | None) -> Literal["physical", "logical"] | None:
    """Return the kind of a table.

    Raises:
        InvalidArguments: `text` is neither of the two kinds.
    """
    if text == "physical":
        return "physical"
    if text == "logical":
        return "logical"
    if text is not None:
        raise InvalidArguments(f"--table is {text!r}: give physical or logical")
    return None


def _read_source(
    source: Path, logical: Path | None, data_type: str, index_type: str | None, dims: tuple[int, ...]
) -> "tuple[npt.NDArray[Any], npt.NDArray[np.generic] | None]":
    """Return the array of the source, and the logical array if there is one."""
    from inlay.inference.index_files import read_indices

    if logical is None:
        return read_indices(source, index_type), None
    array = read_indices(logical, data_type)
    return read_indices(source, data_type), array.reshape(dims) if array.size == _volume(dims) else array


def _volume(dims: tuple[int, ...]) -> int:
    """Return the number of elements."""
    count = 1
    for n in dims:
        count *= n
    return count
