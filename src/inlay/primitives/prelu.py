"""Leaky relu whose slope is learned."""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.primitive import Primitive, forward_kind, forward_of, like_forward
from inlay.primitives.rules import broadcast, desc_of, settled, type_of
from inlay.primitives.slow_kernels import Avoid


class PReLU(Primitive):
    """Relu with weights: `dst = src if src > 0 else weights * src`.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | as it arrives |
    | weights | as many axes, each of the dim of src, or 1 where it is repeated | may be any |
    | dst | those of src | may be any |

    Source: oneAPI specification, "PReLU"; He et al. 2015, "Delving deep into rectifiers".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows = pack(np.array([[1, -2], [-3, 4]], np.float32), "ab")
    >>> slope = pack(np.array([[0.5, 0.25]], np.float32), "ab")
    >>> PReLU(rows.desc, slope.desc, engine="reference")(src=rows, weights=slope).unpack().tolist()
    [[1.0, -0.5], [-1.5, 4.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "prelu"

    def __init__(
        self,
        src: MemoryDesc,
        weights: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it.

        Raises:
            InvalidArguments: weights cannot be spread over src, dst has other dims, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "PReLU"
        source, slopes = desc_of(place, "src", src), desc_of(place, "weights", weights)
        if broadcast(place, ("src", "weights"), source.dims, slopes.dims) != source.dims:
            raise InvalidArguments(
                f"PReLU: weights {slopes.dims} are larger than src {source.dims}: give each axis that dim or 1"
            )
        result = settled(place, "dst", dst, source.dims, type_of(source), f"src {source.dims}")
        self._create(
            forward_kind(place, prop_kind),
            {"src": source, "weights": slopes, "dst": result},
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


class PReLUBackward(Primitive):
    """The gradient of PReLU.

        diff_src     = diff_dst if src > 0 else weights * diff_dst
        diff_weights = sum of src * diff_dst where src <= 0, over the axes along which a weight is repeated

    | argument | dims | format |
    |---|---|---|
    | src | those of src | as forward |
    | weights, diff_weights | those of weights | may be any |
    | diff_dst, diff_src | those of src | may be any |

    Source: oneAPI specification, "PReLU".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows = pack(np.array([[1, -2], [-3, 4]], np.float32), "ab")
    >>> slope = pack(np.array([[0.5, 0.25]], np.float32), "ab")
    >>> prelu = PReLU(rows.desc, slope.desc, prop_kind="forward_training", engine="reference")
    >>> ones = pack(np.ones((2, 2), np.float32), "ab")
    >>> written = PReLUBackward(hint_forward=prelu)(src=rows, weights=slope, diff_dst=ones)
    >>> written["diff_src"].unpack().tolist(), written["diff_weights"].unpack().tolist()
    ([[1.0, 0.25], [0.5, 1.0]], [[-3.0, -2.0]])
    """

    __slots__ = ()
    kind: ClassVar[str] = "prelu"

    def __init__(
        self,
        weights: MemoryDesc | None = None,
        diff_dst: MemoryDesc | None = None,
        diff_src: MemoryDesc | None = None,
        diff_weights: MemoryDesc | None = None,
        *,
        hint_forward: PReLU | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `hint_forward`; weights left out are as there, gradients have its dims and any format.

        Raises:
            InvalidArguments: the hint is missing or of inference, a descriptor has other dims, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = "PReLUBackward"
        hint = forward_of(place, hint_forward, PReLU)
        descs = {"src": hint.src_desc, "weights": hint.weights_desc}
        if weights is not None:
            descs |= like_forward(place, hint, weights=weights)
        descs |= like_forward(place, hint, diff_dst=diff_dst, diff_src=diff_src, diff_weights=diff_weights)
        self._create("backward", descs, attributes=attributes, hint=hint, engine=engine, avoid=avoid)
