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


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary float type: a sign, an exponent and a mantissa.

    >>> form = FLOAT_FORMATS["f8_e4m3"]
    >>> form.bias, hex(form.greatest), form.quantum == 2**-9
    (7, '0x7e', True)
    """

    exponent_bits: int
    """Bits of the exponent."""
    mantissa_bits: int
    """Bits of the mantissa."""
    beyond: Literal["infinity", "nan", "saturates"] = "infinity"
    """What lies beyond the greatest finite number."""

    @property
    def bits(self) -> int:
        """All bits of an element."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent's field."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal number, and the one that spaces the subnormal ones."""
        return 1 - self.bias

    @property
    def quantum(self) -> float:
        """The smallest positive number."""
        return 2.0 ** (self.lowest - self.mantissa_bits)

    @property
    def greatest(self) -> int:
        """The code of the greatest finite number."""
        all_ = (1 << self.bits - 1) - 1
        return {"infinity": all_ - (1 << self.mantissa_bits), "nan": all_ - 1, "saturates": all_}[self.beyond]

    @property
    def last(self) -> int:
        """The code, without its sign, of what lies beyond the range: infinity, NaN or the greatest number."""
        return self.greatest + (self.beyond != "saturates")

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN quiet."""
        return 1 << self.mantissa_bits - 1

    @property
    def exponent(self) -> int:
        """The bits of the exponent, all set."""
        return (1 << self.bits - 1) - (1 << self.mantissa_bits)


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
    """The LLVM type that holds one element in a register: a float that LLVM computes with, or an integer of whole bytes
    for the code."""
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
        return _make_type(self.name, self.code, 8, self.kind, self.dtype, self.lowest, self.highest)

    @property
    def widened(self) -> "DataType":
        """A type of whole bytes that has all its numbers: for a sub-byte type another one, else the type itself.

        >>> [DataType(name).widened.name for name in ("s4", "u4", "f4_e2m1", "bf16")]
        ['s8', 'u8', 'f32', 'bf16']
        """
        if not self.is_sub_byte:
            return self
        return DATA_TYPES[{"signed": "s8", "unsigned": "u8"}.get(self.kind, "f32")]

    @property
    def moved_as(self) -> "DataType":
        """A number of the same whole bytes, whose moves change no bit; two of them make an element of 128 bits.

        >>> [DataType(name).moved_as.name for name in ("bool", "u16", "complex128")]
        ['u8', 'f16', 's64']
        """
        return DATA_TYPES[{1: "u8", 2: "f16", 4: "s32"}.get(self.itemsize, "s64")]

    @property
    def is_exponent(self) -> bool:
        """Whether an element is an exponent alone, a power of two: it has no zero, no sign and no mantissa.

        >>> [name for name, data_type in DATA_TYPES.items() if data_type.is_exponent]
        ['e8m0']
        """
        return self.kind == "float" and self.lowest > 0

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


def _make_type(name: str, code: int, bits: int, kind: NumberKind, dtype: object, *limits: float) -> DataType:
    data_type = object.__new__(DataType)
    llvm = {"f32": "float", "f64": "double"}.get(name, f"i{max(bits, 8)}")
    values = (name, code, bits, kind, np.dtype(cast(Any, dtype)), llvm, *limits)
    for field, value in zip(DataType.__slots__, values, strict=True):
        object.__setattr__(data_type, field, value)
    return data_type


def _integer(name: str, code: int, bits: int, dtype: object) -> DataType:
    signed = name.startswith("s")
    top = 2 ** (bits - 1) if signed else 2**bits
    kind: NumberKind = "signed" if signed else "unsigned"
    return _make_type(name, code, bits, kind, dtype, -top if signed else 0, top - 1)


def _float(name: str, code: int, numpy_type: object, bits: int | None = None) -> DataType:
    dtype = np.dtype(cast(Any, numpy_type))
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return _make_type(name, code, bits or dtype.itemsize * 8, "float", dtype, float(limits.min), float(limits.max))


def _moved_type(name: str, dtype: object) -> DataType:
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
"""The data types of oneDNN by name: those that convert and that primitives compute with."""

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
"""How the bits of each float type with a mantissa are read."""

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


def number_kind(dtype: np.dtype[Any]) -> Literal["float", "integer"] | None:
    """Whether arrays of a NumPy or ml_dtypes type hold floats or integers; None if they hold no real numbers.

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
