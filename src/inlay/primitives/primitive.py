"""`Primitive`, the base class of all primitives: creation, descriptors, call.

The class of each kind checks its arguments by the rules of the specification, derives the descriptors that the caller
leaves out, and builds an `Operation`, for which an engine creates an `Implementation`. This module implements the part
that is common to all kinds: the choice of the engine, the final descriptors (`src_desc` ...), and the call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import ZERO, Memory
from inlay.memory.padding_contents import count_lanes
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.calls import (
    CallArguments,
    CallSignature,
    check_call,
    guard_sparse_entries,
    infer_call_signature,
    make_zero_fill,
    require_attributes,
)
from inlay.primitives.engine import (
    Avoid,
    Engine,
    EngineLike,
    Implementation,
    Operation,
    Parameter,
    select_implementation,
    substitute_reference,
)
from inlay.primitives.reference_kernels import warn_of_reference_kernel
from inlay.primitives.rules import (
    SIGNATURES,
    PropKind,
    require_any_allowed,
    require_choice,
    require_desc,
    require_non_overlapping,
    resolve_desc,
    type_of,
)

FORWARD: tuple[PropKind, ...] = ("forward_inference", "forward_training")
"""Propagation kinds of forward primitives."""

_ZERO_DESC = MemoryDesc()


class Primitive:
    """Base class of primitives: an operation with chosen formats and kernel, to be called on memory.

    `primitive(src=memory, ...)` checks that each memory has a descriptor equivalent to that of its argument, computes,
    and returns `dst`; if several arguments are written, it returns a mapping of them by name. Results that the caller
    leaves out get new memory. Values of attributes (`src_scales`, `post_op_0_src_1` ...) are arguments too. Several
    threads may call a primitive at once.

    Every class has the parameters `engine`, the engine that computes, and `avoid`. With `avoid="reference"` the class
    raises Unimplemented if only a reference kernel supports the operation; without it there is a PerformanceWarning.
    """

    __slots__ = ("_engine", "_implementation", "_last", "_may_substitute", "_operation", "_signature")

    kind: ClassVar[str]
    """Kind of the operation: a name of `rules.KINDS` or `rules.INLAY_KINDS`."""
    in_place: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    """Pairs (read argument, written argument) that may be the same memory."""
    _checks_sparse: ClassVar[bool] = True
    """True if the indices and pointers of sparse memory are checked before each run."""

    _operation: Operation
    _engine: Engine
    _implementation: Implementation
    _signature: CallSignature
    _may_substitute: bool
    _last: "_LastCall | None"

    def _create(
        self,
        prop_kind: PropKind,
        descs: Mapping[str, MemoryDesc | None],
        parameters: Mapping[str, Parameter],
        attributes: PrimitiveAttributes | None,
        engine: EngineLike,
        avoid: Avoid,
        hint: "Primitive | None" = None,
    ) -> None:
        """Check the rules that are common to all kinds, select an engine, and create the implementation.

        Raises:
            InvalidArguments: `any` for an argument that needs a format, overlapping elements of a written argument,
                invalid attributes, an engine other than that of the hint, or an unknown value of `avoid`.
            Unimplemented: no engine supports the operation; or only a reference kernel, and `avoid` is "reference".

        Warns:
            PerformanceWarning: a reference kernel computes (see `reference_kernels.warn_of_reference_kernel`).
        """
        primitive_name = type(self).__name__
        present = {name: desc for name, desc in descs.items() if desc is not None}
        wanted = PLAIN if attributes is None else attributes
        hinted = None if hint is None else hint._implementation
        operation = Operation(self.kind, prop_kind, present, dict(parameters), wanted, hinted)
        row = SIGNATURES[self.kind, operation.direction]
        for name, desc in operation.descs.items():
            require_desc(primitive_name, name, desc, sparse=name in row.sparse)
        require_any_allowed(primitive_name, operation.descs, row.free)
        for name in row.writes:
            if name in operation.descs:
                require_non_overlapping(primitive_name, name, operation.descs[name])
        require_attributes(primitive_name, operation)
        self._operation = operation
        if avoid is not None:
            require_choice(primitive_name, "avoid", avoid, ("reference",))
        hinted_engine = None if hint is None else hint._engine
        self._engine, self._implementation = self._select_implementation(operation, engine, hinted_engine, avoid)
        warn_of_reference_kernel(
            primitive_name, self._engine, self._implementation, avoid, is_named=engine is not None or hint is not None
        )
        self._may_substitute = engine is None and avoid is None
        self._signature = infer_call_signature(operation, self._implementation)
        self._last = None

    @classmethod
    def _select_implementation(
        cls, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid
    ) -> tuple[Engine, Implementation]:
        """Select the engine, and return it with its implementation."""
        return select_implementation(cls.__name__, operation, engine, hinted, avoid)

    @property
    def operation(self) -> Operation:
        """The operation for which the engine created the implementation."""
        return self._operation

    @property
    def engine(self) -> Engine:
        """The engine that computes: the requested one, or the reference engine if the default does not support it.

        It may change at the first call, if the default engine fails to generate code.
        """
        return self._engine

    @property
    def implementation(self) -> Implementation:
        """The implementation that the engine created."""
        return self._implementation

    @property
    def impl(self) -> str:
        """The engine's name of the kernel."""
        return self._implementation.impl

    @property
    def prop_kind(self) -> PropKind:
        """The propagation kind: inference, training or a gradient."""
        return self._operation.prop_kind

    @property
    def attributes(self) -> PrimitiveAttributes:
        """The scales, zero points, post-operations and modes."""
        return self._operation.attributes

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments of a call: those that it reads, then those that it writes."""
        return (*self._signature.reads, *self._signature.writes)

    def desc(self, name: str) -> MemoryDesc:
        """Return the descriptor of an argument, never `any`; the zero descriptor if this primitive does not use it.

        Raises:
            InvalidArguments: no primitive of this kind and direction has such an argument.
        """
        desc = self._signature.descs.get(name)
        if desc is not None:
            return desc
        row = self._operation.signature
        if name not in (*row.reads, *row.writes, "scratchpad", "workspace"):
            raise InvalidArguments(
                f"{type(self).__name__} has no argument {name!r}: it has {', '.join(self.arguments)}"
            )
        return _ZERO_DESC

    def _desc_or_zero(self, name: str) -> MemoryDesc:
        """Return the descriptor of an argument, or the zero descriptor."""
        return self._signature.descs.get(name, _ZERO_DESC)

    @property
    def src_desc(self) -> MemoryDesc:
        """The descriptor of `src`, or of the first source; the zero descriptor if there is none."""
        descs = self._signature.descs
        return descs.get("src") or descs.get("src_0") or descs.get("src_layer") or _ZERO_DESC

    @property
    def weights_desc(self) -> MemoryDesc:
        """The descriptor of `weights`; the zero descriptor if there are none."""
        return self._desc_or_zero("weights")

    @property
    def bias_desc(self) -> MemoryDesc:
        """The descriptor of `bias`; the zero descriptor if there is none."""
        return self._desc_or_zero("bias")

    @property
    def dst_desc(self) -> MemoryDesc:
        """The descriptor of `dst`; the zero descriptor if there is none."""
        descs = self._signature.descs
        return descs.get("dst") or descs.get("dst_layer") or _ZERO_DESC

    @property
    def diff_src_desc(self) -> MemoryDesc:
        """The descriptor of the gradient of the source; the zero descriptor if there is none."""
        return self._desc_or_zero("diff_src")

    @property
    def diff_weights_desc(self) -> MemoryDesc:
        """The descriptor of the gradient of the weights; the zero descriptor if there is none."""
        return self._desc_or_zero("diff_weights")

    @property
    def diff_bias_desc(self) -> MemoryDesc:
        """The descriptor of the gradient of the bias; the zero descriptor if there is none."""
        return self._desc_or_zero("diff_bias")

    @property
    def diff_dst_desc(self) -> MemoryDesc:
        """The descriptor of the gradient of the destination; the zero descriptor if there is none."""
        return self._desc_or_zero("diff_dst")

    @property
    def workspace_desc(self) -> MemoryDesc:
        """The descriptor of the workspace, which passes data from forward to backward; zero if there is none."""
        return self._desc_or_zero("workspace")

    @property
    def scratchpad_desc(self) -> MemoryDesc:
        """The descriptor of the caller's scratchpad; the zero descriptor if the engine has its own or needs none."""
        return self._desc_or_zero("scratchpad")

    def __call__(self, **memories: object) -> Any:
        """Compute, and return the result: its memory, or a mapping from names to memories if there are several.

        Results that are left out get new memory. A call with the same memory objects as the previous call skips the
        checks; for this the primitive holds references to the memories of its last call, if it had all of them.

        Padding that is read must be zero. Where its memory does not state that (`Memory.padding`), it is checked, and
        zeros are written into it if needed.

        Post-condition: the padding of results is zero.

        Raises:
            InvalidArguments: an argument is missing, unknown, not a Memory, or of a descriptor that is not equivalent
                (the text names the reorder to add); a result is read-only, or overlaps another argument; or an
                argument is read-only, and its padding is not zero.
            OutOfMemory: a result cannot be allocated.
        """
        last = self._last
        if last is not None and len(memories) == last.count:
            for name, memory in last.items:
                if memories.get(name) is not memory:
                    break
            else:
                if not last.padded or all(memory.padding == ZERO for memory in last.padded):
                    last.run()
                    return last.result
        return self._compute(memories)

    def bind(self, **memories: object) -> Callable[[], None]:
        """Return a function without parameters or checks that computes with these memories at each call.

        All arguments must be present. The function keeps the memories alive, and reads their content when it is called.
        Padding is checked here and not in its calls.

        Raises:
            InvalidArguments: as for a call, or a result is left out.
        """
        call = self._check_arguments(memories)
        if call.allocated:
            name = call.allocated[0]
            raise InvalidArguments(
                f"{type(self).__name__}: {name} is missing, and bind needs memory of every argument: give "
                f"{name}=Memory(primitive.desc({name!r}))"
            )
        return self._bind_checked(call.memories)

    def _compute(self, memories: Mapping[str, object]) -> Any:
        """Check, bind and run, and store the call if it can be repeated without checks."""
        call = self._check_arguments(memories)
        run = self._bind_checked(call.memories)
        run()
        for name in self._signature.writes:
            call.memories[name].note_padding(ZERO)
        written = {name: call.memories[name] for name in self._signature.results}
        result: Any = written if len(written) != 1 else next(iter(written.values()))
        padded = [call.memories[name] for name in self._signature.reads if count_lanes(call.memories[name].desc)]
        self._last = _LastCall(memories, run, result, padded) if call.is_repeatable else None
        return result

    def _bind_checked(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """Return a function that computes with memories that `check_call` returned."""
        # Tensors without elements never reach an engine: some engines divide by the number of elements.
        if self._signature.is_empty:
            return _compute_nothing
        if self._signature.is_all_zero:
            return make_zero_fill([memories[name] for name in self._signature.results])
        run = self._bind_implementation(memories)
        sparse = [memories[name] for name in self._signature.sparse if self._checks_sparse]
        return guard_sparse_entries(sparse, run) if sparse else run

    def _bind_implementation(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """Bind the implementation; switch to the reference engine if the default engine cannot generate code."""
        try:
            return self._implementation.bind(memories)
        except Unimplemented:
            substitute = substitute_reference(self._operation, self._implementation) if self._may_substitute else None
            if substitute is None:
                raise
            self._engine, self._implementation = substitute
            return self._implementation.bind(memories)

    def _check_arguments(self, memories: Mapping[str, object]) -> CallArguments:
        """Check the arguments of a call, and allocate the results that it leaves out."""
        return check_call(type(self).__name__, self._signature, self.in_place, memories)

    def __repr__(self) -> str:
        """Return the class, the propagation kind, the formats, the kernel and the engine as text."""
        formats = ", ".join(
            f"{name} {desc}" for name, desc in self._signature.descs.items() if name not in ("workspace", "scratchpad")
        )
        return f"<{type(self).__name__} {self.prop_kind}: {formats}; {self.impl} of {self._engine.name}>"


def _compute_nothing() -> None:
    """Do nothing: no result has an element."""


class _LastCall:
    """The arguments of the last call, its bound function, its result, and the memories with padding that it reads."""

    __slots__ = ("count", "items", "padded", "result", "run")

    def __init__(
        self, memories: Mapping[str, object], run: Callable[[], None], result: Any, padded: Sequence[Memory]
    ) -> None:
        self.items = tuple(memories.items())
        self.count = len(self.items)
        self.run = run
        self.result = result
        self.padded = padded


def require_forward_kind(primitive_name: str, prop_kind: str) -> PropKind:
    """Check that `prop_kind` is one of forward propagation, and return it.

    Raises:
        InvalidArguments: it is not.
    """
    return require_choice(primitive_name, "prop_kind", prop_kind, FORWARD)


def require_forward(primitive_name: str, hint: Any, forward: type[Primitive]) -> Primitive:
    """Check that `hint` is a primitive of class `forward`, created for training, and return it.

    Raises:
        InvalidArguments: it is missing, of another class, or created for inference.
    """
    if hint is None:
        raise InvalidArguments(
            f"{primitive_name}: hint_forward is missing: formats and workspace must fit the forward primitive, give "
            f"the {forward.__name__} whose gradient this is"
        )
    if not isinstance(hint, forward):
        raise InvalidArguments(
            f"{primitive_name}: hint_forward is a {type(hint).__name__}: give the {forward.__name__} whose gradient "
            "this is"
        )
    if hint.prop_kind != "forward_training":
        raise InvalidArguments(
            f"{primitive_name}: hint_forward is of prop_kind {hint.prop_kind}: make it for 'forward_training', which "
            "keeps what the gradient needs"
        )
    return hint


def descs_like_forward(primitive_name: str, hint: Primitive, **descs: MemoryDesc | None) -> dict[str, MemoryDesc]:
    """Return descriptors of arguments of the forward primitive `hint`, or of their gradients, by name.

    Each must have the dims of the forward argument. One that is None becomes a descriptor with the dims and type of
    the forward argument and any format.

    Raises:
        InvalidArguments: the dims of one differ.
    """
    resolved = {}
    for name, desc in descs.items():
        data = hint.desc(name.removeprefix("diff_"))
        why = f"those of {name.removeprefix('diff_')} of hint_forward"
        resolved[name] = resolve_desc(primitive_name, name, desc, data.dims, type_of(data), why)
    return resolved
