"""Table lookup: any function of 8-bit integers, by a table of its 256 results.

    dst = table[bits of src]

The bits of src are a number from 0 to 255: the element itself for u8; for s8, 256 more if it is negative.
"""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.calls import require_no_attributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.primitive import Primitive
from inlay.primitives.rules import require_desc, resolve_desc, type_of

_BYTES = ("s8", "u8")


class TableLookup(Primitive):
    """Table lookup: each element of src is replaced by an entry of a table.

    | argument | dims | type | format |
    |---|---|---|---|
    | src | any dims | s8 or u8 | not any |
    | table | (256,) | s8 or u8 | dense |
    | dst | those of src | that of table | may be any |

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> src = pack(np.array([[0, 3, 255]], np.uint8), "ab")
    >>> squares = pack((np.arange(256) ** 2 % 256).astype(np.uint8), "a")
    >>> lookup = TableLookup(src.desc, squares.desc, engine="reference")
    >>> lookup(src=src, table=squares).unpack().tolist()
    [[0, 9, 1]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "table_lookup"

    def __init__(
        self,
        src: MemoryDesc,
        table: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive for `src`; a `dst` that is left out has any format.

        Raises:
            InvalidArguments: src or table are of another type, the table has no 256 elements, dst has other dims or
                another type than the table, or an argument is rejected by `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        source, entries = require_desc("TableLookup", "src", src), require_desc("TableLookup", "table", table)
        result = resolve_desc("TableLookup", "dst", dst, source.dims, type_of(entries), f"src {source.dims}")
        for name, desc in (("src", source), ("table", entries)):
            if type_of(desc).name not in _BYTES:
                raise InvalidArguments(f"TableLookup: {name} is {type_of(desc)}: describe it as s8 or u8")
        if entries != MemoryDesc((256,), type_of(entries)):
            raise InvalidArguments(f"TableLookup: table is {entries!r}: it has 256 elements, one after the other")
        if type_of(result) != type_of(entries):
            raise InvalidArguments(
                f"TableLookup: dst is {type_of(result)}, and table {type_of(entries)}: make them equal"
            )
        require_no_attributes("TableLookup", attributes)
        self._create(
            "forward_inference", {"src": source, "table": entries, "dst": result}, {}, attributes, engine, avoid
        )
