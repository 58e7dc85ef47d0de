"""What is paid before and beside the move: importing, compiling, calling.

Each figure is the median of several fresh processes. Importing finds Python's own byte code, as after an installation.
Compiling is measured in pairs of processes: the first has an empty cache directory, the second finds what the first one
left there.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median

from inlay.measure.statistics import Spread, spread

Answer = dict[str, float]
"""What one process of `startup_probe` measured, in seconds."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    name: str
    """What is paid for."""
    seconds: Spread
    """How long it takes."""
    aim: float | None
    """Seconds it should stay below; None where there is no aim."""

    @property
    def is_met(self) -> bool:
        """Whether the figure is below its aim."""
        return self.aim is None or self.seconds.median < self.aim


SMALL_RATIO = 1.5
"""How many times as long as oneDNN's a call of 64 kB may take."""


PROCESSES = 5
"""Fresh processes for each figure."""


def measured_startup(processes: int = PROCESSES) -> list[Figure]:
    """Every figure, from so many fresh processes each."""
    with tempfile.TemporaryDirectory() as code, tempfile.TemporaryDirectory() as folder:
        with_bytecode = {"PYTHONPYCACHEPREFIX": code, "PYTHONDONTWRITEBYTECODE": ""}
        _probe("import", with_bytecode)
        imports, needs = zip(
            *((_probe("import", with_bytecode), _probe("needs", with_bytecode)) for _ in range(processes)), strict=True
        )
        cold, kept = zip(*(_cold_and_kept() for _ in range(processes)), strict=True)
        calls = [_probe("call", {"INLAY_CACHE_DIR": folder}) for _ in range(processes)]
        small = [_probe("small", {"INLAY_CACHE_DIR": folder}) for _ in range(processes)]
    return [
        Figure("import inlay", spread([sum(answer.values()) for answer in imports]), 0.150),
        Figure("NumPy and ml_dtypes alone", spread([sum(answer.values()) for answer in needs]), None),
        Figure("load the compiler (llvmlite)", spread([answer["load"] for answer in cold]), None),
        *_compile_figures("compile, cache empty", cold, (0.150, 0.060, 0.200)),
        *_compile_figures("compile, kept on disk", kept, (0.010, 0.005, 0.005)),
        Figure("Reorder called again, 4 elements", spread([answer["Reorder"] for answer in calls]), 5e-6),
        Figure("CompiledReorder.run, 4 elements", spread([answer["run"] for answer in calls]), 5e-6),
        *_small_figures(small),
    ]


def _small_figures(answers: Sequence[Answer]) -> list[Figure]:
    """Calls of 64 kB: ours may take `SMALL_RATIO` times as long as those of the fastest oneDNN."""
    figures = []
    for name in answers[0]:
        move, who = name.rsplit(", ", 1)
        rivals = [n for n in answers[0] if n.startswith(f"{move}, oneDNN")]
        fastest = min((median(answer[rival] for answer in answers) for rival in rivals), default=None)
        aim = SMALL_RATIO * fastest if who == "Inlay" and fastest is not None else None
        seconds = spread([answer[name] for answer in answers])
        figures.append(Figure(f"64 kB of f32, {move}: {'Reorder called' if who == 'Inlay' else who}", seconds, aim))
    return figures


def _compile_figures(name: str, answers: Sequence[Answer], aims: tuple[float, float, float]) -> list[Figure]:
    """With LLVM's start; without it the typical pair, the one that 95 % stay below, and the slowest.

    `aims` are those of the first three.
    """
    pairs = [name for name in answers[0] if name not in ("load", "first")]
    slowest = max(pairs, key=lambda pair: median(answer[pair] for answer in answers))
    typical = [median(answer[pair] for pair in pairs) for answer in answers]
    most = [sorted(answer[pair] for pair in pairs)[ceil(0.95 * len(pairs)) - 1] for answer in answers]
    return [
        Figure(f"{name}, LLVM's start included", spread([answer["first"] for answer in answers]), aims[0]),
        Figure(f"{name}, median of {len(pairs)} pairs", spread(typical), aims[1]),
        Figure(f"{name}, 95 % of {len(pairs)} pairs", spread(most), aims[2]),
        Figure(f"{name}, slowest pair: {slowest}", spread([answer[slowest] for answer in answers]), None),
    ]


def _cold_and_kept() -> tuple[Answer, Answer]:
    """The answers of a process with an empty cache directory and of one that finds there what the first wrote."""
    with tempfile.TemporaryDirectory() as folder:
        cold = _probe("compile", {"INLAY_CACHE_DIR": folder})
        if not any(Path(folder).iterdir()):
            raise RuntimeError("the compiler kept nothing in an empty INLAY_CACHE_DIR: nothing can be read from disk")
        return cold, _probe("compile", {"INLAY_CACHE_DIR": folder})


def _probe(what: str, environment: Mapping[str, str]) -> Answer:
    command = [sys.executable, "-m", "benchmarks.startup_probe", what]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        command, cwd=root, env=os.environ | dict(environment), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    answer: Answer = json.loads(done.stdout)
    return answer
