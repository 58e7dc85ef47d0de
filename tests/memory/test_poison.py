"""Poison: new memory has it if requested, reorders write the same bytes as without it, unwritten bytes stand out."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory, Reorder, check_padding, pack, reorder
from inlay.memory.buffers import HUGE_PAGE, allocate
from inlay.testing import descriptors
from tests.support.bit_patterns import random_bits
from tests.support.refusals import raises_exactly

SOME = settings(max_examples=150)
BLOCKED = MemoryDesc((1, 17, 2, 2), "f32", "nChw8c")


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_POISON", "1")


@pytest.mark.usefixtures("poison")
class TestPoison:
    @pytest.mark.parametrize("nbytes", [0, 1, 1000, HUGE_PAGE + 1])
    def test_our_own_bytes_hold_it(self, nbytes: int) -> None:
        new = allocate(nbytes)
        assert (new.size, bool((new == 0xFF).all())) == (nbytes, True)

    @pytest.mark.parametrize("data_type", [t for t in DATA_TYPES.values() if t.kind == "float"], ids=str)
    def test_it_is_no_number_where_the_type_has_such(self, data_type: DataType) -> None:
        if data_type.name == "f4_e2m1":
            assert np.float32(np.array([15], np.uint8).view(ml_dtypes.float4_e2m1fn)[0]) == -6
        else:
            assert np.isnan(Memory(MemoryDesc((2,), data_type)).unpack().astype(np.float64)).all()

    @SOME
    @given(descriptors(), st.integers(0, 9))
    def test_what_is_packed_has_zero_padding_all_the_same(self, desc: MemoryDesc, seed: int) -> None:
        values = random_bits(desc.dims, desc.data_type, seed)
        packed = pack(values, desc)
        assert check_padding(packed).is_clean
        assert packed.unpack().tobytes() == values.tobytes()

    @SOME
    @given(descriptors(data_type="f32"))
    def test_what_is_reordered_has_zero_padding_all_the_same(self, desc: MemoryDesc) -> None:
        src = pack(np.ones(desc.dims, np.float32), "abcdefghijkl"[: desc.ndims])
        for dst in (desc, reorder(src, desc).desc, MemoryDesc(desc.dims, "bf16", "any")):
            assert check_padding(reorder(src, dst)).is_clean
        out = Memory(desc)
        Reorder(src.desc, desc)(src, out)
        assert check_padding(out).is_clean

    def test_a_kernel_that_leaves_padding_to_luck_is_caught(self) -> None:
        memory = copied_without_padding()
        report = check_padding(memory)
        assert (report.dirty, report.first[0].coordinate) == (28, (0, 17, 0, 0))


def copied_without_padding() -> Memory:
    """Return memory as a careless kernel writes it: elements are correct, padding has the bytes of new memory."""
    memory = Memory(BLOCKED)
    elements = memory.buffer.view(np.float32)
    for x in np.ndindex(BLOCKED.dims):
        elements[BLOCKED.offset(x)] = 1
    return memory


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_poison_the_careless_kernel_goes_unnoticed(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INLAY_POISON", raising=False)
    if value is not None:
        monkeypatch.setenv("INLAY_POISON", value)
    assert check_padding(copied_without_padding()).is_clean


def test_another_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_POISON", "yes")
    text = "INLAY_POISON is 'yes': set it to 1 to fill new memory with 0xFF in place of zeros, or to 0"
    with raises_exactly(InvalidArguments, text):
        Memory(BLOCKED)
