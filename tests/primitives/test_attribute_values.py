"""Values of attributes: a primitive accepts and rejects the same values as `inlay.reorder`, with the same errors."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory
from inlay.primitives import attributes as a
from tests.support.refusals import raises_exactly

CHANNELS = 4
MATRIX = MemoryDesc((2, CHANNELS), "s8")
MASKED = np.ma.array([1.0] * CHANNELS, mask=[True, False, False, False])
SCALES: tuple[Any, ...] = (
    *(0.5, 2, True, "0.5", 1 + 2j, 1e39, 1e-60, [1, 2, 4, 8], [1.0, 2.0], [[1, 2], [3, 4, 5]], [None] * CHANNELS),
    *(MASKED, np.ma.array(1.0, mask=True), np.array([None] * CHANNELS), np.array(["2020"] * CHANNELS, "datetime64[D]")),
    *(np.ones(CHANNELS, dtype) for dtype in (np.complex64, np.uint8, ml_dtypes.bfloat16)),
    *(np.ones((CHANNELS, 1)), np.ones((1, CHANNELS))),
)
ZERO_POINTS: tuple[Any, ...] = (
    *(3, -128, 1.5, 2.0, 2**31, 2**40, 2**70, 1j, np.ma.array([1], mask=[True]), np.array([7]), np.ones(1)),
)


def error_of(call: Any) -> str | None:
    """Return the text of the error without the name of the primitive; None if there is no error."""
    try:
        call()
    except InvalidArguments as error:
        return str(error).removeprefix("MatMul: ")
    return None


def by_reorder(**values: Any) -> str | None:
    attributes = inlay.Attributes(
        src_scales=inlay.Scales(0b10) if "src_scales" in values else None,
        src_zero_points=inlay.ZeroPoints() if "src_zero_points" in values else None,
    )
    convert = inlay.Reorder(MATRIX, MemoryDesc(MATRIX.dims, "f32"), attributes)
    return error_of(lambda: convert(Memory(MATRIX), Memory(MemoryDesc(MATRIX.dims, "f32")), **values))


def by_primitive(**values: Any) -> str | None:
    attributes = p.PrimitiveAttributes(
        scales={"src": inlay.Scales(0b10)} if "src_scales" in values else {},
        zero_points={"src": inlay.ZeroPoints()} if "src_zero_points" in values else {},
    )
    weights = MemoryDesc((CHANNELS, 3), "s8")
    product = p.MatMul(MATRIX, weights, attributes=attributes, engine="reference")
    return error_of(lambda: product(src=Memory(MATRIX), weights=Memory(weights), **values))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("src_scales", value) for value in SCALES),
        *(("src_zero_points", value) for value in ZERO_POINTS),
    ],
)
def test_values_are_checked_as_a_reorder_checks_them(name: str, value: Any) -> None:
    assert by_primitive(**{name: value}) == by_reorder(**{name: value})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"src_zero_points": 1.5}, "src_zero_points are of type float64: zero points are integers"),
        (
            {"src_zero_points": 2**40},
            "src_zero_points hold 1099511627776, which s32 cannot represent: its range is -2147483648 to 2147483647",
        ),
        ({"src_scales": 1 + 2j}, "src_scales are of type complex128: give numbers"),
        ({"src_scales": [None] * CHANNELS}, "src_scales are of type object: give numbers"),
        (
            {"src_scales": MASKED},
            "src_scales are a masked array, whose mask would be lost: give filled() or its data",
        ),
    ],
)
def test_values_that_would_change_raise_these_errors(values: dict[str, Any], text: str) -> None:
    assert by_reorder(**values) == text
    assert by_primitive(**values) == text


def relu_plus(data_type: str) -> p.Eltwise:
    """Return a ReLU to which an operand of this type is added."""
    attributes = p.PrimitiveAttributes(post_ops=(a.BinaryPostOp("add", MemoryDesc((1, CHANNELS), data_type)),))
    return p.Eltwise(MemoryDesc((2, CHANNELS), "f32"), algorithm="relu", attributes=attributes, engine="reference")


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        ("f32", MASKED, "are a masked array, whose mask would be lost: give filled() or its data"),
        ("f32", [None] * 4, "are of type object: give numbers"),
        ("f32", 1 + 2j, "are of type complex128: give numbers"),
        ("f32", [1e39, 1, 1, 1], "hold 1e+39, which f32 cannot represent: its greatest number is 3.40282e+38"),
        ("s8", [1.5, 1, 1, 1], "are of type float64: elements are integers"),
        ("s8", [300, 1, 1, 1], "hold 300, which s8 cannot represent: its range is -128 to 127"),
        ("f32", [1.0, 2.0], "is [1.0, 2.0]: give memory, or an array, of 4 values of f32"),
    ],
)
def test_operands_of_post_operations_are_not_changed_silently(data_type: str, value: Any, text: str) -> None:
    with raises_exactly(InvalidArguments, f"Eltwise: post_op_0_src_1 {text}"):
        relu_plus(data_type)(src=Memory(MemoryDesc((2, CHANNELS), "f32")), post_op_0_src_1=value)


def test_operands_of_post_operations_may_be_arrays_of_their_elements() -> None:
    relu = relu_plus("f32")
    src = inlay.pack(np.zeros((2, CHANNELS), np.float32), relu.src_desc)
    found = relu(src=src, post_op_0_src_1=np.array([[1, 2, 3, np.inf]]))
    assert found.unpack().tolist() == [[1, 2, 3, np.inf]] * 2
