"""`measured`: kernels and reorders are timed once for each machine, and remembered.

    costs = measured("onednn", seconds=15, progress=bar.update)
    costs.prepare(operations, reorders)      what is not known yet is timed, the candidates in turns
    costs.kernel(operation)                  from memory; timed now if nobody prepared for it
    costs.save()                             for other processes; `prepare` and the end of the process do it too

When the seconds are spent, the rest is estimated: the model of the machine, times what it was found to be wrong by for
kernels of the same sort; `Kernel.source` then says `scaled`. Estimates are not remembered.

Where other programs compute, nothing is measured: `processors` says so, what is not remembered is estimated. They are
looked at before the first kernel, and again when one was disturbed each time. A disturbed time is not remembered.

Times are those of the processor at its best. `slowdown()` says how far it is from that now.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import median

from inlay import __version__
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.graph.costs.book import Book, Entry, Price, desc_text, key, reorder_key
from inlay.graph.costs.kernel import Costs, CostSources, Kernel, Progress, Source
from inlay.graph.costs.machine import Machine, nbytes, processor_facts, this_machine, work
from inlay.graph.costs.models import (
    MachineCosts,
    asked,
    estimated,
    reorder_ms,
    with_attributes,
)
from inlay.graph.costs.paces import type_name
from inlay.graph.costs.timing import Bench, Taken, is_of_engine, pool_of
from inlay.measure.interleaved import Clock, clock
from inlay.measure.processors import Processors, recent_processors
from inlay.memory.pack_reorder import Reorder
from inlay.primitives.engine import (
    Engine,
    EngineLike,
    Implementation,
    Operation,
    companion_engines,
    get_engine,
    select_reorder_engine,
)
from inlay.reordering.memory_levels import memory_model

SECONDS = 60.0
"""How long measuring may take in all, unless told otherwise."""
_TOGETHER = 6  # kernels take turns
_HOPELESS = 100.0  # estimated ms of generic code from which on nobody wants to know it better
_EVERY = 2.0  # seconds between two times of saving


def measured(
    engine: EngineLike = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    *,
    weights: int | None = None,
) -> "MeasuredCosts":
    """Costs by the clock, from the cache where they were measured before.

    Args:
        engine: whose kernels; the default engine if None.
        seconds: how long measuring may take in all, in this process; a minute if None, and 0 measures nothing.
        progress: told how many kernels are done and how many are planned, while `prepare` measures.
        weights: bytes of the weights of the network: with few, they stay in the caches from run to run. None for many.

    Raises:
        InvalidArguments, MissingExtra: as `primitives.get_engine`.
    """
    engines, machine = companion_engines(get_engine(engine)), this_machine()
    cold, pool = pool_of(weights, memory_model().last_level)
    bench = Bench(engines[0], cold)
    book = Book(*_facts(engines[0], machine), pool)
    left = SECONDS if seconds is None else seconds
    return MeasuredCosts(engines, machine, bench, book, left, progress, look=lambda: recent_processors(0.0))


def _facts(engine: Engine, machine: Machine) -> tuple[str, ...]:
    """What times hang on besides the operation; Inlay has kernels of its own."""
    return (__version__, engine.name, engine.runtime, machine.isa, str(machine.threads), *processor_facts())


@dataclass(frozen=True, slots=True)
class _Asked:
    """An operation that is to be measured."""

    key: str
    operation: Operation
    implementation: Implementation
    estimate: Kernel


class MeasuredCosts(MachineCosts):
    """Costs by the clock."""

    name = "measured"

    def __init__(
        self,
        engines: Sequence[Engine],
        machine: Machine,
        bench: Bench,
        book: Book,
        seconds: float = SECONDS,
        progress: Progress | None = None,
        clock: Clock = clock,
        look: Callable[[], Processors | None] = lambda: None,
    ) -> None:
        """Time kernels of `engines` on `bench` for `seconds` in all, with what `book` knows already.

        `look` measures what threads get of the processors; nothing is timed where others compute.
        """
        super().__init__(machine)
        self._look = look
        self.processors: Processors | None = None
        """What threads got of the processors when they were looked at last; None before the first kernel."""
        self._asked, self._bench, self._book = engines, bench, book
        self._left, self._progress, self._clock = seconds, progress, clock
        self._known: dict[str, Kernel | None] = {}
        self._reorders: dict[tuple[MemoryDesc, MemoryDesc], float] = {}
        self._timed_reorders: set[str] = set()
        self._timed_kernels: set[str] = set()
        self._reorder_sources: dict[str, Source] = {}
        self._off: dict[str, list[float]] = {}
        self._unit: float | None = None
        self._saved = clock()
        self._finalizer = weakref.finalize(self, book.save)

    @property
    def engine(self) -> str:
        """Name and version of the first engine."""
        return self._asked[0].name

    def slowdown(self) -> float:
        """How many times as long as at its best a small kernel takes now; 1.0 where nothing disturbs."""
        now = self._bench.yardstick()
        return now / min(self._yardstick, self._bench.fastest)

    @property
    def sources(self) -> CostSources:
        """Where the costs that were requested so far come from."""
        kernels = {name: kernel.source for name, kernel in self._known.items() if kernel is not None}
        counts: Counter[str] = Counter()
        for found, timed in ((kernels, self._timed_kernels), (self._reorder_sources, self._timed_reorders)):
            counts.update("remembered" if s == "measured" and name not in timed else s for name, s in found.items())
        modelled = counts["probed"] + counts["modelled"]
        known = counts["measured"], counts["remembered"], counts["scaled"], modelled
        return CostSources(*known, is_out_of_time=self._left <= 0, unsaved=self._book.unsaved)

    def reorder_source(self, src: MemoryDesc, dst: MemoryDesc) -> Source:
        """How `reorder(src, dst)` is known: measured, by this process or an earlier one, scaled or modelled."""
        return self._reorder_sources.get(reorder_key(src, dst, nbytes(src) + nbytes(dst)), "modelled")

    def save(self) -> None:
        """Keep what was measured for other processes."""
        self._book.save()
        self._saved = self._clock()

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        """Measure what is not known of these, until the seconds are spent; the rest is estimated."""
        wanted = list(self._unknown(operations))
        moves = [pair for pair in dict.fromkeys(reorders) if not self._knows(*pair)]
        total = len(wanted) + len(moves)
        done = 0
        for first in range(0, len(wanted), _TOGETHER):
            group = wanted[first : first + _TOGETHER]
            self._settle(group)
            done += len(group)
            self._tell(done, total)
        for src, dst in moves:
            self.reorder(src, dst)
            done += 1
            self._tell(done, total)
        if total:
            self.save()

    def kernel(self, operation: Operation) -> Kernel | None:
        """The kernel that an engine has; None where none has one for these formats."""
        name = key(operation)
        if name not in self._known:
            self._settle(list(self._unknown([operation])))
            if self._clock() - self._saved > _EVERY:
                self.save()
        found = self._known[name]
        return None if found is None else with_attributes(found, operation)

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Milliseconds of a reorder or copy as sessions do it; one is measured for all that differ in size alone."""
        pair = src, dst
        if pair not in self._reorders:
            self._reorders[pair] = self._reorder_ms(src, dst)
        return self._reorders[pair]

    def _knows(self, src: MemoryDesc, dst: MemoryDesc) -> bool:
        """Whether a reorder, or one like it, was timed before, by this process or another."""
        name = reorder_key(src, dst, nbytes(src) + nbytes(dst))
        is_known = (src, dst) in self._reorders or name in self._timed_reorders
        return is_known or self._book.reorder(name) is not None

    @property
    def _yardstick(self) -> float:
        """Seconds of the yardstick that times are told in: the same for the whole life of these costs."""
        if self._unit is None:
            known = self._book.yardstick
            if known is None:
                self._bench.yardstick()
                known = self._bench.fastest
                self._book.write_yardstick(known)
            self._unit = known
        return self._unit

    def _unknown(self, operations: Iterable[Operation]) -> Iterator[_Asked]:
        """Those that must be measured; those that the book knows, or no engine has, are settled."""
        seen = set()
        for operation in operations:
            name = key(operation)
            if name in self._known or name in seen:
                continue
            entry = self._book.kernel(name)
            if entry and (read := self._read(operation, entry)) is not None:
                self._known[name] = read
                continue
            implementation = asked(self._asked, operation)
            if implementation is None:
                self._known[name] = None
                continue
            seen.add(name)
            yield _Asked(name, operation, implementation, estimated(implementation, self.machine))

    def _read(self, operation: Operation, entry: Entry) -> Kernel | None:
        """The kernel of an entry; None if that cannot be read."""
        try:
            descs = {**operation.descs, **{name: _desc(text) for name, text in entry.descs}}
        except InlayError:
            return None
        if any(is_of_engine(desc, operation) for desc in descs.values()):  # its name means something else elsewhere
            made = asked(self._asked, operation)
            if made is None or made.impl != entry.impl:
                return None
            descs = {name: made.descs[name] for name in operation.descs}
        settled = replace(operation, descs=descs)
        if descs.keys() != operation.descs.keys() or any(desc.kind == "any" for desc in descs.values()):
            return None
        least = work(settled)
        roofline = self.machine.roofline(least, type_name(settled))
        ms = entry.price.ratio * self._yardstick * 1e3
        return Kernel(settled, entry.impl, ms, roofline, entry.scratch, least.nbytes, "measured")

    def _settle(self, group: Sequence[_Asked]) -> None:
        """Measure a group; estimate what is hopeless or disturbed, and all of it if no time is left."""
        worthy = [one for one in group if not _is_hopeless(one)] if group and self._may_measure() else []
        for one, taken in zip(worthy, self._timed(worthy), strict=True):
            if taken is not None and self._is_sound(taken):
                self._learn(one, taken)
        for one in group:
            if one.key not in self._known:
                self._known[one.key] = self._scaled(one)

    def _may_measure(self) -> bool:
        """Whether there is time left, and nothing else computes."""
        if self._left > 0 and self.processors is None:
            self._look_again()
        return self._left > 0 and not self._is_busy

    @property
    def _is_busy(self) -> bool:
        """Whether other programs computed when they were looked for last: nothing is measured any more."""
        return self.processors is not None and self.processors.is_busy

    def _look_again(self) -> None:
        with self._spending():
            self.processors = self._look()

    def _is_sound(self, taken: Taken) -> bool:
        """Whether a time may be relied on; if not, the reason is looked for."""
        if not taken.is_sound and self._left > 0 and not self._is_busy:
            self._look_again()
        return taken.is_sound

    @contextmanager
    def _spending(self) -> Iterator[None]:
        """Count the time of this block, and let no execution of the bench begin when it is over."""
        started = self._clock()
        self._bench.deadline = started + self._left
        try:
            yield
        finally:
            self._bench.deadline = float("inf")
            self._left -= self._clock() - started

    def _timed(self, group: Sequence[_Asked]) -> Sequence[Taken | None]:
        """What each takes; None for what cannot be run."""
        if not group:
            return []
        try:
            return self._taken(group)
        except InlayError:
            # Some primitives can be described and not made: each is tried alone, and that one stays an estimate.
            return [None] if len(group) == 1 else [self._timed([one])[0] for one in group]

    def _taken(self, group: Sequence[_Asked]) -> Sequence[Taken | None]:
        with self._spending():
            return self._bench.taken([one.implementation for one in group])

    def _learn(self, one: _Asked, taken: Taken) -> None:
        """Know what a kernel takes, and remember it for other processes."""
        price = Price(taken.ratio)
        ms = price.ratio * self._yardstick * 1e3
        self._known[one.key] = replace(one.estimate, ms=ms, source="measured")
        self._timed_kernels.add(one.key)
        self._off.setdefault(_sort(one), []).append(ms / one.estimate.ms)
        chosen = one.estimate.operation.descs
        free = {name: desc_text(chosen[name]) for name, desc in one.operation.descs.items() if desc.kind == "any"}
        self._book.write_yardstick(self._bench.fastest)
        self._book.write_kernel(one.key, Entry(one.estimate.impl, price, one.estimate.scratch, tuple(free.items())))

    def _scaled(self, one: _Asked) -> Kernel:
        off = self._off.get(_sort(one))
        if off is None or _is_hopeless(one):
            return one.estimate
        return replace(one.estimate, ms=one.estimate.ms * median(off), source="scaled")

    def _reorder_ms(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """The time of a reorder, as that of one of the same formats and about the same size."""
        moved = nbytes(src) + nbytes(dst)
        if not moved:  # nothing is executed, and nothing can be timed
            return 0.0
        name = reorder_key(src, dst, moved)
        price = self._book.reorder(name)
        if price is None and moved and self._may_measure():
            price = self._timed_reorder(src, dst, name)
        if price is None:
            self._reorder_sources[name] = "scaled" if "reorder" in self._off else "modelled"
            return reorder_ms(src, dst, self.machine) * median(self._off.get("reorder", [1.0]))
        self._reorder_sources[name] = "measured"
        return price.ratio * moved * self._yardstick * 1e3

    def _timed_reorder(self, src: MemoryDesc, dst: MemoryDesc, name: str) -> Price | None:
        """Measure a reorder, and remember it, for each byte, for other processes; None if it was disturbed."""
        with self._spending():
            whole = self._moved(src, dst)
        if whole is None or not self._is_sound(whole):
            return None
        price = Price(whole.ratio / (nbytes(src) + nbytes(dst)))
        model = reorder_ms(src, dst, self.machine)
        self._off.setdefault("reorder", []).append(whole.ratio * self._yardstick * 1e3 / model)
        self._timed_reorders.add(name)
        self._book.write_yardstick(self._bench.fastest)
        self._book.write_reorder(name, price)
        return price

    def _moved(self, src: MemoryDesc, dst: MemoryDesc) -> Taken | None:
        """What a reorder takes of whom sessions let do it."""
        operation = Operation("reorder", "forward_inference", {"src": src, "dst": dst})
        who, implementation = select_reorder_engine(operation, self._asked)
        is_first = who is self._asked[0]
        timed = self._bench.taken([implementation]) if is_first else self._bench.timed([self._own(src, dst)])
        return timed[0]

    def _own(self, src: MemoryDesc, dst: MemoryDesc) -> Callable[[], Callable[[], object]]:
        """Prepares Inlay's reorder after a kernel: the engine's threads then wait for the next one busily."""
        reorder = Reorder(src, dst)

        def prepared() -> Callable[[], object]:
            memories = self._bench.warm({"src": src, "dst": dst})
            self._bench.yardstick()
            return partial(reorder, memories["src"], memories["dst"])

        return prepared

    def _tell(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(done, total)


def reorder_source(costs: Costs, src: MemoryDesc, dst: MemoryDesc) -> Source:
    """How the cost of a reorder is known: from the model of the machine, unless `costs` are measured."""
    return costs.reorder_source(src, dst) if isinstance(costs, MeasuredCosts) else "modelled"


def _is_hopeless(one: _Asked) -> bool:
    return one.estimate.ms > _HOPELESS and one.implementation.kernel_kind == "reference"


def _sort(one: _Asked) -> str:
    return f"{one.operation.kind} {one.implementation.family}"


@lru_cache(maxsize=8192)
def _desc(text: str) -> MemoryDesc:
    return MemoryDesc.from_json(text)
