"""The speed of unpacking compound blocks: 64 MiB of results, beside copies, the `gguf` package and torch.

The aim is a share of the speed of a copy that reads and writes as many bytes together. For 4-bit quants seven eighths
of these bytes are written, where a copy writes half of them; so a copy of the result is printed beside it.
Torch computes the usual chain: views, shifts, masks, a product; for scales, a permutation of a view.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
from rich.table import Table

from benchmarks.buffers import Bytes, ThreadedMemcpy, huge_buffer
from benchmarks.record import this_machine
from inlay import CompoundDesc, CompoundMemory, compound
from inlay.bench.measurement import table
from inlay.descriptor import MemoryDesc
from inlay.measure.interleaved import Call, Turn, measure_interleaved
from inlay.memory import Memory, Reorder

RESULT = 64 << 20
LEAST_SHARE, LEAST_RATIO = 0.6, 5.0  # of the speed of a copy of the bytes moved, and of that of the fastest peer
GGML = ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "MXFP4", "Q4_K", "Q6_K")
AIMED = ("ggml:Q4_0", "128x4 scales")


@dataclass(frozen=True, slots=True)
class Unpacking:
    """The median seconds of unpacking one format."""

    name: str
    seconds: float
    moved_copy: float  # a copy that reads and writes as many bytes together
    result_copy: float  # a copy of the result
    peers: Mapping[str, float]

    @property
    def share(self) -> float:
        """Speed as a share of that of a copy of the bytes moved."""
        return self.moved_copy / self.seconds

    @property
    def ratio(self) -> float:
        """Times that the fastest peer takes of the time; infinite without peers."""
        return min(self.peers.values(), default=float("inf")) / self.seconds


def is_met(result: Unpacking) -> bool:
    """Return whether a result meets its aims; a format without aims does."""
    return result.name not in AIMED or (result.share >= LEAST_SHARE and result.ratio >= LEAST_RATIO)


def measure_compound(rounds: int, nbytes: int = RESULT) -> list[Unpacking]:
    """Measure formats with results of about `nbytes` bytes, each beside its copies and peers in one set of rounds."""
    cases = [*(_ggml_case(name, nbytes) for name in GGML), _scales_case(nbytes)]
    return [_measure(*case, rounds) for case in cases]


def _measure(name: str, moved: int, result: int, calls: Mapping[str, Call], rounds: int) -> Unpacking:
    timed = {**calls, **_copies("moved", moved // 2), **_copies("result", result)}
    times = measure_interleaved(timed, rounds, Turn(block=20e-3), patience=0.2)
    medians = {call: median(seconds) for call, seconds in times.items()}
    copies = [min(medians[f"{what} {how}"] for how in ("Inlay", "memcpy")) for what in ("moved", "result")]
    peers = {peer: medians[peer] for peer in calls if peer != "Inlay"}
    return Unpacking(name, medians["Inlay"], copies[0], copies[1], peers)


def _copies(name: str, nbytes: int) -> dict[str, Call]:
    """Return copies of `nbytes` bytes by the reorder compiler and by `memcpy` on all processors."""
    src, dst = _random_bytes(nbytes), huge_buffer(nbytes)
    desc, memcpy = MemoryDesc((nbytes,), "u8", "a"), ThreadedMemcpy(this_machine().processors)
    copy, sides = Reorder(desc, desc), (Memory(desc, src), Memory(desc, dst))
    return {f"{name} Inlay": lambda: copy(*sides), f"{name} memcpy": lambda: memcpy.copy(src, dst)}


def _random_bytes(nbytes: int) -> Bytes:
    buffer = huge_buffer(nbytes)
    period = np.random.default_rng(0).integers(0, 124, 1_000_003, np.uint8)  # as f16: no infinity, no NaN
    for begin in range(0, nbytes, period.size):
        part = buffer[begin : begin + period.size]
        part[:] = period[: part.size]
    return buffer


def _ggml_case(kind: str, nbytes: int) -> tuple[str, int, int, dict[str, Call]]:
    """Return name, moved bytes, bytes of the result, and calls that unpack a format of ggml."""
    fmt = compound(f"ggml:{kind}")
    desc = CompoundDesc(fmt, (nbytes // 16384, 4096))
    memory = CompoundMemory(desc, _random_bytes(desc.size))
    out = huge_buffer(4 * desc.dims[0] * 4096).view(np.float32).reshape(desc.dims)
    calls: dict[str, Call] = {"Inlay": lambda: memory.unpack(out), **dict(_peers(kind, memory))}
    for peer, call in calls.items():
        values = np.asarray(call()).reshape(desc.dims)
        assert np.array_equal(values, memory.unpack(), equal_nan=True), f"{peer} unpacks {fmt.name} otherwise"
    return fmt.name, desc.size + out.nbytes, out.nbytes, calls


def _peers(kind: str, memory: CompoundMemory) -> Iterator[tuple[str, Call]]:
    """Iterate over the peers that are installed."""
    desc = memory.desc
    with suppress(ImportError):
        import gguf

        rows = memory.buffer[: desc.size].reshape(desc.dims[0], -1)
        yield "gguf", lambda: gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])
    with suppress(ImportError):
        if kind == "Q4_0":
            yield "torch", _torch_q4_0(memory.buffer[: desc.size].reshape(-1, 18))


def _torch_q4_0(blocks: npt.NDArray[np.uint8]) -> Callable[[], object]:
    """Return the chain of torch operations by which programs unpack Q4_0."""
    import torch

    data, shifts = torch.from_numpy(blocks), torch.tensor([0, 4], dtype=torch.uint8).reshape(1, 1, 2, 1)

    def unpack() -> object:
        scale = data[:, :2].contiguous().view(torch.float16).to(torch.float32)
        quants = data[:, 2:].reshape(-1, 1, 1, 16) >> shifts
        return scale * ((quants & 15).reshape(-1, 32).to(torch.int8) - 8)

    return unpack


def _scales_case(nbytes: int) -> tuple[str, int, int, dict[str, Call]]:
    """Return the case of NVFP4's scales, from tiles of 128 x 4 to rows."""
    rows, columns = nbytes // 1024, 1024
    scales = _random_bytes(rows * columns)
    fmt = compound("nvidia:NVFP4_128x4")
    desc = CompoundDesc(fmt, (rows, 16 * columns))
    start = desc.grids[1].offset
    buffer = huge_buffer(desc.size)
    buffer[start:] = scales
    memory = CompoundMemory(desc, buffer)
    out = huge_buffer(rows * columns).view(fmt.stream("scales").dtype).reshape(rows, columns)
    calls: dict[str, Call] = {"Inlay": lambda: memory.stream("scales", out)}
    with suppress(ImportError):
        import torch

        tiles = torch.from_numpy(buffer[start:]).view(rows // 128, columns // 4, 32, 4, 4)
        calls["torch"] = lambda: tiles.permute(0, 3, 2, 1, 4).reshape(rows, columns)
        memory.stream("scales", out)
        assert np.array_equal(np.asarray(calls["torch"]()), out.view(np.uint8))
    return "128x4 scales", 2 * out.nbytes, out.nbytes, calls


def compound_table(results: list[Unpacking]) -> Table:
    """Return the measured formats as a table."""
    lines = []
    for result in results:
        peers = ", ".join(f"{name} {1e3 * s:.1f} ms ({s / result.seconds:.0f}x)" for name, s in result.peers.items())
        aim = "" if result.name not in AIMED else "yes" if is_met(result) else "NO"
        shares = f"{100 * result.share:.0f} %", f"{100 * result.result_copy / result.seconds:.0f} %"
        lines.append((result.name, f"{1e3 * result.seconds:.2f} ms", *shares, peers, aim))
    heads = ("format", "time", "of a copy of the bytes moved", "of a copy of the result", "peers", "aim met")
    return table(heads, lines, "Compound blocks, 64 MiB of results")
