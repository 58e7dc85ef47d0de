"""Constraints on the inputs of nodes that ONNX states and its shape inference leaves unchecked.

Each function returns what is wrong, as a clause, or nothing. They are asked once dims are known, before anything is
computed, so that a wrong model is refused by its node and not by an exception of NumPy in a later stage.

Source: ONNX, "Operators".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from inlay.graph.network import Node, Tensor
from inlay.graph.numpy_operators.moving import PAD_MODES, SCATTER_REDUCTIONS
from inlay.graph.numpy_operators.normalization import SCALES_BY_CHANNEL
from inlay.graph.numpy_operators.pooling import AUTO_PADS, window_fault
from inlay.graph.numpy_operators.recurrent import DIRECTIONS
from inlay.graph.numpy_operators.sampling import COORDINATES, LINEAR_MODES, ROUNDINGS
from inlay.graph.op_graph import Array
from inlay.layout import Dims

_MOST_TAPS = 1 << 20
"""Taps of a window of pooling: more than images have elements, and few enough to be iterated."""

_MOST_OPERATIONS = 1 << 38
"""Taps of all windows of a pooling: minutes of a processor."""


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """A node with what is known of its inputs."""

    node: Node
    """The node."""
    opset: int
    """Version of ONNX's operators."""
    tensors: Sequence[Tensor | None]
    """One entry for each input; None where it is left out."""
    results: Sequence[Tensor | None]
    """What it gives, where that is known."""
    values: Mapping[str, Array]
    """Constants by name."""

    def dims(self, index: int) -> Dims | None:
        """Dims of input `index`; None where it is left out."""
        tensor = self.tensors[index] if index < len(self.tensors) else None
        return None if tensor is None else tensor.dims

    def value(self, index: int) -> Array | None:
        """The elements of input `index`, where they are constant."""
        tensor = self.tensors[index] if index < len(self.tensors) else None
        return None if tensor is None else self.values.get(tensor.name)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node, or `default`."""
        return self.node.attributes.get(name, default)


Constraint = Callable[[NodeInputs], str]


def axis_fault(node: Node, first: Tensor | None) -> str:
    """What is wrong with the attributes of a node that count axes of its first input.

    They are checked before ONNX infers dims, since its inference reads beyond its tables where one is out of range.
    """
    count = 0 if first is None else len(first.dims)
    for name, (low, high) in _AXIS_ATTRIBUTES.items():
        axis = node.attributes.get(name)
        is_inner = name != "axis" or node.operator in _INNER_AXIS
        margin = 0 if is_inner else 2  # OneHot, Concat and their like name an axis of the result
        if first is not None and isinstance(axis, int) and not low * count - margin <= axis < high * count + margin:
            return f"{name} {axis} is not one of {count}"
    return ""


_AXIS_ATTRIBUTES = {"axis": (-1, 1), "batch_axis": (-1, 1), "batch_dims": (0, 1), "time_axis": (-1, 1)}
_INNER_AXIS = frozenset({"LayerNormalization", "RMSNormalization"})


def fault_of(given: NodeInputs) -> str:
    """What is wrong with a node's inputs; empty if nothing is."""
    for name, allowed in _WORDS.get(given.node.operator, {}).items():
        value = given.attribute(name)
        if value is not None and value not in allowed:
            return f"{name} is {value!r}, which is none of {', '.join(allowed)}"
    check = CONSTRAINTS.get(given.node.operator)
    return "" if check is None else check(given)


def _spread_fault(given: NodeInputs, index: int, to: Dims, what: str) -> str:
    """What is wrong with an input that is spread over dims `to` by ONNX's unidirectional broadcasting."""
    dims = given.dims(index) or ()
    padded = (1,) * (len(to) - len(dims)) + dims
    is_spread = len(dims) <= len(to) and all(n in (1, of) for n, of in zip(padded, to, strict=True))
    return "" if is_spread else f"{what} of dims {dims} is not spread over {to}"


# Products and windows


def _gemm(given: NodeInputs) -> str:
    a, b = given.dims(0), given.dims(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return "A and B have two axes"
    m, columns = a[::-1] if given.attribute("transA", 0) else a
    rows, n = b[::-1] if given.attribute("transB", 0) else b
    return f"A has {columns} columns and B {rows} rows" if columns != rows else _spread_fault(given, 2, (m, n), "C")


def _reshape(given: NodeInputs) -> str:
    src, result = given.dims(0), given.results[0]
    if src is None or result is None or prod(src) == prod(result.dims):
        return ""
    return f"{prod(src)} elements are no {result.dims}"


def _convolution(given: NodeInputs) -> str:
    src, weights, groups = given.dims(0), given.dims(1), int(given.attribute("group", 1))
    if src is None or weights is None or len(weights) != len(src) or len(weights) < 3:
        return "both need a batch, channels and the same axes of space"
    is_forward = given.node.operator in ("Conv", "ConvInteger", "QLinearConv")
    axis, factor = (1, groups) if is_forward else (0, 1)
    if groups < 1 or weights[axis] * factor != src[1] or weights[0] % groups:
        return f"the weights are for {weights[axis] * factor} channels in {groups} groups"
    wrong = window_fault(given.node, len(src) - 2)
    if wrong:
        return wrong
    result = given.results[0] if given.results else None
    if result is not None and len(result.dims) != len(src):  # ONNX's inference ends early there
        return f"output_shape {tuple(given.attribute('output_shape') or ())} is smaller than the image, {src[2:]}"
    kernel = given.attribute("kernel_shape")
    if kernel and tuple(kernel) != weights[2:]:
        return f"kernel_shape is {tuple(kernel)}, and the weights have {weights[2:]}"
    bias, outputs = given.dims(2), weights[0] if is_forward else weights[1] * groups
    if given.node.operator in ("Conv", "ConvTranspose") and bias is not None and bias != (outputs,):
        return f"the bias has dims {bias}, and there are {outputs} channels"
    return ""


def _quantized_convolution(given: NodeInputs) -> str:
    src, weights = (0, 3) if given.node.operator == "QLinearConv" else (0, 1)
    tensors = (given.tensors[src], given.tensors[weights])
    return _convolution(NodeInputs(given.node, given.opset, tensors, given.results, given.values))


def _pooling(given: NodeInputs) -> str:
    wrong = window_fault(given.node, len(given.dims(0) or ()) - 2)
    if wrong:
        return wrong
    taps = prod(int(n) for n in given.attribute("kernel_shape", ()))
    if taps > _MOST_TAPS:
        return f"its window has {taps} taps, {_MOST_TAPS} at most are supported"
    operations = taps * max((prod(result.dims) for result in given.results if result is not None), default=0)
    return "" if operations <= _MOST_OPERATIONS else f"its windows have {operations} taps together, which takes hours"


def _prelu(given: NodeInputs) -> str:
    return _spread_fault(given, 1, given.dims(0) or (), "the slope")


def _einsum(given: NodeInputs) -> str:
    """The labels of an equation have one extent each; dots stand for axes that are spread."""
    equation = str(given.attribute("equation", "")).replace(" ", "")
    if not re.fullmatch(r"[A-Za-z.]*(,[A-Za-z.]*)*(->[A-Za-z.]*)?", equation):
        return f"equation {equation!r} has other signs than letters, commas, three dots and an arrow"
    terms, _, result = equation.partition("->")
    extents: dict[str, int] = {}
    sources = terms.split(",")
    if len(sources) != len(given.tensors):
        return f"equation {equation!r} has {len(sources)} terms for {len(given.tensors)} inputs"
    for index, term in enumerate(sources):
        dims, letters = given.dims(index) or (), term.replace("...", "", 1)
        is_open = "..." in term
        if "." in letters or (len(letters) > len(dims) if is_open else len(letters) != len(dims)):
            return f"term {term!r} of the equation does not name the axes of dims {dims}"
        first = len(term.partition("...")[0])
        kept = (*dims[:first], *dims[len(dims) - (len(letters) - first) :]) if is_open else dims
        for letter, n in zip(letters, kept, strict=True):
            if extents.setdefault(letter, n) != n and 1 not in (n, extents[letter]):
                return f"label {letter!r} of the equation stands for {extents[letter]} and {n} elements"
            extents[letter] = max(extents[letter], n)
    wrong = sorted({*result} - {*extents, "."})
    return f"the result's label {wrong[0]!r} is in no term of {equation!r}" if wrong else ""


# Normalizations


def _batch_normalization(given: NodeInputs) -> str:
    src = given.dims(0) or ()
    channels = src[1] if len(src) > 1 else 1
    for index, what in enumerate(("scale", "shift", "mean", "variance"), 1):
        if given.attribute("spatial", 1) == 1 and given.dims(index) != (channels,):
            return f"its {what} has dims {given.dims(index)}, and there are {channels} channels"
    return ""


def _layer_normalization(given: NodeInputs) -> str:
    src = given.dims(0) or ()
    axis = int(given.attribute("axis", -1))
    over = src[axis % max(len(src), 1) :]
    wrong = _axis_fault(axis, src)
    return wrong or _spread_fault(given, 1, over, "the scale") or _spread_fault(given, 2, over, "the shift")


def _grouped_normalization(given: NodeInputs) -> str:
    src = given.dims(0) or ()
    if len(src) < 2:
        return "the first needs a batch and channels"
    channels, is_grouped = src[1], given.node.operator == "GroupNormalization"
    groups = int(given.attribute("num_groups", 0)) if is_grouped else channels
    if groups < 1 or channels % groups:
        return f"{groups} groups do not divide {channels} channels"
    is_by_group = is_grouped and given.opset < SCALES_BY_CHANNEL
    count, each = (groups, "group") if is_by_group else (channels, "channel")
    if any(given.dims(index) != (count,) for index in (1, 2)):
        return f"opset {given.opset} has a scale and a shift for each {each}, {count} here"
    return ""


# Recurrent

_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _recurrent(given: NodeInputs) -> str:
    src, states = given.dims(0) or (), given.dims(2) or ()
    if len(src) != 3 or len(states) != 3:
        return "X, W and R have three axes"
    gates, hidden = _GATES[given.node.operator], states[2]
    count = 2 if given.attribute("direction", "forward") == "bidirectional" else 1
    batch, inputs = src[0 if given.attribute("layout", 0) else 1], src[2]
    if int(given.attribute("hidden_size", hidden)) != hidden:
        return f"hidden_size is {given.attribute('hidden_size')}, and R has {hidden}"
    state = (batch, count, hidden) if given.attribute("layout", 0) else (count, batch, hidden)
    wanted = [src, (count, gates * hidden, inputs), (count, gates * hidden, hidden), (count, 2 * gates * hidden)]
    wanted += [(batch,), state, state, (count, 3 * hidden)]
    names = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    for index, (name, dims) in enumerate(zip(names, wanted, strict=True)):
        if given.dims(index) is not None and given.dims(index) != dims:
            return f"{name} has dims {given.dims(index)}, and {dims} fit X and R"
    return ""


# Indices


def _gather_tuples(given: NodeInputs) -> str:
    src, indices = given.dims(0) or (), given.value(1)
    batch = int(given.attribute("batch_dims", 0)) if given.node.operator == "GatherND" else 0
    if indices is None or not indices.ndim or not indices.size:
        return ""
    if batch + indices.shape[-1] > len(src):
        return f"indices of {indices.shape[-1]} axes after {batch} do not fit data of {len(src)}"
    faults = (_range_fault(indices[..., k], src[batch + k], batch + k) for k in range(indices.shape[-1]))
    return next(filter(None, faults), "")


def _gather(given: NodeInputs) -> str:
    src, indices, axis = given.dims(0) or (), given.value(1), int(given.attribute("axis", 0))
    wrong = _axis_fault(axis, src)
    return wrong or ("" if indices is None else _range_fault(indices, src[axis], axis % len(src)))


def _axis_fault(axis: int, dims: Dims) -> str:
    return "" if -len(dims) <= axis < len(dims) else f"axis {axis} is not one of {len(dims)}"


def _range_fault(indices: Array, extent: int, axis: int) -> str:
    if not indices.size or (int(indices.min()) >= -extent and int(indices.max()) < extent):
        return ""
    wrong = next(int(k) for k in (indices.min(), indices.max()) if not -extent <= int(k) < extent)
    return f"index {wrong} is outside axis {axis}, which has {extent} elements"


def _cumulative(given: NodeInputs) -> str:
    axis, src = given.value(1), given.dims(0) or ()
    if axis is None:
        return ""
    if axis.size != 1:
        return f"its axis is one number, not {axis.size}"
    return _axis_fault(int(axis.reshape(-1)[0]), src)


def _pad(given: NodeInputs) -> str:
    """Padding by a constant is for each side of each axis, and takes no more away than there is."""
    src = given.dims(0) or ()
    pads = given.attribute("pads") if given.opset < 11 else given.value(1)
    axes = given.value(3) if given.opset >= 18 else None
    if pads is None:
        return ""
    numbers = [int(n) for n in getattr(pads, "reshape", lambda _: pads)(-1)]
    count = len(src) if axes is None else axes.size
    return "" if len(numbers) == 2 * count else f"{len(numbers)} numbers pad {count} axes, which take {2 * count}"


_WORDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    **{name: {"auto_pad": AUTO_PADS} for name in ("AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool")},
    **{name: {"direction": tuple(DIRECTIONS)} for name in _GATES},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("linear", "bilinear", "cubic", "bicubic", "nearest"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "Pad": {"mode": PAD_MODES},
    "Resize": {
        "coordinate_transformation_mode": COORDINATES,
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
        "mode": ("nearest", "linear", "cubic"),
        "nearest_mode": tuple(ROUNDINGS),
    },
    "RoiAlign": {"coordinate_transformation_mode": ("half_pixel", "output_half_pixel"), "mode": ("avg", "max")},
    "ScatterElements": {"reduction": SCATTER_REDUCTIONS},
    "ScatterND": {"reduction": SCATTER_REDUCTIONS},
    "Upsample": {"mode": ("nearest", *LINEAR_MODES)},
}
"""By operator and attribute, the texts that ONNX allows."""

CONSTRAINTS: Mapping[str, Constraint] = {
    "AveragePool": _pooling,
    "BatchNormalization": _batch_normalization,
    "Conv": _convolution,
    "ConvInteger": _quantized_convolution,
    "ConvTranspose": _convolution,
    "CumProd": _cumulative,
    "CumSum": _cumulative,
    "Einsum": _einsum,
    "GRU": _recurrent,
    "Gather": _gather,
    "GatherElements": _gather,
    "GatherND": _gather_tuples,
    "Gemm": _gemm,
    "GroupNormalization": _grouped_normalization,
    "InstanceNormalization": _grouped_normalization,
    "LSTM": _recurrent,
    "LayerNormalization": _layer_normalization,
    "LpPool": _pooling,
    "MaxPool": _pooling,
    "PRelu": _prelu,
    "Pad": _pad,
    "QLinearConv": _quantized_convolution,
    "RMSNormalization": _layer_normalization,
    "RNN": _recurrent,
    "Reshape": _reshape,
    "Scatter": _gather,
    "ScatterElements": _gather,
    "ScatterND": _gather_tuples,
}
"""The constraint of each operator that has one."""
