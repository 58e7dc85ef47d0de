"""Reduction: axes that have length 1 in the destination become one element.

    max min sum mul mean
    norm_lp_max           max(eps, sum of |src|^p)^(1/p)
    norm_lp_sum           (eps + sum of |src|^p)^(1/p)
    norm_lp_power_p_max   max(eps, sum of |src|^p)
    norm_lp_power_p_sum   eps + sum of |src|^p

Source: oneAPI specification, "Reduction".
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from inlay.engine.reference.arrays import Array, Results, Shapes

_PLAIN: Mapping[str, Callable[..., Any]] = {"max": np.amax, "min": np.amin, "sum": np.sum, "mul": np.prod}
_INITIAL = {"max": -np.inf, "min": np.inf, "sum": 0.0, "mul": 1.0}


def forward(*, src: Array, algorithm: str, p: float, eps: float, shapes: Shapes) -> Results:
    """The formulas above; of no elements, max and min are infinite."""
    axes = tuple(i for i, (n, m) in enumerate(zip(src.shape, shapes["dst"], strict=True)) if n != m)
    if algorithm in _PLAIN:
        return {"dst": _PLAIN[algorithm](src, axis=axes, keepdims=True, initial=_INITIAL[algorithm])}
    if algorithm == "mean":
        return {"dst": src.sum(axis=axes, keepdims=True) / np.float64(prod([src.shape[i] for i in axes]))}
    powers = (np.abs(src) ** p).sum(axis=axes, keepdims=True)
    bounded = np.maximum(powers, eps) if algorithm.endswith("max") else powers + eps
    return {"dst": bounded if "power" in algorithm else bounded ** (1 / p)}
