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
        self.dims: tuple[int, ...] = draw(st.tuples(st.integers(1, 2), *[st.integers(2, 5)] * 3))
        self.first = self.dims
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.last = "x"
        self.asked: list[str] = []

    def add(self, operator: str, *inputs: str | float, outputs: int = 1, **attributes: Any) -> str:
        """Add a node that reads these tensors and numbers; addends and factors come in either order."""
        names = [f"t{len(self.nodes)}{'m' * i}" for i in range(outputs)]
        read = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        if operator in ("Add", "Mul") and self.coin():
            read.reverse()
        self.nodes.append(helper.make_node(operator, read, names, f"n{len(self.nodes)}", **attributes))
        self.last = names[0]
        return names[0]

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def random(self, *shape: int) -> str:
        """A constant of numbers between 0.5 and 1.5, of either sign."""
        signs = self.rng.choice([-1, 1], shape)
        return self.constant(self.rng.uniform(0.5, 1.5, shape) * signs)

    def coin(self) -> bool:
        return bool(self.draw(st.booleans()))

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def mean(self, name: str, axes: list[int]) -> str:
        if self.opset < 18:
            return self.add("ReduceMean", name, axes=axes)
        return self.add("ReduceMean", name, self.constant(axes, np.int64))

    def half_of_one_plus(self, x: str, inner: str) -> None:
        """x / 2 * (1 + inner), multiplied in either order."""
        factor = self.add("Add", inner, 1.0)
        if self.coin():
            self.add("Mul", self.add("Mul", x, factor), 0.5)
        else:
            self.add("Mul", self.add("Mul", x, 0.5), factor)


# Layers: each takes a chain on by one operation


def conv(chain: Chain) -> None:
    n, channels, h, w = chain.dims
    groups = chain.choose(1, channels)
    out = groups * chain.choose(1, 2)
    inputs = [chain.last, chain.random(out, channels // groups, 3, 3), *([chain.random(out)] if chain.coin() else [])]
    chain.add("Conv", *inputs, group=groups, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    chain.dims = (n, out, h, w)


def transposed(chain: Chain) -> None:
    n, channels, h, w = chain.dims
    groups, each = chain.choose(1, channels), chain.choose(1, 2)
    out = groups * each
    inputs = [chain.last, chain.random(channels, each, 1, 1), *([chain.random(out)] if chain.coin() else [])]
    chain.add("ConvTranspose", *inputs, group=groups, kernel_shape=[1, 1])
    chain.dims = (n, out, h, w)


def gemm(chain: Chain) -> None:
    turned, rows, columns = chain.coin(), math.prod(chain.dims[1:]), chain.draw(st.integers(1, 6))
    inputs = [chain.add("Flatten", chain.last, axis=1), chain.random(*((columns, rows) if turned else (rows, columns)))]
    if chain.opset < 11 or chain.coin():
        inputs.append(chain.random(*chain.choose((columns,), (1, columns), (1,))))
    matrix = chain.add("Gemm", *inputs, transB=int(turned), alpha=0.5, beta=2.0)
    if chain.coin():
        matrix = chain.add(chain.choose("Mul", "Add"), matrix, chain.random(1, columns))
    chain.dims = (chain.dims[0], columns, 1, 1)
    chain.add("Reshape", matrix, chain.constant(chain.dims, np.int64))


def batch_normalization(chain: Chain) -> None:
    channels = chain.dims[1]
    variance = chain.constant(chain.rng.uniform(0.5, 1.5, channels))
    chain.add("BatchNormalization", chain.last, *(chain.random(channels) for _ in range(3)), variance, epsilon=1e-3)


def arithmetic(chain: Chain) -> None:
    n, c, h, w = chain.dims
    shape = chain.choose((1, c, 1, 1), (c, 1, 1), (1,), (), (1, 1, h, w), (w,), (n, c, h, w))
    chain.add(chain.choose("Mul", "Add", "Sub", "Div"), chain.last, chain.random(*shape))


def noop(chain: Chain) -> None:
    options: dict[str, dict[str, Any]] = {
        "Cast": {"to": 1},
        "Transpose": {"perm": [0, 1, 2, 3]},
        "Concat": {"axis": 1},
        "Dropout": {"outputs": 2},
    }
    choice = chain.choose("Identity", "Reshape", "Sum", *options)
    shape = [chain.constant(chain.dims, np.int64)] if choice == "Reshape" else []
    chain.add(choice, chain.last, *shape, **options.get(choice, {}))


def turned(chain: Chain) -> None:
    n, c, h, w = chain.dims
    chain.add("Transpose", chain.last, perm=[0, 1, 3, 2])
    chain.dims = (n, c, w, h)


def relu(chain: Chain) -> None:
    chain.add("Relu", chain.last)


def gelu(chain: Chain) -> None:
    x = chain.last
    scaled = chain.add("Div", x, math.sqrt(2)) if chain.coin() else chain.add("Mul", x, math.sqrt(0.5))
    chain.half_of_one_plus(x, chain.add("Erf", scaled))


def gelu_by_tanh(chain: Chain) -> None:
    x = chain.last
    cubic = chain.add("Add", x, chain.add("Mul", chain.add("Pow", x, 3.0), 0.044715))
    chain.half_of_one_plus(x, chain.add("Tanh", chain.add("Mul", cubic, math.sqrt(2 / math.pi))))


def swish(chain: Chain) -> None:
    x = chain.last
    inner = chain.add("Mul", x, 1.5) if chain.coin() else x
    chain.add("Mul", x, chain.add("Sigmoid", inner))


def hard_swish(chain: Chain) -> None:
    x = chain.last
    if chain.coin():
        chain.add("Mul", x, chain.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        return
    shifted = chain.add("Add", x, 3.0)
    clip = chain.add("Clip", shifted, min=0.0, max=6.0) if chain.opset < 11 else chain.add("Clip", shifted, 0.0, 6.0)
    chain.add("Div", chain.add("Mul", x, clip), 6.0)


def mish(chain: Chain) -> None:
    x = chain.last
    chain.add("Mul", x, chain.add("Tanh", chain.add("Softplus", x)))


def layer_normalization(chain: Chain) -> None:
    axes = chain.choose([-1], [3], [2, 3], [-1, -2], [1, 2, 3], [1], [2])
    x = chain.last
    deviation = chain.add("Sub", x, chain.mean(x, axes))
    square = chain.add("Pow", deviation, 2.0)
    if chain.coin():  # and nothing reads the power
        square = chain.add("Mul", deviation, deviation)
    variance = chain.add("Add", chain.mean(square, axes), 1e-2)
    chain.add("Div", deviation, chain.add("Sqrt", variance))
    if chain.coin():
        for operator in ("Mul", "Add"):
            chain.add(operator, chain.last, chain.random(*chain.dims[min(axis % 4 for axis in axes) :]))


LAYERS = (
    *(conv, transposed, gemm, batch_normalization, arithmetic, noop, turned, relu),
    *(gelu, gelu_by_tanh, swish, hard_swish, mish, layer_normalization),
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
            chain.asked.append(chain.choose(*(node.output[0] for node in chain.nodes)))
    outputs = list(dict.fromkeys([*chain.asked, chain.last]))
    return model_of(chain.nodes, {"x": chain.first}, outputs, chain.constants, chain.opset)
