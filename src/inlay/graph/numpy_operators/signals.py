"""Functions of signal processing: Fourier transforms, windows, and the weights of mel bands.

Complex numbers are pairs in the last axis, as ONNX has them.
"""

from collections.abc import Callable, Mapping

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, onnx_dtype
from inlay.graph.op_graph import Array

_AXIS_IS_INPUT = 20
"""Opset from which on the axis of DFT is an input."""


def _scalar(call: OperatorCall, index: int) -> int:
    """Return the integer that input `index` holds.

    Raises:
        InvalidArguments: it holds another count of numbers.
    """
    array = call.input(index)
    if array.size != 1:
        raise call.invalid(f"{call.node.inputs[index]!r} has dims {array.shape}, and one number is needed")
    return int(array.reshape(-1)[0])


def _to_complex(call: OperatorCall, src: Array) -> Array:
    """Return an array without its last axis, which has the parts of a number: complex if there are two."""
    parts = src.astype(accumulation_dtype(src.dtype))
    if src.ndim < 2 or src.shape[-1] not in (1, 2):
        raise call.invalid(f"the last axis of dims {src.shape} has neither 1 nor 2 parts of a number")
    return parts[..., 0] if src.shape[-1] == 1 else parts[..., 0] + 1j * parts[..., 1]


def _to_parts(values: Array, like: Array) -> Array:
    """Return complex numbers as pairs, in the type of `like`."""
    return np.stack([values.real, values.imag], -1).astype(like.dtype)


def dft(call: OperatorCall) -> Array:
    """Compute DFT: the discrete Fourier transform along an axis, or its inverse.

    If it is one-sided, the spectrum of real numbers has only its first half.
    """
    src = call.input(0)
    signal = _to_complex(call, src)
    default = 1 if call.opset < _AXIS_IS_INPUT else -2
    has_axis = call.opset >= _AXIS_IS_INPUT and call.optional(2) is not None
    axis = call.axis(_scalar(call, 2) if has_axis else int(call.attribute("axis", default)), src.ndim)
    if axis == src.ndim - 1:
        raise call.invalid("its axis is the one of the parts of a number")
    is_inverse, is_half = bool(call.attribute("inverse", 0)), bool(call.attribute("onesided", 0))
    if is_half and np.iscomplexobj(signal) != is_inverse:
        raise call.invalid("a one-sided transform is of real numbers, and its inverse of complex ones")
    length = 2 * (signal.shape[axis] - 1) if is_half and is_inverse else signal.shape[axis]
    length = length if call.optional(1) is None else _scalar(call, 1)
    if length < 1:
        raise call.invalid(f"a transform of {length} elements needs 1 at least")
    if is_half and is_inverse:
        return np.fft.irfft(signal, length, axis)[..., None].astype(src.dtype)
    transform = np.fft.ifft if is_inverse else np.fft.rfft if is_half else np.fft.fft
    return _to_parts(transform(signal, length, axis), src)


def stft(call: OperatorCall) -> Array:
    """Compute STFT: the Fourier transform of frames of a signal, each weighted by a window."""
    src, window = call.input(0), call.optional(2)
    signal, step = _to_complex(call, src), _scalar(call, 1)
    stated = call.optional(3)
    default = signal.shape[-1] if window is None else window.size
    length = default if stated is None else _scalar(call, 3)
    if (
        signal.ndim != 2
        or step < 1
        or not 0 < length <= signal.shape[1]
        or (window is not None and window.size != length)
    ):
        raise call.invalid(f"frames of {length} elements, one each {step}, do not fit dims {src.shape} and the window")
    is_half = bool(call.attribute("onesided", 1))
    if is_half and np.iscomplexobj(signal):
        raise call.invalid("a one-sided transform is of real numbers")
    frames = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)[:, ::step]
    if window is not None:
        frames = frames * window.reshape(-1).astype(accumulation_dtype(window.dtype))
    return _to_parts(np.fft.rfft(frames) if is_half else np.fft.fft(frames), src)


# Windows and bands


def _window(coefficients: tuple[float, ...]) -> Callable[[OperatorCall], Array]:
    """Return the function of a window that is a sum of cosines with these coefficients, from frequency 0 on.

    A symmetric window of one element is 1.
    """

    def compute(call: OperatorCall) -> Array:
        size = _scalar(call, 0)
        if size < 0:
            raise call.invalid(f"a window of {size} elements needs 0 at least")
        length = size if call.attribute("periodic", 1) else size - 1
        angle = 2 * np.pi * np.arange(size) / max(length, 1)
        total = sum(factor * np.cos(k * angle) for k, factor in enumerate(coefficients))
        values = np.ones(size) if length == 0 else np.asarray(total)
        return values.astype(onnx_dtype(int(call.attribute("output_datatype", 1))))

    return compute


def mel_weights(call: OperatorCall) -> Array:
    """Compute MelWeightMatrix: triangular weights of the bins of a spectrum, for each band of equal width in mel."""
    bands, length, rate = (_scalar(call, index) for index in range(3))
    edges = [call.input(index).astype(np.float64).reshape(-1) for index in (3, 4)]
    if bands < 1 or length < 1 or rate < 1 or any(edge.size != 1 for edge in edges):
        raise call.invalid(f"{bands} bands of {length} elements at rate {rate} need 1 at least, and two edges")
    low, high = (2595 * np.log10(1 + edge[0] / 700) for edge in edges)
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    bins = np.floor((length + 1) * 700 * (10 ** (mels / 2595) - 1) / rate)
    count = length // 2 + 1
    if not (bins[0] >= 0 and (np.diff(bins) >= 0).all() and bins[-1] < count + 1):
        raise call.invalid(f"edges of {edges[0][0]} and {edges[1][0]} Hz do not fit a spectrum at rate {rate}")
    left, center, right = bins[:-2], bins[1:-1], bins[2:]
    place = np.arange(count)[:, None]
    rising = np.where(center > left, (place - left) / np.maximum(center - left, 1), place == center)
    falling = (right - place) / np.maximum(right - center, 1)
    is_falling = (place >= center) & (place < right)
    result = np.where(is_falling, falling, np.where((place >= left) & (place <= center), rising, 0))
    return result.astype(onnx_dtype(int(call.attribute("output_datatype", 1))))


SIGNALS: Mapping[str, Callable[[OperatorCall], Array]] = {
    "BlackmanWindow": _window((0.42, -0.5, 0.08)),
    "DFT": dft,
    "HammingWindow": _window((25 / 46, -21 / 46)),
    "HannWindow": _window((0.5, -0.5)),
    "MelWeightMatrix": mel_weights,
    "STFT": stft,
}
"""Function of each operator of signal processing."""
