"""The shuffle network: its effect on bits agrees with its effect on elements, and its cost is least."""

from itertools import permutations, product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.reordering.instructions import Family
from inlay.reordering.network import (
    BitPermutation,
    Deinterleave,
    Exchange,
    ShuffleNetwork,
    ShuffleStep,
    find_shuffle_network,
)

Bits = tuple[int, ...]
Case = tuple[Bits, int, int, Family]
"""The bits that the lanes should hold, the number of register bits, the near lanes, and the instructions there are."""


@st.composite
def goals(draw: st.DrawFn) -> Case:
    lanes = draw(st.integers(0, 6))
    registers = draw(st.integers(0, min(lanes, 5)))
    bits = draw(st.permutations(range(lanes + registers)))
    family: Family = draw(st.sampled_from(["punpck", "zip"]))
    least = min(lanes, family == "zip")  # a unit of 8 bytes holds one element at least
    return tuple(bits[:lanes]), registers, draw(st.integers(least, min(lanes, 4))), family


def found(goal: Bits, registers: int, near: int, family: Family = "punpck") -> ShuffleNetwork:
    network = find_shuffle_network(goal, registers, near, family)
    assert network is not None
    return network


def run(network: ShuffleNetwork, width: int, count: int) -> list[list[int]]:
    """Return the numbered elements of a tile after the network, by list operations."""
    registers = [[r * width + lane for lane in range(width)] for r in range(count)]
    for step in network.steps:
        if isinstance(step, BitPermutation):
            registers = [[old[i] for i in step.mask(width)] for old in registers]
            continue
        assert isinstance(step, Exchange)
        for r in range(count):
            if not r >> step.register & 1:
                other = r | 1 << step.register
                both = registers[r] + registers[other]
                registers[r], registers[other] = ([both[i] for i in mask] for mask in step.masks(width))
    return registers


def expected(network: ShuffleNetwork, width: int, count: int) -> list[list[int]]:
    """Return the elements that the final bits predict."""
    bits = (*network.lanes, *network.registers)
    origins = [sum((i >> place & 1) << bit for place, bit in enumerate(bits)) for i in range(width * count)]
    return [origins[i : i + width] for i in range(0, width * count, width)]


@given(goals())
def test_network_brings_the_goal_into_the_lanes(case: Case) -> None:
    goal, registers, near, family = case
    network = found(*case)
    assert network.lanes == goal
    assert sorted(network.lanes + network.registers) == list(range(len(goal) + registers))
    width, count = 1 << len(goal), 1 << registers
    assert run(network, width, count) == expected(network, width, count)
    assert tuple(step for group in network.passes for step in group) == network.steps
    for group in network.passes:  # few registers stay alive
        assert len({step.register for step in group if isinstance(step, Exchange)}) <= (4 if registers <= 4 else 3)
    for step in network.steps if family == "zip" else ():  # zip, trn or uzp of units of 8 bytes at most
        if isinstance(step, Exchange):
            assert min(step.leaves, step.enters) < near
            assert step.leaves == step.enters or len(goal) - 1 in (step.leaves, step.enters)


@pytest.mark.parametrize(
    ("goal", "registers", "near", "family", "steps"),
    [
        ((4, 5, 6, 7), 4, 2, "punpck", 4),  # 16 x 16 of 32 bits
        ((5, 6, 7, 8, 9), 5, 3, "punpck", 5),  # 32 x 32 of 16 bits
        ((6, 7, 8, 9, 10, 11), 6, 4, "punpck", 6),  # 64 x 64 of 8 bits
        ((6, 7, 0, 1, 2, 3), 2, 4, "punpck", 4),  # BA16a64b4a of bytes
        ((0, 1, 6, 7, 8, 9), 4, 4, "punpck", 4),  # OIhw4i16o4i of bytes from a 1 x 1 kernel
        ((0, 1, 2, 3), 0, 2, "punpck", 0),
        ((4, 5, 6, 7), 4, 2, "zip", 4),  # 16 x 16 of 32 bits in registers of 64 bytes
        ((5, 6, 7, 8, 9), 5, 4, "zip", 5),  # 32 x 32 of 8 bits in registers of 32
        ((6, 7, 0, 1, 2, 3), 2, 4, "zip", 2),  # BA16a64b4a of bytes: two interleaves over the whole register
        ((0, 1, 2, 4), 1, 4, "zip", 1),  # the highest bit of a register of 16 bytes: one swap of its halves
        ((1, 2, 3, 0), 0, 3, "zip", 1),
        *((goal, 0, 2, "punpck", int(goal != (0, 1, 2, 3))) for goal in permutations(range(4))),
    ],
)
def test_known_networks_have_the_least_steps(goal: Bits, registers: int, near: int, family: Family, steps: int) -> None:
    network = found(goal, registers, near, family)
    assert len(network.steps) == steps
    if family == "punpck":
        assert not any(isinstance(step, Exchange) and step.leaves == step.enters < near - 1 for step in network.steps)


def test_interleave_is_what_the_docstring_draws() -> None:
    low, high = Exchange(register=0, leaves=1, enters=0).masks(4)
    assert (low, high) == ((0, 4, 1, 5), (2, 6, 3, 7))
    assert Exchange(0, 1, 0).apply((0, 1), 2) == ((2, 0), 1)


def test_the_checker_rejects_a_wrong_network() -> None:
    network = found((2, 3), 2, 2)
    wrong = ShuffleNetwork(network.steps[:-1], network.lanes, network.registers)
    assert run(wrong, 4, 4) != expected(wrong, 4, 4)


def test_a_network_prints_its_steps() -> None:
    assert str(found((2, 3), 2, 2)) == (
        "  register bit 1 enters lane bit 0, lane bit 1 leaves\n  register bit 0 enters lane bit 0, lane bit 1 leaves"
    )
    assert str(found((0, 1), 0, 2)) == "  nothing to permute"


@given(st.sampled_from([3, 5, 7, 9, 25]), st.integers(1, 6), st.data())
def test_an_odd_digit_is_dealt_out_and_gathered(extent: int, lanes: int, data: st.DataObject) -> None:
    below = data.draw(st.integers(0, lanes - 1))
    unit, width = 1 << below, 1 << lanes
    in_a_row = [divmod(place, width) for place in range(extent * width)]
    dealt = [Deinterleave("src", extent, below).sources(r, lanes) for r in range(extent)]
    for value, register in enumerate(dealt):
        assert list(register) == [place for i, place in enumerate(in_a_row) if i // unit % extent == value]
    gathered = [Deinterleave("dst", extent, below).sources(r, lanes) for r in range(extent)]
    assert [dealt[of][lane] for register in gathered for of, lane in register] == in_a_row


Places = tuple[Bits, Bits]
"""The bits in the lanes, and those in the register bits."""


def least_price(goal: Bits, registers: int, near: int) -> float:
    """Return the least cost of a network by Dijkstra's algorithm, without a lower bound."""
    start: Places = (tuple(range(len(goal))), tuple(range(len(goal), len(goal) + registers)))
    prices: dict[Places, float] = {start: 0.0}
    settled: set[Places] = set()
    while True:
        lanes, held = min(prices.keys() - settled, key=lambda places: prices[places])
        if lanes == goal:
            return prices[lanes, held]
        settled.add((lanes, held))
        for after, price in steps_from(lanes, held, goal, near):
            prices[after] = min(prices.get(after, inf), prices[lanes, held] + price)


def steps_from(lanes: Bits, held: Bits, goal: Bits, near: int) -> list[tuple[Places, float]]:
    """Return the steps from a state with their costs: a permutation if no bit is missing, else useful exchanges."""
    steps: list[tuple[Places, float]] = []
    if set(lanes) == set(goal):
        order = BitPermutation(tuple(lanes.index(bit) for bit in goal))
        steps.append(((goal, held), price_of(order, near, len(goal))))
    for register, bit in enumerate(held):
        for leaves, enters in product(range(len(lanes)), repeat=2):
            exchange = Exchange(register, leaves, enters)
            price = price_of(exchange, near, len(goal))
            if bit in goal and price < inf:
                after, out = exchange.apply(lanes, bit)
                steps.append(((after, (*held[:register], out, *held[register + 1 :])), price))
    return steps


def price_of(step: ShuffleStep, near: int, width: int) -> float:
    """Return the cost of a step: 1 within 16-byte lanes and for moves of whole lanes, 2.5 for all others."""
    match step:
        case BitPermutation(order):
            return 1.0 if all(old == new or max(old, new) < near for new, old in enumerate(order)) else 2.5
        case Exchange(_, leaves, enters):
            is_interleave = leaves == near - 1 and enters < near
            moves_lanes = leaves >= near and enters == width - 1
            return 1.0 if is_interleave or moves_lanes else 2.5 if leaves == enters else inf


@given(st.data())
def test_no_cheaper_network_exists(data: st.DataObject) -> None:
    lanes = data.draw(st.integers(0, 4))
    registers = data.draw(st.integers(0, min(lanes, 2 if lanes == 4 else 3)))
    goal = tuple(data.draw(st.permutations(range(lanes + registers)))[:lanes])
    near = data.draw(st.integers(0, lanes))
    price = sum(price_of(step, near, lanes) for step in found(goal, registers, near).steps)
    assert price == least_price(goal, registers, near)
