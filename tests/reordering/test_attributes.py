"""Attributes in the public interface: attributes inferred from values, attributes as values, and calls."""

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay import Attributes, Memory, MemoryDesc, Scales, ZeroPoints
from inlay.data_type import DATA_TYPES
from inlay.reordering.attributes import infer_attributes, operands

F32 = MemoryDesc((4, 6), "f32", "ab")
S8 = MemoryDesc((4, 6), "s8", "ba")
VALUES = np.random.default_rng(0).uniform(-3, 3, (4, 6)).astype(np.float32)
MEMORY = inlay.pack(VALUES, "ab")


@pytest.mark.parametrize(
    ("dims", "value", "implied"),
    [
        ((4, 6), 0.5, Scales()),
        ((4, 6), np.float32(0.5), Scales()),
        ((4, 6), ml_dtypes.bfloat16(0.5), Scales(data_type="bf16")),
        ((4, 6), np.ones((1, 1)), Scales()),
        ((4, 6), np.ones(6), Scales(0b10)),
        ((4, 6), np.ones((4, 1)), Scales(0b01)),
        ((4, 6), np.ones((4, 6), np.float16), Scales(0b11, (), "f16")),
        ((4, 6), np.ones((2, 6)), Scales(0b11, (2, 1))),
        ((4, 6), np.ones((1, 2)), Scales(0b11, (4, 3))),
        ((5, 4, 6), np.ones((5, 2, 1)), Scales(0b111, (2, 6))),
        ((8, 3, 4, 4), np.ones((3, 1, 1)), Scales(0b10)),
        ((4, 6), np.ones((4, 6), ml_dtypes.float8_e8m0fnu), Scales(0b11, (), "e8m0")),
        ((1, 6), np.ones((1, 6)), Scales(0b10)),
        ((4, 0), np.ones((1, 0)), Scales(0b10)),
        ((4, 6), np.int8(3), ZeroPoints(data_type="s8")),
        ((4, 6), 5, ZeroPoints()),
        ((4, 6), np.uint8(3), ZeroPoints(data_type="u8")),
        ((4, 6), np.int16(3), ZeroPoints()),
        ((4, 6), np.zeros((4, 1), ml_dtypes.uint4), ZeroPoints(0b01, (), "u4")),
    ],
)
def test_values_imply_attributes(dims: tuple[int, ...], value: Any, implied: Scales | ZeroPoints) -> None:
    name = "src_scales" if isinstance(implied, Scales) else "src_zero_points"
    attributes, arrays = infer_attributes(dims, {name: value, "dst_scales": None})
    assert attributes == Attributes(**{name: implied})  # type: ignore[arg-type]
    array = operands(attributes, dims, arrays)[name]
    assert (array.shape, array.dtype) == (implied.shape(dims), implied.type.dtype)


def test_attributes_are_values() -> None:
    one = Attributes(src_scales=Scales(np.int64(2), (), "f32"), sum=np.float32(0.5))  # type: ignore[arg-type]
    assert one == Attributes(src_scales=Scales(0b10), sum=0.5)
    assert hash(one) == hash(Attributes(src_scales=Scales(0b10), sum=0.5))
    assert pickle.loads(pickle.dumps(one)) == one
    assert eval(repr(one), vars(inlay).copy()) == one
    assert repr(one) == "Attributes(src_scales=Scales(mask=2), sum=0.5)"
    assert Attributes(sum=0) == Attributes() == copy.deepcopy(Attributes())
    assert Attributes(sum=0.1).sum == float(np.float32(0.1))
    assert Scales(data_type=np.float16).data_type == "f16"  # type: ignore[arg-type]


def quantized(scales: Any, zero: int = 0) -> Any:
    y = VALUES * np.asarray(scales, np.float32) + np.float32(zero)
    return np.rint(np.clip(y, -128, 127)).astype(np.int8)


def test_a_number_is_for_all_elements() -> None:
    assert (inlay.reorder(MEMORY, S8, src_scales=20).unpack() == quantized(20)).all()
    assert (inlay.reorder(MEMORY, S8, src_scales=20, dst_zero_points=5).unpack() == quantized(20, 5)).all()


def test_an_array_is_broadcast() -> None:
    memory, scales = inlay.pack(VALUES, "ba"), np.arange(1, 7) * 4.0
    for given in (scales, scales.tolist(), scales[None], inlay.pack(scales[None].astype(np.float32), "ba")):
        assert (inlay.reorder(memory, S8, src_scales=given).unpack() == quantized(scales)).all()


def test_values_of_groups_are_repeated() -> None:
    scales = np.array([[3.0, 9.0, 30.0], [5.0, 1.0, 7.0]])
    wanted = quantized(np.repeat(np.repeat(scales, 2, 0), 2, 1))
    assert (inlay.reorder(MEMORY, S8, src_scales=scales).unpack() == wanted).all()


def test_a_reorder_is_called_with_values_again_and_again() -> None:
    quantize = inlay.Reorder(F32, S8, Attributes(dst_scales=Scales(), dst_zero_points=ZeroPoints()))
    out = Memory(S8)
    for scale, zero in ((0.25, 3), (0.03125, -7)):
        quantize(MEMORY, out, dst_scales=scale, dst_zero_points=zero)
        assert (out.unpack() == quantized(1 / scale, zero)).all()
    again = pickle.loads(pickle.dumps(quantize))
    assert (again.src, again.dst, again.attributes) == (F32, S8, quantize.attributes)


def test_quantized_values_are_restored_within_half_a_step() -> None:
    packed = inlay.reorder(MEMORY, S8, dst_scales=3 / 100, dst_zero_points=-20)
    back = inlay.reorder(packed, F32, src_scales=3 / 100, src_zero_points=-20)
    assert np.abs(back.unpack() - VALUES).max() < 3 / 100 * 0.51


def test_a_sum_adds_to_the_old_elements() -> None:
    out = inlay.pack(np.full((4, 6), 8, np.float32), "ba")
    assert inlay.reorder(MEMORY, "ba", attributes=Attributes(sum=0.5), out=out) is out
    assert (out.unpack() == VALUES + np.float32(4)).all()


def test_seeds_give_results_again_whatever_the_layout() -> None:
    attributes = Attributes(rounding_mode="stochastic")
    first, second, third = (
        inlay.reorder(inlay.pack(VALUES, one), MemoryDesc((4, 6), "s8", two), attributes=attributes, seed=seed).unpack()
        for one, two, seed in (("ab", "ba", 5), ("ba", "aB8b", np.int64(5)), ("ab", "ba", 6))
    )
    assert (first == second).all()
    assert (first != third).any()
    assert (np.abs(first - VALUES) < 1).all()


@pytest.mark.parametrize("name", [name for name, t in DATA_TYPES.items() if t.is_sub_byte])
def test_types_of_4_bits_are_packed_from_others(name: str) -> None:
    packed = inlay.pack(VALUES, "ba", name)
    assert packed.desc.data_type == DATA_TYPES[name]
    values = inlay.reorder(packed, F32).unpack()
    highest, lowest = DATA_TYPES[name].highest, DATA_TYPES[name].lowest
    step = 0.51 if VALUES.max() < highest and name != "u4" else 3
    assert (np.abs(values - np.clip(VALUES, lowest, highest)) < step).all()
    assert (inlay.pack(packed.unpack(), "ab", "f32").unpack() == values).all()


def test_explain_shows_the_attributes() -> None:
    assert "src_scales=Scales(mask=2" in inlay.Reorder(F32, S8, Attributes(src_scales=Scales(2))).explain()
