"""The speed of reorders to and from swizzled memory: 64 MiB, beside copies of the same bytes.

The aim is a share of the speed of the fastest copy: by the reorder compiler or by `memcpy` on all processors. The cases
are the tiles of NVIDIA's TMA, 128 bytes wide, with rows in order, and matrices that are cut into such tiles, from and
to rows, columns and blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
from rich.table import Table

from benchmarks.buffers import Bytes, ThreadedMemcpy, fill_with_values, huge_buffer
from benchmarks.record import this_machine
from inlay.bench.measurement import table
from inlay.descriptor import MemoryDesc
from inlay.measure.interleaved import Call, Turn, measure_interleaved
from inlay.memory import Memory, Reorder

NBYTES = 64 << 20
LEAST_SHARE = 0.6  # of the speed of a copy
WIDTH = 128  # bytes of a row of a tile
ROWS = 4096  # of a matrix of tiles
_TAGS = ("ab", "ba", "BA16a16b")
_TYPES = {1: "u8", 2: "bf16", 4: "f32"}
_SWIZZLES = {1: ("<3,4,3>", "<2,4,3>"), 2: ("<3,3,3>", "<2,4,3>"), 4: ("<3,2,3>", "<2,4,3>")}


@dataclass(frozen=True, slots=True)
class SwizzledCase:
    """A swizzled descriptor and the one on the other side."""

    swizzled: MemoryDesc
    linear: MemoryDesc
    change: str  # of the layout

    @property
    def name(self) -> str:
        """The swizzle, the type and what else changes."""
        return f"{self.swizzled.swizzle} {self.swizzled.data_type}, {self.change}"


@dataclass(frozen=True, slots=True)
class SwizzledTimes:
    """The median seconds of a case."""

    case: SwizzledCase
    packing: float
    unpacking: float
    copy: float

    @property
    def shares(self) -> tuple[float, float]:
        """Speed of packing and of unpacking as shares of that of a copy."""
        return self.copy / self.packing, self.copy / self.unpacking


def is_met(result: SwizzledTimes) -> bool:
    """Return whether a result meets its aim, in both directions."""
    return min(result.shares) >= LEAST_SHARE


def swizzled_cases(nbytes: int = NBYTES) -> list[SwizzledCase]:
    """Return the cases: rows in order for each type and swizzle, then matrices of tiles for each type and layout."""
    cases, matrices = [], []
    for itemsize, texts in _SWIZZLES.items():
        width = WIDTH // itemsize
        dims = nbytes // WIDTH, width
        linear = MemoryDesc(dims, _TYPES[itemsize], "ab")
        swizzled = [
            MemoryDesc(dims, _TYPES[itemsize], f"Swizzle{text} o ({dims[0]},{width}):({width},1)") for text in texts
        ]
        cases += [SwizzledCase(desc, linear, "rows in order") for desc in swizzled]
        dims = ROWS, nbytes // ROWS // itemsize
        text = f"Swizzle{texts[0]} o ({ROWS},({width},{dims[1] // width})):({width},(1,{width * ROWS}))"
        tiles = MemoryDesc(dims, _TYPES[itemsize], text)
        matrices += [SwizzledCase(tiles, MemoryDesc(dims, _TYPES[itemsize], tag), f"tiles and {tag}") for tag in _TAGS]
    return cases + matrices


def measure_swizzles(rounds: int, nbytes: int = NBYTES) -> list[SwizzledTimes]:
    """Measure the cases, each beside its copies in one set of rounds."""
    src, dst = huge_buffer(nbytes), huge_buffer(nbytes)
    memcpy = ThreadedMemcpy(this_machine().processors)
    return [_measure(case, src, dst, memcpy, rounds) for case in swizzled_cases(nbytes)]


def _measure(case: SwizzledCase, src: Bytes, dst: Bytes, memcpy: ThreadedMemcpy, rounds: int) -> SwizzledTimes:
    assert case.linear.data_type is not None
    fill_with_values(src, case.linear.data_type)
    _require_same_elements(case, src, dst)
    desc = MemoryDesc((src.size,), "u8", "a")
    calls: dict[str, Call] = {
        "pack": _call(case.linear, case.swizzled, src, dst),
        "unpack": _call(case.swizzled, case.linear, src, dst),
        "Inlay": _call(desc, desc, src, dst),
        "memcpy": lambda: memcpy.copy(src, dst),
    }
    medians = {name: median(times) for name, times in measure_interleaved(calls, rounds, Turn(block=20e-3)).items()}
    return SwizzledTimes(case, medians["pack"], medians["unpack"], min(medians["Inlay"], medians["memcpy"]))


def _call(from_desc: MemoryDesc, to_desc: MemoryDesc, src: Bytes, dst: Bytes) -> Callable[[], None]:
    reorder, sides = Reorder(from_desc, to_desc), (Memory(from_desc, src), Memory(to_desc, dst))
    return lambda: reorder(*sides)


def _require_same_elements(case: SwizzledCase, src: Bytes, dst: Bytes) -> None:
    """Check a thousand elements against the formulas of both layouts."""
    _call(case.linear, case.swizzled, src, dst)()
    random = np.random.default_rng(0)
    places = random.integers(0, case.linear.dims, (1000, len(case.linear.dims)))
    assert case.linear.data_type is not None
    itemsize = case.linear.data_type.itemsize
    given, written = (b.reshape(-1, itemsize) for b in (src, dst))
    same = given[case.linear.offset(places)] == written[case.swizzled.offset(places)]
    assert same.all(), f"{case.name}: elements are elsewhere"


def swizzles_table(results: list[SwizzledTimes]) -> Table:
    """Return the measured cases as a table."""
    lines = []
    for result in results:
        times = (f"{1e3 * seconds:.2f} ms" for seconds in (result.packing, result.unpacking, result.copy))
        shares = (f"{100 * share:.0f} %" for share in result.shares)
        lines.append((result.case.name, *times, *shares, "yes" if is_met(result) else "NO"))
    heads = ("swizzle", "pack", "unpack", "copy", "pack, of a copy", "unpack, of a copy", "aim met")
    return table(heads, lines, "Swizzled memory, 64 MiB")
