"""Pictures of compound formats: words fit their rectangles, entries have their numbers, files are whole pages."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import inlay
from inlay.descriptor.compound_table import compound_formats
from inlay.render.compound import CompoundPicture
from inlay.render.picture import Picture
from tests.support.refusals import raises_exactly

SVG = "{http://www.w3.org/2000/svg}"
PIXELS = 7.3
"""Width of a character of 12 pixels."""


@pytest.mark.parametrize("name", compound_formats())
def test_words_fit_their_rectangles_and_the_picture(name: str) -> None:
    root = ElementTree.fromstring(
        inlay.show(inlay.CompoundDesc(inlay.compound(name), (4096, 4096)), format="svg").svg()
    )
    width = float(root.attrib["width"])
    drawn = [box for box in root.iter(f"{SVG}rect") if "x" in box.attrib]
    boxes = [{key: float(box.attrib[key]) for key in ("x", "y", "width")} for box in drawn]
    for text in root.iter(f"{SVG}text"):
        x, y, end = float(text.attrib["x"]), float(text.attrib["y"]), len(text.text or "") * PIXELS
        assert x + end <= width
        for box in boxes:
            if box["y"] < y < box["y"] + 20 and box["x"] <= x < box["x"] + box["width"]:
                assert x + end <= box["x"] + box["width"]


def test_a_memory_is_drawn_as_its_format() -> None:
    memory = inlay.pack_compound(np.zeros((2, 64), np.float32), "ggml:Q4_0")
    assert str(inlay.show(memory)) == str(inlay.show(memory.desc))


def test_the_first_of_several_entries_has_its_number() -> None:
    lines = str(inlay.show(inlay.compound("kleidiai:qsi4c32p4x8"))).splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines if " scale " in line][1:] == [f"scale {i}" for i in range(4)]
    assert "  0..1       7..0 scale" in str(inlay.show(inlay.compound("ggml:Q4_0"))).splitlines()


@pytest.mark.parametrize(
    "picture", [inlay.show(inlay.compound("ggml:Q4_0")), inlay.show("Swizzle<1,0,2> o (4,4):(4,1)")]
)
def test_a_saved_page_is_whole(picture: Picture | CompoundPicture, tmp_path: Path) -> None:
    picture.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>\n")
    title = str(picture).splitlines()[0].replace("<", "&lt;").replace(">", "&gt;")
    assert f"<title>{title}</title>" in page
    assert picture.html() in page
    with raises_exactly(inlay.InvalidArguments, "a picture is saved as .svg, .png, .html or .txt, not '.gif'"):
        picture.save(tmp_path / "page.gif")
