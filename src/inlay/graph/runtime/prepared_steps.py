"""Steps that are compiled except for addresses, and the memory that they are bound to.

A `Workspace` provides the memory of each buffer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import Array
from inlay.graph.program import Step, reference_impl
from inlay.memory import Memory
from inlay.primitives.engine import Engine, Implementation

Call: TypeAlias = Callable[[], object]


class Workspace(Protocol):
    """Memory for every buffer of a program."""

    dynamic: dict[str, Array]
    """Result of the last run for each output whose dims depend on the data, by name."""

    def memory(self, name: str) -> Memory:
        """Return the memory of a buffer that has a descriptor."""

    def array(self, name: str) -> Array:
        """Return the elements of a buffer in a plain format as an array that shares its memory."""

    def scratch(self, desc: MemoryDesc) -> Memory:
        """Return the scratchpad that all steps share, as memory of `desc`."""


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step that is compiled except for the addresses of its buffers."""

    step: Step
    """The step of the program."""
    bind: Callable[[Workspace], Call | None]
    """Binds the step to the memory of a workspace; None in place of a call where the step writes no element."""
    implementation: Implementation | None = None
    """The implementation of an engine; None for a reference."""
    scratch: int = 0
    """Bytes of the scratchpad that the session must provide."""
    is_submitted: bool = False
    """True if the call returns before the step is done, so that the engine must be waited for."""
    is_joined: bool = False
    """True if the engine can execute the call in one batch with others."""
    is_declined: bool = False
    """True if the engine does not support the step, so that the reference engine computes it."""
    constants: Mapping[str, Memory] = field(default_factory=dict)
    """Memory of each constant argument that an engine reads, in the format of its kernel."""
    engine: Engine | None = None
    """The engine that computes the step; None for a reference."""

    @property
    def impl(self) -> str:
        """Name of the implementation; `onnxruntime` or `numpy` for a reference."""
        return reference_impl(self.step.node) if self.implementation is None else self.implementation.impl

    @property
    def replaced(self) -> str:
        """Name of the implementation that the engine prefers but cannot generate code for; empty otherwise."""
        return "" if self.implementation is None else self.implementation.replaced


def require_arguments(step: Step, needed: set[str], given: set[str]) -> None:
    """Check that a step has the needed arguments and no others."""
    if missing := sorted(needed - given):
        raise InvalidArguments(
            f"step {step.name}, a {step.kind}, lacks {', '.join(missing)}: it is given {', '.join(sorted(given))}"
        )
    if unknown := sorted(given - needed):
        raise InvalidArguments(
            f"step {step.name}, a {step.kind}, has no {', '.join(unknown)}: it takes {', '.join(sorted(needed))}"
        )
