"""`InlayEngine`: reorders everywhere, Winograd convolutions on the threads of another engine.

The convolutions run on that engine's threads, not beside them: after a call these wait for the next one busily, and a
second team would have to take the processors from them.
"""

from typing import get_args

from inlay.descriptor import kinds
from inlay.engine.inlay.convolution import winograd
from inlay.engine.inlay.reorders import conversion, reorder
from inlay.engine.inlay.weights import is_transformed, transforming
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.primitives.operation import Engine, Implementation, Operation
from inlay.reordering.target import host_target

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
