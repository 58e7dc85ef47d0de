"""Each operation of a quantized network beside ONNX Runtime, with the tensors that ONNX Runtime computed before it."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from inlay.graph.costs import analytic
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array, OpGraph, writers_of
from inlay.graph.plan import plan_graph
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.graph_programs import plain_plan
from tests.support.static_quantization import FORMS, NETWORKS, quantized, run_onnxruntime, sample

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.heavy

MOST_DIFFERENT = 0.001
"""Allowed part of the elements of integers that differ by more than one."""


def cut(graph: OpGraph, target: str, known: frozenset[str]) -> OpGraph:
    """The operations that compute a tensor from others that are known."""
    writers, needed, chosen, inputs = writers_of(graph), [target], set[int](), dict[str, None]()
    while needed:
        name = needed.pop()
        if (name in known and name != target) or name not in writers:
            inputs[name] = None
        elif writers[name] not in chosen:
            chosen.add(writers[name])
            needed += graph.ops[writers[name]].reads.values()
    ops = tuple(graph.ops[i] for i in sorted(chosen))
    names = {*inputs, target, *(name for op in ops for name in (*op.reads.values(), *op.writes.values()))}
    tensors = {name: graph.tensors[name] for name in names}
    return OpGraph(target, graph.opset, tuple(inputs), (target,), ops, tensors)


def run(graph: OpGraph, inputs: Mapping[str, Array], engine: str | None) -> Array:
    plan = plain_plan(graph) if engine else plan_graph(graph, analytic("avx512_core_vnni"))
    with ProgramSession(plan.program, graph, engine=engine) as session:
        return session.run({name: inputs[name] for name in graph.inputs})[graph.outputs[0]]


def assert_is_close(found: Array, expected: Array) -> None:
    """Integers differ by one at most but for few, numbers by rounding."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        return
    distance = np.abs(found.astype(np.int64) - expected.astype(np.int64))
    assert np.mean(distance > 1) <= MOST_DIFFERENT
    assert np.mean(distance > 0) <= 0.1  # means of few integers are often halves, which zero points move


def load(network: str, form: str) -> tuple[Network, dict[str, Array]]:
    """A quantized network, and all tensors that ONNX Runtime computes in it."""
    model = quantized(network, form)
    proto = onnx.load_from_string(model)
    names = [name for node in proto.graph.node for name in node.output if name]
    inputs = {"x": sample(NETWORKS[network](), 100)}
    return load_bound(model), inputs | run_onnxruntime(model, inputs, names)


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_node_is_that_of_onnxruntime_within_a_quantum(network: str, form: str, engine: str | None) -> None:
    loaded, values = load(network, form)
    graph = lower_network(loaded)
    known = frozenset(values)
    targets = [name for op in graph.ops for name in op.writes.values() if name in known and op.kind != "view"]
    assert len(targets) > 5
    for target in targets:
        found = run(cut(graph, target, known), values, engine)
        assert_is_close(found, values[target])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_no_node_is_a_reference(network: str, form: str) -> None:
    graph = lower_network(load_bound(quantized(network, form)))
    assert [op.why for op in graph.ops if op.kind == "reference"] == []
