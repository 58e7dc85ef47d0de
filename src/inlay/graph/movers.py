"""Who reorders between the calls of an engine: the engine itself, where that is faster than it looks, or Inlay.

Inlay's machine code is the faster one by itself. But threads of Inlay's would have to take the processors from the
engine's, which wait for their next call busily; a reorder that the engine executes together with the calls before and
after it spares that.
"""

from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.primitives.operation import Engine, Implementation, Operation
from inlay.primitives.reorder import OWN


def mover(operation: Operation, engine: Engine) -> tuple[Engine, Implementation]:
    """Who computes a reorder among calls of `engine`, and how.

    It is the engine where that has machine code for it and can execute it together with other calls, and where one
    side has a format that only an engine knows.

    Raises:
        Unimplemented: the engine knows the formats and has no reorder between them.
    """
    if not has_layouts(operation):
        return engine, engine.create(operation)
    if hasattr(engine, "together"):
        try:
            found = engine.create(operation)
        except (Unimplemented, InvalidArguments):
            return OWN, OWN.create(operation)
        if found.impl.startswith("jit"):
            return engine, found
    return OWN, OWN.create(operation)


def has_layouts(operation: Operation) -> bool:
    """Whether every tensor of an operation has a layout, so that Inlay can read and write it."""
    return all(isinstance(desc.layout, Layout) for desc in operation.descs.values())
