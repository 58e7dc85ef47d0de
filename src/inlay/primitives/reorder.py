"""`Reorder` as a primitive: Inlay's own reorders, compiled or of sparse memory, and an engine's for its own formats.

    reorder = Reorder(conv.src_desc, MemoryDesc(dims, "f32", "nchw"))
    reorder(src=memory)

It stands beside `inlay.Reorder` so that a list of primitives can hold it: it is created, asked, called and bound as
they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, get_args

from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.conversion import recode, retyped
from inlay.memory.handles import handles_of
from inlay.memory.moves import AnyReorder, find_reorder
from inlay.primitives.attributes import PrimitiveAttributes, Sum
from inlay.primitives.engines import EngineLike
from inlay.primitives.operation import Engine, Implementation, Operation
from inlay.primitives.primitive import Primitive
from inlay.primitives.rules import desc_of, settled, type_of
from inlay.primitives.slow_kernels import Avoid
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.operands import operands


class Reorder(Primitive):
    """Reorder: the elements of src in the format and type of dst, with scales, zero points and a sum on the way.

    | argument | dims | format |
    |---|---|---|
    | src | any dims | as it arrives, sparse |
    | dst | those of src | any means that of src; sparse |

    Both sides with a layout: Inlay's compiled reorder, unless an engine is named. A sparse side: Inlay's conversion
    (see `inlay.sparse`), where a sparse dst says how many elements are stored. An opaque side: the engine.

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
            result = retyped(source, type_of(result))
        for side in (source, result):
            if side.kind == "sparse":
                handles_of(side)
        self._create(
            "forward_inference", {"src": source, "dst": result}, attributes=attributes, engine=engine, avoid=avoid
        )

    @classmethod
    def _ask(
        cls, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid
    ) -> tuple[Engine, Implementation]:
        if engine is None and all(isinstance(desc.layout, _OWN_FORMATS) for desc in operation.descs.values()):
            try:
                return OWN, OWN.create(operation)
            except Unimplemented:
                pass  # the engine may have it
        return super()._ask(operation, engine, hinted, avoid)


def _find_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes) -> AnyReorder:
    return find_reorder(src, dst) if attributes == PLAIN else find_reorder(src, dst, attributes)


@dataclass(frozen=True, slots=True)
class OwnReorder:
    """Inlay's compiled reorder as an implementation."""

    operation: Operation
    """What was asked."""
    attributes: Attributes
    """The same in the words of reorders."""

    @property
    def descs(self) -> Mapping[str, MemoryDesc]:
        """Those that were given."""
        return self.operation.descs

    @property
    def impl(self) -> str:
        """How it computes."""
        return "compiled"

    @property
    def is_reference(self) -> bool:
        """It is compiled for its formats."""
        return False

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """What moves these memories; values of attributes are read each time."""
        src, dst = memories["src"], memories["dst"]
        reorder = _find_reorder(src.desc, dst.desc, self.attributes).run
        if self.attributes == PLAIN:

            def run() -> None:
                reorder(src.address, dst.address)

            return run
        dims = dst.desc.dims
        given = {name: (memories[name], self.attributes.entry(name).shape(dims)) for name in self.attributes.names}

        def run_computed() -> None:
            values: Any = {name: memory.unpack().reshape(shape) for name, (memory, shape) in given.items()}
            reorder(src.address, dst.address, operands(self.attributes, dims, values), 0)

        return run_computed


@dataclass(frozen=True, slots=True)
class OwnConversion:
    """Inlay's conversion with a sparse side as an implementation."""

    operation: Operation
    """What was asked."""

    @property
    def descs(self) -> Mapping[str, MemoryDesc]:
        """Those that were given."""
        return self.operation.descs

    @property
    def impl(self) -> str:
        """How it computes."""
        return "converted"

    @property
    def is_reference(self) -> bool:
        """There is no faster way."""
        return False

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """What converts these memories."""
        src, dst = memories["src"], memories["dst"]
        return partial(recode, src.desc, src.buffers, dst.desc, dst.buffers)


class _Own:
    """Inlay itself, as what computes reorders."""

    @property
    def name(self) -> str:
        """Its name."""
        return "inlay"

    def create(self, operation: Operation) -> OwnReorder | OwnConversion:
        """Compile the reorder, or prepare the conversion.

        Raises:
            InvalidArguments: the descriptors or attributes do not fit.
            Unimplemented: it is not done by compiled reorders.
        """
        attributes = _in_words_of_reorders(operation.attributes)
        if any(desc.kind == "sparse" for desc in operation.descs.values()):
            if attributes != PLAIN:
                raise Unimplemented("a conversion of sparse memory has no attributes: reorder the dense memory")
            return OwnConversion(operation)
        _find_reorder(operation.descs["src"], operation.descs["dst"], attributes)
        return OwnReorder(operation, attributes)


_OWN_FORMATS = (Layout, *get_args(kinds.Sparse))
OWN = _Own()
"""What computes reorders between layouts."""


def _in_words_of_reorders(attributes: PrimitiveAttributes) -> Attributes:
    """The attributes of a reorder.

    Raises:
        Unimplemented: there is something that a compiled reorder has not: other post-operations than one plain sum.
    """
    factors = [
        post_op.scale for post_op in attributes.post_ops if isinstance(post_op, Sum) and post_op == Sum(post_op.scale)
    ]
    if len(factors) != len(attributes.post_ops) or len(factors) > 1:
        raise Unimplemented(f"a compiled reorder has one sum and no other post-operation, not {attributes.post_ops}")
    return Attributes(
        src_scales=attributes.scales.get("src"),
        dst_scales=attributes.scales.get("dst"),
        src_zero_points=attributes.zero_points.get("src"),
        dst_zero_points=attributes.zero_points.get("dst"),
        sum=factors[0] if factors else None,
    )
