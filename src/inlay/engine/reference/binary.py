"""Two tensors combined element by element, with axes of length 1 repeated.

    add sub mul div max min      the operation
    ge gt le lt eq ne            1 where it holds, else 0
    select                       src_0 where src_2 is not zero, else src_1

Source: oneAPI specification, "Binary".
"""

from collections.abc import Callable, Mapping

import numpy as np

from inlay.engine.reference.arrays import Array, Results

_FUNCTIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}


def forward(*, src_0: Array, src_1: Array, src_2: Array | None = None, algorithm: str) -> Results:
    """The combination of two tensors, or the choice between them by a third."""
    if algorithm == "select":
        assert src_2 is not None
        return {"dst": np.where(src_2 != 0, src_0, src_1)}
    return {"dst": apply(algorithm, src_0, src_1)}


def apply(algorithm: str, x: Array, y: Array) -> Array:
    """The combination of two arrays."""
    return _FUNCTIONS[algorithm](x, y).astype(np.float64)
