"""Concat, sum and binary: operations with several sources and one destination."""

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
    broadcast_dims,
    is_sequence,
    require_axis,
    require_choice,
    require_desc,
    require_dims,
    require_ndims,
    require_number,
    resolve_desc,
    type_of,
)


class _MultiSource(Primitive):
    """Base class of concat and sum, which have any number of sources."""

    __slots__ = ()

    def __call__(self, **memories: object) -> Any:
        """Compute, and return `dst`; `srcs=(one, two)` is short for `src_0=one, src_1=two`.

        Raises:
            InvalidArguments, OutOfMemory: as `Primitive`.
        """
        return super().__call__(**_numbered(memories))

    def bind(self, **memories: object) -> Callable[[], None]:
        """Bind memories as `Primitive.bind` does; `srcs=(one, two)` is short for `src_0=one, src_1=two`.

        Raises:
            InvalidArguments: as `Primitive`.
        """
        return super().bind(**_numbered(memories))


def _numbered(memories: dict[str, object]) -> dict[str, object]:
    """Replace the argument `srcs` by src_0, src_1, and so on."""
    srcs = memories.pop("srcs", ())
    if not isinstance(srcs, (list, tuple)):
        raise InvalidArguments(f"srcs is a {type(srcs).__name__}: give a list of memories, one for each source")
    return {**{f"src_{i}": memory for i, memory in enumerate(srcs)}, **memories}


def _sources(primitive_name: str, srcs: Any) -> dict[str, MemoryDesc]:
    """Check the collection of descriptors, and return them by name: src_0, src_1, and so on."""
    if not is_sequence(srcs):
        raise InvalidArguments(
            f"{primitive_name}: srcs are {shown(srcs)}: give a list of MemoryDescs, one for each source"
        )
    descs = {f"src_{i}": require_desc(primitive_name, f"src_{i}", desc) for i, desc in enumerate(srcs)}
    if not descs:
        raise InvalidArguments(f"{primitive_name}: srcs are empty: give at least one MemoryDesc")
    return descs


def _factors(primitive_name: str, scales: Any, count: int) -> tuple[float, ...]:
    """Check the collection of `count` scales, and return them."""
    if not is_sequence(scales):
        raise InvalidArguments(
            f"{primitive_name}: scales are {shown(scales)}: give a list of numbers, one for each source"
        )
    # The collection may be infinite: read only as many entries as show that there are too many.
    factors = tuple(require_number(primitive_name, "scale", one) for one in islice(scales, count + 1))
    if len(factors) != count:
        raise InvalidArguments(
            f"{primitive_name}: {len(factors)} scales are given for {count} sources: give one for each"
        )
    return factors


class Concat(_MultiSource):
    """Concatenation of the sources along an axis.

    | argument | dims | format |
    |---|---|---|
    | src_0, src_1, ... | any dims, equal except along the axis | not any |
    | dst | those of src_0; along the axis the sum of the sources | may be any |

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
        """Create the primitive.

        Raises:
            InvalidArguments: there is no source or no such axis, dims are inconsistent, or an argument is rejected by
                `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Concat"
        sources = _sources(primitive_name, srcs)
        first = sources["src_0"]
        along = require_axis(primitive_name, "axis", axis, first.ndims)
        for name, desc in sources.items():
            require_ndims(primitive_name, name, desc, first.ndims, first.ndims, "those of src_0")
            fitting = (*first.dims[:along], desc.dims[along], *first.dims[along + 1 :])
            require_dims(primitive_name, name, desc, fitting, f"axes of src_0 other than {along}")
        total = sum(desc.dims[along] for desc in sources.values())
        dims = (*first.dims[:along], total, *first.dims[along + 1 :])
        result = resolve_desc(primitive_name, "dst", dst, dims, type_of(first), "the sources")
        self._create("forward_inference", {**sources, "dst": result}, {"axis": along}, attributes, engine, avoid)


class Sum(_MultiSource):
    """Sum with factors: `dst = scales[0] * src_0 + scales[1] * src_1 + ...`.

    | argument | dims | format |
    |---|---|---|
    | src_0, src_1, ... | any dims, all equal | not any |
    | dst | those of the sources | may be any |

    It may be computed in place, on src_0.

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
        """Create the primitive; without `scales` all factors are 1.

        Raises:
            InvalidArguments: there is no source, dims differ, there are not as many factors, or an argument is rejected
                by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Sum"
        sources = _sources(primitive_name, srcs)
        first = sources["src_0"]
        for name, desc in sources.items():
            require_dims(primitive_name, name, desc, first.dims, "those of src_0")
        factors = (1.0,) * len(sources) if scales is None else _factors(primitive_name, scales, len(sources))
        result = resolve_desc(primitive_name, "dst", dst, first.dims, type_of(first), "the sources")
        self._create("forward_inference", {**sources, "dst": result}, {"scales": factors}, attributes, engine, avoid)


class Binary(Primitive):
    """An elementwise operation on two tensors, selected by `algorithm`: `dst = src_0 + src_1`, and so on.

    | argument | dims | format |
    |---|---|---|
    | src_0 | any dims | not any |
    | src_1 | the axes of src_0; along each equal dims, or 1 in the tensor that is broadcast | not any |
    | src_2 | only with `select`, the dims of dst: src_1 is selected where it is 0, else src_0 | not any |
    | dst | the larger dims | may be any |

    Comparisons (ge, gt, le, lt, eq, ne) give 1 and 0. It may be computed in place, on src_0.

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
        """Create the primitive.

        Raises:
            InvalidArguments: dims are inconsistent, there is no such algorithm, src_2 is present without `select` or
                missing with it, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        primitive_name = "Binary"
        first, second = require_desc(primitive_name, "src_0", src_0), require_desc(primitive_name, "src_1", src_1)
        chosen = require_choice(primitive_name, "algorithm", algorithm, BINARY)
        if (src_2 is None) == (chosen == "select"):
            mistake = (
                "missing: it selects between the sources" if src_2 is None else "given: it is for the algorithm select"
            )
            raise InvalidArguments(f"{primitive_name}: algorithm is {chosen}, and src_2 is {mistake}")
        dims = broadcast_dims(primitive_name, ("src_0", "src_1"), first.dims, second.dims)
        if src_2 is not None:
            require_dims(primitive_name, "src_2", require_desc(primitive_name, "src_2", src_2), dims, "src_0 and src_1")
        descs = {"src_0": first, "src_1": second, "src_2": src_2}
        descs["dst"] = resolve_desc(primitive_name, "dst", dst, dims, type_of(first), "src_0 and src_1")
        self._create("forward_inference", descs, {"algorithm": chosen}, attributes, engine, avoid)
