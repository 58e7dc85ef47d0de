"""A decoder of ONNX's own operators of opset 23, with a cache, and the same in float64 without one.

    input_ids, position_ids (batch, sequence), attention_mask (batch, total), past_key_values.0.key ...
        -> logits (batch, sequence, vocabulary), present.0.key (batch, groups, total, features) ...

Each layer has RMSNormalization, RotaryEmbedding and Attention, whose heads share keys and values, and a gated product.
"""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from inlay.graph.op_graph import Array

LAYERS, WIDTH, HEADS, GROUPS, FEATURES, INNER, VOCABULARY, POSITIONS = 2, 24, 4, 2, 6, 40, 32, 512
STATES = tuple(f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value"))


def draw_weights() -> dict[str, Array]:
    """Return the seeded weights of a decoder."""
    rng = np.random.default_rng(11)
    found: dict[str, Array] = {}
    sizes = {
        "q": (WIDTH, HEADS * FEATURES),
        "k": (WIDTH, GROUPS * FEATURES),
        "v": (WIDTH, GROUPS * FEATURES),
        "o": (HEADS * FEATURES, WIDTH),
        "gate": (WIDTH, INNER),
        "up": (WIDTH, INNER),
        "down": (INNER, WIDTH),
    }
    for layer in range(LAYERS):
        found |= {f"{layer}.{name}": rng.standard_normal(dims, np.float32) / 5 for name, dims in sizes.items()}
        found |= {f"{layer}.{name}": rng.uniform(0.5, 1.5, WIDTH).astype(np.float32) for name in ("norm", "norm2")}
    found["tokens"] = rng.standard_normal((VOCABULARY, WIDTH), np.float32)
    found["head"] = rng.standard_normal((WIDTH, VOCABULARY), np.float32) / 5
    angles = np.outer(np.arange(POSITIONS), 100.0 ** -(np.arange(FEATURES // 2) / (FEATURES // 2)))
    return found | {"cosines": np.cos(angles).astype(np.float32), "sines": np.sin(angles).astype(np.float32)}


def write_decoder(weights: dict[str, Array]) -> bytes:
    """Return the decoder as an ONNX file with open dims."""
    nodes: list[Any] = []

    def add(operator: str, *inputs: str, results: tuple[str, ...] = (), **attributes: Any) -> str:
        names = results or (f"t{len(nodes)}",)
        nodes.append(helper.make_node(operator, list(inputs), list(names), **attributes))
        return names[0]

    x, mask = add("Gather", "tokens", "input_ids"), add("Cast", "attention_mask", to=TensorProto.BOOL)
    rows = add("GreaterOrEqual", add("Unsqueeze", "position_ids", "row_axes"), "zero")  # ONNX Runtime needs each row
    mask = add("And", add("Unsqueeze", mask, "mask_axes"), rows)
    for i in range(LAYERS):
        h = add("RMSNormalization", x, f"{i}.norm", epsilon=1e-5)
        q, k, v = (add("MatMul", h, f"{i}.{part}") for part in "qkv")
        q, k = (
            add("RotaryEmbedding", one, "cosines", "sines", "position_ids", num_heads=n)
            for one, n in ((q, HEADS), (k, GROUPS))
        )
        past, present = ([f"{kind}.{i}.{part}" for part in ("key", "value")] for kind in ("past_key_values", "present"))
        results = (f"attended{i}", *present)
        heads = {"q_num_heads": HEADS, "kv_num_heads": GROUPS, "is_causal": 1}
        mixed = add("Attention", q, k, v, mask, *past, results=results, **heads)
        x = add("Add", x, add("MatMul", mixed, f"{i}.o"))
        h = add("RMSNormalization", x, f"{i}.norm2", epsilon=1e-5)
        gate = add("MatMul", h, f"{i}.gate")
        gated = add("Mul", add("Mul", gate, add("Sigmoid", gate)), add("MatMul", h, f"{i}.up"))
        x = add("Add", x, add("MatMul", gated, f"{i}.down"))
    add("MatMul", x, "head", results=("logits",))
    return _write(nodes, weights)


def _write(nodes: list[Any], weights: dict[str, Array]) -> bytes:
    """Return a file of the nodes, with the inputs and outputs of the decoder."""
    integers, floats = TensorProto.INT64, TensorProto.FLOAT
    dims = {"input_ids": "sequence", "position_ids": "sequence", "attention_mask": "total"}
    inputs = [helper.make_tensor_value_info(name, integers, ("batch", n)) for name, n in dims.items()]
    outputs = [helper.make_tensor_value_info("logits", floats, ("batch", "sequence", VOCABULARY))]
    for name in STATES:
        past, present = (("batch", GROUPS, length, FEATURES) for length in ("past", "total"))
        inputs.append(helper.make_tensor_value_info(f"past_key_values.{name}", floats, past))
        outputs.append(helper.make_tensor_value_info(f"present.{name}", floats, present))
    constants = {**weights, "mask_axes": np.array([1, 2]), "row_axes": np.array([1, 3]), "zero": np.array(0)}
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return bytes(model.SerializeToString())


def step_inputs(tokens: Array, results: dict[str, Array], past: int) -> dict[str, Array]:
    """Return the inputs for new tokens after `past` positions, with the cache that is in earlier results."""
    batch, count = tokens.shape
    empty = np.zeros((batch, GROUPS, 0, FEATURES), np.float32)
    positions = np.broadcast_to(np.arange(past, past + count), tokens.shape)
    caches = {f"past_key_values.{name}": results.get(f"present.{name}", empty) for name in STATES}
    mask = np.ones((batch, past + count), np.int64)
    return {"input_ids": tokens, "position_ids": np.ascontiguousarray(positions), "attention_mask": mask, **caches}


def expected_logits(tokens: Array, weights: dict[str, Array]) -> Array:
    """Return the logits of whole sequences in float64, without a cache."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    batch, length = tokens.shape
    x = w["tokens"][tokens]
    future = np.triu(np.full((length, length), -np.inf), 1)
    for i in range(LAYERS):
        h = _normalize(x, w[f"{i}.norm"])
        q, k, v = (
            (h @ w[f"{i}.{part}"]).reshape(batch, length, n, FEATURES)
            for part, n in zip("qkv", (HEADS, GROUPS, GROUPS), strict=True)
        )
        q, k = (_turn(one, w["cosines"][:length], w["sines"][:length]) for one in (q, k))
        k, v = (np.repeat(one, HEADS // GROUPS, 2) for one in (k, v))
        powers = np.exp(np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(FEATURES) + future)
        mixed = np.einsum("bhqk,bkhd->bqhd", powers / powers.sum(-1, keepdims=True), v)
        x = x + mixed.reshape(batch, length, -1) @ w[f"{i}.o"]
        h = _normalize(x, w[f"{i}.norm2"])
        gate = h @ w[f"{i}.gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"{i}.up"])) @ w[f"{i}.down"]
    return np.asarray(x @ w["head"])


def _normalize(x: Array, scale: Array) -> Array:
    """Return the root mean square normalization over features."""
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale)


def _turn(x: Array, cosines: Array, sines: Array) -> Array:
    """Return features turned by the angles of their positions."""
    one, other = np.split(x, 2, -1)
    c, s = cosines[:, None], sines[:, None]
    return np.concatenate([one * c - other * s, one * s + other * c], -1)
