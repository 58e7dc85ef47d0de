"""Commands on networks in ONNX files: `inlay plan` and `inlay run`.

Inputs of a run are read from .npy files. Outputs are summarized in lines of text, or written to .npz and .npy files.
"""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import typer
from numpy.lib import format as npy_format

from inlay.cli.application import CleanOption, JsonOption, MeasurementProgress, app, clear_abandoned
from inlay.cli.network_options import (
    BatchOption,
    ConvolutionsOption,
    CostsOption,
    DimsOption,
    EngineOption,
    FallbackOption,
    InputsOption,
    IsaOption,
    ModelArgument,
    OutputOption,
    RunArgument,
    SecondsOption,
    ThreadsOption,
    choose_tier,
    explain_dim_options,
    note_reference_engine,
    parse_convolutions,
    parse_dim_options,
    parse_fallback,
    require_engine_here,
)
from inlay.cli.output import echo, json_text, print_json
from inlay.cli.plan_page_options import PlanPageOption, RunPageOption, require_page_target, save_page
from inlay.cli.precision_options import (
    ErrorsOption,
    PrecisionOption,
    SamplesOption,
    ToleranceOption,
    request_precision,
)
from inlay.cli.profile_options import AllRowsOption, ProfileOption, ProfileRequest, TraceOption, request_profile
from inlay.cli.run_results import RunTimes, run_document, summarize_output
from inlay.cli.saved_plan_options import (
    PlanOutputOption,
    is_plan_file,
    load_session,
    refuse_plan_options,
    require_plan_target,
    save_plan,
)
from inlay.errors import InvalidArguments, printable
from inlay.files import atomic_write, file_error, require_file, require_unused
from inlay.measure.interleaved import time_call

if TYPE_CHECKING:
    from inlay.graph.layer_errors import PrecisionReport
    from inlay.graph.network import Network
    from inlay.graph.plan import Plan, Tier
    from inlay.graph.planned_program import PlannedProgram
    from inlay.graph.runtime.program_session import ProgramSession


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@app.command(short_help="Choose formats and kernels for a network, and explain them.")
def plan(
    model: ModelArgument,
    batch: BatchOption = None,
    dims: DimsOption = None,
    costs: CostsOption = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    seconds: SecondsOption = None,
    convolutions: ConvolutionsOption = None,
    engine: EngineOption = None,
    fallback: FallbackOption = None,
    precision: PrecisionOption = None,
    tolerance: ToleranceOption = None,
    errors: ErrorsOption = False,
    inputs: SamplesOption = None,
    every_step: Annotated[bool, typer.Option("--all", help="Print every step, not only the longest ones.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: every step and reorder.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw the plan too, as .svg, .png or .html.")
    ] = None,
    page: PlanPageOption = None,
    output: PlanOutputOption = None,
) -> None:
    """Choose a format for each tensor and a kernel for each operation of a network; print reasons and predicted times.

    Kernels are measured on this machine once, and the results are stored; with --threads N, on so many threads. With
    --isa, the plan is for another processor, and --threads are those of that one: its costs are estimated by a model
    (analytic), and no library is needed. Costs are also analytic if the engine is NumPy.

    For example:

      inlay plan resnet50.onnx --batch 8 --threads 4

      inlay plan unet.onnx --dim height=256 --html unet.html

      inlay plan resnet50.onnx --isa avx2 --threads 8 --all

      inlay plan resnet50.onnx -o resnet50.inlay

      inlay plan resnet50.onnx --precision auto --tolerance 0.01 --input photo.npy --errors
    """
    _require_plan_files(model, picture)
    require_plan_target(output, isa, model, *([] if picture is None else [picture]))
    require_page_target(page, [model], [("--picture", picture), ("--output", output)])
    require_engine_here(engine, isa)
    request = request_precision(precision, tolerance, isa, errors=errors, is_sampled=bool(inputs))
    samples = read_inputs(parse_input_files(inputs)) if inputs else {}
    tier, mode = choose_tier(costs, isa, seconds, engine), parse_convolutions(convolutions)
    network = _load_network(model, parse_dim_options(dims or ()), batch)
    if isa is None and costs != "analytic":
        note_reference_engine(engine, f"costs are {'analytic' if costs is None else 'those of NumPy'}")
    values = {name or network.inputs[0]: array for name, array in samples.items()} or None
    options = {"convolutions": mode, "engine": engine, "fallback": parse_fallback(fallback)}
    network_plan = _plan_network(network, tier, isa, threads, seconds, options | request.arguments(values))
    report = network_plan.precision_report(values) if errors else None
    _print_plan(network_plan, report, every_step=every_step, as_json=as_json)
    _write_plan(network_plan, picture, page, output, as_json=as_json)


def _print_plan(network_plan: "Plan", report: "PrecisionReport | None", *, every_step: bool, as_json: bool) -> None:
    """Print a plan, and the report of its errors if there is one."""
    from inlay.graph.report import figures

    if as_json:
        echo(json_text(figures(network_plan) | ({"errors": report.as_json()} if report else {})))
    else:
        echo(network_plan.explain(every_step=every_step) + (f"\n\n{report}" if report else ""))


def _write_plan(
    network_plan: "Plan", picture: Path | None, page: Path | None, output: Path | None, *, as_json: bool
) -> None:
    """Write the files of a plan that the command asks for."""
    if picture is not None:
        _draw_plan(network_plan, picture, as_json=as_json)
    if page is not None:
        save_page(network_plan, page, as_json=as_json)
    if output is not None:
        save_plan(network_plan, output, as_json=as_json)


def _require_plan_files(model: Path, picture: Path | None) -> None:
    """Check, before work begins, that a model can be planned, and that the plan can be drawn into `picture`.

    Raises:
        InvalidArguments: the model is a saved plan, or the picture has another ending than .svg, .png and .html.
        FileError: the picture is the model.
    """
    if picture is not None:
        from inlay.render.network.picture import require_suffix

        require_suffix(picture)
        require_unused(picture, model)
    if is_plan_file(model):
        raise InvalidArguments(
            f"{printable(str(model))} is a saved plan already: `inlay run` runs it; give an ONNX model to plan again"
        )


def _draw_plan(network_plan: "Plan", picture: Path, *, as_json: bool) -> None:
    """Draw a plan, and say so; on the error stream if the output is JSON."""
    from inlay.render.network import PlanPicture

    PlanPicture(network_plan).save(picture)
    echo(f"{'' if as_json else chr(10)}wrote {printable(str(picture))}", err=as_json)


_PLANNING_OPTIONS = (
    "--batch", "--costs", "--threads", "--seconds", "--convolutions", "--fallback", "--precision", "--tolerance",
)  # fmt: skip
"""Options of `inlay run` that say how a network is planned."""


@app.command(short_help="Run a network on arrays in files.")
def run(
    model: RunArgument,
    inputs: InputsOption = None,
    output: OutputOption = None,
    batch: BatchOption = None,
    costs: CostsOption = None,
    threads: ThreadsOption = None,
    seconds: SecondsOption = None,
    convolutions: ConvolutionsOption = None,
    engine: EngineOption = None,
    fallback: FallbackOption = None,
    precision: PrecisionOption = None,
    tolerance: ToleranceOption = None,
    profile: ProfileOption = False,
    all_rows: AllRowsOption = False,
    trace: TraceOption = None,
    page: RunPageOption = None,
    clean: CleanOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan a network for the dims of the input arrays, run it, and print a summary of its outputs, or write them.

    The summary has dims, range and mean of each output, and the five greatest entries of each row of scores. With
    --profile, a table of the steps with measured and predicted times follows; --html writes a page with both.

    Open dims of the model get the dims of the arrays; with --batch, the batch of the arrays must equal it.

    For example:

      inlay run resnet50.onnx --input photo.npy

      inlay run bert.onnx -i ids=ids.npy -i mask=mask.npy -o states.npz

      inlay run resnet50.onnx --input photo.npy --profile --trace steps.json --html resnet50.html

      inlay run resnet50.inlay --input photo.npy
    """
    require_file(model)
    named = parse_input_files(inputs or ())
    require_target(output, [model, *named.values()])
    request = request_profile(profile, all_rows, trace, [model, *named.values()], output, clean, page)
    require_engine_here(engine)
    if is_plan_file(model):
        given = batch, costs, threads, seconds, convolutions, fallback, precision, tolerance
        refuse_plan_options(model, dict(zip(_PLANNING_OPTIONS, given, strict=True)))
        _run_saved_plan(model, engine, read_inputs(named), output, request, clean=clean, as_json=as_json)
        return
    tier, planning = choose_tier(costs, None, seconds, engine), request_precision(precision, tolerance)
    mode, arrays = parse_convolutions(convolutions), read_inputs(named)
    network = _load_for(model, arrays, batch)
    _require_output(output, network.outputs, clean=clean)
    note_reference_engine(engine, "NumPy computes, far slower than oneDNN")
    values = {name or network.inputs[0]: array for name, array in arrays.items()}
    options = {"convolutions": mode, "engine": engine, "fallback": parse_fallback(fallback)}
    network_plan = _plan_network(network, tier, None, threads, seconds, options | planning.arguments(values))
    with network_plan.compile() as session:
        _run_and_report(network_plan, session.prepare(), values, output, request, as_json=as_json)


def _run_saved_plan(
    path: Path,
    engine: str | None,
    arrays: Mapping[str | None, Array],
    output: Path | None,
    request: ProfileRequest,
    *,
    clean: bool,
    as_json: bool,
) -> None:
    """Run a saved plan on these arrays, and print a summary of its outputs, or write them."""
    with load_session(path, engine) as session:
        (network_plan,) = session.plans
        _require_output(output, network_plan.graph.outputs, clean=clean)
        note_reference_engine(engine, "NumPy computes, far slower than oneDNN")
        first = next((tensor.name for tensor in network_plan.inputs), "")
        values = {name or first: array for name, array in arrays.items()}
        _run_and_report(network_plan, session.prepare(), values, output, request, as_json=as_json)


def _require_output(output: Path | None, names: Sequence[str], *, clean: bool) -> None:
    """Check that a file can hold outputs of these names, and find or remove what killed writers of it left."""
    if output is not None:
        require_names_for(output, names)
        clear_abandoned(output, clean)


def _run_and_report(
    network_plan: "PlannedProgram",
    session: "ProgramSession",
    arrays: Mapping[str, Array],
    output: Path | None,
    request: ProfileRequest,
    *,
    as_json: bool,
) -> None:
    """Run and profile the session; print a summary or write the outputs, and print times, notes, and the profile."""
    results, times = _run_timed(session, arrays)
    notes = _notes_of(session, arrays)
    profile = request.measure(session, arrays)
    if as_json:
        if output is not None:
            write_outputs(output, results)
        request.report(profile, network_plan, as_json=True)
        print_json(run_document(network_plan, results, times, notes=notes, file=output, profile=profile))
        return
    _report(results, output)
    echo(f"{times.text(session.engine.name)}; predicted {network_plan.ms:.3f} ms by {network_plan.costs} costs")
    _print_notes(network_plan, notes)
    request.report(profile, network_plan)


def _print_notes(network_plan: "PlannedProgram", notes: Iterable[str]) -> None:
    """Print notes on the machine and on what ran outside the engine."""
    if network_plan.load:
        echo(network_plan.load, err=True)
    for note in notes:
        echo(note)


def _report(results: Mapping[str, Array], output: Path | None) -> None:
    """Print a summary of the outputs, or write them to a file."""
    if output is None:
        echo("\n".join(line for name, array in results.items() for line in summarize_output(name, array)))
        return
    write_outputs(output, results)
    echo(f"wrote {printable(str(output))}: {', '.join(map(printable, results))}")


def _notes_of(session: "ProgramSession", arrays: Mapping[str, Array]) -> list[str]:
    """Return lines on the steps that ran outside the engine."""
    fallback = str(session.measure_fallback(arrays, runs=1)) if session.fallback.count else ""
    numpy = str(session.measure_numpy(arrays, runs=1)) if session.numpy.count else ""
    return [*filter(None, (session.note, fallback, numpy))]


_MAX_RERUN_SECONDS = 2.0
"""Maximum time of the first run after which a second one is measured, in seconds."""


def _run_timed(session: "ProgramSession", arrays: Mapping[str, Array]) -> tuple[dict[str, Array], RunTimes]:
    """Run the session; return outputs and run times.

    A short run is repeated, and the time of the second run is reported, because the first one starts threads.
    """
    first, results = time_call(lambda: session.run(arrays))
    if first > _MAX_RERUN_SECONDS:
        return results, RunTimes(first * 1e3, None)
    second, _ = time_call(lambda: session.run(arrays))
    return results, RunTimes(first * 1e3, second * 1e3)


def _load_network(model: Path, dims: Mapping[str, int], batch: int | None) -> "Network":
    """Load a network; errors about dims also name the options of the command line."""
    from inlay.graph.onnx.reading import load_bound

    with explain_dim_options():
        return load_bound(model, dims=dims, batch=batch)


def _load_for(model: Path, arrays: Mapping[str | None, Array], batch: int | None) -> "Network":
    """Load a network for the dims of these inputs; errors about dims also name the option of the command line."""
    from inlay.graph.onnx.reading import load_for

    with explain_dim_options("--batch N"):
        return load_for(model, {name: array.shape for name, array in arrays.items()}, batch=batch)


def _plan_network(
    network: "Network",
    tier: "Tier",
    isa: str | None,
    threads: int | None,
    seconds: float | None,
    options: Mapping[str, Any],
) -> "Plan":
    """Plan a network; while kernels are measured, draw a progress bar, and report their number and time."""
    from inlay.graph.plan import plan as make_plan

    if tier != "measured":
        return make_plan(network, costs=tier, isa=isa, threads=threads, **options)
    with MeasurementProgress() as progress:
        measured_plan = make_plan(
            network, costs=tier, threads=threads, seconds=seconds, progress=progress.update, **options
        )
    progress.report(measured_plan.sources)
    return measured_plan


def parse_input_files(texts: Sequence[str]) -> dict[str | None, Path]:
    """Parse options --input `NAME=FILE` or `FILE`; return files by the name of the input, None without a name.

    Raises:
        InvalidArguments: there is none, a name is given twice, or one of several files has no name.

    >>> [(name, path.name) for name, path in parse_input_files(["ids=a.npy", "mask=b.npy"]).items()]
    [('ids', 'a.npy'), ('mask', 'b.npy')]
    """
    files: dict[str | None, Path] = {}
    for text in texts:
        before, equals, after = text.partition("=")
        is_named = bool(equals) and not Path(text).exists()
        name = before if is_named else None
        if name in files:
            raise InvalidArguments(f"--input {name or text} is given twice: give each input one file, as NAME=FILE")
        files[name] = Path(after if is_named else text)
    if not files:
        raise InvalidArguments("no input is given: give the arrays of the network, as --input [NAME=]FILE.npy")
    if None in files and len(files) > 1:
        raise InvalidArguments(f"--input {files[None]} does not say for which input it is: give NAME=FILE for each")
    return files


def read_inputs(files: Mapping[str | None, Path]) -> dict[str | None, Array]:
    """Read the arrays of .npy files without unpickling.

    Raises:
        FileError: a file is missing, is no .npy file, is truncated, or contains Python objects.
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


def require_target(target: Path | None, sources: Iterable[Path]) -> None:
    """Check, before work begins, that outputs can be written to `target`; None means that nothing is written.

    Raises:
        InvalidArguments: `target` ends in neither .npz nor .npy.
        FileError: `target` is one of `sources`, the files that are read.
    """
    if target is None:
        return
    require_unused(target, *sources)
    if target.suffix.lower() not in (".npz", ".npy"):
        raise InvalidArguments(
            f"outputs are written as .npz, or one of them as .npy, not {target.suffix or 'without an ending'!r}"
        )


def require_names_for(target: Path, outputs: Sequence[str]) -> None:
    """Check that the file `target` can store outputs of these names.

    Raises:
        InvalidArguments: `target` is a .npy file and there are several outputs, or a name would be truncated in a .npz
            file.
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
                f"a .npz file cannot store the output {name!r}: names end at the character NUL there; rename the "
                "output in the model"
            )


def write_outputs(target: Path, results: Mapping[str, Array]) -> None:
    """Write all outputs by name into a .npz file, or the only output into a .npy file, atomically.

    Raises:
        InvalidArguments: the file cannot store these outputs, see `require_names_for`.
        FileError: the file cannot be written.
    """
    require_names_for(target, list(results))
    with atomic_write(target) as file:
        if target.suffix.lower() == ".npy":
            npy_format.write_array(file, next(iter(results.values())), allow_pickle=False)
            return
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in results.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy_format.write_array(member, array, allow_pickle=False)
