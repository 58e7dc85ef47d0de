"""What tests of reorders share: pairs of formats, transposes of f32, schedules, and the moves that a schedule makes."""

from itertools import product
from math import prod

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.layout import DigitMap, Dims, Layout
from inlay.reordering.compiled import CompiledReorder
from inlay.reordering.loop_order import Level, OuterLoop, Traffic
from inlay.reordering.nest import LoopNest, build_loop_nest
from inlay.reordering.problem import ReorderProblem, build_reorder_problem
from inlay.reordering.schedule import Schedule, find_schedule

Case = tuple[Dims, str, str]
"""Dims and two tags."""
Pair = tuple[MemoryDesc, MemoryDesc]
Move = tuple[int | None, int]
"""A source offset (None for a zero) and the destination offset it goes to, in elements."""


def pair(dims: Dims, src: str = "ab", dst: str = "ba", src_type: str = "f32", dst_type: str = "") -> Pair:
    """Descriptors of two tags, and of one type or two."""
    return MemoryDesc(dims, src_type, src), MemoryDesc(dims, dst_type or src_type, dst)


def problem_of(
    dims: Dims, src: str = "ab", dst: str = "ba", src_type: str = "f32", dst_type: str = ""
) -> ReorderProblem:
    """The problem of such a pair."""
    return build_reorder_problem(*pair(dims, src, dst, src_type, dst_type))


def transposes(reorder: CompiledReorder, dims: tuple[int, int], calls: int = 1) -> bool:
    """Whether each call of a reorder of f32 from `ab` to `ba` writes what NumPy's transpose gives, and nothing else."""
    x = np.arange(prod(dims), dtype=np.float32).reshape(dims)
    y = np.empty(x.size + 32, np.float32)
    wanted = np.append(x.T, np.full(32, -1))
    right = True
    for _ in range(calls):
        y.fill(-1)
        reorder.run(x.ctypes.data, y.ctypes.data)
        right &= bool((y == wanted).all())
    return right


def schedule_of(pair: Pair, vector_bytes: int = 64, level: Level | None = None, overlaps: bool = False) -> Schedule:
    """The schedule for registers of so many bytes."""
    problem = build_reorder_problem(*pair)
    return find_schedule(
        build_loop_nest(problem),
        min(problem.src_type.itemsize, problem.dst_type.itemsize),
        vector_bytes,
        converts=problem.src_type != problem.dst_type,
        traffic=level and Traffic(problem.src_type.bits, problem.dst_type.bits, level),
        overlaps=overlaps,
    )


def is_small(pair: Pair) -> bool:
    """Whether a pair has elements, and so few that a test can go through them."""
    problem = build_reorder_problem(*pair)
    return not problem.is_empty and prod(axis.stored for axis in problem.axes) <= 3000


def moves_of(src: MemoryDesc, dst: MemoryDesc) -> list[Move]:
    """The moves that are wanted, one coordinate at a time."""
    assert isinstance(src.layout, Layout)
    assert isinstance(dst.layout, Layout)
    moves: list[Move] = []
    for x in product(*map(range, dst.layout.dims)):
        is_data = all(i < n for i, n in zip(x, src.dims, strict=True))
        moves.append((src.layout.offset(x) if is_data else None, dst.layout.offset(x)))
    return sorted(moves, key=lambda move: move[1])


def moves_of_nest(nest: LoopNest, indices: list[dict[int, int]] | None = None) -> list[Move]:
    """The moves of a nest that its guards let through, for all indices of its loops or for these."""
    if indices is None:
        indices = [dict(enumerate(values)) for values in product(*(range(loop.extent) for loop in nest.loops))]
    moves: list[Move] = []
    for index in indices:
        at = [index.get(i, 0) for i in range(len(nest.loops))]
        counted = [
            sum(dict(loop.guard_weights).get(g, 0) * i for i, loop in zip(at, nest.loops, strict=True))
            for g in range(len(nest.guards))
        ]
        if all(c < guard.stored for c, guard in zip(counted, nest.guards, strict=True)):
            is_data = all(c < guard.data for c, guard in zip(counted, nest.guards, strict=True))
            src = sum(_offset(loop.src, i) for i, loop in zip(at, nest.loops, strict=True))
            moves.append(
                (src if is_data else None, sum(_offset(lp.dst, i) for i, lp in zip(at, nest.loops, strict=True)))
            )
    return sorted(moves, key=lambda move: move[1])


def _offset(where: DigitMap, value: int) -> int:
    return where * value if isinstance(where, int) else where[value]


def moves_of_schedule(plan: Schedule) -> list[Move]:
    """The moves that the guards let through, of all that the tiles cover."""
    return moves_of_nest(plan.nest, tile_indices(plan))


def first_value(outer: OuterLoop, run: int) -> int:
    """The first iteration of the nest's loop that an iteration of an outer loop covers."""
    return run * outer.step - (outer.back if run == outer.extent - 1 else 0)


def tile_indices(plan: Schedule) -> list[dict[int, int]]:
    """The loop indices that all tiles cover, with the values of the odd digit."""
    indices = []
    odd = {} if plan.tile.odd is None else {plan.tile.odd.loop: range(plan.tile.odd.deinterleave.extent)}
    for *starts, value in product(*(range(o.extent) for o in plan.outer), *(odd.values() or [[0]])):
        for pattern in product((0, 1), repeat=len(plan.tile.src_bits)):
            index = dict.fromkeys(odd, value)
            for o, run in zip(plan.outer, starts, strict=True):
                index[o.loop] = index.get(o.loop, 0) + first_value(o, run)
            for (loop, bit), is_set in zip(plan.tile.src_bits, pattern, strict=True):
                index[loop] = index.get(loop, 0) + (is_set << bit)
            indices.append(index)
    return indices
