"""Networks of the zoo and the seven of `networks` beside other runtimes, each in a process of its own, in turns.

    zoo-vit-b1.json        {"seconds": {"Inlay": [...], ...}, "how": {...}, "absent": {...}, "others": 0.01, ...}

`measure_network` writes such a file for a network and batch; the tables are formed from the files of a folder.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from math import comb
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from rich.table import Table

from benchmarks.contestants import Contestant
from benchmarks.networks import NETWORKS
from benchmarks.record import Unreadable
from examples.random_networks import bert, light
from inlay.bench.measurement import INLAY, table
from inlay.bench.networks import CLOSE, difference
from inlay.files import atomic_write
from inlay.measure.interleaved import rotate

ZOO_NETWORKS = (
    "resnext", "mobilenet_v2", "shufflenet_v2", "efficientnet", "regnet", "ghostnet", "hrnet",
    "yolo", "retinanet", "fcn", "espcn", "dncnn", "lstm_tagger", "bert",
    "t5", "qwen3", "wav2vec2", "vit", "segformer", "maxvit",
)  # fmt: skip
"""Every second architecture of the zoo, from the second on: half of each family, chosen by their places in the table
before anything was measured. The other half has four relatives of the seven (DenseNet, SqueezeNet, Inception, VGG)."""
PREFIX = "zoo-"
LABELS = (*(PREFIX + name for name in ZOO_NETWORKS), *NETWORKS)
"""The name of each network; those of the zoo have a prefix."""
AIMS: Mapping[str, float] = {"ONNX Runtime": 1.25, "OpenVINO": 1.05}
"""How many times as fast as each runtime Inlay is to be on the zoo, in the geometric mean."""
LEAST = 0.95
"""No network is to have an interval that lies wholly below it, beside ONNX Runtime."""
PEERS = ("ONNX Runtime", "OpenVINO", "MNN", "ncnn")
IMAGES = (*(f"{PREFIX}{name}" for name in ZOO_NETWORKS[:12]), *NETWORKS[:-1])
"""Convolutional networks, which MNN and ncnn run too."""
_LIBRARIES = ("onnxruntime", "openvino", "torch", "onednn-cpu-gomp", "MNN", "ncnn", "pnnx")
CONFIDENCE = 0.95


def write_model(name: str, batch: int, file: Path, scale: str) -> None:
    """Write the ONNX file of a network: of the zoo by PyTorch's newer exporter, detectors without suppression."""
    if name.startswith(PREFIX):
        from tests.zoo.exporting import export

        size: Any = scale
        data = export(name.removeprefix(PREFIX), "dynamo", suppression=False, scale=size, batch=batch)
    else:
        data = (bert(batch=batch) if name == "bert" else light(name, batch)).SerializeToString()
    file.write_bytes(data)


def peers_of(name: str, peers: Sequence[str]) -> list[str]:
    """Return those of the peers that take part in a network."""
    return [peer for peer in peers if name in IMAGES or peer not in ("MNN", "ncnn")]


def measure_network(
    folder: Path, name: str, batch: int, rounds: int, threads: int, peers: Sequence[str], scale: str = "real"
) -> None:
    """Export a network, let Inlay and the peers take turns at it, and store the times."""
    stem = folder / f"{name}-b{batch}"
    model, cache = stem.with_suffix(".onnx"), stem.with_suffix(".cache")
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.zoo", name, str(batch), str(model), scale]
    subprocess.run(command, check=True)
    try:
        found = _take_turns(model, cache, rounds, threads, [INLAY, *peers_of(name, peers)])
    finally:
        model.unlink()
    installed = {dist.name: dist.version for dist in metadata.distributions()}
    found |= {"threads": threads, "scale": scale, "versions": {one: installed.get(one) for one in _LIBRARIES}}
    with atomic_write(stem.with_suffix(".json")) as stream:
        stream.write(json.dumps(found, indent=1).encode())


def _take_turns(model: Path, cache: Path, rounds: int, threads: int, names: Sequence[str]) -> dict[str, Any]:
    """Start the contestants one after another, compare their numbers with Inlay's, and time those that agree."""
    how: dict[str, str] = {}
    absent: dict[str, str] = {}
    running: dict[str, Contestant] = {}
    expected: Mapping[str, Any] = {}
    for name in names:
        contestant = Contestant.start(name, model, threads, cache)
        words, results = contestant.answer() or ("its process has ended", None)
        expected = expected or results or {}
        error = 0.0 if results is None else difference(results, expected)
        if results is None or error > CLOSE:
            contestant.stop()
            absent[name] = (
                words if results is None else f"its numbers differ from Inlay's, by {error:.1e} of the largest"
            )
        else:
            running[name], how[name] = contestant, words
    seconds, shares = _rounds(running, rounds, absent)
    for contestant in running.values():
        contestant.stop()
    return {"seconds": seconds, "how": how, "absent": absent, "others": median(shares or [0.0])}


def _rounds(running: Mapping[str, Contestant], rounds: int, absent: dict[str, str]) -> tuple[Any, list[float]]:
    """Return the seconds of each contestant and the shares of others; who ends is absent."""
    seconds: dict[str, list[float]] = {name: [] for name in running}
    shares = []
    for index in range(rounds):
        for name in rotate(list(running), index):
            answer = running[name].turn() if name in seconds else None
            if answer is None:
                seconds.pop(name, None)
                absent[name] = "its process has ended"
            else:
                seconds[name].append(answer[0])
                shares.append(answer[1] or 0.0)
    return seconds, shares


# Figures


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and its confidence interval of 95 percent."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}-{self.high:.2f}]"


def interval_of(values: Sequence[float]) -> Interval:
    """Return the median and the least interval of order statistics that holds it with 95 % (the sign test's).

    Fewer than six values have no such interval; theirs is from the least to the greatest.

    >>> print(interval_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]))
    5.00 [2.00-8.00]
    """
    ordered, count = sorted(values), len(values)
    cut, tail = 0, 1.0
    while 2 * tail / 2**count <= 1 - CONFIDENCE:
        cut += 1
        tail += comb(count, cut)
    first = max(0, cut - 1)
    return Interval(median(ordered), ordered[first], ordered[count - 1 - first])


@dataclass(frozen=True, slots=True)
class PairedResult:
    """The times of one network and batch."""

    name: str
    batch: int
    found: Mapping[str, Any]  # the content of its file

    @property
    def label(self) -> str:
        """Name and batch: `zoo-vit b8`."""
        return f"{self.name} b{self.batch}"

    def ratio(self, peer: str) -> Interval | None:
        """Return how many times as fast as a peer Inlay is; None if one of them did not take part."""
        own, other = (self.found["seconds"].get(name) for name in (INLAY, peer))
        return interval_of([b / a for a, b in zip(own, other, strict=False)]) if own and other else None


def load_paired(folder: Path, name: str, batch: int) -> PairedResult | None:
    """Return a result of the folder, None if it is not measured yet; raise `Unreadable` if the file holds none."""
    file = folder / f"{name}-b{batch}.json"
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise Unreadable(f"{file} holds no result: {error}; remove it, and measure again") from error
    if not isinstance(found, dict) or not isinstance(found.get("seconds"), dict):
        raise Unreadable(f"{file} holds no times of a network; remove it, and measure again")
    return PairedResult(name, batch, found)


def paired_table(results: Sequence[PairedResult], peers: Sequence[str] = PEERS) -> Table:
    """Return a line for each network: milliseconds of Inlay, and how many times as fast as each peer it is."""
    lines = []
    for result in results:
        own = result.found["seconds"].get(INLAY)
        ratios = ("-" if (ratio := result.ratio(peer)) is None else str(ratio) for peer in peers)
        others = f"{100 * result.found['others']:.0f}"
        lines.append((result.label, f"{1e3 * median(own):.2f}" if own else "-", *ratios, others))
    headings = ("network", "Inlay ms", *(f"x {peer}" for peer in peers), "others %")
    return table(headings, lines, "Inlay in turns with other processes, f32: times as fast, [95 % interval]")


def mean_lines(results: Sequence[PairedResult], peers: Sequence[str] = PEERS) -> list[str]:
    """Return the geometric means over the zoo and over the seven, for each batch and for all."""
    lines = []
    for is_zoo, group in ((True, "zoo"), (False, "the seven")):
        ours = [result for result in results if result.name.startswith(PREFIX) == is_zoo]
        for batch in (*dict.fromkeys(result.batch for result in ours), None):
            for peer in peers:
                chosen = [r.ratio(peer) for r in ours if batch in (None, r.batch)]
                if ratios := [ratio.median for ratio in chosen if ratio is not None]:
                    where = "both batches" if batch is None else f"batch {batch}"
                    aim = f", aim {AIMS[peer]}" if is_zoo and peer in AIMS and batch is None else ""
                    mean = f"{geometric_mean(ratios):.3f} in the geometric mean of {len(ratios)}"
                    lines.append(f"{group}, {where}: x {peer} {mean}{aim}")
    return lines


def notes(results: Sequence[PairedResult]) -> list[str]:
    """Return a line for each network that is too slow beside ONNX Runtime, and for each absent or disturbed one."""
    lines = []
    for result in results:
        ratio = result.ratio("ONNX Runtime")
        if ratio is not None and ratio.high < LEAST:
            lines.append(f"{result.label}: wholly under {LEAST} of ONNX Runtime: {ratio}")
        if result.found["others"] > 0.1:
            lines.append(f"{result.label}: others took {100 * result.found['others']:.0f} %: not to be quoted")
        lines += [f"{result.label}: {name} is absent: {reason}" for name, reason in result.found["absent"].items()]
    return lines


def is_slow(results: Sequence[PairedResult]) -> bool:
    """Return whether an interval lies wholly below the least ratio to ONNX Runtime."""
    return any((ratio := result.ratio("ONNX Runtime")) is not None and ratio.high < LEAST for result in results)


if __name__ == "__main__":
    _name, _batch, _file, _scale = sys.argv[1:]
    write_model(_name, int(_batch), Path(_file), _scale)
