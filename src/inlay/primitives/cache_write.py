"""Cache write: new rows are written at a position of a tensor that holds the rows of earlier steps.

    dst(..., position + i, ...) = src(..., i, ...)    along `axis`; all other elements of dst are kept

Decoding writes one row of keys and one of values per step; see `graph.states`.

Source: ONNX, "TensorScatter" with the mode `linear`.
"""

from typing import Any, ClassVar

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.calls import require_no_attributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.primitive import Primitive
from inlay.primitives.rules import require_axis, require_desc, require_dims, type_of


class CacheWrite(Primitive):
    """Cache write: copy src to dst at a position along an axis, and keep the rest of dst.

    | argument | dims | type | format |
    |---|---|---|---|
    | src | those of dst, and from 1 up to as many along `axis` | that of dst | not any |
    | position | (1,) | s64 | dense |
    | dst | any dims | any number | not any |

    Each call needs `dst`, since it keeps most of its elements. The position is from 0 to the extent of dst along `axis`
    less that of src, both in elements along `axis`.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows, cache = pack(np.ones((1, 2), np.float32), "ab"), pack(np.zeros((3, 2), np.float32), "ab")
    >>> write = CacheWrite(rows.desc, MemoryDesc((1,), "s64"), cache.desc, axis=0, engine="reference")
    >>> write(src=rows, position=pack(np.array([1]), "a"), dst=cache).unpack().tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "cache_write"

    def __init__(
        self,
        src: MemoryDesc,
        position: MemoryDesc,
        dst: MemoryDesc,
        *,
        axis: int,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive.

        Raises:
            InvalidArguments: src has no element, other dims than dst off the axis, more along it, or another type;
                position is no single s64; there is no such axis; or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        rows, cache = require_desc("CacheWrite", "src", src), require_desc("CacheWrite", "dst", dst)
        index = require_desc("CacheWrite", "position", position)
        along = require_axis("CacheWrite", "axis", axis, cache.ndims)
        require_dims("CacheWrite", "position", index, (1,), "one position")
        if type_of(index) != DATA_TYPES["s64"]:
            raise InvalidArguments(f"CacheWrite: position is {type_of(index)}: describe it as s64")
        _require_rows(rows, cache, along)
        descs = {"src": rows, "position": index, "dst": cache}
        require_no_attributes("CacheWrite", attributes)
        self._create("forward_inference", descs, {"axis": along}, attributes, engine, avoid)

    def __call__(self, **memories: object) -> Any:
        """Write the rows, and return `dst`.

        Raises:
            InvalidArguments: `dst` is missing, the position is outside of dst, or as `Primitive`.
        """
        if memories.get("dst") is None:
            raise InvalidArguments("CacheWrite: dst is missing: give the memory whose other elements are kept")
        return super().__call__(**memories)


def _require_rows(rows: MemoryDesc, cache: MemoryDesc, axis: int) -> None:
    """Check that rows fit in a cache along an axis, and are of the same type."""
    if type_of(rows) != type_of(cache):
        raise InvalidArguments(
            f"CacheWrite: src is {type_of(rows)} and dst {type_of(cache)}: describe both with the same type"
        )
    count = rows.dims[axis] if rows.ndims == cache.ndims else 1
    wanted = (*cache.dims[:axis], count, *cache.dims[axis + 1 :])
    require_dims("CacheWrite", "src", rows, wanted, f"dst {cache.dims} and axis {axis}")
    if not 0 < count <= cache.dims[axis]:
        raise InvalidArguments(
            f"CacheWrite: src has {count} elements along axis {axis}: dst has room for 1 to {cache.dims[axis]}"
        )
