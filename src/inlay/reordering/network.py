"""The shuffle network: permuting index bits inside registers.

A tile of 2^r registers with 2^l lanes holds 2^(r+l) elements, each addressed by l lane bits and r register bits. The
loads fix which bit of which loop every one of these positions holds, the stores fix what they must hold; the network
is the sequence of register exchanges in between. One exchange takes the two registers that differ in one register bit
and deals their elements out to two new ones: in bits, the register bit enters the lanes at one position, the lanes
above shift up by one, and the bit that falls out at another position becomes the register bit.

    interleave two registers of 4 lanes:  a0 a1 a2 a3, b0 b1 b2 b3  ->  a0 b0 a1 b1, a2 b2 a3 b3
    lane bits (l0, l1), register bit r:   r enters at 0, l1 falls out:  lanes (r, l0), register l1

Which exchanges are cheap is a table per family of processors; the sequence of least cost is found by A* search over
the lane bits.
Register bits are free: where they end only decides to which address a register is stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Side = Literal["src", "dst"]
SIDES: tuple[Side, Side] = ("src", "dst")
LANE_BYTES = 16
"""Bytes within which interleaves work on every target."""
Family = Literal["punpck", "zip"]
"""Which exchanges are one instruction. `punpck` (x86): interleaves inside 16-byte lanes, moves of whole such lanes.
`zip` (AArch64): over the whole register, whatever its width, two registers interleave (zip), swap every other unit
(trn) or join every other unit (uzp), where a unit is at most 8 bytes."""


@dataclass(frozen=True, slots=True)
class Shuffles:
    """What the shuffles of a processor can do in an instruction or two."""

    family: Family = "punpck"
    """Which exchanges there are."""
    any_lane: tuple[int, int, int, int] = (64, 64, 64, 64)
    """Bytes of the widest register whose elements, of 1, 2, 4 and 8 bytes, can be taken from any lanes of two."""

    def deals(self, lanes: int, element_bytes: int) -> bool:
        """Whether an odd digit can be dealt out to registers of so many lanes."""
        return lanes * element_bytes <= self.any_lane[element_bytes.bit_length() - 1]


_SEARCH_LIMIT = 20_000
_LOOKUP_COST = 2.5  # an exchange that is no interleave and no move of whole 16-byte lanes: a table look-up per element


@dataclass(frozen=True, slots=True)
class Exchange:
    """Deal the elements of two registers out to two others."""

    register: int
    """The register bit in which the two registers differ."""
    leaves: int
    """The lane position whose bit becomes the register bit."""
    enters: int
    """The lane position at which the register bit arrives, counted after the other bit has left."""

    def apply(self, lanes: tuple[int, ...], incoming: int) -> tuple[tuple[int, ...], int]:
        """The lane bits afterwards, and the bit that fell out."""
        rest = [*lanes]
        out = rest.pop(self.leaves)
        rest.insert(self.enters, incoming)
        return tuple(rest), out

    def masks(self, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """For the two new registers of `width` lanes, which of the 2 * width old elements each lane takes."""
        low, high = [], []
        for lane in range(width):
            source = (lane >> self.enters) & 1
            old = _without_bit(lane, self.enters)
            kept = _with_bit(old, self.leaves, 0)
            low.append(source * width + kept)
            high.append(source * width + kept + (1 << self.leaves))
        return tuple(low), tuple(high)


@dataclass(frozen=True, slots=True)
class BitPermutation:
    """BitPermutation the lanes of every register alike."""

    order: tuple[int, ...]
    """Position i afterwards holds the bit that was at position order[i]."""

    def mask(self, width: int) -> tuple[int, ...]:
        """For each of `width` lanes, which old lane it takes."""
        return tuple(sum(((lane >> i) & 1) << old for i, old in enumerate(self.order)) for lane in range(width))


ShuffleStep = Exchange | BitPermutation


@dataclass(frozen=True, slots=True)
class Deinterleave:
    """An odd digit among the lanes: what lies in a row on one side is dealt out to registers by the digit's value.

    Of 3 x 16 pixels of red, green and blue in a row, three registers hold 48 values: dealt out, one holds the reds, one
    the greens, one the blues. No exchange of bits does it; each new register takes its lanes from all the old ones.
    """

    side: Side
    """Where the digit lies among the lanes: registers are dealt out after the loads or gathered before the stores."""
    extent: int
    """Of the digit, odd: how many registers take part."""
    below: int
    """Lane bits that lie below the digit."""

    def sources(self, register: int, lanes: int) -> tuple[tuple[int, int], ...]:
        """For each of 2^`lanes` lanes of a new register, the old register and the lane of it."""
        count, unit = 1 << lanes, 1 << self.below
        if self.side == "dst":
            places = [divmod(register * count + lane, self.extent * unit) for lane in range(count)]
            return tuple((rest // unit, rest % unit + outer * unit) for outer, rest in places)
        digits = [(register + self.extent * (lane // unit)) * unit + lane % unit for lane in range(count)]
        return tuple(divmod(place, count) for place in digits)


@dataclass(frozen=True, slots=True)
class ShuffleNetwork:
    """A sequence of steps and what it does to the bits.

    Bits are numbered by where they start: 0..l-1 in the lanes, l..l+r-1 in the register bits.
    """

    steps: tuple[ShuffleStep, ...]
    """In order of execution."""
    lanes: tuple[int, ...]
    """Which bit each lane position holds at the end."""
    registers: tuple[int, ...]
    """Which bit each register bit holds at the end."""

    @property
    def passes(self) -> tuple[tuple[ShuffleStep, ...], ...]:
        """The steps in groups; between two groups the tile lies in memory.

        A tile of at most 16 registers is one group. A larger one is worked on in groups of 8, which measures faster
        than 16: the other half of the registers is free for what comes and goes.
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
        """One line for each step."""
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
    """The cheapest network that brings the bits `goal` to the lane positions, or None if none was found in time.

    Args:
        goal: the bit wanted at each lane position; bits 0..l-1 start in the lanes, the others in registers.
        registers: the number of register bits.
        near: how many of the lowest lane positions lie within one 16-byte lane.
        family: the processors that it is for.

    Post-condition: result.lanes == goal, and result.lanes + result.registers is a permutation of all bits.
    """
    place = {bit: i for i, bit in enumerate(goal)}
    bits = [place.get(bit, _UNWANTED) for bit in range(len(goal) + registers)]
    found = _search(tuple(bits[: len(goal)]), tuple(bits[len(goal) :]), near, family)
    if found is None:
        return None
    lanes, held = tuple(range(len(goal))), list(range(len(goal), len(bits)))
    for step in found:
        match step:
            case BitPermutation(order):
                lanes = tuple(lanes[i] for i in order)
            case Exchange(register):
                lanes, held[register] = step.apply(lanes, held[register])
    return ShuffleNetwork(found, lanes, tuple(held))


_UNWANTED = -1
"""What the search calls every bit that no lane wants: it need not tell them apart."""
_Bits = tuple[int, ...]
"""Bits in the lanes or in the registers, each called by the place where it is wanted."""


def _search(lanes: _Bits, held: _Bits, near: int, family: Family) -> tuple[ShuffleStep, ...] | None:
    """The cheapest steps after which place i of the lanes holds bit i, or None if none were found in time."""
    goal = tuple(range(len(lanes)))
    # What is left to try, by the bound of its price. Among equals the latest is tried first: the search runs straight
    # down where every step helps.
    waiting: dict[float, list[_SearchState]] = {0.0: [(0.0, lanes, held, (), False)]}
    best: dict[_Bits, float] = {}
    bounds: dict[_Bits, float] = {}
    while waiting and len(best) < _SEARCH_LIMIT:
        least = min(waiting)
        cost, lanes, held, trials, is_late = waiting[least].pop()
        if not waiting[least]:
            del waiting[least]
        if lanes == goal:
            return tuple(BitPermutation(order) if order else Exchange(*exchange) for order, exchange in trials)
        if not is_late:
            if lanes in best and best[lanes] <= cost:
                continue
            best[lanes] = cost
            # A swap brings one bit to its place at best: until that could pay, swaps need not be looked at.
            if (missing := lanes.count(_UNWANTED)) and family == "punpck":
                waiting.setdefault(cost + _LOOKUP_COST + missing - 1, []).append((cost, lanes, held, trials, True))
        for trial, price, after, left in _successors(lanes, held, near, family, is_late):
            if after not in bounds:
                bounds[after] = _least_remaining_cost(after, near, family)
            if after not in best or best[after] > cost + price:
                bound = cost + price + bounds[after]
                waiting.setdefault(bound, []).append((cost + price, after, left, (*trials, trial), False))
    return None


_SearchStep = tuple[_Bits, tuple[int, int, int]]
"""One search step: the order of a `BitPermutation`; or an empty order, then register, leaves, enters of an `Exchange`."""
_SearchState = tuple[float, _Bits, _Bits, tuple[_SearchStep, ...], bool]
"""Price so far, bits of the lanes and registers, steps so far, and whether all but swaps have been tried from here."""


def _successors(
    lanes: _Bits, held: _Bits, near: int, family: Family, swaps: bool
) -> Iterator[tuple[_SearchStep, float, _Bits, _Bits]]:
    """The swaps from here, or every other step worth trying, each with its price and the bits after it."""
    if _UNWANTED not in lanes:
        order = tuple(lanes.index(bit) for bit in range(len(lanes)))
        is_near = all(a == b for a, b in enumerate(order) if a >= near or b >= near)
        yield (order, (0, 0, 0)), 1.0 if is_near or family == "zip" else _LOOKUP_COST, tuple(range(len(lanes))), held
        return
    exchanges = _exchanges(len(lanes), near, family, swaps)
    for register, bit in enumerate(held):
        if bit == _UNWANTED:
            continue
        for leaves, enters, price in exchanges:
            rest = lanes[:leaves] + lanes[leaves + 1 :]
            after = (*rest[:enters], bit, *rest[enters:])
            yield (
                ((), (register, leaves, enters)),
                price,
                after,
                (*held[:register], lanes[leaves], *held[register + 1 :]),
            )


def _least_remaining_cost(lanes: _Bits, near: int, family: Family) -> float:
    """A lower bound of the price left: a step for each missing bit, and for each bit past its place one or a permute.

    Interleaves only move bits up within the near positions, and each pushes the highest out: as many positions from
    above as near bits are missing are lost. Moves of 16-byte lanes enter at the top and only move bits down, so there
    the bits must come in the order of their places. No step takes a bit from the one to the other.
    Where registers are joined too, bits move both ways, so only the missing ones count.
    """
    if family == "zip":
        return lanes.count(_UNWANTED) or float(lanes != tuple(range(len(lanes))))
    inside, across, settled, highest, missing = 0, 0, 0, -1, (1 << len(lanes)) - 1
    for now, place in enumerate(lanes):
        if place == _UNWANTED:
            continue
        missing -= 1 << place
        if place < near and now < near:
            inside += now > place
            highest = now
        elif place >= near and now >= place:
            settled |= 1 << place
        else:
            across += 1
    far = missing >> near << near
    if far:
        beyond_first = -((far & -far) << 1)
        across += (settled & beyond_first).bit_count()
    inside = inside or int(highest >= min(near, len(lanes)) - (missing ^ far).bit_count())
    return missing.bit_count() + (min(across + inside, _LOOKUP_COST) if across else min(inside, 1))


@lru_cache(maxsize=64)
def _exchanges(width: int, near: int, family: Family, swaps: bool) -> tuple[tuple[int, int, float], ...]:
    """(leaves, enters, price) of exchanges worth trying on registers of 2^`width` lanes.

    Where swaps are dear (`punpck`), they are answered apart from the others.
    """
    if family == "zip":
        top, units = width - 1, range(min(near, width))
        ways = {way for unit in units for way in ((unit, unit), (unit, top), (top, unit))}
        return tuple((*way, 1.0) for way in sorted(ways))
    if swaps:
        return tuple((position, position, _LOOKUP_COST) for position in range(width))
    near = min(near, width)
    inside = [(near - 1, enters, 1.0) for enters in range(near)]
    across = [(leaves, width - 1, 1.0) for leaves in range(near, width)]
    return (*inside, *across)


def _without_bit(value: int, position: int) -> int:
    return (value >> (position + 1) << position) | (value & ((1 << position) - 1))


def _with_bit(value: int, position: int, bit: int) -> int:
    return (value >> position << (position + 1)) | (bit << position) | (value & ((1 << position) - 1))
