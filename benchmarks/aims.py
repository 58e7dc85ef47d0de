"""Aims: percentages of the best copy, ratios to other libraries, and the known reasons why some are missed.

Beyond the L3 a promised case is to reach its percentage of the copy, and the promised cases are to be `MEANS` times as
fast as each contender in the geometric mean. No case is to be slower than any oneDNN, at any size. `misses.toml` holds
the measured reason for each known miss of a case, `network_misses.toml` for each network.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from statistics import geometric_mean

from benchmarks.cases import DRAWN, PROMISED
from benchmarks.drawn import AIM
from benchmarks.record import Row, Unreadable
from inlay.bench.measurement import INLAY

MEANS: Mapping[str, float] = {"oneDNN": 2.5, "oneDNN 3.13": 2.5, "NumPy": 10, "torch": 4}
"""How many times as fast as each contender the promised pairs are to be beyond the L3, in the geometric mean."""
RIVAL = "oneDNN"  # contenders whose name begins so are not to be faster in any case
DRAWN_MEAN, DRAWN_SHARE = 70, 0.95
"""Drawn cases: percent of the copy beyond the L3 in the mean, and share of cases in caches that no contender wins."""
FILE = Path(__file__).with_name("misses.toml")


@dataclass(frozen=True, slots=True)
class Aim:
    """An aim over many cases."""

    name: str
    found: str  # the measured figure
    wanted: str  # the figure to reach
    is_met: bool


def missed_by(row: Row) -> list[str] | None:
    """Return what a case misses, `copy` or a rival; None where it has no aim that can be judged."""
    rivals = [name for name in row.peers if name.startswith(RIVAL)]
    if row.case.aim is None and not rivals:
        return None
    is_slow = row.case.aim is not None and row.percent_of_copy().median < row.case.aim
    return ["copy"] * is_slow + [name for name in rivals if row.times_faster_than(name).median < 1]


def aims_over(rows: Sequence[Row]) -> list[Aim]:
    """Return the aims over many cases, of those cases that the rows contain."""
    promised = [row for row in rows if row.case.pair.table == PROMISED]
    families = [row for row in rows if row.case.pair.table not in (PROMISED, DRAWN)]
    beyond, found, where = [row for row in promised if not row.case.size.warm], [], "promised cases beyond the L3:"
    for aim in sorted({row.case.aim for row in beyond if row.case.aim is not None}, reverse=True):
        found.append(_count(f"{where} at {aim:.0f} % of the copy", [r for r in beyond if r.case.aim == aim], aim))
    found += _drawn_aims([row for row in rows if row.case.pair.table == DRAWN])
    for name, wanted in MEANS.items():
        if ratios := _ratios(beyond, name):
            mean = geometric_mean(ratios)
            found.append(Aim(f"{where} geometric mean x {name}", f"{mean:.2f}", f">= {wanted:g}", mean >= wanted))
    for what, group in (("promised cases", promised), ("cases of the families", families)):
        for name in (name for name in MEANS if name.startswith(RIVAL)):
            if ratios := _ratios(group, name):
                slower = sum(ratio < 1 for ratio in ratios)
                found.append(Aim(f"{what}: slower than {name}", f"{slower} of {len(ratios)}", "0", slower == 0))
    return found


def _count(words: str, rows: Sequence[Row], percent: float) -> Aim:
    met = sum(row.percent_of_copy().median >= percent for row in rows)
    return Aim(words, f"{met} of {len(rows)}", f"{len(rows)}", met == len(rows))


def _drawn_aims(rows: Sequence[Row]) -> list[Aim]:
    found = []
    if beyond := [row for row in rows if not row.case.size.warm]:
        mean = geometric_mean(row.percent_of_copy().median for row in beyond)
        found.append(_count(f"drawn cases beyond the L3: at {AIM} % of the copy", beyond, AIM))
        words = "drawn cases beyond the L3: geometric mean, % of the copy"
        found.append(Aim(words, f"{mean:.0f}", f">= {DRAWN_MEAN}", mean >= DRAWN_MEAN))
    if in_caches := [row for row in rows if row.case.size.warm and len(row.peers) > 1]:
        others = ([row.times_faster_than(name) for name in row.peers if name != INLAY] for row in in_caches)
        share = sum(all(ratio.median >= 1 for ratio in ratios) for ratios in others) / len(in_caches)
        words = "drawn cases in caches: not slower than the fastest peer"
        found.append(Aim(words, f"{share:.0%} of {len(in_caches)}", f">= {DRAWN_SHARE:.0%}", share >= DRAWN_SHARE))
    return found


def _ratios(rows: Iterable[Row], peer: str) -> list[float]:
    return [row.times_faster_than(peer).median for row in rows if peer in row.peers]


# Reasons


@dataclass(frozen=True, slots=True)
class Reason:
    """An entry of a file of reasons.

    >>> reason = Reason("nhwc -> nchw u8*beyond", "copy", "bytes are dealt to three planes", "wider tiles: 2 % more")
    >>> reason.fits("nhwc -> nchw u8 RGB beyond", "copy"), reason.fits("nhwc -> nchw u8 RGB L3", "copy")
    (True, False)
    """

    case: str  # a label of cases or networks, or a pattern of labels
    misses: str  # the missed aim: `copy` or a contender; empty for any
    reason: str  # the measured reason
    tried: str = ""  # attempts to remove it

    def fits(self, label: str, missed: str) -> bool:
        """Return whether it is the reason why a case misses an aim."""
        return fnmatch(label.lower(), self.case.lower()) and self.misses in ("", missed)


def known_reasons(path: Path = FILE, aims: Sequence[str] = ("copy", RIVAL, f"{RIVAL} 3.13")) -> list[Reason]:
    """Return the reasons in a file, each of which is about one of the aims; raise `Unreadable` for another file."""
    try:
        reasons = [Reason(**{"misses": "", **entry}) for entry in tomllib.loads(path.read_text())["miss"]]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path.name} holds no list of reasons: {error!r}") from error
    for reason in reasons:
        if not reason.case or not reason.reason:
            raise Unreadable(f"{path.name} has an entry without a case or without a reason: {reason}")
        if reason.misses not in ("", *aims):
            raise Unreadable(f"{path.name}: {reason.misses!r} is no aim: give one of {', '.join(aims)}")
    return reasons


def reason_for(reasons: Iterable[Reason], label: str, missed: str) -> Reason | None:
    """Return the first reason that fits; None if nobody has written one down."""
    return next((reason for reason in reasons if reason.fits(label, missed)), None)


def reason_cells(reason: Reason | None) -> tuple[str, str]:
    """Return the reason and what was tried, as cells of a table."""
    return ("no reason is written down", "") if reason is None else (reason.reason, reason.tried)


def without_reason(reasons: Sequence[Reason | None]) -> str:
    """Return how many misses have no reason, as the end of a title."""
    unknown = sum(reason is None for reason in reasons)
    return f": {unknown} without a reason" if unknown else ""


def missed_aims(rows: Iterable[Row], reasons: Sequence[Reason]) -> list[tuple[Row, str, Reason | None]]:
    """Return every missed aim, in the order of the rows, with its reason."""
    found = [(row, missed) for row in rows for missed in missed_by(row) or ()]
    return [(row, missed, reason_for(reasons, row.case.label, missed)) for row, missed in found]


def stale_reasons(reasons: Sequence[Reason], rows: Sequence[Row]) -> list[Reason]:
    """Return the reasons of measured cases that explain no miss."""
    used = {id(reason) for _, _, reason in missed_aims(rows, reasons)}
    labels = [row.case.label for row in rows]
    return [r for r in reasons if id(r) not in used and any(r.fits(label, r.misses) for label in labels)]
