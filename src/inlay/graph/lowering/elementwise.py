"""Functions of one element: each is an algorithm of eltwise with its numbers.

`FUNCTIONS` has those that are told nothing or only attributes; Clip and Pow have inputs that must be constants.
"""

from collections.abc import Callable, Mapping
from math import inf

import numpy as np

from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.graph.op import Array


def eltwise(draft: Draft, src: Operand, algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> str:
    """A function of each element of `src`."""
    numbers = {"alpha": float(alpha), "beta": float(beta)}
    return draft.put("eltwise", {"src": src}, draft.dims(src), algorithm=algorithm, **numbers)


def plain(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Draft], Operand]:
    """The rule of an operator that is an algorithm with fixed numbers."""

    def rule(draft: Draft) -> Operand:
        return eltwise(draft, draft.source(0), algorithm, alpha, beta)

    return rule


def sloped(algorithm: str, default: float) -> Callable[[Draft], Operand]:
    """The rule of an operator whose attribute alpha is that of the algorithm."""

    def rule(draft: Draft) -> Operand:
        return eltwise(draft, draft.source(0), algorithm, draft.attribute("alpha", default))

    return rule


def hard_sigmoid(draft: Draft) -> Operand:
    """max(0, min(1, alpha x + beta))."""
    alpha, beta = draft.attribute("alpha", 0.2), draft.attribute("beta", 0.5)
    return eltwise(draft, draft.source(0), "hardsigmoid", alpha, beta)


def selu(draft: Draft) -> Operand:
    """gamma times elu."""
    alpha, gamma = draft.attribute("alpha", 1.6732632423543772), draft.attribute("gamma", 1.0507009873554805)
    return eltwise(draft, eltwise(draft, draft.source(0), "elu", alpha), "linear", gamma)


def celu(draft: Draft) -> Operand:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1)), which is alpha elu(x / alpha)."""
    alpha = draft.attribute("alpha", 1.0)
    require(alpha > 0, f"alpha is {alpha}, which is no slope of elu")
    if alpha == 1:
        return eltwise(draft, draft.source(0), "elu", 1.0)
    scaled = eltwise(draft, draft.source(0), "linear", 1 / alpha)
    return eltwise(draft, eltwise(draft, scaled, "elu", 1.0), "linear", alpha)


def gelu(draft: Draft) -> Operand:
    """x / 2 (1 + erf(x / sqrt 2)), or by the tanh."""
    approximate = draft.attribute("approximate", "none")
    require(approximate in ("none", "tanh"), f"approximate is {approximate!r}")
    return eltwise(draft, draft.source(0), "gelu_tanh" if approximate == "tanh" else "gelu_erf")


def clip(draft: Draft) -> Operand:
    """min(high, max(low, x)): attributes before opset 11, then inputs."""
    if draft.opset < 11:
        low, high = draft.attribute("min", -inf), draft.attribute("max", inf)
    else:
        low, high = (_bound(draft, index, default) for index, default in ((1, -inf), (2, inf)))
    require(low <= high, f"its bounds {low} and {high} are in no order")
    src = draft.source(0)
    if (low, high) == (0, inf):
        return eltwise(draft, src, "relu")
    return eltwise(draft, src, "clip_v2", low, high)


def _bound(draft: Draft, index: int, default: float) -> float:
    return scalar(draft.constant(index, "bound")) if draft.given(index) else default


def scalar(array: Array) -> float:
    """The number of a constant with one element.

    Raises:
        Declined: it has several.
    """
    require(array.size == 1, "a constant has several elements")
    return float(array.reshape(-1)[0])


def power(draft: Draft) -> Operand:
    """x to a constant power, the same for all."""
    exponent = scalar(draft.constant(1, "exponent"))
    src = draft.source(0)
    require(draft.dims(src) == draft.result().dims, "its exponent has more axes")
    return powered(draft, src, exponent)


def powered(draft: Draft, src: Operand, exponent: float, factor: float = 1.0) -> Operand:
    """factor times src to a power."""
    if (exponent, factor) == (2, 1):
        return eltwise(draft, src, "square")
    if (exponent, factor) == (0.5, 1):
        return eltwise(draft, src, "sqrt")
    return eltwise(draft, src, "pow", factor, exponent)


FUNCTIONS: Mapping[str, Callable[[Draft], Operand]] = {
    "Abs": plain("abs"),
    "Celu": celu,
    "Clip": clip,
    "Elu": sloped("elu", 1.0),
    "Exp": plain("exp"),
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": plain("hardswish", float(np.float32(1 / 6)), 0.5),
    "LeakyRelu": sloped("relu", float(np.float32(0.01))),
    "Log": plain("log"),
    "Mish": plain("mish"),
    "Neg": plain("linear", -1.0),
    "Pow": power,
    "Reciprocal": plain("pow", 1.0, -1.0),
    "Relu": plain("relu"),
    "Round": plain("round"),
    "Selu": selu,
    "Sigmoid": plain("logistic"),
    "Softplus": plain("soft_relu", 1.0),
    "Sqrt": plain("sqrt"),
    "Swish": sloped("swish", 1.0),
    "Tanh": plain("tanh"),
}
"""The rule of each operator."""
