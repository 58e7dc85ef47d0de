"""Convolution and deconvolution (transposed convolution), along one to three spatial axes.

Deconvolution is the gradient of a convolution with respect to its source, as a primitive of its own: the source of a
deconvolution corresponds to the destination of a convolution.
"""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.primitives.algorithms import CONVOLUTION
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.primitive import Primitive, require_forward_kind
from inlay.primitives.products import WeightedBackwardData, WeightedBackwardWeights, default_dst_type, require_factors
from inlay.primitives.rules import (
    IMAGE_AXES,
    require_bias,
    require_choice,
    require_desc,
    require_image_dst,
    require_ndims,
    resolve_desc,
)
from inlay.primitives.spatial import PerAxis, WindowNames, infer_window


class _ConvolutionBase(Primitive):
    """Base class of convolution and deconvolution, which differ in the tensor over which the window slides."""

    __slots__ = ()
    window_side: ClassVar[str]
    """Name of the argument over which the window slides: src or dst."""

    def __init__(
        self,
        src: MemoryDesc,
        weights: MemoryDesc,
        bias: MemoryDesc | None = None,
        dst: MemoryDesc | None = None,
        *,
        prop_kind: str = "forward_inference",
        algorithm: str = "direct",
        strides: PerAxis = 1,
        dilations: PerAxis = 0,
        padding_l: PerAxis = 0,
        padding_r: PerAxis | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive; `dst`, if left out, has the implied dims and any format.

        Parameters of the window are one number for all spatial axes, or one for each. `padding_r`, if left out, is the
        padding that gives the dims of `dst`; if `dst` is left out too, it is `padding_l`.

        Raises:
            InvalidArguments: axes, channels, dims, types or the window are inconsistent, or an argument is rejected by
                `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = type(self).__name__
        image, filters = require_desc(primitive_name, "src", src), require_desc(primitive_name, "weights", weights)
        require_factors(primitive_name, image, filters)
        channels = _channels(primitive_name, image, filters)
        kernel = filters.dims[2 + filters.ndims - image.ndims :]
        require_image_dst(primitive_name, dst, image)
        window = infer_window(*self._sides(image, dst), kernel, strides, dilations, padding_l, padding_r)
        spatial = window.image if self.window_side == "dst" else window.result
        dims = (image.dims[0], channels, *spatial)
        require_bias(primitive_name, bias, channels)
        descs = {"src": image, "weights": filters, "bias": bias}
        descs["dst"] = resolve_desc(
            primitive_name, "dst", dst, dims, default_dst_type(image), "src, weights and window"
        )
        purpose = require_forward_kind(primitive_name, prop_kind)
        parameters = {
            "algorithm": require_choice(primitive_name, "algorithm", algorithm, CONVOLUTION),
            **window.parameters,
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)

    @classmethod
    def _sides(cls, src: MemoryDesc, dst: MemoryDesc | None) -> tuple[WindowNames, Dims | None, Dims | None]:
        """Return, for `infer_window`, the names of the two tensors, and the spatial dims of each.

        The first is the tensor over which the window slides, the second has an element for each position.
        """
        inputs, outputs = src.dims[2:], None if dst is None else dst.dims[2:]
        if cls.window_side == "src":
            return WindowNames(cls.__name__, "src", "dst"), inputs, outputs
        return WindowNames(cls.__name__, "dst", "src"), outputs, inputs


def _channels(primitive_name: str, src: MemoryDesc, weights: MemoryDesc) -> int:
    """Check the axes and channels of source and weights, and return the number of output channels."""
    require_ndims(primitive_name, "src", src, 3, 5, IMAGE_AXES)
    axes = "output and input channels and a kernel for each spatial axis, before them groups where there are several"
    require_ndims(primitive_name, "weights", weights, src.ndims, src.ndims + 1, axes)
    grouped = weights.ndims > src.ndims
    groups = weights.dims[0] if grouped else 1
    outputs, inputs = weights.dims[grouped : grouped + 2]
    if groups * inputs != src.dims[1]:
        counted = f"{groups} groups of {inputs}" if grouped else f"{inputs}"
        raise InvalidArguments(
            f"{primitive_name}: weights {weights.dims} take {counted} input channels, src {src.dims} has "
            f"{src.dims[1]}: make them equal"
        )
    for i, extent in enumerate(weights.dims[grouped + 2 :]):
        if extent < 1:
            raise InvalidArguments(
                f"{primitive_name}: the kernel of weights {weights.dims} is empty along spatial axis {i}"
            )
    return groups * outputs


class Convolution(_ConvolutionBase):
    """Convolution: each output is a weighted sum over a window and the input channels of its group.

        dst[n, o, y] = bias[o] + sum over i, k of weights[o, i, k]
                                 * src[n, i, y * stride + k * (dilation + 1) - padding_l]

    | argument | dims | format |
    |---|---|---|
    | src | (N, IC, H, W), or (N, IC, W), or (N, IC, D, H, W) | any |
    | weights | (OC, IC, KH, KW), or with groups (G, OC / G, IC / G, KH, KW) | any |
    | bias | (OC,), may be left out | any |
    | dst | (N, OC, OH, OW) | any |

    OH = (H - ((KH - 1)(dilation + 1) + 1) + padding_l + padding_r) / stride + 1, rounded down. Types: f32, bf16, f16
    and f64 with weights of the same type; s8 and u8 with weights of s8 and any type of dst, f32 if dst is left out. A
    depthwise convolution has as many groups as channels.

    Source: oneAPI specification, "Convolution and deconvolution"; LeCun et al. 1998, "Gradient-based learning applied
    to document recognition".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 1, 4, 4), "f32", "any"), MemoryDesc((1, 1, 3, 3), "f32", "any")
    >>> conv = Convolution(src, weights, padding_l=1, strides=2, engine="reference")
    >>> conv.dst_desc.dims
    (1, 1, 2, 2)
    >>> image = pack(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), conv.src_desc)
    >>> conv(src=image, weights=pack(np.ones((1, 1, 3, 3), np.float32), conv.weights_desc)).unpack().tolist()
    [[[[10.0, 24.0], [51.0, 90.0]]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "convolution"
    window_side = "src"


class ConvolutionBackwardData(WeightedBackwardData):
    """The gradient of a convolution with respect to its source.

        diff_src[n, i, x] = sum over o, k, y with y * stride + k * (dilation + 1) - padding_l == x
                            of diff_dst[n, o, y] * weights[o, i, k]

    | argument | dims | format |
    |---|---|---|
    | diff_dst | those of dst | any |
    | weights | those of weights | any; often different from the format of forward |
    | diff_src | those of src | any |

    Source: oneAPI specification, "Convolution and deconvolution".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 1, 1, 3), "f32", "any"), MemoryDesc((1, 1, 1, 2), "f32", "any")
    >>> conv = Convolution(src, weights, prop_kind="forward_training", engine="reference")
    >>> gradient = ConvolutionBackwardData(hint_forward=conv)
    >>> line = pack(np.array([[[[1, 10]]]], np.float32), gradient.diff_dst_desc)
    >>> window = pack(np.array([[[[2, 3]]]], np.float32), gradient.weights_desc)
    >>> gradient(diff_dst=line, weights=window).unpack().tolist()
    [[[[2.0, 23.0, 30.0]]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "convolution"
    forward = Convolution


class ConvolutionBackwardWeights(WeightedBackwardWeights):
    """The gradient of a convolution with respect to its weights, and to its bias if it has one.

        diff_weights[o, i, k] = sum over n, y of diff_dst[n, o, y]
                                * src[n, i, y * stride + k * (dilation + 1) - padding_l]
        diff_bias[o]          = sum over n, y of diff_dst[n, o, y]

    | argument | dims | format |
    |---|---|---|
    | src | those of src | any |
    | diff_dst | those of dst | any |
    | diff_weights | those of weights | any |
    | diff_bias | those of bias | any |

    Source: oneAPI specification, "Convolution and deconvolution".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 1, 1, 3), "f32", "any"), MemoryDesc((1, 1, 1, 2), "f32", "any")
    >>> conv = Convolution(src, weights, prop_kind="forward_training", engine="reference")
    >>> gradient = ConvolutionBackwardWeights(hint_forward=conv)
    >>> image = pack(np.array([[[[1, 2, 3]]]], np.float32), gradient.src_desc)
    >>> line = pack(np.array([[[[1, 10]]]], np.float32), gradient.diff_dst_desc)
    >>> gradient(src=image, diff_dst=line).unpack().tolist()
    [[[[21.0, 32.0]]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "convolution"
    forward = Convolution


class Deconvolution(_ConvolutionBase):
    """Deconvolution, or transposed convolution: each input is multiplied by a window and added to the output.

        dst[n, o, x] = bias[o] + sum over i, k, y with y * stride + k * (dilation + 1) - padding_l == x
                       of src[n, i, y] * weights[o, i, k]

    | argument | dims | format |
    |---|---|---|
    | src | (N, IC, H, W), or (N, IC, W), or (N, IC, D, H, W) | any |
    | weights | (OC, IC, KH, KW), or with groups (G, OC / G, IC / G, KH, KW) | any |
    | bias | (OC,), may be left out | any |
    | dst | (N, OC, OH, OW) | any |

    OH = (H - 1) * stride + (KH - 1)(dilation + 1) + 1 - padding_l - padding_r if dst is left out; the caller's dst may
    have up to stride - 1 more. Weights that a framework stores as (IC, OC, KH, KW) can be used without a copy, with
    permuted axes: `desc.permute_axes((1, 0, 2, 3))`.

    Source: oneAPI specification, "Convolution and deconvolution"; Zeiler et al. 2010, "Deconvolutional networks".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 1, 1, 2), "f32", "any"), MemoryDesc((1, 1, 1, 3), "f32", "any")
    >>> deconv = Deconvolution(src, weights, strides=2, engine="reference")
    >>> line = pack(np.array([[[[1, 10]]]], np.float32), deconv.src_desc)
    >>> window = pack(np.array([[[[1, 2, 3]]]], np.float32), deconv.weights_desc)
    >>> deconv(src=line, weights=window).unpack().tolist()
    [[[[1.0, 2.0, 13.0, 20.0, 30.0]]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "deconvolution"
    window_side = "dst"


class DeconvolutionBackwardData(WeightedBackwardData):
    """The gradient of a deconvolution with respect to its source: a convolution of `diff_dst`.

        diff_src[n, i, y] = sum over o, k of weights[o, i, k]
                            * diff_dst[n, o, y * stride + k * (dilation + 1) - padding_l]

    | argument | dims | format |
    |---|---|---|
    | diff_dst | those of dst | any |
    | weights | those of weights | any |
    | diff_src | those of src | any |

    Source: oneAPI specification, "Convolution and deconvolution".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 1, 1, 2), "f32", "any"), MemoryDesc((1, 1, 1, 3), "f32", "any")
    >>> deconv = Deconvolution(src, weights, strides=2, prop_kind="forward_training", engine="reference")
    >>> gradient = DeconvolutionBackwardData(hint_forward=deconv)
    >>> line = pack(np.arange(1, 6, dtype=np.float32).reshape(1, 1, 1, 5), gradient.diff_dst_desc)
    >>> window = pack(np.array([[[[1, 2, 3]]]], np.float32), gradient.weights_desc)
    >>> gradient(diff_dst=line, weights=window).unpack().tolist()
    [[[[14.0, 26.0]]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "deconvolution"
    forward = Deconvolution


class DeconvolutionBackwardWeights(WeightedBackwardWeights):
    """The gradient of a deconvolution with respect to its weights, and to its bias if it has one.

        diff_weights[o, i, k] = sum over n, y of src[n, i, y]
                                * diff_dst[n, o, y * stride + k * (dilation + 1) - padding_l]
        diff_bias[o]          = sum over n, x of diff_dst[n, o, x]

    | argument | dims | format |
    |---|---|---|
    | src | those of src | any |
    | diff_dst | those of dst | any |
    | diff_weights | those of weights | any |
    | diff_bias | those of bias | any |

    Source: oneAPI specification, "Convolution and deconvolution".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src, weights = MemoryDesc((1, 1, 1, 2), "f32", "any"), MemoryDesc((1, 1, 1, 3), "f32", "any")
    >>> deconv = Deconvolution(src, weights, strides=2, prop_kind="forward_training", engine="reference")
    >>> gradient = DeconvolutionBackwardWeights(hint_forward=deconv)
    >>> line = pack(np.arange(1, 6, dtype=np.float32).reshape(1, 1, 1, 5), gradient.diff_dst_desc)
    >>> gradient(src=pack(np.array([[[[1, 10]]]], np.float32), gradient.src_desc), diff_dst=line).unpack().tolist()
    [[[[31.0, 42.0, 53.0]]]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "deconvolution"
    forward = Deconvolution
