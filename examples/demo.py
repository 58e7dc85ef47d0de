"""The main job on real input: one layout drawn, a photograph and the weights of ResNet-50 packed, the network run.

Run it with `make demo`. What is moved is compared bit for bit with plain NumPy, and its time stands beside that of a
copy of the same bytes in the same run; what is computed is compared with other ways to compute it. Nothing is
downloaded: the photograph is in `examples/data`, the network in the `onnx` wheel. That wheel has the shapes of the
weights and no trained values, so the values are made up: distinct numbers in part 3, random ones in part 4.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from demo_network import show_resnet50
from rich.console import Console
from rich.table import Table

import inlay
from inlay.cli import main as inlay_command

ROOT = Path(__file__).resolve().parent.parent
PHOTOGRAPH = ROOT / "examples" / "data" / "astronaut.png"
OUTPUT = ROOT / "build" / "demo"
BATCH = 8
BLOCKED = "OIhw16i16o"

Weights = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One timed job and the copy it is compared with."""

    name: str
    """What was done."""
    nbytes: int
    """Bytes read plus bytes written."""
    seconds: float
    """How long it took."""
    copy_name: str
    """What was copied for comparison."""
    copy_seconds: float
    """How long a copy of as many bytes took."""


def median_time(job: Callable[[], object], repeats: int = 7) -> float:
    """Median seconds of `job`, after one run that compiles it and touches its memory."""
    job()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        job()
        times.append(time.perf_counter() - started)
    return sorted(times)[repeats // 2]


def in_memory(name: str, nbytes: int, job: Callable[[], object]) -> Measurement:
    """Time `job`, which reads and writes `nbytes`, and a streaming copy of as many."""
    return Measurement(name, nbytes, median_time(job), "streaming copy", streaming_copy_time(nbytes))


def streaming_copy_time(nbytes: int) -> float:
    """Seconds to read `nbytes / 2` and write as much: the fastest of Inlay's same-layout reorder and NumPy's copy."""
    n = max(nbytes // 8, 1)
    desc = inlay.MemoryDesc((n,), "f32", "a")
    src, dst = np.ones(n, np.float32), np.zeros(n, np.float32)
    copy = inlay.Reorder(desc, desc)
    src_memory, dst_memory = inlay.Memory(desc, src), inlay.Memory(desc, dst)
    half = n // 2
    with ThreadPoolExecutor(2) as pool:

        def copy_in_two_threads() -> None:
            jobs = [pool.submit(np.copyto, dst[part], src[part]) for part in (slice(half), slice(half, n))]
            for job in jobs:
                job.result()

        candidates = (lambda: copy(src_memory, dst_memory), lambda: np.copyto(dst, src), copy_in_two_threads)
        return min(median_time(candidate) for candidate in candidates)


def file_copy_time(source: str) -> float:
    """Seconds to copy the file `source` and flush the copy to the disk."""

    def copy_file() -> None:
        shutil.copyfile(source, "copy")
        with Path("copy").open("r+b") as file:
            os.fsync(file.fileno())

    seconds = median_time(copy_file, repeats=3)
    Path("copy").unlink()
    return seconds


def print_times(console: Console, measured: Sequence[Measurement]) -> None:
    """The time of every job and what percent of a copy's speed it reached."""
    table = Table(box=None, padding=(0, 2, 0, 2), pad_edge=True)
    table.add_column("")
    for heading in ("bytes", "time", "copy", "of copy speed"):
        table.add_column(heading, justify="right", style="bold" if heading == "of copy speed" else "")
    for m in measured:
        percent = f"{100 * m.copy_seconds / m.seconds:.0f} %"
        times = (f"{m.seconds * 1e3:.1f} ms", f"{m.copy_seconds * 1e3:.1f} ms")
        table.add_row(m.name, f"{m.nbytes / 1e6:.0f} MB", *times, percent)
    console.print(table)
    console.print(f"  bytes: read and written; copy: a {measured[0].copy_name} of as many bytes\n", style="dim")


def check(console: Console, text: str, holds: bool) -> None:
    """Print a claim that was tested, and end the demo when it does not hold."""
    if not holds:
        sys.exit(f"demo: this does not hold: {text}")
    console.print(f"  [green]equal[/]  {text}")


def draw_a_layout(console: Console) -> None:
    """Part 1: what a blocked layout with padding looks like."""
    console.rule("[bold]1  One layout[/]: an RGB image in blocks of 4 channels", align="left")
    desc = inlay.MemoryDesc((1, 3, 2, 3), "f32", "nChw4c")
    print(inlay.show(desc, offsets=True))


def photographs() -> npt.NDArray[np.uint8]:
    """A batch of the photograph, each one shifted and every second mirrored: u8, NHWC."""
    try:
        from PIL import Image
    except ImportError:
        sys.exit("the demo reads a PNG file with Pillow: pip install 'inlay[demo]'")
    with Image.open(PHOTOGRAPH) as image:
        picture = np.asarray(image.convert("RGB"))
    shifted = [np.roll(picture, 37 * i, axis=1)[:, :: 1 - 2 * (i % 2)] for i in range(BATCH)]
    return np.ascontiguousarray(np.stack(shifted))


def pack_photographs(console: Console) -> None:
    """Part 2: u8 NHWC to f32 nChw16c and back."""
    console.rule(f"[bold]2  A batch of {BATCH} photographs[/]: u8 nhwc -> f32 nChw16c -> u8 nhwc", align="left")
    batch = photographs()
    n, h, w, c = batch.shape
    plain = inlay.MemoryDesc((n, c, h, w), "u8", "nhwc")
    blocked = inlay.MemoryDesc((n, c, h, w), "f32", "nChw16c")
    returned = np.zeros_like(batch)
    photo, packed, restored = inlay.Memory(plain, batch), inlay.Memory(blocked), inlay.Memory(plain, returned)
    there, back = inlay.Reorder(plain, blocked), inlay.Reorder(blocked, plain)
    nbytes = plain.size + blocked.size
    measured = [
        in_memory("u8 nhwc -> f32 nChw16c", nbytes, lambda: there(photo, packed)),
        in_memory("f32 nChw16c -> u8 nhwc", nbytes, lambda: back(packed, restored)),
    ]
    expected = np.zeros((n, 1, h, w, 16), np.float32)
    expected[:, 0, :, :, :c] = batch
    same = packed.buffer[: blocked.size].tobytes() == expected.tobytes()
    check(console, f"packed {batch.shape} and NumPy's pad and transpose, padding included", same)
    check(console, "unpacked and the photographs, bit for bit", np.array_equal(returned, batch))
    print_times(console, measured)


def resnet50_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every large tensor of the ResNet-50 in the `onnx` wheel: all are constant fills there."""
    try:
        import onnx
    except ImportError:
        sys.exit("the demo takes the network from the onnx wheel: pip install 'inlay[demo]'")
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_resnet50.onnx"
    graph = onnx.load(path).graph
    values = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    fills = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    return {node.output[0]: tuple(int(n) for n in values[node.input[0]]) for node in fills}


def distinct_values(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float32]:
    """f32 values of `shape`, no two alike: an odd multiplier visits every one of 2**24 integers once."""
    count = int(np.prod(shape))
    whole = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed * 7919)) % np.uint64(1 << 24)
    return (whole.astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)).reshape(shape)


def blocked_by_numpy(weights: npt.NDArray[np.float32]) -> bytes:
    """OIhw16i16o by pad, reshape and transpose alone."""
    o, i, h, w = weights.shape
    padded = np.pad(weights, ((0, -o % 16), (0, -i % 16), (0, 0), (0, 0)))
    parts = padded.reshape(padded.shape[0] // 16, 16, padded.shape[1] // 16, 16, h, w)
    return parts.transpose(0, 2, 4, 5, 3, 1).tobytes()


def run_command(console: Console, *arguments: str) -> float:
    """Run the real command line in this process; seconds."""
    shown = " ".join(f"'{a}'" if "*" in a else a for a in arguments)
    console.print(f"  $ inlay {shown}", highlight=False, soft_wrap=True, style="cyan")
    started = time.perf_counter()
    if inlay_command(arguments) != 0:
        sys.exit("demo: the command above failed")
    return time.perf_counter() - started


def convert_resnet50(console: Console) -> None:
    """Part 3: the weights of ResNet-50, with the command line from file to file."""
    weights = {name: distinct_values(shape, i) for i, (name, shape) in enumerate(resnet50_shapes().items())}
    blocked = [name for name, w in weights.items() if w.ndim == 4]
    console.rule(f"[bold]3  Weights as those of ResNet-50[/]: {len(blocked)} convolutions to {BLOCKED}", align="left")
    console.print("  names and shapes are those of the network, values are made up, no two alike")
    repacked = repack_in_memory([weights[name] for name in blocked])
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with chdir(OUTPUT):
        measured = convert_files(console, weights, blocked)
    print_times(console, [repacked])
    print_times(console, measured)


def convert_files(console: Console, weights: Weights, blocked: list[str]) -> list[Measurement]:
    """Write, convert, compare, convert back, compare."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    plain, packed, back = "resnet50.safetensors", "packed.safetensors", "back.safetensors"
    save_file(weights, plain)
    rules = ("--to", f"gpu_0/conv1_w_0={BLOCKED}", "--to", f"gpu_0/res*_w_0={BLOCKED}")
    there = run_command(console, "convert", plain, "-o", packed, *rules)
    again = run_command(console, "convert", packed, "-o", back, "--to", "plain")
    with safe_open(packed, framework="numpy") as file:
        right = all(file.get_tensor(name).tobytes() == blocked_by_numpy(weights[name]) for name in blocked)
    check(console, f"{len(blocked)} packed weights and NumPy's pad, reshape and transpose, bit for bit", right)
    with safe_open(back, framework="numpy") as file:
        same = set(file.keys()) == weights.keys()
        same = same and all(file.get_tensor(name).tobytes() == w.tobytes() for name, w in weights.items())
    check(console, f"unpacked and the {len(weights)} original tensors, bit for bit", same)
    nbytes = Path(plain).stat().st_size + Path(packed).stat().st_size
    copy = ("file copy, flushed to disk,", file_copy_time(packed))
    return [
        Measurement("file -> packed file", nbytes, there, *copy),
        Measurement("packed file -> file", nbytes, again, *copy),
    ]


def repack_in_memory(weights: list[npt.NDArray[np.float32]]) -> Measurement:
    """All the convolution weights from row-major to blocks, from memory to memory."""
    jobs = []
    nbytes = 0
    for w in weights:
        src, dst = inlay.MemoryDesc(w.shape, "f32", "oihw"), inlay.MemoryDesc(w.shape, "f32", BLOCKED)
        jobs.append((inlay.Reorder(src, dst), inlay.Memory(src, w), inlay.Memory(dst)))
        nbytes += src.size + dst.size

    def repack() -> None:
        for reorder, src_memory, dst_memory in jobs:
            reorder(src_memory, dst_memory)

    return in_memory(f"oihw -> {BLOCKED}", nbytes, repack)


def time_parts(console: Console, parts: Sequence[Callable[[], None]]) -> list[float]:
    """Run the parts of the demo in order, print the seconds of each below it, and return them."""
    seconds = []
    for number, part in enumerate(parts, start=1):
        started = time.perf_counter()
        part()
        seconds.append(time.perf_counter() - started)
        console.print(f"  part {number} took {seconds[-1]:.1f} s\n", style="dim")
    return seconds


def main() -> None:
    """Run the four parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long kernels may be measured, 15 by default")
    seconds = parser.parse_args().seconds
    console = Console(highlight=False)
    times = time_parts(
        console,
        (
            lambda: draw_a_layout(console),
            lambda: pack_photographs(console),
            lambda: convert_resnet50(console),
            lambda: show_resnet50(console, photographs()[0], OUTPUT, seconds),
        ),
    )
    console.print(f"All results are equal. {sum(times):.0f} s; the files are in build/demo.")


if __name__ == "__main__":
    main()
