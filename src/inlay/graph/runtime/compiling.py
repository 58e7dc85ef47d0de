"""Compilation of a program: implementations are created, formats compared and constants packed; only memory is missing.

    prepared = prepare(program, ...)        once for a program: a `PreparedStep` for each step
    call = prepared[0].bind(workspace)      once for each instance; a call without arguments

`Weights` holds the constants in the formats that implementations chose, each once: sessions of one network for several
batch sizes share them, and so do steps whose constants have equal elements. It releases a constant with the last step
that uses it.
"""

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias
from weakref import WeakValueDictionary

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.forks import ForkResetLock, import_lock
from inlay.graph.algorithms import as_direct
from inlay.graph.background import yield_to_runs
from inlay.graph.network import has_equal_bits
from inlay.graph.op_graph import Array, OpGraph, constant_desc
from inlay.graph.passes.range_guards import propagates
from inlay.graph.program import Program, Step
from inlay.graph.runtime.checking import OLD_DST
from inlay.graph.runtime.prepared_steps import Call, PreparedStep, Workspace, require_arguments
from inlay.graph.stored_constants import StoredConstants
from inlay.memory import Memory, pack
from inlay.primitives import Reorder
from inlay.primitives.calls import CallSignature, infer_call_signature, make_zero_fill
from inlay.primitives.engine import (
    Engine,
    Implementation,
    Operation,
    companion_engines,
    create_with_companions,
    get_engine,
    select_reorder_engine,
)
from inlay.primitives.panel_weights import has_panel_weights

_Key: TypeAlias = tuple[tuple[int, ...], str, bytes]


_PackedFormats: TypeAlias = WeakValueDictionary[MemoryDesc, Memory]
"""The packed memories of one constant that something still uses, by descriptor."""


class Weights:
    """Constants in packed formats, by their elements and format; each exists as long as something uses it.

    >>> import numpy as np
    >>> weights, ones = Weights(), np.ones((8, 8), np.float32)
    >>> desc = MemoryDesc((8, 8), "f32", "ba")
    >>> packed = weights.get_packed(ones, desc)
    >>> packed is weights.get_packed(np.ones((8, 8), np.float32), desc), weights.nbytes
    (True, 256)
    >>> del packed
    >>> weights.nbytes
    0
    """

    def __init__(self) -> None:
        """Begin without constants."""
        self._lock = ForkResetLock()
        self._packed: dict[_Key, list[tuple[Array, _PackedFormats]]] = {}

    def get_packed(self, array: Array, desc: MemoryDesc, engine: Engine | None = None) -> Memory:
        """Return the elements of `array` in memory of `desc`; equal elements and formats share one memory.

        So do formats that differ in their blocks, and not in the offset of any element.

        `engine` reorders into a format that only it knows. The array must not change afterwards.

        Raises:
            InvalidArguments: `desc` has other dims.
            Unimplemented: there is no reorder to `desc`.
            OutOfMemory: the memory cannot be allocated.
        """
        with self._lock:
            formats = self._formats(array)
            packed = formats.get(desc)
            if packed is None:
                packed = formats[desc] = _find_equivalent(formats, desc) or _pack_constant(array, desc, engine)
            return packed

    def _formats(self, array: Array) -> _PackedFormats:
        """Return the packed memories of all arrays that are equal to `array`, by descriptor."""
        entries = self._packed.setdefault(_key(array), [])
        for other, formats in entries:
            if other is array or has_equal_bits(other, array):
                return formats
        entries.append((array, WeakValueDictionary()))
        return entries[-1][1]

    def release_unused(self) -> None:
        """Release the arrays whose packed memories nothing uses any more."""
        with self._lock:
            for key, entries in list(self._packed.items()):
                entries[:] = [entry for entry in entries if entry[1]]
                if not entries:
                    del self._packed[key]

    @property
    def nbytes(self) -> int:
        """Bytes of all packed memories."""
        with self._lock:
            formats = [formats for entries in self._packed.values() for _, formats in entries]
            memories = [memory for one in formats for memory in list(one.values())]
            return sum({memory.address: memory.buffer.size for memory in memories}.values())


def _find_equivalent(formats: _PackedFormats, desc: MemoryDesc) -> Memory | None:
    """Return memory of `desc` in the buffer of a packed format in which every element has the same offset, or None."""
    if desc.kind != "blocked":
        return None
    for memory in list(formats.values()):
        if memory.desc.kind == "blocked" and memory.desc.equivalent(desc):
            return Memory(desc, memory.buffer)
    return None


_SAMPLES = 64


def _key(array: Array) -> _Key:
    """Return a hash key of an array: dims, type and a sample of its elements."""
    samples = array[tuple(slice(None, None, max(1, n // 3)) for n in array.shape)]
    return array.shape, array.dtype.name, samples.tobytes()[: _SAMPLES * array.itemsize]


def _pack_constant(array: Array, desc: MemoryDesc, engine: Engine | None) -> Memory:
    """Reorder an array into memory of `desc`, by the engine if only the engine knows the format."""
    if desc.kind != "opaque":
        return pack(array, desc)
    own = desc.data_type  # an array in a narrow type may be of an operation in f32
    plain = pack(array, constant_desc(array, data_type=None if own is None else own.name))
    memory: Memory = Reorder(plain.desc, desc, engine=engine)(src=plain)
    return memory


_SCRATCHPAD = "scratchpad"


def prepare(
    program: Program, graph: OpGraph, engine: Engine, weights: Weights, *, is_exact: bool = False
) -> tuple[PreparedStep, ...]:
    """Compile all steps of `program`, in order.

    The reference engine computes what `engine` does not support, and if `is_exact` every step that may lose NaN or
    infinities.

    Raises:
        InvalidArguments: a step lacks an argument or has one too many, or a buffer has another format than the engine
            requires.
        Unimplemented: no engine supports a step, or neither ONNX Runtime nor NumPy the node that it is to compute.
        MissingExtra: a package that computes a node is not installed: onnx, or onnxruntime.
        OutOfMemory: the constants do not fit in memory.
    """
    prepared = []
    for step in program.steps:
        yield_to_runs()
        prepared.append(
            _prepare_reference(step, program, graph)
            if step.operation is None
            else _prepare_operation(step, step.operation, program, engine, weights, is_exact)
        )
    return tuple(prepared)


def _prepare_reference(step: Step, program: Program, graph: OpGraph) -> PreparedStep:
    """Compile a step that ONNX Runtime or NumPy computes."""
    with import_lock:
        from inlay.graph.runtime.reference_steps import prepare_reference  # loads operators that most programs lack

    return prepare_reference(step, program, graph)


def _prepare_operation(
    step: Step, operation: Operation, program: Program, engine: Engine, weights: Weights, is_exact: bool
) -> PreparedStep:
    """Compile a step that an engine computes."""
    selected, implementation, expectation = _select_implementation(operation, engine, is_exact)
    used = {name: buffer for name, buffer in {**step.reads, **step.writes}.items() if name != OLD_DST}
    needed = {*expectation.reads, *expectation.writes} - {_SCRATCHPAD}
    require_arguments(step, needed, {*used, *step.constants})
    for argument, name in used.items():
        if program.buffers[name].desc != expectation.descs[argument]:
            raise InvalidArguments(
                f"step {step.name}: {argument} is buffer {name}, {program.buffers[name].desc!r}, and "
                f"{selected.name} takes {expectation.descs[argument]!r}: add a reorder, or ask the engine for this "
                "format"
            )
    constants = {
        argument: _pack_argument(step, argument, expectation.descs[argument], selected, weights)
        for argument in step.constants
        if argument in needed
    }
    is_batched = implementation.is_batched and (selected is engine or engine.batches_machine_calls)
    is_joined = is_batched and not (expectation.is_empty or expectation.is_all_zero)
    is_declined = selected is not engine and selected.name == "reference"
    scratch = expectation.descs[_SCRATCHPAD].size if _SCRATCHPAD in expectation.writes else 0
    bound = partial(_bind_operation, step, implementation, expectation, constants)
    flags = selected.is_asynchronous, is_joined, is_declined
    return PreparedStep(step, bound, implementation, scratch, *flags, constants=constants, engine=selected)


def _pack_argument(step: Step, argument: str, desc: MemoryDesc, engine: Engine, weights: Weights) -> Memory:
    """Return a constant argument in the format `desc`: from the file that it is stored in, else packed now."""
    stored = step.constants
    if isinstance(stored, StoredConstants) and (desc.kind != "opaque" or engine.accepts_any_contents(desc)):
        memory = stored.find_packed(argument, desc)
        if memory is not None:
            return memory
    return weights.get_packed(step.constants[argument], desc, engine)


def _bind_operation(
    step: Step,
    implementation: Implementation,
    expectation: CallSignature,
    constants: Mapping[str, Memory],
    workspace: Workspace,
) -> Call | None:
    """Bind a step to memory and return its call; None where it writes no element."""
    used = {**step.reads, **step.writes}
    # OLD_DST has the memory of dst.
    memories = {argument: workspace.memory(name) for argument, name in used.items() if argument != OLD_DST}
    if expectation.is_empty:
        return None
    if expectation.is_all_zero:
        return make_zero_fill([memories[name] for name in expectation.results])
    if _SCRATCHPAD in expectation.writes and expectation.descs[_SCRATCHPAD].size:
        memories[_SCRATCHPAD] = workspace.scratch(expectation.descs[_SCRATCHPAD])
    return implementation.bind({**memories, **constants})


def _select_implementation(
    operation: Operation, engine: Engine, is_exact: bool
) -> tuple[Engine, Implementation, CallSignature]:
    """Return the engine that computes an operation, its implementation and the arguments that it expects.

    The candidates are `engine` and the engines beside it, then Inlay and the reference engine. A convolution by another
    algorithm that none of the former supports becomes a direct one, which computes the same. The code of the primitive
    is generated here, since an engine may find only then that it does not support the operation.
    """
    try:
        is_exact = is_exact and not engine.propagates_special_values
        if is_exact and not propagates(operation.kind, operation.parameters.get("algorithm")):
            raise Unimplemented(f"{operation.kind} may lose NaN or infinities in {engine.name}")
        if operation.kind == "reorder":
            selected, implementation = select_reorder_engine(operation, companion_engines(engine))
        else:
            selected, implementation = create_with_companions(engine, operation)
            if implementation.kernel_kind == "reference" and has_panel_weights(operation):
                raise Unimplemented("weights in panels are read by a reference kernel: leave them any")
        expectation = infer_call_signature(operation, implementation)
        if not (expectation.is_empty or expectation.is_all_zero):
            implementation.create_primitive()
        return selected, implementation, expectation
    except Unimplemented:
        if (plain := as_direct(operation)) is not None:
            return _select_implementation(plain, engine, is_exact)
        inlay = get_engine("inlay")
        fallback = inlay if inlay.supports(operation) else get_engine("reference")
        if engine is fallback:
            raise
        implementation = fallback.create(operation)
        return fallback, implementation, infer_call_signature(operation, implementation)
