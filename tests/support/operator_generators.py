"""Random nodes with the attributes that ONNX's backend cases leave out, for each operator that has many."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from onnx import helper

from tests.support.operator_cases import Array, Case

Generator: TypeAlias = np.random.Generator
Made: TypeAlias = tuple[int, dict[str, Any], dict[str, Any]]
"""Opset, inputs by name in their order, and attributes; None for those that are left out."""


def case_of(operator: str, seed: int) -> Case:
    """Return a random node of an operator."""
    return make_case(operator, seed, GENERATORS[operator], OUTPUTS.get(operator, 1))


def make_case(operator: str, seed: int, generator: Callable[[Generator], Made], count: int) -> Case:
    """Return the node with `count` outputs that a generator makes."""
    rng = np.random.default_rng([seed, *operator.encode()])
    opset, arrays, attributes = generator(rng)
    given = {name: array for name, array in arrays.items() if array is not None}
    names = [name if name in given else "" for name in arrays]
    while not names[-1]:
        names.pop()
    outputs = [f"y{k}" for k in range(count)]
    attributes = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(operator, names, outputs, "node", **attributes)
    return Case(f"{operator}-{seed}", node, opset, given, [], False)


def real(rng: Generator, *dims: int) -> Array:
    return rng.standard_normal(dims).astype(np.float32)


def pick(rng: Generator, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def picks(rng: Generator, **values: tuple[Any, ...]) -> dict[str, Any]:
    return {name: pick(rng, *each) for name, each in values.items()}


def maybe(rng: Generator, value: Any) -> Any:
    return value if rng.random() < 0.5 else None


def some(rng: Generator, count: int, low: int, high: int) -> list[int]:
    return list(map(int, rng.integers(low, high + 1, count)))


def dims_of(rng: Generator, count: int, most: int = 5) -> tuple[int, ...]:
    return tuple(some(rng, count, 1, most))


def unary(opsets: tuple[int, ...], axes: tuple[int, ...] = (3,), **choices: tuple[Any, ...]) -> Callable[..., Made]:
    """Return a generator of nodes of one tensor with so many axes, and attributes of these values."""

    def make(rng: Generator) -> Made:
        return pick(rng, *opsets), {"x": real(rng, *dims_of(rng, pick(rng, *axes)))}, picks(rng, **choices)

    return make


# Moving


def pad(rng: Generator) -> Made:
    mode = pick(rng, "constant", "constant", "edge", "reflect", "wrap")
    x = real(rng, *some(rng, pick(rng, 1, 2, 3), 3, 7))
    pads = np.array(some(rng, 2 * x.ndim, -1 if mode == "constant" else 0, 2))
    value = maybe(rng, np.array(1.5, np.float32)) if mode == "constant" else None
    return 19 if mode == "wrap" else pick(rng, 11, 13, 18, 21), {"x": x, "pads": pads, "value": value}, {"mode": mode}


def resize(rng: Generator) -> Made:
    if rng.random() < 0.1:
        return old_resize(rng)
    dims = some(rng, pick(rng, 1, 2, 2), 2, 5)
    mode = pick(rng, "nearest", "linear", "linear", "cubic") if len(dims) == 2 else pick(rng, "nearest", "linear")
    ways = ["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"]
    way = pick(rng, *ways, "half_pixel_symmetric") if mode != "cubic" else pick(rng, *ways)
    opset = 19 if way == "half_pixel_symmetric" else pick(rng, 11, 13, 18, 19)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = pick(rng, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if mode == "cubic":
        attributes |= picks(rng, cubic_coeff_a=(-0.75, -0.5), exclude_outside=(0, 1))
    if mode != "nearest" and opset >= 18 and way == "half_pixel" and not attributes.get("exclude_outside"):
        attributes["antialias"] = pick(rng, 0, 1)
    none = np.zeros(0, np.float32)
    arrays: dict[str, Any] = {"x": real(rng, 1, 2, *dims), "roi": none, "scales": none if opset < 13 else None}
    if opset < 18 or rng.random() < 0.5 or way == "align_corners":
        arrays["sizes"] = np.array([1, 2, *(max(1, n + int(rng.integers(-2, 6))) for n in dims)])
    else:
        arrays["scales"] = np.array([1, 1, *(pick(rng, 0.5, 1.5, 2, 2.5) for _ in dims)], np.float32)
    return opset, arrays, attributes


def old_resize(rng: Generator) -> Made:
    scales = np.array([1, 1, pick(rng, 1.5, 2, 3), pick(rng, 1.5, 2, 2.5)], np.float32)
    return 10, {"x": real(rng, 1, 2, 3, 4), "scales": scales}, picks(rng, mode=("nearest", "linear"))


def upsample(rng: Generator) -> Made:
    return (9, *old_resize(rng)[1:])


def gather(rng: Generator) -> Made:
    dims, axis = dims_of(rng, 3), int(rng.integers(-3, 3))
    indices = rng.integers(-dims[axis], dims[axis], (2, 3))
    return pick(rng, 9, 11, 13), {"x": real(rng, *dims), "k": indices}, {"axis": axis}


def gather_elements(rng: Generator) -> Made:
    dims = pick(rng, (100, 1), (1, 200), dims_of(rng, 3), dims_of(rng, 2))
    axis = int(rng.integers(-len(dims), len(dims)))
    its = tuple(int(rng.integers(1, 4 if i == axis % len(dims) else m + 1)) for i, m in enumerate(dims))
    indices = rng.integers(-dims[axis], dims[axis], its)
    return pick(rng, 11, 13), {"x": real(rng, *dims), "k": indices}, {"axis": axis}


REDUCTIONS = ("none", "add", "mul", "max", "min")


def scatter_elements(rng: Generator) -> Made:
    _, arrays, attributes = gather_elements(rng)
    reduction, k = pick(rng, *REDUCTIONS), arrays["k"]
    if reduction == "none":  # which of two for one place is the last, ONNX leaves open
        k = k.take([0], attributes["axis"])
    return 18, arrays | {"k": k, "u": real(rng, *k.shape)}, attributes | {"reduction": reduction}


def gather_nd(rng: Generator) -> Made:
    dims, batch = dims_of(rng, 4), int(rng.integers(0, 3))
    depth = int(rng.integers(1, 5 - batch))
    lows = [rng.integers(-n, n, (*dims[:batch], 3)) for n in dims[batch : batch + depth]]
    return 13, {"x": real(rng, *dims), "k": np.stack(lows, -1)}, {"batch_dims": batch}


def scatter_nd(rng: Generator) -> Made:
    dims, depth, reduction = dims_of(rng, 3), int(rng.integers(1, 4)), pick(rng, *REDUCTIONS)
    count = 1 if reduction == "none" else 3
    k = np.stack([rng.integers(-n, n, (count,)) for n in dims[:depth]], -1)
    return 18, {"x": real(rng, *dims), "k": k, "u": real(rng, count, *dims[depth:])}, {"reduction": reduction}


def take_slice(rng: Generator) -> Made:
    x = real(rng, *some(rng, 3, 3, 6))
    starts, ends = (np.array(some(rng, 2, -7, 7)) for _ in range(2))
    steps = maybe(rng, np.array([pick(rng, 1, 2, -1, -2) for _ in range(2)]))
    return pick(rng, 10, 13), {"x": x, "s": starts, "e": ends, "a": np.array([0, -1]), "t": steps}, {}


# Windows

PADDING = ("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def pooling(rng: Generator, opset: int, *, is_dilated: bool = False, **more: Any) -> Made:
    kernel = some(rng, pick(rng, 1, 2, 2, 3), 1, 3)
    mode = pick(rng, "NOTSET", *PADDING)
    pads = [int(rng.integers(0, k)) for k in kernel * 2] if mode == "NOTSET" else None
    has_dilations = is_dilated and not mode.startswith("SAME") and not any(pads or ())
    attributes = {
        "kernel_shape": kernel,
        "strides": [int(rng.integers(1, k + 1)) if mode != "NOTSET" else pick(rng, 1, 2, 3) for k in kernel],
        "auto_pad": mode,  # runtimes differ where strides exceed a window of the same size
        "pads": pads,
        "ceil_mode": 0 if mode != "NOTSET" else pick(rng, 0, 1),
        "dilations": some(rng, len(kernel), 1, 2) if has_dilations else None,
    }
    return opset, {"x": real(rng, 2, 2, *some(rng, len(kernel), 5, 8))}, attributes | more


def max_pool(rng: Generator) -> Made:
    opset, arrays, attributes = pooling(rng, pick(rng, 10, 11, 12, 22), is_dilated=True)
    if rng.random() < 0.2 and opset >= 12:
        arrays["x"] = (real(rng, *arrays["x"].shape) * 50).astype(pick(rng, np.int8, np.uint8))
    order = None if attributes["auto_pad"] != "NOTSET" else pick(rng, 0, 0, 1)
    return opset, arrays, attributes | {"storage_order": order}


def average_pool(rng: Generator) -> Made:
    return pooling(rng, pick(rng, 10, 11, 19, 22), count_include_pad=pick(rng, 0, 1))


def lp_pool(rng: Generator) -> Made:
    return pooling(rng, pick(rng, 11, 18, 22), p=pick(rng, 1, 2, 3), ceil_mode=None)


def conv(rng: Generator) -> Made:
    count, groups, mode = pick(rng, 1, 2, 2, 3), pick(rng, 1, 1, 2, 4), pick(rng, *PADDING)
    inner = pick(rng, 1, 2)
    arrays = {
        "x": real(rng, 2, inner * groups, *some(rng, count, 6, 8)),
        "w": real(rng, 4, inner, *some(rng, count, 1, 3)),
        "b": maybe(rng, real(rng, 4)),
    }
    attributes = {
        "group": groups,
        "strides": some(rng, count, 1, 3),
        "auto_pad": mode,
        "pads": some(rng, 2 * count, 0, 2) if mode == "NOTSET" else None,
        "dilations": some(rng, count, 1, 2) if not mode.startswith("SAME") else None,
    }
    return pick(rng, 9, 11, 22), arrays, attributes


def conv_transpose(rng: Generator) -> Made:
    opset, arrays, attributes = conv(rng)
    groups, mode, kernel = attributes["group"], attributes["auto_pad"], arrays["w"].shape[2:]
    if mode.startswith("SAME"):  # ONNX Runtime gives fewer elements where strides are larger
        attributes["strides"] = list(map(min, attributes["strides"], kernel))
    strides, outer = attributes["strides"], pick(rng, 1, 2)
    x = real(rng, 2, 2 * groups, *some(rng, len(kernel), 2, 4))
    arrays = {"x": x, "w": real(rng, 2 * groups, outer, *kernel), "b": maybe(rng, real(rng, outer * groups))}
    attributes["output_padding"] = maybe(rng, [int(rng.integers(0, s)) for s in strides])
    if rng.random() < 0.4:
        more = attributes["output_padding"] or [0] * len(kernel)
        full = [(n - 1) * s + k + m for n, s, k, m in zip(x.shape[2:], strides, kernel, more, strict=True)]
        shape = [max(1, n - int(rng.integers(0, 3))) for n in full]
        attributes |= {"dilations": None, "pads": None, "output_shape": shape}
        attributes["auto_pad"] = pick(rng, "NOTSET", "SAME_UPPER")
    elif mode == "NOTSET":
        attributes["pads"] = [min(1, int(rng.integers(0, (k + 1) // 2 + 1))) for k in (*kernel, *kernel)]
    return opset, arrays, attributes


# Normalizations, reductions and products


def softmax(rng: Generator) -> Made:
    dims = dims_of(rng, pick(rng, 2, 3, 4), 4)
    return pick(rng, 9, 11, 13), {"x": real(rng, *dims)}, {"axis": pick(rng, None, *range(len(dims)))}


def reduction(rng: Generator, first: int = 18) -> Made:
    """Return axes as an input from opset `first` on."""
    dims, opset = dims_of(rng, pick(rng, 1, 2, 3, 4, 5), 3), pick(rng, 11, 13, 18)
    x = real(rng, *dims) * 2
    if rng.random() < 0.25:
        x = x[(slice(2),) * x.ndim]  # so that products do not overflow
        x = np.abs(x / 2).astype(pick(rng, np.int32, np.int64)) + 1
    chosen = rng.permutation(len(dims))[: rng.integers(0, len(dims) + 1)]
    axes = [int(axis) - pick(rng, 0, len(dims)) for axis in chosen] or None
    is_input = axes is not None and opset >= first
    attributes = {"keepdims": pick(rng, 0, 1), "axes": None if is_input else axes}
    return opset, {"x": x, "axes": np.array(axes) if is_input else None}, attributes


def reduce_sum(rng: Generator) -> Made:
    return reduction(rng, 13)


def log_sum_exp(rng: Generator) -> Made:
    opset, arrays, attributes = reduction(rng)  # of integers ONNX Runtime computes powers in integers
    return opset, arrays | {"x": arrays["x"].astype(np.float32)}, attributes


def layer_normalization(rng: Generator) -> Made:
    dims = dims_of(rng, pick(rng, 1, 2, 3, 4))
    axis = pick(rng, *range(-len(dims), len(dims)))
    scale, shift = real(rng, *dims[axis:]), maybe(rng, real(rng, *dims[axis:]))
    return 17, {"x": real(rng, *dims), "s": scale, "b": shift}, {"axis": axis, "epsilon": 1e-3}


def batch_normalization(rng: Generator) -> Made:
    dims = dims_of(rng, pick(rng, 2, 3, 4, 5), 4)
    scale, shift, mean, deviation = real(rng, 4, dims[1])
    arrays = {"x": real(rng, *dims), "s": scale, "b": shift, "m": mean, "v": deviation**2 + np.float32(0.1)}
    return pick(rng, 9, 14, 15), arrays, picks(rng, epsilon=(1e-5, 1e-3))


# Sampling


def grid_sample(rng: Generator) -> Made:
    count = pick(rng, 2, 2, 3)
    mode = pick(rng, "linear", "nearest", "cubic") if count == 2 else pick(rng, "linear", "nearest")
    opset = pick(rng, 16, 20, 22) if count == 2 else pick(rng, 20, 22)
    old = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
    attributes = picks(rng, padding_mode=("zeros", "border", "reflection"), align_corners=(0, 1))
    attributes["mode"] = old[mode] if opset < 20 else mode
    grid = 1.5 * real(rng, 2, *some(rng, count, 1, 3), count)
    return opset, {"x": real(rng, 2, 2, *some(rng, count, 2, 5)), "grid": grid}, attributes


def roi_align(rng: Generator) -> Made:
    opset = pick(rng, 10, 16)
    sizes = {"output_height": (1, 2, 3), "output_width": (1, 2), "sampling_ratio": (0, 1, 2)}
    attributes = picks(rng, spatial_scale=(1.0, 0.5), **sizes)
    if opset == 16:
        attributes["coordinate_transformation_mode"] = pick(rng, "half_pixel", "output_half_pixel")
    corners = rng.random((3, 2)) * 6 - 1
    regions = np.concatenate([corners, corners + rng.random((3, 2)) * 6], 1).astype(np.float32)
    return opset, {"x": real(rng, 2, 2, 6, 7), "rois": regions, "batch": np.array([0, 1, 1])}, attributes


def max_roi_pool(rng: Generator) -> Made:
    regions = np.concatenate([rng.integers(0, 2, (3, 1)), rng.random((3, 2)) * 6 - 1, rng.random((3, 2)) * 9], 1)
    attributes = picks(rng, spatial_scale=(1.0, 0.5), pooled_shape=([1, 1], [2, 3], [4, 2]))
    return 21, {"x": real(rng, 2, 2, 6, 7), "rois": regions.astype(np.float32)}, attributes


# Quantization


def quantize(rng: Generator) -> Made:
    opset, dims, axis = pick(rng, 10, 13, 19, 21), dims_of(rng, 3), pick(rng, 0, 1, -1)
    n = (dims[axis],) if opset >= 13 and rng.random() < 0.5 else ()
    scale = np.asarray(rng.random(n) + 0.05, np.float32)
    zero = np.asarray(rng.integers(0, 20, n), pick(rng, np.uint8, np.int8))
    return opset, {"x": real(rng, *dims) * 40, "s": scale, "z": zero}, {"axis": axis if opset >= 13 else None}


def dequantize(rng: Generator) -> Made:
    opset, arrays, attributes = quantize(rng)
    return opset, arrays | {"x": arrays["x"].astype(arrays["z"].dtype)}, attributes


# Recurrent

_FUNCTIONS = ("Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "HardSigmoid", "Elu", "Softsign")
_ALPHAS = ("Affine", "LeakyRelu", "HardSigmoid", "Elu", "ScaledTanh", "ThresholdedRelu")
_BETAS = ("Affine", "HardSigmoid", "ScaledTanh")


def recurrent(operator: str, gates: int, functions: int, states: int) -> Callable[[Generator], Made]:
    def make(rng: Generator) -> Made:
        times, batch, inputs, hidden = some(rng, 4, 1, 4)
        direction = pick(rng, "forward", "reverse", "bidirectional")
        count = 2 if direction == "bidirectional" else 1
        arrays: dict[str, Any] = {
            "x": real(rng, times, batch, inputs),
            "w": real(rng, count, gates * hidden, inputs),
            "r": real(rng, count, gates * hidden, hidden),
            "b": maybe(rng, real(rng, count, 2 * gates * hidden)),
            "lengths": maybe(rng, rng.integers(1, times + 1, batch).astype(np.int32)),
        }
        has_states = pick(rng, True, False)
        arrays |= {f"state{k}": real(rng, count, batch, hidden) if has_states else None for k in range(states)}
        attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "clip": maybe(rng, 0.7)}
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
            arrays["p"] = maybe(rng, real(rng, count, 3 * hidden))
            attributes["input_forget"] = pick(rng, 0, 0, 1)
        return pick(rng, 9, 14, 22), arrays, attributes

    return make


# Others


def top_k(rng: Generator) -> Made:
    arrays = {"x": real(rng, *some(rng, 3, 3, 5)), "k": np.array([pick(rng, 1, 2, 3)])}
    return 11, arrays, picks(rng, axis=(0, 1, -1), largest=(0, 1)) | {"sorted": 1}


def cum_sum(rng: Generator) -> Made:
    arrays = {"x": real(rng, *dims_of(rng, 3)), "axis": np.array(pick(rng, 0, 1, -1))}
    return pick(rng, 11, 14), arrays, picks(rng, exclusive=(0, 1), reverse=(0, 1))


def argument(rng: Generator) -> Made:
    opset = pick(rng, 9, 11, 12, 13)
    x = rng.integers(0, 3, dims_of(rng, 3)).astype(np.float32)
    last = (0, 1) if opset >= 12 else (None,)
    return opset, {"x": x}, picks(rng, axis=(0, 1, 2), keepdims=(0, 1), select_last_index=last)


def one_hot(rng: Generator) -> Made:
    arrays = {"k": rng.integers(-6, 6, (2, 3)), "depth": np.array(4), "values": np.array([0.5, 2], np.float32)}
    return pick(rng, 9, 11), arrays, picks(rng, axis=(0, 1, -1))


def reverse_sequence(rng: Generator) -> Made:
    batch, time = pick(rng, (0, 1), (1, 0))
    return 10, {"x": real(rng, 4, 4, 2), "n": rng.integers(1, 5, 4)}, {"batch_axis": batch, "time_axis": time}


def trilu(rng: Generator) -> Made:
    return 14, {"x": real(rng, *dims_of(rng, 3)), "k": np.array(some(rng, 1, -3, 3)[0])}, picks(rng, upper=(0, 1))


def depth_to_space(rng: Generator) -> Made:
    opset = pick(rng, 9, 11, 13)
    mode = pick(rng, "DCR", "CRD") if opset >= 11 else None
    return opset, {"x": real(rng, 2, 8, 2, 3)}, {"blocksize": 2, "mode": mode}


def modulo(rng: Generator) -> Made:
    if rng.random() < 0.5:
        return pick(rng, 10, 13), {"x": real(rng, 4, 3) * 10, "y": real(rng, 3) * 3}, {"fmod": 1}
    x, y = rng.integers(-9, 10, (4, 3)), rng.integers(1, 5, 3) * pick(rng, 1, -1)
    return pick(rng, 10, 13), {"x": x, "y": y}, picks(rng, fmod=(0, 1))


def power(rng: Generator) -> Made:
    types = np.float32, np.int32, np.int64
    x, y = rng.integers(-3, 4, (4, 3)), rng.integers(0, 4, (3,))
    return pick(rng, 12, 13, 15), {"x": x.astype(pick(rng, *types)), "y": y.astype(pick(rng, *types))}, {}


GENERATORS: Mapping[str, Callable[[Generator], Made]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), argument),
    "AveragePool": average_pool,
    "BatchNormalization": batch_normalization,
    "ConvTranspose": conv_transpose,
    "CumSum": cum_sum,
    "DepthToSpace": depth_to_space,
    "DequantizeLinear": dequantize,
    "GRU": recurrent("GRU", 3, 2, 1),
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), unary((9,), (3, 4, 5))),
    "GridSample": grid_sample,
    "GlobalLpPool": unary((9,), (4,), p=(1, 2, 3)),
    "LRN": unary((9, 13), (4,), size=(1, 3, 5, 7), alpha=(0.5,), beta=(0.6,), bias=(1.5,)),
    "LSTM": recurrent("LSTM", 4, 3, 2),
    "LayerNormalization": layer_normalization,
    "LpNormalization": unary((9, 22), axis=(0, 1, -1), p=(1, 2)),
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "Mod": modulo,
    "OneHot": one_hot,
    "Pad": pad,
    "Pow": power,
    "QuantizeLinear": quantize,
    "RNN": recurrent("RNN", 1, 1, 1),
    **{f"Reduce{way}": reduction for way in ("L1", "L2", "LogSum", "Max", "Mean", "Min", "Prod", "SumSquare")},
    "ReduceSum": reduce_sum,
    "ReduceLogSumExp": log_sum_exp,
    "MaxRoiPool": max_roi_pool,
    "Resize": resize,
    "ReverseSequence": reverse_sequence,
    "RoiAlign": roi_align,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Slice": take_slice,
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), softmax),
    "TopK": top_k,
    "Trilu": trilu,
    "Upsample": upsample,
}
"""The function that makes a random node of each operator."""
OUTPUTS = {"GRU": 2, "LSTM": 3, "LayerNormalization": 3, "MaxPool": 2, "RNN": 2, "TopK": 2}
"""The number of outputs of nodes with several."""
