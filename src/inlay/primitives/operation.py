"""`Operation`, what is asked of an engine, and the two protocols that an engine implements.

Primitives check what they are told by the rules of the specification and make an `Operation`; an engine answers with an
`Implementation`, which says a format for each argument and computes. So rules stand once, and engines differ only in
what they choose and how fast they are.

    operation = Operation("convolution", "forward_inference", descs={"src": ..., "weights": ..., "dst": ...}, ...)
    implementation = engine.create(operation)
    implementation.descs["weights"]                    # what `any` became
    run = implementation.bind({"src": memory, ...})    # addresses are settled once
    run()
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.memory import Memory
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.primitives.signatures import SIGNATURES, Direction, PropKind, Signature

Parameter: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | frozenset[str]
"""A parameter of a primitive: one entry for each spatial axis where there are several, names of flags as a set."""


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
    """An engine's answer to an operation: formats, and the computation itself."""

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
    def is_reference(self) -> bool:
        """Whether it computes by a reference kernel: right in every format, and made to be fast in none."""

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        """What computes once with these memories, which have the formats of `descs`; it may be called again and again.

        Whoever calls has checked the descriptors. The result keeps the memories alive. An engine that generates code
        may find out only here that it cannot; one that has `create_primitive()` does it there already.

        Raises:
            Unimplemented: this engine does not compute it after all.
        """


class Engine(Protocol):
    """What computes primitives.

    An engine whose implementations compute on as many threads as `set_num_threads` and `ThreadLimit` allow when they
    are created has that number as `num_threads`, and 0 there if it cannot be limited.
    """

    @property
    def name(self) -> str:
        """Its name and version, such as `onednn 3.2.0` or `reference`."""

    def create(self, operation: Operation) -> Implementation:
        """Choose the formats that are `any`, and how to compute.

        Raises:
            Unimplemented: this engine does not compute it.
        """
