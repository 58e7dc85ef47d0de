"""The benchmark of swizzled memory: elements are where the formulas say, and its aim is compared."""

import pytest

from benchmarks.swizzles import NBYTES, SwizzledTimes, is_met, measure_swizzles, swizzled_cases, swizzles_table


@pytest.mark.heavy
def test_every_case_is_measured() -> None:
    results = measure_swizzles(2, 8 << 20)
    assert [result.case.name for result in results][:2] == [
        "Swizzle<3,4,3> u8, rows in order",
        "Swizzle<2,4,3> u8, rows in order",
    ]
    assert all(0 < share < 10 for result in results for share in result.shares)
    assert swizzles_table(results).row_count == len(results)


def test_both_sides_of_a_case_have_all_bytes() -> None:
    for case in swizzled_cases():
        assert case.swizzled.size == case.linear.size == NBYTES
        assert case.swizzled.dims == case.linear.dims


@pytest.mark.parametrize(
    ("index", "packing", "unpacking", "met"),
    [(0, 1.6, 1.0, True), (0, 1.7, 1.0, False), (0, 1, 1.7, False), (-1, 1.6, 1.6, True), (-1, 1.7, 1.0, False)],
)
def test_the_aim_counts_both_directions(index: int, packing: float, unpacking: float, met: bool) -> None:
    assert is_met(SwizzledTimes(swizzled_cases()[index], packing, unpacking, 1.0)) is met
