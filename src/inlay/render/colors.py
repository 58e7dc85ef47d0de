"""Colors and letters of blocks, and the scale of heat maps.

The seven fills are told apart in normal vision and by people who see no difference between red and green: any two are
at least 15 apart (CIE76, CIELAB, deuteranopia as simulated by Machado et al.). Their lightness differs too, so that
they are told apart in grey. Where a tensor has more blocks than there are colors, letters tell the blocks apart.
Numbers on all fills have the contrast of WCAG 2, level AA.

The scale of heat maps rises evenly in lightness from dark blue to yellow, so that it reads the same in grey.

Source: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009.
"""

BLOCK_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
"""The marks of blocks, in turn: a prime number of letters, without those that look like digits."""

LIGHT = ("#67cbf7", "#d39054", "#d0fec8", "#ba76a8", "#f0e08e", "#b6b08d", "#c1d2dd")
"""Fills on a light page, for numbers in `INK`."""

DARK = ("#274d64", "#916441", "#31451d", "#5e1e35", "#654f00", "#5e4f97", "#0a7066")
"""Fills on a dark page, for numbers in `CHALK`."""

COLORS = len(LIGHT)
"""Number of colors that blocks take in turn. A prime, so that the usual extents do not give two neighbors the same."""

INK = "#1b1f24"
"""Numbers on light fills."""

CHALK = "#f2f4f7"
"""Numbers on dark fills."""

TERMINAL_256 = (81, 215, 194, 133, 229, 180, 152)
"""Backgrounds of a terminal with 256 colors, for black numbers."""

TERMINAL_16 = (46, 101, 47, 105, 103, 43, 100)
"""Background codes of a terminal with 16 colors, for black numbers; the terminal decides about their shades."""

HEAT = ("#12284f", "#434860", "#7a7877", "#bbab6f", "#fbe25c")
"""Shades of a heat map, from the lowest address to the highest; those between are interpolated."""

HEAT_256 = (234, 236, 238, 240, 242, 244, 246, 248, 250, 253)
"""Backgrounds of a terminal with 256 colors for the ten digits of a heat map: greys, from dark to light."""


def heat_color(share: float) -> str:
    """Return the shade of a place between the lowest address, 0, and the highest, 1.

    >>> heat_color(0.0), heat_color(0.125), heat_color(1.0)
    ('#12284f', '#2a3858', '#fbe25c')
    """
    position = min(max(share, 0.0), 1.0) * (len(HEAT) - 1)
    index = min(int(position), len(HEAT) - 2)
    pairs = zip(_channels(HEAT[index]), _channels(HEAT[index + 1]), strict=True)
    return "#" + "".join(f"{round(low + (high - low) * (position - index)):02x}" for low, high in pairs)


def _channels(color: str) -> tuple[int, ...]:
    """Return red, green and blue of a color, 0 to 255."""
    return tuple(bytes.fromhex(color[1:]))
