"""The schedule of a nest: which bits make the register tile, and in which order the loops around it run.

The third stage of the compiler. A tile is a power of two of values of some loops. Its lanes are bits of loops: on the
source side those that lie one after another in the source, on the destination side those that do so there, so that
every load and every store is one contiguous vector. What one side has in its lanes and the other has not is in the
register bits of that other side, and the shuffle network in between exchanges them. A transpose, a blocking by 16
channels and a pack of 4 x 16 x 4 weights differ in nothing but these two lists of bits.

Loops that the tile does not cover wholly keep their outer part and run around it, ordered by `loop_order`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, inf, log2, prod

from inlay.reordering.loop_order import OuterLoop, Traffic, distance, order_loops
from inlay.reordering.nest import Guard, Loop, LoopNest, join_contiguous_loops, split_odd_factor
from inlay.reordering.network import (
    LANE_BYTES,
    SIDES,
    Deinterleave,
    ShuffleNetwork,
    Shuffles,
    Side,
    find_shuffle_network,
)

Bit = tuple[int, int]
"""(loop, bit of its index): one bit of a tile."""

_LEAST_REGISTERS = 8  # registers of a tile at least, where loops have that many values: to begin a tile takes its time
# Measured, in the time that one vector takes: to start a tile; one conversion; one more register to take lanes from
# where an odd digit is dealt out; what masks add to the start of a tile,
# and to each of its vectors, where these go straight across (False) and where they go through a scratch tile (True);
# which share of the tiles must be whole where a loop that a bound cuts off is taken into them for nothing but length.
_TILE_COST = 4.0
_CONVERSION_COST = 8.0
_DEAL_COST = 0.75
_EDGE_COSTS = {False: (10.0, 8.0), True: (30.0, 20.0)}
_MOSTLY_WHOLE = 0.75
_SMALL_TILE = 32  # elements
_SHORT_LOOP = 8
_MANY_STEPS = 128  # after so many whole tiles, a tail does not matter
_MOST_REGISTERS = 256  # of a tile: a digit of 27 in 16 registers would compile for seconds, to code that runs slower


@dataclass(frozen=True, slots=True)
class OddLoop:
    """A loop of odd extent that a tile covers wholly."""

    loop: int
    """Its number."""
    deinterleave: Deinterleave
    """Where it lies among the lanes."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The bits that one call of the tile's code moves."""

    src_bits: tuple[Bit, ...]
    """What the source has in its lanes, lowest first, then in its register bits."""
    dst_bits: tuple[Bit, ...]
    """The same of the destination, at the end of the network."""
    network: ShuffleNetwork
    """How the one becomes the other."""
    odd: OddLoop | None = None
    """The odd digit among the lanes of one side; the registers of the tile are as many for each of its values."""

    @property
    def registers(self) -> int:
        """The number of registers."""
        return (1 if self.odd is None else self.odd.deinterleave.extent) << self.register_bits

    def covers(self, loop: int) -> int:
        """How many values of `loop` the tile covers."""
        return _count_covered(self.src_bits, self.odd).get(loop, 1)

    @property
    def lane_bits(self) -> int:
        """The number of bits in the lanes."""
        return len(self.network.lanes)

    @property
    def register_bits(self) -> int:
        """The number of register bits."""
        return len(self.network.registers)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A nest with its tile and the order of what runs around it."""

    nest: LoopNest
    """The loops; guards were added where the tile cuts a loop off."""
    tile: Tile
    """What one call of the tile's code moves."""
    outer: tuple[OuterLoop, ...]
    """The loops around the tile, outermost first; the innermost is affine."""
    traversal: Side
    """The side that is gone through in the order in which it lies."""

    @property
    def tiles(self) -> int:
        """How many tiles there are."""
        return prod(o.extent for o in self.outer)

    @property
    def whole_share(self) -> float:
        """The share of the tiles that no bound cuts off."""
        cut = (o for o in self.outer if self.nest.loops[o.loop].guard_weights and not o.back)
        return prod(_whole_share(self.nest, o.loop, o.step, o.extent) for o in cut)

    @property
    def overlaps(self) -> bool:
        """Whether some last tiles begin earlier than a step after the one before."""
        return any(o.back for o in self.outer)

    @property
    def rewritten(self) -> float:
        """How many elements are written again, as a share of all."""
        return prod(1 + o.back / self.nest.loops[o.loop].extent for o in self.outer) - 1

    def with_guards(self) -> "Schedule":
        """The same with last tiles that are cut off by guards in place of those that overlap."""
        loops, guards = list(self.nest.loops), list(self.nest.guards)
        for o in self.outer:
            if o.back:
                _add_guard(loops, guards, o.loop)
        outer = tuple(replace(o, back=0) for o in self.outer)
        return replace(self, nest=LoopNest(tuple(loops), tuple(guards)), outer=outer)

    def steps_evenly(self, outer: OuterLoop) -> bool:
        """Whether each run of `outer` is as far from the last as the one before: its loop has no table to look up."""
        return self.nest.loops[outer.loop].is_affine or outer.step > 1

    def __str__(self) -> str:
        """The tile, its loops and its network."""
        names = [" ".join(f"{loop}.{bit}" for loop, bit in bits) for bits in (self.tile.src_bits, self.tile.dst_bits)]
        lanes = self.tile.lane_bits
        lines = [
            f"  tile of {self.tile.registers} registers x {1 << lanes} lanes (bits as loop.bit, lanes first)",
            f"  loaded as {names[0]}",
            f"  stored as {names[1]}",
        ]
        if odd := self.tile.odd:
            place = f"above {odd.deinterleave.below} lane bits of {odd.deinterleave.side}"
            lines.append(f"  for each of the {odd.deinterleave.extent} values of loop {odd.loop}, {place}")
        lines.append(f"  walks along {self.traversal}")
        lines += [f"  around it: {_describe(o)}" for o in self.outer]
        return "\n".join(lines)


def _describe(outer: OuterLoop) -> str:
    back = f", the last begins {outer.back} earlier" if outer.back else ""
    return f"loop {outer.loop}, {outer.extent} times, {outer.step} values each{back}"


_ALL_SHUFFLES = Shuffles()


def find_schedule(
    nest: LoopNest,
    element_bytes: int,
    vector_bytes: int,
    *,
    converts: bool = False,
    shuffles: Shuffles = _ALL_SHUFFLES,
    traffic: Traffic | None = None,
    suits: Callable[[Schedule], bool] = lambda plan: True,
    traversal: Side | None = None,
    registers: int | None = None,
    overlaps: bool = False,
) -> Schedule:
    """The cheapest schedule of `nest` on registers of `vector_bytes`.

    Args:
        element_bytes: the width of the narrower of the two element types: shuffles run at that width.
        vector_bytes: the width of a register.
        converts: whether elements change their type on the way.
        shuffles: those that the processor has.
        traffic: what the loops around the tile depend on; by default a tensor of such elements that fits the caches.
        suits: which schedules may be chosen; those of one element at a time always may.
        traversal: the side that is gone through in the order in which it lies; None for the better one.
        registers: how many a tile has at least, where loops have that many values.
        overlaps: whether elements may be written twice, with the same values.

    Post-condition: the tiles cover every index of the nest's loops, and its guards keep out what lies beyond them and,
    unless `overlaps`, what would be covered twice.
    """
    most = int(log2(vector_bytes // element_bytes))
    near = int(log2(LANE_BYTES // element_bytes))
    traffic = traffic or Traffic(8 * element_bytes, 8 * element_bytes)
    candidates = [
        found
        for lanes in range(most, -1, -1)
        for variant, odd in _nest_variants(nest, 1 << lanes)
        if (odd is None or shuffles.deals(1 << lanes, element_bytes))
        and (found := _build_candidate(variant, lanes, converts, odd, registers or _LEAST_REGISTERS, overlaps))
        is not None
    ]
    best, least = None, inf
    priced = [(found.cost(), i) for i, found in enumerate(candidates)]
    for price, i in sorted(priced):
        found = candidates[i]
        # A network is searched only for a choice that could still be the best: its least steps are known beforehand.
        if price < least and (tile := found.tile(near, shuffles)) is not None:
            cost = found.cost(len(tile.network.steps))
            if cost < least and suits(plan := _build_schedule(found, tile, traffic, traversal)):
                best, least = plan, cost
    assert best is not None, "a tile of one element has an empty network"
    return best


def _nest_variants(nest: LoopNest, lanes: int) -> Iterator[tuple[LoopNest, OddLoop | None]]:
    """The nest as it is, with short loops in a row on one side joined, or with an odd digit among the lanes."""
    yield nest, None
    for side in SIDES:
        joined = join_contiguous_loops(nest, side, lanes)
        if joined is not None:
            yield joined, None
        split = split_odd_factor(nest, side, lanes)
        if split is not None:
            changed, loop, below = split
            yield changed, OddLoop(loop, Deinterleave(side, changed.loops[loop].extent, int(log2(below))))


@dataclass(frozen=True, slots=True)
class _TileCandidate:
    """A tile whose network is not known yet."""

    nest: LoopNest
    bits: tuple[Bit, ...]
    goal: tuple[Bit, ...]
    converts: bool
    odd: OddLoop | None
    overlaps: bool

    def tile(self, near: int, shuffles: Shuffles) -> Tile | None:
        """The tile, or None where no network was found."""
        lanes = len(self.goal)
        goal = tuple(self.bits.index(bit) for bit in self.goal)
        network = find_shuffle_network(goal, len(self.bits) - lanes, min(near, lanes), shuffles.family)
        if network is None:
            return None
        return Tile(self.bits, tuple(self.bits[i] for i in (*network.lanes, *network.registers)), network, self.odd)

    def cost(self, steps: int | None = None) -> float:
        """An estimate of the time, in the time that one vector takes, with so many steps or the least there can be."""
        lanes = len(self.goal)
        extent = 1 if self.odd is None else self.odd.deinterleave.extent
        registers = extent << len(self.bits) - lanes
        steps = len(set(self.goal) - set(self.bits[:lanes])) if steps is None else steps
        whole, tiles = 1.0, 1
        covered = _count_covered(self.bits, self.odd)
        for i, loop in enumerate(self.nest.loops):
            step = covered.get(i, 1)
            count = -(-loop.extent // step)
            tiles *= count
            whole *= 1 if self.back(i, step) else _whole_share(self.nest, i, step, count)
        each = 2 + steps / 2 + _DEAL_COST * (extent - 1) + _CONVERSION_COST * self.converts
        full = _TILE_COST + registers * each
        start, each = _EDGE_COSTS[steps > 0 or extent > 1]
        return tiles * (full + (1 - whole) * (start + each * registers))

    def back(self, i: int, step: int) -> int:
        """Values by which the last of the steps over loop `i` begins earlier than a step after the one before."""
        loop = self.nest.loops[i]
        beyond = -loop.extent % step
        is_free = self.overlaps and loop.is_affine and loop.extent > step
        return (
            beyond if is_free and not any(_implies_guard(self.nest, loop, g, w) for g, w in loop.guard_weights) else 0
        )


def _build_candidate(
    nest: LoopNest, lanes: int, converts: bool, odd: OddLoop | None, unrolled: int, overlaps: bool
) -> _TileCandidate | None:
    """The tile with 2^`lanes` lanes, or None if one side has not so many elements in a row or its code is too large."""
    src, dst = (_contiguous_bits(nest, lanes, side, odd) for side in SIDES)
    if src is None or dst is None:
        return None
    bits = [*src, *(bit for bit in dst if bit not in src)]
    registers = (1 if odd is None else odd.deinterleave.extent) << len(bits) - lanes
    if odd is not None and registers > _MOST_REGISTERS:
        return None
    bits += _unroll_bits(nest, bits, odd, unrolled // registers)
    return _TileCandidate(nest, tuple(bits), tuple(dst), converts, odd, overlaps)


def _contiguous_bits(nest: LoopNest, wanted: int, side: Side, odd: OddLoop | None) -> list[Bit] | None:
    """The bits that address 2^`wanted` elements lying one after another on `side`, lowest first.

    The odd digit is left out where it lies in between: its values fill the registers with as many elements each.
    """
    bits: list[Bit] = []
    stride = 1
    while len(bits) < wanted:
        i = nest.find_loop(side, stride)
        if i is None:
            return None
        extent, is_affine = nest.loops[i].extent, nest.loops[i].is_affine
        if odd is not None and i == odd.loop:
            if odd.deinterleave.side != side:
                return None
            stride *= extent
            continue
        if not is_affine and extent % (1 << wanted - len(bits)):
            return None
        whole = extent & -extent == extent and is_affine
        here = min(wanted - len(bits), int(log2(extent)) if whole else ceil(log2(extent)))
        if not whole and here < wanted - len(bits):
            return None
        bits += [(i, bit) for bit in range(here)]
        stride *= extent
    return bits


def _unroll_bits(nest: LoopNest, bits: list[Bit], odd: OddLoop | None, most: int) -> list[Bit]:
    """Bits for up to `most` times as many registers: of the loops that walk the source most closely."""
    added: list[Bit] = []
    free = [i for i, loop in enumerate(nest.loops) if loop.is_affine and (odd is None or i != odd.loop)]
    while 2 << len(added) <= most:
        taken = {i: sum(owner == i for owner, _ in (*bits, *added)) for i in free}
        fitting = [i for i in free if _fits(nest, i, taken[i] + 1)]
        if not fitting:
            break
        nearest = min(fitting, key=lambda i: distance(nest.loops[i], "src") << taken[i])
        added.append((nearest, taken[nearest]))
    return added


def _fits(nest: LoopNest, i: int, bits: int) -> bool:
    """Whether a tile may cover 2^`bits` values of loop `i`: there are as many, and few tiles would be cut off."""
    loop, step = nest.loops[i], 1 << bits
    if loop.extent < step:
        return False
    if not loop.guard_weights:
        return loop.extent % step == 0 or loop.extent // step >= _MANY_STEPS
    count = -(-loop.extent // step)
    return nest.has_bound(loop) and _whole_share(nest, i, step, count) >= _MOSTLY_WHOLE


def _count_covered(bits: tuple[Bit, ...], odd: OddLoop | None) -> dict[int, int]:
    """For each loop of which a tile of these bits and this odd digit covers several values, how many."""
    covered: dict[int, int] = {}
    for loop, _ in bits:
        covered[loop] = 2 * covered.get(loop, 1)
    if odd is not None:
        covered[odd.loop] = odd.deinterleave.extent
    return covered


def _whole_share(nest: LoopNest, i: int, step: int, count: int) -> float:
    """The share of the `count` steps over loop `i` that no bound cuts off."""
    loop = nest.loops[i]
    whole = loop.extent // step
    for g, weight in loop.guard_weights:
        if _implies_guard(nest, loop, g, weight):
            whole = min(whole, nest.guards[g].data // (weight * step))
    return whole / count


def _implies_guard(nest: LoopNest, loop: Loop, guard: int, weight: int) -> bool:
    """Whether running past the extent of `loop` is running past what `guard` lets be written."""
    return weight * loop.extent >= nest.guards[guard].stored


def _add_guard(loops: list[Loop], guards: list[Guard], i: int) -> None:
    """Keep out what lies beyond the extent of loop `i`."""
    loop = loops[i]
    loops[i] = replace(loop, guard_weights=(*loop.guard_weights, (len(guards), 1)))
    guards.append(Guard(loop.extent, loop.extent))


def _build_schedule(found: _TileCandidate, tile: Tile, traffic: Traffic, side: Side | None) -> Schedule:
    """The loops around `tile` in the order of `side`, and guards for loops that its steps overrun."""
    nest = found.nest
    loops, guards = list(nest.loops), list(nest.guards)
    outer = []
    for i, loop in enumerate(nest.loops):
        step = tile.covers(i)
        extent = -(-loop.extent // step)
        back = found.back(i, step)
        if (
            extent * step > loop.extent
            and not back
            and not any(_implies_guard(nest, loop, g, w) for g, w in loop.guard_weights)
        ):
            _add_guard(loops, guards, i)
        if extent > 1:
            outer.append(OuterLoop(i, extent, step, back))
    ordered, traversal = order_loops(loops, outer, traffic, side)
    if tile.registers << tile.lane_bits < _SMALL_TILE and len(outer) > 1 and ordered[-1].extent < _SHORT_LOOP:
        # To begin a run of the innermost loop costs more than many a small tile: a longer loop goes inside.
        ordered.append(ordered.pop(-2))
    return Schedule(LoopNest(tuple(loops), tuple(guards)), tile, tuple(ordered), traversal)
