"""Convolution and its transpose: weights with their groups on an axis of their own.

ONNX's weights of a convolution are (G * O, I, ...), oneDNN's (G, O, I, ...); of a transposed one (G * I, O, ...), which
become (G, O, I, ...) too. Without groups the first axis is left out.
"""

from collections.abc import Callable, Mapping
from typing import cast

from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.graph.lowering.windows import Window, halved, steps, window
from inlay.layout import Dims


def convolution(draft: Draft) -> Operand:
    """dst = bias + sum over channels and taps of src * weights."""
    src, weights = draft.source(0), draft.operand(1)
    dims, result, shape = draft.dims(src), draft.result().dims, draft.dims(weights)
    walked = window(draft, shape[2:], dims[2:], result[2:])
    groups = draft.attribute("group", 1)
    if groups > 1:
        weights = draft.reshaped(weights, (groups, shape[0] // groups, *shape[1:]))
    parameters = walked.parameters(dims[2:], result[2:])
    operands = {"src": src, "weights": weights, **_bias(draft)}
    return draft.put("convolution", operands, result, algorithm="direct", **parameters)


def deconvolution(draft: Draft) -> Operand:
    """The transpose of a convolution, which walks over the result."""
    src, weights = draft.source(0), draft.operand(1)
    dims, result = draft.dims(src), draft.result().dims
    walked = _transposed_window(draft, draft.dims(weights)[2:], dims[2:], result[2:])
    weights = _swapped(draft, weights, draft.attribute("group", 1))
    parameters = walked.parameters(result[2:], dims[2:])
    operands = {"src": src, "weights": weights, **_bias(draft)}
    return draft.put("deconvolution", operands, result, algorithm="direct", **parameters)


def _bias(draft: Draft) -> dict[str, Operand]:
    return {"bias": draft.operand(2)} if draft.given(2) else {}


def _swapped(draft: Draft, weights: Operand, groups: int) -> Operand:
    """(G * I, O, ...) to (G, O, I, ...)."""
    shape = draft.dims(weights)
    if groups == 1:
        return draft.permuted(weights, (1, 0, *range(2, len(shape))))
    split = draft.reshaped(weights, (groups, shape[0] // groups, *shape[1:]))
    return draft.permuted(split, (0, 2, 1, *range(3, len(shape) + 1)))


def _transposed_window(draft: Draft, kernel: Dims, src: Dims, dst: Dims) -> Window:
    """The window that walks over `dst`: padding by attributes, or what the dims that are asked for need.

    Versions of ONNX differ on the side of an odd element, so only even padding is computed where none is said.
    """
    strides, dilations = steps(draft, len(src))
    pads = tuple(draft.attribute("pads") or (0,) * 2 * len(src))
    mode = draft.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER") or draft.attribute("output_shape"):
        more = tuple(draft.attribute("output_padding") or (0,) * len(src))
        extents = Window(kernel, strides, dilations, (0,) * len(src)).extents
        sides = zip(src, dst, extents, strides, more, strict=True)
        totals = [(n - 1) * s + extra + e - o for n, o, e, s, extra in sides]
        require(all(t >= 0 and t % 2 == 0 for t in totals), f"it asks for padding of {tuple(totals)} on both sides")
        pads = tuple(halved(total, False) for total in totals)
    elif mode == "VALID":
        pads = (0,) * len(src)
    require(min(pads) >= 0, "its padding is negative")
    return Window(kernel, strides, dilations, cast(Dims, pads[: len(src)]))


CONVOLUTIONS: Mapping[str, Callable[[Draft], Operand]] = {"Conv": convolution, "ConvTranspose": deconvolution}
"""The rule of each operator."""
