"""Operations, the protocol of the engines that compute them, and the choice of an engine.

Primitives check what they are told by the rules of the specification and make an `Operation`; an `Engine` creates an
`Implementation`, which has a format for each argument and computes. So rules stand once, and engines differ only in
what they support and how fast they are. An engine also executes several bound calls as one `Batch`, and lets machine
code of other engines run on its `ThreadTeam`. This is all that the other packages know of an engine.

    operation = Operation("convolution", "forward_inference", descs={"src": ..., "weights": ..., "dst": ...}, ...)
    implementation = engine.create(operation)
    implementation.descs["weights"]                    # what `any` became
    run = implementation.bind({"src": memory, ...})    # addresses are settled once
    run()

Engines are registered by name. Their package imports this one, so each is known here by a text, `module:factory`, and
loaded when it is first asked for: the one late import from primitives to engines (decision 0012). Without a name the
choice is

    INLAY_ENGINE in the environment, or what `set_engine` said
    onednn, where a library of oneDNN can be loaded
    reference, everywhere

>>> get_engine("reference").name
'reference'

An engine that was named computes, or its refusal is raised. The default engine may decline too (oneDNN 3.2 has no group
normalization): then the reference computes, slower and with the same results, and the primitive's `engine` says so. An
engine may also accept an operation and decline when its code is generated, at the first call: `replaced` returns the
implementation of the reference engine that takes the same formats.

An engine, oneDNN too, may compute by a reference kernel, which is right in every format, and slow:

    Convolution(src, weights)                       warns, once in a process for each kind and direction
    Convolution(src, weights, avoid="reference")    raises

Only the implementation knows whether its kernel is one (`Implementation.is_reference`). Nothing is said where the
reference engine was chosen, and where only the engine knows a format, so that nobody can choose another.
"""

import importlib
import os
import sys
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, MissingExtra, PerformanceWarning, Unimplemented, shown
from inlay.forks import hold_across_forks
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.rules import SIGNATURES, Direction, PropKind, Signature

Parameter: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | frozenset[str]
"""A parameter of a primitive: one entry for each spatial axis where there are several, names of flags as a set."""

KernelKind: TypeAlias = Literal["jit", "gemm", "reference", "numpy", "other"]
"""What sort of code a kernel is: generated for its formats, a product of matrices, generic code, NumPy, or other."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One primitive with all but its data, checked by the rules of its kind."""

    kind: str
    """Which primitive: a name of `rules.KINDS`."""
    prop_kind: PropKind
    """What it is run for."""
    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument that is given, by its name in the signature; the engine chooses `any`."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """Every parameter of the signature; windows are 0-dilated when dense, as oneDNN counts."""
    attributes: PrimitiveAttributes = PLAIN
    """Scales, zero points, post-operations and modes."""
    hint: "Implementation | None" = None
    """The forward implementation that a backward operation belongs to, of the same engine."""

    @property
    def direction(self) -> Direction:
        """The row of the table that it belongs to."""
        if self.prop_kind in ("forward_inference", "forward_training"):
            return "forward"
        if self.prop_kind in ("backward_data", "backward_weights") and (self.kind, self.prop_kind) in SIGNATURES:
            return self.prop_kind
        return "backward"

    @property
    def signature(self) -> Signature:
        """Its arguments and parameters."""
        return SIGNATURES[self.kind, self.direction]


class Implementation(Protocol):
    """How an engine computes an operation: the formats, and the computation itself."""

    @property
    def operation(self) -> Operation:
        """What was asked."""

    @property
    def descs(self) -> Mapping[str, MemoryDesc]:
        """A descriptor for every argument it reads or writes, none `any`; `workspace` and `scratchpad` if needed."""

    @property
    def impl(self) -> str:
        """The engine's name for how it computes, such as `brgconv:avx512_core`."""

    @property
    def family(self) -> str:
        """The family of kernels that it belongs to, such as `brgconv`: a model is wrong of all of it by one factor."""

    @property
    def kernel_kind(self) -> KernelKind:
        """What sort of code its kernel is."""

    @property
    def is_reference(self) -> bool:
        """Whether it computes by a reference kernel: right in every format, and made to be fast in none."""

    @property
    def replaced(self) -> str:
        """The implementation that the engine prefers and cannot generate code for; empty where it can."""

    @property
    def is_batched(self) -> bool:
        """Whether `Engine.batch` takes what it binds."""

    def create_primitive(self) -> None:
        """Generate the code now; the first `bind` does it otherwise.

        Raises:
            Unimplemented: this engine does not compute it after all.
        """

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """What computes once with these memories, which have the formats of `descs`; it may be called again and again.

        Whoever calls has checked the descriptors. The result keeps the memories alive.

        Raises:
            Unimplemented: as `create_primitive`.
        """


@dataclass(frozen=True, slots=True)
class PlainImplementation:
    """An implementation that a function binds, without code to generate and without batches."""

    operation: Operation
    """What was asked."""
    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument, none `any`."""
    impl: str
    """How it computes: `family:variant`."""
    binder: Callable[[Mapping[str, Memory]], Callable[[], None]]
    """Computes once with these memories: see `Implementation.bind`."""
    kernel_kind: KernelKind = "jit"
    """What sort of code its kernel is."""
    replaced: str = ""
    """Nothing: it has code."""
    is_batched: bool = False
    """Whether `Engine.batch` takes what it binds."""

    @property
    def family(self) -> str:
        """The family of kernels that it belongs to."""
        return self.impl.partition(":")[0]

    @property
    def is_reference(self) -> bool:
        """Whether it is made to be fast in no format."""
        return self.kernel_kind in ("reference", "numpy")

    def create_primitive(self) -> None:
        """Do nothing: `bind` generates no code."""

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """What computes once with these memories, each time it is called; it keeps them alive."""
        return self.binder(memories)


@dataclass(frozen=True, slots=True)
class ThreadTeam:
    """Threads of an engine that run other machine code as well: a team of GNU OpenMP, by its functions.

    Idle threads of OpenMP look busily for their next call. Code that runs between calls of their engine therefore runs
    on them: threads of its own would have to take the processors from them.
    """

    parallel: int
    """Address of GOMP_parallel."""
    thread_num: int
    """Address of omp_get_thread_num."""
    num_threads: int
    """Address of omp_get_num_threads."""


@dataclass(frozen=True, slots=True)
class MemoryCheck:
    """A check of memory between two calls of a batch, by machine code."""

    function: int
    """Address of the code: `int32_t function(void *address, int64_t number)`, which answers 1 to end the execution."""
    address: int
    """What it is given."""
    number: int
    """What else it is given."""
    failure: type[Exception]
    """What is raised if it answers 1."""
    owner: object
    """What keeps the memory alive."""


class Batch(Protocol):
    """Bound calls of one engine that are begun by one call, in order; whoever uses it keeps it until `Engine.wait`."""

    def __len__(self) -> int:
        """How many calls and checks there are."""

    def put(self, i: int, call: Callable[[], None]) -> None:
        """Replace call `i` by the same implementation with other memories."""

    def submit(self) -> None:
        """Begin to compute all.

        Raises:
            OutOfMemory: there is no room for the scratchpad.
            InlayError: the engine fails.
            Exception: the failure of a check.
        """


class Engine(Protocol):
    """What computes primitives.

    An engine derives from this class. What it does not define is as in an engine that computes in the calling thread,
    one call after the other.
    """

    @property
    def name(self) -> str:
        """Its name and version, such as `onednn 3.2.0` or `reference`."""

    @abstractmethod
    def create(self, operation: Operation) -> Implementation:
        """Choose the formats that are `any`, and how to compute.

        Raises:
            Unimplemented: this engine does not compute it.
            InvalidArguments: it refuses the arguments.
        """

    def supports(self, operation: Operation) -> bool:
        """Whether this engine computes such operations at all; `create` tells for certain."""
        return True

    @property
    def num_threads(self) -> int:
        """How many threads implementations that are created now compute on; 0 where they cannot be limited.

        `set_num_threads` and `ThreadLimit` limit them.
        """
        return 0

    @property
    def runtime(self) -> str:
        """What starts its threads, such as `omp`; empty where it starts none. Times depend on it."""
        return ""

    @property
    def thread_team(self) -> ThreadTeam | None:
        """Its threads, for machine code of other engines; None where that cannot run on them."""
        return None

    def beside(self, host: "Engine") -> "Engine":
        """This engine on the threads of `host`, between whose calls it computes."""
        return self

    @property
    def is_asynchronous(self) -> bool:
        """Whether batches are only begun by `Batch.submit`, so that they must be waited for."""
        return False

    @property
    def batches_checks(self) -> bool:
        """Whether `batch` takes checks of memory between calls."""
        return False

    def batch(self, calls: Sequence[Callable[[], None] | MemoryCheck]) -> Sequence[Batch]:
        """Calls that implementations with `is_batched` bound, in order, in as few batches as possible.

        Checks may stand after any of them; the first one is a call.
        """
        return ()

    def wait(self) -> None:
        """Return when everything that this thread began with `Batch.submit` is done."""
        return

    @property
    def propagates_special_values(self) -> bool:
        """Whether all kernels compute with NaN and infinities as IEEE 754 says; sessions guard others against them."""
        return True


EngineLike: TypeAlias = Engine | str | None
"""An engine, its name in the registry, or None for the default."""

Avoid: TypeAlias = Literal["reference"] | None
"""Which kernels a primitive is not to be computed by: `reference` ones, or any will do."""

_FACTORIES = {
    "onednn": "inlay.engines.onednn:make_engine",
    "inlay": "inlay.engines.inlay:make_engine",
    "reference": "inlay.engines.reference:make_engine",
}
_BESIDE = ("inlay",)  # they add to every engine what only they compute
_engines: dict[str, Engine] = {}
_default: list[Engine] = []  # at most one
_fallback: list[str] = []  # why the default was not the first choice: at most one text
_lock = threading.RLock()
hold_across_forks(_lock)


def get_engine(engine: EngineLike = None) -> Engine:
    """The engine of this name, made at the first call; without a name the default one.

    Post-condition: get_engine(name) is get_engine(name).

    Raises:
        InvalidArguments: there is no engine of this name, or INLAY_ENGINE names none.
        MissingExtra: `onednn` is asked for by name, and no library of it can be loaded.
    """
    if engine is None:
        return _default[0] if _default else _chosen()
    if not isinstance(engine, str):
        return _checked(engine)
    return _engines.get(engine) or _made(engine)


def set_engine(engine: EngineLike) -> None:
    """Make `engine`, or the engine of this name, the default of this process; None chooses anew.

    Post-condition: get_engine() is get_engine(engine), unless it is None.

    Raises:
        InvalidArguments, MissingExtra: as `get_engine`.
    """
    chosen = [] if engine is None else [get_engine(engine)]
    with _lock:
        _default[:] = chosen
        _fallback.clear()


def engines_beside(engine: Engine) -> tuple[Engine, ...]:
    """`engine`, and those that add what only they compute, on its threads; in the order in which they are asked."""
    others = (get_engine(name) for name in _BESIDE)
    return (engine, *(other.beside(engine) for other in others if other is not engine))


def select_reorder_engine(operation: Operation, engines: Iterable[Engine]) -> tuple[Engine, Implementation]:
    """Return who of `engines_beside(engine)` computes a reorder among calls of `engine`, and how.

    It is the first that has machine code for it and batches it with other calls, else the last that computes it.
    Inlay's machine code is the faster one by itself. But its threads would have to take the processors from the
    engine's, which wait for their next call busily; a reorder in the engine's own batch spares that.

    Raises:
        Unimplemented, InvalidArguments: none computes it; what the first one says.
    """
    chosen: tuple[Engine, Implementation] | None = None
    refusals: list[Exception] = []
    for engine in engines:
        try:
            chosen = engine, engine.create(operation)
        except (Unimplemented, InvalidArguments) as error:
            refusals.append(error)
            continue
        if chosen[1].is_batched and chosen[1].kernel_kind == "jit":
            break
    if chosen is None:
        raise refusals[0]
    return chosen


def create_beside(engine: Engine, operation: Operation) -> tuple[Engine, Implementation]:
    """Return the first of `engines_beside(engine)` that computes an operation, and its implementation.

    Raises:
        Unimplemented: none does.
        InvalidArguments: `engine` refuses the arguments.
    """
    try:
        return engine, engine.create(operation)
    except Unimplemented:
        for other in engines_beside(engine)[1:]:
            if other.supports(operation):
                return other, other.create(operation)
        raise


def explain_fallback() -> str | None:
    """Why the default engine is the reference engine although nobody chose it, with what to do; None where it is not.

    INLAY_ENGINE and `set_engine` are choices: where one of them names an engine, this is None.

    Raises:
        InvalidArguments, MissingExtra: as `get_engine`.
    """
    get_engine()
    return _fallback[0] if _fallback else None


def _checked(engine: Any) -> Engine:
    if Engine not in type(engine).__mro__:
        raise InvalidArguments(f"engine is {shown(engine)}: give one of {_names()}, or what get_engine answers")
    found: Engine = engine
    return found


def _names() -> str:
    return ", ".join(map(repr, _FACTORIES))


def _chosen() -> Engine:
    """The default where nothing was set: found once, so that all primitives agree."""
    named = os.environ.get("INLAY_ENGINE", "")
    if named and named not in _FACTORIES:
        raise InvalidArguments(f"INLAY_ENGINE is {named!r}: set it to one of {_names()}, or unset it")
    found = get_engine(named) if named else _best()
    with _lock:
        if not _default:
            _default.append(found)
        return _default[0]


def _best() -> Engine:
    try:
        return get_engine("onednn")
    except MissingExtra as error:
        _fallback[:] = [str(error)]
        return get_engine("reference")


def _made(name: str) -> Engine:
    if name not in _FACTORIES:
        raise InvalidArguments(f"there is no engine {name!r}: give one of {_names()}")
    module, factory = _FACTORIES[name].split(":")
    # Imported before: modules that a fork waits for may not register what is called around forks.
    make = getattr(importlib.import_module(module), factory)
    with _lock:
        if name not in _engines:
            _engines[name] = make()
        return _engines[name]


def created(
    place: str, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid = None
) -> tuple[Engine, Implementation]:
    """The engine that computes `operation`, and its answer; `hinted` is the engine of the forward primitive.

    Raises:
        InvalidArguments: `engine` is another one than the forward primitive's, or there is none of its name.
        Unimplemented: the engine that was named declines, or every engine does, or every engine that is not avoided.
    """
    chosen = hinted if engine is None and hinted is not None else get_engine(engine)
    if hinted is not None and chosen is not hinted:
        raise InvalidArguments(
            f"{place}: engine is {chosen.name}, and hint_forward was created by {hinted.name}: a workspace and formats "
            "have a meaning for one engine only, create both with one"
        )
    try:
        return create_beside(chosen, operation)
    except Unimplemented as error:
        reference = get_engine("reference")
        if engine is not None or chosen is reference or not _can_move(operation):
            raise
        if avoid is not None:
            raise Unimplemented(
                f"{place}: {error}; leave out avoid='reference' to have the reference engine compute"
            ) from error
        return reference, reference.create(_moved(operation, reference))


def replaced(operation: Operation, declined: Implementation) -> tuple[Engine, Implementation] | None:
    """The reference engine and its implementation of the formats of another engine's; None where there is none."""
    if not _can_move(operation):
        return None
    reference = get_engine("reference")
    formats = {name: declined.descs[name] for name in operation.descs}
    try:
        found = reference.create(_moved(replace(operation, descs=formats), reference))
    except (InvalidArguments, Unimplemented):
        return None
    return (reference, found) if dict(found.descs) == dict(declined.descs) else None


def _can_move(operation: Operation) -> bool:
    """Whether another engine can go on: what the forward primitive keeps is known to its own engine only."""
    return operation.hint is None or "workspace" not in operation.hint.descs


def _moved(operation: Operation, engine: Engine) -> Operation:
    """The operation, with a hint of `engine` for the formats that were chosen."""
    if operation.hint is None:
        return operation
    forward, chosen = operation.hint.operation, operation.hint.descs
    descs = {name: chosen.get(name, desc) for name, desc in forward.descs.items()}
    return replace(operation, hint=engine.create(replace(forward, descs=descs)))


_PACKAGE = __name__.rsplit(".", 1)[0]
_warned: set[tuple[str, str]] = set()


def forget_warnings() -> None:
    """Warn again of what was warned of."""
    _warned.clear()


def judge(place: str, engine: Engine, implementation: Implementation, avoid: Avoid, *, is_named: bool) -> None:
    """Warn of a reference kernel, or refuse it.

    Args:
        place: the class of the primitive, which begins the message.
        engine: what computes.
        implementation: its answer.
        avoid: what the caller said.
        is_named: whether the caller named the engine, or a forward primitive of it.

    Raises:
        Unimplemented: the kernel is a reference kernel, and `avoid` is "reference".

    Warns:
        PerformanceWarning: it is one, and nothing was said of this kind and direction before.
    """
    if not implementation.is_reference:
        return
    operation = implementation.operation
    how = f"{engine.name} computes it by its reference kernel {implementation.impl}"
    if engine.name == "reference":
        how = "no engine but the reference computes it"
    text = f"{place}: {how}, many times as slowly as by others: {_remedy(operation)}"
    if avoid is not None:
        raise Unimplemented(f"{text}; or leave out avoid='reference'")
    is_expected = engine.name == "reference" and (is_named or engine is get_engine())
    key = operation.kind, operation.direction
    if is_expected or key in _warned or any(desc.kind == "opaque" for desc in operation.descs.values()):
        return
    _warned.add(key)
    warnings.warn(f"{text}; avoid='reference' raises here", PerformanceWarning, stacklevel=_depth())


def _remedy(operation: Operation) -> str:
    """What to do for a faster kernel."""
    free = [name for name in operation.descs if name in operation.signature.free]
    given = [name for name in free if operation.descs[name].kind != "any"]
    if given and operation.signature.reads[0] in free:
        return f"describe {' and '.join(given)} by 'any', and reorder to the formats that it chooses"
    sources = [name for name, desc in operation.descs.items() if name not in free and desc.ndims > 1]
    if sources:
        return f"reorder {' and '.join(sources)} to another format, such as row-major, channels last or blocked by 16"
    return "it has no other for these dims, types and attributes, so choose others, such as f32"


def _depth() -> int:
    """How many frames lie between `judge` and the caller of this package, as `warnings.warn` counts."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    return depth
