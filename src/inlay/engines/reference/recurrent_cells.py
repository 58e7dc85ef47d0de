"""One cell of a recurrent network at one moment: its formula, and the gradients by the chain rule.

A cell takes x (batch, channels of the layer below), the state h (batch, channels of the state), for LSTM also c, and
the weights of its layer and direction; it answers the next state. Gates are an axis of their own: weights are
(channels in, gates, channels out). All is f64; `keep` rounds a state to what its type stores.

Source: oneAPI specification, "RNN", whose gates stand in the order i f c~ o for LSTM and u r o for GRU; the gradients
follow from the formulas.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from inlay.engines.reference.values import Array

Keep: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class CellWeights:
    """The weights of one layer in one direction."""

    layer: Array
    """(channels of x, gates, channels)."""
    iter: Array
    """(channels of h, gates, channels)."""
    bias: Array
    """(gates, channels); LBR GRU has one more, the bias inside the reset."""
    peephole: Array | None = None
    """(3, channels): what gates i, f and o see of c."""
    projection: Array | None = None
    """(channels, channels of the projected state)."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What one cell reads besides its weights."""

    x: Array
    """(batch, channels of the layer below)."""
    h: Array
    """(batch, channels of the state)."""
    c: Array
    """(batch, channels); zeros for cells without."""
    attention: Array | None = None
    """(batch, 1), for AUGRU and LBR AUGRU."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one cell computed."""

    h: Array
    """The next state."""
    c: Array
    """The next cell state of LSTM; for other cells what came."""
    gates: Array
    """(batch, gates, channels), activated."""
    inner: Array
    """(batch, channels), what else backward needs: the gate before its function (vanilla), the output before its
    projection (LSTM), r * h (GRU), U_o h + B_u' (LBR GRU)."""


@dataclass(frozen=True, slots=True)
class CellGradient:
    """The gradients of one cell, each of the shape of what it belongs to."""

    inputs: Inputs
    """Of x, h, c and attention."""
    weights: CellWeights
    """Of the weights."""


class Cell(Protocol):
    """A formula and its gradient."""

    def forward(self, weights: CellWeights, inputs: Inputs) -> Step:
        """The next state."""

    def backward(self, weights: CellWeights, inputs: Inputs, step: Step, dh: Array, dc: Array) -> CellGradient:
        """The gradients, given those of the next state."""


def logistic(a: Array) -> Array:
    """The logistic function, exact to the last bits and without overflow for any argument."""
    value: Array = np.exp(-np.logaddexp(0.0, -a))
    return value


def affine(x: Array, weights: Array) -> Array:
    """x (batch, in) times weights (in, gates, out): (batch, gates, out)."""
    gates, channels = weights.shape[1:]
    product: Array = x @ weights.reshape(weights.shape[0], gates * channels)
    return product.reshape(x.shape[0], gates, channels)


def pulled(da: Array, weights: Array) -> Array:
    """The gradient of x, where da is that of `affine(x, weights)`."""
    gradient: Array = np.einsum("ngo,igo->ni", da, weights)
    return gradient


def outer(x: Array, da: Array) -> Array:
    """The gradient of the weights, where da is that of `affine(x, weights)`."""
    gradient: Array = np.einsum("ni,ngo->igo", x, da)
    return gradient


def _slope(gate: Array) -> Array:
    """The derivative of the logistic function, given its value."""
    return gate * (1.0 - gate)


def _linear_gradient(weights: CellWeights, inputs: Inputs, da: Array) -> CellGradient:
    """The gradients where every gate is `affine(x, W) + affine(h, U) + bias`, and `da` is that of the gates."""
    return CellGradient(
        replace(inputs, x=pulled(da, weights.layer), h=pulled(da, weights.iter), c=np.zeros_like(inputs.c)),
        CellWeights(outer(inputs.x, da), outer(inputs.h, da), da.sum(axis=0)),
    )


@dataclass(frozen=True, slots=True)
class VanillaCell:
    """h' = activation(W x + U h + b); relu has the slope `alpha` below zero."""

    activation: str
    """`relu`, `tanh` or `logistic`."""
    alpha: float
    """Slope of relu for negative arguments."""
    keep: Keep
    """Rounds a state to its type."""

    def forward(self, weights: CellWeights, inputs: Inputs) -> Step:
        """The next state."""
        a = affine(inputs.x, weights.layer) + affine(inputs.h, weights.iter) + weights.bias
        gate = self._activated(a)
        return Step(self.keep(gate[:, 0]), inputs.c, gate, a[:, 0])

    def backward(self, weights: CellWeights, inputs: Inputs, step: Step, dh: Array, dc: Array) -> CellGradient:
        """The gradients; `dc` is not read."""
        return _linear_gradient(weights, inputs, dh[:, None] * self._derivative(step))

    def _activated(self, a: Array) -> Array:
        if self.activation == "relu":
            return np.maximum(a, 0.0) + self.alpha * np.minimum(a, 0.0)
        return np.tanh(a) if self.activation == "tanh" else logistic(a)

    def _derivative(self, step: Step) -> Array:
        if self.activation == "relu":
            return np.where(step.inner[:, None] > 0.0, 1.0, self.alpha)
        return 1.0 - step.gates**2 if self.activation == "tanh" else _slope(step.gates)


@dataclass(frozen=True, slots=True)
class LSTMCell:
    """i, f, o = logistic(W x + U h + b), c~ = tanh(...), c' = f c + i c~, h' = o tanh(c').

    With peephole, i and f see also c, and o sees c'. With projection, h' = (o tanh(c')) R.
    """

    keep: Keep
    """Rounds a state to its type."""
    keep_c: Keep
    """Rounds a cell state to its type."""

    def forward(self, weights: CellWeights, inputs: Inputs) -> Step:
        """The next state."""
        a = affine(inputs.x, weights.layer) + affine(inputs.h, weights.iter) + weights.bias
        peephole = np.zeros((3, a.shape[2])) if weights.peephole is None else weights.peephole
        i = logistic(a[:, 0] + peephole[0] * inputs.c)
        f = logistic(a[:, 1] + peephole[1] * inputs.c)
        candidate = np.tanh(a[:, 2])
        c = self.keep_c(f * inputs.c + i * candidate)
        o = logistic(a[:, 3] + peephole[2] * c)
        inner = self.keep(o * np.tanh(c))
        h = inner if weights.projection is None else self.keep(inner @ weights.projection)
        return Step(h, c, np.stack([i, f, candidate, o], axis=1), inner)

    def backward(self, weights: CellWeights, inputs: Inputs, step: Step, dh: Array, dc: Array) -> CellGradient:
        """The gradients, that of c from the next cell and from the output."""
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


def _updated(inputs: Inputs, u: Array) -> Array:
    """The update gate after attention: (1 - a) u."""
    return u if inputs.attention is None else (1.0 - inputs.attention) * u


def _update_gradient(inputs: Inputs, u: Array, d_updated: Array) -> tuple[Array, Array | None]:
    """Gradients of what the update gate is the logistic function of, and of attention."""
    if inputs.attention is None:
        return d_updated * _slope(u), None
    return d_updated * (1.0 - inputs.attention) * _slope(u), -(d_updated * u).sum(axis=1, keepdims=True)


@dataclass(frozen=True, slots=True)
class GRUCell:
    """u, r = logistic(W x + U h + b), o = tanh(W x + U (r h) + b), h' = u h + (1 - u) o; attention scales u."""

    keep: Keep
    """Rounds a state to its type."""

    def forward(self, weights: CellWeights, inputs: Inputs) -> Step:
        """The next state."""
        a = affine(inputs.x, weights.layer) + weights.bias
        ur = logistic(a[:, :2] + affine(inputs.h, weights.iter[:, :2]))
        reset = self.keep(ur[:, 1] * inputs.h)
        o = np.tanh(a[:, 2] + reset @ weights.iter[:, 2])
        u = _updated(inputs, ur[:, 0])
        h = self.keep(u * inputs.h + (1.0 - u) * o)
        return Step(h, inputs.c, np.concatenate([ur, o[:, None]], axis=1), reset)

    def backward(self, weights: CellWeights, inputs: Inputs, step: Step, dh: Array, dc: Array) -> CellGradient:
        """The gradients; `dc` is not read."""
        u, r, o = np.moveaxis(step.gates, 1, 0)
        updated = _updated(inputs, u)
        d_u, d_attention = _update_gradient(inputs, u, dh * (inputs.h - o))
        d_o = dh * (1.0 - updated) * (1.0 - o**2)
        d_reset = d_o @ weights.iter[:, 2].T
        d_r = d_reset * inputs.h * _slope(r)
        da = np.stack([d_u, d_r, d_o], axis=1)
        d_iter = np.concatenate([outer(inputs.h, da[:, :2]), outer(step.inner, da[:, 2:])], axis=1)
        d_h = dh * updated + d_reset * r + pulled(da[:, :2], weights.iter[:, :2])
        return CellGradient(
            Inputs(pulled(da, weights.layer), d_h, np.zeros_like(inputs.c), d_attention),
            CellWeights(outer(inputs.x, da), d_iter, da.sum(axis=0)),
        )


@dataclass(frozen=True, slots=True)
class LBRGRUCell:
    """GRU whose reset gate multiplies after the product: o = tanh(W x + r (U h + b') + b)."""

    keep: Keep
    """Rounds a state to its type."""

    def forward(self, weights: CellWeights, inputs: Inputs) -> Step:
        """The next state."""
        a, b = affine(inputs.x, weights.layer) + weights.bias[:3], affine(inputs.h, weights.iter)
        ur = logistic(a[:, :2] + b[:, :2])
        inner = b[:, 2] + weights.bias[3]
        o = np.tanh(a[:, 2] + ur[:, 1] * inner)
        u = _updated(inputs, ur[:, 0])
        h = self.keep(u * inputs.h + (1.0 - u) * o)
        return Step(h, inputs.c, np.concatenate([ur, o[:, None]], axis=1), inner)

    def backward(self, weights: CellWeights, inputs: Inputs, step: Step, dh: Array, dc: Array) -> CellGradient:
        """The gradients; `dc` is not read."""
        u, r, o = np.moveaxis(step.gates, 1, 0)
        updated = _updated(inputs, u)
        d_u, d_attention = _update_gradient(inputs, u, dh * (inputs.h - o))
        d_o = dh * (1.0 - updated) * (1.0 - o**2)
        d_r = d_o * step.inner * _slope(r)
        from_x, from_h = np.stack([d_u, d_r, d_o], axis=1), np.stack([d_u, d_r, d_o * r], axis=1)
        bias = np.concatenate([from_x, from_h[:, 2:]], axis=1).sum(axis=0)
        d_h = dh * updated + pulled(from_h, weights.iter)
        return CellGradient(
            Inputs(pulled(from_x, weights.layer), d_h, np.zeros_like(inputs.c), d_attention),
            CellWeights(outer(inputs.x, from_x), outer(inputs.h, from_h), bias),
        )
