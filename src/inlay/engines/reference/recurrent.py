"""Recurrent networks in NumPy: layers over directions over time, forward, and backward through time.

Arrays are f64 and named as the arguments of the primitive; x_t is row t of `src_layer` (time, batch, channels). Each
direction is a stack of layers of its own: layer l of the direction from right to left reads layer l - 1 of the same
direction, and only the last layers are joined, side by side (`concat`) or summed. The state after the last step, which
is time 0 from right to left, is `dst_iter`.

    outputs = forward(network, {"src_layer": x, "weights_layer": w, "weights_iter": u})
    gradients = backward(network, {"src_layer": x, ..., "workspace": outputs["workspace"], "diff_dst_layer": g})

The workspace holds what each cell computed: for each direction, layer, time and batch its h, c, gates and `inner`, side
by side.

`computed` and `gradients` are these as formulas of the engine's table, with the types and 8-bit scales of arguments.

A state is rounded to its type after each step, because that is what the next step reads: bf16 and f16 directly, 8 bits
by their scale and shift. So what the reference computes in 8 bits differs from the numbers by quantization alone.

Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990; oneDNN, "int8 inference example" of
RNN, for where states are quantized.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from inlay.data_type import DataType
from inlay.engines.reference.recurrent_cells import (
    Cell,
    CellWeights,
    GRUCell,
    Inputs,
    Keep,
    LBRGRUCell,
    LSTMCell,
    Step,
    VanillaCell,
)
from inlay.engines.reference.values import Array, Results, Shape, rounded
from inlay.primitives.attributes import RecurrentScales
from inlay.primitives.engine import Operation

LINEAR_BEFORE_RESET = ("lbr_gru", "lbr_augru")
"""Kinds with one more bias."""
_REVERSED = {"left2right": (False,), "right2left": (True,), "concat": (False, True), "sum": (False, True)}


def exact(state: Array) -> Array:
    """What keeps a state as it is: no rounding between steps."""
    return state


@dataclass(frozen=True, slots=True)
class Network:
    """What a recurrent network is told besides its tensors."""

    kind: str
    """`vanilla_rnn`, `lstm`, `gru`, `lbr_gru`, `augru` or `lbr_augru`."""
    direction: str
    """`left2right`, `right2left`, `concat` or `sum`."""
    activation: str = "tanh"
    """Of `vanilla_rnn`: `relu`, `tanh` or `logistic`."""
    alpha: float = 0.0
    """Of `vanilla_rnn` with relu: the slope below zero."""
    keep: Keep = exact
    """Rounds a state to its type."""
    keep_c: Keep = exact
    """Rounds a cell state to its type."""

    @property
    def cell(self) -> Cell:
        """Its formula."""
        if self.kind == "vanilla_rnn":
            return VanillaCell(self.activation, self.alpha, self.keep)
        if self.kind == "lstm":
            return LSTMCell(self.keep, self.keep_c)
        return LBRGRUCell(self.keep) if self.kind in LINEAR_BEFORE_RESET else GRUCell(self.keep)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of one direction, run over all times in its own order."""

    weights: CellWeights
    inputs: tuple[Inputs, ...]
    steps: tuple[Step, ...]
    h: Array
    """The state at the end."""
    c: Array
    """The cell state at the end."""

    @property
    def output(self) -> Array:
        """(T, N, channels of the state), in its own order of time."""
        return self.kept[:, :, : self._outputs]

    @property
    def kept(self) -> Array:
        """(T, N, ...), what backward needs of each step, in its own order of time."""
        batch, channels = self.c.shape
        flat = self.weights.layer.shape[1] * channels
        parts = [
            np.concatenate([step.h, step.c, step.gates.reshape(batch, flat), step.inner], axis=1) for step in self.steps
        ]
        return np.array(parts).reshape(len(self.steps), batch, self._outputs + flat + 2 * channels)

    @property
    def _outputs(self) -> int:
        last: int = (self.c if self.weights.projection is None else self.weights.projection).shape[1]
        return last


def forward(network: Network, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """`dst_layer`, `dst_iter`, `workspace` and, of LSTM, `dst_iter_c`.

    `arrays` has src_layer (T, N, C), weights_layer (L, D, C, G, O), weights_iter (L, D, S, G, O), and may have bias
    (L, D, G or G + 1, O), src_iter (L, D, N, S), src_iter_c (L, D, N, O), weights_peephole (L, D, 3, O),
    weights_projection (L, D, O, P), attention (T, N, 1).
    """
    runs = _run(network, arrays)
    tops = [_in_time(network, d, layers[-1].output) for d, layers in enumerate(runs)]
    outputs = {
        "dst_layer": np.concatenate(tops, axis=2) if network.direction == "concat" else sum(tops[1:], start=tops[0]),
        "dst_iter": _by_layer([[layer.h for layer in layers] for layers in runs]),
        "workspace": np.stack([np.stack([layer.kept for layer in layers]) for layers in runs]),
    }
    if network.kind == "lstm":
        outputs["dst_iter_c"] = _by_layer([[layer.c for layer in layers] for layers in runs])
    return outputs


def backward(network: Network, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """A gradient `diff_x` for each argument x that forward reads, summed over time for the weights.

    `arrays` has what forward reads, workspace, diff_dst_layer, and may have diff_dst_iter and diff_dst_iter_c.
    """
    runs = _run(network, arrays, arrays["workspace"])
    d_src = np.zeros_like(arrays["src_layer"])
    d_attention = np.zeros((*d_src.shape[:2], 1))
    found: list[list[dict[str, Array]]] = []
    for d, layers in enumerate(runs):
        parts = len(runs) if network.direction == "concat" else 1
        gradient = _in_time(network, d, np.split(arrays["diff_dst_layer"], parts, axis=2)[d % parts])
        rows: list[dict[str, Array]] = []
        for index in reversed(range(len(layers))):
            row = _layer_backward(
                network.cell, layers[index], gradient, *_end_gradients(arrays, layers[index], (index, d))
            )
            gradient = row.pop("x")
            d_attention += _in_time(network, d, row.pop("attention"))
            rows.insert(0, row)
        d_src += _in_time(network, d, gradient)
        found.append(rows)
    joined = {f"diff_{name}": _by_layer([[row[name] for row in rows] for rows in found]) for name in found[0][0]}
    return {"diff_src_layer": d_src, "diff_attention": d_attention, **joined}


def _by_layer(found: list[list[Array]]) -> Array:
    """(L, D, ...) from a list for each direction of one for each layer."""
    return np.stack([np.stack(layers) for layers in found], axis=1)


def _in_time(network: Network, d: int, array: Array) -> Array:
    """What a direction reads or writes in its order, in the order of time, or the other way."""
    return array[::-1] if _REVERSED[network.direction][d] else array


def _run(network: Network, arrays: Mapping[str, Array], workspace: Array | None = None) -> list[list[_Layer]]:
    """Every layer of every direction, as run forward, or as the workspace holds it."""
    runs = []
    for d in range(len(_REVERSED[network.direction])):
        x = _in_time(network, d, arrays["src_layer"])
        attention = _in_time(network, d, arrays["attention"]) if "attention" in arrays else None
        layers: list[_Layer] = []
        for index in range(arrays["weights_layer"].shape[0]):
            told = _weights(network, arrays, (index, d)), x, attention, *_initial(arrays, (index, d), x.shape[1])
            layers.append(
                _layer_forward(network.cell, *told)
                if workspace is None
                else _layer_restored(workspace[d, index], *told)
            )
            x = layers[-1].output
        runs.append(layers)
    return runs


def _weights(network: Network, arrays: Mapping[str, Array], at: tuple[int, int]) -> CellWeights:
    """The weights of one layer and direction; a bias left out is zero."""
    layer = arrays["weights_layer"][at]
    biases = layer.shape[1] + (network.kind in LINEAR_BEFORE_RESET)
    return CellWeights(
        layer,
        arrays["weights_iter"][at],
        arrays["bias"][at] if "bias" in arrays else np.zeros((biases, layer.shape[2])),
        arrays["weights_peephole"][at] if "weights_peephole" in arrays else None,
        arrays["weights_projection"][at] if "weights_projection" in arrays else None,
    )


def _initial(arrays: Mapping[str, Array], at: tuple[int, int], batch: int) -> tuple[Array, Array]:
    """The states before the first step; what is left out is zero."""
    channels, outputs = arrays["weights_iter"].shape[2], arrays["weights_layer"].shape[4]
    h = arrays["src_iter"][at] if "src_iter" in arrays else np.zeros((batch, channels))
    c = arrays["src_iter_c"][at] if "src_iter_c" in arrays else np.zeros((batch, outputs))
    return h, c


def _layer_forward(cell: Cell, weights: CellWeights, x: Array, attention: Array | None, h: Array, c: Array) -> _Layer:
    """One layer over time."""
    inputs: list[Inputs] = []
    steps: list[Step] = []
    for t in range(x.shape[0]):
        inputs.append(Inputs(x[t], h, c, None if attention is None else attention[t]))
        steps.append(cell.forward(weights, inputs[-1]))
        h, c = steps[-1].h, steps[-1].c
    return _Layer(weights, tuple(inputs), tuple(steps), h, c)


def _layer_restored(kept: Array, weights: CellWeights, x: Array, attention: Array | None, h: Array, c: Array) -> _Layer:
    """One layer over time, where `kept` is its part of the workspace."""
    gates, channels = weights.layer.shape[1:]
    outputs = kept.shape[2] - (gates + 2) * channels
    places = np.cumsum([outputs, channels, gates * channels])
    inputs: list[Inputs] = []
    steps: list[Step] = []
    for t, row in enumerate(kept):
        inputs.append(Inputs(x[t], h, c, None if attention is None else attention[t]))
        h, c, flat, inner = np.split(row, places, axis=1)
        steps.append(Step(h, c, flat.reshape(x.shape[1], gates, channels), inner))
    return _Layer(weights, tuple(inputs), tuple(steps), h, c)


def _end_gradients(arrays: Mapping[str, Array], layer: _Layer, at: tuple[int, int]) -> tuple[Array, Array]:
    """The gradients of the states after the last step; what is left out is zero."""
    dh = arrays["diff_dst_iter"][at] if "diff_dst_iter" in arrays else np.zeros_like(layer.h)
    dc = arrays["diff_dst_iter_c"][at] if "diff_dst_iter_c" in arrays else np.zeros_like(layer.c)
    return dh, dc


def _layer_backward(cell: Cell, layer: _Layer, gradient: Array, dh: Array, dc: Array) -> dict[str, Array]:
    """Gradients of x and attention over time, of the initial states and of the weights.

    Given are those of the output over time, and of the states at the end.
    """
    times, batch = gradient.shape[:2]
    x, attention = np.zeros((times, batch, layer.weights.layer.shape[0])), np.zeros((times, batch, 1))
    sums = {name: np.zeros_like(value) for name, value in _named(layer.weights).items()}
    for t in reversed(range(times)):
        one = cell.backward(layer.weights, layer.inputs[t], layer.steps[t], dh + gradient[t], dc)
        x[t], dh, dc = one.inputs.x, one.inputs.h, one.inputs.c
        if one.inputs.attention is not None:
            attention[t] = one.inputs.attention
        for name, value in _named(one.weights).items():
            sums[name] += value
    return {"x": x, "attention": attention, "src_iter": dh, "src_iter_c": dc, **sums}


def _named(weights: CellWeights) -> dict[str, Array]:
    """Weights that there are, by the names of their arguments."""
    named = {
        "weights_layer": weights.layer,
        "weights_iter": weights.iter,
        "bias": weights.bias,
        "weights_peephole": weights.peephole,
        "weights_projection": weights.projection,
    }
    return {name: value for name, value in named.items() if value is not None}


_STATES = ("src_layer", "src_iter", "dst_layer", "dst_iter")


def computed(*, operation: Operation, arguments: Mapping[str, Array]) -> Results:
    """What forward writes, the workspace too."""
    network, scales = _network(operation), _scales(operation)
    numbers = {name: _number(operation, scales, name, array) for name, array in arguments.items()}
    if _type(operation, "src_layer").kind != "float" and "src_iter" in numbers:
        numbers["src_iter"] = network.keep(numbers["src_iter"])
    results = forward(network, numbers)
    return {name: _code(operation, scales, name, array) for name, array in results.items()}


def gradients(*, operation: Operation, arguments: Mapping[str, Array], held: Callable[[str], Array]) -> Results:
    """What backward writes: gradients of weights are added to those that are held, or stand alone with the flag."""
    results = backward(_network(operation), arguments)
    flags = operation.parameters["flags"]
    if not (isinstance(flags, frozenset) and "diff_weights_overwrite" in flags):
        for name in results:
            if name in operation.descs and name.startswith(("diff_weights", "diff_bias")):
                results[name] = results[name] + held(name)
    return results


def kept_dims(operation: Operation) -> Shape:
    """The dims of the workspace."""
    descs = operation.descs
    layers, directions, _, gates, channels = descs["weights_layer"].dims
    outputs = descs["weights_projection"].dims[3] if "weights_projection" in descs else channels
    return (directions, layers, *descs["src_layer"].dims[:2], outputs + (gates + 2) * channels)


def _network(operation: Operation) -> Network:
    """What the formulas are told."""
    told = operation.parameters
    cells = [operation.descs[name].data_type for name in ("src_iter_c", "dst_iter_c") if name in operation.descs]
    alpha = told.get("alpha", 0.0)
    assert isinstance(alpha, int | float)
    return Network(
        operation.kind,
        str(told["direction"]),
        str(told.get("activation", "tanh")),
        float(alpha),
        _keep(_type(operation, "src_layer"), _scales(operation)),
        _keep(cells[0], RecurrentScales()) if cells and cells[0] is not None else exact,
    )


def _keep(data_type: DataType, scales: RecurrentScales) -> Keep:
    """What rounds a state to a type."""
    if data_type.name == "f32":
        return exact
    if data_type.kind == "float":
        return partial(rounded, data_type=data_type)

    def quantized(state: Array) -> Array:
        code = rounded(state * scales.scale + scales.shift, data_type)
        return (code - scales.shift) / scales.scale

    return quantized


def _type(operation: Operation, name: str) -> DataType:
    data_type = operation.descs[name].data_type
    assert data_type is not None
    return data_type


def _scales(operation: Operation) -> RecurrentScales:
    return operation.attributes.recurrent or RecurrentScales()


def _number(operation: Operation, scales: RecurrentScales, name: str, array: Array) -> Array:
    """The numbers that the elements of an argument mean."""
    if _type(operation, name).kind == "float":
        return array
    if name in _STATES:
        return (array - scales.shift) / scales.scale
    if name == "weights_projection":
        return array / scales.projection
    factors = np.array(scales.weights)
    numbers: Array = array / (factors if factors.size == 1 else factors.reshape(array.shape[3:]))
    return numbers


def _code(operation: Operation, scales: RecurrentScales, name: str, array: Array) -> Array:
    """The elements that mean the numbers of an argument, not yet rounded."""
    if name in _STATES and name in operation.descs and _type(operation, name).kind != "float":
        return array * scales.scale + scales.shift
    return array
