"""Local response normalization."""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.primitives.algorithms import LRN as LRN_ALGORITHMS
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.mapped import MappedBackward
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.rules import choice, desc_of, integer, number, require_ndims, settled, type_of
from inlay.primitives.slow_kernels import Avoid


class LRN(Primitive):
    """Local response normalization: `dst = src * (k + alpha / n * sum over the neighborhood of src^2) ^ -beta`.

    The neighborhood is `local_size` channels around, n = local_size, or with `within_channel` local_size elements along
    each spatial axis around, n = local_size ^ spatial axes. What lies outside the tensor counts as 0.

    | argument | dims | format |
    |---|---|---|
    | src | (N, C, H, W), or any with channels second | as it arrives |
    | dst | those of src | may be any |
    | workspace | the engine's own; written in training where backward needs it | the engine's own |

    Source: oneAPI specification, "Local response normalization"; Krizhevsky et al. 2012, "ImageNet classification with
    deep convolutional neural networks".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.array([1, 2, 3], np.float32).reshape(1, 3, 1, 1), "nchw")
    >>> lrn = LRN(image.desc, local_size=3, alpha=3.0, beta=1.0, k=1.0, engine="reference")
    >>> lrn(src=image).unpack().ravel().round(4)
    array([0.1667, 0.1333, 0.2143], dtype=float32)
    """

    __slots__ = ()
    kind: ClassVar[str] = "lrn"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        local_size: int,
        alpha: float,
        beta: float,
        k: float = 1.0,
        algorithm: str = "across_channels",
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `src`.

        Raises:
            InvalidArguments: axes or dims do not fit, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "LRN"
        image = desc_of(place, "src", src)
        require_ndims(place, "src", image, 3, 5, "batch, channels and one to three spatial axes")
        size = integer(place, "local_size", local_size, 1)
        self._create(
            forward_kind(place, prop_kind),
            {"src": image, "dst": settled(place, "dst", dst, image.dims, type_of(image), f"src {image.dims}")},
            {
                "algorithm": choice(place, "algorithm", algorithm, LRN_ALGORITHMS),
                "local_size": size,
                "alpha": number(place, "alpha", alpha),
                "beta": number(place, "beta", beta),
                "k": number(place, "k", k),
            },
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


class LRNBackward(MappedBackward):
    """The gradient of local response normalization.

        diff_src = diff_dst * omega ^ -beta - 2 alpha beta / n * src * sum over the neighborhood of
                   diff_dst * src * omega ^ (-beta - 1),    omega = k + alpha / n * sum of src^2

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | diff_dst, diff_src | those of src | may be any |
    | workspace | what forward wrote, if it wrote one | the engine's own |

    Source: oneAPI specification, "Local response normalization".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.array([1, 2], np.float32).reshape(1, 2, 1), "ncw")
    >>> lrn = LRN(
    ...     image.desc, local_size=1, alpha=1.0, beta=1.0, prop_kind="forward_training", engine="reference"
    ... )
    >>> gradient = LRNBackward(hint_forward=lrn)
    >>> kept = {name: memory for name, memory in lrn(src=image).items() if name == "workspace"}
    >>> ones = pack(np.ones((1, 2, 1), np.float32), gradient.diff_dst_desc)
    >>> gradient(src=image, diff_dst=ones, **kept).unpack().ravel().round(4)
    array([ 0.  , -0.12], dtype=float32)
    """

    __slots__ = ()
    kind: ClassVar[str] = "lrn"
    forward = LRN
    kept = ("src",)
