"""The one value of a host scalar: a number in, the bytes of its data type, and back.

>>> from inlay.data_type import DATA_TYPES
>>> scalar_bytes(-2, DATA_TYPES["s4"]).tolist(), scalar_value(scalar_bytes(-2, DATA_TYPES["s4"]), DATA_TYPES["s4"])
([14], -2)

Floats are rounded to the type, to nearest even; integers must be exact and in range.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, number_kind
from inlay.errors import InvalidArguments, shown
from inlay.memory.buffers import Bytes
from inlay.memory.nibbles import decoded, encoded


def scalar_bytes(value: object, data_type: DataType) -> Bytes:
    """The bytes of `value`, a number or an array of one, as `data_type`; values of 4 bits lie in the low half of one.

    Raises:
        InvalidArguments: `value` is no number, or an integer type cannot hold it.
    """
    number = _as_number(value)
    if data_type.kind != "float":
        _require_exact(number[0].item(), data_type)
    if data_type.kind == "float" and number.dtype != data_type.dtype:
        with np.errstate(over="ignore"):
            number = number.astype(data_type.dtype)
    elif data_type.kind != "float":
        number = number.astype(np.int64 if data_type.kind == "signed" else np.uint64).astype(data_type.dtype)
    if data_type.is_sub_byte:
        return encoded(number, data_type)
    return number.view(np.uint8).copy()


def _as_number(value: object) -> npt.NDArray[Any]:
    """An array of the one number.

    Raises:
        InvalidArguments: `value` is no number.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.size != 1 or number_kind(array.dtype) is None:
        raise InvalidArguments(f"the value of a host scalar is {shown(value)}: give one number")
    return array.reshape(1)


def _require_exact(number: float, data_type: DataType) -> None:
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        raise InvalidArguments(f"the value of a host scalar is {number}: {data_type} holds whole numbers only")
    if not data_type.lowest <= number <= data_type.highest:
        raise InvalidArguments(
            f"the value of a host scalar is {number}: {data_type} holds {data_type.lowest} to {data_type.highest}"
        )


def scalar_value(data: Bytes, data_type: DataType) -> Any:
    """The value that the bytes hold, as a NumPy or ml_dtypes scalar."""
    return decoded(data, data_type)[0] if data_type.is_sub_byte else data.view(data_type.dtype)[0]
