"""`FallbackSession`: a subgraph compiled by ONNX Runtime, and its calls on buffers of Inlay.

The threads of a session sleep when they have nothing to do, and never compute while Inlay does: a call returns when it
is done. Several threads may call one session at once, each by an I/O binding of its own.

A loop may have no end. So a subgraph with one is computed on a thread of its own while the main thread waits in Python,
where it handles Ctrl-C: the session then ends after the node that it computes.

A forked child has none of these threads. So it forgets the session, without a destructor, which would wait for them,
and creates another one at the next call.
"""

import ctypes
from collections.abc import Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import prod
from threading import current_thread, main_thread
from typing import Any
from weakref import WeakSet

import numpy as np

from inlay.errors import InvalidArguments, MissingExtra, OutOfMemory, Unimplemented
from inlay.forks import ForkResetLock, at_fork
from inlay.graph.fallback.library import INSTALL, describe_error, find_onnxruntime, onnxruntime_errors
from inlay.graph.fallback.serialized_models import scan_operators
from inlay.graph.network import StructuralEquality, Subgraph, Tensor
from inlay.graph.numpy_operators.call import onnx_code
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import Array

_MOST_STORED = 1 << 24
"""Largest constant that becomes a part of the model, in bytes. Runs read larger ones, such as tables of embeddings,
where they are, so that they are not in memory twice."""
_MOST_STORED_IN_ALL = 1 << 30
"""Limit on the bytes of all constants in the model; a message of Protocol Buffers has 2 GiB at most."""
_SILENT = 4  # severity of fatal errors
_LOOPS = frozenset({"Loop", "Scan", "SequenceMap"})
_MOST_NAMED = 4  # nodes in a text


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SubgraphInterface(StructuralEquality):
    """The subgraph of a session, and the tensors that it reads and writes."""

    subgraph: Subgraph
    """The nodes."""
    opset: int
    """Version of ONNX's operators."""
    reads: tuple[Tensor, ...]
    """Tensors that it reads, without constants, under their names in the nodes."""
    writes: tuple[Tensor, ...]
    """Tensors that it writes."""
    constants: Mapping[str, Array] = field(default_factory=dict)
    """Array of each constant that it reads, by its name in the nodes."""


def describe_interface(
    subgraph: Subgraph,
    opset: int,
    tensors: Mapping[str, Tensor],
    writes: Iterable[str],
    constants: Mapping[str, Array],
) -> SubgraphInterface:
    """Return the interface of a subgraph in a graph.

    `tensors` and `constants` have the subgraph's inputs and outputs by their names in the graph, `writes` the outputs
    that something reads.
    """
    inner = dict(zip(subgraph.inner_names, subgraph.inputs, strict=True))
    reads = [replace(tensors[name], name=own) for own, name in inner.items() if name not in constants]
    stored = {own: constants[name] for own, name in inner.items() if name in constants}
    return SubgraphInterface(subgraph, opset, tuple(reads), tuple(tensors[name] for name in writes), stored)


def serialize_subgraph(interface: SubgraphInterface) -> bytes:
    """Return a subgraph as a serialized model of ONNX, with the constants that are not passed in each run.

    Raises:
        MissingExtra: the package onnx is not installed.
    """
    from inlay.graph.fallback.models import build_model, type_of  # subgraphs of saved plans are serialized already

    stored = _choose_stored(interface.constants)
    passed = (Tensor(name, a.shape, a.dtype) for name, a in interface.constants.items() if name not in stored)
    groups = (*interface.reads, *passed), interface.writes
    reads, writes = ({tensor.name: type_of(tensor) for tensor in group} for group in groups)
    return build_model(interface.subgraph.nodes, interface.opset, reads, writes, stored)


class FallbackSession:
    """A subgraph that ONNX Runtime has compiled."""

    def __init__(self, interface: SubgraphInterface, threads: int) -> None:
        """Compile a subgraph for so many threads.

        Raises:
            MissingExtra: ONNX Runtime is not installed.
            OutOfMemory: the constants do not fit in memory.
            Unimplemented: ONNX Runtime does not support a node.
        """
        if find_onnxruntime() is None:
            raise MissingExtra(f"{interface.subgraph.name} is for ONNX Runtime, which is not installed: {INSTALL}")
        self.interface = interface
        """The subgraph and its tensors."""
        self.threads = threads
        """Number of threads that it computes on."""
        self._lock = ForkResetLock()
        stored = _choose_stored(interface.constants)
        self._passed = {
            name: np.ascontiguousarray(array).reshape(array.shape)
            for name, array in interface.constants.items()
            if name not in stored
        }
        self._model = interface.subgraph.model or serialize_subgraph(interface)
        self.has_loop = not _LOOPS.isdisjoint(scan_operators(self._model))
        """True if a node is a loop, which may have no end."""
        self._session: Any = self._create()
        _sessions.add(self)

    def bind(self, arrays: Mapping[str, Array], dynamic: MutableMapping[str, Array] | None = None) -> "SubgraphCall":
        """Return a call that computes the subgraph on these arrays, by the names of its tensors.

        Results are written to them; those whose dims depend on the data are put into `dynamic` as new arrays. An array
        that is not row-major is copied in each call.
        """
        return SubgraphCall(self, {**arrays, **self._passed}, {} if dynamic is None else dynamic)

    def current(self) -> Any:
        """Return the session of this process; the first call in a forked child creates it."""
        session = self._session
        if session is not None:
            return session
        with self._lock:
            if self._session is None:
                self._session = self._create()
            return self._session

    def abandon(self) -> None:
        """Forget the session without a call of its destructor."""
        if self._session is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
        self._session = None

    def _create(self) -> Any:
        """Create a session of ONNX Runtime."""
        return create_session(self._model, self.threads, "ORT_ENABLE_ALL")


def create_session(model: bytes, threads: int, optimizations: str) -> Any:
    """Return a session of ONNX Runtime on so many threads; `optimizations` is one of its GraphOptimizationLevels.

    Raises:
        OutOfMemory: the constants do not fit in memory.
        Unimplemented: ONNX Runtime does not support a node.
    """
    library = find_onnxruntime()
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.execution_mode = library.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = getattr(library.GraphOptimizationLevel, optimizations)
    options.log_severity_level = _SILENT
    for kind in ("intra_op", "inter_op"):
        options.add_session_config_entry(f"session.{kind}.allow_spinning", "0")
    try:
        return library.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except onnxruntime_errors() as error:
        raise _error(error, Unimplemented(f"ONNX Runtime: {describe_error(error)}")) from error


def take_session(
    sessions: MutableMapping[str, FallbackSession], interface: SubgraphInterface, threads: int
) -> FallbackSession:
    """Remove the session of a subgraph from `sessions` and return it; create one if there is none for these threads.

    Raises:
        MissingExtra, OutOfMemory, Unimplemented: as `FallbackSession`.
    """
    known = sessions.pop(interface.subgraph.name, None)
    if known is not None and known.threads == threads and known.interface == interface:
        return known
    return FallbackSession(interface, threads)


class SubgraphCall:
    """One call of a session, bound to arrays; one thread uses it at a time."""

    __slots__ = (
        *("_arrays", "_binding", "_dynamic", "_has_dynamic", "_inputs_copied", "_is_loop", "_outputs_copied", "_owner"),
        *("_session", "_staged", "_written"),
    )

    def __init__(
        self, owner: FallbackSession, arrays: Mapping[str, Array], dynamic: MutableMapping[str, Array]
    ) -> None:
        """Bind the session to arrays; `dynamic` receives the results whose dims depend on the data."""
        self._owner, self._arrays, self._dynamic = owner, arrays, dynamic
        self._written = [tensor.name for tensor in owner.interface.writes]
        self._staged = {
            name: array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
            for name, array in arrays.items()
        }
        copied = [name for name, array in arrays.items() if self._staged[name] is not array]
        self._inputs_copied = [name for name in copied if name not in self._written]
        self._outputs_copied = [name for name in copied if name in self._written]
        self._has_dynamic = any(name not in self._staged for name in self._written)
        self._is_loop = owner.has_loop
        self._bind()

    def __call__(self) -> None:
        """Compute the subgraph.

        Raises:
            InvalidArguments: a node does not allow the elements of its inputs.
            OutOfMemory: there is not enough memory for the results between the nodes.
        """
        if self._session is not self._owner.current():
            self._bind()
        for name in self._inputs_copied:
            np.copyto(self._staged[name], self._arrays[name])
        try:
            self._run()
            if self._has_dynamic:
                self._fetch_dynamic()
        except onnxruntime_errors() as error:
            self._require_computable_inputs()
            raise _error(error, InvalidArguments(self._describe(error))) from error
        for name in self._outputs_copied:
            np.copyto(self._arrays[name], self._staged[name])

    def _run(self) -> None:
        """Run the session; an interrupt such as Ctrl-C ends a loop."""
        if not self._is_loop or current_thread() is not main_thread():
            # Without RunOptions: ONNX Runtime 1.32 looks for an entry in them by an exception, which takes 38 us.
            self._session.run_with_iobinding(self._binding)
            return
        options = find_onnxruntime().RunOptions()
        options.log_severity_level = _SILENT
        with ThreadPoolExecutor(1) as executor:
            run = executor.submit(self._session.run_with_iobinding, self._binding, options)
            try:
                run.result()
            finally:
                options.terminate = not run.done()

    def _describe(self, error: Exception) -> str:
        """Return the text of the error for a run that fails."""
        subgraph = self._owner.interface.subgraph
        names = [f"{node.operator} {node.name!r}" for node in subgraph.nodes[:_MOST_NAMED]]
        more = [f"{len(subgraph.nodes) - _MOST_NAMED} more"] if len(subgraph.nodes) > _MOST_NAMED else []
        nodes = f", of {', '.join([*names, *more])}" if len(subgraph.nodes) > 1 else ""
        return f"step {subgraph.name}{nodes}: ONNX Runtime does not compute these inputs: {describe_error(error)}"

    def _require_computable_inputs(self) -> None:
        """Raise NumPy's error for these inputs, which names the node and the tensor, if there is one."""
        interface = self._owner.interface
        arrays = {name: array for name, array in self._staged.items() if name not in self._written}
        arrays |= interface.constants
        try:
            for node in interface.subgraph.nodes:
                arrays |= compute_node(node, interface.opset, {name: arrays[name] for name in node.inputs if name})
        except (OutOfMemory, Unimplemented):
            return

    def _bind(self) -> None:
        """Pass the addresses of all arrays to the session."""
        self._session = self._owner.current()
        self._binding = self._session.io_binding()
        for name in (*(name for name in self._staged if name not in self._written), *self._written):
            if name not in self._staged:
                self._binding.bind_output(name, "cpu")
                continue
            array = self._staged[name]
            bind = self._binding.bind_output if name in self._written else self._binding.bind_input
            bind(name, "cpu", 0, onnx_code(array.dtype), list(array.shape), array.ctypes.data)

    def _fetch_dynamic(self) -> None:
        """Put the results that ONNX Runtime has allocated into `dynamic`, and let it allocate new ones in the next run.

        Without that it would require the dims of this run.
        """
        for tensor, value in zip(self._owner.interface.writes, self._binding.get_outputs(), strict=True):
            if tensor.name not in self._staged:
                self._dynamic[tensor.name] = _copy_value(value, tensor.dtype)
                self._binding.bind_output(tensor.name, "cpu")


def _copy_value(value: Any, dtype: np.dtype[Any]) -> Array:
    """Return a tensor of ONNX Runtime as a new array, which its own method does not for a type that NumPy lacks."""
    if dtype.isbuiltin == 1:
        return np.asarray(value.numpy())
    dims = tuple(value.shape())
    array = np.empty(dims, dtype)
    ctypes.memmove(array.ctypes.data, value.data_ptr(), prod(dims) * dtype.itemsize)
    return array


def _choose_stored(constants: Mapping[str, Array]) -> dict[str, Array]:
    """Return the constants that become parts of the model."""
    stored, total = {}, 0
    for name, array in constants.items():
        if array.nbytes <= min(_MOST_STORED, _MOST_STORED_IN_ALL - total):
            stored[name] = array
            total += array.nbytes
    return stored


def _error(error: Exception, otherwise: InvalidArguments | Unimplemented) -> Exception:
    """Return the error of Inlay for an exception of ONNX Runtime: `otherwise`, unless it lacks memory."""
    text = str(error)
    if "allocate memory" in text or "bad_alloc" in text or "bad allocation" in text:
        return OutOfMemory(f"ONNX Runtime: {describe_error(error)}: use smaller dims")
    return otherwise


_sessions: "WeakSet[FallbackSession]" = WeakSet()


def _abandon_all() -> None:
    """Forget all sessions, in a forked child."""
    for session in list(_sessions):
        session.abandon()


at_fork(after_in_child=_abandon_all)
