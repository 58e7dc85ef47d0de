"""`python -m benchmarks`: the benchmark of reorders, and commands that measure costs, descriptors and networks."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from benchmarks import record as records
from benchmarks.buffers import ThreadedMemcpy
from benchmarks.cases import PROMISED, TABLES, Case, Size, all_cases, cases_of, matching
from benchmarks.drawn import drawn_pairs
from benchmarks.peers import find_peers, sources_of_inlay
from benchmarks.record import Machine, Record, Unreadable, rows_of, this_machine
from benchmarks.report import aims_table, console, figures_table, show
from benchmarks.rounds import DEFAULT_ROUNDS, QUICK, Rounds, measure_in_quiet
from benchmarks.startup import PROCESSES, measure_startup

UNFINISHED = 3  # the exit code of a run that has stopped before its end
_T = TypeVar("_T")

app = typer.Typer(add_completion=False, help=__doc__)


def _option(name: str, unit: str | None, text: str, **more: Any) -> Any:
    return typer.Option(name, metavar=unit, help=text, **more)


Json = Annotated[Path | None, _option("--json", "FILE", "Write every time to FILE; continue an unfinished run in it.")]
Svg = Annotated[Path | None, _option("--svg", "FILE", "Draw the bar chart.")]
Quick = Annotated[bool, _option("--quick", None, "Three short rounds; without --table, families beyond the L3 only.")]
Only = Annotated[str, _option("--only", "PATTERN", "Labels that contain PATTERN, such as 'resnet50 b*'.")]
Sizes = Annotated[str, _option("--sizes", "LIST", "Of L2, L3 and beyond, separated by commas.")]
Tables = Annotated[str, _option("--table", "LIST", f"families: all but promised; or of {', '.join(TABLES)}.")]
Seed = Annotated[int | None, _option("--drawn", "SEED", "In place of tables: pairs once slow, at random sizes.")]
Count = Annotated[int, _option("--rounds", "N", "Turns of each contender.", min=1)]
Runs = Annotated[int, _option("--runs", "N", "Measure everything so many times, one run after another.", min=1)]
Minutes = Annotated[float | None, _option("--minutes", "N", "Stop after N and exit with 3; run again to go on.", min=0)]
Startup = Annotated[bool, typer.Option(help="Measure import, compile and call as well.")]
Processes = Annotated[int, _option("--processes", "N", "Fresh processes for each figure.", min=1)]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files that --json wrote.")]
Where = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of results, a JSON file for each network.")]
Batches = Annotated[str, _option("--batches", "LIST", "Of 1 and 8, separated by commas.")]
Again = Annotated[bool, _option("--again", None, "Measure runs anew that are in the folder; plans are kept.")]
Show = Annotated[bool, _option("--show", None, "Measure nothing.")]
Threads = Annotated[int, _option("--threads", "N", "Threads of each contestant.", min=1)]
Peers = Annotated[str, _option("--peers", "LIST", "Of ONNX Runtime, OpenVINO, torch, MNN, ncnn.")]
Sizing = Annotated[str, _option("--scale", "real|small", "Sizes of the zoo's networks.")]
Seconds = Annotated[float, typer.Option(help="Seconds of measuring of the plans.")]


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    json_file: Json = None,
    svg_file: Svg = None,
    quick: Quick = False,
    only: Only = "",
    sizes: Sizes = "L2,L3,beyond",
    tables: Tables = "",
    seed: Seed = None,
    count: Count = DEFAULT_ROUNDS,
    runs: Runs = 1,
    startup: Startup = True,
    minutes: Minutes = None,
) -> None:
    """Measure reorders against a copy of the same bytes and against oneDNN, NumPy and PyTorch."""
    if context.invoked_subcommand is not None:
        return
    end, machine = _deadline(minutes), this_machine()
    rounds = replace(QUICK, count=min(count, QUICK.count)) if quick else Rounds(count)
    cases = chosen_cases(machine, sizes, tables, seed, only, quick)
    peers, missing = find_peers(len(machine.processors))
    versions = {peer.name: peer.version for peer in peers}
    versions["Inlay"] += f" (sources {sources_of_inlay()}; {records.library_versions()})"
    record = _opened(lambda: records.open_record(json_file, records.Setup(machine, rounds, versions, missing)))
    if startup and not record.startup:
        record.startup = measure_startup(2 if quick else PROCESSES)
        record.write()
    memcpy, pieces = ThreadedMemcpy(machine.processors), record.unmeasured(cases, runs)
    if _measure(pieces, end, "cases", lambda p: record.add(measure_in_quiet(p[0], peers, memcpy, rounds, p[1]))):
        raise typer.Exit(UNFINISHED)
    record.is_complete = True
    record.write()
    labels = {case.label for case in cases}
    if not show(record, [row for row in rows_of(record.results) if row.case.label in labels], svg_file):
        raise typer.Exit(1)


def chosen_cases(machine: Machine, sizes: str, tables: str, seed: int | None, only: str, quick: bool) -> list[Case]:
    """Return the cases that the options choose; raise `typer.BadParameter` if there is none."""
    wanted = chosen_sizes(machine, sizes)
    cases = all_cases(wanted, chosen_tables(tables)) if seed is None else cases_of(drawn_pairs(seed), wanted)
    cases = matching(cases, only)
    if quick and not tables and seed is None:
        cases = [case for case in cases if case.pair.table == PROMISED or not case.size.warm]
    if not cases:
        raise typer.BadParameter(f"no case of the sizes {sizes} has a label like *{only}*, such as nchw -> nhwc f32 L3")
    return cases


def _deadline(minutes: float | None) -> float:
    """Return the time on the monotonic clock after which nothing is begun."""
    return inf if minutes is None else time.monotonic() + 60 * minutes


def _opened(load: Callable[[], Record]) -> Record:
    try:
        return load()
    except (OSError, Unreadable) as error:
        raise typer.BadParameter(str(error)) from error


def _measure(pieces: Sequence[_T], end: float, name: str, measure: Callable[[_T], None]) -> int:
    """Measure pieces until the deadline; return how many are left. A progress bar is drawn between pieces only."""
    for done, piece in enumerate(track(pieces, "", console=Console(stderr=True), auto_refresh=False, transient=True)):
        if time.monotonic() >= end:
            console().print(f"{len(pieces) - done} {name} are still to be measured: the same command goes on")
            return len(pieces) - done
        measure(piece)
    return 0


def chosen_sizes(machine: Machine, names: str) -> list[Size]:
    """Return the sizes of a list of names; raise `typer.BadParameter` for an unknown name."""
    known = {size.name.lower(): size for size in machine.sizes}
    wanted = [name.strip().lower() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise typer.BadParameter(f"no size is called {name!r}: --sizes takes some of L2, L3, beyond")
    return [size for name, size in known.items() if name in wanted]


def chosen_tables(names: str) -> list[str]:
    """Return the tables of a list of names, all for no names; raise `typer.BadParameter` for an unknown name."""
    groups = {"": list(TABLES), "families": [name for name in TABLES if name != PROMISED]}
    wanted: set[str] = set()
    for name in (name.strip().lower() for name in names.split(",")):
        if name not in groups and name not in TABLES:
            known = ", ".join(["families", *TABLES])
            raise typer.BadParameter(f"no table is called {name!r}: --table takes some of {known}")
        wanted.update(groups.get(name, [name]))
    return [name for name in TABLES if name in wanted]


@app.command()
def merge(files: Files, json_file: Json = None, svg_file: Svg = None) -> None:
    """Print the tables of earlier runs as one, without measuring: medians, lowest and highest of the runs."""
    record = _opened(lambda: records.merge_records([records.load_record(path) for path in files]))
    if not record.results:
        raise typer.BadParameter("the files hold no case yet")
    if json_file is not None:
        json_file.write_text(json.dumps(records.as_json(record)) + "\n")
    if not show(record, rows_of(record.results), svg_file):
        raise typer.Exit(1)


@app.command()
def costs(processes: Processes = PROCESSES) -> None:
    """Measure importing, compiling and calling; the exit code is 1 when an aim is missed."""
    to, figures = _headed([]), measure_startup(processes)
    to.print(figures_table("Before and beside the move, fresh processes", figures))
    if not all(figure.is_met for figure in figures):
        raise typer.Exit(1)


@app.command()
def descriptors() -> None:
    """Measure creating, viewing and comparing descriptors, and computing offsets."""
    from benchmarks.descriptors import measure_descriptors

    console().print(figures_table("Descriptors", measure_descriptors()))


@app.command()
def compound(count: Count = DEFAULT_ROUNDS) -> None:
    """Measure unpacking compound blocks beside copies, gguf and torch; exit with 1 where an aim is missed."""
    from benchmarks.compound import compound_table, is_met, measure_compound

    to, results = _headed([]), measure_compound(count)
    to.print(compound_table(results))
    if not all(map(is_met, results)):
        raise typer.Exit(1)


@app.command()
def saved(
    networks: Annotated[str, _option("--networks", "LIST", "Of the light networks.")] = "resnet50,squeezenet",
    processes: Processes = PROCESSES,
) -> None:
    """Measure saved plans: size, start of fresh processes, shared memory; exit with 1 where an aim is missed."""
    from benchmarks.saved import is_met, measure_saved, saved_table

    to, results = _headed([]), [measure_saved(name, processes) for name in networks.split(",")]
    to.print(saved_table(results))
    if not all(map(is_met, results)):
        raise typer.Exit(1)


@app.command()
def checkpoint(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder on the disk; it keeps the source.")],
    gigabytes: Annotated[float, _option("--gb", "N", "Size of the checkpoint.", min=0.01)] = 4.0,
    shards: Annotated[int, _option("--shards", "N", "Number of its files.", min=1)] = 6,
    rounds: Annotated[int, _option("--rounds", "N", "Turns of each contestant.", min=1)] = 3,
    cold: Annotated[bool, _option("--cold", None, "Drop the source from the page cache before each turn.")] = False,
) -> None:
    """Measure the conversion of a checkpoint beside cp and a loop of PyTorch; exit with 1 where an aim is missed."""
    from benchmarks.checkpoint import checkpoint_table, is_met, measure_checkpoint

    folder.mkdir(parents=True, exist_ok=True)
    to, (figures, is_equal) = _headed([]), measure_checkpoint(folder, gigabytes, shards, rounds, cold)
    to.print(checkpoint_table(figures))
    to.print(f"round trips are {'equal bit for bit' if is_equal else 'DIFFERENT'}", markup=False)
    if not is_equal or not is_met(figures):
        raise typer.Exit(1)


@app.command()
def rechunk(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the arrays are made, three times their size.")
    ],
    gigabytes: Annotated[float, _option("--gb", "N", "Size of the array, in GB.", min=0.01)] = 3.0,
    memory: Annotated[float, _option("--memory", "N", "Memory limit, in MB.", min=1)] = 256.0,
    rounds: Annotated[int, _option("--rounds", "N", "Turns of each contestant.", min=1)] = 3,
) -> None:
    """Measure Zarr arrays with other chunks beside Dask, under a memory limit; exit with 1 where an aim is missed."""
    from benchmarks.rechunk import measure_rechunk, rechunk_table

    to, results = _headed([]), measure_rechunk(folder, gigabytes, int(memory * 1e6), rounds)
    to.print(rechunk_table(results))
    if not all(result.is_met for result in results):
        raise typer.Exit(1)


@app.command()
def swizzles(count: Count = DEFAULT_ROUNDS) -> None:
    """Measure reorders to and from swizzled memory beside copies; exit with 1 where an aim is missed."""
    from benchmarks.swizzles import is_met, measure_swizzles, swizzles_table

    to, results = _headed([]), measure_swizzles(count)
    to.print(swizzles_table(results))
    if not all(map(is_met, results)):
        raise typer.Exit(1)


@app.command()
def explorer() -> None:
    """Measure first paint, hover and scrolling of the explorer in Chromium; exit with 1 where a limit is exceeded."""
    from benchmarks.explorer import measure_explorer

    to, figures = _headed([]), measure_explorer()
    to.print(figures_table("Explorer", figures))
    if not all(figure.is_met for figure in figures):
        raise typer.Exit(1)


@app.command()
def emitted(
    target: Annotated[str | None, _option("--target", "NAME", "A target that runs here; this machine if none.")] = None,
    only: Only = "",
    rounds: Count = 15,
) -> None:
    """Measure emitted object code beside Inlay's own reorders on one thread; the exit code is 1 if one is too slow."""
    from benchmarks.emitted import LEAST, emitted_table, measure_emitted

    rows = measure_emitted(target, only, rounds)
    _headed([]).print(emitted_table(rows))
    if any(row.speed.median < LEAST for row in rows):
        raise typer.Exit(1)


@app.command()
def rearrange(
    quick: Quick = False,
    json_file: Json = None,
    parts: Annotated[str, _option("--parts", "LIST", "Some of large, random, calls, loops.")] = "",
) -> None:
    """Measure `inlay.rearrange` beside einops and copies, and new results beside `out=`; 1 if an aim is missed."""
    from benchmarks.rearrangement import PARTS
    from benchmarks.rearrangement import run as run_rearrangements

    wanted = parts.split(",") if parts else list(PARTS)
    for name in wanted:
        if name not in PARTS:
            raise typer.BadParameter(f"no part is called {name!r}: --parts takes some of {', '.join(PARTS)}")
    if not run_rearrangements(quick, wanted, json_file):
        raise typer.Exit(1)


def _matching_networks(names: Sequence[str], batches: str, only: str) -> list[tuple[str, int]]:
    """Return the names and batches whose labels match `only`; refuse a pattern that matches none."""
    networks = [(name, int(batch)) for batch in batches.split(",") for name in names]
    matching = [(name, batch) for name, batch in networks if fnmatch(f"{name} b{batch}", only)]
    if not matching:
        labels = ", ".join(f"{name} b{batch}" for name, batch in networks)
        raise typer.BadParameter(f"no label matches {only!r}: give a pattern such as '*bert*' for one of {labels}")
    return matching


@app.command()
def networks(
    folder: Where,
    batches: Batches = "1,8",
    only: Only = "*",
    rounds: Count = 15,
    minutes: Minutes = None,
    again: Again = False,
    show_only: Show = False,
) -> None:
    """Measure networks beside ONNX Runtime, OpenVINO and torch; exit with 1 where one is too slow without a reason."""
    from benchmarks import networks as its
    from benchmarks.aims import known_reasons

    wanted = _matching_networks(its.NETWORKS, batches, only)
    known = {one: its.load_result(folder, *one).pieces for one in wanted}
    pieces = [(*one, p) for one in wanted for p in its.PIECES if p not in known[one] or (again and p == "run")]
    end = _deadline(minutes)
    left = 0 if show_only else _measure(pieces, end, "pieces", lambda p: its.measure_piece(folder, *p, rounds))
    results = [its.load_result(folder, *one) for one in wanted]
    results = [result for result in results if len(result.pieces) == len(its.PIECES)]
    slow = its.slow_networks(results, known_reasons(its.REASONS, tuple(its.AIMS)))
    tables = its.networks_table(results), aims_table(its.network_aims(results)), its.slow_table(slow)
    _headed(its.loud_lines(results)).print(*tables)
    if left:
        raise typer.Exit(UNFINISHED)
    if any(ratio.median < its.LEAST and reason is None for _, _, ratio, reason in slow):
        raise typer.Exit(1)


@app.command()
def zoo(
    folder: Where,
    batches: Batches = "1,8",
    only: Only = "*",
    rounds: Count = 15,
    threads: Threads = 2,
    peers: Peers = "ONNX Runtime,OpenVINO,MNN,ncnn",
    scale: Sizing = "real",
    minutes: Minutes = None,
    again: Again = False,
    show_only: Show = False,
) -> None:
    """Measure the zoo and the seven networks in turns with other processes; exit with 1 where one is too slow."""
    from benchmarks import zoo as its

    wanted = _matching_networks(its.LABELS, batches, only)
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [one for one in wanted if again or its.load_paired(folder, *one) is None]
    others = [peer.strip() for peer in peers.split(",") if peer.strip()]
    end = _deadline(minutes)
    measure = partial(its.measure_network, rounds=rounds, threads=threads, peers=others, scale=scale)
    left = 0 if show_only else _measure(pieces, end, "networks", lambda piece: measure(folder, *piece))
    results = [result for one in wanted if (result := its.load_paired(folder, *one)) is not None]
    to = _headed([])
    to.print(its.paired_table(results, others))
    for line in (*its.mean_lines(results, others), *its.notes(results)):
        to.print(line, markup=False)
    if left or its.is_slow(results):
        raise typer.Exit(UNFINISHED if left else 1)


@app.command()
def torch(
    folder: Where,
    batches: Batches = "1,8",
    only: Only = "*",
    rounds: Count = 15,
    minutes: Minutes = None,
    again: Again = False,
    show_only: Show = False,
    memory: Annotated[bool, _option("--memory", None, "Measure memory over 1,000 calls of 20 batches, too.")] = False,
) -> None:
    """Measure torch.compile(backend="inlay") beside eager PyTorch and inductor; exit with 1 where an aim is missed."""
    from benchmarks import torch_models as its

    wanted = _matching_networks(tuple(its.MODELS), batches, only)
    folder.mkdir(parents=True, exist_ok=True)
    known = {one: its.load_torch_result(folder, *one).pieces for one in wanted}
    pieces = [(*one, p) for one in wanted for p in its.PIECES if p not in known[one] or (again and p == "run")]
    if memory:
        once = {name: (name, batch) for name, batch in reversed(wanted)}
        pieces += [(*one, its.MEMORY) for one in once.values() if its.MEMORY not in known[one] or again]
    end = _deadline(minutes)
    left = 0 if show_only else _measure(pieces, end, "pieces", lambda p: its.measure_torch_piece(folder, *p, rounds))
    results = [its.load_torch_result(folder, *one) for one in wanted]
    results = [result for result in results if set(its.PIECES) <= result.pieces.keys()]
    aims = its.torch_aims(results)
    _headed(its.absent_packages(results)).print(its.torch_table(results), aims_table(aims))
    if left or not all(aim.is_met for aim in aims):
        raise typer.Exit(UNFINISHED if left else 1)


@app.command()
def precision(
    folder: Where,
    batches: Batches = "1,8",
    only: Only = "*",
    types: Annotated[str, _option("--types", "LIST", "Of f32, bf16, f16, int8.")] = "f32,bf16,f16,int8",
    rounds: Count = 15,
    minutes: Minutes = None,
    again: Again = False,
    show_only: Show = False,
) -> None:
    """Measure six networks in f32, bf16, f16 and int8 beside other runtimes; exit with 1 where an aim is missed."""
    from benchmarks import precision as its

    chosen = [one.strip() for one in types.split(",")]
    for one in chosen:
        if one not in its.PRECISIONS:
            raise typer.BadParameter(f"{one!r} is no precision: give some of {', '.join(its.PRECISIONS)}")
    wanted = _matching_networks(tuple(its.NETWORKS), batches, only)
    folder.mkdir(parents=True, exist_ok=True)
    known = {one: its.load_pieces(folder, *one) for one in wanted}
    pieces = [(*one, its_type) for one in wanted for its_type in chosen if again or its_type not in known[one]]
    end = _deadline(minutes)
    left = 0 if show_only else _measure(pieces, end, "pieces", lambda p: its.measure_precision(folder, *p, rounds))
    results = [result for one in wanted for result in its.load_results(folder, *one)]
    aims = its.precision_aims(results)
    _headed(its.precision_notes(results)).print(its.precision_table(results), aims_table(aims))
    if left or not all(aim.is_met for aim in aims):
        raise typer.Exit(UNFINISHED if left else 1)


@app.command()
def decoding(
    folder: Where,
    only: Annotated[str, _option("--only", "PATTERN", "Contestants, such as '*f32*'.")] = "*",
    rounds: Count = 15,
    threads: Threads = 2,
    minutes: Minutes = None,
    again: Again = False,
    show_only: Show = False,
) -> None:
    """Measure decoding with a cache in f32, bf16 and 4 bits beside ONNX Runtime; exit with 1 where an aim is missed."""
    from benchmarks import decoding as its

    names = [name for name in its.CONTESTANTS if fnmatch(name, only)]
    if not names:
        raise typer.BadParameter(f"no contestant matches {only!r}: they are {'; '.join(its.CONTESTANTS)}")
    folder.mkdir(parents=True, exist_ok=True)
    if again:
        (folder / its.RESULTS).unlink(missing_ok=True)
    end, load = _deadline(minutes), its.DecodingLoad()
    left = (
        0 if show_only else its.measure_decoding(folder, names, rounds, threads, load, lambda: time.monotonic() >= end)
    )
    results = its.load_decoding(folder)
    aims = its.decoding_aims(results)
    _headed(its.decoding_notes(results)).print(its.decoding_table(results), aims_table(aims))
    if left or not all(aim.is_met for aim in aims):
        raise typer.Exit(UNFINISHED if left else 1)


def _headed(more: Sequence[str]) -> Console:
    """Print machine, libraries and more lines; return the console."""
    to = console()
    for line in (*this_machine().lines, records.library_versions(), *more):
        to.print(line, markup=False)
    return to


@app.command()
def busy(what: Annotated[str, typer.Argument(metavar="quota|loops")], seconds: Seconds = 2.0) -> None:
    """Time networks under a quota of one processor, or beside a busy loop on each processor."""
    from benchmarks.busy import time_beside_loops, time_under_quota

    if what not in ("quota", "loops"):
        raise typer.BadParameter(f"{what!r} is neither quota nor loops")
    time_under_quota() if what == "quota" else time_beside_loops(seconds)


@app.command()
def shapes(
    only: Annotated[str, _option("--only", "LIST", "Of resnet50, squeezenet, bert.")] = "resnet50,squeezenet,bert",
    parts: Annotated[str, _option("--parts", "LIST", "Of slowdown, planning, memory.")] = "slowdown,planning,memory",
    calls: Annotated[int, _option("--calls", "N", "Runs of the part memory.", min=101)] = 1000,
) -> None:
    """Measure sessions of several shapes: known ones beside planning, new ones, memory; 1 if an aim is missed."""
    from benchmarks import shapes as its

    chosen = [[word.strip() for word in text.split(",")] for text in (only, parts)]
    for words, known in zip(chosen, (its.NETWORKS, its.PARTS), strict=True):
        for word in words:
            if word not in known:
                raise typer.BadParameter(f"{word!r} is not known: give some of {', '.join(known)}")
    tables, is_met = its.run(chosen[0], chosen[1], calls)
    _headed([]).print(*tables)
    if not is_met:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
