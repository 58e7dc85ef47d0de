"""Lowering of whole networks: every tensor of the interpreted graph equals that of ONNX Runtime."""

from collections.abc import Iterable

import numpy as np
import onnx
import pytest

from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from tests.support import lowered_models as lm
from tests.support.interpreter import interpret
from tests.support.networks import EXPORTS, LIGHT, bert, inputs_of, light

pytestmark = pytest.mark.heavy
_CLOSE = 1e-4
_SHAPES = {"Cast", "Concat", "Expand", "Gather", "Shape", "Slice", "Unsqueeze"}
_MEANT: dict[str, set[str]] = {
    "resnet": set(),
    "unet": set(),
    "encoder": {"Cast", "Erf", "Shape", "Slice"},
    "attention": {"Erf"},
    "lstm": _SHAPES,
}
"""Operators of each export that become references if the network is not simplified."""


def assert_close(found: lm.Arrays, expected: lm.Arrays, names: Iterable[str]) -> None:
    for name in names:
        scale = np.abs(expected[name]).max() or 1
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=_CLOSE * scale, err_msg=name)


def references_of(model: onnx.ModelProto) -> set[str]:
    """Lower a model, compare every shared tensor with ONNX Runtime, and return the operators that became references."""
    given = inputs_of(model)
    values = lm.run_onnxruntime(model, given)
    graph = lower_network(lm.network_of(model, given, values))
    found = interpret(graph, given)
    shared = found.keys() & values.keys()
    assert set(graph.outputs) <= shared
    assert_close(found, values, shared)
    return {op.node.operator for op in graph.ops if op.node is not None}


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_are_primitives_alone_with_the_tensors_of_onnx_runtime(name: str) -> None:
    assert references_of(light(name, 1)) == set()


@pytest.mark.parametrize("opset", [14, 17, 18])
@pytest.mark.parametrize("name", EXPORTS)
def test_exports_of_torch_have_the_tensors_of_onnx_runtime(name: str, opset: int) -> None:
    assert references_of(EXPORTS[name](2, opset)) <= _MEANT[name]


def test_an_encoder_needs_no_references_but_erf() -> None:
    assert references_of(bert()) == {"Erf"}


@pytest.mark.parametrize("opset", [14, 17])
@pytest.mark.parametrize("name", EXPORTS)
def test_exports_that_were_simplified_are_primitives_alone(name: str, opset: int) -> None:
    model = EXPORTS[name](2, opset)
    graph = lower_network(load_bound(model.SerializeToString()))
    assert "reference" not in lm.kinds_of(graph)
    given = inputs_of(model)
    found, expected = interpret(graph, given), lm.run_onnxruntime(model, given)
    assert_close(found, expected, graph.outputs)
