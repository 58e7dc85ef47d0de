"""What an engine is asked for an operation of a graph: what the class of its kind asks, and refusals in whole texts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from inlay import primitives
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import Op, operation_of
from inlay.primitives.attributes import EltwisePostOp, SumPostOp
from inlay.primitives.engine import Operation


def some(*dims: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.zeros(dims, np.float32)


def desc(*dims: int, tag: str = "any") -> MemoryDesc:
    return MemoryDesc(dims, "f32", tag)


CONV = Op(
    "conv",
    "convolution",
    {"src": "x"},
    {"dst": "y"},
    {"weights": some(8, 4, 3, 3), "bias": some(8)},
    {"algorithm": "direct", "strides": (2, 2), "dilations": (0, 0), "padding_l": (1, 1), "padding_r": (1, 1)},
)
CONV_DESCS = {"src": desc(2, 4, 9, 9), "dst": desc(2, 8, 5, 5)}


def asked_by_class(primitive: primitives.Primitive) -> Operation:
    return primitive.operation


@pytest.mark.parametrize(
    ("op", "descs", "primitive"),
    [
        (
            CONV,
            CONV_DESCS,
            primitives.Convolution(
                desc(2, 4, 9, 9), desc(8, 4, 3, 3), desc(8, tag="a"), strides=2, padding_l=1, engine="reference"
            ),
        ),
        (
            Op("fc", "inner_product", {"src": "x"}, {"dst": "y"}, {"weights": some(8, 4, 3, 3)}),
            {"src": desc(2, 4, 3, 3), "dst": desc(2, 8)},
            primitives.InnerProduct(desc(2, 4, 3, 3), desc(8, 4, 3, 3), engine="reference"),
        ),
        (
            Op("add", "binary", {"src_0": "x"}, {"dst": "y"}, {"src_1": some(1, 4)}, {"algorithm": "add"}),
            {"src_0": desc(2, 4, tag="ab"), "dst": desc(2, 4)},
            primitives.Binary(desc(2, 4, tag="ab"), desc(1, 4, tag="ab"), algorithm="add", engine="reference"),
        ),
    ],
    ids=["convolution", "inner_product", "binary"],
)
def test_what_is_asked_is_what_the_class_of_the_kind_asks(
    op: Op, descs: Mapping[str, MemoryDesc], primitive: primitives.Primitive
) -> None:
    assert operation_of(op, descs) == asked_by_class(primitive)


def test_post_operations_become_attributes() -> None:
    wanted = (SumPostOp(), EltwisePostOp("relu"))
    assert operation_of(CONV, CONV_DESCS, wanted).attributes == primitives.PrimitiveAttributes(post_ops=wanted)


def test_a_format_that_is_given_for_a_constant_is_kept() -> None:
    weights = desc(8, 4, 3, 3, tag="hwio")
    assert operation_of(CONV, {**CONV_DESCS, "weights": weights}).descs["weights"] is weights


@pytest.mark.parametrize(
    ("op", "descs", "text"),
    [
        (CONV, {"src": CONV_DESCS["src"]}, "conv, a convolution: descs lack dst: give a format, or any"),
        (CONV, {**CONV_DESCS, "mean": desc(8)}, "conv, a convolution, has no mean: it has bias, dst, src, weights"),
        (Op("flat", "view", {"src": "x"}, {"dst": "y"}), {}, "flat is a view: an engine computes primitives only"),
    ],
)
def test_what_cannot_be_asked_is_refused(op: Op, descs: Mapping[str, MemoryDesc], text: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        operation_of(op, descs)
    assert str(refused.value) == text
