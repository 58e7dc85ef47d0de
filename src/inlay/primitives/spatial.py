"""Pooling and resampling, and the geometry of sliding windows, which convolutions use too.

A window of `kernel` elements with `dilations` elements between neighbors covers (kernel - 1)(dilation + 1) + 1
elements, its extent. It starts `padding_l` elements before the image and moves in steps of `strides`, as long as it
ends at most `padding_r` elements after the image. Along each spatial axis, the number of positions is

    result = (image - extent + padding_l + padding_r) / stride + 1, rounded down

Windows of convolution and pooling slide over src, and dst has an element for each position; windows of deconvolution
slide over dst.

>>> names = WindowNames("Convolution", "src", "dst")
>>> infer_window(names, (224, 224), None, (7, 7), strides=2, dilations=0, padding_l=3, padding_r=None).result
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
from inlay.primitives.bandwidth_limited import UnaryBackward
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, require_forward_kind
from inlay.primitives.rules import (
    IMAGE_AXES,
    is_sequence,
    require_choice,
    require_desc,
    require_image_dst,
    require_integer,
    require_ndims,
    require_number,
    resolve_desc,
    type_of,
)

PerAxis: TypeAlias = int | Iterable[int]
"""One number for all spatial axes, or one for each."""


@dataclass(frozen=True, slots=True)
class WindowNames:
    """Names for error texts: the class of the primitive and its two image arguments."""

    primitive: str
    """Class of the primitive."""
    image: str
    """Name of the argument over which the window slides."""
    result: str
    """Name of the argument with one element for each position of the window."""


@dataclass(frozen=True, slots=True)
class WindowGeometry:
    """The parameters of a sliding window and the spatial dims of both tensors; one entry for each spatial axis."""

    image: Dims
    """Extents of the image over which the window slides, in elements."""
    result: Dims
    """Numbers of positions of the window."""
    strides: Dims
    """Steps between neighboring positions, in elements."""
    dilations: Dims
    """Numbers of elements skipped between two neighboring elements of the window; 0 for a dense window."""
    padding_l: Dims
    """Padding before the image, in elements."""
    padding_r: Dims
    """Padding after the image, in elements; from -stride on. Negative padding ignores the end of the image."""

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of the window by the names of `SIGNATURES`."""
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "padding_l": self.padding_l,
            "padding_r": self.padding_r,
        }


def infer_window(
    names: WindowNames,
    image: Dims | None,
    result: Dims | None,
    kernel: Dims,
    strides: PerAxis,
    dilations: PerAxis,
    padding_l: PerAxis,
    padding_r: PerAxis | None,
) -> WindowGeometry:
    """Check the parameters of a window, and compute those that are None.

    One of `image` and `result` may be None and is computed from the other. If `padding_r` is None, it is the padding
    for which `image` and `result` agree, or `padding_l` if one of them is None.

    Raises:
        InvalidArguments: a parameter is not an integer, too small, or has a wrong number of entries; the window is
            larger than the padded image; or the dims of `image` and `result` do not agree.
    """
    count = len(kernel)
    steps = per_axis(names.primitive, "strides", strides, count, 1)
    gaps = per_axis(names.primitive, "dilations", dilations, count, 0)
    before = per_axis(names.primitive, "padding_l", padding_l, count, 0)
    extents = tuple((k - 1) * (gap + 1) + 1 for k, gap in zip(kernel, gaps, strict=True))
    if padding_r is not None:
        after = per_axis(names.primitive, "padding_r", padding_r, count, None)
    elif image is None or result is None:
        after = before
    else:
        after = tuple(map(_fitting, image, result, extents, steps, before))
    for i, (pad, step) in enumerate(zip(after, steps, strict=True)):
        if pad + step < 0:
            raise InvalidArguments(
                f"{names.primitive}: padding_r of spatial axis {i} is {pad}: it is at least -stride, {-step}"
            )
    if image is None:
        if result is None:
            raise InvalidArguments(f"{names.primitive}: neither {names.image} nor {names.result} is known: give one")
        image = tuple(map(_covered, result, steps, extents, before, after))
    positions = tuple(map(_positions, image, extents, steps, before, after))
    _require_fit(names, image, result, positions, extents, (steps, before, after))
    return WindowGeometry(image, positions, steps, gaps, before, after)


def per_axis(primitive_name: str, name: str, value: Any, count: int, least: int | None) -> Dims:
    """Return `count` integers from `value`, which is one integer for all axes or a collection of `count`.

    Raises:
        InvalidArguments: `value` is neither, or an integer is less than `least`.
    """
    lowest = -(2**63) if least is None else least
    if not isinstance(value, Iterable) or getattr(value, "shape", None) == ():
        return (require_integer(primitive_name, name, value, lowest),) * count
    if not is_sequence(value):
        raise InvalidArguments(f"{primitive_name}: {name} is {shown(value)}: give one number, or a tuple of {count}")
    # The collection may be infinite: read only as many entries as show that there are too many.
    numbers = tuple(
        require_integer(primitive_name, name, entry, lowest) for entry in islice(value, max(_MOST_AXES, count + 1))
    )
    if len(numbers) != count:
        raise InvalidArguments(
            f"{primitive_name}: {name} {numbers} has {len(numbers)} entries, there are {count} spatial axes: give one "
            f"number, or {count}"
        )
    return numbers


_MOST_AXES = 12


def _fitting(image: int, result: int, extent: int, step: int, before: int) -> int:
    """Return the padding after the image, as close to 0 as possible, with which the window has `result` positions."""
    least = (result - 1) * step + extent - image - before
    return max(least, min(0, least + step - 1))


def _covered(result: int, step: int, extent: int, before: int, after: int) -> int:
    """Return the smallest extent of an image in which the window has `result` positions."""
    return (result - 1) * step + extent - before - after


def _positions(image: int, extent: int, step: int, before: int, after: int) -> int:
    """Return the number of positions of the window along one axis."""
    return (image - extent + before + after) // step + 1


def _require_fit(
    names: WindowNames, image: Dims, result: Dims | None, positions: Dims, extents: Dims, steps: tuple[Dims, Dims, Dims]
) -> None:
    """Check that the window fits into the padded image, and that `result` has as many elements as it has positions.

    `steps` has the strides and the padding before and after the image.
    """
    for i, (n, count, extent) in enumerate(zip(image, positions, extents, strict=True)):
        step, before, after = (numbers[i] for numbers in steps)
        if n < 0 or count < 1:
            raise InvalidArguments(
                f"{names.primitive}: along spatial axis {i} the window covers {extent} elements, and {names.image} "
                f"has {n}, with {before} + {after} of padding: give a smaller kernel or dilation, or more padding"
            )
        if result is not None and result[i] != count:
            raise InvalidArguments(
                f"{names.primitive}: spatial axis {i} of {names.result} has {result[i]} elements, and ({n} - "
                f"{extent} + {before} + {after}) / {step} + 1 is {count}: leave dst out, or change "
                "padding or strides"
            )


class Pooling(Primitive):
    """Pooling: `dst[n, c, y] = the max, or the mean, over k of src[n, c, y * stride + k * (dilation + 1) - padding_l]`.

    | argument | dims | format |
    |---|---|---|
    | src | (N, C, H, W), or (N, C, W), or (N, C, D, H, W) | not any |
    | dst | (N, C, OH, OW), OH as for convolution | may be any |
    | workspace | the engine's own; written in training where backward needs it | chosen by the engine |

    `algorithm` is max, avg_include_padding (the sum divided by the size of the window) or avg_exclude_padding (divided
    by the number of its elements that are not padding). Padding counts as the lowest number for max, as 0 for sums.

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
        """Create the primitive; the parameters of the window are as for `Convolution`.

        Raises:
            InvalidArguments: axes, dims or the window are inconsistent, a window of avg_exclude_padding could contain
                nothing but padding, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Pooling"
        image = require_desc(primitive_name, "src", src)
        require_ndims(primitive_name, "src", image, 3, 5, IMAGE_AXES)
        require_image_dst(primitive_name, dst, image)
        extents = per_axis(primitive_name, "kernel", kernel, image.ndims - 2, 1)
        names = WindowNames(primitive_name, "src", "dst")
        positions = None if dst is None else dst.dims[2:]
        window = infer_window(names, image.dims[2:], positions, extents, strides, dilations, padding_l, padding_r)
        chosen = require_choice(primitive_name, "algorithm", algorithm, POOLING)
        if chosen == "avg_exclude_padding":
            _require_elements(extents, window)
        dims, purpose = (*image.dims[:2], *window.result), require_forward_kind(primitive_name, prop_kind)
        descs = {"src": image, "dst": resolve_desc(primitive_name, "dst", dst, dims, type_of(image), "src and window")}
        parameters = {"algorithm": chosen, "kernel": extents, **window.parameters}
        self._create(purpose, descs, parameters, attributes, engine, avoid)


def _require_elements(kernel: tuple[int, ...], window: WindowGeometry) -> None:
    """Check that no window of avg_exclude_padding can contain nothing but padding: its mean is undefined."""
    sides = zip(kernel, window.dilations, window.padding_l, window.padding_r, strict=True)
    for i, (size, gap, *padding) in enumerate(sides):
        extent = (size - 1) * (gap + 1) + 1
        if max(padding) >= extent or gap >= window.image[i] > 0:
            raise InvalidArguments(
                f"Pooling: along spatial axis {i} a window of {size} elements, {gap} left out between two, "
                f"may contain nothing but padding: the image has {window.image[i]} with {padding[0]} + {padding[1]} of "
                "padding, and the mean of no element is not defined: use less padding or dilation, or "
                "avg_include_padding"
            )


class PoolingBackward(UnaryBackward):
    """The gradient of pooling: each diff_dst is added to the element with the max, or divided over its window.

    | argument | dims | format |
    |---|---|---|
    | diff_dst | those of dst | may be any |
    | diff_src | those of src | may be any |
    | workspace | for max: what forward wrote | chosen by the engine |

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
    """Resampling of images to another resolution, with `factor = output / input` for each spatial axis.

        nearest:  dst[.., y, ..] = src[.., round((y + 0.5) / factor - 0.5), ..]
        linear:   interpolation between the elements below and above (y + 0.5) / factor - 0.5

    | argument | dims | format |
    |---|---|---|
    | src | (N, C, H, W), or (N, C, W), or (N, C, D, H, W) | not any |
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
        """Create the primitive from `factors`, one for all spatial axes or one for each, or from the dims of `dst`.

        Raises:
            InvalidArguments: neither or both of factors and dst are present, axes or dims are inconsistent, or an
                argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Resampling"
        image = require_desc(primitive_name, "src", src)
        require_ndims(primitive_name, "src", image, 3, 5, IMAGE_AXES)
        if (dst is None) == (factors is None):
            raise InvalidArguments(
                f"{primitive_name}: dst and factors both determine the dims of the result: give one of them"
            )
        if dst is None:
            spatial = _scaled_extents(primitive_name, image.dims[2:], factors)
        else:
            require_image_dst(primitive_name, dst, image)
            spatial = dst.dims[2:]
        dims = (*image.dims[:2], *spatial)
        descs = {
            "src": image,
            "dst": resolve_desc(primitive_name, "dst", dst, dims, type_of(image), "batch and channels of src"),
        }
        purpose = require_forward_kind(primitive_name, prop_kind)
        parameters: dict[str, Parameter] = {
            "algorithm": require_choice(primitive_name, "algorithm", algorithm, RESAMPLING),
            "factors": tuple(out / max(n, 1) for n, out in zip(image.dims[2:], spatial, strict=True)),
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)


def _scaled_extents(primitive_name: str, spatial: tuple[int, ...], factors: Any) -> tuple[int, ...]:
    """Return the spatial extents times the factors, rounded down."""
    # The collection may be infinite: read only as many entries as show that there are too many.
    each = tuple(islice(factors, len(spatial) + 1)) if is_sequence(factors) else (factors,) * len(spatial)
    if len(each) != len(spatial):
        raise InvalidArguments(
            f"{primitive_name}: factors {shown(each)} are {len(each)}, src has {len(spatial)} spatial axes: give one "
            "each"
        )
    numbers = [require_number(primitive_name, "factor", factor) for factor in each]
    for factor in numbers:
        if factor <= 0:
            raise InvalidArguments(f"{primitive_name}: factor is {factor}: give a positive number")
    return tuple(int(n * factor) for n, factor in zip(spatial, numbers, strict=True))


class ResamplingBackward(UnaryBackward):
    """The gradient of resampling: each diff_dst is added to the source elements of its interpolation, by their weights.

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
