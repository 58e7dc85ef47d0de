"""Reorders on every register width, with streaming stores, and on several threads.

Only large tensors use streaming stores and several threads; here both are forced on small ones, which the reference can
check. Narrow registers are those of processors without AVX-512, whose code runs on this one too.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from inlay.reordering import compile_reorder
from inlay.testing import reorder_problems
from tests.reordering.test_reorder import check
from tests.support.reorders import Case, Pair, pair

FIXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
CASES = [
    ((2, 48, 17, 9), "nchw", "nChw16c"),
    ((2, 48, 17, 9), "nChw16c", "nchw"),
    ((1, 64, 16, 16), "nchw", "nhwc"),
    ((1, 70, 9, 9), "nhwc", "nchw"),
    ((32, 48, 3, 3), "oihw", "OIhw16i16o"),
    ((32, 48, 3, 3), "OIhw16i16o", "oihw"),
    ((32, 64, 1, 1), "oihw", "OIhw4i16o4i"),
    ((128, 96), "ab", "BA16a64b4a"),
    ((96, 128), "ba", "BA16a64b4a"),
    ((130, 70), "ab", "ba"),
    ((128, 128), "ab", "ba"),
    ((3, 50, 5, 5), "aBcd8b", "aBcd12b"),
    ((2, 3, 40, 40), "nhwc", "nchw"),
]
TYPES = [("u8", "u8"), ("bf16", "bf16"), ("f32", "f32"), ("f64", "f64"), ("f32", "s8"), ("u8", "f32"), ("f32", "bf16")]


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("each_machine")
def test_bytes_are_those_of_the_reference(case: Case, types: tuple[str, str]) -> None:
    check(*pair(*case, *types))


@pytest.mark.usefixtures("narrow")
@FIXED
@given(reorder_problems())
def test_random_problems_on_narrow_registers(pair: Pair) -> None:
    check(*pair)


@pytest.mark.usefixtures("always_streaming")
class TestStreaming:
    @FIXED
    @given(reorder_problems(large=True))
    def test_same_type(self, pair: Pair) -> None:
        check(*pair)

    @FIXED
    @given(reorder_problems(convert=True, large=True))
    def test_conversion(self, pair: Pair) -> None:
        check(*pair)

    def test_destination_off_the_line_is_stored_without_streaming(self) -> None:
        r = compile_reorder(*pair((64, 64)))
        assert r.plan is not None
        assert r.plan.kernel.stores == "streamed"
        x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
        room = np.zeros(64 * 64 + 64, np.float32)
        for shift in range(16):
            y = room[shift : shift + 64 * 64]
            r.run(x.ctypes.data, y.ctypes.data)
            assert (y.reshape(64, 64) == x.T).all()

    def test_parts_of_lines_are_staged(self) -> None:
        # Enough blocks to use up a stack that grows with each of them.
        sides = pair((512, 640, 3, 3), "oihw", "OIhw16i16o", "bf16")
        plan = compile_reorder(*sides).plan
        assert plan is not None
        assert plan.kernel.stores == "staged"
        check(*sides)

    def test_rows_that_are_no_whole_lines_do_not_stream(self) -> None:
        plan = compile_reorder(*pair((60, 64))).plan
        assert plan is not None
        assert plan.kernel.stores == "cached"
