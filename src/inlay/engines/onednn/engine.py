"""`OnednnEngine`: an operation becomes a primitive descriptor, whose answers become an implementation.

    descs        given ones stay; `any` is asked of the primitive descriptor, and so are workspace and scratchpad
    impl         its `impl_info_str`
    bind         the primitive is made at the first call, and found in the library's own cache at later ones

The library is told about tensors without `offset0` (`Descriptors.given`), in the spelling that has the preferred kernel
(`creation.spellings`). Where it cannot generate the code that it prefers, its next implementation of the same formats
computes; without one `bind` declines (`library.CodeGeneration`).
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.arguments import additions, arguments, attributes_handle, chosen, flaw, hidden, size_of
from inlay.engines.onednn.creation import (
    implementation_name,
    kernel_kind,
    kernel_rank,
    next_implementation,
    primitive_desc,
    said,
    spellings,
)
from inlay.engines.onednn.defects import Capabilities, capabilities, lacking
from inlay.engines.onednn.descs import Descriptors
from inlay.engines.onednn.execution import Bound, Executable, ExecutionPlan, Lane, Lanes, OpenMPTeam, thread_team
from inlay.engines.onednn.library import Handle, Library, RuntimeFailure, created, is_prone
from inlay.engines.onednn.together import PrimitiveBatch, batches
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.forks import hold_across_forks
from inlay.memory import Memory
from inlay.onednn_abi import CPU
from inlay.primitives.attributes import PLAIN
from inlay.primitives.engine import Engine, KernelKind, MemoryCheck, Operation, ThreadTeam
from inlay.primitives.rules import RECURRENT

_Result = TypeVar("_Result")
_MOST_IMPLEMENTATIONS: Final = 64

creation_lock = threading.RLock()
"""Held while the library creates anything, and across forks: locks of its own would stay locked in the child."""
hold_across_forks(creation_lock)


class OnednnEngine(Engine):
    """Computes primitives by a loaded oneDNN, from any number of threads."""

    propagates_special_values = False
    """Kernels of the library lose NaN and infinities in a ReLU, a maximum, a softmax: sessions guard against them."""
    thread_team: ThreadTeam | None = None
    """Its threads, for machine code of other engines; None where that cannot run on them."""

    def __init__(self, library: Library) -> None:
        """Make the library's engine of this processor.

        Raises:
            InlayError: the library refuses.
        """
        self.library = library
        """What computes."""
        self.descriptors = Descriptors(library)
        """Its descriptors and ours."""
        self.capabilities: Capabilities = capabilities(library, self.descriptors.data_types)
        """What it can do."""
        self.engine = created(library, "engine_create", "engine", CPU, 0)
        """The library's own."""
        self.team = OpenMPTeam(library)
        """How many threads it starts."""
        self.thread_team = thread_team(library)
        engine, team = self.engine, self.team
        some_bytes = self.descriptors.handle(MemoryDesc((1,), "u8"))
        self.lanes = Lanes([], lambda: Lane(library, engine, some_bytes, team))
        """What each Python thread executes with."""
        self.unmade: list[Handle] = []
        """Primitive descriptors that no primitive could be made of, which must stay: see `OnednnImplementation`."""
        self._plain = attributes_handle(library, self.descriptors, Operation("reorder", "forward_inference", {}))

    @property
    def name(self) -> str:
        """Its name and version, such as `onednn 3.2.0`."""
        return f"onednn {'.'.join(map(str, self.library.version))}"

    @property
    def num_threads(self) -> int:
        """How many threads implementations that are created now run on; 0 where the library alone decides."""
        return self.team.wanted

    @property
    def runtime(self) -> str:
        """What starts the library's threads: sequential, omp, tbb, threadpool, sycl."""
        return self.library.runtime

    @property
    def is_asynchronous(self) -> bool:
        """Whether an execution is only begun by its call, so that it must be waited for."""
        return self.capabilities.is_asynchronous

    def supports(self, operation: Operation) -> bool:
        """Whether the library is known to lack nothing of an operation."""
        return self._lack_of(operation) is None

    def _lack_of(self, operation: Operation) -> str | None:
        """What the library lacks of an operation, as the end of a sentence."""
        return lacking(self.capabilities, operation) or flaw(self.library.version, operation)

    def create(self, operation: Operation) -> "OnednnImplementation":
        """Choose the formats that are `any`, and how to compute: the best of what the library has.

        Raises:
            InvalidArguments: a backward operation has no hint or one of another kind, or the library, or the check
                before it, refuses the arguments.
            Unimplemented: the library lacks it (see `defects.lacking`), or the hint is of another engine.
            OutOfMemory: the library says so.
        """
        threads = self.team.wanted
        lane = self.lanes.lane
        if lane.threads != threads:
            lane.tell(threads)
        candidates = spellings(operation)
        with creation_lock:
            if len(candidates) == 1:
                created = candidates[0], self._spelled_desc(candidates[0], threads)
            else:
                created = self._best_of(candidates, threads)
            return OnednnImplementation(self, operation, *created, threads)

    def _best_of(self, candidates: Sequence[Operation], threads: int) -> tuple[Operation, Handle]:
        """The spelling with the preferred kernel, and its primitive descriptor; the first one of equal rank."""
        best: tuple[int, Operation, Handle] | None = None
        refusal: Unimplemented | None = None
        for spelled in candidates:
            try:
                descriptor = self._spelled_desc(spelled, threads)
            except Unimplemented as error:
                refusal = refusal or error
                continue
            rank = kernel_rank(implementation_name(self.library, descriptor))
            if best is None or rank < best[0]:
                best = (rank, spelled, descriptor)
            if rank == 0:
                break
        if best is None:
            assert refusal is not None
            raise refusal
        return best[1:]

    def _spelled_desc(self, spelled: Operation, threads: int) -> Handle:
        if (lack := self._lack_of(spelled)) is not None:
            raise Unimplemented(f"{self.library.name} has no {lack}")
        hint = self.hint_of(spelled)
        try:
            return self.on_sound_thread(partial(self.primitive_desc, spelled, hint), threads)
        except RuntimeFailure as failure:
            raise Unimplemented(f"{failure}: its code generator has an error") from failure

    def primitive_desc(self, operation: Operation, hint: Handle | None) -> Handle:
        """The library's primitive descriptor of an operation; `hint` is that of the forward operation.

        Raises:
            InvalidArguments, Unimplemented, OutOfMemory: as `creation.primitive_desc`.
        """
        plain = operation.attributes is PLAIN
        attributes = self._plain if plain else attributes_handle(self.library, self.descriptors, operation)
        added = additions(operation) if operation.kind in RECURRENT else {}
        whole = replace(operation, descs={**operation.descs, **added}) if added else operation
        return primitive_desc(self, whole, attributes, hint)

    def on_sound_thread(self, create: Callable[[], _Result], threads: int, *, isolate: bool = False) -> _Result:
        """Return `create()`, which creates something for so many threads, as `CodeGeneration.run`.

        Raises:
            RuntimeFailure: the library cannot create it.
        """
        prepare = partial(self.team.tell, threads)
        return self.library.code_generation.run(create, prepare, isolate=isolate)

    def hint_of(self, operation: Operation) -> Handle | None:
        """The primitive descriptor of the forward operation; None for an operation that is one.

        Raises:
            InvalidArguments: the hint is missing, or of another operation.
            Unimplemented: it is of another engine.
        """
        if operation.prop_kind in ("forward_inference", "forward_training"):
            return None
        hint = operation.hint
        if hint is None:
            raise InvalidArguments(
                f"{operation.kind} {operation.prop_kind} needs its forward primitive as hint: create that with "
                "forward_training first"
            )
        if not isinstance(hint, OnednnImplementation) or hint.engine is not self:
            raise Unimplemented(
                f"the hint of {operation.kind} {operation.prop_kind} is of another engine, whose formats and workspace "
                f"{self.library.name} does not know"
            )
        if hint.operation.kind != operation.kind or hint.operation.direction != "forward":
            raise InvalidArguments(
                f"the hint of {operation.kind} {operation.prop_kind} is {hint.operation.kind} "
                f"{hint.operation.prop_kind}: give the forward primitive of the same kind"
            )
        for name, desc in operation.descs.items():
            forward = hint.descs.get(name.removeprefix("diff_"))
            if forward is not None and forward.dims != desc.dims:
                raise InvalidArguments(
                    f"{name} of {operation.kind} {operation.prop_kind} has dims {desc.dims}, its forward primitive was "
                    f"created for {forward.dims}: a gradient has the dims of what it belongs to"
                )
        return hint.primitive_desc

    @property
    def batches_checks(self) -> bool:
        """Whether `batch` takes checks of memory: a primitive is done when the next one begins."""
        return not self.is_asynchronous

    def batch(self, calls: Sequence[Callable[[], None] | MemoryCheck]) -> list[PrimitiveBatch]:
        """Bound primitives of this engine, in order, in as few calls as their numbers of threads allow.

        Checks may stand before and after any of them; there is at least one primitive.
        """
        return batches(calls)

    def wait(self) -> None:
        """Return when everything that this thread began with `Bound.submit` is done."""
        self.lanes.lane.wait()


class OnednnImplementation:
    """A primitive descriptor of the library, and what it answered."""

    __slots__ = (
        "__weakref__",
        "_executable",
        "_spelled",
        "_threads",
        "descs",
        "engine",
        "operation",
        "primitive_desc",
        "replaced",
    )

    operation: Operation
    """What was asked."""
    engine: OnednnEngine
    """Who answered."""
    primitive_desc: Handle
    """The library's answer."""
    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument that is read or written, none `any`."""
    is_batched = True
    """Whether the library executes it with others in one call: see `OnednnEngine.batch`."""
    replaced: str
    """The name of the implementation that the library prefers and cannot generate code for; empty where it can."""

    def __init__(
        self, engine: OnednnEngine, operation: Operation, spelled: Operation, descriptor: Handle, threads: int
    ) -> None:
        """Ask the primitive descriptor what it chose.

        Args:
            engine: what created it.
            operation: what was asked.
            spelled: the same in the spelling that the primitive descriptor was created for.
            descriptor: the primitive descriptor.
            threads: how many threads it was created for.
        """
        self.operation, self.engine, self.primitive_desc = operation, engine, descriptor
        self._spelled, self._threads, self.replaced = spelled, threads, ""
        self.descs = MappingProxyType(chosen(engine, operation, descriptor))
        self._executable: Executable | None = None

    @property
    def impl(self) -> str:
        """The library's name for how it computes, such as `brgconv:avx512_core`."""
        return implementation_name(self.engine.library, self.primitive_desc)

    @property
    def family(self) -> str:
        """The first part of that name."""
        return self.impl.partition(":")[0]

    @property
    def kernel_kind(self) -> KernelKind:
        """What sort of code it is."""
        return kernel_kind(self.impl)

    @property
    def is_reference(self) -> bool:
        """Whether it is one of the library's reference kernels."""
        return self.kernel_kind == "reference"

    def bind(self, memories: Mapping[str, Memory]) -> Bound:
        """What computes once with these memories, each time it is called.

        Raises:
            InvalidArguments: one is missing, or there is one too many.
            Unimplemented: as `create_primitive`.
            OutOfMemory: the library has no room for the primitive.
        """
        return (self._executable or self._made()).bind(memories)

    def create_primitive(self) -> None:
        """Generate the code now; the first `bind` does it otherwise.

        Raises:
            Unimplemented: the library can describe the operation and not make a primitive of it.
            OutOfMemory: the library has no room for the primitive.
        """
        if self._executable is None:
            self._made()

    def _made(self) -> Executable:
        """The primitive, made at the first call."""
        engine = self.engine
        with creation_lock:
            if self._executable is None:
                self._executable = Executable(engine.library, engine.lanes, engine.engine, self._plan())
        return self._executable

    def _plan(self) -> ExecutionPlan:
        primitive = self._primitive()
        engine, operation, descriptor = self.engine, self.operation, self.primitive_desc
        used = arguments(engine, operation, descriptor, self.descs, self._spelled)
        return ExecutionPlan(
            primitive,
            used,
            frozenset(self.descs) - {argument.name for argument in used},
            hidden(engine, operation, descriptor),
            size_of(engine, descriptor, "scratchpad") if operation.attributes.scratchpad_mode == "library" else 0,
            self._threads,
            engine.capabilities.is_asynchronous,
            f"{operation.kind} {operation.prop_kind}",
        )

    def _primitive(self) -> Handle:
        """A primitive of the descriptor, or of the next implementation that the library can generate code for."""
        engine = self.engine
        engine.lanes.lane.tell(self._threads)
        create = partial(self._primitive_of, self.primitive_desc)
        try:
            return engine.on_sound_thread(create, self._threads, isolate=is_prone(self.descs.values()))
        except RuntimeFailure as failure:
            for created_next in self._next_implementations():
                self.replaced = self.impl
                self.primitive_desc, primitive = created_next
                return primitive
            raise Unimplemented(
                f"{failure}: its code generator fails, and none of its other implementations takes the same formats"
            ) from failure

    def _primitive_of(self, descriptor: Handle) -> Handle:
        engine = self.engine
        try:
            what = partial(said, self.operation)
            return created(engine.library, "primitive_create", "primitive", descriptor.value, what=what)
        except InlayError:
            # The library's cache goes on to hold pointers into what it could not make a primitive of, and follows them
            # when it makes room, 1024 primitives later.
            engine.unmade.append(descriptor)
            raise

    def _next_implementations(self) -> Iterator[tuple[Handle, Handle]]:
        """Primitive descriptors of the same formats, and their primitives, each created on a new thread."""
        for number in range(_MOST_IMPLEMENTATIONS):
            create = partial(self._numbered, number)
            try:
                made = self.engine.on_sound_thread(create, self._threads, isolate=True)
            except RuntimeFailure:
                continue
            except Unimplemented:
                return
            if made is not None:
                yield made

    def _numbered(self, number: int) -> tuple[Handle, Handle] | None:
        """The implementation of this number and its primitive; None where it has other formats.

        Raises:
            Unimplemented: there are fewer.
            RuntimeFailure: the library cannot generate its code.
        """
        engine, operation = self.engine, self._spelled
        formats = {name: self.descs[name] if desc.kind == "any" else desc for name, desc in operation.descs.items()}
        settled = replace(operation, descs=formats)
        descriptor = engine.primitive_desc(settled, engine.hint_of(settled))
        for _ in range(number):
            if not next_implementation(engine.library, descriptor):
                raise Unimplemented(f"{engine.library.name} has {number} implementations of {said(settled)}")
        if chosen(engine, settled, descriptor) != dict(self.descs):
            return None
        return descriptor, self._primitive_of(descriptor)
