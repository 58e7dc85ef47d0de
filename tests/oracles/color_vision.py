"""Color differences (CIE76), and colors as people with deuteranopia see them.

Sources: CIE 1976 L*a*b* with the white D65; Machado, Oliveira and Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency", 2009, matrix of severity 1.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

_DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)

Color = npt.NDArray[Any]
"""Red, green and blue of sRGB, 0 to 255."""


def deuteranopia(color: Color) -> Color:
    """The color that a person with deuteranopia sees."""
    seen = np.clip(_DEUTERANOPIA @ _linear(color), 0, 1)
    return np.asarray(255 * np.where(seen <= 0.0031308, 12.92 * seen, 1.055 * seen ** (1 / 2.4) - 0.055))


def color_difference(a: Color, b: Color) -> float:
    """The distance of two colors in CIE L*a*b*; 2.3 is just noticeable."""
    return float(np.linalg.norm(_lab(a) - _lab(b)))


def _linear(color: Color) -> Color:
    share = np.asarray(color) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def _lab(color: Color) -> Color:
    ratio = (_XYZ @ _linear(color)) / (_XYZ @ np.ones(3))
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
