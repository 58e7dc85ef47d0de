"""The shuffle network: its effect on bits agrees with its effect on elements, and its cost is least."""

from itertools import permutations, product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.reordering.network import (
    BitPermutation,
    Deinterleave,
    Exchange,
    Family,
    ShuffleNetwork,
    ShuffleStep,
    find_shuffle_network,
)

Case = tuple[tuple[int, ...], int, int, Family]


@st.composite
def goals(draw: st.DrawFn) -> Case:
    lanes = draw(st.integers(0, 6))
    registers = draw(st.integers(0, min(lanes, 5)))
    bits = draw(st.permutations(range(lanes + registers)))
    family: Family = draw(st.sampled_from(["punpck", "zip"]))
    least = min(lanes, family == "zip")  # a unit of 8 bytes holds one element at least
    return tuple(bits[:lanes]), registers, draw(st.integers(least, min(lanes, 4))), family


def run(network: ShuffleNetwork, width: int, count: int) -> list[list[int]]:
    """Return the numbered elements of a tile after the network, by list operations."""
    registers = [[r * width + lane for lane in range(width)] for r in range(count)]
    for step in network.steps:
        if isinstance(step, BitPermutation):
            registers = [[old[i] for i in step.mask(width)] for old in registers]
            continue
        assert isinstance(step, Exchange)
        masks = step.masks(width)
        for r in range(count):
            if not r >> step.register & 1:
                both = registers[r] + registers[r | 1 << step.register]
                registers[r], registers[r | 1 << step.register] = ([both[i] for i in mask] for mask in masks)
    return registers


def expected(network: ShuffleNetwork, width: int, count: int) -> list[list[int]]:
    """Return the elements that the final bits predict."""
    bits = (*network.lanes, *network.registers)

    def origin(position: int) -> int:
        return sum((position >> place & 1) << bit for place, bit in enumerate(bits))

    return [[origin(r * width + lane) for lane in range(width)] for r in range(count)]


@given(goals())
def test_network_brings_the_goal_into_the_lanes(case: Case) -> None:
    goal, registers, _, _ = case
    network = find_shuffle_network(*case)
    assert network is not None
    assert network.lanes == goal
    assert sorted(network.lanes + network.registers) == list(range(len(goal) + registers))


@given(goals())
def test_network_moves_elements_as_its_bits_say(case: Case) -> None:
    goal, registers, _, _ = case
    network = find_shuffle_network(*case)
    assert network is not None
    width, count = 1 << len(goal), 1 << registers
    assert run(network, width, count) == expected(network, width, count)


@given(goals())
def test_passes_are_the_steps_and_keep_few_registers_alive(case: Case) -> None:
    registers = case[1]
    network = find_shuffle_network(*case)
    assert network is not None
    assert tuple(step for group in network.passes for step in group) == network.steps
    for group in network.passes:
        assert len({step.register for step in group if isinstance(step, Exchange)}) <= (4 if registers <= 4 else 3)


@pytest.mark.parametrize(
    ("goal", "registers", "near", "steps"),
    [
        ((4, 5, 6, 7), 4, 2, 4),  # 16 x 16 of 32 bits
        ((5, 6, 7, 8, 9), 5, 3, 5),  # 32 x 32 of 16 bits
        ((6, 7, 8, 9, 10, 11), 6, 4, 6),  # 64 x 64 of 8 bits
        ((6, 7, 0, 1, 2, 3), 2, 4, 4),  # BA16a64b4a of bytes
        ((0, 1, 6, 7, 8, 9), 4, 4, 4),  # OIhw4i16o4i of bytes from a 1 x 1 kernel
        ((0, 1, 2, 3), 0, 2, 0),
    ],
)
def test_known_networks_have_the_least_steps(goal: tuple[int, ...], registers: int, near: int, steps: int) -> None:
    network = find_shuffle_network(goal, registers, near)
    assert network is not None
    assert len(network.steps) == steps
    assert not any(isinstance(step, Exchange) and step.leaves == step.enters < near - 1 for step in network.steps)


@pytest.mark.parametrize(
    ("goal", "registers", "near", "steps"),
    [
        ((4, 5, 6, 7), 4, 2, 4),  # 16 x 16 of 32 bits in registers of 64 bytes
        ((5, 6, 7, 8, 9), 5, 4, 5),  # 32 x 32 of 8 bits in registers of 32
        ((6, 7, 0, 1, 2, 3), 2, 4, 2),  # BA16a64b4a of bytes: two interleaves over the whole register
        ((0, 1, 2, 4), 1, 4, 1),  # the highest bit of a register of 16 bytes: one swap of its halves
        ((1, 2, 3, 0), 0, 3, 1),
    ],
)
def test_known_networks_of_aarch64_have_the_least_steps(
    goal: tuple[int, ...], registers: int, near: int, steps: int
) -> None:
    network = find_shuffle_network(goal, registers, near, "zip")
    assert network is not None
    assert len(network.steps) == steps


@given(goals())
def test_aarch64_exchanges_are_zip_trn_or_uzp_of_units_of_8_bytes_at_most(case: Case) -> None:
    goal, _, near, family = case
    network = find_shuffle_network(*case)
    assert network is not None
    top = len(goal) - 1
    for step in network.steps if family == "zip" else ():
        if isinstance(step, Exchange):
            ways = (step.leaves, step.enters)
            assert min(ways) < near
            assert ways[0] == ways[1] or top in ways


@pytest.mark.parametrize("goal", list(permutations(range(4))))
def test_a_permutation_of_the_lanes_is_one_step(goal: tuple[int, ...]) -> None:
    network = find_shuffle_network(goal, 0, 2)
    assert network is not None
    assert len(network.steps) == (goal != (0, 1, 2, 3))


def test_interleave_is_what_the_docstring_draws() -> None:
    low, high = Exchange(register=0, leaves=1, enters=0).masks(4)
    assert (low, high) == ((0, 4, 1, 5), (2, 6, 3, 7))
    assert Exchange(0, 1, 0).apply((0, 1), 2) == ((2, 0), 1)


def test_the_checker_rejects_a_wrong_network() -> None:
    network = find_shuffle_network((2, 3), 2, 2)
    assert network is not None
    wrong = ShuffleNetwork(network.steps[:-1], network.lanes, network.registers)
    assert run(wrong, 4, 4) != expected(wrong, 4, 4)


def test_a_network_prints_its_steps() -> None:
    assert str(find_shuffle_network((2, 3), 2, 2)) == (
        "  register bit 1 enters lane bit 0, lane bit 1 leaves\n  register bit 0 enters lane bit 0, lane bit 1 leaves"
    )
    assert str(find_shuffle_network((0, 1), 0, 2)) == "  nothing to permute"


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


Places = tuple[tuple[int, ...], tuple[int, ...]]
"""The bits in the lanes, and those in the register bits."""


def least_price(goal: tuple[int, ...], registers: int, near: int) -> float:
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


def steps_from(
    lanes: tuple[int, ...], held: tuple[int, ...], goal: tuple[int, ...], near: int
) -> list[tuple[Places, float]]:
    """Yield the steps from a state with their costs: a permutation if no bit is missing, else useful exchanges."""
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
            swaps = leaves == enters
            return 1.0 if is_interleave or moves_lanes else 2.5 if swaps else inf


@given(st.data())
def test_no_cheaper_network_exists(data: st.DataObject) -> None:
    lanes = data.draw(st.integers(0, 4))
    registers = data.draw(st.integers(0, min(lanes, 2 if lanes == 4 else 3)))
    goal = tuple(data.draw(st.permutations(range(lanes + registers)))[:lanes])
    near = data.draw(st.integers(0, lanes))
    network = find_shuffle_network(goal, registers, near)
    assert network is not None
    price = sum(price_of(step, near, lanes) for step in network.steps)
    assert price == least_price(goal, registers, near)
