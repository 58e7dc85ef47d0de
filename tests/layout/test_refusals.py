"""Error texts of the views of `Layout`, in full, and the permutations that they propose."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.memory import as_strided

BLOCKED = Layout((2, 16, 5), (Axis(80), Axis(40, (Digit(8, 1),)), Axis(8)))

FLOATS: Any = (2.0, 2)
WRONG: dict[str, Any] = {"order": 0, "place": 0.5}

REFUSED: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: Layout.row_major((2, 3)).reshape((7,)),
        InvalidArguments,
        "dims (2, 3) hold 6 elements, (7,) 7: a reshape keeps their number\n    (6,) works",
    ),
    (
        lambda: Layout.row_major((2, 3)).reshape((4, 7)),
        InvalidArguments,
        "dims (2, 3) hold 6 elements, (4, 7) 28: a reshape keeps their number",
    ),
    (
        lambda: Layout.from_strides((4, 6, 2), (1, 8, 4)).reshape((24, 2)),
        InvalidArguments,
        "axis 0 to axis 1 cannot become 24: axis 0 has stride 1, but 48 would follow axis 1 of 6 elements with stride "
        "8\n    digits=True gives the view in free digits; to join axis 0 to axis 1, reorder to row-major order first "
        "(96 elements moved)",
    ),
    (
        lambda: BLOCKED.reshape((2, 2, 8, 5), digits=False).reshape((2, 80)),
        InvalidArguments,
        "axis 1 to axis 3 cannot become 80: axis 1 has stride 40, but 8 would follow axis 2 of 8 elements with stride "
        "1\n    digits=True gives the view in free digits; to join axis 1 to axis 3, reorder to row-major order first "
        "(320 elements moved)",
    ),
    (
        lambda: BLOCKED.reshape((2, 4, 4, 5)),
        InvalidArguments,
        "axis 1 cannot be split into 4 x 4: no one stride leads along its 4 elements, only digits (2, 40) (2, 4)\n"
        "    (2, 16, 5) -> (2, 1, 16, 5) works; digits=True gives the view in free digits; to split axis 1, reorder to "
        "row-major order first (320 elements moved)",
    ),
    (
        lambda: Layout((24,), (Axis(40, (Digit(8, 1),)),)).reshape((2, 12), digits=True),
        InvalidArguments,
        "axis 0 cannot be split into 2 x 12: 12 elements do not end where a digit of (3, 40) (8, 1) does\n"
        "    (24,) -> (1, 24) works; to split axis 0, reorder to row-major order first (48 elements moved)",
    ),
    (
        lambda: Layout((2, 18), (Axis(80), Axis(40, (Digit(8, 1),)))).reshape((36,), digits=True),
        InvalidArguments,
        "axis 0 to axis 1 cannot become 36: the 18 elements of the second axis joined end inside a block of 8\n"
        "    to join axis 0 to axis 1, reorder to row-major order first (72 elements moved)",
    ),
    (lambda: Layout.row_major((4,)).reshape((-4,)), InvalidArguments, "dim 0 is -4: dims are 0 or more"),
    (lambda: Layout.row_major((4,)).reshape(FLOATS), InvalidArguments, "dim 0 is 2.0: dims are integers"),
    (
        lambda: Layout.row_major((RUNTIME, 4)).try_reshape((4,)),
        Unimplemented,
        "reshape needs every dim and stride: this layout has RUNTIME ones, bind them first",
    ),
    (
        lambda: BLOCKED.strides,
        InvalidArguments,
        "axis 1 has no one stride: it has digits (2, 40) (8, 1); read `digits`, or reorder to a plain one",
    ),
    (
        lambda: Layout.row_major((2, RUNTIME, 4)).byte_strides(4),
        Unimplemented,
        "byte_strides needs every stride: this layout has RUNTIME ones, bind them first",
    ),
    (
        lambda: BLOCKED.byte_span(0),
        InvalidArguments,
        "itemsize is 0: an element has a whole number of bytes, 1 or more",
    ),
    (
        lambda: Layout.from_array(np.zeros(3, [("x", "f4"), ("y", "u2")])["x"]),
        InvalidArguments,
        "stride 0 is 6 bytes, no multiple of the 4-byte element",
    ),
    (
        lambda: BLOCKED.dimshuffle((0, 2)),
        InvalidArguments,
        "order (0, 2) must use each of 0..2 once: 1 is missing\n    (0, 2, 1) works",
    ),
    (
        lambda: BLOCKED.broadcast((2, 3, 5)),
        InvalidArguments,
        "dims (2, 16, 5) cannot be broadcast to (2, 3, 5): axis 1 has 16 elements, not 1 or 3",
    ),
    (
        lambda: BLOCKED.broadcast((16, 5)),
        InvalidArguments,
        "dims (2, 16, 5) cannot be broadcast to (16, 5): those are 1 dims fewer",
    ),
    (
        lambda: as_strided(np.arange(6), Layout.from_strides((3, 2), (-2, 1)), 3),
        InvalidArguments,
        "the layout reaches elements -1 to 4 from offset0 3, outside the 6 there are",
    ),
    (
        lambda: as_strided(np.arange(6), Layout.row_major((3, 2)), 1),
        InvalidArguments,
        "the layout reaches elements 1 to 6 from offset0 1, outside the 6 there are",
    ),
    (
        lambda: as_strided(np.zeros((2, 3), np.int8), Layout.row_major((6,))),
        InvalidArguments,
        "elements of shape (2, 3) and strides (3, 1): give one dense axis, as array.ravel()",
    ),
    (
        lambda: BLOCKED.dimshuffle(WRONG["order"]),
        InvalidArguments,
        "places are 0: give a sequence of integers",
    ),
    (lambda: BLOCKED.remove_axis(WRONG["place"]), InvalidArguments, "place 0 is 0.5: places are integers"),
    (lambda: BLOCKED.add_axis(WRONG["place"]), InvalidArguments, "place 0 is 0.5: places are integers"),
    (lambda: BLOCKED.add_axis(4), InvalidArguments, "an axis can be added at 0..3, not at 4"),
    (
        lambda: BLOCKED.add_axis(0, 2),
        InvalidArguments,
        "an axis of 2 needs a stride: 0 repeats the elements, others name new ones",
    ),
    (
        lambda: BLOCKED.remove_axis(3),
        InvalidArguments,
        "axis 3 cannot be removed: the layout has 3 axes, counted from 0",
    ),
    (
        lambda: Layout.row_major((2, 0)).remove_axis(1),
        InvalidArguments,
        "axis 1 cannot be removed: it has 0 elements, so none at coordinate 0",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_a_refused_view_says_why(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert (type(caught.value), str(caught.value)) == (error, text)


def test_every_permutation_that_is_suggested_is_one() -> None:
    for wanted in product(range(-1, 4), repeat=3):
        try:
            Layout.row_major((2, 3, 4)).dimshuffle(wanted)
        except InvalidArguments as error:
            remedy = str(error).splitlines()[1].removesuffix(" works").strip("() ")
            suggested = [int(entry) for entry in remedy.split(",")]
            Layout.row_major((2, 3, 4)).dimshuffle(suggested)
            kept = sum(a == b for a, b in zip(wanted, suggested, strict=True))
            assert kept == len({i for i in wanted if 0 <= i < 3})
        else:
            assert sorted(wanted) == [0, 1, 2]
