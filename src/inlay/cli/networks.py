"""Commands on networks in ONNX files, `inlay plan` and `inlay run`, and what `inlay bench` shares with them.

Without `--engine` and without INLAY_ENGINE the engine is oneDNN, where its library is found. Where it is not, the
reference engine computes with NumPy, hundreds of times as slowly: `plan` and `run` note that, and `bench` refuses.

Arrays of a run are read from .npy files, described in lines, or written to .npz and .npy files.
"""

import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import numpy as np
import typer
from numpy.lib import format as npy_format

from inlay.cli.application import CleanOption, Watch, app, clear_abandoned
from inlay.cli.output import echo
from inlay.errors import InvalidArguments, printable
from inlay.files import file_error, replacing, require_unused
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.graph.algorithms import Convolutions
    from inlay.graph.network import Network
    from inlay.graph.plan import Plan, Tier
    from inlay.graph.runtime.session import Session

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="onednn, or reference (NumPy); INLAY_ENGINE by default, else onednn where its library is found.",
    ),
]

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


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


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
    from inlay.graph.report import explain_plan, figures

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
    echo(json.dumps(figures(found), indent=2) if as_json else explain_plan(found))
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
    from inlay.graph.onnx.reading import load_for

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


_PATIENCE = 2.0
"""Seconds of a run after which it is not run again for its time."""


def _timed_run(session: "Session", arrays: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """What comes out, and how long that took: the second time if that is soon over, since the first wakes threads."""
    first, results = time_call(lambda: session.run(arrays))
    if first > _PATIENCE:
        return results, f"ran in {first * 1e3:.3f} ms with {session.engine.name}"
    second, _ = time_call(lambda: session.run(arrays))
    return results, f"ran in {second * 1e3:.3f} ms with {session.engine.name}, the first time in {first * 1e3:.3f} ms"


def _loaded(model: Path, dims: Mapping[str, int], batch: int | None) -> "Network":
    """The network, with what is wrong about its dims told in options of the command line too."""
    from inlay.graph.onnx.reading import load

    with options_named():
        return load(model, dims=dims, batch=batch)


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


_TIERS = ("measured", "probed", "analytic")


def choose_tier(
    costs: str | None, isa: str | None, threads: int | None, seconds: float | None, engine: str | None
) -> "Tier":
    """The tier of costs that these options of the command line choose together.

    By default they are measured; analytic for another processor, and for the reference engine.

    Raises:
        InvalidArguments: one of them has no meaning, alone or beside the others, or there is no engine of this name.
        MissingExtra: the library of the engine cannot be loaded.
    """
    from inlay.primitives.engine import get_engine

    if costs is not None and costs not in _TIERS:
        raise InvalidArguments(f"--costs is {costs!r}: give {', '.join(_TIERS)}")
    if (isa is not None or threads is not None) and costs not in (None, "analytic"):
        option = "--isa" if isa is not None else "--threads"
        raise InvalidArguments(
            f"--costs {costs} is of this machine, and {option} plans for another one: leave one of them out"
        )
    if costs is None:
        is_modelled = isa is not None or threads is not None or get_engine(engine).name == "reference"
        costs = "analytic" if is_modelled else "measured"
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise InvalidArguments(f"--seconds is {seconds:g}: give a number from 0 on")
    if seconds is not None and costs != "measured":
        raise InvalidArguments(f"--seconds is for measuring, and costs are {costs} here: leave it out")
    return cast("Tier", costs)


def require_engine_here(engine: str | None, other_machine: str | None) -> None:
    """Check the name of the engine, and that the plan is for this machine, on which the engine computes.

    Raises:
        InvalidArguments: there is no engine of this name, or the option `other_machine` is given beside it.
        MissingExtra: the library of the engine cannot be loaded.
    """
    from inlay.primitives.engine import get_engine

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
    from inlay.primitives.engine import explain_fallback, get_engine

    if engine is not None or get_engine().name != "reference":
        return
    reason = explain_fallback()
    if reason is None and os.environ.get("INLAY_ENGINE"):
        reason = "INLAY_ENGINE is 'reference'"
    if reason is not None:
        echo(f"note: {effect}, since {reason}", err=True)


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


@contextmanager
def options_named(options: str = "--dim NAME=N and --batch N") -> Iterator[None]:
    """Name these options of the command line in what is raised about dims."""
    try:
        yield
    except InvalidArguments as error:
        if not re.search(r"\b(batch=|dims=|dims names)", str(error)):
            raise
        raise InvalidArguments(f"{error}\n(here: {options})") from error


def split_named(texts: Sequence[str]) -> dict[str | None, Path]:
    """Files by the name of the input; None where the text is a file alone.

    Raises:
        InvalidArguments: a name comes twice, or a file without a name beside others.

    >>> [(name, path.name) for name, path in split_named(["ids=a.npy", "mask=b.npy"]).items()]
    [('ids', 'a.npy'), ('mask', 'b.npy')]
    """
    found: dict[str | None, Path] = {}
    for text in texts:
        before, equals, after = text.partition("=")
        is_named = bool(equals) and not Path(text).exists()
        name = before if is_named else None
        if name in found:
            raise InvalidArguments(f"--input {name or text} is given twice: give each input one file, as NAME=FILE")
        found[name] = Path(after if is_named else text)
    if None in found and len(found) > 1:
        raise InvalidArguments(f"--input {found[None]} does not say for which input it is: give NAME=FILE for each")
    return found


def read_inputs(files: Mapping[str | None, Path]) -> dict[str | None, Array]:
    """The arrays of .npy files; nothing in them is unpickled.

    Raises:
        FileError: a file is missing, is no .npy file, is cut short, or holds Python objects.
    """
    from inlay.storage.npy import read_npy

    arrays: dict[str | None, Array] = {}
    for name, path in files.items():
        read_npy(path)
        try:
            arrays[name] = np.load(path, allow_pickle=False)
        except OSError as error:
            raise file_error("read", path, error) from error
    return arrays


_ROWS = 8
"""Rows of scores that are printed."""
_BEST = 5
_FEWEST = 10
"""Entries from which on a row is taken for one of scores."""


def described(name: str, array: Array) -> Iterator[str]:
    """Lines on an output: dims, range, mean; the greatest entries of rows of scores, with their index.

    >>> list(described("y", np.array([[0.25, 0.75]], np.float32)))
    ['y (1, 2) float32: 0.25, 0.75']
    """
    yield f"{printable(name)} {array.shape} {array.dtype}: {_summary(array)}"
    width = array.shape[1] if array.ndim > 1 and array.shape[1] >= _FEWEST else 0
    if array.dtype.kind != "f" or not width or array.size != array.shape[0] * width:
        return
    rows = array.reshape(-1, width)
    for number, row in enumerate(rows[:_ROWS]):
        best = np.argsort(-row, kind="stable")[:_BEST]
        yield f"  row {number}: " + ", ".join(f"[{i}] {float(row[i]):.4g}" for i in best)
    if len(rows) > _ROWS:
        yield f"  {len(rows) - _ROWS} more rows: -o FILE.npz writes all"


def _summary(array: Array) -> str:
    if array.size == 0:
        return "no elements"
    if array.dtype.kind == "b":
        return f"{int(array.sum())} of {array.size} are true"
    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    others = f", {values.size - finite.size} not finite" if finite.size < values.size else ""
    if not finite.size:
        return others.removeprefix(", ")
    if values.size <= 4:
        return ", ".join(f"{value:.6g}" for value in values)
    return f"from {finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}{others}"


def require_target(target: Path | None, sources: Iterable[Path]) -> None:
    """Refuse to begin what could not be written.

    Raises:
        InvalidArguments: `target` ends in neither .npz nor .npy.
        FileError: it is one of `sources`, the files that are read.
    """
    if target is None:
        return
    require_unused(target, *sources)
    if target.suffix.lower() not in (".npz", ".npy"):
        raise InvalidArguments(
            f"outputs are written as .npz, or one of them as .npy, not {target.suffix or 'without an ending'!r}"
        )


def require_names_for(target: Path, outputs: Sequence[str]) -> None:
    """Refuse outputs that the file `target` cannot keep.

    Raises:
        InvalidArguments: a .npy file is asked for several outputs, or a name would be cut short in a .npz file.
    """
    if target.suffix.lower() == ".npy":
        if len(outputs) != 1:
            raise InvalidArguments(
                f"the network has {len(outputs)} outputs, {', '.join(map(printable, outputs))}: a .npy file holds one, "
                "write a .npz file"
            )
        return
    for name in outputs:
        if "\0" in name:
            raise InvalidArguments(
                f"a .npz file cannot keep the output {name!r}: names end at the character NUL there; rename the output "
                "in the model"
            )


def write_outputs(target: Path, results: Mapping[str, Array]) -> None:
    """Write all outputs by name as .npz, or the only one as .npy; the file appears whole or not at all.

    Raises:
        InvalidArguments: the file cannot keep these outputs, see `require_names_for`.
        FileError: it cannot be written.
    """
    require_names_for(target, list(results))
    with replacing(target) as file:
        if target.suffix.lower() == ".npy":
            npy_format.write_array(file, next(iter(results.values())), allow_pickle=False)
            return
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in results.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy_format.write_array(member, array, allow_pickle=False)
