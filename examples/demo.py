"""The first minute: a transpose and a packing beside NumPy and PyTorch, a layout found, a picture, a network.

Run it with `make demo`. Each part prints the call that it makes. What is moved is compared with NumPy bit for bit; what
is computed is compared with another way to compute it. Contenders take turns on as many threads as Inlay, except NumPy,
which uses one. PyTorch and ONNX Runtime take part where they are installed. Nothing is downloaded.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from demo_output import comparison_text, console, progress, require, show, show_call, show_title, time_jobs

import inlay
from inlay.bench.measurement import INLAY, time_text
from inlay.bench.reorders import copies_of
from inlay.reordering.target import host_target

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "build" / "demo"
MATRIX, WEIGHTS = (4096, 4096), (4096, 11008)
"""Dims of the arrays; weights are as in a layer of Llama 2 7B."""
BLOCKS = "(k k16 k2) (n n16) -> n k k16 n16 k2"
"""Weights as the AMX instructions for bf16 read them: 16 columns of 16 pairs of rows in 1 KiB."""
NEXT = (
    ("explore nChw8c 2x17x5x4", "17 channels in blocks of 8, in a browser: point at an element to see its offset"),
    ("emit nChw8c 2x17x5x4", "C functions that pack and unpack it"),
    (
        "plan {folder}/efficientnet-lite0.onnx --html {folder}/plan.html",
        "each format of the network, with its reason",
    ),
)
"""Commands to go on with, and what they show."""

Floats = npt.NDArray[np.float32]
Jobs = dict[str, Callable[[], object]]


def require_packages() -> None:
    """End the demo where a package is not installed that it cannot do without."""
    absent = [name for name, module in (("onnx", "onnx"), ("Pillow", "PIL")) if find_spec(module) is None]
    if absent:
        sys.exit(f"the demo needs {' and '.join(absent)}: pip install 'inlay[demo]', or enter make demo")


def import_torch() -> Any:
    """Return the module `torch`, set to as many threads as Inlay; None where it is not installed."""
    if find_spec("torch") is None:
        return None
    with progress("importing torch"):
        import torch
    torch.set_num_threads(inlay.get_num_threads())
    return torch


def transpose(matrix: Floats, torch: Any) -> None:
    """Part 1: a transpose in the notation of einops."""
    show_title(1, "Transpose a matrix", f" of {' x '.join(map(str, matrix.shape))}, f32")
    show_call('inlay.rearrange(matrix, "i j -> j i", out=out)')
    out = np.zeros_like(matrix)
    jobs: Jobs = {
        INLAY: lambda: inlay.rearrange(matrix, "i j -> j i", out=out),
        "NumPy": lambda: np.copyto(out, matrix.T),
    }
    if torch:
        src, dst = torch.from_numpy(matrix), torch.from_numpy(out)
        jobs["torch"] = lambda: dst.copy_(src.t())
    show_speeds(jobs, 2 * matrix.nbytes)
    out[:] = 0
    jobs[INLAY]()
    require(np.array_equal(out, matrix.T), "the transposed matrix equals NumPy's")


def pack(weights: npt.NDArray[ml_dtypes.bfloat16], torch: Any) -> None:
    """Part 2: weights in the layout of a matrix unit, by a pattern."""
    rows, columns = weights.shape
    show_title(2, "Pack weights for AMX", f": {rows} x {columns}, bf16, by a pattern")
    show_call(f'inlay.reorder(weights, "{BLOCKS}", out=packed)')
    view = weights.view(np.int16).reshape(rows // 32, 16, 2, columns // 16, 16).transpose(3, 0, 1, 4, 2)
    out = np.zeros(view.shape, np.int16)
    packed = inlay.Memory(inlay.MemoryDesc(weights.shape, "bf16", BLOCKS))
    jobs: Jobs = {
        INLAY: lambda: inlay.reorder(weights, BLOCKS, out=packed),
        "NumPy": lambda: np.copyto(out, view),
    }
    if torch:
        src, dst = torch.from_numpy(view), torch.from_numpy(out)
        jobs["torch"] = lambda: dst.copy_(src)
    show_speeds(jobs, 2 * weights.nbytes)
    require(packed.buffer.tobytes() == view.tobytes(), "the packed weights equal NumPy's")
    require(packed.unpack().tobytes() == weights.tobytes(), "the unpacked weights equal the weights")


def show_speeds(jobs: Jobs, nbytes: int) -> None:
    """Time jobs that read and write `nbytes` each, and print Inlay's time beside those of the others and of a copy."""
    measured = time_jobs(jobs, copies_of(nbytes))
    percent = measured.percent_of_copy(INLAY).median
    show(f"{time_text(measured.time(INLAY))}, {percent:.0f} % of the speed of a plain copy")
    show(f"{comparison_text(measured)}\n")


def infer() -> None:
    """Part 3: the layout of a packer, from its outputs alone."""
    show_title(3, "Recover the layout of a packer", " that is known only as a function")
    show_call('inlay.infer(pack_scales, (300, 20), "u8")')
    with progress("calling the packer"):
        inferred = inlay.infer(pack_scales, (300, 20), "u8")
        if not isinstance(inferred, inlay.InferredLayout):
            sys.exit(f"demo: no layout is found: {inferred}")
        require(bool(inlay.verify(inferred.desc, pack_scales)), "the packer writes this layout")
    show(f"{str(inferred).splitlines()[0]}\n")


def pack_scales(scales: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return scales of NVFP4 in the tiles of 128 x 4 that NVIDIA's tensor cores read."""
    padded = np.pad(scales, [(0, -n % tile) for n, tile in zip(scales.shape, (128, 4), strict=True)])
    rows, columns = padded.shape
    return padded.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(0, 3, 2, 1, 4).ravel()


def draw() -> None:
    """Part 4: the picture of a layout."""
    show_title(4, "Draw a layout", ": tiles of 2 x 2, the last row padded")
    show_call('tiles = inlay.MemoryDesc((3, 6), "f32", "(r r2) (c c2) -> r c r2 c2")')
    show_call("inlay.show(tiles, offsets=True)\n")
    tiles = inlay.MemoryDesc((3, 6), "f32", "(r r2) (c c2) -> r c r2 c2")
    show(f"{inlay.show(tiles, offsets=True)}\n")


def show_next() -> None:
    """Print commands to go on with, as they can be entered in this folder."""
    console.print("[bold]Next[/]")
    for command, purpose in NEXT:
        console.print(f"   {program()} {command.format(folder=os.path.relpath(OUTPUT))}", style="cyan", markup=False)
        show(f"   {purpose}")


def program() -> str:
    """Return how the command line of this environment is called."""
    path = Path(sys.executable).with_name("inlay")
    if shutil.which("inlay") == str(path):
        return "inlay"
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long kernels may be measured, 10 by default")
    parser.add_argument("--without", action="append", default=[], metavar="PACKAGE", help="as if it were not installed")
    options = parser.parse_args()
    sys.modules.update(dict.fromkeys(options.without))  # Python imports no module whose entry is None
    require_packages()
    from demo_network import run_network

    started = time.perf_counter()
    torch = import_torch()
    rng = np.random.default_rng(0)
    with progress("drawing random numbers"):
        matrix = rng.standard_normal(MATRIX, np.float32)
        weights = rng.standard_normal(WEIGHTS, np.float32).astype(ml_dtypes.bfloat16)
    transpose(matrix, torch)
    pack(weights, torch)
    infer()
    draw()
    run_network(OUTPUT / "efficientnet-lite0.onnx", options.seconds)
    threads, duration = inlay.get_num_threads(), time.perf_counter() - started
    words = f"{threads} thread{'s' * (threads != 1)} of {host_target().cpu}; NumPy uses one"
    console.print(f"Every result was checked. {words}. {duration:.0f} s.\n")
    show_next()


if __name__ == "__main__":
    main()
