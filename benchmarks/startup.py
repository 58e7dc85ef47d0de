"""The costs before and beside a reorder: importing, compiling, calling.

Each figure is the median of several fresh processes. Importing finds Python's byte code, as after an installation.
Compiling is measured in pairs of processes: the first has an empty cache directory, the second finds its files.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median

from benchmarks.record import Figure
from inlay.measure.statistics import spread

SMALL_RATIO = 1.5  # how many times as long as oneDNN's a call of 64 kB may take
PROCESSES = 5  # fresh processes for each figure
_Answer = dict[str, float]  # seconds that one process of `startup_probe` measured


def measure_startup(processes: int = PROCESSES) -> list[Figure]:
    """Return every figure, from so many fresh processes each."""
    with tempfile.TemporaryDirectory() as code, tempfile.TemporaryDirectory() as folder:
        bytecode, cache = {"PYTHONPYCACHEPREFIX": code, "PYTHONDONTWRITEBYTECODE": ""}, {"INLAY_CACHE_DIR": folder}
        _probe("import", bytecode)
        pairs = [(_probe("import", bytecode), _probe("needs", bytecode)) for _ in range(processes)]
        imports, needs = zip(*pairs, strict=True)
        cold, warm = zip(*(_compile_twice() for _ in range(processes)), strict=True)
        calls, small = ([_probe(what, cache) for _ in range(processes)] for what in ("call", "small"))
        return [
            _figure("import inlay", imports, "import", 0.150),
            _figure("NumPy and ml_dtypes alone", needs, "import"),
            _figure("load the compiler (llvmlite)", cold, "load"),
            *_compile_figures("compile, cache empty", cold, (0.150, 0.060, 0.200)),
            *_compile_figures("compile, kept on disk", warm, (0.010, 0.005, 0.005)),
            _figure("Reorder called again, 4 elements", calls, "Reorder", 5e-6),
            _figure("CompiledReorder.run, 4 elements", calls, "run", 5e-6),
            *_small_figures(small),
        ]


def _figure(name: str, answers: Sequence[_Answer], key: str, aim: float | None = None) -> Figure:
    return Figure(name, spread([answer[key] for answer in answers]), aim)


def _small_figures(answers: Sequence[_Answer]) -> list[Figure]:
    """Return the figures of calls of 64 kB; Inlay's aim is `SMALL_RATIO` times the time of the fastest oneDNN."""
    figures = []
    for name in answers[0]:
        formats, who = name.rsplit(", ", 1)
        rivals = [n for n in answers[0] if n.startswith(f"{formats}, oneDNN")]
        fastest = min((median(answer[rival] for answer in answers) for rival in rivals), default=None)
        aim = SMALL_RATIO * fastest if who == "Inlay" and fastest is not None else None
        label = f"64 kB of f32, {formats}: {'Reorder called' if who == 'Inlay' else who}"
        figures.append(_figure(label, answers, name, aim))
    return figures


def _compile_figures(name: str, answers: Sequence[_Answer], aims: tuple[float, float, float]) -> list[Figure]:
    """Return the first pair with LLVM's start; then the median pair, the pair that 95 % stay below, and the slowest."""
    pairs = [name for name in answers[0] if name not in ("load", "first")]
    slowest = max(pairs, key=lambda pair: median(answer[pair] for answer in answers))
    typical = [median(answer[pair] for pair in pairs) for answer in answers]
    most = [sorted(answer[pair] for pair in pairs)[ceil(0.95 * len(pairs)) - 1] for answer in answers]
    return [
        _figure(f"{name}, LLVM's start included", answers, "first", aims[0]),
        Figure(f"{name}, median of {len(pairs)} pairs", spread(typical), aims[1]),
        Figure(f"{name}, 95 % of {len(pairs)} pairs", spread(most), aims[2]),
        _figure(f"{name}, slowest pair: {slowest}", answers, slowest),
    ]


def _compile_twice() -> tuple[_Answer, _Answer]:
    """Compile in a process with an empty cache directory, and again in one that finds the files of the first."""
    with tempfile.TemporaryDirectory() as folder:
        cold = _probe("compile", {"INLAY_CACHE_DIR": folder})
        if not any(Path(folder).iterdir()):
            raise RuntimeError("the compiler kept nothing in an empty INLAY_CACHE_DIR: nothing can be read from disk")
        return cold, _probe("compile", {"INLAY_CACHE_DIR": folder})


def _probe(what: str, environment: Mapping[str, str]) -> _Answer:
    command = [sys.executable, "-m", "benchmarks.startup_probe", what]
    root, variables = Path(__file__).resolve().parent.parent, os.environ | dict(environment)
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    answer: _Answer = json.loads(done.stdout)
    return answer
