"""Deconvolution: the transpose of convolution, so its formulas are those of convolution, read the other way.

What a convolution gives back to its source is what a deconvolution computes, and what a convolution computes is the
gradient of a deconvolution's source. Weights have axes (o, c, taps ...) seen from the deconvolution, so both axes swap.

Source: oneAPI specification, "Deconvolution".
"""

import numpy as np

from inlay.engine.reference import convolution
from inlay.engine.reference.arrays import Array, Results, Shape, Shapes


def forward(
    *,
    src: Array,
    weights: Array,
    bias: Array | None = None,
    strides: Shape,
    dilations: Shape,
    padding_l: Shape,
    shapes: Shapes,
) -> Results:
    """Every element of the source, spread over the taps of its window."""
    dst = convolution.backward_data(
        diff_dst=src,
        weights=_swapped(weights, src.ndim),
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"diff_src": shapes["dst"]},
    )["diff_src"]
    return {"dst": dst if bias is None else dst + convolution.along_channels(bias, dst.ndim)}


def backward_data(
    *, diff_dst: Array, weights: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """The gradient of the source: a convolution."""
    diff_src = convolution.forward(
        src=diff_dst,
        weights=_swapped(weights, diff_dst.ndim),
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"dst": shapes["diff_src"]},
    )["dst"]
    return {"diff_src": diff_src}


def backward_weights(
    *, src: Array, diff_dst: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """The gradients of weights and bias."""
    shape = shapes["diff_weights"]
    swapped = _swapped(np.empty(shape), src.ndim).shape
    diff_weights = convolution.backward_weights(
        src=diff_dst,
        diff_dst=src,
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"diff_weights": swapped},
    )["diff_weights"]
    return {
        "diff_weights": _swapped(diff_weights, src.ndim).reshape(shape),
        "diff_bias": convolution.over_channels(diff_dst),
    }


def _swapped(weights: Array, ndim: int) -> Array:
    """Weights with their axes of channels swapped, in groups, for tensors of `ndim` axes."""
    return convolution.in_groups(weights, ndim).swapaxes(1, 2)
