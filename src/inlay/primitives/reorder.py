"""Reorder as a primitive: the engine `inlay` computes it between public formats, another engine between its own.

    reorder = Reorder(conv.src_desc, MemoryDesc(dims, "f32", "nchw"))
    reorder(src=memory)

Unlike `inlay.Reorder` it has the interface of `Primitive`, so that a list of primitives can contain reorders.
"""

from typing import ClassVar, get_args

from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory.buffers import buffer_handles
from inlay.memory.sparse_entries import with_data_type
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Avoid, Engine, EngineLike, Implementation, Operation, get_engine
from inlay.primitives.primitive import Primitive
from inlay.primitives.rules import require_desc, resolve_desc, type_of


class Reorder(Primitive):
    """Reorder: copy the elements of src to the format and type of dst, with scales, zero points and a sum.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | not any; may be sparse |
    | dst | those of src | may be sparse; any is the format of src |

    If both sides have a layout, Inlay's compiled reorder computes, unless the caller names an engine. If a side is
    sparse, Inlay's conversion does (see `inlay.memory.sparse`); a sparse dst has the number of stored elements. If a
    side is opaque, the engine that defines the format does.

    Source: oneAPI specification, "Reorder".

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows = pack(np.arange(6, dtype=np.float32).reshape(2, 3), "ab")
    >>> turned = Reorder(rows.desc, MemoryDesc((2, 3), "bf16", "ba"))
    >>> turned.impl, turned(src=rows).unpack().tolist()
    ('compiled', [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    """

    __slots__ = ()
    kind: ClassVar[str] = "reorder"
    _checks_sparse: ClassVar[bool] = False  # conversions check sparse memory, and accept entries in any order

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        *,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive.

        Raises:
            InvalidArguments: dims differ, elements of dst overlap, or an argument is rejected by `Primitive`.
            Unimplemented: neither Inlay nor the engine supports it, or a packed side has no tag.
        """
        source = require_desc("Reorder", "src", src, sparse=True)
        result = resolve_desc("Reorder", "dst", dst, source.dims, type_of(source), f"src {source.dims}", sparse=True)
        if result.kind == "any" and isinstance(source.layout, Layout):
            result = MemoryDesc.from_layout(source.layout, type_of(result), dims=source.dims)
        elif result.kind == "any" and source.kind == "sparse":
            result = with_data_type(source, type_of(result))
        for side in (source, result):
            if side.kind == "sparse":
                buffer_handles(side)
        self._create("forward_inference", {"src": source, "dst": result}, {}, attributes, engine, avoid)

    @classmethod
    def _select_implementation(
        cls, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid
    ) -> tuple[Engine, Implementation]:
        """Select the engine `inlay` for public formats if the caller names none; else as `Primitive` does."""
        if all(isinstance(desc.layout, _KNOWN_FORMATS) for desc in operation.descs.values()):
            chosen = get_engine("inlay" if engine is None else engine)
            try:
                return chosen, chosen.create(operation)
            except Unimplemented:
                if engine is not None:
                    raise
        return super()._select_implementation(operation, engine, hinted, avoid)


_KNOWN_FORMATS = (Layout, *get_args(kinds.Sparse))
