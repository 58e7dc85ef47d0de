"""Emitted code, compiled into shared libraries and called between guard pages."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.reordering.reference import reference_reorder
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
