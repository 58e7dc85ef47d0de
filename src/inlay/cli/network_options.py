"""Options of the commands on networks: their declarations, and functions that check and parse them.

Without `--engine` and INLAY_ENGINE, the engine is oneDNN if its library is found. Otherwise it is the reference engine,
which computes with NumPy, hundreds of times as slowly: `plan` and `run` print a note, and `bench` raises an error.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from inlay.cli.output import echo
from inlay.errors import InvalidArguments

if TYPE_CHECKING:
    from inlay.graph.algorithms import Convolutions
    from inlay.graph.fallback.assignment import Fallback
    from inlay.graph.plan import Tier

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="onednn, or reference (NumPy); INLAY_ENGINE by default, else onednn where its library is found.",
    ),
]

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, opsets 1 to 28.")]
RunArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a plan that `plan -o` saved.")]
BatchOption = Annotated[int | None, typer.Option("--batch", metavar="N", help="Axis 0 where it is left open.")]
DimsOption = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="A dim that is left open; may be repeated.")
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="[NAME=]FILE", help="A .npy file for an input; may be repeated."),
]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="OUT", help="Write all outputs as .npz, or one as .npy.")
]
IsaOption = Annotated[
    str | None, typer.Option("--isa", metavar="ISA", help="Plan for another processor: sse41, avx2, avx512_core.")
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="Threads to use; all processors by default.")
]
CostsOption = Annotated[
    str | None,
    typer.Option("--costs", metavar="TIER", help="Source of kernel costs: measured (default), probed, analytic."),
]
SecondsOption = Annotated[
    float | None, typer.Option("--seconds", metavar="S", help="Total time for measuring kernels; 60 by default.")
]

ConvolutionsOption = Annotated[
    str | None,
    typer.Option(
        "--convolutions",
        metavar="MODE",
        help="Algorithms of convolutions: auto (default), the fastest; direct, without Winograd's.",
    ),
]

FallbackOption = Annotated[
    str | None,
    typer.Option(
        "--fallback",
        metavar="SOURCE",
        help="What computes operators without a kernel: auto (default), ONNX Runtime, else NumPy; numpy; none.",
    ),
]


_TIERS = ("measured", "probed", "analytic")


def choose_tier(costs: str | None, isa: str | None, seconds: float | None, engine: str | None) -> "Tier":
    """Return the tier of costs for these options of the command line.

    The default is measured; it is analytic for another processor and for the reference engine.

    Raises:
        InvalidArguments: an option is wrong or does not fit the others, or there is no engine of this name.
        MissingExtra: the library of the engine cannot be loaded.
    """
    from inlay.primitives.engine import get_engine

    if costs is not None and costs not in _TIERS:
        raise InvalidArguments(f"--costs is {costs!r}: give {', '.join(_TIERS)}")
    if isa is not None and costs not in (None, "analytic"):
        raise InvalidArguments(
            f"--costs {costs} is of this machine, and --isa plans for another one: leave one of them out"
        )
    if costs is None:
        is_modelled = isa is not None or get_engine(engine).name == "reference"
        costs = "analytic" if is_modelled else "measured"
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise InvalidArguments(f"--seconds is {seconds:g}: give a number from 0 on")
    if seconds is not None and costs != "measured":
        raise InvalidArguments(f"--seconds is for measuring, and costs are {costs} here: leave it out")
    return cast("Tier", costs)


def require_engine_here(engine: str | None, isa: str | None = None) -> None:
    """Check that an engine of this name is available, and that the plan is for this machine.

    `isa` is the instruction set of another machine, or None. If `engine` is None, nothing is checked.

    Raises:
        InvalidArguments: there is no engine of this name, or `isa` is not None.
        MissingExtra: the library of the engine cannot be loaded.
    """
    from inlay.primitives.engine import get_engine

    if engine is None:
        return
    if isa is not None:
        raise InvalidArguments(
            f"--engine {engine} computes on this machine, and --isa plans for another one: leave one of them out"
        )
    get_engine(engine)


def note_reference_engine(engine: str | None, effect: str) -> None:
    """Print a note on the error stream if the reference engine is used without the option --engine.

    `effect` is the consequence, such as "costs are analytic".
    """
    from inlay.primitives.engine import explain_fallback, get_engine

    if engine is not None or get_engine().name != "reference":
        return
    reason = explain_fallback()
    if reason is None and os.environ.get("INLAY_ENGINE"):
        reason = "INLAY_ENGINE is 'reference'"
    if reason is not None:
        echo(f"note: {effect}, since {reason}", err=True)


def parse_convolutions(text: str | None) -> "Convolutions":
    """Parse the option --convolutions.

    Raises:
        InvalidArguments: `text` is neither auto nor direct.
    """
    if text not in (None, "auto", "direct"):
        raise InvalidArguments(f"--convolutions is {text!r}: give auto, the fastest, or direct")
    return "direct" if text == "direct" else "auto"


def parse_fallback(text: str | None) -> "Fallback":
    """Parse the option --fallback.

    Raises:
        InvalidArguments: `text` is not auto, numpy or none.

    >>> parse_fallback("numpy"), parse_fallback("none"), parse_fallback(None)
    (False, None, 'auto')
    """
    ways: dict[str | None, Fallback] = {None: "auto", "auto": "auto", "numpy": False, "none": None}
    if text not in ways:
        raise InvalidArguments(f"--fallback is {text!r}: give auto, numpy without ONNX Runtime, or none of both")
    return ways[text]


def parse_dim_options(texts: Sequence[str]) -> Mapping[str, int]:
    """Parse options --dim such as `height=224`; return dims by name.

    Raises:
        InvalidArguments: a text is not of the form NAME=N.
    """
    dims = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise InvalidArguments(f"--dim is NAME=N, such as height=224 or x[2]=224: {text!r} is not")
        dims[name] = int(number)
    return dims


@contextmanager
def explain_dim_options(options: str = "--dim NAME=N and --batch N") -> Iterator[None]:
    """Add the names of these options of the command line to errors about dims that the block raises."""
    try:
        yield
    except InvalidArguments as error:
        if not re.search(r"\b(batch=|dims=|dims names)", str(error)):
            raise
        raise InvalidArguments(f"{error}\n(here: {options})") from error
