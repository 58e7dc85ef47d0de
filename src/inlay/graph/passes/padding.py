"""`fold_padding`: let a window pad its image itself, in place of a Pad before it.

    Pad (0) -> Conv                    Conv with more padding
    Pad (0) -> AveragePool             AveragePool with more padding, which its means count
    Pad (-inf) -> MaxPool              MaxPool with more padding
    Relu -> Pad (0) -> MaxPool         Relu -> MaxPool with more padding, since no element is below 0

Exporters write such a Pad where the padding differs by side, and for layers of TensorFlow. Results are the same.

Source: ONNX, "Operators": AveragePool, Conv, MaxPool, Pad.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.passes.rewriting import NetworkRewriter, rewrite_nodes
from inlay.layout import Dims


def fold_padding(network: Network) -> Network:
    """Return the network with each Pad folded into the convolutions and poolings that read it.

    >>> from inlay.graph.network import Tensor
    >>> pad = Node("pad", "Pad", ("x", "sides"), ("t",))
    >>> conv = Node("conv", "Conv", ("t", "w"), ("y",), {"strides": (2, 2)})
    >>> constants = {"sides": np.array([0, 0, 0, 0, 0, 0, 1, 1]), "w": np.ones((1, 1, 3, 3), np.float32)}
    >>> dims = {"x": (1, 1, 4, 4), "t": (1, 1, 5, 5), "y": (1, 1, 2, 2), "sides": (8,), "w": (1, 1, 3, 3)}
    >>> tensors = {name: Tensor(name, extents, np.dtype(np.float32)) for name, extents in dims.items()}
    >>> folded = fold_padding(Network("", 17, ("x",), ("y",), (pad, conv), tensors, constants))
    >>> [(node.inputs, node.attributes["pads"]) for node in folded.nodes]
    [(('x', 'w'), (0, 0, 1, 1))]
    """
    return rewrite_nodes(network, _fold)


def _fold(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a convolution or pooling that reads the source of the Pad before it; None if there is none to fold."""
    rule, pad = _RULES.get(node.operator), rewriter.producer_of_kind(node.inputs[0], "Pad") if node.inputs else None
    if rule is None or pad is None or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    sides, value = _spatial_sides(rewriter, pad), _constant_value(rewriter, pad)
    if sides is None or value is None:
        return None
    attributes = rule(rewriter, node, pad, sides, value)
    if attributes is None:
        return None
    total = _total_sides(node, sides)
    inputs = (pad.inputs[0], *node.inputs[1:])
    return replace(node, inputs=inputs, attributes={**node.attributes, **attributes, "pads": total})


def join_padding(rewriter: NetworkRewriter, node: Node, pad: Node, kernel: Dims, value: float) -> Dims | None:
    """Return the padding of a convolution and of the Pad before it together.

    None is returned unless the Pad writes `value` beside the image only, and each side has less padding than `kernel`.
    """
    sides = _spatial_sides(rewriter, pad)
    if sides is None or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    is_alike = _constant_value(rewriter, pad) == value
    return _total_sides(node, sides) if is_alike and _is_narrow(node, sides, kernel) else None


def _spatial_sides(rewriter: NetworkRewriter, pad: Node) -> Dims | None:
    """Return the elements that a Pad adds before each spatial axis, then after each.

    None is returned if they are not constant, if batch or channels are padded, or if elements are removed.
    """
    count = len(rewriter.dims(pad.inputs[0]))
    if rewriter.network.opset < 11:
        pads, axes = list(pad.attributes.get("pads", ())), list(range(count))
    else:
        arrays = [rewriter.constants.get(name) for name in pad.inputs[1:4:2] if name]
        if any(array is None for array in arrays):
            return None
        lists = [array.reshape(-1).tolist() for array in arrays if array is not None]
        pads, axes = lists[0], [axis % count for axis in lists[1]] if len(lists) > 1 else list(range(count))
    if len(pads) != 2 * len(axes):
        return None
    sides = [[0] * count, [0] * count]
    for i, (before, after) in enumerate(zip(pads[: len(axes)], pads[len(axes) :], strict=True)):
        sides[0][axes[i]], sides[1][axes[i]] = int(before), int(after)
    if count < 3 or any(side[0] or side[1] or min(side) < 0 for side in sides):
        return None
    return (*sides[0][2:], *sides[1][2:])


def _constant_value(rewriter: NetworkRewriter, pad: Node) -> float | None:
    """Return the number that a Pad writes; None for other modes than `constant`, and if the number is computed."""
    mode = pad.attributes.get("mode", "constant")
    if mode != "constant":
        return None
    if rewriter.network.opset < 11:
        return float(pad.attributes.get("value", 0.0))
    is_given = len(pad.inputs) > 2 and pad.inputs[2]
    return rewriter.scalar(pad.inputs[2]) if is_given else 0.0


_Attributes = dict[str, Any]


def _total_sides(node: Node, sides: Dims) -> Dims:
    """Return the padding of a node and of the Pad before it together."""
    own = node.attributes.get("pads") or (0,) * len(sides)
    return tuple(int(one) + more for one, more in zip(own, sides, strict=True))


def _convolution(rewriter: NetworkRewriter, node: Node, pad: Node, sides: Dims, value: float) -> _Attributes | None:
    """Return the new attributes of a Conv; None unless 0 is padded, by less than a window, and weights are finite."""
    weights = rewriter.constants.get(node.inputs[1])
    is_exact = value == 0 and weights is not None and bool(np.isfinite(weights).all())
    return {} if weights is not None and is_exact and _is_narrow(node, sides, weights.shape[2:]) else None


def _average(rewriter: NetworkRewriter, node: Node, pad: Node, sides: Dims, value: float) -> _Attributes | None:
    """Return the new attributes of an AveragePool; None if its own padding does not count as that of the Pad does."""
    counts_own = bool(node.attributes.get("count_include_pad", 0)) or not any(node.attributes.get("pads") or ())
    is_exact = value == 0 and counts_own and _covers_image(node, sides)
    return {"count_include_pad": 1} if is_exact else None


def _maximum(rewriter: NetworkRewriter, node: Node, pad: Node, sides: Dims, value: float) -> _Attributes | None:
    """Return the new attributes of a MaxPool; None if a padded number may be greater than those of the image."""
    is_least = value == -inf or (value == 0 and rewriter.producer_of_kind(pad.inputs[0], "Relu") is not None)
    has_indices = any(rewriter.is_read(name) for name in node.outputs[1:])
    return {} if is_least and not has_indices and _covers_image(node, sides) else None


def _covers_image(node: Node, sides: Dims) -> bool:
    """Return whether a dense window has an element of the image at each position."""
    is_dense = all(step == 1 for step in node.attributes.get("dilations") or ())
    fits = _is_narrow(node, sides, tuple(node.attributes["kernel_shape"]))
    return is_dense and fits and not node.attributes.get("ceil_mode", 0)


def _is_narrow(node: Node, sides: Dims, kernel: Dims) -> bool:
    """Return whether the padding on each side is smaller than the window without dilation."""
    return all(side < taps for side, taps in zip(_total_sides(node, sides), kernel * 2, strict=True))


_Rule = Callable[[NetworkRewriter, Node, Node, Dims, float], _Attributes | None]
_RULES: Mapping[str, _Rule] = MappingProxyType({"AveragePool": _average, "Conv": _convolution, "MaxPool": _maximum})
"""Rule of each operator that can pad its image: its new attributes, or None where results would differ."""
