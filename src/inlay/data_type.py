"""The data types of descriptors, in one table.

A data type has a width in bits, a range of values, and a name in oneDNN (with a code), in NumPy with ml_dtypes, and in
LLVM. Layouts count elements and do not depend on data types; sizes in bytes, memory and reorders do. Types of less than
8 bits are called sub-byte: two elements share a byte, and the one of even offset is in the low four bits.

`DATA_TYPES` are the types of oneDNN: numbers, which reorders convert and primitives compute with. `MOVED_TYPES` are
other types of NumPy's arrays. They are packed, reordered and stored as bits of their width, but never converted.

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


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """Encoding of a binary floating-point type: sign, exponent and mantissa.

    >>> form = FLOAT_FORMATS["f8_e4m3"]
    >>> form.bias, hex(form.greatest_code), form.quantum == 2**-9
    (7, '0x7e', True)
    """

    exponent_bits: int
    """Number of bits of the exponent."""
    mantissa_bits: int
    """Number of bits of the mantissa."""
    overflow: Literal["infinity", "nan", "saturates"] = "infinity"
    """Result of overflow: infinity, NaN, or the greatest finite number."""

    @property
    def bits(self) -> int:
        """The number of bits of an element."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """The exponent bias: the number that is subtracted from the exponent's bits."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def lowest_exponent(self) -> int:
        """The exponent of the smallest normal number, which is also that of subnormal numbers."""
        return 1 - self.bias

    @property
    def quantum(self) -> float:
        """The smallest positive number, a subnormal."""
        return 2.0 ** (self.lowest_exponent - self.mantissa_bits)

    @property
    def greatest_code(self) -> int:
        """The bits of the greatest finite number."""
        all_ones = (1 << self.bits - 1) - 1
        infinity = all_ones - (1 << self.mantissa_bits) + 1
        return {"infinity": infinity - 1, "nan": all_ones - 1, "saturates": all_ones}[self.overflow]

    @property
    def overflow_code(self) -> int:
        """The bits, without the sign, of the result of overflow: infinity, NaN or the greatest finite number."""
        return self.greatest_code + (self.overflow != "saturates")

    @property
    def quiet_bit(self) -> int:
        """The bit of the mantissa that is set in a quiet NaN."""
        return 1 << self.mantissa_bits - 1

    @property
    def exponent_mask(self) -> int:
        """The bit mask of the exponent."""
        return (1 << self.bits - 1) - (1 << self.mantissa_bits)


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class DataType:
    """A data type and its names.

    `DataType(value)` returns the type for oneDNN's name, a NumPy or ml_dtypes type or its name, or a `DataType`. There
    is one object of each type. It equals its name and has the same hash, so it can be used as a dictionary key in place
    of the name. It is not a `str`, because NumPy reads the text "u8" as a type of 64 bits. NumPy accepts it as a dtype.

    Raises:
        InvalidArguments: descriptors cannot have the type, see `as_data_type`.

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
    """Kind of number; `bits` for a type that is moved but never converted (`MOVED_TYPES`)."""
    dtype: np.dtype[np.generic]
    """Type of a NumPy array of such elements, from NumPy or ml_dtypes."""
    llvm: str
    """LLVM type of one element in a register: `float`, `double`, or an integer of whole bytes that holds its bits."""
    lowest: float
    """Smallest finite value; 0 for types of kind `bits`."""
    highest: float
    """Largest finite value; 0 for types of kind `bits`."""

    def __new__(cls, value: "DataTypeLike") -> "DataType":
        """Return the only object of the type that `value` names."""
        return as_data_type(value)

    @property
    def itemsize(self) -> int:
        """The size of one element in whole bytes: 1 for sub-byte types, as in oneDNN's `data_type_size`."""
        return self.bits // 8 or 1

    @property
    def is_sub_byte(self) -> bool:
        """True if two elements share one byte."""
        return self.bits < 8

    @property
    def is_number(self) -> bool:
        """True if reorders can convert the values; other types are moved bit by bit.

        >>> DataType("f32").is_number, DataType("complex64").is_number
        (True, False)
        """
        return self.kind != "bits"

    @property
    def is_signed(self) -> bool:
        """True if the type has negative numbers.

        >>> [t.name for t in DATA_TYPES.values() if not t.is_signed]
        ['u8', 'u4', 'e8m0']
        """
        return self.lowest < 0

    @property
    def has_zero(self) -> bool:
        """True if the type has the number zero: false only for e8m0, which consists of an exponent alone.

        >>> DataType("f32").has_zero, DataType("e8m0").has_zero
        (True, False)
        """
        return self.lowest <= 0

    @property
    def has_infinity(self) -> bool:
        """True if the type has infinities.

        >>> [t.name for t in DATA_TYPES.values() if t.has_infinity]
        ['f16', 'bf16', 'f32', 'f64', 'f8_e5m2']
        """
        return self.name in _WITH_INFINITY

    @property
    def has_nan(self) -> bool:
        """True if the type has NaN.

        >>> [t.name for t in DATA_TYPES.values() if t.kind == "float" and not t.has_nan]
        ['f4_e2m1']
        """
        return self.kind == "float" and self.name != "f4_e2m1"

    @property
    def least_positive(self) -> float:
        """The smallest positive number: a subnormal for floats, 1 for integers; 0 for types of kind `bits`.

        >>> DataType("e8m0").least_positive == 2.0**-127, DataType("s8").least_positive
        (True, 1.0)
        """
        if self.kind != "float":
            return float(self.is_number)
        limits = ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]
        return float(limits.smallest_subnormal) if self.has_zero else self.lowest

    @property
    def in_whole_bytes(self) -> "DataType":
        """The variant of a sub-byte type with one element per byte; any other type itself.

        >>> DataType("s4").in_whole_bytes.bits, DataType("s8").in_whole_bytes is DataType("s8")
        (8, True)
        """
        if not self.is_sub_byte:
            return self
        return _make_type(self.name, self.code, 8, self.kind, self.dtype, self.lowest, self.highest)

    @property
    def widened(self) -> "DataType":
        """A type of whole bytes that contains all numbers of a sub-byte type; any other type itself.

        >>> [DataType(name).widened.name for name in ("s4", "u4", "f4_e2m1", "bf16")]
        ['s8', 'u8', 'f32', 'bf16']
        """
        if not self.is_sub_byte:
            return self
        return DATA_TYPES[{"signed": "s8", "unsigned": "u8"}.get(self.kind, "f32")]

    @property
    def moved_as(self) -> "DataType":
        """The type of numbers that is moved in place of this one, bit by bit; two of them for 128 bits.

        >>> [DataType(name).moved_as.name for name in ("bool", "u16", "complex128")]
        ['u8', 'f16', 's64']
        """
        return DATA_TYPES[{1: "u8", 2: "f16", 4: "s32"}.get(self.itemsize, "s64")]

    @property
    def is_exponent(self) -> bool:
        """True if an element is an exponent alone, a power of two without zero, sign and mantissa.

        >>> [name for name, data_type in DATA_TYPES.items() if data_type.is_exponent]
        ['e8m0']
        """
        return self.kind == "float" and self.lowest > 0

    def __eq__(self, other: object) -> bool:
        """Return True if `other` is this type or its name."""
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        """Return the hash of the name."""
        return hash(self.name)

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def __repr__(self) -> str:
        """Return the call that returns this type."""
        return f"DataType({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by name, as there is one object of each type."""
        return DataType, (self.name,)


DataTypeLike: TypeAlias = DataType | str | np.dtype[np.generic] | type[np.generic]
"""A data type, its name such as `bf16`, or a type of NumPy or ml_dtypes."""


def _make_type(name: str, code: int, bits: int, kind: NumberKind, dtype: object, *limits: float) -> DataType:
    """Create a data type; `limits` are its smallest and largest finite value."""
    data_type = object.__new__(DataType)
    llvm = {"f32": "float", "f64": "double"}.get(name, f"i{max(bits, 8)}")
    values = (name, code, bits, kind, np.dtype(cast(Any, dtype)), llvm, *limits)
    for field, value in zip(DataType.__slots__, values, strict=True):
        object.__setattr__(data_type, field, value)
    return data_type


def _integer(name: str, code: int, bits: int, dtype: object) -> DataType:
    """Create a data type of integers."""
    signed = name.startswith("s")
    top = 2 ** (bits - 1) if signed else 2**bits
    kind: NumberKind = "signed" if signed else "unsigned"
    return _make_type(name, code, bits, kind, dtype, -top if signed else 0, top - 1)


def _float(name: str, code: int, numpy_type: object, bits: int | None = None) -> DataType:
    """Create a data type of floats; `bits` differ from those of the NumPy type for sub-byte types."""
    dtype = np.dtype(cast(Any, numpy_type))
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return _make_type(name, code, bits or dtype.itemsize * 8, "float", dtype, float(limits.min), float(limits.max))


def _moved_type(name: str, dtype: object) -> DataType:
    """Create a data type that is moved but never converted."""
    bits = np.dtype(cast(Any, dtype)).itemsize * 8
    return _make_type(name, 0, bits, "bits", dtype, 0, 0)


_NUMBERS = (
    _float("f16", 1, np.float16),
    _float("bf16", 2, ml_dtypes.bfloat16),
    _float("f32", 3, np.float32),
    _integer("s32", 4, 32, np.int32),
    _integer("s8", 5, 8, np.int8),
    _integer("u8", 6, 8, np.uint8),
    _float("f64", 7, np.float64),
    _float("f8_e5m2", 9, ml_dtypes.float8_e5m2),
    _float("f8_e4m3", 10, ml_dtypes.float8_e4m3fn),
    _integer("s4", 11, 4, ml_dtypes.int4),
    _integer("u4", 12, 4, ml_dtypes.uint4),
    _float("e8m0", 13, ml_dtypes.float8_e8m0fnu),
    _float("f4_e2m1", 14, ml_dtypes.float4_e2m1fn, bits=4),
    _integer("s64", 16, 64, np.int64),
)

_BITS = (
    _moved_type("bool", np.bool_),
    _moved_type("s16", np.int16),
    _moved_type("u16", np.uint16),
    _moved_type("u32", np.uint32),
    _moved_type("u64", np.uint64),
    _moved_type("complex64", np.complex64),
    _moved_type("complex128", np.complex128),
)

DATA_TYPES: Mapping[str, DataType] = MappingProxyType({t.name: t for t in _NUMBERS})
"""Data types of oneDNN by name: numbers, which reorders convert and primitives compute with."""

FLOAT_FORMATS: Mapping[str, FloatFormat] = MappingProxyType(
    {
        "f64": FloatFormat(11, 52),
        "f32": FloatFormat(8, 23),
        "bf16": FloatFormat(8, 7),
        "f16": FloatFormat(5, 10),
        "f8_e5m2": FloatFormat(5, 2),
        "f8_e4m3": FloatFormat(4, 3, "nan"),
        "f4_e2m1": FloatFormat(2, 1, "saturates"),
    }
)
"""Encodings of the float types with a mantissa, by name."""

MOVED_TYPES: Mapping[str, DataType] = MappingProxyType({t.name: t for t in _BITS})
"""Data types that are moved but never converted, by name."""

ALL_TYPES: Mapping[str, DataType] = MappingProxyType({**DATA_TYPES, **MOVED_TYPES})
"""All data types by name."""

_WITH_INFINITY = frozenset(t.name for t in _NUMBERS if t.kind == "float" and np.isinf(t.dtype.type(np.inf)))
_BY_NUMPY = {t.dtype: t for t in ALL_TYPES.values()}
_BY_TEXT = {**{t.dtype.name: t for t in ALL_TYPES.values()}, **ALL_TYPES}
_REFUSED = {
    "undef": "undef is the absence of a type",
    "boolean": "boolean (code 8) is the result type of oneDNN's comparisons only; bool stores truth values",
    "f4_e3m0": "f4_e3m0 (code 15) is deprecated in oneDNN and can no longer be stored; use f4_e2m1",
}


def as_data_type(value: DataTypeLike) -> DataType:
    """Return the data type for oneDNN's name, a NumPy or ml_dtypes type or its name, or a `DataType`.

    Raises:
        InvalidArguments: `value` is not a data type, or is one such as boolean or f4_e3m0 that oneDNN names but does
            not allow in descriptors.

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
    """Return the data type of `value`, which must be a type of numbers, as primitives compute with.

    Raises:
        InvalidArguments: as `as_data_type`, or the type is one of `MOVED_TYPES`.

    >>> as_number_type("bf16").name
    'bf16'
    """
    data_type = as_data_type(value)
    if not data_type.is_number:
        raise InvalidArguments(f"data type {data_type} can only be copied: use one of {', '.join(DATA_TYPES)}")
    return data_type


def number_kind(dtype: np.dtype[Any]) -> Literal["float", "integer"] | None:
    """Return "float" or "integer" for a NumPy or ml_dtypes type of real numbers, and None for other types.

    >>> [number_kind(np.dtype(kind)) for kind in (np.uint16, ml_dtypes.bfloat16, np.complex64)]
    ['integer', 'float', None]
    """
    if dtype.kind in "iuf":
        return "float" if dtype.kind == "f" else "integer"
    data_type = _BY_NUMPY.get(dtype)
    if data_type is None or not data_type.is_number:
        return None
    return "float" if data_type.kind == "float" else "integer"


def _numpy_dtype(value: object) -> np.dtype[np.generic] | None:
    """Return the NumPy type that `value` is, or None; text is not accepted, because NumPy's "u8" is u64."""
    if not isinstance(value, (np.dtype, type)):
        return None
    try:
        return np.dtype(value)
    except (TypeError, ValueError):
        return None


def _refusal(value: object, dtype: np.dtype[np.generic] | None) -> str:
    """Return the error text for a value that is not a data type of descriptors."""
    name = value if isinstance(value, str) else None if dtype is None else dtype.name
    if name in _REFUSED:
        return f"no descriptor can be made of data type {name}: {_REFUSED[name]}"
    if dtype is not None and dtype.newbyteorder("=") in _BY_NUMPY:
        return f"data type {dtype.str} is not in this machine's byte order: convert with array.astype({name!r})"
    known = ", ".join(ALL_TYPES)
    what = shown(value) if dtype is None else name
    meant = None if name is None else _NAMES_ELSEWHERE.get(name.lower())
    use = "use" if meant is None else f"did you mean {meant}? Use"
    return f"unknown data type {what}: {use} one of {known}, or the NumPy or ml_dtypes type of the same meaning"


_NAMES_ELSEWHERE = {
    **dict.fromkeys(("half", "fp16"), "f16"),
    **dict.fromkeys(("float", "fp32", "single"), "f32"),
    **dict.fromkeys(("double", "fp64"), "f64"),
    **dict.fromkeys(("bfloat", "brain", "bfp16"), "bf16"),
    **{f"i{bits}": f"s{bits}" for bits in (16, 32, 64)},
    **dict.fromkeys(("char", "byte"), "u8"),
    **dict.fromkeys(("int", "integer"), "s32"),
    **dict.fromkeys(("fp8", "f8", "fp8_e4m3", "e4m3", "e4m3fn", "f8e4m3"), "f8_e4m3"),
    **dict.fromkeys(("fp8_e5m2", "e5m2", "f8e5m2"), "f8_e5m2"),
    **dict.fromkeys(("fp4", "e2m1", "fp4_e2m1", "mxfp4"), "f4_e2m1"),
}
"""The data type that is meant by a name that other programs give it."""
