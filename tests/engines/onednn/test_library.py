"""The shared library of oneDNN: search and loading, environment variables, and declared functions."""

import ctypes
import importlib.util
import os
import re
import site
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from inlay.engines.onednn import Library, library, load_library
from inlay.engines.onednn.execution import MOST_PER_PROCESSOR, limit_openmp_threads
from inlay.engines.onednn.library import candidate_paths, install_command
from inlay.errors import MissingExtra, PerformanceWarning, Unimplemented
from inlay.onednn_abi import CREATORS, FUNCTIONS, Version
from inlay.primitives.rules import INLAY_KINDS, KINDS, SIGNATURES
from tests.oracles import onednn as oracle
from tests.support.processes import run_python
from tests.support.refusals import raises_exactly

needs_library = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

INSTALL = install_command()
NAMED = "give a libdnnl.so of version 3, or unset INLAY_ONEDNN"
NOBODYS = "libdnnl-of-nobody.so.3"


# Search


@pytest.fixture
def empty_prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Python in whose folders nothing is installed."""
    monkeypatch.delenv("INLAY_ONEDNN", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python"))
    monkeypatch.setattr(site, "getuserbase", lambda: str(tmp_path / "user"))
    return tmp_path


def test_the_environment_names_a_file_or_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "libdnnl.so.3"
    file.touch()
    for named in (file, tmp_path):
        assert list(candidate_paths({"INLAY_ONEDNN": str(named)})) == [str(file)]


def test_wheels_come_before_the_system(empty_prefix: Path) -> None:
    assert list(candidate_paths({})) == ["libdnnl.so.3"]
    files = [empty_prefix / name / "lib" / "libdnnl.so.3" for name in ("python", "user")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    assert list(candidate_paths({"INLAY_ONEDNN": ""})) == [*map(str, files), "libdnnl.so.3"]


def test_an_error_names_the_extra_or_the_wheel_that_cannot_be_loaded(
    empty_prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_FILE", NOBODYS)
    with raises_exactly(MissingExtra, f"no oneDNN is installed: {INSTALL}"):
        load_library.__wrapped__()
    file = empty_prefix / "python" / "lib" / NOBODYS
    file.parent.mkdir(parents=True)
    file.touch()
    with raises_exactly(MissingExtra, f"{file} cannot be loaded ({file}: file too short): {INSTALL}"):
        load_library.__wrapped__()


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("/nonexistent", ", which does not exist"),
        ("/", ", which has no libdnnl.so.3"),
        ("x" * 5000, ", which cannot be read (File name too long)"),
        ("/dev/null", ": /dev/null cannot be loaded (/dev/null: file too short)"),
        ("LIBM", ": LIBM is not oneDNN, it has no dnnl_version"),
    ],
)
def test_an_invalid_value_of_the_environment_is_named_with_the_remedy(
    named: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named == "LIBM":
        named = re.findall(r"/\S*/libm\.so\S*", Path("/proc/self/maps").read_text())[0]
    monkeypatch.setenv("INLAY_ONEDNN", named)
    with raises_exactly(MissingExtra, f"INLAY_ONEDNN is {named!r}{why.replace('LIBM', named)}: {NAMED}"):
        load_library.__wrapped__()


# Loading


def test_without_openmp_the_package_of_the_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int = 0) -> None:
        raise OSError("libgomp.so.1: no such file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    remedy = "install the system's package of GNU OpenMP, such as libgomp1"
    text = f"/here/libdnnl.so.3 cannot be loaded (libgomp.so.1: no such file): {remedy}"
    with raises_exactly(MissingExtra, text):
        Library("/here/libdnnl.so.3")


@pytest.mark.parametrize(
    ("version", "processors", "error", "text"),
    [
        (Version(2, 7, 3), 1, Unimplemented, f"is oneDNN 2.7, but the engine needs version 3: {INSTALL}"),
        (
            Version(3, 13, 2, b"", 512, 512),
            0,
            MissingExtra,
            "finds no processor to compute on: set OCL_ICD_FILENAMES to the libintelocl.so beside it before Python "
            "starts",
        ),
    ],
)
def test_another_version_and_a_library_without_a_processor_are_refused(
    version: Version, processors: int, error: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions: Mapping[str, Callable[..., Any]] = {
        "version": lambda: ctypes.addressof(version),
        "engine_get_count": lambda kind: processors,
    }
    monkeypatch.setattr(library, "_load_with_dependencies", lambda path, remedy: None)
    monkeypatch.setattr(library, "_bind_functions", lambda cdll, path: functions)
    with raises_exactly(error, f"/here/libdnnl.so {text}"):
        Library("/here/libdnnl.so")


@needs_library
def test_other_users_of_the_file_see_no_change() -> None:
    other = ctypes.CDLL(load_library().path)
    before = other.dnnl_memory_desc_get_size.restype, other.dnnl_primitive_execute.argtypes
    Library(load_library().path)
    assert (other.dnnl_memory_desc_get_size.restype, other.dnnl_primitive_execute.argtypes) == before


@needs_library
def test_the_library_is_the_one_that_was_asked_for() -> None:
    assert load_library().version[:2] == oracle.version()
    assert load_library().runtime == ("sycl" if oracle.version() >= (3, 13) else "omp")
    assert load_library() is load_library()


# Threads of OpenMP


@pytest.mark.parametrize(
    ("settings", "loading"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_openmp_threads_spin_for_a_short_time_unless_the_user_sets_it(
    settings: dict[str, str], loading: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def load(*_: object) -> None:
        seen.append(os.environ.get("GOMP_SPINCOUNT"))
        raise OSError("no such library")

    monkeypatch.setattr("ctypes.CDLL", load)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MissingExtra):
        Library("libdnnl.so")
    assert seen == [loading]
    assert os.environ.get("GOMP_SPINCOUNT") == settings.get("GOMP_SPINCOUNT")


USE = """
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import Memory
descs = [MemoryDesc(dims, "f32", "any") for dims in ((1, 16, 32, 32), (16, 16, 3, 3))]
conv = p.Convolution(*descs, padding_l=1, engine="onednn")
conv(**{name: Memory(conv.desc(name)) for name in conv.arguments})
print(conv.engine.num_threads)
"""


@needs_library
@pytest.mark.parametrize("asked", ["40000", "100000", "99999999999"])
def test_too_many_openmp_threads_are_limited_with_a_warning(asked: str) -> None:
    if load_library().runtime != "omp":
        pytest.skip("the threads of this library are not OpenMP's")
    done = run_python("-c", USE, OMP_NUM_THREADS=asked)
    most = MOST_PER_PROCESSOR * (os.cpu_count() or 1)
    assert done.stdout == f"{most}\n"
    assert "PerformanceWarning: OpenMP is set to " in done.stderr
    assert f"oneDNN uses {most}; set OMP_NUM_THREADS to the number of processors, or unset it" in done.stderr


def test_the_warning_about_too_many_threads() -> None:
    assert limit_openmp_threads(16 * 4, 4) == 64
    with pytest.warns(PerformanceWarning) as caught:
        assert limit_openmp_threads(65, 4) == 64
    assert [str(one.message) for one in caught] == [
        "OpenMP is set to 65 threads, and this machine has 4 processors: oneDNN uses 64; set OMP_NUM_THREADS to the "
        "number of processors, or unset it"
    ]


# Declared functions


def test_every_primitive_has_its_creators() -> None:
    special = {"reorder", "concat", "sum"}
    for (kind, direction), signature in SIGNATURES.items():
        if kind in special or kind in INLAY_KINDS:
            continue
        words = CREATORS.get((kind, direction, "")) or CREATORS[kind, "", ""]
        told = {*words, *(("mean",) if "statistics" in words else ()), *(("src", "dst") if "data" in words else ())}
        needed = {name for name in (*signature.reads, *signature.writes) if name not in signature.optional}
        assert needed - {"workspace", "mean", "variance"} <= told, (kind, direction)
        assert set(signature.parameters) <= told, (kind, direction)
    assert {kind for kind, _, _ in CREATORS} | special == set(KINDS)


@needs_library
def test_missing_functions_are_known() -> None:
    lacking = {name for name in FUNCTIONS if name.removeprefix("dnnl_") not in load_library().functions}
    if oracle.version() >= (3, 13):
        assert lacking == set()
    else:
        assert {name for name in lacking if "group_normalization" in name or name.endswith("_v2")}
        assert "dnnl_convolution_forward_primitive_desc_create" not in lacking


def headers() -> str:
    """The text of oneDNN's own headers, without comments, if PyTorch is installed with them; else empty."""
    spec = importlib.util.find_spec("torch")
    folders = (spec and spec.submodule_search_locations) or ()
    files = [file for folder in folders for file in sorted(Path(folder).glob("include/oneapi/dnnl/dnnl*.h"))]
    text = "".join(file.read_text() for file in files if file.stem in ("dnnl", "dnnl_common", "dnnl_types"))
    return re.sub(r"\s+", " ", re.sub(r"//.*|/\*(.|\n)*?\*/", "", text))


_LETTERS = {ctypes.c_int: "i", ctypes.c_uint: "u", ctypes.c_int64: "d", ctypes.c_size_t: "z", ctypes.c_float: "f"}
_PATTERNS = {
    r"char": "s",
    r"\*|dnnl_dims_t": "p",
    r"\bfloat\b": "f",
    r"\bdnnl_dim_t\b": "d",
    r"\bsize_t\b": "z",
    r"\bunsigned\b": "u",
    r"\bint(32_t)?\b|_kind_t|data_type_t|direction_t|format_tag_t|mode_t|query_t": "i",
    r"": "p",
}


def letter(argument: str) -> str:
    """How an argument of a prototype is passed: the letter of the first pattern that is found."""
    return next(found for pattern, found in _PATTERNS.items() if re.search(pattern, argument))


@pytest.mark.skipif(not headers(), reason="no headers of oneDNN here")
def test_declarations_are_those_of_the_headers() -> None:
    text, unknown = headers(), []
    for name, (types, _) in FUNCTIONS.items():
        prototype = re.search(rf"\b{name}\(([^;]*)\);", text)
        if prototype is None:
            unknown.append(name)
            continue
        said = prototype[1].strip()
        theirs = [letter(argument) for argument in said.split(",")] if said not in ("", "void") else []
        assert ["s" if kind is ctypes.c_char_p else _LETTERS.get(kind, "p") for kind in types] == theirs, name
    assert unknown == ["dnnl_memory_desc_create_with_string_tag"]  # exported, and in no header
    assert len(FUNCTIONS) > 91
