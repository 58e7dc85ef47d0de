"""Batch normalization and its gradient."""

from typing import Any, ClassVar

from inlay.descriptor import MemoryDesc
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.normalizing import FLAGS, Normalization, NormalizationBackward
from inlay.primitives.operation import Parameter
from inlay.primitives.rules import desc_of, flags_of, number, require_ndims
from inlay.primitives.slow_kernels import Avoid

_FUSED = ("fuse_norm_relu", "fuse_norm_add_relu")


class BatchNormalization(Normalization):
    """Batch normalization: mean and variance of each channel, over batch and space.

        dst[n, c, x] = scale[c] * (src[n, c, x] - mean[c]) / sqrt(variance[c] + epsilon) + shift[c]

    | argument | dims | format |
    |---|---|---|
    | src | (N, C), or with one to three spatial axes (N, C, H, W) | as it arrives |
    | dst | those of src | may be any |
    | mean, variance | (C,), f32: read with `use_global_stats`, else written in training | a |
    | scale, shift | (C,), f32: with `use_scale`, `use_shift` | a |
    | src_1 | those of src: with `fuse_norm_add_relu` | as src |
    | workspace | with a fused relu, written in training | the engine's own |

    It works in place. The variance is that of the whole population: the sum is divided by the number of elements.

    Source: oneAPI specification, "Batch normalization"; Ioffe and Szegedy 2015, "Batch normalization".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.array([[[1, 3]], [[5, 7]]], np.float32), "ncw")
    >>> norm = BatchNormalization(image.desc, epsilon=0.0, prop_kind="forward_training", engine="reference")
    >>> written = norm(src=image)
    >>> written["mean"].unpack().tolist(), written["variance"].unpack().tolist()
    ([4.0], [5.0])
    """

    __slots__ = ()
    kind: ClassVar[str] = "batch_normalization"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        epsilon: float,
        flags: Any = (),
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it; `flags` is a name or several.

        Raises:
            InvalidArguments: axes or dims do not fit, a flag is unknown, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "BatchNormalization"
        image = desc_of(place, "src", src)
        require_ndims(place, "src", image, 2, 5, "batch, channels and up to three spatial axes")
        channels = image.dims[1]
        known = flags_of(place, flags, FLAGS + _FUSED)
        parameters: dict[str, Parameter] = {"epsilon": number(place, "epsilon", epsilon, 0.0)}
        dims = ((channels,), channels)
        self._normalize(
            image, dst, None, dims, parameters, known, prop_kind, attributes=attributes, engine=engine, avoid=avoid
        )


class BatchNormalizationBackward(NormalizationBackward):
    """The gradient of batch normalization.

        diff_shift[c] = sum over n, x of diff_dst[n, c, x]
        diff_scale[c] = sum over n, x of diff_dst[n, c, x] * xhat[n, c, x]
        xhat          = (src - mean) / sqrt(variance + epsilon)
        diff_src      = scale / sqrt(variance + epsilon) * (diff_dst - diff_shift / count - xhat * diff_scale / count)

    With `use_global_stats` the last two terms are left out.

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | mean, variance | (C,): what forward read or wrote | a |
    | scale | (C,): with `use_scale` | a |
    | diff_dst, diff_src | those of src | may be any |
    | diff_scale, diff_shift | (C,): with the flags, unless prop_kind is `backward_data` | a |
    | workspace | with a fused relu: what forward wrote | the engine's own |

    It works in place.

    Source: oneAPI specification, "Batch normalization".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.array([[[1, 3]], [[5, 7]]], np.float32), "ncw")
    >>> norm = BatchNormalization(
    ...     image.desc, epsilon=0.0, flags="use_shift", prop_kind="forward_training", engine="reference"
    ... )
    >>> kept = norm(src=image, shift=pack(np.zeros(1, np.float32), "a"))
    >>> gradient = BatchNormalizationBackward(hint_forward=norm)
    >>> ones = pack(np.ones((2, 1, 2), np.float32), gradient.diff_dst_desc)
    >>> written = gradient(src=image, mean=kept["mean"], variance=kept["variance"], diff_dst=ones)
    >>> written["diff_shift"].unpack().tolist(), np.abs(written["diff_src"].unpack()).max() < 1e-6
    ([4.0], np.True_)
    """

    __slots__ = ()
    kind: ClassVar[str] = "batch_normalization"
    forward = BatchNormalization
