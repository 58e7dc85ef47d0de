"""NumPy views by a layout: the way back from `Layout.from_array`.

A plain layout has what an array needs, one stride per axis, and nothing else: no data and no data type. `as_strided`
lends it the elements of an array and checks first that every offset lies among them, which NumPy's function of that
name does not.

>>> import numpy as np
>>> from inlay.layout import Layout
>>> as_strided(np.arange(12), Layout.row_major((3, 4)).dimshuffle((1, 0)))[1]
array([1, 5, 9])
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_integer
from inlay.errors import InvalidArguments
from inlay.layout import Layout

Scalar = TypeVar("Scalar", bound=np.generic)


def as_strided(elements: npt.NDArray[Scalar], layout: Layout, offset0: int = 0) -> npt.NDArray[Scalar]:
    """The view of `elements`, an array of one dense axis, whose coordinates `layout` places from `offset0` on.

    The view can be written to if `elements` can and the layout nests (`is_non_overlapping`): one write would else
    change several elements.

    Post-conditions: result[x] is elements[offset0 + layout.offset(x)] for every coordinate x, and
    Layout.from_array(result) is equivalent to `layout`.

    Raises:
        InvalidArguments: `elements` is no array of one dense axis, `layout` is none or not plain, `offset0` is no
            integer, or the layout reaches beyond `elements`.
        Unimplemented: `layout` has RUNTIME dims or strides.

    >>> backwards = as_strided(np.arange(6), Layout.from_strides((6,), (-1,)), 5)
    >>> backwards.tolist()
    [5, 4, 3, 2, 1, 0]
    """
    if not all(isinstance(value, kind) for value, kind in ((elements, np.ndarray), (layout, Layout))):
        raise InvalidArguments(
            f"elements is a {type(elements).__name__} and layout a {type(layout).__name__}: give a NumPy array of one "
            "axis and a Layout"
        )
    offset0 = as_integer("offset0", offset0)
    if elements.ndim != 1 or not elements.flags.c_contiguous:
        raise InvalidArguments(
            f"elements of shape {elements.shape} and strides {elements.strides}: give one dense axis, as array.ravel()"
        )
    low, high = layout.span
    strides = layout.byte_strides(elements.itemsize)
    if layout.size == 0:
        return np.lib.stride_tricks.as_strided(elements[:0], layout.dims, strides, writeable=elements.flags.writeable)
    if offset0 + low < 0 or offset0 + high > len(elements):
        raise InvalidArguments(
            f"the layout reaches elements {offset0 + low} to {offset0 + high - 1} from offset0 {offset0}, "
            f"outside the {len(elements)} there are"
        )
    writeable = bool(elements.flags.writeable) and layout.is_non_overlapping
    return np.lib.stride_tricks.as_strided(elements[offset0:], layout.dims, strides, writeable=writeable)
