"""Reorders of Dask arrays: packed arrays whose blocks are computed one by one, in any worker.

    x (1000, 64), chunks (300, 64)          reorder_dask(x, "(o o16) i -> o i o16")
    rechunked to (304, 64)                  packed (63, 64, 16), chunks (19, 64, 16)

A block of `x` becomes a block of the result if it consists of whole blocks of the format, so `x` is rechunked where its
chunks end elsewhere. The digits of an axis become axes of the result: the leading one is cut as the axis is, the others
are whole.
"""

from itertools import count
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims, Layout
from inlay.memory import pack
from inlay.notation import Notation, parse_notation
from inlay.notation.format_tag import FormatTag
from inlay.storage.zarr_package import DaskArray, require_dask_array


def reorder_dask(x: DaskArray, pattern: str) -> DaskArray:
    """Return the Dask array of the elements of `x` as a format stores them: one axis for each digit, outermost first.

    `pattern` is a text of `parse_notation`: a format tag, a pattern, or a vendor's name. Axes are padded with 0 to
    whole blocks. Where chunks of `x` are no whole blocks, it is rechunked first.

    Post-condition: the result is lazy, and equals `pack(x.compute(), pattern).physical()`.

    Raises:
        InvalidArguments: `x` is no Dask array with known chunks and 1 to 12 axes, its type is not one of descriptors,
            or elements of the format overlap or have gaps between them.
        FormatTagError, PatternError, NotationError: `pattern` is no format of arrays of these dims.
        MissingExtra: Dask is not installed.

    >>> import dask.array as da  # doctest: +SKIP
    >>> reorder_dask(da.ones((1000, 64), chunks=(300, 64)), "(o o16) i -> o i o16").shape  # doctest: +SKIP
    (63, 64, 16)
    """
    da = require_dask_array()
    if not isinstance(x, da.Array):
        raise InvalidArguments(f"x is {shown(x)}: give a Dask array, or use inlay.pack for other arrays")
    if any(n != n for lengths in x.chunks for n in lengths):
        raise InvalidArguments("x has chunks of unknown size: call x.compute_chunk_sizes() first")
    notation, dims = parse_notation(pattern), tuple(int(n) for n in x.shape)
    layout = _dense_layout(dims, x.dtype, notation)
    blocks = tuple(axis.block for axis in layout.axes)
    aligned = x.rechunk(tuple(map(_align, x.chunks, blocks)))
    return _pack_blocks(da, aligned, layout, notation)


def _dense_layout(dims: Dims, dtype: "np.dtype[Any]", notation: Notation) -> Layout:
    """Return the layout of an array in a format.

    Raises:
        InvalidArguments: there is none, or its elements overlap or have gaps between them.
    """
    desc = MemoryDesc(dims, as_data_type(dtype), notation)
    layout, _ = desc.require_layout("reorder_dask")
    if layout.size and layout.span != (0, prod(layout.dims)):
        raise InvalidArguments(
            f"{notation.spelling} has gaps or overlapping elements, so it is no array of digits: choose a dense format"
        )
    return layout


def _align(lengths: Dims, block: int) -> Dims:
    """Return lengths of chunks that end at multiples of a block, or at the end of the axis.

    >>> _align((300, 300, 300, 100), 16)
    (304, 304, 304, 88)
    >>> _align((3, 3, 3), 8)
    (8, 1)
    """
    n = sum(lengths)
    ends = np.cumsum(lengths)
    rounded = np.unique(np.minimum(-(-ends // block) * block, n))
    return tuple(int(length) for length in np.diff(rounded, prepend=0)) if n else lengths


def _pack_blocks(da: Any, x: DaskArray, layout: Layout, notation: Notation) -> DaskArray:
    """Return the packed array; each block is one of `x`."""
    places = _memory_order(layout, notation)
    numbers, new_axes, index = count(x.ndim), dict[int, int](), list[int]()
    for axis, place in places:
        index.append(next(numbers) if place else axis)
        if place:
            new_axes[index[-1]] = layout.digits[axis][place].extent
    blocks = {axis: layout.axes[axis].block for axis in range(x.ndim)}
    return da.blockwise(
        _pack_block,
        tuple(index),
        x,
        tuple(range(x.ndim)),
        notation.spelling,
        None,
        places,
        None,
        new_axes=new_axes,
        adjust_chunks={axis: _count_blocks(block) for axis, block in blocks.items()},
        dtype=x.dtype,
        meta=np.empty((0,) * len(index), x.dtype),
    )


def _memory_order(layout: Layout, notation: Notation) -> tuple[tuple[int, int], ...]:
    """Return axis and place in the axis of each digit, outermost first: as the tag names them, or by falling stride."""
    if isinstance(notation, FormatTag):
        seen = dict.fromkeys(range(layout.ndims), 0)
        inner = []
        for axis, _ in notation.inner_blocks:
            seen[axis] += 1
            inner.append((axis, seen[axis]))
        return (*((axis, 0) for axis in notation.order), *inner)
    strides = {
        (axis, place): digit.stride for axis, group in enumerate(layout.digits) for place, digit in enumerate(group)
    }
    return tuple(sorted(strides, key=lambda place: -strides[place]))


def _count_blocks(block: int) -> Any:
    """Return the function from the length of a chunk to its number of blocks."""
    return lambda length: -(-length // block)


def _pack_block(array: npt.NDArray[Any], spelling: str, places: tuple[tuple[int, int], ...]) -> npt.NDArray[Any]:
    """Return a block in the format: one axis for each digit, given as axis and place in the axis."""
    memory = pack(np.ascontiguousarray(array), spelling)
    layout, data_type = memory.desc.require_layout("reorder_dask")
    shape = tuple(layout.digits[axis][place].extent for axis, place in places)
    return memory.buffer.reshape(-1).view(data_type.dtype)[: prod(shape)].reshape(shape)
