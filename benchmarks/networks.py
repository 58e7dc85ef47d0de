"""Networks beside ONNX Runtime, OpenVINO and torch: a folder of results, a JSON file for each network, and the aims.

    squeezenet-b1.json     {"cold": {...}, "warm": {...}, "run": {...}}

Each piece is measured in a process of its own, `python -m benchmarks.networks resnet50 1 run FILE ROUNDS`, which has no
kernels of the engine ready and no other network's memory. `cold` plans and compiles with an empty cache of costs, which
is in the folder too, `warm` with the cache that `cold` filled, and `run` times runs.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from rich.table import Table

import inlay
from benchmarks.aims import Aim, Reason, reason_cells, reason_for, without_reason
from benchmarks.record import read_pieces
from examples.random_networks import bert, light
from inlay.bench.measurement import ratio_text, table
from inlay.bench.networks import bench_network
from inlay.files import atomic_write
from inlay.graph.costs import measured
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.runtime.arguments import draw_input
from inlay.measure.disturbance import OtherLoad
from inlay.measure.interleaved import time_call
from inlay.measure.statistics import Spread, spread

NETWORKS = ("squeezenet", "shufflenet", "inception_v1", "densenet121", "resnet50", "vgg19", "bert")
PIECES = ("cold", "warm", "run")
REASONS = Path(__file__).with_name("network_misses.toml")
AIMS: Mapping[str, float] = {"ONNX Runtime": 1.25, "OpenVINO": 1.07}
"""How many times as fast as each runtime Inlay is to be, in the geometric mean."""
LEAST = 0.98  # how many times as fast Inlay is to be with every network
COLD, WARM, ARENA, PREDICTED = 15.0, 1.0, 6e6, 0.15
"""ResNet-50 at batch 1: seconds to plan and compile, bytes of the arena, error of the prediction as a part of it."""
_LIBRARIES = ("onnxruntime", "openvino", "torch", "onednn-cpu-gomp")
_ROUNDS = 25
_GLANCES = 5  # at how slow the machine is, before and after each round


def measure(name: str, batch: int, piece: str, rounds: int) -> dict[str, Any]:
    """Return the seconds to plan and compile a network, or times of runs with the load of other processes meanwhile."""
    model = (bert(batch=batch) if name == "bert" else light(name, batch)).SerializeToString()
    if piece != "run":
        network = inlay.load(model)
        planning, plan = time_call(lambda: inlay.plan(network))
        return {"planning": planning, "compiling": time_call(plan.compile)[0]}
    others, report = OtherLoad(), bench_network(model, rounds=rounds).as_json()
    installed = {dist.name: dist.version for dist in metadata.distributions()}
    return {
        **report,
        "share_of_others": others.share(),
        "times_predicted": times_predicted(model),
        "versions": {library: installed.get(library, "not installed") for library in _LIBRARIES},
    }


def times_predicted(model: bytes) -> float:
    """Return how many times the predicted milliseconds a run takes, corrected by how slow the machine is at that time.

    The clock of a machine goes up and down, so it is measured before and after each run. The median of rounds counts.
    """
    network = load_bound(model)
    plan = inlay.plan(network)
    graph, session = lower_network(network), plan.compile()
    costs = measured(weights=sum(array.nbytes for op in graph.ops for array in op.constants.values()))
    inputs = {name: draw_input(network.tensors[name]) for name in network.inputs}
    ratios = []
    for _ in range(_ROUNDS):
        slow = [costs.slowdown() for _ in range(_GLANCES)]
        session.run(inputs)
        seconds, _ = time_call(lambda: session.run(inputs))
        slow += [costs.slowdown() for _ in range(_GLANCES)]
        ratios.append(1e3 * seconds / (plan.ms * median(slow)))
    return median(ratios)


@dataclass(frozen=True, slots=True)
class NetworkResult:
    """The measurement of one network."""

    name: str
    batch: int
    pieces: Mapping[str, Any]  # measurements by piece

    @property
    def label(self) -> str:
        """Name and batch: `resnet50 b8`."""
        return f"{self.name} b{self.batch}"

    @property
    def error(self) -> float:
        """How much longer a run takes than predicted, as a part of the prediction."""
        return float(self.pieces["run"]["times_predicted"]) - 1

    def seconds(self, piece: str) -> float:
        """Return the seconds to plan and compile, `cold` or `warm`."""
        return float(self.pieces[piece]["planning"]) + float(self.pieces[piece]["compiling"])

    def ratio(self, peer: str) -> Spread | None:
        """Return how many times as fast as a runtime Inlay is; None if the runtime did not take part."""
        line = self.pieces["run"]["measured"].get(peer)
        return None if line is None else Spread(**line["inlay_is_times_as_fast"])


def load_result(folder: Path, name: str, batch: int) -> NetworkResult:
    """Return the pieces that were measured so far; raise `Unreadable` if the file holds something else."""
    return NetworkResult(name, batch, read_pieces(folder / f"{name}-b{batch}.json", PIECES, "network"))


def measure_piece(folder: Path, name: str, batch: int, piece: str, rounds: int) -> None:
    """Measure one piece in a process of its own, and store it; raise `CalledProcessError` if the process fails."""
    known, cache = load_result(folder, name, batch), folder / f"{name}-b{batch}.cache"
    if piece == "cold":
        shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        file = Path(temporary) / "found.json"
        command = [sys.executable, "-m", "benchmarks.networks", name, str(batch), piece, str(file), str(rounds)]
        subprocess.run(command, check=True, env={**os.environ, "INLAY_CACHE_DIR": str(cache.resolve())})
        found = json.loads(file.read_text())
    with atomic_write(folder / f"{name}-b{batch}.json") as stream:
        stream.write(json.dumps({**known.pieces, piece: found}, indent=1).encode())


# Aims and tables

Slow: TypeAlias = tuple[str, str, Spread, Reason | None]
"""A network with which Inlay is below the aim of the mean: label, runtime, how many times as fast Inlay is, reason."""


def slow_networks(results: Iterable[NetworkResult], reasons: Sequence[Reason]) -> list[Slow]:
    """Return every network and runtime below the aim of the mean, each with its reason."""
    return [
        (result.label, peer, ratio, reason_for(reasons, result.label, peer))
        for result in results
        for peer, aim in AIMS.items()
        if (ratio := result.ratio(peer)) is not None and ratio.median < aim
    ]


def network_aims(results: Sequence[NetworkResult]) -> list[Aim]:
    """Return the aims over all networks, and those of ResNet-50."""
    found = []
    for batch in (*dict.fromkeys(result.batch for result in results), None):
        group = [result for result in results if batch in (None, result.batch)]
        for peer, aim in AIMS.items():
            if ratios := [ratio.median for result in group if (ratio := result.ratio(peer)) is not None]:
                mean, where = geometric_mean(ratios), "all" if batch is None else f"batch {batch}"
                found.append(Aim(f"{where}: mean beside {peer}", f"{mean:.3f}", f"{aim}", mean >= aim))
    for peer in AIMS:
        if known := [(ratio.median, r.label) for r in results if (ratio := r.ratio(peer)) is not None]:
            least, label = min(known)
            found.append(Aim(f"least beside {peer}: {label}", f"{least:.2f}", f"{LEAST}", least >= LEAST))
    return found + [aim for result in results if result.label == "resnet50 b1" for aim in _resnet_aims(result)]


def _resnet_aims(result: NetworkResult) -> list[Aim]:
    cold, warm, error = result.seconds("cold"), result.seconds("warm"), f"{100 * result.error:+.0f} %"
    arena, is_near = result.pieces["run"]["arena_bytes"], abs(result.error) <= PREDICTED
    return [
        Aim("ResNet-50: plan and compile, cold", f"{cold:.1f} s", f"< {COLD:.0f} s", cold < COLD),
        Aim("ResNet-50: plan and compile, warm", f"{warm:.2f} s", f"< {WARM:.0f} s", warm < WARM),
        Aim("ResNet-50: arena", f"{arena / 1e6:.2f} MB", f"<= {ARENA / 1e6:.0f} MB", arena <= ARENA),
        Aim("ResNet-50: measured beside predicted", error, f"within {100 * PREDICTED:.0f} %", is_near),
    ]


def networks_table(results: Sequence[NetworkResult]) -> Table:
    """Return a line for each network."""
    peers, lines = (*AIMS, "torch"), []
    for result in results:
        run = result.pieces["run"]
        ms = ratio_text(spread(run["measured"]["Inlay"]["seconds"]).times(1e3))
        ratios = ("-" if ratio is None else ratio_text(ratio) for ratio in map(result.ratio, peers))
        plan = f"{run['predicted_ms']:.2f}", f"{100 * result.error:+.0f} %", f"{run['arena_bytes'] / 1e6:.2f}"
        seconds = f"{result.seconds('cold'):.1f}", f"{result.seconds('warm'):.2f}"
        lines.append((result.label, ms, *ratios, *plan, *seconds))
    headings = ("Inlay ms", *(f"x {peer}" for peer in peers), "predicted ms", "off", "arena MB", "cold s", "warm s")
    return table(
        ("network", *headings), lines, "Networks, f32: how many times as fast as others Inlay is, and its aims"
    )


def slow_table(slow: Sequence[Slow]) -> Table:
    """Return the networks below the aim of the mean, each with the reason."""
    lines = [
        (label, peer, ratio_text(ratio), "MISSED" if ratio.median < LEAST else "", *reason_cells(reason))
        for label, peer, ratio, reason in slow
    ]
    title = f"Below the aim of the mean: {len(slow)}{without_reason([reason for *_, reason in slow])}"
    names = ("beside", "found", "")
    return table(("network", *names, "reason", "tried"), lines, title, left=names, fold=("reason", "tried"))


def loud_lines(results: Sequence[NetworkResult]) -> list[str]:
    """Return the networks that other processes disturbed: threads that wait for each other suffer most."""
    loud = [result.label for result in results if (result.pieces["run"]["share_of_others"] or 0) > 0.1]
    return [f"others took over 10 % of the processors in {', '.join(loud)}: not to be quoted"] if loud else []


if __name__ == "__main__":
    _name, _batch, _piece, _file, _count = sys.argv[1:]
    Path(_file).write_text(json.dumps(measure(_name, int(_batch), _piece, int(_count)), indent=1))
