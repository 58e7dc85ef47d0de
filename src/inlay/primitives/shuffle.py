"""Shuffle of coordinates along an axis."""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.mapped import MappedBackward
from inlay.primitives.primitive import Primitive, forward_kind
from inlay.primitives.rules import axis_of, desc_of, integer, settled, type_of
from inlay.primitives.slow_kernels import Avoid


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
        self._create(
            forward_kind(place, prop_kind),
            {"src": source, "dst": settled(place, "dst", dst, source.dims, type_of(source), f"src {source.dims}")},
            {"axis": along, "group_size": size},
            attributes=attributes,
            engine=engine,
            avoid=avoid,
        )


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
