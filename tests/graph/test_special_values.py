"""NaN, infinities and the largest numbers come through networks as ONNX defines, wherever they could vanish."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import erf, sqrt
from typing import Any

import numpy as np
import pytest
from onnx import helper

import inlay
from inlay.graph.costs import probed
from inlay.graph.op_graph import Array
from inlay.graph.passes.range_guards import THRESHOLD
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.lowered_models import normal
from tests.support.network_runs import model_of
from tests.support.written_models import nodes_of

_LARGEST = 3.4028234663852886e38
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, _LARGEST, -_LARGEST, 3e38, -3e38, 1e38, 1.2e-38, -1.2e-38)
_ORDINARY = (1.0, -1.0, 88.8, -88.0, 100.0, -100.0, 104.0, 1e4, -1e4, 1e10, -1e10, 1e20, -1e20)


def special_values(count: int, seed: int = 0, share: float = 1.0) -> Array:
    """So many floats, none subnormal: of a share of them half are special and half of any magnitude, others usual."""
    rng = np.random.default_rng(seed)
    values = rng.choice(np.array([*_SPECIAL, *_ORDINARY]), count)
    any_magnitude = rng.standard_normal(count) * 10.0 ** rng.uniform(-30, 38, count)
    values = np.where(rng.random(count) < 0.5, values, np.clip(any_magnitude, -_LARGEST, _LARGEST))
    return np.where(rng.random(count) < share, values, rng.standard_normal(count)).astype(np.float32)


_erf = np.vectorize(erf, otypes=[np.float64])


def _constant(value: Any) -> Array:
    return np.array(value, np.float32)


@dataclass(frozen=True)
class Case:
    """An operator of one tensor."""

    operator: str
    formula: Callable[[Array], Array]
    """What it gives, in float64."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    first: bool = False
    """Whether its constants come first."""


def _each(operator: str, formula: Callable[[Array], Array], **attributes: Any) -> Case:
    return Case(operator, formula, attributes)


ELEMENTWISE: Sequence[Case] = (
    _each("Relu", lambda x: np.maximum(x, 0)),
    Case("Clip", lambda x: np.clip(x, -1, 6), {}, {"low": _constant(-1), "high": _constant(6)}),
    _each("HardSigmoid", lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1)),
    _each("Exp", np.exp),
    _each("Gelu", lambda x: 0.5 * x * (1 + _erf(x / sqrt(2)))),
    _each("LeakyRelu", lambda x: np.where(x >= 0, x, np.float32(0.01) * x)),
    _each("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    _each("Tanh", np.tanh),
    _each("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    _each("Elu", lambda x: np.where(x >= 0, x, np.expm1(x))),
    _each("Softplus", lambda x: np.logaddexp(0, x)),
    _each("Abs", np.abs),
    _each("Log", np.log),
    _each("Sqrt", np.sqrt),
    _each("Reciprocal", lambda x: 1 / x),
    Case("Max", lambda x: np.maximum(x, -2), {}, {"other": _constant([-2])}),
    Case("Min", lambda x: np.minimum(x, 3), {}, {"other": _constant([3])}),
    Case("Div", lambda x: np.inf / x, {}, {"other": _constant([np.inf])}, first=True),
    Case("Div", lambda x: x / np.float32(3e38), {}, {"other": _constant([3e38])}),
    Case("Div", lambda x: x / np.inf, {}, {"other": _constant([np.inf])}),
)
"""Operators that map each element."""


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result


def _max_pool(x: Array) -> Array:
    """The greatest elements of windows of 2 x 2 without overlap."""
    n, c, h, w = x.shape
    result: Array = x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
    return result


_AXES = {"axes": np.array([1], np.int64)}

COMBINING: Sequence[Case] = (
    Case("ReduceMax", lambda x: x.max(axis=1, keepdims=True), {}, _AXES),
    Case("ReduceMin", lambda x: x.min(axis=1, keepdims=True), {}, _AXES),
    Case("MaxPool", _max_pool, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("GlobalMaxPool", lambda x: x.max(axis=(2, 3), keepdims=True)),
    Case("ReduceMax", lambda x: x.max(axis=(2, 3), keepdims=True), {}, {"axes": np.array([2, 3], np.int64)}),
    Case("Softmax", _softmax, {"axis": 1}),
)
"""Operators whose results come from many elements, of (n, c, h, w)."""


def node_of(case: Case, src: str = "x", dst: str = "y") -> Any:
    """The node of a case."""
    names = [*case.constants, src] if case.first else [src, *case.constants]
    return helper.make_node(case.operator, names, [dst], **case.attributes)


ENGINES = ("onednn", "reference")


def session_of(
    nodes: Sequence[Any], dims: Sequence[int], constants: Mapping[str, Array], engine: str
) -> ProgramSession:
    """Return a session of the nodes that compute y of x."""
    model = model_of(list(nodes), {"x": tuple(dims)}, ["y"], dict(constants), 20)
    plan = inlay.plan(inlay.load(model.SerializeToString()), costs=probed(engine), engine=engine)
    return plan.compile(engine=engine).prepare()


def require_equal(found: Array, wanted: Array) -> None:
    """Within what float32 rounds; NaN and infinities in the same places."""
    with np.errstate(over="ignore"):
        wanted = wanted.astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=1e-6)


def ident(case: Case) -> str:
    return "-".join([case.operator, *(str(np.ravel(array)[0]) for array in case.constants.values())])


def require_formula(case: Case, x: Array, engine: str) -> None:
    with np.errstate(all="ignore"):
        wanted = case.formula(x.astype(np.float64))
    require_equal(session_of([node_of(case)], x.shape, case.constants, engine).run({"x": x})["y"], wanted)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ELEMENTWISE, ids=ident)
def test_special_values_come_through_functions_of_one_element(case: Case, engine: str) -> None:
    require_formula(case, special_values(2000).reshape(4, 500), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("case", COMBINING, ids=ident)
def test_special_values_come_through_windows_reductions_and_softmax(case: Case, share: float, engine: str) -> None:
    x = special_values(2048, share=share).reshape(8, 16, 4, 4)
    x[0] = -np.inf  # the greatest and the least of infinities alone, and rows that a mask hides
    x[1] = np.inf
    require_formula(case, x, engine)


HEADS: Mapping[str, tuple[dict[str, Array], tuple[int, ...], float]] = {
    "Conv(x, one)": ({"one": np.ones((1, 1, 1, 1), np.float32)}, (20, 1, 10, 10), 1.0),
    "Gemm(x, one)": ({"one": np.ones((1, 1), np.float32)}, (2000, 1), 1.0),
    "MatMul(x, one)": ({"one": np.ones((1, 1), np.float32)}, (2000, 1), 1.0),
    "Add(x, x)": ({}, (20, 1, 10, 10), 2.0),
    "Mul(x, two)": ({"two": np.full((1, 1, 10, 10), 2, np.float32)}, (20, 1, 10, 10), 2.0),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("case", ELEMENTWISE, ids=ident)
def test_special_values_come_through_what_is_fused(case: Case, head: str) -> None:
    constants, dims, factor = HEADS[head]
    x = special_values(2000, seed=1).reshape(dims)
    with np.errstate(all="ignore"):
        # A sum of products begins with 0, so that it is never -0.
        read = x * np.float32(factor) + np.float32(0.0 if "one" in head else -0.0)
        wanted = case.formula(read.astype(np.float64))
    session = session_of(
        [*nodes_of(f"h = {head}"), node_of(case, "h")], dims, {**constants, **case.constants}, "onednn"
    )
    require_equal(session.run({"x": x})["y"], wanted)


@pytest.mark.parametrize("function", ["Relu", "Clip", "HardSigmoid", "MaxPool", "GlobalMaxPool", "Softmax"])
def test_what_overflows_within_a_network_is_not_lost(function: str) -> None:
    """Infinity minus infinity after two convolutions of ordinary numbers by large weights."""
    case = next(one for one in (*ELEMENTWISE, *COMBINING) if one.operator == function)
    constants = {"large": np.full((2, 2, 1, 1), 1e20, np.float32)}
    constants |= {"difference": np.array([[1, -1]], np.float32).reshape(1, 2, 1, 1), **case.constants}
    text = "a = Conv(x, large) b = Relu(a) c = Conv(b, large) d = Relu(c) e = Conv(d, difference)"
    x = np.ones((1, 2, 4, 4), np.float32)
    session = session_of([*nodes_of(text), node_of(case, "e")], x.shape, constants, "onednn")
    assert np.isnan(session.run({"x": x})["y"]).all()


def test_what_a_division_gives_is_checked_before_a_relu() -> None:
    session = session_of(nodes_of("q = Div(x, x) y = Relu(q)"), (2, 8), {}, "onednn")
    x = np.ones((2, 8), np.float32)
    assert session.run({"x": x})["y"].tolist() == x.tolist()
    x[0, 3] = 0
    assert np.isnan(session.run({"x": x})["y"][0, 3])


X = normal(9, (1, 16, 12, 12))


@pytest.fixture
def convolutions() -> ProgramSession:
    """A session of three convolutions of x, each with a Relu."""
    weights = {f"w{i}": normal(i, (16, 16, 3, 3)) / 12 for i in range(3)}
    steps = zip(("x", "a", "b"), weights, ("a", "b", "y"), strict=True)
    text = " ".join(f"c{w} = Conv <pads = [1, 1, 1, 1]> ({x}, {w}) {y} = Relu(c{w})" for x, w, y in steps)
    return session_of(nodes_of(text), X.shape, weights, "onednn")


def test_usual_numbers_are_computed_by_the_planned_kernels(convolutions: ProgramSession) -> None:
    convolutions.run({"x": X})
    assert convolutions._exact is None


def test_exact_kernels_agree_with_the_planned_ones(convolutions: ProgramSession) -> None:
    usual = convolutions.run({"x": X})["y"]
    exact = convolutions._exact_session().run({"x": X})["y"]
    np.testing.assert_allclose(exact, usual, rtol=1e-4, atol=1e-5)


def test_numbers_over_the_threshold_are_computed_too(convolutions: ProgramSession) -> None:
    usual = convolutions.run({"x": X})["y"]
    large = convolutions.run({"x": X * np.float32(2.0**40)})["y"]
    assert np.abs(X).max() * 2.0**40 > THRESHOLD
    np.testing.assert_allclose(large, usual * 2.0**40, rtol=1e-4, atol=1e8)


def test_a_session_goes_back_and_forth(convolutions: ProgramSession) -> None:
    usual, broken = convolutions.run({"x": X})["y"], {"x": np.full_like(X, np.nan)}
    for _ in range(40):
        assert np.isnan(convolutions.run(broken)["y"]).all()
    for _ in range(20):
        np.testing.assert_allclose(convolutions.run({"x": X})["y"], usual, rtol=1e-4, atol=1e-5)
    out = np.empty_like(usual)
    assert convolutions.run(broken, out={"y": out})["y"] is out
    assert np.isnan(out).all()


def test_a_trace_and_a_profile_are_of_what_a_run_does(convolutions: ProgramSession) -> None:
    assert np.isnan(convolutions.trace({"x": np.full_like(X, np.nan)})["y"]).all()
    assert np.isfinite(convolutions.trace({"x": X})["y"]).all()
    assert all(timed.ms >= 0 for timed in convolutions.profile({"x": np.full_like(X, np.inf)}, runs=1))


def test_a_masked_row_of_attention_is_nan_and_others_are_not() -> None:
    """Scores plus a mask of minus infinity: no guard refuses it, and a row without an element left is NaN."""
    nodes = nodes_of("s = MatMul(x, x) m = Add(s, mask) p = Softmax <axis = -1> (m) y = MatMul(p, x)")
    mask, x = np.triu(np.full((8, 8), -np.inf, np.float32), 1), normal(0, (8, 8))
    session = session_of(nodes, (8, 8), {"mask": mask}, "onednn")
    with np.errstate(all="ignore"):
        scores = x @ x + mask
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        np.testing.assert_allclose(session.run({"x": x})["y"], powers / powers.sum(1, keepdims=True) @ x, atol=1e-5)
    assert session._exact is None
    mask[3] = -np.inf
    session = session_of(nodes, (8, 8), {"mask": mask}, "onednn")
    assert np.isnan(session.run({"x": x})["y"]).all(axis=1).tolist() == [row == 3 for row in range(8)]
