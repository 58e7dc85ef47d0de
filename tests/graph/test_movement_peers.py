"""Operators that move, count or select elements, in every type: results are those of ONNX Runtime to the bit."""

import pytest

from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import compute_node
from tests.support.movement_generators import COUNTING, MOVING, counted_cases, moved_cases
from tests.support.operator_cases import Case, attributes_of

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")


def difference(case: Case) -> str:
    """Return how the results of a node differ from those expected; an empty text if they do not."""
    node = Node("node", case.node.op_type, tuple(case.node.input), tuple(case.node.output), attributes_of(case.node))
    got = list(compute_node(node, case.opset, case.arrays).values())
    for one, other in zip(got, case.expected, strict=True):
        is_same = (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())
        if not is_same:
            return f"{case.name}, opset {case.opset}, {node.attributes}: {one} {one.dtype}, not {other} {other.dtype}"
    return ""


def faults(operator: str, seeds: range) -> list[str]:
    """Return how random nodes differ from ONNX Runtime, which must support most of them."""
    make = moved_cases if operator in MOVING else counted_cases
    cases = [made for seed in seeds if (made := make(operator, seed))]
    assert len(cases) >= 0.7 * len(seeds), (operator, len(cases))
    return [text for made in cases for case in made if (text := difference(case))]


@pytest.mark.parametrize("operator", [*MOVING, *COUNTING])
def test_nodes_of_every_type_give_what_onnx_runtime_gives(operator: str) -> None:
    assert faults(operator, range(8)) == []


@pytest.mark.heavy
@pytest.mark.parametrize("operator", [*MOVING, *COUNTING])
def test_many_nodes_of_every_type_give_what_onnx_runtime_gives(operator: str) -> None:
    assert faults(operator, range(8, 80)) == []
