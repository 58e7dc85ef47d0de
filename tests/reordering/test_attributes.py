"""Attributes in the public interface: refused arguments and their messages, inferred attributes, and calls."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay import Attributes, Memory, MemoryDesc, Scales, ZeroPoints
from inlay.data_type import DATA_TYPES
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.reordering.attributes import infer_attributes, operands

F32 = MemoryDesc((4, 6), "f32", "ab")
S8 = MemoryDesc((4, 6), "s8", "ba")
S4 = MemoryDesc((4, 6), "s4", "ab")
ROWS = inlay.pack(np.arange(24, dtype=np.float32).reshape(4, 6), "ab")


def refused(call: Callable[[], object]) -> tuple[type[BaseException], str]:
    with pytest.raises(InlayError) as caught:
        call()
    return caught.type, str(caught.value)


SETTERS: list[tuple[Callable[[], object], str]] = [
    (lambda: Scales(mask=-1), "the mask of scales is -1: it is at least 0"),
    (lambda: Scales(mask=1.5), "the mask of scales is 1.5: give an integer"),  # type: ignore[arg-type]
    (lambda: ZeroPoints(mask=-2), "the mask of zero points is -2: it is at least 0"),
    (
        lambda: Scales(mask=3, groups=(4,)),  # type: ignore[arg-type]
        "groups of scales are (4,): give two sizes, for the last axis but one and for the last",
    ),
    (
        lambda: Scales(mask=3, groups=[4, 2]),  # type: ignore[arg-type]
        "groups of scales are [4, 2]: give two sizes, for the last axis but one and for the last",
    ),
    (lambda: Scales(mask=3, groups=(4, 0)), "the group of scales is 0: it is at least 1"),
    (
        lambda: Scales(groups=(4, 2)),
        "scales in groups need a mask: set the bits of the axes along which they differ",
    ),
    (lambda: Scales(data_type="s8"), "scales cannot be s8: use one of f32, bf16, f16, e8m0, f8_e4m3"),
    (
        lambda: Scales(data_type="e8m0"),
        "scales of type e8m0 need a mask: set the bits of the axes along which they differ",
    ),
    (
        lambda: Scales(data_type="f8_e4m3"),
        "scales of type f8_e4m3 need a mask: set the bits of the axes along which they differ",
    ),
    (lambda: ZeroPoints(data_type="f32"), "zero points cannot be f32: use one of s32, s8, u8, s4, u4"),
    (
        lambda: ZeroPoints(data_type="u4"),
        "zero points of type u4 need a mask: set the bits of the axes along which they differ",
    ),
    (
        lambda: Attributes(dst_scales=Scales(3, (2, 2))),
        "scales of the destination have no groups: give their reciprocals as src_scales, which may have them",
    ),
    (
        lambda: Attributes(dst_zero_points=ZeroPoints(data_type="s8")),
        "zero points of the destination are s32 and have no groups: convert and repeat them",
    ),
    (
        lambda: Attributes(dst_zero_points=ZeroPoints(3, (2, 2))),
        "zero points of the destination are s32 and have no groups: convert and repeat them",
    ),
    (
        lambda: Attributes(src_scales=2.0),  # type: ignore[arg-type]
        "src_scales is 2.0: give a Scales, as in src_scales=Scales()",
    ),
    (
        lambda: Attributes(src_zero_points=Scales()),  # type: ignore[arg-type]
        "src_zero_points is Scales(): give a ZeroPoints, as in src_zero_points=ZeroPoints()",
    ),
    (
        lambda: Attributes(sum="1"),  # type: ignore[arg-type]
        "sum is '1': give the factor of the old elements, a number",
    ),
    (lambda: Attributes(sum=True), "sum is True: give the factor of the old elements, a number"),
    (lambda: Attributes(sum=float("nan")), "sum is nan: the factor of the old elements is a finite f32"),
    (lambda: Attributes(sum=1e39), "sum is 1e+39: the factor of the old elements is a finite f32"),
    (
        lambda: Attributes(rounding_mode="up"),  # type: ignore[arg-type]
        "rounding_mode is 'up': it is 'nearest' or 'stochastic'",
    ),
]


@pytest.mark.parametrize(("call", "text"), SETTERS, ids=[text[:60] for _, text in SETTERS])
def test_what_no_setter_takes_is_told_whole(call: Callable[[], object], text: str) -> None:
    assert refused(call) == (InvalidArguments, text)


def made(src: MemoryDesc, dst: MemoryDesc, **attributes: Any) -> Callable[[], object]:
    return lambda: inlay.Reorder(src, dst, Attributes(**attributes))


FITS: list[tuple[Callable[[], object], str]] = [
    (
        made(F32, S8, src_zero_points=ZeroPoints()),
        "src_zero_points are for integers: the elements of src are f32",
    ),
    (
        made(S8, F32, dst_zero_points=ZeroPoints()),
        "dst_zero_points are for integers: the elements of dst are f32",
    ),
    (
        made(S4, F32, src_scales=Scales()),
        "src_scales of s4 elements need a mask: set the bit of an axis, and give each coordinate one",
    ),
    (
        made(MemoryDesc((6,), "f32"), MemoryDesc((6,), "s8"), src_scales=Scales(1, (1, 2))),
        "groups of src_scales are along the last two axes: a tensor of dims (6,) has not two",
    ),
    (
        made(F32, S8, src_scales=Scales(0b10, (1, 2))),
        "mask 0b10 of src_scales lacks axis 0: groups are along the last two axes, set both bits",
    ),
    (
        made(S8, S8, src_zero_points=ZeroPoints(0b01, (2, 1))),
        "mask 0b1 of src_zero_points lacks axis 1: groups are along the last two axes, set both bits",
    ),
    (
        made(F32, S8, src_scales=Scales(0b11, (3, 2))),
        "groups of 3 of src_scales do not divide axis 0: it has 4 coordinates, give a divisor",
    ),
    (
        lambda: inlay.Reorder(F32, S8, "nearest"),  # type: ignore[arg-type]
        "attributes are 'nearest': give inlay.Attributes, as in Attributes(src_scales=Scales(mask=0b10))",
    ),
    (
        lambda: inlay.reorder(ROWS, "ba", attributes={"sum": 1}),  # type: ignore[arg-type]
        "attributes are {'sum': 1}: give inlay.Attributes, as in Attributes(src_scales=Scales(mask=0b10))",
    ),
    (
        lambda: inlay.reorder(ROWS, "ba", attributes=Attributes(sum=1.0)),
        "a sum adds to the elements of a destination: give it as out",
    ),
]


@pytest.mark.parametrize(("call", "text"), FITS, ids=[text[:60] for _, text in FITS])
def test_attributes_that_do_not_fit_are_told_whole(call: Callable[[], object], text: str) -> None:
    assert refused(call) == (InvalidArguments, text)


def test_attributes_are_for_dense_memory() -> None:
    csr = inlay.to_csr(np.eye(3, dtype=np.float32))
    wanted = (Unimplemented, "attributes are for dense memory: convert with inlay.to_dense first, or after")
    assert refused(lambda: inlay.reorder(csr, MemoryDesc((3, 3), "f32"), src_scales=2.0)) == wanted
    assert refused(lambda: inlay.reorder(csr, MemoryDesc((3, 3), "f32"), seed=1)) == wanted


def given(attributes: Attributes, **values: Any) -> Callable[[], object]:
    return lambda: operands(attributes, (4, 6), values)


PER_COLUMN, POINT = Attributes(src_scales=Scales(0b10)), Attributes(src_zero_points=ZeroPoints())
VALUES: list[tuple[Callable[[], object], str]] = [
    (
        given(Attributes(), src_scales=2.0),
        "src_scales were passed, but the attributes have none: create them with src_scales=Scales(), or leave them out",
    ),
    (
        given(PER_COLUMN, src_scales=np.ones(6), dst_zero_points=1),
        "dst_zero_points were passed, but the attributes have none: create them with dst_zero_points=ZeroPoints(), or "
        "leave them out",
    ),
    (given(PER_COLUMN), "the attributes have src_scales: give their values, 6 f32 values of shape (1, 6)"),
    (given(POINT), "the attributes have src_zero_points: give their values, 1 s32 value of shape (1, 1)"),
    (
        given(PER_COLUMN, src_scales=np.ones(4)),
        "src_scales of shape (4,) do not fit mask 0b10 and dims (4, 6): give 6 f32 values of shape (1, 6)",
    ),
    (
        given(Attributes(src_scales=Scales(0b11)), src_scales=np.ones((6, 4))),
        "src_scales of shape (6, 4) do not fit mask 0b11 and dims (4, 6): give 24 f32 values of shape (4, 6)",
    ),
    (given(PER_COLUMN, src_scales="x"), "src_scales are of type <U1: give numbers"),
    (given(PER_COLUMN, src_scales=[[1, 2], [3]]), "src_scales have rows of different lengths: give an array"),
    (
        given(PER_COLUMN, src_scales=np.ones(6, np.uint8)),
        "src_scales of uint8 may be numbers or codes: give floats, or view codes as what they mean, such as "
        "view(ml_dtypes.float8_e8m0fnu)",
    ),
    (
        given(Attributes(src_scales=Scales(0b10, (), "e8m0")), src_scales=[1, 2, 3, 4, 5, 6]),
        "src_scales hold 3, which e8m0 cannot represent: use powers of two",
    ),
    (
        given(Attributes(src_scales=Scales(0b10, (), "f8_e4m3")), src_scales=[1, 2, 3, 4, 5, 500]),
        "src_scales hold 500, which f8_e4m3 cannot represent: use numbers up to 448",
    ),
    (
        given(Attributes(src_scales=Scales(data_type="f16")), src_scales=1e-9),
        "src_scales hold 1e-09, which f16 cannot represent: use numbers up to 65504",
    ),
    (given(POINT, src_zero_points=1.0), "src_zero_points are of type float64: zero points are integers"),
    (
        given(Attributes(src_zero_points=ZeroPoints(0b01, (), "s4")), src_zero_points=[1, 2, 8, 0]),
        "src_zero_points hold 8, which s4 cannot represent: its range is -8 to 7",
    ),
    (
        given(POINT, src_zero_points=2**31),
        "src_zero_points hold 2147483648, which s32 cannot represent: its range is -2147483648 to 2147483647",
    ),
    (
        lambda: infer_attributes((8, 3, 4, 4), {"src_scales": np.ones(3)}),
        "src_scales of shape (3,) cannot be broadcast to dims (8, 3, 4, 4): give shape (3, 1, 1), one for each "
        "coordinate of axis 1",
    ),
    (
        lambda: infer_attributes((8, 4), {"src_scales": np.ones(2)}),
        "src_scales of shape (2,) cannot be broadcast to dims (8, 4): along each axis give 1 value or one for each "
        "coordinate, or for each of equal groups along the last two",
    ),
    (
        lambda: infer_attributes((4,), {"src_scales": np.ones((1, 4))}),
        "src_scales of shape (1, 4) cannot be broadcast to dims (4,): along each axis give 1 value or one for each "
        "coordinate, or for each of equal groups along the last two",
    ),
    (
        lambda: inlay.reorder(ROWS, S8, seed=3),
        "a seed was passed, but rounding is to nearest: create attributes with rounding_mode='stochastic'",
    ),
    (
        lambda: inlay.reorder(ROWS, S8, attributes=Attributes(rounding_mode="stochastic")),
        "stochastic rounding needs a seed, so that results are reproducible: pass one",
    ),
    (
        lambda: inlay.reorder(ROWS, S8, attributes=Attributes(rounding_mode="stochastic"), seed=-1),
        "seed is -1: give an integer from 0 to 4294967295",
    ),
    (
        lambda: inlay.reorder(ROWS, S8, attributes=Attributes(rounding_mode="stochastic"), seed=True),
        "seed is True: give an integer from 0 to 4294967295",
    ),
    (
        lambda: inlay.Reorder(F32, S8)(ROWS, Memory(S8), src_scales=1.0),
        "src_scales were passed, but the attributes have none: create them with src_scales=Scales(), or leave them out",
    ),
]


@pytest.mark.parametrize(("call", "text"), VALUES, ids=[text[:60] for _, text in VALUES])
def test_values_that_are_wrong_are_told_whole(call: Callable[[], object], text: str) -> None:
    assert refused(call) == (InvalidArguments, text)


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
    ],
)
def test_values_imply_attributes(dims: tuple[int, ...], value: Any, implied: Scales) -> None:
    attributes, arrays = infer_attributes(dims, {"src_scales": value, "dst_scales": None})
    assert attributes == Attributes(src_scales=implied)
    array = operands(attributes, dims, arrays)["src_scales"]
    assert (array.shape, array.dtype) == (implied.shape(dims), implied.type.dtype)


def test_zero_points_imply_their_type() -> None:
    for array, name in ((np.int8(3), "s8"), (5, "s32"), (np.uint8(3), "u8"), (np.int16(3), "s32")):
        attributes, _ = infer_attributes((4, 6), {"src_zero_points": array})
        assert attributes == Attributes(src_zero_points=ZeroPoints(data_type=name))
    nibbles, _ = infer_attributes((4, 6), {"src_zero_points": np.zeros((4, 1), ml_dtypes.uint4)})
    assert nibbles == Attributes(src_zero_points=ZeroPoints(0b01, (), "u4"))


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


class TestCalls:
    VALUES = np.random.default_rng(0).uniform(-3, 3, (4, 6)).astype(np.float32)

    def expected(self, scales: Any, zero: int = 0) -> Any:
        y = self.VALUES * np.asarray(scales, np.float32) + np.float32(zero)
        return np.rint(np.clip(y, -128, 127)).astype(np.int8)

    def test_a_number_is_for_all(self) -> None:
        memory = inlay.pack(self.VALUES, "ab")
        assert (inlay.reorder(memory, S8, src_scales=20).unpack() == self.expected(20)).all()
        assert (inlay.reorder(memory, S8, src_scales=20, dst_zero_points=5).unpack() == self.expected(20, 5)).all()

    def test_an_array_spreads(self) -> None:
        memory = inlay.pack(self.VALUES, "ba")
        scales = np.arange(1, 7) * 4.0
        for given in (scales, scales.tolist(), scales[None], inlay.pack(scales[None].astype(np.float32), "ba")):
            assert (inlay.reorder(memory, S8, src_scales=given).unpack() == self.expected(scales)).all()

    def test_groups_spread(self) -> None:
        scales = np.array([[3.0, 9.0, 30.0], [5.0, 1.0, 7.0]])
        wanted = self.expected(np.repeat(np.repeat(scales, 2, 0), 2, 1))
        assert (inlay.reorder(inlay.pack(self.VALUES, "ab"), S8, src_scales=scales).unpack() == wanted).all()

    def test_a_reorder_is_called_with_values_again_and_again(self) -> None:
        quantise = inlay.Reorder(F32, S8, Attributes(dst_scales=Scales(), dst_zero_points=ZeroPoints()))
        memory, out = inlay.pack(self.VALUES, "ab"), Memory(S8)
        for scale, zero in ((0.25, 3), (0.03125, -7)):
            quantise(memory, out, dst_scales=scale, dst_zero_points=zero)
            assert (out.unpack() == self.expected(1 / scale, zero)).all()
        again = pickle.loads(pickle.dumps(quantise))
        assert (again.src, again.dst, again.attributes) == (F32, S8, quantise.attributes)

    def test_there_and_back(self) -> None:
        memory = inlay.pack(self.VALUES, "ab")
        packed = inlay.reorder(memory, S8, dst_scales=3 / 100, dst_zero_points=-20)
        back = inlay.reorder(packed, F32, src_scales=3 / 100, src_zero_points=-20)
        assert np.abs(back.unpack() - self.VALUES).max() < 3 / 100 * 0.51

    def test_a_sum_adds_to_what_is_there(self) -> None:
        memory, out = inlay.pack(self.VALUES, "ab"), inlay.pack(np.full((4, 6), 8, np.float32), "ba")
        result = inlay.reorder(memory, "ba", attributes=Attributes(sum=0.5), out=out)
        assert result is out
        assert (out.unpack() == self.VALUES + np.float32(4)).all()

    def test_seeds_give_results_again_whatever_the_layout(self) -> None:
        attributes = Attributes(rounding_mode="stochastic")
        results = [
            inlay.reorder(inlay.pack(self.VALUES, one), MemoryDesc((4, 6), "s8", two), attributes=attributes, seed=seed)
            for one, two, seed in (("ab", "ba", 5), ("ba", "aB8b", np.int64(5)), ("ab", "ba", 6))
        ]
        first, second, third = (result.unpack() for result in results)
        assert (first == second).all()
        assert (first != third).any()
        assert (np.abs(first - self.VALUES) < 1).all()

    @pytest.mark.parametrize("name", [name for name, t in DATA_TYPES.items() if t.is_sub_byte])
    def test_types_of_4_bits_are_packed_from_others(self, name: str) -> None:
        packed = inlay.pack(self.VALUES, "ba", name)
        assert packed.desc.data_type == DATA_TYPES[name]
        values = inlay.reorder(packed, F32).unpack()
        highest, lowest = DATA_TYPES[name].highest, DATA_TYPES[name].lowest
        step = 0.51 if self.VALUES.max() < highest and name != "u4" else 3
        assert (np.abs(values - np.clip(self.VALUES, lowest, highest)) < step).all()
        assert (inlay.pack(packed.unpack(), "ab", "f32").unpack() == values).all()

    def test_explain_tells_the_attributes(self) -> None:
        assert "src_scales=Scales(mask=2" in inlay.Reorder(F32, S8, Attributes(src_scales=Scales(2))).explain()
