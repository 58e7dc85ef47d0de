"""Nodes that move, count or select elements: errors of those that ONNX forbids, views, bits, and random numbers."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from inlay.errors import InvalidArguments
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import Array
from tests.support.refusals import raises_exactly


def computed(operator: str, *arrays: Any, opset: int = 25, outputs: int = 1, **attributes: Any) -> list[Array]:
    """Return the results of a node of these inputs; None leaves an input out."""
    names = tuple(f"x{k}" if array is not None else "" for k, array in enumerate(arrays))
    node = Node("n", operator, names, tuple(f"y{k}" for k in range(outputs)), attributes)
    return list(compute_node(node, opset, dict(zip(names, arrays, strict=True))).values())


def f32(*dims: int) -> Array:
    return np.zeros(dims, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("operator", "arrays", "rest", "text"),
    [
        ("Reshape", [f32(2, 3), i64(4)], {}, "6 elements do not fit dims (4,)"),
        ("Reshape", [f32(2, 3), i64(4, -1)], {}, "6 elements do not determine the unknown extent of dims [4, -1]"),
        ("Reshape", [f32(2, 3), i64(-1, -1)], {}, "dims [-1, -1] have several unknown extents, or a negative one"),
        ("Reshape", [f32(6), i64(6, 0)], {}, "dims [6, 0] copy an axis that dims (6,) do not have"),
        ("Flatten", [f32(2)], {"axis": 2}, "axis 2 is not within 1 axes"),
        ("Squeeze", [f32(1, 2), i64(1)], {}, "axes [1] of dims (1, 2) are not all of length 1"),
        ("Transpose", [f32(1, 2)], {"perm": (1, 1)}, "perm [1, 1] is no order of 2 axes"),
        ("Expand", [f32(2), i64(3)], {}, "dims (2,) cannot be broadcast with (3,)"),
        ("Expand", [f32(2), i64(-1)], {}, "dims [-1] are negative"),
        ("Tile", [f32(2), i64(1, 2)], {}, "repeats [1, 2] do not fit 1 axes"),
        ("Concat", [f32(2, 3), f32(2, 4)], {"axis": 0}, "dims (2, 3) and (2, 4) differ in other axes than 0"),
        ("Concat", [f32(2), f32(2)], {"axis": 1}, "axis 1 is not one of 1"),
        ("Split", [f32(3), i64(1, 1)], {}, "sizes [1, 1] of 2 parts do not fit the 3 elements of axis 0"),
        ("Split", [f32(3)], {"opset": 13}, "3 elements cannot be split into 2 equal parts"),
        ("Split", [f32(3)], {"num_outputs": 3}, "num_outputs is 3, and the node has 2 results"),
        ("CenterCropPad", [f32(2, 3), i64(4)], {}, "dims [4] do not fit the axes [0, 1]"),
        ("Trilu", [f32(2)], {}, "dims (2,) are those of no matrix"),
        ("EyeLike", [f32(2)], {}, "dims (2,) are those of no matrix"),
        (
            "TensorScatter",
            [f32(1, 3, 2), f32(1, 2, 2), i64(2)],
            {},
            "2 elements from [2] on exceed axis 1, which has 3",
        ),
        (
            "TensorScatter",
            [f32(1, 3, 2), f32(1, 2, 1)],
            {},
            "axis 1, mode 'linear', an update of dims (1, 2, 1) and 1 indices do not fit a cache of dims (1, 3, 2)",
        ),
        ("ConstantOfShape", [i64(-1)], {}, "1 values cannot fill dims [-1]: give one value, and no negative dims"),
        ("Range", [np.array(0), np.array(3), np.array(0)], {}, "delta is 0"),
        ("Range", [np.array(0), i64(3, 4), np.array(1)], {}, "input 1 has dims (2,), and must be one number"),
        ("Range", [*np.array([0, np.nan, 1])], {}, "start 0.0, limit nan and delta 1.0 are not all finite"),
        ("BitCast", [f32(2)], {"to": 10}, "float32 has 32 bits, and float16 has 16: they must be the same"),
        ("DepthToSpace", [f32(1, 3, 2, 2)], {"blocksize": 2}, "3 channels are not a multiple of blocks of 2 by 2"),
        ("SpaceToDepth", [f32(1, 3, 2, 3)], {"blocksize": 2}, "height 2 and width 3 are not multiples of blocksize 2"),
        (
            "SpaceToDepth",
            [f32(1, 3)],
            {"blocksize": 2},
            "blocksize 2 needs to be positive, and dims (1, 3) need four axes",
        ),
        ("SpaceToDepth", [f32(1, 1, 2, 2)], {"blocksize": 2, "mode": "RDC"}, "mode 'RDC' is none of DCR, CRD"),
        ("ReverseSequence", [f32(3, 2), i64(1, 4)], {}, "lengths [1, 4] do not fit 2 sequences of 3 elements"),
        ("ReverseSequence", [f32(3, 2), i64(1)], {"batch_axis": 0}, "batch_axis 0 and time_axis 0 are not 0 and 1"),
        ("Compress", [f32(2), np.array([False] * 2 + [True])], {}, "its condition selects element 2 of 2"),
        ("OneHot", [i64(1), i64(-1), f32(2)], {}, "it needs one depth of 0 or more and two values, not [-1] and 2"),
        ("ArgMax", [f32(0, 2)], {}, "axis 0 of dims (0, 2) has no elements"),
        ("TopK", [f32(2), i64(3)], {}, "k is [3], and axis 0 has 2 elements: give one number up to that"),
        ("CumSum", [f32(2), i64(0, 0)], {}, "its axis is one number, not 2"),
        (
            "NonMaxSuppression",
            [f32(1, 2, 4), f32(1, 1, 3)],
            {},
            "boxes of dims (1, 2, 4) and scores of dims (1, 1, 3) do not fit",
        ),
        (
            "NonMaxSuppression",
            [f32(1, 2, 4), f32(1, 1, 2), i64(1), np.array(1.5, np.float32)],
            {},
            "iou_threshold is 1.5, and must be from 0 to 1",
        ),
        ("Bernoulli", [f32(2) + 2], {}, "its input holds numbers that are no probabilities from 0 to 1"),
        ("Multinomial", [f32(2)], {}, "dims (2,) and sample_size 1 are not those of batch, classes and samples"),
        ("Multinomial", [f32(1, 2) - np.inf], {}, "a row of its input has NaN, or no class that is possible"),
        ("RandomUniformLike", [i64(2)], {}, "dims (1,) of int64 are those of no tensor of floats: state another dtype"),
    ],
)
def test_a_node_that_onnx_forbids_is_an_error(operator: str, arrays: Any, rest: dict[str, Any], text: str) -> None:
    outputs = 2 if operator in ("Split", "TopK") else 1
    with raises_exactly(InvalidArguments, f"node 'n': {operator}: {text}"):
        computed(operator, *arrays, outputs=outputs, **rest)


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes"),
    [
        ("Expand", [f32(2, 1), i64(2, 3)], {}),
        ("Flatten", [f32(2, 3, 4)], {}),
        ("Reshape", [f32(2, 3), i64(3, -1)], {}),
        ("Split", [f32(4)], {}),
        ("Squeeze", [f32(1, 2)], {}),
        ("Transpose", [f32(2, 3)], {}),
        ("CenterCropPad", [f32(5), i64(2)], {}),
        ("BitCast", [f32(3)], {"to": TensorProto.INT32}),
    ],
)
def test_a_result_that_strides_can_describe_is_a_view(operator: str, arrays: Any, attributes: dict[str, Any]) -> None:
    results = computed(operator, *arrays, outputs=2 if operator == "Split" else 1, **attributes)
    assert all(np.shares_memory(result, arrays[0]) for result in results)


BITS = ("bool", "int8", "uint8", "float8_e5m2"), ("int16", "float16", "bfloat16"), ("int64", "float64", "complex64")
FEW_BITS = ("int4", "uint4", "float4_e2m1fn"), ("int2", "uint2")


@pytest.mark.parametrize("names", [*BITS, *FEW_BITS])
def test_bits_are_kept_among_types_of_the_same_width(names: tuple[str, ...]) -> None:
    dtypes = [np.dtype(getattr(ml_dtypes, name, name)) for name in names]
    for first in dtypes:
        src = np.array([1, 0, 1], np.int8).astype(first)
        for second in dtypes:
            (there,) = computed("BitCast", src, opset=26, to=helper.np_dtype_to_tensor_dtype(second))
            assert there.dtype == second
            if second.kind == "b":
                assert there.tolist() == [True, False, True]
            else:
                assert there.tobytes() == src.tobytes()


@pytest.mark.parametrize("name", ["bool", "uint64", "float16", "bfloat16", "float64"])
def test_a_matrix_of_ones_on_a_diagonal_has_any_type(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    for k in (-9, -1, 0, 2, 1 << 40):
        (found,) = computed("EyeLike", f32(3, 4), k=k, dtype=helper.np_dtype_to_tensor_dtype(dtype))
        expected = [[int(column - row == k) for column in range(4)] for row in range(3)]
        assert (found.dtype, found.astype(int).tolist()) == (dtype, expected)


def test_a_scalar_has_coordinates_of_no_axes() -> None:
    assert [computed("NonZero", np.array(value))[0].shape for value in (0, 3)] == [(0, 0), (0, 1)]


# Random numbers


@pytest.mark.parametrize("code", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE])
def test_uniform_numbers_are_spread_from_low_to_below_high(code: int) -> None:
    (found,) = computed("RandomUniform", shape=(100, 100), dtype=code, seed=1.0, low=-1.0, high=3.0)
    numbers = found.astype(np.float64)
    assert numbers.min() >= -1
    assert numbers.max() < 3
    counts = np.histogram(numbers, 8, (-1, 3))[0]
    assert abs(counts - 1250).max() < 6 * 1250**0.5


def test_normal_numbers_have_this_mean_and_deviation() -> None:
    (found,) = computed("RandomNormalLike", f32(100, 100), seed=2.0, mean=5.0, scale=0.5)
    assert abs(found.mean() - 5) < 6 * 0.5 / 100
    assert abs(found.std() - 0.5) < 0.03


def test_classes_are_drawn_as_often_as_their_probabilities_say() -> None:
    chances = np.array([[0.5, 0, 0.2, 0.3], [0, 1, 0, 0]])
    logarithms = np.log(chances, out=np.full_like(chances, -np.inf), where=chances > 0)
    (found,) = computed("Multinomial", logarithms, seed=3.0, sample_size=10000, dtype=TensorProto.INT64)
    assert (found.dtype, found.shape) == (np.dtype(np.int64), (2, 10000))
    counts = np.stack([np.bincount(row, minlength=4) for row in found])
    assert (abs(counts - 10000 * chances) <= 6 * np.sqrt(10000 * chances * (1 - chances))).all()


def test_a_probability_of_0_or_1_is_certain() -> None:
    chances = np.array([0, 1] * 500, ml_dtypes.bfloat16)
    (found,) = computed("Bernoulli", chances, dtype=TensorProto.BOOL)
    assert found.tolist() == [False, True] * 500


def test_equal_seeds_give_equal_numbers() -> None:
    drawn = [computed("RandomNormal", shape=(4,), seed=seed)[0].tolist() for seed in (1.0, 1.0, 1.5)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert computed("RandomNormal", shape=(4,))[0].tolist() != computed("RandomNormal", shape=(4,))[0].tolist()
