"""The page in one file: its script, its policy, its data, and what it is refused for."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from inlay.errors import FileError, InvalidArguments
from inlay.render.explorer.model import explore_layout
from inlay.render.explorer.page import bundle_modules, page_files, save_page, standalone_page
from inlay.render.explorer.request import make_request
from inlay.render.explorer.typed_text import InvalidField
from inlay.render.saving import embed_json
from tests.support.refusals import raises_exactly

NCHW, NCHW8C = (make_request(layout, "2x17x5x4") for layout in ("nchw", "nChw8c"))


def element(page: str, pattern: str) -> str:
    """The content of the one element that `pattern` finds."""
    (content,) = re.findall(pattern, page, re.DOTALL)
    assert isinstance(content, str)
    return content


def data_of(page: str) -> Any:
    """The JSON that the page shows."""
    return json.loads(element(page, r'<script type="application/json" id="explorer-data">(.*?)</script>'))


def test_the_page_has_its_style_its_script_and_its_layouts_inside() -> None:
    page = standalone_page([NCHW8C])
    assert '<link rel="stylesheet"' not in page
    assert " src=" not in page
    assert data_of(page) == {
        "version": 1,
        "panels": [{"request": NCHW8C, "layout": explore_layout(NCHW8C)}],
        "reorder": None,
    }
    script = element(page, r'<script type="module">\n(.*?)</script>')
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert "fetch(" in script  # of the served page; the policy below forbids every request


def test_its_policy_allows_its_own_script_and_style_and_no_request() -> None:
    page = standalone_page([NCHW8C])
    policy = element(page, r'<meta http-equiv="Content-Security-Policy" content="(.*?)">')
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    for name, pattern in (("script", r'<script type="module">(.*?)</script>'), ("style", r"<style>(.*?)</style>")):
        digest = base64.b64encode(hashlib.sha256(element(page, pattern).encode()).digest()).decode()
        assert directives[f"{name}-src"] == f"'sha256-{digest}'"
    assert set(directives) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}


def test_two_layouts_of_equal_dims_have_their_reorder() -> None:
    data = data_of(standalone_page([NCHW, NCHW8C]))
    assert [panel["request"] for panel in data["panels"]] == [NCHW, NCHW8C]
    assert sorted(data["reorder"]) == ["bytes", "kernel", "lines", "runs"]
    assert data["reorder"]["bytes"] == "6.6 kB are read and written"
    for other in (make_request("nchw", "2x3x4x5"), make_request("0,20,4,1", "2x17x5x4")):
        assert data_of(standalone_page([NCHW, other]))["reorder"] is None


def test_nothing_in_the_data_ends_its_element() -> None:
    assert embed_json({"a": "</script><!--", "b": "\u2028"}) == r'{"a":"\u003c/script>\u003c!--","b":"\u2028"}'


def test_the_files_of_the_page_refer_to_no_other_host() -> None:
    for name, content in page_files().items():
        hosts = set(re.findall(r"https?://[^\s\"'`<>)]*", content.decode()))
        assert hosts <= {"http://www.w3.org/2000/svg"}, (name, hosts)


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "layout.html"
    save_page(target, [NCHW8C])
    written = target.read_bytes()
    assert written.decode() == standalone_page([NCHW8C])
    with pytest.raises(InvalidField):
        save_page(target, [{"layout": "nchw8c", "dims": "2x17x5x4"}])
    assert target.read_bytes() == written
    with raises_exactly(InvalidArguments, "a page shows one layout or more: give a request"):
        save_page(target, [])
    with raises_exactly(InvalidArguments, "a page is saved as .html, not '.svg'"):
        save_page(tmp_path / "layout.svg", [NCHW8C])
    with raises_exactly(InvalidArguments, "a page is saved as .html, not 'without an ending'"):
        save_page(tmp_path / "layout", [NCHW8C])
    assert [path.name for path in tmp_path.iterdir()] == ["layout.html"]
    with pytest.raises(FileError):
        save_page(tmp_path / "missing" / "layout.html", [NCHW8C])


def test_modules_become_one_script_in_the_order_of_their_imports() -> None:
    content = {
        "main.js": 'import { b } from "./b.js";\nimport {\n  a,\n  c,\n} from "./a.js";\nb(a, c);\n',
        "b.js": 'import { a } from "./a.js";\nexport function b() {\n  return a;\n}\n',
        "a.js": "export const a = 1;\nexport class c {}\nfunction inside() {}\n",
        "unused.js": "export const unused = 1;\n",
    }
    assert bundle_modules(content) == (
        "// a.js\nconst a = 1;\nclass c {}\nfunction inside() {}\n"
        "// b.js\nfunction b() {\n  return a;\n}\n"
        "// main.js\nb(a, c);\n"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            {"main.js": 'import a from "./a.js";\n'},
            'main.js has another import than `import { a, b } from "./module.js";`',
        ),
        (
            {"main.js": 'import { a as b } from "./a.js";\n', "a.js": "export const a = 1;\n"},
            "main.js imports 'a as b' from a.js, which does not export it",
        ),
        (
            {"main.js": 'const a = await import("./a.js");\n'},
            'main.js has another import than `import { a, b } from "./module.js";`',
        ),
        ({"main.js": "export default 1;\n"}, "main.js has another export than before a function, const or class"),
        ({"main.js": 'import { a } from "./a.js";\n'}, "there is no module a.js: main.js imports it"),
        (
            {"main.js": 'import { a } from "./a.js";\n', "a.js": "const a = 1;\n"},
            "main.js imports 'a' from a.js, which does not export it",
        ),
        ({}, "there is no module main.js: the page imports it"),
        (
            {
                "main.js": 'import { a } from "./a.js";\n',
                "a.js": 'import { b } from "./b.js";\nexport const a = b;\n',
                "b.js": 'import { a } from "./a.js";\nexport const b = a;\n',
            },
            "the modules main.js, a.js, b.js, a.js import each other in a cycle",
        ),
        (
            {
                "main.js": 'import { a } from "./a.js";\nconst size = a;\n',
                "a.js": "export const a = 1;\nconst size = 2;\n",
            },
            "main.js and a.js both have the name size at their top level: rename one",
        ),
        (
            {"main.js": 'const text = "</script>";\n'},
            "a module has </script, which would end the script of the page: split the text",
        ),
    ],
)
def test_modules_that_one_script_cannot_hold_are_refused(content: dict[str, str], problem: str) -> None:
    with raises_exactly(InvalidArguments, problem):
        bundle_modules(content)
