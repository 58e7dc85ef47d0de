"""The command that measures run times: `inlay bench`, of a reorder, of a network, or of the memory of this machine."""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from inlay.cli.application import MeasurementProgress, TypeOption, app, parse_dims
from inlay.cli.network_options import (
    EngineOption,
    choose_tier,
    explain_dim_options,
    parse_convolutions,
    parse_dim_options,
    parse_fallback,
    require_engine_here,
)
from inlay.cli.output import echo, json_text
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments

_REORDER, _NETWORK = "a reorder: ", "a network: "


_PASSED = ("batch", "threads", "engine", "peers", "precision", "tolerance", "against")
"""Options of a network that `bench_network` takes as they are."""


def _option(name: str, unit: str, text: str) -> Any:
    return typer.Option(name, metavar=unit, help=text)


Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="SRC DST DIMS | MODEL", help="Formats and dims, or an ONNX file.")
]
ToType = Annotated[str | None, _option("--to-dtype", "TYPE", f"{_REORDER}type of the destination, if another.")]
Tune = Annotated[bool, typer.Option("--tune", help=f"{_REORDER}tune it first; the fastest schedule is stored.")]
Rounds = Annotated[int | None, _option("--rounds", "N", "Rounds of measurement: 9, or 15 for a network.")]
Seconds = Annotated[float | None, _option("--seconds", "S", "Time for --tune, or to measure kernels.")]
Batch = Annotated[int | None, _option("--batch", "N", f"{_NETWORK}extent of axis 0 where it is open.")]
DimOption = Annotated[list[str] | None, _option("--dim", "NAME=N", f"{_NETWORK}extent of an open dim, by name.")]
CostsTier = Annotated[str | None, _option("--costs", "TIER", f"{_NETWORK}measured, probed or analytic.")]
ConvolutionsMode = Annotated[
    str | None, _option("--convolutions", "MODE", f"{_NETWORK}auto, or direct: no Winograd algorithm.")
]
FallbackSource = Annotated[str | None, _option("--fallback", "SOURCE", f"{_NETWORK}auto, numpy or none.")]
Threads = Annotated[int | None, _option("--threads", "N", f"{_NETWORK}threads of every runtime.")]
Peers = Annotated[str | None, _option("--peers", "LIST", f"{_NETWORK}of onnxruntime, openvino, torch.")]
TorchCompile = Annotated[bool, typer.Option("--torch-compile", help=f"{_NETWORK}PyTorch compiles it too, in a minute.")]
Precision = Annotated[
    str | None, _option("--precision", "TYPES", f"{_NETWORK}f32, bf16, f16, int8 or auto, in every runtime.")
]
Tolerance = Annotated[float | None, _option("--tolerance", "E", f"{_NETWORK}largest error of Inlay, as for plan.")]
Against = Annotated[
    str | None, _option("--against", "MODEL", f"{_NETWORK}f32 file that it was quantized from, to measure errors.")
]
MachineModel = Annotated[bool, typer.Option("--machine", help="Measure the caches and memory of this machine.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, with the time of every round.")]


@app.command(short_help="Time a reorder against a copy, or a network against other runtimes.")
def bench(
    what: Arguments = None,
    data_type: TypeOption = "f32",
    to_type: ToType = None,
    rounds: Rounds = None,
    tune: Tune = False,
    seconds: Seconds = None,
    batch: Batch = None,
    dim: DimOption = None,
    costs: CostsTier = None,
    convolutions: ConvolutionsMode = None,
    fallback: FallbackSource = None,
    threads: Threads = None,
    engine: EngineOption = None,
    peers: Peers = None,
    compiles: TorchCompile = False,
    precision: Precision = None,
    tolerance: Tolerance = None,
    against: Against = None,
    machine: MachineModel = False,
    as_json: Json = False,
) -> None:
    """Compare the run time of a reorder with a copy, oneDNN, NumPy and PyTorch, or of a network with other runtimes.

    A network is an ONNX file. It is compared with ONNX Runtime, OpenVINO and PyTorch, if they are installed and return
    the same numbers. Measurements of all runtimes are interleaved, on the same number of threads. The command prints
    medians, and the speed of Inlay as a ratio with its interquartile range. With --precision every runtime is asked for
    the same types, and the error of each against a run in f64 is printed too; int8 is for a quantized model.

    With --machine, the capacity and bandwidth of each memory level are measured. If INLAY_MACHINE names a file with the
    output of --machine --json, this file replaces the measurement.

    Examples: inlay bench nchw nhwc 8x64x56x56    inlay bench model.onnx --batch 8    inlay bench --machine
    """
    network_options: dict[str, Any] = {"batch": batch, "dim": dim, "costs": costs, "convolutions": convolutions}
    network_options |= {"threads": threads, "engine": engine, "peers": peers, "torch-compile": compiles}
    network_options |= {"fallback": fallback, "precision": precision, "tolerance": tolerance, "against": against}
    what = what or []
    reorder_only = {"dtype": None if data_type == "f32" else data_type, "to-dtype": to_type, "tune": tune}
    if machine:
        others = network_options | reorder_only | {"rounds": rounds, "seconds": seconds}
        _refuse_options(others, "--machine", "a reorder or a network")
        report = _bench_machine(what)
    elif len(what) == 1 and (what[0].endswith(".onnx") or Path(what[0]).is_file()):
        _refuse_options(reorder_only, "a network", "a reorder")
        report = _bench_network(what[0], rounds, seconds, network_options)
    else:
        _require_reorder(what)
        _refuse_options(network_options, "a reorder", "a network")
        report = _bench_reorder(what, data_type, to_type, rounds, seconds, tune)
    head = f"{what[0]} -> {what[1]}, " if len(what) > 2 else ""
    echo(json_text(report.as_json()) if as_json else f"{head}{report}")


def _require_positive(seconds: float | None) -> None:
    """Check that the option --seconds, if given, is a positive number."""
    if seconds is not None and not 0 < seconds < inf:
        raise InvalidArguments(f"--seconds is {seconds:g}: give a number greater than 0")


def _require_reorder(what: list[str]) -> None:
    """Check that there are at least three arguments: source format, destination format, dims."""
    if len(what) < 3:
        words = repr(" ".join(what))
        faults = {0: "nothing is given", 2: f"{words} has no dims"}
        fault = faults.get(len(what), f"{words} is none of them")
        raise InvalidArguments(
            f"bench measures a reorder, as in `inlay bench nchw nhwc 8x64x56x56`, or the file of a network, as in "
            f"`inlay bench model.onnx`, or --machine: {fault}"
        )


def _refuse_options(options: Mapping[str, object], given: str, needed: str) -> None:
    """Raise an error if one of the options is given: they are for `needed`, and the command is for `given`."""
    for name, value in options.items():
        if value not in (None, False):
            raise InvalidArguments(f"--{name} is for {needed}, and {given} is given: leave it out")


def _bench_machine(what: list[str]) -> Any:
    """Measure the memory levels of this machine, and return the report."""
    from inlay.bench.machine_report import measure_machine

    if what:
        raise InvalidArguments(f"--machine measures the memory of this machine: leave out {' '.join(what)!r}")
    return measure_machine()


def _bench_reorder(
    what: list[str], data_type: str, to_type: str | None, rounds: int | None, seconds: float | None, tune: bool
) -> Any:
    """Measure a reorder, and return the report."""
    from inlay.bench import ROUNDS
    from inlay.bench import bench as bench_reorder

    _require_positive(seconds)
    if seconds is not None and not tune:
        raise InvalidArguments("--seconds limits the time of --tune: give both, or --tune alone")
    src, dst, *dims = what
    extent = parse_dims(dims)
    descs = MemoryDesc(extent, data_type, src), MemoryDesc(extent, to_type or data_type, dst)
    return bench_reorder(*descs, rounds=ROUNDS if rounds is None else rounds, tune=(seconds or 1.0) if tune else None)


def _bench_network(path: str, rounds: int | None, seconds: float | None, options: Mapping[str, Any]) -> Any:
    """Measure a network, and return the report."""
    from inlay.bench.networks import ROUNDS, bench_network

    _require_positive(seconds)
    require_engine_here(options["engine"])
    costs: Any = choose_tier(options["costs"], None, seconds, options["engine"])
    network_options: dict[str, Any] = {name: options[name] for name in _PASSED}
    network_options |= {
        "dims": parse_dim_options(options["dim"] or ()),
        "convolutions": parse_convolutions(options["convolutions"]),
        "fallback": parse_fallback(options["fallback"]),
    }
    network_options |= {"rounds": ROUNDS if rounds is None else rounds, "compiles": options["torch-compile"]}
    with MeasurementProgress() as progress, explain_dim_options():
        callback = progress.update if costs == "measured" else None
        report = bench_network(path, costs=costs, seconds=seconds, progress=callback, **network_options)
    progress.report(report.sources)
    return report
