"""What descriptors cost: creating, viewing, comparing, and asking for offsets; `python -m benchmarks.descriptors`.

Every figure is the median over rounds, with the quartiles in brackets, and stands beside its aim. Everything that is
created or viewed has dims that this process has not seen before, so that no cache can answer for them; what is hashed
or compared has been hashed once, because the key of equality is made at that time.

    create by tag nChw16c     6.1 [6.0-6.3] us    < 10.0 us
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.report import figures_table
from benchmarks.startup import Figure
from inlay.descriptor import MemoryDesc
from inlay.measure.disturbance import without_garbage_collection
from inlay.measure.interleaved import time_call
from inlay.measure.statistics import spread

ROUNDS = 15
CALLS = 400
MILLION = 1_000_000

_unseen: Iterator[int] = count(1)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: a call, and what it is called with."""

    name: str
    """What is measured."""
    call: Callable[[Any], object]
    """The call."""
    arguments: Callable[[], Sequence[Any]]
    """Makes the arguments of one round, one per call, before the clock starts."""
    aim: float | None
    """Seconds that a call should stay below."""


def unseen_dims(*dims: int) -> tuple[int, ...]:
    """Dims like these, the first of them larger than in every call before."""
    return (next(_unseen) * 2 + dims[0], *dims[1:])


def _created(tag: str, *dims: int) -> Row:
    return Row(
        f"create by tag {tag}",
        lambda unseen: MemoryDesc(unseen, "f32", tag),
        lambda: [unseen_dims(*dims) for _ in range(CALLS)],
        10e-6,
    )


def _descs(tag: str, *dims: int) -> list[MemoryDesc]:
    return [MemoryDesc(unseen_dims(*dims), "f32", tag) for _ in range(CALLS)]


def _with_strides() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Dims, and strides with a gap after each row."""
    return [((*unseen_dims(2), 6, 5), (64, 8, 1)) for _ in range(CALLS)]


def _coordinates(desc: MemoryDesc) -> np.ndarray[Any, np.dtype[np.int64]]:
    generator = np.random.default_rng(0)
    return np.stack([generator.integers(0, dim, MILLION) for dim in desc.dims], axis=1)


def _hashed_pairs(tag: str, *dims: int) -> list[tuple[MemoryDesc, MemoryDesc]]:
    """Descriptors that are equal, but not the same object."""
    pairs = [(desc, MemoryDesc(desc.dims, "f32", tag)) for desc in _descs(tag, *dims)]
    assert all(hash(one) == hash(other) for one, other in pairs)
    return pairs


def _offsets_of(tag: str, *dims: int) -> Row:
    desc = MemoryDesc(dims, "f32", tag)
    coordinates = _coordinates(desc)
    return Row(f"offsets of a million coordinates, {tag}", desc.offset, lambda: [coordinates], 50e-3)


def rows() -> list[Row]:
    """The table, top to bottom."""
    return [
        _created("nchw", 2, 64, 56, 56),
        _created("nChw16c", 2, 64, 56, 56),
        _created("OIhw4i16o4i", 64, 64, 3, 3),
        _created("abcdefghijkl", 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3),
        Row("create by strides", lambda a: MemoryDesc(a[0], "f32", strides=a[1]), _with_strides, None),
        *_view_rows(),
        _offsets_of("nchw", 8, 64, 56, 56),
        _offsets_of("nChw16c", 8, 64, 56, 56),
        _offsets_of("OIhw4i16o4i", 256, 256, 3, 3),
        Row("hash, after the first", hash, lambda: [pair[0] for pair in _hashed_pairs("nChw16c", 2, 64, 5, 5)], 1e-6),
        Row("==, after the first", lambda a: a[0] == a[1], lambda: _hashed_pairs("nChw16c", 2, 64, 5, 5), 1e-6),
    ]


def _view_rows() -> list[Row]:
    return [
        Row(
            "reshape nchw, h and w joined",
            lambda desc: desc.reshape((*desc.dims[:2], 3136)),
            lambda: _descs("nchw", 2, 64, 56, 56),
            10e-6,
        ),
        Row(
            "reshape nChw16c, h and w joined",
            lambda desc: desc.reshape((*desc.dims[:2], 3136)),
            lambda: _descs("nChw16c", 2, 64, 56, 56),
            10e-6,
        ),
        Row(
            "reshape oihw, a unit axis inserted",
            lambda desc: desc.reshape((1, *desc.dims)),
            lambda: _descs("OIhw16i16o", 64, 64, 3, 3),
            10e-6,
        ),
        Row(
            "permute_axes nChw16c",
            lambda d: d.permute_axes((0, 3, 1, 2)),
            lambda: _descs("nChw16c", 2, 64, 5, 5),
            10e-6,
        ),
        Row(
            "submemory nchw",
            lambda d: d.submemory((1, 3, 2, 2), (1, 2, 0, 3)),
            lambda: _descs("nchw", 2, 6, 5, 5),
            None,
        ),
    ]


def seconds_per_call(row: Row) -> float:
    """One round: the time of its calls, divided by their number."""
    arguments = row.arguments()
    call = row.call
    gc.collect()

    def each() -> None:
        for argument in arguments:
            call(argument)

    with without_garbage_collection():
        return time_call(each)[0] / len(arguments)


def measured(rounds: int = ROUNDS) -> list[Figure]:
    """Every figure, all rows taking turns."""
    table = rows()
    times: list[list[float]] = [[] for _ in table]
    for _ in range(rounds):
        for row, found in zip(table, times, strict=True):
            found.append(seconds_per_call(row))
    return [Figure(row.name, spread(found), row.aim) for row, found in zip(table, times, strict=True)]


def run(rounds: int = ROUNDS) -> None:
    """Print what descriptors cost, beside the aims."""
    Console(highlight=False).print(figures_table("Descriptors", measured(rounds)))


if __name__ == "__main__":
    typer.run(run)
