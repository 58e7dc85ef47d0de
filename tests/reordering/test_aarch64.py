"""Reorders on AArch64: generated code runs in an emulator and must equal the reference.

Unicorn emulates NEON in this process; QEMU's user mode, which supports SVE, runs the code as a program with registers
of 32 and 64 bytes. Both map only the pages of the buffers, so guard pages and poison detect wrong accesses as they do
for native code.
"""

from dataclasses import replace

import numpy as np
import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.layout import Swizzle
from inlay.machine import MemoryModel
from inlay.reordering import planning
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.machine_code import ir_of
from inlay.reordering.planning import plan_reorder
from inlay.reordering.problem import ReorderProblem, build_reorder_problem
from inlay.reordering.reference import reference_reorder
from inlay.reordering.target import TARGETS
from inlay.testing import Seeded, draw_reorder_problem
from tests.reordering.test_conversion import PAIRS
from tests.reordering.test_reorder import Flush, guarded, judge, noise, span_bytes
from tests.reordering.test_swizzled_reorders import check_run, with_swizzle
from tests.reordering.test_targets import CASES, TYPES
from tests.support import aarch64_emulator
from tests.support.aarch64_emulator import Emulator, image_of, run_in_qemu, run_in_unicorn
from tests.support.attribute_arguments import assert_same, values_for
from tests.support.edge_codes import edge_codes
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.soak_case import contents

pytestmark = pytest.mark.heavy

EMULATORS: dict[str, Emulator] = {
    "aarch64": run_in_unicorn,
    "aarch64-sve256": run_in_qemu,
    "aarch64-sve512": run_in_qemu,
}
Machine = tuple[str, Emulator]


@pytest.fixture(params=EMULATORS)
def machine(request: pytest.FixtureRequest) -> Machine:
    """The name of a target, and the emulator that runs its code."""
    emulator = EMULATORS[request.param]
    if emulator is run_in_unicorn and not aarch64_emulator.has_unicorn():
        pytest.skip("Unicorn is not installed")
    if emulator is run_in_qemu and aarch64_emulator.QEMU is None:
        pytest.skip("qemu-aarch64 is not installed")
    return request.param, emulator


def check(machine: Machine, src: MemoryDesc, dst: MemoryDesc, flush: Flush = "upper", content: bytes = b"") -> None:
    """Run code of another processor between guard pages and compare the result with the reference."""
    name, emulator = machine
    problem = build_reorder_problem(src, dst)
    if problem.is_empty:
        return
    source, destination = guarded(src, flush), guarded(dst, flush)
    source.bytes[:] = np.frombuffer(content, np.uint8) if content else noise(source.bytes.size)

    def run(_src: int, _dst: int) -> None:
        image = image_of(problem, TARGETS[name], source, destination)
        destination.pages[:] = np.frombuffer(emulator(image, TARGETS[name]), np.uint8)

    judge(run, src, source, dst, destination)


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize(("dims", "src", "dst"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_whole_tiles_and_edges(
    machine: Machine,
    dims: tuple[int, ...],
    src: str,
    dst: str,
    types: tuple[str, str],
    is_streaming: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_streaming:
        monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))
    check(machine, MemoryDesc(dims, types[0], src), MemoryDesc(dims, types[1], dst))


@pytest.mark.parametrize(("src", "dst"), PAIRS)
def test_every_pair_of_types_on_every_edge(machine: Machine, src: str, dst: str) -> None:
    if DATA_TYPES[src].is_sub_byte:
        check(machine, MemoryDesc((8, 40), src, "ab"), MemoryDesc((8, 40), dst, "ba"))
        return
    codes = edge_codes(src)
    codes = np.concatenate([codes, codes[: -codes.size % 8]])
    dims = (8, codes.size // 8)
    check(machine, MemoryDesc(dims, src, "ab"), MemoryDesc(dims, dst, "ba"), content=codes.tobytes())


@pytest.mark.parametrize("flush", ["upper", "lower"])
def test_random_problems(machine: Machine, flush: Flush) -> None:
    choose = Seeded(22)
    for i in range(60):
        check(machine, *draw_reorder_problem(choose, convert=bool(i & 1), large=bool(i & 2)), flush)


@pytest.mark.parametrize("swizzle", [Swizzle(3, 3, 3), Swizzle(2, 1, 2), Swizzle(2, 1, -3)], ids=str)
def test_swizzled_memory(machine: Machine, swizzle: Swizzle) -> None:
    name, emulator = machine
    choose = Seeded(23)
    pairs = [(MemoryDesc((65, 64), "bf16", "ba"), MemoryDesc((65, 64), "bf16", "ab"))]
    pairs += [draw_reorder_problem(choose, convert=bool(i & 1), large=bool(i & 2)) for i in range(8)]
    for src, dst in pairs:
        for sides in ((src, with_swizzle(dst, swizzle)), (with_swizzle(src, swizzle), dst)):
            problem = build_reorder_problem(*sides)

            def run(source: GuardedBuffer, target: GuardedBuffer, problem: ReorderProblem = problem) -> None:
                image = image_of(problem, TARGETS[name], source, target)
                target.pages[:] = np.frombuffer(emulator(image, TARGETS[name]), np.uint8)

            if not problem.is_empty:
                check_run(run, *sides)


@pytest.mark.parametrize(("src", "dst"), [("f32", "s8"), ("u8", "f32"), ("s32", "bf16"), ("f64", "f32"), ("s8", "s8")])
@pytest.mark.parametrize("tags", [("nchw", "nhwc"), ("nchw", "nChw16c")], ids="-".join)
def test_attributes(machine: Machine, tags: tuple[str, str], src: str, dst: str) -> None:
    name, emulator = machine
    dims = (2, 21, 5, 9)
    attributes = Attributes(
        src_scales=Scales(0b10),
        dst_scales=Scales(),
        src_zero_points=None if DATA_TYPES[src].kind == "float" else ZeroPoints(0b10),
        dst_zero_points=None if DATA_TYPES[dst].kind == "float" else ZeroPoints(0b1000),
        sum=0.5 if src == "u8" else None,
    )
    one, two = MemoryDesc(dims, src, tags[0]), MemoryDesc(dims, dst, tags[1])
    values = values_for(attributes, dims, 5)
    source, destination = (GuardedBuffer(span_bytes(desc), "upper", 8) for desc in (one, two))
    rng = np.random.default_rng(1)
    for desc, buffer in ((one, source), (two, destination)):
        buffer.bytes[:] = contents(rng, desc, buffer.bytes.size)
    expected = destination.bytes.copy()
    reference_reorder(one, source.bytes, two, expected, attributes, view_codes(values))
    image = image_of(build_reorder_problem(one, two, attributes), TARGETS[name], source, destination, values)
    destination.pages[:] = np.frombuffer(emulator(image, TARGETS[name]), np.uint8)
    assert_same(two, destination.bytes, expected)
    assert destination.gap_is_untouched


def test_no_code_of_another_family_is_left(machine: Machine) -> None:
    src, dst = (MemoryDesc((65, 64), "f32", tag) for tag in ("ab", "ba"))
    text = ir_of(plan_reorder(build_reorder_problem(src, dst), TARGETS[machine[0]]).kernel, TARGETS[machine[0]])
    assert "x86" not in text


def test_a_byte_beyond_the_buffer_is_a_fault(machine: Machine) -> None:
    name, emulator = machine
    src = MemoryDesc((64, 64), "u8", "ab")
    source, destination = (GuardedBuffer(4096) for _ in range(2))
    image = image_of(build_reorder_problem(src, MemoryDesc((64, 64), "u8", "ba")), TARGETS[name], source, destination)
    for i in (0, 1):
        moved = tuple(value + (k == i) for k, value in enumerate(image.arguments))
        with pytest.raises((AssertionError, aarch64_emulator.faults())):
            emulator(replace(image, arguments=moved), TARGETS[name])
