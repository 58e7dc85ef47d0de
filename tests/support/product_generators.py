"""Random nodes of products, convolutions, attention, signals and losses, for each operator."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.support.operator_cases import Case
from tests.support.operator_generators import (
    Generator,
    Made,
    conv,
    dims_of,
    make_case,
    maybe,
    pick,
    picks,
    real,
    some,
)


def product_case(operator: str, seed: int) -> Case:
    """Return a random node of an operator of this module."""
    return make_case(operator, seed, PRODUCT_GENERATORS[operator], _OUTPUTS.get(operator, 1))


# Products


def gemm(rng: Generator) -> Made:
    m, n, k = dims_of(rng, 3)
    attributes = picks(rng, transA=(0, 1), transB=(0, 1), alpha=(0.0, 0.5, 1.0), beta=(0.0, 1.0, 1.5))
    a = real(rng, *((k, m) if attributes["transA"] else (m, k)))
    b = real(rng, *((n, k) if attributes["transB"] else (k, n)))
    c = real(rng, *pick(rng, (m, n), (n,), (1, n), (m, 1), ()))
    opset = pick(rng, 9, 11, 13)
    return opset, {"a": a, "b": b, "c": c if opset < 11 else pick(rng, c, c, c, None)}, attributes


def matmul(rng: Generator) -> Made:
    batch, (m, n, k) = dims_of(rng, int(rng.integers(0, 4)), 3), dims_of(rng, 3, 4)
    small = tuple(pick(rng, 1, size) for size in batch)[int(rng.integers(0, len(batch) + 1)) :]
    left = pick(rng, (*batch, m, k), (*small, m, k), (k,))
    right = pick(rng, (*batch, k, n), (*small, k, n), (k, n), (k,))
    return pick(rng, 9, 13), {"a": real(rng, *left), "b": real(rng, *right)}, {}


EQUATIONS = (
    "ij,jk->ik",
    "ij,jk",
    "...ij,...jk->...ik",
    "bij,bij->b",
    "ij->ji",
    "ij,ij->",
    "i j , k -> k j i",
    "ij,jk,kb->bi",
    "ii->i",
    "ii",
    "bii,bj->bij",
    "...i,i",
    "b...j->...b",
    "Bi,iB->B",
)


def einsum(rng: Generator) -> Made:
    equation, dims = pick(rng, *EQUATIONS), {"i": 3, "j": 4, "k": 2, "b": 2, "B": 5, ".": 2}
    terms = equation.replace(" ", "").split("->")[0].replace("...", pick(rng, "", ".")).split(",")
    return 12, {f"x{k}": real(rng, *(dims[c] for c in term)) for k, term in enumerate(terms)}, {"equation": equation}


def determinant(rng: Generator) -> Made:
    n = int(rng.integers(1, 5))
    return pick(rng, 11, 22), {"x": real(rng, *dims_of(rng, int(rng.integers(0, 3)), 3), n, n)}, {}


# Quantized elements


def integers(rng: Generator, dtype: type, *dims: int) -> Any:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, dims).astype(dtype)


def scale_of(rng: Generator, factor: float, *dims: int) -> Any:
    return np.asarray((rng.random(dims) * 0.05 + 0.01) * factor, np.float32)


def conv_integer(rng: Generator) -> Made:
    _, made, attributes = conv(rng)
    arrays = {name: integers(rng, np.uint8, *made[name].shape) for name in "xw"}
    zeros = {"a": maybe(rng, np.array(7, np.uint8)), "b": maybe(rng, np.array(9, np.uint8))}
    return 10, arrays | zeros, attributes


def qlinear_conv(rng: Generator) -> Made:
    _, made, attributes = conv(rng)
    kind, n = pick(rng, np.uint8, np.int8), pick(rng, (), (4,))
    arrays: dict[str, Any] = {}
    for name, dims in (("x", ()), ("w", n), ("y", ())):
        dtype = np.int8 if name == "w" else kind
        arrays |= {name: integers(rng, dtype, *made[name].shape)} if name != "y" else {}
        zero = np.full(dims, 3 if name == "w" else 100, dtype)
        arrays |= {f"{name}s": scale_of(rng, 100 if name == "y" else 1, *dims), f"{name}z": zero}
    return 10, arrays | {"b": maybe(rng, rng.integers(-999, 999, 4).astype(np.int32))}, attributes


def factors(rng: Generator) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    """Return two matrices of bytes, and the dims of parameters of the first and the second."""
    batch, (m, n, k) = dims_of(rng, int(rng.integers(0, 2)), 3), dims_of(rng, 3, 4)
    kind = pick(rng, np.uint8, np.int8)
    return {"a": integers(rng, kind, *batch, m, k), "b": integers(rng, kind, *pick(rng, batch, ()), k, n)}, (), (n,)


def matmul_integer(rng: Generator) -> Made:
    arrays, _, row = factors(rng)
    zeros = [
        None if rng.random() < 0.3 else integers(rng, arrays["a"].dtype.type, *pick(rng, (), n)) for n in ((), row)
    ]
    return 10, arrays | dict(zip(("az", "bz"), zeros, strict=True)), {}


def qlinear_matmul(rng: Generator) -> Made:
    arrays, *dims = factors(rng)
    made: dict[str, Any] = {}
    for name, n in (("a", dims[0]), ("b", pick(rng, (), dims[1])), ("y", ())):
        made |= {name: arrays[name]} if name != "y" else {}
        made |= {f"{name}s": scale_of(rng, 30 if name == "y" else 1, *n)}
        made |= {f"{name}z": np.full(n, 5, arrays["a"].dtype)}
    return pick(rng, 10, 21), made, {}


def dynamic_quantize(rng: Generator) -> Made:
    x = real(rng, *dims_of(rng, 2))
    return 11, {"x": pick(rng, x, x + 3, x - 3, np.zeros_like(x))}, {}


# Convolutions and their windows


def causal_conv(rng: Generator) -> Made:
    batch, channels, length, taps = some(rng, 4, 1, 4)
    arrays = {"x": real(rng, batch, channels, length), "w": real(rng, channels, 1, taps)}
    arrays |= {"b": maybe(rng, real(rng, channels)), "p": maybe(rng, real(rng, batch, channels, taps - 1))}
    return 27, arrays, picks(rng, activation=("none", "silu", "swish", None))


def deform_conv(rng: Generator) -> Made:
    groups, blocks = pick(rng, (1, 1), (2, 1), (1, 2), (2, 2))
    kernel, strides, dilations, pads = (some(rng, n, low, 2) for n, low in ((2, 1), (2, 1), (2, 1), (4, 0)))
    image, taps = some(rng, 2, 4, 6), kernel[0] * kernel[1]
    places = [
        (n + pads[k] + pads[k + 2] - (taps - 1) * d - 1) // s + 1
        for k, (n, taps, d, s) in enumerate(zip(image, kernel, dilations, strides, strict=True))
    ]
    arrays = {
        "x": real(rng, 2, 4, *image),
        "w": real(rng, 2, 4 // groups, *kernel),
        "o": real(rng, 2, blocks * taps * 2, *places) * 2,
        "b": maybe(rng, real(rng, 2)),
        "m": maybe(rng, real(rng, 2, blocks * taps, *places)),
    }
    attributes = {"group": groups, "offset_group": blocks, "strides": strides, "dilations": dilations, "pads": pads}
    return pick(rng, 19, 22), arrays, attributes


def col2im(rng: Generator, count: int = 2) -> Made:
    kernel, strides, dilations, image = (some(rng, count, 1, most) for most in (2, 2, 2, 5))
    pads = some(rng, 2 * count, 1, 2)
    places = [
        (n + pads[k] + pads[k + count] - (taps - 1) * d - 1) // s + 1
        for k, (n, taps, d, s) in enumerate(zip(image, kernel, dilations, strides, strict=True))
    ]
    x = real(rng, 2, 3 * int(np.prod(kernel)), int(np.prod(places)))
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    return 18, {"x": x, "image": np.array(image), "block": np.array(kernel)}, attributes


def max_unpool(rng: Generator) -> Made:
    count = pick(rng, 1, 2, 3)
    kernel, image = some(rng, count, 2, 3), some(rng, count, 2, 3)
    dims = [2, 2, *(n * k for n, k in zip(image, kernel, strict=True))]
    places = rng.permutation(int(np.prod(dims)))[: 4 * int(np.prod(image))].reshape(2, 2, *image)
    return (
        pick(rng, 9, 11, 22),
        {"x": real(rng, 2, 2, *image), "k": places},
        {"kernel_shape": kernel, "strides": kernel},
    )


def affine_grid(rng: Generator) -> Made:
    count = pick(rng, 2, 3)
    sizes = np.array([2, 3, *some(rng, count, 2, 4)])
    return 20, {"theta": real(rng, 2, count, count + 1), "sizes": sizes}, picks(rng, align_corners=(0, 1))


# Normalizations


def rms_normalization(rng: Generator) -> Made:
    dims = dims_of(rng, pick(rng, 1, 2, 3, 4))
    axis = pick(rng, *range(-len(dims), len(dims)))
    return 23, {"x": real(rng, *dims), "s": real(rng, *dims[axis:])}, {"axis": axis, "epsilon": 1e-3}


def instance_normalization(rng: Generator) -> Made:
    dims = dims_of(rng, pick(rng, 3, 4, 5), 4)
    return (
        pick(rng, 9, 22),
        {"x": real(rng, *dims), "s": real(rng, dims[1]), "b": real(rng, dims[1])},
        {"epsilon": 1e-3},
    )


def mean_variance(rng: Generator) -> Made:
    return (
        pick(rng, 9, 13),
        {"x": real(rng, *some(rng, 4, 2, 4))},
        picks(rng, axes=(None, [0, 2, 3], [1, 2, 3], [2, 3])),
    )


# Attention


def attention(rng: Generator) -> Made:
    """Return an attention that ONNX Runtime computes; see `attention_scores` for the others."""
    batch, groups, heads, length, new, past, size, width = some(rng, 8, 1, 3)
    opset, is_3d, cache = pick(rng, 23, 24, 24), pick(rng, False, True), pick(rng, "none", "past", "lengths")
    if length == 1 and cache == "past":  # ONNX Runtime takes one query to be the last position
        new = 1
    total = new + (past if cache == "past" else 0)
    shapes = ((groups * heads, length, size), (groups, new, size), (groups, new, width))
    arrays: dict[str, Any] = {}
    for name, (count, n, features) in zip("qkv", shapes, strict=True):
        arrays[name] = real(rng, batch, *((n, count * features) if is_3d else (count, n, features)))
    mask = real(rng, *pick(rng, (length, total), (batch, 1, length, total), (batch, groups * heads, length, total)))
    arrays["m"] = pick(rng, None, mask, mask > 0)
    arrays["pk"] = real(rng, batch, groups, past, size) if cache == "past" else None
    arrays["pv"] = real(rng, batch, groups, past, width) if cache == "past" else None
    arrays["n"] = rng.integers(1, new + 1, batch) if cache == "lengths" and opset >= 24 else None
    attributes = picks(rng, is_causal=(0, 1), softcap=(0.0, 1.5), scale=(None, 0.7), softmax_precision=(None, 1))
    if is_3d:
        attributes |= {"q_num_heads": groups * heads, "kv_num_heads": groups}
    return opset, arrays, attributes


def attention_scores(rng: Generator) -> Made:
    """Return an attention with windows, whose scores are a result; ONNX's own evaluator computes it."""
    _, arrays, attributes = attention(rng)
    mode = pick(rng, 1, 2, 3)
    windows = picks(rng, left_window_size=(-1, 0, 2), right_window_size=(-1, 0, 1))
    return 25, arrays, attributes | windows | {"qk_matmul_output_mode": mode}


def rotary_embedding(rng: Generator) -> Made:
    batch, heads, length = some(rng, 3, 1, 3)
    size, is_3d = pick(rng, 4, 8), pick(rng, False, True)
    part = pick(rng, 0, 4) if is_3d else 0  # ONNX Runtime takes part of the features of three axes only
    angles = (part or size) // 2
    positions = maybe(rng, rng.integers(0, 7, (batch, length)))
    dims = (7, angles) if positions is not None else (batch, length, angles)
    arrays = {"x": real(rng, *((batch, length, heads * size) if is_3d else (batch, heads, length, size)))}
    arrays |= {"c": real(rng, *dims), "s": real(rng, *dims), "p": positions}
    attributes = {"num_heads": heads if is_3d else None, "rotary_embedding_dim": part or None}
    return 23, arrays, attributes | picks(rng, interleaved=(0, 1))


def linear_attention(rng: Generator) -> Made:
    batch, length, groups, heads, size, width = some(rng, 6, 1, 3)
    rule = pick(rng, "linear", "gated", "delta", "gated_delta")
    arrays = {
        "q": real(rng, batch, length, groups * heads * size),
        "k": real(rng, batch, length, groups * size),
        "v": real(rng, batch, length, groups * width),
        "p": maybe(rng, real(rng, batch, groups, size, width)),
        "d": -np.abs(real(rng, batch, length, groups * pick(rng, 1, size))) if "gated" in rule else None,
        "b": real(rng, batch, length, pick(rng, 1, groups)) if "delta" in rule else None,
    }
    counts = {"q_num_heads": groups * heads, "kv_num_heads": groups, "update_rule": rule}
    return 27, arrays, counts | picks(rng, scale=(None, 0.3))


# Signals


def dft(rng: Generator) -> Made:
    opset, is_complex, is_inverse = pick(rng, 17, 20), pick(rng, False, True), pick(rng, 0, 1)
    dims = dims_of(rng, pick(rng, 2, 3), 9)
    axis = int(rng.integers(0, len(dims)))
    length = maybe(rng, np.array(pick(rng, 4, 7, 8)))
    arrays = {"x": real(rng, *dims, 2 if is_complex else 1), "n": length}
    is_half = 0 if is_complex or is_inverse else pick(rng, 0, 1)
    attributes = {"inverse": is_inverse, "onesided": is_half}
    if opset < 20:
        return opset, arrays, attributes | {"axis": axis}
    return opset, arrays | {"a": np.array(pick(rng, axis, axis - len(dims) - 1))}, attributes


def stft(rng: Generator) -> Made:
    length, is_half, has_window = pick(rng, 4, 6, 8), pick(rng, 0, 1), pick(rng, True, False)
    arrays = {
        "x": real(rng, 2, int(rng.integers(length, 20)), 1 if is_half else pick(rng, 1, 2)),
        "step": np.array(pick(rng, 1, 2, 3)),
        "w": real(rng, length) if has_window else None,
        "n": np.array(length) if not has_window else None,
    }
    return 17, arrays, {"onesided": is_half}


def window(rng: Generator) -> Made:
    return 17, {"n": np.array(int(rng.integers(2, 12)))}, picks(rng, periodic=(0, 1), output_datatype=(1, 11, None))


def mel_weights(rng: Generator) -> Made:
    edges = {"low": np.array(pick(rng, 0.0, 80.5), np.float32), "high": np.array(pick(rng, 3999.0, 2500.0), np.float32)}
    arrays = {"bands": np.array(pick(rng, 3, 8, 20)), "length": np.array(pick(rng, 16, 32, 64)), "rate": np.array(8000)}
    return 17, arrays | edges, picks(rng, output_datatype=(1, None))


# Losses


def loss(opsets: tuple[int, ...]) -> Callable[[Generator], Made]:
    """Return the generator of a loss."""

    def make(rng: Generator) -> Made:
        dims = dims_of(rng, pick(rng, 2, 3, 4), 4)
        labels = rng.integers(0, dims[1], (dims[0], *dims[2:]))
        ignored = pick(rng, None, 0, -100)
        if ignored == -100:
            labels[(0,) * labels.ndim] = ignored
        arrays = {"x": real(rng, *dims), "y": labels.astype(pick(rng, np.int32, np.int64))}
        weights = maybe(rng, np.abs(real(rng, dims[1])) + 0.1)
        attributes = picks(rng, reduction=("none", "sum", "mean", None))
        return pick(rng, *opsets), arrays | {"w": weights}, attributes | {"ignore_index": ignored}

    return make


PRODUCT_GENERATORS: Mapping[str, Callable[[Generator], Made]] = {
    "AffineGrid": affine_grid,
    "Attention": attention,
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), window),
    "CausalConvWithState": causal_conv,
    "Col2Im": col2im,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "DFT": dft,
    "DeformConv": deform_conv,
    "Det": determinant,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Einsum": einsum,
    "Gemm": gemm,
    "InstanceNormalization": instance_normalization,
    "LinearAttention": linear_attention,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "MaxUnpool": max_unpool,
    "MeanVarianceNormalization": mean_variance,
    "MelWeightMatrix": mel_weights,
    "NegativeLogLikelihoodLoss": loss((12, 13, 22)),
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "RMSNormalization": rms_normalization,
    "RotaryEmbedding": rotary_embedding,
    "STFT": stft,
    "SoftmaxCrossEntropyLoss": loss((12, 13)),
}
"""The function that makes a random node of each operator."""
_OUTPUTS = {
    "Attention": 3,
    "CausalConvWithState": 2,
    "DynamicQuantizeLinear": 3,
    "LinearAttention": 2,
    "SoftmaxCrossEntropyLoss": 2,
}
"""The number of outputs of nodes with several."""
