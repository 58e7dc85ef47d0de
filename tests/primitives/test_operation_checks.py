"""`require_operation`: operations that primitives make are accepted, changed ones are refused."""

from dataclasses import replace

import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments
from inlay.primitives.engine import Operation, get_engine
from inlay.primitives.operation_checks import CLASSES, require_operation
from tests.support.primitive_cases import draw
from tests.support.refusals import raises_exactly

IMAGE = MemoryDesc((1, 16, 4, 4), "f32", "nhwc")
RELU = Operation(
    "eltwise", "forward_inference", {"src": IMAGE, "dst": IMAGE}, {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
)


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_what_a_primitive_makes_is_accepted(kind: str) -> None:
    checked = 0
    for seed in range(40):
        try:
            case = draw(kind, seed=seed)
        except KeyError:
            pytest.skip(f"there are no cases of {kind}")
        purpose = {"prop_kind": "forward_inference"} if "prop_kind" in case.options else {}
        try:
            made = case.create(get_engine("reference"), **purpose).operation
        except InlayError:
            continue
        require_operation(made)
        checked += 1
    assert checked > 2


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"kind": "relu"}, "relu forward_inference is no operation of forward inference"),
        ({"prop_kind": "backward"}, "eltwise backward is no operation of forward inference"),
        ({"parameters": {**RELU.parameters, "alpha": "x"}}, "Eltwise: alpha is 'x': give a number"),
        (
            {"descs": {"src": IMAGE, "dst": MemoryDesc((1, 16, 4, 5), "f32", "nhwc")}},
            "Eltwise: dst has dims (1, 16, 4, 5), src (1, 16, 4, 4) give (1, 16, 4, 4): describe it with these",
        ),
    ],
)
def test_changed_operations_are_refused(changed: dict[str, object], text: str) -> None:
    with raises_exactly(InvalidArguments, text):
        require_operation(replace(RELU, **changed))  # type: ignore[arg-type]


def test_missing_and_unknown_arguments_are_refused() -> None:
    for descs in ({"dst": IMAGE}, {"src": IMAGE, "dst": IMAGE, "weights": IMAGE}):
        with pytest.raises(InvalidArguments, match="Eltwise has other arguments"):
            require_operation(replace(RELU, descs=descs))
    with pytest.raises(InvalidArguments, match="Eltwise has other arguments"):
        require_operation(replace(RELU, parameters={**RELU.parameters, "axis": 1}))
