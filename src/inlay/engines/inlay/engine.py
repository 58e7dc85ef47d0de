"""`InlayEngine`: reorders, and the kernels of `KERNELS` on the threads of another engine.

Reorders between layouts are compiled; if a side is sparse, memory is converted. Kernels run on the threads of the other
engine and not on threads of their own: the other engine's threads spin while they wait for their next call, and a
second team would compete with them for the processors. If the other engine lends no threads, some kernels run on the
calling thread alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, get_args

import numpy.typing as npt

from inlay.descriptor import MemoryDesc, kinds
from inlay.engines.inlay.cache_write import create_cache_write, supports_cache_write
from inlay.engines.inlay.dynamic_quantization import create_dynamic_quantization, requests_dynamic_quantization
from inlay.engines.inlay.matvec import create_matvec, requests_matvec
from inlay.engines.inlay.row_batch import create_row_batch, requests_row_batch
from inlay.engines.inlay.serial_team import serial_team
from inlay.engines.inlay.table_lookup import create_table_lookup, supports_table_lookup
from inlay.engines.inlay.winograd_code import create_weights_transform, is_winograd_weights
from inlay.engines.inlay.winograd_convolution import create_winograd_convolution, requests_winograd
from inlay.errors import Unimplemented
from inlay.layout import Dims, Layout
from inlay.memory import Memory
from inlay.memory.reorder_cache import find_reorder
from inlay.memory.sparse_entries import convert_sparse
from inlay.primitives.attributes import reorder_attributes
from inlay.primitives.engine import Engine, Implementation, Operation, PlainImplementation, ThreadTeam
from inlay.primitives.panel_weights import has_panel_weights
from inlay.reordering.attributes import PLAIN, Attributes, QuantizationAttribute, operands
from inlay.reordering.target import host_target

_Memories = Mapping[str, Memory]


def create_reorder(operation: Operation) -> PlainImplementation:
    """Compile the reorder between two layouts.

    Raises:
        InvalidArguments: the descriptors or attributes are inconsistent.
        Unimplemented: compiled reorders do not support it.
    """
    attributes = reorder_attributes(operation.attributes)
    src, dst = operation.descs["src"], operation.descs["dst"]
    if attributes == PLAIN:
        find_reorder(src, dst)
        return PlainImplementation(operation, operation.descs, "compiled", _bind_move)
    find_reorder(src, dst, attributes)
    return PlainImplementation(operation, operation.descs, "compiled", partial(_bind_computation, attributes))


def _bind_move(memories: _Memories) -> Callable[[], None]:
    """Return a function that runs the compiled reorder without attributes."""
    src, dst = memories["src"], memories["dst"]
    move = find_reorder(src.desc, dst.desc).run

    def run() -> None:
        move(src.address, dst.address)

    return run


def _bind_computation(attributes: Attributes, memories: _Memories) -> Callable[[], None]:
    """Return a function that runs the compiled reorder with attributes; each call reads their values anew."""
    src, dst = memories["src"], memories["dst"]
    compute = find_reorder(src.desc, dst.desc, attributes).run
    dims = dst.desc.dims
    entries = {name: attributes.entry(name) for name in attributes.names}
    views = {name: _view_values(memories[name], entry, dims) for name, entry in entries.items()}

    is_shared = all(view is not None for view in views.values())

    def run() -> None:
        values: Any = views
        if not is_shared:
            read = {name: memories[name].unpack().reshape(entry.shape(dims)) for name, entry in entries.items()}
            values = operands(attributes, dims, read)
        compute(src.address, dst.address, values, 0)

    return run


def _view_values(memory: Memory, entry: QuantizationAttribute, dims: Dims) -> npt.NDArray[Any] | None:
    """Return the values of an attribute as an array that shares their memory.

    None if they are not consecutive elements of a type of NumPy.
    """
    desc, shape = memory.desc, entry.shape(dims)
    is_plain = desc.ndims == 1 and desc.tag == "a" and not desc.offset0 and not entry.type.is_sub_byte
    if not is_plain or desc.data_type != entry.type or desc.dims != (prod(shape),):
        return None
    return memory.buffer[: desc.size].view(entry.type.dtype).reshape(shape)


def create_sparse_conversion(operation: Operation) -> PlainImplementation:
    """Create the conversion of memory to or from a sparse format.

    Raises:
        Unimplemented: there are attributes.
    """
    if reorder_attributes(operation.attributes) != PLAIN:
        raise Unimplemented("a conversion of sparse memory has no attributes: reorder the dense memory")
    return PlainImplementation(operation, operation.descs, "converted", _bind_conversion)


def _bind_conversion(memories: _Memories) -> Callable[[], None]:
    """Return a function that converts the entries of the source to the destination."""
    src, dst = memories["src"], memories["dst"]
    return partial(convert_sparse, src.desc, src.buffers, dst.desc, dst.buffers)


@dataclass(frozen=True, slots=True)
class InlayKernel:
    """Machine code of Inlay's own that computes some operations on the threads of another engine."""

    supports: Callable[[Operation], bool]
    """Returns whether the kernel is meant for an operation."""
    create: Callable[[Operation, ThreadTeam, int], Implementation]
    """Creates the implementation of an operation that the kernel is meant for, on so many threads of a team.

    It raises Unimplemented if the code does not support the operation.
    """
    needs_team: bool = True
    """False if the calling thread alone computes it where the other engine lends no threads."""


KERNELS: tuple[InlayKernel, ...] = (
    InlayKernel(requests_winograd, create_winograd_convolution),
    InlayKernel(supports_table_lookup, create_table_lookup, needs_team=False),
    InlayKernel(requests_dynamic_quantization, create_dynamic_quantization, needs_team=False),
    InlayKernel(requests_matvec, create_matvec),
    InlayKernel(requests_row_batch, create_row_batch),
)
"""The kernels of the engine; the first that is meant for an operation computes it."""

_FORMATS = (Layout, *get_args(kinds.Sparse))
_AVX2 = 32  # bytes of a vector register


class InlayEngine(Engine):
    """An engine that computes reorders, and by the kernels of `KERNELS`, most of them if it has threads of another one.

    >>> InlayEngine().name
    'inlay'
    """

    name = "inlay"

    def __init__(self, host: Engine | None = None) -> None:
        """Create the engine; kernels that need a thread team are those of a `host` with one only."""
        self._host = host
        self._team = host.thread_team if host is not None and _has_fused_multiply_add() else None

    def with_threads_of(self, host: Engine) -> "InlayEngine":
        """Return a new engine that runs its kernels on the threads of `host`."""
        return InlayEngine(host)

    @property
    def num_threads(self) -> int:
        """The number of threads of kernels that are created from now on: that of the other engine."""
        return 0 if self._host is None else self._host.num_threads

    @property
    def propagates_special_values(self) -> bool:
        """True if there are no convolutions: the transforms of tiles spread NaN and infinities to whole tiles."""
        return self._team is None

    def supports(self, operation: Operation) -> bool:
        """Return whether the operation is a reorder or a cache write, or a kernel is meant for it.

        Reorders are supported between layouts and sparse formats, and to the format of Winograd weights.
        """
        if operation.kind == "reorder":
            is_known = all(isinstance(desc.layout, _FORMATS) for desc in operation.descs.values())
            return is_known or is_winograd_weights(operation.descs["dst"])
        if operation.kind == "cache_write":
            return supports_cache_write(operation)
        kernel = _find_kernel(operation)
        return kernel is not None and (self._team is not None or not kernel.needs_team)

    def owns(self, operation: Operation) -> bool:
        """Return whether an operation is a product of few rows with weights in panels, or a batch of such products.

        There must be threads for it.
        """
        is_meant = has_panel_weights(operation) or requests_row_batch(operation)
        return self._team is not None and is_meant

    def accepts_any_contents(self, desc: MemoryDesc) -> bool:
        """Return True for transformed weights of Winograd convolutions, which are floats."""
        return is_winograd_weights(desc)

    def create(self, operation: Operation) -> Implementation:
        """Compile a reorder, or prepare a kernel.

        Raises:
            InvalidArguments: the descriptors or attributes of a reorder are inconsistent.
            Unimplemented: it is another operation, or the machine code does not support it.
        """
        if not self.supports(operation):
            raise Unimplemented(
                f"inlay has no {operation.kind} {operation.prop_kind} such as this: it computes reorders between "
                "layouts and cache writes; and on threads of GNU OpenMP Winograd convolutions, products with integer "
                "weights or weights in panels, batches of products of few rows, dynamic quantization and table lookups"
            )
        if operation.kind == "cache_write":
            return create_cache_write(operation)
        if operation.kind != "reorder":
            kernel = _find_kernel(operation)
            assert kernel is not None
            team, threads = (serial_team(), 1) if self._team is None else (self._team, self.num_threads)
            return kernel.create(operation, team, threads)
        if is_winograd_weights(operation.descs["dst"]):
            return create_weights_transform(operation)
        is_sparse = any(desc.kind == "sparse" for desc in operation.descs.values())
        return create_sparse_conversion(operation) if is_sparse else create_reorder(operation)


def _find_kernel(operation: Operation) -> InlayKernel | None:
    """Return the first kernel that is meant for an operation; None if there is none."""
    return next((kernel for kernel in KERNELS if kernel.supports(operation)), None)


def _has_fused_multiply_add() -> bool:
    """Return whether code can be generated for this processor, and it has fused multiply-add instructions.

    Without them LLVM calls a library function per float, which is far slower than a direct convolution.
    """
    try:
        target = host_target()
    except Unimplemented:
        return False
    return target.vector_bytes >= _AVX2 or not target.triple.startswith("x86_64")
