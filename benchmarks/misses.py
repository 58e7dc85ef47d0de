"""Why a case misses an aim: the reasons that `misses.toml` holds, beside the cases that miss one.

>>> reasons = [Reason("nhwc -> nchw u8*beyond", "copy", "bytes are dealt to three planes", "wider tiles: 2 % more")]
>>> reasons[0].fits("nhwc -> nchw u8 RGB beyond", "copy"), reasons[0].fits("nhwc -> nchw u8 RGB L3", "copy")
(True, False)
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.aims import RIVAL, misses
from benchmarks.runs import Row

FILE = Path(__file__).with_name("misses.toml")
"""The reasons that the project knows."""
UNKNOWN = "no reason is written down"


class Unreadable(ValueError):
    """The file of reasons is not what it should be."""


@dataclass(frozen=True, slots=True)
class Reason:
    """An entry of the file."""

    case: str
    """A label of cases, or a pattern of labels."""
    misses: str
    """What is missed: `copy` or a peer; empty for whatever it is."""
    reason: str
    """What was measured."""
    tried: str = ""
    """What was tried against it."""

    def fits(self, label: str, missed: str) -> bool:
        """Whether it is the reason why a case misses this."""
        return fnmatch(label.lower(), self.case.lower()) and self.misses in ("", missed)


@dataclass(frozen=True, slots=True)
class Miss:
    """An aim that a case misses."""

    row: Row
    """The case, and what was measured."""
    missed: str
    """`copy`, or the peer that is faster."""
    reason: Reason | None
    """Why; None where nobody has written it down."""


def known_reasons(path: Path = FILE) -> list[Reason]:
    """The reasons in a file.

    Raises:
        Unreadable: it is no TOML, or an entry lacks a field, has another one, or text is missing.
    """
    try:
        entries = tomllib.loads(path.read_text())["miss"]
        reasons = [Reason(**{"misses": "", **entry}) for entry in entries]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path.name} holds no list of reasons: {error!r}") from error
    for reason in reasons:
        if not reason.case or not reason.reason:
            raise Unreadable(f"{path.name} has an entry without a case or without a reason: {reason}")
        if reason.misses not in ("", "copy") and not reason.misses.startswith(RIVAL):
            raise Unreadable(f"{path.name}: {reason.misses!r} is nothing to miss, it is copy, {RIVAL} or {RIVAL} 3.13")
    return reasons


def missed_aims(rows: Iterable[Row], reasons: Sequence[Reason]) -> list[Miss]:
    """Everything that is missed, in the order of the rows, each with the first reason that fits."""
    return [
        Miss(row, missed, next((reason for reason in reasons if reason.fits(row.case.label, missed)), None))
        for row in rows
        for missed in misses(row) or ()
    ]


def stale(reasons: Iterable[Reason], rows: Sequence[Row], found: Iterable[Miss]) -> list[Reason]:
    """Reasons that explain none of these misses, though a case of theirs was measured."""
    used = {id(miss.reason) for miss in found}
    return [
        reason
        for reason in reasons
        if id(reason) not in used and any(fnmatch(row.case.label.lower(), reason.case.lower()) for row in rows)
    ]
