"""Sessions: every program gives NumPy's numbers, tensor by tensor, whatever shares memory with what."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import MissingExtra
from inlay.graph.op_graph import Op, PermuteView, ReshapeView, SubmemoryView
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.layout import Dims
from inlay.primitives import get_engine
from tests.support.graph_programs import (
    CASES,
    F32,
    Writing,
    blocked,
    conv,
    drawn,
    fused_sum,
    graph_of,
    relu,
    require_equal,
    views,
)


def engines() -> list[str]:
    try:
        get_engine("onednn")
    except MissingExtra:
        return ["reference"]
    return ["reference", "onednn"]


ENGINES = engines()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_a_program_computes_what_numpy_does_tensor_by_tensor(
    name: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INLAY_POISON", "1")
    case = CASES[name]()
    session, plain = (
        ProgramSession(program, case.graph, engine=engine) for program in (case.program, plain_program(case.graph))
    )
    for seed in range(3):
        inputs = case.inputs(seed)
        expected = case.expected(inputs)
        found, traced, all_tensors = session.run(inputs), session.trace(inputs), plain.trace(inputs)
        assert found.keys() == set(case.graph.outputs)
        assert traced.keys() == {buffer.tensor for buffer in case.program.buffers.values()}
        assert all_tensors.keys() == case.graph.tensors.keys()
        for arrays in (found, traced, all_tensors):
            require_equal(arrays, expected)


def of_one_relu(dims: Dims = (2, 3), engine: str = "reference", **bases: str) -> ProgramSession:
    """A session of one step from x to y, which have memory of their own where no base is given."""
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", dims), "x", "y")
    writing = Writing(graph)
    for name in "xy":
        writing.buffer(name, base=bases.get(name, ""))
    return ProgramSession(writing.step("relu").program(), graph, engine=engine)


def address_of_input(session: ProgramSession) -> int:
    return session._pools[session.threads].free[0].memory("x").address


LARGE = (130, 131)  # over 64 KiB: such an input is not copied


def test_an_input_of_the_right_format_is_read_where_it_lies() -> None:
    session, image = of_one_relu(LARGE), drawn(*LARGE)
    assert session.arena.offsets.keys() == {"y"}
    session.run({"x": image})
    assert address_of_input(session) == image.__array_interface__["data"][0]
    image[:] = 7
    assert session.run({"x": image})["y"].min() == 7


def test_a_small_input_is_copied_so_that_no_step_is_bound_anew() -> None:
    session = of_one_relu()
    before = address_of_input(session)
    for image in (drawn(2, 3), drawn(2, 3, seed=1), inlay.pack(drawn(2, 3), "ab")):
        wanted = image.unpack() if isinstance(image, inlay.Memory) else image
        assert np.array_equal(session.run({"x": image})["y"], np.maximum(wanted, 0))
        assert address_of_input(session) == before


@pytest.mark.parametrize(
    "array",
    [
        drawn(131, 130).T,
        drawn(130, 262)[:, ::2],
        drawn(*LARGE)[::-1, ::-1],
        np.frombuffer(b"\0" + drawn(*LARGE).tobytes(), np.uint8)[1:].view(F32).reshape(LARGE),
        np.broadcast_to(drawn(1, 131), LARGE),
        inlay.pack(drawn(*LARGE), "ba"),
    ],
    ids=["transposed", "with gaps", "backwards", "not aligned", "repeated", "memory"],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_input_of_another_format_is_copied_once_it_comes_after_one_that_was_not(engine: str, array: Any) -> None:
    session = of_one_relu(LARGE, engine)
    for given in (drawn(*LARGE, seed=5), array, drawn(*LARGE, seed=6), array):
        wanted = given.unpack() if isinstance(given, inlay.Memory) else given
        assert np.array_equal(session.run({"x": given})["y"], np.maximum(wanted, 0))


def test_torch_tensors_are_read_where_they_lie() -> None:
    torch = pytest.importorskip("torch")
    session, image = of_one_relu((2, 3, 64, 65)), drawn(2, 3, 64, 65)
    tensor = torch.from_numpy(image)
    for given in (tensor, tensor.contiguous(memory_format=torch.channels_last), tensor.requires_grad_()):
        assert np.array_equal(session.run({"x": given})["y"], np.maximum(image, 0))
    assert address_of_input(session) == tensor.data_ptr()


def test_an_input_that_is_overwritten_stays_the_callers() -> None:
    image = drawn(2, 3)
    before = image.copy()
    assert np.array_equal(of_one_relu(y="x").run({"x": image})["y"], np.maximum(before, 0))
    assert np.array_equal(image, before)


def test_results_are_new_arrays_or_those_that_are_given() -> None:
    session, into = of_one_relu(), np.empty((2, 3), F32)
    first = session.run({"x": drawn(2, 3)})["y"]
    kept = first.copy()
    assert session.run({"x": drawn(2, 3, seed=1)}, out={"y": into})["y"] is into
    assert np.array_equal(first, kept)
    assert np.array_equal(into, np.maximum(drawn(2, 3, seed=1), 0))


def test_constants_of_equal_elements_are_kept_once() -> None:
    w = drawn(8, 8, 1, 1)
    ops = [conv("one", "x", "a", w), conv("two", "a", "b", w.copy()), conv("three", "b", "y", -w)]
    graph = graph_of(ops, dict.fromkeys("xaby", (1, 8, 2, 2)), "x", "y")
    assert ProgramSession(plain_program(graph), graph, engine="reference").weights.nbytes == 2 * w.nbytes


@pytest.mark.parametrize("engine", ENGINES)
def test_several_threads_may_run_a_session_at_once(engine: str) -> None:
    case, count = fused_sum(), 4
    session, ready = ProgramSession(case.program, case.graph, engine=engine), threading.Barrier(count)

    def work(seed: int) -> None:
        ready.wait(60)
        for i in range(20):
            inputs = case.inputs(100 * seed + i)
            require_equal(session.run(inputs), case.expected(inputs))

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(work, range(count))) == [None] * count
    assert 1 <= len(session._pools[session.threads].free) <= count + 1


def test_a_profile_has_every_step_in_order() -> None:
    case = views()
    timed = ProgramSession(case.program, case.graph, engine="reference").profile(case.inputs(), runs=3)
    assert [(one.step.name, one.impl) for one in timed] == [("scores", "numpy:f64"), ("y:part to y", "compiled")]
    assert all(one.ms > 0 for one in timed)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_without_elements_runs(engine: str) -> None:
    assert of_one_relu((0, 3), engine).run({"x": drawn(0, 3)})["y"].shape == (0, 3)


def test_functions_of_elements_may_work_in_place() -> None:
    ops = [relu("one", "x", "a"), relu("two", "a", "b"), relu("three", "b", "y")]
    graph = graph_of(ops, dict.fromkeys("xaby", (2, 16, 3, 3)), "x", "y")
    program = Writing(graph).buffer("x a").buffer("b y", base="a").step("one two three").program()
    x = drawn(2, 16, 3, 3)
    assert np.array_equal(ProgramSession(program, graph, engine="reference").run({"x": x})["y"], np.maximum(x, 0))


def test_an_output_may_be_a_view_of_an_input() -> None:
    graph = graph_of(
        [Op("flat", "view", {"src": "x"}, {"dst": "y"}, transforms=(ReshapeView((6,)),))],
        {"x": (2, 3), "y": (6,)},
        "x",
        "y",
    )
    image = drawn(2, 3)
    found = ProgramSession(plain_program(graph), graph, engine="reference").run({"x": image})["y"]
    assert np.array_equal(found, image.reshape(6))
    assert not np.shares_memory(found, image)


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint16", "int64", "uint64", "float64", "float16", "complex128"])
def test_tensors_of_every_type_may_be_viewed(dtype: str) -> None:
    ops = [
        Op("turn", "view", {"src": "x"}, {"dst": "t"}, transforms=(PermuteView((1, 0)),)),
        Op("part", "view", {"src": "t"}, {"dst": "y"}, transforms=(SubmemoryView((1, 1), (2, 1)),)),
        Op("rows", "view", {"src": "x"}, {"dst": "z"}, transforms=(SubmemoryView((1, 0), (1, 4)),)),
    ]
    dims = {"x": (2, 4), "t": (4, 2), "y": (2, 1), "z": (1, 4)}
    graph = graph_of(ops, dims, "x", "y z", **dict.fromkeys(dims, dtype))
    x = np.arange(8).reshape(2, 4).astype(dtype)
    found = ProgramSession(plain_program(graph), graph, engine="reference").run({"x": x})
    assert found["y"].dtype == found["z"].dtype == dtype
    assert np.array_equal(found["y"], x.T[1:3, 1:])
    assert np.array_equal(found["z"], x[1:])


@pytest.mark.skipif("onednn" not in ENGINES, reason="no oneDNN")
def test_a_step_may_bring_its_scratchpad() -> None:
    case = fused_sum()
    operations = [step.operation for step in case.program.steps if step.operation is not None]
    steps = [
        replace(step, operation=replace(one, attributes=replace(one.attributes, scratchpad_mode="user")))
        for step, one in zip(case.program.steps, operations, strict=True)
    ]
    session = ProgramSession(replace(case.program, steps=tuple(steps)), case.graph, engine="onednn")
    inputs = case.inputs()
    require_equal(session.run(inputs), case.expected(inputs))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reorder_between_calls_is_the_engines_where_they_are_executed_together(engine: str) -> None:
    case = blocked()
    session = ProgramSession(case.program, case.graph, engine=engine)
    found = {step.name: session.impls[step.name] for step in case.program.steps if step.kind == "reorder"}
    assert list(found) == ["x to x16", "y16 to y"]
    assert all(impl.startswith("jit" if engine == "onednn" else "compiled") for impl in found.values())
