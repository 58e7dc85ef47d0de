"""The report of a plan: `explain_plan` returns it as text, `figures` as values for JSON.

It has a table of the steps with formats, implementations and times; a table of the reorders with their reasons and what
the best plan without each would cost; the totals of compared plans; the memory; and cliffs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inlay.errors import printable
from inlay.graph.network import Subgraph
from inlay.graph.plan import Cliff, Plan
from inlay.graph.planned_program import ADAPTED
from inlay.graph.program import Step
from inlay.graph.runtime.arena import plan_memory


def explain_plan(plan: Plan) -> str:
    """Return the plan as text with tables.

    Raises:
        InvalidArguments: its program is not valid.
    """
    parts = (_heading, _steps, _reorders, _totals, _fallback_notes, _numpy_notes, _cliffs, _memory)
    return "\n\n".join(filter(None, (part(plan) for part in parts)))


def figures(plan: Plan) -> dict[str, Any]:
    """Return the plan as lists, dicts, numbers and texts, which `json.dumps` accepts. Times are in ms, sizes in bytes.

    Raises:
        InvalidArguments: its program is not valid.
    """
    arena = plan_memory(plan.program, plan.graph.tensors).arena
    return {
        "network": plan.graph.name,
        **_fields(plan, "ms", "bound", "method", "width", "costs"),
        "sources": None if plan.sources is None else plan.sources.as_json(),
        **_fields(plan, "isa", "threads", "engine", "load"),
        "fallback": {"steps": plan.fallback.count, "share": plan.fallback.share},
        "numpy": {"steps": plan.numpy.count, "share": plan.numpy.share},
        "totals": dict(plan.totals),
        "steps": [_step_figures(plan, step) for step in plan.program.steps],
        "reorders": [_reorder_figures(plan, step) for step in plan.reorders],
        "cliffs": [{**asdict(cliff), "plans": list(cliff.plans)} for cliff in plan.cliffs],
        "arena": _fields(arena, "nbytes", "unshared", "needed"),
        "constants": _constants(plan),
    }


def _step_figures(plan: Plan, step: Step) -> dict[str, Any]:
    """Return the figures of a step, by name."""

    def used(names: Mapping[str, str]) -> dict[str, Any]:
        """Return tensor, buffer and format of each argument."""
        return {
            argument: {"tensor": plan.program.buffers[name].tensor, "buffer": name, "format": _format(plan, name)}
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


def _reorder_figures(plan: Plan, step: Step) -> dict[str, Any]:
    """Return the figures of a reorder, by name."""
    src, dst = step.reads["src"], step.writes["dst"]
    return {
        "tensor": plan.program.buffers[src].tensor,
        "from": _format(plan, src),
        "to": _format(plan, dst),
        **_fields(step, "nbytes", "ms", "why", "without"),
    }


def _fields(value: object, *names: str) -> dict[str, Any]:
    """Return fields of an object, by name."""
    return {name: getattr(value, name) for name in names}


def _format(plan: Plan, name: str) -> str:
    """Return the tag of a buffer's format; `strided` where it has none.

    It is `array` for an array without a descriptor, and for one whose dims depend on the data of a run.
    """
    buffer = plan.program.buffers[name]
    if buffer.desc is None or plan.graph.tensors[buffer.tensor].is_dynamic:
        return "array"
    return buffer.desc.tag or "strided"


def _constants(plan: Plan) -> int:
    """Return the bytes of all constants, each array once."""
    arrays = {id(array): array for step in plan.program.steps for array in step.constants.values()}
    return sum(array.nbytes for array in arrays.values())


def heading(plan: Plan) -> tuple[str, str]:
    """Return two lines: the network with its time and size, and the origin of its costs."""
    steps, reorders = len(plan.program.steps), len(plan.reorders)
    of = f" of {plan.engine}" if plan.engine else ""
    return (
        f"{plan.graph.name}: {_ms(plan.ms)} predicted, {_count(steps, 'step')}, {_count(reorders, 'reorder')}",
        f"{plan.costs} costs{of}, {plan.isa}, {_count(plan.threads, 'thread')}",
    )


def _heading(plan: Plan) -> str:
    """Return the first lines of the report: the heading, the origin of costs, and the proof."""
    return _lines(
        (
            *heading(plan),
            *_describe_sources(plan),
            f"{_describe_proof(plan)} ({plan.method}, width {plan.width})",
            *(str(share) for share in (plan.fallback, plan.numpy) if share.count),
            *([plan.load] if plan.load else []),
        )
    )


def _describe_proof(plan: Plan) -> str:
    """Return a clause on the lower bound of any plan."""
    if plan.method == ADAPTED:
        return "the formats of a plan for other dims"
    if plan.ms <= plan.bound * (1 + 1e-9):
        return "optimal among all plans of the same kernels"
    if plan.method == "elimination":
        return f"the optimum among all plans of the same kernels is {_ms(plan.bound)}"
    found = "the best plan that was found"
    if plan.method == "greedy":
        found = "the greedy plan, as no better one was found in time"
    return f"{found}; no plan of the same kernels takes less than {_ms(plan.bound)}"


_MOST_NAMED = 6  # steps with estimated times that are named


def _describe_sources(plan: Plan) -> Iterator[str]:
    """Yield the numbers of costs by origin, and the steps with estimated times among measured ones."""
    if plan.sources is None:
        return
    yield f"costs of {plan.sources}"
    estimated = [" + ".join(step.ops) or step.name for step in plan.program.steps if step.source != "measured"]
    if estimated and plan.costs == "measured":
        more = len(estimated) - _MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        yield f"estimated times: {', '.join(estimated[:_MOST_NAMED])}{rest}"


def _steps(plan: Plan) -> str:
    """Return the table of the steps."""
    rows = [("step", "kind", "formats", "implementation", "ms")]
    for step in plan.program.steps:
        name = " + ".join(step.ops) or step.name
        rows.append((name, step.kind, _formats(plan, step), step.impl, f"{step.ms:.3f}"))
    return "\n".join(filter(None, (_table(rows, right=(4,)), _list_free_operations(plan))))


def _list_free_operations(plan: Plan) -> str:
    """Return a line with the numbers of operations that take no step of their own, or no memory."""
    done = {name for step in plan.program.steps for name in step.ops}
    kinds = [op.kind for op in plan.graph.ops if op.name not in done]
    counts = {
        "concatenation without a copy": kinds.count("concat"),
        "view at no cost": kinds.count("view"),
        "sum in place": sum("sum" in step.reads for step in plan.program.steps),
    }
    return ", ".join(_count(count, *what.split(" ", 1)) for what, count in counts.items() if count)


def _formats(plan: Plan, step: Step) -> str:
    """Return the formats that are read and written, without those of constants."""
    reads, writes = ([_format(plan, name) for name in names.values()] for names in (step.reads, step.writes))
    return f"{', '.join(reads) or 'nothing'} -> {', '.join(writes)}"


def _reorders(plan: Plan) -> str:
    """Return the table of the reorders."""
    if not plan.reorders:
        return "no reorder"
    rows = [("reorder of", "from", "to", "MB", "ms", "reason", "without it")]
    for step in plan.reorders:
        figures = _reorder_figures(plan, step)
        # Without `alternative`, the best plan without the reorder was not searched.
        without = "-" if step.alternative is None else "no plan"
        if step.without is not None:
            without = f"{step.without:.3f} ms slower"
        formats = figures["tensor"], figures["from"], figures["to"]
        rows.append((*formats, f"{step.nbytes / 1e6:.2f}", f"{step.ms:.3f}", step.why, without))
    total = sum(step.ms for step in plan.reorders)
    share = 100 * total / plan.ms if plan.ms else 0.0
    return f"{_table(rows, right=(3, 4))}\nreorders take {_ms(total)} in all, {share:.1f} %"


def _totals(plan: Plan) -> str:
    """Return the table of compared plans."""
    rows = [("plan", "ms", "ratio"), ("this plan", f"{plan.ms:.3f}", "1.00")]
    for name, ms in plan.totals.items():
        rows.append((name, f"{ms:.3f}", f"{ms / plan.ms:.2f}" if plan.ms else "-"))
    return _table(rows, right=(1, 2))


def _fallback_notes(plan: Plan) -> str:
    """Return a line for each step that ONNX Runtime computes, with its nodes and the reason."""
    return _lines(
        f"{_name_nodes(step.node)} computed by ONNX Runtime: {step.why}"
        for step in plan.program.steps
        if isinstance(step.node, Subgraph)
    )


def _name_nodes(subgraph: Subgraph) -> str:
    """Return the names of the first nodes of a subgraph, and the verb."""
    names = [node.name for node in subgraph.nodes]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more} {'is' if len(names) == 1 else 'are'}"


def _numpy_notes(plan: Plan) -> str:
    """Return a line for each step that NumPy computes, with the reason."""
    steps = [
        step
        for step in plan.program.steps
        if step.impl == "reference" or (step.kind == "reference" and not isinstance(step.node, Subgraph))
    ]
    return _lines(f"{step.name} is computed by NumPy: {step.why or 'no engine has it'}" for step in steps)


def _cliffs(plan: Plan) -> str:
    """Return a line for each cliff of this plan, and for each one of compared plans that it avoids."""
    taken = [cliff for cliff in plan.cliffs if "plan" in cliff.plans]
    avoided = [cliff for cliff in plan.cliffs if "plan" not in cliff.plans]
    lines = [f"cliff: {_describe_cliff(cliff)}" for cliff in taken]
    lines += [f"cliff avoided: {_describe_cliff(cliff)}, in {', '.join(cliff.plans)}" for cliff in avoided]
    return _lines(lines)


def _describe_cliff(cliff: Cliff) -> str:
    """Describe a step whose kernel is far slower than its roofline."""
    formats = ", ".join(f"{argument} {tag}" for argument, tag in cliff.formats.items())
    return f"{cliff.op} with {formats}: {cliff.impl} takes {_ms(cliff.ms)}, roofline {_ms(cliff.roofline)}"


def _memory(plan: Plan) -> str:
    """Describe the memory of a plan."""
    return f"{plan_memory(plan.program, plan.graph.tensors).arena}; constants {_constants(plan) / 1e6:.2f} MB"


def _ms(ms: float) -> str:
    """Return a time in milliseconds as text."""
    return f"{ms:.3f} ms"


def _count(count: int, word: str, rest: str = "") -> str:
    """Return a count with its noun, in the plural if it is not 1."""
    return f"{count} {word}{'s' * (count != 1)} {rest}".rstrip()


def _lines(lines: Iterable[str]) -> str:
    """Join lines; a line break within one is escaped."""
    return "\n".join(map(printable, lines))


def _table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Return rows as lines with aligned columns; the columns of `right` are right-aligned."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    ends = frozenset(right)

    def line(row: Sequence[str]) -> str:
        """Return a row of the table as a line."""
        cells = [
            cell.rjust(width) if i in ends else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))
