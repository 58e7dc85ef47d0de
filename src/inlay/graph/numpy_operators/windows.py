"""Positions of a window that slides over an image, from ONNX's attributes, and the elements under each tap.

>>> axis = WindowAxis(extent=5, kernel=3, stride=2, dilation=1, before=1, behind=1, positions=3)
>>> [axis.under(tap) for tap in range(3)]
[(slice(1, 3, None), slice(1, 4, 2)), (slice(0, 3, None), slice(0, 5, 2)), (slice(0, 2, None), slice(1, 4, 2))]
"""

from dataclasses import dataclass

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """A window along one spatial axis."""

    extent: int
    """Elements of the image."""
    kernel: int
    """Taps of the window."""
    stride: int
    """Elements between positions."""
    dilation: int
    """Elements between taps, 1 if they are neighbors."""
    before: int
    """Padding before the image."""
    behind: int
    """Padding behind the image."""
    positions: int
    """Positions of the window."""

    def under(self, tap: int) -> tuple[slice, slice]:
        """The positions whose `tap` lies on the image, and the elements of the image there."""
        start = tap * self.dilation - self.before
        first = max(0, -(start // self.stride))
        last = min(self.positions - 1, (self.extent - 1 - start) // self.stride)
        if last < first:
            return slice(0, 0), slice(0, 0)
        at = first * self.stride + start
        return slice(first, last + 1), slice(at, at + (last - first) * self.stride + 1, self.stride)

    def taps_inside(self, position: int) -> int:
        """Taps at a position that lie on the image or its padding; `ceil_mode` may reach beyond."""
        start = position * self.stride - self.before
        room = self.extent + self.behind - start
        return min(self.kernel, max(0, -(-room // self.dilation)))

    def taps_on_image(self, position: int) -> int:
        """Taps at a position that lie on the image."""
        start = position * self.stride - self.before
        first = max(0, -(start // self.dilation))
        last = min(self.kernel - 1, (self.extent - 1 - start) // self.dilation)
        return max(0, last - first + 1)


def pooling_axes(call: OperatorCall, image: Dims) -> tuple[WindowAxis, ...]:
    """The window of a pooling over an image, without batch and channels.

    Raises:
        InvalidArguments: an attribute has another length than the image has axes, is not positive, or nothing is left.
    """
    kernel = _numbers(call, "kernel_shape", len(image), None)
    strides, dilations = (_numbers(call, name, len(image), 1) for name in ("strides", "dilations"))
    pads = tuple(call.attribute("pads") or (0,) * 2 * len(image))
    mode = call.attribute("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER") or len(pads) != 2 * len(image) or min(pads) < 0:
        raise call.invalid(f"auto_pad {mode!r} and padding {pads} do not fit {len(image)} axes")
    axes = []
    for k, (n, taps, stride, dilation) in enumerate(zip(image, kernel, strides, dilations, strict=True)):
        reach = (taps - 1) * dilation + 1
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-n // stride)
            total = max((count - 1) * stride + reach - n, 0)
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            axes.append(WindowAxis(n, taps, stride, dilation, before, total - before, count))
            continue
        before, behind = (pads[k], pads[k + len(image)]) if mode == "NOTSET" else (0, 0)
        count = _positions(n + before + behind - reach, stride, n + before, bool(call.attribute("ceil_mode", 0)))
        if count < 1:
            raise call.invalid(f"a window of {reach} elements finds no place in {n} elements and their padding")
        axes.append(WindowAxis(n, taps, stride, dilation, before, behind, count))
    return tuple(axes)


def _positions(room: int, stride: int, before_padding: int, is_ceil: bool) -> int:
    """Positions of a window that can move by `room`; with `ceil_mode` one more, unless it starts in the padding."""
    if room < 0:
        return 0
    count = (-(-room // stride) if is_ceil else room // stride) + 1
    return count - 1 if is_ceil and (count - 1) * stride >= before_padding else count


def _numbers(call: OperatorCall, name: str, count: int, default: int | None) -> Dims:
    given = call.attribute(name)
    if given is None and default is not None:
        return (default,) * count
    numbers = tuple(int(n) for n in given or ())
    if len(numbers) != count or min(numbers) < 1:
        raise call.invalid(f"{name} {numbers} is no positive number for each of {count} axes")
    return numbers
