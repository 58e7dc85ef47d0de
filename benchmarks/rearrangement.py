"""`python -m benchmarks rearrange`: `inlay.rearrange` beside einops and a copy.

Four parts, each printed line by line while it is measured:

    large      twenty cases beyond the last cache level with `out=`, einops made contiguous, and copies of as many bytes
    random     cases of any size without `out=`, with contiguous results, beside einops on NumPy
    calls      remembered calls on 120 elements
    loops      a new result in each turn, which is dropped or held until the next one is made, beside `out=`

The yardstick is the best of three copies: `memcpy` on all processors, Inlay's own, and Inlay's with streaming stores.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import inlay
from benchmarks.buffers import Bytes, ThreadedMemcpy, huge_buffer
from benchmarks.rounds import Rounds, decided
from inlay.bench.contenders import flat_copies, inlay_call
from inlay.bench.measurement import INLAY
from inlay.measure.interleaved import Call
from inlay.measure.processors import allowed_processors
from inlay.memory import Memory
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering.compiled import CompiledCopies
from inlay.reordering.threads import get_num_threads

PATTERNS: tuple[tuple[str, tuple[int, ...], dict[str, int]], ...] = (
    ("a b -> b a", (4096, 4096), {}),
    ("a b -> b a", (1000, 16001), {}),
    ("(a p) b -> a b p", (4096, 4096), {"p": 8}),
    ("a b c -> c a b", (512, 256, 128), {}),
    ("a b c -> b a c", (1024, 256, 64), {}),
    ("a b c -> a c b", (64, 512, 512), {}),
    ("n c h -> (h n) c", (256, 128, 512), {}),
    ("t (h d) -> h t d", (4096, 4096), {"d": 64}),
    ("b t (h d) -> b h t d", (4, 1024, 4096), {"d": 128}),
    ("b h t d -> b t (h d)", (8, 32, 1024, 64), {}),
    ("b h t d -> b h d t", (8, 32, 1024, 64), {}),
    ("b c h w -> b h w c", (16, 64, 128, 128), {}),
    ("b h w c -> b c h w", (16, 128, 128, 64), {}),
    ("b h w c -> b c h w", (64, 256, 256, 3), {}),
    ("b c (h p) (w q) -> b (h w) (p q c)", (32, 3, 384, 384), {"p": 16, "q": 16}),
    ("b (h p) (w q) c -> (b h w) (p q c)", (32, 384, 384, 3), {"p": 16, "q": 16}),
    ("b (c p q) h w -> b c (h p) (w q)", (16, 64, 128, 128), {"p": 2, "q": 2}),
    ("a b c d e -> e d c b a", (32, 24, 24, 32, 32), {}),
    ("a b c d e f -> a d b e c f", (16, 16, 16, 16, 16, 16), {}),
    ("a b c d e f -> f b d a c e", (16, 16, 16, 16, 16, 16), {}),
)
"""Pattern, shape and lengths of the cases beyond the last cache level, of f32."""


Row = dict[str, Any]
"""Figures of one case: its form, and the median seconds of each call by name."""


def medians(calls: Mapping[str, Call], rounds: Rounds, *, warm: bool) -> dict[str, float]:
    """Return the median seconds per call of each, measured in turns; calls that are far behind leave early."""
    return {name: median(values) for name, values in rounds.measure(calls, warm, decided).items()}


def contiguous(x: Any, pattern: str, lengths: Mapping[str, int]) -> Any:
    """Return einops' rearrangement as contiguous memory: a copy unless it is contiguous already."""
    import einops

    moved = einops.rearrange(x, pattern, **lengths)
    return np.ascontiguousarray(moved) if isinstance(moved, np.ndarray) else moved.contiguous()


def large_cases(rounds: int, count: int) -> Iterator[Row]:
    """Measure `count` of the large cases, each against copies and einops."""
    import einops
    import torch

    torch.set_num_threads(get_num_threads())
    memcpy, streaming = ThreadedMemcpy(sorted(allowed_processors())), CompiledCopies()
    for pattern, shape, lengths in PATTERNS[:: max(1, len(PATTERNS) // count)]:
        nbytes = 4 * prod(shape)
        source, target, copied = (huge_buffer(nbytes) for _ in range(3))
        x = source.view(np.float32).reshape(shape)
        x[...] = np.arange(x.size, dtype=np.float32).reshape(shape)
        tensor = torch.from_numpy(x)
        expected = einops.rearrange(tensor, pattern, **lengths).contiguous().numpy()
        out = target.view(np.float32).reshape(expected.shape)
        inlay.rearrange(x, pattern, out=out, **lengths)
        if not np.array_equal(out, expected):
            raise AssertionError(f"{pattern} of {shape}: Inlay and einops differ")
        calls: dict[str, Call] = {
            INLAY: partial(inlay.rearrange, x, pattern, out=out, **lengths),
            "einops numpy": partial(contiguous, x, pattern, lengths),
            "einops torch": partial(contiguous, tensor, pattern, lengths),
            **copies(memcpy, streaming, source, copied),
        }
        yield {"pattern": pattern, "shape": shape, **medians(calls, Rounds(rounds), warm=False)}


def copies(memcpy: ThreadedMemcpy, streaming: CompiledCopies, source: Bytes, target: Bytes) -> dict[str, Call]:
    """Return the copies that compete for the yardstick."""

    def prepare(src: Memory, dst: Memory) -> Call:
        return inlay_call(find_reorder(src.desc, dst.desc), src, dst)  # type: ignore[arg-type]

    src, dst = (int(buffer.ctypes.data) for buffer in (source, target))
    return {
        "copy memcpy": partial(memcpy.copy, source, target),
        "copy own": flat_copies({"own": prepare}, source, target, source.size)["own"],
        "copy streaming": partial(streaming, src, dst, source.size, streams=True, threads=get_num_threads()),
    }


def best_copy(row: Row) -> float:
    """Return the seconds of the best copy of a large case."""
    return min(float(seconds) for name, seconds in row.items() if name.startswith("copy "))


def random_case(random: np.random.Generator) -> tuple[str, tuple[int, ...]]:
    """Return the pattern of a random permutation, with groups on the right, and a shape of any size."""
    ndim, size = int(random.integers(2, 7)), 2 ** random.uniform(0, 22)
    shape = tuple(int(max(1, round(size ** (1 / ndim) * 2 ** random.uniform(-1, 1)))) for _ in range(ndim))
    names = "abcdef"[:ndim]
    order = [names[i] for i in random.permutation(ndim)]
    cut = int(random.integers(0, ndim))
    right = [*order[:cut], f"({' '.join(order[cut:])})"] if ndim - cut > 1 else order
    return f"{' '.join(names)} -> {' '.join(right)}", shape


def random_cases(count: int, rounds: int) -> Iterator[Row]:
    """Measure random cases without `out`, with contiguous results of both.

    Inlay's call has `copy=True` where its view would not be contiguous, which follows from pattern and shape alone.
    """
    random = np.random.default_rng(18)
    for _ in range(count):
        pattern, shape = random_case(random)
        x = random.random(shape, np.float32)
        copy = None if inlay.rearrange(x, pattern).flags.c_contiguous else True
        calls: dict[str, Call] = {
            INLAY: partial(inlay.rearrange, x, pattern, copy=copy),
            "einops numpy": partial(contiguous, x, pattern, {}),
        }
        own, expected = (np.asarray(call()) for call in calls.values())  # compiles before anything is timed
        if not np.array_equal(own, expected):
            raise AssertionError(f"{pattern} of {shape}: Inlay and einops differ")
        yield {"pattern": pattern, "shape": shape, **medians(calls, Rounds(rounds, 1e-3), warm=True)}


def remembered_calls(rounds: int) -> Iterator[Row]:
    """Measure calls on 120 elements, whose time is that of the call."""
    import torch

    x, out = np.zeros((4, 5, 6), np.float32), np.zeros((4, 6, 5), np.float32)
    tensor, into = torch.from_numpy(x), torch.from_numpy(out)
    pattern, split, repeated = "a b c -> a c b", "(a d) b c -> d a c b", "a b c -> c a (b 2)"
    calls: dict[str, Call] = {}
    for name, array, target in (("numpy", x, out), ("torch", tensor, into)):
        calls |= {
            f"{name} view": partial(inlay.rearrange, array, pattern),
            f"{name} split view": partial(inlay.rearrange, array, split, d=2),
            f"{name} new": partial(inlay.rearrange, array, pattern, copy=True),
            f"{name} out": partial(inlay.rearrange, array, pattern, out=target),
            f"{name} joined": partial(inlay.rearrange, array, "a b c -> (c a) b"),
            f"{name} repeat": partial(inlay.repeat, array, repeated),
            f"{name} transpose": partial(inlay.transpose, array, (0, 2, 1)),
            f"{name} ascontiguous": partial(inlay.ascontiguous, array, "F"),
        }
    times = Rounds(rounds, 1e-3).measure(calls, warm=True)
    yield from ({"call": name, "seconds": median(values)} for name, values in times.items())


def holding(call: Call) -> Call:
    """Return a call that holds its result until the next one is made, as the variable of a loop does."""
    held: list[object] = [None]

    def run() -> None:
        held[0] = call()

    return run


def result_loops(rounds: int) -> Iterator[Row]:
    """Measure calls that make a new result, from 100 kB to 100 MB, and the same with `out`."""
    for shape in (
        (1, 64, 20, 20),
        (4, 64, 20, 20),
        (16, 64, 28, 28),
        (16, 64, 56, 56),
        (64, 64, 56, 56),
        (128, 64, 56, 56),
    ):
        x, pattern = np.ones(shape, np.float32), "b c h w -> b h w c"
        desc = inlay.MemoryDesc(shape, "f32", "nChw16c")
        src, dst, reorder = inlay.Memory(x), inlay.Memory(desc), inlay.Reorder(inlay.Memory(x).desc, desc)
        out = huge_buffer(x.nbytes).view(np.float32).reshape(shape[0], *shape[2:], shape[1])
        calls: dict[str, Call] = {
            "pack": partial(inlay.pack, x, "nChw16c"),
            "pack held": holding(partial(inlay.pack, x, "nChw16c")),
            "pack out": partial(reorder, src, dst),
            "rearrange": partial(inlay.rearrange, x, pattern, copy=True),
            "rearrange held": holding(partial(inlay.rearrange, x, pattern, copy=True)),
            "rearrange out": partial(inlay.rearrange, x, pattern, out=out),
        }
        times = Rounds(rounds, 1e-3).measure(calls, warm=True)
        yield {"shape": shape, **{name: median(values) for name, values in times.items()}}


# Parts and aims


def _large_aims(rows: Sequence[Row]) -> Iterator[tuple[str, float, str]]:
    """Yield name, figure and bound of each aim of the large cases."""
    for name, least, of in (
        ("share of the best copy, median", 0.8, best_copy),
        ("times einops on NumPy, median", 8, lambda row: row["einops numpy"]),
        ("times einops on PyTorch, median", 3, lambda row: row["einops torch"]),
    ):
        yield name, median(of(row) / row[INLAY] for row in rows), f">= {least}"


def _random_aims(rows: Sequence[Row]) -> Iterator[tuple[str, float, str]]:
    """Yield name, figure and bound of each aim of the random cases."""
    behind = [(row[INLAY] - row["einops numpy"]) * 1e6 for row in rows]
    yield "slowest random case beyond einops, us", max(behind), "<= 2"
    yield "random cases slower by 2 us", float(sum(gap > 2 for gap in behind)), "<= 0"


def _call_aims(rows: Sequence[Row]) -> Iterator[tuple[str, float, str]]:
    """Yield name, figure and bound of the aim of remembered calls."""
    yield "slowest remembered call, us", max(row["seconds"] for row in rows) * 1e6, "<= 4"


def _loop_aims(rows: Sequence[Row]) -> Iterator[tuple[str, float, str]]:
    """Yield name, figure and bound of each aim of the loops."""
    for name in ("pack", "pack held", "rearrange", "rearrange held"):
        yield f"{name} beside out, worst", max(row[name] / row[f"{name.split()[0]} out"] for row in rows), "<= 1.2"


Part = tuple[Callable[[bool], Iterator[Row]], Callable[[Sequence[Row]], Iterator[tuple[str, float, str]]]]
PARTS: dict[str, Part] = {
    "large": (lambda quick: large_cases(3 if quick else 7, 5 if quick else len(PATTERNS)), _large_aims),
    "random": (lambda quick: random_cases(20 if quick else 200, 3 if quick else 7), _random_aims),
    "calls": (lambda quick: remembered_calls(3 if quick else 9), _call_aims),
    "loops": (lambda quick: result_loops(3 if quick else 15), _loop_aims),
}
"""For each part, the function that measures its rows, and the one that compares them with the aims."""


def run(quick: bool, parts: Sequence[str], json_file: Path | None) -> bool:
    """Measure these parts, print each case when it is measured and the aims at the end; return True if all are met."""
    figures: dict[str, list[Row]] = {}
    began = time.monotonic()
    for name in parts:
        figures[name] = []
        for row in PARTS[name][0](quick):
            figures[name].append(row)
            print(f"{time.monotonic() - began:4.0f} s  {name}: {_line(row)}", flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1), "utf-8")
    are_met = True
    for name in parts:
        for aim, figure, bound in PARTS[name][1](figures[name]):
            comparison, limit = bound.split()
            is_met = figure >= float(limit) if comparison == ">=" else figure <= float(limit)
            are_met = are_met and is_met
            print(f"{aim:40} {figure:8.2f}   {bound:7} {'met' if is_met else 'missed'}")
    return are_met


def _line(row: Row) -> str:
    """Return the figures of a case as text, in microseconds."""
    return "  ".join(f"{name} {v * 1e6:.2f}" if isinstance(v, float) else str(v) for name, v in row.items())
