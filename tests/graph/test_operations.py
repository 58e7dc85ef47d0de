"""Operations of graphs become the operations that the classes of primitives make."""

from collections.abc import Mapping

import pytest

from inlay import primitives
from inlay.descriptor import MemoryDesc
from inlay.graph.op_graph import Op, operation_of
from inlay.primitives.attributes import EltwisePostOp, SumPostOp
from tests.support.graph_programs import POINTWISE, drawn


def desc(*dims: int, tag: str = "any") -> MemoryDesc:
    return MemoryDesc(dims, "f32", tag)


WEIGHTS = drawn(8, 4, 3, 3)
WINDOW = {**POINTWISE, "strides": (2, 2), "padding_l": (1, 1), "padding_r": (1, 1)}
CONV = Op("conv", "convolution", {"src": "x"}, {"dst": "y"}, {"weights": WEIGHTS, "bias": drawn(8)}, WINDOW)
CONV_DESCS = {"src": desc(2, 4, 9, 9), "dst": desc(2, 8, 5, 5)}


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
            Op("fc", "inner_product", {"src": "x"}, {"dst": "y"}, {"weights": WEIGHTS}),
            {"src": desc(2, 4, 3, 3), "dst": desc(2, 8)},
            primitives.InnerProduct(desc(2, 4, 3, 3), desc(8, 4, 3, 3), engine="reference"),
        ),
        (
            Op("add", "binary", {"src_0": "x"}, {"dst": "y"}, {"src_1": drawn(1, 4)}, {"algorithm": "add"}),
            {"src_0": desc(2, 4, tag="ab"), "dst": desc(2, 4)},
            primitives.Binary(desc(2, 4, tag="ab"), desc(1, 4, tag="ab"), algorithm="add", engine="reference"),
        ),
    ],
    ids=["convolution", "inner_product", "binary"],
)
def test_an_operation_is_that_of_the_class_of_its_kind(
    op: Op, descs: Mapping[str, MemoryDesc], primitive: primitives.Primitive
) -> None:
    assert operation_of(op, descs) == primitive.operation


def test_post_operations_become_attributes() -> None:
    wanted = (SumPostOp(), EltwisePostOp("relu"))
    assert operation_of(CONV, CONV_DESCS, wanted).attributes == primitives.PrimitiveAttributes(post_ops=wanted)


def test_a_format_that_is_given_for_a_constant_is_kept() -> None:
    weights = desc(8, 4, 3, 3, tag="hwio")
    assert operation_of(CONV, {**CONV_DESCS, "weights": weights}).descs["weights"] is weights
