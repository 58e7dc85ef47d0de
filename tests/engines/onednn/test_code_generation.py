"""Errors of the code generator: one failed creation does not affect other primitives of the thread."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import Library, OnednnEngine, load_library, make_engine
from inlay.engines.onednn.library import CodeGeneration, RuntimeFailure, is_prone_to_failure, run_on_new_thread
from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented
from tests.oracles import onednn as oracle
from tests.support.paths import SUPPORT
from tests.support.processes import run_python
from tests.support.refusals import raises_exactly

LIVE = oracle.why_unavailable() is None
needs_library = pytest.mark.skipif(not LIVE, reason=str(oracle.why_unavailable()))

# Which thread creates


class Generator:
    """Creates primitives by name; those that are named `bad` leave an error in their thread."""

    def __init__(self) -> None:
        self.state = threading.local()
        self.threads: list[int] = []

    def create(self, name: str) -> Callable[[], str]:
        def call() -> str:
            self.threads.append(threading.get_ident())
            if name == "bad":
                self.state.has_error = True
            if getattr(self.state, "has_error", False):
                raise RuntimeFailure("status 5")
            return name

        return call


def nothing() -> None:
    """What a new thread is prepared with."""


@pytest.mark.parametrize(
    ("before", "isolate", "left_behind", "expected"),
    [
        ("", False, False, ["own", "own"]),
        ("bad", False, False, ["new", "new"]),  # after an error every creation gets a new thread
        ("bad", True, False, ["own", "own"]),  # an operation that is prone to fail leaves the thread alone
        ("", False, True, ["own", "new", "new"]),  # an error that another user left in the thread
    ],
)
def test_a_creation_runs_in_a_thread_without_errors(
    before: str, isolate: bool, left_behind: bool, expected: list[str]
) -> None:
    generator, generation = Generator(), CodeGeneration()
    generator.state.has_error = left_behind
    if before:
        with pytest.raises(RuntimeFailure):
            generation.run(generator.create(before), nothing, isolate=isolate)
    generator.threads.clear()
    assert [generation.run(generator.create(name), nothing) for name in "ab"] == ["a", "b"]
    assert ["own" if one == threading.get_ident() else "new" for one in generator.threads] == expected


def test_other_errors_change_nothing() -> None:
    generation = CodeGeneration()

    def refuse() -> None:
        raise InvalidArguments("no")

    for isolate in (False, True):
        with pytest.raises(InvalidArguments, match="no"):
            generation.run(refuse, nothing, isolate=isolate)
    assert generation.run(threading.get_ident, nothing) == threading.get_ident()


def test_a_new_thread_is_prepared_and_the_calling_one_is_not() -> None:
    generation = CodeGeneration()
    prepared: list[int] = []

    def prepare() -> None:
        prepared.append(threading.get_ident())

    generation.run(nothing, prepare)
    assert prepared == []
    created = generation.run(threading.get_ident, prepare, isolate=True)
    assert prepared == [created]


def test_a_system_without_threads_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    text = "the system starts no thread to create a primitive with: can't start new thread"
    with raises_exactly(OutOfMemory, text):
        run_on_new_thread(nothing)


@pytest.mark.parametrize(
    ("desc", "expected"),
    [
        (MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), False),
        (MemoryDesc((1, 16, 3, 1 << 25), "f32", "aBcd16b"), True),
        (MemoryDesc((2, 3), "f32", strides=(1 << 33, 1)), True),
        (MemoryDesc((2, 3), "f8_e4m3"), True),
        (MemoryDesc((2, 3), "s8"), False),
        (MemoryDesc.packed((64, 64), "f32", 10), False),
        (MemoryDesc(), False),
    ],
    ids=str,
)
def test_long_axes_and_emulated_types_are_prone(desc: MemoryDesc, expected: bool) -> None:
    assert is_prone_to_failure([desc]) is is_prone_to_failure([MemoryDesc((2,), "f32"), desc]) is expected


@needs_library
def test_the_word_of_instruction_sets_is_the_librarys() -> None:
    capabilities = make_engine().capabilities
    assert capabilities.isa == oracle.library().dnnl_get_effective_cpu_isa()
    assert capabilities.isa & 1


# The real library: displacements of more than 32 bits


LONG = MemoryDesc((1, 16, 3, 1 << 25), "f32", "aBcd16b")


@needs_library
def test_code_that_cannot_be_generated_leaves_the_thread_sound() -> None:
    """6 GB of channels, described and never allocated: 3.13 fails to generate code for them on any x86-64."""

    def create() -> tuple[str, bool]:
        engine = make_engine()
        implementation: Any = p.Shuffle(LONG, axis=1, group_size=4, engine=engine).implementation
        preferred = implementation.impl
        implementation.create_primitive()
        assert implementation.replaced in ("", preferred)
        # The oracle creates in this very thread, and notices an error that is left there.
        small = [oracle.mirror(MemoryDesc((3, 5), "f32", tag)) for tag in ("ab", "ba")]
        oracle.Reorder(small[0], small[1])
        return implementation.replaced, oracle.has_met_an_error()

    # In a thread of its own: an error that stays is no other test's.
    replaced, is_spoiled = run_on_new_thread(create)
    assert not is_spoiled
    if oracle.version() == (3, 13):
        assert replaced.startswith("jit")


@needs_library
def test_a_failure_before_there_is_a_primitive_is_a_refusal() -> None:
    engine = OnednnEngine(Library(load_library().path))
    functions: Any = engine.library.functions
    functions["softmax_forward_primitive_desc_create"] = lambda *arguments: 5
    operation = p.Softmax(MemoryDesc((2, 3), "f32"), axis=1, engine="reference").operation
    text = (
        f"{engine.library.name} fails with status 5 at softmax forward_inference, src f32::blocked:ab::f0 2x3, dst "
        "f32::any:any::f0 2x3, algorithm='accurate', axis=1: its code generator has an error"
    )
    with raises_exactly(Unimplemented, text):
        engine.create(operation)


# A library that stands for one that fails


ELTWISE, REORDER = "7", "1"


@pytest.fixture(scope="module")
def sticky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub, linked to the library under test."""
    if shutil.which("gcc") is None or not LIVE:
        pytest.skip("no gcc, or no oneDNN")
    real = Path(load_library().path)
    built = tmp_path_factory.mktemp("sticky") / "libsticky.so"
    linked = [str(real), f"-Wl,-rpath,{real.parent}", "-Wl,--unresolved-symbols=ignore-all", "-ldl"]
    command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(built), str(SUPPORT / "sticky_onednn.c")]
    done = subprocess.run([*command, *linked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


def run_with_stub(stub: Path, program: list[str], kind: str, impl: str, **others: str) -> str:
    """What a program prints that uses the stub, which fails at implementations of these names."""
    settings = {"INLAY_ONEDNN": str(stub), "STICKY_REAL": load_library().path, "STICKY_KIND": kind, "STICKY_IMPL": impl}
    return run_python(*program, timeout=120, **settings, **others).stdout


def run_sticky_program(stub: Path, kind: str, impl: str, **others: str) -> Any:
    return json.loads(run_with_stub(stub, ["-m", "tests.support.sticky_onednn"], kind, impl, **others))


def test_the_next_implementation_computes(sticky: Path) -> None:
    found = run_sticky_program(sticky, ELTWISE, "jit")
    assert found["named"] == found["default"] == {"engine": "onednn", "impl": "ref:any", "is_right": True}
    assert all(one["engine"] == "onednn" and one["is_right"] for one in (*found["later"], *found["threads"]))
    assert found["session"]["declined"] == ["relu"]
    start = "1 step is computed by another implementation, because code generation failed: relu (ref:any for jit:"
    assert found["session"]["note"].startswith(start)
    assert found["session"]["is_right"]
    assert found["oracle"] == ["right"] * 3


def test_another_engine_computes_where_no_implementation_is_left(sticky: Path) -> None:
    found = run_sticky_program(sticky, ELTWISE, "")
    name = f"oneDNN {'.'.join(map(str, load_library().version))}"
    desc = "f32::blocked:abcd::f0 2x16x5x7"
    assert found["named"] == {
        "error": f"Unimplemented: {name} fails with status 5 at eltwise forward_inference, src {desc}, dst "
        "f32::any:any::f0 2x16x5x7, algorithm='relu', alpha=0.5, beta=0.0: its code generator fails, and none of its "
        "other implementations has the same formats"
    }
    assert found["default"] == {"engine": "reference", "impl": found["default"]["impl"], "is_right": True}
    assert all(one["is_right"] for one in found["later"])
    assert found["session"]["declined"] == ["relu"]
    assert found["session"]["note"] == "1 step is computed by the reference engine: relu"
    assert found["session"]["is_right"]


def test_a_failure_that_does_not_come_back_changes_nothing(sticky: Path) -> None:
    found = run_sticky_program(sticky, ELTWISE, "", STICKY_ONCE="1")
    every = [found["named"], found["default"], *found["later"], *found["threads"]]
    assert all(one["engine"] == "onednn" and one["is_right"] for one in every)
    assert (found["session"]["declined"], found["session"]["note"]) == ([], "")


def test_the_oracle_goes_on_after_an_error(sticky: Path) -> None:
    found = run_sticky_program(sticky, REORDER, "", STICKY_ONCE="1")
    assert found["oracle"] == ["right"] * 3
    assert run_sticky_program(sticky, REORDER, "")["oracle"] == ["status 5"] * 3


WITHOUT_CARE = """
import os
from tests.oracles import onednn as oracle
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import Library

Library(os.environ["STICKY_REAL"])
oracle._created_safely = lambda create: create()
for tag in ("ab", "ba", "ab"):
    src, dst = MemoryDesc((4, 8), "f32", "ab"), MemoryDesc((4, 8), "s8", tag)
    try:
        oracle.Reorder(oracle.mirror(src), oracle.mirror(dst))
    except oracle.Refused as refused:
        print(refused.status)
"""


def test_without_care_one_failure_is_the_end_of_the_thread(sticky: Path) -> None:
    """What the tests above survive is real."""
    assert run_with_stub(sticky, ["-c", WITHOUT_CARE], REORDER, "", STICKY_ONCE="1") == "status 5\n" * 3
