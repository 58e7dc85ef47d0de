"""Every data type a descriptor can have, in one table.

A data type has a width in bits, a number line, and a name in each of the worlds that Inlay touches: oneDNN (name and
code), NumPy with ml_dtypes, and LLVM. Layouts count elements and know no types; only sizes in bytes, memory and
reorders look here. Widths below one byte are called sub-byte: two such elements share a byte, the one with the even
offset in the low four bits.

Source: oneDNN, `dnnl_data_type_t`; the OCP microscaling formats specification 1.0 for e8m0 and f4_e2m1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import ml_dtypes
import numpy as np

from inlay.errors import InvalidArguments

NumberKind = Literal["float", "signed", "unsigned"]


@dataclass(frozen=True, slots=True)
class DataType:
    """One data type and its names."""

    name: str
    """oneDNN's name, such as `bf16`."""
    code: int
    """oneDNN's code, `dnnl_data_type_t`."""
    bits: int
    """Width of one element in bits: 4, 8, 16, 32 or 64."""
    kind: NumberKind
    """What the bits mean."""
    numpy: np.dtype[np.generic]
    """The type of a logical array of such elements (NumPy's own or one of ml_dtypes)."""
    llvm: str
    """The LLVM type that holds one element in a register."""
    lowest: float
    """The smallest finite value."""
    highest: float
    """The largest finite value."""

    @property
    def itemsize(self) -> int:
        """Whole bytes of one element: 1 for sub-byte types, as oneDNN's `data_type_size` answers."""
        return self.bits // 8 or 1

    @property
    def is_sub_byte(self) -> bool:
        """Whether two elements share one byte."""
        return self.bits < 8

    def __str__(self) -> str:
        """The name."""
        return self.name


DataTypeLike: TypeAlias = DataType | str | np.dtype[np.generic] | type[np.generic]


def _integer(name: str, code: int, bits: int, numpy_type: object) -> DataType:
    signed = name.startswith("s")
    top = 2 ** (bits - 1) if signed else 2**bits
    return DataType(
        name,
        code,
        bits,
        "signed" if signed else "unsigned",
        np.dtype(numpy_type),  # type: ignore[call-overload]
        f"i{bits}",
        -top if signed else 0,
        top - 1,
    )


def _float(name: str, code: int, numpy_type: object, llvm: str, bits: int | None = None) -> DataType:
    dtype = np.dtype(numpy_type)  # type: ignore[call-overload]
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    lowest, highest = float(limits.min), float(limits.max)
    return DataType(name, code, bits or dtype.itemsize * 8, "float", dtype, llvm, lowest, highest)


_ALL = (
    _float("f16", 1, np.float16, "half"),
    _float("bf16", 2, ml_dtypes.bfloat16, "bfloat"),
    _float("f32", 3, np.float32, "float"),
    _integer("s32", 4, 32, np.int32),
    _integer("s8", 5, 8, np.int8),
    _integer("u8", 6, 8, np.uint8),
    _float("f64", 7, np.float64, "double"),
    _float("f8_e5m2", 9, ml_dtypes.float8_e5m2, "i8"),
    _float("f8_e4m3", 10, ml_dtypes.float8_e4m3fn, "i8"),
    _integer("s4", 11, 4, ml_dtypes.int4),
    _integer("u4", 12, 4, ml_dtypes.uint4),
    _float("e8m0", 13, ml_dtypes.float8_e8m0fnu, "i8"),
    _float("f4_e2m1", 14, ml_dtypes.float4_e2m1fn, "i4", bits=4),
    _integer("s64", 16, 64, np.int64),
)

DATA_TYPES: Mapping[str, DataType] = MappingProxyType({t.name: t for t in _ALL})
"""Every data type by its oneDNN name."""

_BY_NUMPY = {t.numpy: t for t in _ALL}
_BY_TEXT = {**{t.numpy.name: t for t in _ALL}, **DATA_TYPES}
_REFUSED = {
    "undef": "undef is the absence of a type",
    "boolean": "boolean (code 8) is the result type of comparisons only; store truth values as u8",
    "bool": "boolean (code 8) is the result type of comparisons only; store truth values as u8",
    "f4_e3m0": "f4_e3m0 (code 15) is deprecated in oneDNN and can no longer be stored; use f4_e2m1",
}


def as_data_type(value: DataTypeLike) -> DataType:
    """The data type that `value` names: oneDNN's name, a NumPy or ml_dtypes type, or a `DataType` itself.

    Raises:
        InvalidArguments: no descriptor can be made of `value`: it names no type, or one such as boolean or f4_e3m0
            that oneDNN names but refuses to store.

    >>> as_data_type("bf16").bits
    16
    >>> as_data_type(np.float32).name
    'f32'
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, str) and value in _BY_TEXT:
        return _BY_TEXT[value]
    dtype = _numpy_dtype(value)
    if dtype in _BY_NUMPY and dtype.isnative:
        return _BY_NUMPY[dtype]
    raise InvalidArguments(_refusal(value, dtype))


def _numpy_dtype(value: object) -> np.dtype[np.generic] | None:
    """The NumPy type that `value` is. Neither text is read, since NumPy's "u8" is u64, nor None, its f64."""
    if value is None or isinstance(value, str):
        return None
    try:
        return np.dtype(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return None


def _refusal(value: object, dtype: np.dtype[np.generic] | None) -> str:
    name = value if isinstance(value, str) else None if dtype is None else dtype.name
    if name in _REFUSED:
        return f"no descriptor can be made of data type {name}: {_REFUSED[name]}"
    if dtype is not None and dtype.newbyteorder("=") in _BY_NUMPY:
        return f"data type {dtype.str} is not in this machine's byte order: convert with array.astype({name!r})"
    known = ", ".join(DATA_TYPES)
    shown = repr(value) if dtype is None else name
    return f"unknown data type {shown}: use one of {known}, or the NumPy or ml_dtypes type of the same meaning"
