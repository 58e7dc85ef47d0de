"""Batch, layer and group normalization, and local response normalization.

The first three bring elements to mean 0 and variance 1, over different axes:

    dst = scale * (src - mean) / sqrt(variance + epsilon) + shift

| kind | mean and variance over | their dims | scale and shift |
|---|---|---|---|
| batch | batch and space | (C,) | (C,) |
| layer | the last axis | all dims but the last | (C,), the last dim |
| group | space and the channels of a group | (N, groups) | (C,) |

Flags say what is read and written: `use_global_stats`: mean and variance are read; else they are computed, and in
training written. `use_scale`, `use_shift`: these are read, else they are 1 and 0. Batch normalization can have a relu
fused (`fuse_norm_relu`), and an addition before it (`fuse_norm_add_relu`, of src_1); training keeps a workspace for it.

Local response normalization divides each element by a power of the squares around it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from inlay.data_type import DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.primitives.algorithms import LRN as LRN_ALGORITHMS
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.bandwidth_limited import MappedBackward
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, forward_kind, forward_of, like_forward
from inlay.primitives.rules import (
    IMAGE_AXES,
    PropKind,
    choice,
    desc_of,
    flags_of,
    integer,
    number,
    require_ndims,
    settled,
    src_and_dst,
)

FLAGS = ("use_global_stats", "use_scale", "use_shift")
"""Flags that all three have."""
BACKWARD: tuple[PropKind, ...] = ("backward", "backward_data")
"""What a backward primitive of theirs may be run for."""


class Normalization(Primitive):
    """What the first three share, forward."""

    __slots__ = ()
    in_place = frozenset({("src", "dst")})

    def _normalize(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None,
        stat_dims: Dims,
        channels: int,
        flags: frozenset[str],
        epsilon: float,
        prop_kind: str,
        attributes: PrimitiveAttributes | None,
        engine: EngineLike,
        avoid: Avoid,
        stat: MemoryDesc | None = None,
        scale_shift_type: DataTypeLike = "f32",
        others: Mapping[str, Parameter] = MappingProxyType({}),
    ) -> None:
        """Create it with as many scales and shifts as `channels`; `others` are parameters of one class alone."""
        place = type(self).__name__
        parameters = {**others, "epsilon": number(place, "epsilon", epsilon, 0.0), "flags": flags}
        kind = forward_kind(place, prop_kind)
        descs = src_and_dst(place, src, dst)
        if kind == "forward_training" or "use_global_stats" in flags:
            tag = "abcdefghijkl"[: len(stat_dims)]
            found = settled(place, "stat", stat, stat_dims, as_data_type("f32"), f"src {src.dims}", tag)
            descs |= {name: found for name in ("mean", "variance") if name == "variance" or "rms_norm" not in flags}
        for name in ("scale", "shift"):
            if f"use_{name}" in flags:
                descs[name] = MemoryDesc((channels,), scale_shift_type, "a")
        if "fuse_norm_add_relu" in flags:
            descs["src_1"] = src
        self._create(kind, descs, parameters, attributes, engine, avoid)


class NormalizationBackward(Primitive):
    """What the first three share, backward."""

    __slots__ = ()
    in_place = frozenset({("diff_dst", "diff_src")})
    forward: ClassVar[type[Primitive]]
    """The class whose gradient it is."""

    def __init__(
        self,
        diff_dst: MemoryDesc | None = None,
        diff_src: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        prop_kind: str = "backward",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `hint_forward`, with its flags; `backward_data` leaves out gradients of scale and shift.

        Raises:
            InvalidArguments: the hint is missing or of inference, a gradient has other dims, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        hint = forward_of(place, hint_forward, self.forward)
        wanted = choice(place, "prop_kind", prop_kind, BACKWARD)
        flags: Any = hint.operation.parameters["flags"]
        descs = {name: hint.desc(name) for name in ("src", "mean", "variance", "scale") if name in hint.operation.descs}
        descs |= like_forward(place, hint, diff_dst=diff_dst, diff_src=diff_src)
        for name in ("scale", "shift"):
            if wanted == "backward" and f"use_{name}" in flags:
                descs[f"diff_{name}"] = hint.desc(name)
        if "fuse_norm_add_relu" in flags:
            descs["diff_src_1"] = descs["diff_src"]
        self._create(wanted, descs, hint.operation.parameters, attributes, engine, avoid, hint)


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
        self._normalize(image, dst, (channels,), channels, known, epsilon, prop_kind, attributes, engine, avoid)


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
        dims, dtype = rows.dims, scale_shift_data_type
        self._normalize(
            rows, dst, dims[:-1], dims[-1], known, epsilon, prop_kind, attributes, engine, avoid, stat, dtype
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
        require_ndims(place, "src", image, 3, 5, IMAGE_AXES)
        count = integer(place, "groups", groups, 1)
        channels = image.dims[1]
        if channels % count:
            raise InvalidArguments(
                f"GroupNormalization: src {image.dims} has {channels} channels, which {count} groups do not divide: "
                "give a divisor"
            )
        known = flags_of(place, flags, FLAGS)
        told = (image.dims[0], count), channels, known, epsilon, prop_kind, attributes, engine, avoid
        self._normalize(image, dst, *told, others={"groups": count})


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
        require_ndims(place, "src", image, 3, 5, IMAGE_AXES)
        size, purpose = integer(place, "local_size", local_size, 1), forward_kind(place, prop_kind)
        descs = src_and_dst(place, image, dst)
        parameters: dict[str, Parameter] = {
            "algorithm": choice(place, "algorithm", algorithm, LRN_ALGORITHMS),
            "local_size": size,
            "alpha": number(place, "alpha", alpha),
            "beta": number(place, "beta", beta),
            "k": number(place, "k", k),
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)


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
