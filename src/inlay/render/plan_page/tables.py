"""The parts of the page beside the graph as HTML: heading, time line, formats, tables of steps, reorders and plans.

Rows of tables carry the indices of their steps in `data-steps`, by which the script leads to the graph. Cells with
numbers carry them in `data-value`, by which the script sorts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from inlay.descriptor.queries import bytes_text
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.profiling.table import shorten_impl
from inlay.graph.report import describe_proof, heading
from inlay.graph.step_groups import find_equal_steps, step_keys
from inlay.graph.text_layout import count_text, merge_names, ms_text, share_text
from inlay.render.network.flow import ROW_MAJOR
from inlay.render.plan_page.folding import FoldedFlow
from inlay.render.plan_page.graph import MEASURED, PREDICTED, arrow_text
from inlay.render.plan_page.markup import add
from inlay.render.plan_page.records import THIS_PLAN, Record
from inlay.render.svg import px

_WIDTH = 1000.0
"""Width of the time line in its own units."""
_BAR = 120.0
"""Width of the longest bar of a table, in pixels."""
_MOST_RATIO = 4.0
"""Ratio to the time of this plan beyond which bars are broken off, so that the others can be compared."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table."""

    text: str = ""
    """Its text."""
    value: float | None = None
    """The number by which it is sorted; None for a text."""
    note: str = ""
    """A second line."""
    is_name: bool = False
    """True for names and sentences, which may be broken anywhere."""
    amount: float | None = None
    """Length of its bar, from 0 to 1; more than 1 for a bar that is drawn broken; None without a bar."""
    is_own: bool = False
    """True if its bar is that of this plan."""


def build_heading(plan: PlannedProgram, record: Record) -> Element:
    """Return the heading: the network and its time, the origin of the costs, the proof, and the measured time."""
    first, second = heading(plan)
    header = Element("div", {"class": "heading"})
    add(header, "h1", first)
    add(header, "p", f"{second}; {describe_proof(plan)}")
    measured = record["measured"]
    if measured is not None:
        run = measured["run"]
        spread = f"{ms_text(run['ms'])} ({run['low']:.3f} to {run['high']:.3f})"
        add(
            header,
            "p",
            f"measured: a run takes {spread}, median and quartiles of {count_text(measured['runs'], 'run')}",
        )
    return header


def draw_time_line(record: Record) -> Element:
    """Return a bar in which each step has a part as long as its share of the time, in the order of the run."""
    svg = Element("svg", {"id": "time-line", "viewBox": f"0 0 {px(_WIDTH)} 20", "preserveAspectRatio": "none"})
    svg.set("aria-hidden", "true")
    for kind in list_time_kinds(record):
        group, x = add(svg, "g", class_=kind), 0.0
        for i, step in enumerate(record["steps"]):
            width = _WIDTH * select_times(step, kind)["share"]
            shape = {"reorder": "reorder", "reference": "reference"}.get(step["kind"], "odd" if i % 2 else "even")
            add(group, "rect", class_=shape, x=px(x), y="0", width=f"{width:.3f}", height="20", data_step=i)
            x += width
    return svg


def list_time_kinds(record: Record) -> tuple[str, ...]:
    """Return the kinds of times that a record has."""
    return (PREDICTED, MEASURED) if record["measured"] else (PREDICTED,)


def select_times(step: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return time and share of a step's record, of one kind."""
    found: Mapping[str, Any] = step["measured"] if kind == MEASURED else step
    return found


def build_legend(folded: FoldedFlow, record: Record, colors: Mapping[str, str]) -> Element:
    """Return the list of formats with their colors, the names that they have in roles of axes, and their counts.

    The signs of the graph that occur in it follow.
    """
    flow = folded.flow
    names: dict[str, set[str]] = {}
    for wire in flow.wires:
        names.setdefault(wire.format, set()).add(record["buffers"][wire.buffer]["format"])
    legend = Element("ul", {"class": "legend", "aria-label": "Formats"})
    for name, count in flow.formats.items():
        item = add(legend, "li")
        swatch = add(item, "svg", class_="swatch", viewBox="0 0 22 10", width=22, height=10, aria_hidden="true")
        add(swatch, "path", d="M0 5h22", stroke=colors[name], stroke_width=4)
        familiar = ", ".join(sorted(one for one in names[name] if not one.endswith(("strided", "array"))))
        text = name.replace(ROW_MAJOR, "row-major")
        add(item, "span", f"{familiar or text} \N{MIDDLE DOT} {count_text(count, 'tensor')}")
    shapes = {mark.shape for mark in flow.marks} | ({"loop"} if folded.loops else set())
    for path, text in (_SIGNS[shape] for shape in _SIGNS if shape in shapes):
        item = add(legend, "li")
        swatch = add(item, "svg", class_="swatch", viewBox="0 0 22 10", width=22, height=10, aria_hidden="true")
        add(swatch, "path", d=path, fill="currentColor")
        add(item, "span", text)
    return legend


_SIGNS = {
    "reorder": ("M0 5L11 0L22 5L11 10Z", "reorder"),
    "view": ("M0 3h22v4h-22Z", "no copy"),
    "loop": ("M0 4h4v2h-4ZM6 4h4v2h-4ZM12 4h4v2h-4ZM18 4h4v2h-4Z", "to the next of a block"),
}
"""Signs of the graph by the shape of marks, and of loops, as paths with their meaning."""


def tabulate_steps(plan: PlannedProgram, record: Record) -> Element:
    """Return the table of steps, equal ones as one row, the largest share of the time first."""
    kinds = list_time_kinds(record)
    rows = [(steps, _make_step_cells(record, steps, kinds)) for steps in find_equal_steps(step_keys(plan.program))]
    rows.sort(key=lambda row: -(row[1][0].value or 0.0))
    heads = ["share", *_time_heads(kinds[::-1]), "count", "step", "formats"]
    return _make_table("Steps", heads, rows)


def _time_heads(kinds: Sequence[str]) -> list[str]:
    """Return the heads of columns of times of these kinds."""
    return [f"ms, {kind}" for kind in kinds] if len(kinds) > 1 else ["ms"]


def _make_step_cells(record: Record, steps: Sequence[int], kinds: Sequence[str]) -> list[TableCell]:
    """Return the cells of a row of equal steps; the share is that of the measured time where that is known."""
    records = [record["steps"][i] for i in steps]
    share = math.fsum(select_times(one, kinds[-1])["share"] for one in records)
    sums = [math.fsum(select_times(one, kind)["ms"] for one in records) for kind in reversed(kinds)]
    first, label = records[0], merge_names([one["label"] for one in records])
    impl = shorten_impl(select_times(first, kinds[-1])["impl"])
    return [
        TableCell(share_text(share), share),
        *(TableCell(f"{ms:.3f}", ms) for ms in sums),
        TableCell(str(len(steps)), len(steps)),
        TableCell(label, note=" \N{MIDDLE DOT} ".join(filter(None, (first["title"], impl))), is_name=True),
        TableCell(arrow_text(first["formats"])),
    ]


def tabulate_reorders(record: Record) -> Element:
    """Return the table of all reorders in the order of the run, each with bytes, time and reason."""
    if not record["reorders"]:
        return _make_note("The plan has no reorder: every tensor is read in the format in which it is written.")
    kinds = list_time_kinds(record)[::-1]
    rows = [((one["step"],), _make_reorder_cells(record, one, kinds)) for one in record["reorders"]]
    heads = ["reorder of", "formats", "bytes", *_time_heads(kinds), "without it"]
    return _make_table("Reorders", heads, rows)


def _make_reorder_cells(record: Record, reorder: Mapping[str, Any], kinds: Sequence[str]) -> list[TableCell]:
    """Return the cells of the row of a reorder."""
    step = record["steps"][reorder["step"]]
    return [
        TableCell(reorder["tensor"], note=reorder["why"], is_name=True),
        TableCell(arrow_text(step["formats"])),
        TableCell(bytes_text(reorder["nbytes"]), reorder["nbytes"]),
        *(TableCell(f"{select_times(step, kind)['ms']:.3f}", select_times(step, kind)["ms"]) for kind in kinds),
        _describe_without(step),
    ]


def _describe_without(step: Mapping[str, Any]) -> TableCell:
    """Return the cell with the time that the best plan without a reorder would add."""
    if not step["has_alternative"]:
        return TableCell("-")
    ms = step["without"]
    return TableCell("no plan", math.inf) if ms is None else TableCell(f"+{ms_text(ms)}", ms)


def tabulate_plans(record: Record) -> Element:
    """Return the table of this plan and those that it is compared with, by their predicted times."""
    if len(record["plans"]) < 2:
        return _make_note("The plan was not compared with others: it has the formats of a plan for other dims.")
    section = Element("div")
    most = min(max(one["ms"] for one in record["plans"]), _MOST_RATIO * record["ms"])
    rows = []
    for one in record["plans"]:
        ratio = "-" if one["ratio"] is None else f"{one['ratio']:.2f}"
        amount = one["ms"] / most if most else 0.0  # more than 1 for a plan far slower than this one
        cells = [
            TableCell(one["name"]),
            TableCell(f"{one['ms']:.3f}", one["ms"]),
            TableCell(ratio, one["ratio"] or 0.0),
        ]
        rows.append(((), [*cells, TableCell(amount=amount, is_own=one["name"] == THIS_PLAN)]))
    section.append(_make_table("Plans", ["plan", "ms", "ratio", ""], rows))
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


def _make_note(text: str) -> Element:
    """Return a paragraph in place of a table."""
    note = Element("p")
    note.text = text
    return note


def _make_table(
    caption: str, heads: Sequence[str], rows: Sequence[tuple[Sequence[int], Sequence[TableCell]]]
) -> Element:
    """Return a table of rows, each with the steps to which it leads."""
    table = Element("table", {"id": f"{caption.lower()}-table"})
    add(table, "caption", caption)
    head = add(add(table, "thead"), "tr")
    for i, text in enumerate(heads):
        is_number = any(cells[i].value is not None for _, cells in rows)
        if text:
            column = add(head, "th", scope="col", class_="number" if is_number else None)
            add(column, "button", text, type="button")
        else:
            add(head, "td")
    body = add(table, "tbody")
    for steps, cells in rows:
        row = add(body, "tr", data_steps=" ".join(map(str, steps)) or None)
        for i, cell in enumerate(cells):
            _add_cell(row, cell, is_link=bool(steps) and i == 0)
    return table


def _add_cell(row: Element, cell: TableCell, *, is_link: bool) -> None:
    """Add a cell; the first one of a row that leads to steps is a button."""
    style = "number" if cell.value is not None else "name" if cell.is_name else None
    found = add(row, "td", class_=style, data_value=cell.value)
    if is_link:
        add(found, "button", cell.text, type="button")
    else:
        found.text = cell.text
    if cell.note:
        add(found, "small", cell.note)
    if cell.amount is not None:
        svg = add(found, "svg", class_="amount", width=px(_BAR), height=12, aria_hidden="true")
        width = px(max(1.0, _BAR * min(cell.amount, 1.0)))
        add(svg, "rect", class_="own" if cell.is_own else None, width=width, height=12, rx=2)
        if cell.amount > 1.0:
            add(svg, "path", class_="break", d=f"M{px(_BAR - 14)} 13l6 -14M{px(_BAR - 9)} 13l6 -14")


def describe_facts(plan: PlannedProgram) -> Iterator[str]:
    """Yield sentences on what ONNX Runtime or NumPy computes, and on the load of the machine; none if none applies."""
    yield from (str(share) for share in (plan.fallback, plan.numpy) if share.count)
    if plan.load:
        yield plan.load
