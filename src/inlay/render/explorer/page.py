"""The files of the page, and one file that holds all of them and the layouts that it shows.

The page is the folder `page` beside this module: `page.html`, `style.css` and modules of JavaScript, which the server
sends as they are. A page in a file has its style and script inline, since browsers load no modules from files. Its one
script is the modules in the order of their imports, without the statements that import and export; the names at their
top level are all different, so that none hides another.

The page has a content security policy, which allows its own script and style by their hashes and no request at all.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from inlay.errors import FileError, InvalidArguments
from inlay.render.explorer.model import VERSION, explore_layout
from inlay.render.explorer.reorder_model import explore_reorder
from inlay.render.explorer.typed_text import InvalidField
from inlay.render.saving import embed_json, inline_source, save_contents

MAIN = "main.js"
"""The module that imports all others."""
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media type of each kind of file of the page."""

_STYLE = '<link rel="stylesheet" href="page/style.css">'
_SCRIPT = f'<script type="module" src="page/{MAIN}"></script>'
_DATA = '<script type="application/json" id="explorer-data">null</script>'
_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"\./([A-Za-z0-9_]+\.js)";[ \t]*\n', re.MULTILINE)
_ANY_IMPORT = re.compile(r"^\s*import\b|\bimport\(", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const|class)\b)", re.MULTILINE)
_TOP_LEVEL = re.compile(
    r"^(?:export )?(?:async function\*?|function\*?|const|let|class) ([A-Za-z_$][\w$]*)", re.MULTILINE
)
_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def page_files() -> Mapping[str, bytes]:
    """Return the content of each file of the page, by its name.

    Raises:
        FileError: the installed package has no such files.
    """
    folder = files("inlay.render.explorer") / "page"
    if not (folder / "page.html").is_file():
        raise FileError("the page of the explorer is not readable where inlay is installed: reinstall inlay")
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if _is_page_file(entry)}


def _is_page_file(entry: Traversable) -> bool:
    """Return True if `entry` is a file of the page."""
    return entry.is_file() and Path(entry.name).suffix in MEDIA_TYPES


def save_page(path: str | Path, requests: Sequence[Mapping[str, Any]]) -> None:
    """Write one file that shows the layouts of these requests, without other files and without a server.

    The page has the reorder from the first to the second layout, too, if there is one.

    Post-condition: `path` holds the whole page, or an error was raised and it is as it was.

    Raises:
        InvalidField: a request is malformed, or a text of it is wrong.
        InvalidArguments: there is no request, or `path` does not end in .html.
        FileError: the file cannot be written.
    """
    save_contents(path, {".html": lambda: standalone_page(requests)}, "a page")


def standalone_page(requests: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of one page that shows the layouts of these requests; see `save_page`.

    Raises:
        InvalidField: a request is malformed, or a text of it is wrong.
        InvalidArguments: there is no request.
    """
    if not requests:
        raise InvalidArguments("a page shows one layout or more: give a request")
    content = {name: value.decode() for name, value in page_files().items()}
    style, script = content["style.css"], bundle_modules(content)
    policy = _POLICY.format(script=inline_source(f"\n{script}"), style=inline_source(f"\n{style}"))
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    replacements = {
        _STYLE: f"{head}\n<style>\n{style}</style>",
        _SCRIPT: f'<script type="module">\n{script}</script>',
        _DATA: _DATA.replace("null", embed_json(_standalone_data(requests))),
    }
    page = content["page.html"]
    for line, replacement in replacements.items():
        page = page.replace(line, replacement)
    return page


def _standalone_data(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON of a page in a file: its layouts with their requests, and the reorder between the first two."""
    panels = [{"request": request, "layout": explore_layout(request)} for request in requests]
    reorder = None
    if len(requests) > 1:
        with suppress(InvalidField):  # there is none, as for other dims or overlapping elements
            answer = explore_reorder({"src": requests[0], "dst": requests[1]})
            reorder = {key: value for key, value in answer.items() if key not in ("src", "dst")}
    return {"version": VERSION, "panels": panels, "reorder": reorder}


# One script of several modules


def bundle_modules(content: Mapping[str, str]) -> str:
    r"""Return one script that does what the module `main.js` does, which imports the other modules of `content`.

    Raises:
        InvalidArguments: a module imports or exports in another form than the pages of the explorer do, imports a
            module or a name that does not exist, takes part in a cycle, or has a name of another module at its top
            level.

    >>> print(bundle_modules({
    ...     "main.js": 'import { double } from "./numbers.js";\nconsole.log(double(2));\n',
    ...     "numbers.js": "export function double(x) {\n  return 2 * x;\n}\n",
    ... }))
    // numbers.js
    function double(x) {
      return 2 * x;
    }
    // main.js
    console.log(double(2));
    <BLANKLINE>
    """
    order = list(dict.fromkeys(_dependencies(content, MAIN, ())))
    owners: dict[str, str] = {}
    parts = []
    for name in order:
        for top in _TOP_LEVEL.findall(content[name]):
            if owners.setdefault(top, name) != name:
                raise InvalidArguments(
                    f"{name} and {owners[top]} both have the name {top} at their top level: rename one"
                )
        parts.append(f"// {name}\n{_EXPORT.sub('', _IMPORT.sub('', content[name]))}")
    script = "".join(parts)
    if "</script" in script.lower():
        raise InvalidArguments("a module has </script, which would end the script of the page: split the text")
    return script


def _dependencies(content: Mapping[str, str], name: str, importers: Sequence[str]) -> Iterator[str]:
    """Yield the modules that `name` imports, each after those that it imports itself, and `name`."""
    if name in importers:
        raise InvalidArguments(f"the modules {', '.join((*importers, name))} import each other in a cycle")
    if name not in content:
        raise InvalidArguments(f"there is no module {name}: {importers[-1] if importers else 'the page'} imports it")
    source = content[name]
    rest = _IMPORT.sub("", source)
    if _ANY_IMPORT.search(rest):
        raise InvalidArguments(f'{name} has another import than `import {{ a, b }} from "./module.js";`')
    if re.search(r"^export\b", _EXPORT.sub("", rest), re.MULTILINE):
        raise InvalidArguments(f"{name} has another export than before a function, const or class")
    for match in _IMPORT.finditer(source):
        yield from _dependencies(content, match[2], (*importers, name))
        _require_exported(match[1], match[2], content[match[2]], name)
    yield name


def _require_exported(names: str, module: str, source: str, importer: str) -> None:
    """Check that `module` exports each of the names that `importer` imports."""
    exported = re.findall(r"^export (?:async function|function|const|class) ([A-Za-z_$][\w$]*)", source, re.MULTILINE)
    for name in (name.strip() for name in names.split(",")):
        if name and name not in exported:
            raise InvalidArguments(f"{importer} imports {name!r} from {module}, which does not export it")
