"""Zarr arrays with other chunks and another order of axes, under a memory limit: Inlay beside Dask.

A square f32 array in chunks of rows becomes one in chunks of columns, each stored column by column. So each chunk of
the target has elements of every chunk of the source. Both contestants run in a fresh process, read the same array,
write an equal one, and wait until it is on disk (`fsync` of each file). Dask runs in a cluster of one worker with two
threads, once with a memory limit, the limit of boxes and `OVERHEAD_NBYTES` for the interpreter and its packages, and
once without. A worker that has too little memory may pause for ever, so each program has a time limit.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

from rich.table import Table

from inlay.measure.interleaved import time_call
from inlay.measure.statistics import Spread, spread

CHUNK_NBYTES = 8 << 20
"""Size of a chunk, in bytes."""
OVERHEAD_NBYTES = 350 << 20
"""Memory of a process of Dask beside the limit of boxes, in bytes."""
AIM = 1.5
"""How many times as fast as Dask Inlay is to be."""
_TIMEOUT = 600
_PROGRAMS = ("inlay", "dask", "dask-unlimited")


@dataclass(frozen=True, slots=True)
class RechunkResult:
    """The times of all contestants for one kind of array."""

    compression: str
    """`none` or `zstd`."""
    nbytes: int
    """Size of the elements, in bytes."""
    seconds: dict[str, Spread]
    """Time of each contestant that finished, in seconds."""
    resident: dict[str, int]
    """Greatest resident memory of the process of each contestant that converts, in bytes."""
    failures: dict[str, str]
    """Error of each contestant that failed."""

    def ratio(self, program: str) -> float | None:
        """Return the time of a contestant divided by that of Inlay; None if one failed."""
        if program not in self.seconds or "inlay" not in self.seconds:
            return None
        return self.seconds[program].median / self.seconds["inlay"].median

    @property
    def is_met(self) -> bool:
        """True if Inlay finished, and Dask fails under the limit or is slower by the factor that is the aim."""
        ratio = self.ratio("dask")
        return "inlay" in self.seconds and (ratio is None or ratio >= AIM)


def measure_rechunk(folder: Path, gigabytes: float, memory: int, rounds: int) -> list[RechunkResult]:
    """Return the results for arrays without and with compression; the arrays are made in `folder`, and removed."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_measure(folder, compression, int(gigabytes * 1e9), memory, rounds) for compression in ("none", "zstd")]


def _measure(folder: Path, compression: str, nbytes: int, memory: int, rounds: int) -> RechunkResult:
    """Return the result for one kind of array."""
    source, target = folder / "source.zarr", folder / "target.zarr"
    n = _call("make", str(source), compression, str(nbytes))["n"]
    times: dict[str, list[float]] = {}
    resident, failures = dict[str, int](), dict[str, str]()
    try:
        for number in range(rounds):
            for program in _PROGRAMS if number % 2 == 0 else reversed(_PROGRAMS):
                shutil.rmtree(target, ignore_errors=True)
                try:
                    found = _call(program, str(source), str(target), compression, str(memory))
                    _call("check", str(source), str(target))
                except subprocess.CalledProcessError as error:
                    failures[program] = _reason(error.stderr)
                    continue
                except subprocess.TimeoutExpired:
                    failures[program] = f"no result after {_TIMEOUT} s"
                    continue
                times.setdefault(program, []).append(found["seconds"])
                resident[program] = max(resident.get(program, 0), found["resident"])
    finally:
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
    return RechunkResult(compression, 4 * n * n, {p: spread(t) for p, t in times.items()}, resident, failures)


def _reason(text: str) -> str:
    """Return the last line of the errors of a program, in short."""
    last = (text.strip().splitlines() or ["no message"])[-1]
    return "killed by its memory limit" if "KilledWorker" in last else last[:60]


def _call(*arguments: str) -> dict[str, Any]:
    """Run this module as a program in a fresh process, and return what it printed last."""
    command = [sys.executable, "-m", "benchmarks.rechunk", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT)
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def rechunk_table(results: list[RechunkResult]) -> Table:
    """Return the results as a table."""
    table = Table(
        "array", "program", "seconds", "MB/s", "peak memory, MB", "time / Inlay's", title="Zarr: rows to columns"
    )
    for result in results:
        for program in _PROGRAMS:
            label = f"{result.nbytes / 1e9:.2f} GB, {result.compression}"
            if program not in result.seconds:
                table.add_row(label, program, result.failures.get(program, "not measured"), "", "", "")
                continue
            time = result.seconds[program]
            ratio, span = result.ratio(program), f"{time.median:.2f} ({time.low:.2f}-{time.high:.2f})"
            rate, peak = result.nbytes / 1e6 / time.median, result.resident[program] / 1e6
            table.add_row(label, program, span, f"{rate:.0f}", f"{peak:.0f}", "" if ratio is None else f"{ratio:.2f}")
    return table


# The programs


def make(path: str, compression: str, nbytes: str) -> dict[str, Any]:
    """Make the source: numbers with few significant bits, which compress a little."""
    import numpy as np
    import zarr

    n = isqrt(int(nbytes) // 4)
    rows = max(1, CHUNK_NBYTES // (4 * n))
    shutil.rmtree(path, ignore_errors=True)
    compressors: Any = None if compression == "none" else "auto"
    array = zarr.create_array(path, shape=(n, n), chunks=(rows, n), dtype="float32", compressors=compressors)
    generator = np.random.default_rng(1)
    for begin in range(0, n, rows):
        block = generator.standard_normal((min(rows, n - begin), n), np.float32)
        array[begin : begin + rows] = (block.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    os.sync()
    return {"n": n}


def convert_by_inlay(source: str, target: str, compression: str, memory: str) -> dict[str, Any]:
    """Convert by Inlay; compression is that of the source."""
    import zarr

    from inlay.storage import convert, plan

    chunks = zarr.open_array(source).chunks

    def work() -> None:
        planned = plan(source, target, ["ba"], chunks=(-1, chunks[0]), memory=int(memory))
        convert(planned)
        _sync(Path(target))

    seconds, _ = time_call(work)
    return {"seconds": seconds, "resident": _peak()}


def convert_by_dask(source: str, target: str, compression: str, memory: str = "0") -> dict[str, Any]:
    """Convert by Dask, in a cluster of one worker; without a limit if `memory` is 0."""
    import dask.array
    import zarr
    from distributed import Client, LocalCluster

    x = zarr.open_array(source)
    limit = int(memory) + OVERHEAD_NBYTES if int(memory) else 0
    compressors: Any = None if compression == "none" else "auto"
    made = zarr.create_array(
        target,
        shape=x.shape,
        chunks=(x.shape[0], x.chunks[0]),
        dtype=x.dtype,
        compressors=compressors,
        filters=[zarr.codecs.TransposeCodec(order=(1, 0))],
    )

    def work() -> None:
        dask.array.from_zarr(source).rechunk(made.chunks).store(made, lock=False)
        _sync(Path(target))

    options: dict[str, Any] = {"threads_per_worker": 2, "memory_limit": limit, "dashboard_address": None}
    with LocalCluster(n_workers=1, **options) as cluster, Client(cluster) as client:
        seconds, _ = time_call(work)
        resident = max(client.run(_peak).values())
    return {"seconds": seconds, "resident": resident}


def check(source: str, target: str) -> dict[str, Any]:
    """Compare the arrays block by block."""
    import numpy as np
    import zarr

    a, b = zarr.open_array(source, mode="r"), zarr.open_array(target, mode="r")
    for begin in range(0, a.shape[0], a.chunks[0] * 64):
        for column in range(0, a.shape[1], b.chunks[1] * 64):
            part = (slice(begin, begin + a.chunks[0] * 8), slice(column, column + b.chunks[1]))
            if not np.array_equal(a[part], b[part]):
                raise ValueError(f"{target} differs from {source} in {part}")
    return {}


def _sync(folder: Path) -> None:
    """Wait until all files in a folder are on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _peak() -> int:
    """Return the greatest resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    programs: dict[str, Any] = {
        "make": make,
        "inlay": convert_by_inlay,
        "dask": convert_by_dask,
        "dask-unlimited": lambda source, target, compression, memory: convert_by_dask(source, target, compression),
        "check": check,
    }
    print(json.dumps(programs[sys.argv[1]](*sys.argv[2:])))
