"""The schedule of a loop nest: the bits that make the register tile, and the order of the loops around it.

Third stage of the compiler. A tile covers a power of two of iterations of some loops. On the source side, its lanes are
bits of loops whose elements are contiguous in the source; on the destination side, bits of loops that are contiguous
there. So every load and every store is one contiguous vector. A bit that is in the lanes of one side only is a register
bit of the other side, and the shuffle network between loads and stores exchanges them. A transpose, a blocking by 16
channels and a packing into 4 x 16 x 4 weights differ only in these two lists of bits.

A loop of which the tile covers a part keeps its outer iterations, which run around the tile in the order that
`loop_order` chooses.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, inf, log2, prod

from inlay.reordering.instructions import LANE_BYTES, Shuffles
from inlay.reordering.loop_order import OuterLoop, Traffic, distance, order_loops
from inlay.reordering.nest import Guard, Loop, LoopNest, join_contiguous_loops, split_odd_factor
from inlay.reordering.network import (
    SIDES,
    Deinterleave,
    ShuffleNetwork,
    Side,
    find_shuffle_network,
)

Bit = tuple[int, int]
"""A bit of a tile: (number of a loop, position of the bit in the index of that loop)."""

_LEAST_REGISTERS = 8  # of a tile, if the loops have that many iterations: amortizes the start of a tile
# Measured costs; the unit is the time to load or store one vector.
_TILE_COST = 4.0  # the start of a tile
_CONVERSION_COST = 8.0  # the conversion of one vector
_DEAL_COST = 0.75  # each further register that a deinterleaved register takes lanes from
# Masks of a tile at an edge: (per tile, per vector), without shuffles (False) and through a scratch tile (True).
_EDGE_COSTS = {False: (10.0, 8.0), True: (30.0, 20.0)}
_MOSTLY_WHOLE = 0.75  # least share of whole tiles for which a guarded loop is used to unroll
_SMALL_TILE = 32  # elements
_SHORT_LOOP = 8  # iterations
_MANY_STEPS = 128  # number of whole tiles after which the cost of a partial one is negligible
_MOST_REGISTERS = 256  # of a tile: more would compile for seconds and run slower


@dataclass(frozen=True, slots=True)
class OddLoop:
    """A loop of odd extent that the tile covers wholly, by deinterleaving."""

    loop: int
    """Number of the loop in the nest."""
    deinterleave: Deinterleave
    """The step of the network that deinterleaves the loop's iterations to registers."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The bits of the elements that one call of the tile's code moves."""

    src_bits: tuple[Bit, ...]
    """The bits in source order: those in the lanes, lowest first, then those in the register bits."""
    dst_bits: tuple[Bit, ...]
    """The bits in destination order, which is the order after the last step of the network."""
    network: ShuffleNetwork
    """The shuffle network that turns source order into destination order."""
    odd: OddLoop | None = None
    """The odd loop among the lanes of one side, if any; each of its iterations multiplies the number of registers."""

    @property
    def registers(self) -> int:
        """Number of registers of the tile."""
        return (1 if self.odd is None else self.odd.deinterleave.extent) << self.register_bits

    def covers(self, loop: int) -> int:
        """Return the number of iterations of `loop` that the tile covers."""
        return _count_covered(self.src_bits, self.odd).get(loop, 1)

    @property
    def lane_bits(self) -> int:
        """Number of lane bits."""
        return len(self.network.lanes)

    @property
    def register_bits(self) -> int:
        """Number of register bits; the odd loop is not included."""
        return len(self.network.registers)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A loop nest with its tile and the order of the loops around the tile."""

    nest: LoopNest
    """The loop nest; it has one more guard for each loop that the tiles overrun."""
    tile: Tile
    """The tile that one call of the tile's code moves."""
    outer: tuple[OuterLoop, ...]
    """The loops around the tile, outermost first; the innermost has strides on both sides."""
    traversal: Side
    """The side whose memory order the loops around the tile follow."""

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return prod(o.extent for o in self.outer)

    @property
    def whole_share(self) -> float:
        """Share of the tiles that no guard cuts off, from 0 to 1."""
        cut = (o for o in self.outer if self.nest.loops[o.loop].guard_weights and not o.back)
        return prod(_whole_share(self.nest, o.loop, o.step, o.extent) for o in cut)

    @property
    def overlaps(self) -> bool:
        """Return whether the last tile of some loop begins earlier, so that it overlaps the one before."""
        return any(o.back for o in self.outer)

    @property
    def rewritten(self) -> float:
        """Number of elements that are written twice, as a share of all elements."""
        return prod(1 + o.back / self.nest.loops[o.loop].extent for o in self.outer) - 1

    def with_guards(self) -> "Schedule":
        """Return the same schedule with guards in place of overlapping tiles."""
        loops, guards = list(self.nest.loops), list(self.nest.guards)
        for o in self.outer:
            if o.back:
                _add_guard(loops, guards, o.loop)
        outer = tuple(replace(o, back=0) for o in self.outer)
        return replace(self, nest=LoopNest(tuple(loops), tuple(guards)), outer=outer)

    def steps_evenly(self, outer: OuterLoop) -> bool:
        """Return whether the iterations of `outer` have a constant stride, so that it needs no table of offsets."""
        return self.nest.loops[outer.loop].is_affine or outer.step > 1

    def __str__(self) -> str:
        """Return the tile, its bits on both sides, and the loops around it."""
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
        lines.append(f"  traverses {self.traversal} in memory order")
        lines += [f"  around it: {_describe(o)}" for o in self.outer]
        return "\n".join(lines)


def _describe(outer: OuterLoop) -> str:
    """Return a loop around the tile in words."""
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
    """Return the cheapest schedule of `nest` on registers of `vector_bytes`.

    Args:
        element_bytes: the width of the narrower of the two element types: shuffles run at that width.
        vector_bytes: the width of a register.
        converts: whether elements change their type on the way.
        shuffles: the shuffle instructions of the processor.
        traffic: element sizes and memory level, which determine the order of the loops around the tile; by default a
            tensor of such elements that fits the caches.
        suits: a predicate that schedules must satisfy; a schedule that moves single elements must always satisfy it.
        traversal: the side whose memory order the loops follow; None for the better one.
        registers: the least number of registers of a tile, if the loops have that many iterations.
        overlaps: whether elements may be written twice, with the same values.

    Post-condition: the tiles cover every index of the nest's loops, and its guards exclude indices beyond them and,
    unless `overlaps`, what would be covered twice.
    """
    most = int(log2(vector_bytes // element_bytes))
    near = int(log2(LANE_BYTES // element_bytes))
    traffic = traffic or Traffic(8 * element_bytes, 8 * element_bytes)
    candidates = [
        candidate
        for lanes in range(most, -1, -1)
        for variant, odd in _nest_variants(nest, 1 << lanes)
        if (odd is None or shuffles.deals(1 << lanes, element_bytes))
        and (candidate := _build_candidate(variant, lanes, converts, odd, registers or _LEAST_REGISTERS, overlaps))
        is not None
    ]
    best, least = None, inf
    lower_bounds = [(candidate.cost(), i) for i, candidate in enumerate(candidates)]
    for lower_bound, i in sorted(lower_bounds):
        candidate = candidates[i]
        # The network search is skipped for a candidate that cannot win: the bound assumes the fewest possible steps.
        if lower_bound < least and (tile := candidate.tile(near, shuffles)) is not None:
            cost = candidate.cost(len(tile.network.steps))
            if cost < least and suits(plan := _build_schedule(candidate, tile, traffic, traversal)):
                best, least = plan, cost
    assert best is not None, "a tile of one element has an empty network"
    return best


def _nest_variants(nest: LoopNest, lanes: int) -> Iterator[tuple[LoopNest, OddLoop | None]]:
    """Yield the nest unchanged, with contiguous loops of one side joined, and with an odd factor isolated."""
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
    """A tile whose shuffle network is not searched yet."""

    nest: LoopNest
    bits: tuple[Bit, ...]
    goal: tuple[Bit, ...]
    converts: bool
    odd: OddLoop | None
    overlaps: bool

    def tile(self, near: int, shuffles: Shuffles) -> Tile | None:
        """Return the tile with its network, or None if the search found no network."""
        lanes = len(self.goal)
        goal = tuple(self.bits.index(bit) for bit in self.goal)
        network = find_shuffle_network(goal, len(self.bits) - lanes, min(near, lanes), shuffles.family)
        if network is None:
            return None
        return Tile(self.bits, tuple(self.bits[i] for i in (*network.lanes, *network.registers)), network, self.odd)

    def cost(self, steps: int | None = None) -> float:
        """Estimate the run time of all tiles; the unit is the time to load or store one vector.

        `steps` is the number of steps of the network; None stands for the least possible number.
        """
        lanes = len(self.goal)
        extent = 1 if self.odd is None else self.odd.deinterleave.extent
        registers = extent << len(self.bits) - lanes
        steps = len(set(self.goal) - set(self.bits[:lanes])) if steps is None else steps
        whole_share, tiles = 1.0, 1
        covered = _count_covered(self.bits, self.odd)
        for i, loop in enumerate(self.nest.loops):
            step = covered.get(i, 1)
            count = -(-loop.extent // step)
            tiles *= count
            whole_share *= 1 if self.back(i, step) else _whole_share(self.nest, i, step, count)
        # Each vector is loaded and stored, takes part in half an exchange per step, and may be converted.
        vector_cost = 2 + steps / 2 + _DEAL_COST * (extent - 1) + _CONVERSION_COST * self.converts
        tile_cost = _TILE_COST + registers * vector_cost
        edge_start, edge_vector = _EDGE_COSTS[steps > 0 or extent > 1]
        return tiles * (tile_cost + (1 - whole_share) * (edge_start + edge_vector * registers))

    def back(self, i: int, step: int) -> int:
        """Return by how many iterations the last tile over loop `i` begins earlier; 0 if it does not overlap."""
        loop = self.nest.loops[i]
        may_overlap = self.overlaps and loop.is_affine and loop.extent > step
        return -loop.extent % step if may_overlap and not _ends_at_guard(self.nest, loop) else 0


def _build_candidate(
    nest: LoopNest, lanes: int, converts: bool, odd: OddLoop | None, unrolled: int, overlaps: bool
) -> _TileCandidate | None:
    """Build the tile with 2^`lanes` lanes; None if a side has fewer contiguous elements or the tile is too large."""
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
    """Return the bits that address 2^`wanted` contiguous elements of `side`, lowest first; None if there are fewer.

    The odd loop may be one of the contiguous loops; it has no bits, since its iterations are in different registers.
    """
    bits: list[Bit] = []
    stride, own_odd = 1, odd.loop if odd is not None and odd.deinterleave.side == side else None
    while len(bits) < wanted:
        # Where elements of the source share offsets, another loop may have the stride of the odd one.
        is_own_odd = own_odd is not None and getattr(nest.loops[own_odd], side) == stride
        i = own_odd if is_own_odd else nest.find_loop(side, stride)
        if i is None:
            return None
        extent, is_affine = nest.loops[i].extent, nest.loops[i].is_affine
        if odd is not None and i == odd.loop:
            if not is_own_odd:
                return None
            stride *= extent
            continue
        if not is_affine and extent % (1 << wanted - len(bits)):
            return None
        is_power_of_two = extent & -extent == extent and is_affine
        count = min(wanted - len(bits), int(log2(extent)) if is_power_of_two else ceil(log2(extent)))
        if not is_power_of_two and count < wanted - len(bits):
            return None
        bits += [(i, bit) for bit in range(count)]
        stride *= extent
    return bits


def _unroll_bits(nest: LoopNest, bits: list[Bit], odd: OddLoop | None, most: int) -> list[Bit]:
    """Return further register bits, for up to `most` times as many registers, from the loops nearest in the source."""
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
    """Return whether a tile may cover 2^`bits` iterations of loop `i`.

    The loop must have that many iterations, and guards may cut off only a small share of the tiles.
    """
    loop, step = nest.loops[i], 1 << bits
    if loop.extent < step:
        return False
    if not loop.guard_weights:
        return loop.extent % step == 0 or loop.extent // step >= _MANY_STEPS
    count = -(-loop.extent // step)
    return nest.has_bound(loop) and _whole_share(nest, i, step, count) >= _MOSTLY_WHOLE


def _count_covered(bits: tuple[Bit, ...], odd: OddLoop | None) -> dict[int, int]:
    """Return, for each loop of which the tile covers several iterations, their number."""
    covered: dict[int, int] = {}
    for loop, _ in bits:
        covered[loop] = 2 * covered.get(loop, 1)
    if odd is not None:
        covered[odd.loop] = odd.deinterleave.extent
    return covered


def _whole_share(nest: LoopNest, i: int, step: int, count: int) -> float:
    """Return the share of the `count` steps over loop `i` that no guard cuts off."""
    loop = nest.loops[i]
    whole = loop.extent // step
    for g, weight in loop.guard_weights:
        if _implies_guard(nest, loop, g, weight):
            whole = min(whole, nest.guards[g].data // (weight * step))
    return whole / count


def _implies_guard(nest: LoopNest, loop: Loop, guard: int, weight: int) -> bool:
    """Return whether iterations beyond the extent of `loop` are excluded by `guard` already."""
    return weight * loop.extent >= nest.guards[guard].stored


def _ends_at_guard(nest: LoopNest, loop: Loop) -> bool:
    """Return whether some guard excludes iterations beyond the extent of `loop` already."""
    return any(_implies_guard(nest, loop, guard, weight) for guard, weight in loop.guard_weights)


def _add_guard(loops: list[Loop], guards: list[Guard], i: int) -> None:
    """Append a guard that excludes iterations beyond the extent of loop `i`."""
    loop = loops[i]
    loops[i] = replace(loop, guard_weights=(*loop.guard_weights, (len(guards), 1)))
    guards.append(Guard(loop.extent, loop.extent))


def _build_schedule(candidate: _TileCandidate, tile: Tile, traffic: Traffic, side: Side | None) -> Schedule:
    """Order the loops around `tile`, and add a guard for each loop that the tiles overrun."""
    nest = candidate.nest
    loops, guards = list(nest.loops), list(nest.guards)
    outer = []
    for i, loop in enumerate(nest.loops):
        step = tile.covers(i)
        extent = -(-loop.extent // step)
        back = candidate.back(i, step)
        if extent * step > loop.extent and not back and not _ends_at_guard(nest, loop):
            _add_guard(loops, guards, i)
        if extent > 1:
            outer.append(OuterLoop(i, extent, step, back))
    ordered, traversal = order_loops(loops, outer, traffic, side)
    if tile.registers << tile.lane_bits < _SMALL_TILE and len(outer) > 1 and ordered[-1].extent < _SHORT_LOOP:
        # The start of the innermost loop costs more than several small tiles, so a longer loop becomes the innermost.
        ordered.append(ordered.pop(-2))
    return Schedule(LoopNest(tuple(loops), tuple(guards)), tile, tuple(ordered), traversal)
