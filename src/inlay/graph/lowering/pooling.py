"""Pooling: windows of attributes, or the whole image.

An average divides by the elements under the window that are not padding, or by all where `count_include_pad`; where
`ceil_mode` lets such a window reach beyond the padding, no primitive divides as ONNX does.
"""

from collections.abc import Callable, Mapping

from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.graph.lowering.windows import MOST_SPATIAL_AXES, Window, window
from inlay.layout import Dims

_MOST_POSITIONS = 1 << 16
_MARGIN = 64


def max_pool(draft: Draft) -> Operand:
    """The greatest element of each window."""
    require(not draft.wants(1), "indices of the greatest elements are asked for")
    return _pooled(draft, "max")


def average_pool(draft: Draft) -> Operand:
    """The mean element of each window."""
    return _pooled(draft, "avg_include_padding" if draft.attribute("count_include_pad", 0) else "avg_exclude_padding")


def _pooled(draft: Draft, algorithm: str) -> str:
    src = draft.source(0)
    dims, result = draft.dims(src), draft.result().dims
    image, out = dims[2:], result[2:]
    walked = window(draft, tuple(draft.attribute("kernel_shape")), image, out)
    require(
        all(k <= 2 * n + _MARGIN for k, n in zip(walked.kernel, image, strict=True)), "its window is mostly padding"
    )
    require(_is_inside(walked, image, out), "a window lies in padding alone")
    if algorithm == "avg_include_padding":
        require(not _reaches_beyond(draft, walked, image, out), "its mean counts padding that ceil_mode leaves out")
    return draft.put(
        "pooling", {"src": src}, result, algorithm=algorithm, kernel=walked.kernel, **walked.parameters(image, out)
    )


def _is_inside(walked: Window, image: Dims, out: Dims) -> bool:
    """Whether each window has a tap inside the image."""
    sides = zip(walked.kernel, walked.strides, walked.dilations, walked.padding_l, image, out, strict=True)
    return all(_meets(*side) for side in sides)


def _meets(taps: int, stride: int, dilation: int, pad: int, n: int, count: int) -> bool:
    """Whether a window has a tap on an axis of `n` elements at each of its `count` positions.

    A window that begins on the image has; one that begins before it has where its first tap from there on does.
    """
    if (count - 1) * stride - pad >= n:
        return False
    before = min(count, -(-pad // stride))
    if n >= dilation:  # no step over the image: the first window begins the farthest away
        return before == 0 or -(-pad // dilation) < taps
    require(before <= _MOST_POSITIONS, f"{before} windows begin in padding")
    starts = (pad - at * stride for at in range(before))
    return all(-(-start // dilation) < taps and -start % dilation < n for start in starts)


def _reaches_beyond(draft: Draft, walked: Window, image: Dims, out: Dims) -> bool:
    """Whether a window ends behind the padding that the node says."""
    needed = walked.padding_r(image, out)
    mode = draft.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return False
    pads = (draft.attribute("pads") if mode == "NOTSET" else None) or (0,) * 2 * len(image)
    return any(need > said for need, said in zip(needed, pads[len(image) :], strict=True))


def over_image(algorithm: str) -> Callable[[Draft], Operand]:
    """The rule of an operator whose window is the whole image."""

    def rule(draft: Draft) -> Operand:
        return whole_image(draft, draft.source(0), algorithm)

    return rule


def whole_image(draft: Draft, src: Operand, algorithm: str) -> str:
    """The greatest or mean element of each channel, with spatial axes of length 1."""
    dims = draft.dims(src)
    count = len(dims) - 2
    require(0 < count <= MOST_SPATIAL_AXES, f"it has {count} spatial axes, primitives have 1 to {MOST_SPATIAL_AXES}")
    still, once = (0,) * count, (1,) * count
    numbers = {"strides": once, "kernel": dims[2:], "dilations": still, "padding_l": still, "padding_r": still}
    return draft.put("pooling", {"src": src}, (*dims[:2], *once), algorithm=algorithm, **numbers)


POOLING: Mapping[str, Callable[[Draft], Operand]] = {
    "AveragePool": average_pool,
    "GlobalAveragePool": over_image("avg_include_padding"),
    "GlobalMaxPool": over_image("max"),
    "MaxPool": max_pool,
}
"""The rule of each operator."""
