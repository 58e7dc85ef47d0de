"""Numbers of bytes as texts with a unit."""

from collections.abc import Mapping

from inlay.errors import InvalidArguments

_UNITS: Mapping[str, int] = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS = {**_UNITS, **{f"{unit[0]}ib": 1 << 10 * (i + 1) for i, unit in enumerate(("kb", "mb", "gb", "tb"))}}


def parse_nbytes(text: int | str) -> int:
    """Return a number of bytes, given as a number or as text with a unit.

    Raises:
        InvalidArguments: it is no number above 0 with a known unit.

    >>> parse_nbytes("256 MB"), parse_nbytes("1.5GiB"), parse_nbytes(4096)
    (256000000, 1610612736, 4096)
    """
    value = str(text).strip().lower()
    number = value.rstrip("abcdefghijklmnopqrstuvwxyz ")
    try:
        nbytes = int(float(number) * _UNITS[value[len(number) :].strip()])
    except (KeyError, ValueError, OverflowError):
        nbytes = 0
    if nbytes < 1:
        raise InvalidArguments(f"{text!r} is no number of bytes: write a number with a unit, as in 256 MB or 1 GiB")
    return nbytes
