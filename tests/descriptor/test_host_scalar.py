"""Memory of a host scalar holds one value, as in oneDNN; its errors are in golden/mistakes/descriptors.txt."""

import copy
import ctypes
import pickle
from ctypes import byref, c_void_p
from typing import Any

import numpy as np
import pytest

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory
from tests.oracles import onednn

MODERN = onednn.why_unavailable() is None and onednn.version() >= (3, 13)


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=str)
def test_every_type_holds_its_limits(data_type: DataType) -> None:
    desc = MemoryDesc.host_scalar(data_type)
    for value in (1, data_type.lowest, data_type.highest):
        memory = Memory(desc, value)
        assert memory.value == value
        assert memory.value.dtype == data_type.dtype
        assert memory.buffer.size == desc.size
        memory.value = 2
        assert memory.value == 2


@pytest.mark.parametrize("data_type", [t for t in DATA_TYPES.values() if t.kind == "float"], ids=str)
def test_a_value_of_the_type_keeps_its_bits(data_type: DataType) -> None:
    codes = np.random.default_rng(0).integers(0, 2**data_type.bits, 200, np.uint64, endpoint=False)
    for bits in codes.astype(f"u{data_type.itemsize}"):
        value = bits.view(data_type.dtype)
        assert Memory(MemoryDesc.host_scalar(data_type), value).buffer.tobytes() == bits.tobytes()


def test_floats_are_rounded_to_nearest_even() -> None:
    assert Memory(MemoryDesc.host_scalar("bf16"), 1 + 3 * 2.0**-8).value == 1 + 2.0**-6
    assert np.isinf(Memory(MemoryDesc.host_scalar("f16"), 1e6).value)
    assert np.isnan(Memory(MemoryDesc.host_scalar("f32"), float("nan")).value)


@pytest.mark.parametrize(("name", "value"), [("s32", -7), ("u8", 200), ("bf16", 0.5), ("s4", -3)])
def test_pickle_and_copy_keep_the_value(name: str, value: float) -> None:
    memory = Memory(MemoryDesc.host_scalar(name), value)
    for back in (pickle.loads(pickle.dumps(memory)), copy.copy(memory), copy.deepcopy(memory)):
        assert (back.desc, back.value) == (memory.desc, memory.value)


def test_a_refused_value_changes_nothing() -> None:
    memory = Memory(MemoryDesc.host_scalar("s8"), 5)
    with pytest.raises(InvalidArguments):
        memory.value = 1000
    assert memory.value == 5


@pytest.mark.skipif(not MODERN, reason="host scalars came after oneDNN 3.2")
@pytest.mark.parametrize("name", ["f32", "bf16", "s32", "s8", "u8", "f16", "f64", "s64"])
def test_the_library_holds_the_same_bytes(name: str) -> None:
    ours = Memory(MemoryDesc.host_scalar(name), 3)
    its, memory, lib = onednn.host_scalar(DATA_TYPES[name].code), c_void_p(), onednn.library()
    create: Any = lib.dnnl_memory_create_host_scalar
    create.argtypes = (c_void_p, c_void_p, c_void_p)
    assert create(byref(memory), its.handle, ours.address) == 0
    answer = ctypes.create_string_buffer(ours.desc.size)
    assert lib.dnnl_memory_get_host_scalar_value(memory, answer) == 0
    assert answer.raw == ours.buffer.tobytes()
    lib.dnnl_memory_destroy(memory)
