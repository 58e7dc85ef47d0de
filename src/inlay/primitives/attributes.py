"""Attributes of a primitive: scales, zero points, operations that follow, and how exact and where it may work.

>>> attributes = PrimitiveAttributes(post_ops=(Sum(), Eltwise("relu")))
>>> [type(post_op).__name__ for post_op in attributes.post_ops]
['Sum', 'Eltwise']

Source: oneAPI specification, "Primitive attributes"; `dnnl_primitive_attr_t` and `dnnl_post_ops_t`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints

ScratchpadMode: TypeAlias = Literal["library", "user"]
FpmathMode: TypeAlias = Literal["strict", "bf16", "f16", "any", "tf32"]


@dataclass(frozen=True, slots=True)
class Sum:
    """Adds what the destination held: `dst = scale * (old - zero_point) + ...`."""

    scale: float = 1.0
    """Factor of the old elements."""
    zero_point: int = 0
    """Subtracted from the old elements, which are integers."""
    data_type: str | None = None
    """The type that the old bytes are read as, of the same width; None for the destination's own."""


@dataclass(frozen=True, slots=True)
class Eltwise:
    """Applies a function to each element."""

    algorithm: str
    """A name of `algorithms.ALL_ELTWISE`."""
    alpha: float = 0.0
    """First number of the function."""
    beta: float = 0.0
    """Second number of the function."""


@dataclass(frozen=True, slots=True)
class Binary:
    """Combines each element with one of another tensor, broadcast where its dim is 1; its data is `post_op_N_src_1`."""

    algorithm: str
    """A name of `algorithms.BINARY` but `select`, which has three sources."""
    src_1: MemoryDesc
    """The other tensor; may be `any`."""


@dataclass(frozen=True, slots=True)
class PReLU:
    """Multiplies negative elements by weights along the axes of the mask; its data is `post_op_N_weights`."""

    mask: int
    """Bit i is set where each coordinate of axis i has its own weight."""


@dataclass(frozen=True, slots=True)
class DepthwiseConvolution:
    """A depthwise convolution after a 1x1 one; its data is `post_op_N_weights` and `post_op_N_bias`."""

    weights_type: str
    """Data type of its weights."""
    bias_type: str | None
    """Data type of its bias; None for none."""
    dst_type: str
    """Data type of its destination."""
    kernel: int
    """Extent of the window."""
    stride: int
    """Step of the window."""
    padding: int
    """Padding on the left."""


PostOp: TypeAlias = Sum | Eltwise | Binary | PReLU | DepthwiseConvolution


@dataclass(frozen=True, slots=True)
class RecurrentScales:
    """How the integers of a recurrent network in 8 bits stand for numbers: `integer = scale * number + shift`.

    Source: `dnnl_primitive_attr_set_rnn_data_qparams`, `..._rnn_weights_qparams`, `..._rnn_weights_projection_qparams`.
    """

    scale: float = 1.0
    """Factor of src_layer, src_iter, dst_iter and dst_layer where they are integers."""
    shift: float = 0.0
    """Added to them after the factor."""
    weights: tuple[float, ...] = (1.0,)
    """Factors of weights_layer and weights_iter: one, or one for each gate and channel, channels fastest."""
    projection: tuple[float, ...] = (1.0,)
    """Factors of weights_projection: one, or one for each channel that is projected to."""


@dataclass(frozen=True, slots=True)
class PrimitiveAttributes:
    """What a primitive computes besides its formula, and under which conditions."""

    scales: Mapping[str, Scales] = field(default_factory=dict)
    """By argument (src, weights, dst ...): its scales; the values are the argument `src_scales` and so on."""
    zero_points: Mapping[str, ZeroPoints] = field(default_factory=dict)
    """By argument: its zero points; the values are the argument `src_zero_points` and so on."""
    post_ops: tuple[PostOp, ...] = ()
    """What is applied to the result, in order."""
    scratchpad_mode: ScratchpadMode = "library"
    """Who owns the scratchpad; with `user` it is the argument `scratchpad`."""
    fpmath_mode: FpmathMode = "strict"
    """The least exact type that f32 may be computed in."""
    recurrent: RecurrentScales | None = None
    """Scales of a recurrent network in 8 bits."""


PLAIN = PrimitiveAttributes()
"""No attribute."""


def reorder_attributes(attributes: PrimitiveAttributes) -> Attributes:
    """Return the attributes of a reorder primitive as those of Inlay's reorder.

    Raises:
        Unimplemented: there is a post-operation that a reorder has not.
        InvalidArguments: the attributes are none that a reorder may have.
    """
    match attributes.post_ops:
        case ():
            beta = None
        case (Sum(scale=beta, zero_point=0, data_type=None),):
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
