"""ConvTranspose: each element of the image adds its product with the weights to the places under the window."""

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.windows import WindowAxis
from inlay.graph.op import Array
from inlay.layout import Dims


def conv_transpose(call: OperatorCall) -> Array:
    """The transpose of a convolution, in groups."""
    src, weights, bias = call.input(0), call.input(1), call.optional(2)
    groups = int(call.attribute("group", 1))
    axes = _axes(call, src.shape[2:], weights.shape[2:])
    batch, outputs = src.shape[0], weights.shape[1]
    working = np.result_type(src.dtype, np.float32) if src.dtype.kind == "f" else np.dtype(np.float32)
    images = src.astype(working).reshape(batch, groups, src.shape[1] // groups, -1)
    kernel = weights.astype(working).reshape(groups, src.shape[1] // groups, *weights.shape[1:])
    result = np.zeros((batch, groups, outputs, *(axis.extent for axis in axes)), working)
    every = (slice(None),) * 3
    for tap in product(*(range(axis.kernel) for axis in axes)):
        sides = [axis.under(k) for axis, k in zip(axes, tap, strict=True)]
        if all(positions.start < positions.stop for positions, _ in sides):
            products = np.einsum("bgcs,gco->bgos", images, kernel[every + tap])
            products = products.reshape(batch, groups, outputs, *src.shape[2:])
            result[(*every, *(elements for _, elements in sides))] += products[(*every, *(at for at, _ in sides))]
    if bias is not None:
        result += bias.astype(working).reshape(groups, outputs, *(1,) * len(axes))
    return result.reshape(batch, groups * outputs, *result.shape[3:]).astype(src.dtype)


def _axes(call: OperatorCall, image: Dims, kernel: Dims) -> tuple[WindowAxis, ...]:
    """The window that slides over the result, with as many positions as the image has elements."""
    count = len(image)
    strides, dilations = (tuple(call.attribute(name) or (1,) * count) for name in ("strides", "dilations"))
    more = tuple(call.attribute("output_padding") or (0,) * count)
    pads = tuple(call.attribute("pads") or (0,) * 2 * count)
    mode, wanted = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape")
    if not all(len(numbers) == count for numbers in (strides, dilations, more)) or len(pads) != 2 * count:
        raise call.invalid(f"strides, dilations or padding have not {count} entries, one for each axis of space")
    if min((*strides, *dilations, 1)) < 1 or min((*more, *pads, 0)) < 0:
        raise call.invalid("strides and dilations are positive, padding is not negative")
    sizes = tuple(wanted)[-count:] if wanted else tuple(n * s for n, s in zip(image, strides, strict=True))
    axes = []
    for k, (n, taps, stride, dilation) in enumerate(zip(image, kernel, strides, dilations, strict=True)):
        full = (n - 1) * stride + (taps - 1) * dilation + 1 + more[k]
        if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
            total = max(full - sizes[k], 0)
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            extent = sizes[k]
        else:
            before, behind = (pads[k], pads[k + count]) if mode == "NOTSET" else (0, 0)
            extent = full - before - behind
        if extent < 1:
            raise call.invalid(f"padding leaves nothing along axis {k + 2}")
        axes.append(WindowAxis(extent, taps, stride, dilation, before, 0, n))
    return tuple(axes)


CONVOLUTION: Mapping[str, Callable[[OperatorCall], Array]] = {"ConvTranspose": conv_transpose}
"""The function of each operator."""
