"""Pooling and resampling, which change the spatial extents of images, and the windows that walk over an image.

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
from typing import Any, ClassVar, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.primitives.algorithms import POOLING, RESAMPLING
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.bandwidth_limited import MappedBackward
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.rules import (
    IMAGE_AXES,
    choice,
    desc_of,
    integer,
    is_sequence,
    number,
    require_ndims,
    settled,
    type_of,
)

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
class WindowGeometry:
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
    strides: PerAxis,
    dilations: PerAxis,
    padding_l: PerAxis,
    padding_r: PerAxis | None,
) -> WindowGeometry:
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
    return WindowGeometry(image, found, steps, gaps, before, after)


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


class Pooling(Primitive):
    """Pooling: `dst[n, c, y] = the max, or the mean, over k of src[n, c, y * stride + k * (dilation + 1) - padding_l]`.

    | argument | dims | format |
    |---|---|---|
    | src | (N, C, H, W), or (N, C, W), or (N, C, D, H, W) | as it arrives |
    | dst | (N, C, OH, OW), OH as for convolution | may be any |
    | workspace | the engine's own; written in training where backward needs it | the engine's own |

    `algorithm` is max, avg_include_padding (divides by the whole window) or avg_exclude_padding (by its elements that
    are not padding). Padding counts as the least number for max, as 0 for the mean.

    Source: oneAPI specification, "Pooling".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), "nhwc")
    >>> pooling = Pooling(image.desc, algorithm="max", kernel=2, strides=2, engine="reference")
    >>> pooling(src=image).unpack().tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "pooling"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        algorithm: str,
        kernel: PerAxis,
        strides: PerAxis = 1,
        dilations: PerAxis = 0,
        padding_l: PerAxis = 0,
        padding_r: PerAxis | None = None,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it; numbers of the window are as for `Convolution`.

        Raises:
            InvalidArguments: axes, dims or the window do not fit, a window of avg_exclude_padding could lie in padding
                alone, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "Pooling"
        image = desc_of(place, "src", src)
        require_ndims(place, "src", image, 3, 5, IMAGE_AXES)
        if dst is not None:
            require_ndims(place, "dst", desc_of(place, "dst", dst), image.ndims, image.ndims, IMAGE_AXES)
        window = per_axis(place, "kernel", kernel, image.ndims - 2, 1)
        places = Place(place, "src", "dst")
        outcome = None if dst is None else dst.dims[2:]
        walked = walk(places, image.dims[2:], outcome, window, strides, dilations, padding_l, padding_r)
        chosen = choice(place, "algorithm", algorithm, POOLING)
        if chosen == "avg_exclude_padding":
            _require_elements(window, walked)
        dims, purpose = (*image.dims[:2], *walked.result), forward_kind(place, prop_kind)
        descs = {"src": image, "dst": settled(place, "dst", dst, dims, type_of(image), "src and window")}
        parameters = {"algorithm": chosen, "kernel": window, **walked.parameters}
        self._create(purpose, descs, parameters, attributes, engine, avoid)


def _require_elements(window: tuple[int, ...], walked: WindowGeometry) -> None:
    sides = zip(window, walked.dilations, walked.padding_l, walked.padding_r, strict=True)
    for i, (size, gap, *padding) in enumerate(sides):
        extent = (size - 1) * (gap + 1) + 1
        if max(padding) >= extent or gap >= walked.image[i] > 0:
            raise InvalidArguments(
                f"Pooling: along spatial axis {i} a window of {size} elements, {gap} left out between two, "
                f"may hold padding alone: the image has {walked.image[i]} with {padding[0]} + {padding[1]} of padding, "
                "and the mean of no element is not defined: use less padding or dilation, or avg_include_padding"
            )


class PoolingBackward(MappedBackward):
    """The gradient of pooling: each diff_dst goes to the place of the max, or in equal parts to its window.

    | argument | dims | format |
    |---|---|---|
    | diff_dst | those of dst | may be any |
    | diff_src | those of src | may be any |
    | workspace | for max: what forward wrote | the engine's own |

    Source: oneAPI specification, "Pooling".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.array([[[1, 3, 2, 0]]], np.float32), "ncw")
    >>> max2 = Pooling(
    ...     image.desc, algorithm="max", kernel=2, strides=2, prop_kind="forward_training", engine="reference"
    ... )
    >>> kept = max2(src=image)
    >>> gradient = PoolingBackward(hint_forward=max2)
    >>> line = pack(np.array([[[5, 7]]], np.float32), gradient.diff_dst_desc)
    >>> gradient(diff_dst=line, workspace=kept["workspace"]).unpack().tolist()
    [[[0.0, 5.0, 7.0, 0.0]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "pooling"
    forward = Pooling


class Resampling(Primitive):
    """Resampling: the image at other resolutions, `factor = output / input` for each spatial axis.

        nearest:  dst[.., y, ..] = src[.., round((y + 0.5) / factor - 0.5), ..]
        linear:   the mean of the elements on both sides of (y + 0.5) / factor - 0.5, weighted by nearness

    | argument | dims | format |
    |---|---|---|
    | src | (N, C, H, W), or (N, C, W), or (N, C, D, H, W) | as it arrives |
    | dst | (N, C, OH, OW), OH = H * factor, rounded down | may be any |

    Source: oneAPI specification, "Resampling".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> line = pack(np.array([[[0, 4]]], np.float32), "ncw")
    >>> Resampling(line.desc, factors=2, algorithm="linear", engine="reference")(src=line).unpack().tolist()
    [[[0.0, 1.0, 3.0, 4.0]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "resampling"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        factors: float | Iterable[float] | None = None,
        algorithm: str = "nearest",
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `factors`, one for all spatial axes or one for each, or for the dims of `dst`.

        Raises:
            InvalidArguments: neither or both of factors and dst say the dims, axes or dims do not fit, or what
                `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "Resampling"
        image = desc_of(place, "src", src)
        require_ndims(place, "src", image, 3, 5, IMAGE_AXES)
        if (dst is None) == (factors is None):
            raise InvalidArguments(f"{place}: dst and factors both say the dims of the result: give one of them")
        if dst is None:
            spatial = _resized(place, image.dims[2:], factors)
        else:
            require_ndims(place, "dst", desc_of(place, "dst", dst), image.ndims, image.ndims, IMAGE_AXES)
            spatial = dst.dims[2:]
        dims = (*image.dims[:2], *spatial)
        descs = {"src": image, "dst": settled(place, "dst", dst, dims, type_of(image), "batch and channels of src")}
        purpose = forward_kind(place, prop_kind)
        parameters: dict[str, Parameter] = {
            "algorithm": choice(place, "algorithm", algorithm, RESAMPLING),
            "factors": tuple(out / max(n, 1) for n, out in zip(image.dims[2:], spatial, strict=True)),
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)


def _resized(place: str, spatial: tuple[int, ...], factors: Any) -> tuple[int, ...]:
    # One more than there may be says that there are too many, however many there are.
    each = tuple(islice(factors, len(spatial) + 1)) if is_sequence(factors) else (factors,) * len(spatial)
    if len(each) != len(spatial):
        raise InvalidArguments(
            f"{place}: factors {shown(each)} are {len(each)}, src has {len(spatial)} spatial axes: give one each"
        )
    numbers = [number(place, "factor", factor) for factor in each]
    for factor in numbers:
        if factor <= 0:
            raise InvalidArguments(f"{place}: factor is {factor}: give a positive number")
    return tuple(int(n * factor) for n, factor in zip(spatial, numbers, strict=True))


class ResamplingBackward(MappedBackward):
    """The gradient of resampling: each diff_dst goes to the elements that it was made of, by their weights.

    | argument | dims | format |
    |---|---|---|
    | diff_dst | those of dst | may be any |
    | diff_src | those of src | may be any |

    Source: oneAPI specification, "Resampling".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> line = pack(np.array([[[0, 4]]], np.float32), "ncw")
    >>> twice = Resampling(line.desc, factors=2, prop_kind="forward_training", engine="reference")
    >>> gradient = ResamplingBackward(hint_forward=twice)
    >>> gradient(diff_dst=pack(np.array([[[1, 2, 3, 4]]], np.float32), gradient.diff_dst_desc)).unpack().tolist()
    [[[3.0, 7.0]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "resampling"
    forward = Resampling
