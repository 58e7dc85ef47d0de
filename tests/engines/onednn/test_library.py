"""The shared library of oneDNN: search and loading, declared functions, and memory leaks."""

import ctypes
import gc
import importlib.util
import json
import os
import re
import site
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import Library, OnednnEngine, library, load_library, make_engine
from inlay.engines.onednn.library import candidate_paths, install_command
from inlay.errors import MissingExtra, Unimplemented
from inlay.memory import Memory
from inlay.onednn_abi import CREATORS, FUNCTIONS, Version
from inlay.primitives.rules import KINDS, SIGNATURES
from tests.oracles import onednn as oracle
from tests.support.onednn_cases import backward, directions, forward
from tests.support.processes import run_python

needs_library = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

INSTALL = install_command()


@pytest.fixture
def empty_prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Python in whose folders nothing is installed."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python"))
    monkeypatch.setattr(site, "getuserbase", lambda: str(tmp_path / "user"))
    return tmp_path


# Finding


def test_the_environment_names_a_file_or_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "libdnnl.so.3"
    file.touch()
    for named in (file, tmp_path):
        assert list(candidate_paths({"INLAY_ONEDNN": str(named)})) == [str(file)]


def test_what_the_environment_names_must_exist(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra) as caught:
        list(candidate_paths({"INLAY_ONEDNN": str(tmp_path / "nowhere.so")}))
    assert str(caught.value) == (
        f"INLAY_ONEDNN is '{tmp_path}/nowhere.so', which does not exist: give a libdnnl.so of version 3, or unset "
        "INLAY_ONEDNN"
    )


def test_wheels_come_before_the_system(empty_prefix: Path) -> None:
    assert list(candidate_paths({})) == ["libdnnl.so.3"]
    files = [empty_prefix / name / "lib" / "libdnnl.so.3" for name in ("python", "user")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    assert list(candidate_paths({"INLAY_ONEDNN": ""})) == [*map(str, files), "libdnnl.so.3"]


def test_where_nothing_is_installed_the_extra_is_named(empty_prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INLAY_ONEDNN", raising=False)
    monkeypatch.setattr(library, "_FILE", "libdnnl-of-nobody.so.3")
    with pytest.raises(MissingExtra) as caught:
        load_library.__wrapped__()
    assert str(caught.value) == f"no oneDNN is installed: {INSTALL}"


def test_a_wheel_that_cannot_be_loaded_says_why(empty_prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INLAY_ONEDNN", raising=False)
    monkeypatch.setattr(library, "_FILE", "libdnnl-of-nobody.so.3")
    file = empty_prefix / "python" / "lib" / "libdnnl-of-nobody.so.3"
    file.parent.mkdir(parents=True)
    file.write_text("no library")
    with pytest.raises(MissingExtra) as caught:
        load_library.__wrapped__()
    assert str(caught.value).startswith(f"{file} cannot be loaded ({file}: ")
    assert str(caught.value).endswith(f"): {INSTALL}")


def test_a_file_of_the_environment_that_is_no_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weights.npy"
    file.write_text("no library")
    monkeypatch.setenv("INLAY_ONEDNN", str(file))
    with pytest.raises(MissingExtra) as caught:
        load_library.__wrapped__()
    assert str(caught.value).startswith(f"INLAY_ONEDNN is '{file}': {file} cannot be loaded ({file}: ")
    assert str(caught.value).endswith("): give a libdnnl.so of version 3, or unset INLAY_ONEDNN")


def test_without_openmp_the_systems_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int = 0) -> None:
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(MissingExtra) as caught:
        Library("/here/libdnnl.so.3")
    assert str(caught.value) == (
        "/here/libdnnl.so.3 cannot be loaded (libgomp.so.1: cannot open shared object file: No such file or "
        "directory): install the system's package of GNU OpenMP, such as libgomp1"
    )


def test_another_library_is_no_onednn() -> None:
    with pytest.raises(MissingExtra) as caught:
        Library("libm.so.6")
    assert str(caught.value) == f"libm.so.6 is not oneDNN, it has no dnnl_version: {INSTALL}"


def fake_library(monkeypatch: pytest.MonkeyPatch, version: Version, count: int) -> None:
    functions: Mapping[str, Callable[..., Any]] = {
        "version": lambda: ctypes.addressof(version),
        "engine_get_count": lambda kind: count,
    }
    monkeypatch.setattr(library, "_load_with_dependencies", lambda path, remedy: None)
    monkeypatch.setattr(library, "_bind_functions", lambda cdll, path: functions)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_library(monkeypatch, Version(2, 7, 3), 1)
    with pytest.raises(Unimplemented) as caught:
        Library("/here/libdnnl.so.2")
    assert str(caught.value) == f"/here/libdnnl.so.2 is oneDNN 2.7, but the engine needs version 3: {INSTALL}"


def test_a_library_without_a_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_library(monkeypatch, Version(3, 13, 2, b"", 512, 512), 0)
    with pytest.raises(MissingExtra) as caught:
        Library("/here/libdnnl.so.3")
    assert str(caught.value) == (
        "/here/libdnnl.so.3 finds no processor to compute on: set OCL_ICD_FILENAMES to the libintelocl.so beside it "
        "before Python starts"
    )


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


# What is declared


def test_every_primitive_has_its_creators() -> None:
    special = {"reorder", "concat", "sum"}
    for (kind, direction), signature in SIGNATURES.items():
        if kind in special:
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


def headers() -> str | None:
    """The text of oneDNN's own headers, without comments, where PyTorch brought them."""
    found = importlib.util.find_spec("torch")
    folders = [Path(path) / "include/oneapi/dnnl" for path in (found.submodule_search_locations or ())] if found else []
    for folder in folders:
        if folder.exists():
            text = "".join((folder / name).read_text() for name in ("dnnl.h", "dnnl_common.h", "dnnl_types.h"))
            return re.sub(r"\s+", " ", re.sub(r"//.*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S)))
    return None


_LETTERS = {ctypes.c_int: "i", ctypes.c_uint: "u", ctypes.c_int64: "d", ctypes.c_size_t: "z", ctypes.c_float: "f"}


def letter(argument: str) -> str:
    """How an argument of a prototype is passed."""
    if "char" in argument:
        return "s"
    if "*" in argument or "dnnl_dims_t" in argument:
        return "p"
    for pattern, found in (
        (r"\bfloat\b", "f"),
        (r"\bdnnl_dim_t\b", "d"),
        (r"\bsize_t\b", "z"),
        (r"\bunsigned\b", "u"),
        (r"\bint(32_t)?\b|_kind_t|data_type_t|direction_t|format_tag_t|mode_t|query_t", "i"),
    ):
        if re.search(pattern, argument):
            return found
    return "p"


@pytest.mark.skipif(headers() is None, reason="no headers of oneDNN here")
def test_declarations_are_those_of_the_headers() -> None:
    text = headers() or ""
    count = 0
    for name, (types, _) in FUNCTIONS.items():
        prototype = re.search(rf"\b{name}\(([^;]*)\);", text)
        if prototype is None:
            assert name == "dnnl_memory_desc_create_with_string_tag"  # exported, and in no header
            continue
        said = prototype[1].strip()
        theirs = [letter(argument) for argument in said.split(",")] if said not in ("", "void") else []
        ours = ["s" if kind is ctypes.c_char_p else _LETTERS.get(kind, "p") for kind in types]
        assert ours == theirs, name
        count += 1
    assert count > 90


# Nothing is kept


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_growth(work: Callable[[int], None], warm: int, count: int, limit: int) -> int:
    """Bytes that `work` adds when it is done `count` times, after it was done `warm` times.

    Threads of libraries take memory when they like, but a leak is in each of three attempts: the first that stays
    under the limit ends them.
    """
    for i in range(warm):
        work(i)
    added = limit
    for _ in range(3):
        gc.collect()
        before = resident()
        for i in range(count):
            work(i)
        gc.collect()
        added = resident() - before
        if added < limit:
            break
    return added


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says what a process takes")


def cycles(engine: OnednnEngine) -> Mapping[str, Callable[[int], None]]:
    """What makes and drops each kind of handle."""
    relu = forward("eltwise", "forward_inference")
    softmax = engine.create(forward("softmax", "forward_inference"))
    memories = {name: Memory(desc) for name, desc in softmax.descs.items()}
    hint = engine.create(forward("convolution"))

    def execute(i: int) -> None:
        softmax.bind(memories)()

    def bind_several(i: int) -> None:
        kept = [softmax.bind(memories) for _ in range(7)]
        assert len(kept) == 7

    def describe(i: int) -> None:
        engine.descriptors.handle(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))

    def create(i: int) -> None:
        engine.create(relu)

    def go_back(i: int) -> None:
        engine.create(backward(hint, "backward_data"))

    return {
        "memory": execute,
        "more memory than is kept": bind_several,
        "memory_desc": describe,
        "primitive_desc": create,
        "backward": go_back,
    }


LIMIT = 1 << 20


@needs_library
@needs_proc
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("memory", 20_000),
        ("more memory than is kept", 3_000),
        ("memory_desc", 20_000),
        ("primitive_desc", 10_000),
        ("backward", 2_000),
    ],
)
def test_a_hundred_thousand_handles_leave_nothing(name: str, count: int) -> None:
    # One leaked memory_desc of 3.2 in each cycle would be over 600 bytes: 1.2 MB at the least.
    work = cycles(make_engine())[name]
    assert measure_growth(work, max(500, count // 4), count, LIMIT) < LIMIT


@pytest.fixture
def no_primitive_cache() -> Iterator[None]:
    """The library remembers primitives of engines that are gone, 1024 of them."""
    set_capacity = load_library().cdll.dnnl_set_primitive_cache_capacity
    set_capacity(0)
    yield
    set_capacity(1024)


@needs_library
@needs_proc
@pytest.mark.usefixtures("no_primitive_cache")
def test_engines_and_primitives_leave_nothing() -> None:
    if load_library().runtime == "sycl":
        pytest.skip("SYCL keeps 20 kB of each stream that executed")

    def work(i: int) -> None:
        engine = make_engine()
        implementation = engine.create(forward("eltwise", "forward_inference"))
        implementation.bind({name: Memory(desc) for name, desc in implementation.descs.items()})()

    assert measure_growth(work, 50, 300, LIMIT) < LIMIT


@needs_library
@needs_proc
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "count"),
    [("more memory than is kept", 150_000), ("memory_desc", 1_000_000), ("primitive_desc", 1_000_000)],
)
def test_a_million_handles_leave_nothing(name: str, count: int) -> None:
    work = cycles(make_engine())[name]
    assert measure_growth(work, 20_000, count, 4 * LIMIT) < 4 * LIMIT


@needs_library
@needs_proc
@pytest.mark.heavy
def test_every_kind_leaves_nothing() -> None:
    engine = make_engine()
    kinds = [kind for kind in KINDS if kind not in ("group_normalization", "augru", "lbr_augru")]

    def work(i: int) -> None:
        kind = kinds[i % len(kinds)]
        implementation = engine.create(forward(kind))
        implementation.bind({name: Memory(desc) for name, desc in implementation.descs.items()})()
        for direction in directions(kind):
            engine.create(backward(implementation, direction))

    assert measure_growth(work, 20 * len(kinds), 200 * len(kinds), 8 * LIMIT) < 8 * LIMIT


# Another opinion of the processor: the library reads it when it is loaded, so in a process of its own

OPAQUE = """
import json, sys
import numpy as np
from tests.support.onednn_cases import DIMS, PARAMETERS
from inlay.descriptor import MemoryDesc
from inlay.engines import reference
from inlay.engines.onednn import make_engine
from inlay.errors import InlayError
from inlay.memory import Memory, pack
from inlay.primitives.attributes import PrimitiveAttributes, RecurrentScales
from inlay.primitives.engine import Operation

engine = make_engine()
types = {"weights_layer": "s8", "weights_iter": "s8", "bias": "f32", "src_iter_c": "f32", "dst_iter_c": "f32"}
quantized = {n: MemoryDesc(d, types.get(n, "u8"), "any") for n, d in DIMS["lstm"].items()}
attributes = PrimitiveAttributes(recurrent=RecurrentScales(scale=100.0, shift=128.0, weights=(100.0,)))
parameters = {"direction": "left2right", "flags": frozenset()}
implementation = engine.create(Operation("lstm", "forward_inference", quantized, parameters, attributes))
again = engine.create(Operation("lstm", "forward_inference", quantized, parameters, attributes))

rng, real, memories = np.random.default_rng(0), {}, {}
for name, desc in implementation.descs.items():
    real[name] = rng.uniform(-1, 1, desc.dims).astype(np.float32)
    kind = str(desc.data_type)
    if kind == "s8":
        plain = MemoryDesc(desc.dims, "f32")
        move = engine.create(Operation("reorder", "forward_inference", {"src": plain, "dst": desc}, {}, attributes))
        memories[name] = Memory(desc)
        move.bind({"src": pack(real[name], plain), "dst": memories[name]})()
    elif kind == "u8":
        memories[name] = pack(np.clip(np.rint(real[name] * 100 + 128), 0, 255).astype(np.uint8), desc)
    else:
        memories[name] = pack(real[name], desc)
implementation.bind(memories)()
got = (memories["dst_layer"].unpack().astype(float) - 128) / 100

plain = {n: MemoryDesc(d, "f32") for n, d in DIMS["lstm"].items()}
known = reference.make_engine().create(Operation("lstm", "forward_inference", plain, parameters))
others = {n: pack(real[n], d) if n in real else Memory(d) for n, d in known.descs.items()}
known.bind(others)()
try:
    make_engine().descriptors.handle(implementation.descs["weights_layer"])
    refused = ""
except InlayError as error:
    refused = str(error)
json.dump({
    "kind": implementation.descs["weights_layer"].kind,
    "same": again.descs["weights_layer"] is implementation.descs["weights_layer"],
    "name": getattr(implementation.descs["weights_layer"].layout, "name", ""),
    "error": float(np.abs(got - others["dst_layer"].unpack()).max()),
    "refused": refused,
}, sys.stdout)
"""


@needs_library
def test_opaque_weights_are_packed_by_the_engine_and_known_by_name() -> None:
    """Before AVX2 an int8 LSTM packs its weights in a format that no query tells."""
    found = json.loads(run_python("-c", OPAQUE, ONEDNN_MAX_CPU_ISA="AVX").stdout)
    version = ".".join(map(str, load_library().version))
    assert (found["kind"], found["same"], found["name"]) == ("opaque", True, f"onednn-{version}-1")
    assert found["error"] < 0.06
    assert found["refused"].startswith(
        f"the opaque format onednn-{version}-1 of dims (2, 1, 5, 4, 5) was not created by this"
    )


@needs_library
def test_packed_weights_with_compensation_are_written_by_the_engine_too() -> None:
    found = json.loads(run_python("-c", OPAQUE, ONEDNN_MAX_CPU_ISA="DEFAULT").stdout)
    assert found["error"] < 0.06


def spins_while_loading(path: str, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What the environment says of idle threads of OpenMP while a library is loaded, and afterwards."""
    seen: list[str | None] = []

    def load(*_: object) -> None:
        seen.append(os.environ.get("GOMP_SPINCOUNT"))
        raise OSError("no such library")

    monkeypatch.setattr("ctypes.CDLL", load)
    with pytest.raises(MissingExtra):
        library.Library(path)
    return [*seen, os.environ.get("GOMP_SPINCOUNT")]


def test_openmp_threads_spin_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert spins_while_loading("libdnnl.so", monkeypatch) == ["1000", None]


def test_spin_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "77")
    assert spins_while_loading("libdnnl.so", monkeypatch) == ["77", "77"]
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert spins_while_loading("libdnnl.so", monkeypatch) == [None, None]
