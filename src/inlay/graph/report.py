"""The report of a plan: `explain_plan` returns it as text of 80 columns, `figures` as values for JSON.

The text has a summary; the steps that take most of the time, equal ones as one row; blocks of steps that are repeated;
the reorders with their reasons and what the best plan without each would cost; the totals of compared plans; what ONNX
Runtime and NumPy compute; cliffs; the memory. With `every_step` it lists all steps.

    familiar tags     nchw, nhwc, nChw16c, where the axes have these roles (see `axis_roles`); abcd, ba elsewhere
    types             bf16 nhwc, u8 nhwc; a tag alone is of f32
    one format        a step whose arguments all have the same format
    kernel            name of the implementation, without its instruction set, as avx512_core, if that begins the plan's
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inlay.descriptor.queries import bytes_text
from inlay.graph.axis_roles import familiar_tag
from inlay.graph.network import Subgraph
from inlay.graph.planned_program import ADAPTED, Cliff, PlannedProgram
from inlay.graph.program import Step
from inlay.graph.runtime.arena import plan_memory
from inlay.graph.step_groups import StepGroup, find_equal_steps, group_steps, step_keys
from inlay.graph.step_texts import StepTexts, format_of_buffer, type_of_buffer
from inlay.graph.text_layout import (
    COLUMNS,
    count_text,
    format_table,
    merge_names,
    ms_text,
    share_text,
    shorten_middle,
    wrap_text,
)

MOST_ROWS = 10
"""Rows of the steps that take most of the time."""
_MOST_NAMED = 6  # steps with estimated times, or nodes of a step, that are named
_MOST_NAME = 40  # columns of a name within a sentence
_NO_GAIN = f"+{ms_text(0)}"
_LEAST_SHARE = 0.05  # share of the time from which on a repeated block is listed
_STEP_WIDTHS = {3: 23, 4: 18, 5: 12}  # of name, format and kernel, in columns


def explain_plan(plan: PlannedProgram, *, every_step: bool = False) -> str:
    """Return the plan as text in which no line has more than 80 columns; with `every_step` it lists all steps.

    Raises:
        InvalidArguments: its program is not valid.
    """
    report = _Report.of(plan)
    parts = (
        _summary,
        _all_steps if every_step else _longest_steps,
        _repeated_blocks,
        _reorders,
        _totals,
        _fallback_notes,
        _numpy_notes,
        _cliffs,
        _memory,
    )
    return "\n\n".join(filter(None, (part(report) for part in parts)))


def figures(plan: PlannedProgram) -> dict[str, Any]:
    """Return the plan as lists, dicts, numbers and texts, which `json.dumps` accepts. Times are in ms, sizes in bytes.

    `blocks` are the repeated blocks of steps: index of the first step, steps in a block, and how often it occurs.

    Raises:
        InvalidArguments: its program is not valid.
    """
    arena = plan_memory(plan.program, plan.graph.tensors).arena
    blocks = [group for group in group_steps(step_keys(plan.program)) if group.is_block]
    return {
        "network": plan.graph.name,
        **_fields(plan, "ms", "bound", "method", "width", "costs"),
        "sources": None if plan.sources is None else plan.sources.as_json(),
        **_fields(plan, "isa", "threads", "engine", "load", "precision"),
        "fallback": {"steps": plan.fallback.count, "share": plan.fallback.share},
        "numpy": {"steps": plan.numpy.count, "share": plan.numpy.share},
        "totals": dict(plan.totals),
        "steps": [_step_figures(plan, step) for step in plan.program.steps],
        "blocks": [asdict(group) for group in blocks],
        "reorders": [_reorder_figures(plan, step) for step in plan.reorders],
        "cliffs": [{**asdict(cliff), "plans": list(cliff.plans)} for cliff in plan.cliffs],
        "arena": _fields(arena, "nbytes", "unshared", "needed"),
        "constants": _constants(plan),
    }


def _step_figures(plan: PlannedProgram, step: Step) -> dict[str, Any]:
    """Return the figures of a step, by name."""

    def used(names: Mapping[str, str]) -> dict[str, Any]:
        """Return tensor, buffer, type and format of each argument."""
        return {
            argument: {
                "tensor": plan.program.buffers[name].tensor,
                "buffer": name,
                "format": format_of_buffer(plan.program, plan.graph, name),
                "data_type": type_of_buffer(plan.program, plan.graph, name),
            }
            for argument, name in names.items()
        }

    return {
        "name": step.name,
        "kind": step.kind,
        "ops": list(step.ops),
        "reads": used(step.reads),
        "writes": used(step.writes),
        **_fields(step, "impl", "ms", "source", "nbytes", "why", "without"),
    }


def _reorder_figures(plan: PlannedProgram, step: Step) -> dict[str, Any]:
    """Return the figures of a reorder, by name."""
    src, dst = step.reads["src"], step.writes["dst"]
    return {
        "tensor": plan.program.buffers[src].tensor,
        "from": format_of_buffer(plan.program, plan.graph, src),
        "to": format_of_buffer(plan.program, plan.graph, dst),
        "from_type": type_of_buffer(plan.program, plan.graph, src),
        "to_type": type_of_buffer(plan.program, plan.graph, dst),
        **_fields(step, "nbytes", "ms", "why", "without"),
    }


def _fields(value: object, *names: str) -> dict[str, Any]:
    """Return fields of an object, by name."""
    return {name: getattr(value, name) for name in names}


def _constants(plan: PlannedProgram) -> int:
    """Return the bytes of all constants, each array once."""
    arrays = {id(array): array for step in plan.program.steps for array in step.constants.values()}
    return sum(array.nbytes for array in arrays.values())


def heading(plan: PlannedProgram) -> tuple[str, str]:
    """Return two lines: the network with its time and size, and the origin of its costs with the precision, if any."""
    counts = count_text(len(plan.program.steps), "step"), count_text(len(plan.reorders), "reorder")
    size = f": {ms_text(plan.ms)} predicted, {', '.join(counts)}"
    of = f" of {plan.engine}" if plan.engine else ""
    precision = "" if plan.precision == "model" else f", precision {plan.precision}"
    origin = f"{plan.costs} costs{of}, {plan.isa}, {count_text(plan.threads, 'thread')}{precision}"
    return (shorten_middle(plan.graph.name, COLUMNS - len(size)) + size, shorten_middle(origin, COLUMNS))


@dataclass(frozen=True, slots=True)
class _Report:
    """A plan with what several parts of its report need."""

    plan: PlannedProgram
    """The plan."""
    texts: StepTexts
    """Labels and formats of the steps."""
    groups: tuple[StepGroup, ...]
    """The groups of the steps in order."""
    equal: tuple[tuple[int, ...], ...]
    """Indices of equal steps together."""

    @classmethod
    def of(cls, plan: PlannedProgram) -> "_Report":
        """Prepare the report of a plan."""
        keys = step_keys(plan.program)
        return cls(plan, StepTexts(plan.program, plan.graph), group_steps(keys), find_equal_steps(keys))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the program."""
        return self.plan.program.steps

    def share(self, ms: float) -> str:
        """Return a time as a share of the predicted time."""
        return share_text(ms / self.plan.ms if self.plan.ms else 0.0)

    def label_all(self, steps: Iterable[int]) -> str:
        """Return one label for several equal steps."""
        return merge_names([self.texts.label(self.steps[i]) for i in steps])

    def kernel(self, step: Step) -> str:
        """Return the name of the implementation, without its instruction set if that is the plan's or its base."""
        name, _, isa = step.impl.rpartition(":")
        return name if name and f"{self.plan.isa}_".upper().startswith(f"{isa}_".upper()) else step.impl


def _summary(report: _Report) -> str:
    """Return the first lines of the report: the heading, the origin of costs, and the proof."""
    plan = report.plan
    shares = (str(share) for share in (plan.fallback, plan.numpy) if share.count)
    lines = (
        *_describe_sources(plan),
        f"{describe_proof(plan)} ({plan.method}, width {plan.width})",
        *shares,
        *([plan.load] if plan.load else []),
    )
    return "\n".join((*heading(plan), *_wrap_all(lines)))


def describe_proof(plan: PlannedProgram) -> str:
    """Return a clause on the lower bound of any plan."""
    if plan.method == ADAPTED:
        return "the formats of a plan for other dims"
    if plan.ms <= plan.bound * (1 + 1e-9):
        return "optimal among all plans of the same kernels"
    if plan.method == "elimination":
        return f"the optimum of the same kernels is {ms_text(plan.bound)}"
    found = "the best plan that was found"
    if plan.method == "greedy":
        found = "the greedy plan, as no better one was found in time"
    return f"{found}; no plan of the same kernels takes less than {ms_text(plan.bound)}"


def _describe_sources(plan: PlannedProgram) -> Iterator[str]:
    """Yield the numbers of costs by origin, and the steps with estimated times among measured ones."""
    if plan.sources is None:
        return
    yield f"costs of {plan.sources}"
    estimated = [" + ".join(step.ops) or step.name for step in plan.program.steps if step.source != "measured"]
    if estimated and plan.costs == "measured":
        yield f"estimated times: {_list_names(estimated)}"


def _list_names(names: Sequence[str]) -> str:
    """Return the first names, each shortened, and the number of the others."""
    more = len(names) - _MOST_NAMED
    rest = f" and {more} more" if more > 0 else ""
    return ", ".join(shorten_middle(name, _MOST_NAME) for name in names[:_MOST_NAMED]) + rest


def _longest_steps(report: _Report) -> str:
    """Return the table of the steps that take most of the time; equal steps are one row."""
    sums = [sum(report.steps[i].ms for i in steps) for steps in report.equal]
    order = sorted(range(len(sums)), key=lambda row: (-sums[row], row))
    rows = [("share", "ms", "", "step", "format", "kernel")]
    for row in order[:MOST_ROWS]:
        indices = report.equal[row]
        step, count = report.steps[indices[0]], f"{len(indices)} x" if len(indices) > 1 else ""
        label, formats = report.label_all(indices), report.texts.formats(step)
        rows.append((report.share(sums[row]), f"{sums[row]:.3f}", count, label, formats, report.kernel(step)))
    rest = order[MOST_ROWS:]
    others = sum(len(report.equal[row]) for row in rest)
    ms = sum(sums[row] for row in rest)
    noun = "the other step takes" if others == 1 else f"the other {others} steps take"
    lines = [f"{noun} {ms_text(ms)}, {report.share(ms)} (inlay plan --all lists every step)"] if rest else []
    return "\n".join((format_table(rows, right=(0, 1, 2), shrink=_STEP_WIDTHS), *_wrap_all((*lines, *_free(report)))))


def _all_steps(report: _Report) -> str:
    """Return the table of all steps, with a line before the first step of each repeated block."""
    rows = [("step", "kind", "format", "kernel", "ms")]
    for step in report.steps:
        rows.append(
            (report.texts.label(step), step.kind, report.texts.formats(step), report.kernel(step), f"{step.ms:.3f}")
        )
    head, *lines = format_table(rows, right=(4,), shrink={0: 23, 1: 13, 2: 18, 3: 12}).split("\n")
    found = [head]
    for group in report.groups:
        if group.is_block:
            found.append(f"-- {group.count} x the same {group.length} steps:")
        for i in group.steps:
            if group.is_block and i != group.first and (i - group.first) % group.length == 0:
                found.append("--")
            found.append(lines[i])
        if group.is_block:
            found.append("-- end")
    return "\n".join((*found, *_wrap_all(_free(report))))


def _free(report: _Report) -> tuple[str, ...]:
    """Return a sentence with the numbers of operations that take no step of their own, or no memory, if any do."""
    plan = report.plan
    done = {name for step in plan.program.steps for name in step.ops}
    kinds = [op.kind for op in plan.graph.ops if op.name not in done]
    counts = {
        ("concatenation", " without a copy"): kinds.count("concat"),
        ("view", " at no cost"): kinds.count("view"),
        ("sum", " in place"): sum("sum" in step.reads for step in plan.program.steps),
    }
    texts = [f"{count_text(count, noun)}{rest}" for (noun, rest), count in counts.items() if count]
    return (", ".join(texts),) if texts else ()


def _repeated_blocks(report: _Report) -> str:
    """Return the table of the repeated blocks that take much of the time."""
    times = [step.ms for step in report.steps]
    rows: list[tuple[str, ...]] = [("share", "ms", "repeated block", "from", "to")]
    for group in report.groups:
        ms = sum(group.sum_times(times))
        if group.is_block and ms >= _LEAST_SHARE * report.plan.ms:
            ends = (report.label_all(group.occurrences(position)) for position in (0, group.length - 1))
            rows.append((report.share(ms), f"{ms:.3f}", f"{group.count} x {group.length} steps", *ends))
    return format_table(rows, right=(0, 1), shrink={3: 24, 4: 24}) if len(rows) > 1 else ""


def _reorders(report: _Report) -> str:
    """Return the table of the reorders, equal ones as one row, each with its reason on the next line."""
    if not report.plan.reorders:
        return "no reorder"
    rows = [("ms", "bytes", "", "reorder of", "from", "to", "without it")]
    reasons = []
    for steps in _group_reorders(report):
        count = f"{len(steps)} x" if len(steps) > 1 else ""
        src, dst = report.texts.tag(steps[0].reads["src"]), report.texts.tag(steps[0].writes["dst"])
        ms, nbytes = sum(step.ms for step in steps), sum(step.nbytes for step in steps)
        tensor = merge_names([report.texts.tensor(step) for step in steps])
        rows.append((f"{ms:.3f}", bytes_text(nbytes), count, tensor, src, dst, _describe_without(steps)))
        reasons.append(merge_names([report.texts.reason(step) for step in steps]))
    head, *lines = format_table(rows, right=(0, 1, 2), shrink={3: 24, 4: 12, 5: 12, 6: 14}).split("\n")
    for line, reason in zip(lines, reasons, strict=True):
        head = "\n".join((head, line, *(wrap_text(reason, first=" " * 4, rest=" " * 4) if reason else ())))
    total = sum(step.ms for step in report.plan.reorders)
    notes = [f"reorders take {ms_text(total)} in all, {report.share(total)}"]
    if any(row[-1].startswith(_NO_GAIN) for row in rows):
        notes.append(f"{_NO_GAIN}: the best plan without it takes no longer, but has other reorders")
    return "\n".join((head, *_wrap_all(notes)))


def _group_reorders(report: _Report) -> Iterator[list[Step]]:
    """Yield equal reorders together; those without an `alternative`, such as copies, apart from the others."""
    for group in report.equal:
        reorders = [report.steps[i] for i in group if report.steps[i].kind == "reorder"]
        copies = [step for step in reorders if step.alternative is None]
        yield from filter(None, ([step for step in reorders if step.alternative is not None], copies))


def _describe_without(steps: Sequence[Step]) -> str:
    """Return what the best plans without these reorders would add to the time.

    It is `-` if no such plan was searched, as without `Step.alternative`.
    """
    if any(step.alternative is None for step in steps):
        return "-"
    known = sorted(ms for step in steps if (ms := step.without) is not None)
    if not known:
        return "no plan"
    least = "+<0.001 ms" if 0 < known[0] < 0.001 else f"+{ms_text(known[0])}"
    return least if known[-1] - known[0] < 0.001 else f"{least} or more"


def _totals(report: _Report) -> str:
    """Return the table of compared plans."""
    plan = report.plan
    rows = [("plan", "ms", "ratio"), ("this plan", f"{plan.ms:.3f}", "1.00")]
    for name, ms in plan.totals.items():
        rows.append((name, f"{ms:.3f}", f"{ms / plan.ms:.2f}" if plan.ms else "-"))
    return format_table(rows, right=(1, 2), shrink={0: _MOST_NAME})


def _fallback_notes(report: _Report) -> str:
    """Return a sentence for each sort of step that ONNX Runtime computes, with its nodes and the reason."""
    found: dict[str, list[str]] = {}
    for step in report.steps:
        if isinstance(step.node, Subgraph):
            found.setdefault(step.why, []).extend(node.name for node in step.node.nodes)
    return _notes("ONNX Runtime", found)


def _numpy_notes(report: _Report) -> str:
    """Return a sentence for each reason why NumPy computes steps, with their names."""
    found: dict[str, list[str]] = {}
    for step in report.steps:
        if step.impl == "reference" or (step.kind == "reference" and not isinstance(step.node, Subgraph)):
            found.setdefault(step.why or "no engine has it", []).append(step.name)
    return _notes("NumPy", found)


def _notes(computer: str, names: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence for each reason, a key of `names`, with the names of what `computer` computes."""
    return "\n".join(
        _wrap_all(
            f"{_list_names(those)} {'is' if len(those) == 1 else 'are'} computed by {computer}: {why}"
            for why, those in names.items()
        )
    )


def _cliffs(report: _Report) -> str:
    """Return a sentence for each cliff of this plan, and for each one of compared plans that it avoids."""
    taken, avoided = [], []
    equal: dict[object, list[Cliff]] = {}
    for cliff in report.plan.cliffs:
        equal.setdefault((tuple(cliff.formats.items()), cliff.impl, cliff.ms, cliff.plans), []).append(cliff)
    for cliffs in equal.values():
        text, plans = _describe_cliffs(report, cliffs), cliffs[0].plans
        if "plan" in plans:
            taken.append(f"cliff: {text}")
        else:
            avoided.append(f"cliff avoided: {text}, in {', '.join(plans)}")
    return "\n".join(_wrap_all((*taken, *avoided)))


def _describe_cliffs(report: _Report, cliffs: Sequence[Cliff]) -> str:
    """Describe equal steps whose kernel is far slower than its roofline."""
    cliff, count = cliffs[0], f"{len(cliffs)} x " if len(cliffs) > 1 else ""
    op, roles = report.texts.ops.get(cliff.op), report.texts.roles
    tensors = {} if op is None else {**op.reads, **op.writes}
    tags = {name: familiar_tag(tag, roles.get(tensors.get(name, ""))) for name, tag in cliff.formats.items()}
    formats = ", ".join(f"{argument} {tag}" for argument, tag in tags.items())
    name = shorten_middle(merge_names([one.op for one in cliffs]), _MOST_NAME)
    return f"{count}{name} with {formats}: {cliff.impl} takes {ms_text(cliff.ms)}, roofline {ms_text(cliff.roofline)}"


def _memory(report: _Report) -> str:
    """Describe the memory of a plan."""
    plan = report.plan
    arena = plan_memory(plan.program, plan.graph.tensors).arena
    return "\n".join(_wrap_all((str(arena), f"constants {_constants(plan) / 1e6:.2f} MB")))


def _wrap_all(lines: Iterable[str]) -> list[str]:
    """Return lines of at most 80 columns; a line break within a text is escaped."""
    return [line for text in lines for line in wrap_text(text)]
