"""What a plan says of itself: the whole text and all figures of small plans."""

import json
from dataclasses import replace

from inlay.graph.costs import CostSources
from inlay.graph.plan import Cliff, Plan
from inlay.graph.program import Alternative, Step
from inlay.graph.report import _describe_sources, explain_plan, figures
from tests.support.graph_programs import Case, slices_of_nhwc, with_reference, zero_copy_concat


def plan_of(case: Case, **changes: object) -> Plan:
    """A plan of a program by hand: step i takes i + 1 tenths of a millisecond and says what it reads."""
    steps: list[Step] = []
    for i, step in enumerate(case.program.steps):
        is_reorder = step.kind == "reorder"
        why = "last reads it" if is_reorder else "there is no primitive for it" if step.kind == "reference" else ""
        alternative = Alternative.known({0: None, 1: 0.25}[len(steps) % 2]) if is_reorder else None
        impl = {"reference": "reference", "reorder": "inlay"}.get(step.kind, "jit:any")
        ms, nbytes = (i + 1) / 10, 1000 * (i + 1)
        steps.append(replace(step, impl=impl, ms=ms, nbytes=nbytes, why=why, alternative=alternative))
    ms = sum(step.ms for step in steps)
    plan = Plan(
        graph=case.graph,
        program=replace(case.program, steps=tuple(steps)),
        ms=ms,
        bound=ms,
        method="elimination",
        width=2,
        costs="measured",
        isa="AVX2",
        threads=2,
        engine="onednn 3.2.0",
        totals={"plain": 3 * ms, "greedy": ms},
        cliffs=(),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


CLIFFS = (
    Cliff("one", {"src": "abcd", "dst": "aBcd16b"}, "ref:any", 25.0, 0.5, ("greedy", "blocked by 16")),
    Cliff("two", {"src": "abcd", "dst": "abcd"}, "ref:any", 9.0, 0.1, ("plan", "plain")),
)


def test_a_plan_is_explained() -> None:
    assert explain_plan(plan_of(zero_copy_concat("nChw16c"), cliffs=CLIFFS)) == (
        """\
by hand: 1.500 ms predicted, 5 steps, 1 reorder
measured costs of onednn 3.2.0, AVX2, 2 threads
optimal among all plans of the same kernels (elimination, width 2)

 share     ms  step          format           kernel
33.3 %  0.500  three         nChw16c -> nchw  jit:any
26.7 %  0.400  reorder of z  nChw16c -> nchw  inlay
20.0 %  0.300  alone         nChw16c          jit:any
13.3 %  0.200  two           nchw -> nChw16c  jit:any
 6.7 %  0.100  one           nchw -> nChw16c  jit:any
1 concatenation without a copy

   ms   bytes  reorder of  from     to    without it
0.400  4.0 kB  z           nChw16c  nchw  +0.250 ms
    last reads it
reorders take 0.400 ms in all, 26.7 %

plan          ms  ratio
this plan  1.500   1.00
plain      4.500   3.00
greedy     1.500   1.00

cliff: two with src nchw, dst nchw: ref:any takes 9.000 ms, roofline 0.100 ms
cliff avoided: one with src nchw, dst nChw16c: ref:any takes 25.000 ms, roofline
  0.500 ms, in greedy, blocked by 16

arena 0.00 MB, 0.00 MB without reuse, at least 0.00 MB at one step
constants 0.00 MB"""
    )


def test_every_step_is_listed_and_what_numpy_computes_is_noted() -> None:
    text = explain_plan(plan_of(with_reference(), bound=0.9), every_step=True)
    assert text == (
        """\
by hand: 1.000 ms predicted, 4 steps, 0 reorders
measured costs of onednn 3.2.0, AVX2, 2 threads
the optimum of the same kernels is 0.900 ms (elimination, width 2)
NumPy computes 2 of 4 steps, 50 % of the predicted time

step   kind       format           kernel        ms
relu   eltwise    ab               jit:any    0.100
truth  reference  ab -> array      reference  0.200
where  reference  array, ab -> ab  reference  0.300
last   eltwise    ab               jit:any    0.400

no reorder

plan          ms  ratio
this plan  1.000   1.00
plain      3.000   3.00
greedy     1.000   1.00

truth, where are computed by NumPy: there is no primitive for it

arena 0.00 MB, 0.00 MB without reuse, at least 0.00 MB at one step
constants 0.00 MB"""
    )


def test_figures_are_those_of_the_plan_and_of_its_steps() -> None:
    plan = plan_of(slices_of_nhwc(), cliffs=CLIFFS[:1])
    found = json.loads(json.dumps(figures(plan)))
    assert found["network"] == "by hand"
    assert (found["ms"], found["bound"], found["method"], found["width"]) == (plan.ms, plan.ms, "elimination", 2)
    assert (found["costs"], found["isa"], found["threads"], found["engine"]) == ("measured", "AVX2", 2, "onednn 3.2.0")
    assert found["totals"] == {"plain": 3 * plan.ms, "greedy": plan.ms}
    assert [step["name"] for step in found["steps"]] == [step.name for step in plan.program.steps]
    assert found["arena"]["needed"] <= found["arena"]["nbytes"] <= found["arena"]["unshared"] + 64 * 6
    assert found["constants"] == 0


def test_a_plan_tells_how_many_costs_were_measured_and_which_steps_have_estimated_ones() -> None:
    case = zero_copy_concat("nChw16c")
    sources = CostSources(measured=3, remembered=4, scaled=2, modelled=1, is_out_of_time=True, unsaved="why")
    plan = plan_of(case, sources=sources)
    steps = tuple(replace(step, source="measured") for step in plan.program.steps)
    plan = replace(plan, program=replace(plan.program, steps=(*steps[:2], *plan.program.steps[2:])))
    assert explain_plan(plan).splitlines()[1:6] == [
        "measured costs of onednn 3.2.0, AVX2, 2 threads",
        "costs of 10 kernels and reorders: 3 measured now, 4 measured earlier, 3",
        "  estimated by a model",
        "estimated times: alone, z16 to z, three",
        "optimal among all plans of the same kernels (elimination, width 2)",
    ]
    assert figures(plan)["sources"] == {
        "measured": 3,
        "remembered": 4,
        "estimated": {"scaled": 2, "modelled": 1},
        "is_out_of_time": True,
        "unsaved": "why",
    }
    assert figures(plan_of(case))["sources"] is None
    nothing = replace(plan, costs="probed", sources=CostSources(modelled=10, is_out_of_time=True))
    assert explain_plan(nothing).splitlines()[1:4] == [
        "probed costs of onednn 3.2.0, AVX2, 2 threads",
        "costs of 10 kernels and reorders: 10 estimated by a model",
        "optimal among all plans of the same kernels (elimination, width 2)",
    ]
    assert figures(nothing)["sources"]["unsaved"] is None


def test_only_some_of_many_steps_with_estimated_times_are_named() -> None:
    plan = plan_of(zero_copy_concat("nChw16c"), sources=CostSources(measured=1))
    steps = tuple(replace(plan.program.steps[0], name=f"s{i}", ops=()) for i in range(9))
    text = "\n".join(_describe_sources(replace(plan, program=replace(plan.program, steps=steps))))
    assert text.endswith("\nestimated times: s0, s1, s2, s3, s4, s5 and 3 more")


def test_figures_tell_each_step_reorder_and_cliff() -> None:
    found = json.loads(json.dumps(figures(plan_of(slices_of_nhwc(), cliffs=CLIFFS[:1]))))
    assert found["steps"][2] == {
        "name": "a to a:slice",
        "kind": "reorder",
        "ops": [],
        "reads": {"src": {"tensor": "a", "buffer": "a", "data_type": "f32", "format": "abcd"}},
        "writes": {"dst": {"tensor": "a", "buffer": "a:slice", "data_type": "f32", "format": "strided"}},
        "impl": "inlay",
        "ms": 0.3,
        "source": "modelled",
        "nbytes": 3000,
        "why": "last reads it",
        "without": None,
    }
    assert found["reorders"][1] == {
        "tensor": "b",
        "from": "abcd",
        "to": "strided",
        "from_type": "f32",
        "to_type": "f32",
        "nbytes": 4000,
        "ms": 0.4,
        "why": "last reads it",
        "without": 0.25,
    }
    assert found["cliffs"] == [
        {
            "op": "one",
            "formats": {"src": "abcd", "dst": "aBcd16b"},
            "impl": "ref:any",
            "ms": 25.0,
            "roofline": 0.5,
            "plans": ["greedy", "blocked by 16"],
        }
    ]
