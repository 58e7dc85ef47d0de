"""The tier `measured`: kernels and reorders are timed once for each machine, and their times are stored on disk.

    costs = measured("onednn", seconds=15, progress=bar.update)
    costs.prepare(operations, reorders)      times what has no stored time, several kernels in turn
    costs.kernel(operation)                  the stored estimate; an operation that was not prepared is timed now
    costs.save()                             writes the times to disk; `prepare` and the end of the process do so too

`remeasure` times kernels again that have a time; the new times replace the old ones, on disk too.

When the time limit is reached, other kernels are estimated: the probed time, times the median error of the model for
measured kernels of the same sort. `KernelEstimate.source` of these is `scaled`. Estimates are not stored. So is scalar
code estimated where another kernel for the same dims is a tenth of its estimate: no plan contains it, and running it
once would take longer than measuring all others.

Nothing is measured while other programs compute. The load is read before the first kernel, and again after a kernel
whose every round was disturbed. Disturbed times are not stored.

Times are those of the processor at its best. `slowdown()` returns how much slower it is now.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import median
from typing import TypeVar

from inlay import __version__
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.graph.costs.estimates import Costs, CostSources, KernelEstimate, Progress, Source
from inlay.graph.costs.kernel_models import arithmetic_type
from inlay.graph.costs.machine import Machine, measure_figures, nbytes, processor_facts, this_machine, workload
from inlay.graph.costs.models import MachineCosts, estimate_kernel, find_implementation, reorder_ms, with_attributes
from inlay.graph.costs.timing import Bench, MeasuredTime, is_of_engine, weight_pool
from inlay.graph.costs.timing_records import (
    KernelTiming,
    RelativeTime,
    TimingRecords,
    desc_text,
    exact_reorder_key,
    operation_key,
    reorder_key,
)
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

_Result = TypeVar("_Result")

SECONDS = 60.0
"""Default limit of the time for measuring, in seconds."""
_GROUP_SIZE = 6  # kernels that are measured in turn
_TOO_SLOW_MS = 100.0  # scalar code with a longer estimate is not measured
_DOMINATED_MS, _DOMINATED_RATIO = 1.0, 10.0  # nor is this, if another kernel's estimate is so many times shorter
_SAVE_INTERVAL = 2.0  # seconds
_GLANCES = 3  # measurements of the slowdown before and after a call
_LONG_SECONDS = 1.0  # of measuring kernels, beside which the machine is measured too


def measured(
    engine: EngineLike = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    *,
    weights: int | None = None,
) -> "MeasuredCosts":
    """Return costs that are measured, or read from the cache directory where they were measured before.

    Args:
        engine: the engine whose kernels are measured; the default engine if None.
        seconds: limit of the time for measuring in this process; a minute if None. 0 measures nothing.
        progress: receives the numbers of finished and of all planned kernels and reorders while `prepare` measures.
        weights: bytes of the network's weights: few weights stay in the caches from run to run. None for many.

    Raises:
        InvalidArguments, MissingExtra: as `primitives.get_engine`.
    """
    engines, machine = companion_engines(get_engine(engine)), this_machine()
    cold, pool = weight_pool(weights, memory_model().last_level)
    bench = Bench(engines[0], cold)
    records = TimingRecords(*_record_facts(engines[0], machine), pool)
    left = SECONDS if seconds is None else seconds
    read_load = partial(recent_processors, 0.0)
    return MeasuredCosts(engines, machine, bench, records, left, progress, clock, read_load, measure_figures)


def _record_facts(engine: Engine, machine: Machine) -> tuple[str, ...]:
    """Return what stored times depend on besides the operation: versions, instruction set, threads, processor."""
    return (__version__, engine.name, engine.runtime, machine.isa, str(machine.threads), *processor_facts())


@dataclass(frozen=True, slots=True)
class _MeasurementRequest:
    """An operation without a stored time: its key, its implementation and the estimate of the model."""

    key: str
    operation: Operation
    implementation: Implementation
    estimate: KernelEstimate


@dataclass(frozen=True, slots=True)
class RemeasuredCount:
    """Numbers of kernels and reorders that were to be measured again."""

    measured: int
    """Number of those that were measured."""
    total: int
    """Number of all; the others were disturbed, or no time was left for them."""


class MeasuredCosts(MachineCosts):
    """Costs by measured times."""

    name = "measured"

    def __init__(
        self,
        engines: Sequence[Engine],
        machine: Machine,
        bench: Bench,
        records: TimingRecords,
        seconds: float = SECONDS,
        progress: Progress | None = None,
        clock: Clock = clock,
        read_load: Callable[[], Processors | None] = lambda: None,
        measure_machine: Callable[[], object] = lambda: None,
    ) -> None:
        """Time kernels of `engines`.

        Args:
            engines: the engines, in the order of preference.
            machine: the machine that kernels run on.
            bench: executes and times kernels.
            records: the times that earlier processes stored.
            seconds: limit of the time for measuring.
            progress: receives the numbers of finished and of all planned kernels and reorders.
            clock: returns the time in seconds.
            read_load: measures the share of each processor that is free. While other programs compute, nothing is
                timed.
            measure_machine: measures the figures of the machine for later processes; called by `prepare` once it has
                measured for over `_LONG_SECONDS`, so that a process with little to measure is not delayed.
        """
        super().__init__(machine)
        self._read_load, self._measure_machine = read_load, measure_machine
        self.processors: Processors | None = None
        """Free share of each processor at the last measurement; None before the first kernel."""
        self._engines, self._bench, self._records = engines, bench, records
        self._seconds_left, self._progress, self._clock = seconds, progress, clock
        self._keys: dict[int, tuple[Operation, str]] = {}
        self._known: dict[str, KernelEstimate | None] = {}
        self._reorders: dict[tuple[MemoryDesc, MemoryDesc], float] = {}
        self._measured_reorders: set[str] = set()
        self._measured_kernels: set[str] = set()
        self._reorder_sources: dict[str, Source] = {}
        self._errors: dict[str, list[float]] = {}
        self._least_ms: dict[Hashable, float] = {}
        self._yardstick_seconds: float | None = None
        self._is_estimating = False
        self._unmeasured: set[str] = set()
        self._unmeasured_reorders: set[tuple[MemoryDesc, MemoryDesc]] = set()
        self._saved = clock()
        self._finalizer = weakref.finalize(self, records.save)

    @property
    def engine(self) -> str:
        """Name and version of the first engine."""
        return self._engines[0].name

    def slowdown(self) -> float:
        """Return the time of the yardstick now, divided by its best time; 1.0 on an undisturbed machine."""
        now = self._bench.yardstick()
        return now / min(self._yardstick, self._bench.fastest)

    @property
    def sources(self) -> CostSources:
        """Numbers of the kernels and reorders that were requested so far, by the origin of their times."""
        kernels = {name: kernel.source for name, kernel in self._known.items() if kernel is not None}
        counts: Counter[str] = Counter()
        for found, timed in ((kernels, self._measured_kernels), (self._reorder_sources, self._measured_reorders)):
            counts.update("remembered" if s == "measured" and name not in timed else s for name, s in found.items())
        modelled = counts["probed"] + counts["modelled"]
        known = counts["measured"], counts["remembered"], counts["scaled"], modelled
        return CostSources(*known, is_out_of_time=self._seconds_left <= 0, unsaved=self._records.unsaved)

    def reorder_source(self, src: MemoryDesc, dst: MemoryDesc) -> Source:
        """Return the origin of the time of `reorder(src, dst)`: measured, scaled or modelled."""
        return self._reorder_sources.get(reorder_key(src, dst, nbytes(src) + nbytes(dst)), "modelled")

    def renew_limit(self, seconds: float | None, progress: Progress | None = None) -> bool:
        """Begin another period of measuring: set its time limit, and read the load anew; return whether it may begin.

        It may not while other programs compute, or where the limit is 0 (see `processors`).

        Args:
            seconds: limit of the time for measuring from now on; a minute if None.
            progress: receives the numbers of finished and of all planned kernels and reorders.
        """
        self._seconds_left, self._progress, self.processors = SECONDS if seconds is None else seconds, progress, None
        return self._may_measure()

    def run_beside_yardstick(self, call: Callable[[], _Result]) -> tuple[_Result | None, float]:
        """Return the result of a call that runs kernels, and the slowdown of the processor at that time.

        The call is repeated if threads of this process waited for a processor meanwhile. If it was disturbed each time,
        the result is None, and the load is read anew.
        """
        glances = [self.slowdown() for _ in range(_GLANCES)]
        result = self._bench.run_undisturbed(call)
        glances += [self.slowdown() for _ in range(_GLANCES)]
        if result is None:
            self._measure_load()
        return result, median(glances)

    def remeasure(
        self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()
    ) -> RemeasuredCount:
        """Measure these again until the time limit, and return how many were measured; the others keep their times.

        The time of a reorder counts from then on for exactly these descriptors, and not for others of similar size.
        """
        self._keys.clear()
        requests = list(self._select_measurable(operations))
        pairs = [pair for pair in dict.fromkeys(reorders) if nbytes(pair[0]) + nbytes(pair[1])]
        total, done, measured = len(requests) + len(pairs), 0, 0
        for first in range(0, len(requests), _GROUP_SIZE):
            group = requests[first : first + _GROUP_SIZE]
            measured += self._measure_and_record(group)
            done += len(group)
            self._report_progress(done, total)
        for src, dst in pairs:
            measured += self._remeasure_reorder(src, dst)
            done += 1
            self._report_progress(done, total)
        self.save()
        return RemeasuredCount(measured, total)

    def save(self) -> None:
        """Write the measured times to disk for other processes."""
        self._records.save()
        self._saved = self._clock()

    @contextmanager
    def without_measuring(self) -> Iterator[None]:
        """Measure nothing within the block: what has no stored time is estimated, until a later request measures it.

        One thread at a time may use these costs.
        """
        outer, self._is_estimating = self._is_estimating, True
        try:
            yield
        finally:
            self._is_estimating = outer

    def _forget_unmeasured(self) -> None:
        """Forget the estimates that were made only because nothing was to be measured."""
        for name in self._unmeasured:
            self._known.pop(name, None)
        for pair in self._unmeasured_reorders:
            self._reorders.pop(pair, None)
        self._unmeasured.clear()
        self._unmeasured_reorders.clear()

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        """Measure those that have no stored time, until the time limit; estimate the rest."""
        if not self._is_estimating:
            self._forget_unmeasured()
        seconds_left = self._seconds_left
        self._keys.clear()
        requests = list(self._select_unmeasured(operations))
        pairs = [pair for pair in dict.fromkeys(reorders) if not self._is_known(*pair)]
        total = len(requests) + len(pairs)
        done = 0
        for first in range(0, len(requests), _GROUP_SIZE):
            group = requests[first : first + _GROUP_SIZE]
            self._resolve(group)
            done += len(group)
            self._report_progress(done, total)
        for src, dst in pairs:
            self.reorder(src, dst)
            done += 1
            self._report_progress(done, total)
        if total:
            self.save()
        if seconds_left - self._seconds_left > _LONG_SECONDS:
            self._measure_machine()

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        """Return the kernel for `operation`; None where no engine supports these formats."""
        name = self._key(operation)
        if name not in self._known:
            self._resolve(list(self._select_unmeasured([operation])))
            if self._clock() - self._saved > _SAVE_INTERVAL:
                self.save()
        found = self._known[name]
        return None if found is None else with_attributes(found, operation)

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Return the milliseconds of a reorder by the engine that sessions use, or of a copy between equal descriptors.

        Reorders between the same formats and of similar size share one measurement, scaled by their bytes.
        """
        pair = src, dst
        if pair not in self._reorders:
            self._reorders[pair] = self._reorder_ms(src, dst)
            if self._is_estimating and self.reorder_source(src, dst) != "measured":
                self._unmeasured_reorders.add(pair)
        return self._reorders[pair]

    def _is_known(self, src: MemoryDesc, dst: MemoryDesc) -> bool:
        """Return whether this or another process has timed a reorder with the same key."""
        name = reorder_key(src, dst, nbytes(src) + nbytes(dst))
        is_known = (src, dst) in self._reorders or name in self._measured_reorders
        return is_known or self._stored_reorder(src, dst, name) is not None

    def _stored_reorder(self, src: MemoryDesc, dst: MemoryDesc, name: str) -> RelativeTime | None:
        """Return the stored time of a reorder for each byte: of exactly these descriptors, else of the key `name`."""
        exact = self._records.reorder(exact_reorder_key(src, dst))
        return self._records.reorder(name) if exact is None else exact

    @property
    def _yardstick(self) -> float:
        """Seconds of the yardstick; stored times are multiples of it. It is constant for the life of this object."""
        if self._yardstick_seconds is None:
            known = self._records.yardstick
            if known is None:
                self._bench.yardstick()
                known = self._bench.fastest
                self._records.write_yardstick(known)
            self._yardstick_seconds = known
        return self._yardstick_seconds

    def _select_unmeasured(self, operations: Iterable[Operation]) -> Iterator[_MeasurementRequest]:
        """Yield a request for each operation that has neither an estimate nor a stored time.

        Operations with a stored time, and those that no engine supports, are entered into `_known`.
        """
        seen = set()
        for operation in operations:
            name = self._key(operation)
            if name in self._known or name in seen:
                continue
            timing = self._records.kernel(name)
            if timing and (restored := self._restore(operation, timing)) is not None:
                self._known[name] = restored
                self._note_least(operation, restored.ms)
                continue
            request = self._make_request(operation)
            if request is None:
                self._known[name] = None
                continue
            seen.add(name)
            yield request

    def _select_measurable(self, operations: Iterable[Operation]) -> Iterator[_MeasurementRequest]:
        """Yield a request for each operation once, unless no engine supports it or its kernel is too slow."""
        for operation in {self._key(operation): operation for operation in operations}.values():
            request = self._make_request(operation)
            if request is not None and not self._is_too_slow(request):
                yield request

    def _make_request(self, operation: Operation) -> _MeasurementRequest | None:
        """Return the request to measure an operation; None where no engine supports it."""
        implementation = find_implementation(self._engines, operation)
        if implementation is None:
            return None
        estimate = estimate_kernel(implementation, self.machine)
        self._note_least(operation, estimate.ms)
        return _MeasurementRequest(self._key(operation), operation, implementation, estimate)

    def _key(self, operation: Operation) -> str:
        """Return the key of an operation, computed once for an object since the last `prepare`."""
        known = self._keys.get(id(operation))
        if known is None:
            known = self._keys[id(operation)] = (operation, operation_key(operation))
        return known[1]

    def _note_least(self, operation: Operation, ms: float) -> None:
        """Note the least time of a kernel for the dims and parameters of an operation, in any format."""
        key = _dims_key(operation)
        self._least_ms[key] = min(ms, self._least_ms.get(key, ms))

    def _is_too_slow(self, request: _MeasurementRequest) -> bool:
        """Return whether a kernel is scalar code that takes too long to measure, or that no plan can contain."""
        if request.implementation.kernel_kind != "reference":
            return False
        ms = request.estimate.ms
        return ms > _TOO_SLOW_MS or self._is_dominated(request)

    def _is_dominated(self, request: _MeasurementRequest) -> bool:
        """Return whether another kernel for the same dims and parameters takes a small part of the estimate."""
        ms = request.estimate.ms
        return ms > max(_DOMINATED_MS, _DOMINATED_RATIO * self._least_ms[_dims_key(request.operation)])

    def _restore(self, operation: Operation, timing: KernelTiming) -> KernelEstimate | None:
        """Return the estimate that a stored timing describes; None if this process cannot use it."""
        try:
            descs = {**operation.descs, **{name: _parse_desc(text) for name, text in timing.descs}}
        except InlayError:
            return None
        if any(is_of_engine(desc, operation) for desc in descs.values()):  # such a descriptor is of one process only
            implementation = find_implementation(self._engines, operation)
            if implementation is None or implementation.impl != timing.impl:
                return None
            descs = {name: implementation.descs[name] for name in operation.descs}
        resolved = replace(operation, descs=descs)
        if descs.keys() != operation.descs.keys() or any(desc.kind == "any" for desc in descs.values()):
            return None
        least = workload(resolved)
        roofline = self.machine.roofline(least, arithmetic_type(resolved))
        ms = timing.time.ratio * self._yardstick * 1e3
        return KernelEstimate(resolved, timing.impl, ms, roofline, timing.scratch, least.nbytes, "measured")

    def _resolve(self, group: Sequence[_MeasurementRequest]) -> None:
        """Measure a group of kernels; estimate those that are too slow, are disturbed, or for which no time is left."""
        self._measure_and_record([one for one in group if not self._is_too_slow(one)])
        for request in group:
            if request.key not in self._known:
                self._known[request.key] = self._scale_estimate(request)
                if self._is_estimating:
                    self._unmeasured.add(request.key)

    def _measure_and_record(self, group: Sequence[_MeasurementRequest]) -> int:
        """Measure a group of kernels if that is possible now, and store the undisturbed times; return their number."""
        measurable = group if group and self._may_measure() else []
        count = 0
        for request, time in zip(measurable, self._measure_group(measurable), strict=True):
            if time is not None and self._is_sound(time):
                self._record(request, time)
                count += 1
        return count

    def _may_measure(self) -> bool:
        """Return whether measuring is allowed, time is left, and no other program computes."""
        if self._is_estimating:
            return False
        if self._seconds_left > 0 and self.processors is None:
            self._measure_load()
        return self._seconds_left > 0 and not self._is_busy

    @property
    def _is_busy(self) -> bool:
        """Return whether other programs computed at the last measurement of the load."""
        return self.processors is not None and self.processors.is_busy

    def _measure_load(self) -> None:
        """Measure the free share of each processor."""
        with self._within_time_limit():
            self.processors = self._read_load()

    def _is_sound(self, time: MeasuredTime) -> bool:
        """Return whether a time is undisturbed; after a disturbed one, measure the load again."""
        if not time.is_sound and self._seconds_left > 0 and not self._is_busy:
            self._measure_load()
        return time.is_sound

    @contextmanager
    def _within_time_limit(self) -> Iterator[None]:
        """Subtract the time of this block from the limit, and make the bench stop when it is reached."""
        started = self._clock()
        self._bench.deadline = started + self._seconds_left
        try:
            yield
        finally:
            self._bench.deadline = float("inf")
            self._seconds_left -= self._clock() - started

    def _measure_group(self, group: Sequence[_MeasurementRequest]) -> Sequence[MeasuredTime | None]:
        """Return the time of each kernel; None for one that cannot be executed."""
        if not group:
            return []
        try:
            return self._run_bench(group)
        except InlayError:
            # An engine cannot create every primitive that it has a descriptor of: try each alone, estimate that one.
            return [None] if len(group) == 1 else [self._measure_group([one])[0] for one in group]

    def _run_bench(self, group: Sequence[_MeasurementRequest]) -> Sequence[MeasuredTime | None]:
        """Time a group of kernels within the time limit."""
        with self._within_time_limit():
            return self._bench.measure([one.implementation for one in group])

    def _record(self, request: _MeasurementRequest, time: MeasuredTime) -> None:
        """Store the measured time of a kernel, for this process and for others."""
        estimate = request.estimate
        ms = time.ratio * self._yardstick * 1e3
        self._known[request.key] = replace(estimate, ms=ms, source="measured")
        self._measured_kernels.add(request.key)
        self._errors.setdefault(_family(request), []).append(ms / estimate.ms)
        chosen = estimate.operation.descs
        free = {name: desc_text(chosen[name]) for name, desc in request.operation.descs.items() if desc.kind == "any"}
        timing = KernelTiming(estimate.impl, RelativeTime(time.ratio), estimate.scratch, tuple(free.items()))
        self._records.write_yardstick(self._bench.fastest)
        self._records.write_kernel(request.key, timing)

    def _scale_estimate(self, request: _MeasurementRequest) -> KernelEstimate:
        """Return the estimate times the median error of the model for measured kernels of the same sort."""
        errors = self._errors.get(_family(request))
        if errors is None or request.estimate.ms > _TOO_SLOW_MS:
            return request.estimate
        return replace(request.estimate, ms=request.estimate.ms * median(errors), source="scaled")

    def _reorder_ms(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Return the milliseconds of a reorder: stored, measured now, or estimated."""
        moved = nbytes(src) + nbytes(dst)
        if not moved:  # there is nothing to execute, so nothing to time
            return 0.0
        name = reorder_key(src, dst, moved)
        time_per_byte = self._stored_reorder(src, dst, name)
        if time_per_byte is None and self._may_measure():
            time_per_byte = self._measure_reorder(src, dst, name)
        if time_per_byte is None:
            self._reorder_sources[name] = "scaled" if "reorder" in self._errors else "modelled"
            return reorder_ms(src, dst, self.machine) * median(self._errors.get("reorder", [1.0]))
        self._reorder_sources[name] = "measured"
        return time_per_byte.ratio * moved * self._yardstick * 1e3

    def _remeasure_reorder(self, src: MemoryDesc, dst: MemoryDesc) -> bool:
        """Measure a reorder again, and store its time for exactly these descriptors; return whether it was measured."""
        name = exact_reorder_key(src, dst)
        if not self._may_measure() or self._measure_reorder(src, dst, name) is None:
            return False
        self._measured_reorders.add(reorder_key(src, dst, nbytes(src) + nbytes(dst)))  # `sources` counts by this key
        self._reorders[src, dst] = self._reorder_ms(src, dst)
        return True

    def _measure_reorder(self, src: MemoryDesc, dst: MemoryDesc, name: str) -> RelativeTime | None:
        """Measure the time of a reorder for each byte, and store it by the key `name`; None if it was disturbed."""
        with self._within_time_limit():
            time = self._time_reorder(src, dst)
        if time is None or not self._is_sound(time):
            return None
        time_per_byte = RelativeTime(time.ratio / (nbytes(src) + nbytes(dst)))
        model = reorder_ms(src, dst, self.machine)
        self._errors.setdefault("reorder", []).append(time.ratio * self._yardstick * 1e3 / model)
        self._measured_reorders.add(name)
        self._records.write_yardstick(self._bench.fastest)
        self._records.write_reorder(name, time_per_byte)
        return time_per_byte

    def _time_reorder(self, src: MemoryDesc, dst: MemoryDesc) -> MeasuredTime | None:
        """Time a reorder by the engine that sessions would use for it."""
        operation = Operation("reorder", "forward_inference", {"src": src, "dst": dst})
        engine, implementation = select_reorder_engine(operation, self._engines)
        if engine is self._engines[0]:
            return self._bench.measure([implementation])[0]
        return self._bench.measure_calls([self._prepare_inlay_reorder(src, dst)])[0]

    def _prepare_inlay_reorder(self, src: MemoryDesc, dst: MemoryDesc) -> Callable[[], Callable[[], object]]:
        """Return the function that prepares the next execution of Inlay's reorder.

        The yardstick runs before it, since in a network the engine's threads busy-wait for their next kernel meanwhile.
        """
        reorder = Reorder(src, dst)

        def prepare_next() -> Callable[[], object]:
            memories = self._bench.activation_memories({"src": src, "dst": dst})
            self._bench.yardstick()
            return partial(reorder, memories["src"], memories["dst"])

        return prepare_next

    def _report_progress(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(done, total)


def reorder_source(costs: Costs, src: MemoryDesc, dst: MemoryDesc) -> Source:
    """Return the origin of a reorder's cost: `modelled`, unless `costs` are measured."""
    return costs.reorder_source(src, dst) if isinstance(costs, MeasuredCosts) else "modelled"


def _dims_key(operation: Operation) -> Hashable:
    """Return a key that is equal for operations that differ in formats and attributes only."""
    dims = tuple((name, desc.dims, desc.data_type) for name, desc in operation.descs.items())
    return operation.kind, dims, tuple(operation.parameters.items())


def _family(request: _MeasurementRequest) -> str:
    """Return the sort of a kernel, by which errors of the model are averaged."""
    return f"{request.operation.kind} {request.implementation.family}"


@lru_cache(maxsize=8192)
def _parse_desc(text: str) -> MemoryDesc:
    return MemoryDesc.from_json(text)
