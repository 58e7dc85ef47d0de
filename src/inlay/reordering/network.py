"""The shuffle network: permutes index bits inside registers.

A tile of 2^r registers of 2^l lanes holds 2^(r+l) elements, addressed by l lane bits and r register bits. The loads
determine which bit of which loop each of these positions holds; the stores determine which bit it must hold. The
network is the sequence of register exchanges in between.

One exchange combines two registers that differ in one register bit and distributes their elements to two new registers.
In terms of bits, the register bit enters the lanes at one position, the lane bits above shift up by one, and the lane
bit at another position leaves and becomes the register bit.

    interleave two registers of 4 lanes:  a0 a1 a2 a3, b0 b1 b2 b3  ->  a0 b0 a1 b1, a2 b2 a3 b3
    lane bits (l0, l1), register bit r:   r enters at 0, l1 leaves:  lanes (r, l0), register l1

A table for each processor family gives the exchanges that are cheap. An A* search over the lane bits finds the sequence
of least cost. The order of the register bits is free: it only changes the address to which a register is stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from inlay.reordering.instructions import Family

Side = Literal["src", "dst"]
"""One of the two tensors: source or destination."""
SIDES: tuple[Side, Side] = ("src", "dst")
_SEARCH_LIMIT = 20_000  # states that the search expands before it gives up
_LOOKUP_COST = 2.5  # of an exchange that needs a permutation with an index vector; an interleave costs 1


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange: distributes the elements of two registers to two new ones."""

    register: int
    """Number of the register bit in which the two registers differ."""
    leaves: int
    """Lane position whose bit becomes the register bit."""
    enters: int
    """Lane position at which the register bit arrives, counted after the leaving bit was removed."""

    def apply(self, lanes: tuple[int, ...], incoming: int) -> tuple[tuple[int, ...], int]:
        """Return the lane bits after the exchange, and the bit that left the lanes."""
        remaining = [*lanes]
        outgoing = remaining.pop(self.leaves)
        remaining.insert(self.enters, incoming)
        return tuple(remaining), outgoing

    def masks(self, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the `shufflevector` masks of both new registers: entry i is the number of the old element in lane i.

        The elements of the two old registers are numbered 0 to 2 * `width` - 1.
        """
        first, second = [], []
        for lane in range(width):
            register = (lane >> self.enters) & 1
            other_bits = _without_bit(lane, self.enters)
            old_lane = _with_bit(other_bits, self.leaves, 0)
            first.append(register * width + old_lane)
            second.append(register * width + old_lane + (1 << self.leaves))
        return tuple(first), tuple(second)


@dataclass(frozen=True, slots=True)
class BitPermutation:
    """A step that permutes the lane bits of every register in the same way."""

    order: tuple[int, ...]
    """The new order: position i afterwards holds the bit that was at position `order[i]`."""

    def mask(self, width: int) -> tuple[int, ...]:
        """Return the `shufflevector` mask: entry i is the number of the old lane that goes to lane i."""
        return tuple(sum(((lane >> i) & 1) << old for i, old in enumerate(self.order)) for lane in range(width))


ShuffleStep = Exchange | BitPermutation


@dataclass(frozen=True, slots=True)
class Deinterleave:
    """A step that deals a contiguous row out to an odd number of registers, or its inverse.

    A row of 48 values, 16 pixels of red, green and blue, fills three registers. After the step, one register holds the
    reds, one the greens and one the blues. No exchange of bits does this, since 3 is no power of two: each new register
    takes lanes from all old ones.
    """

    side: Side
    """`src`: registers are deinterleaved after the loads. `dst`: they are interleaved before the stores."""
    extent: int
    """The odd extent: the number of registers that take part."""
    below: int
    """Number of lane bits below the odd digit: 2^`below` consecutive elements stay together."""

    def sources(self, register: int, lanes: int) -> tuple[tuple[int, int], ...]:
        """Return (old register, lane of the old register) for each of the 2^`lanes` lanes of a new register."""
        count, unit = 1 << lanes, 1 << self.below
        if self.side == "dst":
            # Position in the interleaved row -> (number of the row's period, position within the period).
            positions = [divmod(register * count + lane, self.extent * unit) for lane in range(count)]
            return tuple((within // unit, within % unit + period * unit) for period, within in positions)
        positions_in_row = [(register + self.extent * (lane // unit)) * unit + lane % unit for lane in range(count)]
        return tuple(divmod(position, count) for position in positions_in_row)


@dataclass(frozen=True, slots=True)
class ShuffleNetwork:
    """A sequence of steps, and the positions of all bits after the last one.

    Bits are numbered by their initial positions: 0..l-1 in the lanes, l..l+r-1 in the register bits.
    """

    steps: tuple[ShuffleStep, ...]
    """The steps in execution order."""
    lanes: tuple[int, ...]
    """For each lane position, the number of the bit that it holds at the end."""
    registers: tuple[int, ...]
    """For each register bit, the number of the bit that it holds at the end."""

    @property
    def passes(self) -> tuple[tuple[ShuffleStep, ...], ...]:
        """The steps in groups; between two groups the tile is stored to and loaded from memory.

        A tile of at most 16 registers has one group. A larger tile is processed in groups of 8 registers: that measures
        faster than 16, because the other registers are free for loads and stores.
        """
        most = 4 if len(self.registers) <= 4 else 3
        groups: list[list[ShuffleStep]] = [[]]
        touched: set[int] = set()
        for step in self.steps:
            bit = {step.register} if isinstance(step, Exchange) else set()
            if len(touched | bit) > most:
                groups.append([])
                touched = set()
            touched |= bit
            groups[-1].append(step)
        return tuple(tuple(group) for group in groups)

    def __str__(self) -> str:
        """Return one line for each step."""
        lines = []
        for step in self.steps:
            match step:
                case Exchange(register, leaves, enters):
                    lines.append(f"  register bit {register} enters lane bit {enters}, lane bit {leaves} leaves")
                case BitPermutation(order):
                    lines.append(f"  lane bits become {order}")
        return "\n".join(lines) or "  nothing to permute"


@lru_cache(maxsize=1024)
def find_shuffle_network(
    goal: tuple[int, ...], registers: int, near: int, family: Family = "punpck"
) -> ShuffleNetwork | None:
    """Find the network of least cost that moves the bits `goal` to the lane positions, or None if the search gave up.

    Args:
        goal: the bit wanted at each lane position; bits 0..l-1 start in the lanes, the others in registers.
        registers: the number of register bits.
        near: the number of lane positions, counted from the lowest, that are within one 16-byte lane.
        family: the processor family.

    Post-condition: result.lanes == goal, and result.lanes + result.registers is a permutation of all bits.
    """
    target = {bit: i for i, bit in enumerate(goal)}
    bits = [target.get(bit, _UNWANTED) for bit in range(len(goal) + registers)]
    steps = _search(tuple(bits[: len(goal)]), tuple(bits[len(goal) :]), near, family)
    if steps is None:
        return None
    lanes, register_bits = tuple(range(len(goal))), list(range(len(goal), len(bits)))
    for step in steps:
        match step:
            case BitPermutation(order):
                lanes = tuple(lanes[i] for i in order)
            case Exchange(register):
                lanes, register_bits[register] = step.apply(lanes, register_bits[register])
    return ShuffleNetwork(steps, lanes, tuple(register_bits))


_UNWANTED = -1
"""The number of every bit that must not end in the lanes; the search treats these bits as equal."""
_Bits = tuple[int, ...]
"""The bits in the lanes or in the registers, each represented by its target lane position."""


def _search(lanes: _Bits, register_bits: _Bits, near: int, family: Family) -> tuple[ShuffleStep, ...] | None:
    """Find the cheapest steps after which lane position i holds bit i; None if the search limit was reached."""
    goal = tuple(range(len(lanes)))
    # The open states by the lower bound of their total cost. Among equals, the last one added is expanded first: the
    # search is depth-first as long as every step makes progress.
    open_states: dict[float, list[_SearchState]] = {0.0: [(0.0, lanes, register_bits, (), False)]}
    best: dict[_Bits, float] = {}
    bounds: dict[_Bits, float] = {}
    while open_states and len(best) < _SEARCH_LIMIT:
        least = min(open_states)
        cost, lanes, register_bits, steps, only_swaps = open_states[least].pop()
        if not open_states[least]:
            del open_states[least]
        if lanes == goal:
            return tuple(BitPermutation(order) if order else Exchange(*exchange) for order, exchange in steps)
        if not only_swaps:
            if lanes in best and best[lanes] <= cost:
                continue
            best[lanes] = cost
            # A swap moves at most one bit to its position, so the expansion with swaps waits until its bound is least.
            if (missing := lanes.count(_UNWANTED)) and family == "punpck":
                bound = cost + _LOOKUP_COST + missing - 1
                open_states.setdefault(bound, []).append((cost, lanes, register_bits, steps, True))
        for step, step_cost, next_lanes, next_registers in _successors(lanes, register_bits, near, family, only_swaps):
            if next_lanes not in bounds:
                bounds[next_lanes] = _least_remaining_cost(next_lanes, near, family)
            next_cost = cost + step_cost
            if next_lanes not in best or best[next_lanes] > next_cost:
                state = (next_cost, next_lanes, next_registers, (*steps, step), False)
                open_states.setdefault(next_cost + bounds[next_lanes], []).append(state)
    return None


_SearchStep = tuple[_Bits, tuple[int, int, int]]
"""A search step: the order of a `BitPermutation`; or an empty order, then register, leaves, enters of an `Exchange`."""
_SearchState = tuple[float, _Bits, _Bits, tuple[_SearchStep, ...], bool]
"""A state of the search: cost so far, lane bits, register bits, steps so far, and whether only swaps are left to
expand."""


def _successors(
    lanes: _Bits, register_bits: _Bits, near: int, family: Family, swaps: bool
) -> Iterator[tuple[_SearchStep, float, _Bits, _Bits]]:
    """Yield the successors of a state, swaps only or all other useful steps: step, cost, lane bits, register bits."""
    if _UNWANTED not in lanes:
        order = tuple(lanes.index(bit) for bit in range(len(lanes)))
        # Every wanted bit is in the lanes: one permutation of the lane bits completes the network.
        is_near = all(a == b for a, b in enumerate(order) if a >= near or b >= near)
        step_cost = 1.0 if is_near or family == "zip" else _LOOKUP_COST
        yield (order, (0, 0, 0)), step_cost, tuple(range(len(lanes))), register_bits
        return
    exchanges = _exchanges(len(lanes), near, family, swaps)
    for register, bit in enumerate(register_bits):
        if bit == _UNWANTED:
            continue
        for leaves, enters, step_cost in exchanges:
            rest = lanes[:leaves] + lanes[leaves + 1 :]
            next_lanes = (*rest[:enters], bit, *rest[enters:])
            next_registers = (*register_bits[:register], lanes[leaves], *register_bits[register + 1 :])
            yield ((), (register, leaves, enters)), step_cost, next_lanes, next_registers


def _least_remaining_cost(lanes: _Bits, near: int, family: Family) -> float:
    """Return a lower bound of the remaining cost: one step for each missing bit, and further steps for misplaced bits.

    For `punpck`: interleaves only move bits up within the near positions, and each pushes the highest bit out. So as
    many bits at the top as near bits are missing will be lost. Moves of 16-byte lanes enter at the top and only move
    bits down, so far bits must arrive in the order of their positions. No cheap step moves a bit between the two
    groups.

    For `zip`: bits move both ways, so only missing bits count.
    """
    if family == "zip":
        return lanes.count(_UNWANTED) or float(lanes != tuple(range(len(lanes))))
    # Steps for misplaced bits inside the near positions, and across their border or beyond it. `missing` and `in_order`
    # are sets of target positions: of bits that are not in the lanes, and of far bits that moves can bring down.
    inside, across, in_order, highest, missing = 0, 0, 0, -1, (1 << len(lanes)) - 1
    for position, target in enumerate(lanes):
        if target == _UNWANTED:
            continue
        missing -= 1 << target
        if target < near and position < near:
            inside += position > target
            highest = position
        elif target >= near and position >= target:
            in_order |= 1 << target
        else:
            across += 1
    missing_far = missing >> near << near
    if missing_far:
        # Far bits that belong above a missing one must enter after it, so they count as misplaced.
        above_first = -((missing_far & -missing_far) << 1)
        across += (in_order & above_first).bit_count()
    missing_near = (missing ^ missing_far).bit_count()
    inside = inside or int(highest >= min(near, len(lanes)) - missing_near)
    return missing.bit_count() + (min(across + inside, _LOOKUP_COST) if across else min(inside, 1))


@lru_cache(maxsize=64)
def _exchanges(width: int, near: int, family: Family, swaps: bool) -> tuple[tuple[int, int, float], ...]:
    """Return the useful exchanges on registers of 2^`width` lanes as (leaves, enters, cost).

    For `punpck`, where swaps are expensive, swaps and the other exchanges are returned by separate calls.
    """
    if family == "zip":
        top, units = width - 1, range(min(near, width))
        positions = {pair for unit in units for pair in ((unit, unit), (unit, top), (top, unit))}
        return tuple((leaves, enters, 1.0) for leaves, enters in sorted(positions))
    if swaps:
        return tuple((position, position, _LOOKUP_COST) for position in range(width))
    near = min(near, width)
    inside = [(near - 1, enters, 1.0) for enters in range(near)]
    across = [(leaves, width - 1, 1.0) for leaves in range(near, width)]
    return (*inside, *across)


def _without_bit(value: int, position: int) -> int:
    """Return `value` with the bit at `position` removed; the bits above move down."""
    return (value >> (position + 1) << position) | (value & ((1 << position) - 1))


def _with_bit(value: int, position: int, bit: int) -> int:
    """Return `value` with `bit` inserted at `position`; the bits from there on move up."""
    return (value >> position << (position + 1)) | (bit << position) | (value & ((1 << position) - 1))
