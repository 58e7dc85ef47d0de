"""`pack` remembers the descriptors of a call by the form of its arguments; results do not depend on it."""

from typing import Any

import numpy as np
import pytest

import inlay
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Reorder, pack, pack_reorder
from inlay.memory.padding_contents import ZERO
from inlay.memory.reorder_cache import find_reorder


@pytest.fixture(autouse=True)
def forget_forms() -> None:
    pack_reorder._packed_forms.clear()


@pytest.mark.parametrize("shape", [(2, 17, 3, 3), (4, 65, 30, 30)], ids=str)
@pytest.mark.parametrize("data_type", [None, "bf16"])
def test_a_remembered_call_packs_the_values_of_its_array(shape: tuple[int, ...], data_type: str | None) -> None:
    """Arrays of equal form have their own values; others have their own forms."""
    random = np.random.default_rng(1)
    for step in (1, 1, 2):
        x = random.integers(-9, 9, (shape[0] * step, *shape[1:])).astype(np.float32)[::step]
        packed = pack(x, "nChw8c", data_type)
        assert np.array_equal(packed.unpack().astype(np.float32), x)
        assert packed.address % 64 == 0
        assert packed.padding is ZERO
        assert inlay.check_padding(packed).is_clean
    assert len(pack_reorder._packed_forms) == 2


def test_types_of_equal_shape_and_strides_differ() -> None:
    """Types decide, and so do the data types of the result."""
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    for _ in range(2):
        for array in (x, x.view(np.uint32), x.view(np.float32)):
            packed = pack(array, "ba")
            assert packed.desc.data_type == MemoryDesc((1,), array.dtype).data_type
            assert packed.buffer.tobytes() == array.T.tobytes()
        for data_type in ("s8", "f32"):
            converted = pack(x, "ba", data_type)
            assert (str(converted.desc.data_type), converted.unpack().tolist()) == (data_type, x.tolist())


def test_an_array_at_an_odd_address_has_no_remembered_call() -> None:
    """Its elements are copied first, as in the first call."""
    aligned, raw = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(49, np.uint8)
    odd: Any = raw[1:].view(np.float32).reshape(3, 4)
    odd[...] = aligned + 1
    for array in (aligned, odd, aligned, odd):
        assert pack(array, "ba").unpack().tolist() == array.tolist()


def test_the_memory_has_the_descriptor_of_the_call() -> None:
    """Equal descriptors may be spelled differently."""
    x = np.zeros((2, 3), np.float32)
    for _ in range(2):
        desc = MemoryDesc((2, 3), "f32", "ba")
        assert pack(x, desc).desc is desc


def test_arguments_without_a_hash_and_lists_are_packed() -> None:
    """They are planned in each call."""
    for _ in range(2):
        assert pack([[1, 2], [3, 4]], "ba", "f32").unpack().tolist() == [[1, 2], [3, 4]]
        with pytest.raises(InvalidArguments, match="format is"):
            pack(np.zeros((2, 2), np.float32), ["ba"])  # type: ignore[arg-type]


def test_a_remembered_call_runs_the_reorder_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """After tuning, the cache of reorders is empty, and the next call compiles by the decision."""
    x = np.ones((8, 16), np.float32)
    packed = pack(x, "ba")
    Reorder(MemoryDesc((8, 16), "f32"), packed.desc, tune=0.01)
    before = find_reorder.cache_info().misses
    find_reorder.cache_clear()
    pack(x, "ba")
    assert find_reorder.cache_info().misses == 1
    assert before >= 0


def test_forms_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dictionary stays below its limit."""
    monkeypatch.setattr(pack_reorder, "_MOST_FORMS", 3)
    for n in range(1, 9):
        assert pack(np.full((n, 2), n, np.float32), "ba").unpack().tolist() == [[n, n]] * n
        assert len(pack_reorder._packed_forms) <= 3
