"""A plan and its profile as values for JSON, from which the page's script shows details, and which tests compare.

    {"version": 1, "network": "resnet50", "ms": 10.2, ..., "plans": [...], "steps": [...], "reorders": [...],
     "buffers": {...}, "measured": {...} or null}

docs/plan-page.md describes every entry. Times are in milliseconds, sizes in bytes, shares from 0 to 1.
"""

import math
from typing import Any, TypeAlias

from inlay.errors import InvalidArguments
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.profiling import Profile
from inlay.graph.program import Buffer, Step
from inlay.graph.step_texts import StepTexts
from inlay.graph.text_layout import count_text
from inlay.render.network.flow import step_title

VERSION = 1
"""Version of the records."""
THIS_PLAN = "this plan"
"""Name of the plan among those that it is compared with."""

Record: TypeAlias = dict[str, Any]
"""An object of JSON."""


def record_plan(plan: PlannedProgram, profile: Profile | None = None) -> Record:
    """Return the record of a plan; `measured` is None without a profile.

    Post-condition: the shares of all steps sum to 1, measured ones too, unless no time is known.

    Raises:
        InvalidArguments: the profile is of other steps than the plan has.
    """
    if profile is not None:
        require_same_steps(plan, profile)
    texts = StepTexts(plan.program, plan.graph)
    total = math.fsum(step.ms for step in plan.program.steps)
    steps = [_record_step(plan, texts, step, total) for step in plan.program.steps]
    if profile is not None:
        for record, timing in zip(steps, profile, strict=True):
            spread = {"ms": timing.ms, "low": timing.time.low, "high": timing.time.high}
            record["measured"] = {**spread, "share": timing.share, "impl": timing.impl}
    return {
        "version": VERSION,
        "network": plan.graph.name,
        "ms": plan.ms,
        "bound": plan.bound,
        "method": plan.method,
        "costs": plan.costs,
        "isa": plan.isa,
        "threads": plan.threads,
        "engine": plan.engine,
        "plans": _record_plans(plan),
        "steps": steps,
        "reorders": [_record_reorder(texts, i, step) for i, step in enumerate(plan.program.steps) if _is_reorder(step)],
        "buffers": {name: _record_buffer(plan, texts, buffer) for name, buffer in plan.program.buffers.items()},
        "measured": None if profile is None else _record_profile(profile),
    }


def require_same_steps(plan: PlannedProgram, profile: Profile) -> None:
    """Check that a profile is of the steps of a plan.

    Raises:
        InvalidArguments: it is not.
    """
    if profile.is_exact:
        raise InvalidArguments(
            "the profile is of exact kernels, which ran because its inputs lead to NaN, infinities or numbers near the "
            "largest, and not of the steps of the plan: profile other inputs"
        )
    names = [step.name for step in plan.program.steps]
    if [timing.step.name for timing in profile] != names:
        steps = count_text(len(profile), "step")
        raise InvalidArguments(
            f"the profile of {profile.network!r} has {steps}, and not the {len(names)} of the plan of "
            f"{plan.graph.name!r}: profile the session that plan.compile() returns"
        )


def _is_reorder(step: Step) -> bool:
    """Return whether a step is a reorder."""
    return step.kind == "reorder"


def _record_plans(plan: PlannedProgram) -> list[Record]:
    """Return name, time and ratio of this plan and of the compared ones."""
    totals = {THIS_PLAN: plan.ms, **plan.totals}
    return [{"name": name, "ms": ms, "ratio": ms / plan.ms if plan.ms else None} for name, ms in totals.items()]


def _record_step(plan: PlannedProgram, texts: StepTexts, step: Step, total: float) -> Record:
    """Return the record of a step, without measured times; `total` is the sum of all predicted ones."""
    return {
        "name": step.name,
        "label": texts.label(step),
        "title": step_title(plan, step),
        "kind": step.kind,
        "ops": list(step.ops),
        "impl": step.impl,
        "formats": texts.formats(step),
        "reads": dict(step.reads),
        "writes": dict(step.writes),
        "ms": step.ms,
        "share": step.ms / total if total else 0.0,
        "source": step.source,
        "nbytes": step.nbytes,
        "why": texts.reason(step) if _is_reorder(step) else step.why,
        "without": step.without,
        "has_alternative": step.alternative is not None,
        "measured": None,
    }


def _record_reorder(texts: StepTexts, index: int, step: Step) -> Record:
    """Return the record of a reorder; `step` is the index of its step."""
    return {
        "step": index,
        "tensor": texts.tensor(step),
        "from": texts.tag(step.reads["src"]),
        "to": texts.tag(step.writes["dst"]),
        "nbytes": step.nbytes,
        "ms": step.ms,
        "why": texts.reason(step),
        "without": step.without,
    }


def _record_buffer(plan: PlannedProgram, texts: StepTexts, buffer: Buffer) -> Record:
    """Return the record of a buffer: its tensor, and its descriptor as text."""
    tensor, desc = plan.graph.tensors[buffer.tensor], buffer.desc
    return {
        "tensor": buffer.tensor,
        "dims": [None if tensor.is_dynamic and not n else n for n in tensor.dims],
        "data_type": str(tensor.dtype),
        "format": texts.tag(buffer.name),
        "descriptor": None if desc is None else str(desc),
        "strides": None if desc is None or desc.kind != "blocked" else list(desc.strides),
        "size": None if desc is None else desc.size,
        "base": None if buffer.base == buffer.name else buffer.base,
    }


def _record_profile(profile: Profile) -> Record:
    """Return the record of a whole profile, without its steps."""
    return {
        "run": {"ms": profile.run.median, "low": profile.run.low, "high": profile.run.high},
        "steps_ms": profile.steps_ms,
        "runs": profile.runs,
        "threads": profile.threads,
        "engine": profile.engine,
    }
