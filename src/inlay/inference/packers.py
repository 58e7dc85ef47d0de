"""Observations from packers: functions that are called on arrays of indices.

Element k gets the label k + 1 in one series of calls and N - k in a second one. A label is written in digits that the
data type holds exactly, one call for each digit: one call for s32, two for 1,000 elements of u8, five for f4_e2m1.

    place of the packed buffer      first series    second series    the place holds
    the labels of one element            6               N - 5       element 5
    the same value in all calls          0                 0         padding
    the initial bytes in all calls                                   nothing: the packer does not write there
    anything else                                                    a value that was computed, or depends on values

The second series excludes chance: padding that holds 7 is not taken for element 6. One more call, with zeros, tells
padding from sums, which are the same in both series.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.inference.observation import Observation, coordinate_text, places_of
from inlay.inference.results import Diagnosis, Offsets
from inlay.inference.tables import codes_of
from inlay.layout import Dims
from inlay.memory.buffers import decode_elements, encode_elements

Codes: TypeAlias = npt.NDArray[Any]
"""Unsigned codes of elements, one for each."""

_MOST_DIGIT_BITS = 31
_E8M0_ONE = 127
"""Code of 1.0 in e8m0, which has no zero."""
_GUARD = 4096
"""Bytes before and after the buffer of a C function."""
_GUARD_BYTE = 0xCB
_PACKER_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, LookupError, NameError, OSError),
    *(RuntimeError, TypeError, ValueError, ctypes.ArgumentError),
)
"""Built-in errors that a packer raises for arguments that it does not accept, or because of a mistake in it."""


@dataclass(frozen=True, slots=True)
class IndexDigits:
    """The digits in which the elements of a data type carry indices."""

    data_type: DataType
    """Data type of the elements."""
    base: int
    """Number of values of one digit; the type holds all of them exactly."""

    @classmethod
    def of(cls, data_type: DataType) -> "IndexDigits":
        """Return the digits of a data type: the largest power of two of consecutive integers, at most 2**31.

        Raises:
            Unimplemented: elements have 128 bits.

        >>> [IndexDigits.of(DataType(name)).base for name in ("u8", "f16", "f8_e4m3", "f4_e2m1", "bool")]
        [256, 2048, 16, 4, 2]
        """
        if data_type.bits > 64:
            raise Unimplemented(f"{data_type} has {data_type.bits} bits: infer the layout with a type of 64 or fewer")
        if not data_type.has_zero and data_type.is_number:
            return cls(data_type, 64)
        bits = 1
        with np.errstate(all="ignore"):
            for more in range(2, min(_MOST_DIGIT_BITS, data_type.bits) + 1):
                top = np.array([(1 << more) - 1], np.int64)
                if _to_integers(top.astype(data_type.dtype))[0] == top[0]:
                    bits = more
        return cls(data_type, 1 << bits)

    def encode(self, digits: Offsets) -> Codes:
        """Return the codes of digits."""
        if not self.data_type.has_zero and self.data_type.is_number:
            return (digits + _E8M0_ONE).astype(np.uint8)
        return encode_elements(digits.astype(self.data_type.dtype), self.data_type)

    def decode(self, codes: Codes) -> Offsets:
        """Return the digits of codes, -1 for a code that is no digit.

        Post-condition: decode(encode(d)) == d for 0 <= d < base.
        """
        if not self.data_type.has_zero and self.data_type.is_number:
            digits = codes.astype(np.int64) - _E8M0_ONE
        else:
            with np.errstate(all="ignore"):
                digits = _to_integers(decode_elements(codes, self.data_type))
        inside = (digits >= 0) & (digits < self.base)
        return np.where(inside & (self.encode(np.where(inside, digits, 0)) == codes), digits, -1)

    def places_for(self, count: int) -> int:
        """Return the number of digits of the numbers 0 to `count`."""
        needed = 1
        while self.base**needed <= count:
            needed += 1
        return needed


def _to_integers(values: npt.NDArray[Any]) -> Offsets:
    """Return values as 64-bit integers; those outside of the range become 0."""
    if values.dtype.kind in "iub":
        return values.astype(np.int64)
    numbers = values.real.astype(np.float64) if values.dtype.kind == "c" else values.astype(np.float64)
    return np.where(np.abs(numbers) < 2.0**40, numbers, 0).astype(np.int64)


PackerCall: TypeAlias = Callable[[npt.NDArray[Any], Codes], Codes]
"""A call of a packer: takes the logical array and the initial codes of the buffer, returns the codes after the call."""


@dataclass(frozen=True, slots=True, eq=False)
class PackerRun:
    """The codes that a packer wrote for two series of labels."""

    digits: IndexDigits
    """Digits of the labels."""
    written: tuple[tuple[Codes, ...], tuple[Codes, ...]]
    """Codes of the buffer after each call, by series and digit, least significant digit first."""
    initial: tuple[tuple[Codes, ...], tuple[Codes, ...]] | None
    """Codes of the buffer before each call; None if the packer returns a new buffer."""
    blank: Codes
    """Codes of the buffer after a call with an array of zeros."""

    def untouched(self) -> npt.NDArray[np.bool_]:
        """Return for each place True if no call changed it."""
        length = len(self.written[0][0])
        if self.initial is None:
            return np.zeros(length, bool)
        result = np.ones(length, bool)
        for series, before in zip(self.written, self.initial, strict=True):
            for codes, old in zip(series, before, strict=True):
                result &= codes == old
        return result

    def labels(self, series: int) -> Offsets:
        """Return the label in each place, -1 where there is none."""
        total = np.zeros(len(self.written[0][0]), np.int64)
        weight, is_label = 1, np.ones(len(total), bool)
        for codes in self.written[series]:
            digits = self.digits.decode(codes)
            is_label &= digits >= 0
            total += weight * digits
            weight *= self.digits.base
        return np.where(is_label, total, -1)

    def constants(self) -> npt.NDArray[np.bool_]:
        """Return for each place True if all calls left the same value there."""
        first = self.written[0][0]
        result: npt.NDArray[np.bool_] = self.blank == first
        for series in self.written:
            for codes in series:
                result &= codes == first
        return result


def run_packer(call: PackerCall, dims: Dims, data_type: DataType, length: int | None) -> PackerRun:
    """Call a packer on two series of labels; `length` is that of the buffer, None if the packer returns it.

    Raises:
        InvalidArguments: the packer fails, changes its input, or returns buffers of different lengths.
        Unimplemented: elements have 128 bits.
    """
    digits = IndexDigits.of(data_type)
    count = int(np.prod(dims, dtype=np.int64))
    labels = np.arange(1, count + 1)

    def pack(numbers: Offsets, before: Codes) -> Codes:
        codes = digits.encode(numbers)
        array = decode_elements(codes.copy(), data_type).reshape(dims)
        result = call(array, before.copy())
        changed = np.flatnonzero(encode_elements(array.reshape(-1), data_type) != codes)
        if changed.size:
            raise InvalidArguments(
                f"packer changes element {coordinate_text(int(changed[0]), dims)} of its input: let it read a copy"
            )
        return result

    written: list[list[Codes]] = [[], []]
    initial: list[list[Codes]] = [[], []]
    for series, numbers in enumerate((labels, labels[::-1])):
        poison = _poison(digits, series)
        for _ in range(digits.places_for(count)):
            initial[series].append(digits.encode(np.full(length or 0, poison)))
            written[series].append(pack(numbers % digits.base, initial[series][-1]))
            numbers = numbers // digits.base
    blank = pack(np.zeros(count, np.int64), digits.encode(np.full(length or 0, digits.base - 1)))
    lengths = {len(blank), *(len(codes) for series in written for codes in series)}
    if len(lengths) > 1:
        raise InvalidArguments(
            f"packer returns buffers of {min(lengths)} and of {max(lengths)} elements for arrays of the same dims: the "
            "length has to be the same"
        )
    both = tuple(written[0]), tuple(written[1])
    return PackerRun(digits, both, None if length is None else (tuple(initial[0]), tuple(initial[1])), blank)


def _poison(digits: IndexDigits, series: int) -> int:
    """Return the initial digit of the buffer, which differs between the series, so no constant equals both.

    No element has it in all calls of both series: only the last label is all the highest digits, with 1 in the other.
    """
    return digits.base - 1 - series


def observe_packer(run: PackerRun, dims: Dims, data_type: DataType) -> Observation:
    """Return what the codes that a packer wrote show."""
    count = int(np.prod(dims, dtype=np.int64))
    first, second = run.labels(0), run.labels(1)
    untouched, constant = run.untouched(), run.constants()
    is_element = (first >= 1) & (first <= count) & (first + second == count + 1) & ~untouched
    elements = np.where(is_element, first - 1, -1)
    fault = _find_foreign(run, is_element | untouched | constant, first, second, dims)
    places, repeated = places_of(elements, dims, count)
    if fault is None and (places < 0).any():
        # Labels that stay in place while elements are lost: the packer moves values, as sorting does.
        fixed = constant & ~untouched & ~is_element & (first >= 1) & (first <= count)
        if len(np.unique(first[fixed])) > 1:
            fault = _find_foreign(run, ~fixed, first, second, dims)
    padding = ~is_element & ~untouched
    notes = []
    values = np.unique(run.written[0][0][padding & constant])
    if values.size and (len(values) > 1 or values[0] != 0):
        value = decode_elements(values[values != 0][:1], data_type)[0]
        notes.append(f"padding holds {value}, not 0")
    fault = repeated if fault is None else fault
    return Observation(dims, data_type, places, padding, run.initial is not None, fault, tuple(notes), elements)


def _find_foreign(
    run: PackerRun, is_known: npt.NDArray[np.bool_], first: Offsets, second: Offsets, dims: Dims
) -> Diagnosis | None:
    """Return the fault if a place holds neither one element nor a constant, or None."""
    unknown = np.flatnonzero(~is_known)
    if not unknown.size:
        return None
    at = int(unknown[0])
    count = int(np.prod(dims, dtype=np.int64))
    both = int(first[at]) - 1, count - int(second[at])
    if all(0 <= k < count for k in both) and first[at] >= 1 and second[at] >= 1:
        problem = (
            f"place {at} holds element {coordinate_text(both[0], dims)} in one call and "
            f"{coordinate_text(both[1], dims)} in another: the place is not a function of coordinates"
        )
        return Diagnosis("values", problem, tuple(sorted(set(both))))
    problem = f"{len(unknown)} place{'s hold' if len(unknown) > 1 else ' holds'} values that are no element, first {at}"
    return Diagnosis("foreign", f"{problem}: the packer computes them, or leaves them unwritten")


# Calls


def call_packer(packer: Callable[..., Any], logical: object, buffer: object, what: str, advice: str = "") -> object:
    """Return what a packer returns, or `buffer` after a call of a packer that fills it; None for one that returns it.

    The text of an exception names the input by `what`, and ends with `advice`.

    Raises:
        InvalidArguments: the packer raises a built-in exception, or returns None in place of a buffer; exceptions of
            its own classes are not caught.
    """
    try:
        result = packer(logical) if buffer is None else packer(logical, buffer)
    except _PACKER_ERRORS as error:
        problem = f"packer raised {type(error).__name__} for {what}: {shown(str(error))}{advice}"
        raise InvalidArguments(problem) from error
    if buffer is None and result is None:
        raise InvalidArguments(
            "packer returns None: return the packed array or its bytes, or give length= for a packer that fills a "
            "buffer"
        )
    return result if buffer is None else buffer


def python_call(packer: Callable[..., Any], data_type: DataType, is_in_place: bool) -> PackerCall:
    """Return the call of a Python function: `packer(array)` returns the buffer, `packer(array, buffer)` fills it."""

    def call(array: npt.NDArray[Any], codes: Codes) -> Codes:
        buffer = _to_buffer(codes, data_type) if is_in_place else None
        advice = "" if is_in_place else "; with length=, it is called as packer(array, buffer)"
        packed = codes_of(
            call_packer(packer, array, buffer, f"an array of shape {array.shape}", advice), data_type, "packed buffer"
        )
        return packed[: len(codes)] if is_in_place else packed.copy()

    return call


def _to_buffer(codes: Codes, data_type: DataType) -> npt.NDArray[Any]:
    """Return a buffer with these codes: an array of the data type, or bytes of two 4-bit elements each."""
    if not data_type.is_sub_byte:
        return codes.view(data_type.dtype)
    even = np.append(codes, codes[:1])[: -(-len(codes) // 2) * 2].reshape(-1, 2)
    packed: npt.NDArray[np.uint8] = even[:, 0] | even[:, 1] << 4
    return packed


def c_call(function: Any, signature: Sequence[object], data_type: DataType) -> PackerCall:
    """Return the call of a C function; `signature` are its arguments, with "src" and "dst" for the two addresses.

    4-bit elements are two in a byte on both sides. The buffer is between two guards of 4096 bytes; a function that
    changes them is refused.

    Raises:
        InvalidArguments: `signature` does not contain "src" and "dst" once each, or another entry is neither an integer
            nor a value of ctypes.
    """
    entries = [int(entry) if isinstance(entry, np.integer) else entry for entry in signature]
    texts = [entry for entry in entries if isinstance(entry, str)]
    others = [entry for entry in entries if not isinstance(entry, str)]
    if sorted(texts) != ["dst", "src"] or any(type(e) is not int and not _is_ctypes_value(e) for e in others):
        raise InvalidArguments(
            f"signature is {shown(signature)}: give the arguments in order, 'src' and 'dst' for the addresses, "
            "integers or ctypes values for others, such as ('src', 'dst', 2, 17)"
        )

    def call(array: npt.NDArray[Any], codes: Codes) -> Codes:
        src = np.ascontiguousarray(array)
        if data_type.is_sub_byte:
            src = _to_buffer(encode_elements(src.reshape(-1), data_type), data_type)
        body = _to_buffer(codes, data_type).view(np.uint8)
        guarded = np.full(len(body) + 2 * _GUARD, _GUARD_BYTE, np.uint8)
        dst = guarded[_GUARD : _GUARD + len(body)]
        dst[:] = body
        addresses = {"src": ctypes.c_void_p(src.ctypes.data), "dst": ctypes.c_void_p(dst.ctypes.data)}
        arguments = [addresses[entry] if isinstance(entry, str) else entry for entry in entries]
        call_packer(lambda _, __: function(*arguments), src, dst, f"the signature {tuple(entries)}")
        _require_guards(guarded, len(body))
        return codes_of(dst, data_type, "packed buffer")[: len(codes)].copy()

    return call


def _is_ctypes_value(value: object) -> bool:
    """Return True if `value` can be an argument of a C function as it is."""
    return isinstance(value, (ctypes._SimpleCData, ctypes._Pointer, ctypes.Array, ctypes.Structure))


def _require_guards(guarded: npt.NDArray[np.uint8], nbytes: int) -> None:
    """Check that a C function left the guards around its buffer as they were.

    Raises:
        InvalidArguments: a byte outside of the buffer changed.
    """
    changed = np.flatnonzero(guarded != _GUARD_BYTE)
    outside = changed[(changed < _GUARD) | (changed >= _GUARD + nbytes)]
    if outside.size:
        at = int(outside[0]) - _GUARD
        remedy = "check its offsets and the signature" if at < 0 else "give a larger length"
        raise InvalidArguments(f"the C function writes byte {at} of a buffer of {nbytes} bytes: {remedy}")
