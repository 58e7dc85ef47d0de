"""Every data type a descriptor can have, in one table.

A data type has a width in bits, a number line, and a name in each of the worlds that Inlay touches: oneDNN (name and
code), NumPy with ml_dtypes, and LLVM. Layouts count elements and know no types; only sizes in bytes, memory and
reorders look here. Widths below one byte are called sub-byte: two such elements share a byte, the one with the even
offset in the low four bits.

`DATA_TYPES` are the types of oneDNN: numbers, which reorders convert and primitives compute with. `MOVED_TYPES` are
other types of NumPy's arrays: they are packed, reordered and stored as bits of their width, and nothing converts them.

>>> DataType("bf16").bits, DataType(np.float32).name, DataType("f32") == "f32"
(16, 'f32', True)

Source: oneDNN, `dnnl_data_type_t`; the OCP microscaling formats specification 1.0 for e8m0 and f4_e2m1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

import ml_dtypes
import numpy as np

from inlay.errors import InvalidArguments, shown

NumberKind = Literal["float", "signed", "unsigned", "bits"]


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class DataType:
    """One data type and its names.

    `DataType(value)` is the type that `value` names: oneDNN's name, a NumPy or ml_dtypes type or its name, or a
    `DataType` itself. There is one object of each type. It equals its name and has the hash of it, so it finds what is
    stored under the name; it is no `str`, because NumPy would read the text "u8" as a type of 64 bits. NumPy takes it
    wherever it takes a dtype.

    Raises:
        InvalidArguments: no descriptor can be made of `value`, see `as_data_type`.

    >>> DataType("u8") == "u8", {"u8": 1}[DataType("u8")], np.zeros(3, DataType("u8")).dtype
    (True, 1, dtype('uint8'))
    """

    name: str
    """oneDNN's name, such as `bf16`; NumPy's for bool and complex numbers."""
    code: int
    """oneDNN's code, `dnnl_data_type_t`; 0 (undef) for a type that oneDNN does not have."""
    bits: int
    """Width of one element in bits: 4, 8, 16, 32, 64 or 128."""
    kind: NumberKind
    """What the bits mean; `bits` for a type that only moves."""
    dtype: np.dtype[np.generic]
    """The type of a logical array of such elements (NumPy's own or one of ml_dtypes)."""
    llvm: str
    """The LLVM type that holds one element in a register."""
    lowest: float
    """The smallest finite value; 0 for a type that only moves."""
    highest: float
    """The largest finite value; 0 for a type that only moves."""

    def __new__(cls, value: "DataTypeLike") -> "DataType":
        """The one object of the type that `value` names."""
        return as_data_type(value)

    @property
    def itemsize(self) -> int:
        """Whole bytes of one element: 1 for sub-byte types, as oneDNN's `data_type_size` answers."""
        return self.bits // 8 or 1

    @property
    def is_sub_byte(self) -> bool:
        """Whether two elements share one byte."""
        return self.bits < 8

    @property
    def is_number(self) -> bool:
        """Whether reorders convert its values and attributes compute with them; other types move as they are.

        >>> DataType("f32").is_number, DataType("complex64").is_number
        (True, False)
        """
        return self.kind != "bits"

    @property
    def is_signed(self) -> bool:
        """Whether it holds numbers below zero.

        >>> [t.name for t in DATA_TYPES.values() if not t.is_signed]
        ['u8', 'u4', 'e8m0']
        """
        return self.lowest < 0

    @property
    def has_zero(self) -> bool:
        """Whether it holds the number zero: all types of numbers but e8m0, which is an exponent alone, do.

        >>> DataType("f32").has_zero, DataType("e8m0").has_zero
        (True, False)
        """
        return self.lowest <= 0

    @property
    def has_infinity(self) -> bool:
        """Whether it holds infinity: a float with a sign and more than its finite values and NaN.

        >>> [t.name for t in DATA_TYPES.values() if t.has_infinity]
        ['f16', 'bf16', 'f32', 'f64', 'f8_e5m2']
        """
        return self.name in _WITH_INFINITY

    @property
    def has_nan(self) -> bool:
        """Whether it holds NaN.

        >>> [t.name for t in DATA_TYPES.values() if t.kind == "float" and not t.has_nan]
        ['f4_e2m1']
        """
        return self.kind == "float" and self.name != "f4_e2m1"

    @property
    def least_positive(self) -> float:
        """The least number above zero: a subnormal of floats, 1 of integers; 0 for a type that only moves.

        >>> DataType("e8m0").least_positive == 2.0**-127, DataType("s8").least_positive
        (True, 1.0)
        """
        if self.kind != "float":
            return float(self.is_number)
        limits = ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]
        return float(limits.smallest_subnormal) if self.has_zero else self.lowest

    @property
    def in_whole_bytes(self) -> "DataType":
        """The same type with every element in bytes of its own: a variant of a sub-byte type, else the type itself.

        >>> DataType("s4").in_whole_bytes.bits, DataType("s8").in_whole_bytes is DataType("s8")
        (8, True)
        """
        if not self.is_sub_byte:
            return self
        return _made(self.name, self.code, 8, self.kind, self.dtype, self.llvm, self.lowest, self.highest)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is this type, or its name."""
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        """The hash of the name."""
        return hash(self.name)

    def __str__(self) -> str:
        """The name."""
        return self.name

    def __repr__(self) -> str:
        """The call that gives this type."""
        return f"DataType({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by name: there is one object of each type."""
        return DataType, (self.name,)


DataTypeLike: TypeAlias = DataType | str | np.dtype[np.generic] | type[np.generic]


def _made(name: str, code: int, bits: int, kind: NumberKind, dtype: object, llvm: str, *limits: float) -> DataType:
    data_type = object.__new__(DataType)
    values = (name, code, bits, kind, np.dtype(cast(Any, dtype)), llvm, *limits)
    for field, value in zip(DataType.__slots__, values, strict=True):
        object.__setattr__(data_type, field, value)
    return data_type


def _integer(name: str, code: int, bits: int, dtype: object) -> DataType:
    signed = name.startswith("s")
    top = 2 ** (bits - 1) if signed else 2**bits
    kind: NumberKind = "signed" if signed else "unsigned"
    return _made(name, code, bits, kind, dtype, f"i{bits}", -top if signed else 0, top - 1)


def _float(name: str, code: int, numpy_type: object, llvm: str, bits: int | None = None) -> DataType:
    dtype = np.dtype(cast(Any, numpy_type))
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return _made(name, code, bits or dtype.itemsize * 8, "float", dtype, llvm, float(limits.min), float(limits.max))


def _moved(name: str, dtype: object) -> DataType:
    bits = np.dtype(cast(Any, dtype)).itemsize * 8
    return _made(name, 0, bits, "bits", dtype, f"i{bits}", 0, 0)


_NUMBERS = (
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

_BITS = (
    _moved("bool", np.bool_),
    _moved("s16", np.int16),
    _moved("u16", np.uint16),
    _moved("u32", np.uint32),
    _moved("u64", np.uint64),
    _moved("complex64", np.complex64),
    _moved("complex128", np.complex128),
)

DATA_TYPES: Mapping[str, DataType] = MappingProxyType({t.name: t for t in _NUMBERS})
"""The data types of oneDNN by name: those that convert and that primitives compute with."""

MOVED_TYPES: Mapping[str, DataType] = MappingProxyType({t.name: t for t in _BITS})
"""The data types that only move, by name."""

ALL_TYPES: Mapping[str, DataType] = MappingProxyType({**DATA_TYPES, **MOVED_TYPES})
"""Every data type by its name."""

_WITH_INFINITY = frozenset(t.name for t in _NUMBERS if t.kind == "float" and np.isinf(t.dtype.type(np.inf)))
_BY_NUMPY = {t.dtype: t for t in ALL_TYPES.values()}
_BY_TEXT = {**{t.dtype.name: t for t in ALL_TYPES.values()}, **ALL_TYPES}
_REFUSED = {
    "undef": "undef is the absence of a type",
    "boolean": "boolean (code 8) is the result type of oneDNN's comparisons only; bool stores truth values",
    "f4_e3m0": "f4_e3m0 (code 15) is deprecated in oneDNN and can no longer be stored; use f4_e2m1",
}


def as_data_type(value: DataTypeLike) -> DataType:
    """The data type that `value` names: a name of it, a NumPy or ml_dtypes type, or a `DataType` itself.

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


def as_number_type(value: DataTypeLike) -> DataType:
    """The data type that `value` names, one of oneDNN: of numbers, with which primitives compute.

    Raises:
        InvalidArguments: as `as_data_type`, or the type only moves.

    >>> as_number_type("bf16").name
    'bf16'
    """
    data_type = as_data_type(value)
    if not data_type.is_number:
        raise InvalidArguments(f"data type {data_type} only moves: use one of {', '.join(DATA_TYPES)}")
    return data_type


def _numpy_dtype(value: object) -> np.dtype[np.generic] | None:
    """The NumPy type that `value` is. No text is read, since NumPy's "u8" is u64, and no array for its type."""
    if not isinstance(value, (np.dtype, type)):
        return None
    try:
        return np.dtype(value)
    except (TypeError, ValueError):
        return None


def _refusal(value: object, dtype: np.dtype[np.generic] | None) -> str:
    name = value if isinstance(value, str) else None if dtype is None else dtype.name
    if name in _REFUSED:
        return f"no descriptor can be made of data type {name}: {_REFUSED[name]}"
    if dtype is not None and dtype.newbyteorder("=") in _BY_NUMPY:
        return f"data type {dtype.str} is not in this machine's byte order: convert with array.astype({name!r})"
    known = ", ".join(ALL_TYPES)
    what = shown(value) if dtype is None else name
    return f"unknown data type {what}: use one of {known}, or the NumPy or ml_dtypes type of the same meaning"
