"""From an operation to its implementation: which engine is asked, and what happens when it declines.

An engine that was named computes, or its refusal is raised. The default engine may decline too (oneDNN 3.2 has no group
normalization): then the reference computes, slower and with the same results, and the primitive's `engine` says so.

An engine may also accept an operation and decline when its code is generated, at the first call: `replaced` has the
implementation of the reference engine that takes the same formats.
"""

from dataclasses import replace

from inlay.errors import InvalidArguments, Unimplemented
from inlay.primitives.engines import EngineLike, create_beside, get_engine
from inlay.primitives.operation import Engine, Implementation, Operation
from inlay.primitives.slow_kernels import Avoid, refuse


def created(
    place: str, operation: Operation, engine: EngineLike, hinted: Engine | None, avoid: Avoid = None
) -> tuple[Engine, Implementation]:
    """The engine that computes `operation`, and its answer; `hinted` is the engine of the forward primitive.

    Raises:
        InvalidArguments: `engine` is another one than the forward primitive's, or there is none of its name.
        Unimplemented: the engine that was named declines, or every engine does, or every engine that is not avoided.
    """
    chosen = hinted if engine is None and hinted is not None else get_engine(engine)
    if hinted is not None and chosen is not hinted:
        raise InvalidArguments(
            f"{place}: engine is {chosen.name}, and hint_forward was created by {hinted.name}: a workspace and formats "
            "have a meaning for one engine only, create both with one"
        )
    try:
        return create_beside(chosen, operation)
    except Unimplemented as error:
        reference = get_engine("reference")
        if engine is not None or chosen is reference or not _can_move(operation):
            raise
        if avoid is not None:
            refuse(place, error)
        return reference, reference.create(_moved(operation, reference))


def replaced(operation: Operation, declined: Implementation) -> tuple[Engine, Implementation] | None:
    """The reference engine and its implementation of the formats of another engine's; None where there is none."""
    if not _can_move(operation):
        return None
    reference = get_engine("reference")
    formats = {name: declined.descs[name] for name in operation.descs}
    try:
        found = reference.create(_moved(replace(operation, descs=formats), reference))
    except (InvalidArguments, Unimplemented):
        return None
    return (reference, found) if dict(found.descs) == dict(declined.descs) else None


def _can_move(operation: Operation) -> bool:
    """Whether another engine can go on: what the forward primitive keeps is known to its own engine only."""
    return operation.hint is None or "workspace" not in operation.hint.descs


def _moved(operation: Operation, engine: Engine) -> Operation:
    """The operation, with a hint of `engine` for the formats that were chosen."""
    if operation.hint is None:
        return operation
    forward, chosen = operation.hint.operation, operation.hint.descs
    descs = {name: chosen.get(name, desc) for name, desc in forward.descs.items()}
    return replace(operation, hint=engine.create(replace(forward, descs=descs)))
