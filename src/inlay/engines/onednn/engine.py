"""`OnednnEngine` and `OnednnImplementation`: from an operation to a primitive that memories are bound to.

    descs        formats of the caller are kept; those for `any`, workspace and scratchpad are queried from the
                 primitive descriptor
    impl         the implementation name, `dnnl_query_impl_info_str`
    bind         creates the primitive at the first call; later ones find it in the library's cache

The library gets tensors without `offset0` (`DescriptorTable.convert`), in the stride variant that has the preferred
kernel (`creation.stride_variants`). If the code generation of the preferred implementation fails, the next one with the
same formats is used; without one, `bind` raises `Unimplemented` (`library.CodeGeneration`).
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.arguments import (
    create_attributes,
    execution_arguments,
    find_recurrent_defect,
    implicit_arguments,
    implicit_descs,
    query_size,
    resolve_descs,
)
from inlay.engines.onednn.batches import PrimitiveBatch, make_batches
from inlay.engines.onednn.creation import (
    advance_implementation,
    classify_kernel,
    create_primitive_desc,
    describe_operation,
    implementation_name,
    kernel_rank,
    stride_variants,
)
from inlay.engines.onednn.defects import Capabilities, detect_capabilities, find_unsupported
from inlay.engines.onednn.descs import DescriptorTable
from inlay.engines.onednn.execution import (
    BoundPrimitive,
    Executable,
    ExecutionPlan,
    OpenMPTeam,
    ThreadContext,
    ThreadContexts,
    find_thread_team,
)
from inlay.engines.onednn.library import Library, LibraryHandle, RuntimeFailure, create_handle, is_prone_to_failure
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.forks import hold_across_forks
from inlay.memory import Memory
from inlay.onednn_abi import CPU
from inlay.primitives.attributes import PLAIN
from inlay.primitives.engine import Engine, KernelKind, Operation, ThreadTeam
from inlay.primitives.rules import RECURRENT

_Result = TypeVar("_Result")
_MOST_IMPLEMENTATIONS: Final = 64

creation_lock = threading.RLock()
"""Lock that is held while the library creates an object, and during forks: the library's own locks would otherwise stay
locked in the child."""
hold_across_forks(creation_lock)


class OnednnEngine(Engine):
    """The engine of one loaded oneDNN; any number of Python threads may use it."""

    propagates_special_values = False
    """False: kernels of the library lose NaN and infinities in relu, maximum and softmax, so sessions add guards."""
    thread_team: ThreadTeam | None = None
    """OpenMP threads of the library, for machine code of other engines; None without GNU OpenMP."""

    def __init__(self, library: Library) -> None:
        """Create the library's engine for this processor.

        Raises:
            InlayError: the library fails.
        """
        self.library = library
        """The loaded library."""
        self.descriptors = DescriptorTable(library)
        """Conversions of descriptors for this library."""
        self.capabilities: Capabilities = detect_capabilities(library, self.descriptors.data_types)
        """Functions, types and settings of the library."""
        self.engine = create_handle(library, "engine_create", "engine", CPU, 0)
        """The `dnnl_engine_t` of the processor."""
        self.team = OpenMPTeam(library)
        """OpenMP threads of the library."""
        self.thread_team = find_thread_team(library)
        engine, team = self.engine, self.team
        bytes_desc = self.descriptors.handle(MemoryDesc((1,), "u8"))
        self.thread_contexts = ThreadContexts([], lambda: ThreadContext(library, engine, bytes_desc, team))
        """Stream and scratchpad of each Python thread."""
        self.failed_descriptors: list[LibraryHandle] = []
        """Primitive descriptors whose primitives could not be created; the library's cache points to them."""
        self._plain_attributes = create_attributes(
            library, self.descriptors, Operation("reorder", "forward_inference", {})
        )

    @property
    def name(self) -> str:
        """Name and version of the engine, such as `onednn 3.2.0`."""
        return f"onednn {'.'.join(map(str, self.library.version))}"

    @property
    def num_threads(self) -> int:
        """Number of threads for implementations that are created now; 0 if the library alone decides."""
        return self.team.num_threads

    @property
    def runtime(self) -> str:
        """Threading runtime of the library: sequential, omp, tbb, threadpool or sycl."""
        return self.library.runtime

    @property
    def is_asynchronous(self) -> bool:
        """True if a call only starts an execution, so that the engine must wait for it."""
        return self.capabilities.is_asynchronous

    def supports(self, operation: Operation) -> bool:
        """Return whether no reason is known for which the library would not support an operation."""
        return self._find_unsupported(operation) is None

    def _find_unsupported(self, operation: Operation) -> str | None:
        """Return why the library does not support an operation, as the end of `oneDNN has no ...`; None if unknown."""
        return find_unsupported(self.capabilities, operation) or find_recurrent_defect(self.library.version, operation)

    def create(self, operation: Operation) -> "OnednnImplementation":
        """Choose formats for the descriptors that are `any`, and the preferred kernel of the library.

        Raises:
            InvalidArguments: the arguments are invalid, or a backward operation has no hint or one of another kind.
            Unimplemented: the library does not support the operation, or the hint is of another engine.
            OutOfMemory: the library has no memory for the primitive descriptor.
        """
        threads = self.team.num_threads
        context = self.thread_contexts.current
        if context.threads != threads:
            context.set_num_threads(threads)
        candidates = stride_variants(operation)
        with creation_lock:
            if len(candidates) == 1:
                created = candidates[0], self._create_variant(candidates[0], threads)
            else:
                created = self._create_best_variant(candidates, threads)
            return OnednnImplementation(self, operation, *created, threads)

    def _create_best_variant(self, candidates: Sequence[Operation], threads: int) -> tuple[Operation, LibraryHandle]:
        """Return the stride variant with the preferred kernel (the first of equal rank) and its descriptor."""
        best: tuple[int, Operation, LibraryHandle] | None = None
        refusal: Unimplemented | None = None
        for variant in candidates:
            try:
                descriptor = self._create_variant(variant, threads)
            except Unimplemented as error:
                refusal = refusal or error
                continue
            rank = kernel_rank(implementation_name(self.library, descriptor))
            if best is None or rank < best[0]:
                best = (rank, variant, descriptor)
            if rank == 0:
                break
        if best is None:
            assert refusal is not None
            raise refusal
        return best[1:]

    def _create_variant(self, variant: Operation, threads: int) -> LibraryHandle:
        """Create the primitive descriptor of one stride variant; the errors are those of `create`."""
        if (reason := self._find_unsupported(variant)) is not None:
            raise Unimplemented(f"{self.library.name} has no {reason}")
        hint = self.find_hint_desc(variant)
        try:
            return self.create_on_clean_thread(partial(self.create_primitive_desc, variant, hint), threads)
        except RuntimeFailure as failure:
            raise Unimplemented(f"{failure}: its code generator has an error") from failure

    def create_primitive_desc(self, operation: Operation, hint: LibraryHandle | None) -> LibraryHandle:
        """Create the primitive descriptor of an operation; `hint` is that of the forward operation.

        Raises:
            InvalidArguments, Unimplemented, OutOfMemory: as `creation.create_primitive_desc`.
        """
        plain = operation.attributes is PLAIN
        attributes = self._plain_attributes if plain else create_attributes(self.library, self.descriptors, operation)
        added = implicit_descs(operation) if operation.kind in RECURRENT else {}
        whole = replace(operation, descs={**operation.descs, **added}) if added else operation
        return create_primitive_desc(self, whole, attributes, hint)

    def create_on_clean_thread(self, create: Callable[[], _Result], threads: int, *, isolate: bool = False) -> _Result:
        """Return `create()`, run on a thread whose code generator has not failed: see `CodeGeneration.run`.

        `threads` is the number of OpenMP threads for which the object is created.

        Raises:
            RuntimeFailure: the library cannot generate the code.
        """
        prepare = partial(self.team.set_num_threads, threads)
        return self.library.code_generation.run(create, prepare, isolate=isolate)

    def find_hint_desc(self, operation: Operation) -> LibraryHandle | None:
        """Return the primitive descriptor of the forward operation that belongs to a backward one; else None.

        Raises:
            InvalidArguments: the hint is missing, or belongs to another operation.
            Unimplemented: the hint belongs to another engine.
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
    def batches_machine_calls(self) -> bool:
        """True if batches may contain machine code: each primitive ends before the next one starts."""
        return not self.is_asynchronous

    def batch(self, calls: Sequence[Callable[[], None]]) -> list[PrimitiveBatch]:
        """Combine bound primitives of this engine, in order, into one batch for each run of equal thread numbers.

        A `MachineCall` of any engine may come before and after each.
        """
        return make_batches(calls)

    def wait(self) -> None:
        """Wait until all executions that this thread started with `submit` are complete."""
        self.thread_contexts.current.wait()


class OnednnImplementation:
    """A primitive descriptor of the library with the formats that it chose."""

    __slots__ = (
        "__weakref__",
        "_executable",
        "_threads",
        "_variant",
        "descs",
        "engine",
        "operation",
        "primitive_desc",
        "replaced",
    )

    operation: Operation
    """The operation as the caller described it."""
    engine: OnednnEngine
    """The engine that created this implementation."""
    primitive_desc: LibraryHandle
    """The `dnnl_primitive_desc_t`."""
    descs: Mapping[str, MemoryDesc]
    """Descriptor of each argument that is read or written; none is `any`."""
    is_batched = True
    """True: bound primitives of this engine can be part of a batch; see `OnednnEngine.batch`."""
    replaced: str
    """Name of the preferred implementation if the library could not generate its code, else empty."""

    def __init__(
        self, engine: OnednnEngine, operation: Operation, variant: Operation, descriptor: LibraryHandle, threads: int
    ) -> None:
        """Query the formats that the library chose.

        Args:
            engine: the engine that created the primitive descriptor.
            operation: the operation as the caller described it.
            variant: the stride variant of the operation that the primitive descriptor was created for.
            descriptor: the primitive descriptor.
            threads: the number of threads that it was created for.
        """
        self.operation, self.engine, self.primitive_desc = operation, engine, descriptor
        self._variant, self._threads, self.replaced = variant, threads, ""
        self.descs = MappingProxyType(resolve_descs(engine, operation, descriptor))
        self._executable: Executable | None = None

    @property
    def impl(self) -> str:
        """Implementation name of the library, such as `brgconv:avx512_core`."""
        return implementation_name(self.engine.library, self.primitive_desc)

    @property
    def family(self) -> str:
        """Part of the implementation name before the first colon."""
        return self.impl.partition(":")[0]

    @property
    def kernel_kind(self) -> KernelKind:
        """Kind of code of the kernel, by its name."""
        return classify_kernel(self.impl)

    @property
    def is_reference(self) -> bool:
        """True if the kernel is one of the library's reference kernels."""
        return self.kernel_kind == "reference"

    def bind(self, memories: Mapping[str, Memory]) -> BoundPrimitive:
        """Bind memories, by argument name, to the primitive; each call of the result executes it once.

        Raises:
            InvalidArguments: an argument is missing, or a name is not an argument.
            Unimplemented: as `create_primitive`.
            OutOfMemory: the library has no memory for the primitive.
        """
        return (self._executable or self._create_executable()).bind(memories)

    def create_primitive(self) -> None:
        """Generate the code now instead of in the first `bind`.

        Raises:
            Unimplemented: the library cannot generate code for these formats.
            OutOfMemory: the library has no memory for the primitive.
        """
        if self._executable is None:
            self._create_executable()

    def _create_executable(self) -> Executable:
        """Return the executable primitive; the first call creates it."""
        engine = self.engine
        with creation_lock:
            if self._executable is None:
                self._executable = Executable(
                    engine.library, engine.thread_contexts, engine.engine, self._execution_plan()
                )
        return self._executable

    def _execution_plan(self) -> ExecutionPlan:
        """Create the primitive and collect the data that its executions share."""
        primitive = self._create_primitive()
        engine, operation, descriptor = self.engine, self.operation, self.primitive_desc
        arguments = execution_arguments(engine, operation, descriptor, self.descs, self._variant)
        owns_scratchpad = operation.attributes.scratchpad_mode == "library"
        return ExecutionPlan(
            primitive=primitive,
            arguments=arguments,
            ignored=frozenset(self.descs) - {argument.name for argument in arguments},
            implicit=implicit_arguments(engine, operation, descriptor),
            scratch=query_size(engine, descriptor, "scratchpad") if owns_scratchpad else 0,
            threads=self._threads,
            is_asynchronous=engine.capabilities.is_asynchronous,
            operation_name=f"{operation.kind} {operation.prop_kind}",
        )

    def _create_primitive(self) -> LibraryHandle:
        """Create the primitive of the preferred implementation, or of the next one whose code can be generated.

        After a failure, oneDNN's code generator fails on the same thread forever. A clean thread is one without a
        failure; formats that are prone to failures get a thread of their own.

        Raises:
            Unimplemented: code generation fails for all implementations with these formats.
        """
        engine = self.engine
        engine.thread_contexts.current.set_num_threads(self._threads)
        create = partial(self._create_from_desc, self.primitive_desc)
        try:
            return engine.create_on_clean_thread(
                create, self._threads, isolate=is_prone_to_failure(self.descs.values())
            )
        except RuntimeFailure as failure:
            for descriptor, primitive in self._next_implementations():
                self.replaced, self.primitive_desc = self.impl, descriptor
                return primitive
            raise Unimplemented(
                f"{failure}: its code generator fails, and none of its other implementations has the same formats"
            ) from failure

    def _create_from_desc(self, descriptor: LibraryHandle) -> LibraryHandle:
        """Create the primitive of a primitive descriptor."""
        engine = self.engine
        try:
            describe = partial(describe_operation, self.operation)
            return create_handle(engine.library, "primitive_create", "primitive", descriptor.value, describe=describe)
        except InlayError:
            # The library's cache keeps pointers into the descriptor of a primitive that it could not create. It follows
            # them when it evicts the entry, 1024 primitives later, so the descriptor must stay alive.
            engine.failed_descriptors.append(descriptor)
            raise

    def _next_implementations(self) -> Iterator[tuple[LibraryHandle, LibraryHandle]]:
        """Iterate over primitive descriptors with the same formats, and their primitives, created on new threads."""
        for number in range(_MOST_IMPLEMENTATIONS):
            create = partial(self._create_implementation, number)
            try:
                created = self.engine.create_on_clean_thread(create, self._threads, isolate=True)
            except RuntimeFailure:
                continue
            except Unimplemented:
                return
            if created is not None:
                yield created

    def _create_implementation(self, number: int) -> tuple[LibraryHandle, LibraryHandle] | None:
        """Create the implementation with this number and its primitive; None if it has other formats.

        Raises:
            Unimplemented: the operation has no implementation with this number.
            RuntimeFailure: the library cannot generate its code.
        """
        engine, operation = self.engine, self._variant
        formats = {name: self.descs[name] if desc.kind == "any" else desc for name, desc in operation.descs.items()}
        resolved = replace(operation, descs=formats)
        descriptor = engine.create_primitive_desc(resolved, engine.find_hint_desc(resolved))
        for _ in range(number):
            if not advance_implementation(engine.library, descriptor):
                raise Unimplemented(
                    f"{engine.library.name} has {number} implementations of {describe_operation(resolved)}"
                )
        if resolve_descs(engine, resolved, descriptor) != dict(self.descs):
            return None
        return descriptor, self._create_from_desc(descriptor)
