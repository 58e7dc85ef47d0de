"""Functions of LSTM, GRU and RNN, step by step, with sequence lengths, clipping, coupled gates and every activation.

The gates of a step are `x W^T + h R^T + b`, for all sequences of a batch at once. A sequence that has ended keeps its
state, and its results are 0 from then on. The reverse direction begins with the last element of each sequence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.op_graph import Array

Activation: TypeAlias = Callable[[Array], Array]
"""Element-wise function of an array."""
StepFunction: TypeAlias = Callable[["_Direction", Array, tuple[Array, ...]], tuple[Array, ...]]
"""Function from weights, the elements of one step and the states before it to the states after it."""

_MOST_STEPS = 1 << 18  # a step takes some 50 us
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Values of the attribute `direction`, each with one entry per direction: True if it is reversed."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """Weights and activations of one direction."""

    call: OperatorCall
    """Node with its inputs."""
    weights: Array
    """Weights W of the input, of dims (G * H, I): gates, hidden channels, input channels."""
    recurrent_weights: Array
    """Weights R of the state, of dims (G * H, H)."""
    bias: Array
    """Biases of input and state, of dims (2, G * H)."""
    peepholes: Array
    """Peephole weights of the gates i, o and f, of dims (3, H)."""
    activations: tuple[Activation, ...]
    """Functions f, g and h of ONNX's equations, as many as the operator has."""

    def gates(self, x: Array, h: Array) -> list[Array]:
        """Return the gates of a step before their activations, with biases added."""
        total = x @ self.weights.T + h @ self.recurrent_weights.T + self.bias.sum(0)
        return np.split(total, total.shape[1] // self.recurrent_weights.shape[1], axis=1)

    def clip(self, values: Array) -> Array:
        """Return values clipped to [-clip, clip] by the attribute `clip`, which applies to inputs of activations."""
        clip = self.call.attribute("clip")
        return values if clip is None else np.clip(values, -values.dtype.type(clip), values.dtype.type(clip))


def _lstm_step(direction: _Direction, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    """Compute one step of an LSTM."""
    h, c = states
    f, g, output_activation = direction.activations
    of_i, of_o, of_f = direction.peepholes
    i, o, forget, cell = direction.gates(x, h)
    i = f(direction.clip(i + of_i * c))
    forget = 1 - i if direction.call.attribute("input_forget", 0) else f(direction.clip(forget + of_f * c))
    c = forget * c + i * g(direction.clip(cell))
    return f(direction.clip(o + of_o * c)) * output_activation(c), c


def _gru_step(direction: _Direction, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    """Compute one step of a GRU."""
    (h,) = states
    f, g = direction.activations
    count = h.shape[1]
    update, reset, _ = direction.gates(x, h)
    update, reset = f(direction.clip(update)), f(direction.clip(reset))
    candidate = slice(2 * count, 3 * count)
    fresh = x @ direction.weights[candidate].T + direction.bias[0, candidate]
    if direction.call.attribute("linear_before_reset", 0):
        fresh = fresh + reset * (h @ direction.recurrent_weights[candidate].T + direction.bias[1, candidate])
    else:
        fresh = fresh + (reset * h) @ direction.recurrent_weights[candidate].T + direction.bias[1, candidate]
    return ((1 - update) * g(direction.clip(fresh)) + update * h,)


def _rnn_step(direction: _Direction, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    """Compute one step of an RNN."""
    (h,) = states
    (gate,) = direction.gates(x, h)
    return (direction.activations[0](direction.clip(gate)),)


def _recurrent(
    step: StepFunction, default_activations: tuple[str, ...], gates: int, count: int
) -> Callable[[OperatorCall], tuple[Array, ...]]:
    """Return the function of an operator: its step, default activations, and numbers of gates and states."""

    def compute(call: OperatorCall) -> tuple[Array, ...]:
        is_batch_first = bool(call.attribute("layout", 0))
        src = call.input(0).swapaxes(0, 1) if is_batch_first else call.input(0)
        if src.shape[0] > _MOST_STEPS:
            raise call.unsupported(
                f"a sequence of {src.shape[0]} steps, of which NumPy computes {_MOST_STEPS} at most,"
            )
        flags = DIRECTIONS.get(call.attribute("direction", "forward"))
        if flags is None:
            raise call.invalid(f"direction {call.attribute('direction')!r} is none of {', '.join(DIRECTIONS)}")
        lengths = _lengths(call, src.shape[0], src.shape[1])
        activations = _activations(call, default_activations, len(flags))
        results, finals = [], []
        for k, is_reverse in enumerate(flags):
            direction = _direction(call, k, activations[k], gates)
            states = tuple(_initial_state(call, 5 + n, k, src, direction, is_batch_first) for n in range(count))
            result, final = _run_direction(direction, step, src, lengths, states, is_reverse)
            results.append(result)
            finals.append(final)
        sequence = np.stack(results, 1)
        final_states = [np.stack(directions) for directions in zip(*finals, strict=True)]
        if is_batch_first:
            return sequence.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in final_states)
        return sequence, *final_states

    return compute


def _run_direction(
    direction: _Direction, step: StepFunction, src: Array, lengths: Array, states: tuple[Array, ...], is_reverse: bool
) -> tuple[Array, tuple[Array, ...]]:
    """Return all results (T, N, H) of a direction, and the states at the end."""
    times, batch = src.shape[:2]
    result = np.zeros((times, batch, direction.recurrent_weights.shape[1]), src.dtype)
    rows = np.arange(batch)
    for k in range(times):
        is_running = k < lengths
        at = np.where(is_running, lengths - 1 - k, 0) if is_reverse else np.full(batch, k)
        fresh = step(direction, src[at, rows], states)
        states = tuple(np.where(is_running[:, None], new, old) for new, old in zip(fresh, states, strict=True))
        result[at[is_running], rows[is_running]] = fresh[0][is_running]
    return result, states


def _direction(call: OperatorCall, k: int, activations: tuple[Activation, ...], gates: int) -> _Direction:
    """Return weights and activations of direction `k`."""
    weights, states, bias = call.input(1)[k], call.input(2)[k], call.optional(3)
    hidden = states.shape[1]
    both = np.zeros((2, gates * hidden), weights.dtype) if bias is None else bias[k].reshape(2, -1)
    stored = call.optional(7)
    peepholes = np.zeros((3, hidden), weights.dtype) if stored is None else stored[k].reshape(3, hidden)
    return _Direction(call, weights, states, both, peepholes, activations)


def _initial_state(
    call: OperatorCall, index: int, k: int, src: Array, direction: _Direction, is_batch_first: bool
) -> Array:
    """Return the initial state of direction `k`, from input `index` or 0."""
    stored = call.optional(index)
    if stored is None:
        return np.zeros((src.shape[1], direction.recurrent_weights.shape[1]), src.dtype)
    return np.asarray(stored[:, k] if is_batch_first else stored[k])


def _lengths(call: OperatorCall, times: int, batch: int) -> Array:
    """Return the number of steps of each sequence of the batch."""
    stored = call.optional(4)
    if stored is None:
        return np.full(batch, times)
    if stored.shape != (batch,) or (batch and not (0 <= int(stored.min()) <= int(stored.max()) <= times)):
        raise call.invalid(f"its {batch} sequences have lengths {stored.tolist()}: each is a number from 0 to {times}")
    return stored.astype(np.int64)


# Activations


def _activations(
    call: OperatorCall, default_activations: tuple[str, ...], directions: int
) -> list[tuple[Activation, ...]]:
    """Return the functions of each direction; they consume alpha and beta from the node's lists in order."""
    names = tuple(str(name) for name in call.attribute("activations") or default_activations * directions)
    if len(names) != len(default_activations) * directions:
        raise call.invalid(f"it names {len(names)} activations, and has {len(default_activations) * directions}")
    alphas, betas = (iter(call.attribute(f"activation_{name}") or ()) for name in ("alpha", "beta"))
    functions = [_activation(call, name, alphas, betas) for name in names]
    return [
        tuple(functions[k * len(default_activations) : (k + 1) * len(default_activations)]) for k in range(directions)
    ]


def _activation(call: OperatorCall, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    """Return the activation of that name, with its parameters."""
    entry = _FUNCTIONS.get(name.lower())
    if entry is None:
        raise call.invalid(f"activation {name!r} is not defined: those of ONNX are {', '.join(_FUNCTIONS)}")
    function, defaults = entry
    numbers = [np.float32(next(values, default)) for values, default in zip((alphas, betas), defaults, strict=False)]
    return partial(_apply, function, numbers)


def _apply(function: Callable[..., Array], numbers: Sequence[np.float32], x: Array) -> Array:
    """Return the activation of an array, in the array's type."""
    return np.asarray(function(x, *numbers)).astype(x.dtype, copy=False)


_FUNCTIONS: Mapping[str, tuple[Callable[..., Array], tuple[float, ...]]] = {
    "relu": (lambda x: np.maximum(x, 0), ()),
    "tanh": (np.tanh, ()),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "leakyrelu": (lambda x, alpha: np.where(x >= 0, x, alpha * x), (0.01,)),
    "thresholdedrelu": (lambda x, alpha: np.where(x >= alpha, x, 0), (1.0,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(x)), (1.0,)),
    "softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "softplus": (lambda x: np.logaddexp(x, 0), ()),
}
"""Activations by name in lower case, each with the defaults of alpha and beta."""

RECURRENT: Mapping[str, Callable[[OperatorCall], tuple[Array, ...]]] = {
    "GRU": _recurrent(_gru_step, ("Sigmoid", "Tanh"), 3, 1),
    "LSTM": _recurrent(_lstm_step, ("Sigmoid", "Tanh", "Tanh"), 4, 2),
    "RNN": _recurrent(_rnn_step, ("Tanh",), 1, 1),
}
"""Function of each recurrent operator."""
