"""The graph of a plan as SVG: segments from top to bottom, each block in both of its forms.

A step is a box with its share of the time, also as the length of a bar behind its text. A reorder is a diamond in the
colors of its formats, with its time and bytes. A thin line is a view, or a concatenation without a copy. A block has a
frame, whose heading folds and unfolds it.

The style shows one form of a block, and predicted or measured times. The script adds no element: it moves segments when
a block changes its form, and marks what is selected. `data-marks` and `data-wires` are indices of `Flow.marks` and
`Flow.wires`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from inlay.descriptor.queries import bytes_text
from inlay.graph.text_layout import count_text, merge_names, ms_text, share_text
from inlay.render.network.drawing import format_colors, shorten_end, shorten_start
from inlay.render.network.flow import Mark
from inlay.render.network.placing import EM, ItemBounds
from inlay.render.plan_page.folding import FoldedFlow, Segment
from inlay.render.plan_page.markup import add
from inlay.render.plan_page.positions import FRAME_BOTTOM, FRAME_TOP, GraphPositions, SegmentForm
from inlay.render.plan_page.records import Record
from inlay.render.svg import px

PREDICTED, MEASURED = "predicted", "measured"
"""Classes of elements with times; the page shows those of one class."""
_PADDING = 9.0
_RADIUS = 5


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """The times of the steps of a node."""

    share: float
    """Sum of their shares of the time, from 0 to 1."""
    ms: float
    """Sum of their times in milliseconds."""


class GraphDrawing:
    """The SVG of a graph, and what all of its parts share."""

    def __init__(self, folded: FoldedFlow, positions: GraphPositions, record: Record) -> None:
        """Compute the texts of marks; `record` is that of the plan."""
        self.folded, self.positions, self.record = folded, positions, record
        self.colors = format_colors(folded.flow.formats)
        marks = folded.flow.marks
        steps = iter(range(len(record["steps"])))
        self.step_of = {i: next(steps) for i, mark in enumerate(marks) if mark.ms is not None}
        self.kinds = (PREDICTED, MEASURED) if record["measured"] else (PREDICTED,)
        sums = [self.sum_times(node.marks, kind).share for node in folded.nodes for kind in self.kinds]
        self.longest = max(sums, default=0.0)

    def sum_times(self, marks: Iterable[int], kind: str) -> NodeTimes:
        """Return the sum of the times of marks, of one kind."""
        steps: list[Mapping[str, Any]] = [self.record["steps"][self.step_of[i]] for i in marks if i in self.step_of]
        values = [step["measured"] if kind == MEASURED else step for step in steps]
        return NodeTimes(sum(one["share"] for one in values), sum(one["ms"] for one in values))

    def draw(self) -> Element:
        """Return the `svg` element."""
        forms = [*self.positions.folded, *(form for form in self.positions.unfolded if form is not None)]
        left, right = min(form.left for form in forms), max(form.right for form in forms)
        height = sum(form.height for form in self.positions.folded)
        box = f"{px(left - 20)} -20 {px(right - left + 40)} {px(height + 40)}"
        name = f"Graph of {self.record['network']}"
        svg = Element("svg", {"id": "graph", "viewBox": box, "role": "group", "aria-label": name})
        camera, y = add(svg, "g", id="camera"), 0.0
        for number, segment in enumerate(self.folded.segments):
            style = "segment block" if segment.is_block else "segment"
            group = add(camera, "g", class_=style, transform=f"translate(0 {px(y)})")
            self._form(group, number, segment, self.positions.folded[number], "folded")
            unfolded = self.positions.unfolded[number]
            if unfolded is not None:
                self._form(group, number, segment, unfolded, "unfolded")
            y += self.positions.folded[number].height
        return svg

    def _form(self, parent: Element, number: int, segment: Segment, form: SegmentForm, kind: str) -> None:
        """Draw one form of a segment."""
        extent = {"data_height": px(form.height), "data_left": px(form.left), "data_right": px(form.right)}
        group = add(parent, "g", class_=f"form {kind}", **extent)
        if form.frame is not None:
            size = {"x": px(form.frame[0]), "width": px(form.frame[1] - form.frame[0])}
            height = form.height - FRAME_TOP - FRAME_BOTTOM
            add(group, "rect", class_="frame", rx=8, y=px(FRAME_TOP), height=px(height), **size)
        for wire in form.wires:
            style = "wire loop" if wire.is_loop else "wire"
            wires = " ".join(map(str, wire.wires))
            add(group, "path", class_=style, d=wire.path, stroke=self.colors[wire.format], data_wires=wires)
        if form.frame is not None:
            self._heading(group, number, segment, form, is_folded=kind == "folded")
        is_node = kind == "folded"
        for item, box in sorted(form.boxes.items()):
            self._node(group, self.folded.nodes[item].marks if is_node else (item,), box, f"{kind[0]}{item}")

    def _heading(self, group: Element, number: int, segment: Segment, form: SegmentForm, *, is_folded: bool) -> None:
        """Draw the heading of a block, a button that folds or unfolds it, and the numbers of its occurrences."""
        left, right = form.frame or (0.0, 0.0)
        marks = [mark for node in self.folded.nodes if node.segment == number for mark in node.marks]
        words = f"{segment.count} \N{MULTIPLICATION SIGN} {count_text(segment.length, 'step')}"
        shares = {kind: share_text(self.sum_times(marks, kind).share) for kind in self.kinds}
        state = "folded" if is_folded else "unfolded"
        label = f"{words}, {', '.join(f'{share} of the {kind} time' for kind, share in shares.items())}"
        button = {"role": "button", "tabindex": "-1", "aria_expanded": str(not is_folded).lower(), "aria_label": label}
        head = add(group, "g", class_="fold", id=f"{state}-{number}", data_segment=number, **button)
        size = {"x": px(left), "y": px(FRAME_TOP), "width": px(right - left), "height": "24"}
        add(head, "rect", class_="head", rx=8, **size)
        sign = "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}" if is_folded else "\N{BLACK DOWN-POINTING SMALL TRIANGLE}"
        add(head, "text", f"{sign} {words}", class_="strong", x=px(left + 10), y=px(FRAME_TOP + 16))
        for kind, share in shares.items():
            add(head, "text", share, class_=f"{kind} right", x=px(right - 10), y=px(FRAME_TOP + 16))
        for occurrence, top in enumerate(form.starts):
            add(group, "text", str(occurrence + 1), class_="muted", x=px(left + 6), y=px(top + 12))

    def _node(self, parent: Element, marks: Sequence[int], box: ItemBounds, identity: str) -> None:
        """Draw a node, which stands for these marks."""
        mark = self.folded.flow.marks[marks[0]]
        button = {"role": "button", "tabindex": "-1", "aria_label": self.label_node(marks)}
        numbers = " ".join(map(str, marks))
        group = add(parent, "g", id=identity, class_=f"node {mark.shape}", data_marks=numbers, **button)
        if mark.shape == "view":
            self._view(group, mark, box)
        elif mark.shape == "reorder":
            self._reorder(group, marks, box)
        else:
            self._box(group, marks, box)

    def label_node(self, marks: Sequence[int]) -> str:
        """Return the name of a node for readers that do not see it: its title, name, and share of the time."""
        mark = self.folded.flow.marks[marks[0]]
        if marks[0] not in self.step_of:
            return f"{mark.shape} {mark.title}" if mark.shape in ("input", "output") else f"{mark.title}, no copy"
        count = f"{len(marks)} times " if len(marks) > 1 else ""
        formats = self.record["steps"][self.step_of[marks[0]]]["formats"]
        title = f"reorder {formats.replace('->', 'to')}" if mark.shape == "reorder" else mark.title
        shares = ", ".join(f"{share_text(self.sum_times(marks, kind).share)} {kind}" for kind in self.kinds)
        return f"{count}{title}, {self._name(marks)}, {shares}"

    def _name(self, marks: Sequence[int]) -> str:
        """Return one name for the steps of a node."""
        return merge_names([self.record["steps"][self.step_of[i]]["label"] for i in marks])

    def _view(self, group: Element, mark: Mark, box: ItemBounds) -> None:
        """Draw a view: a bar with its title."""
        y, half = box.y + box.height / 2, 26 if mark.title == "concat" else 12
        add(group, "rect", class_="bar", x=px(box.x - half), y=px(y - 2), width=px(2 * half), height="4", rx="2")
        add(group, "text", mark.title, class_="muted", x=px(box.x + half + 6), y=px(y + 4))

    def _reorder(self, group: Element, marks: Sequence[int], box: ItemBounds) -> None:
        """Draw a reorder: a diamond in the colors of its formats, its time and bytes, and its formats."""
        mark, x, y, side = self.folded.flow.marks[marks[0]], box.x, box.y + box.height / 2, box.height / 2
        for height, name in zip((-side, side), mark.formats or (), strict=True):
            path = f"M{px(x - 20)} {px(y)}L{px(x)} {px(y + height)}L{px(x + 20)} {px(y)}Z"
            add(group, "path", class_="half", d=path, fill=self.colors.get(name, "currentColor"))
        steps = [self.record["steps"][self.step_of[i]] for i in marks]
        size = bytes_text(sum(step["nbytes"] for step in steps))
        for kind in self.kinds:
            text = f"{ms_text(self.sum_times(marks, kind).ms)} \N{MIDDLE DOT} {size}"
            add(group, "text", text, class_=kind, x=px(x + 26), y=px(y - 3))
        add(group, "text", arrow_text(steps[0]["formats"]), class_="muted", x=px(x + 26), y=px(y + 11))

    def _box(self, group: Element, marks: Sequence[int], box: ItemBounds) -> None:
        """Draw a step, an input or an output as a box."""
        mark, left, room = self.folded.flow.marks[marks[0]], box.x - box.width / 2, int((box.width - 18) / EM)
        is_end = mark.shape in ("input", "output")
        shape = {"x": px(left), "y": px(box.y), "width": px(box.width), "height": px(box.height)}
        add(group, "rect", class_="box", rx=px(box.height / 2 if is_end else _RADIUS), **shape)
        if is_end:
            text = {"class_": "middle", "x": px(box.x), "y": px(box.y + box.height / 2 + 4)}
            add(group, "text", shorten_end(mark.title, room), **text)
            return
        for kind in self.kinds:
            share = self.sum_times(marks, kind).share
            if self.longest and share:
                bar = {**shape, "width": px(max(2.0, box.width * share / self.longest))}
                add(group, "rect", class_=f"{kind} time", rx=_RADIUS, **bar)
        for kind in self.kinds:
            text = {"class_": f"{kind} right", "x": px(left + box.width - _PADDING), "y": px(box.y + 17)}
            add(group, "text", share_text(self.sum_times(marks, kind).share), **text)
        add(group, "text", shorten_end(mark.title, room - 8), class_="strong", x=px(left + _PADDING), y=px(box.y + 17))
        formats = self._output_format(marks[0])
        add(group, "text", formats, class_="muted right", x=px(left + box.width - _PADDING), y=px(box.y + 32))
        name = shorten_start(self._name(marks), room - len(formats) - 2)
        add(group, "text", name, class_="muted", x=px(left + _PADDING), y=px(box.y + 32))

    def _output_format(self, mark: int) -> str:
        """Return the format that a step writes first."""
        buffer = next(iter(self.record["steps"][self.step_of[mark]]["writes"].values()), None)
        return "" if buffer is None else shorten_end(str(self.record["buffers"][buffer]["format"]), 14)


def arrow_text(formats: str) -> str:
    """Return formats with an arrow as one character, at which no line is broken.

    >>> arrow_text("nchw -> nhwc")
    'nchw → nhwc'
    """
    return formats.replace("->", "\N{RIGHTWARDS ARROW}")


def record_graph(drawing: GraphDrawing) -> Record:
    """Return what the script needs of the graph: marks, wires, and the node that stands for each mark.

    `marks` has for each mark its segment, its title, its step or None, and its details if it is no step.
    """
    folded, flow = drawing.folded, drawing.folded.flow
    return {
        "marks": [
            {
                "segment": folded.positions[i].segment,
                "node": folded.node_of[i],
                "title": mark.title,
                "step": drawing.step_of.get(i),
                "about": None if i in drawing.step_of else mark.about,
            }
            for i, mark in enumerate(flow.marks)
        ],
        "wires": [[wire.source, list(wire.targets), wire.buffer] for wire in flow.wires],
        "blocks": [segment.is_block for segment in folded.segments],
    }
