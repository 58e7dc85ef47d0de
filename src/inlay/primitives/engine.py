"""Operations, the protocol of the engines that compute them, and the registry of engines.

A primitive checks its arguments by the rules of the specification and builds an `Operation`. An `Engine` creates an
`Implementation` of it, which has a format for each argument and computes. The rules therefore exist once, and engines
differ only in the operations that they support and in speed. An engine also runs several bound calls as one `Batch`,
and lets machine code of other engines run on its `ThreadTeam`. Other packages use engines through these classes only.

    operation = Operation("convolution", "forward_inference", descs={"src": ..., "weights": ..., "dst": ...}, ...)
    implementation = engine.create(operation)
    implementation.descs["weights"]                    # the format chosen for `any`
    run = implementation.bind({"src": memory, ...})    # fixes the addresses
    run()

Engines are registered by name. The packages of the engines import this module, so the registry holds a string
`module:factory` for each and imports the module at its first use: the only late import from primitives to engines
(decision 0012). The default engine is the first of these:

    the engine set by `set_engine`, or named by INLAY_ENGINE in the environment
    onednn, if a oneDNN library can be loaded
    reference

>>> get_engine("reference").name
'reference'

If an engine that the caller names does not support an operation, its error is raised. If the default engine does not
support it (oneDNN 3.2 has no group normalization), the reference engine computes instead, slower and with the same
results; `Primitive.engine` is the engine that computes. An engine may also accept an operation and fail to generate
its code at the first call: `substitute_reference` then returns a reference implementation with the same formats.
"""

import ctypes
import importlib
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented, shown
from inlay.forks import hold_across_forks
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.rules import SIGNATURES, Direction, PropKind, Signature

Parameter: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | frozenset[str]
"""The value of a parameter: a scalar, a tuple with an entry for each spatial axis, or a set of names of flags."""

KernelKind: TypeAlias = Literal["jit", "gemm", "reference", "numpy", "other"]
"""The technique of a kernel.

`jit`: code generated for the formats; `gemm`: a matrix product with copies around it; `reference`: generic code;
`numpy`: NumPy; `other`: any other.
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """The description of a primitive without its data: arguments, parameters and attributes, already checked."""

    kind: str
    """Kind of the primitive: a name of `rules.KINDS` or `rules.INLAY_KINDS`."""
    prop_kind: PropKind
    """Propagation kind: inference, training, or the gradient that is computed."""
    descs: Mapping[str, MemoryDesc]
    """Descriptor of each argument present, by its name in the signature; the engine chooses those that are `any`."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """Value of each parameter of the signature; a dense window has dilation 0, as in oneDNN."""
    attributes: PrimitiveAttributes = PLAIN
    """Scales, zero points, post-operations and modes."""
    hint: "Implementation | None" = None
    """Implementation, by the same engine, of the forward primitive of a backward operation; None if forward."""

    @property
    def direction(self) -> Direction:
        """The direction under which `SIGNATURES` has the operation."""
        if self.prop_kind in ("forward_inference", "forward_training"):
            return "forward"
        if self.prop_kind in ("backward_data", "backward_weights") and (self.kind, self.prop_kind) in SIGNATURES:
            return self.prop_kind
        return "backward"

    @property
    def signature(self) -> Signature:
        """The row of `SIGNATURES` for the operation."""
        return SIGNATURES[self.kind, self.direction]


class Implementation(Protocol):
    """The kernel that an engine selected for an operation, with the format of each argument."""

    @property
    def operation(self) -> Operation:
        """The operation that it implements."""

    @property
    def descs(self) -> Mapping[str, MemoryDesc]:
        """The descriptor of each argument, none `any`; `workspace` and `scratchpad` are included if needed."""

    @property
    def impl(self) -> str:
        """The engine's name of the kernel, such as `brgconv:avx512_core`."""

    @property
    def family(self) -> str:
        """The family of kernels, such as `brgconv`; cost models correct the times of a family by one factor."""

    @property
    def kernel_kind(self) -> KernelKind:
        """The technique of the kernel."""

    @property
    def is_reference(self) -> bool:
        """True for a reference kernel: it supports every format and is optimized for none."""

    @property
    def replaced(self) -> str:
        """The name of the preferred kernel if generating its code failed and this one replaces it; else empty."""

    @property
    def is_batched(self) -> bool:
        """True if `Engine.batch` accepts the functions that `bind` returns."""

    def create_primitive(self) -> None:
        """Generate the code now; otherwise the first `bind` generates it.

        Raises:
            Unimplemented: the engine cannot generate code for the operation.
        """

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """Return a function that computes once with these memories at each call, and keeps them alive.

        The caller has checked that the memories have the descriptors `descs`.

        Raises:
            Unimplemented: as `create_primitive`.
        """


@dataclass(frozen=True, slots=True)
class PlainImplementation:
    """An implementation made of a function that binds memories. Its code, if any, exists already."""

    operation: Operation
    """Operation that it implements."""
    descs: Mapping[str, MemoryDesc]
    """Descriptor of each argument, none `any`."""
    impl: str
    """Name of the kernel: `family:variant`."""
    binder: Callable[[Mapping[str, Memory]], Callable[[], None]]
    """Function that `bind` calls."""
    kernel_kind: KernelKind = "jit"
    """Technique of the kernel."""
    replaced: str = ""
    """Always empty: no code generation can fail."""
    is_batched: bool = False
    """True if the binder returns a `MachineCall`."""

    @property
    def family(self) -> str:
        """The family of kernels: `impl` up to the colon."""
        return self.impl.partition(":")[0]

    @property
    def is_reference(self) -> bool:
        """True for kernels that are optimized for no format."""
        return self.kernel_kind in ("reference", "numpy")

    def create_primitive(self) -> None:
        """Do nothing: the code exists already."""

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """Return a function that computes once with these memories at each call, and keeps them alive."""
        return self.binder(memories)


@dataclass(frozen=True, slots=True)
class ThreadTeam:
    """The GNU OpenMP threads of an engine, on which machine code of other engines can run.

    Idle OpenMP threads spin while they wait for the next parallel region. Code that runs between the calls of their
    engine therefore uses these threads; separate threads would compete with them for the processors.
    """

    parallel: int
    """Address of GOMP_parallel."""
    thread_num: int
    """Address of omp_get_thread_num."""
    num_threads: int
    """Address of omp_get_num_threads."""


_MACHINE_CODE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)


class MachineCall:
    """A call of machine code: a kernel, a copy, or a check of memory, alone from Python or within a batch."""

    __slots__ = ("_run", "address", "failure", "function", "number", "owner")

    def __init__(
        self,
        function: int,
        address: int,
        number: int,
        owner: object,
        failure: Callable[[], Exception] = AssertionError,
    ) -> None:
        """Prepare a call.

        Args:
            function: address of `int32_t function(void *address, int64_t number)`, which returns 0, or 1 to stop.
            address: first argument.
            number: second argument.
            owner: object that keeps the memory at `address` alive.
            failure: returns the exception to raise if the function returns 1: its class, or a function.
        """
        self.function, self.address, self.number, self.owner, self.failure = function, address, number, owner, failure
        self._run = _MACHINE_CODE(function)

    def __call__(self) -> None:
        """Run the code in this thread.

        Raises:
            Exception: the function returned 1; the exception is that of `failure`.
        """
        if self._run(self.address, self.number):
            raise self.failure()


class Batch(Protocol):
    """A sequence of bound calls of one engine that one call starts; the caller keeps it alive until `Engine.wait`."""

    def __len__(self) -> int:
        """Return the number of calls."""

    def put(self, i: int, call: Callable[[], None]) -> None:
        """Replace call `i` by one of the same implementation bound to other memories."""

    def submit(self) -> None:
        """Start to run all calls in order.

        Raises:
            OutOfMemory: the scratchpad cannot be allocated.
            InlayError: the engine fails.
            Exception: machine code stopped the batch; see `MachineCall.failure`.
        """


class Engine(Protocol):
    """A backend that computes primitives.

    Engines derive from this class. Its defaults are those of an engine that computes in the calling thread, one call
    after the other.
    """

    @property
    def name(self) -> str:
        """The name and version of the engine, such as `onednn 3.2.0` or `reference`."""

    @abstractmethod
    def create(self, operation: Operation) -> Implementation:
        """Choose a kernel, and the formats of the arguments that are `any`.

        Raises:
            Unimplemented: the engine does not support the operation.
            InvalidArguments: the engine rejects the arguments.
        """

    def supports(self, operation: Operation) -> bool:
        """Return False if the engine never supports such operations; if True, `create` may still fail."""
        return True

    def owns(self, operation: Operation) -> bool:
        """Return whether the engine is tried first for an operation: it has a fast kernel where others have none."""
        return False

    def accepts_any_contents(self, desc: MemoryDesc) -> bool:
        """Return whether kernels can read memory of an opaque format whatever its bytes are, as those of a file.

        They can if the bytes are elements alone. Some formats also hold offsets, which kernels would follow.
        """
        return False

    @property
    def num_threads(self) -> int:
        """The number of threads of implementations that are created from now on; 0 if it cannot be limited.

        `set_num_threads` and `ThreadLimit` limit it.
        """
        return 0

    @property
    def runtime(self) -> str:
        """The threading runtime, such as `omp`; empty without threads. Measured times are valid for one runtime."""
        return ""

    @property
    def thread_team(self) -> ThreadTeam | None:
        """The threads of the engine, for machine code of other engines; None if it cannot run on them."""
        return None

    def with_threads_of(self, host: "Engine") -> "Engine":
        """Return this engine set up to compute on the threads of `host`, between the calls of `host`."""
        return self

    @property
    def is_asynchronous(self) -> bool:
        """True if `Batch.submit` may return before its calls are done, so that the caller must `wait`."""
        return False

    @property
    def batches_machine_calls(self) -> bool:
        """True if `batch` accepts each `MachineCall`, also those of other engines."""
        return False

    def batch(self, calls: Sequence[Callable[[], None]]) -> Sequence[Batch]:
        """Group bound calls into as few batches as possible, in order.

        The calls are from implementations with `is_batched`. A `MachineCall` may come before and after each.
        """
        return ()

    def wait(self) -> None:
        """Block until all batches that this thread submitted are done."""
        return

    @property
    def propagates_special_values(self) -> bool:
        """True if all kernels treat NaN and infinities by IEEE 754; else sessions guard their inputs."""
        return True


EngineLike: TypeAlias = Engine | str | None
"""An engine, its name in the registry, or None for the default engine."""

Avoid: TypeAlias = Literal["reference"] | None
"""The kernels that a primitive must not use: `reference` for reference kernels; None allows all."""

_FACTORIES = {
    "onednn": "inlay.engines.onednn:make_engine",
    "inlay": "inlay.engines.inlay:make_engine",
    "reference": "inlay.engines.reference:make_engine",
}
_COMPANIONS = ("inlay",)  # names of the engines that add operations to every other engine
_engines: dict[str, Engine] = {}
_default: list[Engine] = []  # at most one
_fallback: list[str] = []  # at most one text: the reason why onednn is not the default engine
_lock = threading.RLock()
hold_across_forks(_lock)


def get_engine(engine: EngineLike = None) -> Engine:
    """Return the engine of this name, which the first call creates; or the default engine.

    Post-condition: get_engine(name) is get_engine(name).

    Raises:
        InvalidArguments: there is no engine of this name, or of the name in INLAY_ENGINE.
        MissingExtra: `onednn` is requested by name, and no oneDNN library can be loaded.
    """
    if engine is None:
        return _default[0] if _default else _get_default_engine()
    if not isinstance(engine, str):
        return _require_engine(engine)
    return _engines.get(engine) or _make_engine(engine)


def set_engine(engine: EngineLike) -> None:
    """Make `engine`, or the engine of this name, the default of this process; None restores the initial choice.

    Post-condition: get_engine() is get_engine(engine), unless it is None.

    Raises:
        InvalidArguments, MissingExtra: as `get_engine`.
    """
    chosen = [] if engine is None else [get_engine(engine)]
    with _lock:
        _default[:] = chosen
        _fallback.clear()


def companion_engines(engine: Engine) -> tuple[Engine, ...]:
    """Return `engine` and its companions, which run on its threads, in the order in which to try them."""
    others = (get_engine(name) for name in _COMPANIONS)
    return (engine, *(other.with_threads_of(engine) for other in others if other is not engine))


def select_reorder_engine(operation: Operation, engines: Iterable[Engine]) -> tuple[Engine, Implementation]:
    """Select the engine for a reorder between calls of an engine, from its `companion_engines`.

    It is the first whose implementation is generated code and batched; if there is none, the last that supports the
    reorder. Inlay's own code is the fastest in isolation. But its threads would compete with those of the engine,
    which spin while they wait for their next call; a reorder in the engine's own batch avoids that.

    Raises:
        Unimplemented, InvalidArguments: no engine supports it; the error of the first engine.
    """
    chosen: tuple[Engine, Implementation] | None = None
    errors: list[Exception] = []
    for engine in engines:
        try:
            chosen = engine, engine.create(operation)
        except (Unimplemented, InvalidArguments) as error:
            errors.append(error)
            continue
        if chosen[1].is_batched and chosen[1].kernel_kind == "jit":
            break
    if chosen is None:
        raise errors[0]
    return chosen


def create_with_companions(engine: Engine, operation: Operation) -> tuple[Engine, Implementation]:
    """Create an operation with the first of `companion_engines(engine)` that supports it; return both.

    An engine that owns the operation comes first.

    Raises:
        Unimplemented: none supports it.
        InvalidArguments: `engine` rejects the arguments.
    """
    for owner in companion_engines(engine)[1:]:
        if owner.owns(operation):
            with suppress(Unimplemented):
                return owner, owner.create(operation)
    try:
        return engine, engine.create(operation)
    except Unimplemented:
        for other in companion_engines(engine)[1:]:
            if other.supports(operation):
                return other, other.create(operation)
        raise


def explain_fallback() -> str | None:
    """Return why the default engine fell back to the reference engine, and the remedy; None if it did not.

    It is also None if INLAY_ENGINE or `set_engine` names the default engine.

    Raises:
        InvalidArguments, MissingExtra: as `get_engine`.
    """
    get_engine()
    return _fallback[0] if _fallback else None


def _require_engine(engine: Any) -> Engine:
    """Check that a value is an engine, and return it."""
    if Engine not in type(engine).__mro__:
        raise InvalidArguments(
            f"engine is {shown(engine)}: give one of {_list_engine_names()}, or a result of get_engine"
        )
    checked: Engine = engine
    return checked


def _list_engine_names() -> str:
    """Return the registered names, for an error text."""
    return ", ".join(map(repr, _FACTORIES))


def _get_default_engine() -> Engine:
    """Return the default engine; select it first if `set_engine` has not, once per process."""
    named = os.environ.get("INLAY_ENGINE", "")
    if named and named not in _FACTORIES:
        raise InvalidArguments(f"INLAY_ENGINE is {named!r}: set it to one of {_list_engine_names()}, or unset it")
    engine = get_engine(named) if named else _find_engine()
    with _lock:
        if not _default:
            _default.append(engine)
        return _default[0]


def _find_engine() -> Engine:
    """Return oneDNN if a library can be loaded; else record the reason and return the reference engine."""
    try:
        return get_engine("onednn")
    except MissingExtra as error:
        _fallback[:] = [str(error)]
        return get_engine("reference")


def _make_engine(name: str) -> Engine:
    """Import the package of an engine and create the engine, once per process."""
    if name not in _FACTORIES:
        raise InvalidArguments(f"there is no engine {name!r}: give one of {_list_engine_names()}")
    module, factory = _FACTORIES[name].split(":")
    # Import outside the lock: while a fork waits for the lock, a module cannot register handlers of forks.
    make = getattr(importlib.import_module(module), factory)
    with _lock:
        if name not in _engines:
            _engines[name] = make()
        return _engines[name]


def select_implementation(
    primitive_name: str, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid = None
) -> tuple[Engine, Implementation]:
    """Select the engine for an operation, and return it with its implementation.

    Args:
        primitive_name: class of the primitive; begins the error text.
        operation: the operation to compute.
        engine: the engine that the caller named; None for the default.
        hinted: the engine of the forward primitive, if `operation` is backward.
        avoid: "reference" to raise an error instead of falling back to the reference engine.

    Raises:
        InvalidArguments: `engine` differs from `hinted`, or has an unknown name.
        Unimplemented: the named engine does not support the operation; or neither the default engine nor, if allowed,
            the reference engine does.
    """
    chosen = hinted if engine is None and hinted is not None else get_engine(engine)
    if hinted is not None and chosen is not hinted:
        raise InvalidArguments(
            f"{primitive_name}: engine is {chosen.name}, and hint_forward was created by {hinted.name}: a workspace "
            "and formats have a meaning for one engine only, create both with one"
        )
    try:
        return create_with_companions(chosen, operation)
    except Unimplemented as error:
        reference = get_engine("reference")
        if engine is not None or chosen is reference or not _can_fall_back(operation):
            raise
        if avoid is not None:
            raise Unimplemented(
                f"{primitive_name}: {error}; leave out avoid='reference' to have the reference engine compute"
            ) from error
        return reference, reference.create(_rebase_hint(operation, reference))


def substitute_reference(operation: Operation, declined: Implementation) -> tuple[Engine, Implementation] | None:
    """Return the reference engine and its implementation with the formats of `declined`; None if there is none."""
    if not _can_fall_back(operation):
        return None
    reference = get_engine("reference")
    formats = {name: declined.descs[name] for name in operation.descs}
    try:
        substitute = reference.create(_rebase_hint(replace(operation, descs=formats), reference))
    except (InvalidArguments, Unimplemented):
        return None
    return (reference, substitute) if dict(substitute.descs) == dict(declined.descs) else None


def _can_fall_back(operation: Operation) -> bool:
    """Return whether another engine can compute the operation; a workspace is readable by its own engine only."""
    return operation.hint is None or "workspace" not in operation.hint.descs


def _rebase_hint(operation: Operation, engine: Engine) -> Operation:
    """Return the operation with a hint created by `engine` for the formats of the original hint."""
    if operation.hint is None:
        return operation
    forward, chosen = operation.hint.operation, operation.hint.descs
    descs = {name: chosen.get(name, desc) for name, desc in forward.descs.items()}
    return replace(operation, hint=engine.create(replace(forward, descs=descs)))
