"""Conversions and attributes compared with oneDNN: only known defects and choices of oneDNN may differ.

Every pair of types and every attribute that the library accepts, in three pairs of formats. If a result differs, one of
`EXCUSES` must predict exactly that element, so a wrong result of Inlay matches none. Each excuse must also occur in the
library under test, so that obsolete ones are removed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import PLAIN, Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.reference import (
    Values,
    convert,
    decode,
    evaluate_formula,
    read_codes,
    reference_reorder,
    write_codes,
)
from tests.oracles import attributes as live
from tests.oracles import onednn
from tests.support.attribute_arguments import spread_values
from tests.support.edge_codes import edge_codes

LIVE = onednn.why_unavailable() is None
MODERN = LIVE and onednn.version() >= (3, 13)
pytestmark = pytest.mark.skipif(not LIVE, reason=str(onednn.why_unavailable()))

Array = npt.NDArray[Any]
FORMATS = ("ba", "ab", "aB8b")
TYPES = [t for t in DATA_TYPES.values() if not LIVE or onednn.knows(t.code)]
ISA = onednn.isa() if LIVE else 0
NAMELESS = {"s4", "u4", "f4_e2m1", "e8m0", "s64"}
"""Types to which the library converts nothing from elements of the same layout and these types (defect 4)."""
UNCONVERTED = {"bf16", "s32", "s8", "u8", *(["f16"] if ISA & onednn.FP16 else [])}


@dataclass(frozen=True, slots=True)
class Case:
    """One reorder with its elements and both results."""

    types: tuple[DataType, DataType]
    same_layout: bool
    attributes: Attributes
    values: Values
    codes: Array
    old: Array
    ours: Array
    theirs: Array

    def again(self, attributes: Attributes, values: Values) -> Array:
        """Return our result with other attributes."""
        return evaluate_formula(self.codes, self.types, attributes, values, old=self.old)


def numbers(codes: Array, data_type: DataType) -> Array:
    return decode(codes, data_type, "f64").astype(np.float64)


def nan_to_integer(case: Case) -> Any:
    """Accept any integer for NaN: oneDNN's result depends on processor and kernel (decision 0004)."""
    return np.isnan(numbers(case.codes, case.types[0])) & (case.types[1].kind != "float")


def another_nan(case: Case) -> Any:
    """Accept any NaN: oneDNN makes NaNs quiet when it could copy them, and gives those of e8m0 a sign."""
    return np.isnan(numbers(case.ours, case.types[1])) & np.isnan(numbers(case.theirs, case.types[1]))


def minus_zero(case: Case) -> Any:
    """Accept +0.0 for -0.0: oneDNN adds a zero point of 0 without the attribute."""
    return (case.types[1].kind == "float") & (case.ours == 1 << case.types[1].bits - 1) & (case.theirs == 0)


def flushed(case: Case) -> Any:
    """Accept zero for subnormals: the instruction for f32 -> bf16 flushes them."""
    if case.types[1].name != "bf16":
        return False
    # The greatest subnormals round to the least normal number.
    return (case.ours & 0x7FFF <= 0x80) & (case.theirs & 0x7FFF == 0)


def beyond_2_31(case: Case) -> Any:
    """Accept 0 or -128 in bytes for bf16 from 2^31 on (defect 5)."""
    is_so = case.types[0].name == "bf16" and case.types[1].name in ("s8", "u8")
    return is_so & (np.abs(numbers(case.codes, case.types[0])) >= 2.0**31)


def infinity_to_byte(case: Case) -> Any:
    """Accept the least byte for +inf: instructions for f16 convert it to the least 16-bit integer."""
    if not ISA & onednn.FP16 or case.types[0].name != "f16" or case.types[1].name not in ("s8", "u8"):
        return False
    return np.isposinf(numbers(case.codes, case.types[0])) & (case.theirs == (case.types[1].name == "s8") * 0x80)


def rounded_twice(case: Case) -> Any:
    """Accept f8 that was rounded through f16."""
    if case.types[1].name not in ("f8_e5m2", "f8_e4m3"):
        return False
    f16 = DATA_TYPES["f16"]
    old = convert(case.old, case.types[1], f16)
    between = evaluate_formula(case.codes, (case.types[0], f16), case.attributes, case.values, old=old)
    return case.theirs == convert(between, f16, case.types[1])


def subtracted_as_integers(case: Case) -> Any:
    """Accept wrap-around: the generic kernel subtracts s32 zero points as integers before it converts to f32."""
    if "src_zero_points" not in case.values or case.types[0].name != "s32":
        return False
    points = case.attributes.entry("src_zero_points")
    subtracted = spread_values(numbers(case.values["src_zero_points"], points.type), case.codes.shape)
    codes = (case.codes.view(np.int32) - subtracted.astype(np.int32)).view(np.uint32)
    attributes, values = replace(case.attributes, src_zero_points=None), dict(case.values)
    if not attributes.scales:
        # What is not scaled is exact in ours, and f32 here.
        attributes = replace(attributes, src_scales=Scales())
        values["src_scales"] = np.ones((1, 1), np.float32).view(np.uint32)
    return case.theirs == evaluate_formula(codes, case.types, attributes, values, old=case.old)


def first_zero_point(case: Case) -> Any:
    """Accept one zero point for all channels (defect 1)."""
    values = dict(case.values)
    for name in ("src_zero_points", "dst_zero_points"):
        if name in values:
            values[name] = np.broadcast_to(values[name].flat[0], values[name].shape).copy()
    return bool(values) & (case.theirs == case.again(case.attributes, values))


def ignored(case: Case) -> Any:
    """Accept f32 -> 4 bits without attributes (defect 3)."""
    return case.types[1].is_sub_byte & (case.theirs == case.again(PLAIN, {}))


def left_alone(case: Case) -> Any:
    """Accept an unchanged destination for an odd number of contiguous 4-bit zero points."""
    points = case.attributes.src_zero_points
    is_odd = points is not None and points.type.is_sub_byte and points.shape(case.codes.shape)[-1] % 2 == 1
    return is_odd & (case.theirs == case.old)


def by_reciprocal(case: Case) -> Any:
    """Accept multiplication by the reciprocal of the destination's scale, which may differ in the last bit."""
    if "dst_scales" not in case.values or case.types[0].name in ("f64", "s64"):
        return False
    if "src_scales" in case.values or case.attributes.sum is not None:
        return False
    scales = 1 / case.values["dst_scales"].view(np.float32)
    attributes = replace(case.attributes, src_scales=case.attributes.dst_scales, dst_scales=None)
    with np.errstate(all="ignore"):
        return case.theirs == case.again(attributes, {"src_scales": scales.view(np.uint32)})


def summed_last(case: Case) -> Any:
    """Accept a sum that is added after the destination's scale (oneDNN 3.2, same layout)."""
    is_so = not MODERN and case.same_layout and case.attributes.sum is not None and "dst_scales" in case.values
    if not is_so or {t.name for t in case.types} != {"f32"}:
        return False
    x, old = case.codes.view(np.float32), case.old.view(np.float32)
    scales = {name: codes.view(np.float32) for name, codes in case.values.items()}
    factor = scales.get("src_scales", np.float32(1)) / scales["dst_scales"]
    with np.errstate(all="ignore"):
        wanted = (x * factor + np.float32(case.attributes.sum) * old).view(np.uint32)
    return case.theirs == wanted


EXCUSES = (
    *(nan_to_integer, another_nan, minus_zero, flushed, beyond_2_31, infinity_to_byte, rounded_twice),
    *(subtracted_as_integers, first_zero_point, ignored, left_alone, by_reciprocal, summed_last),
)
OF_INSTRUCTIONS: dict[Callable[[Case], Any], Callable[[int], bool]] = {
    beyond_2_31: lambda isa: bool(isa & onednn.AVX512),
    flushed: lambda isa: bool(isa & onednn.BF16) or not isa & onednn.AVX512,
    infinity_to_byte: lambda isa: bool(isa & onednn.FP16),
    minus_zero: lambda isa: MODERN or not isa & onednn.FP16,
}
"""Excuses that hang on the instruction sets, and on which."""
SHOWN = {
    (3, 2): {nan_to_integer, another_nan, by_reciprocal, summed_last},
    (3, 13): {*EXCUSES} - {summed_last, *OF_INSTRUCTIONS},
}
"""Excuses that a release needs on every processor."""
SEEN = (0x1, 0x7, 0x27, 0xE7, 0x1EF)
"""Instruction sets on which both releases were seen; of others nothing is known in advance."""


def elements(data_type: DataType, dims: tuple[int, ...]) -> Array:
    """Return codes with all edge cases, then random ones; none for which attributes produce NaNs."""
    count = int(np.prod(dims))
    codes = edge_codes(data_type.name)
    return np.resize(codes[:: max(1, codes.size // count)], count).reshape(dims)


def cases_of(src: DataType, dst: DataType, wanted: list[Attributes]) -> Iterator[Case]:
    """Yield both results of every reorder of this pair that the library accepts."""
    for tag in FORMATS:
        dims = (64, 20) if tag == "aB8b" else (64, 64)
        one, two = MemoryDesc(dims, src, "ab"), MemoryDesc(dims, dst, tag)
        if tag == "ab" and dst.name in NAMELESS and src.name in UNCONVERTED:
            continue
        codes = elements(src, dims)
        for attributes in wanted:
            if fits(attributes, src, dst) and (case := run(one, two, attributes, codes)) is not None:
                yield case


def fits(attributes: Attributes, src: DataType, dst: DataType) -> bool:
    integers = [t.kind != "float" for t in (src, dst)]
    return (integers[0] or attributes.src_zero_points is None) and (integers[1] or attributes.dst_zero_points is None)


def run(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes, codes: Array) -> Case | None:
    types = (src.require_layout("test")[1], dst.require_layout("test")[1])
    source = np.zeros(src.size, np.uint8)
    write_codes(src, source, codes)
    theirs = np.zeros(dst.size, np.uint8)
    old = np.where(np.arange(codes.size).reshape(codes.shape) % 3 == 0, 0, elements(types[1], dst.dims))
    if types[1].kind == "float":
        old = convert((np.arange(codes.size) % 7 - 3).astype(np.int8).view(np.uint8), DATA_TYPES["s8"], types[1])
        old = old.reshape(codes.shape)
    write_codes(dst, theirs, old)
    old, ours = read_codes(dst, theirs), theirs.copy()
    values = random_values(attributes, src.dims)
    try:
        live.run(src, source, dst, theirs, attributes, values)
    except onednn.Refused:
        return None
    reference_reorder(src, source, dst, ours, attributes, values)
    results = read_codes(dst, ours), read_codes(dst, theirs)
    return Case(types, dst.tag == "ab", attributes, values, codes, old, *results)


def random_values(attributes: Attributes, dims: tuple[int, ...]) -> dict[str, Array]:
    """Return random scales, powers of two where they divide a sum, and small zero points, none of them negative."""
    rng, values = np.random.default_rng(11), {}
    for name in attributes.names:
        entry = attributes.entry(name)
        shape = entry.shape(dims)
        numbers: Array = rng.integers(0, 7, shape) if isinstance(entry, ZeroPoints) else rng.uniform(0.2, 3, shape)
        if entry.data_type == "e8m0" or (name == "dst_scales" and attributes.sum is not None):
            numbers = np.exp2(rng.integers(1, 4, shape))
        values[name] = np.asarray(numbers).astype(entry.type.dtype)
    return view_codes(values)


ATTRIBUTES = [
    PLAIN,
    *(Attributes(src_scales=Scales(mask)) for mask in range(4)),
    *(Attributes(dst_scales=Scales(mask)) for mask in range(3)),
    Attributes(src_scales=Scales(2), dst_scales=Scales(2), sum=1.0),
    *(Attributes(sum=beta) for beta in (1.0, 0.5, -2.0, 0.3)),
    Attributes(sum=1.0, src_scales=Scales()),
    Attributes(sum=1.0, src_scales=Scales(), dst_scales=Scales()),
    Attributes(sum=0.5, src_scales=Scales(), dst_scales=Scales()),
    Attributes(src_zero_points=ZeroPoints()),
    Attributes(dst_zero_points=ZeroPoints()),
    Attributes(src_zero_points=ZeroPoints(), dst_zero_points=ZeroPoints(), src_scales=Scales(1)),
    Attributes(src_zero_points=ZeroPoints(1)),
    Attributes(dst_zero_points=ZeroPoints(2)),
    Attributes(src_zero_points=ZeroPoints(2, (), "s8"), src_scales=Scales(2, (), "e8m0")),
    Attributes(src_scales=Scales(3, (8, 2))),
    Attributes(src_scales=Scales(3, (16, 1), "bf16"), src_zero_points=ZeroPoints(3, (16, 1), "u8")),
    Attributes(src_scales=Scales(1, (), "f16")),
    Attributes(src_scales=Scales(3, (1, 2), "f8_e4m3"), src_zero_points=ZeroPoints(3, (1, 2), "s4")),
    Attributes(src_zero_points=ZeroPoints(3, (1, 4), "s4")),
]


def told(case: Case, wrong: Array) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    found = ", ".join(f"{name} {int(getattr(case, name)[at]):#x}" for name in ("codes", "old", "ours", "theirs"))
    return f"{case.types[0]} -> {case.types[1]} {case.attributes}: {at}: {found} ({wrong.sum()} such)"


@pytest.fixture(scope="module")
def compared() -> Counter[Callable[[Case], Any]]:
    """Return the number of elements that needed each excuse; fail at a difference without one."""
    needed: Counter[Callable[[Case], Any]] = Counter()
    count = 0
    for src in TYPES:
        for dst in TYPES:
            for case in cases_of(src, dst, ATTRIBUTES):
                count += 1
                left = case.ours != case.theirs
                for excuse in EXCUSES:
                    explained = left & excuse(case) if left.any() else left
                    needed[excuse] += int(explained.sum())
                    left = left & ~explained
                assert not left.any(), told(case, left)
    assert count > (1500 if MODERN else 700)
    return needed


def test_no_difference_is_without_its_excuse(compared: Counter[Callable[[Case], Any]]) -> None:
    assert sum(compared.values()) > 0


def test_every_excuse_is_needed(compared: Counter[Callable[[Case], Any]]) -> None:
    shown = SHOWN.get(onednn.version())
    if shown is None:
        pytest.skip(f"excuses are listed for {sorted(SHOWN)}")
    found = {excuse.__name__ for excuse in compared if compared[excuse]}
    assert found >= {excuse.__name__ for excuse in shown}
    if ISA in SEEN:
        needed = shown | {excuse for excuse, applies in OF_INSTRUCTIONS.items() if applies(ISA)}
        assert found == {excuse.__name__ for excuse in needed}
