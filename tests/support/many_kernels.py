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
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
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


def drawn_side(rng: random.Random, array: npt.NDArray[Any]) -> tuple[inlay.MemoryDesc, npt.NDArray[Any]]:
    """A drawn format of an array, perhaps in blocks of the outermost axis, and the elements in its order."""
    letters, block = rng.sample(LETTERS[: array.ndim], array.ndim), rng.choice((1, 1, 4, 8, 16))
    tag = "".join(letters) if block == 1 else f"{letters[0].upper()}{''.join(letters[1:])}{block}{letters[0]}"
    desc = inlay.MemoryDesc(array.shape, rng.choice(TYPES), tag)
    _, data_type = desc.require_layout("test")
    moved = array.transpose([LETTERS.index(letter) for letter in letters])
    padded = np.pad(moved, [(0, -len(moved) % block), *[(0, 0)] * (array.ndim - 1)])
    return desc, np.moveaxis(padded.reshape(-1, block, *moved.shape[1:]), 1, -1).ravel().astype(data_type.dtype)


class Drawn:
    """A drawn reorder, with what it is given and what it should give."""

    def __init__(self, rng: random.Random) -> None:
        dims = [rng.choice((2, 3, 4, 5, 7, 8, 12, 16, 17)) for _ in range(rng.randint(2, 5))]
        array = np.arange(np.prod(dims)).reshape(dims) % 101
        (src, self.given), (dst, self.wanted) = drawn_side(rng, array), drawn_side(rng, array)
        self.reorder = compiled.compile_reorder(src, dst)

    def is_right(self) -> bool:
        """Whether a call gives what NumPy does."""
        found = np.ones_like(self.wanted)
        self.reorder.run(self.given.ctypes.data, found.ctypes.data)
        return found.tobytes() == self.wanted.tobytes()


def loaded() -> int:
    """How many objects this process has loaded."""
    return int(repr(target._libraries)[len("count(") : -1])


def work(seed: int, goes_on: Callable[[], bool], wrong: list[str]) -> int:
    """Compile and call, in a thread; the number of calls."""
    rng, kept, calls = random.Random(seed), list[Drawn](), 0
    while goes_on():
        drawn = Drawn(rng)
        if len(kept) == KEPT:
            del kept[rng.randrange(KEPT)]
        kept.append(drawn)
        calls += 2
        wrong += [str(one.reorder.problem) for one in (drawn, rng.choice(kept)) if not one.is_right()]
    return calls


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
    rng, forks, began, quarter = random.Random(seed), 0, time.monotonic(), (0, 0)
    gap, works, wrong = gaps(rng), list[Future[int]](), list[str]()

    def goes_on() -> bool:
        is_done = wrong or any(each.done() for each in works)
        return not is_done and loaded() < kernels and time.monotonic() < began + seconds

    with ThreadPoolExecutor(2) as pool:
        works += [pool.submit(work, seed * 2 + i, goes_on, wrong) for i in (1, 2)]
        while goes_on():
            next(gap)
            if not is_right_in_child(rng):
                wrong.append("a child failed")
            forks += 1
            if not any(quarter) and (loaded() > kernels // 4 or time.monotonic() > began + seconds / 4):
                gap.close()
                quarter, gap = taken(), gaps(rng)
            time.sleep(0.05)
        gap.close()
    calls = sum(each.result() for each in works)
    assert not wrong, wrong[:3]
    resident, mappings = zip(quarter, taken(), strict=True)
    found = {"loaded": loaded(), "calls": calls, "forks": forks, "resident": resident, "mappings": mappings}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
