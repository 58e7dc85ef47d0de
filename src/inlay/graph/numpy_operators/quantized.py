"""Functions of products and convolutions of integers of 8 bits, and of small floats, with scales and zero points.

Products of 8-bit integers are summed in f64, which is exact and fast; the sums wrap around at 32 bits.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, is_float, number_limits
from inlay.graph.numpy_operators.convolution import convolve, shape_channels
from inlay.graph.numpy_operators.products import multiply_matrices
from inlay.graph.op_graph import Array

_F32 = np.dtype(np.float32)


def dynamic_quantize(call: OperatorCall) -> tuple[Array, ...]:
    """Compute DynamicQuantizeLinear: u8 with the scale and zero point of the elements' range, which includes 0.

    If all elements are 0, the scale is 1.
    """
    src = call.input(0).astype(_F32)
    low, high = src.min(initial=0), src.max(initial=0)
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255)).astype(_F32)
    dtype = np.dtype(np.uint8)
    return _saturate(np.rint(src / scale) + zero, dtype), np.asarray(scale, _F32), np.asarray(zero, dtype)


def _saturate(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return whole numbers, or numbers for a float type, clipped to the limits of a type; NaN is 0 as an integer."""
    low, high = number_limits(dtype)
    clipped = np.clip(values, low, high)
    return np.asarray(clipped.astype(dtype) if is_float(dtype) else np.nan_to_num(clipped).astype(dtype))


def matmul_integer(call: OperatorCall) -> Array:
    """Compute MatMulInteger: the matrix product without zero points, in s32."""
    left = _shift(call, call.input(0), call.optional(2), is_left=True)
    right = _shift(call, call.input(1), call.optional(3), is_left=False)
    return _to_s32(multiply_matrices(call, left, right))


def _to_s32(sums: Array) -> Array:
    """Return exact sums as s32, which wrap around."""
    return sums.astype(np.int64).astype(np.int32)


def _shift(call: OperatorCall, values: Array, zero: Array | None, *, is_left: bool) -> Array:
    """Return a factor of a product in f64, with its zero point subtracted."""
    exact = values.astype(np.float64)
    return exact if zero is None else exact - _shape_lines(call, zero.astype(np.float64), values, is_left=is_left)


def _shape_lines(call: OperatorCall, numbers: Array, factor: Array, *, is_left: bool) -> Array:
    """Return scales or zero points with dims to be broadcast over a factor: one, or one for each row or column.

    The left factor has one for each row, the right one for each column.

    Raises:
        InvalidArguments: there is another count of them.
    """
    if numbers.size == 1:
        return numbers.reshape(())
    axis, count = (-2, 1) if is_left else (-1, 0)
    if numbers.ndim == 1 and factor.ndim > 1 and numbers.size == factor.shape[axis]:
        return numbers.reshape((-1,) + (1,) * count)
    line = tuple(1 if i == factor.ndim - (1 if is_left else 2) else n for i, n in enumerate(factor.shape))
    if factor.ndim < 2 or numbers.shape != line:
        raise call.invalid(f"a scale or zero point of dims {numbers.shape} does not fit dims {factor.shape}")
    return numbers


def qlinear_matmul(call: OperatorCall) -> Array:
    """Compute QLinearMatMul: the product of dequantized matrices, quantized."""
    factors, scales = [], []
    for place, is_left in ((0, True), (3, False)):
        values = call.input(place)
        factors.append(_shift(call, values, call.input(place + 2), is_left=is_left))
        scales.append(_shape_lines(call, call.input(place + 1).astype(_F32), values, is_left=is_left))
    sums = multiply_matrices(call, *factors)
    scale, zero = (call.input(index) for index in (6, 7))
    ratio = scales[0] * scales[1] / _shape_lines(call, scale.astype(_F32), sums, is_left=True)
    return _requantize(sums, ratio, _shape_lines(call, zero.astype(_F32), sums, is_left=True), zero.dtype)


def _requantize(sums: Array, ratio: Array, zero: Array, dtype: np.dtype[Any]) -> Array:
    """Return sums times a ratio, plus a zero point, saturated; integers are rounded, halves to even."""
    values = sums.astype(_F32) * ratio
    return _saturate((values if is_float(dtype) else np.rint(values)) + zero, dtype)


def conv_integer(call: OperatorCall) -> Array:
    """Compute ConvInteger: the convolution without zero points, in s32."""
    return _to_s32(_convolve_exactly(call, 0, 1, 2, 3))


def _convolve_exactly(call: OperatorCall, src: int, weights: int, src_zero: int, weights_zero: int) -> Array:
    """Return the convolution of two inputs in f64, without their zero points, each given by the input's number."""
    image, kernel = (call.input(index).astype(np.float64) for index in (src, weights))
    zeros = [call.optional(index) for index in (src_zero, weights_zero)]
    if zeros[0] is not None:
        if zeros[0].size != 1:
            raise call.invalid(f"its zero point has dims {zeros[0].shape}, and one for the image is needed")
        image = image - zeros[0].reshape(()).astype(np.float64)
    if zeros[1] is not None:
        channels = shape_channels(call, zeros[1].astype(np.float64), kernel.swapaxes(0, 1))
        kernel = kernel - channels.reshape(-1, *(1,) * (kernel.ndim - 1))
    return convolve(call, image, kernel)


def qlinear_conv(call: OperatorCall) -> Array:
    """Compute QLinearConv: the convolution of dequantized elements, quantized; the bias is in the sums' scale."""
    sums, bias = _convolve_exactly(call, 0, 3, 2, 5), call.optional(8)
    if bias is not None:
        sums += shape_channels(call, bias, sums)
    scales = [call.input(index).astype(_F32) for index in (1, 4, 6)]
    if scales[0].size != 1 or scales[2].size != 1 or call.input(7).size != 1:
        raise call.invalid("scales and zero point of its image and of its result are one number each")
    ratio = scales[0].reshape(()) * shape_channels(call, scales[1], sums) / scales[2].reshape(())
    zero = call.input(7)
    return _requantize(sums, ratio, zero.reshape(()).astype(_F32), zero.dtype)


QUANTIZED: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "ConvInteger": conv_integer,
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
}
"""Function of each operator of quantized elements, but for QuantizeLinear and DequantizeLinear."""
