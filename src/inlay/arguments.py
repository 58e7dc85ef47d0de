"""Checks of plain arguments: truth values, integers in a range, sequences.

Each check returns a Python value, or raises an error with the name of the argument, the value and the allowed values.
"""

from collections.abc import Iterable
from operator import index

from inlay.errors import InvalidArguments, shown

MOST_BITS = 256
"""Maximum size of an integer argument without other limits, in bits, so that messages can print it."""


def as_flag(name: str, value: object) -> bool:
    """Return `value` as a bool; NumPy's truth values are accepted.

    Raises:
        InvalidArguments: `value` is no truth value, but for example a number or an array.

    >>> as_flag("digits", True)
    True
    """
    if isinstance(value, bool):
        return value
    # The class of NumPy's truth values is `bool` or `bool_`, depending on the release.
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise InvalidArguments(f"{name} is {shown(value)}: give True or False")


def integer_or_none(value: object) -> int | None:
    """Return `value` as a Python integer, or None if it is no integer; NumPy's integers are, truth values are not.

    >>> integer_or_none(3), integer_or_none(True), integer_or_none(3.0)
    (3, None, None)
    """
    try:
        return None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def as_integer(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as a Python integer from `least` to `most`; NumPy's integers are accepted, truth values are not.

    Raises:
        InvalidArguments: `value` is no integer, or not in the range.

    >>> as_integer("axis", 3, 0, 3)
    3
    """
    number = integer_or_none(value)
    if number is None:
        raise InvalidArguments(f"{name} is {shown(value)}: give an integer")
    if number.bit_length() > MOST_BITS:
        raise InvalidArguments(f"{name} is {shown(number)}: give one of at most {MOST_BITS} bits")
    if least is not None and number < least:
        raise InvalidArguments(f"{name} is {number}: give {least} or more")
    if most is not None and number > most:
        raise InvalidArguments(f"{name} is {number}: give {most} or less")
    return number


def as_entries(name: str, values: object) -> tuple[object, ...]:
    """Return the entries of a sequence or another ordered iterable as a tuple; texts, mappings and sets are refused.

    Raises:
        InvalidArguments: `values` is no such iterable.

    >>> as_entries("dims", [2, 3])
    (2, 3)
    """
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes, dict, set, frozenset)):
        try:
            return tuple(values)
        except TypeError:
            pass  # NumPy arrays without axes have `__iter__`, but it raises TypeError
    raise InvalidArguments(f"{name} is {shown(values)}: give a sequence of integers")
