"""Conversion of arguments to arrays of f64 and of results to memory; formulas see no types, formats or quantization.

An element x of an argument with a scale and a zero point represents (x - zero_point) * scale. A result y is written as
y / scale + zero_point, converted once to the type of the memory: rounded to nearest, ties to even, and saturated if
integer. The reorder that writes it sets padding to zero and does not touch gaps.

A formula is a function with keyword parameters. Their names are those of arguments and parameters of its primitive,
or `shapes`, the dims of each argument. The engine passes the values, and the formula returns its results by name:

    def forward(*, src: Array, alpha: float) -> Results:
        return {"dst": alpha * src}
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory, reorder
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.reordering.attributes import Scales, ZeroPoints

Array: TypeAlias = npt.NDArray[np.float64]
"""A logical array, whose axes are those of the dims."""

Results: TypeAlias = dict[str, Array]
"""The results of a formula, by the name of the argument."""

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Shape]
"""The dims of every argument, including the results, by name."""

Formula: TypeAlias = Callable[..., Mapping[str, npt.NDArray[Any]]]
"""A function of named arrays and parameters."""

Memories: TypeAlias = Mapping[str, Memory]
"""The memories to which an implementation is bound, by the name of the argument."""


def read(memory: Memory) -> Array:
    """Unpack a memory to a logical array of f64; numbers of up to 53 bits are exact."""
    with np.errstate(invalid="ignore"):  # conversion of a NaN sets the invalid flag
        return memory.unpack().astype(np.float64)


def write(array: Array, memory: Memory) -> None:
    """Convert an array to the type and format of a memory, and store it there."""
    reorder(_as_memory(array), memory.desc, out=memory)


def round_to_type(array: Array, data_type: DataType) -> Array:
    """Round the elements of an array to a data type, and return them as f64."""
    return read(reorder(_as_memory(array), MemoryDesc(array.shape, data_type)))


def _as_memory(array: Array) -> Memory:
    """Return the array as row-major memory of f64."""
    return Memory(MemoryDesc(array.shape, "f64"), np.ascontiguousarray(array, np.float64))


def dequantize(name: str, array: Array, attributes: PrimitiveAttributes, memories: Memories) -> Array:
    """Return the numbers that the elements of argument `name` represent: (x - zero_point) * scale."""
    scale, zero_point = scale_of(name, array.shape, attributes, memories)
    return (array - zero_point) * scale if name in _quantized_arguments(attributes) else array


def quantize(name: str, array: Array, attributes: PrimitiveAttributes, memories: Memories) -> Array:
    """Return the elements of argument `name` that represent an array: y / scale + zero_point, before rounding."""
    scale, zero_point = scale_of(name, array.shape, attributes, memories)
    return array / scale + zero_point if name in _quantized_arguments(attributes) else array


def _quantized_arguments(attributes: PrimitiveAttributes) -> frozenset[str]:
    """Return the names of the arguments with scales or zero points."""
    return frozenset(attributes.scales) | frozenset(attributes.zero_points)


def scale_of(name: str, shape: Shape, attributes: PrimitiveAttributes, memories: Memories) -> tuple[Array, Array]:
    """Return arrays of the scales and zero points of argument `name`, broadcastable to `shape`.

    Without such attributes they are 1 and 0.
    """
    scale, zero_point = np.ones(()), np.zeros(())
    if name in attributes.scales:
        scale = _expand_groups(attributes.scales[name], read(memories[f"{name}_scales"]), shape)
    if name in attributes.zero_points:
        zero_point = _expand_groups(attributes.zero_points[name], read(memories[f"{name}_zero_points"]), shape)
    return scale, zero_point


def _expand_groups(entry: Scales | ZeroPoints, values: Array, shape: Shape) -> Array:
    """Reshape values so that they broadcast to `shape`: 1 along axes outside of the mask; groups are repeated."""
    counts = entry.shape(shape)
    spread = values.reshape(counts)
    for axis, (n, count) in enumerate(zip(shape, counts, strict=True)):
        if count not in (0, 1, n):
            # The last group may be smaller.
            spread = spread.take(np.arange(n) // entry.groups[axis - len(shape)], axis)
    return spread


def values_desc(entry: Scales | ZeroPoints, shape: Shape) -> MemoryDesc:
    """Return the descriptor of the values of an attribute: one axis, in row-major order."""
    return MemoryDesc((prod(entry.shape(shape)),), entry.data_type)
