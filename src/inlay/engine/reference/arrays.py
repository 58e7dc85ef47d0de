"""The types that formulas are written in: f64 arrays by the names of arguments.

A formula is a function whose parameters are named as the arguments and parameters of its primitive, and `shapes`, the
dims of each argument. It is given what it names, and gives back what it computed by name:

    def forward(*, src: Array, alpha: float) -> Results:
        return {"dst": alpha * src}
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
"""A logical array: its axes are those of the dims."""

Results: TypeAlias = dict[str, Array]
"""What a formula computed, by the name of the argument."""

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Shape]
"""The dims of every argument, of what is written too."""

Formula: TypeAlias = Callable[..., Mapping[str, npt.NDArray[Any]]]
"""A function of named arrays and parameters."""
