"""Elementwise functions and their gradients."""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.primitives.algorithms import ALL_ELTWISE, USE_DST
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.mapped import MappedBackward
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.rules import choice, desc_of, number, settled, type_of
from inlay.primitives.slow_kernels import Avoid


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
        source = desc_of(place, "src", src)
        self._create(
            forward_kind(place, prop_kind),
            {"src": source, "dst": settled(place, "dst", dst, source.dims, type_of(source), f"src {source.dims}")},
            {
                "algorithm": choice(place, "algorithm", algorithm, ALL_ELTWISE),
                "alpha": number(place, "alpha", alpha),
                "beta": number(place, "beta", beta),
            },
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


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
