"""Links of all pages lead to files and headings, pages are in the table of contents, drawings follow the theme."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from inlay_docs.accessible_markup import make_accessible
from inlay_docs.changes import START, released_changes, unreleased_changes
from inlay_docs.charts import draw_chart, parse_ratio, read_table
from inlay_docs.pictures import draw, follow_theme

import inlay
from tests.support.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def prose(text: str) -> str:
    """A page without its code blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page, as code hosts make them."""
    headings = re.findall(
        r"^#{1,6} (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    slugs = [re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).lower()).replace(" ", "-") for title in headings]
    seen: Counter[str] = Counter()
    found = set()
    for slug in slugs:
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
                yield link


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    assert list(broken_links(ROOT / name)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](other.md) `[e](no.md)`\n")
    assert list(broken_links(page)) == ["#three", "other.md"]


def test_every_page_is_in_the_table_of_contents() -> None:
    docs = ROOT / "docs"
    entries = {"index"}
    for page in docs.rglob("*.md"):
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            lines = [line for line in tree.split("\n") if line and not line.startswith(":")]
            entries |= {str((page.parent / line).relative_to(docs)) for line in lines}
    pages = {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md")}
    assert entries == {page for page in pages if not re.match(r"decisions/\d", page)}


def test_every_page_has_one_title() -> None:
    outside = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    titles = {
        page.name: len(re.findall(r"^# ", outside.sub("", page.read_text()), re.MULTILINE))
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert {name for name, count in titles.items() if count != 1} == set()


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_in_fenced_blocks(name: str) -> None:
    outside = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^>>>", outside, re.MULTILINE)


def test_a_picture_is_drawn_from_a_tag_and_dims_or_an_expression() -> None:
    by_tag, by_expression = draw("nChw8c 1x17x2x3"), draw('inlay.MemoryDesc((1, 17, 2, 3), "f32", "nChw8c")')
    assert by_tag == by_expression
    assert ">o<" not in by_tag
    assert "o=0" in draw("OIhw8i8o 16x8x1x1 bf16", names=["o", "i", "h", "w"]).replace("o=0 ", "o=0")
    assert "inlay-picture" in draw("inlay.show(np.arange(6).reshape(2, 3))")


def test_dark_colors_follow_the_theme_of_the_page() -> None:
    svg = inlay.show(inlay.MemoryDesc((2, 3), "f32", "ab")).svg()
    style = follow_theme(svg).partition("<style>")[2].partition("</style>")[0]
    dark = [line for line in style.replace("}", "}\n").splitlines() if "#15191f" in line]
    assert dark
    assert all('body[data-theme="dark"]' in line or 'body[data-theme="auto"]' in line for line in dark)
    assert style.count("{") == style.count("}")


def test_parameters_on_lines_of_their_own_are_no_list_of_definitions() -> None:
    paren = '<span class="sig-paren">(</span>'
    markup = make_accessible(f"{paren}\n\n<dl>\n<dd>src,</dd>\n<dd>dst,</dd>\n</dl>\n\n<dl><dt>a</dt><dd>b</dd></dl>")
    assert '<span class="sig-line">src,</span>\n<span class="sig-line">dst,</span>' in markup
    assert "<dl><dt>a</dt><dd>b</dd></dl>" in markup


TABLE = """# Page

## Figures

| name | ms | other | third |
|---|---|---|---|
| one | 1.5 | 2.00 [1.50-3.00] | - |
| **mean** | | **0.50** | 1 |
"""


def test_a_chart_shows_the_figures_of_a_table() -> None:
    table = read_table(TABLE, "## Figures", (3, 4), ("other", "third"))
    assert [label for label, _ in table.rows] == ["one", "**mean**"]
    svg = draw_chart(table, "Ratios")
    assert "<title>one, other: 2 [1.5-3]</title>" in svg
    assert "<title>mean, other: 0.5</title>" in svg
    assert svg.count('class="mark s1"') == 2
    assert parse_ratio("-") is None


@pytest.mark.parametrize(
    ("heading", "columns", "text"),
    [
        ("## Numbers", (3,), "the page has no heading '## Numbers'"),
        ("## Figures", (1, 9), "no table below '## Figures' has ratios in columns 1, 9"),
    ],
)
def test_a_chart_without_a_table_is_refused(heading: str, columns: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        read_table(TABLE, heading, columns, ["a"] * len(columns))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one release, one waiting change, and Inlay's settings of towncrier."""
    pytest.importorskip("towncrier")
    settings = (ROOT / "pyproject.toml").read_text().partition("[tool.towncrier]")[2]
    (tmp_path / "pyproject.toml").write_text(f"[tool.towncrier]{settings}")
    (tmp_path / "CHANGES.md").write_text(f"# Changes\n\n{START}\n## 0.9.0 (2026-01-01)\n\nFirst release.\n")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "2.feature.md").write_text("Layouts can be drawn.")
    return tmp_path


def test_changes_are_those_of_towncrier(project: Path) -> None:
    waiting = unreleased_changes(project)
    assert waiting == "## Not yet released\n\n### New\n\n- Layouts can be drawn. (issue 2)"
    assert released_changes(project) == "## 0.9.0 (2026-01-01)\n\nFirst release."
    (project / "changes" / "2.feature.md").unlink()
    assert unreleased_changes(project) == "## Not yet released\n\nNo significant changes."


def test_a_change_with_a_wrong_name_is_refused(project: Path) -> None:
    (project / "changes" / "2.novelty.md").write_text("Text.")
    with pytest.raises(RuntimeError, match=r"(?s)towncrier cannot write the changes of .*2\.novelty\.md"):
        unreleased_changes(project)


def test_the_changes_of_inlay_can_be_written() -> None:
    pytest.importorskip("towncrier")
    assert START in (ROOT / "CHANGES.md").read_text()
    assert unreleased_changes().startswith("## Not yet released\n\n")
