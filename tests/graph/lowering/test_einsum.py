"""Lowering of Einsum: products of matrices and permutations, with the results of NumPy's einsum."""

import numpy as np
import pytest

from tests.support import lowered_models as lm
from tests.support.lowered_models import normal

EXTENTS = {"b": 2, "h": 3, "t": 4, "s": 5, "d": 6, "e": 7}


def kinds(equation: str, shapes: list[tuple[int, ...]], constants: list[str]) -> list[str]:
    """Lower an Einsum, compare it with NumPy, and return the kinds of its operations, or the reason for a reference."""
    arrays = {f"x{index}": normal(index, shape) for index, shape in enumerate(shapes)}
    model, given = lm.model_of("Einsum", arrays, opset=12, constants=constants, equation=equation)
    expected = np.einsum(equation, *arrays.values())
    graph = lm.lower_model(model, given, {"y0": expected})
    if any(op.kind == "reference" for op in graph.ops):
        return [op.why for op in graph.ops]
    lm.assert_same_results(graph, given, {"y0": expected})
    return lm.kinds_of(graph)


def shapes_of(equation: str) -> list[tuple[int, ...]]:
    terms = equation.replace(" ", "").split("->")[0].replace("...", "bh").split(",")
    return [tuple(EXTENTS[label] for label in term) for term in terms]


@pytest.mark.parametrize("constants", [[], ["x0"], ["x1"]])
@pytest.mark.parametrize(
    "equation",
    [
        *("ts,sd->td", "ts,sd", "td,sd->st", "bthd,bshd->bhts", "bhts, bshd -> bthd", "t,s->ts", "td,td->"),
        *("bhtd,hde->bhte", "bthd,hde->bte", "...td,...sd->...ts", "...td,de->...te", "...td,de", "bhtd,bhtd->bht"),
        *("bhtsd,bhte->bhtsde", "btd,dhe->bhte", "dbt,ted->teb"),
    ],
)
def test_sums_of_products_are_matmuls(equation: str, constants: list[str]) -> None:
    found = kinds(equation, shapes_of(equation), constants)
    assert found == (["a result has 0 axes, a descriptor has 1 to 12"] if equation.endswith("->") else ["matmul"])


@pytest.mark.parametrize("constants", [[], ["x0"], ["x1"]])
def test_products_of_elements_are_binary(constants: list[str]) -> None:
    assert kinds("ts,st->st", [(4, 5), (5, 4)], constants) == ["binary"]


@pytest.mark.parametrize("equation", ["bts->sbt", "...t->t...", "bt->bt", "tb"])
def test_permutations_are_views(equation: str) -> None:
    assert kinds(equation, shapes_of(equation), []) == []


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [
        ("tt->t", [(4, 4)], "a label occurs twice in a term"),
        ("ts->t", [(4, 5)], "it sums over axes of one operand"),
        ("ts,sd->t", [(4, 5), (5, 6)], "it sums over axes of one operand"),
        ("ts,td,tb->tsdb", [(4, 5), (4, 6), (4, 2)], "it has 3 operands"),
        ("...s,...s->...s", [(1, 5), (4, 5)], "an axis is broadcast"),
    ],
)
def test_other_sums_are_references(equation: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    assert kinds(equation, shapes, []) == [reason]
