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
from inlay.graph.passes.quantization import INTERNAL_DOMAIN
from tests.support import lowered_models as lm
from tests.support.interpreter import interpret
from tests.support.operator_cases import node_models
from tests.support.paths import ROOT

_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
_CASTS_FROM = 24  # onnx.reference does not compute Cast of newer opsets

pytestmark = pytest.mark.filterwarnings("ignore")


def node_cases() -> Iterator[tuple[Any, lm.Arrays, list[lm.Array]]]:
    """Yield ONNX's test cases of one operator that has a rule, with their inputs and outputs."""
    for case, node, inputs, outputs in node_models():
        is_cast = node.op_type == "Cast" and case.model.opset_import[0].version >= _CASTS_FROM
        if node.op_type in TABLE and not is_cast:
            yield case, dict(zip((value.name for value in case.model.graph.input), inputs, strict=True)), outputs


def with_constants(model: onnx.ModelProto, given: lm.Arrays, is_weights: bool) -> tuple[onnx.ModelProto, lm.Arrays]:
    """Return the model with all inputs but the first as constants, or only those that are not float32."""
    first = next(iter(given), None)
    fixed = [n for n, a in given.items() if n != first and (is_weights or a.dtype != np.float32)]
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    changed.graph.initializer.extend(numpy_helper.from_array(given[name], name) for name in fixed)
    if is_weights:
        del changed.graph.output[1:]
    return changed, {name: array for name, array in given.items() if name not in fixed}


def run(model: onnx.ModelProto, given: lm.Arrays, outputs: list[lm.Array], tolerance: float) -> str:
    """Compare a lowered model with expected outputs; return "primitives" or, if NumPy computes a part, "reference"."""
    network = lm.network_of(model, given, lm.run_reference(model, given))
    graph = lower_network(network)
    found = interpret(graph, given)
    for name, array in zip(network.outputs, outputs, strict=False):
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=1e-5)
        assert found[name].dtype == array.dtype
    return "reference" if any(op.kind == "reference" for op in graph.ops) else "primitives"


@pytest.mark.heavy
@pytest.mark.parametrize(("is_weights", "least"), [(False, 325), (True, 390)], ids=["as it is", "weights constant"])
def test_operators_give_what_onnx_says(is_weights: bool, least: int) -> None:
    counts, faults = Counter[str](), list[str]()
    for case, arrays, outputs in node_cases():
        changed, given = with_constants(case.model, arrays, is_weights)
        try:
            counts[run(changed, given, outputs, max(case.rtol, 1e-5))] += 1
        except AssertionError as error:
            faults.append(f"{case.name}: {error}")
    assert faults == []
    assert counts["primitives"] >= least
    assert counts.total() >= 500


def stored(folder: Path, side: str) -> list[lm.Array]:
    """Return the inputs or outputs of a test case on disk, by position."""
    files = (folder / "test_data_set_0").glob(f"{side}_*.pb")
    by_position = sorted(files, key=lambda path: int(path.stem.removeprefix(f"{side}_")))
    return [numpy_helper.to_array(onnx.load_tensor(str(path))) for path in by_position]


@pytest.mark.parametrize(("kind", "least"), [("pytorch-converted", 60), ("pytorch-operator", 10)])
def test_networks_of_torch_give_what_they_are_shipped_with(kind: str, least: int) -> None:
    counts = Counter[str]()
    for path in sorted((_DATA / kind).glob("*/model.onnx")):
        model = onnx.load(path)
        if model.opset_import[0].version < 7:
            model = onnx.version_converter.convert_version(model, 9)
        constant = {init.name for init in model.graph.initializer}
        names = [value.name for value in model.graph.input if value.name not in constant]
        given = dict(zip(names, stored(path.parent, "input"), strict=True))
        counts[run(model, given, stored(path.parent, "output"), 1e-4)] += 1
    assert counts["primitives"] >= least, counts


def test_the_page_of_networks_lists_every_operator_that_has_a_rule_once() -> None:
    section = (ROOT / "docs" / "networks.md").read_text().split("\n## Operators\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| operators")]
    public = sorted(name for name in TABLE if not name.startswith(f"{INTERNAL_DOMAIN}:"))
    assert sorted(name for row in rows for name in row.split("|")[1].strip().split(", ")) == public
