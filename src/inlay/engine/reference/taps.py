"""The geometry of windows that slide over space: which element each tap of each window lies on.

Tap k of window o lies on element o * stride + k * (dilation + 1) - padding_l, which may be outside. So the source is
placed on a canvas as long as the windows reach, and read, or added to, in steps. What of the source no window reaches
(where padding on the right is negative) is not on the canvas:

>>> taps = Taps(kernel=(3,), strides=(2,), dilations=(0,), padding_l=(1,))
>>> taps.windows(np.arange(4.0).reshape(1, 1, 4), (2,))[0, 0]
array([[0., 0., 1.],
       [1., 2., 3.]])
>>> taps.spread(lambda tap: np.array([[[1.0, 10.0]]]), (2,), (1, 1, 4))[0, 0]
array([ 1., 11., 10., 10.])

Source: oneAPI specification, "Convolution"; dilation 0 is dense.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.engine.reference.arrays import Array, Shape


@dataclass(frozen=True, slots=True)
class Taps:
    """Windows over the spatial axes, which are all but the first two."""

    kernel: Shape
    """Taps along each axis."""
    strides: Shape
    """Elements between neighboring windows."""
    dilations: Shape
    """Elements between neighboring taps of a window."""
    padding_l: Shape
    """Elements before the first one of the source."""

    @property
    def spans(self) -> Shape:
        """Elements from the first tap to the last, both included."""
        return tuple((k - 1) * (d + 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def windows(self, source: Array, out: Shape, fill: float = 0.0) -> Array:
        """The elements under all taps, as axes (n, c, windows ..., taps ...); those outside are `fill`."""
        canvas = np.full(source.shape[:2] + self._reach(out), fill)
        on_canvas, of_source = self._overlap(source.shape, canvas.shape)
        canvas[on_canvas] = source[of_source]
        axes = tuple(range(2, source.ndim))
        views = np.lib.stride_tricks.sliding_window_view(canvas, self.spans, axis=axes)
        starts = [slice(0, (o - 1) * s + 1 if o else 0, s) for o, s in zip(out, self.strides, strict=True)]
        steps = [slice(None, None, d + 1) for d in self.dilations]
        index: Any = (..., *starts, *steps)
        windows: Array = views[index]
        return windows

    def spread(self, contribution: Callable[[Shape], Array], out: Shape, shape: Shape) -> Array:
        """The transpose of `windows`: for every tap, what it contributes, added to the elements it lies on.

        `contribution` is given the tap's coordinate and gives an array with axes (n, c, windows ...).
        """
        canvas = np.zeros(shape[:2] + self._reach(out))
        for tap in np.ndindex(self.kernel):
            starts = [k * (d + 1) for k, d in zip(tap, self.dilations, strict=True)]
            ends = [at + o * s for at, o, s in zip(starts, out, self.strides, strict=True)]
            index: Any = (..., *map(slice, starts, ends, self.strides))
            canvas[index] += contribution(tap)
        result = np.zeros(shape)
        on_canvas, of_source = self._overlap(shape, canvas.shape)
        result[of_source] = canvas[on_canvas]
        return result

    def _reach(self, out: Shape) -> Shape:
        """Elements that windows lie on along each axis."""
        return tuple(max(o - 1, 0) * s + span for o, s, span in zip(out, self.strides, self.spans, strict=True))

    def _overlap(self, source: Shape, canvas: Shape) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The part of the canvas that the source covers, and the part of the source that lies on the canvas."""
        on_canvas, of_source = [slice(None)] * 2, [slice(None)] * 2
        for n, extent, padding in zip(source[2:], canvas[2:], self.padding_l, strict=True):
            first, last = max(padding, 0), max(min(padding + n, extent), max(padding, 0))
            on_canvas.append(slice(first, last))
            of_source.append(slice(first - padding, last - padding))
        return tuple(on_canvas), tuple(of_source)
