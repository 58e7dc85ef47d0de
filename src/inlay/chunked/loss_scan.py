"""What a type loses of the elements of float32, counted in one pass of machine code.

An element is compared by its bits. Those without the sign order magnitudes; the *key* of a number, its bits where it is
positive and their complement but for the sign where it is negative, orders all numbers as signed integers, so that an
interval of numbers is an interval of integers. Subnormal numbers count whatever mode the processor is in, and a
signaling NaN raises nothing.

    >>> scan = LossScan(saturated=((200.0, inf), (-inf, -200.0)), vanishing=0.5)
    >>> str(scan.count(np.array([0.0, 0.25, -0.5, 1e4, np.nan], np.float32)))
    'ScanCounts(nonzero=4, vanishing=2, saturated=1, nan=1)'
"""

from ctypes import CFUNCTYPE, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.errors import Unimplemented
from inlay.memory.buffers import address_of
from inlay.reordering.linking import linked
from inlay.reordering.target import Target, host_target

Floats = npt.NDArray[np.float32]
Interval = tuple[float, float]
"""The least and the greatest number; none where the first is greater."""

_SYMBOL = "inlay_count_loss"
_FUNCTION = CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p)
_LANES = 16
_MOST = _LANES << 31  # elements of one call: a lane counts in 32 bits
_SIGN = 0x7FFF_FFFF
_INFINITY = 0x7F80_0000
_COUNTS = ("nonzero", "vanishing", "saturated", "nan")


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """Numbers of elements."""

    nonzero: int
    """Those that are not zero, NaN among them."""
    vanishing: int
    """Those that are not zero and at most as great as the greatest that vanishes."""
    saturated: int
    """Those in the intervals that saturate, zero left out."""
    nan: int
    """Those that are NaN."""


class LossScan:
    """A count of elements in two intervals and below a magnitude."""

    __slots__ = ("_words",)

    def __init__(self, saturated: tuple[Interval, Interval], vanishing: float) -> None:
        """Count what is in one of two intervals apart from each other, whose ends belong to them, and what vanishes.

        Args:
            saturated: the intervals, of numbers of float32 or infinities.
            vanishing: the greatest magnitude that vanishes, a number of float32; negative where none does.
        """
        words: list[int] = []
        for least, greatest in saturated:
            is_empty = least > greatest
            words += [0, 0] if is_empty else [_key(least), _key(greatest) - _key(least) + 1]
        words.append(0 if vanishing < 0 else int(np.float32(vanishing).view(np.int32)))
        self._words = np.array(words, np.int64).astype(np.uint32)

    def count(self, elements: Floats) -> ScanCounts:
        """Count the elements of a dense array of one axis."""
        function = _scan_function()
        counts = np.zeros((len(_COUNTS), _LANES), np.uint32)
        blocks = 0 if function is None or elements.size > _MOST else elements.size // _LANES
        if function is not None and blocks:
            function(address_of(elements), blocks, address_of(self._words), address_of(counts))
        totals: list[int] = counts.sum(axis=1, dtype=np.int64).tolist()
        if blocks * _LANES < elements.size:
            rest = self._count_rest(elements[blocks * _LANES :].view(np.uint32))
            totals = [total + n for total, n in zip(totals, rest, strict=True)]
        return ScanCounts(*totals)

    def _count_rest(self, bits: npt.NDArray[np.uint32]) -> tuple[int, ...]:
        """The same by NumPy."""
        magnitudes = bits & np.uint32(_SIGN)
        keys = bits ^ ((bits.view(np.int32) >> 31).view(np.uint32) & np.uint32(_SIGN))
        first, first_length, second, second_length, vanishing = self._words
        nonzero = magnitudes != 0
        saturated = ((keys - first < first_length) | (keys - second < second_length)) & nonzero
        found = (nonzero, magnitudes - np.uint32(1) < vanishing, saturated, magnitudes > _INFINITY)
        return tuple(int(np.count_nonzero(mask)) for mask in found)


def greatest_below(bound: float, *, is_included: bool) -> float:
    """The greatest number of float32 below `bound`, or not above it.

    >>> greatest_below(1.0, is_included=True), greatest_below(128.5, is_included=False) < 128.5
    (1.0, True)
    """
    with np.errstate(over="ignore"):
        nearest = np.float32(bound)
    # Compared as Python's numbers: NumPy would round the bound to float32 first.
    if float(nearest) > bound or (float(nearest) == bound and not is_included):
        nearest = np.nextafter(nearest, np.float32(-inf))
    return float(nearest)


def _key(number: float) -> int:
    bits = int(np.float32(number).view(np.int32))
    return bits if bits >= 0 else bits ^ _SIGN


@cache
def _scan_function() -> Any:
    """The machine code; None where there is none for a processor."""
    try:
        target = host_target()
    except Unimplemented:
        return None
    text = _module(target)
    (address,) = linked(text, lambda: text, target, _SYMBOL)
    return _FUNCTION(address)


def _module(target: Target) -> str:
    """A loop over vectors, at least one; each lane counts for itself."""
    vector, masks = f"<{_LANES} x i32>", f"<{_LANES} x i1>"
    words = ("first", "first_length", "second", "second_length", "most")
    lines = [f"define void @{_SYMBOL}(ptr %data, i64 %blocks, ptr %words, ptr %counts) #0 {{", "entry:"]
    for i, name in enumerate(words):
        lines += [f"%{name}_at = getelementptr i32, ptr %words, i64 {i}", f"%{name}_one = load i32, ptr %{name}_at"]
        lines += [f"%{name}_low = insertelement {vector} poison, i32 %{name}_one, i64 0"]
        lines += [f"%{name} = shufflevector {vector} %{name}_low, {vector} poison, {vector} zeroinitializer"]
    lines += ["br label %block", "block:", "%i = phi i64 [0, %entry], [%next, %block]"]
    lines += [f"%{name}0 = phi {vector} [zeroinitializer, %entry], [%{name}1, %block]" for name in _COUNTS]
    lines += [f"%at = getelementptr {vector}, ptr %data, i64 %i", f"%bits = load {vector}, ptr %at, align 1"]
    lines += [f"%size = and {vector} %bits, splat (i32 {_SIGN})", f"%signs = ashr {vector} %bits, splat (i32 31)"]
    lines += [f"%turned = and {vector} %signs, splat (i32 {_SIGN})", f"%key = xor {vector} %bits, %turned"]
    lines += [f"%less = sub {vector} %size, splat (i32 1)", f"%key1 = sub {vector} %key, %first"]
    lines += [f"%key2 = sub {vector} %key, %second", f"%in1 = icmp ult {vector} %key1, %first_length"]
    lines += [f"%in2 = icmp ult {vector} %key2, %second_length", f"%in = or {masks} %in1, %in2"]
    lines += [f"%is_nonzero = icmp ne {vector} %size, zeroinitializer"]
    lines += [f"%is_vanishing = icmp ult {vector} %less, %most", f"%is_saturated = and {masks} %in, %is_nonzero"]
    lines += [f"%is_nan = icmp ugt {vector} %size, splat (i32 {_INFINITY})"]
    for name in _COUNTS:
        lines += [f"%{name}_minus = sext {masks} %is_{name} to {vector}"]
        lines += [f"%{name}1 = sub {vector} %{name}0, %{name}_minus"]
    lines += ["%next = add i64 %i, 1", "%is_more = icmp ult i64 %next, %blocks"]
    lines += ["br i1 %is_more, label %block, label %done", "done:"]
    for i, name in enumerate(_COUNTS):
        lines += [f"%{name}_to = getelementptr {vector}, ptr %counts, i64 {i}"]
        lines += [f"store {vector} %{name}1, ptr %{name}_to, align 4"]
    return "\n".join([*lines, "ret void", "}", f"attributes #0 = {{ nounwind {target.attributes} }}\n"])
