"""The laws of drawings: text fits its terminal, SVG stands on its own, files are whole, and all is as reviewed."""

import io
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay import InvalidArguments, MemoryDesc
from inlay.errors import FileError
from inlay.render import show
from inlay.render.compose import compose
from inlay.render.legend import legend
from inlay.render.scene import SpaceLimits
from inlay.render.text import ASCII, UNICODE, color_depth, glyphs_of
from tests.support.drawing_scripts import FORMATS, PICTURES, PLAN, drawing_script
from tests.support.drawn_descriptors import EVERYTHING, NCHW8C, SPECIMENS, names_of, small
from tests.support.paths import GOLDEN, ROOT
from tests.support.refusals import raises_exactly

SVG = "{http://www.w3.org/2000/svg}"
VALUES = (np.arange(90, dtype=np.float32).reshape(2, 5, 3, 3) - 40) / 8


def columns(line: str) -> int:
    """The columns a line takes, by the widths of its characters."""
    assert not any(unicodedata.east_asian_width(c) in "WF" or unicodedata.combining(c) for c in line)
    assert all(c.isprintable() for c in line)
    return len(line)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(SPECIMENS)), st.integers(20, 200), st.booleans())
def test_lines_never_exceed_the_width_and_have_no_codes_without_color(name: str, width: int, offsets: bool) -> None:
    text = show(SPECIMENS[name], width=width, offsets=offsets, color=False).text()
    assert "\x1b" not in text
    assert all(columns(line) <= width and line == line.rstrip() for line in text.split("\n"))


@settings(max_examples=20, deadline=None)
@given(small(), st.integers(20, 120))
def test_color_changes_no_width_and_no_line(desc: MemoryDesc, width: int) -> None:
    text = show(desc, width=width, color=True).text()
    assert "\x1b[" in text
    assert all(columns(without_codes(line)) <= width for line in text.split("\n"))


def without_codes(line: str) -> str:
    return re.sub(r"\x1b\[[^m]*m", "", line)


@pytest.mark.parametrize("name", list(SPECIMENS))
def test_every_picture_stays_small(name: str) -> None:
    desc = SPECIMENS[name]
    picture = show(desc, width=200)
    text, svg = picture.text(), picture.svg()
    assert len(text) < 60_000
    assert len(svg) < 400_000
    if not legend(desc, names_of(desc)).note:
        assert len(compose(desc, names_of(desc), SpaceLimits(400)).cells) < 6000


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("name", list(SPECIMENS))
def test_svg_is_valid_accessible_and_self_contained(name: str, offsets: bool) -> None:
    desc = SPECIMENS[name]
    root = ElementTree.fromstring(show(desc, offsets=offsets).svg())
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title, about = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert about is not None
    assert title.text
    assert str(desc) in (about.text or "")
    assert root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(set(ids)) == len(ids)
    links = [value for e in root.iter() for value in e.attrib.values() if value.startswith("url(")]
    assert all(link[5:-1] in ids for link in links)
    assert not [e for e in root.iter() if e.tag in (f"{SVG}script", f"{SVG}image", f"{SVG}a")]
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x", "0")) + float(rect.get("width") or 0) <= width
        assert float(rect.get("y", "0")) + float(rect.get("height") or 0) <= height


def test_tooltips_say_where_each_element_lies() -> None:
    svg = ElementTree.fromstring(show(NCHW8C).svg())
    tooltips = [title.text for rect in svg.iter(f"{SVG}rect") for title in rect.iter(f"{SVG}title")]
    assert "n=1, c=16, h=4, w=3 \N{RIGHTWARDS ARROW} offset 952, byte 3808" in tooltips
    assert "n=1, c=17, h=4, w=3 (padding) \N{RIGHTWARDS ARROW} offset 953, byte 3812" in tooltips
    halves = ElementTree.fromstring(show(SPECIMENS["half-bytes"]).svg())
    texts = [title.text for title in halves.iter(f"{SVG}title")]
    assert "a=3 \N{RIGHTWARDS ARROW} offset 3, byte 1, high half" in texts
    assert "offset 5, byte 2, high half: belongs to no element" in texts


def test_the_data_is_hatched_nowhere_and_the_padding_everywhere() -> None:
    scene = compose(NCHW8C, "nchw", SpaceLimits(110))
    svg = ElementTree.fromstring(show(NCHW8C, width=110).svg())
    hatched = [rect for rect in svg.iter(f"{SVG}rect") if (rect.get("fill") or "").startswith("url(#inlay-hatch")]
    padding = [cell for cell in scene.cells if cell.kind == "padding"]
    assert len(hatched) == len(padding) + 1  # the key shows one more
    text = show(NCHW8C, width=110, color=False).text()
    assert text.count(UNICODE.hatch * 3) == len(padding) + 1


class Terminal(io.StringIO):
    def __init__(self, encoding: str = "utf-8", tty: bool = True) -> None:
        super().__init__()
        self._encoding, self._tty = encoding, tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("environment", "tty", "depth"),
    [
        ({"TERM": "xterm-256color"}, True, 256),
        ({"TERM": "xterm"}, True, 16),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True, 256),
        ({"TERM": "xterm-256color"}, False, 0),
        ({"TERM": "dumb"}, True, 0),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, 0),
        ({"TERM": "xterm-256color", "NO_COLOR": "1", "FORCE_COLOR": "1"}, True, 0),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "1"}, False, 256),
    ],
)
def test_color_follows_the_terminal_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], tty: bool, depth: int
) -> None:
    for name in ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert color_depth(Terminal(tty=tty)) == depth


def test_a_terminal_without_box_drawing_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    assert glyphs_of(Terminal("utf-8")) == UNICODE
    assert glyphs_of(Terminal("ascii")) == glyphs_of(Terminal("latin-1")) == ASCII
    monkeypatch.setattr(sys, "stdout", Terminal("ascii", tty=False))
    assert show(NCHW8C, width=80).text().isascii()
    monkeypatch.setattr(sys, "stdout", Terminal("utf-8", tty=True))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "64")
    lines = show(NCHW8C).text().split("\n")
    assert "\x1b[38;5;16;48;5;" in "".join(lines)
    assert max(len(without_codes(line)) for line in lines) in range(55, 65)


def test_a_prompt_shows_the_text_and_a_notebook_the_drawing() -> None:
    picture = show(NCHW8C, width=80, color=False)
    assert repr(picture) == str(picture) == picture.text()
    assert picture.svg() == str(show(NCHW8C, width=80, format="svg"))
    assert picture._repr_html_() == str(show(NCHW8C, width=80, format="html"))
    assert NCHW8C._repr_html_() == show(NCHW8C).html()
    assert not hasattr(picture, "_repr_svg_")
    ElementTree.fromstring(picture.html())


def test_two_pictures_on_one_page_share_no_identity() -> None:
    drawn = [show(SPECIMENS["nchw"]), show(SPECIMENS["nhwc"]), show(SPECIMENS["nchw"], offsets=True)]
    identities = [{e.get("id") for e in ElementTree.fromstring(p.svg()).iter() if e.get("id")} for p in drawn]
    assert identities[0].isdisjoint(identities[1])
    assert identities[0].isdisjoint(identities[2])


def test_a_picture_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    picture = show(NCHW8C, width=80, color=True)
    for path in (tmp_path / "a.svg", str(tmp_path / "a.txt"), tmp_path / "a.html"):
        picture.save(path)
    svg, text, html = ((tmp_path / f"a.{ending}").read_text(encoding="utf-8") for ending in ("svg", "txt", "html"))
    assert svg == picture.svg()
    assert text == show(NCHW8C, width=80, color=False).text() + "\n"
    assert html.startswith("<!doctype html>\n")
    with raises_exactly(InvalidArguments, "a picture is saved as .svg, .png, .html or .txt, not '.jpg'"):
        picture.save(tmp_path / "a.jpg")
    with pytest.raises(FileError):
        picture.save(tmp_path / "missing" / "a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.svg", "a.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "png"}, "format of a picture is text, svg or html, not 'png'"),
        ({"width": 10}, "width is 10: a picture is 20 to 400 characters wide"),
        ({"width": 10_000}, "width is 10000: a picture is 20 to 400 characters wide"),
        ({"heat_map": 1}, "heat_map is 1: give True or False"),
        ({"names": "nc"}, "4 axes need 4 names, not 2: n, c"),
        ({"names": "nchh"}, "axes need different names: n, c, h, h"),
        ({"names": "n<hw"}, "an axis is named by ASCII letters and digits, like c or row, not '<'"),
        (
            {"desc": 5},
            "desc is of type int: give a MemoryDesc, such as MemoryDesc((2, 3), 'f32', 'ab'), a Memory, a Layout, an "
            "array, or a format tag",
        ),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], message: str) -> None:
    with raises_exactly(InvalidArguments, message):
        show(**{"desc": NCHW8C, **arguments})


def golden_texts() -> dict[str, str]:
    texts = {f"{name}.txt": show(desc, width=80, color=False).text() for name, desc in SPECIMENS.items()}
    texts["zero-padding-offsets.txt"] = show(NCHW8C, width=100, color=False, offsets=True).text()
    texts["strided-color.txt"] = show(SPECIMENS["strided"], width=80, color=True).text()
    texts["strided.svg"] = show(SPECIMENS["strided"], offsets=True).svg()
    texts["vnni-color.txt"] = show(SPECIMENS["vnni"], width=80, color=True).text()
    texts["vnni.svg"] = show(SPECIMENS["vnni"], width=60).svg()
    texts["chosen.txt"] = show(NCHW8C, width=80, color=False, at={"n": 1, "h": 2}).text()
    texts["values.txt"] = show(inlay.pack(VALUES, "nChw4c"), width=80, color=False).text()
    comparison = show(MemoryDesc((2, 9, 2, 2), "f32", "nchw"), "nChw8c", width=120, color=False)
    texts["comparison.txt"], texts["comparison.svg"] = comparison.text(), comparison.svg()
    return texts


def test_pictures_are_as_reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the difference; with INLAY_REDRAW=1 set this accepts it and writes the files anew."""
    monkeypatch.setattr(sys, "stdout", Terminal("utf-8", tty=False))
    drawn = golden_texts()
    if os.environ.get("INLAY_REDRAW"):
        for name, text in drawn.items():
            (GOLDEN / name).write_text(text + "\n", encoding="utf-8")
    assert sorted(path.name for path in GOLDEN.iterdir() if path.suffix in (".txt", ".svg")) == sorted(drawn)
    for name, text in drawn.items():
        assert (GOLDEN / name).read_text(encoding="utf-8") == text + "\n", name


@pytest.mark.parametrize(("script", "pages"), [(FORMATS, ["pictures"]), (PLAN, ["networks", "cli"])])
def test_the_pictures_in_the_documentation_are_what_the_code_draws(script: Path, pages: list[str]) -> None:
    folder, drawn = script.parent, drawing_script(script).pictures()
    assert sorted(path.name for path in folder.glob("*.svg")) == sorted(drawn)
    for name, picture in drawn.items():
        text = (folder / name).read_text(encoding="utf-8")
        assert text == picture.svg(), f"run python {script.relative_to(ROOT)}: {name}"
        shown = (folder / name).relative_to(ROOT / "docs").as_posix()
        for page in pages:
            assert f"({shown})" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_no_folder_of_pictures_in_the_documentation_lacks_its_script() -> None:
    assert {path.parent for path in PICTURES.rglob("*.svg")} == {FORMATS.parent, PLAN.parent}


def test_the_five_pictures_tell_what_the_article_tells() -> None:
    """oneDNN's formulas of nchw, nhwc, chwn and nChw8c, and the padding of 17 channels to 24."""
    formulas: dict[str, Callable[[int, int, int, int], int]] = {
        "nchw": lambda n, c, h, w: ((n * 16 + c) * 5 + h) * 4 + w,
        "nhwc": lambda n, c, h, w: ((n * 5 + h) * 4 + w) * 16 + c,
        "chwn": lambda n, c, h, w: ((c * 5 + h) * 4 + w) * 2 + n,
        "nChw8c": lambda n, c, h, w: (((n * 2 + c // 8) * 5 + h) * 4 + w) * 8 + c % 8,
        "zero-padding": lambda n, c, h, w: (((n * 3 + c // 8) * 5 + h) * 4 + w) * 8 + c % 8,
    }
    drawn = drawing_script(FORMATS).pictures()
    for name, formula in formulas.items():
        cells = compose(drawn[f"{name}.svg"].desc, "nchw", EVERYTHING).cells
        assert all(cell.offset == formula(*cell.coordinate) for cell in cells if cell.coordinate is not None)
        padding = sum(cell.kind == "padding" for cell in cells)
        assert padding == (2 * 2 * 7 * 5 * 4 if name.startswith("zero") else 0)
