"""Rules for the source code that a machine can check: order of imports, sizes, forbidden text, one source of time.

Each rule is a function from the text of a file to faults. One test applies it to all files; the next tests check that
it finds a fault.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.code_lines import code_lines
from tests.support.paths import DATA, ROOT

PACKAGE = ROOT / "src" / "inlay"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL_FILES = sorted(
    path
    for folder in ("src", "tests", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if path.stat().st_size
)

LAYERS = (
    "interrupts",
    "errors",
    "lazy_names",
    "forks",
    "arguments",
    "files",
    "cache",
    "data_type",
    "measure",
    "machine",
    "layout",
    "safetensors_header",
    "notation",
    "onednn_abi",
    "descriptor",
    "reordering",
    "emission",
    "memory",
    "rearranging",
    "inference",
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
"""Packages and modules of `inlay`; each imports only from those before it."""

MAX_FILE_LINES = 600
MAX_TEST_FILE_LINES = 500  # tests contain the whole texts of errors
MAX_FUNCTION_LINES = 40
LATE_IMPORTS_ALLOWED_IN = ("_repr_html_", "save_page", "to_dask")
VAGUE_NAMES = re.compile(r"Manager|Helper|Utils?$")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
ROOT_NAMES_ALLOWED = {"__version__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def parse(source: str) -> ast.Module:
    return ast.parse(source)


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def faults_in(paths: Iterable[Path], rule: Callable[[str], Iterable[str]]) -> list[str]:
    """The faults that a rule finds in these files, each after the name of its file."""
    return [f"{path.relative_to(ROOT)}: {fault}" for path in paths for fault in rule(path.read_text())]


# Imports


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Each module of Inlay that a source imports, with the imported name; without the late imports that are allowed."""
    for target, name in _imported_by(parse(source)):
        yield (f"inlay.{name}", "") if target == "inlay" and name in LAYERS else (target, name)


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
    """Imports that violate the order of `LAYERS`, relative imports, and imports of private names."""
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(parse(source))):
        yield f"{module} has a relative import: write the full name"
    package = module.split(".")[1]
    if package not in LAYERS:
        yield f"{module} is not in LAYERS"
        return
    for target, name in imported(source):
        parts = target.split(".")
        if len(parts) == 1:
            if name not in ROOT_NAMES_ALLOWED:
                yield f"{module} imports {name or target} from inlay: import it from its package"
        elif parts[1] not in LAYERS:
            yield f"{module} imports {target}, which is not in LAYERS"
        elif LAYERS.index(parts[1]) > LAYERS.index(package):
            yield f"{module} imports {target}, a later layer"
        elif parts[1] != package and name.startswith("_"):
            yield f"{module} imports the private name {name} of {target}"


def find_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """A path of modules that ends where it begins; empty if there is none."""
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
    """The modules that each module imports, including the packages that Python imports before them.

    `from inlay.layout import axis` imports the module `inlay.layout.axis` if there is one, else the package.
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
    """The packages that contain a module, without the outermost."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(2, len(parts))}


MODULES = {module_name(path): path.read_text() for path in SOURCES if path != PACKAGE / "__init__.py"}
"""Name and source of every module but the package's own `__init__`, which imports from all of them."""


def test_modules_import_only_from_earlier_layers() -> None:
    assert [fault for module, source in MODULES.items() for fault in import_faults(module, source)] == []


def test_no_imports_form_a_cycle() -> None:
    assert find_cycle(import_graph(MODULES)) == []


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("inlay.layout.axis", "from inlay.notation.pattern import parse_pattern", "a later layer"),
        ("inlay.layout.axis", "import inlay.render.svg", "a later layer"),
        ("inlay.layout", "def f():\n    from inlay.memory import Memory", "a later layer"),
        ("inlay.layout", "if TYPE_CHECKING:\n    from inlay.memory import Memory", "a later layer"),
        ("inlay.memory", "from inlay import pack", "import it from its package"),
        ("inlay.memory", "import inlay", "import it from its package"),
        ("inlay.memory", "from inlay import render", "a later layer"),
        ("inlay.memory", "from inlay.attic import x", "not in LAYERS"),
        ("inlay.attic", "", "not in LAYERS"),
        ("inlay.memory", "from inlay.layout import _offset", "the private name _offset of inlay.layout"),
        ("inlay.memory", "from . import x", "a relative import"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, fault: str) -> None:
    (complaint,) = import_faults(module, source)
    assert fault in complaint


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("inlay.layout.address", "import numpy as np\nfrom inlay.layout.axis import Axis, _private\n"),
        ("inlay.memory", "def _repr_html_(self):\n    from inlay.render import show"),
        ("inlay.cli", "from inlay import __version__"),
        ("inlay.descriptor", "from inlay import layout"),
        ("inlay.memory", "import inlayed"),
    ],
)
def test_a_correct_import_is_accepted(module: str, source: str) -> None:
    assert list(import_faults(module, source)) == []


def test_a_cycle_is_found() -> None:
    sources = {
        "inlay.a": "import inlay.b.c",
        "inlay.b.c": "from inlay.b import d",
        "inlay.b.d": "from inlay.a import x",
    }
    assert find_cycle(import_graph(sources)) == ["inlay.a", "inlay.b.c", "inlay.b.d", "inlay.a"]
    assert find_cycle({"inlay.a": {"inlay.b", "inlay.c"}, "inlay.b": {"inlay.c"}, "inlay.c": set()}) == []


# Sizes


def long_functions(source: str) -> Iterator[str]:
    functions = [node for node in ast.walk(parse(source)) if isinstance(node, Function)]
    spans = {node: range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in functions}
    # Counting needs the tokens of the file, so it is done only where a function has enough lines of any kind.
    for node, span in spans.items():
        if len(span) > MAX_FUNCTION_LINES and (length := len(code_lines(source) & set(span))) > MAX_FUNCTION_LINES:
            yield f"line {node.lineno}: {node.name} has {length} lines of code, {MAX_FUNCTION_LINES} at most"


def test_files_and_functions_are_short() -> None:
    lengths = {path: path.read_text().count("\n") for path in ALL_FILES}
    tests = ROOT / "tests"
    assert [
        str(path)
        for path, length in lengths.items()
        if length > (MAX_TEST_FILE_LINES if path.is_relative_to(tests) else MAX_FILE_LINES)
    ] == []
    assert faults_in(ALL_FILES, long_functions) == []


def test_a_long_function_is_found() -> None:
    body = "    x = 1\n" * (MAX_FUNCTION_LINES - 1)
    docstring = '    """One.\n\n    Two.\n    """\n    # three\n\n'
    assert list(long_functions(f"def f():\n{docstring}{body}")) == []
    complaint = f"line 1: f has {MAX_FUNCTION_LINES + 1} lines of code, {MAX_FUNCTION_LINES} at most"
    assert list(long_functions(f"def f():\n{docstring}{body}    return 1\n")) == [complaint]
    nested = f"class A:\n    def f(self):\n{body.replace('    ', '        ')}        return 1\n"
    assert list(long_functions(nested)) == [complaint.replace("line 1", "line 2")]


# Forbidden text


def wording_faults(source: str) -> Iterator[str]:
    """Notes on unfinished code, handlers of all exceptions, vague names, files without a docstring."""
    tree = parse(source)
    if not ast.get_docstring(tree):
        yield "the file has no docstring"
    for match in UNFINISHED.finditer(source):
        yield f"line {source.count(chr(10), 0, match.start()) + 1}: {match[0]}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node):
            yield f"line {node.lineno}: an except that catches everything"
        if isinstance(node, ast.ClassDef | Function) and VAGUE_NAMES.search(node.name):
            yield f"line {node.lineno}: the name {node.name} is vague"


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in kinds
    )


def test_no_file_has_forbidden_text() -> None:
    assert faults_in(ALL_FILES, wording_faults) == []


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("x = 1", ["the file has no docstring"]),
        ('"""Idea."""\nx = 1  # TO' + "DO: more", ["line 2: TO" + "DO"]),
        ('"""Idea."""\ntry:\n    x = 1\nexcept:\n    pass', ["line 4: an except that catches everything"]),
        ('"""Idea."""\ntry:\n    x = 1\nexcept Exception:\n    pass', ["line 4: an except that catches everything"]),
        (
            '"""Idea."""\ntry:\n    x = 1\nexcept (OSError, BaseException):\n    pass',
            ["line 4: an except that catches everything"],
        ),
        ('"""Idea."""\nclass LayoutManager: pass', ["line 2: the name LayoutManager is vague"]),
        ('"""Idea."""\n\ntry:\n    x = 1\nexcept (OSError, ValueError):\n    x = 2\n', []),
    ],
)
def test_forbidden_text_is_found(source: str, faults: list[str]) -> None:
    assert list(wording_faults(source)) == faults


# Clocks

MEASURED_FILES = [
    path
    for path in ALL_FILES
    if path.is_relative_to(PACKAGE / "bench")
    or path.is_relative_to(PACKAGE / "cli")
    or path.is_relative_to(PACKAGE / "graph" / "costs")
    or path == PACKAGE / "machine.py"
    or (path.parent == ROOT / "benchmarks" and path.stem != "startup_probe")  # it may import nothing before it measures
]
CLOCKS = re.compile(r"\b(perf_counter|process_time|thread_time)")


def clock_faults(source: str) -> Iterator[str]:
    if match := CLOCKS.search(source):
        yield f"{match[0]}: use inlay.measure.interleaved"


def test_measurements_use_inlay_measure() -> None:
    assert faults_in(MEASURED_FILES, clock_faults) == []


def test_another_clock_is_found() -> None:
    assert list(clock_faults("began = time.perf_counter()")) == ["perf_counter: use inlay.measure.interleaved"]
    assert CLOCKS.search((PACKAGE / "measure" / "interleaved.py").read_text())
    assert len(MEASURED_FILES) > 30


def test_the_lists_of_files_are_complete() -> None:
    assert {"inlay.errors", "inlay.layout", "inlay.notation.format_tag"} <= {module_name(path) for path in SOURCES}
    assert Path(__file__).resolve() in ALL_FILES


def test_files_that_make_check_leaves_out_exist() -> None:
    names = (DATA / "slow_files.txt").read_text().split()
    assert [name for name in names if not (ROOT / "tests" / name).exists()] == []
    assert names == sorted(set(names))
