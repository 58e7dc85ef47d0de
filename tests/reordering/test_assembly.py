"""Assembly of one reorder for several processors: expected instructions, and independence of this machine."""

import re
from collections.abc import Callable, Iterable
from itertools import product

import pytest

import inlay
from benchmarks.cases import Size, all_cases
from inlay import Attributes, MemoryDesc, Scales
from inlay.errors import InvalidArguments, Unimplemented
from inlay.reordering.emit_team import team_ir
from inlay.reordering.kernel import Kernel
from inlay.reordering.machine_code import ir_of
from inlay.reordering.planning import plan_reorder
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.target import TARGETS, assembly_of, compile_ir, host_target
from tests.reordering.test_targets import CASES, TYPES
from tests.support.refusals import raises_exactly
from tests.support.reorders import Pair, pair

BYTES = pair((64, 64), src_type="u8")


def instructions(text: str) -> list[str]:
    """Return the instructions of an assembly, without labels and directives."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("\t")]
    return [line.replace("\t", " ") for line in lines if not line.startswith((".", "//", "#"))]


def kernels_for(pairs: Iterable[Pair], target: str) -> set[Kernel]:
    """Return every kernel that the pairs need on a target."""
    return {plan_reorder(build_reorder_problem(*pair), TARGETS[target]).kernel for pair in pairs}


@pytest.mark.parametrize(
    ("target", "shuffle"),
    [
        ("x86-64-v2", r"punpcklbw %xmm"),
        ("x86-64-v3", r"vpunpcklbw %ymm"),
        ("x86-64-v4", r"vpunpcklbw %zmm"),
        ("aarch64", r"zip1 v\d+\.(16b|8h|4s|2d)|trn1 v\d+\.(16b|8h|4s|2d)"),
        ("aarch64-sve256", r"zip1 z\d+\.[bhsd]"),
        ("aarch64-sve512", r"zip1 z\d+\.[bhsd]"),
    ],
)
def test_bytes_are_transposed_by_the_shuffles_of_the_target(target: str, shuffle: str) -> None:
    lines = instructions(inlay.Reorder(*BYTES).assembly(target))
    assert any(re.match(shuffle, line) for line in lines)
    # Element by element there would be thousands: 64 x 64 bytes are 256 registers of 16 bytes, read and written once.
    assert len(lines) < 1500


def test_the_assembly_of_this_machine_is_the_one_without_a_name() -> None:
    r = inlay.reordering.compile_reorder(*BYTES)
    assert r.plan is not None
    assert r.assembly() == assembly_of(ir_of(r.plan.kernel, host_target()), host_target())


def test_registers_of_sve_have_one_width() -> None:
    widths = {name: target.attributes for name, target in TARGETS.items() if name.startswith("aarch64")}
    assert widths == {"aarch64": "", "aarch64-sve256": "vscale_range(2,2)", "aarch64-sve512": "vscale_range(4,4)"}


@pytest.mark.parametrize("target", TARGETS)
def test_waiting_compiles_too(target: str) -> None:
    machine = TARGETS[target]
    text = assembly_of(team_ir(machine.pause, machine.attributes), machine)
    assert ("yield" if target.startswith("aarch64") else "pause") in [line.split()[0] for line in instructions(text)]


@pytest.mark.parametrize("target", ["aarch64", "aarch64-sve256"])
def test_nothing_of_x86_is_left(target: str) -> None:
    for kernel in kernels_for([BYTES, pair((65, 3), src_type="f32", dst_type="bf16")], target):
        assert "x86" not in ir_of(kernel, TARGETS[target])


def test_nothing_to_move_is_no_code() -> None:
    empty = MemoryDesc((2, 0), "f32", "ab")
    assert inlay.Reorder(empty, empty).assembly("aarch64") == ""


@pytest.mark.heavy
@pytest.mark.parametrize("target", TARGETS)
def test_formats_and_cases_of_the_benchmark_compile_for_every_target(target: str) -> None:
    cases = all_cases([Size("L2", 1 << 19), Size("beyond", 1 << 28)])
    # What lies behind weights is no part of the kernel that moves them.
    measured = kernels_for([(case.src, case.dst) for case in cases if not case.dst.extras], target)
    others = kernels_for([pair(*case, *types) for case, types in product(CASES, TYPES)], target)
    assert len(others) > 10
    for kernel in measured | others:
        size = len(compile_ir(ir_of(kernel, TARGETS[target]), TARGETS[target]))
        # Code that works element by element, where a shuffle has no instruction, is ten times as long.
        assert size < 150_000 or kernel not in measured


@pytest.mark.parametrize("show", [inlay.Reorder.assembly, inlay.Reorder.explain])
def test_a_target_that_nobody_knows_is_refused(show: Callable[[inlay.Reorder, str], str]) -> None:
    text = (
        "no target is called 'sparc': name one of x86-64-v2, x86-64-v3, x86-64-v4, aarch64, aarch64-sve256, "
        "aarch64-sve512, or none for this machine"
    )
    with raises_exactly(InvalidArguments, text):
        show(inlay.Reorder(*BYTES), "sparc")


def test_code_that_is_not_made_cannot_be_shown() -> None:
    # Groups of 6 and blocks of 4 share no digits.
    grouped = Attributes(src_scales=Scales(mask=3, groups=(6, 1)))
    r = inlay.Reorder(*pair((12, 12), "ab", "Ab4a", "s8", "f32"), grouped)
    with raises_exactly(
        Unimplemented, "these elements are moved coordinate by coordinate: there is no machine code to show"
    ):
        r.assembly()
