"""Calls accept memory of equivalent descriptors: those that store each element at the same byte."""

from typing import Any

import numpy as np
import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory, pack
from tests.oracles import onednn as oracle

ENGINES = ["reference", *(["onednn"] if oracle.why_unavailable() is None else [])]
ONCE, TWICE = MemoryDesc((2, 32, 3), "f32", "aBc16b"), MemoryDesc((2, 32, 3), "f32", "aBc4b4b")
DIGITS = MemoryDesc((2, 32, 3), "f32", pattern="n (c c2 c8) w -> n c w c2 c8")
FLAT = MemoryDesc((2, 32, 3), "f32", "aBc8b")


def relu(desc: MemoryDesc, engine: str) -> p.Primitive:
    return p.Eltwise(desc, algorithm="relu", engine=engine)


def random_memory(desc: MemoryDesc) -> Memory:
    return pack(np.random.default_rng(5).normal(size=desc.dims).astype(np.float32), desc)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("other", [TWICE, DIGITS], ids=["blocks", "digits"])
def test_memory_of_an_equivalent_descriptor_is_read_and_written(engine: str, other: MemoryDesc) -> None:
    assert other != ONCE
    assert other.equivalent(ONCE)
    src, dst = random_memory(other), Memory(other)
    expected = np.maximum(src.unpack(), 0)
    primitive = relu(ONCE, engine)
    assert np.array_equal(primitive(src=src).unpack(), expected)
    result: Any = primitive(src=src, dst=dst)
    assert result is dst
    assert np.array_equal(dst.unpack(), expected)
    primitive.bind(src=src, dst=dst)()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_primitive_works_in_place_on_two_equivalent_memories_of_one_buffer(engine: str) -> None:
    src = random_memory(ONCE)
    expected = np.maximum(src.unpack(), 0)
    relu(ONCE, engine)(src=src, dst=Memory(TWICE, src.buffer))
    assert np.array_equal(src.unpack(), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_of_another_format_is_an_error(engine: str) -> None:
    with pytest.raises(InvalidArguments, match="src has the format f32::blocked:aBc8b::f0, the primitive takes"):
        relu(ONCE, engine)(src=random_memory(FLAT))
    with pytest.raises(InvalidArguments, match="dst has the format f32::blocked:aBc8b::f0, the primitive writes"):
        relu(ONCE, engine)(src=random_memory(ONCE), dst=Memory(FLAT))
    part = MemoryDesc((4, 32, 3), "f32", "aBc16b").submemory((2, 32, 3), (1, 0, 0))
    with pytest.raises(InvalidArguments):
        relu(ONCE, engine)(src=Memory(part))


def test_descriptors_that_differ_in_unit_axes_are_equal() -> None:
    first, last = (MemoryDesc((2, 1, 4, 4), "f32", tag) for tag in ("nchw", "nhwc"))
    src = random_memory(last)
    assert first == last
    assert np.array_equal(relu(first, "reference")(src=src).unpack(), np.maximum(src.unpack(), 0))
