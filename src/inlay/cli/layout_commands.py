"""Commands on memory layouts.

`inlay show` draws one, `inlay offset` explains an offset, `inlay info` prints every text of one, `inlay diff` compares
two, and `inlay names` names one in every notation and lists names. `inlay info` and `inlay diff` are for files too.
"""

import re
from collections.abc import Iterator
from typing import Annotated

import typer

from inlay.cli.application import (
    TAG_HELP,
    DimsArgument,
    JsonOption,
    OptionalDimsArgument,
    TagArgument,
    TypeOption,
    app,
    parse_dims,
    parse_dims_and_coordinate,
)
from inlay.cli.file_texts import compare_files, describe_file
from inlay.cli.layout_documents import (
    difference_document,
    layout_document,
    names_document,
    offset_document,
    picture_document,
)
from inlay.cli.name_lists import match_tags, match_types, match_vendor_names
from inlay.cli.output import echo, print_json, write
from inlay.cli.picture_options import (
    AnyPicture,
    ChoicesOption,
    DestinationOption,
    HeatMapOption,
    NamesOption,
    OffsetsOption,
    PictureOption,
    SvgOption,
    picture_options,
    picture_target,
    require_no_options,
)
from inlay.descriptor import MemoryDesc
from inlay.descriptor.comparison import first_difference
from inlay.descriptor.compound_desc import CompoundDesc, parse_desc
from inlay.descriptor.compound_format import CompoundFormat
from inlay.descriptor.compound_table import find_compound
from inlay.errors import printable
from inlay.notation.dictionary import find_named, has_vendor, list_equivalent
from inlay.render import show as picture
from inlay.render.legend import explain_offset, legend, list_notations, names_of


@app.command(short_help="Draw a layout.")
def show(
    tag: TagArgument,
    dims: DimsArgument,
    data_type: TypeOption = "f32",
    offsets: OffsetsOption = False,
    names: NamesOption = None,
    at: ChoicesOption = None,
    to: DestinationOption = None,
    heat_map: HeatMapOption = None,
    output: PictureOption = None,
    svg: SvgOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a layout: the logical grid, and below it the memory in address order.

    Of a compound format, the bytes of one block are drawn, with the stream of every bit.

    For example:

      inlay show nChw8c 2x17x5x4 --offsets

      inlay show nchw 2x17x5x4 --to nChw8c --out reorder.png

      inlay show nChw16c 1x64x56x56 --at n=0 --at c=14:18

      inlay show "(m m4 m32) (k k4) -> m k m32 m4 k4" 300x20 --dtype u8

      inlay show "Swizzle<3,4,3> o (8,128):(128,1)" 8x128 --dtype u8

      inlay show ggml:Q4_0 4096x4096
    """
    target = picture_target(output, svg)
    source = parse_desc(tag, parse_dims(dims), data_type)
    options = picture_options(offsets, names, at, heat_map)
    if as_json:
        options |= {"color": False, "width": 80}  # whatever the terminal is
    if isinstance(source, CompoundDesc):
        require_no_options(tag, options, to)
        drawn: AnyPicture = picture(source)
    elif to is None:
        drawn = picture(source, **options)
    else:
        drawn = picture(source, to, **options)
    if target is not None:
        drawn.save(target)
    if as_json:
        print_json(picture_document(source, drawn, target))
    elif target is None:
        write(str(drawn))
    else:
        echo(f"wrote {printable(str(target))}")


@app.command(short_help="Explain the offset of one element.", context_settings={"ignore_unknown_options": True})
def offset(
    tag: TagArgument,
    dims: DimsArgument,
    coordinate: Annotated[str, typer.Argument(metavar="COORD", help="A coordinate, logical order: 1,16,4,3.")],
    data_type: TypeOption = "f32",
    as_json: JsonOption = False,
) -> None:
    """Explain the offset of one element: the digits of its coordinate, its element offset and its byte offset.

    Example: inlay offset nChw8c 2x17x5x4 1,16,4,3
    """
    extents, place = parse_dims_and_coordinate([*dims, coordinate])
    desc = MemoryDesc(extents, data_type, tag)
    if as_json:
        print_json(offset_document(desc, place))
    else:
        echo(explain_offset(desc, place))


@app.command(short_help="Print the texts, size and formula of a layout; list the tensors of a file.")
def info(
    tag: Annotated[str, typer.Argument(metavar="TAG|FILE", help=f"{TAG_HELP} Or a file of tensors.")],
    dims: OptionalDimsArgument = None,
    data_type: TypeOption = "f32",
    as_json: JsonOption = False,
) -> None:
    """Print what is known of a layout without a picture: its texts in each notation, digits, formula and size.

    Without DIMS, list the tensors of a file: names, dims, types, formats, bytes and the share of padding.

    For example:

      inlay info "(2,(8,3)):(24,(1,8))" 2x17

      inlay info packed.safetensors
    """
    if not dims:
        echo(describe_file(tag, as_json))
        return
    desc = MemoryDesc(parse_dims(dims), data_type, tag)
    if as_json:
        print_json(layout_document(desc))
        return
    axes = names_of(desc)
    words = legend(desc, axes)
    facts = [*words.facts, *list_notations(desc, axes)]
    width = max(len(name) for name, _ in facts)
    echo("\n".join([words.title, *(f"{name:<{width}}  {text}" for name, text in facts)]))


@app.command(short_help="Compare two layouts, or the tensors of two files.")
def diff(
    tag: Annotated[str, typer.Argument(metavar="TAG|FILE", help=f"{TAG_HELP} Or a file of tensors.")],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another format, of the same dims; or another file.")],
    dims: OptionalDimsArgument = None,
    data_type: TypeOption = "f32",
    as_json: JsonOption = False,
) -> None:
    """Say whether two layouts are the same map from coordinates to offsets, else the first coordinate that differs.

    Without DIMS, compare the tensors of two files by logical elements and by format. The exit code is then 1 if
    elements, dims or names differ, and 0 if only formats do.

    For example:

      inlay diff nChw8c "n (c c8) h w -> n c h w c8" 2x17x5x4

      inlay diff weights.safetensors packed.safetensors
    """
    if not dims:
        text, are_equal = compare_files(tag, other, as_json)
        echo(text)
        if not are_equal:
            raise typer.Exit(1)
        return
    first, second = (MemoryDesc(parse_dims(dims), data_type, text) for text in (tag, other))
    coordinate = first_difference(first, second)
    if as_json:
        print_json(difference_document(first, second, coordinate))
        return
    if coordinate is None:
        echo(f"the same: {first}")
        return
    at = ",".join(map(str, coordinate))
    offsets = f"{first.offset(coordinate)} in {tag}, {second.offset(coordinate)} in {other}"
    echo(f"different: element {at} has offset {offsets}")


@app.command(short_help="Name a layout in every notation; list tags, vendors' names and data types.")
def names(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="A tag, a vendor's name, a pattern, or a shell pattern of names.")
    ] = "*",
    types: Annotated[bool, typer.Option("--types", help="List the data types instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Name one layout in every notation: its tag, its pattern and the names that vendors give it. Or list names.

    Names of compound formats, such as ggml:Q4_0, are not names of layouts: ggml:Q4_0.qs is the order of its quants.

    A shell pattern, such as '*16c', lists tags with their aliases. With a vendor, as 'tensorrt:*', it lists the layouts
    of the vendor.

    For example:

      inlay names nChw16c

      inlay names tensorrt:CHW32

      inlay names 'xla:*'

      inlay names --types
    """
    fmt = None if types else find_compound(name)
    is_one = not types and not _GLOB.search(name)
    if as_json:
        print_json(names_document(name, fmt, is_one=is_one, types=types))
        return
    if fmt is not None:
        echo(f"{fmt.name}  {_streams_text(fmt)}\nsource   {fmt.source}")
        return
    if is_one:
        echo(f"{find_named(name)}\n{list_equivalent(name)}" if has_vendor(name) else str(list_equivalent(name)))
        return
    list_lines = _type_lines if types else _vendor_lines if ":" in name else _tag_lines
    echo("\n".join(list_lines(name)))


_GLOB = re.compile(r"[*?\[]")
"""Characters that make a text a shell pattern; no name has them."""


def _vendor_lines(pattern: str) -> Iterator[str]:
    """Yield one line for each row of the dictionary and each compound format that matches: its name and what it is."""
    rows, formats = match_vendor_names(pattern)
    width = max(map(len, (*(row.name for row in rows), *(fmt.name for fmt in formats))))
    for row in rows:
        yield f"{row.name:<{width}}  {row.pattern}  {' '.join(row.data_types)}".rstrip()
    for fmt in formats:
        yield f"{fmt.name:<{width}}  {_streams_text(fmt)}"


def _streams_text(fmt: CompoundFormat) -> str:
    """Return the streams of a compound format in words."""
    return "compound format of " + ", ".join(f"{stream.name} of {stream.bits} bits" for stream in fmt.streams)


def _type_lines(pattern: str) -> Iterator[str]:
    """Yield one line for each data type whose name matches."""
    for t in match_types(pattern):
        yield f"{t.name:<8} {t.bits:>2} bits  {t.kind:<8}  {t.dtype.name}"


def _tag_lines(pattern: str) -> Iterator[str]:
    """Yield one line for each canonical tag that matches or has an alias that matches: the tag and its aliases."""
    for tag, aliases in match_tags(pattern).items():
        yield f"{tag:<20} {' '.join(aliases)}".rstrip()
