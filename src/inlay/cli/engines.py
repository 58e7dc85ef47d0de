"""The engine of `inlay plan`, `inlay run` and `inlay bench`: its option, its costs, and a note where it is slow.

Without `--engine` and without INLAY_ENGINE it is oneDNN, where its library is found. Where it is not, the reference
engine computes with NumPy, hundreds of times as slowly: `plan` and `run` note that, and `bench` refuses.
"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.output import echo
from inlay.errors import InvalidArguments

if TYPE_CHECKING:
    from inlay.graph.plan import Tier

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="onednn, or reference (NumPy); INLAY_ENGINE by default, else onednn where its library is found.",
    ),
]


def suitable_costs(costs: str | None, engine: str | None) -> "Tier":
    """The tier that --costs names; by default measured, or analytic for the reference engine.

    Raises:
        InvalidArguments: there is no engine of this name.
        MissingExtra: the library of the engine cannot be loaded.
    """
    from inlay.primitives.engines import get_engine

    match costs:
        case "analytic":
            return "analytic"
        case "probed":
            return "probed"
        case None if get_engine(engine).name == "reference":
            return "analytic"
        case _:
            return "measured"


def require_engine_here(engine: str | None, other_machine: str | None) -> None:
    """Check the name of the engine, and that the plan is for this machine, on which the engine computes.

    Raises:
        InvalidArguments: there is no engine of this name, or the option `other_machine` is given beside it.
        MissingExtra: the library of the engine cannot be loaded.
    """
    from inlay.primitives.engines import get_engine

    if engine is None:
        return
    if other_machine is not None:
        raise InvalidArguments(
            f"--engine {engine} computes on this machine, and {other_machine} plans for another one: "
            "leave one of them out"
        )
    get_engine(engine)


def note_reference_engine(engine: str | None, effect: str) -> None:
    """Print one line on the error stream if the environment, and not --engine, makes the reference engine compute.

    `effect` is the consequence, such as "costs are analytic".
    """
    from inlay.primitives.engines import explain_fallback, get_engine

    if engine is not None or get_engine().name != "reference":
        return
    reason = explain_fallback()
    if reason is None and os.environ.get("INLAY_ENGINE"):
        reason = "INLAY_ENGINE is 'reference'"
    if reason is not None:
        echo(f"note: {effect}, since {reason}", err=True)
