"""Ranges hold what networks compute, guards suffice, and the scan finds what is over a bound."""

from math import inf
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import OpGraph
from inlay.graph.passes.range_guards import GUARDED, THRESHOLD, _GuardPlacement, place_guards
from inlay.graph.passes.value_ranges import ANY, ValueRange, bounded, hull, range_of_array, signed_sums
from inlay.graph.runtime import guards
from inlay.graph.runtime.guards import GuardFailed, build_guards, exceeds, guard
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.network_cases import networks
from tests.support.networks import Model
from tests.support.written_models import written_model


def infer_ranges(graph: OpGraph) -> dict[str, ValueRange]:
    """The range of every tensor where all inputs are guarded."""
    placement = _GuardPlacement(graph, {}, frozenset(), {}, dict.fromkeys(graph.inputs, GUARDED))
    placement.initialize()
    placement.ranges |= dict.fromkeys(graph.inputs, GUARDED)
    for i, op in enumerate(graph.ops):
        placement.ranges |= dict.fromkeys(op.writes.values(), ANY)
        placement.advance(placement.ranges, i)
    return placement.ranges


def require_within(graph: OpGraph, scale: float) -> None:
    """Every element of a run is in the range of its tensor, with guards on the inputs alone."""
    rng = np.random.default_rng(0)
    inputs = {name: rng.uniform(-scale, scale, graph.tensors[name].dims).astype(np.float32) for name in graph.inputs}
    ranges = infer_ranges(graph)
    with np.errstate(all="ignore"):
        found = ProgramSession(plain_program(graph), graph, engine="reference").trace(inputs)
    for name, array in found.items():
        known = ranges[name]
        if array.dtype == np.float32 and not known.may_be_nan:
            assert not np.isnan(array).any(), (name, known)
            slack = 1e-3 * max(known.magnitude, 1e-30) if np.isfinite(known.magnitude) else 0.0
            assert known.low - slack <= array.min(), (name, known)
            assert array.max() <= known.high + slack, (name, known)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_ranges_hold_what_random_networks_compute(model: Model) -> None:
    for scale in (1.0, THRESHOLD):
        require_within(lower_network(load_bound(model.SerializeToString())), scale)


def test_a_conversion_to_a_narrow_float_may_be_infinite() -> None:
    model = written_model("h = Cast <to = 10> (x) y = Cast <to = 1> (h)", (4,))
    ranges = infer_ranges(lower_network(load_bound(model.SerializeToString())))
    assert (ranges["h"], ranges["y"]) == (ValueRange(-inf, inf), ANY)


@settings(max_examples=30, deadline=None)
@given(networks())
def test_random_networks_can_be_guarded(model: Model) -> None:
    graph = lower_network(load_bound(model.SerializeToString()))
    assert build_guards(plain_program(graph), graph).after is not None
    assert place_guards(graph, {}, frozenset()) in (None, {})


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 11.0, -11.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("has_code", [True, False], ids=["machine code", "numpy"])
def test_a_scan_finds_each_element(
    count: int, value: float, dtype: Any, has_code: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_code:
        monkeypatch.setattr(guards, "_scan_function", lambda bound, itemsize: None)
    array = np.random.default_rng(0).uniform(-10, 10, count).astype(dtype)
    assert not exceeds(array, 10.0)
    for at in {0, count // 2, count - 1} & set(range(count)):
        changed = array.copy()
        changed[at] = value
        assert exceeds(changed, 10.0)


@pytest.mark.parametrize("count", [0, 1, 64, 130])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("has_code", [True, False], ids=["machine code", "numpy"])
def test_a_scan_of_masked_scores_accepts_negative_numbers(
    count: int, dtype: Any, has_code: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_code:
        monkeypatch.setattr(guards, "_scan_function", lambda limits, itemsize: None)
    array = np.random.default_rng(0).uniform(-10, 10, count).astype(dtype)
    lowest = ml_dtypes.finfo(dtype).min  # type: ignore[no-untyped-call]
    for at in {0, count // 2, count - 1} & set(range(count)):
        for value in (-np.inf, lowest, -11.0, -0.0, 10.0):
            array[at] = value
            assert not exceeds(array, 10.0, is_masked=True)
        for value in (np.inf, np.nan, -np.nan, 11.0):
            changed = array.copy()
            changed[at] = value
            assert np.signbit(changed[at]) == np.signbit(value)
            assert exceeds(changed, 10.0, is_masked=True)
    assert not exceeds(array, 10.0, is_masked=True)


def test_ranges_of_several_are_the_least_that_hold_all() -> None:
    assert hull([ValueRange(-1.0, 2.0), ValueRange(0.0, 3.0, True)]) == ValueRange(-1.0, 3.0, True)
    assert bounded(float("nan"), 1.0) == ANY
    assert bounded(-1.0, 2.0**128) == ValueRange(-1.0, float("inf"))


@pytest.mark.parametrize(
    ("dtype", "largest", "beyond"),
    [(np.float32, 2.0**32, 2.0**33), (ml_dtypes.bfloat16, 2.0**32, 2.0**33), (np.float16, 65504.0, np.inf)],
)
def test_a_guard_accepts_the_threshold_or_the_largest_number_of_the_type(
    dtype: Any, largest: float, beyond: float
) -> None:
    array = np.zeros(100, dtype)
    array[[7, 98]] = largest, -largest
    guard(array)
    for value in (beyond, -beyond, np.nan):
        array[50] = value
        with pytest.raises(GuardFailed):
            guard(array)
    array[50] = -np.inf
    guard(array, is_masked=True)
    array[50] = np.nan
    with pytest.raises(GuardFailed):
        guard(array, is_masked=True)


def test_a_tensor_that_is_stored_in_f16_may_become_infinite() -> None:
    """1000 x is in the range of f32 if |x| <= 2**32, and not in that of f16; softmax reads it."""
    model = written_model("h = Mul(x, c) y = Softmax(h)", (4,), c=np.full(1, 1000, np.float32))
    graph = lower_network(load_bound(model.SerializeToString()))
    sizes = {"x": 16}
    assert place_guards(graph, sizes, frozenset()) == {"x": GUARDED}
    assert place_guards(graph, sizes, frozenset(), {"h": np.dtype(np.float16)}) is None
    assert place_guards(graph, {"x": 16, "h": 8}, frozenset(), {"h": np.dtype(np.float16)}) == {"h": GUARDED}
    assert place_guards(graph, sizes, frozenset(), {"h": np.dtype(ml_dtypes.bfloat16)}) == {"x": GUARDED}


def test_ranges_of_narrow_constants_are_those_of_their_numbers() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        array: Any = np.array([[1.0, -2.0], [3.0, 0.5]]).astype(dtype)
        assert range_of_array(array) == ValueRange(-2.0, 3.0)
        positive, negative = signed_sums(array, "inner_product")
        assert (positive.tolist(), negative.tolist()) == ([1.0, 3.5], [2.0, 0.0])
