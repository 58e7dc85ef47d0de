"""Functions that keep padding zero: those with f(0) == 0.

An elementwise function may run over a whole buffer, padding included, exactly if it maps zero to zero: relu, tanh,
negation and multiplication do; exp, cos, sigmoid and addition of a bias do not.

>>> preserves_padding(np.tanh), preserves_padding(np.exp)
(True, False)
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataTypeLike, as_data_type
from inlay.errors import InvalidArguments, shown

Elementwise: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Takes an array of any shape, and gives one of the same shape and type, each entry from the entry at its place."""


def preserves_padding(f: Elementwise, data_type: DataTypeLike = "f32") -> bool:
    """Whether f(0) == 0 in this type, so that `f` may run over padding. -0.0 equals 0.

    `f` is a ufunc or any function of arrays. It is called twice: with zeros, and with a zero beside a one, where a
    function that is not elementwise (softmax, subtraction of the mean) shows itself.

    Raises:
        InvalidArguments: `data_type` is none, or `f` gives an array of another shape or type, or is not elementwise.

    >>> preserves_padding(lambda x: x + 1)
    False
    >>> preserves_padding(np.negative, "bf16")
    True
    """
    kind = as_data_type(data_type)
    # The code 0, which is what padding holds: of e8m0, which has no zero, that is 2**-127.
    zeros = np.zeros(2 * kind.itemsize, np.uint8).view(kind.dtype)
    beside = np.concatenate([zeros[:1], np.ones(1, kind.dtype)])
    with np.errstate(all="ignore"):
        alone, together = applied(f, zeros.copy()), applied(f, beside)
    if alone[0] != together[0] and not (_is_nan(alone[0]) and _is_nan(together[0])):
        raise InvalidArguments(
            f"f is not elementwise: it gives {alone[0]} for 0 beside another 0, and {together[0]} beside 1; "
            "unpack the memory, apply f, and pack the result"
        )
    return bool((alone == zeros).all())


def _is_nan(value: Any) -> bool:
    return bool(value != value)


def applied(f: Elementwise, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """f(values), an array of the shape and type of `values`.

    Raises:
        InvalidArguments: it is not.
    """
    if not callable(f):
        raise InvalidArguments(f"f is {shown(f)}: give a function of arrays, such as np.tanh")
    try:
        result = f(values)
    except TypeError as error:
        raise InvalidArguments(f"f takes no array of {values.dtype}: {error}") from error
    if not isinstance(result, np.ndarray):
        raise InvalidArguments(f"f must return an array: it returned a {type(result).__name__}")
    if (result.shape, result.dtype) != (values.shape, values.dtype):
        raise InvalidArguments(
            f"f must return an array like its argument, {values.dtype} of shape {values.shape}: "
            f"it returned {result.dtype} of shape {result.shape}"
        )
    return result
