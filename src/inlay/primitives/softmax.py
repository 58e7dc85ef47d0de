"""Softmax and its logarithm."""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.primitives.algorithms import SOFTMAX
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.mapped import MappedBackward
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.rules import axis_of, choice, desc_of, settled, type_of
from inlay.primitives.slow_kernels import Avoid


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
        source = desc_of(place, "src", src)
        self._create(
            forward_kind(place, prop_kind),
            {"src": source, "dst": settled(place, "dst", dst, source.dims, type_of(source), f"src {source.dims}")},
            {
                "algorithm": choice(place, "algorithm", algorithm, SOFTMAX),
                "axis": axis_of(place, "axis", axis, source.ndims),
            },
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


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
