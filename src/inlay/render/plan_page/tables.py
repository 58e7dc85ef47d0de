"""The parts of the page beside the graph as HTML: heading, time line, formats, tables of steps, reorders and plans.

Rows of tables carry the indices of their steps in `data-steps`, by which the script leads to the graph. Cells with
numbers carry them in `data-value`, by which the script sorts.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from inlay.descriptor.queries import bytes_text
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.report import describe_proof, heading
from inlay.graph.step_groups import find_equal_steps, step_keys
from inlay.graph.text_layout import count_text, merge_names, ms_text, share_text
from inlay.render.network.flow import ROW_MAJOR, Flow
from inlay.render.plan_page.graph import MEASURED, PREDICTED
from inlay.render.plan_page.markup import add
from inlay.render.plan_page.records import THIS_PLAN, Record
from inlay.render.svg import px

_WIDTH = 1000.0
"""Width of the time line in its own units."""
_BAR = 120.0
"""Width of the longest bar of a table, in pixels."""


def heading_element(plan: PlannedProgram, record: Record) -> Element:
    """Return the heading: the network and its time, the origin of the costs, the proof, and the measured time."""
    first, second = heading(plan)
    header = Element("div", {"class": "heading"})
    add(header, "h1", first)
    add(header, "p", f"{second}; {describe_proof(plan)}")
    measured = record["measured"]
    if measured is not None:
        run = measured["run"]
        spread = f"{ms_text(run['ms'])} ({run['low']:.3f} to {run['high']:.3f})"
        add(header, "p", f"measured: a run takes {spread}, median and quartiles of {count_text(measured['runs'], 'run')}")
    return header


def time_line(record: Record) -> Element:
    """Return a bar in which each step has a part as long as its share of the time, in the order of the run."""
    svg = Element("svg", {"id": "time-line", "viewBox": f"0 0 {px(_WIDTH)} 20", "preserveAspectRatio": "none"})
    svg.set("aria-hidden", "true")
    for kind in times_of(record):
        group, x = add(svg, "g", class_=kind), 0.0
        for i, step in enumerate(record["steps"]):
            width = _WIDTH * times(step, kind)["share"]
            shape = {"reorder": "reorder", "reference": "reference"}.get(step["kind"], "odd" if i % 2 else "even")
            add(group, "rect", class_=shape, x=px(x), y="0", width=f"{width:.3f}", height="20", data_step=i)
            x += width
    return svg


def times_of(record: Record) -> tuple[str, ...]:
    """Return the kinds of times that a record has."""
    return (PREDICTED, MEASURED) if record["measured"] else (PREDICTED,)


def times(step: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return time and share of a step's record, of one kind."""
    found: Mapping[str, Any] = step["measured"] if kind == MEASURED else step
    return found


def format_legend(flow: Flow, record: Record, colors: Mapping[str, str]) -> Element:
    """Return the list of formats with their colors, the names that they have in roles of axes, and their counts."""
    names: dict[str, set[str]] = {}
    for wire in flow.wires:
        names.setdefault(wire.format, set()).add(record["buffers"][wire.buffer]["format"])
    legend = Element("ul", {"class": "legend", "aria-label": "Formats"})
    for name, count in flow.formats.items():
        item = add(legend, "li")
        swatch = add(item, "svg", class_="swatch", viewBox="0 0 22 10", width=22, height=10, aria_hidden="true")
        add(swatch, "path", d="M0 5h22", stroke=colors[name], stroke_width=4)
        familiar = ", ".join(sorted(names[name] - {"strided", "array"}))
        text = "row-major" if name == ROW_MAJOR else name
        add(item, "span", f"{familiar or text} \N{MIDDLE DOT} {count_text(count, 'tensor')}")
    for kind, text in (("diamond", "reorder"), ("line", "no copy")):
        item = add(legend, "li")
        swatch = add(item, "svg", class_="swatch", viewBox="0 0 22 10", width=22, height=10, aria_hidden="true")
        add(swatch, "path", d="M0 5L11 0L22 5L11 10Z" if kind == "diamond" else "M0 3h22v4h-22Z", fill="currentColor")
        add(item, "span", text)
    return legend


def steps_table(plan: PlannedProgram, record: Record) -> Element:
    """Return the table of steps, equal ones as one row, the largest share of the time first."""
    rows = []
    for steps in find_equal_steps(step_keys(plan.program)):
        records = [record["steps"][i] for i in steps]
        cells: list[Any] = []
        for kind in times_of(record):
            share = math.fsum(times(one, kind)["share"] for one in records)
            ms = math.fsum(times(one, kind)["ms"] for one in records)
            cells += [(share_text(share), share), (f"{ms:.3f}", ms)]
        first = records[0]
        label = merge_names([one["label"] for one in records])
        cells += [(str(len(steps)), len(steps)), label, first["title"], first["formats"], first["impl"] or "-"]
        rows.append((steps, cells))
    rows.sort(key=lambda row: -row[1][-7][1])  # the time of the last kind
    heads = [text for kind in times_of(record) for text in (f"share, {kind}", f"ms, {kind}")]
    table = _table("Steps", [*heads, "count", "step", "computes", "formats", "kernel"], rows)
    return table


def reorders_table(record: Record) -> Element:
    """Return the table of all reorders in the order of the run, each with bytes, time and reason."""
    if not record["reorders"]:
        return _note("The plan has no reorder: every tensor is read in the format in which it is written.")
    rows = []
    for reorder in record["reorders"]:
        step = record["steps"][reorder["step"]]
        cells: list[Any] = [reorder["tensor"], reorder["from"], reorder["to"]]
        cells.append((bytes_text(reorder["nbytes"]), reorder["nbytes"]))
        cells += [(f"{times(step, kind)['ms']:.3f}", times(step, kind)["ms"]) for kind in times_of(record)]
        cells += [reorder["why"] or "-", _describe_without(step)]
        rows.append(((reorder["step"],), cells))
    heads = [f"ms, {kind}" for kind in times_of(record)]
    return _table("Reorders", ["tensor", "from", "to", "bytes", *heads, "why", "without it"], rows)


def _describe_without(step: Mapping[str, Any]) -> str | tuple[str, float]:
    """Return what the best plan without a reorder would add."""
    if not step["has_alternative"]:
        return "-"
    ms = step["without"]
    return "no plan" if ms is None else (f"+{ms_text(ms)}", ms)


def plans_table(record: Record) -> Element:
    """Return the table of this plan and those that it is compared with, by their predicted times."""
    if len(record["plans"]) < 2:
        return _note("The plan was not compared with others: it has the formats of a plan for other dims.")
    section = Element("div")
    most = max(one["ms"] for one in record["plans"])
    rows = []
    for one in record["plans"]:
        ratio = "-" if one["ratio"] is None else f"{one['ratio']:.2f}"
        rows.append(((), [one["name"], (f"{one['ms']:.3f}", one["ms"]), (ratio, one["ratio"] or 0.0), ""]))
    table = _table("Plans", ["plan", "ms, predicted", "ratio", ""], rows)
    for row, one in zip(table.iter("tr"), ({}, *record["plans"]), strict=True):
        if one:
            cell = row[-1]
            width = max(1.0, _BAR * one["ms"] / most) if most else 0.0
            svg = add(cell, "svg", class_="amount", width=px(_BAR), height=12, aria_hidden="true")
            kind = "own" if one["name"] == THIS_PLAN else None
            add(svg, "rect", class_=kind, width=px(width), height=12, rx=2)
    section.append(table)
    section.append(_plan_notes(record))
    return section


_PLAN_NOTES = {
    "plain": "every tensor is row-major",
    "greedy": "formats are propagated from step to step, as oneDNN's guide describes",
    "direct": "the best plan whose convolutions are all direct, without Winograd's algorithm",
    "channels last": "nhwc wherever a tensor may have it",
}


def _plan_notes(record: Record) -> Element:
    """Return the list of what each compared plan is."""
    notes = Element("dl", {"class": "notes"})
    for one in record["plans"]:
        text = _PLAN_NOTES.get(one["name"])
        if one["name"].startswith("blocked by"):
            text = f"channels in blocks of {one['name'].rpartition(' ')[2]} wherever a tensor may have them"
        if text is not None:
            add(notes, "dt", one["name"])
            add(notes, "dd", text)
    return notes


def _note(text: str) -> Element:
    """Return a paragraph in place of a table."""
    note = Element("p")
    note.text = text
    return note


def _table(caption: str, heads: Sequence[str], rows: Iterable[tuple[Sequence[int], Sequence[Any]]]) -> Element:
    """Return a table whose rows lead to steps; a cell is a text, or a text with the number by which it is sorted."""
    table = Element("table", {"id": f"{caption.lower()}-table"})
    add(table, "caption", caption)
    head = add(add(table, "thead"), "tr")
    for text in heads:
        cell = add(head, "th", scope="col")
        if text:
            add(cell, "button", text, type="button")
        else:
            cell.tag = "td"
    body = add(table, "tbody")
    for steps, cells in rows:
        row = add(body, "tr", data_steps=" ".join(map(str, steps)) or None)
        for i, cell in enumerate(cells):
            _add_cell(row, cell, is_link=bool(steps) and i == 0)
    return table


def _add_cell(row: Element, cell: str | tuple[str, float], *, is_link: bool) -> None:
    """Add a cell; the first one of a row that leads to steps is a button."""
    text, value = cell if isinstance(cell, tuple) else (cell, None)
    found = add(row, "td", class_=None if value is None else "number", data_value=None if value is None else f"{value!r}")
    if is_link:
        add(found, "button", text, type="button")
    else:
        found.text = text


def describe_facts(plan: PlannedProgram) -> Iterator[str]:
    """Yield sentences on what ONNX Runtime or NumPy computes, and on the load of the machine; none if none applies."""
    yield from (str(share) for share in (plan.fallback, plan.numpy) if share.count)
    if plan.load:
        yield plan.load
