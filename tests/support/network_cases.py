"""Random small networks of the nodes that exports write, whole and in parts, for tests of what rewrites them.

`networks()` draws a chain of layers on an f32 tensor of four dims. Now and then a tensor in the middle is asked for
too, so that what a pattern would put together is needed in parts as well.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import helper

from inlay.graph.op_graph import Array
from tests.support.network_runs import model_of
from tests.support.networks import Model

Draw = Callable[[Any], Any]


class Chain:
    """Nodes and constants of a chain, and the tensor that it ends in."""

    def __init__(self, draw: Draw, opset: int) -> None:
        self.draw = draw
        self.opset = opset
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.dims: tuple[int, ...] = tuple(draw(st.tuples(*[st.integers(1, 2)], *[st.integers(2, 5)] * 3)))
        self.first = self.dims
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.last = "x"
        self.asked: list[str] = []

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"t{len(self.nodes)}{'m' * i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, f"n{len(self.nodes)}", **attributes))
        return names[0]

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def random(self, *shape: int) -> str:
        """A constant of numbers between 0.5 and 1.5, of either sign."""
        signs = self.rng.choice([-1, 1], shape)
        return self.constant(self.rng.uniform(0.5, 1.5, shape) * signs)

    def either(self, a: str, b: str) -> tuple[str, str]:
        """Two inputs in either order."""
        return (a, b) if self.draw(st.booleans()) else (b, a)


# Layers: each takes a chain on by one operation


def conv(chain: Chain) -> None:
    channels, groups = chain.dims[1], chain.draw(st.sampled_from([1, chain.dims[1]]))
    out = groups * chain.draw(st.integers(1, 2))
    bias = [chain.random(out)] if chain.draw(st.booleans()) else []
    weights = chain.random(out, channels // groups, 3, 3)
    chain.last = chain.add("Conv", chain.last, weights, *bias, group=groups, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    chain.dims = (chain.dims[0], out, *chain.dims[2:])


def transposed(chain: Chain) -> None:
    channels, groups = chain.dims[1], chain.draw(st.sampled_from([1, chain.dims[1]]))
    each = chain.draw(st.integers(1, 2))
    bias = [chain.random(groups * each)] if chain.draw(st.booleans()) else []
    inputs = (chain.last, chain.random(channels, each, 1, 1), *bias)
    chain.last = chain.add("ConvTranspose", *inputs, group=groups, kernel_shape=[1, 1])
    chain.dims = (chain.dims[0], groups * each, *chain.dims[2:])


def gemm(chain: Chain) -> None:
    turned, rows, columns = chain.draw(st.booleans()), math.prod(chain.dims[1:]), chain.draw(st.integers(1, 6))
    flat = chain.add("Flatten", chain.last, axis=1)
    weights = chain.random(*((columns, rows) if turned else (rows, columns)))
    bias = [chain.random(*chain.draw(st.sampled_from([(columns,), (1, columns), (1,)])))]
    bias = bias if chain.opset < 11 or chain.draw(st.booleans()) else []
    matrix = chain.add("Gemm", flat, weights, *bias, transB=int(turned), alpha=0.5, beta=2.0)
    if chain.draw(st.booleans()):
        matrix = chain.add(chain.draw(st.sampled_from(["Mul", "Add"])), matrix, chain.random(1, columns))
    shape = chain.constant([chain.dims[0], columns, 1, 1], np.int64)
    chain.last = chain.add("Reshape", matrix, shape)
    chain.dims = (chain.dims[0], columns, 1, 1)


def batch_normalization(chain: Chain) -> None:
    channels = chain.dims[1]
    variance = chain.constant(chain.rng.uniform(0.5, 1.5, channels))
    inputs = (chain.last, *(chain.random(channels) for _ in range(3)), variance)
    chain.last = chain.add("BatchNormalization", *inputs, epsilon=1e-3)


def arithmetic(chain: Chain) -> None:
    operator = chain.draw(st.sampled_from(["Mul", "Add", "Sub", "Div"]))
    n, c, h, w = chain.dims
    shape = chain.draw(st.sampled_from([(1, c, 1, 1), (c, 1, 1), (1,), (), (1, 1, h, w), (w,), (n, c, h, w)]))
    inputs = (chain.last, chain.random(*shape))
    chain.last = chain.add(operator, *(chain.either(*inputs) if operator in ("Mul", "Add") else inputs))


def noop(chain: Chain) -> None:
    choice = chain.draw(st.sampled_from(["Identity", "Cast", "Dropout", "Reshape", "Transpose", "Concat", "Sum"]))
    options: dict[str, dict[str, Any]] = {
        "Cast": {"to": 1},
        "Transpose": {"perm": [0, 1, 2, 3]},
        "Concat": {"axis": 1},
        "Dropout": {"outputs": 2},
    }
    shape = [chain.constant(chain.dims, np.int64)] if choice == "Reshape" else []
    chain.last = chain.add(choice, chain.last, *shape, **options.get(choice, {}))


def turned(chain: Chain) -> None:
    chain.last = chain.add("Transpose", chain.last, perm=[0, 1, 3, 2])
    chain.dims = (*chain.dims[:2], chain.dims[3], chain.dims[2])


def relu(chain: Chain) -> None:
    chain.last = chain.add("Relu", chain.last)


def gelu(chain: Chain) -> None:
    x, half = chain.last, chain.constant(0.5)
    if chain.draw(st.booleans()):
        scaled = chain.add("Div", x, chain.constant(math.sqrt(2)))
    else:
        scaled = chain.add("Mul", *chain.either(x, chain.constant(math.sqrt(0.5))))
    chain.last = _half_of_one_plus(chain, x, chain.add("Erf", scaled), half)


def gelu_by_tanh(chain: Chain) -> None:
    x = chain.last
    cube = chain.add("Pow", x, chain.constant(3.0))
    cubic = chain.add("Add", *chain.either(x, chain.add("Mul", *chain.either(cube, chain.constant(0.044715)))))
    tanh = chain.add("Tanh", chain.add("Mul", *chain.either(cubic, chain.constant(math.sqrt(2 / math.pi)))))
    chain.last = _half_of_one_plus(chain, x, tanh, chain.constant(0.5))


def _half_of_one_plus(chain: Chain, x: str, inner: str, half: str) -> str:
    factor = chain.add("Add", *chain.either(inner, chain.constant(1.0)))
    if chain.draw(st.booleans()):
        return chain.add("Mul", *chain.either(chain.add("Mul", *chain.either(x, factor)), half))
    return chain.add("Mul", *chain.either(chain.add("Mul", *chain.either(x, half)), factor))


def swish(chain: Chain) -> None:
    x = chain.last
    inner = chain.add("Mul", x, chain.constant(1.5)) if chain.draw(st.booleans()) else x
    chain.last = chain.add("Mul", *chain.either(x, chain.add("Sigmoid", inner)))


def hard_swish(chain: Chain) -> None:
    x = chain.last
    if chain.draw(st.booleans()):
        factor = chain.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        chain.last = chain.add("Mul", *chain.either(x, factor))
        return
    inputs = (chain.add("Add", x, chain.constant(3.0)),)
    bounds = (chain.constant(0.0), chain.constant(6.0))
    clip = chain.add("Clip", *inputs, min=0.0, max=6.0) if chain.opset < 11 else chain.add("Clip", *inputs, *bounds)
    chain.last = chain.add("Div", chain.add("Mul", *chain.either(x, clip)), chain.constant(6.0))


def mish(chain: Chain) -> None:
    x = chain.last
    chain.last = chain.add("Mul", *chain.either(x, chain.add("Tanh", chain.add("Softplus", x))))


def layer_normalization(chain: Chain) -> None:
    axes = chain.draw(st.sampled_from([[-1], [3], [2, 3], [-1, -2], [1, 2, 3], [1], [2]]))
    first = min(axis % 4 for axis in axes)
    x = chain.last
    deviation = chain.add("Sub", x, _mean(chain, x, axes))
    square = chain.add("Pow", deviation, chain.constant(2.0))
    if chain.draw(st.booleans()):
        square = chain.add("Mul", deviation, deviation)
    variance = chain.add("Add", *chain.either(_mean(chain, square, axes), chain.constant(1e-2)))
    y = chain.add("Div", deviation, chain.add("Sqrt", variance))
    if chain.draw(st.booleans()):
        y = chain.add("Mul", *chain.either(y, chain.random(*chain.dims[first:])))
        y = chain.add("Add", *chain.either(y, chain.random(*chain.dims[first:])))
    chain.last = y


def _mean(chain: Chain, name: str, axes: list[int]) -> str:
    if chain.opset < 18:
        return chain.add("ReduceMean", name, axes=axes)
    return chain.add("ReduceMean", name, chain.constant(axes, np.int64))


LAYERS = (
    conv,
    transposed,
    gemm,
    batch_normalization,
    arithmetic,
    noop,
    turned,
    relu,
    gelu,
    gelu_by_tanh,
    swish,
    hard_swish,
    mish,
    layer_normalization,
)


@st.composite
def networks(draw: Draw) -> Model:
    """A model of one to six layers, whose input is x."""
    chain = Chain(draw, draw(st.sampled_from([9, 11, 13, 17, 18, 22])))
    for layer in draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=6)):
        layer(chain)
        if draw(st.integers(0, 5)) == 0:
            chain.asked.append(chain.last)
        if draw(st.integers(0, 9)) == 0:
            chain.asked.append(draw(st.sampled_from([node.output[0] for node in chain.nodes])))
    outputs = list(dict.fromkeys([*chain.asked, chain.last]))
    return model_of(chain.nodes, {"x": chain.first}, outputs, chain.constants, chain.opset)
