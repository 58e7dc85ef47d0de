"""What a plan says of itself: as text for people, as numbers for programs.

explained(plan)     each step with formats, implementation and time; each reorder with its reason and its worth;
                    what other ways to choose would take; memory; kernels far slower than they must be
figures(plan)       the same as lists, dicts, numbers and texts, for JSON
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inlay.errors import printable
from inlay.graph.plan import Cliff, Plan
from inlay.graph.program import Step
from inlay.graph.runtime.arena import laid


def explained(plan: Plan) -> str:
    """The plan in words and tables.

    Raises:
        InvalidArguments: its program is not sound.
    """
    parts = (_heading, _steps, _reorders, _totals, _notes, _cliffs, _memory)
    return "\n\n".join(filter(None, (part(plan) for part in parts)))


def figures(plan: Plan) -> dict[str, Any]:
    """The plan in lists, dicts, numbers and texts: `json.dumps` takes it. Times are in ms, sizes in bytes.

    Raises:
        InvalidArguments: its program is not sound.
    """
    arena = laid(plan.program, plan.graph.tensors).arena
    return {
        "network": plan.graph.name,
        **_fields(plan, "ms", "bound", "method", "width", "costs"),
        "sources": None if plan.sources is None else plan.sources.as_json(),
        **_fields(plan, "isa", "threads", "engine", "load"),
        "numpy": {"steps": plan.numpy.count, "share": plan.numpy.share},
        "totals": dict(plan.totals),
        "steps": [_step_figures(plan, step) for step in plan.program.steps],
        "reorders": [_reorder_figures(plan, step) for step in plan.reorders],
        "cliffs": [{**asdict(cliff), "plans": list(cliff.plans)} for cliff in plan.cliffs],
        "arena": _fields(arena, "nbytes", "unshared", "needed"),
        "constants": _constants(plan),
    }


def _step_figures(plan: Plan, step: Step) -> dict[str, Any]:
    def used(names: Mapping[str, str]) -> dict[str, Any]:
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
    src, dst = step.reads["src"], step.writes["dst"]
    return {
        "tensor": plan.program.buffers[src].tensor,
        "from": _format(plan, src),
        "to": _format(plan, dst),
        **_fields(step, "nbytes", "ms", "why", "without"),
    }


def _fields(value: object, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _format(plan: Plan, name: str) -> str:
    """The tag of a buffer's format; `strided` where there is none, `array` where only NumPy reads it."""
    desc = plan.program.buffers[name].desc
    return "array" if desc is None else desc.tag or "strided"


def _constants(plan: Plan) -> int:
    """Bytes of all constants, each array once."""
    arrays = {id(array): array for step in plan.program.steps for array in step.constants.values()}
    return sum(array.nbytes for array in arrays.values())


def heading(plan: Plan) -> tuple[str, str]:
    """The network with its time and size, and a line on where its numbers come from."""
    steps, reorders = len(plan.program.steps), len(plan.reorders)
    of = f" of {plan.engine}" if plan.engine else ""
    return (
        f"{plan.graph.name}: {_ms(plan.ms)} predicted, {_counted(steps, 'step')}, {_counted(reorders, 'reorder')}",
        f"{plan.costs} costs{of}, {plan.isa}, {_counted(plan.threads, 'thread')}",
    )


def _heading(plan: Plan) -> str:
    return _lines(
        (
            *heading(plan),
            *_sources(plan),
            f"of all ways to choose among the same kernels {_proof(plan)}: {plan.method}, width {plan.width}",
            *([str(plan.numpy)] if plan.numpy.count else []),
            *([plan.load] if plan.load else []),
        )
    )


def _proof(plan: Plan) -> str:
    """What is known of the least that any choice takes."""
    if plan.ms <= plan.bound * (1 + 1e-9):
        return "this is the least"
    if plan.method == "elimination":
        return f"the least is {_ms(plan.bound)}"
    found = (
        "this is the greedy one, as no better one was found in time"
        if plan.method == "greedy"
        else "this is the best that was found"
    )
    return f"{found}, and none takes less than {_ms(plan.bound)}"


_NAMED = 6  # steps with estimated times that are named


def _sources(plan: Plan) -> Iterator[str]:
    """How many costs were measured, and which steps have estimated ones although others were measured."""
    if plan.sources is None:
        return
    yield f"costs of {plan.sources}"
    estimated = [" + ".join(step.ops) or step.name for step in plan.program.steps if step.source != "measured"]
    if estimated and plan.costs == "measured":
        more = len(estimated) - _NAMED
        rest = f" and {more} more" if more > 0 else ""
        yield f"estimated is the time of {', '.join(estimated[:_NAMED])}{rest}"


def _steps(plan: Plan) -> str:
    rows = [("step", "what", "formats", "computed by", "ms")]
    for step in plan.program.steps:
        name = " + ".join(step.ops) or step.name
        rows.append((name, step.kind, _formats(plan, step), step.impl, f"{step.ms:.3f}"))
    return "\n".join(filter(None, (_table(rows, right=(4,)), _free(plan))))


def _free(plan: Plan) -> str:
    """What takes no step of its own, or no memory."""
    done = {name for step in plan.program.steps for name in step.ops}
    kinds = [op.kind for op in plan.graph.ops if op.name not in done]
    counts = {
        "concatenation without a copy": kinds.count("concat"),
        "view at no cost": kinds.count("view"),
        "sum in place": sum("sum" in step.reads for step in plan.program.steps),
    }
    return ", ".join(_counted(count, *what.split(" ", 1)) for what, count in counts.items() if count)


def _formats(plan: Plan, step: Step) -> str:
    """What is read and what is written, without constants."""
    reads, writes = ([_format(plan, name) for name in names.values()] for names in (step.reads, step.writes))
    return f"{', '.join(reads) or 'nothing'} -> {', '.join(writes)}"


def _reorders(plan: Plan) -> str:
    if not plan.reorders:
        return "no reorder"
    rows = [("reorder of", "from", "to", "MB", "ms", "why", "without it")]
    for step in plan.reorders:
        its = _reorder_figures(plan, step)
        worth = "-" if step.alternative is None else "no plan"
        worth = worth if step.without is None else f"{step.without:.3f} ms slower"
        rows.append(
            (its["tensor"], its["from"], its["to"], f"{step.nbytes / 1e6:.2f}", f"{step.ms:.3f}", step.why, worth)
        )
    total = sum(step.ms for step in plan.reorders)
    share = 100 * total / plan.ms if plan.ms else 0.0
    return f"{_table(rows, right=(3, 4))}\nreorders take {_ms(total)} in all, {share:.1f} %"


def _totals(plan: Plan) -> str:
    rows = [("all formats chosen as", "ms", "times"), ("this plan", f"{plan.ms:.3f}", "1.00")]
    for name, ms in plan.totals.items():
        rows.append((name, f"{ms:.3f}", f"{ms / plan.ms:.2f}" if plan.ms else "-"))
    return _table(rows, right=(1, 2))


def _notes(plan: Plan) -> str:
    """What no primitive computes."""
    steps = [step for step in plan.program.steps if step.kind == "reference" or step.impl == "reference"]
    return _lines(f"{step.name} is computed by NumPy: {step.why or 'no engine has it'}" for step in steps)


def _cliffs(plan: Plan) -> str:
    taken = [cliff for cliff in plan.cliffs if "plan" in cliff.plans]
    avoided = [cliff for cliff in plan.cliffs if "plan" not in cliff.plans]
    lines = [f"far slower than it must be, and no reorder helps: {_cliff(cliff)}" for cliff in taken]
    lines += [f"avoided: {_cliff(cliff)}, as in {', '.join(cliff.plans)}" for cliff in avoided]
    return _lines(lines)


def _cliff(cliff: Cliff) -> str:
    formats = ", ".join(f"{argument} {its}" for argument, its in cliff.formats.items())
    return f"{cliff.op} with {formats}: {cliff.impl}, {_ms(cliff.ms)} where {_ms(cliff.roofline)} could do"


def _memory(plan: Plan) -> str:
    return f"{laid(plan.program, plan.graph.tensors).arena}; constants {_constants(plan) / 1e6:.2f} MB"


def _ms(ms: float) -> str:
    return f"{ms:.3f} ms"


def _counted(count: int, word: str, rest: str = "") -> str:
    return f"{count} {word}{'s' * (count != 1)} {rest}".rstrip()


def _lines(lines: Iterable[str]) -> str:
    """Lines one below the other; a line end in a name makes no line of its own."""
    return "\n".join(map(printable, lines))


def _table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Rows as lines, columns under one another; those of `right` end together."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    ends = frozenset(right)

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if i in ends else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(map(line, rows))
