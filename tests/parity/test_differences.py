"""Examples of each intended difference: the results of oneDNN and of Inlay, and the row of the table."""

from dataclasses import fields

import pytest

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME
from inlay.notation.format_tag import ENUMERATED
from inlay.testing import ByStrides, ByTag, Reshape, Submemory
from tests.oracles import onednn
from tests.parity.differences import DIFFERENCES, Difference, applicable, explain
from tests.parity.operations import OPERATIONS, UNSAID, Case, Query, answer

WHY_NOT = onednn.why_unavailable()
pytestmark = [pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)), pytest.mark.parity]

BY_NAME = {operation.name: operation for operation in OPERATIONS}
F32, BF16, F64, S8 = (DATA_TYPES[name] for name in ("f32", "bf16", "f64", "s8"))
UNIT = MemoryDesc((4, 8), "f32", "Ab8a").submemory((1, 8), (0, 0))
INNER = MemoryDesc((2, 4), "f32", "aB2b").submemory((2, 2), (0, 0))
FAR = MemoryDesc((4, 0, 3), "f32", strides=(2**62, 4, 1))

EXAMPLES: dict[str, list[tuple[str, Case]]] = {
    "padded volumes over 2**63 - 1 are refused": [
        ("create by tag", ByTag((1, 2**62), BF16, "AB16b16a2b")),
        ("create by tag", ByTag((2**29, 0, 2**27, 1, 12), F64, "aBCde16c16b4c")),
    ],
    "default strides left of a RUNTIME dim are RUNTIME": [
        ("create by strides", ByStrides((2, 4, RUNTIME), F32, None)),
    ],
    "a blocked axis is neither dropped nor joined": [
        ("reshape", Reshape(UNIT, (8,))),
        ("reshape", Reshape(INNER, (4,))),
        ("reshape", Reshape(MemoryDesc((13, 9, 1, 0, 9), "s8", "aeBcD8d4b5b"), (117, 1, 0, 9))),
    ],
    "a reshape to no dims gives the zero descriptor": [
        ("reshape", Reshape(MemoryDesc((1,), "f32"), ())),
        ("reshape", Reshape(MemoryDesc((4, 6), "f32").submemory((1, 1), (2, 3)), ())),
    ],
    "one dim of -1 follows from the others": [
        ("reshape", Reshape(MemoryDesc((4, 6), "f32"), (-1,))),
        ("reshape", Reshape(MemoryDesc((4, 6), "f32", "any"), (3, -1))),
    ],
    "offsets do not wrap": [("submemory", Submemory(FAR, (1, 0, 3), (3, 0, 0)))],
    "sizes do not wrap": [("create by strides", ByStrides((2**31, 2**31), F32, None))],
    "the zero descriptor has no strides and no blocks": [
        ("queries", Query(MemoryDesc(), what)) for what in ("strides", "inner_nblks", "inner_blks", "inner_idxs")
    ],
    "3.2: vast strides are refused": [
        ("create by tag", ByTag((2**31, 3), F32, "ab")),
        ("create by strides", ByStrides((2**49,), BF16, (2**32,))),
    ],
    "3.2: a submemory has a size": [
        ("submemory", Submemory(MemoryDesc((4, 6), "f32"), (2, 6), (2, 0))),
        ("size", MemoryDesc((4, 6), "f32").submemory((2, 6), (2, 0))),
        ("text", MemoryDesc((4, 6), "f32").submemory((2, 6), (2, 0))),
    ],
    "3.2: axes of stride 0 are the outermost of a text": [
        ("text", MemoryDesc((4, 6), "f32", strides=(1, 0))),
    ],
    "3.2: CSR of one dim has two buffers": [("queries", Query(MemoryDesc.csr((3,), "f32", 2), "num_handles"))],
}

each_difference = pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)


def test_every_difference_has_an_example() -> None:
    assert list(EXAMPLES) == [difference.name for difference in DIFFERENCES]


@each_difference
def test_the_examples_differ_as_the_table_says(difference: Difference) -> None:
    for name, case in EXAMPLES[difference.name]:
        operation = BY_NAME[name]
        mine = answer(lambda case=case, operation=operation: operation.ours(case))  # type: ignore[misc]
        (real,) = (UNSAID,) if difference.is_fatal else operation.real_answers([case])
        if difference in applicable():
            assert mine != real
            assert explain(case, mine, real) == difference.name
        else:
            assert mine == real


@pytest.mark.skipif(WHY_NOT is not None or onednn.version() < (3, 13), reason="3.2 checks less")
def test_a_volume_that_wraps_passes_the_library_where_a_dim_is_0() -> None:
    dims, tag = (2**29, 0, 2**27, 1, 12), "aBCde16c16b4c"
    assert onednn.by_tag(dims, F64.code, ENUMERATED[tag]).size == 0


def test_default_strides_left_of_a_runtime_dim() -> None:
    assert MemoryDesc((2, 4, RUNTIME), "f32").strides == (RUNTIME, RUNTIME, 1)
    assert onednn.by_strides((2, 4, RUNTIME), 3, None).strides == (0, RUNTIME, 1)


def test_what_the_library_makes_of_a_blocked_axis() -> None:
    """A block of axis 0 that is now another axis, and one of an axis that is gone."""
    assert onednn.mirror(UNIT).reshape((8,)).inner_blocks == ((0, 8),)
    assert onednn.mirror(INNER).reshape((4,)).inner_blocks == ((1, 2),)
    with pytest.raises(InvalidArguments, match="cannot be dropped: it is in blocks of 8"):
        UNIT.reshape((8,))
    with pytest.raises(InvalidArguments, match=r"the 2 elements of axis 1 \(b\) are in blocks of 2"):
        INNER.reshape((4,))


def test_what_the_library_makes_of_no_dims() -> None:
    real = onednn.mirror(MemoryDesc((1,), "f32")).reshape(())
    assert real.kind == "blocked"
    assert real == onednn.zero()


def test_what_the_library_makes_of_sums_and_products_that_overflow() -> None:
    assert onednn.mirror(FAR).submemory((1, 0, 3), (3, 0, 0)).offset0 < 0
    assert MemoryDesc((2**31, 2**31), "f32").size == 2**64
    assert onednn.by_strides((2**31, 2**31), 3, None).size == 0


@each_difference
def test_a_difference_explains_no_other_answer(difference: Difference) -> None:
    """Not even where only one part of a descriptor is wrong."""
    for name, case in EXAMPLES[difference.name]:
        if difference.is_fatal or difference not in applicable():
            continue
        (real,) = BY_NAME[name].real_answers([case])
        for wrong in (
            ("unimplemented", None),
            ("success", "wrong"),
            ("success", {"dims": (1,), "size": 0, "offset0": 0}),
        ):
            assert explain(case, wrong, real) is None


def test_a_difference_is_told_in_full() -> None:
    assert [field.name for field in fields(Difference)][:2] == ["name", "reason"]
    assert all(difference.name and difference.reason for difference in DIFFERENCES)
