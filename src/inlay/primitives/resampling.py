"""Resampling and reduction: a tensor with other extents along some axes."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.primitives.algorithms import RESAMPLING
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.mapped import MappedBackward
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.rules import choice, desc_of, is_sequence, number, require_ndims, settled, type_of
from inlay.primitives.slow_kernels import Avoid

_IMAGE = "batch, channels and one to three spatial axes"


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
        require_ndims(place, "src", image, 3, 5, _IMAGE)
        if (dst is None) == (factors is None):
            raise InvalidArguments(f"{place}: dst and factors both say the dims of the result: give one of them")
        if dst is None:
            spatial = _resized(place, image.dims[2:], factors)
            result = MemoryDesc((*image.dims[:2], *spatial), type_of(image), "any")
        else:
            require_ndims(place, "dst", desc_of(place, "dst", dst), image.ndims, image.ndims, _IMAGE)
            spatial = dst.dims[2:]
            result = settled(
                place, "dst", dst, (*image.dims[:2], *spatial), type_of(image), "batch and channels of src"
            )
        self._create(
            forward_kind(place, prop_kind),
            {"src": image, "dst": result},
            {
                "algorithm": choice(place, "algorithm", algorithm, RESAMPLING),
                "factors": tuple(out / max(n, 1) for n, out in zip(image.dims[2:], spatial, strict=True)),
            },
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


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
