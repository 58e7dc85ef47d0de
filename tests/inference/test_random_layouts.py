"""Random layouts, from packers that share no code with Inlay, are inferred exactly; each within a second."""

import random
import shutil
import time
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from inlay.data_type import DATA_TYPES
from inlay.inference import Diagnosis, InferredLayout, infer, verify
from tests.support.random_packers import KINDS, RandomLayout, compile_packers, draw_packed_layout

QUICK = 250
FULL = 1000


def draw_visible(seed: int) -> RandomLayout:
    """A layout in which every digit takes two values, so that only one answer is right."""
    rng = random.Random(seed)
    while True:
        drawn = draw_packed_layout(rng, KINDS[seed % len(KINDS)])
        if drawn.is_visible:
            return drawn


def all_coordinates(dims: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.indices(dims).reshape(len(dims), -1).T


def assert_same_places(found: InferredLayout | Diagnosis, drawn: RandomLayout) -> None:
    """Elements are in the same places, and padding occupies the same places."""
    assert isinstance(found, InferredLayout), found
    assert np.array_equal(found.desc.offset(all_coordinates(drawn.dims)), drawn.places(drawn.dims).reshape(-1))
    padded = found.desc.offset(all_coordinates(found.desc.padded_dims))
    assert np.array_equal(np.sort(padded), np.sort(drawn.places(drawn.padded).reshape(-1)))


def assert_exact(found: InferredLayout | Diagnosis, drawn: RandomLayout) -> None:
    assert_same_places(found, drawn)
    assert isinstance(found, InferredLayout)
    assert found.desc.padded_dims == drawn.padded
    swizzle = found.swizzle
    assert (swizzle and (swizzle.bits, swizzle.base, swizzle.shift)) == drawn.swizzle
    assert found.desc.equivalent(drawn.desc)
    if drawn.kind == "tag":
        assert found.tag is not None
        assert type(found.desc)(drawn.dims, drawn.data_type, found.tag).equivalent(drawn.desc)
        assert found.pitch is None


def check(seed: int) -> None:
    drawn = draw_visible(seed)
    began = time.monotonic()
    found = infer(drawn.pack, drawn.dims, drawn.data_type, length=drawn.length)
    assert time.monotonic() - began < 1
    assert_exact(found, drawn)


def test_random_layouts_are_inferred_from_numpy_packers() -> None:
    for seed in range(QUICK):
        check(seed)


@pytest.mark.heavy
def test_a_thousand_random_layouts_are_inferred_from_numpy_packers() -> None:
    for seed in range(QUICK, QUICK + FULL):
        check(seed)


def check_compiled(layouts: list[RandomLayout], directory: Path) -> None:
    for drawn, function in zip(layouts, compile_packers(layouts, directory), strict=True):
        assert_exact(infer(function, drawn.dims, drawn.data_type, length=drawn.length), drawn)


def whole_bytes(seeds: range) -> list[RandomLayout]:
    return [drawn for drawn in map(draw_visible, seeds) if drawn.data_type.bits >= 8]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_random_layouts_are_inferred_from_c_packers(tmp_path: Path) -> None:
    check_compiled(whole_bytes(range(5000, 5060)), tmp_path)


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_many_random_layouts_are_inferred_from_c_packers(tmp_path: Path) -> None:
    layouts = whole_bytes(range(6000, 6500))
    assert len(layouts) > 300
    check_compiled(layouts, tmp_path)


def test_ambiguous_layouts_have_the_same_places_and_one_answer() -> None:
    count = 0
    for seed in range(200):
        drawn = draw_packed_layout(random.Random(seed), KINDS[seed % len(KINDS)])
        if drawn.is_visible:
            continue
        count += 1
        found = infer(drawn.pack, drawn.dims, drawn.data_type, length=drawn.length)
        assert_same_places(found, drawn)
        again = infer(drawn.pack, drawn.dims, drawn.data_type, length=drawn.length)
        assert found == again
    assert count > 40


@pytest.mark.parametrize("seed", range(0, 100, 7))
def test_tables_show_the_same_as_packers(seed: int) -> None:
    drawn = draw_visible(seed)
    places = drawn.places(drawn.dims)
    inverse = np.full(drawn.length, -1)
    inverse[places.reshape(-1)] = np.arange(prod(drawn.dims))
    for table, kind in ((places, "logical"), (inverse, "physical")):
        found = infer(table, drawn.dims, drawn.data_type, table=kind)  # type: ignore[call-overload]
        assert isinstance(found, InferredLayout)
        assert np.array_equal(found.desc.offset(all_coordinates(drawn.dims)), places.reshape(-1))


def test_pairs_show_the_same_though_padding_has_the_value_of_an_element() -> None:
    count = 0
    for seed in range(100):
        drawn = replace(draw_visible(seed), data_type=DATA_TYPES["s32"])
        if prod(drawn.dims) <= 8:  # any place of one element then makes a layout
            continue
        count += 1
        array = np.random.default_rng(seed).permutation(prod(drawn.dims)).astype(np.int32).reshape(drawn.dims)
        buffer = np.zeros(drawn.length, np.int32)
        drawn.pack(array, buffer)
        found = infer(buffer, drawn.dims, logical=array)
        assert isinstance(found, InferredLayout), (seed, found)
        places = found.desc.offset(all_coordinates(drawn.dims))
        assert np.array_equal(places, drawn.places(drawn.dims).reshape(-1)), (seed, found)
    assert count > 60


@pytest.mark.parametrize("seed", range(60))
def test_packers_are_verified(seed: int) -> None:
    drawn = draw_packed_layout(random.Random(seed), KINDS[seed % len(KINDS)])
    result = verify(drawn.desc, drawn.pack, length=drawn.length)
    assert result, result
