"""`Reorder` as a primitive: by Inlay as an engine between formats that all know, by another one for its own formats.

    reorder = Reorder(conv.src_desc, MemoryDesc(dims, "f32", "nchw"))
    reorder(src=memory)

It stands beside `inlay.Reorder` so that a list of primitives can hold it: it is created, asked, called and bound as
they are.
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
from inlay.primitives.rules import desc_of, settled, type_of


class Reorder(Primitive):
    """Reorder: the elements of src in the format and type of dst, with scales, zero points and a sum on the way.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | as it arrives, sparse |
    | dst | those of src | any means that of src; sparse |

    Both sides with a layout: Inlay's compiled reorder, unless an engine is named. A sparse side: Inlay's conversion
    (see `inlay.memory.sparse`), where a sparse dst says how many elements are stored. An opaque side: the engine.

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
    _checks_sparse: ClassVar[bool] = False  # a conversion does, and takes entries in any order

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        *,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it.

        Raises:
            InvalidArguments: dims differ, dst has elements in one place, or what `Primitive` refuses.
            Unimplemented: neither Inlay nor the engine computes it, or a packed side has no tag.
        """
        source = desc_of("Reorder", "src", src, sparse=True)
        result = settled("Reorder", "dst", dst, source.dims, type_of(source), f"src {source.dims}", sparse=True)
        if result.kind == "any" and isinstance(source.layout, Layout):
            result = MemoryDesc.from_layout(source.layout, type_of(result), dims=source.dims)
        elif result.kind == "any" and source.kind == "sparse":
            result = with_data_type(source, type_of(result))
        for side in (source, result):
            if side.kind == "sparse":
                buffer_handles(side)
        self._create("forward_inference", {"src": source, "dst": result}, {}, attributes, engine, avoid)

    @classmethod
    def _ask(
        cls, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid
    ) -> tuple[Engine, Implementation]:
        if all(isinstance(desc.layout, _KNOWN_FORMATS) for desc in operation.descs.values()):
            chosen = get_engine("inlay" if engine is None else engine)
            try:
                return chosen, chosen.create(operation)
            except Unimplemented:
                if engine is not None:
                    raise
        return super()._ask(operation, engine, hinted, avoid)


_KNOWN_FORMATS = (Layout, *get_args(kinds.Sparse))
