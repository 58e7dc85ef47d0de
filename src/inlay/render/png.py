"""Pictures as PNG: SVG drawn by resvg, with the font that is part of the package.

The same SVG gives the same pixels on every machine: no font of the system is used. Files of the folder `fonts` are
DejaVu Sans Mono, whose license is beside them. A PNG has the colors of a light page.
"""

from pathlib import Path
from typing import Any

from inlay.errors import InvalidArguments, MissingExtra, shown

FONTS = Path(__file__).parent / "fonts"
"""The folder of the fonts."""

_FAMILY = "DejaVu Sans Mono"
_INSTALL = "pip install 'inlay[png]'"
_MOST_SCALE = 16.0


def png_bytes(svg: str, scale: float = 2.0) -> bytes:
    r"""Return the picture `svg` as the bytes of a PNG file, `scale` pixels for each pixel of the SVG.

    Raises:
        InvalidArguments: `scale` is no number from 0.1 to 16, or `svg` is not SVG.
        MissingExtra: resvg-py is not installed.

    >>> png_bytes('<svg xmlns="http://www.w3.org/2000/svg" width="8" height="4"/>')[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    number: object = scale
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0.1 <= number <= _MOST_SCALE:
        raise InvalidArguments(f"scale is {shown(scale)}: give a number from 0.1 to {_MOST_SCALE:g}")
    resvg = require_resvg()
    fonts = [str(path) for path in sorted(FONTS.glob("*.ttf"))]
    try:
        return bytes(
            resvg.svg_to_bytes(
                svg_string=svg,
                zoom=scale,
                font_files=fonts,
                skip_system_fonts=True,
                font_family=_FAMILY,
                monospace_family=_FAMILY,
            )
        )
    except ValueError as error:
        raise InvalidArguments(f"the picture is no SVG that resvg can draw: {error}") from None


def require_resvg() -> Any:
    """Return the module resvg_py.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import resvg_py
    except ImportError:
        raise MissingExtra(f"resvg-py, which draws PNG files, is not installed: {_INSTALL}") from None
    return resvg_py
