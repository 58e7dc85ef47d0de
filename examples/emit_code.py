"""Hand layouts to colleagues: C functions, an object file for another processor, the NumPy line, oneDNN's call.

Run it with `python examples/emit_code.py [FOLDER]`. Where gcc is installed, the C functions are compiled and compared
with Inlay's own result.
"""

import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import inlay


def main(folder: Path) -> None:
    """Emit every form of a layout, and C of quantized weights, into `folder`; check the C form."""
    desc = inlay.MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    for form in ("words", "numpy", "onednn"):
        print(inlay.emit(desc, form=form, name="act"), end="")
    frames = inlay.MemoryDesc((8, 3, 64, 64), "u8", "nhwc")
    planes = inlay.MemoryDesc((8, 3, 64, 64), "f32", "nchw")
    files = inlay.emit(desc, name="act").save(folder / "act.c")
    for target in ("x86-64-v3", "aarch64"):
        move = inlay.emit(frames, planes, form="object", name="to_planes", target=target)
        files += move.save(folder / f"to_planes_{target}.o")
    weights = np.random.default_rng(1).standard_normal((4, 256), np.float32)
    quantized = inlay.pack_compound(weights, "ggml:Q4_0")
    files += inlay.emit(quantized.desc, name="q4").save(folder / "q4.c")
    print(inlay.emit(inlay.MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o ab"), form="words"), end="")
    print("wrote", ", ".join(file.name for file in files))
    if shutil.which("gcc") is None:
        print("gcc is not installed: the C functions are not compiled")
        return
    options = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, "act.c", "-o", "act.so"], cwd=folder, check=True)
    image = np.random.default_rng(0).standard_normal(desc.dims, np.float32)
    packed = np.empty(desc.size // 4, np.float32)
    pack = ctypes.CDLL(str(folder / "act.so")).act_pack
    pack(ctypes.c_void_p(image.ctypes.data), ctypes.c_void_p(packed.ctypes.data))
    if packed.tobytes() != inlay.pack(image, desc).buffer.tobytes():
        raise SystemExit("the C function packs other bytes than Inlay")
    print("act_pack, compiled by gcc, packs the same bytes as inlay.pack")
    subprocess.run(["gcc", *options, "q4.c", "-o", "q4.so"], cwd=folder, check=True)
    values = np.empty(weights.shape, np.float32)
    unpack = ctypes.CDLL(str(folder / "q4.so")).q4_unpack
    unpack(ctypes.c_void_p(quantized.buffer.ctypes.data), ctypes.c_void_p(values.ctypes.data))
    if values.tobytes() != quantized.unpack().tobytes():
        raise SystemExit("the C function computes other values than Inlay")
    print("q4_unpack, compiled by gcc, computes the same values as CompoundMemory.unpack")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
