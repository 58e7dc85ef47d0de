"""What multiplies by weights: the rules that convolution, deconvolution, inner product and matmul share, and gradients.

All are compute-intensive, so every format may be any: the engine chooses what is fastest for the machine.

Source: oneAPI specification, "Convolution and deconvolution", "Inner product", "Matmul".
"""

from typing import ClassVar

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.primitive import Primitive, forward_of, like_forward
from inlay.primitives.rules import type_of
from inlay.primitives.slow_kernels import Avoid

_FLOATS = ("f32", "bf16", "f16", "f64", "f8_e5m2", "f8_e4m3", "f4_e2m1")
_QUANTIZED = ("s8", "u8")
_PACKED = ("s8", "u8", "s4", "u4")


def require_factors(place: str, src: MemoryDesc, weights: MemoryDesc, compressed: bool = False) -> None:
    """Refuse types that are not multiplied with one another.

    Raises:
        InvalidArguments: floats with weights of another type (integers only where weights may be `compressed`), or
            integers other than s8 and u8 with other weights than s8.
    """
    first, second = type_of(src).name, type_of(weights).name
    allowed: tuple[str, ...] = ()
    if first in _FLOATS:
        allowed = tuple(name for name in _FLOATS if name == first or name[:2] == first[:2] == "f8")
        allowed += _PACKED if compressed else ()
    elif first in _QUANTIZED:
        allowed = _PACKED if compressed else ("s8",)
    else:
        known = ", ".join((*_FLOATS, *_QUANTIZED))
        raise InvalidArguments(f"{place}: src is {first}: a product takes one of {known}, reorder it to one")
    if second not in allowed:
        raise InvalidArguments(
            f"{place}: weights are {second} and src is {first}, which is multiplied by {' or '.join(allowed)}: reorder "
            "one of them"
        )


def dst_type(src: MemoryDesc) -> DataType:
    """The type of a destination that is left out: that of floats, f32 for integers."""
    data_type = type_of(src)
    return data_type if data_type.kind == "float" else DATA_TYPES["f32"]


class WeightedBackwardData(Primitive):
    """The gradient with respect to the source; the classes of each kind say its formula."""

    __slots__ = ()
    forward: ClassVar[type[Primitive]]
    """The class whose gradient it is."""

    def __init__(
        self,
        diff_dst: MemoryDesc | None = None,
        weights: MemoryDesc | None = None,
        diff_src: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `hint_forward`, with its window; descriptors left out have its dims and types and any format.

        Raises:
            InvalidArguments: the hint is missing or of inference, a descriptor has other dims, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        hint = forward_of(place, hint_forward, self.forward)
        descs = like_forward(place, hint, diff_dst=diff_dst, weights=weights, diff_src=diff_src)
        parameters = hint.operation.parameters
        self._create("backward_data", descs, parameters, attributes=attributes, hint=hint, engine=engine, avoid=avoid)


class WeightedBackwardWeights(Primitive):
    """The gradient with respect to weights and bias; the classes of each kind say its formula."""

    __slots__ = ()
    forward: ClassVar[type[Primitive]]
    """The class whose gradient it is."""

    def __init__(
        self,
        src: MemoryDesc | None = None,
        diff_dst: MemoryDesc | None = None,
        diff_weights: MemoryDesc | None = None,
        diff_bias: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `hint_forward`, with its window; descriptors left out have its dims and types and any format.

        There is a gradient of the bias where the forward primitive has a bias.

        Raises:
            InvalidArguments: the hint is missing or of inference, a descriptor has other dims, `diff_bias` is given
                without a bias, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        hint = forward_of(place, hint_forward, self.forward)
        if diff_bias is not None and hint.bias_desc.is_zero:
            raise InvalidArguments(f"{place}: diff_bias is given, and hint_forward has no bias: leave it out")
        descs = like_forward(place, hint, src=src, diff_dst=diff_dst, diff_weights=diff_weights)
        if not hint.bias_desc.is_zero:
            descs |= like_forward(place, hint, diff_bias=diff_bias)
        parameters = hint.operation.parameters
        self._create(
            "backward_weights", descs, parameters, attributes=attributes, hint=hint, engine=engine, avoid=avoid
        )
