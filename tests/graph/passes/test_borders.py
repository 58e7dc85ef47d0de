"""Pads that windows take over, and Expands that their readers take over: the same results with fewer nodes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.network_runs import run_by_onnxruntime
from tests.support.written_models import written_model

WINDOWS = (
    "y = Conv <pads = [0, 1, 1, 0]> (p, w)",
    "y = Conv <strides = [2, 2], dilations = [2, 1]> (p, w)",
    "y = Conv (p, big)",
    "y = AveragePool <kernel_shape = [3, 3], strides = [2, 1]> (p)",
    "y = AveragePool <kernel_shape = [3, 3], pads = [1, 0, 1, 0]> (p)",
    "y = AveragePool <kernel_shape = [3, 3], pads = [1, 0, 1, 0], count_include_pad = 1> (p)",
    "y = AveragePool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (p)",
    "y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (p)",
    "y, i = MaxPool <kernel_shape = [3, 3]> (p) j = Cast <to = 1> (i)",
)
FOLDED = {0: {0, 1, 3, 5}, -np.inf: {7}}
"""Indices in `WINDOWS` of the nodes that take over small padding, by the padded number; with a Relu, MaxPool too."""


def run(text: str, x: Any, outputs: str = "y", opset: int = 17, **constants: Any) -> tuple[list[str], Any, Any]:
    """Return the operators of a model that is read, and its result y by a session and by ONNX Runtime."""
    model = written_model(text, x.shape, outputs, opset=opset, **constants)
    network = load_bound(model.SerializeToString())
    graph = lower_network(network)
    found = ProgramSession(plain_program(graph), graph, engine="reference").run({"x": x})
    return [node.operator for node in network.nodes], found["y"], run_by_onnxruntime(model, {"x": x}, ["y"])["y"]


@pytest.mark.parametrize("opset", [10, 13])
@pytest.mark.parametrize("value", [0, -np.inf, 1])
@pytest.mark.parametrize("number", range(len(WINDOWS)))
@settings(max_examples=4)
@given(sides=st.lists(st.integers(0, 2), min_size=4, max_size=4), is_positive=st.booleans())
def test_zeros_before_a_window_become_its_padding(
    number: int, value: float, opset: int, sides: list[int], is_positive: bool
) -> None:
    rng = np.random.default_rng(number)
    x, pads = rng.standard_normal((2, 3, 7, 8), np.float32), [0, 0, *sides[:2], 0, 0, *sides[2:]]
    constants: dict[str, Any] = {"w": rng.standard_normal((4, 3, 3, 3), np.float32)}
    constants["big"] = np.where(constants["w"] > 2, np.inf, constants["w"]).astype(np.float32)
    constants["big"][0, 0, 0, 0] = np.inf
    source = "r = Relu(x) " if is_positive else "r = Identity(x) "
    if opset < 11:
        if value == -np.inf:
            return  # the text of an attribute has no infinity
        pad = f"p = Pad <pads = {pads}, value = {float(value)}> (r) "
    else:
        pad, constants["n"], constants["v"] = "p = Pad(r, n, v) ", np.array(pads), np.float32(value)
    operators, found, expected = run(
        source + pad + WINDOWS[number], x, "y j" if number == 8 else "y", opset, **constants
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    is_folded = number in FOLDED.get(value, ()) or (is_positive and value == 0 and number == 7)
    own = 1 if number in (0, 4, 5) else 0
    if any(pads) and max(sides) + own < 3:
        assert ("Pad" not in operators) == is_folded


@pytest.mark.parametrize(
    ("source", "dims", "reader", "is_removed"),
    [
        ((2, 8, 1, 1), (2, 8, 3, 4), "y = Mul(x, e)", True),
        ((1, 1, 3, 4), (2, 8, 3, 4), "y = Sub(x, e)", True),
        ((1, 1, 3, 4), (2, 8, 3, 4), "y = Sub(e, x)", False),
        ((4,), (2, 8, 3, 4), "y = Div(x, e)", True),
        ((2, 8, 3, 1), (2, 8, 3, 4), "y = Add(x, e)", True),
        ((2, 1, 1, 4), (2, 8, 3, 4), "y = Add(x, e)", True),
        ((2, 1, 3, 1), (2, 8, 3, 4), "y = Add(x, e)", False),
        ((1, 8, 1, 4), (2, 8, 3, 4), "y = Add(x, e)", False),
        ((2, 8, 3, 1), (2, 8, 3, 4), "l = Less(x, e) y = Cast <to = 1> (l)", True),
        ((2, 1, 4, 5), (2, 8, 4, 5), "y = MatMul(x, e)", True),
        ((4, 5), (2, 8, 4, 5), "y = MatMul(x, e)", True),
        ((2, 8, 1, 5), (2, 8, 4, 5), "y = MatMul(x, e)", False),
        ((2, 8, 1, 1), (2, 8, 3, 4), "t = Mul(c, e) y = Add(t, x)", False),
    ],
)
def test_an_expand_before_an_operator_that_broadcasts_is_removed(
    source: tuple[int, ...], dims: tuple[int, ...], reader: str, is_removed: bool
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 8, 3, 4), np.float32)
    count = int(np.prod(source))
    text = "f = Flatten <axis = 0> (x) s = Slice(f, zero, count, one) g = Reshape(s, dims) e = Expand(g, d) " + reader
    constants: dict[str, Any] = {"zero": np.array([0]), "count": np.array([count]), "one": np.array([1])}
    constants |= {"dims": np.array(source), "d": np.array(dims), "c": np.full((1, 8, 1, 1), 2, np.float32)}
    operators, found, expected = run(text, x, **constants)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert ("Expand" not in operators) == is_removed
