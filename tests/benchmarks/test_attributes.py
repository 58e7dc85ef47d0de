"""The benchmark's pairs with attributes and of 4-bit types: everybody computes the same, or says why not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.buffers import ThreadedMemcpy, fill_with_values
from benchmarks.cases import TABLES, Case, Pair, Size, cases_of, values_of
from benchmarks.peers import eager_reorder
from benchmarks.rounds import Rounds, agreeing, measure_case
from inlay.bench.contenders import DIFFERS
from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc
from inlay.errors import InlayError, Unimplemented
from inlay.measure.processors import allowed_processors
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.reference import reference_reorder
from tests.support.benchmark_sources import empty, filled, require_peer
from tests.support.refusals import raises_exactly


@given(st.binary(min_size=1, max_size=1))
def test_of_four_bits_every_code_is_a_value(spoiled: bytes) -> None:
    buffer = np.full(4096, spoiled[0], np.uint8)
    fill_with_values(buffer, DATA_TYPES["s4"])
    assert set((buffer & 15).tolist()) == set((buffer >> 4).tolist()) == set(range(16))


@pytest.mark.parametrize("table", ["scaled", "4 bits"])
def test_cases_that_compute_leave_the_bytes_that_the_reference_leaves(table: str) -> None:
    peer = require_peer("Inlay")
    for case in cases_of(TABLES[table], [Size("tiny", 1 << 12)]):
        of, to, expected = filled(case.src), empty(case.dst), empty(case.dst)
        attributes = case.pair.attributes
        reference_reorder(case.src, of.buffer, case.dst, expected.buffer, attributes, view_codes(case.values))
        peer.prepare(of, to, attributes, case.values)()
        assert np.array_equal(to.buffer, expected.buffer), case.label


def test_oneDNN_computes_the_cases_with_attributes_that_it_knows() -> None:  # noqa: N802 - its name
    """Everybody's bytes are equal (above); here, that they were compared at all.

    A reorder with a zero point that transposes is refused, since the library ignores zero points for some dims.
    """
    peer = require_peer("oneDNN")
    taken = set()
    for case in cases_of(TABLES["scaled"], [Size("tiny", 1 << 12)]):
        try:
            peer.prepare(filled(case.src), empty(case.dst), case.pair.attributes, case.values)()
        except InlayError:
            continue
        taken.add(case.pair.note)
    assert taken >= {"scales", "scales, sum 0.5", "scales, s8s8", "s8s8", "s8s8, zp"}
    assert "scale, zero point" not in taken


def test_compulsory_bytes_count_half_bytes_old_elements_and_sums_behind_weights() -> None:
    size = Size("L2", 1 << 19)
    nibbles = Case(Pair("ab", "ba", "s4", "bf16"), size, (6, 10))
    assert nibbles.nbytes == 6 * 10 // 2 + 2 * 6 * 10
    added = Case(Pair("ab", "ba", "f32", "f32", attributes=Attributes(sum=0.5)), size, (6, 10))
    assert added.nbytes == 3 * 4 * 6 * 10
    pair = Pair("oihw", "OIhw4i16o4i", "s8", "s8", extras=Extras(1, compensation_mask=1))
    summed = Case(pair, size, (32, 16, 3, 3))
    assert summed.nbytes == 2 * 32 * 16 * 9 + 4 * 32


@pytest.mark.heavy
@pytest.mark.parity
def test_operators_of_pytorch_step_by_step_leave_the_same_bytes() -> None:
    peers, taken = [require_peer("Inlay"), require_peer("torch")], set()
    for case in cases_of(TABLES["scaled"], [Size("tiny", 1 << 12)]):
        calls, absent = agreeing(peers, case, filled(case.src).buffer, empty(case.dst).buffer)
        assert not any(text.startswith(DIFFERS) for text in absent.values()), case.label
        taken |= {case.pair.note} if "torch" in calls else set()
    assert taken >= {"scales", "scale, zero point", "33 columns, zero point"}


def test_a_sum_by_operators_adds_the_old_elements() -> None:
    torch = pytest.importorskip("torch")
    src, dst = MemoryDesc((4, 6), "f32", "ab"), MemoryDesc((4, 6), "f32", "ba")
    attributes = Attributes(Scales(0b10), sum=0.5)
    of, ours, theirs = filled(src), filled(dst), filled(dst)
    values = values_of(attributes, src.dims)
    require_peer("Inlay").prepare(of, ours, attributes, values)()
    eager_reorder(torch, of, theirs, attributes, values)()
    assert np.array_equal(ours.buffer, theirs.buffer)


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
    with raises_exactly(Unimplemented, reason):
        eager_reorder(None, empty(of), empty(to), attributes, {})


def test_oneDNN_refuses_what_its_version_computes_wrongly() -> None:  # noqa: N802 - its name
    peer = require_peer("oneDNN")
    if not peer.version.startswith("3.2."):
        pytest.skip(f"this oneDNN is {peer.version}")
    src, dst = MemoryDesc((4, 6), "u8", "ab"), MemoryDesc((4, 6), "f32", "ba")
    with raises_exactly(Unimplemented, "3.2 leaves the zero points of a source out, in some sizes"):
        peer.prepare(filled(src), empty(dst), Attributes(src_zero_points=ZeroPoints()), {})


@pytest.mark.parametrize("table", ["scaled", "4 bits"])
def test_every_case_that_computes_is_measured_beside_copies_of_as_many_bytes(table: str) -> None:
    memcpy, rounds = ThreadedMemcpy(allowed_processors()), Rounds(count=1, block_seconds=0, settle_seconds=0)
    peers = [require_peer(name) for name in ("Inlay", "NumPy")]
    for case in cases_of(TABLES[table], [Size("tiny", 1 << 12)]):
        result = measure_case(case, peers, memcpy, rounds).measured
        assert next(iter(result.seconds)) == "Inlay", case.label
        assert {name: len(times) for name, times in result.copies.items()} == {"Inlay": 1, "NumPy": 1, "memcpy": 1}
