"""Rules of ONNX on the inputs of nodes that its shape inference does not check.

Each rule returns what is wrong, as a clause for an error text, or an empty text. The importer checks the rules when
dims are known and before anything is computed. So a wrong model is rejected with the name of its node, not by an
exception of NumPy later.

Source: ONNX, "Operators".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from inlay.graph.network import Node, Tensor
from inlay.graph.numpy_operators.data_movement import PAD_MODES, SCATTER_REDUCTIONS
from inlay.graph.numpy_operators.normalization import SCALES_BY_CHANNEL
from inlay.graph.numpy_operators.pooling import AUTO_PADS, window_fault
from inlay.graph.numpy_operators.recurrent import DIRECTIONS
from inlay.graph.numpy_operators.sampling import COORDINATES, LINEAR_MODES, ROUNDINGS
from inlay.graph.op_graph import Array
from inlay.layout import Dims

_MOST_TAPS = 1 << 20
"""Limit on the taps (elements) of a pooling window: more than images have, and few enough to iterate over."""

_MOST_OPERATIONS = 1 << 38
"""Limit on the taps of all windows of a pooling together: minutes of run time."""


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """A node and the known properties of its inputs and results."""

    node: Node
    """The node."""
    opset: int
    """Version of ONNX's operators."""
    tensors: Sequence[Tensor | None]
    """Inputs in order; None where an input is left out."""
    results: Sequence[Tensor | None]
    """Results in order; None where dims are unknown."""
    values: Mapping[str, Array] = field(repr=False)
    """Elements of the constant inputs, by name."""

    def dims(self, index: int) -> Dims | None:
        """Return the dims of input `index`; None if it is left out."""
        tensor = self.tensors[index] if index < len(self.tensors) else None
        return None if tensor is None else tensor.dims

    def value(self, index: int) -> Array | None:
        """Return the elements of input `index`; None if it is not constant or left out."""
        tensor = self.tensors[index] if index < len(self.tensors) else None
        return None if tensor is None else self.values.get(tensor.name)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node, or `default` if the node does not have it."""
        return self.node.attributes.get(name, default)


Constraint = Callable[[NodeInputs], str]
"""Function that returns what is wrong with a node, or an empty text."""


def find_axis_fault(node: Node, first: Tensor | None) -> str:
    """Return what is wrong with the attributes that name axes of a node's first input; an empty text if nothing is.

    The check precedes ONNX's shape inference, which reads beyond its tables if an axis is out of range.
    """
    count = 0 if first is None else len(first.dims)
    for name, (low, high) in _AXIS_ATTRIBUTES.items():
        axis = node.attributes.get(name)
        is_inner = name != "axis" or node.operator in _INNER_AXIS
        margin = 0 if is_inner else 2  # `axis` of OneHot and others may name an axis that only the result has
        if first is not None and isinstance(axis, int) and not low * count - margin <= axis < high * count + margin:
            return f"{name} {axis} is not one of {count}"
    return ""


_AXIS_ATTRIBUTES = {"axis": (-1, 1), "batch_axis": (-1, 1), "batch_dims": (0, 1), "time_axis": (-1, 1)}
"""Attributes that name an axis, each with its least value and its limit, as multiples of the input's number of axes."""
_INNER_AXIS = frozenset({"LayerNormalization", "RMSNormalization"})
"""Operators whose `axis` must be an axis of the input; `axis` of OneHot, Concat and others names an axis of the
result."""


def find_fault(inputs: NodeInputs) -> str:
    """Return what is wrong with a node's attributes and inputs; an empty text if nothing is."""
    for name, allowed in _ALLOWED_TEXTS.get(inputs.node.operator, {}).items():
        value = inputs.attribute(name)
        if value is not None and value not in allowed:
            return f"{name} is {value!r}, not one of {', '.join(allowed)}"
    check = CONSTRAINTS.get(inputs.node.operator)
    return "" if check is None else check(inputs)


def _broadcast_fault(inputs: NodeInputs, index: int, to: Dims, what: str) -> str:
    """Return what is wrong if input `index` cannot be broadcast to dims `to`, by ONNX's unidirectional broadcasting."""
    dims = inputs.dims(index) or ()
    padded = (1,) * (len(to) - len(dims)) + dims
    can_broadcast = len(dims) <= len(to) and all(n in (1, m) for n, m in zip(padded, to, strict=True))
    return "" if can_broadcast else f"{what} of dims {dims} cannot be broadcast to {to}"


# Products and windows


def _gemm(inputs: NodeInputs) -> str:
    """Check that the matrices can be multiplied, and that C can be broadcast to the product."""
    a, b = inputs.dims(0), inputs.dims(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return "A and B have two axes"
    m, columns = a[::-1] if inputs.attribute("transA", 0) else a
    rows, n = b[::-1] if inputs.attribute("transB", 0) else b
    return f"A has {columns} columns and B {rows} rows" if columns != rows else _broadcast_fault(inputs, 2, (m, n), "C")


def _reshape(inputs: NodeInputs) -> str:
    """Check that a reshape keeps the number of elements."""
    src, result = inputs.dims(0), inputs.results[0]
    if src is None or result is None or prod(src) == prod(result.dims):
        return ""
    return f"{prod(src)} elements do not fit dims {result.dims}"


def _convolution(inputs: NodeInputs) -> str:
    """Check the dims of weights and bias of a convolution or its transpose against its input and attributes."""
    src, weights, groups = inputs.dims(0), inputs.dims(1), int(inputs.attribute("group", 1))
    if src is None or weights is None or len(weights) != len(src) or len(weights) < 3:
        return "input and weights need two axes and then the same number of spatial axes, one or more"
    is_forward = inputs.node.operator in ("Conv", "ConvInteger", "QLinearConv")
    axis, factor = (1, groups) if is_forward else (0, 1)
    if groups < 1 or weights[axis] * factor != src[1] or weights[0] % groups:
        return f"the weights are for {weights[axis] * factor} channels in {groups} groups"
    wrong = window_fault(inputs.node, len(src) - 2)
    if wrong:
        return wrong
    result = inputs.results[0] if inputs.results else None
    if result is not None and len(result.dims) != len(src):  # ONNX infers no spatial dims then
        return f"output_shape {tuple(inputs.attribute('output_shape') or ())} is smaller than the image, {src[2:]}"
    kernel = inputs.attribute("kernel_shape")
    if kernel and tuple(kernel) != weights[2:]:
        return f"kernel_shape is {tuple(kernel)}, and the weights have {weights[2:]}"
    bias, outputs = inputs.dims(2), weights[0] if is_forward else weights[1] * groups
    if inputs.node.operator in ("Conv", "ConvTranspose") and bias is not None and bias != (outputs,):
        return f"the bias has dims {bias}, and there are {outputs} channels"
    return ""


def _quantized_convolution(inputs: NodeInputs) -> str:
    """Check ConvInteger or QLinearConv, whose weights are a different input, by the rules of Conv."""
    src, weights = (0, 3) if inputs.node.operator == "QLinearConv" else (0, 1)
    tensors = (inputs.tensors[src], inputs.tensors[weights])
    return _convolution(NodeInputs(inputs.node, inputs.opset, tensors, inputs.results, inputs.values))


def _pooling(inputs: NodeInputs) -> str:
    """Check the window of a pooling, and limit the work that it causes."""
    wrong = window_fault(inputs.node, len(inputs.dims(0) or ()) - 2)
    if wrong:
        return wrong
    taps = prod(int(n) for n in inputs.attribute("kernel_shape", ()))
    if taps > _MOST_TAPS:
        return f"its window has {taps} taps, {_MOST_TAPS} at most are supported"
    operations = taps * max((prod(result.dims) for result in inputs.results if result is not None), default=0)
    return "" if operations <= _MOST_OPERATIONS else f"its windows have {operations} taps together, which takes hours"


def _prelu(inputs: NodeInputs) -> str:
    """Check that the slope can be broadcast to the input."""
    return _broadcast_fault(inputs, 1, inputs.dims(0) or (), "the slope")


def _einsum(inputs: NodeInputs) -> str:
    """Check that each label of an equation stands for one extent, and that terms match the inputs' axes.

    An ellipsis (three dots) stands for any number of axes, which are broadcast.
    """
    equation = str(inputs.attribute("equation", "")).replace(" ", "")
    if not re.fullmatch(r"[A-Za-z.]*(,[A-Za-z.]*)*(->[A-Za-z.]*)?", equation):
        return f"equation {equation!r} has other signs than letters, commas, three dots and an arrow"
    terms, _, result = equation.partition("->")
    extents: dict[str, int] = {}
    sources = terms.split(",")
    if len(sources) != len(inputs.tensors):
        return f"equation {equation!r} has {len(sources)} terms for {len(inputs.tensors)} inputs"
    for index, term in enumerate(sources):
        dims, letters = inputs.dims(index) or (), term.replace("...", "", 1)
        is_open = "..." in term
        if "." in letters or (len(letters) > len(dims) if is_open else len(letters) != len(dims)):
            return f"term {term!r} of the equation does not name the axes of dims {dims}"
        first = len(term.partition("...")[0])
        labelled = (*dims[:first], *dims[len(dims) - (len(letters) - first) :]) if is_open else dims
        for letter, n in zip(letters, labelled, strict=True):
            if extents.setdefault(letter, n) != n and 1 not in (n, extents[letter]):
                return f"label {letter!r} of the equation stands for {extents[letter]} and {n} elements"
            extents[letter] = max(extents[letter], n)
    wrong = sorted({*result} - {*extents, "."})
    return f"the result's label {wrong[0]!r} is in no term of {equation!r}" if wrong else ""


# Normalizations


def _batch_normalization(inputs: NodeInputs) -> str:
    """Check that scale, shift, mean and variance have one element for each channel."""
    src = inputs.dims(0) or ()
    channels = src[1] if len(src) > 1 else 1
    for index, what in enumerate(("scale", "shift", "mean", "variance"), 1):
        if inputs.attribute("spatial", 1) == 1 and inputs.dims(index) != (channels,):
            return f"its {what} has dims {inputs.dims(index)}, and there are {channels} channels"
    return ""


def _layer_normalization(inputs: NodeInputs) -> str:
    """Check the axis, and that scale and shift can be broadcast to the normalized axes."""
    src = inputs.dims(0) or ()
    axis = int(inputs.attribute("axis", -1))
    over = src[axis % max(len(src), 1) :]
    wrong = _axis_fault(axis, src)
    return wrong or _broadcast_fault(inputs, 1, over, "the scale") or _broadcast_fault(inputs, 2, over, "the shift")


def _grouped_normalization(inputs: NodeInputs) -> str:
    """Check the groups, and the lengths of scale and shift, of a group or instance normalization."""
    src = inputs.dims(0) or ()
    if len(src) < 2:
        return "its first input needs a batch and channels"
    channels, is_grouped = src[1], inputs.node.operator == "GroupNormalization"
    groups = int(inputs.attribute("num_groups", 0)) if is_grouped else channels
    if groups < 1 or channels % groups:
        return f"{groups} groups do not divide {channels} channels"
    is_by_group = is_grouped and inputs.opset < SCALES_BY_CHANNEL
    count, each = (groups, "group") if is_by_group else (channels, "channel")
    if any(inputs.dims(index) != (count,) for index in (1, 2)):
        return f"opset {inputs.opset} has a scale and a shift for each {each}, {count} here"
    return ""


# Recurrent

_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
"""Gates of each recurrent operator."""


def _recurrent(inputs: NodeInputs) -> str:
    """Check the dims of every input of a recurrent operator against X and R."""
    src, states = inputs.dims(0) or (), inputs.dims(2) or ()
    if len(src) != 3 or len(states) != 3:
        return "X, W and R have three axes"
    gates, hidden = _GATES[inputs.node.operator], states[2]
    count = 2 if inputs.attribute("direction", "forward") == "bidirectional" else 1
    batch, features = src[0 if inputs.attribute("layout", 0) else 1], src[2]
    if int(inputs.attribute("hidden_size", hidden)) != hidden:
        return f"hidden_size is {inputs.attribute('hidden_size')}, and R has {hidden}"
    state = (batch, count, hidden) if inputs.attribute("layout", 0) else (count, batch, hidden)
    expected = [src, (count, gates * hidden, features), (count, gates * hidden, hidden), (count, 2 * gates * hidden)]
    expected += [(batch,), state, state, (count, 3 * hidden)]
    names = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    for index, (name, dims) in enumerate(zip(names, expected, strict=True)):
        if inputs.dims(index) is not None and inputs.dims(index) != dims:
            return f"{name} has dims {inputs.dims(index)}, and {dims} fit X and R"
    return ""


# Indices


def _gather_tuples(inputs: NodeInputs) -> str:
    """Return what is wrong with constant tuples of indices for the dims of the data, or an empty text."""
    src, indices = inputs.dims(0) or (), inputs.value(1)
    batch = int(inputs.attribute("batch_dims", 0)) if inputs.node.operator == "GatherND" else 0
    if indices is None or not indices.ndim or not indices.size:
        return ""
    if batch + indices.shape[-1] > len(src):
        return f"tuples of {indices.shape[-1]} indices after {batch} batch axes do not fit data of {len(src)} axes"
    faults = (_range_fault(indices[..., k], src[batch + k], batch + k) for k in range(indices.shape[-1]))
    return next(filter(None, faults), "")


def _gather(inputs: NodeInputs) -> str:
    """Return what is wrong with the axis, or with constant indices for its extent, or an empty text."""
    src, indices, axis = inputs.dims(0) or (), inputs.value(1), int(inputs.attribute("axis", 0))
    wrong = _axis_fault(axis, src)
    return wrong or ("" if indices is None else _range_fault(indices, src[axis], axis % len(src)))


def _axis_fault(axis: int, dims: Dims) -> str:
    """Return what is wrong with an axis; an empty text if it is one of `dims`."""
    return "" if -len(dims) <= axis < len(dims) else f"axis {axis} is not one of {len(dims)}"


def _range_fault(indices: Array, extent: int, axis: int) -> str:
    """Return what is wrong with indices of an axis; an empty text if all are within its extent."""
    if not indices.size or (int(indices.min()) >= -extent and int(indices.max()) < extent):
        return ""
    wrong = next(int(k) for k in (indices.min(), indices.max()) if not -extent <= int(k) < extent)
    return f"index {wrong} is outside axis {axis}, which has {extent} elements"


def _cumulative(inputs: NodeInputs) -> str:
    """Check that the axis of a cumulative sum or product is one number and names an axis."""
    axis, src = inputs.value(1), inputs.dims(0) or ()
    if axis is None:
        return ""
    if axis.size != 1:
        return f"its axis is one number, not {axis.size}"
    return _axis_fault(int(axis.reshape(-1)[0]), src)


def _pad(inputs: NodeInputs) -> str:
    """Check that there are two numbers of padding for each padded axis."""
    src = inputs.dims(0) or ()
    pads = inputs.attribute("pads") if inputs.opset < 11 else inputs.value(1)
    axes = inputs.value(3) if inputs.opset >= 18 else None
    if pads is None:
        return ""
    numbers = [int(n) for n in getattr(pads, "reshape", lambda _: pads)(-1)]
    count = len(src) if axes is None else axes.size
    return "" if len(numbers) == 2 * count else f"{len(numbers)} numbers pad {count} axes, which need {2 * count}"


_ALLOWED_TEXTS: Mapping[str, Mapping[str, Sequence[str]]] = {
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
"""Texts that ONNX allows, by operator and attribute."""

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
"""Rule of each operator that has one."""
