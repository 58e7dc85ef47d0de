"""NaN, infinities and the largest numbers come through networks as ONNX defines, wherever they could vanish."""

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import helper

import inlay
from inlay.graph.costs import probed
from inlay.graph.passes.range_guards import THRESHOLD
from inlay.graph.runtime.session import Session
from tests.support.special_values import COMBINING, ELEMENTWISE, Array, Case, model_of, node_of, special_values

ENGINES = ("onednn", "reference")


def session_of(model: bytes, engine: str) -> Session:
    plan = inlay.plan(inlay.load(model), costs=probed(engine), engine=engine)
    return plan.compile(engine=engine)


def require_equal(found: Array, wanted: Array) -> None:
    """Within what float32 rounds; NaN and infinities in the same places."""
    with np.errstate(over="ignore"):
        wanted = wanted.astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=1e-6)


def ident(case: Case) -> str:
    return "-".join([case.operator, *(str(np.ravel(array)[0]) for array in case.constants.values())])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ELEMENTWISE, ids=ident)
def test_special_values_come_through_functions_of_one_element(case: Case, engine: str) -> None:
    x = special_values(2000).reshape(4, 500)
    model = model_of([node_of(case)], x.shape, case.constants)
    with np.errstate(all="ignore"):
        wanted = case.formula(x.astype(np.float64))
    require_equal(session_of(model, engine).run({"x": x})["y"], wanted)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("share", [1.0, 0.1])
@pytest.mark.parametrize("case", COMBINING, ids=ident)
def test_special_values_come_through_windows_reductions_and_softmax(case: Case, share: float, engine: str) -> None:
    x = special_values(2048, share=share).reshape(8, 16, 4, 4)
    x[0] = -np.inf  # the greatest and the least of infinities alone, and rows that a mask hides
    x[1] = np.inf
    model = model_of([node_of(case)], x.shape, case.constants)
    with np.errstate(all="ignore"):
        wanted = case.formula(x.astype(np.float64))
    require_equal(session_of(model, engine).run({"x": x})["y"], wanted)


HEADS: Mapping[str, tuple[tuple[str, list[str]], dict[str, Array], tuple[int, ...], float]] = {
    "Conv": (("Conv", ["x", "one"]), {"one": np.ones((1, 1, 1, 1), np.float32)}, (20, 1, 10, 10), 1.0),
    "Gemm": (("Gemm", ["x", "one"]), {"one": np.ones((1, 1), np.float32)}, (2000, 1), 1.0),
    "MatMul": (("MatMul", ["x", "one"]), {"one": np.ones((1, 1), np.float32)}, (2000, 1), 1.0),
    "Add": (("Add", ["x", "x"]), {}, (20, 1, 10, 10), 2.0),
    "Mul": (("Mul", ["x", "two"]), {"two": np.full((1, 1, 10, 10), 2, np.float32)}, (20, 1, 10, 10), 2.0),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("case", ELEMENTWISE, ids=ident)
def test_special_values_come_through_what_is_fused(case: Case, head: str) -> None:
    (operator, inputs), constants, dims, factor = HEADS[head]
    x = special_values(2000, seed=1).reshape(dims)
    nodes = [helper.make_node(operator, inputs, ["h"]), node_of(case, "h")]
    with np.errstate(all="ignore"):
        # A sum of products begins with 0, so that it is never -0.
        read = x * np.float32(factor) + np.float32(-0.0 if head in ("Add", "Mul") else 0.0)
        wanted = case.formula(read.astype(np.float64))
    session = session_of(model_of(nodes, dims, {**constants, **case.constants}), "onednn")
    require_equal(session.run({"x": x})["y"], wanted)


@pytest.mark.parametrize("function", ["Relu", "Clip", "HardSigmoid", "MaxPool", "GlobalMaxPool", "Softmax"])
def test_what_overflows_within_a_network_is_not_lost(function: str) -> None:
    """Infinity minus infinity after two convolutions of ordinary numbers by large weights."""
    case = next(one for one in (*ELEMENTWISE, *COMBINING) if one.operator == function)
    large, difference = np.full((2, 2, 1, 1), 1e20, np.float32), np.array([[1, -1]], np.float32).reshape(1, 2, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "large"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "large"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "difference"], ["e"]),
        node_of(case, "e"),
    ]
    x = np.ones((1, 2, 4, 4), np.float32)
    model = model_of(nodes, x.shape, {"large": large, "difference": difference, **case.constants})
    assert np.isnan(session_of(model, "onednn").run({"x": x})["y"]).all()


def test_what_a_division_gives_is_checked_before_a_relu() -> None:
    nodes = [helper.make_node("Div", ["x", "x"], ["q"]), helper.make_node("Relu", ["q"], ["y"])]
    session = session_of(model_of(nodes, (2, 8), {}), "onednn")
    x = np.ones((2, 8), np.float32)
    assert session.run({"x": x})["y"].tolist() == x.tolist()
    x[0, 3] = 0
    assert np.isnan(session.run({"x": x})["y"][0, 3])


def convolutions(count: int = 3) -> tuple[bytes, dict[str, Array]]:
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12 for i in range(count)}
    names = ["x", *(f"r{i}" for i in range(count - 1)), "y"]
    nodes = []
    for i in range(count):
        nodes.append(helper.make_node("Conv", [names[i], f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [names[i + 1]]))
    return model_of(nodes, (1, 16, 12, 12), weights), {"x": rng.standard_normal((1, 16, 12, 12)).astype(np.float32)}


def test_usual_numbers_are_computed_by_the_planned_kernels() -> None:
    model, inputs = convolutions()
    session = session_of(model, "onednn")
    session.run(inputs)
    assert session._exact is None


def test_exact_kernels_agree_with_the_planned_ones() -> None:
    model, inputs = convolutions()
    session = session_of(model, "onednn")
    usual = session.run(inputs)["y"]
    exact = session._exact_session().run(inputs)["y"]
    np.testing.assert_allclose(exact, usual, rtol=1e-4, atol=1e-5)


def test_numbers_over_the_threshold_are_computed_too() -> None:
    model, inputs = convolutions()
    session = session_of(model, "onednn")
    usual = session.run(inputs)["y"]
    large = session.run({"x": inputs["x"] * np.float32(2.0**40)})["y"]
    assert np.abs(inputs["x"]).max() * 2.0**40 > THRESHOLD
    np.testing.assert_allclose(large, usual * 2.0**40, rtol=1e-4, atol=1e8)


def test_a_session_goes_back_and_forth() -> None:
    model, inputs = convolutions()
    session = session_of(model, "onednn")
    usual, broken = session.run(inputs)["y"], {"x": np.full_like(inputs["x"], np.nan)}
    for _ in range(40):
        assert np.isnan(session.run(broken)["y"]).all()
    for _ in range(20):
        np.testing.assert_allclose(session.run(inputs)["y"], usual, rtol=1e-4, atol=1e-5)
    out = np.empty_like(usual)
    assert session.run(broken, out={"y": out})["y"] is out
    assert np.isnan(out).all()


def test_a_trace_and_a_profile_are_of_what_a_run_does() -> None:
    model, inputs = convolutions()
    session = session_of(model, "onednn")
    assert np.isnan(session.trace({"x": np.full_like(inputs["x"], np.nan)})["y"]).all()
    assert np.isfinite(session.trace(inputs)["y"]).all()
    assert all(timed.ms >= 0 for timed in session.profile({"x": np.full_like(inputs["x"], np.inf)}, runs=1))


def test_a_masked_row_of_attention_is_nan_and_others_are_not() -> None:
    """Scores plus a mask of minus infinity: no guard refuses it, and a row without an element left is NaN."""
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    mask = np.triu(np.full((8, 8), -np.inf, np.float32), 1)
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    session = session_of(model_of(nodes, (8, 8), {"mask": mask}), "onednn")
    with np.errstate(all="ignore"):
        scores = x @ x + mask
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        np.testing.assert_allclose(session.run({"x": x})["y"], powers / powers.sum(1, keepdims=True) @ x, atol=1e-5)
    assert session._exact is None
    mask[3] = -np.inf
    session = session_of(model_of(nodes, (8, 8), {"mask": mask}), "onednn")
    assert np.isnan(session.run({"x": x})["y"]).all(axis=1).tolist() == [row == 3 for row in range(8)]
