"""Plans of graphs that show one law each, and what plans compute."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.plan import plan_graph
from inlay.graph.planner.groups import group_operations
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives.attributes import SumPostOp
from inlay.primitives.engine import Operation
from tests.support.interpreter import interpret
from tests.support.planner_graphs import Drawing, HashedCosts, drawn_graph, random_plan


def given(graph: OpGraph) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(graph.tensors[name].dims).astype(np.float32) for name in graph.inputs}


def residual(channels: int = 16, size: int = 4, given: int = 16) -> OpGraph:
    """Three convolutions with a shortcut around the last two, then a relu."""
    it = Drawing(random.Random(0), given=given, size=size)
    first = it.conv("x", channels, 3)
    it.relu(it.add(it.conv(it.conv(first, channels, 3), channels), first))
    return it.graph()


def dense_block(layers: int, batch: int = 1) -> OpGraph:
    """Each layer reads the concatenation of all before it, as in DenseNet."""
    it = Drawing(random.Random(0), batch)
    whole = it.conv("x", 16)
    for _ in range(layers):
        whole = it.concat([whole, it.conv(it.relu(whole), 16, 3)])
    it.relu(whole)
    return it.graph()


# Groups


def test_a_shortcut_is_summed_in_its_own_place() -> None:
    groups = group_operations(residual())
    assert [group.kind for group in groups] == ["convolution"] * 3
    assert [op.kind for op in groups[2].epilogue] == ["binary", "eltwise"]
    assert groups[2].last_uses == {"t0"}
    program = plan_graph(residual(), Even()).program
    (step,) = [step for step in program.steps if "sum" in step.reads]
    assert step.operation is not None
    assert isinstance(step.operation.attributes.post_ops[0], SumPostOp)
    old, new = program.buffers[step.reads["sum"]], program.buffers[step.writes["dst"]]
    assert (old.base, old.offset, old.desc) == (new.base, new.offset, new.desc)


def test_a_shortcut_that_is_read_later_keeps_its_place() -> None:
    it = Drawing(random.Random(0))
    first = it.conv("x", 16)
    it.add(it.relu(it.add(it.conv(first, 16, 3), first)), first)
    (summing,) = [group for group in group_operations(it.graph()) if group.head.name == "convolution_1"]
    assert summing.last_uses == frozenset()


def test_the_later_of_two_convolutions_takes_the_sum_of_both() -> None:
    it = Drawing(random.Random(0))
    it.add(*(it.conv("x", 16, size) for size in (1, 3)))
    assert [len(group.ops) for group in group_operations(it.graph())] == [1, 2]


def test_a_constant_for_each_channel_is_a_bias_and_another_one_is_none() -> None:
    it = Drawing(random.Random(0))
    it.scale(it.scale(it.conv("x", 16), "add"), "mul")
    (group,) = group_operations(it.graph())
    assert group.head.constants["bias"].shape == (16,)
    assert [op.parameters["algorithm"] for op in group.epilogue] == ["mul"]


# Concatenations


@pytest.mark.parametrize("layers", [1, 4])
def test_chains_of_concatenations_of_one_image_are_not_copied(layers: int) -> None:
    plan = plan_graph(dense_block(layers), Even())
    assert all(step.kind not in ("concat", "reorder") for step in plan.program.steps)
    homes = {buffer.base for buffer in plan.program.buffers.values() if buffer.tensor.startswith("t")}
    assert len(homes) < len(plan.program.buffers) - layers


def test_sources_of_several_images_are_copied() -> None:
    program = plan_graph(dense_block(2, batch=2), Even()).program
    assert sum(step.kind in ("concat", "reorder") for step in program.steps) >= 2


# What plans compute


@pytest.mark.parametrize(
    ("seed", "steps", "plans"),
    [
        *((seed, 8, 6) for seed in range(8)),
        *(pytest.param(seed, 6, 200, marks=pytest.mark.heavy) for seed in range(20)),
    ],
)
def test_random_plans_compute_the_same_numbers(seed: int, steps: int, plans: int) -> None:
    graph, rng = drawn_graph(seed, steps, size=1 if seed % 2 else 4), random.Random(seed)
    inputs = given(graph)
    expected = interpret(graph, inputs)
    for _ in range(plans):
        results = ProgramSession(random_plan(graph, HashedCosts(seed), rng), graph).run(inputs)
        for name in graph.outputs:
            scale = float(np.abs(expected[name]).max()) or 1.0
            np.testing.assert_allclose(results[name] / scale, expected[name] / scale, atol=1e-5, err_msg=name)


ASKED = """
import json
import numpy as np
from tests.graph.test_plan import dense_block, given, residual
from tests.support.interpreter import interpret
from inlay.graph.plan import plan

found = []
for graph in (residual(64, 28, 3), residual(128, 28), dense_block(3)):
    chosen = plan(graph, costs="probed")
    inputs = given(graph)
    expected, results = interpret(graph, inputs), chosen.compile().run(inputs)
    worst = max(float(np.abs(results[n] - expected[n]).max() / np.abs(expected[n]).max()) for n in graph.outputs)
    found.append([worst, [step.operation.descs["dst"].tag for step in chosen.program.steps if step.operation]])
print(json.dumps(found))
"""


def test_instruction_sets_choose_different_formats_and_all_run_right() -> None:
    answers = {}
    for isa in ("SSE41", "AVX2", "AVX512_CORE"):
        environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": isa}
        done = subprocess.run(
            [sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        answers[isa] = json.loads(done.stdout)
        assert max(worst for worst, _ in answers[isa]) < 1e-5
    formats = [[tags for _, tags in found] for found in answers.values()]
    assert formats[0] != formats[1] != formats[2]


def test_kernels_that_fall_off_a_cliff_are_said_and_avoided() -> None:
    it = Drawing(random.Random(0))
    it.op("softmax", [it.conv("x", 32)], parameters={"algorithm": "accurate", "axis": 3})
    chosen = plan_graph(it.graph(), Steep())
    assert not any("plan" in cliff.plans for cliff in chosen.cliffs)
    (cliff,) = chosen.cliffs
    assert (cliff.op, cliff.formats, cliff.ms) == ("softmax_1", {"src": "acdb", "dst": "acdb"}, 100.0)
    assert cliff.plans == ("greedy", "channels last")
    assert [step.why for step in chosen.reorders] == ["convolution_0 reads acdb", "softmax_1 reads abcd"]
    assert [step.without for step in chosen.reorders] == pytest.approx([3.0, 0.5])
    assert chosen.ms == 3.0
    assert chosen.totals["plain"] == 6.0


def answered(operation: Operation, tag: str | None) -> Operation:
    """The operation in this format, where it leaves the format open."""
    if operation.descs["dst"].kind != "any":
        return operation
    descs = {name: MemoryDesc(operation.descs[name].dims, "f32", tag) for name in ("src", "dst")}
    return replace(operation, descs={**operation.descs, **descs})


class Even(HashedCosts):
    """Every call takes as long as any other, and so does every reorder."""

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        return KernelEstimate(answered(operation, None), "even", 1.0, 1.0, 0, 0)

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return 1.0


class Steep(HashedCosts):
    """Convolutions are best in channels last; a softmax over space falls off a cliff there."""

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        operation = answered(operation, "acdb")
        tags = {operation.descs[name].tag for name in ("src", "dst")}
        prices = {"convolution": (1.0, 5.0), "softmax": (100.0, 1.0)}
        inside, other = prices[operation.kind]
        return KernelEstimate(operation, "steep", inside if tags == {"acdb"} else other, 1.0, 0, 0)

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return 0.5
