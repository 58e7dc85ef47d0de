"""Bandwidth-limited primitives: elementwise functions, PReLU, softmax, shuffle and reduction.

Such a primitive does little for each element, so it works in the format in which its source arrives. Backward, data
tensors keep the formats of forward, and gradients may be any: the engine takes what is consistent with forward.
`MappedBackward` is the base of the gradients of what maps one tensor to one of the same dims.

Source: oneAPI specification, "Memory format propagation".
"""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.algorithms import ALL_ELTWISE, REDUCTION, SOFTMAX, USE_DST
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Avoid, EngineLike, Parameter
from inlay.primitives.primitive import Primitive, forward_kind, forward_of, like_forward
from inlay.primitives.rules import axes_of, axis_of, broadcast, choice, desc_of, integer, number, src_and_dst


class MappedBackward(Primitive):
    """The gradient of what maps src to dst; the classes of each kind say its formula."""

    __slots__ = ()
    forward: ClassVar[type[Primitive]]
    """The class whose gradient it is."""
    kept: ClassVar[tuple[str, ...]] = ()
    """What it reads of forward's data."""

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
        """Create it for `hint_forward`, with its parameters; gradients left out have its dims and types and any format.

        Raises:
            InvalidArguments: the hint is missing or of inference, a gradient has other dims, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = type(self).__name__
        hint = forward_of(place, hint_forward, self.forward)
        descs = {name: hint.desc(name) for name in self._kept(hint)}
        descs |= like_forward(place, hint, diff_dst=diff_dst, diff_src=diff_src)
        self._create("backward", descs, hint.operation.parameters, attributes, engine, avoid, hint)

    @classmethod
    def _kept(cls, hint: Primitive) -> tuple[str, ...]:
        return cls.kept


class Eltwise(Primitive):
    """A function of each element: `dst = f(src)`.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | as it arrives |
    | dst | those of src | may be any |

    `algorithm` is a name of `algorithms.ALL_ELTWISE`, which has the formulas; `alpha` and `beta` are their numbers.
    Those that end in `use_dst_for_bwd` compute the same, and their gradients from dst. It works in place.

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
        """Create it for `src`.

        Raises:
            InvalidArguments: dst has other dims, there is no such algorithm, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "Eltwise"
        source, purpose = desc_of(place, "src", src), forward_kind(place, prop_kind)
        descs = src_and_dst(place, source, dst)
        parameters: dict[str, Parameter] = {
            "algorithm": choice(place, "algorithm", algorithm, ALL_ELTWISE),
            "alpha": number(place, "alpha", alpha),
            "beta": number(place, "beta", beta),
        }
        self._create(purpose, descs, parameters, attributes, engine, avoid)


class EltwiseBackward(MappedBackward):
    """The gradient of an elementwise function: `diff_src = diff_dst f'(src)`.

    | argument | dims | format |
    |---|---|---|
    | src | as forward; with `use_dst_for_bwd`: dst | as forward |
    | diff_dst, diff_src | those of src | may be any, as they are when left out |

    It works in place.

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
    def _kept(cls, hint: Primitive) -> tuple[str, ...]:
        return ("dst",) if hint.operation.parameters["algorithm"] in USE_DST else ("src",)


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
        descs = {"src": source, "weights": slopes, **src_and_dst(place, source, dst)}
        self._create(forward_kind(place, prop_kind), descs, {}, attributes, engine, avoid)


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
        self._create("backward", descs, {}, attributes, engine, avoid, hint)


class Softmax(Primitive):
    """Softmax along an axis: `dst = exp(src - max) / sum of exp(src - max)`, or with algorithm `log` its logarithm.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | as it arrives |
    | dst | those of src | may be any |

    It works in place.

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
        """Create it for `src`.

        Raises:
            InvalidArguments: there is no such axis, dst has other dims, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "Softmax"
        source, purpose = desc_of(place, "src", src), forward_kind(place, prop_kind)
        descs = src_and_dst(place, source, dst)
        chosen = choice(place, "algorithm", algorithm, SOFTMAX)
        parameters: dict[str, Parameter] = {"algorithm": chosen, "axis": axis_of(place, "axis", axis, source.ndims)}
        self._create(purpose, descs, parameters, attributes, engine, avoid)


class SoftmaxBackward(MappedBackward):
    """The gradient of softmax: `diff_src = dst * (diff_dst - sum of diff_dst * dst)`.

    With algorithm `log` it is `diff_dst - exp(dst) * sum of diff_dst`.

    | argument | dims | format |
    |---|---|---|
    | dst | those of src | as forward |
    | diff_dst, diff_src | those of src | may be any |

    It works in place.

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
    kept = ("dst",)


class Shuffle(Primitive):
    """Shuffle along an axis: its coordinates, as a matrix with rows of `group_size`, are transposed.

        dst[.., j * rows + i, ..] = src[.., i * group_size + j, ..],    rows = dims[axis] / group_size

    | argument | dims | format |
    |---|---|---|
    | src | any dims | as it arrives |
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
        """Create it for `src`.

        Raises:
            InvalidArguments: there is no such axis, groups do not divide it, dst has other dims, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = "Shuffle"
        source = desc_of(place, "src", src)
        along = axis_of(place, "axis", axis, source.ndims)
        size = integer(place, "group_size", group_size, 1)
        if source.dims[along] < size or source.dims[along] % size:
            raise InvalidArguments(
                f"Shuffle: axis {along} of src {source.dims} has {source.dims[along]} coordinates, which {size} does "
                "not divide: give a group_size that does"
            )
        purpose, parameters = forward_kind(place, prop_kind), {"axis": along, "group_size": size}
        self._create(purpose, src_and_dst(place, source, dst), parameters, attributes, engine, avoid)


class ShuffleBackward(MappedBackward):
    """The gradient of a shuffle: the shuffle back.

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
    """Reduction along the axes where dst has 1 and src has more: `dst = the max, sum, mean ... of src` along them.

        norm_lp_max          (max(sum |x|^p, eps))^(1/p)      norm_lp_power_p_max    max(sum |x|^p, eps)
        norm_lp_sum          (sum |x|^p + eps)^(1/p)          norm_lp_power_p_sum    sum |x|^p + eps

    | argument | dims | format |
    |---|---|---|
    | src | any dims | as it arrives |
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
        """Create it; `p` and `eps` are for norms.

        Raises:
            InvalidArguments: dims do not fit, nothing is reduced, p of a norm is less than 1, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = "Reduction"
        source, result = desc_of(place, "src", src), desc_of(place, "dst", dst)
        if result.ndims != source.ndims:
            raise InvalidArguments(
                f"{place}: src {source.dims} has {axes_of(source.ndims)}, dst {result.dims} has {result.ndims}: keep "
                "axes that are reduced, with a dim of 1"
            )
        for i, (n, out) in enumerate(zip(source.dims, result.dims, strict=True)):
            if out not in (1, n):
                raise InvalidArguments(
                    f"{place}: axis {i} of dst {result.dims} has {out} coordinates: it has 1, or {n} as src"
                )
        if result.dims == source.dims:
            raise InvalidArguments(
                f"{place}: dst has the dims of src, {source.dims}: give axes that are reduced a dim of 1"
            )
        chosen = choice(place, "algorithm", algorithm, REDUCTION)
        power = number(place, "p", p)
        if chosen.startswith("norm") and power < 1:
            raise InvalidArguments(f"{place}: p is {power}: {chosen} takes at least 1")
        descs = {"src": source, "dst": result}
        parameters: dict[str, Parameter] = {"algorithm": chosen, "p": power, "eps": number(place, "eps", eps)}
        self._create("forward_inference", descs, parameters, attributes, engine, avoid)
