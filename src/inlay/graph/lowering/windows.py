"""The numbers of a window: of ONNX's attributes, oneDNN's parameters.

ONNX counts a dense window's dilation as 1, oneDNN as 0. The padding at the end is what the result's dims ask for, so
that `auto_pad` and `ceil_mode` need no rules of their own: of all that give these dims, that nearest to 0.

>>> Window((3,), (2,), (1,), (1,)).parameters((8,), (4,))
{'strides': (2,), 'dilations': (0,), 'padding_l': (1,), 'padding_r': (0,)}
"""

from dataclasses import dataclass

from inlay.graph.lowering.draft import Draft, require
from inlay.layout import Dims

MOST_SPATIAL_AXES = 3


@dataclass(frozen=True, slots=True)
class Window:
    """A window that walks over an image; one entry for each spatial axis."""

    kernel: Dims
    """Taps."""
    strides: Dims
    """Steps."""
    dilations: Dims
    """Distance between taps, 1 if they are neighbors."""
    padding_l: Dims
    """Padding before the image."""

    @property
    def extents(self) -> Dims:
        """Elements from the first tap to the last, both included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def padding_r(self, image: Dims, result: Dims) -> Dims:
        """The padding after the image with which the window takes `result` positions."""
        sides = zip(image, result, self.extents, self.strides, self.padding_l, strict=True)
        least = [((o - 1) * s + e - n - p, s) for n, o, e, s, p in sides]
        return tuple(max(pad, min(0, pad + s - 1)) for pad, s in least)

    def parameters(self, image: Dims, result: Dims) -> dict[str, Dims]:
        """What oneDNN is told, where the window walks over `image` and takes `result` positions."""
        return {
            "strides": self.strides,
            "dilations": tuple(d - 1 for d in self.dilations),
            "padding_l": self.padding_l,
            "padding_r": self.padding_r(image, result),
        }


def window(draft: Draft, kernel: Dims, image: Dims, result: Dims) -> Window:
    """The window of a convolution or a pooling from `image` to `result`, both without batch and channels.

    Raises:
        Declined: there are no or too many spatial axes, or padding is negative.
    """
    strides, dilations = steps(draft, len(image))
    pads = tuple(draft.attribute("pads") or (0,) * 2 * len(image))[: len(image)]
    mode = draft.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        unpadded = Window(kernel, strides, dilations, (0,) * len(image))
        totals = unpadded.padding_r(image, result)
        pads = tuple(halved(max(total, 0), mode == "SAME_LOWER") for total in totals)
    elif mode == "VALID":
        pads = (0,) * len(image)
    require(min(draft.attribute("pads") or (0,)) >= 0, "its padding is negative")
    return Window(kernel, strides, dilations, pads)


def steps(draft: Draft, count: int) -> tuple[Dims, Dims]:
    """Strides and dilations of `count` spatial axes.

    Raises:
        Declined: there are no or too many spatial axes.
    """
    require(0 < count <= MOST_SPATIAL_AXES, f"it has {count} spatial axes, primitives have 1 to {MOST_SPATIAL_AXES}")
    strides, dilations = (tuple(draft.attribute(name) or (1,) * count) for name in ("strides", "dilations"))
    return strides, dilations


def halved(total: int, is_more_before: bool) -> int:
    """The part of the padding that is before the image."""
    return total - total // 2 if is_more_before else total // 2
