"""Lowering rules of matrix products, and of the recurrent operators LSTM, GRU and RNN.

Gemm becomes an inner product if its second matrix is constant, else a matmul. If its first matrix is a flattened image,
the inner product reads the image itself: its weights get the axes of the image, so that the image may have any format.
MatMul with one constant matrix becomes a matmul of two matrices: all axes of the source but the last are rows.

The primitives of recurrent layers have weights with a gate axis, in oneDNN's order of gates. (D directions, G gates, H
hidden channels, I input channels.)

    ONNX      W (D, G * H, I), R (D, G * H, H), B (D, 2 * G * H)        gates i o f c, and z r h
    oneDNN    (1, D, I, G, H), (1, D, H, G, H), (1, D, G, H)            gates i f c o, and u r o

ONNX has two biases, which the rules add up. The exception is the last gate of a GRU with `linear_before_reset`, where
oneDNN has two biases as well. oneDNN writes the results of both directions side by side along the channels, so ONNX's
axis of directions is a view.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from inlay.graph.lowering.broadcasting import broadcast_dims, emit_binary, with_leading_axes
from inlay.graph.lowering.context import F32, LoweringContext, Operand, require
from inlay.graph.lowering.elementwise import emit_eltwise
from inlay.graph.op_graph import Array, ReshapeView
from inlay.layout import Dims
from inlay.primitives.engine import Parameter

_MOST_AXES_OF_INNER_PRODUCT = 5


# Products of matrices


def gemm(context: LoweringContext) -> Operand:
    """Lower Gemm: alpha A B + beta C, where A and B may be transposed."""
    a, b = context.operand(0), context.operand(1)
    require(len(context.dims(a)) == len(context.dims(b)) == 2, "its matrices do not have two axes")
    alpha, beta = context.attribute("alpha", 1.0), context.attribute("beta", 1.0)
    a = context.permute(a, (1, 0)) if context.attribute("transA", 0) else a
    b = context.permute(b, (1, 0)) if context.attribute("transB", 0) else b
    c = context.operand(2) if context.has_input(2) and beta else None
    dims = context.output().dims
    if isinstance(a, str) and not isinstance(b, str):
        bias = _bias(c, beta, dims[1])
        product = _inner_product(context, a, np.float32(alpha) * b, bias)
        c = c if bias is None else None
    else:
        product = context.emit("matmul", {"src": a, "weights": b}, dims)
        product = product if alpha == 1 else emit_eltwise(context, product, "linear", alpha)
    return product if c is None else _add_scaled(context, product, c, beta)


def _bias(c: Operand | None, beta: float, outputs: int) -> Array | None:
    """Return beta C as a vector, if C is constant and the same for all rows; None otherwise."""
    if c is None or isinstance(c, str) or (c.ndim == 2 and c.shape[0] != 1):
        return None
    return np.float32(beta) * np.broadcast_to(c.reshape(-1), (outputs,))


def _inner_product(context: LoweringContext, src: str, matrix: Array, bias: Array | None) -> str:
    """Emit an inner product of `src` and `matrix` (K, O); if a view has flattened `src`, read the view's source."""
    rows, outputs = context.dims(src)[0], matrix.shape[1]
    weights = matrix.T
    writer = context.writer(src)
    if (
        writer is not None
        and writer.kind == "view"
        and all(isinstance(transform, ReshapeView) for transform in writer.transforms)
    ):
        image = writer.reads["src"]
        dims = context.dims(image)
        if 2 < len(dims) <= _MOST_AXES_OF_INNER_PRODUCT and dims[0] == rows:
            src, weights = image, weights.reshape(outputs, *dims[1:])
    constants = {"weights": weights} if bias is None else {"weights": weights, "bias": bias}
    return context.emit("inner_product", {"src": src, **constants}, (rows, outputs))


def _add_scaled(context: LoweringContext, product: str, added: Operand, beta: float) -> str:
    """Emit the product plus beta times `added`."""
    if not isinstance(added, str):
        scaled: Operand = np.float32(beta) * added
    else:
        scaled = added if beta == 1 else emit_eltwise(context, added, "linear", beta)
    return emit_binary(context, "add", product, scaled, context.dims(product))


def matmul(context: LoweringContext) -> Operand:
    """Lower MatMul: leading axes are broadcast, and vectors are rows or columns, as in NumPy."""
    a, b = context.operand(0), context.operand(1)
    if len(context.dims(a)) == 1:
        a = context.reshape(a, (1, *context.dims(a)))
    if len(context.dims(b)) == 1:
        b = context.reshape(b, (*context.dims(b), 1))
    left, right = context.dims(a), context.dims(b)
    if len(right) == 2 and not isinstance(b, str):
        rows = prod(left[:-1])
        flat = context.reshape(a, (rows, left[-1]))
        product = context.emit("matmul", {"src": flat, "weights": b}, (rows, right[-1]))
    else:
        count = max(len(left), len(right))
        a, b = (with_leading_axes(context, operand, count) for operand in (a, b))
        product = context.emit("matmul", {"src": a, "weights": b}, _product_dims(context, a, b))
    return context.reshape(product, context.output().dims)


def _product_dims(context: LoweringContext, a: Operand, b: Operand) -> tuple[int, ...]:
    """Return the dims of a product of two stacks of matrices."""
    left, right = context.dims(a), context.dims(b)
    return (*broadcast_dims(left[:-2], right[:-2]), left[-2], right[-1])


# Recurrent layers

_DIRECTIONS = {"forward": "left2right", "reverse": "right2left", "bidirectional": "concat"}
_ACTIVATIONS = {"Tanh": "tanh", "Relu": "relu", "Sigmoid": "logistic"}

Results = tuple[Operand | None, ...]


def lstm(context: LoweringContext) -> Results:
    """Lower LSTM, with or without peepholes."""
    _require_activations(context, "Sigmoid", "Tanh", "Tanh")
    require(not context.attribute("input_forget", 0), "its input and forget gates are coupled")
    operands = _operands(context, gates=(0, 2, 3, 1))
    states = [_initial_state(context, index) for index in (5, 6)]
    if any(state is not None for state in states):
        zeros = np.zeros((1, *_state_dims(context)), F32)
        operands |= {
            name: zeros if state is None else state
            for name, state in zip(("src_iter", "src_iter_c"), states, strict=True)
        }
    if context.has_input(7):
        peepholes = context.constant(7, "peepholes")
        split = peepholes.reshape(len(peepholes), 3, -1)[:, (0, 2, 1)]
        operands["weights_peephole"] = split[None]
    uses_states = context.is_output_used(1) or context.is_output_used(2)
    return _emit_recurrent(context, "lstm", operands, ("dst_iter", "dst_iter_c") if uses_states else (), {})


def gru(context: LoweringContext) -> Results:
    """Lower GRU, with the reset before or after the product."""
    _require_activations(context, "Sigmoid", "Tanh")
    is_linear = bool(context.attribute("linear_before_reset", 0))
    operands = _operands(context, gates=(0, 1, 2), is_linear=is_linear)
    return _emit_with_state(context, "lbr_gru" if is_linear else "gru", operands, {})


def rnn(context: LoweringContext) -> Results:
    """Lower RNN with one activation for both directions."""
    names = {str(name) for name in context.attribute("activations") or ("Tanh",)}
    require(len(names) == 1 and names <= _ACTIVATIONS.keys(), f"its activations are {', '.join(sorted(names))}")
    parameters: dict[str, Parameter] = {"activation": _ACTIVATIONS[names.pop()], "alpha": 0.0, "beta": 0.0}
    return _emit_with_state(context, "vanilla_rnn", _operands(context, gates=(0,)), parameters)


def _emit_with_state(
    context: LoweringContext, kind: str, operands: dict[str, Operand], parameters: Mapping[str, Parameter]
) -> Results:
    """Emit a recurrent primitive that has one state, and return the node's results."""
    state = _initial_state(context, 5)
    if state is not None:
        operands["src_iter"] = state
    return _emit_recurrent(context, kind, operands, ("dst_iter",) if context.is_output_used(1) else (), parameters)


def _require_activations(context: LoweringContext, *activations: str) -> None:
    """Require that the node has these activations in each direction."""
    expected = activations * _directions(context)
    names = tuple(str(name) for name in context.attribute("activations") or expected)
    require(names == expected, f"its activations are {', '.join(names)}")


def _directions(context: LoweringContext) -> int:
    """Return the number of directions."""
    return 2 if context.attribute("direction", "forward") == "bidirectional" else 1


def _is_batch_first(context: LoweringContext) -> bool:
    """Return whether the batch is the first axis of sequences and states."""
    return bool(context.attribute("layout", 0))


def _operands(context: LoweringContext, *, gates: tuple[int, ...], is_linear: bool = False) -> dict[str, Operand]:
    """Return the sequence, weights and biases of the primitive; `gates` are ONNX's gates in oneDNN's order."""
    require(context.attribute("clip") is None, "it clips the inputs of activations")
    src = context.source(0)
    layer = context.permute(src, (1, 0, 2)) if _is_batch_first(context) else src
    times = context.dims(layer)[0]
    if context.has_input(4):
        lengths = context.constant(4, "list of lengths")
        require(bool((lengths == times).all()), "its sequences differ in length")
    weights, recurrence = context.constant(1, "matrix W"), context.constant(2, "matrix R")
    require(weights.dtype == F32, f"its weights are {weights.dtype}, and primitives are used for float32")
    operands: dict[str, Operand] = {
        "src_layer": layer,
        "weights_layer": _reorder_gates(weights, gates),
        "weights_iter": _reorder_gates(recurrence, gates),
    }
    if context.has_input(3):
        operands["bias"] = _reorder_bias(context.constant(3, "bias"), gates, is_linear)
    return operands


def _reorder_gates(weights: Array, order: tuple[int, ...]) -> Array:
    """Return weights (D, G * H, I) as (1, D, I, G, H)."""
    split = weights.reshape(len(weights), len(order), -1, weights.shape[2])[:, order]
    return split.transpose(0, 3, 1, 2)[None]


def _reorder_bias(bias: Array, order: tuple[int, ...], is_linear: bool) -> Array:
    """Return biases (D, 2 * G * H) as (1, D, G, H), or (1, D, G + 1, H) with the last gate's second bias apart."""
    split = bias.reshape(len(bias), 2, len(order), -1)[:, :, order]
    layer, states = split[:, 0], split[:, 1]
    if not is_linear:
        return (layer + states)[None]
    return np.concatenate([layer[:, :2] + states[:, :2], layer[:, 2:], states[:, 2:]], axis=1)[None]


def _state_dims(context: LoweringContext) -> Dims:
    """Return directions, batch and channels of a state."""
    dims = context.dims(context.source(0))
    batch = dims[0] if _is_batch_first(context) else dims[1]
    return (_directions(context), batch, context.constant(2, "matrix R").shape[2])


def _initial_state(context: LoweringContext, index: int) -> Operand | None:
    """Return the state before the first step as (1, D, N, H); None if input `index` is left out."""
    if not context.has_input(index):
        return None
    state = context.operand(index)
    state = context.permute(state, (1, 0, 2)) if _is_batch_first(context) else state
    return context.reshape(state, (1, *_state_dims(context)))


def _emit_recurrent(
    context: LoweringContext,
    kind: str,
    operands: Mapping[str, Operand],
    states: Sequence[str],
    parameters: Mapping[str, Parameter],
) -> Results:
    """Emit a recurrent primitive, and return the node's results in ONNX's dims; None for unused ones."""
    directions, batch, channels = _state_dims(context)
    times = context.dims(operands["src_layer"])[0]
    dims: dict[str, Dims] = {"dst_layer": (times, batch, directions * channels)}
    dims |= dict.fromkeys(states, (1, directions, batch, channels))
    direction = _DIRECTIONS[context.attribute("direction", "forward")]
    written = context.emit_all(kind, operands, dims, direction=direction, flags=frozenset[str](), **parameters)
    results = [_sequence(context, written["dst_layer"], (times, batch, directions, channels))]
    results += [_final_state(context, written[name]) for name in states]
    return tuple(result if context.is_output_used(index) else None for index, result in enumerate(results))


def _sequence(context: LoweringContext, layer: str, dims: Dims) -> Operand | None:
    """Return results (T, N, D * H) as (T, D, N, H), or (N, T, D, H) if the batch is first; None if they are unused."""
    if not context.is_output_used(0):
        return None
    times, batch, directions, channels = dims
    if _is_batch_first(context):
        return context.reshape(context.permute(layer, (1, 0, 2)), (batch, times, directions, channels))
    if directions == 1:
        return context.reshape(layer, (times, 1, batch, channels))
    return context.permute(context.reshape(layer, dims), (0, 2, 1, 3))


def _final_state(context: LoweringContext, state: str) -> Operand:
    """Return a state (1, D, N, H) as (D, N, H), or (N, D, H) if the batch is first."""
    flat = context.reshape(state, context.dims(state)[1:])
    return context.permute(flat, (1, 0, 2)) if _is_batch_first(context) else flat


PRODUCTS: Mapping[str, Callable[[LoweringContext], Operand | Results]] = {
    "GRU": gru,
    "Gemm": gemm,
    "LSTM": lstm,
    "MatMul": matmul,
    "RNN": rnn,
}
"""Rule of each matrix product and recurrent operator."""
