"""Random convolutions and poolings, for `operator_generators`."""

from typing import Any

import numpy as np

from tests.support.operator_cases import Arrays
from tests.support.operator_draws import Generator, Made, dims_of, pick, real, some


def pooling(rng: Generator, opset: int, **more: Any) -> tuple[int, Arrays, dict[str, Any]]:
    count = pick(rng, 1, 2, 2, 3)
    kernel = some(rng, count, 1, 3)
    mode = pick(rng, "NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    pads = [int(rng.integers(0, k)) for k in kernel * 2] if mode == "NOTSET" else None
    x = real(rng, 2, 2, *some(rng, count, 5, 8))
    is_same = mode.startswith("SAME")
    attributes = {
        "kernel_shape": kernel,
        "strides": [int(rng.integers(1, k + 1)) if mode != "NOTSET" else pick(rng, 1, 2, 3) for k in kernel],
        "auto_pad": mode,  # runtimes differ where strides exceed a window of the same size
        "pads": pads,
        "ceil_mode": 0 if mode != "NOTSET" else pick(rng, 0, 1),
        **more,
    }
    if "dilations" in more:
        attributes["dilations"] = None if is_same or (pads and any(pads)) else some(rng, count, 1, 2)
    return opset, {"x": x}, attributes


def max_pool(rng: Generator) -> Made:
    opset, arrays, attributes = pooling(rng, pick(rng, 10, 11, 12, 22), dilations=None)
    if rng.random() < 0.2 and opset >= 12:
        arrays["x"] = (arrays["x"] * 50).astype(pick(rng, np.int8, np.uint8))
    order = None if attributes["auto_pad"] != "NOTSET" else pick(rng, 0, 0, 1)
    return opset, arrays, 2, attributes | {"storage_order": order}


def average_pool(rng: Generator) -> Made:
    opset, arrays, attributes = pooling(rng, pick(rng, 10, 11, 19, 22), count_include_pad=pick(rng, 0, 1))
    return opset, arrays, 1, attributes


def lp_pool(rng: Generator) -> Made:
    opset, arrays, attributes = pooling(rng, pick(rng, 11, 18, 22), p=pick(rng, 1, 2, 3))
    return opset, arrays, 1, attributes | {"ceil_mode": None}


def global_lp_pool(rng: Generator) -> Made:
    return 9, {"x": real(rng, 2, 3, *dims_of(rng, 2))}, 1, {"p": pick(rng, 1, 2, 3)}


def conv(rng: Generator) -> Made:
    count, groups = pick(rng, 1, 2, 2, 3), pick(rng, 1, 1, 2)
    kernel = some(rng, count, 1, 3)
    mode = pick(rng, "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    arrays = {"x": real(rng, 2, 2 * groups, *some(rng, count, 6, 8)), "w": real(rng, 4, 2, *kernel)}
    arrays[pick(rng, "b", "_b")] = real(rng, 4)
    attributes = {
        "group": groups,
        "strides": some(rng, count, 1, 3),
        "auto_pad": mode,
        "pads": some(rng, 2 * count, 0, 2) if mode == "NOTSET" else None,
        "dilations": some(rng, count, 1, 2) if not mode.startswith("SAME") else None,
    }
    return pick(rng, 9, 11, 22), arrays, 1, attributes


def conv_transpose(rng: Generator) -> Made:
    opset, arrays, outputs, attributes = conv(rng)
    if attributes["auto_pad"].startswith("SAME"):  # ONNX Runtime gives fewer elements where strides are larger
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], arrays["w"].shape[2:], strict=True)]
    groups, count = attributes["group"], arrays["x"].ndim - 2
    kernel, strides = arrays["w"].shape[2:], attributes["strides"]
    arrays = {"x": real(rng, 2, 2 * groups, *some(rng, count, 2, 4)), "w": real(rng, 2 * groups, 2, *kernel)}
    arrays[pick(rng, "b", "_b")] = real(rng, 2 * groups)
    attributes["output_padding"] = [int(rng.integers(0, s)) for s in strides] if rng.random() < 0.5 else None
    if rng.random() < 0.4:
        attributes["dilations"], attributes["pads"] = None, None
        more = attributes["output_padding"] or [0] * count
        full = [(n - 1) * s + k + m for n, s, k, m in zip(arrays["x"].shape[2:], strides, kernel, more, strict=True)]
        attributes["output_shape"] = [max(1, n - int(rng.integers(0, 3))) for n in full]
        attributes["auto_pad"] = pick(rng, "NOTSET", "SAME_UPPER")
    elif attributes["auto_pad"] == "NOTSET":
        attributes["pads"] = [int(rng.integers(0, (k + 1) // 2 + 1)) for k in (*kernel, *kernel)]
        attributes["pads"] = [min(pad, 1) for pad in attributes["pads"]]
    return opset, arrays, outputs, attributes


def conv_integer(rng: Generator) -> Made:
    _, arrays, _, attributes = conv(rng)
    x, w = (np.clip(arrays[name] * 40 + 100, 0, 255).astype(np.uint8) for name in "xw")
    zeros = {"a": np.array(7, np.uint8), "b": np.array(9, np.uint8)}
    arrays = {"x": x, "w": w, **zeros}
    return 10, arrays, 1, attributes


def qlinear_conv(rng: Generator) -> Made:
    _, arrays, _, attributes = conv(rng)
    x, w = (np.clip(arrays[name] * 40 + 100, 0, 255).astype(np.uint8) for name in "xw")
    xs, ws, ys = (np.array(scale, np.float32) for scale in (0.02, 0.03, 0.11))
    xz, wz, yz = (np.array(zero, np.uint8) for zero in (100, 99, 120))
    return 10, {"x": x, "xs": xs, "xz": xz, "w": w, "ws": ws, "wz": wz, "ys": ys, "yz": yz}, 1, attributes
