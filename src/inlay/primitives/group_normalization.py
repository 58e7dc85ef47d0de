"""Group normalization and its gradient."""

from typing import Any, ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.normalizing import FLAGS, Normalization, NormalizationBackward
from inlay.primitives.operation import Parameter
from inlay.primitives.rules import desc_of, flags_of, integer, number, require_ndims
from inlay.primitives.slow_kernels import Avoid


class GroupNormalization(Normalization):
    """Group normalization: mean and variance of each group of channels of each image.

        dst[n, c, x] = scale[c] * (src[n, c, x] - mean[n, g]) / sqrt(variance[n, g] + epsilon) + shift[c]

    where g is the group of c: the first C / groups channels are group 0, and so on.

    | argument | dims | format |
    |---|---|---|
    | src | (N, C, H, W), or (N, C, W), or (N, C, D, H, W) | as it arrives |
    | dst | those of src | may be any |
    | mean, variance | (N, groups), f32: read with `use_global_stats`, else written in training | ab |
    | scale, shift | (C,), f32: with `use_scale`, `use_shift` | a |

    With as many groups as channels it is instance normalization. It works in place. oneDNN has it since 3.3; elsewhere
    the reference computes it.

    Source: oneAPI specification, "Group normalization"; Wu and He 2018, "Group normalization".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.array([[[1], [3], [10], [30]]], np.float32), "ncw")
    >>> GroupNormalization(image.desc, groups=2, epsilon=0.0, engine="reference")(src=image).unpack().ravel().tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    __slots__ = ()
    kind: ClassVar[str] = "group_normalization"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        groups: int,
        epsilon: float,
        flags: Any = (),
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it.

        Raises:
            InvalidArguments: axes or dims do not fit, groups do not divide the channels, a flag is unknown, or what
                `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "GroupNormalization"
        image = desc_of(place, "src", src)
        require_ndims(place, "src", image, 3, 5, "batch, channels and one to three spatial axes")
        count = integer(place, "groups", groups, 1)
        channels = image.dims[1]
        if channels % count:
            raise InvalidArguments(
                f"GroupNormalization: src {image.dims} has {channels} channels, which {count} groups do not divide: "
                "give a divisor"
            )
        known = flags_of(place, flags, FLAGS)
        parameters: dict[str, Parameter] = {"groups": count, "epsilon": number(place, "epsilon", epsilon, 0.0)}
        dims = ((image.dims[0], count), channels)
        self._normalize(
            image, dst, None, dims, parameters, known, prop_kind, attributes=attributes, engine=engine, avoid=avoid
        )


class GroupNormalizationBackward(NormalizationBackward):
    """The gradient of group normalization: as of batch normalization, with means over each group of each image.

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | mean, variance | (N, groups): what forward read or wrote | ab |
    | scale | (C,): with `use_scale` | a |
    | diff_dst, diff_src | those of src | may be any |
    | diff_scale, diff_shift | (C,): with the flags, unless prop_kind is `backward_data` | a |

    It works in place.

    Source: oneAPI specification, "Group normalization".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = pack(np.array([[[1], [3]]], np.float32), "ncw")
    >>> norm = GroupNormalization(
    ...     image.desc, groups=1, epsilon=0.0, prop_kind="forward_training", engine="reference"
    ... )
    >>> kept = norm(src=image)
    >>> gradient = GroupNormalizationBackward(hint_forward=norm)
    >>> ones = pack(np.ones((1, 2, 1), np.float32), gradient.diff_dst_desc)
    >>> gradient(src=image, mean=kept["mean"], variance=kept["variance"], diff_dst=ones).unpack().ravel().tolist()
    [0.0, 0.0]
    """

    __slots__ = ()
    kind: ClassVar[str] = "group_normalization"
    forward = GroupNormalization
