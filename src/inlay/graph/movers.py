"""Who reorders between the calls of an engine: the engine itself, where that is faster than it looks, or Inlay.

Inlay's machine code is the faster one by itself. But threads of Inlay's would have to take the processors from the
engine's, which wait for their next call busily; a reorder that the engine executes together with the calls before and
after it spares that.
"""

from collections.abc import Iterable

from inlay.errors import InvalidArguments, Unimplemented
from inlay.primitives.operation import Engine, Implementation, Operation


def select_reorder_engine(operation: Operation, engines: Iterable[Engine]) -> tuple[Engine, Implementation]:
    """Return who of `engines_beside(engine)` computes a reorder among calls of `engine`, and how.

    It is the first that has machine code for it and batches it with other calls, else the last that computes it.

    Raises:
        Unimplemented, InvalidArguments: none computes it; what the first one says.
    """
    chosen: tuple[Engine, Implementation] | None = None
    refusals: list[Exception] = []
    for engine in engines:
        try:
            chosen = engine, engine.create(operation)
        except (Unimplemented, InvalidArguments) as error:
            refusals.append(error)
            continue
        if chosen[1].is_batched and chosen[1].kernel_kind == "jit":
            break
    if chosen is None:
        raise refusals[0]
    return chosen
