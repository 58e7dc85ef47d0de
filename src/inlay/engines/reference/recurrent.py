"""Recurrent networks in NumPy: layers over directions over time, forward, and backward through time.

Arrays are f64 and named as the arguments of the primitive; x_t is row t of `src_layer` (time, batch, channels). Each
direction is a separate stack of layers: layer l from right to left reads layer l - 1 from right to left. Only the
outputs of the last layers are combined: concatenated (`concat`) or summed (`sum`). `dst_iter` is the state after the
last step, which is time 0 from right to left.

    outputs = forward(network, {"src_layer": x, "weights_layer": w, "weights_iter": u})
    gradients = backward(network, {"src_layer": x, ..., "workspace": outputs["workspace"], "diff_dst_layer": g})

The workspace contains the results of all cells: for each direction, layer, time and batch it has h, c, gates and
`inner` of `TimeStep`, concatenated.

`forward_formula` and `backward_formula` wrap both functions as formulas of the engine's table; they convert the 8-bit
arguments by their scales.

A state is rounded to its storage type after each step, because the next step reads the stored state: to bf16 or f16
directly, to 8 bits by scale and shift. The results in 8 bits therefore differ from those in f64 by quantization only.

Source: oneAPI specification, "RNN"; Werbos, "Backpropagation through time", 1990; oneDNN, "int8 inference example" of
RNN, for where states are quantized.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from inlay.data_type import DataType
from inlay.engines.reference.recurrent_cells import (
    CellInputs,
    CellWeights,
    GRUCell,
    LBRGRUCell,
    LSTMCell,
    RecurrentCell,
    StateRounding,
    TimeStep,
    VanillaCell,
)
from inlay.engines.reference.values import Array, Results, Shape, round_to_type
from inlay.primitives.attributes import RecurrentScales
from inlay.primitives.engine import Operation

LINEAR_BEFORE_RESET = ("lbr_gru", "lbr_augru")
"""Kinds whose bias has an additional gate."""
_REVERSED = {"left2right": (False,), "right2left": (True,), "concat": (False, True), "sum": (False, True)}


def no_rounding(state: Array) -> Array:
    """Return the state unchanged: the rounding of states that are stored as f32."""
    return state


@dataclass(frozen=True, slots=True)
class RecurrentNetwork:
    """The parameters of a recurrent network, without its tensors."""

    kind: str
    """Kind: `vanilla_rnn`, `lstm`, `gru`, `lbr_gru`, `augru` or `lbr_augru`."""
    direction: str
    """Direction: `left2right`, `right2left`, `concat` or `sum`."""
    activation: str = "tanh"
    """Activation of `vanilla_rnn`: `relu`, `tanh` or `logistic`."""
    alpha: float = 0.0
    """Slope of relu for negative arguments, in `vanilla_rnn`."""
    round_state: StateRounding = no_rounding
    """Function that rounds a state to its storage type."""
    round_cell_state: StateRounding = no_rounding
    """Function that rounds a cell state to its storage type."""

    @property
    def cell(self) -> RecurrentCell:
        """The formula of one cell."""
        if self.kind == "vanilla_rnn":
            return VanillaCell(self.activation, self.alpha, self.round_state)
        if self.kind == "lstm":
            return LSTMCell(self.round_state, self.round_cell_state)
        return LBRGRUCell(self.round_state) if self.kind in LINEAR_BEFORE_RESET else GRUCell(self.round_state)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of one direction, with its results for all time steps in the order of the direction."""

    weights: CellWeights
    """Weights of the layer."""
    inputs: tuple[CellInputs, ...]
    """Inputs of each step."""
    steps: tuple[TimeStep, ...]
    """Results of each step."""
    h: Array
    """Final state."""
    c: Array
    """Final cell state."""

    @property
    def output(self) -> Array:
        """The states h of all steps: (T, N, channels of the state)."""
        return self.workspace_rows[:, :, : self._outputs]

    @property
    def workspace_rows(self) -> Array:
        """The part of the workspace of this layer: (T, N, h, c, gates and inner concatenated)."""
        batch, channels = self.c.shape
        flat = self.weights.layer.shape[1] * channels
        parts = [
            np.concatenate([step.h, step.c, step.gates.reshape(batch, flat), step.inner], axis=1) for step in self.steps
        ]
        return np.array(parts).reshape(len(self.steps), batch, self._outputs + flat + 2 * channels)

    @property
    def _outputs(self) -> int:
        """The number of channels of the state h."""
        last: int = (self.c if self.weights.projection is None else self.weights.projection).shape[1]
        return last


def forward(network: RecurrentNetwork, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Compute `dst_layer`, `dst_iter`, `workspace` and, for LSTM, `dst_iter_c`.

    `arrays` has src_layer (T, N, C), weights_layer (L, D, C, G, O), weights_iter (L, D, S, G, O), and may have bias
    (L, D, G or G + 1, O), src_iter (L, D, N, S), src_iter_c (L, D, N, O), weights_peephole (L, D, 3, O),
    weights_projection (L, D, O, P), attention (T, N, 1).
    """
    runs = _run_layers(network, arrays)
    tops = [_reverse_if_right_to_left(network, d, layers[-1].output) for d, layers in enumerate(runs)]
    outputs = {
        "dst_layer": np.concatenate(tops, axis=2) if network.direction == "concat" else sum(tops[1:], start=tops[0]),
        "dst_iter": _by_layer([[layer.h for layer in layers] for layers in runs]),
        "workspace": np.stack([np.stack([layer.workspace_rows for layer in layers]) for layers in runs]),
    }
    if network.kind == "lstm":
        outputs["dst_iter_c"] = _by_layer([[layer.c for layer in layers] for layers in runs])
    return outputs


def backward(network: RecurrentNetwork, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the gradient `diff_x` of each argument x of `forward`; gradients of weights are sums over time.

    `arrays` has the arguments of `forward`, workspace, diff_dst_layer, and may have diff_dst_iter and diff_dst_iter_c.
    """
    runs = _run_layers(network, arrays, arrays["workspace"])
    d_src = np.zeros_like(arrays["src_layer"])
    d_attention = np.zeros((*d_src.shape[:2], 1))
    per_direction: list[list[dict[str, Array]]] = []
    for d, layers in enumerate(runs):
        parts = len(runs) if network.direction == "concat" else 1
        gradient = _reverse_if_right_to_left(network, d, np.split(arrays["diff_dst_layer"], parts, axis=2)[d % parts])
        rows: list[dict[str, Array]] = []
        for index in reversed(range(len(layers))):
            row = _backpropagate_layer(
                network.cell, layers[index], gradient, *_end_gradients(arrays, layers[index], (index, d))
            )
            gradient = row.pop("x")
            d_attention += _reverse_if_right_to_left(network, d, row.pop("attention"))
            rows.insert(0, row)
        d_src += _reverse_if_right_to_left(network, d, gradient)
        per_direction.append(rows)
    joined = {
        f"diff_{name}": _by_layer([[row[name] for row in rows] for rows in per_direction])
        for name in per_direction[0][0]
    }
    return {"diff_src_layer": d_src, "diff_attention": d_attention, **joined}


def _by_layer(per_direction: list[list[Array]]) -> Array:
    """Stack arrays, of which there is one for each direction and layer, to (L, D, ...)."""
    return np.stack([np.stack(layers) for layers in per_direction], axis=1)


def _reverse_if_right_to_left(network: RecurrentNetwork, d: int, array: Array) -> Array:
    """Reverse the time axis if direction `d` runs from right to left; it converts in both ways."""
    return array[::-1] if _REVERSED[network.direction][d] else array


def _run_layers(
    network: RecurrentNetwork, arrays: Mapping[str, Array], workspace: Array | None = None
) -> list[list[_Layer]]:
    """Return all layers of each direction: computed, or restored from the workspace."""
    runs = []
    for d in range(len(_REVERSED[network.direction])):
        x = _reverse_if_right_to_left(network, d, arrays["src_layer"])
        attention = _reverse_if_right_to_left(network, d, arrays["attention"]) if "attention" in arrays else None
        layers: list[_Layer] = []
        for index in range(arrays["weights_layer"].shape[0]):
            arguments = (
                _weights(network, arrays, (index, d)),
                x,
                attention,
                *_initial_states(arrays, (index, d), x.shape[1]),
            )
            layers.append(
                _run_layer(network.cell, *arguments)
                if workspace is None
                else _restore_layer(workspace[d, index], *arguments)
            )
            x = layers[-1].output
        runs.append(layers)
    return runs


def _weights(network: RecurrentNetwork, arrays: Mapping[str, Array], at: tuple[int, int]) -> CellWeights:
    """Return the weights of one layer and direction; a missing bias is 0."""
    layer = arrays["weights_layer"][at]
    biases = layer.shape[1] + (network.kind in LINEAR_BEFORE_RESET)
    return CellWeights(
        layer,
        arrays["weights_iter"][at],
        arrays["bias"][at] if "bias" in arrays else np.zeros((biases, layer.shape[2])),
        arrays["weights_peephole"][at] if "weights_peephole" in arrays else None,
        arrays["weights_projection"][at] if "weights_projection" in arrays else None,
    )


def _initial_states(arrays: Mapping[str, Array], at: tuple[int, int], batch: int) -> tuple[Array, Array]:
    """Return the states h and c before the first step; missing ones are 0."""
    channels, outputs = arrays["weights_iter"].shape[2], arrays["weights_layer"].shape[4]
    h = arrays["src_iter"][at] if "src_iter" in arrays else np.zeros((batch, channels))
    c = arrays["src_iter_c"][at] if "src_iter_c" in arrays else np.zeros((batch, outputs))
    return h, c


def _run_layer(
    cell: RecurrentCell, weights: CellWeights, x: Array, attention: Array | None, h: Array, c: Array
) -> _Layer:
    """Compute one layer for all time steps."""
    inputs: list[CellInputs] = []
    steps: list[TimeStep] = []
    for t in range(x.shape[0]):
        inputs.append(CellInputs(x[t], h, c, None if attention is None else attention[t]))
        steps.append(cell.forward(weights, inputs[-1]))
        h, c = steps[-1].h, steps[-1].c
    return _Layer(weights, tuple(inputs), tuple(steps), h, c)


def _restore_layer(rows: Array, weights: CellWeights, x: Array, attention: Array | None, h: Array, c: Array) -> _Layer:
    """Restore the results of one layer from `rows`, its part of the workspace."""
    gates, channels = weights.layer.shape[1:]
    outputs = rows.shape[2] - (gates + 2) * channels
    splits = np.cumsum([outputs, channels, gates * channels])
    inputs: list[CellInputs] = []
    steps: list[TimeStep] = []
    for t, row in enumerate(rows):
        inputs.append(CellInputs(x[t], h, c, None if attention is None else attention[t]))
        h, c, flat, inner = np.split(row, splits, axis=1)
        steps.append(TimeStep(h, c, flat.reshape(x.shape[1], gates, channels), inner))
    return _Layer(weights, tuple(inputs), tuple(steps), h, c)


def _end_gradients(arrays: Mapping[str, Array], layer: _Layer, at: tuple[int, int]) -> tuple[Array, Array]:
    """Return the gradients of the states after the last step; missing ones are 0."""
    dh = arrays["diff_dst_iter"][at] if "diff_dst_iter" in arrays else np.zeros_like(layer.h)
    dc = arrays["diff_dst_iter_c"][at] if "diff_dst_iter_c" in arrays else np.zeros_like(layer.c)
    return dh, dc


def _backpropagate_layer(cell: RecurrentCell, layer: _Layer, gradient: Array, dh: Array, dc: Array) -> dict[str, Array]:
    """Compute the gradients of x and attention for all steps, of the initial states and of the weights.

    `gradient` is that of the output for all steps; `dh` and `dc` are those of the final states.
    """
    times, batch = gradient.shape[:2]
    x, attention = np.zeros((times, batch, layer.weights.layer.shape[0])), np.zeros((times, batch, 1))
    sums = {name: np.zeros_like(value) for name, value in _weights_by_argument(layer.weights).items()}
    for t in reversed(range(times)):
        one = cell.backward(layer.weights, layer.inputs[t], layer.steps[t], dh + gradient[t], dc)
        x[t], dh, dc = one.inputs.x, one.inputs.h, one.inputs.c
        if one.inputs.attention is not None:
            attention[t] = one.inputs.attention
        for name, value in _weights_by_argument(one.weights).items():
            sums[name] += value
    return {"x": x, "attention": attention, "src_iter": dh, "src_iter_c": dc, **sums}


def _weights_by_argument(weights: CellWeights) -> dict[str, Array]:
    """Return the weights that are not None, by the names of their arguments."""
    named = {
        "weights_layer": weights.layer,
        "weights_iter": weights.iter,
        "bias": weights.bias,
        "weights_peephole": weights.peephole,
        "weights_projection": weights.projection,
    }
    return {name: value for name, value in named.items() if value is not None}


_STATES = ("src_layer", "src_iter", "dst_layer", "dst_iter")


def forward_formula(*, operation: Operation, arguments: Mapping[str, Array]) -> Results:
    """Compute all results of a forward primitive, including the workspace."""
    network, scales = _network(operation), _scales(operation)
    numbers = {name: _dequantize(operation, scales, name, array) for name, array in arguments.items()}
    if _data_type(operation, "src_layer").kind != "float" and "src_iter" in numbers:
        numbers["src_iter"] = network.round_state(numbers["src_iter"])
    results = forward(network, numbers)
    return {name: _quantize(operation, scales, name, array) for name, array in results.items()}


def backward_formula(
    *, operation: Operation, arguments: Mapping[str, Array], read_destination: Callable[[str], Array]
) -> Results:
    """Compute all results of a backward primitive.

    Gradients of weights are added to the content of their memory, unless `diff_weights_overwrite` is set.
    """
    results = backward(_network(operation), arguments)
    flags = operation.parameters["flags"]
    if not (isinstance(flags, frozenset) and "diff_weights_overwrite" in flags):
        for name in results:
            if name in operation.descs and name.startswith(("diff_weights", "diff_bias")):
                results[name] = results[name] + read_destination(name)
    return results


def workspace_dims(operation: Operation) -> Shape:
    """Return the dims of the workspace."""
    descs = operation.descs
    layers, directions, _, gates, channels = descs["weights_layer"].dims
    outputs = descs["weights_projection"].dims[3] if "weights_projection" in descs else channels
    return (directions, layers, *descs["src_layer"].dims[:2], outputs + (gates + 2) * channels)


def _network(operation: Operation) -> RecurrentNetwork:
    """Return the parameters of the network of an operation."""
    parameters = operation.parameters
    cells = [operation.descs[name].data_type for name in ("src_iter_c", "dst_iter_c") if name in operation.descs]
    alpha = parameters.get("alpha", 0.0)
    assert isinstance(alpha, int | float)
    return RecurrentNetwork(
        operation.kind,
        str(parameters["direction"]),
        str(parameters.get("activation", "tanh")),
        float(alpha),
        _make_rounding(_data_type(operation, "src_layer"), _scales(operation)),
        _make_rounding(cells[0], RecurrentScales()) if cells and cells[0] is not None else no_rounding,
    )


def _make_rounding(data_type: DataType, scales: RecurrentScales) -> StateRounding:
    """Return the function that rounds a state to a storage type."""
    if data_type.name == "f32":
        return no_rounding
    if data_type.kind == "float":
        return partial(round_to_type, data_type=data_type)

    def quantized(state: Array) -> Array:
        code = round_to_type(state * scales.scale + scales.shift, data_type)
        return (code - scales.shift) / scales.scale

    return quantized


def _data_type(operation: Operation, name: str) -> DataType:
    """Return the data type of an argument."""
    data_type = operation.descs[name].data_type
    assert data_type is not None
    return data_type


def _scales(operation: Operation) -> RecurrentScales:
    """Return the 8-bit scales of an operation, by default 1 without shift."""
    return operation.attributes.recurrent or RecurrentScales()


def _dequantize(operation: Operation, scales: RecurrentScales, name: str, array: Array) -> Array:
    """Return the numbers that the elements of an argument represent."""
    if _data_type(operation, name).kind == "float":
        return array
    if name in _STATES:
        return (array - scales.shift) / scales.scale
    if name == "weights_projection":
        return array / scales.projection
    factors = np.array(scales.weights)
    numbers: Array = array / (factors if factors.size == 1 else factors.reshape(array.shape[3:]))
    return numbers


def _quantize(operation: Operation, scales: RecurrentScales, name: str, array: Array) -> Array:
    """Return the elements that represent the numbers of an argument, before rounding."""
    if name in _STATES and name in operation.descs and _data_type(operation, name).kind != "float":
        return array * scales.scale + scales.shift
    return array
