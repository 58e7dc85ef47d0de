"""Batch, layer and group normalization, and local response normalization.

The first three normalize elements to mean 0 and variance 1, over different axes:

    dst = scale * (src - mean) / sqrt(variance + epsilon) + shift

| kind | mean and variance over | dims of mean and variance | dims of scale and shift |
|---|---|---|---|
| batch | batch and space | (C,) | (C,) |
| layer | the last axis | all dims but the last | (C,), the last dim |
| group | space and the channels of a group | (N, groups) | (C,) |

Flags select the arguments:

    use_global_stats       mean and variance are read; without it they are computed, and written in training
    use_scale, use_shift   scale and shift are read; without them they are 1 and 0
    fuse_norm_relu         batch normalization only: a ReLU at the end; in training it writes a workspace
    fuse_norm_add_relu     batch normalization only: add src_1, then a ReLU; in training it writes a workspace
    rms_norm               layer normalization only: the mean is 0

Local response normalization divides each element by a power of the sum of squares of its neighborhood.
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
from inlay.primitives.bandwidth_limited import UnaryBackward
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, descs_like_forward, require_forward, require_forward_kind
from inlay.primitives.rules import (
    IMAGE_AXES,
    PropKind,
    require_choice,
    require_desc,
    require_flags,
    require_integer,
    require_ndims,
    require_number,
    resolve_desc,
    same_shape_descs,
)

FLAGS = ("use_global_stats", "use_scale", "use_shift")
"""Flags of batch, layer and group normalization."""
BACKWARD: tuple[PropKind, ...] = ("backward", "backward_data")
"""Propagation kinds of the backward primitives: with and without the gradients of scale and shift."""


class Normalization(Primitive):
    """Base class of batch, layer and group normalization, forward."""

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
        primitive_name = type(self).__name__
        parameters = {**others, "epsilon": require_number(primitive_name, "epsilon", epsilon, 0.0), "flags": flags}
        kind = require_forward_kind(primitive_name, prop_kind)
        descs = same_shape_descs(primitive_name, src, dst)
        if kind == "forward_training" or "use_global_stats" in flags:
            tag = "abcdefghijkl"[: len(stat_dims)]
            statistics = resolve_desc(
                primitive_name, "stat", stat, stat_dims, as_data_type("f32"), f"src {src.dims}", tag
            )
            descs |= {
                name: statistics for name in ("mean", "variance") if name == "variance" or "rms_norm" not in flags
            }
        for name in ("scale", "shift"):
            if f"use_{name}" in flags:
                descs[name] = MemoryDesc((channels,), scale_shift_type, "a")
        if "fuse_norm_add_relu" in flags:
            descs["src_1"] = src
        self._create(kind, descs, parameters, attributes, engine, avoid)


class NormalizationBackward(Primitive):
    """Base class of the gradients of batch, layer and group normalization."""

    __slots__ = ()
    in_place = frozenset({("diff_dst", "diff_src")})
    forward: ClassVar[type[Primitive]]
    """Class of the forward primitive."""

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
        """Create the gradient of `hint_forward`, with its flags.

        With `prop_kind="backward_data"` the gradients of scale and shift are not computed.

        Raises:
            InvalidArguments: the hint is missing or was created for inference, a gradient has other dims, or an
                argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = type(self).__name__
        hint = require_forward(primitive_name, hint_forward, self.forward)
        wanted = require_choice(primitive_name, "prop_kind", prop_kind, BACKWARD)
        flags: Any = hint.operation.parameters["flags"]
        descs = {name: hint.desc(name) for name in ("src", "mean", "variance", "scale") if name in hint.operation.descs}
        descs |= descs_like_forward(primitive_name, hint, diff_dst=diff_dst, diff_src=diff_src)
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
    | src | (N, C), or with one to three spatial axes (N, C, H, W) | not any |
    | dst | those of src | may be any |
    | mean, variance | (C,), f32: read with `use_global_stats`, else written in training | a |
    | scale, shift | (C,), f32: with `use_scale`, `use_shift` | a |
    | src_1 | those of src: with `fuse_norm_add_relu` | as src |
    | workspace | with a fused relu, written in training | chosen by the engine |

    It may be computed in place. The variance is that of the population: the sum of squares is divided by the number of
    elements.

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
        """Create the primitive; `flags` is the name of a flag or a collection of names.

        Raises:
            InvalidArguments: axes or dims are inconsistent, a flag is unknown, or an argument is rejected by
                `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "BatchNormalization"
        image = require_desc(primitive_name, "src", src)
        require_ndims(primitive_name, "src", image, 2, 5, "batch, channels and up to three spatial axes")
        channels = image.dims[1]
        known = require_flags(primitive_name, flags, FLAGS + _FUSED)
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
    | mean, variance | (C,): as read or written by forward | a |
    | scale | (C,): with `use_scale` | a |
    | diff_dst, diff_src | those of src | may be any |
    | diff_scale, diff_shift | (C,): with the flags, unless prop_kind is `backward_data` | a |
    | workspace | with a fused relu: the result of forward | chosen by the engine |

    It may be computed in place.

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
    | src | (T, C), or with more axes before the last | not any |
    | dst | those of src | may be any |
    | mean, variance | all but the last, f32: read with `use_global_stats`, else written in training | that of `stat` |
    | scale, shift | (C,), of `scale_shift_data_type`: with `use_scale`, `use_shift` | a |

    With the flag `rms_norm` the mean is 0, and is not an argument. `stat`, if left out, is row-major. It may be
    computed in place.

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
        """Create the primitive; `stat` is the descriptor of mean and variance.

        Raises:
            InvalidArguments: axes or dims are inconsistent, a flag is unknown, or an argument is rejected by
                `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "LayerNormalization"
        rows = require_desc(primitive_name, "src", src)
        require_ndims(primitive_name, "src", rows, 2, 5, "one to four axes, and the one that is normalized")
        known = require_flags(primitive_name, flags, (*FLAGS, "rms_norm"))
        dims, dtype = rows.dims, scale_shift_data_type
        self._normalize(
            rows, dst, dims[:-1], dims[-1], known, epsilon, prop_kind, attributes, engine, avoid, stat, dtype
        )


class LayerNormalizationBackward(NormalizationBackward):
    """The gradient of layer normalization: the formula of `BatchNormalizationBackward`, with sums over the last axis.

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | mean, variance | those of src but the last: as read or written by forward | as forward |
    | scale | (C,): with `use_scale` | a |
    | diff_dst, diff_src | those of src | may be any |
    | diff_scale, diff_shift | (C,): with the flags, unless prop_kind is `backward_data` | a |

    It may be computed in place.

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
    | src | (N, C, H, W), or (N, C, W), or (N, C, D, H, W) | not any |
    | dst | those of src | may be any |
    | mean, variance | (N, groups), f32: read with `use_global_stats`, else written in training | ab |
    | scale, shift | (C,), f32: with `use_scale`, `use_shift` | a |

    With as many groups as channels it is instance normalization. It may be computed in place. oneDNN supports it from
    3.3 on; with earlier releases the reference engine computes it.

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
        """Create the primitive.

        Raises:
            InvalidArguments: axes or dims are inconsistent, groups do not divide the channels, a flag is unknown, or an
                argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "GroupNormalization"
        image = require_desc(primitive_name, "src", src)
        require_ndims(primitive_name, "src", image, 3, 5, IMAGE_AXES)
        count = require_integer(primitive_name, "groups", groups, 1)
        channels = image.dims[1]
        if channels % count:
            raise InvalidArguments(
                f"GroupNormalization: src {image.dims} has {channels} channels, which {count} groups do not divide: "
                "give a divisor"
            )
        known = require_flags(primitive_name, flags, FLAGS)
        options = epsilon, prop_kind, attributes, engine, avoid
        self._normalize(image, dst, (image.dims[0], count), channels, known, *options, others={"groups": count})


class GroupNormalizationBackward(NormalizationBackward):
    """The gradient of group normalization: the formula of `BatchNormalizationBackward`, with sums over each group.

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | mean, variance | (N, groups): as read or written by forward | ab |
    | scale | (C,): with `use_scale` | a |
    | diff_dst, diff_src | those of src | may be any |
    | diff_scale, diff_shift | (C,): with the flags, unless prop_kind is `backward_data` | a |

    It may be computed in place.

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

    The neighborhood is centered at the element: `local_size` channels, n = local_size; or with `within_channel`
    local_size elements along each spatial axis, n = local_size ^ spatial axes. Elements outside the tensor count as 0.

    | argument | dims | format |
    |---|---|---|
    | src | (N, C, H, W), or any with channels second | not any |
    | dst | those of src | may be any |
    | workspace | the engine's own; written in training where backward needs it | chosen by the engine |

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
        """Create the primitive for `src`.

        Raises:
            InvalidArguments: axes or dims are inconsistent, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "LRN"
        image = require_desc(primitive_name, "src", src)
        require_ndims(primitive_name, "src", image, 3, 5, IMAGE_AXES)
        size, purpose = (
            require_integer(primitive_name, "local_size", local_size, 1),
            require_forward_kind(primitive_name, prop_kind),
        )
        descs = same_shape_descs(primitive_name, image, dst)
        parameters: dict[str, Parameter] = {
            "algorithm": require_choice(primitive_name, "algorithm", algorithm, LRN_ALGORITHMS),
            "local_size": size,
            "alpha": require_number(primitive_name, "alpha", alpha),
            "beta": require_number(primitive_name, "beta", beta),
            "k": require_number(primitive_name, "k", k),
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)


class LRNBackward(UnaryBackward):
    """The gradient of local response normalization.

        diff_src = diff_dst * omega ^ -beta - 2 alpha beta / n * src * sum over the neighborhood of
                   diff_dst * src * omega ^ (-beta - 1),    omega = k + alpha / n * sum of src^2

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | diff_dst, diff_src | those of src | may be any |
    | workspace | the result of forward, if there is one | chosen by the engine |

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
    forward_data = ("src",)
