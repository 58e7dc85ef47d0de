"""The roofline estimate: numbers computed by hand, general properties, and reviewed explanations."""

import os
from dataclasses import replace

import pytest

import inlay
from benchmarks.cases import Size, all_cases
from inlay import Attributes, MemoryDesc, Scales
from inlay.machine import MemoryModel
from inlay.reordering import compiled
from inlay.reordering.attributes import PLAIN
from inlay.reordering.compiled import explain_plan
from inlay.reordering.planning import CALLS, INSTRUCTIONS, Roofline, TileWork, estimate_roofline, plan_reorder
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.target import TARGETS
from tests.support.paths import GOLDEN
from tests.support.reorders import Pair, pair

GOLDEN = GOLDEN / "reorders"
CACHES = MemoryModel(1 << 20, 32 << 20, 32 << 20)
SPECIMENS = {
    "blocks": pair((2, 64, 56, 56), "nchw", "nChw16c"),
    "blocks-with-padding": pair((2, 17, 56, 56), "nchw", "nChw8c"),
    "rgb": pair((1, 3, 224, 224), "nhwc", "nchw", "u8", "f32"),
    "transpose-beyond-caches": pair((4096, 4096)),
    "transpose-of-bytes": pair((256, 256), src_type="u8"),
    "weights": pair((64, 64, 3, 3), "oihw", "OIhw4i16o4i", "s8"),
    "weights-converted": pair((128, 256), "ab", "BA16a64b2a", "f32", "bf16"),
    "blocks-of-other-size": pair((2, 48, 9, 9), "aBcd8b", "aBcd12b", "bf16"),
    "last-tiles-that-overlap": pair((2, 56, 14, 14), "nhwc", "nchw", "bf16", "f32"),
    "nothing": pair((0, 5)),
}
TARGET_NAMES = ("x86-64-v4", "aarch64", "aarch64-sve256")


def bound(sides: Pair, threads: int = 1, caches: MemoryModel = CACHES, attributes: Attributes = PLAIN) -> Roofline:
    """Return the estimate for registers of 64 bytes, with the stores that this machine's caches call for."""
    problem, target = build_reorder_problem(*sides, attributes), TARGETS["x86-64-v4"]
    return estimate_roofline(problem, plan_reorder(problem, target), target.vector_bytes, caches, threads)


def test_the_numbers_of_a_transpose_by_hand() -> None:
    found = bound(pair((256, 256)))
    # 256 tiles of 16 x 16: 16 loads, 4 exchanges of 16 registers, 16 stores.
    assert (found.tiles, found.edges, found.registers) == (256, 0, 16)
    assert found.work == TileWork(loads=16, shuffles=64, between=0, arithmetic=0, stores=16)
    assert found.work.total == 106
    assert (found.level, found.traffic) == ("L2", 2 * 4 * 256 * 256)
    assert found.bytes_us == pytest.approx(2 * 4 * 256 * 256 / CACHES.l2_bandwidth / 1000)
    assert found.instructions_us == pytest.approx(256 * 106 / INSTRUCTIONS / 1000)
    assert found.total_us == CALLS[False] + max(found.bytes_us, found.instructions_us)


def test_the_numbers_of_a_conversion_by_hand() -> None:
    # In the lanes of 32 numbers of 16 bits: two vectors of f32 each, converted at 3 instructions a vector.
    found = bound(pair((64, 64), "ab", "ab", "f32", "bf16"))
    assert found.work.loads == 2 * found.registers
    assert found.work.arithmetic == 2 * 3 * found.registers
    assert found.work.stores == found.registers


@pytest.mark.parametrize(
    ("second", "last", "threads", "level"),
    [
        (1 << 20, 1 << 25, 1, "L2"),
        ((1 << 20) - 1, 1 << 25, 1, "L3"),
        (1 << 19, 1 << 25, 2, "L2"),
        (1 << 10, 1 << 20, 1, "L3"),
        (1 << 10, (1 << 20) - 1, 1, "memory"),
    ],
)
def test_levels_are_those_that_the_bytes_fit_in(second: int, last: int, threads: int, level: str) -> None:
    assert bound(pair((256, 512)), threads, MemoryModel(second, last, last)).level == level  # 1 MiB in all


def test_lines_that_are_written_in_part_are_read_first() -> None:
    sides = pair((256, 512))  # planned for this machine's caches: its stores are ordinary ones
    assert bound(sides, caches=MemoryModel(0, 0, 0)).traffic == 3 * 4 * 256 * 512
    assert bound(sides).traffic == 2 * 4 * 256 * 512


def test_a_sum_reads_the_destination() -> None:
    sides = pair((64, 64))
    plain, summed = bound(sides), bound(sides, attributes=Attributes(sum=0.5))
    assert summed.traffic == plain.traffic * 3 // 2
    assert summed.work.loads > plain.work.loads
    scaled = bound(sides, attributes=Attributes(src_scales=Scales()))
    assert scaled.work.arithmetic > plain.work.arithmetic == 0


def test_threads_share_bytes_and_instructions_and_not_the_call() -> None:
    one = bound(pair((512, 512)))
    four = replace(one, threads=4)
    assert four.bytes_us == one.bytes_us / 4
    assert four.instructions_us == one.instructions_us / 4
    assert four.call_us == CALLS[True] > one.call_us


def test_masks_count_where_tiles_are_cut_off() -> None:
    whole, cut = (bound(pair((n, n), "ab", "BA16a16b")) for n in (64, 63))
    assert (whole.edges, cut.edges) == (0, 11), "of 8 x 4 tiles 7 x 3 are whole"
    assert cut.instructions > whole.instructions


def test_last_tiles_that_overlap_have_no_masks() -> None:
    whole, overlapping = (bound(pair((n, n))) for n in (64, 63))
    assert (overlapping.edges, overlapping.tiles) == (0, whole.tiles)
    assert overlapping.instructions == whole.instructions


BASE = Roofline("L2", 1 << 20, 1, 100, 0, TileWork(8, 0, 0, 0, 8), 8, 80.0)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"traffic": 100, "tiles": 1}, "the call"),
        ({}, "bandwidth of L2"),
        ({"level": "L3"}, "bandwidth of L3"),
        ({"level": "memory"}, "memory bandwidth"),
        ({"traffic": 1, "tiles": 10_000}, "loads and stores"),
        ({"traffic": 1, "tiles": 10_000, "work": TileWork(8, 40, 0, 0, 8)}, "shuffles"),
        ({"traffic": 1, "tiles": 10_000, "work": TileWork(8, 20, 40, 0, 8)}, "loads and stores"),
        ({"traffic": 1, "tiles": 10_000, "work": TileWork(8, 20, 0, 99, 8)}, "arithmetic"),
        ({"traffic": 1, "tiles": 10_000, "edges": 9_000}, "masks"),
    ],
)
def test_what_takes_longest_is_the_bound(changes: dict[str, object], name: str) -> None:
    found = replace(BASE, **changes)  # type: ignore[arg-type]
    assert found.name == name
    assert str(found).endswith(f"bound by {name}")


@pytest.mark.parametrize("index", range(0, 200, 23))
def test_no_reorder_is_free(index: int) -> None:
    case = all_cases([Size("L2", 1 << 19), Size("beyond", 1 << 27)])[index]
    found = bound((case.src, case.dst), threads=2)
    assert found.traffic >= case.nbytes
    assert found.total_us > found.call_us > 0


# Explanations


def explanation(name: str, target: str) -> str:
    problem = build_reorder_problem(*SPECIMENS[name])
    if problem.is_empty:
        return inlay.Reorder(*SPECIMENS[name]).explain(target)
    plan = plan_reorder(problem, TARGETS[target])
    return explain_plan(problem, plan, TARGETS[target], threads=2 if problem.moved_bytes > 1 << 20 else 1)


def test_explanations_are_as_reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare explanations with the stored ones; INLAY_REDRAW=1 stores the new ones for review."""
    monkeypatch.setattr(compiled, "memory_model", lambda: CACHES)
    texts = {f"{name}.{target}.txt": explanation(name, target) + "\n" for name in SPECIMENS for target in TARGET_NAMES}
    if os.environ.get("INLAY_REDRAW"):
        GOLDEN.mkdir(exist_ok=True)
        for name, text in texts.items():
            (GOLDEN / name).write_text(text, encoding="utf-8")
    assert {path.name: path.read_text(encoding="utf-8") for path in GOLDEN.iterdir()} == texts


def test_every_way_to_reorder_is_explained() -> None:
    sides = MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "s8", "ba")
    assert inlay.Reorder(*sides).explain("aarch64").endswith("bound by the call")
    assert "src_scales" in inlay.Reorder(*sides, Attributes(src_scales=Scales())).explain("aarch64")
