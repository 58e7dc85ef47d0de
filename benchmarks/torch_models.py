"""Models of torchvision, timm and transformers by `torch.compile(backend="inlay")`, beside eager PyTorch and inductor.

    resnet50-b1.json       {"first Inlay": {...}, "first inductor": {...}, "run": {...}, "memory": {...}}

Weights are random. Each piece is measured in a process of its own, `python -m benchmarks.torch_models resnet50 1 run
FILE ROUNDS`. The `first` pieces time the first call with empty caches, which are in the folder; `run` lets the three
take turns in one process, with the caches that those filled; `memory` calls one compiled model with 20 batch sizes.
Where a package is not installed, the network of the zoo that is most alike takes the place of its models.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from rich.table import Table

import inlay
from benchmarks.aims import Aim
from benchmarks.record import read_pieces
from inlay.bench.measurement import INLAY, ratio_text, table
from inlay.files import atomic_write
from inlay.measure.disturbance import OtherLoad
from inlay.measure.interleaved import Turn, measure_interleaved, time_call
from inlay.measure.statistics import Spread, paired_ratio, spread

EAGER, INDUCTOR = "eager", "inductor"
AIMS: Mapping[str, float] = {EAGER: 1.3, INDUCTOR: 1.0}
"""How many times as fast as each Inlay is to be, in the geometric mean."""
PIECES = ("first Inlay", "first inductor", "run")
MEMORY = "memory"
GROWTH = 1.05
"""Aim of the resident memory after all calls, beside that after the first hundred."""
CLOSE = 1e-3
"""Greatest difference from eager results, as a part of the greatest of them."""
SIZES, CALLS, SETTLED = 20, 1000, 100
"""Batch sizes, calls, and calls after which each size was called once."""
_LIBRARIES = ("torch", "torchvision", "timm", "transformers", "onednn-cpu-gomp", "onnxscript")
_TURN = Turn(warm=50e-3, block=25e-3)

Example: TypeAlias = Callable[[Any, int], tuple[Any, ...]]
"""Function from PyTorch and a batch to the arguments of a call."""


def image(torch: Any, batch: int) -> tuple[Any, ...]:
    """Return images of 224 x 224."""
    return (torch.randn(batch, 3, 224, 224),)


def tokens(torch: Any, batch: int) -> tuple[Any, ...]:
    """Return ids of 128 tokens."""
    return (torch.randint(0, 1000, (batch, 128)),)


def sound(torch: Any, batch: int) -> tuple[Any, ...]:
    """Return a second of sound."""
    return (torch.randn(batch, 16000),)


@dataclass(frozen=True, slots=True)
class TorchModel:
    """A model of a package."""

    package: str
    """Package that builds it."""
    kind: str
    """Name of the model there; of transformers the prefix of its class and configuration."""
    zoo: str
    """Network of the zoo that takes its place."""
    example: Example = image
    """The inputs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the configuration of transformers."""

    def build(self) -> tuple[Any, Callable[[int], tuple[Any, ...]], str]:
        """Return the model in evaluation mode, the arguments of a call by batch, and where the model is from."""
        import torch

        torch.manual_seed(0)
        try:
            package = import_module(self.package)
        except ImportError:
            return self._build_from_zoo(torch)
        module = _BUILDERS[self.package](package, self).eval()
        for parameter in module.parameters():
            if parameter.ndim > 1 and not parameter.any():  # some heads begin with zeros, and all would agree on them
                torch.nn.init.normal_(parameter, std=0.02)
        return module, lambda batch: self.example(torch, batch), self.package

    def _build_from_zoo(self, torch: Any) -> tuple[Any, Callable[[int], tuple[Any, ...]], str]:
        """Return the network of the zoo that takes the place of the model."""
        from tests.zoo.architectures import SCALES, draw_inputs
        from tests.zoo.exporting import build_lively

        architecture = SCALES["real"][self.zoo]

        def arguments(batch: int) -> tuple[Any, ...]:
            return tuple(map(torch.from_numpy, draw_inputs(architecture, {"batch": batch}).values()))

        return build_lively(architecture, draw_inputs(architecture)), arguments, f"zoo, in place of {self.package}"


def _build_torchvision(package: Any, model: TorchModel) -> Any:
    """Return a model of torchvision."""
    return package.models.get_model(model.kind, weights=None)


def _build_timm(package: Any, model: TorchModel) -> Any:
    """Return a model of timm."""
    return package.create_model(model.kind, pretrained=False)


def _build_transformers(package: Any, model: TorchModel) -> Any:
    """Return a model of transformers."""
    config = getattr(package, f"{model.kind.removesuffix('Encoder')}Config")(**model.options)
    return getattr(package, f"{model.kind}Model")(config)


_BUILDERS: Mapping[str, Callable[[Any, TorchModel], Any]] = {
    "torchvision": _build_torchvision,
    "timm": _build_timm,
    "transformers": _build_transformers,
}

MODELS: Mapping[str, TorchModel] = {
    "resnet50": TorchModel("torchvision", "resnet50", "resnext"),
    "mobilenet_v3": TorchModel("torchvision", "mobilenet_v3_large", "mobilenet_v3"),
    "efficientnet_b0": TorchModel("torchvision", "efficientnet_b0", "efficientnet"),
    "densenet121": TorchModel("torchvision", "densenet121", "densenet"),
    "vit_b_16": TorchModel("torchvision", "vit_b_16", "vit"),
    "convnext_tiny": TorchModel("timm", "convnext_tiny", "convnext"),
    "regnety_016": TorchModel("timm", "regnety_016", "regnet"),
    "swin_tiny": TorchModel("timm", "swin_tiny_patch4_window7_224", "swin"),
    "bert": TorchModel("transformers", "Bert", "bert", tokens, {"num_hidden_layers": 6}),
    "gpt2": TorchModel("transformers", "GPT2", "gpt2", tokens, {"n_layer": 6, "use_cache": False}),
    "t5_encoder": TorchModel("transformers", "T5Encoder", "t5", tokens),
    "wav2vec2": TorchModel("transformers", "Wav2Vec2", "wav2vec2", sound, {"num_hidden_layers": 6}),
}
"""The models, chosen before anything was measured."""


def flatten(results: Any) -> list[Any]:
    """Return the tensors among the results of a model."""
    import torch

    return [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def greatest_difference(results: Any, expected: Any) -> float:
    """Return the greatest difference of floats from the expected ones, as a part of the greatest of their tensor."""
    pairs = zip(flatten(results), flatten(expected), strict=True)
    floats = [(one, other) for one, other in pairs if other.is_floating_point()]
    return max(float((one - other).abs().max() / other.abs().max().clamp(min=1e-30)) for one, other in floats)


def compile_by(name: str, module: Any) -> Callable[..., Any]:
    """Return a model as one of the three runs it."""
    import torch

    backends: Any = {INLAY: inlay.torch_backend, INDUCTOR: INDUCTOR}
    fast: Callable[..., Any] = module if name == EAGER else torch.compile(module, backend=backends[name])
    return fast


def measure(name: str, batch: int, piece: str, rounds: int) -> dict[str, Any]:
    """Return the measurement of one piece; the caller has set the directories of caches."""
    import torch

    module, arguments, origin = MODELS[name].build()
    with torch.inference_mode():
        if piece == MEMORY:
            return _measure_memory(module, arguments) | {"origin": origin}
        example = arguments(batch)
        if piece != "run":
            fast = compile_by(piece.removeprefix("first "), module)
            return {"seconds": time_call(lambda: fast(*example))[0]}
        return _measure_turns(module, example, rounds) | {"origin": origin}


def _measure_turns(module: Any, example: tuple[Any, ...], rounds: int) -> dict[str, Any]:
    """Let the three take turns, after comparing their results with the eager ones."""
    others, expected = OtherLoad(), module(*example)
    calls, errors = {}, {}
    for name in (INLAY, EAGER, INDUCTOR):
        fast = compile_by(name, module)
        errors[name] = greatest_difference(fast(*example), expected)
        calls[name] = lambda fast=fast: fast(*example)
    found = measure_interleaved(calls, rounds, _TURN, first=rounds)
    installed = {dist.name: dist.version for dist in metadata.distributions()}
    return {
        "seconds": found,
        "errors": errors,
        "report": str(inlay.torch_report()),
        "eager_parts": len(inlay.torch_report().refusals),
        "others": others.share(),
        "versions": {library: installed.get(library, "not installed") for library in _LIBRARIES},
    }


def _measure_memory(module: Any, arguments: Callable[[int], tuple[Any, ...]]) -> dict[str, Any]:
    """Return the resident bytes after the first calls of all batch sizes, and after all calls."""
    fast, draw = compile_by(INLAY, module), random.Random(0)
    sizes = list(range(1, SIZES + 1))
    draw.shuffle(sizes)
    order = [*sizes, *(draw.choice(sizes) for _ in range(CALLS - SIZES))]
    examples = {size: arguments(size) for size in sizes}
    settled = 0
    for count, size in enumerate(order, 1):
        fast(*examples[size])
        if count == SETTLED:
            settled = _resident()
    return {"settled": settled, "last": _resident()}


def _resident() -> int:
    """Return the resident bytes of this process; 0 where the system does not say."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


# Results


@dataclass(frozen=True, slots=True)
class TorchResult:
    """The measurement of one model and batch."""

    name: str
    batch: int
    pieces: Mapping[str, Any]  # measurements by piece

    @property
    def label(self) -> str:
        """Name and batch: `resnet50 b8`."""
        return f"{self.name} b{self.batch}"

    def ratio(self, peer: str) -> Spread | None:
        """Return how many times as fast as a peer Inlay is; None if runs were not measured."""
        seconds = self.pieces.get("run", {}).get("seconds")
        return None if seconds is None else paired_ratio(seconds[peer], seconds[INLAY])

    @property
    def first_ratio(self) -> float | None:
        """How many times as long inductor's first call takes as Inlay's; None if they were not measured."""
        ours, theirs = (self.pieces.get(piece) for piece in PIECES[:2])
        return theirs["seconds"] / ours["seconds"] if ours and theirs else None

    @property
    def growth(self) -> float | None:
        """Resident memory after all calls, beside that after the first hundred; None if it was not measured."""
        found = self.pieces.get(MEMORY)
        return found["last"] / found["settled"] if found and found["settled"] else None


def load_torch_result(folder: Path, name: str, batch: int) -> TorchResult:
    """Return the pieces that were measured so far; raise `Unreadable` if the file holds something else."""
    return TorchResult(name, batch, read_pieces(folder / f"{name}-b{batch}.json", (*PIECES, MEMORY), "model"))


def measure_torch_piece(folder: Path, name: str, batch: int, piece: str, rounds: int) -> None:
    """Measure one piece in a process of its own, and store it; raise `CalledProcessError` if the process fails."""
    known, cache = load_torch_result(folder, name, batch), folder / f"{name}-b{batch}.cache"
    ours, theirs = (cache / part for part in ("inlay", "inductor"))
    for path, first in ((ours, PIECES[0]), (theirs, PIECES[1])):
        if piece == first:
            shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, exist_ok=True)
    caches = {"INLAY_CACHE_DIR": str(ours.resolve()), "TORCHINDUCTOR_CACHE_DIR": str(theirs.resolve())}
    with TemporaryDirectory() as temporary:
        file = Path(temporary) / "found.json"
        command = [sys.executable, "-m", "benchmarks.torch_models", name, str(batch), piece, str(file), str(rounds)]
        subprocess.run(command, check=True, env={**os.environ, **caches})
        found = json.loads(file.read_text())
    with atomic_write(folder / f"{name}-b{batch}.json") as stream:
        stream.write(json.dumps({**known.pieces, piece: found}, indent=1).encode())


def torch_table(results: Sequence[TorchResult]) -> Table:
    """Return a line for each model and batch: milliseconds, and how many times as fast as the others Inlay is."""
    lines = []
    for result in results:
        run = result.pieces["run"]
        ms = ratio_text(spread(run["seconds"][INLAY]).times(1e3))
        ratios = ("-" if (ratio := result.ratio(peer)) is None else ratio_text(ratio) for peer in AIMS)
        firsts = (f"{result.pieces[piece]['seconds']:.1f}" for piece in PIECES[:2])
        growth = "-" if result.growth is None else f"{result.growth:.3f}"
        error, others = f"{run['errors'][INLAY]:.0e}", f"{100 * run['others']:.0f}"
        lines.append((result.label, ms, *ratios, *firsts, error, str(run["eager_parts"]), growth, others))
    headings = ("Inlay ms", *(f"x {peer}" for peer in AIMS), "first s", "inductor's", "error", "eager", "memory x")
    title = "torch.compile(backend='inlay'), f32: how many times as fast as others Inlay is"
    return table(("model", *headings, "others %"), lines, title)


def torch_aims(results: Sequence[TorchResult]) -> list[Aim]:
    """Return the aims over all models: means, agreement, first calls, memory."""
    found = []
    for batch in (*dict.fromkeys(result.batch for result in results), None):
        group = [result for result in results if batch in (None, result.batch)]
        where = "all" if batch is None else f"batch {batch}"
        for peer, aim in AIMS.items():
            if ratios := [ratio.median for result in group if (ratio := result.ratio(peer)) is not None]:
                mean = geometric_mean(ratios)
                found.append(Aim(f"{where}: mean beside {peer}", f"{mean:.3f}", f"{aim}", mean >= aim))
    if errors := [(result.pieces["run"]["errors"][INLAY], result.label) for result in results]:
        worst, label = max(errors)
        found.append(Aim(f"greatest error: {label}", f"{worst:.0e}", f"<= {CLOSE:.0e}", worst <= CLOSE))
    if firsts := [(first, result.label) for result in results if (first := result.first_ratio) is not None]:
        least, label = min(firsts)
        found.append(Aim(f"least x of inductor's first call: {label}", f"{least:.2f}", "> 1", least > 1))
    if growths := [(growth, result.label) for result in results if (growth := result.growth) is not None]:
        most, label = max(growths)
        found.append(Aim(f"memory after {CALLS} calls: {label}", f"{most:.3f}", f"<= {GROWTH}", most <= GROWTH))
    return found


def absent_packages(results: Sequence[TorchResult]) -> list[str]:
    """Return a line for each model whose package is not installed, and for each that others disturbed."""
    lines = []
    for result in results:
        origin, others = result.pieces["run"]["origin"], result.pieces["run"]["others"] or 0.0
        if origin.startswith("zoo"):
            lines.append(f"{result.label}: {origin}, which is not installed")
        if others > 0.1:
            lines.append(f"{result.label}: others took {100 * others:.0f} %: not to be quoted")
    return lines


if __name__ == "__main__":
    _name, _batch, _piece, _file, _rounds = sys.argv[1:]
    Path(_file).write_text(json.dumps(measure(_name, int(_batch), _piece, int(_rounds))))
