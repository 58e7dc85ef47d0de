"""What a reorder with attributes computes, for all elements at once: oneDNN's formula in oneDNN's order.

    y   = (x - src_zero_point) * src_scale
    y   = y * scale_adjust                      where the destination wants it
    y   = y + sum * old
    y   = y / dst_scale + dst_zero_point
    dst = convert(y)

Each step is one operation of the working type, rounded to nearest; none is fused with the next.
"""

from collections.abc import Mapping
from math import prod

import numpy as np

from inlay.data_type import DataType
from inlay.layout import Dims
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.reference.numbers import Codes, Numbers, chances, decode, encode, working_type

Values = Mapping[str, Codes]
"""The codes of the values of each attribute, in an array as its `shape` says."""


def convert(codes: Codes, src: DataType, dst: DataType) -> Codes:
    """The codes of the numbers of `codes` in another type, rounded to nearest; the same type keeps every bit.

    >>> from inlay.data_type import DATA_TYPES
    >>> values = np.array([2.5, -1, 300], np.float32)
    >>> convert(values.view(np.uint32), DATA_TYPES["f32"], DATA_TYPES["u8"]).tolist()
    [2, 0, 255]
    """
    if src == dst:
        return codes
    return encode(decode(codes, src, working_type(src, dst)), dst)


def computed(
    codes: Codes,
    types: tuple[DataType, DataType],
    attributes: Attributes = PLAIN,
    values: Values | None = None,
    *,
    old: Codes | None = None,
    factor: float = 1.0,
    seed: int = 0,
) -> Codes:
    """The codes of the result.

    Args:
        codes: of the source elements, in an array of the shape of the tensor.
        types: of source and destination.
        attributes: what to compute.
        values: for each of `attributes.names`, the codes of its values.
        old: the codes of the destination's elements, where there is a sum.
        factor: what weights are multiplied by before they are rounded (`Extras.scale_adjust`).
        seed: where rounding is stochastic.
    """
    src, dst = types
    if src == dst and not attributes.computes and factor == 1:
        return codes
    working = working_type(src, dst, is_scaled=attributes.scales or factor != 1)
    y = decode(codes, src, working)
    used = {
        name: _spread(decode(values[name], attributes.entry(name).type, working), codes.shape)
        for name in attributes.names
        if values is not None
    }
    with np.errstate(all="ignore"):
        if "src_zero_points" in used:
            y = y - used["src_zero_points"]
        if "src_scales" in used:
            y = y * used["src_scales"]
        if factor != 1:
            y = y * y.dtype.type(factor)
        if attributes.sum is not None and old is not None:
            y = y + y.dtype.type(attributes.sum) * decode(old, dst, working)
        if "dst_scales" in used:
            y = y / used["dst_scales"]
        if "dst_zero_points" in used:
            y = y + used["dst_zero_points"]
        by_chance = attributes.rounding_mode == "stochastic"
        return encode(y, dst, chances(prod(codes.shape), seed).reshape(codes.shape) if by_chance else None)


def _spread(values: Numbers, dims: Dims) -> Numbers:
    """The value that holds for each coordinate."""
    for axis, (count, n) in enumerate(zip(values.shape, dims, strict=True)):
        if 1 < count < n:
            values = np.repeat(values, n // count, axis)
    return np.broadcast_to(values, dims)
