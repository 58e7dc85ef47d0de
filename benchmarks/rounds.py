"""The times of one case: contenders with equal bytes and copies take turns, round after round.

Before a block every thread of this process has gone to sleep. Where the case fits a cache, the call then runs untimed,
four times and three milliseconds at least, or twenty milliseconds: until its threads are awake, the data is in the
cache and the processors have left the sleep that the wait caused. Contenders that are far behind leave early.

The yardstick is the best copy of as many bytes on the same threads. No copy is the best on all machines, so several
compete in the same rounds: the flat copy of each contender, and `memcpy` split over all processors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from statistics import median

from benchmarks.buffers import Bytes, ThreadedMemcpy, fill_with_values, huge_buffer
from benchmarks.cases import Case
from benchmarks.peers import Peer, in_passes
from inlay.bench.contenders import agreeing_calls, flat_copies, numpy
from inlay.bench.measurement import INLAY, Measurement
from inlay.descriptor import MemoryDesc
from inlay.measure.disturbance import IdleWait, OtherLoad
from inlay.measure.interleaved import Call, Judge, Turn, measure_interleaved
from inlay.memory import Memory

DEFAULT_ROUNDS, FEWEST = 9, 3  # rounds of a run, and the least number of rounds in which every contender takes part
FAR = 1.5  # a contender that takes so many times as long as Inlay in each of the first rounds takes part in no others
LOUD = 0.10
"""Share of all processors that other processes take during a disturbed case: more than the system's clock errs by."""
TRIES = 3  # attempts at a disturbed case
_COPY = "copy "
_LINE = 64
_LOOK_SECONDS = 1e-3  # for which the process is watched before it counts as asleep, twice in a row


@dataclass(frozen=True, slots=True)
class Rounds:
    """The number and the length of rounds."""

    count: int = DEFAULT_ROUNDS
    block_seconds: float = 2e-3  # of a block, about: a shorter call is repeated
    settle_seconds: float = 0.25  # the longest wait for threads that spin: OpenMP's of GNU 8 ms, Intel's 200 ms
    patience: float = 50e-3  # seconds of one call from which on it takes part in the first rounds only
    once: float = 200e-3  # seconds of one call from which on it is timed once, before the rounds
    warm_enough: float = 20e-3  # seconds of untimed calls that are enough before a block; longer calls need none

    @property
    def first(self) -> int:
        """The number of rounds in which every contender takes part: a third, three at least.

        >>> Rounds(count=21).first, Rounds(count=9).first, Rounds(count=2).first
        (7, 3, 2)
        """
        return min(self.count, max(FEWEST, ceil(self.count / 3)))

    def measure(self, calls: Mapping[str, Call], warm: bool, judge: Judge | None = None) -> dict[str, list[float]]:
        """Return the seconds per call of each, one entry per round; with `warm` untimed calls come before a block."""
        looks = round(self.settle_seconds / _LOOK_SECONDS)
        idle = IdleWait(sleep=0.0, look=_LOOK_SECONDS, share=0.15, looks=2, most=looks)
        turn = Turn(self.block_seconds, 3e-3, 4, self.warm_enough if warm else 0.0, idle)
        few = {"first": self.first, "once": self.once, "patience": self.patience}
        return measure_interleaved(calls, self.count, turn, judge=judge, **few)  # type: ignore[arg-type]


QUICK = Rounds(count=3, block_seconds=1e-3, settle_seconds=12e-3, warm_enough=8e-3)  # rounds that suffice for a look


@dataclass(frozen=True, slots=True)
class Result:
    """The measurement of one case in one run."""

    case: Case
    measured: Measurement
    run: int = 0  # the number of the run that it belongs to
    share_of_others: float | None = None  # share of all processors that other processes took, if the system tells

    @property
    def is_loud(self) -> bool:
        """True if other processes took so much meanwhile that the times say little."""
        return self.share_of_others is not None and self.share_of_others >= LOUD


def measure_in_quiet(case: Case, peers: Sequence[Peer], memcpy: ThreadedMemcpy, rounds: Rounds, run: int = 0) -> Result:
    """Measure one case; if other processes disturb it, return the quietest of `TRIES` attempts."""
    best = measure_case(case, peers, memcpy, rounds, run)
    for _ in range(TRIES - 1):
        if not best.is_loud:
            break
        again = measure_case(case, peers, memcpy, rounds, run)
        best = min(best, again, key=lambda result: result.share_of_others or 0.0)
    return best


def measure_case(case: Case, peers: Sequence[Peer], memcpy: ThreadedMemcpy, rounds: Rounds, run: int = 0) -> Result:
    """Measure one case. `peers` begins with Inlay."""
    # A sum moves more bytes than half of both buffers, and the copies need space for theirs.
    nbytes = -(-max(case.src.size, case.dst.size, case.nbytes // 2) // _LINE) * _LINE
    src, dst, half = huge_buffer(nbytes), huge_buffer(nbytes), case.nbytes // 2
    fill_source(src, case.src)
    calls, absent = agreeing(peers, case, src, dst)
    copies = flat_copies({peer.name: peer.prepare_plain for peer in peers}, src, dst, half)
    copies["memcpy"] = lambda: memcpy.copy(src[:half], dst[:half])
    others = OtherLoad()
    times = rounds.measure(calls | {f"{_COPY}{name}": call for name, call in copies.items()}, case.size.warm, decided)
    copied = {name: times.pop(f"{_COPY}{name}") for name in copies}
    return Result(case, Measurement(times, copied, absent), run, others.share())


def agreeing(peers: Sequence[Peer], case: Case, src: Bytes, dst: Bytes) -> tuple[dict[str, Call], dict[str, str]]:
    """Return the calls of contenders that leave the same bytes as Inlay, and why other contenders are absent."""
    one, two = Memory(case.src, src[: case.src.size]), Memory(case.dst, dst[: case.dst.size])
    attributes, values = case.pair.attributes, case.values
    return agreeing_calls({p.name: partial(p.prepare, one, two, attributes, values) for p in peers}, case.src, two)


def decided(times: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the names of calls whose first rounds suffice: copies behind the best one, contenders far behind Inlay.

    A copy is behind where its fastest round is slower than the median of the best copy; a contender is far behind where
    it took `FAR` times as long as Inlay in each round.
    """
    copies = {name: seconds for name, seconds in times.items() if name.startswith(_COPY)}
    best = min(map(median, copies.values()), default=0.0)
    out = {name for name, seconds in copies.items() if min(seconds) > best}
    ours = times.get(INLAY, ())
    others = times.keys() - copies.keys() - {INLAY} if ours else set()
    return out | {n for n in others if all(a > FAR * b for a, b in zip(times[n], ours, strict=False))}


def fill_source(buffer: Bytes, desc: MemoryDesc) -> None:
    """Write values to the elements, and zeros to the padding, on which contenders may rely."""
    assert desc.data_type is not None, "a case has types"
    plain, is_padded = MemoryDesc(desc.dims, desc.data_type), desc.padded_dims != desc.dims
    values = huge_buffer(plain.size) if is_padded else buffer
    fill_with_values(values, desc.data_type)
    if is_padded:
        in_passes(numpy, Memory(plain, values), Memory(desc, buffer[: desc.size]))()
