"""Commands on networks in ONNX files: `inlay plan`, `inlay run`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.application import CleanOption, app, clear_abandoned
from inlay.cli.arrays import (
    Array,
    described,
    read_inputs,
    require_names_for,
    require_target,
    split_named,
    write_outputs,
)
from inlay.cli.engines import EngineOption, note_reference_engine, require_engine_here, suitable_costs
from inlay.cli.output import echo
from inlay.cli.watching import Watch
from inlay.errors import InvalidArguments
from inlay.files import require_unused
from inlay.measure.interleaved import time_call
from inlay.printable import printable

if TYPE_CHECKING:
    from inlay.graph.algorithms import Convolutions
    from inlay.graph.network import Network
    from inlay.graph.plan import Plan, Tier
    from inlay.graph.session import Session

_TIERS = ("measured", "probed", "analytic")
_PATIENCE = 2.0
"""Seconds of a run after which it is not run again for its time."""

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, opsets 1 to 28.")]
BatchOption = Annotated[int | None, typer.Option("--batch", metavar="N", help="Axis 0 where it is left open.")]
CostsOption = Annotated[
    str | None,
    typer.Option("--costs", metavar="TIER", help="Where prices come from: measured (default), probed, analytic."),
]
SecondsOption = Annotated[
    float | None, typer.Option("--seconds", metavar="S", help="How long measuring may take in all; 60 by default.")
]

ConvolutionsOption = Annotated[
    str | None,
    typer.Option(
        "--convolutions",
        metavar="HOW",
        help="How convolutions are computed: auto (default), whichever takes less; direct, without Winograd's.",
    ),
]


@app.command(short_help="Choose formats and kernels for a network, and explain them.")
def plan(
    model: ModelArgument,
    batch: BatchOption = None,
    dims: Annotated[
        list[str] | None, typer.Option("--dim", metavar="NAME=N", help="A dim that is left open; may be repeated.")
    ] = None,
    costs: CostsOption = None,
    isa: Annotated[
        str | None,
        typer.Option("--isa", metavar="ISA", help="Plan for another processor: sse41, avx2, avx512_core."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", help="Plan for so many threads of another processor.")
    ] = None,
    seconds: SecondsOption = None,
    convolutions: ConvolutionsOption = None,
    engine: EngineOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: every step and reorder.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw the plan too, as .svg or .html.")
    ] = None,
) -> None:
    """Choose for each tensor of a network its format, for each operation its kernel, and say why and what it takes.

    Kernels are measured on this machine once and remembered. With --isa or --threads the plan is for another machine,
    from a model of what is fast there: costs are analytic, and no library is needed. They are analytic too where the
    engine is NumPy.

    For example:

      inlay plan resnet50.onnx --batch 8

      inlay plan unet.onnx --dim height=256 --picture unet.html

      inlay plan resnet50.onnx --isa avx2 --json
    """
    from inlay.graph.report import explained, figures

    if picture is not None:
        from inlay.render.network.picture import require_suffix

        require_suffix(picture)
        require_unused(picture, model)
    require_engine_here(engine, "--isa" if isa is not None else "--threads" if threads is not None else None)
    tier, how = choose_tier(costs, isa, threads, seconds, engine), algorithms_of(convolutions)
    network = _loaded(model, open_dims(dims or ()), batch)
    if isa is None and threads is None and costs != "analytic":
        note_reference_engine(engine, f"costs are {'analytic' if costs is None else 'those of NumPy'}")
    found = _planned(network, tier, how, isa, threads, seconds, engine)
    echo(json.dumps(figures(found), indent=2) if as_json else explained(found))
    if picture is not None:
        from inlay.render.network import PlanPicture

        PlanPicture(found).save(picture)
        echo(f"{'' if as_json else chr(10)}wrote {printable(str(picture))}", err=as_json)


@app.command(short_help="Run a network on arrays in files.")
def run(
    model: ModelArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="[NAME=]FILE", help="A .npy file for an input; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="Write all outputs as .npz, or one as .npy.")
    ] = None,
    batch: BatchOption = None,
    costs: CostsOption = None,
    seconds: SecondsOption = None,
    convolutions: ConvolutionsOption = None,
    engine: EngineOption = None,
    clean: CleanOption = False,
) -> None:
    """Plan a network for the dims of these arrays, run it on them, and print what comes out, or write it to a file.

    Printed are dims, range and mean of each output, and the five greatest of each row where a row is one of scores.

    Dims that the model leaves open are those of the arrays; with --batch, arrays of another batch are refused.

    For example:

      inlay run resnet50.onnx --input photo.npy

      inlay run bert.onnx -i ids=ids.npy -i mask=mask.npy -o states.npz
    """
    from inlay.graph.reading import load_for

    named = split_named(inputs or ())
    if not named:
        raise InvalidArguments("no input is given: give the arrays of the network, as --input [NAME=]FILE.npy")
    require_target(output, [model, *named.values()])
    require_engine_here(engine, None)
    tier, how = choose_tier(costs, None, None, seconds, engine), algorithms_of(convolutions)
    arrays = read_inputs(named)
    with options_named("--batch N"):
        network = load_for(model, {name: array.shape for name, array in arrays.items()}, batch=batch)
    if output is not None:
        require_names_for(output, network.outputs)
        clear_abandoned(output, clean)
    note_reference_engine(engine, "NumPy computes, far slower than oneDNN")
    found = _planned(network, tier, how, None, None, seconds, engine)
    with found.compile() as session:
        results, (took, *notes) = _run(session, {name or network.inputs[0]: array for name, array in arrays.items()})
    _report(results, output)
    echo(f"{took}; predicted {found.ms:.3f} ms by {found.costs} costs")
    if found.load:
        echo(found.load, err=True)
    for note in notes:
        echo(note)


def _report(results: Mapping[str, Array], output: Path | None) -> None:
    """Print what came out, or write it to a file."""
    if output is None:
        echo("\n".join(line for name, array in results.items() for line in described(name, array)))
        return
    write_outputs(output, results)
    echo(f"wrote {printable(str(output))}: {', '.join(map(printable, results))}")


def _run(session: "Session", arrays: Mapping[str, Array]) -> tuple[dict[str, Array], list[str]]:
    """What comes out, and how long that took, and what NumPy and the reference engine computed of it."""
    results, words = _timed_run(session, arrays)
    numpy = str(session.measure_numpy(arrays, runs=1)) if session.numpy.count else ""
    return results, [words, *filter(None, (session.note, numpy))]


def _timed_run(session: "Session", arrays: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """What comes out, and how long that took: the second time if that is soon over, since the first wakes threads."""
    first, results = time_call(lambda: session.run(arrays))
    if first > _PATIENCE:
        return results, f"ran in {first * 1e3:.3f} ms with {session.engine.name}"
    second, _ = time_call(lambda: session.run(arrays))
    return results, f"ran in {second * 1e3:.3f} ms with {session.engine.name}, the first time in {first * 1e3:.3f} ms"


def choose_tier(
    costs: str | None, isa: str | None, threads: int | None, seconds: float | None, engine: str | None
) -> "Tier":
    """The tier of costs that these options of the command line choose together.

    Raises:
        InvalidArguments: one of them has no meaning, alone or beside the others.
        MissingExtra: the library of the engine cannot be loaded.
    """
    if costs is not None and costs not in _TIERS:
        raise InvalidArguments(f"--costs is {costs!r}: give {', '.join(_TIERS)}")
    if (isa is not None or threads is not None) and costs not in (None, "analytic"):
        option = "--isa" if isa is not None else "--threads"
        raise InvalidArguments(
            f"--costs {costs} is of this machine, and {option} plans for another one: leave one of them out"
        )
    tier: Tier = "analytic" if isa is not None or threads is not None else suitable_costs(costs, engine)
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise InvalidArguments(f"--seconds is {seconds:g}: give a number from 0 on")
    if seconds is not None and tier != "measured":
        raise InvalidArguments(f"--seconds is for measuring, and costs are {tier} here: leave it out")
    return tier


def algorithms_of(text: str | None) -> "Convolutions":
    """How convolutions are computed, as --convolutions says.

    Raises:
        InvalidArguments: there is no such way.
    """
    if text not in (None, "auto", "direct"):
        raise InvalidArguments(f"--convolutions is {text!r}: give auto, whichever takes less, or direct")
    return "direct" if text == "direct" else "auto"


def open_dims(texts: Sequence[str]) -> Mapping[str, int]:
    """Dims by name from texts such as `height=224`.

    Raises:
        InvalidArguments: one is not written NAME=N.
    """
    found = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise InvalidArguments(f"--dim is NAME=N, such as height=224 or x[2]=224: {text!r} is not")
        found[name] = int(number)
    return found


def _loaded(model: Path, dims: Mapping[str, int], batch: int | None) -> "Network":
    """The network, with what is wrong about its dims told in options of the command line too."""
    from inlay.graph.reading import load

    with options_named():
        return load(model, dims=dims, batch=batch)


@contextmanager
def options_named(options: str = "--dim NAME=N and --batch N") -> Iterator[None]:
    """Name these options of the command line in what is raised about dims."""
    try:
        yield
    except InvalidArguments as error:
        if not re.search(r"\b(batch=|dims=|dims names)", str(error)):
            raise
        raise InvalidArguments(f"{error}\n(here: {options})") from error


def _planned(
    network: "Network",
    tier: "Tier",
    how: "Convolutions",
    isa: str | None,
    threads: int | None,
    seconds: float | None,
    engine: str | None,
) -> "Plan":
    """The plan, with a progress bar while it is measured, and lines on how much was, and how long that took."""
    from inlay.graph.plan import plan as choose

    if tier != "measured":
        return choose(network, costs=tier, isa=isa, threads=threads, convolutions=how, engine=engine)
    with Watch() as watch:
        found = choose(network, costs=tier, seconds=seconds, progress=watch.tell, convolutions=how, engine=engine)
    watch.report(found.sources)
    return found
