"""Networks with products of few rows: planned with weights in panels where that is cheaper, run, saved and loaded."""

from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.graph.algorithms import algorithm_variants, as_direct
from inlay.graph.costs import AnalyticCosts, Machine
from inlay.graph.plan import Plan
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans.plan_file import read_plan
from inlay.primitives import get_engine
from inlay.primitives.panel_weights import has_panel_weights
from inlay.reordering.target import host_target
from tests.oracles import onednn as oracle
from tests.support import cost_cases as cases

WIDTH, HIDDEN = 512, 1024


def why_not() -> str | None:
    if oracle.why_unavailable() is not None:
        return str(oracle.why_unavailable())
    return None if get_engine("onednn").thread_team else "this oneDNN does not run on GNU OpenMP"


computed = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def constants() -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(3)
    dims = {"up": (WIDTH, HIDDEN), "up_bias": (HIDDEN,), "down": (HIDDEN, WIDTH), "down_bias": (WIDTH,)}
    return {name: (rng.standard_normal(shape) / 16).astype(np.float32) for name, shape in dims.items()}


def write_model(path: Path, rows: int) -> Path:
    """Write Gemm, Gelu, MatMul, Add, and the sum with the input."""
    nodes = [
        helper.make_node("Gemm", ["x", "up", "up_bias"], ["h"]),
        helper.make_node("Gelu", ["h"], ["g"]),
        helper.make_node("MatMul", ["g", "down"], ["m"]),
        helper.make_node("Add", ["m", "down_bias"], ["d"]),
        helper.make_node("Add", ["d", "x"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, WIDTH]) for name in "xy"]
    arrays = [numpy_helper.from_array(array, name) for name, array in constants().items()]
    graph = helper.make_graph(nodes, "block", ends[:1], ends[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def expected(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the result in f64."""
    known = {name: array.astype(np.float64) for name, array in constants().items()}
    hidden = x.astype(np.float64) @ known["up"] + known["up_bias"]
    gelu = hidden * 0.5 * (1 + np.vectorize(erf)(hidden / np.sqrt(2)))
    return np.asarray(gelu @ known["down"] + known["down_bias"] + x)


def inputs(rows: int, seed: int = 1) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)


def check_run(session: inlay.Session, rows: int) -> None:
    """Run twice, with inputs in other memory."""
    for seed in (1, 2):
        x = inputs(rows, seed)
        np.testing.assert_allclose(session.run({"x": x})["y"], expected(x), rtol=1e-4, atol=1e-4)


def count_panels(plan: Plan | PlannedProgram) -> int:
    return sum(step.operation is not None and has_panel_weights(step.operation) for step in plan.program.steps)


@computed
def test_one_row_is_multiplied_by_panels(tmp_path: Path) -> None:
    plan = inlay.plan(inlay.load(write_model(tmp_path / "block.onnx", 1)), costs="probed")
    assert count_panels(plan) == len(plan.program.steps) == 2
    assert all(step.impl == "matvec:f32" for step in plan.program.steps)
    check_run(plan.compile(), 1)


@computed
def test_many_rows_are_multiplied_by_onednn(tmp_path: Path) -> None:
    plan = inlay.plan(inlay.load(write_model(tmp_path / "block.onnx", 64)), costs="probed")
    assert count_panels(plan) == 0
    check_run(plan.compile(), 64)


@computed
def test_saved_plans_keep_panels(tmp_path: Path) -> None:
    plan = inlay.plan(inlay.load(write_model(tmp_path / "block.onnx", 1)), costs="probed")
    plan.save(tmp_path / "block.plan")
    again = read_plan(tmp_path / "block.plan").plan
    assert count_panels(again) == 2
    x, session = inputs(1), ProgramSession(again.program, again.graph)
    np.testing.assert_allclose(session.run({"x": x})["y"], expected(x), rtol=1e-4, atol=1e-4)


@computed
def test_other_engines_get_any_weights(tmp_path: Path) -> None:
    plan = inlay.plan(inlay.load(write_model(tmp_path / "block.onnx", 1)), costs="probed")
    check_run(plan.compile(engine="reference"), 1)


def test_products_of_few_rows_have_two_forms() -> None:
    free = cases.matmul(8, 64, 64)
    same, panels = algorithm_variants(free, "direct")
    assert same is free
    assert panels.descs["weights"].tag == f"Ba{host_target().vector_bytes}b"
    assert as_direct(panels) == free
    assert as_direct(free) is None


def test_a_model_of_the_machine_alone_has_no_panels() -> None:
    free = cases.matmul(1, 64, 64)
    costs = AnalyticCosts(Machine("AVX512_CORE", 2, 230.0, 150.0, 40.0, 1 << 25))
    same, panels = algorithm_variants(free, "auto")
    assert costs.kernel(same) is not None
    assert costs.kernel(panels) is None
