"""Whole networks, run by sessions: every tensor that has memory is ONNX Runtime's, in plain and in planned formats."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.errors import MissingExtra
from inlay.graph.costs import Costs, analytic, probed
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.plan import plan_graph
from inlay.graph.program import Program
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives import get_engine
from inlay.primitives.engine import Operation
from tests.support.network_runs import relative_error, run_by_onnxruntime
from tests.support.networks import EXPORTS, LIGHT, Model, bert, inputs_of, light
from tests.support.planner_graphs import random_plan

pytestmark = pytest.mark.heavy

try:
    get_engine("onednn")
except MissingExtra:
    pytest.skip("no oneDNN", allow_module_level=True)

CLOSE = 1e-4
RANDOM_PLANS = 200


class WinogradPreferred:
    """Costs at which every convolution that Winograd's algorithm can compute is computed so."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._costs, name)

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        found = self._costs.kernel(operation)
        return replace(found, ms=found.ms / 1000) if found and found.impl.startswith("winograd") else found


WAYS: Mapping[str, Callable[[OpGraph], Program]] = {
    "plain": plain_program,
    "analytic": lambda graph: plan_graph(graph, analytic()).program,
    "probed": lambda graph: plan_graph(graph, probed()).program,
    "winograd": lambda graph: plan_graph(graph, WinogradPreferred(probed())).program,
}


def names_of(model: Model) -> set[str]:
    return {name for node in model.graph.node for name in node.output if name}


def require_close(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    errors = {name: relative_error(array, expected[name]) for name, array in found.items() if name in expected}
    assert errors
    worst = max(errors, key=lambda name: errors[name])
    assert errors[worst] < CLOSE, (worst, errors[worst])


def require_right(model: Model) -> None:
    """Every way gives, for every tensor that has memory in it and a name in the model, what ONNX Runtime gives."""
    inputs: dict[str, Array] = inputs_of(model)
    graph = lower_network(load_bound(model.SerializeToString()))
    plain = ProgramSession(plain_program(graph), graph).trace(inputs)
    names = sorted((plain.keys() - inputs.keys()) & names_of(model))
    assert len(names) > len(graph.ops) // 2
    expected = run_by_onnxruntime(model, inputs, names)
    for program_of in WAYS.values():
        session = ProgramSession(program_of(graph), graph)
        traced = session.trace(inputs)
        require_close(traced, expected)
        result = session.run(inputs)
        assert result.keys() == set(graph.outputs)
        for name, array in result.items():
            assert np.array_equal(array, traced[name])


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_model_is_onnxruntimes_tensor_by_tensor(name: str) -> None:
    require_right(light(name))


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_a_batch_is_too(name: str) -> None:
    require_right(light(name, batch=3))


def test_an_encoder_is_too() -> None:
    require_right(bert(sequence=32, layers=2))


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_is_too(name: str) -> None:
    require_right(EXPORTS[name](2))


@pytest.mark.parametrize("name", EXPORTS)
def test_random_legal_plans_give_the_same_numbers(name: str) -> None:
    model = EXPORTS[name]()
    inputs: dict[str, Array] = inputs_of(model)
    graph = lower_network(load_bound(model.SerializeToString()))
    expected = ProgramSession(plain_program(graph), graph).trace(inputs)
    costs = probed()
    rng, seen = random.Random(name), set()
    for _ in range(RANDOM_PLANS):
        program = random_plan(graph, costs, rng)
        seen.add(tuple(repr(buffer.desc) for buffer in program.buffers.values()))
        require_close(ProgramSession(program, graph).trace(inputs), expected)
    assert len(seen) > (RANDOM_PLANS // 2 if name != "lstm" else 0)  # nothing is left to choose for an LSTM
