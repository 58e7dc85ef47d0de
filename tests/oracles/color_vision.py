"""Colors as people see them: CIELAB, differences by CIE76, deuteranopia by two published models, and grey.

Sources: IEC 61966-2-1 for sRGB; CIE 15:2004 for CIELAB with white D65; Vienot, Brettel, Mollon, "Digital video
colourmaps for checking the legibility of displays by dichromats", 1999; Machado, Oliveira, Fernandes, "A
Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, table for severity 1.0.
"""

import numpy as np
import numpy.typing as npt

Triple = npt.NDArray[np.float64]

_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
_MACHADO = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]])
_LMS = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
_VIENOT = np.array([[1.0, 0.0, 0.0], [0.494207, 0.0, 1.24827], [0.0, 0.0, 1.0]])


def linear(color: str) -> Triple:
    """Return the linear light of red, green and blue of `#rrggbb`, 0 to 1."""
    channels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    """Return the relative luminance of WCAG 2."""
    return float(_XYZ[1] @ linear(color))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(light: Triple) -> Triple:
    """Return CIELAB of linear light."""
    ratio = (_XYZ @ light) / (_XYZ @ np.ones(3))
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def machado(light: Triple) -> Triple:
    """Return the light that looks to everybody as `light` does to a deuteranope, by Machado et al."""
    return np.clip(_MACHADO @ light, 0, 1)


def vienot(light: Triple) -> Triple:
    """Return the light that looks to everybody as `light` does to a deuteranope, by Vienot et al."""
    seen: Triple = np.clip(np.linalg.inv(_LMS) @ _VIENOT @ _LMS @ light, 0, 1)
    return seen


def difference(one: Triple, other: Triple) -> float:
    """Return CIE76 of two lights: their distance in CIELAB."""
    return float(np.linalg.norm(lab(one) - lab(other)))


def lightness(color: str) -> float:
    """Return L* of a color, which is all that is left of it in grey."""
    return float(lab(linear(color))[0])


XTERM_16 = {
    40: "#000000",
    41: "#cd0000",
    42: "#00cd00",
    43: "#cdcd00",
    44: "#0000ee",
    45: "#cd00cd",
    46: "#00cdcd",
    47: "#e5e5e5",
    100: "#7f7f7f",
    101: "#ff0000",
    102: "#00ff00",
    103: "#ffff00",
    104: "#5c5cff",
    105: "#ff00ff",
    106: "#00ffff",
    107: "#ffffff",
}
"""The default colors of xterm by the codes of backgrounds."""


def xterm_256(index: int) -> str:
    """Return a color of the palette of 256: a cube of 6 levels from 16 on, greys from 232 on."""
    if index >= 232:
        return "#" + f"{8 + 10 * (index - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    return "#" + "".join(f"{levels[(index - 16) // 6**power % 6]:02x}" for power in (2, 1, 0))
