"""Random non-layouts are diagnosed by the right rule, and spoiled packers by their first wrong byte."""

import random
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.data_type import DATA_TYPES
from inlay.inference import Diagnosis, infer, verify
from tests.support.random_packers import KINDS, RandomLayout, draw_packed_layout

QUICK = 70
FULL = 200
Array = npt.NDArray[Any]
Fault = tuple[Array, set[str], set[int]]
"""Places of the elements, the rules that describe them, and the elements that must be named."""


def draw_large(rng: random.Random) -> RandomLayout:
    while True:
        drawn = draw_packed_layout(rng, rng.choice(KINDS[:4]))
        if prod(drawn.dims) >= 24 and drawn.data_type.bits >= 8:
            return drawn


def exchanged(rng: random.Random, places: Array, dims: tuple[int, ...]) -> Fault:
    a, b = sorted(rng.sample(range(len(places)), 2))
    places[[a, b]] = places[[b, a]]
    return places, {"exchanged"}, {a, b}


def overlapping(rng: random.Random, places: Array, dims: tuple[int, ...]) -> Fault:
    a, b = rng.sample(range(len(places)), 2)
    places[a] = places[b]
    # The later element overwrites the earlier one; where it is in its own place, it cannot be told from a lost one.
    return places, {"overlap"} if a > b else {"lost"}, {a, b} if a > b else {a}


def lost(rng: random.Random, places: Array, dims: tuple[int, ...]) -> Fault:
    a = rng.randrange(len(places))
    places[a] = -1
    return places, {"lost"}, {a}


def shuffled(rng: random.Random, places: Array, dims: tuple[int, ...]) -> Fault:
    order = list(range(len(places)))
    rng.shuffle(order)
    return places[order], {"coordinates", "digits"}, set()


def skewed(rng: random.Random, places: Array, dims: tuple[int, ...]) -> Fault:
    """Rows that are rotated by their number; the width is no power of two."""
    width = rng.choice((5, 7, 9, 11))
    rows = np.arange(len(places)) // width
    return rows * width + (np.arange(len(places)) + rows) % width, {"coordinates", "digits"}, set()


def mixed_bits(rng: random.Random, places: Array, dims: tuple[int, ...]) -> Fault:
    """Each place bit is an index bit, and one is the XOR of three: no swizzle does that."""
    width = rng.randint(5, 9)
    order = rng.sample(range(width), width)
    target, first, second = rng.sample(range(width), 3)
    index = np.arange(1 << width)
    bits = [index >> source & 1 for source in order]
    bits[target] = bits[target] ^ bits[first] ^ bits[second]
    return sum(bit << k for k, bit in enumerate(bits)), {"xor"}, set()  # type: ignore[return-value]


FAULTS: tuple[Callable[[random.Random, Array, tuple[int, ...]], Fault], ...] = (
    exchanged,
    overlapping,
    lost,
    shuffled,
    skewed,
    mixed_bits,
)


def check_fault(seed: int) -> None:
    rng = random.Random(seed)
    make = FAULTS[seed % len(FAULTS)]
    drawn = draw_large(rng)
    dims, data_type, length = drawn.dims, drawn.data_type, drawn.length
    if make is skewed:
        places, rules, named = make(rng, np.arange(11 * 9 * 7 * 5), dims)
        dims = (len(places),)
    elif make is mixed_bits:
        places, rules, named = make(rng, np.arange(1), dims)
        dims = (len(places),)
    else:
        places, rules, named = make(rng, drawn.places(dims).reshape(-1), dims)
    length = max(length, int(places.max()) + 1)

    def pack(array: Array, buffer: Array) -> None:
        for value, place in zip(array.reshape(-1), places.tolist(), strict=True):
            if place >= 0:
                buffer[place] = value

    found = infer(pack, dims, data_type, length=length)
    assert isinstance(found, Diagnosis), (seed, found)
    assert found.rule in rules, (seed, found)
    assert named <= set(found.elements), (seed, found)


def test_random_faults_are_diagnosed() -> None:
    for seed in range(QUICK):
        check_fault(seed)


@pytest.mark.heavy
def test_two_hundred_random_faults_are_diagnosed() -> None:
    for seed in range(QUICK, QUICK + FULL):
        check_fault(seed)


# Spoiled packers


def check_spoiled(seed: int) -> None:
    """A byte of an element or of padding that is changed after packing is named, exactly."""
    rng = random.Random(seed)
    drawn = draw_packed_layout(rng, KINDS[seed % 4])
    if drawn.data_type.bits < 8:
        drawn = RandomLayout(
            **{**{k: getattr(drawn, k) for k in drawn.__dataclass_fields__}, "data_type": DATA_TYPES["u8"]}
        )
    itemsize = drawn.data_type.itemsize
    place = rng.choice(drawn.places(drawn.padded).reshape(-1).tolist())
    byte = place * itemsize + rng.randrange(itemsize)
    later = [p for p in drawn.places(drawn.padded).reshape(-1).tolist() if p > place]
    flips = [byte, *(rng.sample(later, 1) and [rng.choice(later) * itemsize] if later else [])]

    def pack(array: Array, buffer: Array) -> None:
        drawn.pack(array, buffer)
        for at in flips:
            buffer.view(np.uint8)[at] ^= 0x10

    result = verify(drawn.desc, pack, length=drawn.length)
    assert not result
    assert result.byte == byte, (seed, result)
    array = np.zeros(drawn.dims, np.uint8).repeat(itemsize, axis=-1).view(drawn.data_type.dtype)
    buffer = np.zeros(drawn.length, drawn.data_type.dtype)
    pack(array, buffer)
    compared = verify(drawn.desc, buffer, array)
    assert compared.byte == byte, (seed, compared)


def check_exchange(seed: int) -> None:
    """Two exchanged elements: the lower place is named, and the first of the two elements with both places."""
    rng = random.Random(seed)
    drawn = draw_large(rng)
    places, _, named = exchanged(rng, drawn.places(drawn.dims).reshape(-1), drawn.dims)

    def pack(array: Array, buffer: Array) -> None:
        drawn.pack(array, buffer)
        buffer[places] = array.reshape(-1)

    result = verify(drawn.desc, pack, length=drawn.length)
    first, second = sorted(named)
    right = drawn.places(drawn.dims).reshape(-1)
    assert result.byte is not None
    assert result.byte // drawn.data_type.itemsize == min(right[first], right[second])
    assert result.coordinate == tuple(int(x) for x in np.unravel_index(first, drawn.dims))
    assert (result.expected, result.found) == (right[first], right[second])


def test_the_first_wrong_byte_of_spoiled_packers_is_named() -> None:
    for seed in range(QUICK):
        check_spoiled(seed)
        check_exchange(seed)


@pytest.mark.heavy
def test_the_first_wrong_byte_of_two_hundred_spoiled_packers_is_named() -> None:
    for seed in range(QUICK, QUICK + FULL):
        check_spoiled(seed)
        check_exchange(seed)
