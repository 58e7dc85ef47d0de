"""Eight architectures, quantized by ONNX Runtime's quantizer: their kernels, each node, and whole networks."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
import pytest

import inlay
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from tests.graph.quantized.test_nodes import cut, run
from tests.support.static_quantization import run_onnxruntime

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from tests.support.quantized_zoo import ARCHITECTURES, FORMS, exported, quantized, quantum
from tests.zoo.calibration import draw_sample

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore")]

SEEDS = range(200, 206)
"""Seeds of the inputs, none of which the quantizer saw."""
MOST_DIFFERENT = 0.001
"""Allowed part of the elements that differ by more than a quantum."""
COMPUTED = ("convolution", "matmul", "inner_product", "pooling", "binary", "sum")
"""Kinds of which no step may be a reference."""
each_model = pytest.mark.parametrize("form", FORMS)
each_network = pytest.mark.parametrize("name", ARCHITECTURES)


@dataclass(frozen=True)
class Results:
    """Outputs of one input: in f32, quantized by ONNX Runtime, and quantized by Inlay."""

    exact: Mapping[str, Array]
    theirs: Mapping[str, Array]
    ours: Mapping[str, Array]


@cache
def results(name: str, form: str) -> tuple[Results, ...]:
    """The results of each seed."""
    f32, int8 = exported(name), quantized(name, form)
    with inlay.compile(inlay.load(int8), costs="probed") as session:
        samples = [draw_sample(ARCHITECTURES[name], seed) for seed in SEEDS]
        return tuple(Results(run_onnxruntime(f32, x), run_onnxruntime(int8, x), dict(session.run(x))) for x in samples)


@each_model
@each_network
def test_no_product_pooling_or_sum_is_a_reference(name: str, form: str) -> None:
    plan = inlay.plan(inlay.load(quantized(name, form)), costs="probed")
    slow = {
        step.name: step.impl
        for step in plan.program.steps
        if step.kind in COMPUTED and step.impl.startswith(("ref", "numpy", "onnxruntime"))
    }
    assert slow == {}
    operators = {step.node.operator for step in plan.program.steps if step.node is not None}
    assert operators & {"Conv", "MatMul", "Gemm", "Add", "QLinearAdd", "MaxPool", "AveragePool"} == set()


@each_model
@each_network
def test_a_node_is_that_of_onnxruntime_within_a_quantum(name: str, form: str) -> None:
    model = quantized(name, form)
    nodes = onnx.load_from_string(model).graph.node
    sample = draw_sample(ARCHITECTURES[name], 100)
    values = sample | run_onnxruntime(model, sample, [one for node in nodes for one in node.output if one])
    graph = lower_network(load_bound(model))
    known = frozenset(values)
    targets = [one for op in graph.ops for one in op.writes.values() if one in known and op.kind != "view"]
    assert len(targets) > 10
    wrong = {}
    for target in targets:
        part = _distant_part(run(cut(graph, target, known), values, None), values[target])
        if part > MOST_DIFFERENT:
            wrong[target] = part
    assert wrong == {}


def _distant_part(found: Array, expected: Array) -> float:
    """The part of the elements that differ by more than one, or of f32 by more than rounding."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind == "f":
        limit = 1e-4 * float(np.abs(expected).max(initial=0.0))
        return float(np.mean(~np.isclose(found, expected, rtol=1e-4, atol=limit)))
    return float(np.mean(np.abs(found.astype(np.int64) - expected.astype(np.int64)) > 1))


@each_model
@each_network
def test_a_network_is_as_close_to_f32_as_onnxruntime(name: str, form: str) -> None:
    for output in results(name, form)[0].exact:
        theirs = sum(float(np.square(one.theirs[output] - one.exact[output]).sum()) for one in results(name, form))
        ours = sum(float(np.square(one.ours[output] - one.exact[output]).sum()) for one in results(name, form))
        assert ours <= 1.1**2 * theirs, output


@each_model
@each_network
def test_the_first_class_is_that_of_onnxruntime(name: str, form: str) -> None:
    """Where the margin of ONNX Runtime's first class exceeds the quantum; pixels of a U-Net have a class each."""
    output = next(iter(results(name, form)[0].exact))
    decided = equal = 0
    for one in results(name, form):
        axis = 1 if one.exact[output].ndim == 4 else -1
        theirs, ours = (np.moveaxis(array, axis, -1) for array in (one.theirs[output], one.ours[output]))
        step = quantum(quantized(name, form), output) or float(np.abs(theirs).max()) / 127
        second, first = np.moveaxis(np.sort(theirs, -1)[..., -2:], -1, 0)
        is_decided = first - second > 1.5 * step  # floats: a margin of one quantum is not above it
        decided += int(is_decided.sum())
        equal += int((is_decided & (theirs.argmax(-1) == ours.argmax(-1))).sum())
    assert decided > 0
    assert equal >= (1 - MOST_DIFFERENT) * decided
