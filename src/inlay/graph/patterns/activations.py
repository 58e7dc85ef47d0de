"""Activations that exports write in parts: Gelu by erf or tanh, HardSwish, Swish (SiLU), Mish.

Each is a product of its input with a function of it, and of numbers that stand anywhere in the product: before it,
between, after it. So a product is read as a number and the tensors that it multiplies, in every way that is a few
nodes deep, and each way is compared with the formulas.

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; ONNX, "Operators": Gelu, HardSwish, Swish, Mish.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from inlay.graph.network import Network, Node
from inlay.graph.patterns.rewriting import Draft, rewritten

Product: TypeAlias = tuple[float, tuple[str, ...]]
"""A number, and the tensors it is multiplied with."""

Found: TypeAlias = tuple[str, dict[str, Any]] | None
"""An operator and its attributes."""

_DEPTH = 2
_TOLERANCE = 1e-3
"""Exports round the numbers of these formulas to a few digits."""

_TYPES = ("float32", "float16", "bfloat16")


def activations_whole(network: Network) -> Network:
    """The network with activations in parts as one node each; its outputs are the same within rounding.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> nodes = (Node("s", "Sigmoid", ("x",), ("t",)), Node("m", "Mul", ("x", "t"), ("y",)))
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xty"}
    >>> activations_whole(Network("", 17, ("x",), ("y",), nodes, tensors)).nodes
    (Node(name='m', operator='Swish', inputs=('x',), outputs=('y',), attributes={'alpha': 1.0}, domain=''),)
    """
    return rewritten(network, _activation)


def _activation(draft: Draft, node: Node) -> Node | None:
    """The activation that a product or quotient is."""
    if node.operator not in ("Mul", "Div") or draft.tensors[node.outputs[0]].dtype.name not in _TYPES:
        return None
    for number, tensors in _products(draft, node.outputs[0], _DEPTH):
        if len(tensors) != 2:
            continue
        for x, factor in (tensors, tensors[::-1]):
            found = _formula(draft, number, x, factor)
            if found is not None and draft.dims(x) == draft.dims(node.outputs[0]):
                return Node(node.name, found[0], (x,), node.outputs, found[1])
    return None


def _formula(draft: Draft, number: float, x: str, factor: str) -> Found:
    """What `number` times x times `factor` is, if anything."""
    return next((found for formula in _FORMULAS if (found := formula(draft, number, x, factor)) is not None), None)


def _gelu(draft: Draft, number: float, x: str, factor: str) -> Found:
    """0.5 x (1 + erf(x / sqrt 2)), or with a tanh that is near it."""
    inner = _plus(draft, factor, 1)
    node = None if inner is None else draft.producer(inner)
    if node is None or not _near(number, 0.5):
        return None
    if node.operator == "Erf" and _is_multiple(draft, node.inputs[0], x, math.sqrt(0.5)):
        return "Gelu", {"approximate": "none"}
    if node.operator == "Tanh" and _is_gelu_cubic(draft, node.inputs[0], x):
        return "Gelu", {"approximate": "tanh"}
    return None


def _is_gelu_cubic(draft: Draft, name: str, x: str) -> bool:
    """Whether a tensor is sqrt(2 / pi) (x + 0.044715 x^3)."""
    for number, tensors in _products(draft, name, 1):
        total = draft.made_by(tensors[0], "Add") if len(tensors) == 1 else None
        if total is None or not _near(number, math.sqrt(2 / math.pi)) or x not in total.inputs:
            continue
        other = total.inputs[1 - total.inputs.index(x)]
        for factor, parts in _products(draft, other, _DEPTH):
            if _near(factor, 0.044715) and (parts == (x, x, x) or (len(parts) == 1 and _is_cube(draft, parts[0], x))):
                return True
    return False


def _is_cube(draft: Draft, name: str, x: str) -> bool:
    node = draft.made_by(name, "Pow")
    return node is not None and node.inputs[0] == x and draft.scalar(node.inputs[1]) == 3


def _hard_swish(draft: Draft, number: float, x: str, factor: str) -> Found:
    """x min(max(x + 3, 0), 6) / 6, with HardSigmoid or a Clip."""
    node = draft.producer(factor)
    if node is None:
        return None
    if node.operator == "HardSigmoid":
        alpha, beta = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
        same = node.inputs[0] == x and _near(number, 1) and _near(alpha, 1 / 6) and _near(beta, 0.5)
        return ("HardSwish", {}) if same else None
    if node.operator == "Clip" and _near(number, 1 / 6) and _bounds(draft, node) == (0, 6):
        return ("HardSwish", {}) if _plus(draft, node.inputs[0], 3) == x else None
    return None


def _swish(draft: Draft, number: float, x: str, factor: str) -> Found:
    """x sigmoid(alpha x)."""
    node = draft.made_by(factor, "Sigmoid")
    if node is None or number != 1:
        return None
    for alpha, tensors in _products(draft, node.inputs[0], 1):
        if tensors == (x,):
            return "Swish", {"alpha": alpha}
    return None


def _mish(draft: Draft, number: float, x: str, factor: str) -> Found:
    """x tanh(log(1 + exp(x)))."""
    tanh = draft.made_by(factor, "Tanh")
    softplus = draft.made_by(tanh.inputs[0], "Softplus") if tanh is not None else None
    return ("Mish", {}) if softplus is not None and number == 1 and softplus.inputs[0] == x else None


_FORMULAS: tuple[Callable[[Draft, float, str, str], Found], ...] = (_gelu, _hard_swish, _swish, _mish)


# Products and sums


def _products(draft: Draft, name: str, depth: int) -> Iterator[Product]:
    """The ways to read a tensor as a number times tensors: as it is, and as products `depth` nodes deep."""
    number = draft.scalar(name)
    if number is not None:
        yield number, ()
        return
    yield 1.0, (name,)
    node = draft.producer(name)
    if node is None or depth == 0 or node.operator not in ("Mul", "Div"):
        return
    left, right = node.inputs
    if node.operator == "Mul":
        ways = itertools.product(_products(draft, left, depth - 1), list(_products(draft, right, depth - 1)))
        yield from ((a * b, (*xs, *ys)) for (a, xs), (b, ys) in ways)
        return
    divisor = draft.scalar(right)
    if divisor:
        yield from ((number / divisor, tensors) for number, tensors in _products(draft, left, depth - 1))


def _is_multiple(draft: Draft, name: str, x: str, number: float) -> bool:
    return any(tensors == (x,) and _near(found, number) for found, tensors in _products(draft, name, 1))


def _plus(draft: Draft, name: str, number: float) -> str | None:
    """The tensor to which a node adds the number."""
    node = draft.made_by(name, "Add")
    if node is None:
        return None
    for tensor, other in (node.inputs, node.inputs[::-1]):
        added = draft.scalar(other)
        if added is not None and _near(added, number):
            return tensor
    return None


def _bounds(draft: Draft, node: Node) -> tuple[float | None, float | None]:
    """Least and greatest of a Clip: inputs from opset 11 on."""
    if len(node.inputs) == 1:
        return node.attributes.get("min"), node.attributes.get("max")
    least, greatest = (*node.inputs[1:], "")[:2]
    return draft.scalar(least), draft.scalar(greatest)


def _near(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=_TOLERANCE)
