"""The colors of blocks, once for every way of drawing.

Seven colors are told apart in normal and in color-blind vision and carry dark numbers; the letters A to G say the same
where there is no color. Source: Paul Tol, "Colour Schemes", the light qualitative scheme, made for labeled cells.
"""

LETTERS = "ABCDEFG"
"""The mark of each color where no color can be shown."""

LIGHT = ("#a9cbee", "#f5b9a3", "#f2e3a4", "#94d3bf", "#ffc9d3", "#d3dd8a", "#bfe9fb")
"""Fills on a light page, for numbers in `INK`."""

DARK = ("#2f5a86", "#8a4a33", "#7a6a28", "#1f6b57", "#8a4657", "#5f681c", "#2c6f86")
"""Fills on a dark page, for numbers in `CHALK`."""

INK = "#1b1f24"
"""Numbers on light fills."""

CHALK = "#f2f4f7"
"""Numbers on dark fills."""

TERMINAL_256 = (153, 216, 229, 115, 218, 186, 195)
"""Backgrounds of a terminal with 256 colors, for black numbers."""

TERMINAL_16 = (44, 41, 43, 42, 45, 47, 46)
"""Background codes of a terminal with 16 colors, for black numbers."""
