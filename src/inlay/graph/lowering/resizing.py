"""Resize and Upsample: resampling where it takes the same elements with the same shares, else products of matrices.

ONNX has many ways to say which coordinate of the source an element of the result lies on; oneDNN has one, the middle of
its pixel, with halves up for the nearest. So the shares along each axis are computed both ways and compared, in f32 as
runtimes compute them and in f64: where all agree, resampling is exact. Where they do not, linear and cubic resizes are
a product with the matrix of shares along each axis that changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.graph.lowering.draft import F32, Draft, Operand, require
from inlay.graph.lowering.shares import coordinates, cubic, linear, nearest
from inlay.graph.op import Array

_OLD = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
"""What Upsample, and Resize before opset 11, do without a word."""
_NEW = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
_LINEAR = ("linear", "bilinear", "trilinear")
_CLOSE = 1e-6
_MOST_ELEMENTS = 1 << 22
_MOST_SHARES = 1 << 25


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the node says of every axis."""

    mode: str
    """`nearest`, `linear` or `cubic`."""
    way: str
    """How coordinates are transformed."""
    rounding: str
    """Which element is the nearest."""
    scales: tuple[float, ...]
    """How many times larger each axis becomes."""


def resize(draft: Draft) -> Operand:
    """The image at another resolution."""
    src = draft.source(0)
    dims, result = draft.dims(src), draft.result().dims
    asked = _asked(draft)
    if dims == result and all(scale == 1 for scale in asked.scales):
        return src
    require(draft.attribute("keep_aspect_ratio_policy", "stretch") == "stretch", "it keeps the aspect ratio")
    is_smaller = any(out < n for n, out in zip(dims, result, strict=True))
    require(not (draft.attribute("antialias", 0) and is_smaller), "it smooths what it makes smaller")
    require(2 < len(dims) <= 5, f"it has {len(dims)} axes, the primitive has 3 to 5")
    require(dims[:2] == result[:2] and asked.scales[0] == asked.scales[1] == 1, "it resizes batch or channels")
    differences = [_difference(*sizes, asked) for sizes in zip(dims[2:], result[2:], asked.scales[2:], strict=True)]
    if asked.mode == "cubic" or (asked.mode == "linear" and any(differences)):
        return _multiplied(draft, src, asked)
    for difference in differences:
        require(not difference, difference)
    factors = tuple(out / n for n, out in zip(dims[2:], result[2:], strict=True))
    return draft.put("resampling", {"src": src}, result, algorithm=asked.mode, factors=factors)


def _asked(draft: Draft) -> _Asked:
    is_old = draft.node.operator == "Upsample" or draft.opset < 11
    said = {name: draft.attribute(name, default) for name, default in (_OLD if is_old else _NEW).items()}
    mode = draft.attribute("mode", "nearest")
    mode = "linear" if mode in _LINEAR else mode
    require(mode in ("nearest", "linear", "cubic"), f"its mode is {mode}")
    return _Asked(mode, said["coordinate_transformation_mode"], said["nearest_mode"], _scales(draft, is_old))


def _scales(draft: Draft, is_old: bool) -> tuple[float, ...]:
    """How many times larger each axis becomes, as the node says, or by the sizes that it says."""
    dims, result = draft.dims(draft.source(0)), draft.result().dims
    found = [out / n for n, out in zip(dims, result, strict=True)]
    index = 1 if is_old else 2
    if draft.attribute("scales") is not None:
        said = [float(scale) for scale in draft.attribute("scales")]
    elif draft.given(index) and draft.constant(index, "scales").size:
        said = [float(scale) for scale in draft.constant(index, "scales")]
    else:
        return tuple(found)
    axes = draft.attribute("axes") or tuple(range(len(dims)))
    for axis, scale in zip(axes, said, strict=True):
        found[axis % len(dims)] = scale
    return tuple(found)


def _difference(n: int, out: int, scale: float, asked: _Asked) -> str:
    """Why ONNX's shares along an axis are not oneDNN's; empty if they are."""
    require(max(n, out) <= _MOST_ELEMENTS, f"an axis of {max(n, out)} elements is too long to compare where each lies")
    rounding = f" and {asked.rounding}" if asked.mode == "nearest" else ""
    for dtype in (np.float32, np.float64):
        at = coordinates(n, out, scale, asked.way, dtype)
        if asked.mode == "nearest":
            same = np.array_equal(nearest(at, n, asked.rounding), (2 * np.arange(out) + 1) * n // (2 * out))
        else:
            middle = coordinates(n, out, out / n, "half_pixel", np.float64)
            same = np.allclose(np.clip(at, 0, n - 1), np.clip(middle, 0, n - 1), rtol=0, atol=_CLOSE * max(n, out))
        if not same:
            return f"{asked.way}{rounding} from {n} to {out} elements takes others than the primitive does"
    return ""


def _multiplied(draft: Draft, src: Operand, asked: _Asked) -> Operand:
    """Each axis that changes, the last one first, times its matrix of shares."""
    dims, result = draft.dims(src), draft.result().dims
    for axis in reversed(range(2, len(result))):
        shares = _shares(draft, dims[axis], result[axis], asked.scales[axis], asked).astype(F32)
        before, after = prod(dims[:axis]), prod(dims[axis + 1 :])
        dims = (*dims[:axis], result[axis], *dims[axis + 1 :])
        if len(shares) == shares.shape[1] and np.array_equal(shares, np.eye(len(shares))):
            continue
        if after == 1:
            rows = draft.reshaped(src, (before, shares.shape[1]))
            src = draft.put("matmul", {"src": rows, "weights": shares.T}, (before, len(shares)))
        else:
            columns = draft.reshaped(src, (before, shares.shape[1], after))
            operands = {"src": shares[None], "weights": columns}
            src = draft.put("matmul", operands, (before, len(shares), after))
    return draft.reshaped(src, result)


def _shares(draft: Draft, n: int, out: int, scale: float, asked: _Asked) -> Array:
    """The matrix (out, n) of shares along an axis."""
    require(n * out <= _MOST_SHARES, f"a matrix of {out} x {n} shares is too large")
    at = coordinates(n, out, scale, asked.way, np.float64)
    is_inside = bool(draft.attribute("exclude_outside", 0))
    if asked.mode == "cubic":
        return cubic(at, n, draft.attribute("cubic_coeff_a", -0.75), is_inside)
    require(not is_inside, "it leaves out what is outside")
    return linear(at, n)


RESIZING: Mapping[str, Callable[[Draft], Operand]] = {"Resize": resize, "Upsample": resize}
"""The rule of each operator."""
