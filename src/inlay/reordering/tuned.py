"""What tuning found out, kept between processes.

Decisions stand in a table of the timing database, one for each processor, capacities of the machine model, number of
threads, and state of the compiler's source files. The key is the digest of the problem, as far as it changes what is
moved and how. Whoever asks for the same reorder on the same machine finds it; whoever edits the compiler finds nothing.
An entry that says what no choice can be is as good as none.

    >>> read(asdict(Decision(Choice(walk="dst"), 1.5, 1.0)))
    Decision(choice=Choice(walk='dst', registers=None, width=None, ahead=None, streams=None, panels=None, \
threads=None), gain=1.5, \
seconds=1.0)
    >>> read({}) is None
    True
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inlay import cache
from inlay.measure.timing_database import TimingTable
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.linking import cache_key, spelled
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.processors import get_num_threads
from inlay.reordering.target import Target

KIND = "tuned"
"""The suffix of the files."""
_VERSION = "1"
_MOST = 2048  # decisions, which are read when a reorder is compiled


def remembered(problem: ReorderProblem, target: Target) -> Decision | None:
    """What was decided about `problem` for `target` and the threads of this process; None where nothing was.

    With INLAY_TUNED=0 in the environment nothing is remembered.
    """
    if os.environ.get("INLAY_TUNED") == "0":
        return None
    return read(_table(target).get(_key(problem)))


def remember(problem: ReorderProblem, target: Target, decision: Decision) -> None:
    """Keep `decision`, where the directory of the cache can be written."""
    table = _table(target)
    table.put(_key(problem), asdict(decision))
    table.save()


def _table(target: Target) -> TimingTable:
    return TimingTable(KIND, _VERSION, cache_key(spelled((_capacities(), get_num_threads())), target), most=_MOST)


def _key(problem: ReorderProblem) -> str:
    types = (problem.src_type.name, problem.dst_type.name)
    offsets = (problem.src_offset, problem.dst_offset)
    return cache.object_key(spelled((problem.axes, types, offsets, problem.attributes, problem.factor)))


def _capacities() -> tuple[int, int]:
    """Return the effective capacities that decide which choices are worth a try; bandwidths vary from boot to boot."""
    model = memory_model()
    return model.l2, model.last_level


def read(value: Any) -> Decision | None:
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
    "walk": ("src", "dst"),
    "registers": [1 << i for i in range(9)],
    "width": [16 << i for i in range(5)],
    "ahead": range(-_FURTHEST, _FURTHEST + 1),
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
