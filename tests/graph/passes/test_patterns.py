"""Patterns of nodes: fused wherever they match, nowhere else, and with the same results."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from inlay.graph.network import Network
from inlay.graph.onnx.parsing import parse_model
from inlay.graph.onnx.reading import bind_inputs, import_network, load
from inlay.graph.passes import PATTERNS, simplify_network
from tests.support.network_cases import networks
from tests.support.network_runs import model_of, node, rounding_errors, run_in_float64, run_model, run_network
from tests.support.networks import Model

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
    assert_runs_as(load(model.SerializeToString()), model)


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=25)
@given(networks())
def test_a_pattern_changes_no_output(pattern: Callable[[Network], Network], model: Model) -> None:
    read = parse_model(model.SerializeToString())
    assert_runs_as(pattern(import_network(read, bind_inputs(read.model.graph, None, None))), model)


@settings(max_examples=40)
@given(networks())
def test_what_is_simplified_is_well_formed_and_stays_as_it_is(model: Model) -> None:
    network = load(model.SerializeToString())
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


# What is put together


def layers(*nodes: Any, constants: dict[str, Any] | None = None, opset: int = 17) -> Model:
    """Return a model of nodes from x (2, 4, 3, 5) to y."""
    arrays = {name: np.asarray(value, np.float32) for name, value in (constants or {}).items()}
    return model_of(list(nodes), {"x": (2, 4, 3, 5)}, ["y"], arrays, opset)


CHANNELS = np.arange(1, 5) / 2
STATISTICS = {"scale": CHANNELS, "shift": CHANNELS - 1, "mean": CHANNELS, "variance": CHANNELS}
WEIGHTS = {"w": np.arange(16).reshape(4, 4, 1, 1) / 7 - 1}
SPREAD = {"a": CHANNELS.reshape(4, 1, 1), "b": CHANNELS.reshape(1, 4, 1, 1)}
NORMALIZATION = node("BatchNormalization", "t scale shift mean variance", "u")
SQRT2 = {"r": math.sqrt(2), "one": 1.0, "half": 0.5}
GELU = (node("Div", "x r", "t"), node("Erf", "t", "e"), node("Add", "e one", "f"), node("Mul", "x f", "p"))

TOGETHER = {
    "normalization, scale and shift into a convolution": (
        layers(
            node("Conv", "x w", "t"),
            NORMALIZATION,
            node("Mul", "u a", "v"),
            node("Add", "b v", "y"),
            constants={**STATISTICS, **WEIGHTS, **SPREAD},
        ),
        ["Conv"],
    ),
    "normalization into a transposed convolution of two groups": (
        layers(
            node("ConvTranspose", "x w", "t", group=2),
            node("BatchNormalization", "t scale shift mean variance", "y"),
            constants={**STATISTICS, "w": np.arange(8).reshape(4, 2, 1, 1) / 7 - 1},
        ),
        ["ConvTranspose"],
    ),
    "scale and shift into a normalization": (
        layers(
            node("BatchNormalization", "x scale shift mean variance", "u"),
            node("Mul", "u a", "v"),
            node("Sub", "v b", "y"),
            constants={**STATISTICS, **SPREAD},
        ),
        ["BatchNormalization"],
    ),
    "gelu": (layers(*GELU, node("Mul", "p half", "y"), constants=SQRT2, opset=13), ["Gelu"]),
    "swish": (layers(node("Sigmoid", "x", "t"), node("Mul", "t x", "y")), ["Swish"]),
    "hard swish": (
        layers(node("HardSigmoid", "x", "t", alpha=1 / 6, beta=0.5), node("Mul", "t x", "y"), opset=13),
        ["HardSwish"],
    ),
    "mish": (layers(node("Softplus", "x", "s"), node("Tanh", "s", "t"), node("Mul", "x t", "y")), ["Mish"]),
    "layer normalization": (
        layers(
            node("ReduceMean", "x", "m", axes=[-1]),
            node("Sub", "x m", "d"),
            node("Pow", "d two", "s"),
            node("ReduceMean", "s", "v", axes=[-1]),
            node("Add", "v eps", "e"),
            node("Sqrt", "e", "r"),
            node("Div", "d r", "q"),
            node("Mul", "q g", "p"),
            node("Add", "p h", "y"),
            constants={"two": 2.0, "eps": 1e-5, "g": np.arange(5), "h": np.arange(5) - 2},
        ),
        ["LayerNormalization"],
    ),
    "nothing": (layers(node("Identity", "x", "t"), node("Dropout", "t", "u m"), node("Relu", "u", "y")), ["Relu"]),
    "an identity before an output": (layers(node("Relu", "x", "t"), node("Identity", "t", "y")), ["Relu"]),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_what_belongs_together_is_put_together(name: str) -> None:
    model, wanted = TOGETHER[name]
    network = load(model.SerializeToString())
    assert operators(network) == wanted
    assert_runs_as(network, model)


# What is left as it is

APART = {
    "a product that is not a half": layers(*GELU, node("Mul", "p half", "y"), constants={**SQRT2, "half": 0.6}),
    "an erf of another multiple": layers(*GELU, node("Mul", "p half", "y"), constants={**SQRT2, "r": 1.5}),
    "the erf of another tensor": layers(
        node("Relu", "x", "o"), node("Div", "o r", "t"), *GELU[1:], node("Mul", "p half", "y"), constants=SQRT2
    ),
    "another hard sigmoid": layers(node("HardSigmoid", "x", "t", alpha=0.2), node("Mul", "t x", "y")),
    "the sigmoid of another tensor": layers(node("Relu", "x", "o"), node("Sigmoid", "o", "t"), node("Mul", "t x", "y")),
    "a scale along the width": layers(
        node("Conv", "x w", "t"), node("Mul", "t a", "y"), constants={**WEIGHTS, "a": np.arange(5)}
    ),
    "a scale that makes the tensor larger": model_of(
        [node("Conv", "x w", "t"), node("Mul", "t a", "y")],
        {"x": (1, 4, 3, 5)},
        ["y"],
        {"w": WEIGHTS["w"].astype(np.float32), "a": np.ones((2, 4, 1, 1), np.float32)},
    ),
    "what another node reads too": layers(
        node("Conv", "x w", "t"), node("Mul", "t a", "u"), node("Add", "t u", "y"), constants={**WEIGHTS, **SPREAD}
    ),
    "a mean along the channels": layers(
        node("ReduceMean", "x", "m", axes=[1]),
        node("Sub", "x m", "d"),
        node("Mul", "d d", "s"),
        node("ReduceMean", "s", "v", axes=[1]),
        node("Add", "v eps", "e"),
        node("Sqrt", "e", "r"),
        node("Div", "d r", "y"),
        constants={"eps": 1e-5},
    ),
    "a mask that is asked for": model_of(
        [node("Dropout", "x", "t m"), node("Relu", "t", "y")], {"x": (2, 3)}, ["y", "m"], opset=9
    ),
    "an identity of an input": layers(node("Identity", "x", "y")),
}
"""Networks that resemble a pattern but do not match it."""


@pytest.mark.parametrize("name", APART)
def test_what_looks_like_a_pattern_and_is_none_is_left_as_it_is(name: str) -> None:
    network = load(APART[name].SerializeToString())
    assert operators(network) == [n.op_type for n in APART[name].graph.node]


def test_statistics_of_the_batch_are_not_folded() -> None:
    nodes = [
        node("Conv", "x w", "t"),
        node("BatchNormalization", "t scale shift mean variance", "y m v", training_mode=1),
    ]
    network = load(layers(*nodes, constants={**STATISTICS, **WEIGHTS}).SerializeToString())
    assert operators(network) == ["Conv", "BatchNormalization"]


def test_a_convolution_keeps_its_name_when_it_takes_a_scale() -> None:
    network = load(TOGETHER["normalization, scale and shift into a convolution"][0].SerializeToString())
    assert [(n.name, n.inputs, n.outputs) for n in network.nodes] == [("t", ("x", "y:weights", "y:bias"), ("y",))]
