"""What was measured of networks: a folder with a JSON file for each, and what is aimed at.

    squeezenet-b1.json     {"cold": {...}, "warm": {...}, "run": {...}}

What is there is not measured again. The cache of costs lies in the folder too: the cold plan fills an empty one.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.misses import Reason, Unreadable
from benchmarks.timing import mean_ratio
from inlay.files import atomic_write
from inlay.measure.statistics import Spread, spread

NETWORKS = ("squeezenet", "shufflenet", "inception_v1", "densenet121", "resnet50", "vgg19", "bert")
"""Those that the aims are about."""
AIMS = {"ONNX Runtime": 1.25, "OpenVINO": 1.07}
"""How many times as fast Inlay is to be, in geometric mean."""
LEAST = 0.98
"""No network is to be below, with either."""
PREDICTED = 0.15
"""How far the measured run may be from the predicted, as a part of it."""
COLD, WARM, ARENA = 15.0, 1.0, 6e6
"""Seconds to plan and compile ResNet-50 at batch 1, and bytes of its arena."""
REASONS = Path(__file__).with_name("network_misses.toml")
"""The reasons that the project knows."""
PIECES = ("cold", "warm", "run")
"""What is measured of each, in this order."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one network."""

    name: str
    """The network."""
    batch: int
    """Its batch."""
    found: Mapping[str, Any]
    """By piece."""

    @property
    def label(self) -> str:
        """How it is called: `resnet50 b8`."""
        return f"{self.name} b{self.batch}"

    @property
    def is_complete(self) -> bool:
        """Whether every piece was measured."""
        return all(piece in self.found for piece in PIECES)

    @property
    def ms(self) -> Spread:
        """Milliseconds of a run by Inlay."""
        return spread([1e3 * seconds for seconds in self.found["run"]["measured"]["Inlay"]["seconds"]])

    @property
    def predicted(self) -> float:
        """Milliseconds that were predicted, of a machine as fast as it can be."""
        return float(self.found["run"]["predicted_ms"])

    @property
    def error(self) -> float:
        """How much longer a run took than predicted of a machine as slow as it was then, as a part of it."""
        return float(self.found["run"]["times_predicted"]) - 1

    @property
    def arena(self) -> int:
        """Bytes for tensors."""
        return int(self.found["run"]["arena_bytes"])

    def seconds(self, piece: str) -> float:
        """Seconds to plan and compile, `cold` or `warm`."""
        return float(self.found[piece]["planning"]) + float(self.found[piece]["compiling"])

    def ratio(self, peer: str) -> Spread | None:
        """How many times as fast as `peer` Inlay is; None where it did not take part."""
        line = self.found["run"]["measured"].get(peer)
        return None if line is None else Spread(**line["inlay_is_times_as_fast"])


@dataclass(frozen=True, slots=True)
class Folder:
    """Where results are kept."""

    path: Path
    """The folder."""

    def result(self, name: str, batch: int) -> Result:
        """What was measured so far.

        Raises:
            Unreadable: the file holds something else.
        """
        file = self._file(name, batch)
        if not file.exists():
            return Result(name, batch, {})
        try:
            found = json.loads(file.read_text())
        except ValueError as error:
            raise Unreadable(f"{file} holds no result: {error}; remove it, and measure again") from error
        if not isinstance(found, dict) or not found.keys() <= set(PIECES):
            raise Unreadable(f"{file} holds no result of a network; remove it, and measure again")
        return Result(name, batch, found)

    def measure(self, name: str, batch: int, piece: str, rounds: int) -> None:
        """Measure one piece in a process of its own, and keep it.

        Raises:
            subprocess.CalledProcessError: the process failed; its message is on the error stream.
        """
        known = self.result(name, batch)
        cache = self.path / f"{name}-b{batch}.cache"
        if piece == "cold":
            shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        found = _in_process(name, batch, "run" if piece == "run" else "plan", rounds, cache)
        with atomic_write(self._file(name, batch)) as file:
            file.write(json.dumps({**known.found, piece: found}, indent=1).encode())

    def _file(self, name: str, batch: int) -> Path:
        return self.path / f"{name}-b{batch}.json"


def _in_process(name: str, batch: int, what: str, rounds: int, cache: Path) -> Any:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        words = [name, str(batch), what, str(file), str(rounds)]
        environment = {**os.environ, "INLAY_CACHE_DIR": str(cache.resolve())}
        subprocess.run([sys.executable, "-m", "benchmarks.network_piece", *words], check=True, env=environment)
        return json.loads(file.read_text())


@dataclass(frozen=True, slots=True)
class Slow:
    """A network with which Inlay does not reach what it is to reach in the mean."""

    result: Result
    """The network."""
    peer: str
    """Beside whom."""
    ratio: Spread
    """How many times as fast Inlay is."""
    reason: Reason | None
    """Why; None where nobody has written it down."""

    @property
    def is_missed(self) -> bool:
        """Whether it is below what every network is to reach."""
        return self.ratio.median < LEAST


def known_reasons(path: Path = REASONS) -> list[Reason]:
    """The reasons in a file: entries with `case`, a label such as `resnet50 b1` or a pattern of labels, and so on.

    Raises:
        Unreadable: it is no TOML, or an entry lacks a field, has another one, or text is missing.
    """
    try:
        entries = tomllib.loads(path.read_text()).get("miss", [])
        reasons = [Reason(**{"misses": "", **entry}) for entry in entries]
    except (OSError, AttributeError, TypeError, ValueError) as error:
        raise Unreadable(f"{path.name} holds no list of reasons: {error!r}") from error
    for reason in reasons:
        if not reason.case or not reason.reason:
            raise Unreadable(f"{path.name} has an entry without a case or without a reason: {reason}")
        if reason.misses not in ("", *AIMS):
            raise Unreadable(f"{path.name}: {reason.misses!r} is nobody to be compared with, {' and '.join(AIMS)} are")
    return reasons


def slow(results: Iterable[Result], reasons: Sequence[Reason]) -> Iterator[Slow]:
    """Every network and peer below the aim of the mean, each with the first reason that fits."""
    for result in results:
        for peer, aim in AIMS.items():
            ratio = result.ratio(peer)
            if ratio is not None and ratio.median < aim:
                fits = (reason for reason in reasons if reason.fits(result.label, peer))
                yield Slow(result, peer, ratio, next(fits, None))


def mean(results: Iterable[Result], peer: str) -> float | None:
    """The geometric mean of how many times as fast Inlay is; None where nobody was compared."""
    found = [ratio.median for result in results if (ratio := result.ratio(peer)) is not None]
    return mean_ratio(found) if found else None
