"""What a call with attributes brings, and how its result is compared."""

from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import Attributes, Operands, Scales
from inlay.reordering.reference import decode, read_codes, write_codes

Bytes = npt.NDArray[np.uint8]


def values_for(attributes: Attributes, dims: tuple[int, ...], seed: int) -> Operands:
    """Random values of each attribute that has some, of its type and shape."""
    rng = np.random.default_rng(seed)
    values: Operands = {}
    for name in attributes.names:
        entry = attributes.entry(name)
        shape = entry.shape(dims)
        lowest = -8 if entry.type.kind == "signed" else 0
        numbers: Any = rng.uniform(0.1, 3, shape) if isinstance(entry, Scales) else rng.integers(lowest, 8, shape)
        if entry.data_type == "e8m0":
            numbers = np.exp2(rng.integers(-3, 3, shape))
        values[name] = np.asarray(numbers).astype(entry.type.dtype)
    return values


def spread_values(values: npt.NDArray[Any], dims: tuple[int, ...]) -> npt.NDArray[Any]:
    """Repeat the values of an attribute, so that each element has its own."""
    for axis, n in enumerate(dims):
        values = np.repeat(values, n // values.shape[axis], axis)
    return values


def assert_same(dst: MemoryDesc, got: Bytes, expected: Bytes, *, any_nan: bool = True) -> None:
    """Every byte is as expected; with `any_nan` one NaN stands for another.

    The sign and payload of a NaN that was computed on are not promised.
    """
    _, data_type = dst.require_layout("compare")
    if any_nan and data_type.kind == "float":
        codes = [read_codes(dst, buffer) for buffer in (got, expected)]
        if data_type.name == "f4_e2m1":  # has none: the greatest number of either sign stands for it
            both = (codes[0] & 7 == 7) & (codes[1] & 7 == 7)
        else:
            both = np.logical_and(*(np.isnan(decode(side, data_type, "f64")) for side in codes))
        expected = expected.copy()
        write_codes(dst, expected, np.where(both, codes[0], codes[1]))
    wrong = np.flatnonzero(got != expected)
    assert not wrong.size, f"byte {wrong[0]} is {got[wrong[0]]}, not {expected[wrong[0]]} ({wrong.size} wrong)"
