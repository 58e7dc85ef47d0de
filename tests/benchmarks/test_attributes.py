"""The benchmark's pairs with attributes and of 4-bit types: everybody computes the same, or says why not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.buffers import fill_with_values, huge_buffer
from benchmarks.cases import Case, Size, cases_of
from benchmarks.copies import ThreadedMemcpy
from benchmarks.eager import eager_reorder
from benchmarks.families import TABLES
from benchmarks.machine import this_machine
from benchmarks.measure import DIFFERS, agreeing_calls, measured
from benchmarks.onednn import Refused
from benchmarks.peers import Inlay, NumPy
from benchmarks.timing import Rounds
from benchmarks.values import values_of
from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.reference import reference_reorder
from tests.support.benchmark_sources import filled, found


@given(st.binary(min_size=1, max_size=1))
def test_of_four_bits_every_code_is_a_value(spoiled: bytes) -> None:
    buffer = np.full(4096, spoiled[0], np.uint8)
    fill_with_values(buffer, DATA_TYPES["s4"])
    assert set((buffer & 15).tolist()) == set((buffer >> 4).tolist()) == set(range(16))


@pytest.mark.parametrize("table", ["scaled", "4 bits"])
def test_cases_that_compute_leave_the_bytes_that_the_reference_leaves(table: str) -> None:
    for case in cases_of(TABLES[table], [Size("tiny", 1 << 12)], table):
        of, to, expected = filled(case.src), huge_buffer(case.dst.size), huge_buffer(case.dst.size)
        values = values_of(case.attributes, case.dims)
        reference_reorder(case.src, of, case.dst, expected, case.attributes, view_codes(values))
        Inlay().prepare(case.src, of, case.dst, to, case.attributes)()
        assert np.array_equal(to, expected), case.label


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


@pytest.mark.parametrize("table", ["scaled", "4 bits"])
def test_every_case_that_computes_is_measured_beside_copies_of_as_many_bytes(table: str) -> None:
    memcpy, rounds = ThreadedMemcpy(this_machine().processors), Rounds(count=1, block_seconds=0, settle_seconds=0)
    for case in cases_of(TABLES[table], [Size("tiny", 1 << 12)], table):
        result = measured(case, [Inlay(), NumPy()], memcpy, rounds)
        assert next(iter(result.seconds)) == "Inlay", case.label
        assert [(name, len(times)) for name, times in result.copy_seconds.items()] == [
            ("Inlay", 1),
            ("NumPy", 1),
            ("memcpy", 1),
        ]
