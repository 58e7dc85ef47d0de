"""`Operation`, what is asked of an engine, and the protocols of an engine: all that the other packages know of one.

Primitives check what they are told by the rules of the specification and make an `Operation`; an `Engine` creates an
`Implementation`, which has a format for each argument and computes. So rules stand once, and engines differ only in
what they support and how fast they are. An engine also executes several bound calls as one `Batch`, and lets machine
code of other engines run on its `ThreadTeam`.

    operation = Operation("convolution", "forward_inference", descs={"src": ..., "weights": ..., "dst": ...}, ...)
    implementation = engine.create(operation)
    implementation.descs["weights"]                    # what `any` became
    run = implementation.bind({"src": memory, ...})    # addresses are settled once
    run()
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.signatures import SIGNATURES, Direction, PropKind, Signature

Parameter: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | frozenset[str]
"""A parameter of a primitive: one entry for each spatial axis where there are several, names of flags as a set."""

KernelKind: TypeAlias = Literal["jit", "gemm", "reference", "numpy", "other"]
"""What sort of code a kernel is: generated for its formats, a product of matrices, generic code, NumPy, or other."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One primitive with all but its data, checked by the rules of its kind."""

    kind: str
    """Which primitive: a name of `signatures.KINDS`."""
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
