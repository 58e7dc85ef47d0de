"""Winograd convolution in networks: planned where it is cheaper, run between other steps, and left out where asked."""

import json
import pickle
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlay import cli, load
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.algorithms import algorithm_of, algorithm_variants
from inlay.graph.costs import AnalyticCosts, Machine, measured, probed
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.costs.machine import multiplications, workload
from inlay.graph.costs.models import resolved_operation
from inlay.graph.op_graph import OpGraph
from inlay.graph.plan import Plan, plan, plan_graph
from inlay.graph.planner.cost_cache import CostCache
from inlay.graph.planner.formats import Formats
from inlay.graph.program import Program, Step
from inlay.graph.report import explain_plan, figures
from inlay.graph.runtime.compiling import Weights
from inlay.graph.runtime.session import Session
from inlay.primitives import get_engine
from inlay.primitives.attributes import EltwisePostOp
from inlay.primitives.engine import Operation, create_with_companions
from inlay.reordering.target import host_target
from tests.oracles import onednn as oracle
from tests.support import cost_cases as cases
from tests.support.interpreter import interpret
from tests.support.planner_graphs import Drawing, HashedCosts, drawn_graph, he, random_plan, recost


def why_not() -> str | None:
    if oracle.why_unavailable() is not None:
        return str(oracle.why_unavailable())
    return None if get_engine("onednn").thread_team else "this oneDNN does not run on GNU OpenMP"


computed = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
CHOICES: Any = ("auto", "direct")
FORMATS = ("acdb", f"aBcd{host_target().vector_bytes // 4}b")
"""What the machine code has on this processor."""


class Preferring(HashedCosts):
    """Winograd's algorithm takes next to nothing where it computes a convolution, and other ways take long."""

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        if not algorithm_of(operation):
            found = super().kernel(operation)
            is_slow = found is not None and len(algorithm_variants(operation, "auto")) > 1
            return replace(found, ms=found.ms + 10) if found is not None and is_slow else found
        post_ops, tags = operation.attributes.post_ops, [operation.descs[name].tag for name in ("src", "dst")]
        if post_ops not in ((), (EltwisePostOp("relu", 0.0, 0.0),)) or any(tag not in FORMATS for tag in tags):
            return None
        return KernelEstimate(operation, "winograd:test", 0.01, 0.01, 0, 0)


class Watching(HashedCosts):
    """Costs that are told beforehand what they will be asked for."""

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        PREPARED.extend(operations)


PREPARED: list[Operation] = []


def graph(batch: int = 1) -> OpGraph:
    """3x3, relu, 1x1, 3x3, relu, and a shortcut around the last three."""
    it = Drawing(random.Random(0), batch, size=9)
    first = it.tensors[it.relu(it.tensors[it.conv(it.tensors["x"], 32, 3)])]
    second = it.tensors[it.conv(first, 32)]
    it.add(it.tensors[it.relu(it.tensors[it.conv(second, 32, 3)])], first)
    return it.graph()


def inputs_of(it: OpGraph) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(it.tensors[name].dims).astype(np.float32) for name in it.inputs}


def winograd_steps(program: Program) -> list[Step]:
    return [step for step in program.steps if step.operation is not None and algorithm_of(step.operation)]


def assert_computes(session: Session, it: OpGraph) -> None:
    inputs = inputs_of(it)
    expected, found = interpret(it, inputs), session.run(inputs)
    for name in it.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-4 * np.abs(expected[name]).max())


# What may be computed so


def test_a_convolution_of_3x3_may_be_computed_in_two_ways() -> None:
    operation = cases.convolution("nhwc")
    same, other = algorithm_variants(operation, "auto")
    assert same is operation
    assert other.parameters == {**operation.parameters, "algorithm": "winograd"}
    assert (other.descs, other.attributes.scratchpad_mode) == (operation.descs, "user")
    assert algorithm_variants(operation, "direct") == (operation,)


def test_nothing_else_may() -> None:
    dense = cases.convolution("nhwc")
    given = replace(dense, descs={**dense.descs, "weights": MemoryDesc((64, 64, 3, 3), "f32", "abcd")})
    half = replace(dense, descs={name: MemoryDesc(desc.dims, "bf16", "any") for name, desc in dense.descs.items()})
    others = [
        cases.convolution("nhwc", kernel=1),
        cases.convolution("nhwc", kernel=5),
        cases.convolution("nhwc", groups=2),
        cases.add("nhwc"),
        cases.matmul(8, 8, 8),
        replace(dense, parameters={**dense.parameters, "strides": (2, 2)}),
        replace(dense, parameters={**dense.parameters, "dilations": (1, 1)}),
        replace(dense, parameters={**dense.parameters, "algorithm": "auto"}),
        given,
        half,
    ]
    for operation in others:
        assert algorithm_variants(operation, "auto") == (operation,)


# What it costs


def winograd(operation: Operation) -> Operation:
    return algorithm_variants(operation, "auto")[1]


def test_4x4_results_take_36_products_of_each_pair_of_channels() -> None:
    direct = cases.convolution("nhwc", size=28)
    assert multiplications(direct) == 4 * multiplications(winograd(direct)) == 28 * 28 * 9 * 64 * 64
    ragged = cases.convolution("nhwc", size=5, batch=2)
    assert multiplications(winograd(ragged)) == 2 * 4 * 36 * 64 * 64


def test_the_model_of_a_processor_without_a_library_does_not_know_it() -> None:
    costs = AnalyticCosts(
        Machine("AVX512_CORE", threads=2, peak=230.0, cache_bandwidth=150.0, memory_bandwidth=40.0, cache_bytes=1 << 25)
    )
    assert costs.kernel(cases.convolution("nhwc")) is not None
    assert costs.kernel(winograd(cases.convolution("nhwc"))) is None


@computed
def test_an_engine_that_has_it_is_believed() -> None:
    costs = probed("onednn")
    direct, other = (
        costs.kernel(one) for one in algorithm_variants(cases.convolution("nhwc", channels=(256, 256)), "auto")
    )
    assert direct is not None
    assert other is not None
    assert other.impl.startswith("winograd")
    assert other.operation.descs["weights"].kind == "opaque"
    assert other.operation.attributes.scratchpad_mode == "user"
    assert 0 < other.roofline < other.ms < direct.ms
    assert other.scratch > 0
    assert not other.is_cliff
    moved = workload(other.operation)
    assert moved.weight_bytes - 4 * 256 == 36 * 4 * 256 * 256
    assert moved.activation_bytes == workload(direct.operation).activation_bytes


@computed
@pytest.mark.usefixtures("quiet_machine")
def test_it_is_measured_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path))
    operation = winograd(cases.convolution("nhwc", size=9))
    costs = measured("onednn", weights=1)
    costs.prepare([operation])
    kernel = costs.kernel(operation)
    assert kernel is not None
    assert kernel.source == "measured"
    again = measured("onednn", 0.0, weights=1).kernel(operation)
    assert again is not None
    assert resolved_operation(create_with_companions(get_engine("onednn"), operation)[1]).descs == again.operation.descs
    assert (again.impl, again.operation) == (kernel.impl, kernel.operation)


# Plans


def test_the_cheaper_algorithm_is_planned() -> None:
    found = plan_graph(graph(), Preferring())
    first, second = winograd_steps(found.program)
    assert first.operation is not None
    assert first.operation.attributes.post_ops == (EltwisePostOp("relu", 0.0, 0.0),)
    assert (first.impl, first.ms, second.ms) == ("winograd:test", 0.01, 0.01)
    assert recost(found, Preferring()) == pytest.approx(found.ms, rel=1e-12)


def test_equal_prices_leave_it_direct() -> None:
    assert winograd_steps(plan_graph(graph(), HashedCosts()).program) == []


def test_who_wants_direct_convolutions_gets_them() -> None:
    found = plan(graph(), costs=Preferring(), convolutions="direct")
    assert winograd_steps(found.program) == []
    assert winograd_steps(plan(graph(), costs=Preferring(), convolutions="auto").program)
    wrong: Any = "winograd"
    with pytest.raises(InvalidArguments) as caught:
        plan(graph(), costs=Preferring(), convolutions=wrong)
    assert str(caught.value) == "convolutions are 'winograd': give auto, the fastest, or direct"


@pytest.mark.parametrize("convolutions", CHOICES)
def test_both_algorithms_are_measured_beforehand(convolutions: Any) -> None:
    PREPARED.clear()
    plan_graph(graph(), Watching(name="measured"), convolutions)
    found = [operation for operation in PREPARED if operation.descs["dst"].kind != "any"]
    asked = dict.fromkeys(("direct", "winograd"), 0)
    for operation in found:
        if operation.kind == "convolution" and operation.descs["weights"].dims[2:] == (3, 3):
            asked[str(operation.parameters["algorithm"])] += 1
    assert asked["direct"] > 0
    assert asked["winograd"] == (asked["direct"] if convolutions == "auto" else 0)


def test_formats_are_those_that_the_engine_answers_to_a_direct_convolution() -> None:
    class Natural(Preferring):
        def kernel(self, operation: Operation) -> KernelEstimate | None:
            assert not algorithm_of(operation)
            return super().kernel(operation)

    it = graph()
    prices = CostCache(Natural(), Formats())
    assert set(prices.preferred_formats(it.ops[0], it.tensors)) == {"src", "dst"}


def model(batch: int | str = "n") -> bytes:
    """Two convolutions of 3x3, with a bias and a relu each."""
    rng = np.random.default_rng(1)
    sizes = {"w0": (64, 3, 3, 3), "b0": (64,), "w1": (64, 64, 3, 3), "b1": (64,)}
    arrays = [
        numpy_helper.from_array(he(rng, *dims) if len(dims) > 1 else rng.random(64, np.float32), name)
        for name, dims in sizes.items()
    ]
    nodes = []
    for i in range(2):
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}", f"b{i}"], [f"c{i}"], f"conv{i}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"x{i + 1}"], f"relu{i}"))
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (batch, c, 28, 28))
        for name, c in (("x0", 3), ("x2", 64))
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "two", info[:1], info[1:], arrays),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("convolutions", CHOICES)
def test_other_dims_are_planned_alike(convolutions: Any) -> None:
    found = plan(load(model(), batch=1), costs=Preferring(), convolutions=convolutions)
    assert found.replan is not None
    again, _ = found.replan({"x0": (3, 3, 28, 28)})
    assert [bool(winograd_steps(program)) for program in (found.program, again)] == [convolutions == "auto"] * 2


# Sessions


@computed
def test_sessions_compute_by_it_and_share_weights_and_scratchpad() -> None:
    weights = Weights()
    found = []
    for batch in (1, 3):
        it = graph(batch)
        session = Session(plan_graph(it, Preferring()).program, it, weights=weights)
        assert [impl.startswith("winograd") for impl in session.impls.values()].count(True) == 2
        assert_computes(session, it)
        found.append((weights.nbytes, session))
    assert found[0][0] == found[1][0]
    transformed = 36 * 4 * 32 * (16 + 32)
    assert found[0][0] >= transformed
    session = found[1][1]
    prepared = [one for one in session._compiled.prepared if one.impl.startswith("winograd")]
    assert session._compiled.scratch == max(one.scratch for one in prepared) > 0
    assert not any(one.is_joined or one.is_submitted for one in prepared)


@computed
def test_traces_and_profiles_hold_it() -> None:
    it = graph()
    session = Session(plan_graph(it, Preferring()).program, it)
    inputs = inputs_of(it)
    expected, traced = interpret(it, inputs), session.trace(inputs)
    for name, array in traced.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=1e-3)
    timed = session.profile(inputs, runs=2)
    assert sum(one.impl.startswith("winograd") for one in timed) == 2
    assert all(np.array_equal(array, traced[name]) for name, array in session.run(inputs).items())


@computed
def test_inputs_are_read_where_they_lie() -> None:
    """The first step is bound anew to each array that a run is given."""
    it = Drawing(random.Random(0), size=9)
    it.conv(it.tensors["x"], 32, 3)
    small = it.graph()
    program = plan_graph(small, Preferring()).program
    assert len(winograd_steps(program)) == 1
    session = Session(program, small)
    for _ in range(2):
        assert_computes(session, small)


@computed
@pytest.mark.parametrize("seed", range(6))
def test_random_plans_with_it_compute_the_same_numbers(seed: int) -> None:
    it, rng = drawn_graph(seed, 8), random.Random(seed)
    for _ in range(4):
        assert_computes(Session(random_plan(it, Preferring(seed), rng), it), it)


@computed
def test_another_engine_computes_it_directly() -> None:
    it = graph()
    program = plan_graph(it, Preferring()).program
    engine: Any = type(get_engine("onednn"))(get_engine("onednn").library)  # type: ignore[attr-defined, call-arg]
    engine.thread_team = None
    session = Session(program, it, engine=engine)
    convolutions = [one for one in session._compiled.prepared if one.step.kind == "convolution"]
    assert all(one.implementation is not None and one.implementation.is_batched for one in convolutions)
    assert_computes(session, it)
    assert_computes(Session(program, it, engine="reference"), it)


# What a plan says


def test_a_plan_says_which_steps_are_computed_so() -> None:
    found = plan_graph(graph(), Preferring())
    assert explain_plan(found).count("winograd:test") == 2
    impls = [step["impl"] for step in json.loads(json.dumps(figures(found)))["steps"]]
    assert impls.count("winograd:test") == 2
    copied: Plan = pickle.loads(pickle.dumps(found))
    assert [step.operation for step in copied.program.steps] == [step.operation for step in found.program.steps]


# The command line


def test_the_command_line_says_what_there_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "two.onnx"
    path.write_bytes(model(1))
    for command in (["plan", str(path)], ["run", str(path), "-i", "x.npy"], ["bench", str(path)]):
        assert cli.main([*command, "--convolutions", "fft"]) == 2
        assert capsys.readouterr().err == ("error: --convolutions is 'fft': give auto, the fastest, or direct\n")
    assert cli.main(["bench", "ab", "ba", "8x8", "--convolutions", "direct"]) == 2
    assert capsys.readouterr().err == ("error: --convolutions is for a network, and a reorder is given: leave it out\n")


@computed
def test_the_command_line_plans_and_runs_with_it_or_without(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.onnx").write_bytes(model())
    np.save("x.npy", np.random.default_rng(2).standard_normal((2, 3, 28, 28)).astype(np.float32))
    results = []
    for how in CHOICES:
        options = ["--costs", "probed", "--convolutions", how]
        assert cli.main(["plan", "two.onnx", "--batch", "2", *options]) == 0
        assert ("winograd" in capsys.readouterr().out) == (how == "auto")
        assert cli.main(["run", "two.onnx", "-i", "x.npy", "-o", f"{how}.npy", *options]) == 0
        results.append(np.load(f"{how}.npy"))
    capsys.readouterr()
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
    assert not np.array_equal(results[0], results[1])
