"""Warnings and errors about reference kernels, which support every format and are optimized for none.

Any engine, oneDNN too, may compute an operation by a reference kernel (`Implementation.is_reference`):

    Convolution(src, weights)                       warns, once per process for each kind and direction
    Convolution(src, weights, avoid="reference")    raises Unimplemented

There is no warning if the caller chose the reference engine, or if an argument has an opaque format, which only the
engine can choose.
"""

import sys
import warnings

from inlay.errors import PerformanceWarning, Unimplemented
from inlay.primitives.engine import Avoid, Engine, Implementation, Operation, get_engine

_PACKAGE = __name__.rsplit(".", 1)[0]
_warned: set[tuple[str, str]] = set()


def forget_warnings() -> None:
    """Forget which warnings were issued, so that each is issued again."""
    _warned.clear()


def warn_of_reference_kernel(
    primitive_name: str, engine: Engine, implementation: Implementation, avoid: Avoid, *, is_named: bool
) -> None:
    """Warn if an implementation is a reference kernel, or raise an error if the caller avoids them.

    Args:
        primitive_name: class of the primitive; begins the text.
        engine: the engine that computes.
        implementation: its implementation.
        avoid: "reference" to raise an error.
        is_named: the caller named the engine, or passed a forward primitive of it.

    Raises:
        Unimplemented: it is a reference kernel, and `avoid` is "reference".

    Warns:
        PerformanceWarning: it is a reference kernel, the first of this kind and direction in the process.
    """
    if not implementation.is_reference:
        return
    operation = implementation.operation
    how = f"{engine.name} computes it by its reference kernel {implementation.impl}"
    if engine.name == "reference":
        how = "no engine but the reference computes it"
    text = f"{primitive_name}: {how}, many times slower than an optimized kernel: {_remedy(operation)}"
    if avoid is not None:
        raise Unimplemented(f"{text}; or leave out avoid='reference'")
    is_expected = engine.name == "reference" and (is_named or engine is get_engine())
    key = operation.kind, operation.direction
    if is_expected or key in _warned or any(desc.kind == "opaque" for desc in operation.descs.values()):
        return
    _warned.add(key)
    warnings.warn(f"{text}; avoid='reference' raises here", PerformanceWarning, stacklevel=_caller_stacklevel())


def _remedy(operation: Operation) -> str:
    """Return advice on how to get a faster kernel: first `any` where the primitive allows it, then other formats."""
    can_be_any = [name for name in operation.descs if name in operation.signature.free]
    concrete = [name for name in can_be_any if operation.descs[name].kind != "any"]
    if concrete and operation.signature.reads[0] in can_be_any:
        return f"describe {' and '.join(concrete)} by 'any', and reorder to the formats that it chooses"
    sources = [name for name, desc in operation.descs.items() if name not in can_be_any and desc.ndims > 1]
    if sources:
        return f"reorder {' and '.join(sources)} to another format, such as row-major, channels last or blocked by 16"
    return "it has no other for these dims, types and attributes, so choose others, such as f32"


def _caller_stacklevel() -> int:
    """Return the `stacklevel` of `warnings.warn` that points at the first caller outside of this package."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    return depth
