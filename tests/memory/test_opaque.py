"""Memory of an opaque format, whose bytes only its engine can read and write."""

import copy
import pickle

import numpy as np
import pytest

import inlay
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments

OPAQUE = MemoryDesc.from_json(
    '{"inlay":"memory_desc","version":1,"kind":"opaque","dims":[4,6],"data_type":"f32","name":"wino","nbytes":1000}'
)


def test_it_has_as_many_bytes_as_its_engine_asks_for() -> None:
    memory = inlay.Memory(OPAQUE)
    assert (memory.buffer.size, memory.end - memory.begin, memory.address % 64) == (1000, 1000, 0)


def test_bytes_are_wrapped_without_a_copy() -> None:
    data = np.arange(1200, dtype=np.uint16).view(np.uint8)
    memory = inlay.Memory(OPAQUE, data)
    assert np.shares_memory(memory.buffer, data)
    for other in (pickle.loads(pickle.dumps(memory)), copy.deepcopy(memory)):
        assert other.desc == OPAQUE
        assert np.array_equal(other.buffer, data)


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(InvalidArguments) as caught:
        inlay.Memory(OPAQUE, bytes(999))
    assert str(caught.value) == (
        "buffer of 999 bytes is too small: MemoryDesc.opaque((4, 6), 'f32', 'wino', 1000) reaches 1000 bytes"
    )


def test_nobody_else_reads_it() -> None:
    memory = inlay.Memory(OPAQUE)
    with pytest.raises(InvalidArguments) as caught:
        memory.unpack()
    assert str(caught.value) == (
        "unpack needs a layout: MemoryDesc.opaque((4, 6), 'f32', 'wino', 1000) is of kind opaque; a reorder of the "
        "engine that chose it has one, as inlay.primitives.Reorder makes"
    )
    for src, dst in ((memory, "ab"), (inlay.pack(np.zeros((4, 6), np.float32), "ab"), OPAQUE)):
        with pytest.raises(InvalidArguments, match="of a reorder is of kind opaque: give it a layout with addresses"):
            inlay.reorder(src, dst)
