"""A program that loads many different kernels: `python -m tests.support.many_kernels KERNELS SECONDS BOUND SEED`.

Two threads compile and run drawn reorders, and compare each with NumPy, until KERNELS objects were loaded or SECONDS
have passed. Both keep some reorders and call them again later. The main thread forks meanwhile, and so are children
checked; and it maps and frees memory, so that code is loaded into gaps that are far apart.
At most BOUND kernels stay in the cache.

It prints a JSON object: `loaded` objects, `calls`, `forks`, and at a quarter and at the end of the run the resident
memory in MB (`resident`) and the number of memory mappings (`mappings`).
"""

import json
import mmap
import os
import random
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import inlay
from inlay.reordering import compiled, machine_code, target

KEPT = 40
"""Reorders that a thread keeps."""
TYPES = ("f32", "bf16", "f16", "s8", "u8", "s32")
LETTERS = "abcde"


def physical(array: npt.NDArray[Any], order: str, block: int) -> npt.NDArray[Any]:
    """The elements in the order of a tag: letters from the outermost axis, and the first one again, in blocks."""
    axes = [LETTERS.index(letter) for letter in order]
    if not block:
        return array.transpose(axes).ravel()
    pads = [(0, -dim % block if axis == axes[0] else 0) for axis, dim in enumerate(array.shape)]
    moved = np.pad(array, pads).transpose(axes)
    return np.moveaxis(moved.reshape(-1, block, *moved.shape[1:]), 1, -1).ravel()


class Drawn:
    """A drawn reorder, with what it is given and what it should give."""

    def __init__(self, rng: random.Random) -> None:
        rank = rng.randint(2, 5)
        dims = [rng.choice((2, 3, 4, 5, 7, 8, 12, 16, 17)) for _ in range(rank)]
        array = np.arange(np.prod(dims)).reshape(dims) % 101
        sides = [self._side(rng, array) for _ in range(2)]
        (src, self.given), (dst, self.wanted) = sides
        self.reorder = compiled.compile_reorder(src, dst)

    @staticmethod
    def _side(rng: random.Random, array: npt.NDArray[Any]) -> tuple[inlay.MemoryDesc, npt.NDArray[Any]]:
        letters = rng.sample(LETTERS[: array.ndim], array.ndim)
        block = rng.choice((0, 0, 4, 8, 16))
        tag = "".join(letters) if not block else f"{letters[0].upper()}{''.join(letters[1:])}{block}{letters[0]}"
        desc = inlay.MemoryDesc(array.shape, rng.choice(TYPES), tag)
        _, data_type = desc.require_layout("test")
        return desc, physical(array, "".join(letters), block).astype(data_type.dtype)

    def is_right(self) -> bool:
        """Whether a call gives what NumPy does."""
        found = np.ones_like(self.wanted)
        self.reorder.run(self.given.ctypes.data, found.ctypes.data)
        return found.tobytes() == self.wanted.tobytes()


class Run:
    """The threads, and what they have done."""

    def __init__(self, kernels: int, seconds: float) -> None:
        self.kernels, self.until = kernels, time.monotonic() + seconds
        self.calls, self.wrong = 0, list[str]()

    def goes_on(self) -> bool:
        """Whether there is more to do."""
        return not self.wrong and loaded() < self.kernels and time.monotonic() < self.until

    def work(self, seed: int) -> None:
        """Compile and call, in a thread."""
        rng, kept = random.Random(seed), list[Drawn]()
        while self.goes_on():
            drawn = Drawn(rng)
            if len(kept) < KEPT:
                kept.append(drawn)
            else:
                kept[rng.randrange(KEPT)] = drawn
            for one in (drawn, rng.choice(kept)):
                self.calls += 1
                if not one.is_right():
                    self.wrong.append(str(one.reorder.problem))


def loaded() -> int:
    """How many objects this process has loaded."""
    return int(repr(target._libraries)[len("count(") : -1])


def is_right_in_child(rng: random.Random) -> bool:
    """Whether a forked child compiles and calls reorders, so many that it unloads some, and ends."""
    child = os.fork()
    if child == 0:
        os._exit(0 if all(Drawn(rng).is_right() for _ in range(5)) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def gaps(rng: random.Random) -> Generator[None]:
    """Leave gaps of some pages above 3 GiB that nobody touches, so that what is mapped next ends up far apart."""
    while True:
        far, filled, pages = np.empty(3 << 30, np.uint8), list[mmap.mmap](), list[mmap.mmap]()
        for size in (1 << 26, 1 << 22, 1 << 18, 1 << 14, mmap.PAGESIZE):
            pages = []
            while len(pages) < 1000 and (not pages or address_of(pages[-1]) > far.ctypes.data):
                # Neighbors of one protection would be one mapping.
                pages.append(mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE * (len(pages) % 2)))
            filled += pages
        rng.shuffle(pages)
        del filled[-len(pages) :]
        for _ in range(20):
            del pages[-rng.randint(1, 3) :]
            yield
        del far, filled


def address_of(pages: mmap.mmap) -> int:
    """Where the pages are."""
    return int(np.frombuffer(pages, np.uint8).ctypes.data)


def taken() -> tuple[int, int]:
    """Resident memory in MB, and the number of memory mappings."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") >> 20, Path("/proc/self/maps").read_bytes().count(b"\n")


def main(kernels: int, seconds: float, bound: int, seed: int) -> None:
    """Do what the program's text says."""
    vars(compiled)["machine_code"] = lru_cache(maxsize=bound)(machine_code.machine_code.__wrapped__)
    run, rng, forks = Run(kernels, seconds), random.Random(seed), 0
    began, gap, quarter = time.monotonic(), gaps(rng), (0, 0)
    with ThreadPoolExecutor(2) as pool:
        works = [pool.submit(run.work, seed * 2 + i) for i in (1, 2)]
        while not any(work.done() for work in works):
            next(gap)
            if not is_right_in_child(rng):
                run.wrong.append("a child failed")
            forks += 1
            if not any(quarter) and (loaded() > kernels // 4 or time.monotonic() > began + seconds / 4):
                gap.close()
                quarter, gap = taken(), gaps(rng)
            time.sleep(0.05)
        gap.close()
        for work in works:
            work.result()
    assert not run.wrong, run.wrong[:3]
    resident, mappings = zip(quarter, taken(), strict=True)
    found = {"loaded": loaded(), "calls": run.calls, "forks": forks, "resident": resident, "mappings": mappings}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
