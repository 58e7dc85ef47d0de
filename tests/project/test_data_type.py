"""Data types: codes and widths equal those of oneDNN, every name is resolved, unsupported types raise an error."""

import copy
import json
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay.data_type import ALL_TYPES, DATA_TYPES, MOVED_TYPES, DataType, as_data_type
from inlay.errors import InvalidArguments
from tests.support.refusals import raises_exactly

# Name, bits, code, NumPy type, least and greatest finite value: oneDNN's dnnl_data_type_t; the limits from the IEEE,
# bfloat16 and OCP documents, written out.
TABLE = [
    ("f16", 16, 1, np.float16, -65504.0, 65504.0),
    ("bf16", 16, 2, ml_dtypes.bfloat16, -(2.0**128 - 2.0**120), 2.0**128 - 2.0**120),
    ("f32", 32, 3, np.float32, -(2.0**128 - 2.0**104), 2.0**128 - 2.0**104),
    ("s32", 32, 4, np.int32, -(2**31), 2**31 - 1),
    ("s8", 8, 5, np.int8, -128, 127),
    ("u8", 8, 6, np.uint8, 0, 255),
    ("f64", 64, 7, np.float64, -1.7976931348623157e308, 1.7976931348623157e308),
    ("f8_e5m2", 8, 9, ml_dtypes.float8_e5m2, -57344.0, 57344.0),
    ("f8_e4m3", 8, 10, ml_dtypes.float8_e4m3fn, -448.0, 448.0),
    ("s4", 4, 11, ml_dtypes.int4, -8, 7),
    ("u4", 4, 12, ml_dtypes.uint4, 0, 15),
    ("e8m0", 8, 13, ml_dtypes.float8_e8m0fnu, 2.0**-127, 2.0**127),
    ("f4_e2m1", 4, 14, ml_dtypes.float4_e2m1fn, -6.0, 6.0),
    ("s64", 64, 16, np.int64, -(2**63), 2**63 - 1),
]
MOVED = {
    "bool": np.bool_,
    "s16": np.int16,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
NAMES = (
    "f16, bf16, f32, s32, s8, u8, f64, f8_e5m2, f8_e4m3, s4, u4, e8m0, f4_e2m1, s64, bool, s16, u16, u32, u64, "
    "complex64, complex128"
)

UNKNOWN = f"unknown data type '{{}}': use one of {NAMES}, or the NumPy or ml_dtypes type of the same meaning"


@pytest.mark.parametrize(("name", "bits", "code", "numpy_type", "lowest", "highest"), TABLE)
def test_the_table_is_onednn_s(
    name: str, bits: int, code: int, numpy_type: type[np.generic], lowest: float, highest: float
) -> None:
    found = DATA_TYPES[name]
    assert (found.name, found.bits, found.code, found.dtype) == (name, bits, code, np.dtype(numpy_type))
    assert (found.lowest, found.highest) == (lowest, highest)


def test_the_table_is_complete() -> None:
    assert list(DATA_TYPES) == [name for name, *_ in TABLE]


@pytest.mark.parametrize("data_type", ALL_TYPES.values(), ids=str)
def test_every_name_finds_its_type(data_type: DataType) -> None:
    dtype = data_type.dtype
    for value in (data_type.name, dtype, dtype.type, dtype.name, data_type):
        assert as_data_type(value) is data_type


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=str)
def test_the_numpy_type_holds_the_limits_and_nothing_beyond(data_type: DataType) -> None:
    limits = np.array([data_type.lowest, data_type.highest]).astype(data_type.dtype)
    assert [float(limit) for limit in limits.astype(np.float64)] == [float(data_type.lowest), float(data_type.highest)]
    if data_type.kind != "float":
        assert data_type.highest - data_type.lowest == 2**data_type.bits - 1


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=str)
def test_widths(data_type: DataType) -> None:
    assert data_type.is_sub_byte == (data_type.name in {"s4", "u4", "f4_e2m1"})
    assert data_type.itemsize == data_type.dtype.itemsize
    assert data_type.itemsize * 8 == (8 if data_type.is_sub_byte else data_type.bits)
    widths = {"float": 32, "double": 64}
    width = widths[data_type.llvm] if data_type.llvm in widths else int(data_type.llvm.removeprefix("i"))
    assert width == max(data_type.bits, 8)


REFUSED = {
    "boolean": "no descriptor can be made of data type boolean:"
    " boolean (code 8) is the result type of oneDNN's comparisons only; bool stores truth values",
    "f4_e3m0": "no descriptor can be made of data type f4_e3m0:"
    " f4_e3m0 (code 15) is deprecated in oneDNN and can no longer be stored; use f4_e2m1",
    "undef": "no descriptor can be made of data type undef: undef is the absence of a type",
    **{text: UNKNOWN.format(text) for text in ("f33", "i8", "<f4", "")},
    **{
        text: UNKNOWN.format(text).replace("use one", f"did you mean {meant}? Use one")
        for text, meant in {"i64": "s64", "half": "f16", "FP32": "f32", "e5m2": "f8_e5m2", "byte": "u8"}.items()
    },
}


@pytest.mark.parametrize("text", REFUSED)
def test_texts_that_cannot_be_stored_are_refused(text: str) -> None:
    with raises_exactly(InvalidArguments, REFUSED[text]):
        as_data_type(text)


def test_types_that_cannot_be_stored_are_refused() -> None:
    swapped = np.dtype(np.float32).newbyteorder()
    for value, problem in (
        (np.longdouble, UNKNOWN.replace("'{}'", np.dtype(np.longdouble).name)),
        (ml_dtypes.float8_e4m3, UNKNOWN.replace("'{}'", "float8_e4m3")),
        (swapped, f"data type {swapped.str} is not in this machine's byte order: convert with array.astype('float32')"),
        (np.dtype("V3"), UNKNOWN.replace("'{}'", "void24")),
    ):
        with raises_exactly(InvalidArguments, problem):
            as_data_type(value)


@pytest.mark.parametrize("value", [None, 3, 1.5, b"f32", object, {"names": 1}, [("a", "f4")]])
def test_values_that_are_no_type_are_refused(value: object) -> None:
    with pytest.raises(InvalidArguments, match=r"^unknown data type "):
        as_data_type(value)  # type: ignore[arg-type]


@given(st.text(max_size=4) | st.text(alphabet="fsub8421_e,()<>=|{}[] ", max_size=8))
def test_no_text_is_read_as_a_numpy_code(text: str) -> None:
    """NumPy's "u8" is oneDNN's u64, its "f4" is f32: whatever is accepted is a full name."""
    try:
        found = as_data_type(text)
    except InvalidArguments:
        return
    assert text in {found.name, found.dtype.name}


def test_data_types_are_values() -> None:
    for data_type in ALL_TYPES.values():
        assert pickle.loads(pickle.dumps(data_type)) is copy.deepcopy(data_type) is data_type
    assert len({*DATA_TYPES.values(), *DATA_TYPES.values()}) == 14


def test_integers_have_exact_limits() -> None:
    assert isinstance(DATA_TYPES["s64"].highest, int)
    assert DATA_TYPES["s64"].highest == 9223372036854775807


# Types that only move


@pytest.mark.parametrize(("name", "numpy_type"), MOVED.items())
def test_a_type_that_only_moves_has_the_width_of_numpy_s(name: str, numpy_type: type[np.generic]) -> None:
    found = MOVED_TYPES[name]
    dtype = np.dtype(numpy_type)
    assert (found.name, found.bits, found.code, found.dtype) == (name, dtype.itemsize * 8, 0, dtype)
    assert (found.kind, found.is_number) == ("bits", False)
    assert (found.itemsize, found.llvm) == (dtype.itemsize, f"i{found.bits}")


def test_no_type_is_both_a_number_and_moved_only() -> None:
    assert list(MOVED_TYPES) == list(MOVED)
    assert {**DATA_TYPES, **MOVED_TYPES} == ALL_TYPES
    assert len(ALL_TYPES) == len(DATA_TYPES) + len(MOVED_TYPES) == 21
    assert all(data_type.is_number for data_type in DATA_TYPES.values())
    assert (inlay.DATA_TYPES, inlay.MOVED_TYPES) == (DATA_TYPES, MOVED_TYPES)


# Seed rows: E desc API, comparing the data type


@pytest.mark.parametrize("name", ALL_TYPES)
def test_a_data_type_equals_and_hashes_as_its_name(name: str) -> None:
    data_type = DataType(name)
    assert data_type is ALL_TYPES[name] is DataType(data_type) is DataType(data_type.dtype)
    assert data_type == name
    assert name == data_type
    assert data_type != "f33"
    assert data_type != 3
    by_type: dict[object, int] = {data_type: 1}
    by_name: dict[object, int] = {name: 1}
    assert by_type[name] == by_name[data_type] == 1
    assert eval(repr(data_type), vars(inlay)) is data_type
    assert (str(data_type), f"{data_type}") == (name, name)
    assert json.dumps({"type": data_type}, default=str) == f'{{"type": "{name}"}}'


@pytest.mark.parametrize("name", ALL_TYPES)
def test_numpy_takes_a_data_type_and_never_reads_its_name(name: str) -> None:
    data_type = inlay.MemoryDesc((3,), name).data_type
    assert data_type is not None
    assert np.zeros(3, data_type).dtype == np.dtype(data_type) == data_type.dtype
    assert np.arange(2).astype(data_type).dtype == data_type.dtype
    assert not isinstance(data_type, str)


def test_a_data_type_cannot_be_changed_or_made_otherwise() -> None:
    with pytest.raises(AttributeError):
        DataType("f32").bits = 3  # type: ignore[misc]
    with pytest.raises(InvalidArguments, match=r"^unknown data type 'f33'"):
        DataType("f33")
