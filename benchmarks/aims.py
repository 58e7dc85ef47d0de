"""What is aimed at, and whether a figure meets it.

Beyond the L3 a promised case is to reach its percent of the copy. No case is to be slower than any oneDNN, at any
size. And beyond the L3 the promised cases are to be `pairs.MEANS` times faster than each peer, in the geometric mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.drawn import LEAST, MEAN, SHARE, TABLE
from benchmarks.pairs import MEANS
from benchmarks.runs import Row
from benchmarks.timing import mean_ratio

RIVAL = "oneDNN"
"""Whoever's name begins so is not to be faster in any case."""


@dataclass(frozen=True, slots=True)
class Aim:
    """An aim over many cases."""

    name: str
    """What is aimed at."""
    found: str
    """What was measured."""
    wanted: str
    """What it should be."""
    is_met: bool
    """Whether it is."""


def aim_text(row: Row) -> str:
    """What this case is to reach."""
    copy = "" if row.case.aim is None else f"{row.case.aim:.0f} % of the copy and "
    return f"{copy}no slower than {RIVAL}"


def misses(row: Row) -> list[str] | None:
    """What the case misses, `copy` or a rival: empty where it meets its aims, None where nothing can be judged."""
    rivals = [name for name in row.peers if name.startswith(RIVAL)]
    if row.case.aim is None and not rivals:
        return None
    is_slow = row.case.aim is not None and row.percent_of_copy("Inlay").median < row.case.aim
    return ["copy"] * is_slow + [name for name in rivals if row.times_faster_than(name).median < 1]


def promised(rows: Sequence[Row]) -> list[Aim]:
    """The aims over many cases, of those whose cases are here."""
    issue = [row for row in rows if row.case.table == "issue"]
    beyond = [row for row in issue if not row.case.size.warm]
    families = [row for row in rows if row.case.table not in ("issue", TABLE)]
    found = _copy_aims(beyond)
    found += _drawn_aims([row for row in rows if row.case.table == TABLE])
    for name, wanted in MEANS.items():
        ratios = _ratios(beyond, name)
        if ratios:
            mean = mean_ratio(ratios)
            words = f"promised cases beyond the L3: geometric mean x {name}"
            found.append(Aim(words, f"{mean:.2f}", f">= {wanted:g}", mean >= wanted))
    for what, group in (("promised cases", issue), ("cases of the families", families)):
        for name in (name for name in MEANS if name.startswith(RIVAL)):
            ratios = _ratios(group, name)
            slower = sum(ratio < 1 for ratio in ratios)
            if ratios:
                found.append(Aim(f"{what}: slower than {name}", f"{slower} of {len(ratios)}", "0", slower == 0))
    return found


def _copy_aims(beyond: Sequence[Row]) -> list[Aim]:
    found = []
    for aim in sorted({row.case.aim for row in beyond if row.case.aim is not None}, reverse=True):
        group = [row for row in beyond if row.case.aim == aim]
        met = sum(row.percent_of_copy("Inlay").median >= aim for row in group)
        words = f"promised cases beyond the L3: at {aim:.0f} % of the copy"
        found.append(Aim(words, f"{met} of {len(group)}", f"{len(group)}", met == len(group)))
    return found


def _drawn_aims(rows: Sequence[Row]) -> list[Aim]:
    """The aims of the pairs whose sizes are drawn: beyond the L3 beside the copy, in caches beside the fastest peer."""
    found = []
    if percents := [row.percent_of_copy("Inlay").median for row in rows if not row.case.size.warm]:
        met, mean = sum(percent >= LEAST for percent in percents), mean_ratio(percents)
        words, count = "drawn cases beyond the L3:", len(percents)
        found.append(Aim(f"{words} at {LEAST} % of the copy", f"{met} of {count}", f"{count}", met == count))
        found.append(Aim(f"{words} geometric mean, % of the copy", f"{mean:.0f}", f">= {MEAN}", mean >= MEAN))
    if in_caches := [row for row in rows if row.case.size.warm and len(row.peers) > 1]:
        share = sum(_is_fastest(row) for row in in_caches) / len(in_caches)
        words = "drawn cases in caches: not slower than the fastest peer"
        found.append(Aim(words, f"{share:.0%} of {len(in_caches)}", f">= {SHARE:.0%}", share >= SHARE))
    return found


def _is_fastest(row: Row) -> bool:
    return all(row.times_faster_than(peer).median >= 1 for peer in row.peers if peer != "Inlay")


def _ratios(rows: Iterable[Row], peer: str) -> list[float]:
    return [row.times_faster_than(peer).median for row in rows if peer in row.peers]
