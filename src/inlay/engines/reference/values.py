"""Arguments as arrays of f64, and results as memory: types, formats, scales and zero points end here.

An integer argument with a scale and a zero point means (x - zero_point) * scale; what is written is y / scale +
zero_point, converted to the type of the memory once: rounded to nearest even, saturated if integer. The reorder that
writes it makes padding zero and leaves gaps alone.

A formula is a function whose parameters are named as the arguments and parameters of its primitive, and `shapes`, the
dims of each argument. It is given what it names, and gives back what it computed by name, all in f64:

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
"""A logical array: its axes are those of the dims."""

Results: TypeAlias = dict[str, Array]
"""What a formula computed, by the name of the argument."""

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Shape]
"""The dims of every argument, of what is written too."""

Formula: TypeAlias = Callable[..., Mapping[str, npt.NDArray[Any]]]
"""A function of named arrays and parameters."""

Memories: TypeAlias = Mapping[str, Memory]
"""The memories that an implementation is bound to, by the name of the argument."""


def read(memory: Memory) -> Array:
    """The logical array of a memory; every number of up to 53 bits is exact."""
    with np.errstate(invalid="ignore"):  # a NaN stays one
        return memory.unpack().astype(np.float64)


def write(array: Array, memory: Memory) -> None:
    """Convert an array to the type of a memory and move it into its format."""
    reorder(_wrapped(array), memory.desc, out=memory)


def rounded(array: Array, data_type: DataType) -> Array:
    """The numbers that elements become in a type."""
    return read(reorder(_wrapped(array), MemoryDesc(array.shape, data_type)))


def _wrapped(array: Array) -> Memory:
    return Memory(MemoryDesc(array.shape, "f64"), np.ascontiguousarray(array, np.float64))


def real(name: str, array: Array, attributes: PrimitiveAttributes, memories: Memories) -> Array:
    """What the elements of argument `name` mean: (x - zero_point) * scale."""
    scale, zero_point = scale_of(name, array.shape, attributes, memories)
    return (array - zero_point) * scale if name in _quantized(attributes) else array


def stored(name: str, array: Array, attributes: PrimitiveAttributes, memories: Memories) -> Array:
    """The elements that mean an array: y / scale + zero_point, not yet rounded."""
    scale, zero_point = scale_of(name, array.shape, attributes, memories)
    return array / scale + zero_point if name in _quantized(attributes) else array


def _quantized(attributes: PrimitiveAttributes) -> frozenset[str]:
    return frozenset(attributes.scales) | frozenset(attributes.zero_points)


def scale_of(name: str, shape: Shape, attributes: PrimitiveAttributes, memories: Memories) -> tuple[Array, Array]:
    """Scale and zero point of each element of argument `name`; 1 and 0 where there are none."""
    scale, zero_point = np.ones(()), np.zeros(())
    if name in attributes.scales:
        scale = _spread(attributes.scales[name], read(memories[f"{name}_scales"]), shape)
    if name in attributes.zero_points:
        zero_point = _spread(attributes.zero_points[name], read(memories[f"{name}_zero_points"]), shape)
    return scale, zero_point


def _spread(entry: Scales | ZeroPoints, values: Array, shape: Shape) -> Array:
    """One value for each element, or for each along an axis where all share one."""
    counts = entry.shape(shape)
    spread = values.reshape(counts)
    for axis, (n, count) in enumerate(zip(shape, counts, strict=True)):
        if count not in (0, 1, n):
            # The last group has what is left.
            spread = spread.take(np.arange(n) // entry.groups[axis - len(shape)], axis)
    return spread


def values_desc(entry: Scales | ZeroPoints, shape: Shape) -> MemoryDesc:
    """The descriptor of the values of an attribute: as many as there are, in row-major order, on one axis."""
    return MemoryDesc((prod(entry.shape(shape)),), entry.data_type)
