"""Products of matrices, and the recurrent layers LSTM, GRU and RNN.

A product is an inner product where the weights are constant, else matmul. A fully connected layer behind Flatten reads
the image as it is: its weights have the axes of the image, so that the image may come in any format. In matmul with one
constant matrix, all axes but the last are rows.

A recurrent layer has weights with a gate axis, in oneDNN's order of gates:

    ONNX      W (D, G * H, I), R (D, G * H, H), B (D, 2 * G * H)        gates i o f c, and z r h
    oneDNN    (1, D, I, G, H), (1, D, H, G, H), (1, D, G, H)            gates i f c o, and u r o

Both biases are added, but for the last gate of a GRU that is linear before its reset, which keeps the second one apart.
The result of both directions lies side by side, so ONNX's axis of directions is a view.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from inlay.graph.lowering.draft import F32, Draft, Operand, require
from inlay.graph.lowering.elementwise import binary, eltwise, spread, with_axes
from inlay.graph.op_graph import Array, ReshapeView
from inlay.layout import Dims
from inlay.primitives.engine import Parameter

_MOST_AXES_OF_INNER_PRODUCT = 5


# Products of matrices


def gemm(draft: Draft) -> Operand:
    """alpha A B + beta C, where A and B may be transposed."""
    first, second = draft.operand(0), draft.operand(1)
    require(len(draft.dims(first)) == len(draft.dims(second)) == 2, "its matrices have other axes than two")
    alpha, beta = draft.attribute("alpha", 1.0), draft.attribute("beta", 1.0)
    one = draft.permuted(first, (1, 0)) if draft.attribute("transA", 0) else first
    other = draft.permuted(second, (1, 0)) if draft.attribute("transB", 0) else second
    added = draft.operand(2) if draft.given(2) and beta else None
    dims = draft.result().dims
    if isinstance(one, str) and not isinstance(other, str):
        bias = _bias(added, beta, dims[1])
        product = _inner_product(draft, one, np.float32(alpha) * other, bias)
        added = added if bias is None else None
    else:
        product = draft.put("matmul", {"src": one, "weights": other}, dims)
        product = product if alpha == 1 else eltwise(draft, product, "linear", alpha)
    return product if added is None else _plus(draft, product, added, beta)


def _bias(added: Operand | None, beta: float, outputs: int) -> Array | None:
    """C as a vector, where it is the same for all rows."""
    if added is None or isinstance(added, str) or (added.ndim == 2 and added.shape[0] != 1):
        return None
    return np.float32(beta) * np.broadcast_to(added.reshape(-1), (outputs,))


def _inner_product(draft: Draft, src: str, matrix: Array, bias: Array | None) -> str:
    """src times `matrix` (K, O), where a view that only flattens src is passed over."""
    rows, outputs = draft.dims(src)[0], matrix.shape[1]
    weights = matrix.T
    writer = draft.writer(src)
    if (
        writer is not None
        and writer.kind == "view"
        and all(isinstance(move, ReshapeView) for move in writer.transforms)
    ):
        image = writer.reads["src"]
        dims = draft.dims(image)
        if 2 < len(dims) <= _MOST_AXES_OF_INNER_PRODUCT and dims[0] == rows:
            src, weights = image, weights.reshape(outputs, *dims[1:])
    constants = {"weights": weights} if bias is None else {"weights": weights, "bias": bias}
    return draft.put("inner_product", {"src": src, **constants}, (rows, outputs))


def _plus(draft: Draft, product: str, added: Operand, beta: float) -> str:
    dims = draft.dims(product)
    if not isinstance(added, str):
        return binary(draft, "add", product, np.float32(beta) * added, dims)
    return binary(draft, "add", product, added if beta == 1 else eltwise(draft, added, "linear", beta), dims)


def matmul(draft: Draft) -> Operand:
    """NumPy's matmul: leading axes are spread, vectors are rows or columns."""
    first, second = draft.operand(0), draft.operand(1)
    left, right = draft.dims(first), draft.dims(second)
    dims = draft.result().dims
    one = draft.reshaped(first, (1, *left)) if len(left) == 1 else first
    other = draft.reshaped(second, (*right, 1)) if len(right) == 1 else second
    rows, columns = draft.dims(one), draft.dims(other)[-1]
    if len(draft.dims(other)) == 2 and not isinstance(other, str):
        flat = draft.reshaped(one, (prod(rows[:-1]), rows[-1]))
        product = draft.put("matmul", {"src": flat, "weights": other}, (prod(rows[:-1]), columns))
    else:
        count = max(len(rows), len(draft.dims(other)))
        one, other = (with_axes(draft, operand, count) for operand in (one, other))
        product = draft.put("matmul", {"src": one, "weights": other}, _product_dims(draft, one, other))
    return draft.reshaped(product, dims)


def _product_dims(draft: Draft, one: Operand, other: Operand) -> tuple[int, ...]:
    left, right = draft.dims(one), draft.dims(other)
    return (*spread(left[:-2], right[:-2]), left[-2], right[-1])


# Recurrent layers

_DIRECTIONS = {"forward": "left2right", "reverse": "right2left", "bidirectional": "concat"}
_ACTIVATIONS = {"Tanh": "tanh", "Relu": "relu", "Sigmoid": "logistic"}

Results = tuple[Operand | None, ...]


def lstm(draft: Draft) -> Results:
    """Long short-term memory, with peepholes where they are given."""
    _require_activations(draft, "Sigmoid", "Tanh", "Tanh")
    require(not draft.attribute("input_forget", 0), "its input gate and its forget gate are one")
    operands = _operands(draft, (0, 2, 3, 1))
    states = [_state(draft, index) for index in (5, 6)]
    if any(state is not None for state in states):
        zeros = np.zeros((1, *_state_dims(draft)), F32)
        operands |= {
            name: zeros if state is None else state
            for name, state in zip(("src_iter", "src_iter_c"), states, strict=True)
        }
    if draft.given(7):
        peepholes = draft.constant(7, "peepholes")
        split = peepholes.reshape(len(peepholes), 3, -1)[:, (0, 2, 1)]
        operands["weights_peephole"] = split[None]
    wanted = draft.wants(1) or draft.wants(2)
    return _computed(draft, "lstm", operands, ("dst_iter", "dst_iter_c") if wanted else (), {})


def gru(draft: Draft) -> Results:
    """Gated recurrent unit, whose reset is before or after the product."""
    _require_activations(draft, "Sigmoid", "Tanh")
    is_linear = bool(draft.attribute("linear_before_reset", 0))
    operands = _operands(draft, (0, 1, 2), is_linear)
    return _simple(draft, "lbr_gru" if is_linear else "gru", operands, {})


def rnn(draft: Draft) -> Results:
    """One gate with an activation, the same in both directions."""
    said = {str(name) for name in draft.attribute("activations") or ("Tanh",)}
    require(len(said) == 1 and said <= _ACTIVATIONS.keys(), f"its activations are {', '.join(sorted(said))}")
    numbers: dict[str, Parameter] = {"activation": _ACTIVATIONS[said.pop()], "alpha": 0.0, "beta": 0.0}
    return _simple(draft, "vanilla_rnn", _operands(draft, (0,)), numbers)


def _simple(draft: Draft, kind: str, operands: dict[str, Operand], numbers: Mapping[str, Parameter]) -> Results:
    state = _state(draft, 5)
    if state is not None:
        operands["src_iter"] = state
    return _computed(draft, kind, operands, ("dst_iter",) if draft.wants(1) else (), numbers)


def _require_activations(draft: Draft, *one: str) -> None:
    usual = one * _directions(draft)
    said = tuple(str(name) for name in draft.attribute("activations") or usual)
    require(said == usual, f"its activations are {', '.join(said)}")


def _directions(draft: Draft) -> int:
    return 2 if draft.attribute("direction", "forward") == "bidirectional" else 1


def _is_batch_first(draft: Draft) -> bool:
    return bool(draft.attribute("layout", 0))


def _operands(draft: Draft, order: tuple[int, ...], is_linear: bool = False) -> dict[str, Operand]:
    """The sequence, weights and biases, gates in `order`."""
    require(draft.attribute("clip") is None, "it clips what activations read")
    src = draft.source(0)
    layer = draft.permuted(src, (1, 0, 2)) if _is_batch_first(draft) else src
    times = draft.dims(layer)[0]
    if draft.given(4):
        lengths = draft.constant(4, "list of lengths")
        require(bool((lengths == times).all()), "its sequences have several lengths")
    weights, states = draft.constant(1, "matrix W"), draft.constant(2, "matrix R")
    require(weights.dtype == F32, f"its weights are {weights.dtype}, and primitives are used for float32")
    operands: dict[str, Operand] = {
        "src_layer": layer,
        "weights_layer": _gated(weights, order),
        "weights_iter": _gated(states, order),
    }
    if draft.given(3):
        operands["bias"] = _gate_bias(draft.constant(3, "bias"), order, is_linear)
    return operands


def _gated(weights: Array, order: tuple[int, ...]) -> Array:
    """(D, G * H, I) to (1, D, I, G, H)."""
    split = weights.reshape(len(weights), len(order), -1, weights.shape[2])[:, order]
    return split.transpose(0, 3, 1, 2)[None]


def _gate_bias(bias: Array, order: tuple[int, ...], is_linear: bool) -> Array:
    """(D, 2 * G * H) to (1, D, G, H), or (1, D, G + 1, H) with the last gate's second bias."""
    split = bias.reshape(len(bias), 2, len(order), -1)[:, :, order]
    layer, states = split[:, 0], split[:, 1]
    if not is_linear:
        return (layer + states)[None]
    return np.concatenate([layer[:, :2] + states[:, :2], layer[:, 2:], states[:, 2:]], axis=1)[None]


def _state_dims(draft: Draft) -> Dims:
    """Directions, batch, and channels of a state."""
    dims = draft.dims(draft.source(0))
    batch = dims[0] if _is_batch_first(draft) else dims[1]
    return (_directions(draft), batch, draft.constant(2, "matrix R").shape[2])


def _state(draft: Draft, index: int) -> Operand | None:
    """A state before the first step, as (1, D, N, H)."""
    if not draft.given(index):
        return None
    state = draft.operand(index)
    state = draft.permuted(state, (1, 0, 2)) if _is_batch_first(draft) else state
    return draft.reshaped(state, (1, *_state_dims(draft)))


def _computed(
    draft: Draft,
    kind: str,
    operands: Mapping[str, Operand],
    states: Sequence[str],
    numbers: Mapping[str, Parameter],
) -> Results:
    """The primitive, and its results as ONNX has them."""
    directions, batch, channels = _state_dims(draft)
    times = draft.dims(operands["src_layer"])[0]
    results: dict[str, Dims] = {"dst_layer": (times, batch, directions * channels)}
    results |= dict.fromkeys(states, (1, directions, batch, channels))
    way = _DIRECTIONS[draft.attribute("direction", "forward")]
    written = draft.put_all(kind, operands, results, direction=way, flags=frozenset[str](), **numbers)
    answers = [_sequence(draft, written["dst_layer"], (times, batch, directions, channels))]
    answers += [_last(draft, written[name]) for name in states]
    return tuple(answer if draft.wants(index) else None for index, answer in enumerate(answers))


def _sequence(draft: Draft, layer: str, dims: Dims) -> Operand | None:
    """(T, N, D * H) to (T, D, N, H), or (N, T, D, H)."""
    if not draft.wants(0):
        return None
    times, batch, directions, channels = dims
    if _is_batch_first(draft):
        return draft.reshaped(draft.permuted(layer, (1, 0, 2)), (batch, times, directions, channels))
    if directions == 1:
        return draft.reshaped(layer, (times, 1, batch, channels))
    return draft.permuted(draft.reshaped(layer, dims), (0, 2, 1, 3))


def _last(draft: Draft, state: str) -> Operand:
    """(1, D, N, H) to (D, N, H), or (N, D, H)."""
    flat = draft.reshaped(state, draft.dims(state)[1:])
    return draft.permuted(flat, (1, 0, 2)) if _is_batch_first(draft) else flat


PRODUCTS: Mapping[str, Callable[[Draft], Operand | Results]] = {
    "GRU": gru,
    "Gemm": gemm,
    "LSTM": lstm,
    "MatMul": matmul,
    "RNN": rnn,
}
"""The rule of each operator."""
