"""Decisions about a plan that do not change the result, so that tuning may override them.

The stages decide by cost models: the size of the tile, the traversal, the kind of stores. A `Choice` overrides some of
these decisions, so that alternatives can be timed. What it leaves open is decided by the models; `BY_MODEL` leaves
everything open.

    >>> print(Choice(traversal="dst", prefetch_distance=1024))
    traverse dst, fetch 1024 bytes ahead
    >>> print(BY_MODEL)
    by the model

A `Decision` is a choice with the measurement that led to it. Decisions are stored on disk, in a table for each
processor, capacities of the machine model, number of threads, and state of the compiler's source files. The key within
a table is the digest of the problem, limited to what influences the plan. So a later process on the same machine finds
the decision about the same reorder, and an edit of the compiler invalidates all decisions. An entry with invalid values
is ignored.

    >>> parse_decision(asdict(Decision(Choice(traversal="dst"), 1.5, 1.0)))
    Decision(choice=Choice(traversal='dst', registers=None, width=None, prefetch_distance=None, \
streams=None, panels=None, threads=None), gain=1.5, seconds=1.0)
    >>> parse_decision({}) is None
    True
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from inlay import cache
from inlay.measure.timing_database import TimingTable
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.network import Side
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.target import TargetMachine, cache_key, canonical_text
from inlay.reordering.threads import get_num_threads


@dataclass(frozen=True, slots=True)
class Choice:
    """Decisions about a reorder; None leaves a decision to the model."""

    traversal: Side | None = None
    """The side whose memory order the loops follow."""
    registers: int | None = None
    """Registers that a tile has at least, a power of two; fewer if the loops have fewer iterations."""
    width: int | None = None
    """Maximum width of a register in bytes: a power of two from 16 on, limited to the target's width."""
    prefetch_distance: int | None = None
    """Prefetch distance in bytes; 0 for no prefetch."""
    streams: bool | None = None
    """True for streaming stores, if the tile allows them; False for ordinary stores."""
    panels: bool | None = None
    """True for two passes through a buffer, if the reorder exceeds the caches and can be cut into panels; False for one
    pass."""
    threads: int | None = None
    """Maximum number of threads."""

    def __str__(self) -> str:
        """Return the decisions in words."""
        words = {
            "traversal": f"traverse {self.traversal}",
            "registers": f"tiles of {self.registers} registers",
            "width": f"registers of {self.width} bytes",
            "prefetch_distance": f"fetch {self.prefetch_distance} bytes ahead"
            if self.prefetch_distance
            else "fetch nothing ahead",
            "streams": f"stores {'past' if self.streams else 'into'} the caches",
            "panels": "through a buffer" if self.panels else "straight to the destination",
            "threads": f"{self.threads} thread{'s' * (self.threads != 1)}",
        }
        decided = [words[f.name] for f in fields(self) if getattr(self, f.name) is not None]
        return ", ".join(decided) or "by the model"


BY_MODEL = Choice()
"""The choice that leaves every decision to the models."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice, with the measurement that led to it."""

    choice: Choice = BY_MODEL
    """The chosen alternative."""
    gain: float = 1.0
    """Measured speed-up over the plan of the models; 1 for that plan itself."""
    seconds: float = 0.0
    """Duration of the measurement in seconds; 0 if nothing was measured."""

    def __str__(self) -> str:
        """Return the decision in words, as `explain` prints it."""
        if not self.seconds:
            return "decided by the model"
        if self.choice == BY_MODEL:
            return "tuned: nothing that was tried is clearly faster than what the model decides"
        return f"tuned: {self.choice}; {self.gain:.2f} times as fast as what the model decides"


UNMEASURED = Decision()
"""The decision without a measurement: everything by the models."""


KIND = "tuned"
"""The suffix of the table files."""
_VERSION = "1"
_MOST = 2048  # decisions in a table; the whole table is read when a reorder is compiled


def load_decision(problem: ReorderProblem, target: TargetMachine) -> Decision | None:
    """Return the stored decision about `problem` for `target` and the threads of this process; None if there is none.

    With INLAY_TUNED=0 in the environment, stored decisions are ignored.
    """
    if os.environ.get("INLAY_TUNED") == "0":
        return None
    return parse_decision(_table(target).get(_key(problem)))


def store_decision(problem: ReorderProblem, target: TargetMachine, decision: Decision) -> None:
    """Store `decision` if the directory of the cache can be written."""
    table = _table(target)
    table.put(_key(problem), asdict(decision))
    table.save()


def _table(target: TargetMachine) -> TimingTable:
    """Return the table of stored decisions for this target, its cache sizes and number of threads."""
    return TimingTable(
        KIND, _VERSION, cache_key(canonical_text((_capacities(), get_num_threads())), target), most=_MOST
    )


def _key(problem: ReorderProblem) -> str:
    """Return the key of a problem in the table."""
    types = (problem.src_type.name, problem.dst_type.name)
    offsets = (problem.src_offset, problem.dst_offset)
    values = (problem.attributes, problem.factor)
    return cache.object_key(canonical_text((problem.axes, types, offsets, *values, problem.swizzles)))


def _capacities() -> tuple[int, int]:
    """Return the cache capacities that determine useful choices.

    Bandwidths are left out, since they vary from boot to boot.
    """
    model = memory_model()
    return model.l2, model.last_level


def parse_decision(value: Any) -> Decision | None:
    """Return the decision that a JSON value represents, or None if it is not a valid decision."""
    try:
        fields = dict(value)
        choice = Choice(**fields.pop("choice"))
        decision = Decision(choice, **fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return decision if _is_sound(decision) else None


_FURTHEST = 1 << 40
_ALLOWED: Mapping[str, Sequence[object]] = {
    "traversal": ("src", "dst"),
    "registers": [1 << i for i in range(9)],
    "width": [16 << i for i in range(5)],
    "prefetch_distance": range(-_FURTHEST, _FURTHEST + 1),
    "streams": (False, True),
    "panels": (False, True),
    "threads": range(1, (1 << 20) + 1),
}
"""The valid values of each field of a choice, besides None; all of one type."""


def _is_sound(decision: Decision) -> bool:
    """Return whether the fields of a decision, which may come from a damaged file, have valid values."""
    # Only measured decisions are stored, so 0 seconds is not valid. The types of fields from a file are not known.
    fields_with_ranges = ((getattr(decision.choice, name), allowed) for name, allowed in _ALLOWED.items())
    numbers: tuple[Any, ...] = (decision.gain, decision.seconds)
    return all(isinstance(number, float) and 0 < number < _FURTHEST for number in numbers) and all(
        value is None or (type(value) is type(allowed[0]) and value in allowed) for value, allowed in fields_with_ranges
    )
