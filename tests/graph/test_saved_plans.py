"""Saved plans: a session from a file computes what the session of the plan computes; other files are refused."""

import json
import os
import pickle
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import inlay
from inlay.errors import FileError, InvalidArguments
from inlay.graph.plan import Plan
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans import plan_writing
from inlay.graph.saved_plans.checked_file import is_saved_plan, map_sections, write_sections
from inlay.graph.saved_plans.plan_file import PlanOrigin, read_plan
from inlay.graph.stored_constants import StoredConstants
from inlay.primitives.engine import get_engine
from tests.support.mutated_models import seeds
from tests.support.paths import ROOT
from tests.support.processes import run_python
from tests.support.refusals import raises_exactly
from tests.support.saved_plan_models import MODELS, convolutions, inputs_for, plan_of

ENGINES = sorted({"reference", get_engine().name.split()[0]})
Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(name="plan", scope="module", params=[(name, engine) for name in MODELS for engine in ENGINES])
def make_plan(request: pytest.FixtureRequest) -> Plan:
    """A plan of each network for each engine."""
    return plan_of(*request.param)


@pytest.fixture(name="path")
def save(plan: Plan, tmp_path: Path) -> Path:
    """Its file."""
    path = tmp_path / "net.inlay"
    plan.save(path)
    return path


def simple(tmp_path: Path) -> tuple[Plan, Path]:
    """A plan by the reference engine, and its file."""
    plan, path = plan_of("convolutions"), tmp_path / "net.inlay"
    plan.save(path)
    return plan, path


def same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether arrays by name are equal bit by bit."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the records of a file, and compute the checksum anew."""
    sections = {name: np.array(data) for name, data in map_sections(path).items()}
    records = json.loads(sections["plan"].tobytes())
    change(records)
    text = json.dumps(records).encode()
    write_sections(path, sections | {"plan": np.frombuffer(text + b" " * (-len(text) % 64), np.uint8)})


# Results


def test_ten_runs_equal_those_of_the_plan_bit_by_bit(plan: Plan, path: Path) -> None:
    with plan.compile() as original, inlay.Session.load(path, engine=plan.computed_by) as session:
        assert session.note == ""
        for seed in range(10):
            inputs = inputs_for(plan, seed)
            assert same(session.run(inputs), original.run(inputs))


def test_the_plan_is_the_one_that_was_saved(plan: Plan, path: Path) -> None:
    found = read_plan(path).plan
    wanted = PlannedProgram(**{one.name: getattr(plan, one.name) for one in fields(PlannedProgram)})
    assert found == wanted
    assert [step.without for step in found.program.steps] == [step.without for step in plan.program.steps]
    assert (found.sources, found.processors) == (plan.sources, plan.processors)


def test_traces_and_profiles_have_the_tensors_and_steps_of_the_plan(plan: Plan, path: Path) -> None:
    inputs = inputs_for(plan)
    with plan.compile() as original, inlay.Session.load(path, engine=plan.computed_by) as session:
        assert same(session.trace(inputs), original.trace(inputs))
        assert [one.step.name for one in session.profile(inputs, runs=1)] == [s.name for s in plan.program.steps]


def test_runs_with_nan_and_infinities_equal_those_of_the_plan(plan: Plan, path: Path) -> None:
    inputs = inputs_for(plan)
    for array in inputs.values():
        array.flat[:2] = np.nan, np.inf
    with plan.compile() as original, inlay.Session.load(path, engine=plan.computed_by) as session:
        wanted, found = original.run(inputs), session.run(inputs)
    assert all(np.array_equal(found[name], wanted[name], equal_nan=wanted[name].dtype.kind == "f") for name in wanted)


def test_threads_share_a_session(tmp_path: Path) -> None:
    plan, path = simple(tmp_path)
    inputs = [inputs_for(plan, seed) for seed in range(4)]
    with plan.compile() as original:
        wanted = [original.run(one) for one in inputs]
    found: dict[int, dict[str, Array]] = {}
    with inlay.Session.load(path, engine="reference") as session:

        def work(i: int) -> None:
            for _ in range(3):
                found[i] = session.run(inputs[i])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(same(found[i], wanted[i]) for i in range(4))


def test_a_loaded_plan_can_be_saved_and_pickled(plan: Plan, path: Path, tmp_path: Path) -> None:
    loaded = read_plan(path).plan
    plan_writing.write_plan(loaded, tmp_path / "again.inlay", plan.computed_by)
    assert (tmp_path / "again.inlay").read_bytes() == path.read_bytes()
    assert pickle.loads(pickle.dumps(loaded)) == loaded


def test_plans_of_all_operators_can_be_saved(tmp_path: Path) -> None:
    """The models of the fuzzer: one of each operator with random attributes, most inputs stored, and an encoder."""
    count, path = 0, tmp_path / "net.inlay"
    for content in seeds():
        try:
            plan = inlay.plan(inlay.load(content), costs="probed", engine="reference", fallback=False)
            inputs = {one.name: np.ones(one.dims, one.dtype) for one in plan.inputs}
            wanted = plan.compile().run(inputs)
        except inlay.InlayError:
            continue
        plan.save(path)
        with inlay.Session.load(path, engine="reference") as session:
            assert same(session.run(inputs), wanted), plan
        count += 1
    assert count > 60


# The file


def test_safetensors_opens_the_file_and_every_section_is_aligned(path: Path) -> None:
    assert is_saved_plan(path)
    with safe_open(path, "numpy") as file:
        assert file.metadata()["inlay"] == "plan"
        assert file.metadata()["version"] == "3"
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - no mapping
    sections = map_sections(path)
    assert {name: [data.size] for name, data in sections.items()} == shapes
    assert all(data.ctypes.data % 64 == 0 and data.size % 64 == 0 for data in sections.values())
    assert all(not data.flags.writeable for data in sections.values())


def test_weights_are_stored_once_and_used_where_they_are(tmp_path: Path) -> None:
    plan, path = simple(tmp_path)
    saved = read_plan(path).plan
    weights = sum(array.nbytes for op in plan.graph.ops for array in op.constants.values())
    sizes = {name: data.size for name, data in map_sections(path).items()}
    assert weights <= sum(size for name, size in sizes.items() if name != "plan") < weights + 64 * len(sizes)
    with ProgramSession(saved.program, saved.graph, engine="reference", guards=saved.guards) as session:
        assert session.weights.nbytes == 0
        memories = [memory for one in session.compiled.prepared for memory in one.constants.values()]
        assert len(memories) >= 5
        assert not any(memory.buffer.flags.writeable for memory in memories)
        if sys.platform.startswith("linux"):
            lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
            ranges = [tuple(int(n, 16) for n in line[0].split("-")) for line in lines if line[1] == "r--s"]
            assert all(any(low <= memory.address < high for low, high in ranges) for memory in memories)


def test_an_array_is_made_of_packed_weights_when_it_is_read(tmp_path: Path) -> None:
    plan, path = simple(tmp_path)
    for op, saved in zip(plan.graph.ops, read_plan(path).plan.graph.ops, strict=True):
        assert isinstance(saved.constants, StoredConstants) or not op.constants
        for name, array in op.constants.items():
            assert np.array_equal(saved.constants[name], array)
            assert saved.constants[name] is saved.constants[name]
            assert not saved.constants[name].flags.writeable


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, path = simple(tmp_path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise FileError("the disk is full")

    monkeypatch.setattr(plan_writing, "write_sections", fail)
    with pytest.raises(FileError):
        plan.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.inlay"]


# Other processes and other machines


def test_a_fresh_process_needs_neither_onnx_nor_a_clock(tmp_path: Path) -> None:
    _, path = simple(tmp_path)
    program = f"""
import sys, numpy as np, inlay
import inlay.graph.costs.measuring as measuring
measuring.MeasuredCosts.prepare = None
session = inlay.Session.load({str(path)!r}, engine="reference")
session.run({{"x": np.ones((1, 16, 8, 8), np.float32)}})
session.run({{"x": np.full((1, 16, 8, 8), np.nan, np.float32)}})
print([name for name in ("onnx", "onnxruntime", "google.protobuf", "safetensors", "scipy") if name in sys.modules])
"""
    assert run_python("-c", program).stdout == "[]\n"


CHANGES = {
    "inlay": ("0.0.1", "Inlay 0.0.1 and not 0.1.0"),
    "engine": ("onednn 1.0.0", "engine onednn 1.0.0 and not reference"),
    "isa": ("SSE41", "instruction set SSE41 and not {isa}"),
    "cpu": ("z80", "processor z80 and not {cpu}"),
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_plan_for_something_else_is_made_again_and_says_so(tmp_path: Path, key: str) -> None:
    plan, path = simple(tmp_path)
    value, text = CHANGES[key]
    edit(path, lambda records: records["origin"].update({key: value}))
    here = PlanOrigin.of_host("reference")
    note = (
        f"{path} was saved for {text.format(isa=here.isa, cpu=here.cpu)}: it is planned again with probed costs; save "
        "a plan here to start faster"
    )
    with pytest.warns(inlay.StalePlanWarning) as caught:
        session = inlay.Session.load(path, engine="reference")
    assert [str(one.message) for one in caught] == [note]
    assert session.note == note
    assert repr(session) == f"<Session: x (1, 16, 8, 8); planned for (1, 16, 8, 8); {note}>"
    inputs = inputs_for(plan)
    with session, plan.compile() as original:
        assert np.allclose(session.run(inputs)["y"], original.run(inputs)["y"], atol=1e-6)


@pytest.mark.skipif("onednn" not in ENGINES, reason="oneDNN is not installed")
@pytest.mark.skipif(PlanOrigin.of_host("reference").isa in ("SSE41", "AVX"), reason="no smaller instruction set")
def test_another_limit_of_instruction_sets_plans_again(tmp_path: Path) -> None:
    path = tmp_path / "net.inlay"
    plan_of("convolutions", "onednn").save(path)
    program = f"""
import warnings, numpy as np, inlay
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    session = inlay.Session.load({str(path)!r}, engine="onednn")
print([type(one.message).__name__ for one in caught if isinstance(one.message, inlay.StalePlanWarning)])
print(session.plans[0].isa, session.run({{"x": np.ones((1, 16, 8, 8), np.float32)}})["y"].shape)
"""
    assert run_python("-c", program, ONEDNN_MAX_CPU_ISA="SSE41").stdout == "['StalePlanWarning']\nSSE41 (1, 10)\n"


@pytest.mark.heavy
def test_nodes_that_onnxruntime_computes_need_no_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.inlay"
    plan = plan_of("references", fallback="auto")
    assert plan.fallback.count
    plan.save(path)
    inputs = inputs_for(plan)
    with plan.compile() as original:
        wanted = original.run(inputs)
    np.savez(tmp_path / "inputs.npz", **inputs)  # type: ignore[arg-type]
    program = f"""
import sys, numpy as np, inlay
inputs = dict(np.load({str(tmp_path / "inputs.npz")!r}))
results = inlay.Session.load({str(path)!r}, engine="reference").run(inputs)
np.savez({str(tmp_path / "results.npz")!r}, **results)
print("onnx" in sys.modules, "onnxruntime" in sys.modules)
"""
    assert run_python("-c", program).stdout == "False True\n"
    assert same(dict(np.load(tmp_path / "results.npz")), wanted)


# Refusals


def test_inputs_of_other_dims_are_refused(tmp_path: Path) -> None:
    _, path = simple(tmp_path)
    with (
        inlay.Session.load(path, engine="reference") as session,
        raises_exactly(
            InvalidArguments,
            "input x has dims (2, 16, 8, 8), the session is for (1, 16, 8, 8): give such an array, or plan the network "
            "for these dims",
        ),
    ):
        session.run({"x": np.ones((2, 16, 8, 8), np.float32)})


def test_files_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    model, empty, folder = tmp_path / "net.onnx", tmp_path / "empty.inlay", tmp_path / "folder"
    model.write_bytes(convolutions().SerializeToString())
    empty.touch()
    folder.mkdir()
    is_none = "is no saved plan: give a file that Plan.save or `inlay plan -o` wrote; inlay.load reads ONNX models"
    for path, text in (
        (model, f"{model} {is_none}"),
        (empty, f"{empty} {is_none}"),
        (folder, f"cannot read {folder}: it is a directory; name a file"),
        (tmp_path / "none", f"cannot read {tmp_path / 'none'}: there is no such file; check the name"),
    ):
        assert not is_saved_plan(path)
        with raises_exactly(FileError, text):
            inlay.Session.load(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    _, path = simple(tmp_path)
    content = path.read_bytes()
    remedy = "copy it again, or save the plan again"
    flipped = bytearray(content)
    flipped[-1000] ^= 1
    newer = content.replace(b'"version":"3"', b'"version":"4"')
    for damaged, text in (
        (content[:-64], f"{path} is damaged, its length is not that of its sections: {remedy}"),
        (content[:100], f"{path} is damaged, its header is cut short or too long: {remedy}"),
        (bytes(flipped), f"{path} is damaged, its checksum is wrong: {remedy}"),
        (content + bytes(64), f"{path} is damaged, its length is not that of its sections: {remedy}"),
        (content.replace(b'"U8"', b'"I8"', 1), f"{path} is damaged, its header is not one that Inlay writes: {remedy}"),
        (
            newer,
            f"{path} has version '4' of saved plans, and this Inlay reads 3: save the plan with this Inlay, or use the "
            "one that wrote it",
        ),
    ):
        path.write_bytes(damaged)
        with raises_exactly(FileError, text):
            inlay.Session.load(path)


def _set(*keys: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one value of the records."""

    def change(records: Any) -> None:
        for key in keys[:-1]:
            records = records[key]
        records[keys[-1]] = to

    return change


HOSTILE = {
    "input": (_set("plan", "graph", "inputs", to=["y"]), "operation 'c1' reads 'x' before it is written"),
    "dims": (
        _set("plan", "graph", "tensors", "x", "dims", to=[1, 16, 8, 9]),
        "Convolution: spatial axis 1 of dst has 8 elements, and (9 - 3 + 1 + 1) / 1 + 1 is 9: leave dst out, or change "
        "padding or strides",
    ),
    "large": (
        _set("plan", "graph", "tensors", "x", "dims", to=[1 << 40, 1 << 40]),
        "tensor 'x' of dims (1099511627776, 1099511627776) is too large for any memory",
    ),
    "kind": (_set("plan", "graph", "ops", 0, "kind", to="reorder"), None),
    "parameter": (
        _set("plan", "graph", "ops", 0, "parameters", "strides", to=[2, 2]),
        None,
    ),
    "type": (_set("plan", "graph", "opset", to="17"), "plan.graph.opset is '17' and not a whole number of 64 bits"),
    "time": (_set("plan", "program", "steps", 0, "ms", to=-1.0), "step 'c1' has the predicted time -1.0 ms"),
    "unknown": (_set("plan", "extra", to=1), "plan has the unknown key 'extra'"),
    "constant": (
        _set("plan", "graph", "ops", 0, "constants", "weights", to=99),
        "constant 99 is not one of the 5 in the file",
    ),
    "section": (
        _set("constants", 0, "copies", 0, 1, to="plan"),
        "constants[0].copies is 'plan' and not the name of a section",
    ),
    "buffer": (
        _set("plan", "program", "steps", 0, "reads", "src", to="nowhere"),
        "step c1: src is buffer 'nowhere', which the program does not have: add it",
    ),
    "side": (
        lambda records: records["plan"]["program"]["steps"][0].update(reads={"dst": "x"}, writes={"src": "r1"}),
        "'c1', a convolution, reads or writes 'src' on the wrong side",
    ),
    "guard": (_set("guards", "inputs", to=["y"]), "'y' is guarded as an input and is none"),
    "nested": (_set("plan", "graph", "ops", 0, "parameters", "strides", to=[[[[1]]]]), None),
    "origin": (
        _set("origin", to=[]),
        "origin is a list of 0 and not an object",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_refused(tmp_path: Path, name: str) -> None:
    _, path = simple(tmp_path)
    change, text = HOSTILE[name]
    edit(path, change)
    with pytest.raises(FileError) as caught:
        inlay.Session.load(path, engine="reference")
    assert str(caught.value).startswith(f"{path} holds no valid plan: ")
    if text is not None:
        assert str(caught.value) == f"{path} holds no valid plan: {text}"


@pytest.mark.parametrize("text", [b"", b"[", b'{"origin": 1, "origin": 2}', b"[" * 100_000, b"NaN", b"\xff", b"1e999"])
def test_records_that_are_no_json_of_a_plan_are_refused(tmp_path: Path, text: bytes) -> None:
    _, path = simple(tmp_path)
    sections = {name: np.array(data) for name, data in map_sections(path).items()}
    write_sections(path, sections | {"plan": np.frombuffer(text, np.uint8)})
    with pytest.raises(FileError, match=r"holds no valid plan: .* records"):
        inlay.Session.load(path, engine="reference")


def test_values_without_a_place_in_a_file_are_not_saved(tmp_path: Path) -> None:
    plan = plan_of("references")
    step = next(step for step in plan.program.steps if step.node is not None)
    assert step.node is not None
    wrong = replace(step, node=replace(step.node, attributes={"f": print}))
    program = replace(plan.program, steps=tuple(wrong if one is step else one for one in plan.program.steps))
    with pytest.raises(InvalidArguments, match="cannot be saved: a saved plan has numbers, texts, arrays and lists"):
        replace(plan, program=program).save(tmp_path / "net.inlay")
    assert list(tmp_path.iterdir()) == []


# Mutants


def fuzz(engine: str, seed: int, count: int, folder: Path) -> dict[str, int]:
    """The numbers of mutants that ran and that were refused."""
    call = [sys.executable, "-m", "tests.support.fuzz_saved_plans", engine, str(seed), str(count)]
    environment = os.environ | {"INLAY_FUZZ_DIR": str(folder), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(call, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        number = (folder / "case").read_text() if (folder / "case").exists() else "none"
        pytest.fail(f"mutant {number} of seed {seed}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(os.name != "posix", reason="limits of time and memory are Unix's")
def test_a_hundred_mutants_are_refused_or_equal(tmp_path: Path) -> None:
    found = fuzz("reference", 1, 100, tmp_path)
    assert found["refused"] > 50
    assert found["ran"] > 2


@pytest.mark.heavy
@pytest.mark.skipif(os.name != "posix", reason="limits of time and memory are Unix's")
@pytest.mark.parametrize("engine", ENGINES)
def test_two_thousand_new_mutants_are_refused_or_equal(tmp_path: Path, engine: str) -> None:
    """Another seed each time; it is said where one fails, and INLAY_FUZZ_SEED repeats it."""
    seed = int(os.environ.get("INLAY_FUZZ_SEED") or int.from_bytes(os.urandom(4), "little"))
    found = fuzz(engine, seed, 2000, tmp_path)
    assert found["refused"] > 1000
    assert found["ran"] > 50


@pytest.mark.heavy
def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["saved_plan.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "saved_plan.py"), run_name="__main__")
    assert capsys.readouterr().out.endswith("results are equal bit for bit\n")
