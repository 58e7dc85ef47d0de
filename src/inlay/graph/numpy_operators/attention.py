"""Functions of Attention, RotaryEmbedding and LinearAttention.

Arrays have the axes batch, heads, sequence, features; inputs with three axes have the heads in their last axis.
Everything is computed in f32, or in f64 for inputs of f64.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, onnx_dtype
from inlay.graph.op_graph import Array

_SCORES = 3
"""Output of Attention that holds the products of queries and keys."""


def _split_heads(call: OperatorCall, src: Array, heads: int) -> Array:
    """Return an array with axes batch, heads, sequence, features.

    Raises:
        InvalidArguments: an array with three axes has no such number of heads.
    """
    if src.ndim == 4:
        return src
    if src.ndim != 3 or heads < 1 or src.shape[2] % heads:
        raise call.invalid(f"{heads} heads do not fit dims {src.shape}")
    return src.reshape(*src.shape[:2], heads, src.shape[2] // heads).transpose(0, 2, 1, 3)


def _merge_heads(src: Array) -> Array:
    """Return an array with the axes batch, sequence, and features of all heads."""
    return src.transpose(0, 2, 1, 3).reshape(src.shape[0], src.shape[2], src.shape[1] * src.shape[3])


# Attention


@dataclass(frozen=True, slots=True)
class _AttentionInputs:
    """Queries, keys and values of an attention, with the cache's keys and values before the others."""

    queries: Array
    """Queries: batch, heads, sequence, features."""
    keys: Array
    """Keys: batch, heads or fewer, length of the cache and the sequence, features."""
    values: Array
    """Values: as the keys, with features of their own."""
    past: int
    """Length of the cache."""


def attention(call: OperatorCall) -> tuple[Array, ...]:
    """Compute Attention: softmax(queries * keys * scale + mask) * values.

    Rows whose keys are all masked are 0. The further results are keys and values with those of the cache, and the
    products of queries and keys after the step that `qk_matmul_output_mode` names.
    """
    inputs = _attention_inputs(call)
    queries, keys, values = inputs.queries, inputs.keys, inputs.values
    dtype, working = queries.dtype, accumulation_dtype(queries.dtype)
    default = 1 / np.sqrt(np.float64(queries.shape[3]))
    groups = (keys.shape[0], keys.shape[1], queries.shape[1] // max(keys.shape[1], 1), *queries.shape[2:])
    scaled = queries.astype(working) * working.type(call.attribute("scale", default))
    scores = np.matmul(scaled.reshape(groups), keys.astype(working)[:, :, None].swapaxes(3, 4))
    scores = scores.reshape(*queries.shape[:3], keys.shape[2])
    cap = working.type(call.attribute("softcap", 0.0))
    capped = np.tanh(scores / cap) * cap if cap else scores
    bias = _bias(call, inputs, working)
    masked = capped + bias
    weights = _softmax(call, masked, bias).astype(dtype)
    result = np.matmul(weights.astype(working).reshape(*groups[:4], keys.shape[2]), values.astype(working)[:, :, None])
    result = result.reshape(*queries.shape[:3], values.shape[3]).astype(dtype)
    result = _merge_heads(result) if call.input(0).ndim == 3 else result
    if not call.has_output(_SCORES):
        return result, keys, values
    mode = int(call.attribute("qk_matmul_output_mode", 0))
    if not 0 <= mode <= 3:
        raise call.invalid(f"qk_matmul_output_mode is {mode}, and has to be 0 to 3")
    return result, keys, values, (scores, capped, masked, weights)[mode].astype(dtype)


def _attention_inputs(call: OperatorCall) -> _AttentionInputs:
    """Return queries, keys and values with the cache's.

    Raises:
        InvalidArguments: their dims do not fit.
    """
    heads = [int(call.attribute(name, 0)) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    queries, keys, values = (_split_heads(call, call.input(index), n) for index, n in enumerate(heads))
    past_keys, past_values = call.optional(4), call.optional(5)
    length = 0
    if past_keys is not None or past_values is not None:
        keys, values = _extend(call, past_keys, keys), _extend(call, past_values, values)
        length = 0 if past_keys is None else past_keys.shape[2]
    is_grouped = keys.shape[1] and queries.shape[1] % keys.shape[1] == 0
    fits = queries.shape[0] == keys.shape[0] and queries.shape[3] == keys.shape[3] and is_grouped
    if not fits or keys.shape[:3] != values.shape[:3]:
        dims = " and ".join(str(array.shape) for array in (queries, keys, values))
        raise call.invalid(f"queries, keys and values of dims {dims} do not fit")
    return _AttentionInputs(queries, keys, values, length)


def _extend(call: OperatorCall, past: Array | None, new: Array) -> Array:
    """Return keys or values with those of the cache before them."""
    if past is None or past.ndim != 4 or past.shape != (*new.shape[:2], past.shape[2], new.shape[3]):
        dims = None if past is None else past.shape
        raise call.invalid(f"a cache of dims {dims} does not fit keys or values of dims {new.shape}")
    return np.concatenate([past, new], 2)


def _bias(call: OperatorCall, inputs: _AttentionInputs, working: np.dtype[Any]) -> Array:
    """Return the numbers to add to the products of queries and keys; -inf where a key is masked."""
    queries, total = inputs.queries.shape[2], inputs.keys.shape[2]
    bias = np.zeros((1, 1, queries, total), working)
    mask, lengths = call.optional(3), call.optional(6)
    if mask is not None:
        bias = bias + _mask_bias(call, mask, total, working)
    start: Any = inputs.past
    if lengths is not None:
        if inputs.past or lengths.shape != inputs.queries.shape[:1]:
            raise call.invalid(f"nonpad_kv_seqlen of dims {lengths.shape} does not fit dims {inputs.queries.shape}")
        counts = lengths.astype(np.int64).reshape(-1, 1, 1, 1)
        start, bias = counts - queries, np.where(np.arange(total) < counts, bias, -np.inf)
    distance = np.arange(total) - (np.arange(queries).reshape(-1, 1) + start)
    after, before = (int(call.attribute(f"{side}_window_size", -1)) for side in ("right", "left"))
    if min(after, before) < -1:
        raise call.invalid(f"windows of {before} and {after} keys are not -1 or more")
    if call.attribute("is_causal", 0):
        bias = np.where(distance <= 0, bias, -np.inf)
    if after >= 0:
        bias = np.where(distance <= after, bias, -np.inf)
    if before >= 0:
        bias = np.where(-distance <= before, bias, -np.inf)
    return np.asarray(bias, working)


def _mask_bias(call: OperatorCall, mask: Array, total: int, working: np.dtype[Any]) -> Array:
    """Return a mask as numbers to add; keys that it leaves out at the end are masked."""
    numbers = np.where(mask, 0, -np.inf).astype(working) if mask.dtype == bool else mask.astype(working)
    short = total - numbers.shape[-1] if numbers.ndim else 0
    if short < 0 or numbers.ndim > 4:
        raise call.invalid(f"a mask of dims {mask.shape} does not fit {total} keys")
    if short:
        extend: Any = np.pad
        return np.asarray(extend(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, short)], constant_values=-np.inf))
    return numbers


def _softmax(call: OperatorCall, scores: Array, bias: Array) -> Array:
    """Return the softmax of the rows, in the precision that the node states; 0 in rows that are wholly masked."""
    code = int(call.attribute("softmax_precision", 0))
    stated = onnx_dtype(code) if code else scores.dtype
    rows = scores.astype(stated).astype(accumulation_dtype(stated))
    greatest = rows.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(rows - np.where(np.isneginf(greatest), 0, greatest))
    total = powers.sum(-1, keepdims=True)
    shares = powers / np.where(total == 0, 1, total)
    is_masked = np.isneginf(bias.max(-1, keepdims=True, initial=-np.inf))
    return np.asarray(np.where(is_masked, 0, shares)).astype(stated)


# Rotary embedding


def rotary_embedding(call: OperatorCall) -> Array:
    """Compute RotaryEmbedding: turn pairs of features by angles whose cosine and sine are inputs."""
    src = call.input(0)
    values = _split_heads(call, src, int(call.attribute("num_heads", 0)))
    size = int(call.attribute("rotary_embedding_dim", 0)) or values.shape[3]
    if size % 2 or size > values.shape[3]:
        raise call.invalid(f"{size} features are not pairs of its {values.shape[3]}")
    working = accumulation_dtype(src.dtype)
    cosine, sine = (_angles(call, index, values, size // 2).astype(working) for index in (1, 2))
    turned = values[..., :size].astype(working)
    is_interleaved = bool(call.attribute("interleaved", 0))
    parts = (turned[..., ::2], turned[..., 1::2]) if is_interleaved else np.split(turned, 2, axis=-1)
    pairs = [cosine * parts[0] - sine * parts[1], sine * parts[0] + cosine * parts[1]]
    turned = np.stack(pairs, -1).reshape(turned.shape) if is_interleaved else np.concatenate(pairs, -1)
    result = np.concatenate([turned.astype(src.dtype), values[..., size:]], -1)
    return result if src.ndim == 4 else _merge_heads(result)


def _angles(call: OperatorCall, index: int, values: Array, size: int) -> Array:
    """Return the cosines or sines of input `index`: batch, one head, sequence, pairs of features."""
    table, positions = call.input(index), call.optional(3)
    if positions is not None:
        if table.ndim != 2 or positions.ndim != 2:
            raise call.invalid(f"positions of dims {positions.shape} do not fit a table of dims {table.shape}")
        if positions.size and not 0 <= int(positions.min()) <= int(positions.max()) < table.shape[0]:
            raise call.invalid(f"{call.node.inputs[3]!r} has positions outside of a table of {table.shape[0]} rows")
        table = table[positions]
    if table.shape != (values.shape[0], values.shape[2], size):
        dims = (values.shape[0], values.shape[2], size)
        raise call.invalid(f"{call.node.inputs[index]!r} has dims {table.shape} by position, and needs {dims}")
    return table[:, None]


# Linear attention

_RULES: Mapping[str, tuple[bool, bool]] = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""Update rules of LinearAttention: whether the state decays, and whether the update is a difference to it."""


def linear_attention(call: OperatorCall) -> tuple[Array, Array]:
    """Compute LinearAttention: queries read a matrix of keys by values, which each position updates.

    The second result is the matrix after the last position.
    """
    rule, counts = call.attribute("update_rule", "gated_delta"), _head_counts(call)
    if rule not in _RULES:
        raise call.invalid(f"update_rule {rule!r} is none of {', '.join(_RULES)}")
    heads = counts[1]
    src = [call.input(index) for index in range(3)]
    if any(one.ndim != 3 for one in src):
        raise call.invalid("queries, keys and values do not have three axes each")
    queries, keys, values = (
        _split_heads(call, one, n).astype(np.float32) for one, n in zip(src, (counts[0], heads, heads), strict=True)
    )
    has_decay, is_delta = _RULES[rule]
    decay, beta = call.optional(4), call.optional(5)
    if (decay is not None) != has_decay or (beta is not None) != is_delta:
        raise call.invalid(f"its inputs decay and beta are not those of update_rule {rule!r}")
    kept = None if decay is None else np.exp(_gate(call, decay, (1, keys.shape[3]), heads))
    rate = None if beta is None else _gate(call, beta, (1,), 1 if beta.shape[-1:] == (1,) else heads)
    past, dims = call.optional(3), (*keys.shape[:2], keys.shape[3], values.shape[3])
    if past is not None and past.shape != dims:
        raise call.invalid(f"its state has dims {past.shape}, and needs {dims}")
    state = np.zeros(dims, np.float32) if past is None else past.astype(np.float32)
    result = np.zeros((*queries.shape[:3], values.shape[3]), np.float32)
    for k in range(queries.shape[2]):
        gates = (None if gate is None else gate[:, :, k] for gate in (kept, rate))
        state = _update_state(state, keys[:, :, k], values[:, :, k], *gates)
        result[:, :, k] = _read_state(state, queries[:, :, k])
    scale = float(call.attribute("scale", 0.0)) or 1 / np.sqrt(queries.shape[3])
    result = _merge_heads(result * np.float32(scale))
    return result.astype(src[0].dtype), state.astype(src[0].dtype if past is None else past.dtype)


def _head_counts(call: OperatorCall) -> tuple[int, int]:
    """Return the number of heads of queries, and of keys and values."""
    queries, others = (int(call.attribute(name, 0)) for name in ("q_num_heads", "kv_num_heads"))
    if others < 1 or queries < 1 or queries % others:
        raise call.invalid(f"{queries} heads of queries do not fit {others} of keys and values")
    return queries, others


def _gate(call: OperatorCall, gate: Array, sizes: tuple[int, ...], heads: int) -> Array:
    """Return decay or update rates: batch, heads, sequence, features; for each head one of `sizes` features."""
    if gate.ndim != 3 or gate.shape[2] not in [heads * size for size in sizes]:
        raise call.invalid(f"a gate of dims {gate.shape} does not fit {heads} heads")
    return _split_heads(call, gate, heads).astype(np.float32)


def _update_state(state: Array, keys: Array, values: Array, kept: Array | None, rate: Array | None) -> Array:
    """Return the state after one position."""
    if kept is not None:
        state = state * kept[..., None]
    if rate is not None:
        values = rate * (values - np.einsum("bhkv,bhk->bhv", state, keys))
    return np.asarray(state + keys[..., :, None] * values[..., None, :])


def _read_state(state: Array, queries: Array) -> Array:
    """Return what the queries of one position read from the state; several may share one head of it."""
    grouped = queries.reshape(*state.shape[:2], queries.shape[1] // state.shape[1], queries.shape[2])
    return np.asarray(np.matmul(grouped, state)).reshape(*queries.shape[:2], state.shape[3])


ATTENTION: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "Attention": attention,
    "LinearAttention": linear_attention,
    "RotaryEmbedding": rotary_embedding,
}
"""Function of each operator of attention."""
