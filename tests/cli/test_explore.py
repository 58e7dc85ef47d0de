"""`inlay explore`: the page that it serves or writes, and what it refuses."""

import builtins
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inlay.cli import main
from inlay.render.explorer.server import ExplorerServer
from tests.support.command_line import Capture
from tests.support.explorer_process import serve_explorer

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ([], ""),
        (["nChw8c", "2x17x5x4"], "l=nChw8c&d=2x17x5x4&t=f32"),
        (["nChw8c"], "l=nChw8c&d=2x9x2x2&t=f32"),
        (["n c -> c n", "2x3", "--dtype", "u8", "--names", "row,col"], "l=n%20c%20-%3E%20c%20n&d=2x3&t=u8&n=row,col"),
        (["ab", "2", "3"], "l=ab&d=2x3&t=f32"),
        (["ab", "2x3", "--to", "ba", "--to-dtype", "bf16"], "l=ab&d=2x3&t=f32&l2=ba&t2=bf16"),
        (
            ["abc", "2x3x4", "--view", "submemory:1x3x4@1,0,0", "--view", "permute:1,0,2", "--view", "digits:3x4"],
            "l=abc&d=2x3x4&t=f32&v=submemory:1x3x4@1,0,0&v=permute:1,0,2&v=digits:3x4",
        ),
    ],
)
def test_the_address_says_what_the_page_shows(arguments: list[str], fragment: str) -> None:
    with serve_explorer(*arguments) as process:
        assert process.fragment == fragment
        assert process.fetch().status == 200


def test_the_port_is_the_one_that_is_given() -> None:
    with serve_explorer() as first:
        port = first.url.split(":")[2].split("/")[0]
        first.end()
    with serve_explorer("--port", port) as again:
        assert again.url.startswith(f"http://127.0.0.1:{port}/")


def test_the_browser_of_the_environment_opens_the_address(tmp_path: Path) -> None:
    script, opened = tmp_path / "browser", tmp_path / "opened"
    script.write_text(f'#!/bin/sh\necho "$1" > "{opened}.part" && mv "{opened}.part" "{opened}"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    process = subprocess.Popen(
        [sys.executable, "-m", "inlay", "explore", "nchw"],
        env={**os.environ, "BROWSER": str(script)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        url = process.stdout.readline()
        assert process.stderr.readline() == "Ctrl-C ends the server\n"
        deadline = time.monotonic() + 60
        while not opened.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert opened.read_text() == url
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["nchw8c", "2x17x5x4"],
            "outer axis 'c' has inner blocks: write 'C'\n    nchw8c\n    ~^\n    did you mean nChw8c?",
        ),
        (["320,20,4,1"], "the strides 320,20,4,1 do not say the dims: give them too"),
        (["nchw", "--to", "nhwx"], "unknown alias 'nhwx': did you mean nhwc or nchw?\n    nhwx\n    ^^^^"),
        (
            ["nchw", "2x3x4x5", "--to", "nhwc", "--to", "chwn"],
            "a served page has two layouts, which you can change there: give --to once, or --out",
        ),
        (["--to", "nchw"], "--to belongs to a layout: give TAG too"),
        (["--names", "nchw"], "--names belongs to a layout: give TAG too"),
        (["--view", "permute:1,0"], "--view belongs to a layout: give TAG too"),
        (
            ["ab", "2x3", "--view", "flip:1"],
            "a view is reshape:2x17x20, permute:n,h,w,c, submemory:1x8x5x4@0,8,0,0, or digits:32x20 for a reshape to "
            "free digits, not 'flip:1'",
        ),
        (
            ["nChw8c", "2x18x5x4", "--view", "reshape:2x2x9x5x4"],
            "axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8\n"
            "    nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)",
        ),
        (["nchw", "--to-dtype", "u8"], "--to-dtype is the type of a second layout: give --to TAG too"),
        (["nchw", "--names", "abc"], "4 axes need 4 names, not 3: a, b, c"),
        (["--port", "65536"], "port is 65536: give one from 1 to 65535, or 0 for any free one"),
        (["--out", "page.html"], "--out writes a page that shows a layout: give TAG, and DIMS"),
        (["nchw", "--out", "page.svg"], "a page is saved as .html, not '.svg'"),
    ],
)
def test_a_wrong_command_line_is_one_message(
    arguments: list[str], text: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explore", *arguments]) == 2
    assert capfd.readouterr() == ("", f"error: {text}\n")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_the_command_that_installs_it_is_named(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name in ("starlette", "uvicorn"):
            raise ImportError(f"No module named {name!r}", name=name)
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert main(["explore", "--no-open"]) == 2
    assert capfd.readouterr() == ("", "error: starlette is not installed: pip install 'inlay[explore]'\n")
    page = tmp_path / "page.html"
    assert main(["explore", "nchw", "--out", str(page)]) == 0
    assert page.exists()


def test_a_page_in_a_file_shows_the_layouts_of_the_command(capfd: Capture, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["explore", "nchw", "2x17x5x4", "--to", "nChw8c", "--to", "nhwc", "--out", str(page)]) == 0
    assert capfd.readouterr() == (f"wrote {page}\n", "")
    data = re.search(r'id="explorer-data">(.*?)</script>', page.read_text())
    assert data is not None
    panels = json.loads(data[1])["panels"]
    assert [panel["layout"]["title"] for panel in panels] == ["nchw", "nChw8c", "nhwc"]


def test_a_page_in_a_file_shows_views_and_the_next_layout_has_their_dims(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    view = ["--view", "submemory:1x8x5x4@0,8,0,0", "--view", "permute:nhwc"]
    assert main(["explore", "nChw8c", "2x17x5x4", *view, "--to", "abcd", "--out", str(page)]) == 0
    data = re.search(r'id="explorer-data">(.*?)</script>', page.read_text())
    assert data is not None
    first, second = (panel["layout"] for panel in json.loads(data[1])["panels"])
    assert (first["title"], first["dims"], first["names"]) == ("view of nChw8c", [1, 5, 4, 8], ["n", "h", "w", "c"])
    assert (second["title"], second["dims"], second["names"]) == ("nchw", [1, 5, 4, 8], ["n", "h", "w", "c"])


def test_the_served_page_is_a_document(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def announce_and_close(server: ExplorerServer, on_start: Callable[[], None], **_: object) -> None:
        on_start()
        server.listener.close()

    monkeypatch.setattr(ExplorerServer, "run", announce_and_close)
    assert main(["explore", "ab", "2", "3", "--names", "row,col", "--no-open", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]+/#l=ab&d=2x3&t=f32&n=row,col", found["url"])
    assert (found["file"], [each["names"] for each in found["layouts"]]) == (None, [["row", "col"]])


def test_ctrl_c_is_the_way_to_end_and_no_failure() -> None:
    with serve_explorer() as process:
        code, errors = process.end()
    assert code == 0
    assert "Traceback" not in errors
