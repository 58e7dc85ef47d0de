"""One case: everybody's bytes are compared with Inlay's, then everybody is timed in the same rounds as the copies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from benchmarks.buffers import Bytes, fill_with_values, huge_buffer
from benchmarks.cases import Case
from benchmarks.copies import ThreadedMemcpy
from benchmarks.onednn import Refused
from benchmarks.peers import NumPy, Peer
from benchmarks.timing import Rounds, fastest, take_turns
from inlay.descriptor import MemoryDesc
from inlay.measure.disturbance import OtherLoad
from inlay.measure.interleaved import Call
from inlay.measure.statistics import Spread, paired_ratio
from inlay.reordering.attributes import PLAIN, Attributes

FAR = 1.5
"""How many times as long as Inlay a peer must take for a few rounds to be enough."""
LOUD = 0.10
"""What others may take of all processors during one case: more than the system's clock can be wrong by."""
TRIES = 3
"""How often a case is measured that others disturb."""
_GARBAGE = 0xA5
_COPY = "copy "
_LINE = 64


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one case."""

    case: Case
    """The case."""
    seconds: dict[str, list[float]]
    """Seconds per call of each peer, one entry per round."""
    copy_seconds: dict[str, list[float]]
    """The same of each way to copy as many bytes."""
    absent: dict[str, str] = field(default_factory=dict)
    """Peers that were not timed, and why: they refuse the case, or their bytes differ from Inlay's."""
    run: int = 0
    """Which of several runs it belongs to."""
    share_of_others: float | None = None
    """What other processes took of the processors meanwhile; None where the system does not say."""

    @property
    def is_loud(self) -> bool:
        """Whether others took so much meanwhile that the times say little."""
        return self.share_of_others is not None and self.share_of_others >= LOUD

    @property
    def best_copy(self) -> str:
        """The copy that is 100 %."""
        return fastest(self.copy_seconds)

    @property
    def copy_time(self) -> float:
        """Its median, in seconds."""
        return median(self.copy_seconds[self.best_copy])

    def percent_of_copy(self, peer: str) -> Spread:
        """The speed of a peer, where that of the best copy is 100."""
        return paired_ratio(self.copy_seconds[self.best_copy], self.seconds[peer]).times(100)

    def times_faster_than(self, peer: str) -> Spread:
        """How many times faster Inlay is than `peer`."""
        return paired_ratio(self.seconds[peer], self.seconds["Inlay"])


def measured_in_quiet(
    case: Case, peers: Sequence[Peer], memcpy: ThreadedMemcpy, rounds: Rounds, run: int = 0
) -> Result:
    """The times of everybody on one case; if others disturb it, those of the quietest of `TRIES` attempts."""
    best = measured(case, peers, memcpy, rounds, run)
    for _ in range(TRIES - 1):
        if not best.is_loud:
            break
        again = measured(case, peers, memcpy, rounds, run)
        best = min(best, again, key=lambda result: result.share_of_others or 0.0)
    return best


def measured(case: Case, peers: Sequence[Peer], memcpy: ThreadedMemcpy, rounds: Rounds, run: int = 0) -> Result:
    """The times of everybody on one case. `peers` begins with Inlay."""
    # A sum moves more bytes than half of both buffers: the copies need room for theirs.
    room = -(-max(case.src.size, case.dst.size, case.nbytes // 2) // _LINE) * _LINE
    src, dst = huge_buffer(room), huge_buffer(room)
    fill_source(src, case.src)
    calls, absent = agreeing_calls(peers, case.src, src, case.dst, dst, case.attributes)
    copies = flat_copies(peers, src, dst, case.nbytes // 2, memcpy)
    everybody = calls | {f"{_COPY}{name}": call for name, call in copies.items()}
    others = OtherLoad()
    times = take_turns(everybody, rounds, case.size.warm, decided)
    return Result(
        case,
        {name: times[name] for name in calls},
        {name: times[f"{_COPY}{name}"] for name in copies},
        absent,
        run,
        others.share(),
    )


def decided(times: Mapping[str, Sequence[float]]) -> set[str]:
    """Of whom a few rounds say enough: copies that never came near the best one, peers that Inlay leaves behind.

    A copy is out where its fastest round is slower than the median of the best copy; a peer where it took `FAR` times
    as long as Inlay in each round. Whoever is near, or ahead of Inlay, takes part in all rounds.
    """
    copies = {name: seconds for name, seconds in times.items() if name.startswith(_COPY)}
    best = min(map(median, copies.values()), default=0.0)
    out = {name for name, seconds in copies.items() if min(seconds) > best}
    ours = times.get("Inlay", ())
    for name in times.keys() - copies.keys() - {"Inlay"}:
        if ours and all(a > FAR * b for a, b in zip(times[name], ours, strict=False)):
            out.add(name)
    return out


def fill_source(buffer: Bytes, desc: MemoryDesc) -> None:
    """Values where the data is; zeros in the padding, which is what everybody may rely on."""
    assert desc.data_type is not None, "a case has types"
    if desc.padded_dims == desc.dims:
        fill_with_values(buffer, desc.data_type)
        return
    plain = MemoryDesc(desc.dims, desc.data_type)
    values = huge_buffer(plain.size)
    fill_with_values(values, desc.data_type)
    NumPy().prepare(plain, values, desc, buffer)()


def agreeing_calls(
    peers: Sequence[Peer],
    src: MemoryDesc,
    src_buffer: Bytes,
    dst: MemoryDesc,
    dst_buffer: Bytes,
    attributes: Attributes = PLAIN,
) -> tuple[dict[str, Call], dict[str, str]]:
    """The calls that leave the same bytes as the first peer's, and why the others are left out."""
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    expected: Bytes | None = None
    for peer in peers:
        try:
            call = peer.prepare(src, src_buffer, dst, dst_buffer, attributes)
        except Refused as reason:
            absent[peer.name] = str(reason)
            continue
        dst_buffer.fill(_GARBAGE)
        call()
        if expected is None:
            expected = dst_buffer.copy()
        wrong = first_difference(dst_buffer, expected, src, dst)
        if wrong is None:
            calls[peer.name] = call
        else:
            absent[peer.name] = f"{DIFFERS} from byte {wrong} on"
    return calls, absent


def first_difference(found: Bytes, expected: Bytes, src: MemoryDesc, dst: MemoryDesc) -> int | None:
    """The first byte that is not what was expected.

    Every byte counts, but where f32 or bf16 become f8 (each element a byte) the next f8 will do as well: oneDNN rounds
    to f16 first and then once more.
    """
    if np.array_equal(found, expected):
        return None
    wrong = found != expected
    if src.data_type != dst.data_type and str(dst.data_type).startswith("f8"):
        codes = [np.where(side & 0x80, -(side & 0x7F).astype(np.int16), side) for side in (found, expected)]
        wrong = abs(codes[0] - codes[1]) > 1
    return int(np.argmax(wrong)) if wrong.any() else None


DIFFERS = "its bytes differ from Inlay's"


def flat_copies(peers: Sequence[Peer], src: Bytes, dst: Bytes, nbytes: int, memcpy: ThreadedMemcpy) -> dict[str, Call]:
    """Every way at hand to copy `nbytes` bytes from `src` to `dst`."""
    flat = MemoryDesc((nbytes,), "u8", "a")
    of, to = src[:nbytes], dst[:nbytes]
    copies: dict[str, Call] = {peer.name: peer.prepare(flat, of, flat, to) for peer in peers}
    copies["memcpy"] = lambda: memcpy.copy(of, to)
    return copies
