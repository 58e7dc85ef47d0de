"""The house rules that a machine can check: which room may use which, how large things grow, what is never written.

Every rule is a function from source text to complaints, and beside each stands a test that it does complain.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.code_lines import code_lines
from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "inlay"
SOURCES = sorted(PACKAGE.rglob("*.py"))
EVERYTHING = sorted(
    path
    for folder in ("src", "tests", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if path.stat().st_size
)

ROOMS = (
    "interrupts",
    "errors",
    "forks",
    "arguments",
    "files",
    "cache",
    "data_type",
    "measure",
    "machine",
    "layout",
    "notation",
    "onednn_abi",
    "descriptor",
    "reordering",
    "memory",
    "storage",
    "primitives",
    "engines",
    "graph",
    "render",
    "bench",
    "cli",
    "__main__",
    "testing",
)
"""From the ground up: a room imports from rooms before it, never after."""

MOST_FILE_LINES = 600
MOST_TEST_FILE_LINES = 500  # the whole texts of errors stand in tests
MOST_FUNCTION_LINES = 40
LATE_IMPORTS_ALLOWED_IN = ("_repr_svg_", "_repr_html_")
VAGUE_NAMES = re.compile(r"Manager|Helper|Utils?$")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
ROOT_NAMES_ALLOWED = {"__version__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def ident(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Imports


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Each module of Inlay that the source imports, and the name taken from it; sanctioned late imports left out."""
    for target, name in _imported_by(ast.parse(source)):
        yield (f"inlay.{name}", "") if target == "inlay" and name in ROOMS else (target, name)


def _imported_by(node: ast.AST) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function) and child.name in LATE_IMPORTS_ALLOWED_IN:
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, "") for alias in child.names if alias.name.split(".")[0] == "inlay")
        elif isinstance(child, ast.ImportFrom) and child.level == 0 and str(child.module).split(".")[0] == "inlay":
            yield from ((str(child.module), alias.name) for alias in child.names)
        yield from _imported_by(child)


def import_faults(module: str, source: str) -> Iterator[str]:
    """Imports that break the order of rooms."""
    room = module.split(".")[1]
    if room not in ROOMS:
        yield f"{module} belongs to no room of the list"
        return
    for target, name in imported(source):
        parts = target.split(".")
        if len(parts) == 1:
            if name not in ROOT_NAMES_ALLOWED:
                yield f"{module} imports {name or target} from the package: import it from its room"
        elif parts[1] not in ROOMS:
            yield f"{module} imports {target}, which belongs to no room of the list"
        elif ROOMS.index(parts[1]) > ROOMS.index(room):
            yield f"{module} imports {target}, a room below its own"
        elif parts[1] != room and name.startswith("_"):
            yield f"{module} imports the private {name} of another room, {target}"


def relative_imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"line {node.lineno}: a relative import; write the full name"


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """A path of modules that ends where it began, or nothing."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(graph.get(module, ())):
            found = visit(target, [*path, module])
            if found:
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module, []))), [])


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Module to modules: `from inlay.room import name` means the file `name` where there is one, else the room.

    Python runs the packages that a module is in before the module, so they are imported too.
    """
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        targets = set()
        for target, name in imported(source):
            full = f"{target}.{name}"
            targets.add(full if full in sources else target)
        packages = {package for target in targets for package in _packages(target)} - _packages(module)
        graph[module] = (targets | packages) - {module}
    return graph


def _packages(module: str) -> set[str]:
    """The packages that a module is in, but the outermost."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(2, len(parts))}


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parent != PACKAGE or p.stem != "__init__"], ids=ident)
def test_rooms_import_upward_only(path: Path) -> None:
    assert list(import_faults(module_name(path), path.read_text())) == []


@pytest.mark.parametrize("path", SOURCES, ids=ident)
def test_imports_are_absolute(path: Path) -> None:
    assert list(relative_imports(path.read_text())) == []


def test_no_module_imports_itself_through_others() -> None:
    sources = {module_name(path): path.read_text() for path in SOURCES if path != PACKAGE / "__init__.py"}
    assert cycle(import_graph(sources)) == []


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("inlay.layout.map", "from inlay.notation.pattern import parse_pattern", "a room below its own"),
        ("inlay.layout.map", "import inlay.render.svg", "a room below its own"),
        ("inlay.layout", "def f():\n    from inlay.memory import Memory", "a room below its own"),
        ("inlay.layout", "if TYPE_CHECKING:\n    from inlay.memory import Memory", "a room below its own"),
        ("inlay.memory", "from inlay import pack", "import it from its room"),
        ("inlay.memory", "import inlay", "import it from its room"),
        ("inlay.memory", "from inlay import render", "a room below its own"),
        ("inlay.memory", "from inlay.attic import x", "belongs to no room"),
        ("inlay.attic", "", "belongs to no room"),
        ("inlay.memory", "from inlay.layout import _offset", "the private _offset of another room"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, fault: str) -> None:
    (complaint,) = import_faults(module, source)
    assert fault in complaint


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("inlay.layout.map", "import numpy as np\nfrom inlay.layout.axis import Axis, _private\n"),
        ("inlay.memory", "def _repr_svg_(self):\n    from inlay.render import show"),
        ("inlay.cli", "from inlay import __version__"),
        ("inlay.descriptor", "from inlay import layout"),
        ("inlay.memory", "import inlayed"),
    ],
)
def test_a_right_import_is_not_found(module: str, source: str) -> None:
    assert list(import_faults(module, source)) == []


def test_a_relative_import_is_found() -> None:
    assert list(relative_imports("from . import x")) == ["line 1: a relative import; write the full name"]


def test_a_cycle_is_found() -> None:
    sources = {
        "inlay.a": "import inlay.b.c",
        "inlay.b.c": "from inlay.b import d",
        "inlay.b.d": "from inlay.a import x",
    }
    assert cycle(import_graph(sources)) == ["inlay.a", "inlay.b.c", "inlay.b.d", "inlay.a"]
    assert cycle({"inlay.a": {"inlay.b", "inlay.c"}, "inlay.b": {"inlay.c"}, "inlay.c": set()}) == []


# Sizes


def long_functions(source: str) -> Iterator[str]:
    lines = code_lines(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            length = len(lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            if length > MOST_FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {length} lines of code, {MOST_FUNCTION_LINES} at most"


@pytest.mark.parametrize("path", EVERYTHING, ids=ident)
def test_files_are_short(path: Path) -> None:
    most = MOST_TEST_FILE_LINES if path.is_relative_to(ROOT / "tests") else MOST_FILE_LINES
    assert path.read_text().count("\n") <= most


@pytest.mark.parametrize("path", EVERYTHING, ids=ident)
def test_functions_are_short(path: Path) -> None:
    assert list(long_functions(path.read_text())) == []


def test_a_long_function_is_found() -> None:
    body = "    x = 1\n" * (MOST_FUNCTION_LINES - 1)
    docstring = '    """One.\n\n    Two.\n    """\n    # three\n\n'
    assert list(long_functions(f"def f():\n{docstring}{body}")) == []
    complaint = f"line 1: f has {MOST_FUNCTION_LINES + 1} lines of code, {MOST_FUNCTION_LINES} at most"
    assert list(long_functions(f"def f():\n{docstring}{body}    return 1\n")) == [complaint]
    nested = f"class A:\n    def f(self):\n{body.replace('    ', '        ')}        return 1\n"
    assert list(long_functions(nested)) == [complaint.replace("line 1", "line 2")]


# What is never written


def wording_faults(source: str) -> Iterator[str]:
    """Promises instead of code, handlers that hide faults, names that say nothing, files without their idea."""
    tree = ast.parse(source)
    if not ast.get_docstring(tree):
        yield "the file does not open with its idea in a docstring"
    for match in UNFINISHED.finditer(source):
        yield f"line {source.count(chr(10), 0, match.start()) + 1}: {match[0]}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node):
            yield f"line {node.lineno}: an except that catches everything"
        if isinstance(node, ast.ClassDef | Function) and VAGUE_NAMES.search(node.name):
            yield f"line {node.lineno}: the name {node.name} says nothing"


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in kinds
    )


@pytest.mark.parametrize("path", EVERYTHING, ids=ident)
def test_nothing_is_written_that_never_should_be(path: Path) -> None:
    assert list(wording_faults(path.read_text())) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("x = 1", "the file does not open with its idea in a docstring"),
        ('"""Idea."""\nx = 1  # TO' + "DO: more", "line 2: TO" + "DO"),
        ('"""Idea."""\ntry:\n    x = 1\nexcept:\n    pass', "line 4: an except that catches everything"),
        ('"""Idea."""\ntry:\n    x = 1\nexcept Exception:\n    pass', "line 4: an except that catches everything"),
        ('"""Idea."""\ntry:\n    x = 1\nexcept (OSError, BaseException):\n    pass', "line 4: an except that"),
        ('"""Idea."""\nclass LayoutManager: pass', "line 2: the name LayoutManager says nothing"),
    ],
)
def test_what_should_never_be_written_is_found(source: str, fault: str) -> None:
    (complaint,) = wording_faults(source)
    assert complaint.startswith(fault)


def test_a_good_file_has_no_faults() -> None:
    good = '"""Idea."""\n\ntry:\n    x = 1\nexcept (OSError, ValueError):\n    x = 2\n'
    assert list(wording_faults(good)) == []


# One timer

TIMED_BY_MEASURE = [
    path
    for path in EVERYTHING
    if path.is_relative_to(PACKAGE / "bench")
    or path.is_relative_to(PACKAGE / "cli")
    or path.is_relative_to(PACKAGE / "graph" / "costs")
    or path == PACKAGE / "machine.py"
    or (path.parent == ROOT / "benchmarks" and path.stem != "startup_probe")  # which imports nothing before it times
]
CLOCKS = re.compile(r"\b(perf_counter|process_time|thread_time)")


@pytest.mark.parametrize("path", TIMED_BY_MEASURE, ids=ident)
def test_what_is_compared_is_timed_by_inlay_measure(path: Path) -> None:
    assert CLOCKS.search(path.read_text()) is None, "use inlay.measure.interleaved"


def test_a_clock_of_its_own_is_found() -> None:
    assert CLOCKS.search("began = time.perf_counter()")
    assert CLOCKS.search((PACKAGE / "measure" / "interleaved.py").read_text())
    assert len(TIMED_BY_MEASURE) > 30


def test_there_is_something_to_check() -> None:
    assert {"inlay.errors", "inlay.layout", "inlay.notation.format_tag"} <= {module_name(path) for path in SOURCES}
    assert Path(__file__).resolve() in EVERYTHING
