"""`python -m benchmarks rearrange`: `inlay.rearrange` beside einops and a copy.

Four tables: twenty cases beyond the last cache level with `out=`, against a copy of as many bytes and einops on NumPy
and PyTorch, made contiguous; random cases of any size without `out=`; the cost of a remembered call; and
loops that make a new result in each turn, against the same call with `out=`.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import inlay
from benchmarks.buffers import ThreadedMemcpy, huge_buffer
from inlay.measure.disturbance import IdleWait
from inlay.measure.interleaved import Call, Turn, measure_interleaved
from inlay.measure.processors import allowed_processors

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


def timed(calls: Mapping[str, Call], rounds: int, seconds: float) -> dict[str, float]:
    """Return the median seconds per call of each, measured in turns."""
    idle = IdleWait(sleep=0.0, look=1e-3, share=0.15, looks=2, most=12)
    turn = Turn(seconds, 3e-3, 4, 8e-3, idle)
    times = measure_interleaved(calls, rounds, turn, first=rounds, once=10.0, patience=10.0)
    return {name: median(values) for name, values in times.items()}


def contiguous(x: Any, pattern: str, lengths: Mapping[str, int]) -> Any:
    """Return einops' rearrangement as contiguous memory: a copy unless it is contiguous already."""
    import einops

    moved = einops.rearrange(x, pattern, **lengths)
    return np.ascontiguousarray(moved) if isinstance(moved, np.ndarray) else moved.contiguous()


def large_cases(rounds: int, count: int) -> list[dict[str, Any]]:
    """Measure the first `count` of every kind of large case, each against a copy and einops."""
    import einops
    import torch

    memcpy, rows = ThreadedMemcpy(sorted(allowed_processors())), []
    step = max(1, len(PATTERNS) // count)
    for pattern, shape, lengths in PATTERNS[::step]:
        nbytes = 4 * prod(shape)
        source, target, copied = (huge_buffer(nbytes) for _ in range(3))
        x = source.view(np.float32).reshape(shape)
        x[...] = np.arange(x.size, dtype=np.float32).reshape(shape)
        expected = np.ascontiguousarray(einops.rearrange(x, pattern, **lengths))
        out = target.view(np.float32).reshape(expected.shape)
        tensor = torch.from_numpy(x)
        inlay.rearrange(x, pattern, out=out, **lengths)
        if not np.array_equal(out, expected):
            raise AssertionError(f"{pattern} of {shape}: Inlay and einops differ")
        calls: dict[str, Call] = {
            "inlay": partial(inlay.rearrange, x, pattern, out=out, **lengths),
            "copy": partial(memcpy.copy, source, copied),
            "einops numpy": partial(contiguous, x, pattern, lengths),
            "einops torch": partial(contiguous, tensor, pattern, lengths),
        }
        rows.append({"pattern": pattern, "shape": shape, **timed(calls, rounds, 1e-3)})
    return rows


def inlay_contiguous(x: Any, pattern: str) -> Any:
    """Return Inlay's rearrangement as contiguous memory: a copy unless it is contiguous already."""
    moved = inlay.rearrange(x, pattern)
    return moved if moved.flags.c_contiguous else inlay.rearrange(x, pattern, copy=True)


def random_case(random: np.random.Generator) -> tuple[str, tuple[int, ...]]:
    """Return the pattern of a random permutation, with groups on the right, and a shape of any size."""
    ndim, size = int(random.integers(2, 7)), 2 ** random.uniform(0, 22)
    shape = tuple(int(max(1, round(size ** (1 / ndim) * 2 ** random.uniform(-1, 1)))) for _ in range(ndim))
    names = "abcdef"[:ndim]
    order = [names[i] for i in random.permutation(ndim)]
    cut = int(random.integers(0, ndim))
    right = [*order[:cut], f"({' '.join(order[cut:])})"] if ndim - cut > 1 else order
    return f"{' '.join(names)} -> {' '.join(right)}", shape


def random_cases(count: int, rounds: int) -> list[dict[str, Any]]:
    """Measure random cases without `out`, with contiguous results of both."""
    random, rows = np.random.default_rng(18), []
    for _ in range(count):
        pattern, shape = random_case(random)
        x = random.random(shape, np.float32)
        calls: dict[str, Call] = {
            "inlay": partial(inlay_contiguous, x, pattern),
            "einops numpy": partial(contiguous, x, pattern, {}),
        }
        own, expected = (np.asarray(call()) for call in calls.values())  # compiles before anything is timed
        if not np.array_equal(own, expected):
            raise AssertionError(f"{pattern} of {shape}: Inlay and einops differ")
        rows.append({"pattern": pattern, "shape": shape, **timed(calls, rounds, 3e-4)})
    return rows


def remembered_calls(rounds: int) -> dict[str, float]:
    """Measure calls on 120 elements, whose time is that of the call."""
    import torch

    x, out = np.zeros((4, 5, 6), np.float32), np.zeros((4, 6, 5), np.float32)
    tensor, into = torch.from_numpy(x), torch.from_numpy(out)
    pattern = "a b c -> a c b"
    calls: dict[str, Call] = {
        "numpy view": partial(inlay.rearrange, x, pattern),
        "numpy new": partial(inlay.rearrange, x, pattern, copy=True),
        "numpy out": partial(inlay.rearrange, x, pattern, out=out),
        "numpy split": partial(inlay.rearrange, x, "(a d) b c -> a c (b d)", d=2),
        "torch view": partial(inlay.rearrange, tensor, pattern),
        "torch new": partial(inlay.rearrange, tensor, pattern, copy=True),
        "torch out": partial(inlay.rearrange, tensor, pattern, out=into),
    }
    return timed(calls, rounds, 1e-3)


def result_loops(rounds: int) -> list[dict[str, Any]]:
    """Measure calls that make a new result, and the same with `out`."""
    rows = []
    for shape in ((16, 64, 28, 28), (16, 64, 56, 56), (64, 64, 56, 56)):
        x = np.ones(shape, np.float32)
        desc = inlay.MemoryDesc(shape, "f32", "nChw16c")
        src, dst, reorder = inlay.Memory(x), inlay.Memory(desc), inlay.Reorder(inlay.Memory(x).desc, desc)
        out = np.ones((shape[0], *shape[2:], shape[1]), np.float32)
        pattern = "b c h w -> b h w c"
        calls: dict[str, Call] = {
            "pack": partial(inlay.pack, x, "nChw16c"),
            "pack out": partial(reorder, src, dst),
            "rearrange": partial(inlay.rearrange, x, pattern, copy=True),
            "rearrange out": partial(inlay.rearrange, x, pattern, out=out),
        }
        rows.append({"shape": shape, **timed(calls, rounds, 1e-3)})
    return rows


def summary(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that the aims of the documentation name."""
    large, drawn, loops = figures["large"], figures["random"], figures["loops"]
    return {
        "share of copy, median": median(row["copy"] / row["inlay"] for row in large),
        "times einops on NumPy, median": median(row["einops numpy"] / row["inlay"] for row in large),
        "times einops on PyTorch, median": median(row["einops torch"] / row["inlay"] for row in large),
        "slowest random case beyond einops, us": max((row["inlay"] - row["einops numpy"]) * 1e6 for row in drawn),
        "random cases slower by 2 us": float(sum(row["inlay"] - row["einops numpy"] > 2e-6 for row in drawn)),
        "slowest remembered call, us": max(figures["calls"].values()) * 1e6,
        "pack beside out, worst": max(row["pack"] / row["pack out"] for row in loops),
        "rearrange beside out, worst": max(row["rearrange"] / row["rearrange out"] for row in loops),
    }


def run(quick: bool, json_file: Path | None) -> dict[str, float]:
    """Measure everything, print the tables, and return the summary."""
    rounds, count, drawn = (3, 5, 20) if quick else (7, len(PATTERNS), 200)
    figures: dict[str, Any] = {
        "large": large_cases(rounds, count),
        "random": random_cases(drawn, rounds),
        "calls": remembered_calls(rounds),
        "loops": result_loops(rounds),
    }
    aims = summary(figures)
    if json_file is not None:
        json_file.write_text(json.dumps({**figures, "summary": aims}, indent=1), "utf-8")
    _print(figures, aims)
    return aims


def _print(figures: Mapping[str, Any], aims: Mapping[str, float]) -> None:
    """Print the large cases, the calls and the summary."""
    console = Console()
    _print_rows(console, "beyond the last cache level, ms", figures["large"], 1e3)
    _print_rows(console, "new results, ms", figures["loops"], 1e3)
    for name, value in figures["calls"].items():
        console.print(f"{name:14} {value * 1e6:6.2f} us")
    for name, value in aims.items():
        console.print(f"{name:40} {value:8.2f}")


def _print_rows(console: Console, title: str, rows: Sequence[Mapping[str, Any]], unit: float) -> None:
    """Print a table with a line for each row and a column for each of its times."""
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(f"{v * unit:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)
