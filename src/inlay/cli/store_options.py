"""Arguments and options of `inlay convert` that name stores, or say what only some formats of files need."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.application import parse_dims
from inlay.errors import InvalidArguments
from inlay.layout import Dims

if TYPE_CHECKING:
    from inlay.storage import OpenOptions, WriteOptions

_SOURCE_HELP = (
    "A file of tensors (.safetensors, .gguf, .npy, .pt, .onnx, ...), a folder of shards, a Zarr array, or a URL."
)
_TARGET_HELP = "The file, the folder (with a slash at its end) or the URL to write."

StoreArgument = Annotated[str, typer.Argument(metavar="IN", help=_SOURCE_HELP)]
TargetStoreOption = Annotated[str, typer.Option("-o", "--output", metavar="OUT", help=_TARGET_HELP)]
SourceFormatOption = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="[PATTERN=]TAG", help="Format of memory that the file does not describe."),
]
SourceDimsOption = Annotated[
    str | None,
    typer.Option("--dims", metavar="DIMS", help="The dims of raw bytes; with --from, where the shape is not enough."),
]
SourceTypeOption = Annotated[
    str | None,
    typer.Option("--from-dtype", metavar="TYPE", help="Type of the elements of raw bytes; the default is --dtype."),
]
OffsetOption = Annotated[
    int | None, typer.Option("--offset", metavar="N", help="Offset of the tensor in raw bytes, in bytes.")
]
ShardSizeOption = Annotated[
    str | None, typer.Option("--shard-size", metavar="SIZE", help="Most bytes of a shard, such as the default 5GB.")
]
ChunksOption = Annotated[
    list[str] | None,
    typer.Option("--chunks", metavar="[PATTERN=]N,N...", help="Chunks of a Zarr target; -1 is a whole axis."),
]
StagingOption = Annotated[
    Path | None, typer.Option("--staging", metavar="DIR", help="Where a target at a URL is written before upload.")
]


def parse_source_options(
    source: str,
    to: Sequence[str],
    from_: Sequence[str],
    data_type: str | None,
    dims: str | None,
    source_type: str | None,
    offset: int | None,
    *,
    is_dequantized: bool,
) -> tuple[Dims | None, "OpenOptions"]:
    """Return the logical dims of memory that the source does not describe, and the options of the source.

    `--dims` and `--dtype` describe raw bytes if the source is some, without a format of `--from`.

    Raises:
        InvalidArguments: dims are no whole numbers, or `--dtype` is without the tensors that it converts.
        FileError: the source cannot be read.
    """
    from inlay.storage import OpenOptions
    from inlay.storage.formats import is_raw_source

    logical = None if dims is None else parse_dims(dims)
    described = OpenOptions(None if from_ else logical, source_type or data_type, offset)
    if is_raw_source(source, described, has_type=source_type is not None):
        return (logical if from_ else None), described
    if data_type is not None and not to and not is_dequantized:
        raise InvalidArguments("--dtype converts the tensors that --to matches: give --to too, such as --to plain")
    return logical, OpenOptions()


def parse_target_options(shard_size: str | None, staging: Path | None) -> "WriteOptions":
    """Return the options of the target.

    Raises:
        InvalidArguments: the size is no number of bytes.
    """
    from inlay.storage import WriteOptions
    from inlay.storage.sizes import parse_nbytes

    return WriteOptions(None if shard_size is None else parse_nbytes(shard_size), staging)
