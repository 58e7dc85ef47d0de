"""Codes that conversions get wrong, for every data type: all of them where there are at most 65,536.

The wider types have what lies at and beside every number of the narrower ones, halfway between two of them, at the
bounds of the integers, subnormals, infinities, quiet and signaling NaNs, and random bits.
"""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES

Codes = npt.NDArray[np.unsignedinteger[Any]]

_NARROW = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)


@cache
def edge_codes(name: str) -> Codes:
    """Codes of the type `name`, as unsigned integers; one in each byte for 4-bit types."""
    kind = DATA_TYPES[name]
    if kind.bits <= 16:
        return np.arange(2**kind.bits).astype(f"u{kind.itemsize}")
    return _integers(kind.bits) if kind.kind == "signed" else _floats(kind.bits)


def _integers(bits: int) -> Codes:
    top = 1 << bits - 1
    powers = [(1 << k) + (1 << max(0, k - drop)) for k in range(bits - 1) for drop in (2, 8, 9, 24, 25, 53, 54)]
    near = [sign * (power + d) for power in powers for d in (-1, 0, 1) for sign in (1, -1)]
    near += [0, -top, -top + 1, top - 1, *(top - d for d in (64, 65, 127, 128, 129, 512, 513, 1024, 1025))]
    random = np.random.default_rng(1).integers(-top, top - 1, 2000, np.int64)
    shifted = random >> np.random.default_rng(2).integers(0, bits, 2000)
    exact = np.array([n for n in near if -top <= n < top], np.int64)
    return np.concatenate([exact, random, shifted]).astype(f"i{bits // 8}").view(f"u{bits // 8}")


def _floats(bits: int) -> Codes:
    number, code = np.dtype(f"f{bits // 8}"), np.dtype(f"u{bits // 8}")
    values = np.concatenate([_beside_narrow_numbers(), _beside_powers_and_bounds()])
    with np.errstate(over="ignore"):
        near = np.concatenate([values, -values]).astype(number).view(code)
    special = np.array([np.inf, -np.inf, 0.0, -0.0, np.finfo(number).max, np.finfo(number).tiny], number).view(code)
    mantissa = {32: 23, 64: 52}[bits]
    payloads = [1, 1 << mantissa - 1, 1 << mantissa // 2, 5 << mantissa - 3, (1 << mantissa) - 1]
    infinity = (1 << bits - 1) - (1 << mantissa)
    nans = np.array([sign << bits - 1 | infinity | payload for sign in (0, 1) for payload in payloads], code)
    random = np.random.default_rng(3).integers(0, 1 << bits, 4000, code, endpoint=False)
    one = np.ones(1, code)
    return np.concatenate([near, near + one, near - one, special, special[4:] + one, special[5:] - one, nans, random])


def _beside_narrow_numbers() -> npt.NDArray[np.float64]:
    """Numbers of the narrower types, of f8 all, and the middles between neighbors."""
    some = []
    for narrow in _NARROW:
        size = np.dtype(narrow).itemsize
        with np.errstate(invalid="ignore"):
            every = np.arange(1 << 8 * size).astype(f"u{size}").view(narrow).astype(np.float64)
        finite = np.unique(every[np.isfinite(every)])
        some += [finite[:: max(1, finite.size // 3000)], finite[:600], finite[-300:]]
        some.append((finite[1:] + finite[:-1])[:: max(1, finite.size // 3000)] / 2)
    return np.concatenate(some)


def _beside_powers_and_bounds() -> npt.NDArray[np.float64]:
    """Quarters of small integers, bounds of the integer types, powers of two and their neighbors in bf16."""
    bounds = [2.0**31, 2.0**31 - 1, 2147483520, 2.0**63, 2.0**63 - 1024, 2.0**63 - 512, 2.0**53 + 2, 2.0**23 + 0.5]
    powers = np.ldexp(1.0, np.arange(-150, 150))
    near = [powers, 1.5 * powers, powers * (1 - 2**-9), powers * (1 + 2**-9)]
    return np.concatenate([np.arange(-1200, 1200) / 4, np.array([*bounds, 464, 480]), *near])
