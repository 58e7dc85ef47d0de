"""Runs of padding: compiled code and NumPy write and compare the same bytes, for any size, stride and axes."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, check_padding, fill_padding, padding_runs, zero_padding
from inlay.memory.padding_code import run_functions
from inlay.memory.padding_contents import Filled
from inlay.memory.padding_runs import ByteRuns, call_compiled, fill_runs, has_only, runs_of

LARGE = MemoryDesc((3, 17, 30, 31), "f32", "nChw8c")


@st.composite
def strided_runs(draw: st.DrawFn) -> tuple[ByteRuns, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Draw runs of elements in a buffer of random bytes, where axes have gaps and may run backwards, and an element."""
    itemsize = draw(st.sampled_from([1, 2, 4, 8, 16]))
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=5)))
    distance, strides, start = itemsize * draw(st.integers(1, 40)), [], draw(st.integers(0, 9))
    inner = distance // itemsize - draw(st.integers(0, distance // itemsize - 1))
    for extent in reversed(shape):
        is_backward = draw(st.booleans())
        strides.append(-distance if is_backward else distance)
        start += (extent - 1) * distance if is_backward else 0
        distance = distance * extent + itemsize * draw(st.integers(0, 2))
    runs = runs_of(start, (*shape, inner), (*reversed(strides), itemsize), itemsize)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    buffer = random.integers(0, 256, distance + start + 70, np.uint8)
    return runs, buffer, random.integers(0, 256, itemsize, np.uint8) * draw(st.integers(0, 1))


def bytes_of(runs: ByteRuns) -> np.ndarray[Any, Any]:
    """Return the offset of each byte, run by run."""
    starts = [
        runs.start + sum(i * s for i, s in zip(index, runs.strides, strict=True))
        for index in product(*map(range, runs.shape))
    ]
    return np.array(starts)[:, np.newaxis] + np.arange(runs.nbytes)


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Compiled code for runs of any size, or NumPy for all."""
    functions = run_functions() if request.param == "compiled" else None
    monkeypatch.setattr(padding_runs, "COMPILED_FROM", 0)
    monkeypatch.setattr(padding_runs, "run_functions", lambda: functions)
    return str(request.param)


@settings(max_examples=200, deadline=None)
@given(drawn=strided_runs(), at=st.integers(0, 1 << 30), bit=st.integers(0, 7))
def check_both_functions(drawn: tuple[Any, ...], at: int, bit: int) -> None:
    """Filling writes the element into each run and nothing else; one changed bit is found in a run, and only there."""
    runs, buffer, element = drawn
    places = bytes_of(runs)
    expected = buffer.copy()
    expected[places] = np.tile(element, runs.nbytes // element.size)
    assert runs.size == places.size
    fill_runs(runs, buffer, element)
    assert buffer.tobytes() == expected.tobytes()
    assert has_only(runs, buffer, element)
    buffer[at % buffer.size] ^= 1 << bit
    assert has_only(runs, buffer, element) == (at % buffer.size not in places)
    buffer[at % buffer.size] ^= 1 << bit
    buffer[places.flat[at % places.size]] ^= 1 << bit
    assert not has_only(runs, buffer, element)


def test_both_functions_agree_with_single_bytes(way: str) -> None:
    """Both ways have the same results as Python loops over bytes."""
    is_compiled = call_compiled("differs", runs_of(0, (1,), (1,), 1), np.zeros(1, np.uint8), np.zeros(1, np.uint8))
    assert (is_compiled is not None) == (way == "compiled")
    check_both_functions()


@pytest.mark.parametrize("value", [0, 1.5])
def test_a_single_lane_of_large_padding_is_found(way: str, value: float) -> None:
    """The first, a middle and the last lane of padding of several axes."""
    memory = Memory(LARGE)
    fill_padding(memory, value)
    elements = memory.buffer.view(np.float32)
    for coordinate in ((0, 17, 0, 0), (1, 20, 15, 16), (2, 23, 29, 30)):
        offset = int(LARGE.offset(coordinate))
        elements[offset] = 7
        report = check_padding(memory, Filled(value))
        assert (report.dirty, report.first[0].coordinate) == (1, coordinate)
        elements[offset] = value
    assert check_padding(memory, Filled(value)).is_clean


def test_negative_zeros_of_large_padding_are_clean(way: str) -> None:
    """-0.0 counts as zero, and becomes 0 when zeros are written."""
    memory = Memory(LARGE)
    fill_padding(memory, -0.0)
    assert memory.buffer.any()
    assert check_padding(memory).is_clean
    zero_padding(memory)
    assert not memory.buffer.any()


def test_a_value_without_a_hash_is_checked() -> None:
    """NumPy's arrays of no axes are numbers too."""
    memory = Memory(LARGE)
    fill_padding(memory, 1.5)
    assert check_padding(memory, Filled(np.array(1.5))).is_clean
    assert not check_padding(memory, Filled(np.array(2.5))).is_clean


def test_large_padding_is_handled_by_compiled_code() -> None:
    """Machine code is loaded for large runs without further conditions."""
    runs = runs_of(0, (1 << 12, 28), (32, 1), 1)
    assert runs.size >= padding_runs.COMPILED_FROM
    assert call_compiled("differs", runs, np.zeros(1 << 17, np.uint8), np.zeros(1, np.uint8)) is False
