"""Errors of reorders and of their attributes: golden/mistakes/reordering.txt has calls and the text of their errors."""

from typing import Any

import numpy as np
import pytest

import inlay
from inlay import RUNTIME, Attributes, Memory, MemoryDesc, Scales, ZeroPoints  # noqa: F401  calls of the file name them
from inlay.reordering import compile_reorder  # noqa: F401
from inlay.reordering.attributes import infer_attributes, operands  # noqa: F401
from inlay.reordering.reference import reference_reorder  # noqa: F401
from tests.support.golden_mistakes import assert_mistake, read_mistakes

F32 = MemoryDesc((4, 6), "f32", "ab")
S8 = MemoryDesc((4, 6), "s8", "ba")
S4 = MemoryDesc((4, 6), "s4", "ab")
ROWS = inlay.pack(np.arange(24, dtype=np.float32).reshape(4, 6), "ab")


def reorder_with(src: MemoryDesc, dst: MemoryDesc, **attributes: Any) -> inlay.Reorder:
    return inlay.Reorder(src, dst, Attributes(**attributes))


def operands_of(attributes: Attributes, **values: Any) -> Any:
    return operands(attributes, (4, 6), values)


@pytest.mark.parametrize(("call", "error"), read_mistakes("reordering"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, globals())
