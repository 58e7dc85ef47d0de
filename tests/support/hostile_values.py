"""Values that no caller should pass, and some that callers do pass: over a hundred, made anew for each call.

Types, extents, texts, containers and objects: integers at every border and too long to print, floats that are none,
texts with NUL and half a surrogate pair, arrays where a truth value is expected, classes in the place of objects,
containers that hold themselves, objects whose `repr` fails, and every kind of value of Inlay's own.
"""

import datetime
import decimal
import fractions
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import inlay
from inlay import FormatTag, Layout, Memory, MemoryDesc


class Unprintable:
    """An object whose `repr` fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class WrongIndex:
    """An object that says that it is an integer, and is none."""

    def __index__(self) -> int:
        return "one"  # type: ignore[return-value]


class Vague:
    """An object that equals nothing, not even itself, and has every attribute."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Text(str):
    """A text of a class of its own."""


def endless() -> list[Any]:
    """A list that holds itself."""
    values: list[Any] = []
    values.append(values)
    return values


def generated() -> Iterator[int]:
    """An iterator, which can be read once."""
    yield from (1, 2, 3)


_BORDERS = (12, 13, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1)
_ODD_FLOATS = (0.0, -0.0, 1.0, 1.5, -2.5, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf)
NUMBERS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, *_BORDERS, 2**64, 2**100, 10**5000, -(10**5000), *_ODD_FLOATS),
    *(1j, complex(math.nan, 1), decimal.Decimal("1.5"), fractions.Fraction(1, 3)),
)
TEXTS: tuple[Any, ...] = (
    *("", " ", "a", "ab", "abcd", "nchw", "nChw8c", "any", "undef", "f32", "relu", "3", "\u0663", "-1", "nan", "\0"),
    *("a\0b", "\ud800", "\U0001f642", "\x1b[31m", "a" * 10_000, "9" * 5_000, "(" * 2_000, "a -> a", "../x", Text("ab")),
    *(b"", b"a", b"\xff\xfe", b"\x89INLAY\r\n", bytearray(b"ab"), memoryview(b"ab")),
)
_TUPLES = (
    *((), (1,), (1, 2), (2, -1), (0, 0), (None,), ("a", "b"), (1.5, 2), (10**5000,), (2**63, 2), (math.nan,)),
    *(((1,),), (1,) * 13),
)
CONTAINERS: tuple[Callable[[], Any], ...] = (
    *((lambda value=value: value) for value in (*_TUPLES, frozenset({1}), range(3))),
    *(list, lambda: [1], lambda: [1, [2, 3]], lambda: [[1], [2, 3]], lambda: [None] * 3, endless, generated),
    *(dict, lambda: {1: 2}, lambda: {"a": 1}, lambda: {"src": None}, set, lambda: {1}),
    *(lambda: zip((1,), (2,), strict=True), lambda: iter([1]), lambda: [endless()]),
)
_SCALARS = (
    *(np.int8(3), np.int64(-1), np.float32(math.nan), np.bool_(True), np.str_("ab"), np.datetime64("2020-01-01")),
    *(np.void(b"abc"), ml_dtypes.bfloat16(1.5)),
)
_ARRAYS = (
    *(np.arange(4), np.zeros(0), np.zeros((2, 3), np.float32), np.array(3), np.array(None, object), np.array(["a"])),
    *(np.ma.masked_less([1.0, 2.0], 2), np.array([1j]), np.zeros(2, [("a", "i4")]), np.zeros((2, 3), ">f4")),
    *(np.array([math.nan]), np.arange(24.0).reshape(4, 6)[:, ::-1], np.ones((2, 3), bool)),
)
ARRAYS: tuple[Callable[[], Any], ...] = (
    *((lambda value=value: value) for value in _SCALARS),
    *((lambda value=value: value.copy()) for value in _ARRAYS),
)
_OBJECTS = (
    *(type, int, np.float32, MemoryDesc, inlay.Scales, len, ..., NotImplemented, np, np.dtype("f4"), np.dtype("O")),
)
OBJECTS: tuple[Callable[[], Any], ...] = (
    *(object, Unprintable, WrongIndex, Vague, lambda: [Unprintable()], lambda: Path("x"), lambda: slice(1, 2)),
    *((lambda value=value: value) for value in _OBJECTS),
    *(lambda: lambda *_: None, lambda: datetime.datetime(2020, 1, 1), lambda: ValueError("x")),
)
OWN: tuple[Callable[[], Any], ...] = (
    *(MemoryDesc, lambda: MemoryDesc((2, 3), "f32", "any"), lambda: MemoryDesc((inlay.RUNTIME, 3), "f32", "ab")),
    *(lambda: MemoryDesc.csr((2, 3), "f32", 2), lambda: MemoryDesc.packed((2, 3), "f32", 2)),
    *(lambda: MemoryDesc.host_scalar("f32"), lambda: MemoryDesc.opaque((2, 3), "f32", "wino", 64)),
    *(lambda: MemoryDesc((2, 3), "bool"), lambda: MemoryDesc((0, 3), "f32"), lambda: MemoryDesc((2, 17), "s4", "aB8b")),
    *(lambda: Layout.from_strides((2, 3), (-3, 1)), lambda: Layout((), ()), lambda: FormatTag((0, 1))),
    *(lambda: Memory(MemoryDesc((2, 3), "f32")), lambda: Memory(MemoryDesc.host_scalar("f32"), 1.0)),
    *(lambda: Memory(MemoryDesc.csr((2, 3), "f32", 0)), inlay.Attributes, inlay.Extras, inlay.Scales, inlay.ZeroPoints),
    *(lambda: inlay.DataType("f32"), lambda: inlay.DataType("bool"), lambda: inlay.Axis(3), lambda: inlay.Digit(2, 3)),
)

MAKERS: tuple[Callable[[], Any], ...] = (
    *((lambda value=value: value) for value in (*NUMBERS, *TEXTS)),
    *CONTAINERS,
    *ARRAYS,
    *OBJECTS,
    *OWN,
)
"""What makes each value: some can be used once only."""


def described(value: Any) -> str:
    """A value as reports name it, however long it is."""
    if isinstance(value, int) and value.bit_length() > 100:
        return f"int of {value.bit_length()} bits"
    try:
        return f"{type(value).__name__} {value!r}"[:80]
    except (RuntimeError, ValueError):
        return type(value).__name__
