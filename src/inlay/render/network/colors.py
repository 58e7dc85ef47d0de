"""The color of each format, the same in every picture of plans for the formats that most networks use.

Seven colors that are told apart in normal and in color-blind vision, on light pages and dark ones; what is row-major is
gray. Source: Paul Tol, "Colour Schemes", the bright qualitative scheme.
"""

from collections.abc import Iterable

from inlay.render.network.words import ROW_MAJOR

GRAY = "#8a939e"
BRIGHT = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")

_USUAL = {ROW_MAJOR: GRAY, "aBcd16b": BRIGHT[0], "aBcd8b": BRIGHT[1], "acdb": BRIGHT[2], "aBcd4b": BRIGHT[5]}
_RARE = "#b58863"


def format_colors(formats: Iterable[str]) -> dict[str, str]:
    """A color for each format; those after the seventh share one.

    >>> format_colors(["aBcd16b", "plain", "bacd"])
    {'aBcd16b': '#4477aa', 'plain': '#8a939e', 'bacd': '#ee6677'}
    """
    wanted = list(formats)
    free = [color for color in BRIGHT if color not in {_USUAL.get(name) for name in wanted}]
    return {name: _USUAL.get(name) or (free.pop(0) if free else _RARE) for name in wanted}
