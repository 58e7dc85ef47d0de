"""The costs of descriptors: creating, viewing and comparing them, and computing offsets.

Dims of all that is created or viewed are new to the process, so that no cache can serve them; descriptors that are
hashed or compared have been hashed once, because the key of equality is made at that time.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from benchmarks.record import Figure
from inlay.descriptor import MemoryDesc
from inlay.measure.disturbance import without_garbage_collection
from inlay.measure.interleaved import time_call
from inlay.measure.statistics import spread

ROUNDS = 15
CALLS = 400  # calls of a round
MILLION = 1_000_000

_Row: TypeAlias = tuple[str, Callable[[Any], object], Callable[[], Sequence[Any]], float | None]
# a name, a call, a function that makes the arguments of one round, and the aim in seconds per call
_unseen: Iterator[int] = count(1)


def unseen_dims(*dims: int) -> tuple[int, ...]:
    """Return dims whose first is larger than in every call before."""
    return (next(_unseen) * 2 + dims[0], *dims[1:])


def _descs(tag: str, *dims: int) -> list[MemoryDesc]:
    return [MemoryDesc(unseen_dims(*dims), "f32", tag) for _ in range(CALLS)]


def _hashed_pairs() -> list[tuple[MemoryDesc, MemoryDesc]]:
    """Return pairs of descriptors that are equal, but not the same object."""
    pairs = [(desc, MemoryDesc(desc.dims, "f32", "nChw16c")) for desc in _descs("nChw16c", 2, 64, 5, 5)]
    assert all(hash(one) == hash(other) for one, other in pairs)
    return pairs


def _creation(tag: str, *dims: int) -> _Row:
    return (
        f"create by tag {tag}",
        lambda unseen: MemoryDesc(unseen, "f32", tag),
        lambda: [unseen_dims(*dims) for _ in range(CALLS)],
        10e-6,
    )


def _offsets(tag: str, *dims: int) -> _Row:
    desc, random = MemoryDesc(dims, "f32", tag), np.random.default_rng(0)
    coordinates = np.stack([random.integers(0, dim, MILLION) for dim in dims], axis=1)
    return f"offsets of a million coordinates, {tag}", desc.offset, lambda: [coordinates], 50e-3


def _view(name: str, call: Callable[[MemoryDesc], object], tag: str, *dims: int, aim: float | None = 10e-6) -> _Row:
    return name, call, lambda: _descs(tag, *dims), aim


def _strided_dims() -> list[tuple[int, ...]]:
    return [(*unseen_dims(2), 6, 5) for _ in range(CALLS)]


def _rows() -> list[_Row]:
    return [
        _creation("nchw", 2, 64, 56, 56),
        _creation("nChw16c", 2, 64, 56, 56),
        _creation("OIhw4i16o4i", 64, 64, 3, 3),
        _creation("abcdefghijkl", 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3),
        ("create by strides", lambda dims: MemoryDesc(dims, "f32", strides=(64, 8, 1)), _strided_dims, None),
        _view("reshape nchw, h and w joined", lambda d: d.reshape((*d.dims[:2], 3136)), "nchw", 2, 64, 56, 56),
        _view("reshape nChw16c, h and w joined", lambda d: d.reshape((*d.dims[:2], 3136)), "nChw16c", 2, 64, 56, 56),
        _view("reshape oihw, a unit axis inserted", lambda d: d.reshape((1, *d.dims)), "OIhw16i16o", 64, 64, 3, 3),
        _view("permute_axes nChw16c", lambda d: d.permute_axes((0, 3, 1, 2)), "nChw16c", 2, 64, 5, 5),
        _view("submemory nchw", lambda d: d.submemory((1, 3, 2, 2), (1, 2, 0, 3)), "nchw", 2, 6, 5, 5, aim=None),
        _offsets("nchw", 8, 64, 56, 56),
        _offsets("nChw16c", 8, 64, 56, 56),
        _offsets("OIhw4i16o4i", 256, 256, 3, 3),
        ("hash, after the first", hash, lambda: [pair[0] for pair in _hashed_pairs()], 1e-6),
        ("==, after the first", lambda pair: pair[0] == pair[1], _hashed_pairs, 1e-6),
    ]


def _seconds_per_call(row: _Row) -> float:
    """Return the seconds of one call in one round."""
    _, call, make, _ = row
    arguments = make()
    gc.collect()
    with without_garbage_collection():
        return time_call(lambda: [call(argument) for argument in arguments])[0] / len(arguments)


def measure_descriptors(rounds: int = ROUNDS) -> list[Figure]:
    """Return every figure; all rows take turns."""
    rows = _rows()
    times = zip(*([_seconds_per_call(row) for row in rows] for _ in range(rounds)), strict=True)
    return [Figure(row[0], spread(seconds), row[3]) for row, seconds in zip(rows, times, strict=True)]
