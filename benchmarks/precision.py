"""Six networks in bf16, f16 and int8 beside other runtimes in the same types, with the errors of all against f64.

    resnet50-b1.json       {"f32": {...}, "bf16": {...}, "f16": {...}, "int8": {...}}

Networks are those of the zoo at their published sizes, with seeded weights and batch normalizations that have the
statistics of samples. `int8` is the file that ONNX Runtime's quantizer makes of the f32 file: QDQ, activations in u8,
weights in s8 with a scale for each channel. Each piece is measured in a process of its own,
`python -m benchmarks.precision FOLDER resnet50 1 bf16 FILE ROUNDS`, in which Inlay's plan in f32 takes turns with the
narrow one too. A runtime that crashes is found before, in a process of its own (`inlay.bench.crashes`), and its cell
has the signal. The files of the networks stay in the folder.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

import inlay
from benchmarks.aims import Aim
from benchmarks.record import read_pieces
from inlay.bench.measurement import INLAY, ratio_text, table
from inlay.bench.networks import bench_network
from inlay.bench.precision import REQUESTS
from inlay.files import atomic_write
from inlay.graph.onnx.reading import load_bound
from inlay.graph.runtime.arguments import draw_input
from inlay.measure.disturbance import OtherLoad
from inlay.measure.interleaved import Turn, measure_interleaved
from inlay.measure.statistics import Spread, paired_ratio, spread

PRECISIONS = ("f32", "bf16", "f16", "int8")
"""The pieces of a network."""
PEERS = ("OpenVINO", "ONNX Runtime", "torch")
AIMS: Mapping[str, Mapping[str, float]] = {
    "bf16": {"OpenVINO": 1.05, "torch": 1.2},
    "f16": {"torch": 1.2},
    "int8": {"OpenVINO": 1.05, "ONNX Runtime": 1.2},
}
"""How many times as fast as runtimes with the same types Inlay is to be, in the geometric mean."""
OWN = 1.5
"""How many times as fast as its own plan in f32 a plan in bf16 or int8 is to be, in the geometric mean."""
PREDICTED = 0.25
"""The largest error of a predicted time, as a part of it."""
_TURN = Turn(warm=50e-3, block=25e-3)
_LAYERS = {"width": 768, "heads": 12, "layers": 12}
_SAMPLES = 4  # samples by which ranges of integers are found


def _resnet50() -> Any:
    """Return the architecture of ResNet-50 (He et al., Deep Residual Learning for Image Recognition, 2016)."""
    from tests.zoo.architectures import SCALES
    from tests.zoo.blocks import bottleneck, classifier, conv_norm, nn

    def build() -> Any:
        layers, inner = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for index in range(depth):
                layers.append(bottleneck(inner, width, 4 * width, 2 if stage and not index else 1))
                inner = 4 * width
        return nn.Sequential(*layers, classifier(inner, 1000))

    return replace(SCALES["real"]["resnet18"], build=build)


def _of_zoo(name: str, **options: Any) -> Callable[[], Any]:
    """Return a function that returns an architecture of the zoo at its real size, with other options."""

    def architecture() -> Any:
        from tests.zoo.architectures import SCALES

        found = SCALES["real"][name]
        return replace(found, options={**found.options, **options})

    return architecture


NETWORKS: Mapping[str, Callable[[], Any]] = {
    "resnet50": _resnet50,
    "mobilenet_v2": _of_zoo("mobilenet_v2"),
    "densenet121": _of_zoo("densenet"),
    "bert": _of_zoo("bert", **_LAYERS),
    "vit_b": _of_zoo("vit", **_LAYERS),
    "unet": _of_zoo("unet"),
}
"""The architecture of each network: 12 layers of 768 in BERT and ViT-B, a U-Net half as wide as the published one."""


def network_files(folder: Path, name: str, batch: int) -> tuple[Path, Path]:
    """Return the f32 and the quantized ONNX file of a network, after writing those that the folder lacks."""
    from tests.support.quantized_zoo import masking_nodes
    from tests.support.static_quantization import FORMS, quantize
    from tests.zoo.calibration import draw_sample, export_calibrated

    f32, int8 = (folder / f"{name}-b{batch}{suffix}.onnx" for suffix in ("", ".int8"))
    architecture = NETWORKS[name]()
    if not f32.exists():
        with atomic_write(f32) as stream:
            stream.write(export_calibrated(architecture, batch))
    if not int8.exists():
        import onnx

        model = onnx.load(f32)
        samples = [draw_sample(architecture, seed, batch) for seed in range(_SAMPLES)]
        with atomic_write(int8) as stream:
            stream.write(quantize(model, samples, FORMS[0], excluded=masking_nodes(model)))
    return f32, int8


def measure(folder: Path, name: str, batch: int, precision: Any, rounds: int) -> dict[str, Any]:
    """Return the report of a network in a precision, and how many times as fast as the plan in f32 it runs."""
    others, (f32, int8) = OtherLoad(), network_files(folder, name, batch)
    file, against = (int8, f32) if precision == "int8" else (f32, None)
    report = bench_network(file, rounds=rounds, precision=precision, against=against).as_json()
    own = None if precision == "f32" else _times_as_fast_as_f32(file, f32, precision, rounds)
    return {**report, "own": own, "share_of_others": others.share()}


def _times_as_fast_as_f32(file: Path, f32: Path, precision: str, rounds: int) -> dict[str, float]:
    """Return how many times as fast as Inlay's plan in f32 its plan in a precision runs, in turns."""
    narrow = inlay.plan(inlay.load(file), precision=REQUESTS[precision].inlay).compile()
    wide_network = load_bound(f32)
    wide = inlay.plan(wide_network, precision="f32").compile()
    inputs = {name: draw_input(wide_network.tensors[name]) for name in wide_network.inputs}
    calls = {"narrow": lambda: narrow.run(inputs), "wide": lambda: wide.run(inputs)}
    times = measure_interleaved(calls, rounds, _TURN)
    ratio = paired_ratio(times["wide"], times["narrow"])
    return {"median": ratio.median, "low": ratio.low, "high": ratio.high}


# Results


@dataclass(frozen=True, slots=True)
class PrecisionResult:
    """The measurement of one network, batch and precision."""

    name: str
    batch: int
    precision: str
    found: Mapping[str, Any]  # the report as JSON holds it

    @property
    def label(self) -> str:
        """Name, batch and precision: `resnet50 b8 bf16`."""
        return f"{self.name} b{self.batch} {self.precision}"

    @property
    def off(self) -> float:
        """How much longer a run takes than predicted, as a part of the prediction."""
        return 1e3 * self.spread.median / float(self.found["predicted_ms"]) - 1

    @property
    def spread(self) -> Spread:
        """Seconds of a run."""
        return spread(self.found["measured"][INLAY]["seconds"])

    @property
    def own(self) -> Spread | None:
        """How many times as fast as the plan in f32 it is; None in f32."""
        return None if self.found["own"] is None else Spread(**self.found["own"])

    def ratio(self, peer: str) -> Spread | None:
        """Return how many times as fast as a runtime Inlay is; None if the runtime did not take part."""
        line = self.found["measured"].get(peer)
        return None if line is None else Spread(**line["inlay_is_times_as_fast"])

    def ratio_or_reason(self, peer: str) -> str:
        """Return the ratio to a runtime as text; the signal if it crashed, and a dash if it is absent otherwise."""
        ratio, reason = self.ratio(peer), str(self.found["absent"].get(peer, ""))
        if ratio is not None:
            return ratio_text(ratio)
        return reason if reason.startswith("crashed") else "-"

    def error(self, peer: str) -> float | None:
        """Return the error of a runtime against f64; None if it did not take part."""
        line = self.found["measured"].get(peer)
        return None if line is None else float(line["difference"])


def load_pieces(folder: Path, name: str, batch: int) -> dict[str, Any]:
    """Return the pieces that were measured so far; raise `Unreadable` if the file holds something else."""
    return read_pieces(folder / f"{name}-b{batch}.json", PRECISIONS, "network")


def load_results(folder: Path, name: str, batch: int) -> list[PrecisionResult]:
    """Return the results that were measured so far, in the order of `PRECISIONS`."""
    pieces = load_pieces(folder, name, batch)
    return [PrecisionResult(name, batch, one, pieces[one]) for one in PRECISIONS if one in pieces]


def measure_precision(folder: Path, name: str, batch: int, precision: str, rounds: int) -> None:
    """Measure one piece in a process of its own, and store it; raise `CalledProcessError` if the process fails."""
    known, cache = load_pieces(folder, name, batch), folder / f"{name}-b{batch}.cache"
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        file = Path(temporary) / "found.json"
        arguments = [str(folder), name, str(batch), precision, str(file), str(rounds)]
        command = [sys.executable, "-m", "benchmarks.precision", *arguments]
        subprocess.run(command, check=True, env={**os.environ, "INLAY_CACHE_DIR": str(cache.resolve())})
        found = json.loads(file.read_text())
    with atomic_write(folder / f"{name}-b{batch}.json") as stream:
        stream.write(json.dumps({**known, precision: found}, indent=1).encode())


def precision_table(results: Sequence[PrecisionResult]) -> Table:
    """Return a line for each result: times, how many times as fast as others Inlay is, and errors of all."""
    lines = []
    for result in results:
        own, texts = result.own, map(result.ratio_or_reason, PEERS)
        errors = ["-" if (error := result.error(one)) is None else f"{error:.0e}" for one in (INLAY, *PEERS)]
        off, others = f"{100 * result.off:+.0f} %", f"{100 * (result.found['share_of_others'] or 0):.0f}"
        milliseconds = ratio_text(result.spread.times(1e3))
        lines.append(
            (result.label, milliseconds, "-" if own is None else ratio_text(own), *texts, *errors, off, others)
        )
    heads = ("Inlay ms", "x own f32", *(f"x {peer}" for peer in PEERS), "error", *(f"{peer}'s" for peer in PEERS))
    title = "How many times as fast as others Inlay is in the same types, and errors against f64"
    return table(("network", *heads, "off", "others %"), lines, title)


def precision_aims(results: Sequence[PrecisionResult]) -> list[Aim]:
    """Return the aims of each precision: geometric means beside runtimes and beside f32, and predicted times."""
    found = []
    for precision in PRECISIONS[1:]:
        group = [result for result in results if result.precision == precision]
        aims = {f"x {peer}": (aim, [one.ratio(peer) for one in group]) for peer, aim in AIMS[precision].items()}
        if precision != "f16":  # no aim: few processors compute in it
            aims["x own f32"] = OWN, [one.own for one in group]
        for what, (aim, ratios) in aims.items():
            if known := [ratio.median for ratio in ratios if ratio is not None]:
                mean = geometric_mean(known)
                found.append(Aim(f"{precision}: mean {what}", f"{mean:.3f}", f"{aim}", mean >= aim))
    if offs := [(abs(result.off), result.label) for result in results]:
        worst, label = max(offs)
        limit = f"within {100 * PREDICTED:.0f} %"
        found.append(Aim(f"predicted times, worst {label}", f"{100 * worst:.0f} %", limit, worst <= PREDICTED))
    return found


def precision_notes(results: Sequence[PrecisionResult]) -> list[str]:
    """Return a line for each absent runtime, and for each result that other processes disturbed."""
    lines = []
    for result in results:
        lines += [f"{result.label}: {name} is absent: {reason}" for name, reason in result.found["absent"].items()]
        if (result.found["share_of_others"] or 0) > 0.1:
            lines.append(f"{result.label}: others took over 10 % of the processors: not to be quoted")
    return lines


if __name__ == "__main__":
    _folder, _name, _batch, _precision, _file, _rounds = sys.argv[1:]
    Path(_file).write_text(json.dumps(measure(Path(_folder), _name, int(_batch), _precision, int(_rounds))))
