"""`inlay bench`: who takes part, how turns are taken, and what is said about it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import inlay
from inlay import cli
from inlay.bench import Report, bench, contenders, reorders
from inlay.bench.measurement import Measurement
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented
from inlay.measure import disturbance
from inlay.measure.disturbance import IdleWait
from inlay.measure.interleaved import measure_interleaved
from inlay.measure.statistics import Spread
from inlay.memory import Memory, Reorder
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import tuning
from inlay.reordering.choice import Choice, Decision
from inlay.testing import reorder_problems
from tests.support.refusals import raises_exactly

SRC, DST = MemoryDesc((2, 32, 14, 14), "f32", "nchw"), MemoryDesc((2, 32, 14, 14), "f32", "nhwc")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No waits, no peers but NumPy, nothing remembered."""
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(IdleWait, "wait", lambda self: None)
    monkeypatch.setattr(contenders, "CONTENDERS", {"NumPy": contenders.numpy})
    find_reorder.cache_clear()
    yield
    find_reorder.cache_clear()


def names(found: Report) -> list[str]:
    return ["copy", *found.measured.seconds]


def test_a_report_has_the_copy_inlay_and_the_peers() -> None:
    found = bench(SRC, DST, rounds=2)
    assert names(found) == ["copy", "Inlay", "NumPy"]
    assert found.moved_bytes == 2 * SRC.size
    measured = found.measured
    assert list(measured.copies) == ["copy by Inlay", "copy by NumPy"]
    assert all(len(s) == 2 and min(s) > 0 for s in (*measured.seconds.values(), *measured.copies.values()))
    assert found.decision == "decided by the model"


def test_what_tuning_won_is_measured_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    won = Decision(Choice(traversal="dst"), 1.5, 0.25)
    monkeypatch.setattr(tuning, "_measure_candidates", lambda problem, src, dst, seconds: won)
    found = bench(SRC, DST, rounds=1, tune=0.25)
    assert names(found) == ["copy", "Inlay", "Inlay, by the model", "NumPy"]
    assert found.decision == "tuned: traverse dst; 1.50 times as fast as what the model decides"
    assert names(bench(SRC, DST, rounds=1)) == names(found), "it is remembered"
    assert "  tuned: traverse dst;" in Reorder(SRC, DST).explain()


SECONDS = {"Inlay": [4e-3, 4e-3, 4e-3], "peer": [8e-3, 10e-3, 12e-3]}
MEASURED = Measurement(SECONDS, {"copy by NumPy": [2e-3, 4e-3, 2e-3]}, {"torch": "not installed"})


def test_ratios_are_formed_within_each_round() -> None:
    found = Report(SRC, DST, 8_000_000, 2, "decided by the model", MEASURED)
    assert MEASURED.percent_of_copy("Inlay") == Spread(50.0, 50.0, 75.0)
    assert MEASURED.times_faster_than("peer") == Spread(2.5, 2.25, 2.75)
    assert str(found) == (
        "2x32x14x14, 8 MB moved, 2 threads, decided by the model\n"
        "            us  GB/s  % of copy         Inlay is\n"
        "copy    2000.0   4.0  100 (100 to 100)\n"
        "Inlay   4000.0   2.0  50 (50 to 75)\n"
        "peer   10000.0   0.8  25 (21 to 32)     2.50 times as fast\n"
        "torch: not installed"
    )


def test_json_holds_every_time() -> None:
    found = Report(SRC, DST, 8_000_000, 2, "decided by the model", MEASURED)
    text = json.dumps(found.as_json())
    assert json.loads(text) == {
        "src": repr(SRC),
        "dst": repr(DST),
        "moved_bytes": 8_000_000,
        "threads": 2,
        "decision": "decided by the model",
        "measured": {
            "copy": figures([2e-3, 4e-3, 2e-3], (100.0, 100.0, 100.0), (0.5, 0.5, 0.75)),
            "Inlay": figures([4e-3, 4e-3, 4e-3], (50.0, 50.0, 75.0), (1.0, 1.0, 1.0)),
            "peer": figures([8e-3, 10e-3, 12e-3], (25.0, 2500 / 120, 32.5), (2.5, 2.25, 2.75)),
        },
        "absent": {"torch": "not installed"},
    }


def figures(seconds: list[float], percent: tuple[float, ...], ratio: tuple[float, ...]) -> dict[str, Any]:
    """One entry of the JSON: medians with quartiles."""
    keys = ("median", "low", "high")
    return {
        "seconds": seconds,
        "percent_of_copy": pytest.approx(dict(zip(keys, percent, strict=True))),
        "inlay_is_times_as_fast": pytest.approx(dict(zip(keys, ratio, strict=True))),
    }


# Peers


@settings(max_examples=100, deadline=None)
@given(reorder_problems(large=True))
def test_numpy_does_the_reorder_or_refuses(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    src, dst = (Memory(desc) for desc in pair)
    src.buffer[:] = np.random.default_rng(0).integers(0, 256, src.buffer.size, np.uint8)
    try:
        call = contenders.numpy(src, dst)
    except Unimplemented as reason:
        if str(reason) not in ("takes more than one copy", "has no views of elements of 4 bits"):
            raise
        return
    call()
    expected = Memory(pair[1])
    Reorder(*pair)(src, expected)
    assert np.array_equal(dst.buffer, expected.buffer)


@pytest.mark.parametrize("peer", [contenders.onednn, contenders.torch])
def test_a_peer_does_the_reorder_or_is_not_installed(peer: contenders.Contender) -> None:
    src = inlay.pack(np.random.default_rng(0).random(SRC.dims, np.float32), SRC)
    dst, expected = Memory(DST), Memory(DST)
    try:
        call = peer(src, dst)
    except (inlay.MissingExtra, Unimplemented) as reason:
        if isinstance(reason, Unimplemented) and str(reason) != "not installed (pip install torch)":
            raise
        pytest.skip(str(reason))
    call()
    Reorder(SRC, DST)(src, expected)
    assert np.array_equal(dst.buffer, expected.buffer)


def test_who_leaves_other_bytes_or_refuses_does_not_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(src: Memory, dst: Memory) -> Any:
        return lambda: dst.buffer.fill(1)

    def without(src: Memory, dst: Memory) -> Any:
        raise Unimplemented("has no such reorder")

    peers = {"idle": lambda src, dst: lambda: None, "wrong": wrong, "without": without, "NumPy": contenders.numpy}
    monkeypatch.setattr(contenders, "CONTENDERS", peers)
    found = bench(SRC, DST, rounds=1)
    assert names(found) == ["copy", "Inlay", "NumPy"]
    assert found.measured.absent == {
        "wrong": "its bytes differ from Inlay's from byte 0 on",
        "idle": "its bytes differ from Inlay's from byte 0 on",
        "without": "has no such reorder",
    }


def test_conversions_that_wrap_around_do_not_take_part() -> None:
    src, dst = MemoryDesc((97, 20), "s32", "ab"), MemoryDesc((97, 20), "f4_e2m1", "ab")
    assert bench(src, dst, rounds=1).measured.absent == {"NumPy": "has no views of elements of 4 bits"}


# Turns


def test_everybody_takes_turns_and_who_is_slow_fewer() -> None:
    now, order = [0.0], list[str]()

    def call(name: str, seconds: float) -> Any:
        def run() -> None:
            now[0] += seconds
            if not order or order[-1] != name:
                order.append(name)

        return run

    calls = {"a": call("a", 1e-3), "b": call("b", 2e-3), "slow": call("slow", 0.1)}
    found = measure_interleaved(calls, 5, clock=lambda: now[0])
    assert {name: len(times) for name, times in found.items()} == {"a": 5, "b": 5, "slow": 2}
    assert {name: round(times[0], 6) for name, times in found.items()} == {"a": 1e-3, "b": 2e-3, "slow": 0.1}
    assert order == ["a", "b", "slow", "a", "b", "slow", "b", "slow", "a", "b", "a", "b"]


# Refusals and the command


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: bench(SRC, DST, rounds=0), "rounds is 0: give a whole number from 1 on"),
        (
            lambda: bench(MemoryDesc((2, 0), "f32", "ab"), MemoryDesc((2, 0), "f32", "ba")),
            "a tensor of dims (2, 0) has no elements: there is nothing to time",
        ),
        (
            lambda: bench(SRC, MemoryDesc((2, 32, 14, 15), "f32", "nhwc")),
            "a reorder keeps the dims: source (2, 32, 14, 14), destination (2, 32, 14, 15)",
        ),
    ],
)
def test_what_cannot_be_timed_is_refused(call: Any, text: str) -> None:
    with raises_exactly(InvalidArguments, text):
        call()


def test_a_tensor_that_memory_has_no_room_for_is_refused() -> None:
    n = 1 << 25
    src, dst = (MemoryDesc((n, n), "f32", strides=strides) for strides in ((n, 1), (1, n)))
    with pytest.raises(OutOfMemory):
        bench(src, dst)


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "nchw", "nChw16c", "2x17x9x9", "--to-dtype", "bf16", "--rounds", "2"]) == 0
    head, _, copy, own, *rest = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"nchw -> nChw16c, 2x17x9x9, 0\.0214 MB moved, \d+ threads?, decided by the model", head), head
    assert copy.startswith("copy ")
    assert re.fullmatch(r"Inlay +[\d.]+ +[\d.]+ +\d+ \(\d+ to \d+\)", own)
    assert rest == ["NumPy: takes more than one copy"]


def test_the_command_tunes_and_says_what_was_won(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def measured(problem: Any, src: int, dst: int, seconds: float) -> Decision:
        asked.append(seconds)
        return Decision(Choice(prefetch_distance=0), 1.25, seconds)

    monkeypatch.setattr(tuning, "_measure_candidates", measured)
    call = ["bench", "ab", "ba", "64x48", "--rounds", "1", "--json"]
    for more in (["--tune"], ["--tune", "--seconds", "0.5"], []):
        assert cli.main([*call, *more]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["decision"] == "tuned: fetch nothing ahead; 1.25 times as fast as what the model decides"
        assert list(found["measured"]) == ["copy", "Inlay", "Inlay, by the model", "NumPy"]
    assert asked == [1.0, 0.5], "asked for on the command line it is measured again"


def test_the_filling_shows_every_permutation() -> None:
    buffer = reorders._filled(MemoryDesc((64, 64), "u8", "ab")).buffer
    square = buffer.reshape(64, 64)
    assert not np.array_equal(square, square.T)
    assert len(set(buffer.tolist())) == 97


class Spinner:
    """A process with a thread that spins until a time, in bursts: another program has its processor in between."""

    def __init__(self, until: float) -> None:
        self.until, self.now = until, 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def process_time(self) -> float:
        """Of every 10 ms the thread has the first 4."""
        spun = min(self.now, self.until)
        return spun // 0.010 * 0.004 + min(spun % 0.010, 0.004)


@pytest.mark.parametrize(
    ("until", "least", "most"),
    [(0.0, 0.012, 0.042), (0.030, 0.030, 0.060), (0.075, 0.075, 0.105), (9.0, 0.211999, 0.212001)],
)
def test_a_turn_begins_when_threads_sleep_or_after_a_while_and_not_when_they_wait_for_a_processor(
    until: float, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    spinner = Spinner(until)
    monkeypatch.undo()
    monkeypatch.setattr(disturbance, "time", spinner)
    IdleWait().wait()
    assert least < spinner.now < most
