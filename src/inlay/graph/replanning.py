"""Planning a program again after measuring what was off in a run: `refine_program`.

**Which steps.** A step is off if its median time differs from its prediction by more than the limits of `refinement`,
and if the middle half of its runs does too. Measured times are divided by the slowdown of the processor, since
predictions are those of the processor at its best.

**What is measured.** All candidates of the groups of these steps, alone and in turn, as for the first plan; and the
reorders that are off. The new times replace the stored ones, for later plans and processes too.

Times of runs are not stored. They are those of one place in one network, where caches and threads are in another state,
and of the chosen candidate only: it would look dear, and others that never ran there cheap (decision 37). A step that
alone takes as long as predicted is off because of its place. That concerns all candidates alike, so the choice stays.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from inlay.errors import InvalidArguments
from inlay.graph.algorithms import Convolutions
from inlay.graph.costs.estimates import Progress
from inlay.graph.costs.measuring import MeasuredCosts, RemeasuredCount
from inlay.graph.costs.timing_records import operation_key
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.planner.cost_cache import CostCache
from inlay.graph.planner.domains import domains
from inlay.graph.planner.formats import Formats
from inlay.graph.planner.groups import group_operations
from inlay.graph.planner.problem import collect_operations
from inlay.graph.planning import Planner
from inlay.graph.profiling import Profile, StepTiming
from inlay.graph.program import Step
from inlay.graph.refinement import RefinedStep, Refinement, is_off
from inlay.graph.step_texts import StepTexts
from inlay.measure.processors import Processors
from inlay.primitives.engine import Operation

MOST_SLOWDOWN = 1.8
"""Multiple of its best time that the yardstick may take beside the network, so that times count."""


def refine_program(
    planned: PlannedProgram,
    planner: Planner,
    run_profile: Callable[[], Profile],
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[PlannedProgram, Refinement]:
    """Measure again what the profile of a planned program shows to be off, and plan again.

    Args:
        planned: a program of `planner`.
        planner: has the costs, which must be measured ones.
        run_profile: runs the program, and returns its profile.
        seconds: limit of the time for measuring; a minute if None.
        progress: receives the numbers of finished and of all planned kernels and reorders.

    Returns:
        The new program, or `planned` itself if nothing was measured; and the description of what changed.

    Raises:
        InvalidArguments: the costs are not measured; or the profile is of exact kernels, which are not planned.
    """
    with planner.hold_costs() as found:
        costs, name = require_measured(found), planned.graph.name
        if not costs.renew_limit(seconds, progress):
            return planned, Refinement(name, _describe_load(costs.processors))
        profile, slowdown = costs.run_beside_yardstick(run_profile)
        if profile is None or slowdown > MOST_SLOWDOWN:
            return planned, Refinement(name, _describe_disturbance(costs.processors, slowdown))
        _require_planned_kernels(profile)
        off = find_off(profile, slowdown)
        refinement = Refinement(
            name,
            count=len(profile),
            steps=tuple(RefinedStep(one.label, one.ms / slowdown, one.step.ms, None) for one in off),
            slowdown=slowdown,
            run_ms=profile.run.median / slowdown,
            before_ms=planned.ms,
            repriced_ms=planned.ms,
            after_ms=planned.ms,
        )
        remeasured = _measure_again(planned, costs, planner.options.convolutions, off)
        refinement = replace(refinement, candidates=remeasured.total, remeasured=remeasured.measured)
        if not remeasured.measured:
            reason = _describe_failure(costs.processors, remeasured.total) if off else ""
            return planned, replace(refinement, reason=reason)
        new = planner.plan_again(planned.graph, costs)
        new = replace(new, processors=costs.processors or planned.processors)
        return new, _compare(planned, new, costs, off, refinement)


def require_measured(costs: object) -> MeasuredCosts:
    """Return costs that are measured.

    Raises:
        InvalidArguments: they are not.
    """
    if isinstance(costs, MeasuredCosts):
        return costs
    name = getattr(costs, "name", None) or "unknown"
    raise InvalidArguments(
        f"the costs of the plan are {name}, and only measured ones can be refined: plan with costs='measured'"
    )


def find_off(profile: Profile, slowdown: float = 1.0) -> tuple[StepTiming, ...]:
    """Return the steps whose times are off by the rule above, the largest differences first."""

    def difference(one: StepTiming) -> float:
        """Return the milliseconds by which the measured time exceeds the prediction."""
        return one.ms / slowdown - (one.predicted or 0.0)

    def is_surely_off(one: StepTiming) -> bool:
        """Return whether the median is off, and the middle half of the runs on the same side."""
        near = one.time.low if difference(one) > 0 else one.time.high
        return one.predicted is not None and all(is_off(ms / slowdown, one.predicted) for ms in (one.ms, near))

    return tuple(sorted(filter(is_surely_off, profile), key=lambda one: -abs(difference(one))))


def collect_candidates(
    planned: PlannedProgram, costs: MeasuredCosts, convolutions: Convolutions, off: Sequence[StepTiming]
) -> Iterator[Operation]:
    """Yield the operations of all candidates of the groups of these steps, in the order of `off`."""
    graph, cost_cache = planned.graph, CostCache(costs, Formats(), convolutions)
    groups = {name: group for group in group_operations(graph) for names in group.names for name in names}
    wanted = {id(group): group for one in off for name in one.step.ops if (group := groups.get(name)) is not None}
    timed = [group for group in wanted.values() if group.kind != "reference"]
    return collect_operations(graph, timed, domains(graph, cost_cache, costs.isa), cost_cache)


def price_step(costs: MeasuredCosts, step: Step) -> float | None:
    """Return the milliseconds of a step by these costs; None for what they do not measure, as NumPy's operators."""
    if step.operation is None or step.impl == "reference":
        return None
    if step.kind == "reorder":
        return costs.reorder(step.operation.descs["src"], step.operation.descs["dst"])
    kernel = costs.kernel(step.operation)
    return None if kernel is None else kernel.ms


def _require_planned_kernels(profile: Profile) -> None:
    """Check that a profile is of the kernels of a plan.

    Raises:
        InvalidArguments: it is of exact kernels.
    """
    if profile.is_exact:
        raise InvalidArguments(
            "these inputs lead to NaN, infinities or numbers near the largest, so exact kernels ran, which are not "
            "planned: give inputs that the network is made for"
        )


def _measure_again(
    planned: PlannedProgram, costs: MeasuredCosts, convolutions: Convolutions, off: Sequence[StepTiming]
) -> RemeasuredCount:
    """Measure all candidates of the groups of these steps, and those that are reorders."""
    if not off:
        return RemeasuredCount(0, 0)
    reorders = [one.step.operation.descs for one in off if one.step.kind == "reorder" and one.step.operation]
    operations = collect_candidates(planned, costs, convolutions, off)
    return costs.remeasure(operations, [(descs["src"], descs["dst"]) for descs in reorders])


def _describe_load(processors: Processors | None) -> str:
    """Return the reason why measuring may not begin."""
    busy = "there is no time to measure" if processors is None else f"the machine is busy, {processors}"
    return f"{busy}: nothing is measured, and the plan is as before"


def _describe_disturbance(processors: Processors | None, slowdown: float) -> str:
    """Return the reason why the times of a run do not count."""
    if processors is not None and processors.is_busy:
        return _describe_load(processors)
    cause = "other programs took processors from the run"
    if slowdown > MOST_SLOWDOWN:
        cause = f"the processor takes {slowdown:.1f} times its best time"
    return f"{cause}: nothing is measured, and the plan is as before"


def _describe_failure(processors: Processors | None, candidates: int) -> str:
    """Return the reason why no candidate was measured again."""
    if not candidates:
        return "no kernel of the engine computes these steps, so nothing is measured alone; the plan is as before"
    if processors is not None and processors.is_busy:
        return _describe_load(processors)
    return (
        f"all {candidates} candidates were disturbed, or no time was left: nothing is stored, and the plan is as before"
    )


def _compare(
    before: PlannedProgram, new: PlannedProgram, costs: MeasuredCosts, off: Sequence[StepTiming], found: Refinement
) -> Refinement:
    """Return a refinement with the new times of the steps that were off, and the changes of the plan."""
    known, old = (set(map(_identity, plan.program.steps)) for plan in (new, before))
    steps = tuple(
        replace(row, again=price_step(costs, one.step), is_kept=_identity(one.step) in known)
        for row, one in zip(found.steps, off, strict=True)
    )
    prices = [price_step(costs, step) for step in before.program.steps]
    repriced = math.fsum(step.ms if ms is None else ms for step, ms in zip(before.program.steps, prices, strict=True))
    added = [step for step in new.program.steps if _identity(step) not in old]
    texts = StepTexts(new.program, new.graph)
    changes = tuple(f"{texts.label(step)} ({texts.formats(step)}, {step.impl})" for step in added)
    return replace(found, steps=steps, repriced_ms=repriced, after_ms=new.ms, changes=changes)


def _identity(step: Step) -> Hashable:
    """Return a key that is equal for steps of two plans of one graph that compute the same by the same kernel."""
    key = "" if step.operation is None else operation_key(step.operation)
    return step.name, step.ops, step.impl, key
