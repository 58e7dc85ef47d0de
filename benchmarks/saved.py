"""Saved plans: size, time to save, time from `Session.load` to the end of the first run, and memory that is shared.

Each start is a fresh process that has imported Inlay and read its inputs; Python finds byte code, as after an
installation, the file is in the page cache, and machine code of Inlay in the cache directory. The clock begins before
the first use of `inlay.Session`, whose import is included, and ends after the first run. Processes that make the same
session by `inlay.load`, `inlay.plan` and `compile`, with costs that are stored, are measured beside.

Shared memory is read from /proc/PID/smaps of two processes that have loaded one file: `Rss` counts the pages of its map
that a process has, `Pss` each page divided by the number of processes that have it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.table import Table

import inlay
from examples.random_networks import inputs_of, light
from inlay.measure.interleaved import time_call
from inlay.measure.statistics import Spread, spread

NETWORKS = ("resnet50", "squeezenet")
START_AIM = 0.300
"""Seconds within which ResNet-50 is to be loaded and to have run once."""
ROOT = Path(__file__).resolve().parent.parent

_STAY = """
import sys
import inlay, numpy as np
folder = sys.argv[1]
session = inlay.Session.load(f"{folder}/net.inlay")
with np.load(f"{folder}/inputs.npz") as file:
    session.run({name: file[name] for name in file.files})
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class SavedFigures:
    """What was measured of one network."""

    network: str
    """Name of the network."""
    weights: int
    """Bytes of the weights in the model."""
    nbytes: int
    """Bytes of the file."""
    save: float
    """Seconds to save the plan."""
    load: Spread
    """Seconds of `Session.load`, the import of the session included."""
    run: Spread
    """Seconds of the first run."""
    start: Spread
    """Seconds from `Session.load` to the end of the first run."""
    plan: Spread
    """Seconds of the same by `load`, `plan` and `compile` with stored costs."""
    rss: int
    """Bytes of the map that each of two processes has."""
    pss: int
    """The same, with each page divided by the number of processes that have it."""


def measure_saved(name: str, processes: int) -> SavedFigures:
    """Measure a network in so many fresh processes for each figure."""
    with tempfile.TemporaryDirectory() as made:
        folder, model = Path(made), light(name)
        (folder / "net.onnx").write_bytes(model.SerializeToString())
        np.savez(folder / "inputs.npz", **cast("dict[str, Any]", inputs_of(model)))
        plan = inlay.plan(inlay.load(folder / "net.onnx"))
        save, _ = time_call(lambda: plan.save(folder / "net.inlay"))
        environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "code"), "PYTHONDONTWRITEBYTECODE": ""}
        loads = _times("saved", folder, environment, processes)
        plans = _times("planned", folder, environment, max(1, processes // 3))
        return SavedFigures(
            name,
            sum(array.nbytes for op in plan.graph.ops for array in op.constants.values()),
            (folder / "net.inlay").stat().st_size,
            save,
            spread([one["load"] for one in loads]),
            spread([one["run"] for one in loads]),
            spread([sum(one.values()) for one in loads]),
            spread([sum(one.values()) for one in plans]),
            *_measure_sharing(folder, environment),
        )


def _times(what: str, folder: Path, environment: Mapping[str, str], count: int) -> list[dict[str, float]]:
    """Return the seconds that `startup_probe` measures in so many processes, after one that compiles the byte code."""
    command = [sys.executable, "-m", "benchmarks.startup_probe", what, str(folder)]
    found: list[dict[str, float]] = []
    for _ in range(count + 1):
        run = subprocess.run(command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, check=True)
        found.append(json.loads(run.stdout))
    return found[1:]


def _measure_sharing(folder: Path, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return `Rss` and `Pss` of the map of the file in one of two processes that have loaded it."""
    command = [sys.executable, "-c", _STAY, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": dict(environment)}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:  # type: ignore[call-overload]
        try:
            for process in (one, other):
                process.stdout.readline()
            return _read_smaps(one.pid, folder / "net.inlay")
        finally:
            for process in (one, other):
                process.stdin.close()


def _read_smaps(pid: int, path: Path) -> tuple[int, int]:
    """Return `Rss` and `Pss` of the maps of a file in a process, in bytes; 0 where the system does not say."""
    sums, is_inside = {"Rss:": 0, "Pss:": 0}, False
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except OSError:
        return 0, 0
    for line in lines:
        word, *rest = line.split()
        if "-" in word and not word.endswith(":"):
            is_inside = line.endswith(str(path))
        elif is_inside and word in sums:
            sums[word] += 1024 * int(rest[0])
    return sums["Rss:"], sums["Pss:"]


def saved_table(figures: Sequence[SavedFigures]) -> Table:
    """Return a table with a row for each figure and a column for each network, with the aims beside."""
    table = Table("", *(one.network for one in figures), "aim")
    rows: list[tuple[str, Callable[[SavedFigures], str], str]] = [
        ("weights in the model, MB", lambda one: f"{one.weights / 1e6:.1f}", ""),
        ("file, MB", lambda one: f"{one.nbytes / 1e6:.1f}", ""),
        ("save, s", lambda one: f"{one.save:.2f}", ""),
        ("Session.load, ms", lambda one: _ms(one.load), ""),
        ("first run, ms", lambda one: _ms(one.run), ""),
        ("Session.load to the end of the first run, ms", lambda one: _ms(one.start), f"{NETWORKS[0]}: 300"),
        ("load, plan, compile and run, ms", lambda one: _ms(one.plan), ""),
        ("Rss of the map of each of two processes, MB", lambda one: f"{one.rss / 1e6:.1f}", ""),
        ("Pss of it, MB", lambda one: f"{one.pss / 1e6:.1f}", "half of Rss"),
    ]
    for name, text, aim in rows:
        table.add_row(name, *map(text, figures), aim)
    return table


def _ms(seconds: Spread) -> str:
    """Return median and quartiles in milliseconds."""
    ms = seconds.times(1e3)
    return f"{ms.median:.0f} ({ms.low:.0f} to {ms.high:.0f})"


def is_met(figures: SavedFigures) -> bool:
    """Return whether a network has its aims: the time to start, and pages that two processes share."""
    is_shared = not figures.rss or figures.pss < 0.6 * figures.rss
    return is_shared and (figures.network != NETWORKS[0] or figures.start.median < START_AIM)
