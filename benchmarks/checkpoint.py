"""Conversion of a checkpoint: bfloat16 weights to VNNI blocks and back, beside `cp` and a loop of PyTorch.

The checkpoint is made once, in the folder that is named. Each contestant is a process of its own. Its time is that from
start to end, and includes the wait until all files are on disk (`fdatasync`), for `cp` too. Sources are in the page
cache, or are dropped from it before each run (`--cold`). Contestants run in turns, and the median counts.

Peak memory is `VmHWM` of each process of a contestant, read from /proc while it runs.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import ml_dtypes
import numpy as np
from rich.table import Table
from safetensors.numpy import save_file

from inlay.measure.interleaved import clock

TAG = "AB16b64a2b"
"""Format of the packed weights: pairs of inputs beside each other, for 64 outputs, as AVX-512 and AMX read them."""
MEMORY = "256 MB"
"""Memory of each worker of Inlay."""
PEAK_AIM = 600e6
"""Most bytes that a process of Inlay may take."""
RATE_AIM = 0.80
"""Least rate of Inlay, as a share of that of `cp`."""
_SHAPES = ((4096, 4096), (11008, 4096), (4096, 11008), (4096,), (1024, 4096))

_INLAY = """
import sys
from inlay.storage import convert, plan
if __name__ == "__main__":
    source, target, tag, memory, workers, dask = sys.argv[1:]
    made = plan(source, target, [f"*.weight={tag}"] if tag != "plain" else ["*=plain"], memory=memory)
    convert(made, workers=int(workers), dask=dask or None)
"""

_TORCH = """
import os, sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
source, target = map(Path, sys.argv[1:])
for path in sorted(source.glob("*.safetensors")):
    packed = {}
    for name, tensor in load_file(path).items():
        if name.endswith(".weight"):
            n, k = tensor.shape
            tensor = torch.nn.functional.pad(tensor, (0, -k % 32, 0, -n % 64))
            blocks = tensor.reshape(-(-n // 64), 64, -(-k // 32), 16, 2)
            tensor = blocks.permute(0, 2, 3, 1, 4).contiguous()
        packed[name] = tensor
    save_file(packed, target / path.name)
for path in target.iterdir():
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
"""

_COPY = """
import os, sys
from pathlib import Path
import subprocess
source, target = map(Path, sys.argv[1:])
for path in sorted(source.iterdir()):
    subprocess.run(["cp", "--reflink=never", path, target / path.name], check=True)
    with (target / path.name).open("rb") as file:
        os.fdatasync(file.fileno())
"""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to convert or copy the checkpoint."""

    name: str
    """Name in the table."""
    source: str
    """Folder that is read, below that of the benchmark."""
    target: str
    """Folder that is written."""
    command: tuple[str, ...]
    """Code and arguments of the process."""


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """What was measured of a contestant."""

    name: str
    """Name of the contestant."""
    seconds: float
    """Median of the times."""
    nbytes: int
    """Bytes of the checkpoint."""
    peak: int
    """Greatest `VmHWM` of a process, in bytes."""
    processes: int
    """Number of processes."""

    @property
    def rate(self) -> float:
        """Bytes of the checkpoint per second."""
        return self.nbytes / self.seconds


def make_checkpoint(folder: Path, gigabytes: float, shards: int) -> int:
    """Write random bfloat16 weights into `folder/source` unless they are there; return the size in bytes."""
    source, description = folder / "source", folder / "source.json"
    wanted = {"gigabytes": gigabytes, "shards": shards}
    if not description.exists() or json.loads(description.read_text()) != wanted:
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        names = _file_names(shards)
        places = dict[str, str]()
        for number, name in enumerate(names):
            tensors = dict(_random_tensors(number, int(gigabytes * 1e9) // shards))
            save_file(tensors, source / name, {"format": "pt"})
            places |= dict.fromkeys(tensors, name)
        if shards > 1:
            total = sum(path.stat().st_size for path in source.iterdir())
            index = {"metadata": {"total_size": total}, "weight_map": places}
            (source / "model.safetensors.index.json").write_text(json.dumps(index))
        description.write_text(json.dumps(wanted))
    return sum(path.stat().st_size for path in source.iterdir())


def _file_names(shards: int) -> list[str]:
    if shards == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]


def _random_tensors(shard: int, nbytes: int) -> Iterator[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.void]]]]:
    """Yield named tensors of about this size together."""
    rng, number = np.random.default_rng(shard), 0
    while nbytes > 0:
        shape = _SHAPES[number % len(_SHAPES)]
        tensor = rng.integers(0, 1 << 16, shape, np.uint16).view(ml_dtypes.bfloat16)
        kind = "weight" if len(shape) == 2 else "bias"
        yield f"model.{shard}.{number}.{kind}", tensor
        number, nbytes = number + 1, nbytes - tensor.nbytes


def contestants(shards: int) -> list[Contestant]:
    """Return all contestants that can run here, each before those that read what it writes."""
    name = "model.safetensors.index.json" if shards > 1 else "model.safetensors"
    ways = [("serial", "1", ""), ("2 processes", "2", "")]
    if _is_installed("distributed"):
        ways.append(("Dask, 2 workers", "2", "local"))
    chosen = [Contestant("cp", "source", "copy", (_COPY, "{source}", "{target}"))]
    for way, workers, dask in ways:
        packed, back = f"packed-{workers}{dask}", f"back-{workers}{dask}"
        options = (MEMORY, workers, dask)
        files = ("{source}/" + name, "{target}/" + name)
        chosen.append(Contestant(f"pack, {way}", "source", packed, (_INLAY, *files, TAG, *options)))
        chosen.append(Contestant(f"unpack, {way}", packed, back, (_INLAY, *files, "plain", *options)))
    if _is_installed("torch"):
        chosen.append(Contestant("pack, loop of torch", "source", "torch", (_TORCH, "{source}", "{target}")))
    return chosen


def _is_installed(package: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0


def measure_checkpoint(
    folder: Path, gigabytes: float, shards: int, rounds: int, cold: bool
) -> tuple[list[CheckpointFigures], bool]:
    """Measure all contestants, and return their figures and whether the round trips are equal bit for bit."""
    nbytes = make_checkpoint(folder, gigabytes, shards)
    chosen = contestants(shards)
    times: dict[str, list[float]] = {each.name: [] for each in chosen}
    peaks: dict[str, list[list[int]]] = {each.name: [] for each in chosen}
    for _ in range(rounds):
        for each in chosen:
            seconds, memories = _run(folder, each, cold)
            times[each.name].append(seconds)
            peaks[each.name].append(memories)
    backs = [folder / each.target for each in chosen if each.name.startswith("unpack")]
    is_equal = all(has_equal_tensors(folder / "source", back) for back in backs)
    for each in chosen:
        shutil.rmtree(folder / each.target, ignore_errors=True)
    figures = [
        CheckpointFigures(name, median(times[name]), nbytes, max(map(max, memories)), max(map(len, memories)))
        for name, memories in peaks.items()
    ]
    return figures, is_equal


def _run(folder: Path, contestant: Contestant, cold: bool) -> tuple[float, list[int]]:
    """Run a contestant, and return its time in seconds and the peak memory of each of its processes in bytes."""
    source, target = folder / contestant.source, folder / contestant.target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    os.sync()
    if cold:
        _drop_from_cache(source)
    words = [word.format(source=source, target=target) for word in contestant.command[1:]]
    script = folder / "contestant.py"
    script.write_text(contestant.command[0])
    began = clock()
    process = subprocess.Popen([sys.executable, str(script), *words])
    memories = dict[int, int]()
    while process.poll() is None:
        memories |= {pid: nbytes for pid in _tree(process.pid) if (nbytes := _peak(pid))}
        time.sleep(0.02)
    seconds = clock() - began
    if process.returncode:
        raise RuntimeError(f"{contestant.name} ended with exit code {process.returncode}")
    return seconds, list(memories.values())


def _drop_from_cache(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all below it."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):  # of each thread
        with suppress(OSError):
            for child in path.read_text().split():
                yield from _tree(int(child))


def _peak(pid: int) -> int:
    """Return `VmHWM` of a process in bytes, 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(lines[0].split()[1]) if lines else 0


def has_equal_tensors(first: Path, second: Path) -> bool:
    """Return True if the safetensors files of two folders hold the same tensors, bit for bit."""
    tensors, others = _tensors_of(first), _tensors_of(second)
    return tensors.keys() == others.keys() and all(
        tensors[name][:2] == others[name][:2] and np.array_equal(tensors[name][2], others[name][2]) for name in tensors
    )


def _tensors_of(folder: Path) -> Mapping[str, tuple[str, list[int], np.ndarray[tuple[int], np.dtype[np.uint8]]]]:
    """Return type, shape and bytes of each tensor, by the headers alone."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        data = np.memmap(path, np.uint8, "r", offset=8 + length)
        for name, entry in header.items():
            if name != "__metadata__":
                found[name] = (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
    return found


def is_met(figures: Sequence[CheckpointFigures]) -> bool:
    """Return True if each process of Inlay stays below `PEAK_AIM`, and packing has a rate of `RATE_AIM` or more."""
    copy = next(each for each in figures if each.name == "cp")
    packing = [each for each in figures if each.name.startswith(("pack, ", "unpack, ")) and "torch" not in each.name]
    return all(each.peak < PEAK_AIM and each.rate >= RATE_AIM * copy.rate for each in packing)


def checkpoint_table(figures: Sequence[CheckpointFigures]) -> Table:
    """Return the table of all contestants."""
    copy = next(each for each in figures if each.name == "cp")
    table = Table(title=f"Checkpoint of {copy.nbytes / 1e9:.2f} GB in bf16, {TAG} and back")
    for column in ("contestant", "s", "MB/s", "of cp, %", "peak of a process, MB", "processes"):
        table.add_column(column, justify="left" if column == "contestant" else "right")
    for each in figures:
        cells = f"{each.seconds:.2f}", f"{each.rate / 1e6:.0f}", f"{100 * each.rate / copy.rate:.0f}"
        table.add_row(each.name, *cells, f"{each.peak / 1e6:.0f}", str(each.processes))
    return table
