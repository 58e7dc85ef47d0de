"""Patterns of nodes: fused wherever they match, nowhere else, and with the same results."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import helper

from inlay.graph.network import Network
from inlay.graph.onnx.parsing import parse_model
from inlay.graph.onnx.reading import bind_inputs, import_network, load_bound, open_inputs
from inlay.graph.passes import PATTERNS, simplify_network
from tests.support.network_cases import networks
from tests.support.network_runs import rounding_errors, run_in_float64, run_model, run_network
from tests.support.networks import Model
from tests.support.written_models import written_model

ROUNDINGS = 16
"""Allowed error, as a multiple of the error of random roundings."""
LEAST = 1e-6
"""Allowed error relative to the largest element of a tensor, for functions such as Tanh."""


def operators(network: Network) -> list[str]:
    return [one.operator for one in network.nodes]


def assert_runs_as(network: Network, model: Model) -> None:
    dims = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    inputs: dict[str, Any] = {"x": np.random.default_rng(3).standard_normal(dims, np.float32)}
    got, wanted = run_network(network, inputs), run_model(model, inputs)
    assert network.outputs == tuple(wanted)
    exact, errors = run_in_float64(model, inputs), rounding_errors(model, inputs)
    for name, array in wanted.items():
        assert (got[name].shape, got[name].dtype) == (array.shape, array.dtype)
        most = ROUNDINGS * errors[name] + LEAST * np.abs(exact[name]).max(initial=0)
        assert np.abs(got[name] - exact[name]).max(initial=0) <= most
    masks = {name for n in network.nodes if n.operator == "Dropout" for name in n.outputs[1:]}  # bool from opset 10 on
    for name, array in got.items():
        assert name in masks or (network.tensors[name].dims, network.tensors[name].dtype) == (array.shape, array.dtype)


@settings(max_examples=60)
@given(networks())
def test_a_network_is_read_as_it_runs(model: Model) -> None:
    assert_runs_as(load_bound(model.SerializeToString()), model)


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=25)
@given(networks())
def test_a_pattern_changes_no_output(pattern: Callable[[Network], Network], model: Model) -> None:
    read = parse_model(model.SerializeToString())
    assert_runs_as(pattern(import_network(read, bind_inputs(open_inputs(read.model.graph), None, None))), model)


@settings(max_examples=40)
@given(networks())
def test_what_is_simplified_is_well_formed_and_stays_as_it_is(model: Model) -> None:
    network = load_bound(model.SerializeToString())
    known = {*network.inputs, *network.constants}
    for one in network.nodes:
        assert known.issuperset(name for name in one.inputs if name)
        assert known.isdisjoint(one.outputs)
        known.update(one.outputs)
    assert known == set(network.tensors)
    assert len({one.name for one in network.nodes}) == len(network.nodes)
    written = {name for one in network.nodes for name in one.outputs}
    assert written.issuperset(network.outputs)
    assert not any(array.flags.writeable for array in network.constants.values())
    assert operators(simplify_network(network)) == operators(network)


# What is put together and what is left as it is

CHANNELS = np.arange(1, 5) / 2
CONSTANTS = {
    "w": np.arange(16).reshape(4, 4, 1, 1) / 7 - 1,
    "pairs": np.arange(8).reshape(4, 2, 1, 1) / 7 - 1,
    "scale": CHANNELS,
    "shift": CHANNELS - 1,
    "mean": CHANNELS,
    "variance": CHANNELS,
    "a": CHANNELS.reshape(4, 1, 1),
    "b": CHANNELS.reshape(1, 4, 1, 1),
    "two_images": np.ones((2, 4, 1, 1)),
    "r": math.sqrt(2),
    "one": 1.0,
    "half": 0.5,
    "more_than_half": 0.6,
    "two": 2.0,
    "eps": 1e-5,
    "minus_half": -0.5,
    "g": np.arange(5),
    "h": np.arange(5) - 2,
}


def layers(text: str, opset: int = 17, dims: str = "2, 4, 3, 5", outputs: str = "float y") -> Model:
    """Return a model of nodes, in the syntax of onnx.parser, from x to y, with the constants that they read."""
    graph = onnx.parser.parse_graph(f"layers (float[{dims}] x) => ({outputs}) {{ {text} }}")
    for one in graph.node:
        one.name = one.output[0]
    for name in {name for one in graph.node for name in one.input} & CONSTANTS.keys():
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(CONSTANTS[name], np.float32), name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


NORMALIZED = "BatchNormalization(t, scale, shift, mean, variance)"
HALF_OF_GELU = "e = Erf(t) f = Add(e, one) p = Mul(x, f)"
DEVIATION = "m = ReduceMean <axes = [-1]> (x) d = Sub(x, m)"
MEAN_SQUARE = "m = ReduceMean <axes = [-1]> (s) e = Add(m, eps)"
SQUARES = ("s = Mul(x, x)", "s = Pow(x, two)")
QUOTIENTS = (
    "root = Sqrt(e) q = Div(x, root)",
    "root = Sqrt(e) i = Reciprocal(root) q = Mul(x, i)",
    "root = Sqrt(e) i = Div(one, root) q = Mul(i, x)",
    "root = Pow(e, minus_half) q = Mul(x, root)",
    "root = Pow(e, half) q = Div(x, root)",
)
TOGETHER = {
    **{
        f"{square} {quotient}": (layers(f"{square} {MEAN_SQUARE} {quotient} y = Mul(g, q)"), "RMSNormalization")
        for square in SQUARES
        for quotient in QUOTIENTS
    },
    "a normalization of two axes without a scale": (
        layers(f"{SQUARES[0]} m = ReduceMean <axes = [2, 3]> (s) e = Add(eps, m) root = Sqrt(e) y = Div(x, root)"),
        "RMSNormalization",
    ),
    "layer normalization by a reciprocal": (
        layers(
            f"{DEVIATION} s = Mul(d, d) v = ReduceMean <axes = [-1]> (s)"
            "e = Add(v, eps) root = Sqrt(e) i = Reciprocal(root) p = Mul(d, i) y = Mul(p, g)"
        ),
        "LayerNormalization",
    ),
    "normalization, scale and shift into a convolution": (
        layers(f"t = Conv(x, w) u = {NORMALIZED} v = Mul(u, a) y = Add(b, v)"),
        "Conv",
    ),
    "normalization into a transposed convolution of two groups": (
        layers(f"t = ConvTranspose <group = 2> (x, pairs) y = {NORMALIZED}"),
        "ConvTranspose",
    ),
    "scale and shift into a normalization": (
        layers("u = BatchNormalization(x, scale, shift, mean, variance) v = Mul(u, a) y = Sub(v, b)"),
        "BatchNormalization",
    ),
    "gelu": (layers(f"t = Div(x, r) {HALF_OF_GELU} y = Mul(p, half)", 13), "Gelu"),
    "swish": (layers("t = Sigmoid(x) y = Mul(t, x)"), "Swish"),
    "hard swish": (layers("t = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(t, x)", 13), "HardSwish"),
    "mish": (layers("s = Softplus(x) t = Tanh(s) y = Mul(x, t)"), "Mish"),
    "layer normalization": (
        layers(
            f"{DEVIATION} s = Pow(d, two) v = ReduceMean <axes = [-1]> (s)"
            "e = Add(v, eps) root = Sqrt(e) q = Div(d, root) p = Mul(q, g) y = Add(p, h)"
        ),
        "LayerNormalization",
    ),
    "nothing": (layers("t = Identity(x) u, m = Dropout(t) y = Relu(u)"), "Relu"),
    "an identity before an output": (layers("t = Relu(x) y = Identity(t)"), "Relu"),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_what_belongs_together_is_put_together(name: str) -> None:
    model, operator = TOGETHER[name]
    network = load_bound(model.SerializeToString())
    assert operators(network) == [operator]
    assert_runs_as(network, model)


APART = {
    "a product that is not a half": layers(f"t = Div(x, r) {HALF_OF_GELU} y = Mul(p, more_than_half)"),
    "an erf of another multiple": layers(f"t = Div(x, two) {HALF_OF_GELU} y = Mul(p, half)"),
    "the erf of another tensor": layers(f"o = Relu(x) t = Div(o, r) {HALF_OF_GELU} y = Mul(p, half)"),
    "another hard sigmoid": layers("t = HardSigmoid <alpha = 0.2> (x) y = Mul(t, x)"),
    "the sigmoid of another tensor": layers("o = Relu(x) t = Sigmoid(o) y = Mul(t, x)"),
    "a scale along the width": layers("t = Conv(x, w) y = Mul(t, g)"),
    "a scale that makes the tensor larger": layers("t = Conv(x, w) y = Mul(t, two_images)", dims="1, 4, 3, 5"),
    "what another node reads too": layers("t = Conv(x, w) u = Mul(t, a) y = Add(t, u)"),
    "a mean along the channels": layers(
        "m = ReduceMean <axes = [1]> (x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean <axes = [1]> (s)"
        "e = Add(v, eps) root = Sqrt(e) y = Div(d, root)"
    ),
    "the mean square of another tensor": layers(
        f"o = Relu(x) s = Mul(o, o) {MEAN_SQUARE} root = Sqrt(e) y = Div(x, root)"
    ),
    "a mean product": layers(f"o = Relu(x) s = Mul(o, x) {MEAN_SQUARE} root = Sqrt(e) y = Div(x, root)"),
    "a mean square along the channels": layers(
        "s = Mul(x, x) m = ReduceMean <axes = [1]> (s) e = Add(m, eps) root = Sqrt(e) y = Div(x, root)"
    ),
    "a mean square without its axis": layers(
        "s = Mul(x, x) m = ReduceMean <axes = [0], keepdims = 0> (s) e = Add(m, eps) root = Sqrt(e) y = Div(x, root)"
    ),
    "a root times": layers(f"s = Mul(x, x) {MEAN_SQUARE} root = Sqrt(e) y = Mul(x, root)"),
    "twice the reciprocal": layers(f"s = Mul(x, x) {MEAN_SQUARE} root = Sqrt(e) i = Div(two, root) y = Mul(x, i)"),
    "a cubic root": layers(f"s = Mul(x, x) {MEAN_SQUARE} root = Pow(e, eps) y = Div(x, root)"),
    "an epsilon for each element": layers(
        "s = Mul(x, x) m = ReduceMean <axes = [-1]> (s) e = Add(m, a) root = Sqrt(e) y = Div(x, root)"
    ),
    "the deviation of a scalar": written_model(
        "m = ReduceMean(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean(s) e = Add(v, eps) r = Sqrt(e) y = Div(d, r)",
        (),
        eps=np.float32(1e-5),
    ),
    "a mask that is asked for": layers("t, m = Dropout(x) y = Relu(t)", 9, "2, 3", "float y, float m"),
    "an identity of an input": layers("y = Identity(x)"),
    "statistics of the batch": layers(
        "t = Conv(x, w) y, m, v = BatchNormalization <training_mode = 1> (t, scale, shift, mean, variance)"
    ),
}
"""Networks that resemble a pattern but do not match it."""


@pytest.mark.parametrize("name", APART)
def test_what_looks_like_a_pattern_and_is_none_is_left_as_it_is(name: str) -> None:
    network = load_bound(APART[name].SerializeToString())
    assert operators(network) == [n.op_type for n in APART[name].graph.node]


def test_a_convolution_keeps_its_name_when_it_takes_a_scale() -> None:
    network = load_bound(TOGETHER["normalization, scale and shift into a convolution"][0].SerializeToString())
    assert [(n.name, n.inputs, n.outputs) for n in network.nodes] == [("t", ("x", "y:weights", "y:bias"), ("y",))]
