"""The command that measures: `inlay bench`, of a reorder or of a network."""

import json
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from inlay.cli.application import TypeOption, Watch, app, parse_dims
from inlay.cli.networks import EngineOption, algorithms_of, choose_tier, open_dims, options_named, require_engine_here
from inlay.cli.output import echo
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments

_REORDER, _NETWORK = "a reorder: ", "a network: "


def _option(name: str, unit: str, text: str) -> Any:
    return typer.Option(name, metavar=unit, help=text)


What = Annotated[
    list[str] | None, typer.Argument(metavar="SRC DST DIMS | MODEL", help="Formats and dims, or an ONNX file.")
]
ToType = Annotated[str | None, _option("--to-dtype", "TYPE", f"{_REORDER}type of the destination, if another.")]
Tune = Annotated[bool, typer.Option("--tune", help=f"{_REORDER}try other ways first; the best is kept.")]
Rounds = Annotated[int | None, _option("--rounds", "N", "How often everybody takes a turn: 9, or 15 with a network.")]
Seconds = Annotated[float | None, _option("--seconds", "S", "How long to try with --tune, or to measure kernels.")]
Batch = Annotated[int | None, _option("--batch", "N", f"{_NETWORK}extent of axis 0 where it is open.")]
Bound = Annotated[list[str] | None, _option("--dim", "NAME=N", f"{_NETWORK}extent of an open dim, by name.")]
Tier = Annotated[str | None, _option("--costs", "TIER", f"{_NETWORK}measured, probed or analytic.")]
How = Annotated[str | None, _option("--convolutions", "HOW", f"{_NETWORK}auto, or direct: without Winograd's.")]
Threads = Annotated[int | None, _option("--threads", "N", f"{_NETWORK}threads of everybody.")]
Peers = Annotated[str | None, _option("--peers", "LIST", f"{_NETWORK}of onnxruntime, openvino, torch.")]
Compiles = Annotated[bool, typer.Option("--torch-compile", help=f"{_NETWORK}PyTorch compiles it too, in a minute.")]
MachineModel = Annotated[bool, typer.Option("--machine", help="Measure caches and memory, beside what is reported.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, with the time of every round.")]


@app.command(short_help="Time a reorder against a copy, or a network against other runtimes.")
def bench(
    what: What = None,
    data_type: TypeOption = "f32",
    to_type: ToType = None,
    rounds: Rounds = None,
    tune: Tune = False,
    seconds: Seconds = None,
    batch: Batch = None,
    dim: Bound = None,
    costs: Tier = None,
    convolutions: How = None,
    threads: Threads = None,
    engine: EngineOption = None,
    peers: Peers = None,
    compiles: Compiles = False,
    machine: MachineModel = False,
    as_json: Json = False,
) -> None:
    """Time a reorder beside a copy, oneDNN, NumPy and PyTorch, or a network beside other runtimes.

    A network is an ONNX file; it runs beside ONNX Runtime, OpenVINO and PyTorch where they are installed and give the
    same numbers. Everybody takes turns, on as many threads. Printed are medians and how many times as fast Inlay is,
    with the range of the middle half of the rounds.

    With --machine, the capacity and bandwidth of each memory level are measured; INLAY_MACHINE names a file that holds
    what --machine --json printed, and is used in place of a measurement.

    Examples: inlay bench nchw nhwc 8x64x56x56    inlay bench model.onnx --batch 8    inlay bench --machine
    """
    if seconds is not None and not 0 < seconds < inf:
        raise InvalidArguments(f"--seconds is {seconds:g}: give a number greater than 0")
    named = {"batch": batch, "dim": dim, "costs": costs, "convolutions": convolutions, "threads": threads}
    named |= {"engine": engine, "peers": peers, "torch-compile": compiles}
    typed = {"dtype": None if data_type == "f32" else data_type, "to-dtype": to_type, "tune": tune}
    what, head = what or [], ""
    if machine:
        _refuse(named | typed | {"rounds": rounds, "seconds": seconds}, "--machine", "a reorder or a network")
        report = _of_machine(what)
    elif len(what) == 1 and (what[0].endswith(".onnx") or Path(what[0]).is_file()):
        _refuse(typed, "a network", "a reorder")
        report = _of_network(what[0], rounds, seconds, named)
    else:
        _require_reorder(what)
        _refuse(named, "a reorder", "a network")
        report = _of_reorder(what, data_type, to_type, rounds, seconds, tune)
        head = f"{what[0]} -> {what[1]}, "
    if as_json:
        echo(json.dumps(report.as_json(), indent=2))
        return
    echo(f"{head}{report}")


def _require_reorder(what: list[str]) -> None:
    if len(what) != 3:
        raise InvalidArguments(
            f"bench takes a reorder, as in `inlay bench nchw nhwc 8x64x56x56`, or the file of a network, as in "
            f"`inlay bench model.onnx`, or --machine: {' '.join(what)!r} is none of them"
        )


def _refuse(options: Mapping[str, object], given: str, needed: str) -> None:
    """Refuse options that were given and mean nothing here."""
    for name, value in options.items():
        if value not in (None, False):
            raise InvalidArguments(f"--{name} is for {needed}, and {given} is given: leave it out")


def _of_machine(what: list[str]) -> Any:
    from inlay.bench.machine_report import measure_machine

    if what:
        raise InvalidArguments(f"--machine measures the memory of this machine: leave out {' '.join(what)!r}")
    return measure_machine()


def _of_reorder(
    what: list[str], data_type: str, to_type: str | None, rounds: int | None, seconds: float | None, tune: bool
) -> Any:
    from inlay.bench import ROUNDS
    from inlay.bench import bench as carry_out

    if seconds is not None and not tune:
        raise InvalidArguments("--seconds says how long --tune may take: give both, or --tune alone")
    src, dst, dims = what
    extent = parse_dims(dims)
    descs = MemoryDesc(extent, data_type, src), MemoryDesc(extent, to_type or data_type, dst)
    return carry_out(*descs, rounds=ROUNDS if rounds is None else rounds, tune=(seconds or 1.0) if tune else None)


def _of_network(path: str, rounds: int | None, seconds: float | None, options: Mapping[str, Any]) -> Any:
    from inlay.bench.networks import ROUNDS, bench_network

    require_engine_here(options["engine"], None)
    costs: Any = choose_tier(options["costs"], None, None, seconds, options["engine"])
    named: dict[str, Any] = {name: options[name] for name in ("batch", "threads", "engine", "peers")}
    named |= {"dims": open_dims(options["dim"] or ()), "convolutions": algorithms_of(options["convolutions"])}
    named |= {"rounds": ROUNDS if rounds is None else rounds, "compiles": options["torch-compile"]}
    with Watch() as watch, options_named():
        told = watch.tell if costs == "measured" else None
        report = bench_network(path, costs=costs, seconds=seconds, progress=told, **named)
    watch.report(report.sources)
    return report
