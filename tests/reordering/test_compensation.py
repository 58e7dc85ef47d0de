"""Compensation of int8 weights, compared with oneDNN and with sums by NumPy."""

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import inlay
from inlay.descriptor import Extras, MemoryDesc
from inlay.memory import Memory
from inlay.reordering.attributes import PLAIN, Attributes, Scales
from inlay.reordering.reference import read_codes, reference_reorder
from tests.oracles import attributes as live
from tests.oracles import onednn
from tests.reordering.test_channel_sums import channel_sums

LIVE = onednn.why_unavailable() is None
FORMATS = [
    ("oihw", (33, 18, 3, 3), "OIhw4i16o4i", 0b1),
    ("hwio", (32, 16, 3, 3), "OIhw2i8o4i", 0b1),
    ("ab", (70, 130), "BA16a64b4a", 0b10),
    ("goihw", (2, 19, 9, 3, 3), "gOIhw4i16o4i", 0b11),
    ("oihw", (17, 5, 1, 1), "hwio", 0b1),
    ("abc", (2, 1, 21), "abc", 0b101),
]
EXTRAS: list[dict[str, Any]] = [
    *({"flags": flags} for flags in (1, 8, 9)),
    *({"flags": flags, "scale_adjust": 0.5} for flags in (3, 11)),
]


def weights(dims: tuple[int, ...], data_type: str) -> npt.NDArray[Any]:
    values = np.random.default_rng(6).uniform(-140, 140, dims)
    return values.astype(np.float32) if data_type == "f32" else np.clip(np.rint(values), -128, 127).astype(np.int8)


def destination(dims: tuple[int, ...], tag: str, mask: int, extras: dict[str, Any]) -> MemoryDesc:
    flags = {"compensation_mask": 1, "asymmetric_mask": 8}
    masks: dict[str, Any] = {name: mask for name, flag in flags.items() if extras["flags"] & flag}
    return MemoryDesc(dims, "s8", tag, extras=Extras(**extras, **masks))


def elements(memory: Memory) -> npt.NDArray[Any]:
    """Return the stored weights; `unpack` refuses weights that were multiplied by a factor."""
    return read_codes(memory.desc, memory.buffer).view(np.int8)


@pytest.mark.parametrize("extras", EXTRAS, ids=[str(e["flags"]) for e in EXTRAS])
@pytest.mark.parametrize("data_type", ["f32", "s8"])
@pytest.mark.parametrize(("tag", "dims", "wanted", "mask"), FORMATS, ids=[w for _, _, w, _ in FORMATS])
def test_sums_are_the_law(
    data_type: str, tag: str, dims: tuple[int, ...], wanted: str, mask: int, extras: dict[str, Any]
) -> None:
    values = weights(dims, data_type)
    src, dst = inlay.pack(values, tag), destination(dims, wanted, mask, extras)
    result = inlay.reorder(src, dst)
    scaled = values.astype(np.float32) * np.float32(extras.get("scale_adjust", 1))
    stored = np.clip(np.rint(scaled), -128, 127).astype(int)
    assert (elements(result) == stored).all()
    sums = channel_sums(stored, dst, mask).ravel()
    expected = np.concatenate([factor * sums for flag, factor in ((1, -128), (8, -1)) if extras["flags"] & flag])
    assert result.buffer[dst.size - 4 * expected.size :].view(np.int32).tolist() == expected.tolist()


@pytest.mark.skipif(not LIVE, reason=str(onednn.why_unavailable()))
def test_numbers_are_the_librarys() -> None:
    choices = product(FORMATS, EXTRAS, ("f32", "s8"), (PLAIN, Attributes(src_scales=Scales())))
    compared = 0
    for (tag, dims, wanted, mask), extras, data_type, scales in choices:
        compared += judged(data_type, tag, dims, destination(dims, wanted, mask, extras), scales)
    assert compared >= 20


def judged(data_type: str, tag: str, dims: tuple[int, ...], dst: MemoryDesc, attributes: Attributes) -> bool:
    """Return whether the library accepts this reorder; if so, compare its result with Inlay's."""
    src = inlay.pack(weights(dims, data_type), tag)
    theirs, ours = np.zeros(dst.size, np.uint8), np.zeros(dst.size, np.uint8)
    # A power of two: the library multiplies it with the factor first.
    values = {"src_scales": np.array([0.5], np.float32).view(np.uint32)} if attributes.names else {}
    try:
        live.run(src.desc, src.buffer, dst, theirs, attributes, values)
    except onednn.Refused:
        return False
    shaped = {name: codes.reshape((1,) * len(dims)) for name, codes in values.items()}
    reference_reorder(src.desc, src.buffer, dst, ours, attributes, shaped)
    assert (ours == theirs).all(), (src.desc, dst, attributes)
    return True


def test_weights_with_the_same_factor_are_moved_as_they_are() -> None:
    desc = MemoryDesc((4, 4), "s8", "ab", extras=Extras(2, scale_adjust=0.5))
    memory = Memory(desc, np.arange(16, dtype=np.int8))
    moved = inlay.reorder(memory, MemoryDesc((4, 4), "s8", "ba", extras=Extras(2, scale_adjust=0.5)))
    assert elements(moved).tolist() == np.arange(16).reshape(4, 4).tolist()


def test_no_weights_have_no_numbers() -> None:
    desc = MemoryDesc((0, 4), "s8", "ab", extras=Extras(1, compensation_mask=1))
    assert inlay.reorder(inlay.pack(np.zeros((0, 4), np.int8), "ab"), desc).buffer.size == 0
