"""The benchmark tells the truth: its arithmetic, its copies, and everybody's bytes."""

import doctest
import importlib
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.buffers import HUGE_PAGE, ThreadedMemcpy, fill_with_values, huge_buffer
from benchmarks.cases import PROMISED, TABLES, Case, Pair, Size, all_cases, cases_of, matching
from benchmarks.peers import in_passes
from benchmarks.record import Machine, Record, Setup, rows_of, this_machine
from benchmarks.report import absence_lines
from benchmarks.rounds import Result, Rounds, agreeing, measure_case
from inlay.bench.contenders import DIFFERS, agreeing_calls, first_difference, flat_copies, numpy
from inlay.bench.measurement import Measurement
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.memory import Memory
from inlay.reordering.attributes import PLAIN
from inlay.reordering.reference import reference_reorder
from tests.support.benchmark_sources import empty, filled, require_peer
from tests.support.paths import ROOT
from tests.support.refusals import raises_exactly

MODULES = ("aims", "cases", "drawn", "record", "rounds")
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


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_the_benchmark_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"benchmarks.{module}"))
    assert outcome.failed == 0
    assert outcome.attempted > 0


def test_compulsory_bytes_are_the_elements_read_and_all_that_is_written() -> None:
    size, dims = Size("L2", 1 << 19), (2, 17, 5, 4)
    packing = Case(Pair("nchw", "nChw16c", "bf16", "bf16"), size, dims)
    unpacking = Case(Pair("nChw16c", "nchw", "bf16", "bf16"), size, dims)
    converting = Case(Pair("nchw", "nChw16c", "f32", "s8"), size, dims)
    assert packing.nbytes == 2 * (2 * 17 * 5 * 4) + 2 * (2 * 32 * 5 * 4)
    assert converting.nbytes == 4 * (2 * 17 * 5 * 4) + 2 * 32 * 5 * 4
    assert unpacking.nbytes == 2 * (2 * 17 * 5 * 4) + 2 * (2 * 17 * 5 * 4)


@pytest.mark.parametrize("l3", [8 << 20, 32 << 20, 36 << 20, 96 << 20])
def test_every_case_has_the_footprint_its_size_promises(l3: int) -> None:
    sizes = Machine((), (0, 1), 1 << 20, l3).sizes
    assert [(size.name, size.footprint) for size in sizes] == [("L2", 1 << 19), ("L3", l3 // 2), ("beyond", 4 * l3)]
    for case in all_cases(sizes):
        low, high = (0.25, 1) if case.size.warm else (1, 2)
        footprint = case.src.size + case.dst.size
        assert low * case.size.footprint <= footprint <= high * case.size.footprint, case.label


def test_the_benchmark_has_the_promised_pairs_and_sixty_more_in_every_size() -> None:
    sizes = this_machine().sizes
    cases = all_cases(sizes)
    assert len({case.label for case in cases}) == len(cases) == 3 * sum(map(len, TABLES.values()))
    assert len(TABLES[PROMISED]) == 28
    assert sum(len(pairs) for name, pairs in TABLES.items() if name != PROMISED) >= 60
    same_type = [case for case in matching(cases, "AB -> BA * l3") if " -> " not in case.pair.types]
    assert {case.label for case in same_type if not case.pair.note} == {
        f"ab -> ba {t} L3" for t in ("f32", "bf16", "u8")
    }


def test_only_promised_cases_beyond_the_caches_aim_at_a_percentage() -> None:
    cases = all_cases(this_machine().sizes)
    aims = {(case.pair.table == PROMISED and not case.size.warm, case.aim) for case in cases}
    assert aims == {(True, 80), (True, 85), (False, None)}


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
    peer = require_peer(name)
    integers = TO_INTEGERS if name not in ("NumPy", "torch") else []
    for src_tag, dst_tag, dims, src_type, dst_type in CASES + CONVERSIONS + integers:
        src, dst = MemoryDesc(dims, src_type, src_tag), MemoryDesc(dims, dst_type, dst_tag)
        of, to, expected = filled(src), empty(dst), empty(dst)
        to.buffer.fill(0xA5)
        peer.prepare(of, to, PLAIN, {})()
        reference_reorder(src, of.buffer, dst, expected.buffer, PLAIN, {})
        assert np.array_equal(to.buffer, expected.buffer), (src_tag, dst_tag, dims, src_type, dst_type)


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
    with raises_exactly(Unimplemented, reason):
        require_peer(name).prepare(filled(src), empty(dst), PLAIN, {})


def test_every_case_of_the_benchmark_leaves_the_same_bytes_with_everybody_who_is_quick_to_load() -> None:
    peers = [require_peer(name) for name in ("Inlay", "oneDNN", "NumPy")]
    differing: list[str] = []
    for table in TABLES:
        for case in cases_of(TABLES[table], [Size("tiny", 1 << 12)]):
            calls, absent = agreeing(peers, case, filled(case.src).buffer, empty(case.dst).buffer)
            assert "Inlay" in calls
            differing += [case.label for text in absent.values() if text.startswith(DIFFERS)]
    assert differing == []


def test_the_padding_of_a_source_holds_zeros() -> None:
    src = MemoryDesc((1, 17, 2, 2), "f32", "nChw16c")
    values = filled(src).buffer.view(np.float32).reshape(2, 2, 2, 16)
    assert values[1, :, :, 1:].any() == np.False_
    assert values[1, :, :, 0].all()
    assert values[0].all()


def test_every_peer_has_a_flat_copy() -> None:
    src, dst = huge_buffer(5000), huge_buffer(5000)
    fill_with_values(src, DATA_TYPES["u8"])
    peers = {name: require_peer(name).prepare_plain for name in ("Inlay", "oneDNN", "NumPy")}
    copies = flat_copies(peers, src, dst, 4999)
    assert list(copies) == ["Inlay", "oneDNN", "NumPy"]
    for name, copy in copies.items():
        dst.fill(0)
        copy()
        assert np.array_equal(dst[:4999], src[:4999]), name
        assert dst[4999] == 0, name


def test_an_error_of_inlay_is_raised_and_not_named_as_an_absence() -> None:
    """Of the other peers: `tests.bench`."""
    src, dst = MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "f32", "ba")

    def refuse() -> Callable[[], object]:
        raise Unimplemented("unimplemented")

    with raises_exactly(Unimplemented, "unimplemented"):
        agreeing_calls({"Inlay": refuse}, src, empty(dst))


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
    found, expected = (np.array(values, np.uint8) for values in (found_bytes, [0x11, 0x80, 0x00, 0x7B]))
    assert first_difference(found, expected, src, dst) == first
    assert first_difference(found, expected, dst, dst) == next(iter(np.flatnonzero(found != expected)), None)


def test_a_measured_case_has_a_time_per_round_for_everybody_and_every_copy() -> None:
    case = Case(Pair("ab", "ba", "u8", "u8"), Size("L2", 1 << 19), (32, 64))
    result = measure_case(case, [require_peer(n) for n in ("Inlay", "NumPy")], ThreadedMemcpy(PROCESSORS), QUICK, run=2)
    assert result.run == 2
    counts = [{name: len(v) for name, v in s.items()} for s in (result.measured.seconds, result.measured.copies)]
    assert counts == [{"Inlay": 2, "NumPy": 2}, {"Inlay": 2, "NumPy": 2, "memcpy": 2}]
    assert all(value > 0 for values in result.measured.seconds.values() for value in values)
    assert result.measured.absent == {}


def test_whoever_is_left_out_is_named_with_the_reason() -> None:
    measured = Measurement({"Inlay": [1.0]}, {"a": [1.0]}, {"oneDNN": "cannot"})
    cases = [Case(Pair("ab", "ba", t, t), Size("L2", 1 << 19), (512, 512)) for t in ("f32", "u8")]
    setup = Setup(this_machine(), QUICK, {}, {"torch": "pip install torch"})
    assert absence_lines(rows_of([Result(case, measured) for case in cases]), Record(setup)) == [
        "missing: torch (pip install torch)",
        "left out: oneDNN in ab -> ba f32, ab -> ba u8: cannot",
    ]


def test_one_pass_does_what_needs_no_padding_and_splits_alike() -> None:
    passes: list[tuple[MemoryDesc, MemoryDesc]] = []

    def copy(src: Memory, dst: Memory) -> Callable[[], object]:
        passes.append((src.desc, dst.desc))
        return numpy(src, dst)

    for tags in (("ab", "aB8b"), ("aB8b", "aB16b")):
        in_passes(copy, *(empty(MemoryDesc((4, 32), "f32", tag)) for tag in tags))
    assert len(passes) == 2
    in_passes(copy, *(empty(MemoryDesc((4, 17), "f32", tag)) for tag in ("ab", "aB16b")))
    assert [tuple(desc.dims for desc in one) for one in passes[2:]] == [((4, 17), (4, 17)), ((4, 32), (4, 32))]


def test_the_import_is_timed_in_a_process_that_has_loaded_nothing_else() -> None:
    program = (
        "import sys, benchmarks.startup_probe; print(sorted({'numpy', 'inlay', 'json', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
