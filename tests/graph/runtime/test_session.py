"""Sessions: every program gives NumPy's numbers, tensor by tensor, whatever shares memory with what."""

import copy
import pickle
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import InvalidArguments, MissingExtra
from inlay.graph.op_graph import Array, Op, OpGraph, PermuteView, ReshapeView, SubmemoryView
from inlay.graph.program import Program
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.session import Session
from inlay.layout import Dims
from inlay.primitives import get_engine
from tests.support.graph_programs import (
    CASES,
    F32,
    Case,
    Writing,
    blocked,
    conv,
    drawn,
    fused_sum,
    graph_of,
    pointwise,
    relu,
    views,
)


def engines() -> list[str]:
    try:
        get_engine("onednn")
    except MissingExtra:
        return ["reference"]
    return ["reference", "onednn"]


ENGINES = engines()


def require_equal(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name, array in found.items():
        wanted = np.asarray(expected[name])
        assert array.shape == wanted.shape, name
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_a_program_computes_what_numpy_does_tensor_by_tensor(
    name: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INLAY_POISON", "1")
    case = CASES[name]()
    session = Session(case.program, case.graph, engine=engine)
    for seed in range(3):
        inputs = case.inputs(seed)
        expected = case.expected(inputs)
        found, traced = session.run(inputs), session.trace(inputs)
        assert found.keys() == set(case.graph.outputs)
        assert traced.keys() == expected.keys()
        require_equal(found, expected)
        require_equal(traced, expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_the_plain_program_of_a_graph_computes_the_same(name: str, engine: str) -> None:
    case = CASES[name]()
    session = Session(plain_program(case.graph), case.graph, engine=engine)
    inputs = case.inputs()
    traced = session.trace(inputs)
    assert traced.keys() == case.graph.tensors.keys()
    expected = case.expected(inputs)
    require_equal({tensor: traced[tensor] for tensor in expected}, expected)


def small(dims: Dims = (2, 3)) -> Case:
    """relu, which an input is read in place for."""
    graph = graph_of([relu("relu", "x", "y")], {"x": dims, "y": dims}, "x", "y")
    program = Writing(graph).buffer("x").buffer("y").step("relu").program()
    return Case(graph, program, lambda given: {"y": np.maximum(given["x"], 0)})


def test_an_input_of_the_right_format_is_read_where_it_lies() -> None:
    case = small()
    session = Session(case.program, case.graph, engine="reference")
    assert session.arena.offsets.keys() == {"y"}
    image = drawn(2, 3)
    session.run({"x": image})
    memory = session._pools[session.threads].free[0].memory("x")
    assert memory.address == image.__array_interface__["data"][0]
    image[:] = 7
    assert session.run({"x": image})["y"].tolist() == [[7.0] * 3] * 2


@pytest.mark.parametrize(
    "array",
    [
        drawn(3, 2).T,
        drawn(2, 6)[:, ::2],
        drawn(2, 3)[::-1, ::-1],
        np.frombuffer(b"\0" + drawn(2, 3).tobytes(), np.uint8)[1:].view(F32).reshape(2, 3),
        np.broadcast_to(drawn(1, 3), (2, 3)),
        inlay.pack(drawn(2, 3), "ba"),
    ],
    ids=["transposed", "with gaps", "backwards", "not aligned", "repeated", "memory"],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_input_of_another_format_is_copied_once_it_comes_after_one_that_was_not(engine: str, array: Any) -> None:
    case = small()
    session = Session(case.program, case.graph, engine=engine)
    for given in (drawn(2, 3, seed=5), array, drawn(2, 3, seed=6), array):
        wanted = given.unpack() if isinstance(given, inlay.Memory) else given
        assert np.array_equal(session.run({"x": given})["y"], np.maximum(wanted, 0))


def test_an_input_that_is_overwritten_stays_the_callers() -> None:
    graph = graph_of([relu("relu", "x", "y")], {"x": (2, 3), "y": (2, 3)}, "x", "y")
    program = Writing(graph).buffer("x").buffer("y", base="x").step("relu").program()
    session = Session(program, graph, engine="reference")
    image = drawn(2, 3)
    before = image.copy()
    assert np.array_equal(session.run({"x": image})["y"], np.maximum(before, 0))
    assert np.array_equal(image, before)


def test_results_are_new_arrays_or_those_that_are_given() -> None:
    case = small()
    session = Session(case.program, case.graph, engine="reference")
    first = session.run({"x": drawn(2, 3)})["y"]
    kept = first.copy()
    into = np.empty((2, 3), F32)
    second = session.run({"x": drawn(2, 3, seed=1)}, out={"y": into})
    assert second["y"] is into
    assert np.array_equal(first, kept)
    assert np.array_equal(into, np.maximum(drawn(2, 3, seed=1), 0))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (drawn(2, 3), "inputs are a ndarray: give a mapping of names to arrays, of x (2, 3) float32"),
        ({}, "input x is missing: the network takes x (2, 3) float32"),
        ({"x": drawn(2, 3), "z": 1}, "the network has no input 'z': it takes x (2, 3) float32"),
        (
            {"x": drawn(2, 3).astype(float)},
            "input x is float64, the network takes float32: convert it, as with astype('float32')",
        ),
        ({"x": [[1.0]]}, "input x is a list: give an array of float32 and dims (2, 3)"),
        (
            {"x": drawn(4, 3)},
            "input x has dims (4, 3), the session is for (2, 3): give such an array, or plan the network for these "
            "dims",
        ),
        (
            {"x": inlay.pack(drawn(2, 3), "ab", "bf16")},
            "input x is bfloat16, the network takes float32: convert it, as with astype('float32')",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, text: str) -> None:
    case = small()
    with pytest.raises(InvalidArguments) as refused:
        Session(case.program, case.graph, engine="reference").run(inputs)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("out", "text"),
    [
        ([1], "out is a list: give a mapping of outputs to arrays"),
        ({"x": drawn(2, 3)}, "the network has no output 'x': it gives y (2, 3) float32"),
        ({"y": 3}, "out of y is a int: give a writable, row-major array of float32 and dims (2, 3)"),
        (
            {"y": drawn(3, 2)},
            "out of y is float32 of dims (3, 2): give a writable, row-major array of float32 and dims (2, 3)",
        ),
        (
            {"y": drawn(3, 2).T},
            "out of y is float32 of dims (2, 3): give a writable, row-major array of float32 and dims (2, 3)",
        ),
    ],
)
def test_arrays_for_results_that_do_not_fit_are_refused(out: Any, text: str) -> None:
    case = small()
    with pytest.raises(InvalidArguments) as refused:
        Session(case.program, case.graph, engine="reference").run({"x": drawn(2, 3)}, out=out)
    assert str(refused.value) == text


def test_other_dims_are_planned_once_and_share_weights() -> None:
    weights, asked = drawn(64, 32, 1, 1), []

    def plan_graph(dims: Mapping[str, Dims]) -> tuple[Program, OpGraph]:
        asked.append(dict(dims))
        n, _, h, w = dims["x"]
        graph = graph_of([conv("conv", "x", "y", weights.copy())], {"x": (n, 32, h, w), "y": (n, 64, h, w)}, "x", "y")
        return plain_program(graph), graph

    program, graph = plan_graph({"x": (1, 32, 2, 2)})
    session = Session(program, graph, replan=plan_graph, engine="reference")
    held = session.weights.nbytes
    for n in (1, 3, 2, 3, 1):
        x = drawn(n, 32, 2, 2)
        require_equal(session.run({"x": x}), {"y": pointwise(x, weights)})
        require_equal(session.trace({"x": x}), {"x": x, "y": pointwise(x, weights)})
    assert asked == [{"x": (n, 32, 2, 2)} for n in (1, 3, 2)]
    assert session.weights.nbytes == held == weights.nbytes


def test_constants_of_equal_elements_are_kept_once() -> None:
    w = drawn(8, 8, 1, 1)
    ops = [conv("one", "x", "a", w), conv("two", "a", "b", w.copy()), conv("three", "b", "y", -w)]
    graph = graph_of(ops, dict.fromkeys("xaby", (1, 8, 2, 2)), "x", "y")
    session = Session(plain_program(graph), graph, engine="reference")
    assert session.weights.nbytes == 2 * w.nbytes


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_from_several_threads_do_not_meet(engine: str) -> None:
    case = fused_sum()
    session = Session(case.program, case.graph, engine=engine)
    faults: list[str] = []

    def work(seed: int) -> None:
        for i in range(20):
            inputs = case.inputs(100 * seed + i)
            try:
                require_equal(session.run(inputs), case.expected(inputs))
            except AssertionError as error:
                faults.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert 1 <= len(session._pools[session.threads].free) <= 5


def test_a_profile_has_every_step_in_order() -> None:
    case = views()
    session = Session(case.program, case.graph, engine="reference")
    timed = session.profile(case.inputs(), runs=3)
    assert [(one.step.name, one.impl) for one in timed] == [("scores", "numpy:f64"), ("y:part to y", "compiled")]
    assert all(one.ms > 0 for one in timed)
    with pytest.raises(InvalidArguments) as refused:
        session.profile(case.inputs(), runs=0)
    assert str(refused.value) == "runs is 0: give 1 or more"


def test_a_closed_session_runs_no_more() -> None:
    case = small()
    with Session(case.program, case.graph, engine="reference") as session:
        session.run({"x": drawn(2, 3)})
    session.close()
    with pytest.raises(InvalidArguments) as refused:
        session.run({"x": drawn(2, 3)})
    assert str(refused.value) == "the session is closed: compile another one"
    assert not session._pools


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_session_is_neither_pickled_nor_copied(make: Any) -> None:
    case = small()
    with pytest.raises(InvalidArguments) as refused:
        make(Session(case.program, case.graph, engine="reference"))
    assert str(refused.value) == (
        "a Session is memory and machine code of one process: pickle the network or the plan, and compile it there"
    )


def test_a_network_without_elements_runs() -> None:
    case = small((0, 3))
    for engine in ENGINES:
        assert Session(case.program, case.graph, engine=engine).run({"x": drawn(0, 3)})["y"].shape == (0, 3)


def test_an_output_may_be_a_view_of_an_input() -> None:
    ops = [Op("flat", "view", {"src": "x"}, {"dst": "y"}, transforms=(ReshapeView((6,)),))]
    graph = graph_of(ops, {"x": (2, 3), "y": (6,)}, "x", "y")
    session = Session(plain_program(graph), graph, engine="reference")
    image = drawn(2, 3)
    found = session.run({"x": image})["y"]
    assert np.array_equal(found, image.reshape(6))
    assert not np.shares_memory(found, image)


def test_tensors_of_every_type_may_be_viewed() -> None:
    for dtype in (np.bool_, np.int16, np.uint16, np.int64, np.uint64, np.float64, np.int8, np.float16):
        ops = [
            Op("turn", "view", {"src": "x"}, {"dst": "t"}, transforms=(PermuteView((1, 0)),)),
            Op("part", "view", {"src": "t"}, {"dst": "y"}, transforms=(SubmemoryView((1, 1), (2, 1)),)),
            Op("rows", "view", {"src": "x"}, {"dst": "z"}, transforms=(SubmemoryView((1, 0), (1, 4)),)),
        ]
        dims = {"x": (2, 4), "t": (4, 2), "y": (2, 1), "z": (1, 4)}
        graph = graph_of(ops, dims, "x", "y z", **dict.fromkeys(dims, dtype))
        x = np.arange(8).reshape(2, 4).astype(dtype)
        found = Session(plain_program(graph), graph, engine="reference").run({"x": x})
        assert found["y"].dtype == found["z"].dtype == dtype
        assert np.array_equal(found["y"], x.T[1:3, 1:])
        assert np.array_equal(found["z"], x[1:])


def test_a_step_may_bring_its_scratchpad() -> None:
    if "onednn" not in ENGINES:
        pytest.skip("no oneDNN")
    case = fused_sum()
    steps = [
        replace(
            step,
            operation=replace(step.operation, attributes=replace(step.operation.attributes, scratchpad_mode="user")),
        )
        for step in case.program.steps
        if step.operation is not None
    ]
    session = Session(replace(case.program, steps=tuple(steps)), case.graph, engine="onednn")
    inputs = case.inputs()
    require_equal(session.run(inputs), case.expected(inputs))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reorder_between_calls_is_the_engines_where_they_are_executed_together(engine: str) -> None:
    case = blocked()
    session = Session(case.program, case.graph, engine=engine)
    found = {step.name: session.impls[step.name] for step in case.program.steps if step.kind == "reorder"}
    assert list(found) == ["x to x16", "y16 to y"]
    assert all(impl.startswith("jit" if engine == "onednn" else "compiled") for impl in found.values())


def test_torch_tensors_are_taken_as_they_lie() -> None:
    torch = pytest.importorskip("torch")
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 3, 4, 5)), "x", "y")
    program = Writing(graph).buffer("x").buffer("y").step("relu").program()
    session = Session(program, graph, engine="reference")
    image = drawn(2, 3, 4, 5)
    tensor = torch.from_numpy(image)
    for given in (tensor, tensor.contiguous(memory_format=torch.channels_last), tensor.requires_grad_()):
        assert np.array_equal(session.run({"x": given})["y"], np.maximum(image, 0))
    assert session._pools[session.threads].free[0].memory("x").address == tensor.data_ptr()
