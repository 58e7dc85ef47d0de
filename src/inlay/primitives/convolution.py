"""Convolution and deconvolution: images times weights, in windows, along one to three spatial axes.

Deconvolution is the gradient of a convolution with respect to its source, as a primitive of its own: what is src here
is dst there.
"""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.primitives.algorithms import CONVOLUTION
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.products import WeightedBackwardData, WeightedBackwardWeights, dst_type, require_factors
from inlay.primitives.rules import IMAGE_AXES, choice, desc_of, require_dims, require_ndims, settled
from inlay.primitives.spatial import PerAxis, Place, walk


class _Convolving(Primitive):
    """What convolution and deconvolution share: they differ in which side the window walks over."""

    __slots__ = ()
    walks_over: ClassVar[str]
    """The argument that the window walks over, src or dst."""

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
        """Create it; `dst` left out has the dims that follow and any format.

        Numbers of the window are for each spatial axis, or one for all; `padding_r` left out is what makes dst fit, or
        `padding_l` where dst is left out.

        Raises:
            InvalidArguments: axes, channels, dims, types or the window do not fit, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        image, filters = desc_of(place, "src", src), desc_of(place, "weights", weights)
        require_factors(place, image, filters)
        channels = _channels(place, image, filters)
        kernel = filters.dims[2 + filters.ndims - image.ndims :]
        if dst is not None:
            require_ndims(place, "dst", desc_of(place, "dst", dst), image.ndims, image.ndims, IMAGE_AXES)
        walked = walk(*self._sides(image, dst), kernel, strides, dilations, padding_l, padding_r)
        spatial = walked.image if self.walks_over == "dst" else walked.result
        dims = (image.dims[0], channels, *spatial)
        if bias is not None:
            require_dims(place, "bias", desc_of(place, "bias", bias), (channels,), f"{channels} output channels")
        descs = {"src": image, "weights": filters, "bias": bias}
        descs["dst"] = settled(place, "dst", dst, dims, dst_type(image), "src, weights and window")
        purpose = forward_kind(place, prop_kind)
        parameters = {"algorithm": choice(place, "algorithm", algorithm, CONVOLUTION), **walked.parameters}
        self._create(purpose, descs, parameters, attributes, engine, avoid)

    @classmethod
    def _sides(cls, src: MemoryDesc, dst: MemoryDesc | None) -> tuple[Place, Dims | None, Dims | None]:
        """The names of what the window walks over and of what has an element for each position; their spatial dims."""
        inputs, outputs = src.dims[2:], None if dst is None else dst.dims[2:]
        if cls.walks_over == "src":
            return Place(cls.__name__, "src", "dst"), inputs, outputs
        return Place(cls.__name__, "dst", "src"), outputs, inputs


def _channels(place: str, src: MemoryDesc, weights: MemoryDesc) -> int:
    """How many output channels the weights give, which must take those of src."""
    require_ndims(place, "src", src, 3, 5, IMAGE_AXES)
    axes = "output and input channels and a kernel for each spatial axis, before them groups where there are several"
    require_ndims(place, "weights", weights, src.ndims, src.ndims + 1, axes)
    grouped = weights.ndims > src.ndims
    groups = weights.dims[0] if grouped else 1
    outputs, inputs = weights.dims[grouped : grouped + 2]
    if groups * inputs != src.dims[1]:
        counted = f"{groups} groups of {inputs}" if grouped else f"{inputs}"
        raise InvalidArguments(
            f"{place}: weights {weights.dims} take {counted} input channels, src {src.dims} has {src.dims[1]}: "
            "make them equal"
        )
    for i, extent in enumerate(weights.dims[grouped + 2 :]):
        if extent < 1:
            raise InvalidArguments(f"{place}: the kernel of weights {weights.dims} is empty along spatial axis {i}")
    return groups * outputs


class Convolution(_Convolving):
    """Convolution: each output is the sum over a window and the input channels of its group.

        dst[n, o, y] = bias[o] + sum over i, k of weights[o, i, k]
                                 * src[n, i, y * stride + k * (dilation + 1) - padding_l]

    | argument | dims | format |
    |---|---|---|
    | src | (N, IC, H, W), or (N, IC, W), or (N, IC, D, H, W) | any |
    | weights | (OC, IC, KH, KW), or with groups (G, OC / G, IC / G, KH, KW) | any |
    | bias | (OC,), may be left out | any |
    | dst | (N, OC, OH, OW) | any |

    OH = (H - ((KH - 1)(dilation + 1) + 1) + padding_l + padding_r) / stride + 1, rounded down. Types: f32, bf16, f16,
    f64 with weights of the same, s8 and u8 with weights of s8 into any type, f32 where dst is left out. Depthwise
    convolution has as many groups as channels.

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
    walks_over = "src"


class ConvolutionBackwardData(WeightedBackwardData):
    """The gradient of a convolution with respect to its source.

        diff_src[n, i, x] = sum over o, k, y with y * stride + k * (dilation + 1) - padding_l == x
                            of diff_dst[n, o, y] * weights[o, i, k]

    | argument | dims | format |
    |---|---|---|
    | diff_dst | those of dst | any |
    | weights | those of weights | any; often another one than forward chose |
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


class Deconvolution(_Convolving):
    """Deconvolution, or transposed convolution: each input is spread over a window of the output.

        dst[n, o, x] = bias[o] + sum over i, k, y with y * stride + k * (dilation + 1) - padding_l == x
                       of src[n, i, y] * weights[o, i, k]

    | argument | dims | format |
    |---|---|---|
    | src | (N, IC, H, W), or (N, IC, W), or (N, IC, D, H, W) | any |
    | weights | (OC, IC, KH, KW), or with groups (G, OC / G, IC / G, KH, KW) | any |
    | bias | (OC,), may be left out | any |
    | dst | (N, OC, OH, OW) | any |

    OH = (H - 1) * stride + (KH - 1)(dilation + 1) + 1 - padding_l - padding_r where dst is left out; up to stride - 1
    more where it is given. Weights of a framework that keeps them as (IC, OC, KH, KW) are the same memory with axes
    permuted: `desc.permute_axes((1, 0, 2, 3))`.

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
    walks_over = "dst"


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
