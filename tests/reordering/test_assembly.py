"""Assembly of one reorder for several processors: expected instructions, and independence of this machine."""

import re

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
from inlay.reordering.target import TARGETS, Target, assembly_of, compile_ir, host_target
from tests.reordering.test_targets import CASES, TYPES

BYTES = (MemoryDesc((64, 64), "u8", "ab"), MemoryDesc((64, 64), "u8", "ba"))


def instructions(text: str) -> list[str]:
    """Return the instructions of an assembly, without labels and directives."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("\t")]
    return [line.replace("\t", " ") for line in lines if not line.startswith((".", "//", "#"))]


def compiled_everywhere(pairs: list[tuple[MemoryDesc, MemoryDesc]], target: Target) -> dict[Kernel, bytes]:
    """Return the object of every kernel that the pairs need on a target."""
    objects: dict[Kernel, bytes] = {}
    for src, dst in pairs:
        problem = build_reorder_problem(src, dst)
        kernel = plan_reorder(problem, target).kernel
        if kernel not in objects:
            objects[kernel] = compile_ir(ir_of(kernel, target), target)
    return objects


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
    assert [TARGETS[name].attributes for name in ("aarch64", "aarch64-sve256", "aarch64-sve512")] == [
        "",
        "vscale_range(2,2)",
        "vscale_range(4,4)",
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_waiting_compiles_too(target: str) -> None:
    machine = TARGETS[target]
    text = assembly_of(team_ir(machine.pause, machine.attributes), machine)
    assert ("yield" if target.startswith("aarch64") else "pause") in [line.split()[0] for line in instructions(text)]


@pytest.mark.parametrize("target", ["aarch64", "aarch64-sve256"])
def test_nothing_of_x86_is_left(target: str) -> None:
    machine = TARGETS[target]
    for src, dst in (BYTES, (MemoryDesc((65, 3), "f32", "ab"), MemoryDesc((65, 3), "bf16", "ba"))):
        assert "x86" not in ir_of(plan_reorder(build_reorder_problem(src, dst), machine).kernel, machine)


def test_nothing_to_move_is_no_code() -> None:
    empty = MemoryDesc((2, 0), "f32", "ab")
    assert inlay.Reorder(empty, empty).assembly("aarch64") == ""


@pytest.mark.heavy
@pytest.mark.parametrize("target", TARGETS)
def test_every_case_of_the_benchmark_compiles_for_every_target(target: str) -> None:
    cases = all_cases([Size("L2", 1 << 19), Size("beyond", 1 << 28)])
    # What lies behind weights is no part of the kernel that moves them.
    pairs = [(case.src, case.dst) for case in cases if not case.dst.extras]
    objects = compiled_everywhere(pairs, TARGETS[target])
    # Code that works element by element, where a shuffle has no instruction, is ten times as long.
    assert max(map(len, objects.values())) < 150_000


@pytest.mark.heavy
@pytest.mark.parametrize("target", TARGETS)
def test_formats_and_types_compile_for_every_target(target: str) -> None:
    pairs = [(MemoryDesc(d, a, s), MemoryDesc(d, b, t)) for d, s, t in CASES for a, b in TYPES]
    assert len(compiled_everywhere(pairs, TARGETS[target])) > 10


class TestRefusals:
    def test_a_target_that_nobody_knows(self) -> None:
        with pytest.raises(InvalidArguments) as caught:
            inlay.Reorder(*BYTES).assembly("sparc")
        assert str(caught.value) == (
            "no target is called 'sparc': name one of x86-64-v2, x86-64-v3, x86-64-v4, aarch64, aarch64-sve256, "
            "aarch64-sve512, or none for this machine"
        )

    def test_code_that_is_not_made(self) -> None:
        # Groups of 6 and blocks of 4 share no digits.
        src, dst = MemoryDesc((12, 12), "s8", "ab"), MemoryDesc((12, 12), "f32", "Ab4a")
        r = inlay.Reorder(src, dst, Attributes(src_scales=Scales(mask=3, groups=(6, 1))))
        with pytest.raises(Unimplemented) as caught:
            r.assembly()
        text = "these elements are moved coordinate by coordinate: there is no machine code to show"
        assert str(caught.value) == text
