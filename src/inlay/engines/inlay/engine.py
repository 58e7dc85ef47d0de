"""`InlayEngine`: reorders everywhere, Winograd convolutions on the threads of another engine.

Reorders are compiled between layouts, and conversions where a side is sparse. The convolutions run on the other
engine's threads, not beside them: after a call these wait for the next one busily, and a second team would have to take
the processors from them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

from inlay.descriptor import kinds
from inlay.engines.inlay.winograd_code import is_transformed, transforming
from inlay.engines.inlay.winograd_convolution import winograd
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.reorder_cache import find_reorder
from inlay.memory.sparse_entries import convert_sparse
from inlay.primitives.attributes import reorder_attributes
from inlay.primitives.engine import Engine, Implementation, Operation, PlainImplementation
from inlay.reordering.attributes import PLAIN, Attributes, operands
from inlay.reordering.target import host_target

_Memories = Mapping[str, Memory]


def reorder(operation: Operation) -> PlainImplementation:
    """Compile the reorder between two layouts.

    Raises:
        InvalidArguments: the descriptors or attributes do not fit.
        Unimplemented: compiled reorders do not have it.
    """
    attributes = reorder_attributes(operation.attributes)
    src, dst = operation.descs["src"], operation.descs["dst"]
    if attributes == PLAIN:
        find_reorder(src, dst)
        return PlainImplementation(operation, operation.descs, "compiled", _bind_move)
    find_reorder(src, dst, attributes)
    return PlainImplementation(operation, operation.descs, "compiled", partial(_bind_computation, attributes))


def _bind_move(memories: _Memories) -> Callable[[], None]:
    src, dst = memories["src"], memories["dst"]
    move = find_reorder(src.desc, dst.desc).run

    def run() -> None:
        move(src.address, dst.address)

    return run


def _bind_computation(attributes: Attributes, memories: _Memories) -> Callable[[], None]:
    """What moves these memories; values of attributes are read each time."""
    src, dst = memories["src"], memories["dst"]
    compute = find_reorder(src.desc, dst.desc, attributes).run
    dims = dst.desc.dims
    given = {name: (memories[name], attributes.entry(name).shape(dims)) for name in attributes.names}

    def run() -> None:
        values: Any = {name: memory.unpack().reshape(shape) for name, (memory, shape) in given.items()}
        compute(src.address, dst.address, operands(attributes, dims, values), 0)

    return run


def conversion(operation: Operation) -> PlainImplementation:
    """Prepare the conversion with a sparse side.

    Raises:
        Unimplemented: there are attributes.
    """
    if reorder_attributes(operation.attributes) != PLAIN:
        raise Unimplemented("a conversion of sparse memory has no attributes: reorder the dense memory")
    return PlainImplementation(operation, operation.descs, "converted", _bind_conversion)


def _bind_conversion(memories: _Memories) -> Callable[[], None]:
    src, dst = memories["src"], memories["dst"]
    return partial(convert_sparse, src.desc, src.buffers, dst.desc, dst.buffers)


_FORMATS = (Layout, *get_args(kinds.Sparse))
_AVX2 = 32  # bytes of its registers


class InlayEngine(Engine):
    """Computes what Inlay has machine code for.

    >>> InlayEngine().name
    'inlay'
    """

    name = "inlay"

    def __init__(self, host: Engine | None = None) -> None:
        """Compute convolutions on the threads of `host`; without one, or where it has none to share, only reorder."""
        self._host = host
        self._team = host.thread_team if host is not None and _multiplies_and_adds() else None

    def beside(self, host: Engine) -> "InlayEngine":
        """This engine with convolutions on the threads of `host`."""
        return InlayEngine(host)

    @property
    def num_threads(self) -> int:
        """How many threads of the other engine convolutions that are created now compute on."""
        return 0 if self._host is None else self._host.num_threads

    @property
    def propagates_special_values(self) -> bool:
        """Whether there are no convolutions: transforms of tiles spread NaN and infinities."""
        return self._team is None

    def supports(self, operation: Operation) -> bool:
        """Whether it is a reorder between formats that all know or to Winograd's weights, or such a convolution."""
        if operation.kind == "reorder":
            is_known = all(isinstance(desc.layout, _FORMATS) for desc in operation.descs.values())
            return is_known or is_transformed(operation.descs["dst"])
        asked = operation.kind, operation.prop_kind, operation.parameters.get("algorithm")
        return self._team is not None and asked == ("convolution", "forward_inference", "winograd")

    def create(self, operation: Operation) -> Implementation:
        """Compile a reorder, or settle a convolution.

        Raises:
            InvalidArguments: the descriptors or attributes of a reorder do not fit.
            Unimplemented: it is another operation, or one that the machine code is not for.
        """
        if not self.supports(operation):
            raise Unimplemented(
                f"inlay has no {operation.kind} {operation.prop_kind} such as this: it computes reorders between "
                "layouts, and Winograd convolutions on threads of GNU OpenMP"
            )
        if operation.kind == "convolution":
            assert self._team is not None
            return winograd(operation, self._team, self.num_threads)
        if is_transformed(operation.descs["dst"]):
            return transforming(operation)
        is_sparse = any(desc.kind == "sparse" for desc in operation.descs.values())
        return conversion(operation) if is_sparse else reorder(operation)


def _multiplies_and_adds() -> bool:
    """Whether this processor multiplies and adds at once, and there is machine code for it at all.

    A function that does it for each float takes far longer than a direct convolution.
    """
    try:
        target = host_target()
    except Unimplemented:
        return False
    return target.vector_bytes >= _AVX2 or not target.triple.startswith("x86_64")
