"""How a kernel is timed so that it takes in a network what it took here.

- Weights are cold: each execution has its own copy, in a pool of memory that is as large as the network's weights, or
  twice the last-level cache, whichever is less. Activations are as warm as in a network, where some other tensors come
  between two uses of a place: executions take turns in four places. An element-wise function is computed in place.
  The scratchpad is one for all, as it is in a session.
- Some kernels take turns, for three rounds; each turn is an untimed execution, then the median of a few.
- Before each turn a yardstick is timed, a kernel that always is the same. What counts is the ratio to it, since the
  clock of a processor goes up and down: of the median of a kernel's rounds to that of the yardstick in all rounds of
  these kernels, as a single one is less exact than what it measures.
- A round in which threads of this process waited for a processor does not count, nor one whose yardstick took far too
  long: another process computes. Where all were like that, there are up to six rounds more; and where these are too,
  the answer says that it is not to be relied on (`Taken.is_sound`).
- Who takes over 30 ms does so twice, who takes over 300 ms once.
- Before each single execution `Bench.deadline` is compared with the clock: after it nothing is executed any more, and
  what had no round has no time.

What stands in the memory is harmless in every type: no infinity, no subnormal number. A format that only the engine
knows may hold more than numbers: packed weights of recurrent networks begin with counts and offsets, and arbitrary ones
end the process. So the engine itself reorders ones into such a format, and copies of that take turns. Weights of a
Winograd convolution are numbers alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.graph.costs.machine import is_weights
from inlay.graph.costs.models import settled_by
from inlay.measure.disturbance import is_disturbed, thread_wait_seconds
from inlay.measure.interleaved import Call, Clock, clock, fastest_call, interleave, time_call
from inlay.memory import Memory, pack
from inlay.memory.buffers import Bytes, allocate
from inlay.memory.reorder_cache import byte_extent
from inlay.primitives import Reorder
from inlay.primitives.engine import Engine, Implementation, Operation
from inlay.reordering.memory_levels import memory_model

SLOW = 30e-3
"""Seconds: who takes longer is timed twice."""
HOPELESS = 10 * SLOW
"""Seconds: who takes longer is timed once."""
_ROUNDS = 3
_TURN = 1e-3  # seconds of a turn, about
_PLACES = 4  # for the activations of a kernel
_MOST = 16 << 20  # bytes of these places, where two do not take more
_DISTURBED = 1.8  # times the fastest ever: no clock goes down so far, somebody else computes
_AGAIN = 6  # more rounds for those that were disturbed in all
_ALIGNED = 4096
_SCRATCHPAD = "scratchpad"
_MOST_COPIES = 40  # of an argument in an engine's own format: no kernel is executed more often
_HARMLESS = (0x3C, 0x3D, 0x3E, 0x3F, 0xBC, 0xBD, 0xBE, 0xBF)  # bytes of numbers from 0.01 to 2 in every type of floats


@dataclass(frozen=True, slots=True)
class Taken:
    """What was found of one kernel."""

    ratio: float
    """Its time, as a multiple of the yardstick's."""
    is_sound: bool
    """Whether there was a round in which the machine was ours."""


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of a kernel."""

    yardstick: float
    """Seconds of the yardstick."""
    mine: float
    """Seconds of the kernel."""
    is_lost: bool
    """Whether threads waited for a processor."""


@dataclass(slots=True)
class Run:
    """A kernel that is being timed."""

    call: Callable[[], Call]
    """Prepares the next execution, which is what it answers."""
    first: float = 0.0
    """Seconds of the first execution."""
    rounds: list[Round] = field(default_factory=list)
    """In order."""

    def sound(self, best: float) -> list[Round]:
        """The rounds in which the machine was ours, if the yardstick takes `best` at its best."""
        return [one for one in self.rounds if not one.is_lost and one.yardstick <= _DISTURBED * best]

    def taken(self, unit: float, best: float) -> Taken:
        """Its time as a multiple of `unit` seconds; where it was disturbed in all rounds, at most that."""
        sound = self.sound(best)
        if not sound:
            return Taken(min(one.mine for one in self.rounds) / best, False)
        return Taken(median(one.mine for one in sound) / unit, True)


class Bench:
    """Memory to run kernels in, a clock and a yardstick."""

    def __init__(
        self, engine: Engine, cold: int | None = None, clock: Clock = clock, waited: Clock = thread_wait_seconds
    ) -> None:
        """Time kernels of `engine` whose weights come from a pool of `cold` bytes, which is made when it is needed."""
        self._engine, self._clock, self._waited = engine, clock, waited
        most = 2 * memory_model().last_level
        self._cold = most if cold is None else max(_ALIGNED, min(cold, most))
        self._pool: Bytes | None = None
        self._at = 0
        self._warm: Bytes | None = None
        self._scratch = allocate(0)
        self._place = 0
        self._yardstick: Call | None = None
        self._filled = 0
        self.fastest = float("inf")
        """Seconds of the yardstick at its best so far."""
        self.deadline = float("inf")
        """When `clock` shows this, no further execution begins."""

    @property
    def _is_over(self) -> bool:
        return self._clock() >= self.deadline

    def taken(self, implementations: Sequence[Implementation]) -> list[Taken | None]:
        """The time of each; None for what had no turn before the deadline.

        Raises:
            InlayError: the engine cannot make or bind one of them.
        """
        return self.timed([self._prepared(implementation) for implementation in implementations])

    def timed(self, calls: Sequence[Callable[[], Call]]) -> list[Taken | None]:
        """The time of what each call prepares, None for what had no turn before the deadline; they take turns."""
        runs = [Run(call) for call in calls]
        for run in runs:
            if not self._is_over:
                self._first(run)
        for one in interleave(lambda i: (run for run in runs if self._is_due(run, i)), _ROUNDS + _AGAIN):
            self._turn(one)
        unit = median([one.yardstick for run in runs for one in run.sound(self.fastest)] or [self.fastest])
        return [run.taken(unit, self.fastest) if run.rounds else None for run in runs]

    def _is_due(self, run: Run, round_: int) -> bool:
        if run.first > HOPELESS or self._is_over:
            return False
        rounds = 1 if run.first > SLOW else _ROUNDS
        return round_ < rounds or not run.sound(self.fastest)

    def _first(self, run: Run) -> None:
        """The execution that shows how long a turn will be, the only one of who is hopeless."""
        before, yardstick, call = self._waited(), self.yardstick(), run.call()
        if self._is_over:
            return
        run.first = time_call(call, self._clock)[0]
        if run.first > HOPELESS:
            yardstick = min(yardstick, _DISTURBED * self.fastest)
            run.rounds.append(Round(yardstick, run.first, self._is_lost(before, run.first)))

    def yardstick(self) -> float:
        """Seconds that the yardstick takes now: the best of three executions, of one after the deadline."""
        call = self._yardstick
        if call is None:
            call = self._yardstick = self._made_yardstick()
            self.fastest = fastest_call(call, self.deadline, 50, self._clock)
        seconds = fastest_call(call, self.deadline, 3, self._clock)
        self.fastest = min(self.fastest, seconds)
        return seconds

    def _turn(self, run: Run) -> None:
        before, started, yardstick = self._waited(), self._clock(), self.yardstick()
        if run.first <= SLOW and not self._is_over:
            run.call()()
        times = max(1, min(3, round(_TURN / max(run.first, 1e-6))))
        mine = []
        for _ in range(times):
            call = run.call()
            if self._is_over:
                break
            mine.append(time_call(call, self._clock)[0])
        if mine:
            run.rounds.append(Round(yardstick, median(mine), self._is_lost(before, self._clock() - started)))

    def _is_lost(self, before: float, seconds: float) -> bool:
        """Whether threads waited too long for a processor since `before`, in a round of so many seconds."""
        return is_disturbed(self._waited() - before, seconds)

    def _made_yardstick(self) -> Call:
        implementation = self._engine.create(YARDSTICK)
        memories = {name: Memory(desc, _harmless(_reach(desc))) for name, desc in implementation.descs.items()}
        return implementation.bind(memories)

    def _prepared(self, implementation: Implementation) -> Callable[[], Call]:
        """What binds the implementation to memory: the next place for activations, the next copy for weights.

        Raises:
            InlayError: the engine makes no memory of a format that only it knows.
        """
        descs = implementation.descs
        own = {name: self._packed(desc) for name, desc in descs.items() if is_of_engine(desc, implementation.operation)}
        cold = [name for name in descs if name not in own and is_weights(name, settled_by(implementation))]
        warm = {name: desc for name, desc in descs.items() if name not in (*own, *cold, _SCRATCHPAD)}
        in_place = implementation.operation.kind == "eltwise" and warm.get("src") == warm.get("dst")

        def bound() -> Call:
            memories = self.warm(warm)
            if in_place:
                memories["dst"] = memories["src"]
            memories |= {name: self._next_copy(descs[name]) for name in cold}
            memories |= {name: next(copies) for name, copies in own.items()}
            if _SCRATCHPAD in descs:
                memories[_SCRATCHPAD] = self._shared(descs[_SCRATCHPAD])
            return implementation.bind(memories)

        return bound

    def warm(self, descs: Mapping[str, MemoryDesc]) -> dict[str, Memory]:
        """Memory for activations, which all kernels share: the next of some places."""
        offsets, end = {}, 0
        for name, desc in descs.items():
            offsets[name] = end
            end += -(-_reach(desc) // 64) * 64
        size = max(_ALIGNED, -(-end // _ALIGNED) * _ALIGNED)
        places = max(2, min(_PLACES, _MOST // size))
        if self._warm is None or self._warm.size < places * size:
            self._warm = _harmless(places * size)
        self._place = (self._place + 1) % places
        held = self._warm[self._place * size :]
        return {name: Memory(desc, held[offsets[name] : offsets[name] + _reach(desc)]) for name, desc in descs.items()}

    def _shared(self, desc: MemoryDesc) -> Memory:
        """The scratchpad, as memory of `desc`."""
        if self._scratch.size < _reach(desc):
            self._scratch = _harmless(_reach(desc))
        return Memory(desc, self._scratch)

    def _packed(self, desc: MemoryDesc) -> Iterator[Memory]:
        """Copies of ones in a format that only the engine knows, which take turns; as cold as weights in the pool.

        Raises:
            InlayError: the engine has no reorder into the format.
        """
        ones = pack(np.ones(desc.dims, np.float32), MemoryDesc(desc.dims, desc.data_type))
        packed: Memory = Reorder(ones.desc, desc, engine=self._engine)(src=ones)
        count = max(1, min(_MOST_COPIES, self._cold // max(1, packed.buffer.size)))
        return cycle([packed, *(Memory(desc, _copied(packed.buffer)) for _ in range(count - 1))])

    def _next_copy(self, desc: MemoryDesc) -> Memory:
        nbytes = _reach(desc)
        if self._pool is None or self._pool.size < nbytes:
            self._pool, self._filled = allocate(max(nbytes, self._cold)), 0
        if self._at + nbytes > self._pool.size:
            self._at = 0
        begin, self._at = self._at, self._at + -(-nbytes // _ALIGNED) * _ALIGNED
        if begin + nbytes > self._filled:
            _fill(self._pool[self._filled : begin + nbytes])
            self._filled = begin + nbytes
        return Memory(desc, self._pool[begin : begin + nbytes])


def is_of_engine(desc: MemoryDesc, operation: Operation) -> bool:
    """Whether only the engine, in the process in which it chose the format of an argument, knows what stands in it."""
    return desc.kind == "opaque" and algorithm_of(operation) is None


def pool_of(weights: int | None, last_level: int) -> tuple[int, str]:
    """Bytes of the pool that weights come from, and the word for it under which their times are remembered.

    The word is its size where it is as large as the weights; else that it exceeds the caches, however large these are.
    """
    most = 2 * last_level
    size = most if weights is None or weights > last_level // 2 else _power(weights)
    return (most, "beyond the caches") if size >= most else (size, str(size))


def _power(nbytes: int) -> int:
    """The next power of four of MiB, so that networks of about one size share what is known."""
    size = 1 << 20
    while size < nbytes:
        size *= 4
    return size


def _reach(desc: MemoryDesc) -> int:
    """Bytes that a descriptor needs from the beginning of its memory."""
    return max(64, desc.size, byte_extent(desc)[1])


def _copied(buffer: Bytes) -> Bytes:
    copy = allocate(buffer.size)
    copy[:] = buffer
    return copy


def _harmless(nbytes: int) -> Bytes:
    """So many bytes of numbers that no instruction is slow with."""
    buffer = allocate(nbytes)
    _fill(buffer)
    return buffer


def _fill(buffer: Bytes) -> None:
    """Write such numbers."""
    pattern = np.random.default_rng(0).choice(np.array(_HARMLESS, np.uint8), 1 << 16)
    for begin in range(0, buffer.size, pattern.size):
        part = buffer[begin : begin + pattern.size]
        part[:] = pattern[: part.size]


def _yardstick_operation() -> Operation:
    """A convolution of 3x3 that fits the first caches of two cores: some 60 us of arithmetic.

    A shorter one would mostly tell how long threads take to meet.
    """
    image, weights = MemoryDesc((1, 64, 14, 14), "f32", "nhwc"), MemoryDesc((64, 64, 3, 3), "f32", "any")
    windows = {"strides": (1, 1), "dilations": (0, 0), "padding_l": (1, 1), "padding_r": (1, 1)}
    descs = {"src": image, "weights": weights, "dst": image}
    return Operation("convolution", "forward_inference", descs, {"algorithm": "direct", **windows})


YARDSTICK = _yardstick_operation()
"""What the yardstick computes."""
