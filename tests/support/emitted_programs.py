"""Emitted code, compiled into shared libraries and called between guard pages, or run by an emulator of AArch64."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.reordering.reference import reference_reorder
from inlay.reordering.target import TARGETS
from tests.support.aarch64_emulator import CODE, DST, SRC, Image, link, run_in_unicorn
from tests.support.guarded_buffers import POISON, GuardedBuffer, stored_bytes

GCC = shutil.which("gcc")
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-ffp-contract=off")
"""Options under which emitted C has no warning."""
Bytes = npt.NDArray[np.uint8]
Pair = tuple[MemoryDesc, MemoryDesc]


def compile_library(folder: Path, files: dict[str, bytes], *options: str, compiler: str = "gcc") -> ctypes.CDLL:
    """Compile and link source and object files into one shared library, and load it."""
    paths = []
    for name, content in files.items():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    library = folder / "emitted.so"
    command = [compiler, *options, "-shared", "-fPIC", "-o", str(library), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def caller(library: ctypes.CDLL, name: str) -> Callable[[int, int], None]:
    """Return the function of a library, called with two addresses."""
    function = library[name]
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    return lambda src, dst: function(src, dst)


def buffer_size(desc: MemoryDesc) -> int:
    """Bytes up to the end of the last element."""
    layout, data_type = desc.require_layout("test")
    low, high = layout.span
    return -(-(high + desc.offset0) * data_type.bits // 8) if low < high else 0


def judge_function(run: Callable[[int, int], None], src: MemoryDesc, dst: MemoryDesc, source_bytes: Bytes) -> None:
    """Call a function on these source bytes between guard pages; compare with the reference, byte by byte."""
    source, target = (
        GuardedBuffer(buffer_size(desc), "upper", desc.require_layout("test")[1].itemsize) for desc in (src, dst)
    )
    source.bytes[:] = source_bytes
    source.seal()
    expected = np.full(target.bytes.size, POISON, np.uint8)
    reference_reorder(src, source.bytes, dst, expected)
    run(source.address, target.address)
    foreign = stored_bytes(dst, target.bytes.size) == 0
    assert (target.bytes[foreign] == POISON).all(), f"{src} -> {dst}: a byte outside elements and padding changed"
    wrong = np.flatnonzero(target.bytes != expected)
    assert not wrong.size, f"{src!r} -> {dst!r}: byte {wrong[0]} is {target.bytes[wrong[0]]}, not {expected[wrong[0]]}"
    assert target.gap_is_untouched, "a byte before or after the buffer changed"


def run_emulated(code: bytes, name: str, content: Bytes, target: GuardedBuffer) -> None:
    """Run the function `name` of an object file of AArch64 in Unicorn, on copies of both buffers."""
    source = GuardedBuffer(content.size, "upper", 16)
    source.bytes[:] = content
    image_bytes, entry = link(code, name)
    segments = ((CODE, image_bytes), (SRC, source.pages.tobytes()), (DST, target.pages.tobytes()))
    first, second = (
        base + buffer.address - int(buffer.pages.ctypes.data) for base, buffer in ((SRC, source), (DST, target))
    )
    image = Image(segments, entry, (first, second), (DST, target.pages.size))
    target.pages[:] = np.frombuffer(run_in_unicorn(image, TARGETS["aarch64"]), np.uint8)
