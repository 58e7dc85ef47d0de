"""Layer normalization and its gradient."""

from typing import Any, ClassVar

from inlay.data_type import DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.normalizing import FLAGS, Normalization, NormalizationBackward
from inlay.primitives.operation import Parameter
from inlay.primitives.rules import desc_of, flags_of, number, require_ndims
from inlay.primitives.slow_kernels import Avoid


class LayerNormalization(Normalization):
    """Layer normalization: mean and variance over the last axis, for each coordinate of the others.

        dst[t, c] = scale[c] * (src[t, c] - mean[t]) / sqrt(variance[t] + epsilon) + shift[c]

    | argument | dims | format |
    |---|---|---|
    | src | (T, C), or with more axes before the last | as it arrives |
    | dst | those of src | may be any |
    | mean, variance | all but the last, f32: read with `use_global_stats`, else written in training | that of `stat` |
    | scale, shift | (C,), of `scale_shift_data_type`: with `use_scale`, `use_shift` | a |

    With the flag `rms_norm` the mean is taken for 0. `stat` left out is row-major. It works in place.

    Source: oneAPI specification, "Layer normalization"; Ba, Kiros and Hinton 2016, "Layer normalization".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows = pack(np.array([[1, 3], [10, 30]], np.float32), "ab")
    >>> LayerNormalization(rows.desc, epsilon=0.0, engine="reference")(src=rows).unpack().tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "layer_normalization"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        stat: MemoryDesc | None = None,
        *,
        epsilon: float,
        flags: Any = (),
        scale_shift_data_type: DataTypeLike = "f32",
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it; `stat` describes mean and variance.

        Raises:
            InvalidArguments: axes or dims do not fit, a flag is unknown, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "LayerNormalization"
        rows = desc_of(place, "src", src)
        require_ndims(place, "src", rows, 2, 5, "one to four axes, and the one that is normalized")
        known = flags_of(place, flags, (*FLAGS, "rms_norm"))
        parameters: dict[str, Parameter] = {"epsilon": number(place, "epsilon", epsilon, 0.0)}
        dims = (rows.dims[:-1], rows.dims[-1])
        self._normalize(
            rows,
            dst,
            stat,
            dims,
            parameters,
            known,
            prop_kind,
            scale_shift_data_type,
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


class LayerNormalizationBackward(NormalizationBackward):
    """The gradient of layer normalization: as of batch normalization, with means over the last axis.

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | mean, variance | those of src but the last: what forward read or wrote | as forward |
    | scale | (C,): with `use_scale` | a |
    | diff_dst, diff_src | those of src | may be any |
    | diff_scale, diff_shift | (C,): with the flags, unless prop_kind is `backward_data` | a |

    It works in place.

    Source: oneAPI specification, "Layer normalization".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows = pack(np.array([[1, 3]], np.float32), "ab")
    >>> norm = LayerNormalization(rows.desc, epsilon=0.0, prop_kind="forward_training", engine="reference")
    >>> kept = norm(src=rows)
    >>> gradient = LayerNormalizationBackward(hint_forward=norm)
    >>> ones = pack(np.ones((1, 2), np.float32), gradient.diff_dst_desc)
    >>> gradient(src=rows, mean=kept["mean"], variance=kept["variance"], diff_dst=ones).unpack().tolist()
    [[0.0, 0.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "layer_normalization"
    forward = LayerNormalization
