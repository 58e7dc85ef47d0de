"""The arena: one piece of memory for all buffers of a program, where those that are not needed at once share bytes.

A home lives from the first step that writes one of its buffers to the last that reads one. Homes are placed one
by one, each in the smallest gap between those that live while it does. Three orders are tried - by size, by size times
life, by time - and the one that takes the least is kept.

    >>> lives = {"a": Life(0, 1, 100), "b": Life(1, 2, 50), "c": Life(2, 3, 100)}
    >>> arena = arranged(lives)
    >>> dict(arena.offsets), arena.nbytes, arena.unshared
    ({'a': 0, 'c': 0, 'b': 128}, 178, 250)

Source: greedy by size, Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference".
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inlay.errors import OutOfMemory
from inlay.graph.homes import Place, home_sizes, places_of
from inlay.graph.network import Tensor
from inlay.graph.program import Program
from inlay.memory.buffers import LINE

_MOST_ADDRESSES = 1 << 47


@dataclass(frozen=True, slots=True)
class Life:
    """When a home is needed, and how large it is."""

    first: int
    """Number of the step that first writes it; -1 where a run begins with it."""
    last: int
    """Number of the step that last reads it; the number of steps where a run ends with it."""
    nbytes: int
    """Its bytes."""

    @property
    def length(self) -> int:
        """At how many steps it is needed."""
        return self.last - self.first + 1

    def meets(self, other: "Life") -> bool:
        """Whether both are needed at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Arena:
    """Where each home lies."""

    offsets: Mapping[str, int]
    """By home, bytes from the beginning: multiples of 64."""
    nbytes: int
    """Bytes in all."""
    unshared: int
    """Bytes that the homes would take if none shared them."""
    needed: int
    """The most bytes that are needed at one step: no arena is smaller."""

    def __str__(self) -> str:
        """In one line."""
        return (
            f"arena {self.nbytes / 1e6:.2f} MB, {self.unshared / 1e6:.2f} MB without reuse, "
            f"at least {self.needed / 1e6:.2f} MB at one step"
        )


@dataclass(frozen=True, slots=True)
class Laid:
    """Where everything of a program lies."""

    places: Mapping[str, Place]
    """Of each buffer, in its home."""
    sizes: Mapping[str, int]
    """Bytes of each home."""
    lent: frozenset[str]
    """Homes of inputs that no step writes to: they may be the caller's arrays, and are not in the arena."""
    arena: Arena
    """Where the other homes lie."""


def laid(program: Program, tensors: Mapping[str, Tensor]) -> Laid:
    """Where everything of `program` lies.

    Raises:
        InvalidArguments, Unimplemented: as `places_of`.
    """
    places = places_of(program, tensors)
    sizes = home_sizes(program, places)
    written = {places[name].home for step in program.steps for name in step.writes.values()}
    inputs = [places[name].home for name in program.inputs.values()]
    lent = frozenset(home for home in inputs if inputs.count(home) == 1 and sizes[home] and home not in written)
    lives = lives_of(program, places, sizes)
    return Laid(places, sizes, lent, arranged({home: life for home, life in lives.items() if home not in lent}))


def require_memory(name: str, where: Laid) -> None:
    """The machine has as much memory as the tensors of network `name` take at once.

    Raises:
        OutOfMemory: it has less.
    """
    nbytes = where.arena.nbytes + sum(where.sizes[home] for home in where.lent)
    physical = _physical_memory()
    if nbytes > physical:
        raise OutOfMemory(
            f"network {name!r} needs {nbytes} bytes for its tensors at once, and this machine has {physical}: give its "
            "inputs smaller dims, or a smaller batch"
        )


def _physical_memory() -> int:
    """Bytes of memory of the machine; what a process can address, where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _MOST_ADDRESSES


def lives_of(program: Program, places: Mapping[str, Place], sizes: Mapping[str, int]) -> dict[str, Life]:
    """When each home of `sizes` is needed; a home that no step uses is needed as long as a run takes its tensors."""
    used: dict[str, list[int]] = {home: [] for home in sizes}
    for i, step in enumerate(program.steps):
        for name in (*step.reads.values(), *step.writes.values()):
            used[places[name].home].append(i)
    for name in program.inputs.values():
        used[places[name].home].append(-1)
    for name in program.outputs.values():
        used[places[name].home].append(len(program.steps))
    return {home: Life(min(steps), max(steps), sizes[home]) for home, steps in used.items() if steps}


def arranged(lives: Mapping[str, Life]) -> Arena:
    """Place all homes.

    Post-condition: homes whose lives meet share no byte; each begins at a multiple of 64.
    """
    orders = (
        sorted(lives, key=lambda home: (-lives[home].nbytes, lives[home].first, home)),
        sorted(lives, key=lambda home: (-lives[home].nbytes * lives[home].length, lives[home].first, home)),
        sorted(lives, key=lambda home: (lives[home].first, -lives[home].nbytes, home)),
    )
    return min((_placed(lives, order) for order in orders), key=lambda arena: arena.nbytes)


def _placed(lives: Mapping[str, Life], order: Iterable[str]) -> Arena:
    """The arena of homes that are placed in this order."""
    offsets: dict[str, int] = {}
    for home in order:
        life = lives[home]
        taken = [
            (offsets[other], offsets[other] + lives[other].nbytes) for other in offsets if life.meets(lives[other])
        ]
        offsets[home] = _gap(sorted(taken), life.nbytes)
    ends = [offset + lives[home].nbytes for home, offset in offsets.items()]
    return Arena(offsets, max(ends, default=0), sum(life.nbytes for life in lives.values()), _needed(lives.values()))


def _gap(taken: Iterable[tuple[int, int]], nbytes: int) -> int:
    """The beginning of the smallest gap that has room, between what is `taken` in order or after it."""
    best, least, at = -1, 0, 0
    for begin, end in taken:
        room = begin - at
        if room >= nbytes and (best < 0 or room < least):
            best, least = at, room
        at = max(at, -(-end // LINE) * LINE)
    return at if best < 0 else best


def _needed(lives: Iterable[Life]) -> int:
    """The most bytes that are needed at one step."""
    changes = sorted(
        change for life in lives for change in ((life.first, life.nbytes), (life.last + 0.5, -life.nbytes))
    )
    most = now = 0
    for _, nbytes in changes:
        now += nbytes
        most = max(most, now)
    return most
