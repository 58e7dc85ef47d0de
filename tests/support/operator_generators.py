"""Random nodes with the attributes that ONNX's backend cases leave out, for each operator that has many."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper

from tests.support.operator_cases import Arrays, Case
from tests.support.operator_draws import Generator, Made, dims_of, pick, real, some
from tests.support.operator_windows import (
    average_pool,
    conv,
    conv_integer,
    conv_transpose,
    global_lp_pool,
    lp_pool,
    max_pool,
    qlinear_conv,
)


def case_of(operator: str, seed: int) -> Case:
    """A random node of an operator."""
    rng = np.random.default_rng([seed, *operator.encode()])
    opset, arrays, outputs, attributes = GENERATORS[operator](rng)
    names = ["" if name.startswith("_") else name for name in arrays]
    while names and not names[-1]:
        names.pop()
    kept = {name: array for name, array in arrays.items() if not name.startswith("_")}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(operator, names, [f"y{k}" for k in range(outputs)], "node", **attributes)
    return Case(f"{operator}-{seed}", node, opset, kept, [], False)


# Moving


def pad(rng: Generator) -> Made:
    dims = dims_of(rng, pick(rng, 1, 2, 3), 5)
    x = real(rng, *(n + 2 for n in dims))
    mode = pick(rng, "constant", "constant", "edge", "reflect", "wrap")
    opset = 19 if mode == "wrap" else pick(rng, 11, 13, 18, 21)
    low = -1 if mode == "constant" else 0
    arrays: Arrays = {"x": x, "pads": np.array(some(rng, 2 * len(dims), low, 2))}
    if mode == "constant" and rng.random() < 0.5:
        arrays["value"] = np.array(1.5, np.float32)
    return opset, arrays, 1, {"mode": mode}


def resize(rng: Generator) -> Made:
    if rng.random() < 0.1:
        return old_resize(rng)
    count = pick(rng, 1, 2, 2)
    dims = tuple(some(rng, count, 2, 5))
    mode = pick(rng, "nearest", "linear", "linear", "cubic") if count == 2 else pick(rng, "nearest", "linear")
    ways = ["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"]
    way = pick(rng, *ways, "half_pixel_symmetric") if mode != "cubic" else pick(rng, *ways)
    opset = 19 if way == "half_pixel_symmetric" else pick(rng, 11, 13, 18, 19)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = pick(rng, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": pick(rng, -0.75, -0.5), "exclude_outside": pick(rng, 0, 1)}
    if mode != "nearest" and opset >= 18 and way == "half_pixel" and not attributes.get("exclude_outside"):
        attributes["antialias"] = pick(rng, 0, 1)
    x = real(rng, 1, 2, *dims)
    none = np.zeros(0, np.float32)
    if opset < 18 or rng.random() < 0.5 or way == "align_corners":
        sizes = np.array([1, 2, *(max(1, n + int(rng.integers(-2, 6))) for n in dims)])
        name = "scales" if opset < 13 else "_scales"
        return opset, {"x": x, "roi": none, name: none, "sizes": sizes}, 1, attributes
    scales = np.array([1, 1, *(pick(rng, 0.5, 1.5, 2, 2.5) for _ in dims)], np.float32)
    return opset, {"x": x, "roi": none, "scales": scales}, 1, attributes


def old_resize(rng: Generator) -> Made:
    scales = np.array([1, 1, pick(rng, 1.5, 2, 3), pick(rng, 1.5, 2, 2.5)], np.float32)
    return 10, {"x": real(rng, 1, 2, 3, 4), "scales": scales}, 1, {"mode": pick(rng, "nearest", "linear")}


def upsample(rng: Generator) -> Made:
    return (9, *old_resize(rng)[1:])


def gather(rng: Generator) -> Made:
    dims = dims_of(rng, 3)
    axis = int(rng.integers(-3, 3))
    n = dims[axis]
    return (
        pick(rng, 9, 11, 13),
        {"x": real(rng, *dims), "k": rng.integers(-n if n else 0, n, (2, 3))},
        1,
        {"axis": axis},
    )


def gather_elements(rng: Generator) -> Made:
    dims = pick(rng, (100, 1), (1, 200), dims_of(rng, 3), dims_of(rng, 2))
    axis = int(rng.integers(-len(dims), len(dims)))
    n = dims[axis]
    its = tuple(
        int(rng.integers(1, 4)) if i == axis % len(dims) else int(rng.integers(1, m + 1)) for i, m in enumerate(dims)
    )
    return pick(rng, 11, 13), {"x": real(rng, *dims), "k": rng.integers(-n, n, its)}, 1, {"axis": axis}


def scatter_elements(rng: Generator) -> Made:
    _, arrays, _, attributes = gather_elements(rng)
    reduction = pick(rng, "none", "add", "mul", "max", "min")
    k = arrays["k"]
    if reduction == "none":  # which of two for one place is the last, ONNX leaves open
        axis = attributes["axis"] % k.ndim
        k = k[tuple(slice(1) if i == axis else slice(None) for i in range(k.ndim))]
    arrays = {"x": arrays["x"], "k": k, "u": real(rng, *k.shape)}
    return 18, arrays, 1, attributes | {"reduction": reduction}


def gather_nd(rng: Generator) -> Made:
    dims = dims_of(rng, 4)
    batch = int(rng.integers(0, 3))
    depth = int(rng.integers(1, 5 - batch))
    lows = [rng.integers(-n, n, (*dims[:batch], 3)) for n in dims[batch : batch + depth]]
    return 13, {"x": real(rng, *dims), "k": np.stack(lows, -1)}, 1, {"batch_dims": batch}


def scatter_nd(rng: Generator) -> Made:
    dims = dims_of(rng, 3)
    depth = int(rng.integers(1, 4))
    reduction = pick(rng, "none", "add", "mul", "max", "min")
    count = 1 if reduction == "none" else 3
    k = np.stack([rng.integers(-n, n, (count,)) for n in dims[:depth]], -1)
    arrays = {"x": real(rng, *dims), "k": k, "u": real(rng, count, *dims[depth:])}
    return 18, arrays, 1, {"reduction": reduction}


def take_slice(rng: Generator) -> Made:
    dims = tuple(some(rng, 3, 3, 6))
    steps = np.array([pick(rng, 1, 2, -1, -2) for _ in range(2)])
    starts, ends = (np.array(some(rng, 2, -7, 7)) for _ in range(2))
    arrays = {"x": real(rng, *dims), "s": starts, "e": ends, "a": np.array([0, -1]), "t": steps}
    return pick(rng, 10, 13), arrays, 1, {}


# Normalizations and reductions


def softmax(rng: Generator) -> Made:
    return pick(rng, 9, 11, 13), {"x": real(rng, *dims_of(rng, 3))}, 1, {"axis": pick(rng, 0, 1, 2)}


def lp_normalization(rng: Generator) -> Made:
    return pick(rng, 9, 22), {"x": real(rng, *dims_of(rng, 3))}, 1, {"axis": pick(rng, 0, 1, -1), "p": pick(rng, 1, 2)}


def lrn(rng: Generator) -> Made:
    attributes = {"size": pick(rng, 1, 3, 5), "alpha": 0.5, "beta": 0.6, "bias": 1.5}
    return pick(rng, 9, 13), {"x": real(rng, 2, 7, 3, 2)}, 1, attributes


def reduction(rng: Generator) -> Made:
    dims = dims_of(rng, 3)
    x = real(rng, *dims) * 3
    if rng.random() < 0.5:
        x = np.abs(x).astype(pick(rng, np.int32, np.int64)) + 1
    axes = sorted({int(axis) for axis in rng.integers(0, 3, 2)})
    return 18, {"x": x, "axes": np.array(axes)}, 1, {"keepdims": pick(rng, 0, 1)}


def log_sum_exp(rng: Generator) -> Made:
    opset, arrays, outputs, attributes = reduction(rng)  # of integers ONNX Runtime computes powers in integers
    return opset, arrays | {"x": arrays["x"].astype(np.float32)}, outputs, attributes


def layer_normalization(rng: Generator) -> Made:
    dims, axis = dims_of(rng, 3), pick(rng, 0, 1, 2, -1)
    its = dims[axis:]
    return 17, {"x": real(rng, *dims), "s": real(rng, *its), "b": real(rng, *its)}, 3, {"axis": axis}


def gemm(rng: Generator) -> Made:
    m, n, k = dims_of(rng, 3)
    left, right = pick(rng, 0, 1), pick(rng, 0, 1)
    a, b = real(rng, *((k, m) if left else (m, k))), real(rng, *((n, k) if right else (k, n)))
    c = real(rng, *pick(rng, (m, n), (n,), (1, n), (m, 1), ()))
    attributes = {"transA": left, "transB": right, "alpha": 0.5, "beta": pick(rng, 0.0, 1.5)}
    return pick(rng, 9, 11, 13), {"a": a, "b": b, "c": c}, 1, attributes


# Sampling


def grid_sample(rng: Generator) -> Made:
    count = pick(rng, 2, 2, 3)
    mode = pick(rng, "linear", "nearest", "cubic") if count == 2 else pick(rng, "linear", "nearest")
    opset = pick(rng, 16, 20, 22) if count == 2 else pick(rng, 20, 22)
    old = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
    attributes = {
        "mode": old[mode] if opset < 20 else mode,
        "padding_mode": pick(rng, "zeros", "border", "reflection"),
        "align_corners": pick(rng, 0, 1),
    }
    grid = 1.5 * real(rng, 2, *some(rng, count, 1, 3), count)
    return opset, {"x": real(rng, 2, 2, *some(rng, count, 2, 5)), "grid": grid}, 1, attributes


def roi_align(rng: Generator) -> Made:
    opset = pick(rng, 10, 16)
    attributes = {
        "output_height": pick(rng, 1, 2, 3),
        "output_width": pick(rng, 1, 2),
        "sampling_ratio": pick(rng, 0, 1, 2),
        "spatial_scale": pick(rng, 1.0, 0.5),
        "coordinate_transformation_mode": pick(rng, "half_pixel", "output_half_pixel") if opset == 16 else None,
    }
    corners = rng.random((3, 2)) * 6 - 1
    regions = np.concatenate([corners, corners + rng.random((3, 2)) * 6], 1).astype(np.float32)
    return opset, {"x": real(rng, 2, 2, 6, 7), "rois": regions, "batch": np.array([0, 1, 1])}, 1, attributes


# Quantization


def quantize(rng: Generator) -> Made:
    opset, dims, axis = pick(rng, 10, 13, 19, 21), dims_of(rng, 3), pick(rng, 0, 1, -1)
    is_along = opset >= 13 and rng.random() < 0.5
    n = (dims[axis],) if is_along else ()
    scale = np.asarray(rng.random(n) + 0.05, np.float32)
    dtype = pick(rng, np.uint8, np.int8)
    zero = np.asarray(rng.integers(0, 20, n), dtype)
    return opset, {"x": real(rng, *dims) * 40, "s": scale, "z": zero}, 1, {"axis": axis if opset >= 13 else None}


def dequantize(rng: Generator) -> Made:
    opset, arrays, outputs, attributes = quantize(rng)
    return opset, arrays | {"x": arrays["x"].astype(arrays["z"].dtype)}, outputs, attributes


# Recurrent

_FUNCTIONS = ("Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "HardSigmoid", "Elu", "Softsign")

_ALPHAS = ("Affine", "LeakyRelu", "HardSigmoid", "Elu", "ScaledTanh", "ThresholdedRelu")
_BETAS = ("Affine", "HardSigmoid", "ScaledTanh")


def recurrent(operator: str, gates: int, functions: int, states: int) -> Callable[[Generator], Made]:
    def make(rng: Generator) -> Made:
        times, batch, inputs, hidden = (int(rng.integers(1, 5)) for _ in range(4))
        direction = pick(rng, "forward", "reverse", "bidirectional")
        count = 2 if direction == "bidirectional" else 1
        arrays: Arrays = {
            "x": real(rng, times, batch, inputs),
            "w": real(rng, count, gates * hidden, inputs),
            "r": real(rng, count, gates * hidden, hidden),
        }
        arrays[pick(rng, "b", "_b")] = real(rng, count, 2 * gates * hidden)
        arrays[pick(rng, "lengths", "_lengths")] = rng.integers(1, times + 1, batch).astype(np.int32)
        has_states = pick(rng, "", "_")
        for k in range(states):
            arrays[f"{has_states}state{k}"] = real(rng, count, batch, hidden)
        if operator == "LSTM":
            arrays[pick(rng, "p", "_p")] = real(rng, count, 3 * hidden)
        attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
        if rng.random() < 0.5:
            attributes["clip"] = 0.7
        if rng.random() < 0.5:
            # ONNX Runtime's Affine is 0 where its numbers are left out, so all are given.
            # Its Softplus overflows where the state of an LSTM grows.
            known = _FUNCTIONS if operator != "RNN" else (*_FUNCTIONS, "Softplus", "ScaledTanh", "ThresholdedRelu")
            names = [pick(rng, *known) for _ in range(functions)] * count
            attributes["activations"] = names
            attributes["activation_alpha"] = [0.3] * sum(name in _ALPHAS for name in names) or None
            attributes["activation_beta"] = [0.4] * sum(name in _BETAS for name in names) or None
        if operator == "GRU":
            attributes["linear_before_reset"] = pick(rng, 0, 1)
        if operator == "LSTM":
            attributes["input_forget"] = pick(rng, 0, 0, 1)
        return pick(rng, 9, 14, 22), arrays, 1 + states, attributes

    return make


# Others


def top_k(rng: Generator) -> Made:
    dims, axis = tuple(some(rng, 3, 3, 5)), pick(rng, 0, 1, -1)
    attributes = {"axis": axis, "largest": pick(rng, 0, 1), "sorted": 1}
    return 11, {"x": real(rng, *dims), "k": np.array([pick(rng, 1, 2, 3)])}, 2, attributes


def cum_sum(rng: Generator) -> Made:
    arrays = {"x": real(rng, *dims_of(rng, 3)), "axis": np.array(pick(rng, 0, 1, -1))}
    return pick(rng, 11, 14), arrays, 1, {"exclusive": pick(rng, 0, 1), "reverse": pick(rng, 0, 1)}


def argument(rng: Generator) -> Made:
    x = rng.integers(0, 3, dims_of(rng, 3)).astype(np.float32)
    opset = pick(rng, 9, 11, 12, 13)
    last = pick(rng, 0, 1) if opset >= 12 else None
    return opset, {"x": x}, 1, {"axis": pick(rng, 0, 1, 2), "keepdims": pick(rng, 0, 1), "select_last_index": last}


def one_hot(rng: Generator) -> Made:
    arrays = {"k": rng.integers(-6, 6, (2, 3)), "depth": np.array(4), "values": np.array([0.5, 2], np.float32)}
    return pick(rng, 9, 11), arrays, 1, {"axis": pick(rng, 0, 1, -1)}


def reverse_sequence(rng: Generator) -> Made:
    batch, time = pick(rng, (0, 1), (1, 0))
    x = real(rng, 4, 4, 2)
    return 10, {"x": x, "n": rng.integers(1, 5, 4)}, 1, {"batch_axis": batch, "time_axis": time}


def trilu(rng: Generator) -> Made:
    return (
        14,
        {"x": real(rng, *dims_of(rng, 3)), "k": np.array(int(rng.integers(-3, 4)))},
        1,
        {"upper": pick(rng, 0, 1)},
    )


def depth_to_space(rng: Generator) -> Made:
    opset = pick(rng, 9, 11, 13)
    mode = pick(rng, "DCR", "CRD") if opset >= 11 else None
    return opset, {"x": real(rng, 2, 8, 2, 3)}, 1, {"blocksize": 2, "mode": mode}


def modulo(rng: Generator) -> Made:
    if rng.random() < 0.5:
        x, y = real(rng, 4, 3) * 10, real(rng, 3) * 3
        return pick(rng, 10, 13), {"x": x, "y": y}, 1, {"fmod": 1}
    x, y = rng.integers(-9, 10, (4, 3)), rng.integers(1, 5, 3) * pick(rng, 1, -1)
    return pick(rng, 10, 13), {"x": x, "y": y}, 1, {"fmod": pick(rng, 0, 1)}


def power(rng: Generator) -> Made:
    x, y = rng.integers(-3, 4, (4, 3)), rng.integers(0, 4, (3,))
    base, exponent = pick(rng, np.float32, np.int32, np.int64), pick(rng, np.float32, np.int32, np.int64)
    return pick(rng, 12, 13, 15), {"x": x.astype(base), "y": y.astype(exponent)}, 1, {}


def einsum(rng: Generator) -> Made:
    equation = pick(rng, "ij,jk->ik", "ij,jk", "...ij,...jk->...ik", "bij,bij->b", "ij->ji", "ij,ij->")
    dims = {"i": 3, "j": 4, "k": 2, "b": 2}
    terms = equation.split("->")[0].split(",")
    arrays = {f"x{k}": real(rng, *(dims[c] for c in term if c != ".")) for k, term in enumerate(terms)}
    return 12, arrays, 1, {"equation": equation}


GENERATORS: Mapping[str, Callable[[Generator], Made]] = {
    "ArgMax": argument,
    "ArgMin": argument,
    "AveragePool": average_pool,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "CumSum": cum_sum,
    "DepthToSpace": depth_to_space,
    "DequantizeLinear": dequantize,
    "Einsum": einsum,
    "GRU": recurrent("GRU", 3, 2, 1),
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gemm": gemm,
    "GridSample": grid_sample,
    "GlobalLpPool": global_lp_pool,
    "Hardmax": softmax,
    "LRN": lrn,
    "LSTM": recurrent("LSTM", 4, 3, 2),
    "LayerNormalization": layer_normalization,
    "LogSoftmax": softmax,
    "LpNormalization": lp_normalization,
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "Mod": modulo,
    "OneHot": one_hot,
    "Pad": pad,
    "Pow": power,
    "QLinearConv": qlinear_conv,
    "QuantizeLinear": quantize,
    "RNN": recurrent("RNN", 1, 1, 1),
    **{f"Reduce{way}": reduction for way in ("L1", "L2", "LogSum", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    "ReduceLogSumExp": log_sum_exp,
    "Resize": resize,
    "ReverseSequence": reverse_sequence,
    "RoiAlign": roi_align,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Slice": take_slice,
    "Softmax": softmax,
    "TopK": top_k,
    "Trilu": trilu,
    "Upsample": upsample,
}
"""What makes a random node of each operator."""
