"""The benchmark tells the truth: its arithmetic, its copies, and everybody's bytes."""

import doctest
import importlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.buffers import HUGE_PAGE, Bytes, fill_with_values, huge_buffer
from benchmarks.cases import Case, Size, all_cases, matching, sizes_of
from benchmarks.copies import ThreadedMemcpy
from benchmarks.machine import Cache, Machine, this_machine
from benchmarks.measure import DIFFERS, Result, agreeing_calls, flat_copies, measured
from benchmarks.onednn import Refused
from benchmarks.passes import strided_passes
from benchmarks.peers import FINDERS, Inlay, Missing, NumPy, Peer
from benchmarks.report import as_json, notes
from benchmarks.startup import Figure
from benchmarks.timing import Rounds, Spread, fastest, mean_ratio, paired, spread, take_turns
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("machine", "cases", "passes", "timing", "report")
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
CASES = [(src, dst, dims, data_type) for src, dst, dims in SMALL for data_type in ("f32", "bf16", "u8")]


def found(name: str) -> Peer:
    """The peer of this name, or the end of the test."""
    peer = FINDERS[name](2)
    if isinstance(peer, Missing):
        pytest.skip(f"{peer.name} is missing: {peer.reason}")
    return peer


def by_coordinates(values: Bytes, src: MemoryDesc, dst: MemoryDesc) -> Bytes:
    """What a reorder must write, by asking both descriptors for the offset of every coordinate."""
    item = src.data_type.itemsize if src.data_type is not None else 1
    coordinates = np.indices(src.dims).reshape(src.ndims, -1).T
    result = np.zeros((dst.size // item, item), np.uint8)
    result[dst.offset(coordinates)] = values.reshape(-1, item)[src.offset(coordinates)]
    return result.reshape(-1)


def filled(src: MemoryDesc) -> Bytes:
    """A source buffer: values where the data is, zeros in the padding."""
    values = huge_buffer(src.size)
    assert src.data_type is not None
    fill_with_values(values, src.data_type)
    plain = MemoryDesc(src.dims, src.data_type)
    values[:] = by_coordinates(values[: plain.size], plain, src)
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


def test_a_short_call_is_repeated_until_a_block_is_long_enough() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    take_turns({"short": call}, Rounds(count=1, block_seconds=1e-3, settle_seconds=0), warm=False)
    assert calls > 100


def example_result(**seconds: list[float]) -> Result:
    case = Case("ab", "ba", "f32", Size("L2", 1 << 19), (256, 256))
    return Result(case, seconds, {"slow": [4.0, 4.0, 4.0], "fast": [1.0, 2.0, 1.0]}, {"oneDNN": "cannot"})


def test_percent_of_copy_is_against_the_fastest_copy_round_by_round() -> None:
    result = example_result(Inlay=[2.0, 4.0, 4.0], NumPy=[8.0, 8.0, 12.0])
    assert result.best_copy == fastest(result.copy_seconds) == "fast"
    assert result.percent_of_copy("Inlay") == Spread(50.0, 37.5, 50.0)
    assert result.times_faster_than("NumPy") == Spread(3.0, 2.5, 3.5)


def test_compulsory_bytes_are_the_elements_read_and_all_that_is_written() -> None:
    packing = Case("nchw", "nChw16c", "bf16", Size("L2", 1 << 19), (2, 17, 5, 4))
    unpacking = Case("nChw16c", "nchw", "bf16", Size("L2", 1 << 19), (2, 17, 5, 4))
    assert packing.nbytes == 2 * (2 * 17 * 5 * 4) + 2 * (2 * 32 * 5 * 4)
    assert unpacking.nbytes == 2 * (2 * 17 * 5 * 4) + 2 * (2 * 17 * 5 * 4)


@pytest.mark.parametrize("l3", [8 << 20, 32 << 20, 36 << 20, 96 << 20])
def test_every_case_has_the_footprint_its_size_promises(l3: int) -> None:
    caches = (Cache(2, "Unified", 1 << 20, (0,)), Cache(3, "Unified", l3, (0, 1)))
    sizes = sizes_of(Machine("", (0, 1), caches, 1 << 34, "", ""))
    assert [(size.name, size.footprint) for size in sizes] == [("L2", 1 << 19), ("L3", l3 // 2), ("beyond", 4 * l3)]
    for case in all_cases(sizes):
        low, high = (0.25, 1) if case.size.warm else (1, 2)
        assert low * case.size.footprint <= case.src.size + case.dst.size <= high * case.size.footprint, case.label


def test_the_benchmark_has_every_pair_in_every_type_and_size() -> None:
    cases = all_cases(sizes_of(this_machine()))
    assert len({case.label for case in cases}) == len(cases) == 6 * 3 * 3
    assert {case.label for case in matching(cases, "AB -> BA*l3")} == {
        f"ab -> ba {t} L3" for t in ("f32", "bf16", "u8")
    }


@pytest.mark.parametrize("data_type", ["f32", "bf16", "u8", "s8"])
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
    for src_tag, dst_tag, dims, data_type in CASES:
        src, dst = MemoryDesc(dims, data_type, src_tag), MemoryDesc(dims, data_type, dst_tag)
        of, to = filled(src), huge_buffer(dst.size)
        to.fill(0xA5)
        peer.prepare(src, of, dst, to)()
        assert np.array_equal(to, by_coordinates(of, src, dst)), (src_tag, dst_tag, dims, data_type)


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

    def prepare(self, src: MemoryDesc, of: Bytes, dst: MemoryDesc, to: Bytes) -> Callable[[], object]:
        return lambda: None


class Unable:
    """A peer without an implementation."""

    name = "unable"
    version = "0"

    def prepare(self, src: MemoryDesc, of: Bytes, dst: MemoryDesc, to: Bytes) -> Callable[[], object]:
        raise Refused("unimplemented")


def test_a_peer_is_not_timed_when_its_bytes_differ_or_it_refuses() -> None:
    src, dst = MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "f32", "ba")
    peers: Sequence[Peer] = [Inlay(), Idle(), NumPy(), Unable()]
    calls, absent = agreeing_calls(peers, src, filled(src), dst, huge_buffer(dst.size))
    assert list(calls) == ["Inlay", "NumPy"]
    assert absent == {"idle": f"{DIFFERS} from byte 0 on", "unable": "unimplemented"}


def test_a_measured_case_has_a_time_per_round_for_everybody_and_every_copy() -> None:
    case = Case("ab", "ba", "u8", Size("L2", 1 << 19), (32, 64))
    result = measured(case, [Inlay(), NumPy()], ThreadedMemcpy(PROCESSORS), QUICK)
    assert {name: len(values) for name, values in result.seconds.items()} == {"Inlay": 2, "NumPy": 2}
    assert {name: len(values) for name, values in result.copy_seconds.items()} == {"Inlay": 2, "NumPy": 2, "memcpy": 2}
    assert all(value > 0 for values in result.seconds.values() for value in values)
    assert result.absent == {}


def test_whoever_is_left_out_is_named_with_the_reason() -> None:
    lines = notes([example_result(Inlay=[1.0])], [Missing("torch", "pip install torch")])
    assert lines == ["missing: torch (pip install torch)", "left out: oneDNN in ab -> ba f32 L2: cannot"]


def test_json_holds_every_time_and_the_figures_formed_from_them() -> None:
    result = example_result(Inlay=[2.0, 4.0, 4.0], NumPy=[8.0, 8.0, 12.0])
    figures = [Figure("import inlay", Spread(0.2, 0.1, 0.3), 0.15)]
    answer = as_json(this_machine(), QUICK, [Inlay()], [Missing("torch", "why")], [result], figures, 0.5)
    read = json.loads(json.dumps(answer))
    assert read["results"][0]["seconds"]["NumPy"] == [8.0, 8.0, 12.0]
    assert read["results"][0]["percent_of_copy"]["Inlay"] == {"median": 50.0, "low": 37.5, "high": 50.0}
    assert read["results"][0]["times_faster_than"] == {"NumPy": {"median": 3.0, "low": 2.5, "high": 3.5}}
    assert read["startup"][0]["is_met"] is False
    assert read["missing"] == {"torch": "why"}


def test_one_pass_does_what_needs_no_padding_and_splits_alike() -> None:
    plain, blocked = MemoryDesc((4, 32), "f32", "ab"), MemoryDesc((4, 32), "f32", "aB8b")
    plan = strided_passes(plain, blocked)
    assert plan.intermediate == 0
    assert [(p.shape, p.src_strides, p.dst_strides) for p in plan.passes] == [((4, 4, 8), (32, 8, 1), (32, 8, 1))]
    assert strided_passes(blocked, MemoryDesc((4, 32), "f32", "aB16b")).intermediate == 4 * 32


def benchmark(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", "--no-startup", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_run_prints_its_tables_and_writes_its_times(tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    done = benchmark("--rounds", "1", "--only", "ab -> ba u8 l2", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "ab -> ba" in done.stdout
    (result,) = json.loads(file.read_text())["results"]
    assert result["dst_tag"] == "ba"
    assert math.prod(result["dims"]) * 2 == result["nbytes"]
    assert len(result["seconds"]["NumPy"]) == 1


def test_a_pattern_without_a_case_is_refused() -> None:
    done = benchmark("--only", "nchw -> nowhere")
    assert done.returncode == 2
    assert "no case of the sizes" in done.stderr


def test_the_import_is_timed_in_a_process_that_has_loaded_nothing_else() -> None:
    program = (
        "import sys, benchmarks.startup_probe; print(sorted({'numpy', 'inlay', 'json', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
