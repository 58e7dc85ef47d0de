"""Emitted object code beside Inlay's own reorders, on one thread, in interleaved turns.

Both run on the same buffers, which begin at a huge page. Inlay's reorder has made its trials before it is timed (see
`inlay.reordering.compiled`). The object file is linked by LLVM into this process, so no compiler is needed.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

import inlay
from benchmarks.buffers import fill_with_values, huge_buffer
from inlay import MemoryDesc
from inlay.measure.interleaved import Turn, measure_interleaved
from inlay.measure.statistics import Spread, paired_ratio, spread
from inlay.reordering import compile_reorder
from inlay.reordering.compiled import CALLS_BEFORE_TRIAL, CALLS_PER_VARIANT
from inlay.reordering.target import load_object

LEAST = 0.9
"""Least speed of object code relative to Inlay's own reorder."""
ROUNDS = 15
Case = tuple[tuple[int, ...], str, str, str, str]
CASES: tuple[Case, ...] = (
    ((4096, 4096), "u8", "u8", "ab", "ba"),
    ((2048, 2048), "f32", "f32", "ab", "ba"),
    ((3000, 2001), "f32", "f32", "ab", "ba"),
    ((512, 512), "u8", "u8", "ab", "ba"),
    ((8, 64, 56, 56), "f32", "f32", "nchw", "nChw16c"),
    ((8, 64, 56, 56), "f32", "f32", "nhwc", "nchw"),
    ((8, 3, 224, 224), "u8", "f32", "nhwc", "nchw"),
    ((512, 512, 3, 3), "f32", "bf16", "oihw", "OIhw16i16o2i"),
    ((1024, 4096), "s8", "s8", "ab", "BA16a64b4a"),
    ((2048, 4096), "u4", "u4", "ab", "ba"),
)
"""Dims, types of source and destination, and their tags."""


@dataclass(frozen=True, slots=True)
class EmittedRow:
    """The figures of one case."""

    label: str
    """The case."""
    jit: Spread
    """Seconds of Inlay's reorder on one thread."""
    emitted: Spread
    """Seconds of the object code."""
    speed: Spread
    """Speed of the object code relative to Inlay's reorder, formed within each round."""


def measure_emitted(target: str | None, only: str = "", rounds: int = ROUNDS) -> list[EmittedRow]:
    """Measure the cases whose labels contain `only` for a target that this machine runs; None for the machine."""
    inlay.set_num_threads(1)
    try:
        return [_measure_case(case, target, rounds) for case in CASES if only in _label(case)]
    finally:
        inlay.set_num_threads(None)


def _label(case: Case) -> str:
    """Return the dims, types and tags of a case."""
    dims, src_type, dst_type, src_tag, dst_tag = case
    return f"{'x'.join(map(str, dims))} {src_type}->{dst_type} {src_tag}->{dst_tag}"


def _measure_case(case: Case, target: str | None, rounds: int) -> EmittedRow:
    """Measure one case, after both have given the same bytes."""
    dims, src_type, dst_type, src_tag, dst_tag = case
    src, dst = MemoryDesc(dims, src_type, src_tag), MemoryDesc(dims, dst_type, dst_tag)
    source, destination = huge_buffer(src.size), huge_buffer(dst.size)
    assert src.data_type is not None
    fill_with_values(source, src.data_type)
    addresses = int(source.ctypes.data), int(destination.ctypes.data)
    reorder = compile_reorder(src, dst)
    loaded = load_object(inlay.emit(src, dst, form="object", name="emitted", target=target).content, ("emitted",))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.addresses[0])
    for _ in range(CALLS_BEFORE_TRIAL + 2 * CALLS_PER_VARIANT):
        reorder.run(*addresses)
    expected = destination.copy()
    destination.fill(0xFF)
    function(*addresses)
    assert (destination == expected).all(), f"{_label(case)}: the object code writes other bytes"
    calls = {"jit": lambda: reorder.run(*addresses), "emitted": lambda: function(*addresses)}
    times = measure_interleaved(calls, rounds, Turn(block=4e-3))
    speed = paired_ratio(times["jit"], times["emitted"])
    return EmittedRow(_label(case), spread(times["jit"]), spread(times["emitted"]), speed)


def emitted_table(rows: Sequence[EmittedRow]) -> Table:
    """Return the figures as a table."""
    table = Table("reorder, one thread", "Inlay, us", "object code, us", "speed of object code (quartiles)")
    for row in rows:
        speed = f"{row.speed.median:.2f} ({row.speed.low:.2f} to {row.speed.high:.2f})"
        table.add_row(row.label, f"{row.jit.median * 1e6:.1f}", f"{row.emitted.median * 1e6:.1f}", speed)
    return table
