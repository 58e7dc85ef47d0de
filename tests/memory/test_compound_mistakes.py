"""Errors of compound formats: golden/mistakes/compound.txt has calls and the whole text of their errors."""

import numpy as np
import pytest

from inlay import (  # noqa: F401  calls of the file name them
    CompoundDesc,
    CompoundMemory,
    Extras,
    MemoryDesc,
    assemble,
    compound,
    describe_compensated,
    pack_compound,
    show,
)
from inlay.descriptor.compound_format import BitField, CompoundFormat, Section, Stream  # noqa: F401
from tests.support.golden_mistakes import assert_mistake, read_mistakes

Q4_0, KLEIDI = compound("ggml:Q4_0"), compound("kleidiai:qsi4c32p4x8")
DESC = CompoundDesc(Q4_0, (2, 32))
MEMORY = CompoundMemory(DESC, np.zeros(36, np.uint8))
SHARED = np.zeros(64, np.float32)
MEMORY_IN_OUT = CompoundMemory(DESC, SHARED.view(np.uint8))
QUANTS, SCALES = np.zeros((2, 96), np.uint8), np.ones((2, 3), np.float16)
BLOCK = Section((4,), 2)
NIBBLES = Stream("quants", "u8", (BitField.of(4, 0, ((4, 4),)),))


@pytest.mark.parametrize(("call", "error"), read_mistakes("compound"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, globals())
