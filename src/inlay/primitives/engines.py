"""Which engine computes: a registry of engines by name, and the one that is used where none is named.

An engine stands in a room below this one, so it is known here by a text, `module:factory`, and loaded when it is first
asked for: the one late import from primitives to engines (decision 0012). Without a name the choice is

    INLAY_ENGINE in the environment, or what `set_engine` said
    onednn, where a library of oneDNN can be loaded
    reference, everywhere

>>> get_engine("reference").name
'reference'
"""

import importlib
import os
import threading
from typing import Any, TypeAlias

from inlay.errors import InvalidArguments, MissingExtra, Unimplemented, shown
from inlay.forks import hold_across_forks
from inlay.primitives.operation import Engine, Implementation, Operation

EngineLike: TypeAlias = Engine | str | None
"""An engine, its name in the registry, or None for the default."""

_FACTORIES = {
    "onednn": "inlay.engine.onednn:make_engine",
    "inlay": "inlay.engine.inlay:make_engine",
    "reference": "inlay.engine.reference:make_engine",
}
_BESIDE = ("inlay",)  # they add to every engine what only they compute
_engines: dict[str, Engine] = {}
_default: list[Engine] = []  # at most one
_fallback: list[str] = []  # why the default was not the first choice: at most one text
_lock = threading.RLock()
hold_across_forks(_lock)


def get_engine(engine: EngineLike = None) -> Engine:
    """The engine of this name, made at the first call; without a name the default one.

    Post-condition: get_engine(name) is get_engine(name).

    Raises:
        InvalidArguments: there is no engine of this name, or INLAY_ENGINE names none.
        MissingExtra: `onednn` is asked for by name, and no library of it can be loaded.
    """
    if engine is None:
        return _default[0] if _default else _chosen()
    if not isinstance(engine, str):
        return _checked(engine)
    return _engines.get(engine) or _made(engine)


def set_engine(engine: EngineLike) -> None:
    """Make `engine`, or the engine of this name, the default of this process; None chooses anew.

    Post-condition: get_engine() is get_engine(engine), unless it is None.

    Raises:
        InvalidArguments, MissingExtra: as `get_engine`.
    """
    chosen = [] if engine is None else [get_engine(engine)]
    with _lock:
        _default[:] = chosen
        _fallback.clear()


def engines_beside(engine: Engine) -> tuple[Engine, ...]:
    """`engine`, and those that add what only they compute, on its threads; in the order in which they are asked."""
    others = (get_engine(name) for name in _BESIDE)
    return (engine, *(other.beside(engine) for other in others if other is not engine))


def create_beside(engine: Engine, operation: Operation) -> tuple[Engine, Implementation]:
    """Return the first of `engines_beside(engine)` that computes an operation, and its implementation.

    Raises:
        Unimplemented: none does.
        InvalidArguments: `engine` refuses the arguments.
    """
    try:
        return engine, engine.create(operation)
    except Unimplemented:
        for other in engines_beside(engine)[1:]:
            if other.supports(operation):
                return other, other.create(operation)
        raise


def explain_fallback() -> str | None:
    """Why the default engine is the reference engine although nobody chose it, with what to do; None where it is not.

    INLAY_ENGINE and `set_engine` are choices: where one of them names an engine, this is None.

    Raises:
        InvalidArguments, MissingExtra: as `get_engine`.
    """
    get_engine()
    return _fallback[0] if _fallback else None


def _checked(engine: Any) -> Engine:
    if Engine not in type(engine).__mro__:
        raise InvalidArguments(f"engine is {shown(engine)}: give one of {_names()}, or what get_engine answers")
    found: Engine = engine
    return found


def _names() -> str:
    return ", ".join(map(repr, _FACTORIES))


def _chosen() -> Engine:
    """The default where nothing was set: found once, so that all primitives agree."""
    named = os.environ.get("INLAY_ENGINE", "")
    if named and named not in _FACTORIES:
        raise InvalidArguments(f"INLAY_ENGINE is {named!r}: set it to one of {_names()}, or unset it")
    found = get_engine(named) if named else _best()
    with _lock:
        if not _default:
            _default.append(found)
        return _default[0]


def _best() -> Engine:
    try:
        return get_engine("onednn")
    except MissingExtra as error:
        _fallback[:] = [str(error)]
        return get_engine("reference")


def _made(name: str) -> Engine:
    if name not in _FACTORIES:
        raise InvalidArguments(f"there is no engine {name!r}: give one of {_names()}")
    module, factory = _FACTORIES[name].split(":")
    # Imported before: modules that a fork waits for may not register what is called around forks.
    make = getattr(importlib.import_module(module), factory)
    with _lock:
        if name not in _engines:
            _engines[name] = make()
        return _engines[name]
