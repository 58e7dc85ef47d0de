"""ONNX's own test cases of operators: lowered networks give the expected results, with primitives where possible.

Each case runs twice: as it is, and with all inputs but the first constant and only its first output, as in networks
with weights.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from inlay.graph.lowering.translation import TABLE, lower_network
from tests.support import lowered_models as lm
from tests.support.interpreter import interpret

_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
_CASTS_FROM = 24  # onnx.reference does not compute Cast of newer opsets

pytestmark = pytest.mark.filterwarnings("ignore")


def node_cases() -> Iterator[tuple[str, onnx.ModelProto, list[Any], list[Any], float]]:
    """Yield ONNX's test cases of one operator that has a rule, with tensors as inputs and outputs."""
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind="node"):
        assert case.model is not None
        assert case.data_sets is not None
        graph = case.model.graph
        values = [*graph.input, *graph.output]
        if len(graph.node) != 1 or graph.node[0].op_type not in TABLE:
            continue
        is_cast = graph.node[0].op_type == "Cast" and case.model.opset_import[0].version >= _CASTS_FROM
        if is_cast or not all(value.type.HasField("tensor_type") for value in values):
            continue
        for inputs, outputs in case.data_sets:
            yield case.name, case.model, list(inputs), list(outputs), max(case.rtol, 1e-5)


def with_constants(model: onnx.ModelProto, given: lm.Arrays, is_weights: bool) -> tuple[onnx.ModelProto, lm.Arrays]:
    """Return the model with all inputs but the first as constants, or only those that are not float32."""
    first = next(iter(given), None)
    fixed = [n for n, a in given.items() if (n != first if is_weights else a.dtype != np.float32 and n != first)]
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.initializer.extend(numpy_helper.from_array(given[name], name) for name in fixed)
    if is_weights:
        del changed.graph.output[1:]
    return changed, {name: array for name, array in given.items() if name not in fixed}


def run(model: onnx.ModelProto, given: lm.Arrays, outputs: list[Any], tolerance: float) -> str:
    """Compare a lowered model with expected outputs; return "primitives" or, if NumPy computes a part, "reference"."""
    network = lm.network_of(model, given, lm.run_reference(model, given))
    graph = lower_network(network)
    found = interpret(graph, given)
    for name, array in zip(network.outputs, outputs, strict=False):
        np.testing.assert_allclose(found[name], np.asarray(array), rtol=tolerance, atol=1e-5)
        assert found[name].dtype == np.asarray(array).dtype
    return "reference" if any(op.kind == "reference" for op in graph.ops) else "primitives"


@pytest.fixture(scope="module")
def cases() -> list[tuple[str, onnx.ModelProto, list[Any], list[Any], float]]:
    return list(node_cases())


@pytest.mark.heavy
@pytest.mark.parametrize(("is_weights", "least"), [(False, 325), (True, 390)], ids=["as it is", "weights constant"])
def test_operators_give_what_onnx_says(cases: list[Any], is_weights: bool, least: int) -> None:
    counts, faults = Counter[str](), list[str]()
    for name, model, inputs, outputs, tolerance in cases:
        arrays = {value.name: np.asarray(array) for value, array in zip(model.graph.input, inputs, strict=True)}
        changed, given = with_constants(model, arrays, is_weights)
        try:
            counts[run(changed, given, outputs, tolerance)] += 1
        except AssertionError as error:
            faults.append(f"{name}: {error}")
    assert faults == []
    assert counts["primitives"] >= least
    assert counts.total() == len(cases) >= 500


def stored(folder: Path) -> tuple[lm.Arrays, lm.Arrays]:
    """Return inputs and outputs of a test case on disk, by position."""
    both = []
    for side in ("input", "output"):
        files = sorted(
            (folder / "test_data_set_0").glob(f"{side}_*.pb"), key=lambda path: int(path.stem[len(side) + 1 :])
        )
        both.append({str(i): numpy_helper.to_array(onnx.load_tensor(str(path))) for i, path in enumerate(files)})
    return both[0], both[1]


@pytest.mark.parametrize(("kind", "least"), [("pytorch-converted", 60), ("pytorch-operator", 10)])
def test_networks_of_torch_give_what_they_are_shipped_with(kind: str, least: int) -> None:
    counts = Counter[str]()
    for folder in sorted((_DATA / kind).iterdir()):
        if not (folder / "model.onnx").exists():
            continue
        model = onnx.load(folder / "model.onnx")
        if model.opset_import[0].version < 7:
            model = onnx.version_converter.convert_version(model, 9)
        inputs, outputs = stored(folder)
        constant = {init.name for init in model.graph.initializer}
        names = [value.name for value in model.graph.input if value.name not in constant]
        given = dict(zip(names, inputs.values(), strict=True))
        counts[run(model, given, list(outputs.values()), 1e-4)] += 1
    assert counts["primitives"] >= least, counts
