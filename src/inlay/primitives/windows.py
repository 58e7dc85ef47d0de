"""Windows that walk over images: one place of the result for each position that they take.

A window of `kernel` elements, `dilations` apart (0 for neighbors), covers an extent of (kernel - 1)(dilation + 1) + 1.
It starts `padding_l` before the image and takes steps of `strides` as long as it ends within `padding_r` after it:

    result = (image - extent + padding_l + padding_r) / stride + 1, rounded down

Convolution and pooling walk over src and give dst; deconvolution, the other way, walks over dst.

>>> place = Place("Convolution", "src", "dst")
>>> walk(place, (224, 224), None, (7, 7), strides=2, dilations=0, padding_l=3, padding_r=None).result
(112, 112)

Source: oneAPI specification, "Convolution"; oneDNN's checks of a convolution descriptor.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.primitives.operation import Parameter
from inlay.primitives.rules import integer, is_sequence

PerAxis: TypeAlias = int | Iterable[int]
"""A number for every spatial axis, or one for each."""


@dataclass(frozen=True, slots=True)
class Place:
    """What messages call the primitive and its two images."""

    primitive: str
    """The class."""
    image: str
    """The argument that the window walks over."""
    result: str
    """The argument that has one element for each position."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A window with all its numbers, and the spatial dims on both sides; one entry for each spatial axis."""

    image: Dims
    """Extents of what it walks over."""
    result: Dims
    """How many positions it takes."""
    strides: Dims
    """Steps."""
    dilations: Dims
    """Elements left out between two of the window."""
    padding_l: Dims
    """Padding before the image."""
    padding_r: Dims
    """Padding after it; at least -stride, which leaves a rest of the image out."""

    @property
    def parameters(self) -> dict[str, Parameter]:
        """By oneDNN's names."""
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "padding_l": self.padding_l,
            "padding_r": self.padding_r,
        }


def walk(
    place: Place,
    image: Dims | None,
    result: Dims | None,
    kernel: Dims,
    *,
    strides: PerAxis,
    dilations: PerAxis,
    padding_l: PerAxis,
    padding_r: PerAxis | None,
) -> Walk:
    """The walk of a window; one of `image` and `result` may be None and follows from the other.

    Without `padding_r` it is what makes both fit, or `padding_l` where one of them is None.

    Raises:
        InvalidArguments: a number is no integer or too small, there are not as many as spatial axes, the window is
            larger than the padded image, or the dims of both do not fit.
    """
    count = len(kernel)
    steps = per_axis(place.primitive, "strides", strides, count, 1)
    gaps = per_axis(place.primitive, "dilations", dilations, count, 0)
    before = per_axis(place.primitive, "padding_l", padding_l, count, 0)
    extents = tuple((k - 1) * (gap + 1) + 1 for k, gap in zip(kernel, gaps, strict=True))
    if padding_r is not None:
        after = per_axis(place.primitive, "padding_r", padding_r, count, None)
    elif image is None or result is None:
        after = before
    else:
        after = tuple(map(_fitting, image, result, extents, steps, before))
    for i, (pad, step) in enumerate(zip(after, steps, strict=True)):
        if pad + step < 0:
            raise InvalidArguments(
                f"{place.primitive}: padding_r of spatial axis {i} is {pad}: it is at least -stride, {-step}"
            )
    if image is None:
        if result is None:
            raise InvalidArguments(f"{place.primitive}: neither {place.image} nor {place.result} is known: give one")
        image = tuple(map(_covered, result, steps, extents, before, after))
    found = tuple(map(_positions, image, extents, steps, before, after))
    _require_fit(place, image, result, found, extents, (steps, before, after))
    return Walk(image, found, steps, gaps, before, after)


def per_axis(place: str, name: str, value: Any, count: int, least: int | None) -> Dims:
    """`value`, an integer for all of `count` axes or one for each, each at least `least`.

    Raises:
        InvalidArguments: it is something else.
    """
    lowest = -(2**63) if least is None else least
    if not isinstance(value, Iterable) or getattr(value, "shape", None) == ():
        return (integer(place, name, value, lowest),) * count
    if not is_sequence(value):
        raise InvalidArguments(f"{place}: {name} is {shown(value)}: give one number, or a tuple of {count}")
    # One more than there may be says that there are too many, however many there are.
    numbers = tuple(integer(place, name, entry, lowest) for entry in islice(value, max(_MOST_AXES, count + 1)))
    if len(numbers) != count:
        raise InvalidArguments(
            f"{place}: {name} {numbers} has {len(numbers)} entries, there are {count} spatial axes: give one "
            f"number, or {count}"
        )
    return numbers


_MOST_AXES = 12


def _fitting(image: int, result: int, extent: int, step: int, before: int) -> int:
    """The padding after the image, as near to 0 as can be, with which the window takes `result` positions."""
    least = (result - 1) * step + extent - image - before
    return max(least, min(0, least + step - 1))


def _covered(result: int, step: int, extent: int, before: int, after: int) -> int:
    """The extent of the least image in which the window takes `result` positions."""
    return (result - 1) * step + extent - before - after


def _positions(image: int, extent: int, step: int, before: int, after: int) -> int:
    return (image - extent + before + after) // step + 1


def _require_fit(
    place: Place, image: Dims, result: Dims | None, found: Dims, extents: Dims, walked: tuple[Dims, Dims, Dims]
) -> None:
    for i, (n, count, extent) in enumerate(zip(image, found, extents, strict=True)):
        step, before, after = (numbers[i] for numbers in walked)
        if n < 0 or count < 1:
            raise InvalidArguments(
                f"{place.primitive}: along spatial axis {i} the window covers {extent} elements, and {place.image} "
                f"has {n}, with {before} + {after} of padding: give a smaller kernel or dilation, or more padding"
            )
        if result is not None and result[i] != count:
            raise InvalidArguments(
                f"{place.primitive}: spatial axis {i} of {place.result} has {result[i]} elements, and ({n} - "
                f"{extent} + {before} + {after}) / {step} + 1 is {count}: leave dst out, or change "
                "padding or strides"
            )
