"""Attributes of a primitive: scales, zero points, post-operations, and the modes of scratchpad and precision.

>>> attributes = PrimitiveAttributes(post_ops=(SumPostOp(), EltwisePostOp("relu")))
>>> [type(post_op).__name__ for post_op in attributes.post_ops]
['SumPostOp', 'EltwisePostOp']

Source: oneAPI specification, "Primitive attributes"; `dnnl_primitive_attr_t` and `dnnl_post_ops_t`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints

ScratchpadMode: TypeAlias = Literal["library", "user"]
"""The owner of temporary memory: `library` for the engine, `user` for the caller."""
FpmathMode: TypeAlias = Literal["strict", "bf16", "f16", "any", "tf32"]
"""The narrowest type in which an engine may compute with f32 (`dnnl_fpmath_mode_t`)."""


@dataclass(frozen=True, slots=True)
class SumPostOp:
    """Accumulation: add the previous content of the destination, `dst = scale * (old - zero_point) + result`."""

    scale: float = 1.0
    """Factor of the old elements."""
    zero_point: int = 0
    """Zero point of the old elements; not 0 only where they are integers."""
    data_type: str | None = None
    """Data type as which the old bytes are read, of the destination's width; None for the destination's data type."""


@dataclass(frozen=True, slots=True)
class EltwisePostOp:
    """An elementwise function of the result."""

    algorithm: str
    """A name of `algorithms.ALL_ELTWISE`."""
    alpha: float = 0.0
    """First parameter of the function."""
    beta: float = 0.0
    """Second parameter of the function."""


@dataclass(frozen=True, slots=True)
class BinaryPostOp:
    """An operation with a second tensor, broadcast along axes where its dim is 1.

    Its data is the argument `post_op_N_src_1`, where N is the index of the post-operation.
    """

    algorithm: str
    """A name of `algorithms.BINARY`, except `select`, which has three sources."""
    src_1: MemoryDesc
    """Descriptor of the second tensor; may be `any`."""


@dataclass(frozen=True, slots=True)
class PReLUPostOp:
    """Parametric ReLU: multiply negative elements by weights; its data is the argument `post_op_N_weights`."""

    mask: int
    """Bit mask of the axes along which weights differ: bit i for axis i of the destination."""


@dataclass(frozen=True, slots=True)
class DepthwiseConvolution:
    """A depthwise convolution after a 1x1 convolution.

    Its data are the arguments `post_op_N_weights` and `post_op_N_bias`.
    """

    weights_type: str
    """Data type of the weights."""
    bias_type: str | None
    """Data type of the bias; None without a bias."""
    dst_type: str
    """Data type of the destination."""
    kernel: int
    """Extent of the window along each spatial axis, in elements."""
    stride: int
    """Stride of the window along each spatial axis, in elements."""
    padding: int
    """Padding before the image along each spatial axis, in elements."""


PostOp: TypeAlias = SumPostOp | EltwisePostOp | BinaryPostOp | PReLUPostOp | DepthwiseConvolution
"""An operation fused to the end of a primitive."""


@dataclass(frozen=True, slots=True)
class RecurrentScales:
    """Quantization of a recurrent network in 8 bits: `integer = scale * number + shift`.

    Source: `dnnl_primitive_attr_set_rnn_data_qparams`, `..._rnn_weights_qparams`, `..._rnn_weights_projection_qparams`.
    """

    scale: float = 1.0
    """Factor of src_layer, src_iter, dst_iter and dst_layer where they are integers."""
    shift: float = 0.0
    """Shift of the same arguments, added after the multiplication."""
    weights: tuple[float, ...] = (1.0,)
    """Factors of weights_layer and weights_iter: one for all, or one per gate and channel, channels fastest."""
    projection: tuple[float, ...] = (1.0,)
    """Factors of weights_projection: one for all, or one per output channel of the projection."""


@dataclass(frozen=True, slots=True)
class PrimitiveAttributes:
    """Attributes of a primitive: quantization, post-operations and modes.

    The values of scales and zero points are arguments of each call, named after the tensor: `src_scales`,
    `weights_zero_points`.
    """

    scales: Mapping[str, Scales] = field(default_factory=dict)
    """Scales of each scaled argument (src, weights, dst ...): their type and the axes along which they differ."""
    zero_points: Mapping[str, ZeroPoints] = field(default_factory=dict)
    """Zero points of each argument that has some: their type and the axes along which they differ."""
    post_ops: tuple[PostOp, ...] = ()
    """Post-operations, in the order in which they are applied to the result."""
    scratchpad_mode: ScratchpadMode = "library"
    """Owner of the scratchpad: the engine with `library`; with `user` the caller passes the argument `scratchpad`."""
    fpmath_mode: FpmathMode = "strict"
    """Least precise floating-point type in which f32 may be computed; `strict` is f32."""
    recurrent: RecurrentScales | None = None
    """Quantization of a recurrent network in 8 bits; None elsewhere."""
    fpmath_integers: bool = False
    """True if integer weights become floating-point numbers before they are multiplied by a floating-point source.

    Source: `dnnl_primitive_attr_set_fpmath_mode_v2`, `apply_to_int`.
    """
    rounds_source: bool = False
    """True if an engine may round the source to integers of 8 bits, in the groups of the weights' scales.

    It has effect beside `fpmath_integers`. It is `accuracy_level` 4 of ONNX Runtime's MatMulNBits.
    """

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the arguments with the values of scales and zero points, such as `src_scales`.

        >>> PrimitiveAttributes(scales={"src": Scales()}, zero_points={"dst": ZeroPoints()}).value_names
        ('src_scales', 'dst_zero_points')
        """
        scales = tuple(f"{name}_scales" for name in self.scales)
        return scales + tuple(f"{name}_zero_points" for name in self.zero_points)


WEIGHTS_SCALES = "weights_scales"
"""Argument with the values of the scales of `weights`."""
PLAIN = PrimitiveAttributes()
"""Attributes with all defaults: no quantization and no post-operation."""


def reorder_attributes(attributes: PrimitiveAttributes) -> Attributes:
    """Convert the attributes of a reorder primitive to those of `inlay.reorder`.

    Raises:
        Unimplemented: a post-operation is not supported by reorders; they support one plain sum.
        InvalidArguments: an attribute is not valid for a reorder.
    """
    match attributes.post_ops:
        case ():
            beta = None
        case (SumPostOp(scale=beta, zero_point=0, data_type=None),):
            pass
        case _:
            raise Unimplemented(
                f"a reorder is followed by one sum without a zero point or a type: {attributes.post_ops} are other "
                "post-operations, run them as primitives of their own"
            )
    return Attributes(
        src_scales=attributes.scales.get("src"),
        dst_scales=attributes.scales.get("dst"),
        src_zero_points=attributes.zero_points.get("src"),
        dst_zero_points=attributes.zero_points.get("dst"),
        sum=beta,
    )
