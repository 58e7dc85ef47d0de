"""Winograd convolution in networks: planned where it is cheaper, run between other steps, and left out where asked."""

import json
import pickle
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives import get_engine
from inlay.primitives.attributes import EltwisePostOp
from inlay.primitives.engine import Operation, create_with_companions
from inlay.reordering.target import host_target
from tests.oracles import onednn as oracle
from tests.support import cost_cases as cases
from tests.support.interpreter import interpret
from tests.support.planner_graphs import Drawing, HashedCosts, drawn_graph, he, random_plan, recost
from tests.support.refusals import raises_exactly
from tests.support.written_models import written_model


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


@dataclass(frozen=True)
class Watching(HashedCosts):
    """Costs that are told beforehand what they will be asked for."""

    prepared: list[Operation] = field(default_factory=list)

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        self.prepared.extend(operations)


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


def assert_computes(session: ProgramSession, it: OpGraph) -> None:
    """Run twice, with inputs in other memory: the first steps are bound anew to it."""
    for _ in range(2):
        inputs = inputs_of(it)
        expected, found = interpret(it, inputs), session.run(inputs)
        for name in it.outputs:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-4 * np.abs(expected[name]).max())


# Algorithms


DENSE = cases.convolution("nhwc")
WEIGHTS = MemoryDesc((64, 64, 3, 3), "f32", "abcd")


def changed(**parameters: Any) -> Operation:
    return replace(DENSE, parameters={**DENSE.parameters, **parameters})


def test_a_convolution_of_3x3_has_two_algorithms() -> None:
    same, other = algorithm_variants(DENSE, "auto")
    assert same is DENSE
    assert other.parameters == changed(algorithm="winograd").parameters
    assert (other.descs, other.attributes.scratchpad_mode) == (DENSE.descs, "user")
    assert algorithm_variants(DENSE, "direct") == (DENSE,)


@pytest.mark.parametrize(
    "operation",
    [
        cases.convolution("nhwc", kernel=1),
        cases.convolution("nhwc", kernel=5),
        cases.convolution("nhwc", groups=2),
        cases.add("nhwc"),
        cases.matmul(16, 8, 8),
        changed(strides=(2, 2)),
        changed(dilations=(1, 1)),
        changed(algorithm="auto"),
        replace(DENSE, descs={**DENSE.descs, "weights": WEIGHTS}),
        replace(DENSE, descs={name: MemoryDesc(desc.dims, "bf16", "any") for name, desc in DENSE.descs.items()}),
    ],
)
def test_other_operations_have_one_algorithm(operation: Operation) -> None:
    assert algorithm_variants(operation, "auto") == (operation,)


# Costs


def winograd(operation: Operation) -> Operation:
    return algorithm_variants(operation, "auto")[1]


def test_4x4_results_take_36_products_of_each_pair_of_channels() -> None:
    direct = cases.convolution("nhwc", size=28)
    assert multiplications(direct) == 4 * multiplications(winograd(direct)) == 28 * 28 * 9 * 64 * 64
    ragged = cases.convolution("nhwc", size=5, batch=2)
    assert multiplications(winograd(ragged)) == 2 * 4 * 36 * 64 * 64


def test_analytic_costs_do_not_contain_it() -> None:
    costs = AnalyticCosts(
        Machine("AVX512_CORE", threads=2, peak=230.0, cache_bandwidth=150.0, memory_bandwidth=40.0, cache_bytes=1 << 25)
    )
    assert costs.kernel(cases.convolution("nhwc")) is not None
    assert costs.kernel(winograd(cases.convolution("nhwc"))) is None


@computed
def test_the_costs_are_those_of_an_engine_that_has_it() -> None:
    costs = probed("onednn")
    operation = cases.convolution("nhwc", channels=(256, 256))
    direct, other = (costs.kernel(variant) for variant in algorithm_variants(operation, "auto"))
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
def test_its_run_time_is_measured_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_at_equal_costs_convolutions_are_direct() -> None:
    assert winograd_steps(plan_graph(graph(), HashedCosts()).program) == []


def test_no_other_algorithm_is_planned() -> None:
    wrong: Any = "winograd"
    with raises_exactly(InvalidArguments, "convolutions are 'winograd': give auto, the fastest, or direct"):
        plan(graph(), costs=Preferring(), convolutions=wrong)


@pytest.mark.parametrize("convolutions", CHOICES)
def test_both_algorithms_are_measured_beforehand(convolutions: Any) -> None:
    costs = Watching(name="measured")
    plan_graph(graph(), costs, convolutions)
    asked = Counter(
        operation.parameters["algorithm"]
        for operation in costs.prepared
        if operation.descs["dst"].kind != "any"
        and operation.kind == "convolution"
        and operation.descs["weights"].dims[2:] == (3, 3)
    )
    assert asked["direct"] > 0
    assert asked["winograd"] == (asked["direct"] if convolutions == "auto" else 0)


def test_formats_are_those_that_the_engine_prefers_for_a_direct_convolution() -> None:
    class Natural(Preferring):
        def kernel(self, operation: Operation) -> KernelEstimate | None:
            assert not algorithm_of(operation)
            return super().kernel(operation)

    it = graph()
    assert set(CostCache(Natural(), Formats()).preferred_formats(it.ops[0], it.tensors)) == {"src", "dst"}


def model(batch: int | str = "n") -> bytes:
    """Two convolutions of 3x3, with a bias and a relu each."""
    rng = np.random.default_rng(1)
    constants: dict[str, Any] = {f"w{i}": he(rng, 64, channels, 3, 3) for i, channels in enumerate((3, 64))}
    constants |= {f"b{i}": rng.random(64, np.float32) for i in range(2)}
    window = "<pads = [1, 1, 1, 1]>"
    text = f"c0 = Conv {window} (x, w0, b0) x1 = Relu(c0) c1 = Conv {window} (x1, w1, b1) y = Relu(c1)"
    return bytes(written_model(text, (batch, 3, 28, 28), **constants).SerializeToString())


@pytest.mark.parametrize("convolutions", CHOICES)
def test_other_dims_are_planned_alike(convolutions: Any) -> None:
    found = plan(load(model(), batch=1), costs=Preferring(), convolutions=convolutions)
    assert found.planner is not None
    again = found.planner.plan({"x": (3, 3, 28, 28)}).program
    assert [bool(winograd_steps(program)) for program in (found.program, again)] == [convolutions == "auto"] * 2


# Sessions


@computed
def test_sessions_compute_by_it_and_share_weights_and_scratchpad() -> None:
    weights, sizes = Weights(), []
    for batch in (1, 3):
        it = graph(batch)
        session = ProgramSession(plan_graph(it, Preferring()).program, it, weights=weights)
        assert_computes(session, it)
        sizes.append(weights.nbytes)
        prepared = [one for one in session._compiled.prepared if one.impl.startswith("winograd")]
        assert [impl.startswith("winograd") for impl in session.impls.values()].count(True) == len(prepared) == 2
        assert session._compiled.scratch == max(one.scratch for one in prepared) > 0
        assert not any(one.is_joined or one.is_submitted for one in prepared)
    assert sizes[0] == sizes[1] >= 36 * 4 * 32 * (16 + 32)


@computed
def test_traces_and_profiles_contain_it() -> None:
    it = graph()
    session = ProgramSession(plan_graph(it, Preferring()).program, it)
    inputs = inputs_of(it)
    expected, traced = interpret(it, inputs), session.trace(inputs)
    for name, array in traced.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=1e-3)
    timed = session.profile(inputs, runs=2)
    assert sum(one.impl.startswith("winograd") for one in timed) == 2
    assert all(np.array_equal(array, traced[name]) for name, array in session.run(inputs).items())


@computed
@pytest.mark.parametrize("seed", range(6))
def test_random_plans_with_it_compute_the_same_numbers(seed: int) -> None:
    it, rng = drawn_graph(seed, 8), random.Random(seed)
    for _ in range(4):
        assert_computes(ProgramSession(random_plan(it, Preferring(seed), rng), it), it)


@computed
def test_another_engine_computes_it_directly() -> None:
    it = graph()
    program = plan_graph(it, Preferring()).program
    engine: Any = type(get_engine("onednn"))(get_engine("onednn").library)  # type: ignore[attr-defined, call-arg]
    engine.thread_team = None
    session = ProgramSession(program, it, engine=engine)
    convolutions = [one for one in session._compiled.prepared if one.step.kind == "convolution"]
    assert all(one.implementation is not None and one.implementation.is_batched for one in convolutions)
    assert_computes(session, it)
    assert_computes(ProgramSession(program, it, engine="reference"), it)


# Reports


def test_a_plan_names_the_steps_that_are_computed_so() -> None:
    found = plan_graph(graph(), Preferring())
    assert explain_plan(found, every_step=True).count("winograd:test") == 2
    impls = [step["impl"] for step in json.loads(json.dumps(figures(found)))["steps"]]
    assert impls.count("winograd:test") == 2
    copied: Plan = pickle.loads(pickle.dumps(found))
    assert [step.operation for step in copied.program.steps] == [step.operation for step in found.program.steps]


# The command line


def test_the_command_line_refuses_other_algorithms(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "two.onnx")
    Path(path).write_bytes(model(1))
    fft = "'fft': give auto, the fastest, or direct"
    for arguments, error in (
        (["plan", path, "--convolutions", "fft"], fft),
        (["run", path, "-i", "x.npy", "--convolutions", "fft"], fft),
        (["bench", path, "--convolutions", "fft"], fft),
        (
            ["bench", "ab", "ba", "8x8", "--convolutions", "direct"],
            "for a network, and a reorder is given: leave it out",
        ),
    ):
        assert cli.main(arguments) == 2
        assert capsys.readouterr().err == f"error: --convolutions is {error}\n"


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
