"""What may be decided one way or another without changing a byte of the result.

The stages decide by models: of what a tile costs, of which side is better walked, of where stores go. A `Choice`
overrides some of these decisions, so that the alternatives can be timed and the best one kept. What it leaves open is
decided by the models; BY_MODEL leaves everything open.

    >>> print(Choice(traversal="dst", prefetch_distance=1024))
    traverse dst, fetch 1024 bytes ahead
    >>> print(BY_MODEL)
    by the model

A `Decision` is a choice with what tuning found out about it. Decisions are kept between processes, in a table of the
timing database for each processor, capacities of the machine model, number of threads, and state of the compiler's
source files. The key is the digest of the problem, as far as it changes what is moved and how. Whoever asks for the
same reorder on the same machine finds it; whoever edits the compiler finds nothing. An entry that says what no choice
can be is as good as none.

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
from inlay.reordering.target import Target, cache_key, canonical_text
from inlay.reordering.threads import get_num_threads


@dataclass(frozen=True, slots=True)
class Choice:
    """Decisions about a reorder; None leaves one to the model."""

    traversal: Side | None = None
    """The side that is gone through in the order in which it lies."""
    registers: int | None = None
    """How many registers a tile has at least, where loops have that many values: a power of two."""
    width: int | None = None
    """Bytes of a register at most: a power of two from 16 on; the target's if that is less."""
    prefetch_distance: int | None = None
    """Bytes from a load to the line that it asks for; 0 to ask for none."""
    streams: bool | None = None
    """Whether stores go past the caches where the tile allows it."""
    panels: bool | None = None
    """Whether a reorder beyond the caches passes through a buffer, panel by panel, where it can be cut into panels."""
    threads: int | None = None
    """How many threads share the work at most."""

    def __str__(self) -> str:
        """What is decided, in words."""
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
"""Everything as the models say."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice, and how it came about."""

    choice: Choice = BY_MODEL
    """What was decided."""
    gain: float = 1.0
    """How many times as fast as by the model it was when it was measured."""
    seconds: float = 0.0
    """How long was measured; 0 where nothing was."""

    def __str__(self) -> str:
        """In words, as `explain` prints them."""
        if not self.seconds:
            return "decided by the model"
        if self.choice == BY_MODEL:
            return "tuned: nothing that was tried is clearly faster than what the model decides"
        return f"tuned: {self.choice}; {self.gain:.2f} times as fast as what the model decides"


UNMEASURED = Decision()
"""What holds where nothing was measured."""


KIND = "tuned"
"""The suffix of the files."""
_VERSION = "1"
_MOST = 2048  # decisions, which are read when a reorder is compiled


def load_decision(problem: ReorderProblem, target: Target) -> Decision | None:
    """What was decided about `problem` for `target` and the threads of this process; None where nothing was.

    With INLAY_TUNED=0 in the environment nothing is remembered.
    """
    if os.environ.get("INLAY_TUNED") == "0":
        return None
    return parse_decision(_table(target).get(_key(problem)))


def store_decision(problem: ReorderProblem, target: Target, decision: Decision) -> None:
    """Keep `decision`, where the directory of the cache can be written."""
    table = _table(target)
    table.put(_key(problem), asdict(decision))
    table.save()


def _table(target: Target) -> TimingTable:
    return TimingTable(
        KIND, _VERSION, cache_key(canonical_text((_capacities(), get_num_threads())), target), most=_MOST
    )


def _key(problem: ReorderProblem) -> str:
    types = (problem.src_type.name, problem.dst_type.name)
    offsets = (problem.src_offset, problem.dst_offset)
    return cache.object_key(canonical_text((problem.axes, types, offsets, problem.attributes, problem.factor)))


def _capacities() -> tuple[int, int]:
    """Return the effective capacities that decide which choices are worth a try; bandwidths vary from boot to boot."""
    model = memory_model()
    return model.l2, model.last_level


def parse_decision(value: Any) -> Decision | None:
    """The decision of which JSON holds `value`, its fields by name; None where `value` is none of one."""
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
"""What each field of a choice may be beside None, all of one type."""


def _is_sound(decision: Decision) -> bool:
    # As they were read: nothing is known of the parts.
    values = ((getattr(decision.choice, name), allowed) for name, allowed in _ALLOWED.items())
    numbers: tuple[Any, ...] = (decision.gain, decision.seconds)
    return all(isinstance(number, float) and 0 < number < _FURTHEST for number in numbers) and all(
        value is None or (type(value) is type(allowed[0]) and value in allowed) for value, allowed in values
    )
