"""The main job on real input: one layout drawn, a photograph and the weights of ResNet-50 packed and unpacked.

Run it with `make demo`. Every result is compared bit for bit with plain NumPy, and every time stands beside that of a
streaming copy of the same bytes (read and written) in the same run. Nothing is downloaded: the photograph lies in
`examples/data`, the network in the `onnx` wheel.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.table import Table

import inlay
from inlay.cli import main as inlay_command

ROOT = Path(__file__).resolve().parent.parent
PHOTOGRAPH = ROOT / "examples" / "data" / "astronaut.png"
OUTPUT = ROOT / "build" / "demo"
BATCH = 8
BLOCKED = "OIhw16i16o"

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One timed job."""

    name: str
    """What was done."""
    nbytes: int
    """Bytes read plus bytes written."""
    seconds: float
    """How long it took."""


def median_time(job: Callable[[], object], repeats: int = 7) -> float:
    """Median seconds of `job`, after one run that compiles it and touches its memory."""
    job()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        job()
        times.append(time.perf_counter() - started)
    return sorted(times)[repeats // 2]


def streaming_copy_time(nbytes: int) -> float:
    """Seconds to read `nbytes / 2` and write as much: the fastest of Inlay's same-layout reorder and NumPy's copy."""
    n = max(nbytes // 8, 1)
    desc = inlay.MemoryDesc((n,), "f32", "a")
    src, dst = np.ones(n, np.float32), np.zeros(n, np.float32)
    copy = inlay.Reorder(desc, desc)
    src_memory, dst_memory = inlay.Memory(desc, src), inlay.Memory(desc, dst)
    half = n // 2

    def copy_in_two_threads() -> None:
        with ThreadPoolExecutor(2) as pool:
            pool.submit(np.copyto, dst[:half], src[:half])
            pool.submit(np.copyto, dst[half:], src[half:])

    candidates = (lambda: copy(src_memory, dst_memory), lambda: np.copyto(dst, src), copy_in_two_threads)
    return min(median_time(candidate) for candidate in candidates)


def check(console: Console, text: str, holds: bool) -> None:
    """Print a claim that was tested, and end the demo when it does not hold."""
    console.print(f"  [green]yes[/]  {text}" if holds else f"  [bold red]NO[/]   {text}")
    if not holds:
        sys.exit(f"demo: this does not hold: {text}")


def draw_a_layout(console: Console) -> None:
    """Step 1: what a blocked layout with padding looks like."""
    console.rule("[bold]1  A layout: aBcd4b of 1x6x2x3, its 6 channels padded to 8", align="left")
    desc = inlay.MemoryDesc((1, 6, 2, 3), "f32", "nChw4c")
    print(inlay.show(desc, offsets=True))
    console.print(
        f"{desc}: element (0, 5, 1, 2) lies at offset {desc.offset((0, 5, 1, 2))}, {desc.size} bytes in all\n"
    )


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


def pack_photographs(console: Console) -> list[Measurement]:
    """Step 2: u8 NHWC to f32 nChw16c and back."""
    console.rule(f"[bold]2  A batch of {BATCH} photographs: u8 nhwc -> f32 nChw16c -> u8 nhwc", align="left")
    batch = photographs()
    n, h, w, c = batch.shape
    plain = inlay.MemoryDesc((n, c, h, w), "u8", "nhwc")
    blocked = inlay.MemoryDesc((n, c, h, w), "f32", "nChw16c")
    photo, packed = inlay.Memory(plain, batch), inlay.Memory(blocked)
    returned = np.zeros_like(batch)
    there, back = inlay.Reorder(plain, blocked), inlay.Reorder(blocked, plain)
    restored = inlay.Memory(plain, returned)
    nbytes = plain.size + blocked.size
    measured = [
        Measurement("photographs u8 nhwc -> f32 nChw16c", nbytes, median_time(lambda: there(photo, packed))),
        Measurement("photographs f32 nChw16c -> u8 nhwc", nbytes, median_time(lambda: back(packed, restored))),
    ]
    expected = np.zeros((n, 1, h, w, 16), np.float32)
    expected[:, 0, :, :, :c] = batch
    same = as_bytes(packed, blocked.size).tobytes() == expected.tobytes()
    check(console, "packed equals NumPy's pad and transpose, padding included, bit for bit", same)
    check(console, "and back it is the photographs again, bit for bit", np.array_equal(returned, batch))
    console.print()
    return measured


def as_bytes(memory: inlay.Memory, nbytes: int) -> npt.NDArray[np.uint8]:
    """The first `nbytes` bytes of `memory`."""
    return np.asarray(memory.buffer).reshape(-1).view(np.uint8)[:nbytes]


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
    shown = " ".join(f"'{a}'" if "*" in a else a.replace(f"{OUTPUT}/", "") for a in arguments)
    console.print(f"  $ inlay {shown}", highlight=False, soft_wrap=True)
    started = time.perf_counter()
    if inlay_command(arguments) != 0:
        sys.exit("demo: the command above failed")
    return time.perf_counter() - started


def convert_resnet50(console: Console) -> list[Measurement]:
    """Step 3: the weights of ResNet-50, from file to file with the command line."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    OUTPUT.mkdir(parents=True, exist_ok=True)
    plain, packed, back = (str(OUTPUT / f"resnet50{suffix}.safetensors") for suffix in ("", "-packed", "-back"))
    weights = {name: distinct_values(shape, i) for i, (name, shape) in enumerate(resnet50_shapes().items())}
    convolutions = [name for name, w in weights.items() if w.ndim == 4]
    total = sum(w.nbytes for w in weights.values())
    title = f"{len(weights)} tensors, {total / 1e6:.0f} MB, {len(convolutions)} convolutions to {BLOCKED}"
    console.rule(f"[bold]3  The weights of ResNet-50: {title}", align="left")
    save_file(weights, plain)
    rules = [f"gpu_0/conv1_w_0={BLOCKED}", f"gpu_0/res*_w_0={BLOCKED}"]
    there = run_command(console, "convert", plain, "-o", packed, "--to", rules[0], "--to", rules[1])
    again = run_command(console, "convert", packed, "-o", back, "--to", "plain")
    with safe_open(packed, framework="numpy") as file:
        stored = {name: file.get_tensor(name).tobytes() for name in convolutions}
        packed_bytes = sum(len(data) for data in stored.values())
    right = all(stored[name] == blocked_by_numpy(weights[name]) for name in convolutions)
    check(console, f"all {len(convolutions)} packed weights equal NumPy's pad, reshape, transpose, bit for bit", right)
    with safe_open(back, framework="numpy") as file:
        same = sorted(file.keys()) == sorted(weights)
        same = same and all(file.get_tensor(name).tobytes() == w.tobytes() for name, w in weights.items())
    check(console, f"and back, all {len(weights)} tensors are the original again, bit for bit", same)
    console.print()
    written = total - sum(weights[name].nbytes for name in convolutions) + packed_bytes
    return [
        repack_in_memory([weights[name] for name in convolutions]),
        Measurement("ResNet-50 file to packed file, flushed to disk", total + written, there),
        Measurement("ResNet-50 packed file back, flushed to disk", total + written, again),
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

    return Measurement(f"ResNet-50 weights oihw -> {BLOCKED} in memory", nbytes, median_time(repack))


def print_times(console: Console, measured: list[Measurement]) -> None:
    """The time of every job and what percent of a streaming copy's speed it reached."""
    table = Table(box=box.SIMPLE_HEAD, title="Times, beside a streaming copy of the same bytes", title_justify="left")
    table.add_column("job")
    for heading in ("read + written", "time", "copy", "% of copy"):
        table.add_column(heading, justify="right")
    for m in measured:
        copy = streaming_copy_time(m.nbytes)
        cells = (f"{m.nbytes / 1e6:.0f} MB", f"{m.seconds * 1e3:.1f} ms", f"{copy * 1e3:.1f} ms")
        table.add_row(m.name, *cells, f"{100 * copy / m.seconds:.0f} %")
    console.print(table)


def main() -> None:
    """Run the three steps."""
    console = Console(highlight=False)
    draw_a_layout(console)
    measured = pack_photographs(console) + convert_resnet50(console)
    print_times(console, measured)


if __name__ == "__main__":
    main()
