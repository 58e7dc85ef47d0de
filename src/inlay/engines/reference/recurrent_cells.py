"""Formulas of one cell of a recurrent network at one time step, and their gradients by the chain rule.

The inputs of a cell are x (batch, channels of the layer below), the state h (batch, channels of the state), for LSTM
also the cell state c, and the weights of its layer and direction; the result is the next state. Weights have an axis of
gates: (input channels, gates, output channels). All arrays are f64; `round_state` rounds a state to its storage type.

Source: oneAPI specification, "RNN". The gates have the order i f c~ o for LSTM and u r o for GRU.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from inlay.engines.reference.values import Array

StateRounding: TypeAlias = Callable[[Array], Array]
"""A function that rounds a state to its storage type."""


@dataclass(frozen=True, slots=True)
class CellWeights:
    """The weights of one layer in one direction."""

    layer: Array
    """Weights of x: (channels of x, gates, channels)."""
    iter: Array
    """Weights of h: (channels of h, gates, channels)."""
    bias: Array
    """Bias: (gates, channels); LBR GRU has an additional gate, the bias inside the reset."""
    peephole: Array | None = None
    """Weights of c for the gates i, f and o of LSTM: (3, channels); None for 0."""
    projection: Array | None = None
    """Projection of the output to h: (channels, channels of h); None without projection."""


@dataclass(frozen=True, slots=True)
class CellInputs:
    """The inputs of one cell at one time step, except its weights."""

    x: Array
    """Output of the layer below: (batch, channels of x)."""
    h: Array
    """State: (batch, channels of h)."""
    c: Array
    """Cell state of LSTM: (batch, channels); zeros for other cells."""
    attention: Array | None = None
    """Attention of AUGRU and LBR AUGRU: (batch, 1); None for other cells."""


@dataclass(frozen=True, slots=True)
class TimeStep:
    """The results of one cell at one time step."""

    h: Array
    """Next state."""
    c: Array
    """Next cell state of LSTM; for other cells the input c."""
    gates: Array
    """Values of the gates, after their activation: (batch, gates, channels)."""
    inner: Array
    """Additional value for backward, (batch, channels): the gate before its activation (vanilla), the output before its
    projection (LSTM), r * h (GRU), U_o h + b_u' (LBR GRU)."""


@dataclass(frozen=True, slots=True)
class CellGradient:
    """The gradients of one cell at one time step; each has the shape of the array that it belongs to."""

    inputs: CellInputs
    """Gradients of x, h, c and attention."""
    weights: CellWeights
    """Gradients of the weights."""


class RecurrentCell(Protocol):
    """A cell: its formula and its gradient."""

    def forward(self, weights: CellWeights, inputs: CellInputs) -> TimeStep:
        """Compute the next state."""

    def backward(self, weights: CellWeights, inputs: CellInputs, step: TimeStep, dh: Array, dc: Array) -> CellGradient:
        """Compute the gradients from those of the next state, `dh` and `dc`."""


def logistic(a: Array) -> Array:
    """Return the logistic function, without overflow and without loss of precision for any argument."""
    value: Array = np.exp(-np.logaddexp(0.0, -a))
    return value


def affine(x: Array, weights: Array) -> Array:
    """Multiply x (batch, in) by weights (in, gates, out); the product is (batch, gates, out)."""
    gates, channels = weights.shape[1:]
    product: Array = x @ weights.reshape(weights.shape[0], gates * channels)
    return product.reshape(x.shape[0], gates, channels)


def affine_input_gradient(da: Array, weights: Array) -> Array:
    """Return the gradient of x, where `da` is the gradient of `affine(x, weights)`."""
    gradient: Array = np.einsum("ngo,igo->ni", da, weights)
    return gradient


def affine_weights_gradient(x: Array, da: Array) -> Array:
    """Return the gradient of the weights, where `da` is the gradient of `affine(x, weights)`."""
    gradient: Array = np.einsum("ni,ngo->igo", x, da)
    return gradient


def _slope(gate: Array) -> Array:
    """Return the derivative of the logistic function from its value."""
    return gate * (1.0 - gate)


def _linear_gradient(weights: CellWeights, inputs: CellInputs, da: Array) -> CellGradient:
    """Return the gradients if every gate is `affine(x, W) + affine(h, U) + bias`; `da` is the gradient of the gates."""
    return CellGradient(
        replace(
            inputs,
            x=affine_input_gradient(da, weights.layer),
            h=affine_input_gradient(da, weights.iter),
            c=np.zeros_like(inputs.c),
        ),
        CellWeights(affine_weights_gradient(inputs.x, da), affine_weights_gradient(inputs.h, da), da.sum(axis=0)),
    )


@dataclass(frozen=True, slots=True)
class VanillaCell:
    """The cell of a vanilla RNN: h' = activation(W x + U h + b)."""

    activation: str
    """Activation: `relu`, `tanh` or `logistic`."""
    alpha: float
    """Slope of relu for negative arguments."""
    round_state: StateRounding
    """Function that rounds a state to its storage type."""

    def forward(self, weights: CellWeights, inputs: CellInputs) -> TimeStep:
        """Compute the next state."""
        a = affine(inputs.x, weights.layer) + affine(inputs.h, weights.iter) + weights.bias
        gate = self._activate(a)
        return TimeStep(self.round_state(gate[:, 0]), inputs.c, gate, a[:, 0])

    def backward(self, weights: CellWeights, inputs: CellInputs, step: TimeStep, dh: Array, dc: Array) -> CellGradient:
        """Compute the gradients; `dc` is not read."""
        return _linear_gradient(weights, inputs, dh[:, None] * self._derivative(step))

    def _activate(self, a: Array) -> Array:
        """Apply the activation."""
        if self.activation == "relu":
            return np.maximum(a, 0.0) + self.alpha * np.minimum(a, 0.0)
        return np.tanh(a) if self.activation == "tanh" else logistic(a)

    def _derivative(self, step: TimeStep) -> Array:
        """Return the derivative of the activation, from its argument or its value."""
        if self.activation == "relu":
            return np.where(step.inner[:, None] > 0.0, 1.0, self.alpha)
        return 1.0 - step.gates**2 if self.activation == "tanh" else _slope(step.gates)


@dataclass(frozen=True, slots=True)
class LSTMCell:
    """The cell of LSTM: i, f, o = logistic(W x + U h + b), c~ = tanh(...), c' = f c + i c~, h' = o tanh(c').

    With peepholes, i and f also depend on c, and o on c'. With a projection, h' = (o tanh(c')) R.
    """

    round_state: StateRounding
    """Function that rounds a state to its storage type."""
    round_cell_state: StateRounding
    """Function that rounds a cell state to its storage type."""

    def forward(self, weights: CellWeights, inputs: CellInputs) -> TimeStep:
        """Compute the next state."""
        a = affine(inputs.x, weights.layer) + affine(inputs.h, weights.iter) + weights.bias
        peephole = np.zeros((3, a.shape[2])) if weights.peephole is None else weights.peephole
        i = logistic(a[:, 0] + peephole[0] * inputs.c)
        f = logistic(a[:, 1] + peephole[1] * inputs.c)
        candidate = np.tanh(a[:, 2])
        c = self.round_cell_state(f * inputs.c + i * candidate)
        o = logistic(a[:, 3] + peephole[2] * c)
        inner = self.round_state(o * np.tanh(c))
        h = inner if weights.projection is None else self.round_state(inner @ weights.projection)
        return TimeStep(h, c, np.stack([i, f, candidate, o], axis=1), inner)

    def backward(self, weights: CellWeights, inputs: CellInputs, step: TimeStep, dh: Array, dc: Array) -> CellGradient:
        """Compute the gradients; that of c' is `dc` plus the part that flows through h'."""
        peephole = np.zeros((3, step.c.shape[1])) if weights.peephole is None else weights.peephole
        d_inner = dh if weights.projection is None else dh @ weights.projection.T
        i, f, candidate, o = np.moveaxis(step.gates, 1, 0)
        squashed = np.tanh(step.c)
        d_o = d_inner * squashed * _slope(o)
        d_next = dc + d_inner * o * (1.0 - squashed**2) + d_o * peephole[2]
        d_i = d_next * candidate * _slope(i)
        d_f = d_next * inputs.c * _slope(f)
        d_candidate = d_next * i * (1.0 - candidate**2)
        gradient = _linear_gradient(weights, inputs, np.stack([d_i, d_f, d_candidate, d_o], axis=1))
        seen = np.stack([d_i * inputs.c, d_f * inputs.c, d_o * step.c])
        return CellGradient(
            replace(gradient.inputs, c=d_next * f + d_i * peephole[0] + d_f * peephole[1]),
            replace(
                gradient.weights,
                peephole=None if weights.peephole is None else seen.sum(axis=1),
                projection=None if weights.projection is None else step.inner.T @ dh,
            ),
        )


def _attended_update_gate(inputs: CellInputs, u: Array) -> Array:
    """Return the update gate with attention, (1 - a) u; u without attention."""
    return u if inputs.attention is None else (1.0 - inputs.attention) * u


def _update_gradient(inputs: CellInputs, u: Array, d_updated: Array) -> tuple[Array, Array | None]:
    """Return the gradients of the argument of the update gate's logistic function, and of attention."""
    if inputs.attention is None:
        return d_updated * _slope(u), None
    return d_updated * (1.0 - inputs.attention) * _slope(u), -(d_updated * u).sum(axis=1, keepdims=True)


@dataclass(frozen=True, slots=True)
class GRUCell:
    """The cell of GRU: u, r = logistic(W x + U h + b), o = tanh(W x + U (r h) + b), h' = u h + (1 - u) o.

    With attention a (AUGRU), u in h' is (1 - a) u.
    """

    round_state: StateRounding
    """Function that rounds a state to its storage type."""

    def forward(self, weights: CellWeights, inputs: CellInputs) -> TimeStep:
        """Compute the next state."""
        a = affine(inputs.x, weights.layer) + weights.bias
        ur = logistic(a[:, :2] + affine(inputs.h, weights.iter[:, :2]))
        reset = self.round_state(ur[:, 1] * inputs.h)
        o = np.tanh(a[:, 2] + reset @ weights.iter[:, 2])
        u = _attended_update_gate(inputs, ur[:, 0])
        h = self.round_state(u * inputs.h + (1.0 - u) * o)
        return TimeStep(h, inputs.c, np.concatenate([ur, o[:, None]], axis=1), reset)

    def backward(self, weights: CellWeights, inputs: CellInputs, step: TimeStep, dh: Array, dc: Array) -> CellGradient:
        """Compute the gradients; `dc` is not read."""
        u, r, o = np.moveaxis(step.gates, 1, 0)
        updated = _attended_update_gate(inputs, u)
        d_u, d_attention = _update_gradient(inputs, u, dh * (inputs.h - o))
        d_o = dh * (1.0 - updated) * (1.0 - o**2)
        d_reset = d_o @ weights.iter[:, 2].T
        d_r = d_reset * inputs.h * _slope(r)
        da = np.stack([d_u, d_r, d_o], axis=1)
        d_iter = np.concatenate(
            [affine_weights_gradient(inputs.h, da[:, :2]), affine_weights_gradient(step.inner, da[:, 2:])], axis=1
        )
        d_h = dh * updated + d_reset * r + affine_input_gradient(da[:, :2], weights.iter[:, :2])
        return CellGradient(
            CellInputs(affine_input_gradient(da, weights.layer), d_h, np.zeros_like(inputs.c), d_attention),
            CellWeights(affine_weights_gradient(inputs.x, da), d_iter, da.sum(axis=0)),
        )


@dataclass(frozen=True, slots=True)
class LBRGRUCell:
    """The cell of LBR GRU: as GRU, except o = tanh(W x + r (U h + b') + b)."""

    round_state: StateRounding
    """Function that rounds a state to its storage type."""

    def forward(self, weights: CellWeights, inputs: CellInputs) -> TimeStep:
        """Compute the next state."""
        a, b = affine(inputs.x, weights.layer) + weights.bias[:3], affine(inputs.h, weights.iter)
        ur = logistic(a[:, :2] + b[:, :2])
        inner = b[:, 2] + weights.bias[3]
        o = np.tanh(a[:, 2] + ur[:, 1] * inner)
        u = _attended_update_gate(inputs, ur[:, 0])
        h = self.round_state(u * inputs.h + (1.0 - u) * o)
        return TimeStep(h, inputs.c, np.concatenate([ur, o[:, None]], axis=1), inner)

    def backward(self, weights: CellWeights, inputs: CellInputs, step: TimeStep, dh: Array, dc: Array) -> CellGradient:
        """Compute the gradients; `dc` is not read."""
        u, r, o = np.moveaxis(step.gates, 1, 0)
        updated = _attended_update_gate(inputs, u)
        d_u, d_attention = _update_gradient(inputs, u, dh * (inputs.h - o))
        d_o = dh * (1.0 - updated) * (1.0 - o**2)
        d_r = d_o * step.inner * _slope(r)
        from_x, from_h = np.stack([d_u, d_r, d_o], axis=1), np.stack([d_u, d_r, d_o * r], axis=1)
        bias = np.concatenate([from_x, from_h[:, 2:]], axis=1).sum(axis=0)
        d_h = dh * updated + affine_input_gradient(from_h, weights.iter)
        return CellGradient(
            CellInputs(affine_input_gradient(from_x, weights.layer), d_h, np.zeros_like(inputs.c), d_attention),
            CellWeights(affine_weights_gradient(inputs.x, from_x), affine_weights_gradient(inputs.h, from_h), bias),
        )
