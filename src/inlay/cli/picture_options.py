"""Options of `inlay show`: names of axes, chosen coordinates, the file of the picture."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from inlay.errors import InvalidArguments
from inlay.render import ComparisonPicture, CompoundPicture, Picture
from inlay.render.saving import require_suffix
from inlay.render.selection import AxisChoice

OffsetsOption = Annotated[bool, typer.Option("--offsets", help="Write the element offset into every cell.")]
NamesOption = Annotated[
    str | None, typer.Option("--names", metavar="NAMES", help="Names of the axes: n,c,h,w or nchw.")
]
ChoicesOption = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="AXIS=X", help="Show coordinates of an axis: n=0, c=8:16 or c=0,8,16."),
]
DestinationOption = Annotated[
    str | None, typer.Option("--to", metavar="TAG", help="Draw this layout beside it, as the destination.")
]
HeatMapOption = Annotated[
    bool | None,
    typer.Option("--heat-map/--no-heat-map", help="Add a heat map of addresses; large tensors have one."),
]
PictureOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the picture: .svg, .png, .html or .txt.")
]
SvgOption = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write an SVG picture instead.")]

AnyPicture: TypeAlias = Picture | ComparisonPicture | CompoundPicture
"""A picture of `inlay show`."""

_OPTIONS = {"offsets": "--offsets", "names": "--names", "at": "--at", "to": "--to", "heat_map": "--heat-map"}


def picture_target(output: Path | None, svg: Path | None) -> Path | None:
    """Return the file to write, of `--out` or `--svg`; None to print the picture.

    Raises:
        InvalidArguments: both are given, or a suffix is that of no picture.
    """
    if svg is not None and svg.suffix.lower() != ".svg":
        raise InvalidArguments(
            f"--svg writes a file that ends in .svg, not {svg.suffix or 'without an ending'!r}: use --out"
        )
    if svg is not None and output is not None:
        raise InvalidArguments("--svg and --out both name the file of the picture: give one")
    target = svg or output
    if target is not None:
        require_suffix(target)
    return target


def picture_options(
    offsets: bool, names: str | None, at: Sequence[str] | None, heat_map: bool | None
) -> dict[str, Any]:
    """Return the keyword arguments of `inlay.show` for these options.

    Raises:
        InvalidArguments: a text of `at` is no choice.
    """
    return {
        "offsets": offsets,
        "names": names,
        "at": parse_choices(at) if at else None,
        "heat_map": heat_map,
    }


def require_no_options(tag: str, options: Mapping[str, Any], to: str | None = None) -> None:
    """Check that no option of layouts is given for a compound format, which is drawn bit by bit.

    Raises:
        InvalidArguments: one is.
    """
    given = {**options, "to": to}
    for name, option in _OPTIONS.items():
        if given[name] not in (None, False):
            raise InvalidArguments(f"{option} is for layouts, but {tag} is drawn bit by bit: leave the option out")


def parse_choices(texts: Sequence[str]) -> dict[str, AxisChoice]:
    """Parse choices of coordinates: an axis, `=`, and a coordinate, a slice, or several of them.

    Raises:
        InvalidArguments: a text is no such choice, or two are of one axis.

    >>> parse_choices(["n=1", "c=8:16", "h=0,4"])
    {'n': 1, 'c': slice(8, 16, None), 'h': [0, 4]}
    """
    choices: dict[str, AxisChoice] = {}
    for text in texts:
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not re.fullmatch(r"-?\d{1,18}(,-?\d{1,18})*|(-?\d{1,18})?(:(-?\d{1,18})?){1,2}", value):
            raise InvalidArguments(
                f"--at is an axis and its coordinates, such as n=0, c=8:16 or c=0,8: {text!r} is not"
            )
        if name in choices:
            raise InvalidArguments(f"--at chooses from axis {name} twice: give several coordinates as {name}=0,8")
        choices[name] = _parse_choice(value)
    return choices


def _parse_choice(value: str) -> AxisChoice:
    """Return one coordinate, a slice, or several coordinates."""
    if ":" in value:
        return slice(*(int(part) if part else None for part in value.split(":")))
    numbers = [int(part) for part in value.split(",")]
    return numbers[0] if len(numbers) == 1 else numbers
