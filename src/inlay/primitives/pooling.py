"""Pooling: the greatest or the mean element of each window."""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.algorithms import POOLING
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.mapped import MappedBackward
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.rules import choice, desc_of, require_ndims, settled, type_of
from inlay.primitives.slow_kernels import Avoid
from inlay.primitives.windows import PerAxis, Place, Walk, per_axis, walk

_IMAGE = "batch, channels and one to three spatial axes"


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
        require_ndims(place, "src", image, 3, 5, _IMAGE)
        if dst is not None:
            require_ndims(place, "dst", desc_of(place, "dst", dst), image.ndims, image.ndims, _IMAGE)
        window = per_axis(place, "kernel", kernel, image.ndims - 2, 1)
        places = Place(place, "src", "dst")
        outcome = None if dst is None else dst.dims[2:]
        numbers = {"strides": strides, "dilations": dilations, "padding_l": padding_l}
        walked = walk(places, image.dims[2:], outcome, window, **numbers, padding_r=padding_r)
        chosen = choice(place, "algorithm", algorithm, POOLING)
        if chosen == "avg_exclude_padding":
            _require_elements(window, walked)
        dims = (*image.dims[:2], *walked.result)
        self._create(
            forward_kind(place, prop_kind),
            {"src": image, "dst": settled(place, "dst", dst, dims, type_of(image), "src and window")},
            {"algorithm": chosen, "kernel": window, **walked.parameters},
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


def _require_elements(window: tuple[int, ...], walked: Walk) -> None:
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
