"""Functions of a model are inlined: the network is that of the nodes of the functions."""

from typing import Any

import numpy as np
import pytest
from onnx import parser

import inlay
from inlay.errors import FileError, InlayError, Unimplemented
from inlay.graph.onnx import functions
from tests.support.networks import Model
from tests.support.refusals import raises_exactly

X = np.array([1, -2, 3], np.float32)
HEADER = '<ir_version: 10, opset_import: ["": 17, "local": 1]> g (float[3] x) => (float[3] y) '
TWICE = ' <domain: "local", opset_import: ["": 17]> Twice (a) => (b) { b = Add(a, a) }'


def chain(count: int) -> str:
    """So many functions, of which each calls the one before it, and the first one negates."""
    calls = (
        f' <domain: "local", opset_import: ["": 17, "local": 1]> f{i} (a) => (b) {{ b = local.f{i - 1}(a) }}'
        for i in range(1, count)
    )
    return "".join(calls) + ' <domain: "local", opset_import: ["": 17]> f0 (a) => (b) { b = Neg(a) }'


def model(text: str) -> Model:
    return parser.parse_model(HEADER + text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{ y = local.Twice(x) }" + TWICE, 2 * X),
        (
            "{ b = Relu(x) c = local.Leak <s = 0.5> (b) d = local.Leak <s = 0.25> (x) y = Add(c, d) } "
            '<domain: "local", opset_import: ["": 17]> '
            "Leak <s> (a) => (b) { c = LeakyRelu <alpha: float = @s> (a) b = Neg(c) }",
            np.array([-2, 0.5, -6], np.float32),
        ),
        (
            '{ y = local.Five(x) } <domain: "local", opset_import: ["": 17, "local": 1]> '
            "Five (a) => (b) { c = local.Twice(a) d = local.Twice(c) b = Add(a, d) }" + TWICE,
            5 * X,
        ),
        (f"{{ y = local.f{functions.MOST_DEPTH - 1}(x) }}" + chain(functions.MOST_DEPTH), -X),
        ('{ y = local.Cut(x) } <domain: "local", opset_import: ["": 11]> Cut (a) => (b) { b = Clip(a) }', X),
    ],
)
def test_a_call_is_replaced_by_the_nodes_of_the_function(text: str, wanted: Any) -> None:
    network = inlay.load(model(text).SerializeToString())
    result = inlay.plan(network, costs="analytic").compile(engine="reference").run({"x": X})["y"]
    np.testing.assert_allclose(result, wanted)


def test_a_function_is_inlined_in_branches() -> None:
    pytest.importorskip("onnxruntime")
    text = (
        "{ m = ReduceMax <keepdims = 0> (x) k = Constant <value = float {1.0}> () c = Greater(m, k) y = If(c) "
        "<then_branch = t () => (float[3] r) { r = local.Twice(x) }, else_branch = e () => (float[3] q) { q = Neg(x) }>"
        " }" + TWICE
    )
    session = inlay.plan(inlay.load(model(text).SerializeToString()), costs="analytic").compile(engine="reference")
    assert session.run({"x": X})["y"].tolist() == [2, -4, 6]
    assert session.run({"x": -abs(X)})["y"].tolist() == [1, 2, 3]


REFUSED: list[tuple[str, type[InlayError], str]] = [
    (
        "{ y = local.Twice(x, x) }" + TWICE,
        FileError,
        "cannot read the model: its functions cannot be inlined: Number of actual parameters cannot exceed number of "
        "formal parameters; export it again",
    ),
    (
        "{ y = local.Twice(x) }" + 2 * TWICE,
        FileError,
        "cannot read the model: its functions cannot be inlined: Model contains multiple local functions with the same "
        "implementation id 'local::Twice'; export it again",
    ),
    (
        f"{{ y = local.f{functions.MOST_DEPTH}(x) }}" + chain(functions.MOST_DEPTH + 1),
        Unimplemented,
        "the model has more than 50 functions that call each other: inline some of them",
    ),
]


@pytest.mark.parametrize(("text", "error", "message"), REFUSED)
def test_functions_that_do_not_fit_are_refused(text: str, error: type[InlayError], message: str) -> None:
    with raises_exactly(error, message):
        inlay.load(model(text).SerializeToString())


def test_bytes_of_functions_are_counted_before_they_are_inlined() -> None:
    text = "the model has 184 bytes of nodes with its functions inlined: 100 at most are read; cut it in parts"
    calls = " ".join(f"y{i} = local.Twice(x)" for i in range(4))
    with pytest.raises(Unimplemented) as refused:
        functions.inline_functions(model(f"{{ {calls} y = local.Twice(x) }}" + TWICE), "the model", 100, 100)
    assert str(refused.value) == text
