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
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from statistics import median
from textwrap import indent

import numpy as np
import numpy.typing as npt
from demo_network import show_resnet50
from rich.console import Console

import inlay
from inlay.bench.measurement import Measurement
from inlay.bench.reorders import comparison_text, copies_of
from inlay.cli import main as inlay_command
from inlay.measure.interleaved import measure_interleaved, time_call

ROOT = Path(__file__).resolve().parent.parent
PHOTOGRAPH = ROOT / "examples" / "data" / "astronaut.png"
OUTPUT = ROOT / "build" / "demo"
BATCH = 8
ROUNDS = 7
BLOCKED = "OIhw16i16o"

Weights = dict[str, npt.NDArray[np.float32]]


def measure(jobs: Mapping[str, Callable[[], object]], nbytes: int) -> Measurement:
    """Time jobs that read and write `nbytes` each, in turns with streaming copies of as many bytes."""
    copies = copies_of(nbytes)
    times = measure_interleaved({**jobs, **copies}, ROUNDS)
    return Measurement(times, {name: times.pop(name) for name in copies})


def file_copy_time(source: str) -> float:
    """Seconds to copy the file `source` and flush the copy to the disk."""

    def copy_file() -> None:
        shutil.copyfile(source, "copy")
        with Path("copy").open("r+b") as file:
            os.fsync(file.fileno())

    seconds = median(time_call(copy_file)[0] for _ in range(3))
    Path("copy").unlink()
    return seconds


def print_times(console: Console, measured: Measurement, nbytes: int, copy: str = "streaming copy") -> None:
    """Print the time of every job and what percent of a copy's speed it reached."""
    console.print(indent(comparison_text(measured, nbytes, copy), "  "), markup=False, soft_wrap=True)
    console.print(f"  {nbytes / 1e6:.0f} MB read and written; {copy}: of as many bytes\n", style="dim")


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
    jobs = {
        "u8 nhwc -> f32 nChw16c": lambda: there(photo, packed),
        "f32 nChw16c -> u8 nhwc": lambda: back(packed, restored),
    }
    measured = measure(jobs, nbytes)
    expected = np.zeros((n, 1, h, w, 16), np.float32)
    expected[:, 0, :, :, :c] = batch
    same = packed.buffer[: blocked.size].tobytes() == expected.tobytes()
    check(console, f"packed {batch.shape} and NumPy's pad and transpose, padding included", same)
    check(console, "unpacked and the photographs, bit for bit", np.array_equal(returned, batch))
    print_times(console, measured, nbytes)


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
        converted = convert_files(console, weights, blocked)
    print_times(console, *repacked)
    print_times(console, *converted, "file copy, flushed to disk")


def convert_files(console: Console, weights: Weights, blocked: list[str]) -> tuple[Measurement, int]:
    """Write, convert, compare, convert back, compare."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    plain, packed, back = "resnet50.safetensors", "packed.safetensors", "back.safetensors"
    save_file(weights, plain)
    rules = ("--to", f"gpu_0/conv1_w_0={BLOCKED}", "--to", f"gpu_0/res*_w_0={BLOCKED}")
    there = run_command(console, "convert", plain, "-o", packed, *rules, "--overwrite")
    again = run_command(console, "convert", packed, "-o", back, "--to", "plain", "--overwrite")
    with safe_open(packed, framework="numpy") as file:
        right = all(file.get_tensor(name).tobytes() == blocked_by_numpy(weights[name]) for name in blocked)
    check(console, f"{len(blocked)} packed weights and NumPy's pad, reshape and transpose, bit for bit", right)
    with safe_open(back, framework="numpy") as file:
        same = set(file.keys()) == weights.keys()
        same = same and all(file.get_tensor(name).tobytes() == w.tobytes() for name, w in weights.items())
    check(console, f"unpacked and the {len(weights)} original tensors, bit for bit", same)
    nbytes = Path(plain).stat().st_size + Path(packed).stat().st_size
    seconds = {"file -> packed file": [there], "packed file -> file": [again]}
    return Measurement(seconds, {"file copy": [file_copy_time(packed)]}), nbytes


def repack_in_memory(weights: list[npt.NDArray[np.float32]]) -> tuple[Measurement, int]:
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

    return measure({f"oihw -> {BLOCKED}": repack}, nbytes), nbytes


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
