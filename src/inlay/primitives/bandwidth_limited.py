"""Bandwidth-limited primitives: elementwise functions, PReLU, softmax, shuffle and reduction.

Their run time is that of reading and writing memory, so they compute in the format of their source instead of
reordering it. In a backward primitive, data tensors have the formats of the forward primitive, and gradients may be
`any`. `UnaryBackward` is the base class of gradients of operations with one source and one destination.

Source: oneAPI specification, "Memory format propagation".
"""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.algorithms import ALL_ELTWISE, REDUCTION, SOFTMAX, USE_DST
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, descs_like_forward, require_forward, require_forward_kind
from inlay.primitives.rules import (
    broadcast_dims,
    format_axis_count,
    require_axis,
    require_choice,
    require_desc,
    require_integer,
    require_number,
    same_shape_descs,
)


class UnaryBackward(Primitive):
    """Base class of gradients of operations with one source and one destination; subclasses document the formula."""

    __slots__ = ()
    forward: ClassVar[type[Primitive]]
    """Class of the forward primitive."""
    forward_data: ClassVar[tuple[str, ...]] = ()
    """Names of the arguments of the forward primitive that the gradient reads."""

    def __init__(
        self,
        diff_dst: MemoryDesc | None = None,
        diff_src: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the gradient of `hint_forward`, with its parameters.

        A gradient that is left out has the dims and type of the forward argument, and any format.

        Raises:
            InvalidArguments: the hint is missing or was created for inference, a gradient has other dims, or an
                argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = type(self).__name__
        hint = require_forward(primitive_name, hint_forward, self.forward)
        descs = {name: hint.desc(name) for name in self._forward_data(hint)}
        descs |= descs_like_forward(primitive_name, hint, diff_dst=diff_dst, diff_src=diff_src)
        self._create("backward", descs, hint.operation.parameters, attributes, engine, avoid, hint)

    @classmethod
    def _forward_data(cls, hint: Primitive) -> tuple[str, ...]:
        """Return the names of the arguments of `hint` that the gradient reads."""
        return cls.forward_data


class Eltwise(Primitive):
    """A function of each element: `dst = f(src)`.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | not any |
    | dst | those of src | may be any |

    `algorithm` is a name of `algorithms.ALL_ELTWISE`; `algorithms.ELTWISE` has the formulas, with the parameters
    `alpha` and `beta`. The gradient of an algorithm that ends in `use_dst_for_bwd` reads dst instead of src. The
    primitive may be computed in place.

    Source: oneAPI specification, "Elementwise".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> relu = Eltwise(MemoryDesc((1, 2, 2, 2), "f32", "nhwc"), algorithm="relu", engine="reference")
    >>> relu.dst_desc.tag
    'acdb'
    >>> relu(src=pack(np.arange(-4, 4, dtype=np.float32).reshape(1, 2, 2, 2), "nhwc")).unpack().ravel()
    array([0., 0., 0., 0., 0., 1., 2., 3.], dtype=float32)
    """

    __slots__ = ()
    kind: ClassVar[str] = "eltwise"
    in_place = frozenset({("src", "dst")})

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        algorithm: str,
        alpha: float = 0.0,
        beta: float = 0.0,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive for `src`.

        Raises:
            InvalidArguments: dst has other dims, there is no such algorithm, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Eltwise"
        source, purpose = require_desc(primitive_name, "src", src), require_forward_kind(primitive_name, prop_kind)
        descs = same_shape_descs(primitive_name, source, dst)
        parameters: dict[str, Parameter] = {
            "algorithm": require_choice(primitive_name, "algorithm", algorithm, ALL_ELTWISE),
            "alpha": require_number(primitive_name, "alpha", alpha),
            "beta": require_number(primitive_name, "beta", beta),
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)


class EltwiseBackward(UnaryBackward):
    """The gradient of an elementwise function: `diff_src = diff_dst f'(src)`.

    | argument | dims | format |
    |---|---|---|
    | src; with `use_dst_for_bwd`: dst | as forward | as forward |
    | diff_dst, diff_src | those of src | may be any |

    It may be computed in place.

    Source: oneAPI specification, "Elementwise".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> x = pack(np.array([[-1.0, 2.0]], np.float32), "ab")
    >>> square = Eltwise(x.desc, algorithm="square", prop_kind="forward_training", engine="reference")
    >>> EltwiseBackward(hint_forward=square)(src=x, diff_dst=pack(np.ones((1, 2), np.float32), "ab")).unpack()
    array([[-2.,  4.]], dtype=float32)
    """

    __slots__ = ()
    kind: ClassVar[str] = "eltwise"
    in_place = frozenset({("diff_dst", "diff_src")})
    forward = Eltwise

    @classmethod
    def _forward_data(cls, hint: Primitive) -> tuple[str, ...]:
        return ("dst",) if hint.operation.parameters["algorithm"] in USE_DST else ("src",)


class PReLU(Primitive):
    """ReLU with learned slopes: `dst = src if src > 0 else weights * src`.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | not any |
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
        """Create the primitive.

        Raises:
            InvalidArguments: weights cannot be broadcast to src, dst has other dims, or an argument is rejected by
                `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "PReLU"
        source, slopes = require_desc(primitive_name, "src", src), require_desc(primitive_name, "weights", weights)
        if broadcast_dims(primitive_name, ("src", "weights"), source.dims, slopes.dims) != source.dims:
            raise InvalidArguments(
                f"PReLU: weights {slopes.dims} are larger than src {source.dims}: give each axis that dim or 1"
            )
        descs = {"src": source, "weights": slopes, **same_shape_descs(primitive_name, source, dst)}
        self._create(require_forward_kind(primitive_name, prop_kind), descs, {}, attributes, engine, avoid)


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
        """Create the gradient of `hint_forward`.

        Weights that are left out have their forward descriptor; gradients have the forward dims and any format.

        Raises:
            InvalidArguments: the hint is missing or was created for inference, a descriptor has other dims, or an
                argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "PReLUBackward"
        hint = require_forward(primitive_name, hint_forward, PReLU)
        descs = {"src": hint.src_desc, "weights": hint.weights_desc}
        if weights is not None:
            descs |= descs_like_forward(primitive_name, hint, weights=weights)
        descs |= descs_like_forward(
            primitive_name, hint, diff_dst=diff_dst, diff_src=diff_src, diff_weights=diff_weights
        )
        self._create("backward", descs, {}, attributes, engine, avoid, hint)


class Softmax(Primitive):
    """Softmax along an axis: `dst = exp(src - max) / sum of exp(src - max)`, or with algorithm `log` its logarithm.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | not any |
    | dst | those of src | may be any |

    It may be computed in place.

    Source: oneAPI specification, "Softmax".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> row = pack(np.array([[0, 0, np.log(2)]], np.float32), "ab")
    >>> Softmax(row.desc, axis=1, engine="reference")(src=row).unpack().tolist()
    [[0.25, 0.25, 0.5]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "softmax"
    in_place = frozenset({("src", "dst")})

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        axis: int,
        algorithm: str = "accurate",
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive for `src`.

        Raises:
            InvalidArguments: there is no such axis, dst has other dims, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Softmax"
        source, purpose = require_desc(primitive_name, "src", src), require_forward_kind(primitive_name, prop_kind)
        descs = same_shape_descs(primitive_name, source, dst)
        chosen = require_choice(primitive_name, "algorithm", algorithm, SOFTMAX)
        parameters: dict[str, Parameter] = {
            "algorithm": chosen,
            "axis": require_axis(primitive_name, "axis", axis, source.ndims),
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)


class SoftmaxBackward(UnaryBackward):
    """The gradient of softmax: `diff_src = dst * (diff_dst - sum of diff_dst * dst)`.

    With algorithm `log` it is `diff_dst - exp(dst) * sum of diff_dst`.

    | argument | dims | format |
    |---|---|---|
    | dst | those of src | as forward |
    | diff_dst, diff_src | those of src | may be any |

    It may be computed in place.

    Source: oneAPI specification, "Softmax".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> row = pack(np.zeros((1, 2), np.float32), "ab")
    >>> softmax = Softmax(row.desc, axis=1, prop_kind="forward_training", engine="reference")
    >>> gradient = SoftmaxBackward(hint_forward=softmax)
    >>> gradient(dst=softmax(src=row), diff_dst=pack(np.array([[1, 0]], np.float32), "ab")).unpack().tolist()
    [[0.25, -0.25]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "softmax"
    in_place = frozenset({("diff_dst", "diff_src")})
    forward = Softmax
    forward_data = ("dst",)


class Shuffle(Primitive):
    """Channel shuffle along an axis: view it as a matrix with rows of `group_size` elements, and transpose the matrix.

        dst[.., j * rows + i, ..] = src[.., i * group_size + j, ..],    rows = dims[axis] / group_size

    | argument | dims | format |
    |---|---|---|
    | src | any dims | not any |
    | dst | those of src | may be any |

    Source: oneAPI specification, "Shuffle"; Zhang et al. 2018, "ShuffleNet".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> row = pack(np.arange(6, dtype=np.float32).reshape(1, 6), "ab")
    >>> Shuffle(row.desc, axis=1, group_size=3, engine="reference")(src=row).unpack().tolist()
    [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "shuffle"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        axis: int,
        group_size: int,
        prop_kind: str = "forward_inference",
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive for `src`.

        Raises:
            InvalidArguments: there is no such axis, groups do not divide it, dst has other dims, or an argument is
                rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Shuffle"
        source = require_desc(primitive_name, "src", src)
        along = require_axis(primitive_name, "axis", axis, source.ndims)
        size = require_integer(primitive_name, "group_size", group_size, 1)
        if source.dims[along] < size or source.dims[along] % size:
            raise InvalidArguments(
                f"Shuffle: axis {along} of src {source.dims} has {source.dims[along]} coordinates, which {size} does "
                "not divide: give a group_size that does"
            )
        purpose, parameters = require_forward_kind(primitive_name, prop_kind), {"axis": along, "group_size": size}
        self._create(purpose, same_shape_descs(primitive_name, source, dst), parameters, attributes, engine, avoid)


class ShuffleBackward(UnaryBackward):
    """The gradient of a shuffle: the inverse permutation.

    | argument | dims | format |
    |---|---|---|
    | diff_dst, diff_src | those of src | may be any |

    Source: oneAPI specification, "Shuffle".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> row = pack(np.arange(6, dtype=np.float32).reshape(1, 6), "ab")
    >>> shuffle = Shuffle(row.desc, axis=1, group_size=3, prop_kind="forward_training", engine="reference")
    >>> ShuffleBackward(hint_forward=shuffle)(diff_dst=shuffle(src=row)).unpack().tolist()
    [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "shuffle"
    forward = Shuffle


class Reduction(Primitive):
    """Reduction: the max, sum, mean ... of src along the axes where dst has a dim of 1 and src a larger one.

        norm_lp_max          (max(sum |x|^p, eps))^(1/p)      norm_lp_power_p_max    max(sum |x|^p, eps)
        norm_lp_sum          (sum |x|^p + eps)^(1/p)          norm_lp_power_p_sum    sum |x|^p + eps

    | argument | dims | format |
    |---|---|---|
    | src | any dims | not any |
    | dst | as many axes, each 1 or the dim of src | may be any |

    Source: oneAPI specification, "Reduction".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows = pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ab")
    >>> Reduction(rows.desc, MemoryDesc((2, 1), "f32", "any"), algorithm="mean", engine="reference")(src=rows).unpack()
    array([[1.],
           [4.]], dtype=float32)
    """

    __slots__ = ()
    kind: ClassVar[str] = "reduction"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        *,
        algorithm: str,
        p: float = 0.0,
        eps: float = 0.0,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive; the parameters `p` and `eps` are read by norms only.

        Raises:
            InvalidArguments: dims are inconsistent, no axis is reduced, p of a norm is less than 1, or an argument is
                rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Reduction"
        source, result = require_desc(primitive_name, "src", src), require_desc(primitive_name, "dst", dst)
        if result.ndims != source.ndims:
            raise InvalidArguments(
                f"{primitive_name}: src {source.dims} has {format_axis_count(source.ndims)}, dst {result.dims} has "
                f"{result.ndims}: keep axes that are reduced, with a dim of 1"
            )
        for i, (n, out) in enumerate(zip(source.dims, result.dims, strict=True)):
            if out not in (1, n):
                raise InvalidArguments(
                    f"{primitive_name}: axis {i} of dst {result.dims} has {out} coordinates: it has 1, or {n} as src"
                )
        if result.dims == source.dims:
            raise InvalidArguments(
                f"{primitive_name}: dst has the dims of src, {source.dims}: give axes that are reduced a dim of 1"
            )
        chosen = require_choice(primitive_name, "algorithm", algorithm, REDUCTION)
        power = require_number(primitive_name, "p", p)
        if chosen.startswith("norm") and power < 1:
            raise InvalidArguments(f"{primitive_name}: p is {power}: {chosen} needs at least 1")
        descs = {"src": source, "dst": result}
        parameters: dict[str, Parameter] = {
            "algorithm": chosen,
            "p": power,
            "eps": require_number(primitive_name, "eps", eps),
        }
        self._create("forward_inference", descs, parameters, attributes, engine, avoid)
