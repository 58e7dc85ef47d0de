"""What every function asks of a plain argument: that it is a truth value, an integer in a range, some integers.

Each check gives Python's own type back, or refuses with the name of the argument, the value and what would be right.
"""

from collections.abc import Iterable
from operator import index

from inlay.errors import InvalidArguments, shown

MOST_BITS = 256
"""The bits of the largest integer that is taken where nothing else bounds it: every message can be printed."""


def as_flag(what: str, value: object) -> bool:
    """`value` as a bool; NumPy's are accepted.

    Raises:
        InvalidArguments: it is no truth value, such as a number or an array.

    >>> as_flag("digits", True)
    True
    """
    if isinstance(value, bool):
        return value
    # Their class has no name that every release of NumPy has.
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_") and not hasattr(value, "char"):
        return bool(value)
    raise InvalidArguments(f"{what} is {shown(value)}: give True or False")


def integer_or_none(value: object) -> int | None:
    """`value` as a Python integer, or None where it is none: NumPy's are, truth values are not.

    >>> integer_or_none(3), integer_or_none(True), integer_or_none(3.0)
    (3, None, None)
    """
    try:
        return None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def as_integer(what: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """`value` as a Python integer from `least` to `most`; NumPy's are accepted, truth values are not.

    Raises:
        InvalidArguments: it is no integer, or not in the range.

    >>> as_integer("axis", 3, 0, 3)
    3
    """
    number = integer_or_none(value)
    if number is None:
        raise InvalidArguments(f"{what} is {shown(value)}: give an integer")
    if number.bit_length() > MOST_BITS:
        raise InvalidArguments(f"{what} is {shown(number)}: give one of at most {MOST_BITS} bits")
    if least is not None and number < least:
        raise InvalidArguments(f"{what} is {number}: give {least} or more")
    if most is not None and number > most:
        raise InvalidArguments(f"{what} is {number}: give {most} or less")
    return number


def as_entries(what: str, values: object) -> tuple[object, ...]:
    """The entries of a sequence or another iterable of a few entries, but of no text, mapping or set.

    Raises:
        InvalidArguments: `values` has no entries in an order.

    >>> as_entries("dims", [2, 3])
    (2, 3)
    """
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes, dict, set, frozenset)):
        try:
            return tuple(values)
        except TypeError:
            pass  # NumPy's arrays without axes call themselves iterable
    raise InvalidArguments(f"{what} is {shown(values)}: give a sequence of integers")
