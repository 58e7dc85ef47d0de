"""Measure the zoo and write its table in docs/networks-measured.md: steps, fallbacks, seconds of planning, ratios.

    python -m tests.zoo.table                                # every architecture at its real size: an hour or two
    python -m tests.zoo.table --only vit --only bert --scale small --no-page

Each architecture is planned in two processes, which share a cache directory that is empty first: the first time is
cold, the second is warm. All other figures are of the second process. Rows are kept in a JSON file, so that the same
command goes on after an interruption; rows of other options are measured again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.networks import times_predicted
from inlay.bench import measurement
from inlay.bench.networks import bench_network
from inlay.errors import InlayError
from inlay.files import atomic_write
from tests.support.paths import ROOT
from tests.zoo.architectures import ZOO
from tests.zoo.exporting import export

COLUMNS = ("architecture", "family", "steps", "ONNX Runtime's kernels", "NumPy", "plan cold, s", "plan warm, s",
           "run, ms", "run / predicted", "ONNX Runtime / Inlay")  # fmt: skip
"""Heads of the columns."""
PAGE = ROOT / "docs" / "networks-measured.md"
"""The page with the table."""
BEGIN, END = "<!-- zoo: begin -->", "<!-- zoo: end -->"
"""Lines of the page between which the table is."""
LEAST_SHARE, NEAR = 0.02, 0.2
"""The share of fallbacks and the error of the prediction, as a part of it, below which an architecture is counted."""
Row = Mapping[str, Any]


def measure_row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of an architecture in this process; `refused` has the error if Inlay does not run it."""
    model = export(name, options.exporter, scale=options.scale)
    settings = {"costs": options.costs, "threads": options.threads, "rounds": options.rounds}
    try:
        report = bench_network(model, peers="onnxruntime", **settings)
        ratio = times_predicted(model) if options.costs == "measured" else None
    except InlayError as error:
        return {"refused": str(error)}
    runtime = [other for other in report.configurations if other != measurement.INLAY]
    shares = {"numpy": report.numpy, "fallback": report.fallback}
    return {
        "steps": report.steps,
        **{key: [0, 0.0] if one is None else [one.count, one.share] for key, one in shares.items()},
        "planning": report.planning,
        "ms": 1e3 * report.measured.time(measurement.INLAY),
        "times_predicted": ratio,
        "ratio": report.measured.times_faster_than(runtime[0]).median if runtime else None,
    }


def format_row(name: str, cold: Row, warm: Row) -> str:
    """Return a row of the table, from the figures of the first and of the second process.

    >>> figures = {"steps": 3, "numpy": [1, 0.25], "fallback": [0, 0.0], "planning": 0.5, "ms": 2, "ratio": None}
    >>> figures["times_predicted"] = 1.1
    >>> format_row("vit", {**figures, "planning": 4}, figures)
    '| vit | vision_transformers | 3 | 0 | 1 (25 %) | 4.00 | 0.50 | 2.00 | 1.10 | - |'
    >>> format_row("ssd", {"refused": "no"}, {"refused": "no"})
    '| ssd | detectors | refused | | | | | | | |'
    """
    cells = [name, ZOO[name].family]
    if "refused" in warm:
        return f"| {' | '.join(cells)} | refused |{' |' * 7}"
    cells.append(str(warm["steps"]))
    cells += [f"{count} ({100 * share:.0f} %)" if count else "0" for count, share in (warm["fallback"], warm["numpy"])]
    cells += [f"{cold['planning']:.2f}", f"{warm['planning']:.2f}", f"{warm['ms']:.2f}"]
    cells += ["-" if warm[key] is None else f"{warm[key]:.2f}" for key in ("times_predicted", "ratio")]
    return f"| {' | '.join(cells)} |"


def table_text(rows: Mapping[str, Sequence[Row]]) -> str:
    """Return the table of rows by architecture, each of a cold and a warm process, and what is counted below it."""
    ordered = [name for name in ZOO if name in rows]
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [format_row(name, *rows[name]) for name in ordered]
    warm = [rows[name][1] for name in ordered if "refused" not in rows[name][1]]
    few = sum(row["numpy"][1] + row["fallback"][1] < LEAST_SHARE for row in warm)
    near = sum(row["times_predicted"] is not None and abs(row["times_predicted"] - 1) <= NEAR for row in warm)
    counts = f"Of {len(ordered)} architectures {len(warm)} run; in {few} the kernels of ONNX Runtime and NumPy take"
    lines += ["", f"{counts} under {LEAST_SHARE:.0%} of the time,".replace("%", " %")]
    lines.append(f"and in {near} a run is within {NEAR:.0%} of the prediction.".replace("%", " %"))
    return "\n".join(lines)


def with_table(page: str, text: str) -> str:
    """Return the page with another text between its markers."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def measure_twice(name: str, options: Sequence[str]) -> list[dict[str, Any]]:
    """Return the figures of two processes in a row that share a new cache directory."""
    command = [sys.executable, "-m", "tests.zoo.table", "--row", name, *options]
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"INLAY_CACHE_DIR": directory}
        runs = (subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True) for _ in "12")
        return [json.loads(run.stdout.splitlines()[-1]) for run in runs]


def measure_rows(names: Sequence[str], options: Sequence[str], file: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of architectures; those that the file has with the same options are not measured again."""
    known = json.loads(file.read_text()) if file.exists() else {}
    rows: dict[str, list[dict[str, Any]]] = known.get("rows", {}) if known.get("options") == list(options) else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name not in rows:
            rows[name] = measure_twice(name, options)
            with atomic_write(file) as stream:
                stream.write(json.dumps({"options": list(options), "rows": rows}, indent=1).encode())
        print(format_row(name, *rows[name]), flush=True)
    return {name: rows[name] for name in names}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.table", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(ZOO), help="an architecture; may be repeated")
    parser.add_argument("--scale", choices=("small", "real"), default="real")
    parser.add_argument("--exporter", choices=("script", "dynamo"), default="dynamo")
    parser.add_argument("--costs", choices=("probed", "measured"), default="measured")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=Path, default=ROOT / "build" / "zoo-table.json", help="the file of rows")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    parser.add_argument("--row", choices=list(ZOO), help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table, or with `--row` print the figures of one architecture as JSON."""
    chosen = _parser().parse_args(arguments)
    if chosen.row:
        print(json.dumps(measure_row(chosen.row, chosen)))
        return
    names = ("scale", "exporter", "costs", "threads", "rounds")
    options = [text for name in names for text in (f"--{name}", str(getattr(chosen, name)))]
    rows = measure_rows(chosen.only or list(ZOO), options, chosen.rows)
    if not chosen.no_page:
        PAGE.write_text(with_table(PAGE.read_text(), table_text(rows)))


if __name__ == "__main__":
    main()
