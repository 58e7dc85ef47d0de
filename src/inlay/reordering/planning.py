"""From a problem to its plan: schedule, kernel and table, with the memory level that the tensors occupy.

The plan says everything but the machine code. Stores go past the caches (`streamed`, `staged`) only where the tensors
exceed the last level of the machine model and the tile writes whole cache lines.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from inlay.layout import Map
from inlay.machine import MemoryModel
from inlay.reordering.choice import BY_MODEL, Choice
from inlay.reordering.elements import LINE, bits_of
from inlay.reordering.kernel import STAGE_BYTES, Kernel, Stores, Table, begins_at_bytes, kernel_of, table_of
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.nest import LoopNest, loop_nest
from inlay.reordering.panels import Panels, cut_into_panels
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.schedule import Schedule, schedule
from inlay.reordering.target import Target
from inlay.reordering.walk import Traffic, bytes_ahead, goes_in_streams, leaves_pages, level_of

# Past the caches, where elements of 2 bytes and more wait for memory and not for masks, bytes that are written again
# cost what they cost the first time. Measured: 11 % are worth it, 16 and 23 are not.
_MOST_REWRITTEN = 1 / 8
# Registers of a tile that would otherwise leave pages of the source early. Measured: 5-D f32 reversed 49 -> 70 % of a
# copy, f32 to bf16 in blocks of 16a64b2a 66 -> 97.
_LARGE_TILE = 64
_MANY_RUNS = 64  # as many can be dealt out to threads evenly enough without being cut


@dataclass(frozen=True, slots=True)
class Plan:
    """How a problem is solved on a target: everything but the machine code."""

    schedule: Schedule
    """The tile and the loops around it."""
    kernel: Kernel
    """The code that it needs."""
    table: Table
    """Its numbers."""
    panels: Panels | None = None
    """Where schedule, kernel and table are those of one panel: how the reorder is cut into panels."""

    @property
    def streams(self) -> bool:
        """Whether the kernel's stores go past the caches."""
        return self.kernel.stores != "cached"

    @property
    def pieces(self) -> int:
        """What is dealt out to threads: panels, or tiles where the kernel writes straight to the destination."""
        return self.schedule.tiles if self.panels is None else len(self.panels.offsets)

    @property
    def grain(self) -> int:
        """How many tiles stay together on one thread: a whole run where runs are many, or where one fills a buffer."""
        shares_bytes = bits_of(self.kernel.dst_type) < 8
        is_whole = shares_bytes or self.kernel.stores == "staged" or self.table.tiles >= _MANY_RUNS * self.table.run
        return self.table.run if is_whole else 1


def plan_reorder(problem: ReorderProblem, target: Target, choice: Choice = BY_MODEL, *, aligned: bool = True) -> Plan:
    """Return the plan of `problem`, which is not empty, on `target`, for the machine model of this process.

    What `choice` leaves open is decided by the models of the stages. Where the destination need not begin at a cache
    line (not `aligned`), no kernel streams to it: panels do, where there are any.
    """
    choice = choice if aligned else replace(choice, panels=True)
    nest, memory = loop_nest(problem), memory_model()
    level = level_of(problem.moved_bytes, memory, choice.streams)
    traffic = Traffic(problem.src_type.bits, problem.dst_type.bits, level)
    arrange = _arranger(problem, target, choice, traffic)
    straight = _plan_straight(problem, partial(arrange, nest), choice, traffic, memory)
    around = straight.schedule
    if choice.registers is None and straight.streams and leaves_pages(around.nest.loops, around.outer, traffic):
        large = partial(arrange, nest, choice=replace(choice, registers=_LARGE_TILE))
        with_large = _plan_straight(problem, large, choice, traffic, memory)
        straight = with_large if with_large.streams else straight
    wants_panels = _wants_panels(choice, straight.kernel.stores, traffic, target)
    if wants_panels and (panels := _panels_of(problem, nest)) is not None:
        return _plan_panels(problem, panels, partial(arrange, panels.nest), choice)
    return straight if aligned else replace(straight, kernel=replace(straight.kernel, stores="cached"))


def _arranger(problem: ReorderProblem, target: Target, choice: Choice, traffic: Traffic) -> Callable[..., Schedule]:
    """Return the search for a schedule of a nest, with everything but the nest and whether tiles may overlap."""
    types = (problem.src_type, problem.dst_type)
    # With a sum the formula runs last, on elements that were shuffled as the source has them.
    narrower = types[0].itemsize if problem.attributes.sum is not None else min(t.itemsize for t in types)
    return partial(
        schedule,
        element_bytes=narrower,
        vector_bytes=min(target.vector_bytes, choice.width or target.vector_bytes),
        converts=types[0] != types[1] or problem.computes,
        shuffles=target.shuffles,
        traffic=traffic,
        suits=partial(begins_at_bytes, problem),
        choice=choice,
    )


def _plan_straight(
    problem: ReorderProblem, arrange: Callable[..., Schedule], choice: Choice, traffic: Traffic, memory: MemoryModel
) -> Plan:
    """Return the plan that writes straight to the destination."""
    chosen = arrange(overlaps=may_overlap(problem))
    is_wide = min(problem.src_type.itemsize, problem.dst_type.itemsize) > 1
    is_costly = traffic.streams and is_wide and chosen.rewritten > _MOST_REWRITTEN
    if is_costly and _stores(problem, chosen, table_of(problem, chosen)) == "streamed":
        chosen = arrange()
    ahead = choice.ahead
    if ahead is None:
        ahead = bytes_ahead(chosen.nest.loops, chosen.outer, chosen.walk, traffic)
    table = table_of(problem, chosen, ahead)
    fetches = problem.moved_bytes > memory.l2 if choice.ahead is None else choice.ahead != 0
    if choice.ahead is None and traffic.level == "L3" and _goes_in_streams(problem, chosen, table):
        fetches = False
    may_stream = traffic.streams and problem.attributes.sum is None
    stores = _stores(problem, chosen, table) if may_stream else "cached"
    if chosen.overlaps and traffic.streams and stores == "cached":
        # Stores past the caches are worth more than whole tiles: they need a last tile that begins at a cache line.
        guarded = chosen.guarded()
        if (past := _stores(problem, guarded, table)) != "cached":
            chosen, table, stores = guarded, table_of(problem, guarded, ahead), past
    return Plan(chosen, kernel_of(problem, chosen, stores, fetches=fetches), table)


def _wants_panels(choice: Choice, stores: Stores, traffic: Traffic, target: Target) -> bool:
    """Return whether a reorder is to be cut into panels: beyond the caches, where it cannot stream by itself."""
    wants = stores == "cached" and target.prefers_panels if choice.panels is None else choice.panels
    return traffic.streams and wants


def _panels_of(problem: ReorderProblem, nest: LoopNest) -> Panels | None:
    """Return the panels of a problem whose elements are only moved or converted, where its nest has any."""
    sizes = [kind.bits // 8 for kind in (problem.src_type, problem.dst_type)]
    if not all(sizes) or problem.computes or not may_overlap(problem):
        return None
    return cut_into_panels(nest, sizes[0], sizes[1])


def _plan_panels(problem: ReorderProblem, panels: Panels, arrange: Callable[..., Schedule], choice: Choice) -> Plan:
    """Return the plan whose schedule, kernel and table fill the buffer of one panel."""
    chosen = arrange(overlaps=True)
    ahead = panels.src_step * problem.src_type.bits // 8 if choice.ahead is None else choice.ahead
    kernel = kernel_of(problem, chosen, "cached", fetches=ahead != 0)
    return Plan(chosen, kernel, table_of(problem, chosen, ahead), panels)


def _goes_in_streams(problem: ReorderProblem, chosen: Schedule, table: Table) -> bool:
    """Whether both sides are gone through in a few streams, which processors guess."""
    if not chosen.outer:
        return True
    inner, lanes = chosen.outer[-1], 1 << chosen.tile.lane_bits
    loop = chosen.nest.loops[inner.loop]
    sides = zip((problem.src_type, problem.dst_type), (loop.src, loop.dst), table.offsets[:2], strict=True)
    return all(
        goes_in_streams(offsets.ravel().tolist(), lanes * kind.bits // 8, _in_bytes(where, inner.step * kind.bits))
        for kind, where, offsets in sides
    )


def _in_bytes(where: Map, bits: int) -> Map:
    """Steps of so many bits times `where`, or the place that each value of a table is at."""
    return where * bits // 8 if isinstance(where, int) else tuple(place * bits // 8 for place in where)


def may_overlap(problem: ReorderProblem) -> bool:
    """Whether tiles may write some elements twice, on two threads at once even: the same bytes both times.

    Not where old elements are read, nor where elements share bytes; and nothing is left to chance.
    """
    attributes, types = problem.attributes, (problem.src_type, problem.dst_type)
    is_plain = attributes.sum is None and attributes.rounding_mode != "stochastic"
    return is_plain and not any(t.is_sub_byte for t in types)


def _stores(problem: ReorderProblem, chosen: Schedule, table: Table) -> Stores:
    """How a tensor larger than the caches is written, if its memory begins at a cache line.

    `table` is that of the schedule, or of one that differs in guards only.
    """
    if chosen.tile.lane_bits == 0:
        return "cached"
    bits = problem.dst_type.bits
    register = (bits << chosen.tile.lane_bits) // 8
    loops = chosen.nest.loops
    steps = [_is_lines(loops[o.loop].dst, o.step * bits) for o in chosen.outer]
    steps += [_is_lines(loops[o.loop].dst, o.back * bits) for o in chosen.outer if o.back]
    offsets = table.dst_offsets
    if register % LINE == 0 and all(steps) and not (offsets % LINE).any():
        return "streamed"
    stage = register * offsets.size
    is_cut = chosen.overlaps or any(guard.is_bound for guard in chosen.nest.guards)
    fills_it = chosen.outer and offsets.shape[0] == table.run and not is_cut
    if not fills_it or stage % LINE or stage > STAGE_BYTES or not all(steps[:-1]):
        return "cached"
    is_dense = sorted(offsets.ravel().tolist()) == list(range(0, stage, register))
    return "staged" if is_dense else "cached"


def _is_lines(where: Map, bits: int) -> bool:
    """Whether steps of so many bits times `where`, or times each place of a table, go from line to line."""
    if isinstance(where, int):
        return where * bits // 8 % LINE == 0
    return all(place * bits // 8 % LINE == 0 for place in where)
