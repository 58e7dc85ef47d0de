"""Plans with repeated blocks, pages taken apart, and the ends of paths of SVG."""

import json
import random
import re
from functools import cache
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import inlay
from inlay.graph.plan import Plan, plan_graph
from tests.support.networks import bert, light
from tests.support.planner_graphs import Drawing, HashedCosts

BLOCKS = ("residual", "dense", "branches", "turned", "skips")
"""Kinds of blocks that `plan_with_blocks` repeats."""


def plan_with_blocks(seed: int) -> Plan:
    """A plan by random costs of a few random operations, a block several times, and a few more."""
    rng = random.Random(seed)
    drawing = Drawing(rng)
    first = last = drawing.conv("x", 16)
    for _ in range(rng.randrange(3)):
        drawing.step()
    kind = BLOCKS[seed % len(BLOCKS)]
    for _ in range(2 + rng.randrange(4)):
        last = _add_block(drawing, kind, last, first)
    drawing.pool(last)
    for _ in range(rng.randrange(4)):
        drawing.step()
    return plan_graph(drawing.graph(), HashedCosts(seed))


def _add_block(drawing: Drawing, kind: str, last: str, first: str) -> str:
    """Add a block that reads `last`, and return what it writes."""
    match kind:
        case "residual":
            return drawing.relu(drawing.add(drawing.conv(drawing.relu(drawing.conv(last, 16, 3)), 16), last))
        case "dense":
            return drawing.concat([last, drawing.conv(drawing.relu(last), 16, 3)])
        case "branches":
            return drawing.conv(drawing.concat([drawing.conv(last, 16), drawing.conv(last, 16, 3)]), 16)
        case "turned":
            return drawing.relu(drawing.turned(drawing.tensors[drawing.conv(last, 16)]))
    return drawing.add(drawing.conv(drawing.pool(last), 16, 3), first)


@cache
def known_plan(name: str) -> Plan:
    """The plan of a network by analytic costs: a light model by its name, or `encoder`, which has 12 small layers."""
    model = bert(1, 8, layers=12, hidden=32, heads=2) if name == "encoder" else light(name)
    return inlay.plan(inlay.load(model.SerializeToString()), costs="analytic", isa="avx512_core", threads=2)


class PageParts(HTMLParser):
    """The text of each script and style of a page, and the attributes of all elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.texts.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in ("script", "style"):
            tag, attributes, text = self.texts.pop()
            self.texts.append((tag, attributes, text + data))

    @property
    def data(self) -> dict[str, Any]:
        """The JSON of the page."""
        (text,) = [text for _, attributes, text in self.texts if attributes.get("id") == "data"]
        found: dict[str, Any] = json.loads(text)
        return found


def graph_of(page: str) -> ElementTree.Element:
    """The SVG of the graph of a page."""
    begin = page.index('<svg id="graph"')
    return ElementTree.fromstring(page[begin : page.index("</svg>", begin) + len("</svg>")])


def path_ends(path: str) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The first and the last point of each part of a path with the commands M, V, L, C and Q."""
    found: list[list[tuple[float, float]]] = []
    for command, text in re.findall(r"([MVLCQ])([^MVLCQ]*)", path):
        numbers = [float(number) for number in text.split()]
        if command == "M":
            found.append([(numbers[0], numbers[1])])
        else:
            found[-1].append((found[-1][-1][0], numbers[0]) if command == "V" else (numbers[-2], numbers[-1]))
    return [(points[0], points[-1]) for points in found]
