"""The reference with attributes, compared with Python's own arithmetic element by element.

Every pair of data types is combined with every attribute. Each step of the formula is one operation on Python's
doubles, rounded to the working type. A double has more than twice the digits of f32 plus two, so that equals a single
rounding.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.reference import Values, evaluate_formula, read_codes, reference_reorder, write_codes
from tests.oracles.numbers import INFINITY, encoded, in_type, nearest_even, value_of
from tests.support.attribute_arguments import spread_values, values_for

DIMS = (4, 6)
Codes = npt.NDArray[Any]

PER_ROW, PER_COLUMN, GROUPED = Scales(mask=0b01), Scales(mask=0b10), Scales(mask=0b11, groups=(2, 3))
SETS = [
    Attributes(src_scales=Scales(mask=0b11)),
    Attributes(src_scales=GROUPED),
    Attributes(dst_scales=Scales()),
    Attributes(src_scales=PER_ROW, dst_scales=PER_COLUMN),
    Attributes(sum=0.75),
    Attributes(src_scales=Scales(0b11, (4, 2), "bf16"), dst_scales=Scales(0b01, (), "f16"), sum=-1.5),
    Attributes(src_scales=Scales(0b10, (), "e8m0"), dst_scales=Scales(0b11, (), "f8_e4m3")),
    Attributes(src_zero_points=ZeroPoints(0b10)),
    Attributes(dst_zero_points=ZeroPoints(0b01)),
    Attributes(src_zero_points=ZeroPoints(0b11, (2, 1), "s4"), dst_zero_points=ZeroPoints()),
    Attributes(
        src_scales=PER_COLUMN,
        dst_scales=PER_ROW,
        src_zero_points=ZeroPoints(0b11, (1, 3), "u8"),
        dst_zero_points=ZeroPoints(0b11),
        sum=1.0,
    ),
]


def random_codes(rng: np.random.Generator, data_type: DataType, dims: tuple[int, ...] = DIMS) -> Codes:
    """Return random codes: half of them any bits, half of them numbers of a few digits."""
    width = max(8, data_type.bits)
    wild = rng.integers(0, 2**width - 1, dims, np.uint64, endpoint=True).astype(f"u{width // 8}")
    tame = rng.integers(-20, 100, dims) * 0.5
    if data_type.bits > 8:
        small = tame.astype(data_type.dtype).view(wild.dtype)
        wild = np.where(rng.random(dims) < 0.5, small, wild)
    return wild & 15 if data_type.bits == 4 else wild


def random_values(attributes: Attributes, seed: int) -> Values:
    """Return random values; zero points of s32 are too large for f32."""
    values = values_for(attributes, DIMS, seed)
    return view_codes({name: v * 12_345_679 if v.dtype == np.int32 else v for name, v in values.items()})


def quotient(y: float, by: float) -> float:
    if by == 0:
        return math.nan if y == 0 or math.isnan(y) else math.copysign(math.inf, y) * math.copysign(1, by)
    return y / by


def expected(
    attributes: Attributes, values: dict[str, float], codes: tuple[int, int], types: tuple[DataType, DataType]
) -> int | None:
    """Return the expected code of one element; None for any NaN."""
    src, dst = types
    integers = src.kind != "float" and dst.kind != "float"
    scaled = attributes.src_scales or attributes.dst_scales or attributes.sum is not None
    is_wide = {src.name, dst.name} & {"f64", "s64"} or (integers and not scaled and "s32" in (src.name, dst.name))
    working = DATA_TYPES["f64" if is_wide else "f32"]
    y, old = (in_type(value_of(code, t), working) for code, t in zip(codes, types, strict=True))
    steps: list[tuple[str, Callable[[float, float], float]]] = [
        ("src_zero_points", lambda y, v: y - v),
        ("src_scales", lambda y, v: y * v),
        ("sum", lambda y, v: y + in_type(v * old, working)),
        ("dst_scales", quotient),
        ("dst_zero_points", lambda y, v: y + v),
    ]
    for name, step in steps:
        if name in values:
            y = in_type(step(y, in_type(values[name], working)), working)
    if math.isnan(y) and dst.name == "f4_e2m1":
        return None
    return encoded(y, dst, working.name)


@pytest.mark.parametrize("dst", DATA_TYPES)
@pytest.mark.parametrize("src", DATA_TYPES)
def test_every_attribute_of_every_pair(src: str, dst: str) -> None:
    types, rng = (DATA_TYPES[src], DATA_TYPES[dst]), np.random.default_rng(5)
    for attributes in SETS:
        if types[0].kind == "float":
            attributes = replace(attributes, src_zero_points=None)
        if types[1].kind == "float":
            attributes = replace(attributes, dst_zero_points=None)
        if not attributes.computes:
            continue
        codes, old = (random_codes(rng, t) for t in types)
        values = random_values(attributes, 5)
        got = evaluate_formula(codes, types, attributes, values, old=old)
        spread = {name: spread_values(value, DIMS) for name, value in values.items()}
        for x in np.ndindex(*DIMS):
            pair = (int(codes[x]), int(old[x]))
            numbers = {name: value_of(int(v[x]), attributes.entry(name).type) for name, v in spread.items()}
            numbers |= {} if attributes.sum is None else {"sum": attributes.sum}
            wanted = expected(attributes, numbers, pair, types)
            code = int(got[x])
            where = (attributes, x, [hex(c) for c in pair], hex(code), wanted)
            # f4_e2m1 has no NaN: its greatest number stands for it.
            is_nan = code & 7 == 7 if dst == "f4_e2m1" else math.isnan(value_of(code, types[1]))
            assert is_nan if wanted is None else code == wanted, where


def test_padding_stays_zero_and_gaps_stay_whatever_the_attributes() -> None:
    src, dst = MemoryDesc((3, 5), "u8", "ab"), MemoryDesc((3, 5), "s8", "aB4b")
    codes = np.arange(15, dtype=np.uint8).reshape(3, 5)
    source, target = np.zeros(15, np.uint8), np.full(dst.size + 3, 77, np.uint8)
    write_codes(src, source, codes)
    attributes = Attributes(src_zero_points=ZeroPoints(), dst_zero_points=ZeroPoints(), sum=2.0)
    values = view_codes(
        {"src_zero_points": np.full((1, 1), 4, np.int32), "dst_zero_points": np.full((1, 1), 9, np.int32)}
    )
    old = read_codes(dst, target).view(np.int8)
    reference_reorder(src, source, dst, target, attributes, values)
    wanted = np.clip(codes.astype(int) - 4 + 2 * old.astype(int) + 9, -128, 127)
    assert (read_codes(dst, target).view(np.int8) == wanted).all()
    stored = target[: dst.size].reshape(3, 2, 4)
    assert not stored[:, 1, 1:].any()
    assert target[dst.size :].tolist() == [77] * 3


def test_minus_zero_stays_where_no_step_touches_it() -> None:
    f32 = DATA_TYPES["f32"]
    codes = np.array([0x80000000], np.uint32)
    two = {"src_scales": np.array([2.0], np.float32).view(np.uint32)}
    assert evaluate_formula(codes, (f32, f32), Attributes(src_scales=Scales()), two).tolist() == [0x80000000]


# Stochastic rounding


def hashed(index: int, seed: int) -> Fraction:
    """Compute u of an element with Python's integers."""

    def mix(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        return h ^ h >> 16

    return Fraction(mix(mix(index) ^ seed) >> 8, 2**24)


STOCHASTIC = Attributes(rounding_mode="stochastic")


@pytest.mark.parametrize("dst", [name for name in DATA_TYPES if name not in ("e8m0", "f64", "s64")])
@pytest.mark.parametrize("src", ["f64", "f32", "bf16", "s32"])
def test_stochastic_rounding_goes_up_where_chance_fills_the_step(src: str, dst: str) -> None:
    types = (DATA_TYPES[src], DATA_TYPES[dst])
    numbers = np.random.default_rng(3).uniform(-5, 5, 200) * np.exp2(np.arange(200) % 20 - 14.0)
    codes = (numbers * (300 if src == "s32" else 1)).astype(types[0].dtype).view(f"u{types[0].itemsize}")
    got = evaluate_formula(codes, types, STOCHASTIC, {}, seed=9)
    for i, (code, result) in enumerate(zip(codes.tolist(), got.tolist(), strict=True)):
        working = DATA_TYPES["f64" if src == "f64" else "f32"]
        value = in_type(value_of(code, types[0]), working)
        below, above = neighbors(abs(value), types[1], value < 0)
        if below == above:
            continue
        magnitude = abs(Fraction(value_of(result, types[1])))
        share = (Fraction(abs(value)) - below) / (above - below)
        assert magnitude == (above if share >= 1 - hashed(i, 9) else below), (value, result, below, above)


def neighbors(value: float, dst: DataType, is_negative: bool) -> tuple[Fraction, Fraction]:
    """Return the representable magnitudes around a magnitude; twice the greatest beyond the range."""
    if dst.kind != "float":
        most = -int(dst.lowest) if is_negative else int(dst.highest)
        low = min(math.floor(value), most)
        return Fraction(low), Fraction(min(low + 1, most))
    greatest = INFINITY[dst.name] - 1
    low = min(nearest_even(value, dst), greatest)
    low -= value_of(low, dst) > value
    return Fraction(value_of(low, dst)), Fraction(value_of(min(low + 1, greatest), dst))


def test_the_mean_of_stochastic_rounding_is_the_value() -> None:
    count = 20_000
    codes = np.full(count, np.float32(1.3)).view(np.uint32)
    types = (DATA_TYPES["f32"], DATA_TYPES["s8"])
    means = [evaluate_formula(codes, types, STOCHASTIC, {}, seed=seed).mean() for seed in range(8)]
    assert len(set(means)) == 8
    # Eight times the standard deviation of the mean.
    assert all(abs(mean - 1.3) < 8 * math.sqrt(0.3 * 0.7 / count) for mean in means)


def test_what_is_exact_is_not_rounded_by_chance() -> None:
    codes = np.arange(-100, 100).astype(np.float32).view(np.uint32)
    got = evaluate_formula(codes, (DATA_TYPES["f32"], DATA_TYPES["s8"]), STOCHASTIC, {}, seed=4)
    assert got.view(np.int8).tolist() == list(range(-100, 100))
