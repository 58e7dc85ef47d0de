"""Reference kernels: what a primitive does that an engine computes by one, which is right in every format, and slow.

    Convolution(src, weights)                       warns, once in a process for each kind and direction
    Convolution(src, weights, avoid="reference")    raises

Only the implementation knows whether its kernel is one (`Implementation.is_reference`). Nothing is said where the
reference engine was chosen, and where only the engine knows a format, so that nobody can choose another.
"""

import sys
import warnings
from typing import Literal, NoReturn, TypeAlias

from inlay.errors import PerformanceWarning, Unimplemented
from inlay.primitives.engines import get_engine
from inlay.primitives.operation import Engine, Implementation, Operation

Avoid: TypeAlias = Literal["reference"] | None
"""Which kernels a primitive is not to be computed by: `reference` ones, or any will do."""

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


def refuse(place: str, error: Unimplemented) -> NoReturn:
    """Raise what the default engine refused, since the reference engine is avoided.

    Raises:
        Unimplemented: always.
    """
    raise Unimplemented(
        f"{place}: {error}; leave out avoid='reference' to have the reference engine compute"
    ) from error


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
