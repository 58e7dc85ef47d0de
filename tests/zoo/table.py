"""Print the zoo as a table in Markdown: steps, NumPy's share, seconds of planning, and the ratio to ONNX Runtime.

    python -m tests.zoo.table                      # every architecture, in minutes each where costs are measured
    python -m tests.zoo.table --only vit --costs probed

Each architecture is planned in two processes, which share a cache directory that is empty first: the first time is
cold, the second is warm. All other figures are of the second process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from inlay.bench import measurement
from inlay.bench.networks import bench_network
from inlay.errors import InlayError
from tests.zoo.architectures import ZOO
from tests.zoo.exporting import export

COLUMNS = ("architecture", "family", "steps", "NumPy: steps", "NumPy: % of the time", "plan: s cold", "plan: s warm",
           "ms", "ONNX Runtime's time / Inlay's")  # fmt: skip
"""Heads of the columns."""


def measure_row(name: str, exporter: Any, costs: Any, threads: int) -> dict[str, Any]:
    """Return the figures of an architecture in this process; `refused` has the error if Inlay does not run it."""
    try:
        report = bench_network(export(name, exporter), costs=costs, threads=threads, peers="onnxruntime")
    except InlayError as error:
        return {"refused": str(error)}
    runtime = [other for other in report.configurations if other != measurement.INLAY]
    return {
        "steps": report.steps,
        "numpy_steps": 0 if report.numpy is None else report.numpy.count,
        "numpy_share": 0.0 if report.numpy is None else report.numpy.share,
        "planning": report.planning,
        "ms": 1e3 * report.measured.time(measurement.INLAY),
        "ratio": report.measured.times_faster_than(runtime[0]).median if runtime else None,
    }


def format_row(name: str, cold: Mapping[str, Any], warm: Mapping[str, Any]) -> str:
    """Return a row of the table, from the figures of the first and of the second process.

    >>> figures = {"steps": 3, "numpy_steps": 1, "numpy_share": 0.25, "planning": 0.5, "ms": 2, "ratio": None}
    >>> format_row("vit", {**figures, "planning": 4}, figures)
    '| vit | vision_transformers | 3 | 1 | 25 | 4.00 | 0.50 | 2.000 | - |'
    >>> format_row("ssd", {"refused": "no"}, {"refused": "no"})
    '| ssd | detectors | refused | | | | | | |'
    """
    cells = [name, ZOO[name].family]
    if "refused" in warm:
        return f"| {' | '.join(cells)} | refused |{' |' * 6}"
    cells += [str(warm["steps"]), str(warm["numpy_steps"]), f"{100 * warm['numpy_share']:.0f}"]
    cells += [f"{cold['planning']:.2f}", f"{warm['planning']:.2f}", f"{warm['ms']:.3f}"]
    cells.append("-" if warm["ratio"] is None else f"{warm['ratio']:.2f}")
    return f"| {' | '.join(cells)} |"


def measure_twice(name: str, options: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of two processes in a row that share a new cache directory."""
    command = [sys.executable, "-m", "tests.zoo.table", "--row", name, *options]
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"INLAY_CACHE_DIR": directory}
        runs = (subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in "12")
        cold, warm = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    return cold, warm


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or with `--row` the figures of one architecture as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.table", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(ZOO), help="an architecture; may be repeated")
    parser.add_argument("--exporter", choices=("script", "dynamo"), default="dynamo")
    parser.add_argument("--costs", choices=("probed", "measured"), default="measured")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--row", choices=list(ZOO), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.row:
        print(json.dumps(measure_row(chosen.row, chosen.exporter, chosen.costs, chosen.threads)))
        return
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    options = ("--exporter", chosen.exporter, "--costs", chosen.costs, "--threads", str(chosen.threads))
    for name in chosen.only or ZOO:
        print(format_row(name, *measure_twice(name, options)), flush=True)


if __name__ == "__main__":
    main()
