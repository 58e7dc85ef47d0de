"""PNG files: drawn by resvg with the font of the package, by suffix, and refused where resvg is missing."""

import sys
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import inlay
from inlay import InvalidArguments, MissingExtra
from inlay.render import Picture
from inlay.render.colors import LIGHT
from inlay.render.png import FONTS, png_bytes
from tests.support.drawn_descriptors import NCHW8C
from tests.support.refusals import raises_exactly

pytest.importorskip("resvg_py")

SMALL = inlay.MemoryDesc((4, 6), "bf16", strides=(8, 1))
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}"><text y="20">{}</text></svg>'


def pixels(png: bytes) -> npt.NDArray[np.uint8]:
    """Decode a PNG of 8 bits a channel: rows of pixels of red, green, blue and alpha."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    position, data, header = 8, b"", b""
    while position < len(png):
        length = int.from_bytes(png[position : position + 4])
        kind, body = png[position + 4 : position + 8], png[position + 8 : position + 8 + length]
        data, header = data + body * (kind == b"IDAT"), body if kind == b"IHDR" else header
        position += length + 12
    width, height = int.from_bytes(header[:4]), int.from_bytes(header[4:8])
    assert header[8:10] == b"\x08\x06"
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 4 * width)
    return unfiltered(lines, width)


def unfiltered(lines: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    """Undo the filters of PNG, section 9 of its specification."""
    rows = np.zeros((len(lines) + 1, width + 1, 4), np.int64)
    for y, line in enumerate(lines):
        raw, above, row = line[1:].reshape(width, 4).astype(np.int64), rows[y], rows[y + 1]
        for x in range(width):
            left, up, corner = row[x], above[x + 1], above[x]
            guess = left + up - corner
            distances = [abs(guess - left), abs(guess - up), abs(guess - corner)]
            nearest = np.where(
                (distances[0] <= distances[1]) & (distances[0] <= distances[2]),
                left,
                np.where(distances[1] <= distances[2], up, corner),
            )
            added = (0 * left, left, up, (left + up) // 2, nearest)[line[0]]
            row[x + 1] = (raw[x] + added) % 256
    return rows[1:, 1:].astype(np.uint8)


def test_a_picture_has_its_size_and_its_colors() -> None:
    drawn = pixels(inlay.show(SMALL).png(scale=1.0))
    svg = inlay.show(SMALL).svg()
    width, height = (float(svg.split(f'{name}="')[1].split('"')[0]) for name in ("width", "height"))
    assert abs(drawn.shape[1] - width) <= 1
    assert abs(drawn.shape[0] - height) <= 1
    found = {"#" + bytes(color).hex() for color in np.unique(drawn[..., :3].reshape(-1, 3), axis=0)}
    assert set(LIGHT[:4]) <= found
    assert "#ffffff" in found


def test_words_are_drawn_with_the_font_of_the_package() -> None:
    plain, letters = (pixels(png_bytes(SVG.format(80, 30, text), 1.0)) for text in ("", "abc\N{RIGHTWARDS ARROW}"))
    assert not plain[..., 3].any()
    assert letters[..., 3].any()
    assert sorted(path.name for path in FONTS.iterdir()) == ["DejaVuSansMono-Bold.ttf", "DejaVuSansMono.ttf", "LICENSE"]
    assert "Permission is hereby granted, free of charge" in (FONTS / "LICENSE").read_text()


def test_the_scale_multiplies_pixels() -> None:
    svg = SVG.format(20, 10, "a")
    sizes = [pixels(png_bytes(svg, scale)).shape[:2] for scale in (0.5, 1, 2.0)]
    assert sizes == [(5, 10), (10, 20), (20, 40)]


@pytest.mark.parametrize(
    "picture",
    [inlay.show(NCHW8C), inlay.show("nchw", "nChw8c"), inlay.show("ggml:Q4_0")],
    ids=["layout", "comparison", "compound"],
)
def test_a_picture_is_saved_as_png_by_its_suffix(picture: Picture, tmp_path: Path) -> None:
    picture.save(tmp_path / "a.PNG")
    assert (tmp_path / "a.PNG").read_bytes() == picture.png() == picture.png(2.0)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (0, "scale is 0: give a number from 0.1 to 16"),
        (99.0, "scale is 99.0: give a number from 0.1 to 16"),
        ("2", "scale is '2': give a number from 0.1 to 16"),
        (True, "scale is True: give a number from 0.1 to 16"),
    ],
)
def test_a_wrong_scale_is_refused(scale: float, message: str) -> None:
    with raises_exactly(InvalidArguments, message):
        inlay.show(SMALL).png(scale)


def test_what_is_no_svg_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="the picture is no SVG that resvg can draw: "):
        png_bytes("<svg")


def test_without_resvg_the_error_names_the_command_and_no_file_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with raises_exactly(MissingExtra, "resvg-py, which draws PNG files, is not installed: pip install 'inlay[png]'"):
        inlay.show(SMALL).save(tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
