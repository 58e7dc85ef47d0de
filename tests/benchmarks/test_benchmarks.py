"""The benchmark tells the truth: its arithmetic, its copies, and everybody's bytes."""

import doctest
import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from benchmarks.buffers import HUGE_PAGE, Bytes, fill_with_values, huge_buffer
from benchmarks.cases import Case, Size, cases_of, matching, sizes_of
from benchmarks.copies import ThreadedMemcpy
from benchmarks.families import TABLES, all_cases
from benchmarks.machine import Machine, this_machine
from benchmarks.measure import DIFFERS, Result, agreeing_calls, fill_source, first_difference, flat_copies, measured
from benchmarks.onednn import Refused
from benchmarks.passes import strided_passes
from benchmarks.peers import Inlay, Missing, NumPy, Peer
from benchmarks.report import notes
from benchmarks.runs import rows_of
from benchmarks.timing import Rounds, fastest
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.machine import ReportedCache
from inlay.measure.statistics import Spread
from inlay.reordering.attributes import PLAIN, Attributes
from tests.support.benchmark_sources import filled, found
from tests.support.paths import ROOT

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


def by_coordinates(values: Bytes, src: MemoryDesc, dst: MemoryDesc) -> Bytes:
    """What a reorder must write, by asking both descriptors for the offset of every coordinate.

    Types are converted by ml_dtypes and NumPy: to floats rounded to nearest, to integers rounded and saturated.
    """
    assert src.data_type is not None
    assert dst.data_type is not None
    coordinates = np.indices(src.dims).reshape(src.ndims, -1).T
    read = values.view(src.data_type.dtype)[src.offset(coordinates)]
    if src.data_type != dst.data_type and dst.data_type.kind != "float":
        read = np.rint(read.astype(np.float64)).clip(dst.data_type.lowest, dst.data_type.highest)
    result = np.zeros(dst.size // dst.data_type.itemsize, dst.data_type.dtype)
    result[dst.offset(coordinates)] = read.astype(dst.data_type.dtype)
    return result.view(np.uint8)


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_the_benchmark_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"benchmarks.{module}"))
    assert outcome.failed == 0
    assert outcome.attempted > 0


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
    caches = (ReportedCache(2, "Unified", 1 << 20, (0,)), ReportedCache(3, "Unified", l3, (0, 1)))
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


@pytest.mark.parametrize("data_type", ["f32", "bf16", "f16", "f8_e5m2", "u8", "s8", "s32"])
def test_a_filled_buffer_holds_ordinary_values_up_to_its_end(data_type: str) -> None:
    buffer = huge_buffer(4_000_028)
    fill_with_values(buffer, DATA_TYPES[data_type])
    assert buffer.ctypes.data % HUGE_PAGE == 0
    values = buffer.view(DATA_TYPES[data_type].dtype)
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
