"""Timing of kernels in the state of caches and threads in which a network executes them.

**Memory.** Each execution reads its own copy of the weights, so that they come from memory: the copies fill a pool that
is as large as the network's weights, or twice the last-level cache, whichever is less. Activations stay in the caches
as they do in a network: executions use four memories in turn. An element-wise function is computed in place. All
kernels share one scratchpad, as in a session.

**Rounds.** A few kernels are measured in turn, for three rounds. A turn is an untimed execution, and at once the median
of one to three timed ones: in a session too, threads are awake when a kernel begins. Kernels over 30 ms have one round,
kernels over 300 ms one execution.

**The yardstick.** Before each turn a small kernel, always the same one, is timed. The result is the median of a
kernel's rounds, divided by the median of the yardstick in all rounds of the group: the processor's clock changes both
alike.

**Disturbed rounds** are dropped: those in which threads of this process waited for a processor, and those whose
yardstick is far slower than its best. A kernel without an undisturbed round has up to six more. If these are disturbed
too, `MeasuredTime.is_sound` is false.

**The deadline.** No execution begins after `Bench.deadline`; a kernel without a round has no time.

The memory holds bytes that are ordinary numbers in every type, neither infinite nor subnormal. Packed formats that only
an engine knows may hold offsets beside numbers, as weights of recurrent networks do, and arbitrary offsets crash the
process. For such a format the engine reorders an array of ones, and executions use copies of the result in turn.
Winograd weights hold numbers alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from typing import TypeVar

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.graph.costs.machine import is_weights
from inlay.graph.costs.models import resolved_operation
from inlay.measure.disturbance import is_disturbed as wait_disturbs
from inlay.measure.disturbance import thread_wait_seconds
from inlay.measure.interleaved import Call, Clock, clock, fastest_call, interleave, time_call
from inlay.memory import Memory, pack
from inlay.memory.buffers import Bytes, allocate
from inlay.memory.reorder_cache import byte_extent
from inlay.primitives import Reorder
from inlay.primitives.engine import Engine, Implementation, Operation
from inlay.reordering.memory_levels import memory_model

_Result = TypeVar("_Result")

SLOW = 30e-3
"""Seconds of an execution above which a kernel has a single round."""
VERY_SLOW = 10 * SLOW
"""Seconds of an execution above which a kernel is executed only once."""
_ROUNDS = 3
_EXTRA_ROUNDS = 6  # rounds that follow for a kernel that was disturbed in all of the first ones
_TURN_SECONDS = 1e-3  # approximate time of a turn
_ACTIVATION_COPIES = 4  # memories that the executions of a kernel use for activations in turn
_MOST_ACTIVATION_BYTES = 16 << 20  # limit of all these memories, unless two of them need more
_YARDSTICK_LIMIT = 1.8  # times its best time: a slower yardstick means that another process computes
_PAGE = 4096
_SCRATCHPAD = "scratchpad"
_MOST_PACKED_COPIES = 40  # of an argument in an engine's own format: no kernel is executed more often
_HARMLESS = (0x3C, 0x3D, 0x3E, 0x3F, 0xBC, 0xBD, 0xBE, 0xBF)  # bytes of numbers from 0.01 to 2 in all float types


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """The time of one kernel."""

    ratio: float
    """The time as a multiple of the yardstick's time."""
    is_sound: bool
    """True if there was an undisturbed round."""


@dataclass(frozen=True, slots=True)
class TimingRound:
    """One turn of a kernel."""

    yardstick: float
    """Time of the yardstick before the turn, in seconds."""
    kernel: float
    """Median time of the kernel's executions, in seconds."""
    is_disturbed: bool
    """True if threads of this process waited for a processor during the turn."""


@dataclass(slots=True)
class TimedKernel:
    """A kernel with its rounds so far."""

    call: Callable[[], Call]
    """Binds the kernel to the next memories and returns the bound call."""
    first: float = 0.0
    """Time of the first execution in seconds."""
    rounds: list[TimingRound] = field(default_factory=list)
    """The rounds in the order of time."""

    def sound(self, best: float) -> list[TimingRound]:
        """Return the undisturbed rounds, where `best` is the best time of the yardstick in seconds."""
        return [one for one in self.rounds if not one.is_disturbed and one.yardstick <= _YARDSTICK_LIMIT * best]

    def time(self, unit: float, best: float) -> MeasuredTime:
        """Return the time as a multiple of `unit` seconds.

        Of a kernel that was disturbed in all rounds, the least time is taken as a multiple of the yardstick's best.
        """
        sound = self.sound(best)
        if not sound:
            return MeasuredTime(min(one.kernel for one in self.rounds) / best, False)
        return MeasuredTime(median(one.kernel for one in sound) / unit, True)


class Bench:
    """Memory to execute kernels in, a clock and the yardstick."""

    def __init__(
        self, engine: Engine, pool_bytes: int | None = None, clock: Clock = clock, waited: Clock = thread_wait_seconds
    ) -> None:
        """Time kernels of `engine`.

        Args:
            engine: the engine whose kernels are timed, and that computes the yardstick.
            pool_bytes: size of the pool for weights, at most twice the last-level cache, which is the default.
            clock: returns the time in seconds.
            waited: returns the seconds that threads of this process have waited for a processor so far.
        """
        self._engine, self._clock, self._waited = engine, clock, waited
        most = 2 * memory_model().last_level
        self._pool_bytes = most if pool_bytes is None else max(_PAGE, min(pool_bytes, most))
        self._pool: Bytes | None = None
        self._pool_offset = 0
        self._activations: Bytes | None = None
        self._scratch = allocate(0)
        self._activation_index = 0
        self._yardstick: Call | None = None
        self._filled = 0
        self.fastest = float("inf")
        """Best time of the yardstick so far, in seconds."""
        self.deadline = float("inf")
        """Time of `clock` after which no further execution begins."""

    @property
    def _is_past_deadline(self) -> bool:
        """Return whether the time to measure has run out."""
        return self._clock() >= self.deadline

    def measure(self, implementations: Sequence[Implementation]) -> list[MeasuredTime | None]:
        """Return the time of each implementation; None for one that had no round before the deadline.

        Raises:
            InlayError: the engine cannot create or bind one of them.
        """
        return self.measure_calls([self._prepare(implementation) for implementation in implementations])

    def measure_calls(self, calls: Sequence[Callable[[], Call]]) -> list[MeasuredTime | None]:
        """Time the calls in turn and return the time of each; None for one that had no round before the deadline."""
        kernels = [TimedKernel(call) for call in calls]
        for kernel in kernels:
            if not self._is_past_deadline:
                self._run_first(kernel)
        most_rounds = _ROUNDS + _EXTRA_ROUNDS
        for kernel in interleave(lambda i: (one for one in kernels if self._is_due(one, i)), most_rounds):
            self._run_turn(kernel)
        sound = [one for kernel in kernels for one in kernel.sound(self.fastest)]
        unit = median([one.yardstick for one in sound] or [self.fastest])
        return [kernel.time(unit, self.fastest) if kernel.rounds else None for kernel in kernels]

    def _is_due(self, kernel: TimedKernel, round_: int) -> bool:
        """Return whether a kernel needs round number `round_`."""
        if kernel.first > VERY_SLOW or self._is_past_deadline:
            return False
        rounds = 1 if kernel.first > SLOW else _ROUNDS
        return round_ < rounds or not kernel.sound(self.fastest)

    def _run_first(self, kernel: TimedKernel) -> None:
        """Execute a kernel once, to know how many rounds it has; for a very slow kernel this is the only round."""
        before, yardstick, call = self._waited(), self.yardstick(), kernel.call()
        if self._is_past_deadline:
            return
        kernel.first = time_call(call, self._clock)[0]
        if kernel.first > VERY_SLOW:
            yardstick = min(yardstick, _YARDSTICK_LIMIT * self.fastest)
            kernel.rounds.append(TimingRound(yardstick, kernel.first, self._is_disturbed_since(before, kernel.first)))

    def yardstick(self) -> float:
        """Return the time of the yardstick now, in seconds: the best of three executions.

        After the deadline it is a single execution.
        """
        call = self._yardstick
        if call is None:
            call = self._yardstick = self._create_yardstick()
            self.fastest = fastest_call(call, self.deadline, 50, self._clock)
        seconds = fastest_call(call, self.deadline, 3, self._clock)
        self.fastest = min(self.fastest, seconds)
        return seconds

    def _run_turn(self, kernel: TimedKernel) -> None:
        """Execute a kernel once untimed, then one to three times timed, and append the round."""
        is_warmed = kernel.first <= SLOW
        times = max(1, min(3, round(_TURN_SECONDS / max(kernel.first, 1e-6))))
        # Executions follow each other at once, as in a session: threads that wait for a binding fall asleep.
        calls = [kernel.call() for _ in range(times + is_warmed)]
        before, started, yardstick = self._waited(), self._clock(), self.yardstick()
        seconds = []
        for call in calls:
            if self._is_past_deadline:
                break
            seconds.append(time_call(call, self._clock)[0])
        del seconds[:is_warmed]
        if seconds:
            kernel.rounds.append(
                TimingRound(yardstick, median(seconds), self._is_disturbed_since(before, self._clock() - started))
            )

    def _is_disturbed_since(self, before: float, seconds: float) -> bool:
        """Return whether threads waited too long for a processor since `before`, in a round of so many seconds."""
        return wait_disturbs(self._waited() - before, seconds)

    def run_undisturbed(self, call: Callable[[], _Result], attempts: int = 3) -> _Result | None:
        """Return the result of the first call in which threads did not wait for a processor; None if none was such."""
        for _ in range(attempts):
            before, started = self._waited(), self._clock()
            result = call()
            if not self._is_disturbed_since(before, self._clock() - started):
                return result
        return None

    def _create_yardstick(self) -> Call:
        """Return the call whose time shows whether the machine is disturbed."""
        implementation = self._engine.create(YARDSTICK)
        memories = {
            name: Memory(desc, _harmless_bytes(_byte_extent(desc))) for name, desc in implementation.descs.items()
        }
        return implementation.bind(memories)

    def _prepare(self, implementation: Implementation) -> Callable[[], Call]:
        """Return the function that binds an implementation to the next memories of activations and weights.

        Raises:
            InlayError: the engine cannot create memory of a format that only it knows.
        """
        descs = implementation.descs
        operation = implementation.operation
        packed = {name: self._create_packed_copies(d) for name, d in descs.items() if is_of_engine(d, operation)}
        weights = [n for n in descs if n not in packed and is_weights(n, resolved_operation(implementation))]
        activations = {n: desc for n, desc in descs.items() if n not in (*packed, *weights, _SCRATCHPAD)}
        in_place = operation.kind == "eltwise" and activations.get("src") == activations.get("dst")

        def bind_next() -> Call:
            memories = self.activation_memories(activations)
            if in_place:
                memories["dst"] = memories["src"]
            memories |= {name: self._next_weight_memory(descs[name]) for name in weights}
            memories |= {name: next(copies) for name, copies in packed.items()}
            if _SCRATCHPAD in descs:
                memories[_SCRATCHPAD] = self._scratch_memory(descs[_SCRATCHPAD])
            return implementation.bind(memories)

        return bind_next

    def activation_memories(self, descs: Mapping[str, MemoryDesc]) -> dict[str, Memory]:
        """Return memory for activations in a buffer that all kernels share.

        Successive calls rotate through several copies, so that the caches do not hold what the last kernel wrote.
        """
        offsets, end = {}, 0
        for name, desc in descs.items():
            offsets[name] = end
            end += -(-_byte_extent(desc) // 64) * 64
        size = max(_PAGE, -(-end // _PAGE) * _PAGE)
        copies = max(2, min(_ACTIVATION_COPIES, _MOST_ACTIVATION_BYTES // size))
        if self._activations is None or self._activations.size < copies * size:
            self._activations = _harmless_bytes(copies * size)
        self._activation_index = (self._activation_index + 1) % copies
        data = self._activations[self._activation_index * size :]
        return {
            name: Memory(desc, data[offsets[name] : offsets[name] + _byte_extent(desc)]) for name, desc in descs.items()
        }

    def _scratch_memory(self, desc: MemoryDesc) -> Memory:
        """Return the shared scratchpad as memory of `desc`."""
        if self._scratch.size < _byte_extent(desc):
            self._scratch = _harmless_bytes(_byte_extent(desc))
        return Memory(desc, self._scratch)

    def _create_packed_copies(self, desc: MemoryDesc) -> Iterator[Memory]:
        """Return an endless sequence of copies of ones in a packed format.

        All copies together are as large as the pool for weights.

        Raises:
            InlayError: the engine has no reorder into the format.
        """
        ones = pack(np.ones(desc.dims, np.float32), MemoryDesc(desc.dims, desc.data_type))
        packed: Memory = Reorder(ones.desc, desc, engine=self._engine)(src=ones)
        count = max(1, min(_MOST_PACKED_COPIES, self._pool_bytes // max(1, packed.buffer.size)))
        return cycle([packed, *(Memory(desc, _copy_bytes(packed.buffer)) for _ in range(count - 1))])

    def _next_weight_memory(self, desc: MemoryDesc) -> Memory:
        """Return memory for weights: the next part of the pool."""
        nbytes = _byte_extent(desc)
        if self._pool is None or self._pool.size < nbytes:
            self._pool, self._filled = allocate(max(nbytes, self._pool_bytes)), 0
        if self._pool_offset + nbytes > self._pool.size:
            self._pool_offset = 0
        begin, self._pool_offset = self._pool_offset, self._pool_offset + -(-nbytes // _PAGE) * _PAGE
        if begin + nbytes > self._filled:
            _fill(self._pool[self._filled : begin + nbytes])
            self._filled = begin + nbytes
        return Memory(desc, self._pool[begin : begin + nbytes])


def is_of_engine(desc: MemoryDesc, operation: Operation) -> bool:
    """Return whether only the engine knows the format of an argument, and only in the process that created it."""
    return desc.kind == "opaque" and algorithm_of(operation) is None


def weight_pool(weights: int | None, last_level: int) -> tuple[int, str]:
    """Return the size of the pool for weights in bytes, and the name of that size in the facts of timing records.

    The name is the size where the pool is as large as the weights; else `beyond the caches`, whatever their size.
    """
    most = 2 * last_level
    size = most if weights is None or weights > last_level // 2 else _next_pool_size(weights)
    return (most, "beyond the caches") if size >= most else (size, str(size))


def _next_pool_size(nbytes: int) -> int:
    """Return the next power of four MiB, so that networks of similar size share timing records."""
    size = 1 << 20
    while size < nbytes:
        size *= 4
    return size


def _byte_extent(desc: MemoryDesc) -> int:
    """Return the bytes that a descriptor needs from the beginning of its memory, at least 64."""
    return max(64, desc.size, byte_extent(desc)[1])


def _copy_bytes(buffer: Bytes) -> Bytes:
    """Return a copy of a buffer with the alignment of memory."""
    copy = allocate(buffer.size)
    copy[:] = buffer
    return copy


def _harmless_bytes(nbytes: int) -> Bytes:
    """Allocate bytes that are ordinary numbers in every type, so that no instruction is slow with them."""
    buffer = allocate(nbytes)
    _fill(buffer)
    return buffer


def _fill(buffer: Bytes) -> None:
    """Fill a buffer with such bytes."""
    pattern = np.random.default_rng(0).choice(np.array(_HARMLESS, np.uint8), 1 << 16)
    for begin in range(0, buffer.size, pattern.size):
        part = buffer[begin : begin + pattern.size]
        part[:] = pattern[: part.size]


def _yardstick_operation() -> Operation:
    """Return a convolution of 3x3 with about 60 us of arithmetic, which fits in the first-level caches of two cores.

    The time of a shorter one would mostly be the synchronization of threads.
    """
    image, weights = MemoryDesc((1, 64, 14, 14), "f32", "nhwc"), MemoryDesc((64, 64, 3, 3), "f32", "any")
    windows = {"strides": (1, 1), "dilations": (0, 0), "padding_l": (1, 1), "padding_r": (1, 1)}
    descs = {"src": image, "weights": weights, "dst": image}
    return Operation("convolution", "forward_inference", descs, {"algorithm": "direct", **windows})


YARDSTICK = _yardstick_operation()
"""The operation that the yardstick computes."""
