"""What tuning found out, kept between processes.

A decision is a file in the directory of the code cache, sealed like the code. Its name is the digest of all that the
decision was made for: the problem, as far as it changes what is moved and how, the processor, the capacities of the
machine model, the number of threads, and the source files of the compiler. Whoever asks for the same reorder on the
same machine finds it; whoever edits the compiler finds nothing. A file that is damaged or says what no choice can be is
as good as none.

    >>> read(written(Decision(Choice(walk="dst"), 1.5, 1.0)))
    Decision(choice=Choice(walk='dst', registers=None, width=None, ahead=None, streams=None, panels=None, \
threads=None), gain=1.5, \
seconds=1.0)
    >>> read(b"{}") is None
    True
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inlay.reordering import cache
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.linking import cache_key, spelled
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.processors import get_num_threads
from inlay.reordering.target import Target

KIND = "tuned"
"""The suffix of the files."""


def remembered(problem: ReorderProblem, target: Target) -> Decision | None:
    """What was decided about `problem` for `target` and the threads of this process; None where nothing was.

    With INLAY_TUNED=0 in the environment nothing is remembered.
    """
    if os.environ.get("INLAY_TUNED") == "0":
        return None
    data = cache.read_object(_key(problem, target), KIND)
    return None if data is None else read(data)


def remember(problem: ReorderProblem, target: Target, decision: Decision) -> None:
    """Keep `decision`, where the directory of the cache can be written."""
    cache.write_object(_key(problem, target), written(decision), KIND)


def _key(problem: ReorderProblem, target: Target) -> str:
    types = (problem.src_type.name, problem.dst_type.name)
    offsets = (problem.src_offset, problem.dst_offset)
    asked = (KIND, problem.axes, types, offsets, problem.attributes, problem.factor, _capacities(), get_num_threads())
    return cache_key(spelled(asked), target)


def _capacities() -> tuple[int, int]:
    """Return the effective capacities that decide which choices are worth a try; bandwidths vary from boot to boot."""
    model = memory_model()
    return model.l2, model.last_level


def written(decision: Decision) -> bytes:
    """A decision as JSON."""
    return json.dumps(asdict(decision)).encode()


def read(data: bytes) -> Decision | None:
    """The decision that `written` wrote; None where `data` is no such text."""
    try:
        fields = json.loads(data)
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
