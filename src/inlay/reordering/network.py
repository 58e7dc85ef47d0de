"""The shuffle network: permuting index bits inside registers.

A tile of 2^r registers with 2^l lanes holds 2^(r+l) elements, each addressed by l lane bits and r register bits. The
loads fix which bit of which loop every one of these positions holds, the stores fix what they must hold; the network
is the sequence of register exchanges in between. One exchange takes the two registers that differ in one register bit
and deals their elements out to two new ones: in bits, the register bit enters the lanes at one position, the lanes
above shift up by one, and the bit that falls out at another position becomes the register bit.

    interleave two registers of 4 lanes:  a0 a1 a2 a3, b0 b1 b2 b3  ->  a0 b0 a1 b1, a2 b2 a3 b3
    lane bits (l0, l1), register bit r:   r enters at 0, l1 falls out:  lanes (r, l0), register l1

Which exchanges are cheap is a table per target; the sequence of least cost is found by A* search over the lane bits.
Register bits are free: where they end only decides to which address a register is stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import Literal

LANE_BYTES = 16
"""Bytes within which interleaves work on every target."""
_SEARCH_LIMIT = 20_000
_FAR = 2.5  # an exchange that is no interleave and no move of whole 16-byte lanes: a table look-up per element


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
class Permute:
    """Permute the lanes of every register alike."""

    order: tuple[int, ...]
    """Position i afterwards holds the bit that was at position order[i]."""

    def mask(self, width: int) -> tuple[int, ...]:
        """For each of `width` lanes, which old lane it takes."""
        return tuple(sum(((lane >> i) & 1) << old for i, old in enumerate(self.order)) for lane in range(width))


Step = Exchange | Permute


@dataclass(frozen=True, slots=True)
class Run:
    """An odd digit among the lanes: what lies in a row on one side is dealt out to registers by the digit's value.

    Of 3 x 16 pixels of red, green and blue in a row, three registers hold 48 values: dealt out, one holds the reds, one
    the greens, one the blues. No exchange of bits does it; each new register takes its lanes from all the old ones.
    """

    side: Literal["src", "dst"]
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
class Network:
    """A sequence of steps and what it does to the bits.

    Bits are numbered by where they start: 0..l-1 in the lanes, l..l+r-1 in the register bits.
    """

    steps: tuple[Step, ...]
    """In order of execution."""
    lanes: tuple[int, ...]
    """Which bit each lane position holds at the end."""
    registers: tuple[int, ...]
    """Which bit each register bit holds at the end."""

    @property
    def passes(self) -> tuple[tuple[Step, ...], ...]:
        """The steps in groups; between two groups the tile lies in memory.

        A tile of at most 16 registers is one group. A larger one is worked on in groups of 8, which measures faster
        than 16: the other half of the registers is free for what comes and goes.
        """
        most = 4 if len(self.registers) <= 4 else 3
        groups: list[list[Step]] = [[]]
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
                case Permute(order):
                    lines.append(f"  lane bits become {order}")
        return "\n".join(lines) or "  nothing to permute"


@lru_cache(maxsize=1024)
def shuffle_network(goal: tuple[int, ...], registers: int, near: int) -> Network | None:
    """The cheapest network that brings the bits `goal` to the lane positions, or None if none was found in time.

    Args:
        goal: the bit wanted at each lane position; bits 0..l-1 start in the lanes, the others in registers.
        registers: the number of register bits.
        near: how many of the lowest lane positions lie within one 16-byte lane.

    Post-condition: result.lanes == goal, and result.lanes + result.registers is a permutation of all bits.
    """
    width = len(goal)
    start = (tuple(range(width)), tuple(range(width, width + registers)))
    order = count()
    queue: list[tuple[float, int, float, _State, tuple[Step, ...]]] = [(0.0, next(order), 0.0, start, ())]
    best: dict[tuple[int, ...], float] = {}
    while queue and len(best) < _SEARCH_LIMIT:
        _, _, cost, (lanes, held), steps = heappop(queue)
        if lanes == goal:
            return Network(steps, lanes, held)
        if best.get(lanes, cost + 1) <= cost:
            continue
        best[lanes] = cost
        for step, price, state in _moves(lanes, held, goal, near):
            bound = cost + price + _remaining(state[0], goal, near)
            # Among equals the latest is tried first: the search runs straight down where every step helps.
            heappush(queue, (bound, -next(order), cost + price, state, (*steps, step)))
    return None


_State = tuple[tuple[int, ...], tuple[int, ...]]


def _moves(
    lanes: tuple[int, ...], held: tuple[int, ...], goal: tuple[int, ...], near: int
) -> Iterator[tuple[Step, float, _State]]:
    """Every step worth trying, with its price and the state after it."""
    if set(lanes) == set(goal):
        order = tuple(lanes.index(bit) for bit in goal)
        is_near = all(a == b for a, b in enumerate(order) if a >= near or b >= near)
        yield Permute(order), 1.0 if is_near else _FAR, (goal, held)
        return
    for register, bit in enumerate(held):
        if bit not in goal:
            continue
        for leaves, enters, price in _exchanges(len(lanes), near):
            step = Exchange(register, leaves, enters)
            after, out = step.apply(lanes, bit)
            yield step, price, (after, (*held[:register], out, *held[register + 1 :]))


def _remaining(lanes: tuple[int, ...], goal: tuple[int, ...], near: int) -> float:
    """A lower bound of the price left: a step for each missing bit, and for each bit past its place one or a permute.

    Interleaves only move bits up within the near positions. Moves of 16-byte lanes enter at the top and only move
    bits down, so there the bits must come in the order of their places. No step takes a bit from the one to the other.
    """
    missing, inside, across, first_missing = 0, 0, 0, len(goal)
    for place, bit in enumerate(goal):
        if bit not in lanes:
            missing += 1
            first_missing = min(first_missing, place) if place >= near else first_missing
            continue
        now = lanes.index(bit)
        if place < near and now < near:
            inside += now > place
        elif place >= near and now >= near:
            across += now < place or place > first_missing
        else:
            across += 1
    return missing + (min(across + inside, _FAR) if across else min(inside, 1))


@lru_cache(maxsize=64)
def _exchanges(width: int, near: int) -> tuple[tuple[int, int, float], ...]:
    """(leaves, enters, price) of the exchanges worth trying on registers of 2^`width` lanes."""
    near = min(near, width)
    inside = [(near - 1, enters, 1.0) for enters in range(near)]
    across = [(leaves, width - 1, 1.0) for leaves in range(near, width)]
    swaps = [(position, position, _FAR) for position in range(width)]
    return (*swaps, *inside, *across)


def _without_bit(value: int, position: int) -> int:
    return (value >> (position + 1) << position) | (value & ((1 << position) - 1))


def _with_bit(value: int, position: int, bit: int) -> int:
    return (value >> position << (position + 1)) | (bit << position) | (value & ((1 << position) - 1))
