"""The benchmark tells the truth: its arithmetic, its copies, and everybody's bytes."""

import doctest
import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.buffers import HUGE_PAGE, Bytes, fill_with_values, huge_buffer
from benchmarks.cases import Case, Size, cases_of, matching, sizes_of
from benchmarks.copies import ThreadedMemcpy
from benchmarks.eager import eager_reorder
from benchmarks.families import TABLES, all_cases
from benchmarks.machine import Machine, this_machine
from benchmarks.measure import (
    DIFFERS,
    Result,
    agreeing_calls,
    decided,
    fill_source,
    first_difference,
    flat_copies,
    measured,
)
from benchmarks.onednn import Refused
from benchmarks.passes import strided_passes
from benchmarks.peers import FINDERS, Inlay, Missing, NumPy, Peer
from benchmarks.report import notes
from benchmarks.runs import rows_of
from benchmarks.timing import Rounds, Spread, fastest, mean_ratio, paired, spread, take_turns
from benchmarks.values import values_of
from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc
from inlay.reordering.attributes import PLAIN, Attributes, Scales, ZeroPoints
from inlay.reordering.caches import Cache
from inlay.reordering.operands import codes_of
from inlay.reordering.reference import reference_reorder

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("machine", "fitting", "cases", "families", "values", "passes", "timing", "runs", "misses", "report")
PROCESSORS = this_machine().processors
QUICK = Rounds(count=2, block_seconds=1e-5, settle_seconds=0)

SMALL = [
    ("nchw", "nChw16c", (2, 32, 5, 3)),
    ("nChw16c", "nchw", (2, 32, 5, 3)),
    ("nchw", "nhwc", (2, 5, 3, 7)),
    ("nhwc", "nchw", (2, 5, 3, 7)),
    ("oihw", "OIhw16i16o", (32, 16, 3, 3)),
    ("ab", "ba", (64, 96)),
    # An axis that is padded on one side or on both, and blocks of different sizes: two passes.
    ("nchw", "nChw16c", (2, 17, 5, 3)),
    ("nChw16c", "nchw", (2, 17, 5, 3)),
    ("nChw8c", "nChw16c", (1, 17, 5, 3)),
    ("oihw", "OIhw4i16o4i", (17, 18, 3, 1)),
]
CASES = [(src, dst, dims, t, t) for src, dst, dims in SMALL for t in ("f32", "bf16", "u8")]
CONVERSIONS = [
    (src, dst, dims, *types)
    for src, dst, dims in (SMALL[0], SMALL[5], SMALL[7])
    for types in (("f32", "bf16"), ("f16", "f32"), ("s8", "bf16"))
]
TO_INTEGERS = [("nchw", "nhwc", (2, 5, 3, 7), *types) for types in (("f32", "s8"), ("bf16", "u8"), ("s32", "s8"))]


def found(name: str) -> Peer:
    """The peer of this name, or the end of the test."""
    peer = FINDERS[name](2)
    if isinstance(peer, Missing):
        pytest.skip(f"{peer.name} is missing: {peer.reason}")
    return peer


def by_coordinates(values: Bytes, src: MemoryDesc, dst: MemoryDesc) -> Bytes:
    """What a reorder must write, by asking both descriptors for the offset of every coordinate.

    Types are converted by ml_dtypes and NumPy: to floats rounded to nearest, to integers rounded and saturated.
    """
    assert src.data_type is not None
    assert dst.data_type is not None
    coordinates = np.indices(src.dims).reshape(src.ndims, -1).T
    read = values.view(src.data_type.numpy)[src.offset(coordinates)]
    if src.data_type != dst.data_type and dst.data_type.kind != "float":
        read = np.rint(read.astype(np.float64)).clip(dst.data_type.lowest, dst.data_type.highest)
    result = np.zeros(dst.size // dst.data_type.itemsize, dst.data_type.numpy)
    result[dst.offset(coordinates)] = read.astype(dst.data_type.numpy)
    return result.view(np.uint8)


def filled(src: MemoryDesc) -> Bytes:
    """A source buffer: values where the data is, zeros in the padding."""
    values = huge_buffer(src.size)
    fill_source(values, src)
    return values


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_the_benchmark_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"benchmarks.{module}"))
    assert outcome.failed == 0
    assert outcome.attempted > 0


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12))
def test_the_spread_encloses_the_median_and_lies_within_the_measurements(values: list[float]) -> None:
    figure = spread(values)
    assert min(values) <= figure.low <= figure.median <= figure.high <= max(values)


@given(st.lists(st.floats(1.0, 10.0), min_size=3, max_size=9), st.floats(0.1, 10.0))
def test_a_ratio_does_not_see_what_slows_both_sides_down(drift: list[float], ratio: float) -> None:
    figure = paired([ratio * slow for slow in drift], drift)
    assert figure.low == pytest.approx(ratio)
    assert figure.high == pytest.approx(ratio)


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=9))
def test_the_mean_of_inverse_ratios_is_the_inverse_of_the_mean(ratios: list[float]) -> None:
    assert mean_ratio([1 / r for r in ratios]) == pytest.approx(1 / mean_ratio(ratios))


def test_everybody_takes_one_turn_per_round_and_another_one_begins_each_round() -> None:
    turns: list[str] = []
    runners = {name: partial(turns.append, name) for name in "abc"}
    rounds = Rounds(count=4, block_seconds=0, settle_seconds=0)
    seconds = take_turns(runners, rounds, warm=False)
    assert {name: len(values) for name, values in seconds.items()} == {"a": 4, "b": 4, "c": 4}
    calibration = "aaabbbccc"
    assert "".join(turns) == calibration + "abc" + "bca" + "cab" + "abc"


def test_whose_first_rounds_say_enough_has_no_others() -> None:
    turns: list[str] = []
    runners = {name: partial(turns.append, name) for name in "abc"}
    rounds = Rounds(count=5, block_seconds=0, settle_seconds=0)
    asked: list[dict[str, int]] = []

    def judge(times: Mapping[str, Sequence[float]]) -> str:
        asked.append({name: len(values) for name, values in times.items()})
        return "a"

    seconds = take_turns(runners, rounds, warm=False, judge=judge)
    assert asked == [{"a": 3, "b": 3, "c": 3}]
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 5, "c": 5}
    assert "".join(turns[9:]) == "abc" + "bca" + "cab" + "cb" + "bc"


def test_a_call_without_patience_for_it_is_timed_once() -> None:
    rounds = Rounds(count=3, block_seconds=1e-6, settle_seconds=0, once=2e-3)
    seconds = take_turns({"slowest": partial(time.sleep, 4e-3), "quick": int}, rounds, warm=True)
    assert {name: len(values) for name, values in seconds.items()} == {"slowest": 1, "quick": 3}


def test_copies_behind_the_best_and_peers_far_behind_are_decided_early() -> None:
    times = {
        "Inlay": [2.0, 2.0, 2.0],
        "near": [9.0, 2.9, 9.0],
        "far": [3.1, 3.1, 3.1],
        "ahead": [1.0, 1.0, 1.0],
        "copy best": [1.0, 1.1, 1.2],
        "copy close": [1.0, 1.3, 1.3],
        "copy behind": [1.2, 1.2, 1.2],
    }
    assert decided(times) == {"far", "copy behind"}


def test_nobody_begins_while_a_thread_of_the_process_works() -> None:
    is_over, ended = threading.Event(), []

    def work() -> None:
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            sum(range(1000))
        ended.append(time.perf_counter())
        is_over.set()

    begun: list[float] = []
    worker = threading.Thread(target=work)
    worker.start()
    take_turns({"a": lambda: begun.append(time.perf_counter())}, Rounds(count=1, block_seconds=0), warm=False)
    worker.join()
    assert is_over.is_set()
    assert begun[-1] > ended[0]


def test_a_slow_runner_takes_a_turn_in_a_third_of_the_rounds_and_ratios_pair_those() -> None:
    rounds = Rounds(count=7, block_seconds=1e-6, settle_seconds=0, patience=2e-3)
    seconds = take_turns({"slow": partial(time.sleep, 4e-3), "quick": int}, rounds, warm=True)
    assert {name: len(values) for name, values in seconds.items()} == {"slow": 3, "quick": 7}
    assert paired([2.0, 4.0, 6.0, 100.0], [1.0, 1.0, 1.0]) == Spread(4.0, 3.0, 5.0)


def test_a_short_call_is_repeated_until_a_block_is_long_enough() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    take_turns({"short": call}, Rounds(count=1, block_seconds=1e-3, settle_seconds=0), warm=False)
    assert calls > 100


def example_result(**seconds: list[float]) -> Result:
    case = Case("ab", "ba", "f32", "f32", Size("L2", 1 << 19), (256, 256))
    return Result(case, seconds, {"slow": [4.0, 4.0, 4.0], "fast": [1.0, 2.0, 1.0]}, {"oneDNN": "cannot"})


def test_percent_of_copy_is_against_the_fastest_copy_round_by_round() -> None:
    result = example_result(Inlay=[2.0, 4.0, 4.0], NumPy=[8.0, 8.0, 12.0])
    assert result.best_copy == fastest(result.copy_seconds) == "fast"
    assert result.percent_of_copy("Inlay") == Spread(50.0, 37.5, 50.0)
    assert result.times_faster_than("NumPy") == Spread(3.0, 2.5, 3.5)


def test_compulsory_bytes_are_the_elements_read_and_all_that_is_written() -> None:
    packing = Case("nchw", "nChw16c", "bf16", "bf16", Size("L2", 1 << 19), (2, 17, 5, 4))
    unpacking = Case("nChw16c", "nchw", "bf16", "bf16", Size("L2", 1 << 19), (2, 17, 5, 4))
    converting = Case("nchw", "nChw16c", "f32", "s8", Size("L2", 1 << 19), (2, 17, 5, 4))
    assert packing.nbytes == 2 * (2 * 17 * 5 * 4) + 2 * (2 * 32 * 5 * 4)
    assert converting.nbytes == 4 * (2 * 17 * 5 * 4) + 2 * 32 * 5 * 4
    assert unpacking.nbytes == 2 * (2 * 17 * 5 * 4) + 2 * (2 * 17 * 5 * 4)


@pytest.mark.parametrize("l3", [8 << 20, 32 << 20, 36 << 20, 96 << 20])
def test_every_case_has_the_footprint_its_size_promises(l3: int) -> None:
    caches = (Cache(2, "Unified", 1 << 20, (0,)), Cache(3, "Unified", l3, (0, 1)))
    sizes = sizes_of(Machine("", (0, 1), caches, 1 << 34, "", ""))
    assert [(size.name, size.footprint) for size in sizes] == [("L2", 1 << 19), ("L3", l3 // 2), ("beyond", 4 * l3)]
    for case in all_cases(sizes):
        low, high = (0.25, 1) if case.size.warm else (1, 2)
        footprint = case.src.size + case.dst.size
        assert low * case.size.footprint <= footprint <= high * case.size.footprint, case.label


def test_the_benchmark_has_the_promised_pairs_and_sixty_more_in_every_size() -> None:
    sizes = sizes_of(this_machine())
    cases = all_cases(sizes)
    assert len({case.label for case in cases}) == len(cases) == 3 * sum(map(len, TABLES.values()))
    assert len(TABLES["issue"]) == 28
    assert sum(len(pairs) for name, pairs in TABLES.items() if name != "issue") >= 60
    assert {case.label for case in matching(cases, "AB -> BA * l3") if not case.note and not case.converts} == {
        f"ab -> ba {t} L3" for t in ("f32", "bf16", "u8")
    }


def test_only_promised_cases_beyond_the_caches_aim_at_a_percentage() -> None:
    cases = all_cases(sizes_of(this_machine()))
    aims = {(case.table == "issue" and not case.size.warm): set[float | None]() for case in cases}
    for case in cases:
        aims[case.table == "issue" and not case.size.warm].add(case.aim)
    assert aims == {True: {80, 85}, False: {None}}


@given(st.binary(min_size=1, max_size=1))
def test_of_four_bits_every_code_is_a_value(spoiled: bytes) -> None:
    buffer = np.full(4096, spoiled[0], np.uint8)
    fill_with_values(buffer, DATA_TYPES["s4"])
    assert set((buffer & 15).tolist()) == set((buffer >> 4).tolist()) == set(range(16))


@pytest.mark.parametrize("data_type", ["f32", "bf16", "f16", "f8_e5m2", "u8", "s8", "s32"])
def test_a_filled_buffer_holds_ordinary_values_up_to_its_end(data_type: str) -> None:
    buffer = huge_buffer(4_000_028)
    fill_with_values(buffer, DATA_TYPES[data_type])
    assert buffer.ctypes.data % HUGE_PAGE == 0
    values = buffer.view(DATA_TYPES[data_type].numpy)
    assert np.isfinite(values.astype(np.float32)).all()
    assert values[-50:].astype(np.float32).any()


@pytest.mark.parametrize("processors", [PROCESSORS[:1], PROCESSORS])
@pytest.mark.parametrize("nbytes", [1, 4096, 100_001])
def test_memcpy_in_threads_copies_every_byte(processors: tuple[int, ...], nbytes: int) -> None:
    src, dst = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    ThreadedMemcpy(processors).copy(src, dst)
    assert np.array_equal(src, dst)


@pytest.mark.parametrize(
    "name",
    [
        "Inlay",
        "oneDNN",
        pytest.param("oneDNN 3.13", marks=[pytest.mark.heavy, pytest.mark.parity]),
        "NumPy",
        pytest.param("torch", marks=[pytest.mark.heavy, pytest.mark.parity]),
    ],
)
def test_every_peer_moves_every_byte_where_the_descriptors_say(name: str) -> None:
    peer = found(name)
    integers = TO_INTEGERS if name not in ("NumPy", "torch") else []
    for src_tag, dst_tag, dims, src_type, dst_type in CASES + CONVERSIONS + integers:
        src, dst = MemoryDesc(dims, src_type, src_tag), MemoryDesc(dims, dst_type, dst_tag)
        of, to = filled(src), huge_buffer(dst.size)
        to.fill(0xA5)
        peer.prepare(src, of, dst, to)()
        assert np.array_equal(to, by_coordinates(of, src, dst)), (src_tag, dst_tag, dims, src_type, dst_type)


@pytest.mark.parametrize("table", ["scaled", "4 bits"])
def test_cases_that_compute_leave_the_bytes_that_the_reference_leaves(table: str) -> None:
    for case in cases_of(TABLES[table], [Size("tiny", 1 << 12)], table):
        of, to, expected = filled(case.src), huge_buffer(case.dst.size), huge_buffer(case.dst.size)
        values = values_of(case.attributes, case.dims)
        reference_reorder(case.src, of, case.dst, expected, case.attributes, codes_of(values))
        Inlay().prepare(case.src, of, case.dst, to, case.attributes)()
        assert np.array_equal(to, expected), case.label


@pytest.mark.parametrize("name", ["NumPy", pytest.param("torch", marks=[pytest.mark.heavy, pytest.mark.parity])])
@pytest.mark.parametrize(
    ("src_type", "dst_type", "reason"),
    [
        ("f32", "s8", "f32 -> s8 rounds toward zero and wraps around, in place of nearest and saturated"),
        ("s32", "u8", "s32 -> u8 wraps around, in place of saturated"),
    ],
)
def test_whoever_converts_otherwise_is_not_compared(name: str, src_type: str, dst_type: str, reason: str) -> None:
    src, dst = MemoryDesc((4, 6), src_type, "ab"), MemoryDesc((4, 6), dst_type, "ba")
    with pytest.raises(Refused) as refused:
        found(name).prepare(src, filled(src), dst, huge_buffer(dst.size))
    assert str(refused.value) == reason


def test_every_case_of_the_benchmark_leaves_the_same_bytes_with_everybody_who_is_quick_to_load() -> None:
    peers = [Inlay(), found("oneDNN"), NumPy()]
    differing: list[str] = []
    for table in TABLES:
        for case in cases_of(TABLES[table], [Size("tiny", 1 << 12)], table):
            of, to = huge_buffer(case.src.size), huge_buffer(case.dst.size)
            fill_source(of, case.src)
            calls, absent = agreeing_calls(peers, case.src, of, case.dst, to, case.attributes)
            assert "Inlay" in calls
            differing += [case.pair for text in absent.values() if text.startswith(DIFFERS)]
    assert differing == []


def test_oneDNN_computes_the_cases_with_attributes_that_it_knows() -> None:  # noqa: N802 - its name
    """Everybody's bytes are equal (above); here, that they were compared at all."""
    peer = found("oneDNN")
    taken = set()
    for case in cases_of(TABLES["scaled"], [Size("tiny", 1 << 12)], "scaled"):
        of, to = filled(case.src), huge_buffer(case.dst.size)
        try:
            peer.prepare(case.src, of, case.dst, to, case.attributes)()
        except Refused:
            continue
        taken.add(case.note)
    assert taken >= {"scales", "scales, sum 0.5", "scale, zero point", "scales, s8s8", "s8s8", "s8s8, zp"}


def test_compulsory_bytes_count_half_bytes_old_elements_and_sums_behind_weights() -> None:
    size = Size("L2", 1 << 19)
    nibbles = Case("ab", "ba", "s4", "bf16", size, (6, 10))
    assert nibbles.nbytes == 6 * 10 // 2 + 2 * 6 * 10
    added = Case("ab", "ba", "f32", "f32", size, (6, 10), attributes=Attributes(sum=0.5))
    assert added.nbytes == 3 * 4 * 6 * 10
    summed = Case("oihw", "OIhw4i16o4i", "s8", "s8", size, (32, 16, 3, 3), extras=Extras(1, compensation_mask=1))
    assert summed.nbytes == 2 * 32 * 16 * 9 + 4 * 32


@pytest.mark.heavy
@pytest.mark.parity
def test_operators_of_pytorch_step_by_step_leave_the_same_bytes() -> None:
    peer, taken = found("torch"), set()
    for case in cases_of(TABLES["scaled"], [Size("tiny", 1 << 12)], "scaled"):
        of, to = filled(case.src), huge_buffer(case.dst.size)
        calls, absent = agreeing_calls([Inlay(), peer], case.src, of, case.dst, to, case.attributes)
        assert not any(text.startswith(DIFFERS) for text in absent.values()), case.label
        taken |= {case.note} if "torch" in calls else set()
    assert taken >= {"scales", "scale, zero point", "33 columns, zero point"}


def test_a_sum_by_operators_adds_the_old_elements() -> None:
    torch = pytest.importorskip("torch")
    src, dst = MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "f32", "ba")
    attributes = Attributes(Scales(0b10), sum=0.5)
    of, ours = filled(src), huge_buffer(dst.size)
    fill_with_values(ours, DATA_TYPES["f32"])
    theirs = ours.copy()
    Inlay().prepare(src, of, dst, ours, attributes)()
    eager_reorder(torch, src, of, dst, theirs, attributes)()
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("src", "dst", "attributes", "reason"),
    [
        (("u4", "ab"), ("f32", "ab"), Attributes(Scales(3, (2, 1))), "PyTorch has no operator with values in groups"),
        (("u4", "ab"), ("f32", "ab"), Attributes(Scales(3)), "PyTorch has no such steps for u4"),
        (
            ("f32", "ab"),
            ("s8", "aB4b"),
            Attributes(Scales()),
            "PyTorch has no operator that quantizes into blocks or out of them",
        ),
    ],
)
def test_what_operators_cannot_compute_is_refused(
    src: tuple[str, str], dst: tuple[str, str], attributes: Attributes, reason: str
) -> None:
    of, to = MemoryDesc((4, 8), *src), MemoryDesc((4, 8), *dst)
    with pytest.raises(Refused) as refused:
        eager_reorder(None, of, huge_buffer(of.size), to, huge_buffer(to.size), attributes)
    assert str(refused.value) == reason


def test_oneDNN_refuses_what_its_version_computes_wrongly() -> None:  # noqa: N802 - its name
    peer = found("oneDNN")
    if not peer.version.startswith("3.2."):
        pytest.skip(f"this oneDNN is {peer.version}")
    src, dst = MemoryDesc((4, 6), "u8", "ab"), MemoryDesc((4, 6), "f32", "ba")
    with pytest.raises(Refused) as refused:
        peer.prepare(src, filled(src), dst, huge_buffer(dst.size), Attributes(src_zero_points=ZeroPoints()))
    assert str(refused.value) == "3.2 leaves the zero points of a source out, in some sizes"


def test_the_padding_of_a_source_holds_zeros() -> None:
    src = MemoryDesc((1, 17, 2, 2), "f32", "nChw16c")
    values = filled(src).view(np.float32).reshape(2, 2, 2, 16)
    assert values[1, :, :, 1:].any() == np.False_
    assert values[1, :, :, 0].all()
    assert values[0].all()


def test_every_peer_has_a_flat_copy() -> None:
    src, dst = huge_buffer(5000), huge_buffer(5000)
    fill_with_values(src, DATA_TYPES["u8"])
    copies = flat_copies([Inlay(), found("oneDNN"), NumPy()], src, dst, 4999, ThreadedMemcpy(PROCESSORS))
    assert list(copies) == ["Inlay", "oneDNN", "NumPy", "memcpy"]
    for name, copy in copies.items():
        dst.fill(0)
        copy()
        assert np.array_equal(dst[:4999], src[:4999]), name
        assert dst[4999] == 0, name


class Idle:
    """A peer that claims to have moved the bytes."""

    name = "idle"
    version = "0"

    def prepare(
        self, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes = PLAIN
    ) -> Callable[[], object]:
        return lambda: None


class Unable:
    """A peer without an implementation."""

    name = "unable"
    version = "0"

    def prepare(
        self, src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes, attributes: Attributes = PLAIN
    ) -> Callable[[], object]:
        raise Refused("unimplemented")


def test_a_peer_is_not_timed_when_its_bytes_differ_or_it_refuses() -> None:
    src, dst = MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "f32", "ba")
    peers: Sequence[Peer] = [Inlay(), Idle(), NumPy(), Unable()]
    calls, absent = agreeing_calls(peers, src, filled(src), dst, huge_buffer(dst.size))
    assert list(calls) == ["Inlay", "NumPy"]
    assert absent == {"idle": f"{DIFFERS} from byte 0 on", "unable": "unimplemented"}


@pytest.mark.parametrize(
    ("dst_type", "found_bytes", "first"),
    [
        ("f8_e5m2", [0x10, 0x81, 0x00, 0x7B], None),
        ("f8_e5m2", [0x13, 0x81, 0x00, 0x7B], 0),
        ("f8_e4m3", [0x11, 0x83, 0x00, 0x7B], 1),
        ("s8", [0x11, 0x80, 0x00, 0x7C], 3),
        ("s8", [0x11, 0x80, 0x00, 0x7B], None),
    ],
)
def test_only_f8_may_be_one_step_away(dst_type: str, found_bytes: list[int], first: int | None) -> None:
    src, dst = MemoryDesc((4,), "f32", "a"), MemoryDesc((4,), dst_type, "a")
    expected = np.array([0x11, 0x80, 0x00, 0x7B], np.uint8)
    assert first_difference(np.array(found_bytes, np.uint8), expected, src, dst) == first
    moved = first_difference(np.array(found_bytes, np.uint8), expected, dst, dst)
    assert moved == next((i for i, (a, b) in enumerate(zip(found_bytes, expected, strict=True)) if a != b), None)


def test_a_measured_case_has_a_time_per_round_for_everybody_and_every_copy() -> None:
    case = Case("ab", "ba", "u8", "u8", Size("L2", 1 << 19), (32, 64))
    result = measured(case, [Inlay(), NumPy()], ThreadedMemcpy(PROCESSORS), QUICK, run=2)
    assert result.run == 2
    assert {name: len(values) for name, values in result.seconds.items()} == {"Inlay": 2, "NumPy": 2}
    assert {name: len(values) for name, values in result.copy_seconds.items()} == {"Inlay": 2, "NumPy": 2, "memcpy": 2}
    assert all(value > 0 for values in result.seconds.values() for value in values)
    assert result.absent == {}


def test_whoever_is_left_out_is_named_with_the_reason() -> None:
    other = Case("ab", "ba", "u8", "u8", Size("L2", 1 << 19), (512, 512))
    results = [example_result(Inlay=[1.0]), Result(other, {"Inlay": [1.0]}, {"a": [1.0]}, {"oneDNN": "cannot"})]
    lines = notes(rows_of(results), [Missing("torch", "pip install torch")])
    assert lines == [
        "missing: torch (pip install torch)",
        "left out: oneDNN in ab -> ba f32, ab -> ba u8: cannot",
    ]


def test_one_pass_does_what_needs_no_padding_and_splits_alike() -> None:
    plain, blocked = MemoryDesc((4, 32), "f32", "ab"), MemoryDesc((4, 32), "f32", "aB8b")
    plan = strided_passes(plain, blocked)
    assert plan.intermediate == 0
    assert [(p.shape, p.src_strides, p.dst_strides) for p in plan.passes] == [((4, 4, 8), (32, 8, 1), (32, 8, 1))]
    assert strided_passes(blocked, MemoryDesc((4, 32), "f32", "aB16b")).intermediate == 4 * 32


def test_the_import_is_timed_in_a_process_that_has_loaded_nothing_else() -> None:
    program = (
        "import sys, benchmarks.startup_probe; print(sorted({'numpy', 'inlay', 'json', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
