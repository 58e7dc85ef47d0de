"""Concat, sum and binary: several tensors become one."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.primitives.algorithms import BINARY
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.primitive import Primitive
from inlay.primitives.rules import (
    axis_of,
    broadcast,
    choice,
    desc_of,
    is_sequence,
    number,
    require_dims,
    require_ndims,
    settled,
    type_of,
)


class _Joining(Primitive):
    """What concat and sum share: as many sources as wanted, given one by one or as `srcs`."""

    __slots__ = ()

    def __call__(self, **memories: object) -> Any:
        """Compute, and answer `dst`: `srcs=(one, two)` says the same as `src_0=one, src_1=two`.

        Raises:
            InvalidArguments, OutOfMemory: as `Primitive`.
        """
        return super().__call__(**_numbered(memories))

    def bind(self, **memories: object) -> Callable[[], None]:
        """As of `Primitive`, and `srcs` may say the sources.

        Raises:
            InvalidArguments: as `Primitive`.
        """
        return super().bind(**_numbered(memories))


def _numbered(memories: dict[str, object]) -> dict[str, object]:
    """The arguments, with `srcs` taken apart."""
    srcs = memories.pop("srcs", ())
    if not isinstance(srcs, (list, tuple)):
        raise InvalidArguments(f"srcs is a {type(srcs).__name__}: give a list of memories, one for each source")
    return {**{f"src_{i}": memory for i, memory in enumerate(srcs)}, **memories}


def _sources(place: str, srcs: Any) -> dict[str, MemoryDesc]:
    """The descriptors of the sources by name."""
    if not is_sequence(srcs):
        raise InvalidArguments(f"{place}: srcs are {shown(srcs)}: give a list of MemoryDescs, one for each source")
    found = {f"src_{i}": desc_of(place, f"src_{i}", desc) for i, desc in enumerate(srcs)}
    if not found:
        raise InvalidArguments(f"{place}: srcs are empty: give at least one MemoryDesc")
    return found


def _factors(place: str, scales: Any, count: int) -> tuple[float, ...]:
    """The factors of so many sources."""
    if not is_sequence(scales):
        raise InvalidArguments(f"{place}: scales are {shown(scales)}: give a list of numbers, one for each source")
    # One more than there may be says that there are too many, however many there are.
    factors = tuple(number(place, "scale", one) for one in islice(scales, count + 1))
    if len(factors) != count:
        raise InvalidArguments(f"{place}: {len(factors)} scales are given for {count} sources: give one for each")
    return factors


class Concat(_Joining):
    """Concatenation along an axis: the sources one after the other.

    | argument | dims | format |
    |---|---|---|
    | src_0, src_1, ... | any dims, equal but along the axis | as they arrive |
    | dst | along the axis the sum of theirs | may be any |

    Source: oneAPI specification, "Concat".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> one, two = pack(np.array([[1, 2]], np.float32), "ab"), pack(np.array([[3]], np.float32), "ab")
    >>> Concat([one.desc, two.desc], axis=1, engine="reference")(srcs=(one, two)).unpack().tolist()
    [[1.0, 2.0, 3.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "concat"

    def __init__(
        self,
        srcs: Iterable[MemoryDesc],
        dst: MemoryDesc | None = None,
        *,
        axis: int,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it.

        Raises:
            InvalidArguments: there is no source or no such axis, dims do not fit, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "Concat"
        sources = _sources(place, srcs)
        first = sources["src_0"]
        along = axis_of(place, "axis", axis, first.ndims)
        for name, desc in sources.items():
            require_ndims(place, name, desc, first.ndims, first.ndims, "those of src_0")
            fitting = (*first.dims[:along], desc.dims[along], *first.dims[along + 1 :])
            require_dims(place, name, desc, fitting, f"axes of src_0 other than {along}")
        total = sum(desc.dims[along] for desc in sources.values())
        dims = (*first.dims[:along], total, *first.dims[along + 1 :])
        result = settled(place, "dst", dst, dims, type_of(first), "the sources")
        self._create("forward_inference", {**sources, "dst": result}, {"axis": along}, attributes, engine, avoid)


class Sum(_Joining):
    """Sum with factors: `dst = scales[0] * src_0 + scales[1] * src_1 + ...`.

    | argument | dims | format |
    |---|---|---|
    | src_0, src_1, ... | any dims, all equal | as they arrive |
    | dst | those of the sources | may be any |

    It works in place on src_0.

    Source: oneAPI specification, "Sum".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> one, two = pack(np.array([[1, 2]], np.float32), "ab"), pack(np.array([[3, 4]], np.float32), "ab")
    >>> Sum([one.desc, two.desc], scales=(1, 10), engine="reference")(srcs=(one, two)).unpack().tolist()
    [[31.0, 42.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "sum"
    in_place = frozenset({("src_0", "dst")})

    def __init__(
        self,
        srcs: Iterable[MemoryDesc],
        dst: MemoryDesc | None = None,
        *,
        scales: Iterable[float] | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it; without `scales` all factors are 1.

        Raises:
            InvalidArguments: there is no source, dims differ, there are not as many factors, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        place = "Sum"
        sources = _sources(place, srcs)
        first = sources["src_0"]
        for name, desc in sources.items():
            require_dims(place, name, desc, first.dims, "those of src_0")
        factors = (1.0,) * len(sources) if scales is None else _factors(place, scales, len(sources))
        result = settled(place, "dst", dst, first.dims, type_of(first), "the sources")
        self._create("forward_inference", {**sources, "dst": result}, {"scales": factors}, attributes, engine, avoid)


class Binary(Primitive):
    """An operation between two tensors, element by element: `dst = src_0 + src_1`, and so on by `algorithm`.

    | argument | dims | format |
    |---|---|---|
    | src_0 | any dims | as it arrives |
    | src_1 | as many axes, each of the dim of src_0, or 1 in one of them where it is repeated | as it arrives |
    | src_2 | for `select` alone: where it is 0, src_1 is taken, else src_0 | as it arrives |
    | dst | the greater dims | may be any |

    Comparisons (ge, gt, le, lt, eq, ne) give 1 and 0. It works in place on src_0.

    Source: oneAPI specification, "Binary".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows, one = pack(np.array([[1, 2], [3, 4]], np.float32), "ab"), pack(np.array([[10, 20]], np.float32), "ab")
    >>> Binary(rows.desc, one.desc, algorithm="add", engine="reference")(src_0=rows, src_1=one).unpack().tolist()
    [[11.0, 22.0], [13.0, 24.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "binary"
    in_place = frozenset({("src_0", "dst")})

    def __init__(
        self,
        src_0: MemoryDesc,
        src_1: MemoryDesc,
        src_2: MemoryDesc | None = None,
        dst: MemoryDesc | None = None,
        *,
        algorithm: str,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it.

        Raises:
            InvalidArguments: dims do not fit, there is no such algorithm, src_2 is given without `select` or missing
                with it, or what `Primitive` refuses.
            Unimplemented: no engine computes it.
        """
        place = "Binary"
        first, second = desc_of(place, "src_0", src_0), desc_of(place, "src_1", src_1)
        chosen = choice(place, "algorithm", algorithm, BINARY)
        if (src_2 is None) == (chosen == "select"):
            said = (
                "missing: it says which source is taken" if src_2 is None else "given: it is for the algorithm select"
            )
            raise InvalidArguments(f"{place}: algorithm is {chosen}, and src_2 is {said}")
        dims = broadcast(place, ("src_0", "src_1"), first.dims, second.dims)
        if src_2 is not None:
            require_dims(place, "src_2", desc_of(place, "src_2", src_2), dims, "src_0 and src_1")
        descs = {"src_0": first, "src_1": second, "src_2": src_2}
        descs["dst"] = settled(place, "dst", dst, dims, type_of(first), "src_0 and src_1")
        self._create("forward_inference", descs, {"algorithm": chosen}, attributes, engine, avoid)
