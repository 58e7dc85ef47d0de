"""`PlanPage`: the page of a plan as one HTML file.

    PlanPage(plan).save("resnet50.html")

The files of `assets` are put into the page: `page.html` is its frame, `page.css` its style, and the scripts share one
scope, in the order of `SCRIPTS`. A content security policy with the hashes of style and scripts allows nothing else, so
that the page cannot ask any host for anything.
"""

from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from xml.etree.ElementTree import Element

from inlay.errors import printable
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.profiling import Profile
from inlay.render.network.flow import flow_of
from inlay.render.plan_page.folding import fold_flow
from inlay.render.plan_page.graph import GraphDrawing, record_graph
from inlay.render.plan_page.markup import add, markup_of_element, markup_of_graph
from inlay.render.plan_page.positions import position_graph
from inlay.render.plan_page.records import Record, record_plan
from inlay.render.plan_page.tables import (
    build_heading,
    build_legend,
    describe_facts,
    draw_time_line,
    tabulate_plans,
    tabulate_reorders,
    tabulate_steps,
)
from inlay.render.saving import embed_json, inline_source, require_suffix, save_contents

SUFFIX = ".html"
"""Ending of the name of a page."""
_SUBJECT = "the page of a plan"
SCRIPTS = ("details.js", "view.js", "panel.js", "main.js")
"""The scripts of the page, in their order."""


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The page of one plan."""

    plan: PlannedProgram
    """The plan."""
    profile: Profile | None = None
    """Measured times of its steps; None for predicted times alone."""

    def record(self) -> Record:
        """Return the plan and its profile as lists, dicts, numbers and texts, which `json.dumps` accepts.

        docs/plan-page.md describes the entries.

        Raises:
            InvalidArguments: the profile is of other steps than the plan has.
        """
        return record_plan(self.plan, self.profile)

    def html(self) -> str:
        """Return the whole page, which needs no other file and no network.

        Raises:
            InvalidArguments: as `record`.
        """
        record, flow = self.record(), flow_of(self.plan)
        folded = fold_flow(self.plan, flow)
        drawing = GraphDrawing(folded, position_graph(folded), record)
        scripts = [_read_asset(name) for name in SCRIPTS]
        style = _read_asset("page.css")
        facts = Element("div", {"class": "facts"})
        for fact in describe_facts(self.plan):
            add(facts, "p", fact)
        return Template(_read_asset("page.html")).substitute(
            policy=_content_policy(style, scripts),
            title=escape(printable(f"{self.plan.graph.name}: plan of Inlay")),
            style=style,
            heading=markup_of_element(build_heading(self.plan, record)),
            facts=markup_of_element(facts),
            times="measured" if record["measured"] else "predicted",
            choice="" if record["measured"] else "hidden",
            line=markup_of_element(draw_time_line(record)),
            legend=markup_of_element(build_legend(folded, record, drawing.colors)),
            graph=markup_of_graph(drawing.draw()),
            steps=markup_of_element(tabulate_steps(self.plan, record)),
            reorders=markup_of_element(tabulate_reorders(record)),
            plans=markup_of_element(tabulate_plans(record)),
            data=embed_json({"plan": record, "graph": record_graph(drawing)}),
            scripts="\n".join(f"<script>{script}</script>" for script in scripts),
        )

    def save(self, path: str | Path) -> None:
        """Write the page to a file.

        Post-condition: `path` holds the whole page, or an error was raised and it is as it was.

        Raises:
            InvalidArguments: `path` does not end in .html, or as `record`.
            FileError: the file cannot be written.
        """
        save_contents(path, {SUFFIX: self.html}, _SUBJECT)


def require_page_name(target: Path) -> None:
    """Check the ending of the name of a page.

    Raises:
        InvalidArguments: it is not .html.
    """
    require_suffix(target, (SUFFIX,), _SUBJECT)


def _read_asset(name: str) -> str:
    """Return the text of a file of `assets`."""
    return (files("inlay.render.plan_page") / "assets" / name).read_text(encoding="utf-8")


def _content_policy(style: str, scripts: list[str]) -> str:
    """Return a content security policy that allows this style and these scripts, and nothing else."""
    allowed = " ".join(map(inline_source, scripts))
    sources = f"style-src {inline_source(style)}; script-src {allowed}; img-src data:"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
