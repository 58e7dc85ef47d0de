"""Reduction of a tensor along axes."""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.algorithms import REDUCTION
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.primitive import Primitive
from inlay.primitives.rules import axes_of, choice, desc_of, number
from inlay.primitives.slow_kernels import Avoid


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
        self._create(
            "forward_inference",
            {"src": source, "dst": result},
            {"algorithm": chosen, "p": power, "eps": number(place, "eps", eps)},
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )
