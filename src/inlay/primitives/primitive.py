"""`Primitive`, the base class of all primitives: creation, descriptors, call.

The class of a kind checks its arguments by the rules of the specification, derives what is left out, and makes an
`Operation`, for which an engine creates an `Implementation`. This module has what is the same for all kinds: the choice
of the engine, the descriptors that it chose (`src_desc` ...), and the call.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.calls import CallArguments, Expected, checked, checking, expected, require_attributes, zeroing
from inlay.primitives.engine import (
    Avoid,
    Engine,
    EngineLike,
    Implementation,
    Operation,
    Parameter,
    created,
    judge,
    replaced,
)
from inlay.primitives.rules import (
    SIGNATURES,
    PropKind,
    choice,
    desc_of,
    require_distinct,
    require_free,
    settled,
    type_of,
)

FORWARD: tuple[PropKind, ...] = ("forward_inference", "forward_training")
"""What a forward primitive may be run for."""

_NOTHING = MemoryDesc()


class Primitive:
    """A primitive with all but its data: formats are chosen, the call computes.

    `primitive(src=memory, ...)` checks that each memory has a descriptor equivalent to that of its argument, computes,
    and answers `dst`, new memory if it was left out; or, where several things are written, a mapping of them by name.
    Values of attributes (`src_scales`, `post_op_0_src_1` ...) are arguments too. It may be called from several threads
    at once.

    Every class takes `engine`, which computes, and `avoid`: with "reference" it is an error (Unimplemented) if only a
    reference kernel computes it, of which a PerformanceWarning tells otherwise.
    """

    __slots__ = ("_engine", "_expected", "_implementation", "_is_named", "_last", "_operation")

    kind: ClassVar[str]
    """Its row in the table of signatures."""
    in_place: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    """Which argument that is read may lie exactly on which one that is written."""
    _checks_sparse: ClassVar[bool] = True
    """Whether what sparse memory says of places is checked before each run."""

    _operation: Operation
    _engine: Engine
    _implementation: Implementation
    _expected: Expected
    _is_named: bool
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
        """Check what is common to all kinds, ask the engine, and keep its answer.

        Raises:
            InvalidArguments: `any` where a format must be given, elements that are written overlap, attributes that do
                not fit, another engine than the hint's, `avoid` is another word.
            Unimplemented: no engine computes it, or only a reference kernel, and `avoid` is "reference".

        Warns:
            PerformanceWarning: a reference kernel computes (see `engine.judge`).
        """
        place = type(self).__name__
        present = {name: desc for name, desc in descs.items() if desc is not None}
        wanted = PLAIN if attributes is None else attributes
        hinted = None if hint is None else hint._implementation
        operation = Operation(self.kind, prop_kind, present, dict(parameters), wanted, hinted)
        row = SIGNATURES[self.kind, operation.direction]
        given = operation.descs
        for name, desc in given.items():
            desc_of(place, name, desc, sparse=name in row.sparse)
        require_free(place, given, row.free)
        for name in row.writes:
            if name in given:
                require_distinct(place, name, given[name])
        require_attributes(place, operation)
        self._operation = operation
        if avoid is not None:
            choice(place, "avoid", avoid, ("reference",))
        hinted_engine = None if hint is None else hint._engine
        self._engine, self._implementation = self._ask(operation, engine, hinted_engine, avoid)
        judge(place, self._engine, self._implementation, avoid, is_named=engine is not None or hint is not None)
        self._is_named = engine is not None or avoid is not None
        self._expected = expected(operation, self._implementation)
        self._last = None

    @classmethod
    def _ask(
        cls, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid
    ) -> tuple[Engine, Implementation]:
        """The engine that computes, and its answer."""
        return created(cls.__name__, operation, engine, hinted, avoid)

    @property
    def operation(self) -> Operation:
        """What the engine was asked."""
        return self._operation

    @property
    def engine(self) -> Engine:
        """What computes: the engine that was asked, or the reference where the default one could not.

        The default engine may also find out at the first call that it cannot.
        """
        return self._engine

    @property
    def implementation(self) -> Implementation:
        """The engine's answer."""
        return self._implementation

    @property
    def impl(self) -> str:
        """The engine's name for how it computes."""
        return self._implementation.impl

    @property
    def prop_kind(self) -> PropKind:
        """What it is run for."""
        return self._operation.prop_kind

    @property
    def attributes(self) -> PrimitiveAttributes:
        """What it computes besides its formula."""
        return self._operation.attributes

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names that a call takes: what is read, then what is written."""
        return (*self._expected.reads, *self._expected.writes)

    def desc(self, name: str) -> MemoryDesc:
        """The descriptor of an argument, none `any`; the zero descriptor where this primitive has no use for it.

        Raises:
            InvalidArguments: no primitive of this kind and direction has such an argument.
        """
        found = self._expected.descs.get(name)
        if found is not None:
            return found
        signature = self._operation.signature
        if name not in (*signature.reads, *signature.writes, "scratchpad", "workspace"):
            raise InvalidArguments(
                f"{type(self).__name__} has no argument {name!r}: it has {', '.join(self.arguments)}"
            )
        return _NOTHING

    def _known(self, name: str) -> MemoryDesc:
        return self._expected.descs.get(name, _NOTHING)

    @property
    def src_desc(self) -> MemoryDesc:
        """Of `src`, or of the first source; the zero descriptor if there is none."""
        descs = self._expected.descs
        return descs.get("src") or descs.get("src_0") or descs.get("src_layer") or _NOTHING

    @property
    def weights_desc(self) -> MemoryDesc:
        """Of `weights`, the zero descriptor if there are none."""
        return self._known("weights")

    @property
    def bias_desc(self) -> MemoryDesc:
        """Of `bias`, the zero descriptor if there is none."""
        return self._known("bias")

    @property
    def dst_desc(self) -> MemoryDesc:
        """Of `dst`; the zero descriptor if there is none."""
        descs = self._expected.descs
        return descs.get("dst") or descs.get("dst_layer") or _NOTHING

    @property
    def diff_src_desc(self) -> MemoryDesc:
        """Of the gradient of the source; the zero descriptor if there is none."""
        return self._known("diff_src")

    @property
    def diff_weights_desc(self) -> MemoryDesc:
        """Of the gradient of the weights; the zero descriptor if there is none."""
        return self._known("diff_weights")

    @property
    def diff_bias_desc(self) -> MemoryDesc:
        """Of the gradient of the bias; the zero descriptor if there is none."""
        return self._known("diff_bias")

    @property
    def diff_dst_desc(self) -> MemoryDesc:
        """Of the gradient of the destination; the zero descriptor if there is none."""
        return self._known("diff_dst")

    @property
    def workspace_desc(self) -> MemoryDesc:
        """Of what forward keeps for backward; the zero descriptor if it keeps nothing."""
        return self._known("workspace")

    @property
    def scratchpad_desc(self) -> MemoryDesc:
        """Of the scratchpad that the caller gives; the zero descriptor if the engine has its own or needs none."""
        return self._known("scratchpad")

    def __call__(self, **memories: object) -> Any:
        """Compute, and answer what was written: the memory, or a mapping by name where there are several.

        What is written may be left out, and is new memory then. A call with the very memories of the call before skips
        the checks; for that the primitive keeps the memories of its last call, if all were given.

        Raises:
            InvalidArguments: an argument is missing, unknown, no Memory, or of a descriptor that is not equivalent (the
                text names the reorder to add); what is written is read-only, or lies on something else.
            OutOfMemory: there is no room for what is written.
        """
        last = self._last
        if last is not None and len(memories) == last.count:
            for name, memory in last.items:
                if memories.get(name) is not memory:
                    break
            else:
                last.run()
                return last.result
        return self._called(memories)

    def bind(self, **memories: object) -> Callable[[], None]:
        """What computes with these memories each time it is called, without arguments or checks: all must be given.

        The result keeps the memories alive; what it reads is read when it is called.

        Raises:
            InvalidArguments: as a call, and where something that is written is left out.
        """
        given = self._checked(memories)
        if given.fresh:
            name = given.fresh[0]
            raise InvalidArguments(
                f"{type(self).__name__}: {name} is missing, and what is bound must be there: give "
                f"{name}=Memory(primitive.desc({name!r}))"
            )
        return self._bound(given.memories)

    def _called(self, memories: Mapping[str, object]) -> Any:
        given = self._checked(memories)
        run = self._bound(given.memories)
        run()
        written = {name: given.memories[name] for name in self._expected.results}
        result: Any = written if len(written) != 1 else next(iter(written.values()))
        self._last = _LastCall(memories, run, result) if given.is_kept else None
        return result

    def _bound(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        # No engine is asked for what has no elements: some divide by their number.
        if self._expected.is_empty:
            return _compute_nothing
        if self._expected.vanishes:
            return zeroing([memories[name] for name in self._expected.results])
        run = self._of_implementation(memories)
        sparse = [memories[name] for name in self._expected.sparse if self._checks_sparse]
        return checking(sparse, run) if sparse else run

    def _of_implementation(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        try:
            return self._implementation.bind(memories)
        except Unimplemented:
            found = None if self._is_named else replaced(self._operation, self._implementation)
            if found is None:
                raise
            self._engine, self._implementation = found
            return self._implementation.bind(memories)

    def _checked(self, memories: Mapping[str, object]) -> CallArguments:
        return checked(type(self).__name__, self._expected, self.in_place, memories)

    def __repr__(self) -> str:
        """What it is run for, its formats, and how it is computed."""
        formats = ", ".join(
            f"{name} {desc}" for name, desc in self._expected.descs.items() if name not in ("workspace", "scratchpad")
        )
        return f"<{type(self).__name__} {self.prop_kind}: {formats}; {self.impl} of {self._engine.name}>"


def _compute_nothing() -> None:
    """Write nothing: all results are without elements."""


class _LastCall:
    """The last call: its arguments, and what it did."""

    __slots__ = ("count", "items", "result", "run")

    def __init__(self, memories: Mapping[str, object], run: Callable[[], None], result: Any) -> None:
        self.items = tuple(memories.items())
        self.count = len(self.items)
        self.run = run
        self.result = result


def forward_kind(place: str, prop_kind: str) -> PropKind:
    """`prop_kind`, which must be one of forward propagation.

    Raises:
        InvalidArguments: it is another.
    """
    return choice(place, "prop_kind", prop_kind, FORWARD)


def forward_of(place: str, hint: Any, forward: type[Primitive]) -> Primitive:
    """The forward primitive that a backward one belongs to.

    Raises:
        InvalidArguments: it is missing, of another kind, or was made for inference.
    """
    if hint is None:
        raise InvalidArguments(
            f"{place}: hint_forward is missing: formats and workspace must fit the forward primitive, give the "
            f"{forward.__name__} whose gradient this is"
        )
    if not isinstance(hint, forward):
        raise InvalidArguments(
            f"{place}: hint_forward is a {type(hint).__name__}: give the {forward.__name__} whose gradient this is"
        )
    if hint.prop_kind != "forward_training":
        raise InvalidArguments(
            f"{place}: hint_forward is of prop_kind {hint.prop_kind}: make it for 'forward_training', which keeps what "
            "the gradient needs"
        )
    return hint


def like_forward(place: str, hint: Primitive, **given: MemoryDesc | None) -> dict[str, MemoryDesc]:
    """By name, arguments of the forward primitive and gradients of them, of the dims that it has for them.

    What is left out has its type there, and any format.

    Raises:
        InvalidArguments: one has other dims.
    """
    found = {}
    for name, desc in given.items():
        data = hint.desc(name.removeprefix("diff_"))
        why = f"those of {name.removeprefix('diff_')} of hint_forward"
        found[name] = settled(place, name, desc, data.dims, type_of(data), why)
    return found
