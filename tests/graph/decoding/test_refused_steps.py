"""Errors of steps, states and models that cannot be decoded step by step."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import inlay
from inlay.errors import InlayError, InvalidArguments, OutOfMemory
from inlay.graph.states import StateOptions
from tests.graph.decoding.test_steps import decoding_session, model, network, step_logits, tokens, whole_logits
from tests.support.refusals import raises_exactly

LISTED = (
    "input_ids, attention_mask, position_ids, past_key_values.0.key, past_key_values.0.value, past_key_values.1.key, "
    "past_key_values.1.value"
)
Change = Callable[[Any], None]


def changed(change: Change, **options: Any) -> Any:
    """The network of the small decoder after a change of its graph."""
    proto = onnx.load_from_string(model(**options))
    change(proto.graph)
    return inlay.load(proto.SerializeToString())


def rename_states(graph: Any) -> None:
    """Give the states names that no exporter gives."""
    new = {value.name: value.name.replace("past_key_values", "memory") for value in graph.input}
    for value in graph.input:
        value.name = new[value.name]
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]


def read_past_twice(graph: Any) -> None:
    """Let another node read a state."""
    graph.node.append(helper.make_node("Relu", ["past_key_values.0.key"], ["relu"], name="relu"))
    graph.output.append(helper.make_tensor_value_info("relu", 1, ["batch", 2, "past", 16]))


MODELS: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "positions of the past": (
        lambda: inlay.load(model(has_position_ids=False)),
        {},
        "add_13 depends on the length of the past, as if it were the next position: export the model with the input "
        "position_ids, or with positions that are computed from attention_mask",
    ),
    "no open dims": (
        lambda: network().bind({"batch": 1, "sequence": 1, "past": 3, "total": 4}),
        {},
        "the model has no open dims, and the past of a state grows: export it with dynamic axes for past and sequence, "
        "and leave them open",
    ),
    "a fixed past": (
        lambda: network().bind_some({"past": 5}),
        {},
        "state past_key_values.0.key (batch, 2, 5, 16) has 0 open axes after the first: leave that of the positions "
        "open, and no other",
    ),
    "other names": (
        lambda: changed(rename_states),
        {},
        "no input has the name of a state, such as past_key_values.0.key: name the states of "
        f"{LISTED.replace('past_key_values', 'memory')} by names=",
    ),
    "a name of no input": (
        lambda: inlay.load(model()),
        {"names": {"past": "present.0.key"}},
        f"names have 'past', which is no input: give one of {LISTED}",
    ),
    "a name of no output": (
        lambda: inlay.load(model()),
        {"names": {"past_key_values.0.key": "present"}},
        "names have 'present', which is no output: give one of logits, present.0.key, present.0.value, present.1.key, "
        "present.1.value",
    ),
    "another output": (
        network,
        {
            "names": {
                f"past_key_values.{i}.{part}": f"present.{1 - i}.{part}" for i in (0, 1) for part in ("key", "value")
            }
        },
        "past_key_values.0.key is read by Concat 'concat_28': a state is read by one Concat along axis 2 that writes "
        "present.1.key: export the model with such a cache, or name its states by names=",
    ),
    "a second reader": (
        lambda: changed(read_past_twice),
        {},
        "past_key_values.0.key is read by Concat 'concat_28', Relu 'relu': a state is read by one Concat along axis 2 "
        "that writes present.0.key: export the model with such a cache, or name its states by names=",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_steps_cannot_use_is_refused(name: str) -> None:
    load, options, text = MODELS[name]
    with raises_exactly(InvalidArguments, text):
        inlay.compile(load(), engine="reference", costs="analytic", state=StateOptions(**options))


def test_options_of_another_class_are_refused() -> None:
    text = "state is 2048: give options, as state=inlay.StateOptions(maximum=2048)"
    with raises_exactly(InvalidArguments, text):
        inlay.compile(network(), state=2048)  # type: ignore[arg-type]
    with raises_exactly(InvalidArguments, "page is 65, and maximum 64: give at most that, or leave page out"):
        inlay.compile(network(), state=StateOptions(maximum=64, page=65))


def test_states_of_other_names_are_named() -> None:
    names = {f"memory.{i}.{part}": f"present.{i}.{part}" for i in range(2) for part in ("key", "value")}
    options = StateOptions(maximum=64, names=names)
    session = inlay.compile(changed(rename_states), engine="reference", costs="analytic", state=options)
    ids = tokens(3)
    np.testing.assert_allclose(step_logits(session, ids, None), whole_logits(ids), rtol=0, atol=1e-5)


ONE = np.array([[1]])
STEPS = {
    "an unknown input": (
        {"input_ids": ONE, "tokens": ONE},
        "the network has no input 'tokens': it takes input_ids (batch, sequence) int64",
    ),
    "a missing input": ({}, "input input_ids is missing: the network takes input_ids (batch, sequence) int64"),
    "a state": (
        {"input_ids": ONE, "past_key_values.0.key": ONE},
        "past_key_values.0.key is kept in the state: leave it out of the inputs of a step",
    ),
    "another type": (
        {"input_ids": ONE.astype(np.int32)},
        "input input_ids is int32, the network takes int64: convert it, as with astype('int64')",
    ),
    "another batch": (
        {"input_ids": np.ones((3, 1), np.int64)},
        "input input_ids has dims (3, 1), and the state is of a batch of 1: give such an array, or make the state with "
        "new_state(batch=3)",
    ),
    "no positions": (
        {"input_ids": ONE[:, :0]},
        "inputs have other numbers of new positions, or none: input_ids (1, 0): give one for each",
    ),
    "other positions": (
        {"input_ids": ONE, "position_ids": np.array([[1, 2]])},
        "inputs have other numbers of new positions, or none: input_ids (1, 1), position_ids (1, 2): give one for each",
    ),
    "a mask of new positions alone": (
        {"input_ids": ONE, "attention_mask": ONE},
        "attention_mask has dims (1, 1): give (1, 5), a number for each of 4 kept and 1 new positions, or leave it out",
    ),
    "too many": (
        {"input_ids": np.ones((1, 61), np.int64)},
        "the state keeps 4 positions of at most 64, and 61 are new: truncate or reset it, or compile with a greater "
        "maximum",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_wrong_step_is_refused_and_leaves_the_state_as_it_was(name: str) -> None:
    inputs, text = STEPS[name]
    session, ids = decoding_session("reference", maximum=64), tokens(5)
    state = session.new_state()
    step_logits(session, ids[:, :4], state)
    with raises_exactly(InvalidArguments, text):
        session.step(inputs, state=state)
    assert state.length == 4
    np.testing.assert_allclose(step_logits(session, ids[:, 4:], state), whole_logits(ids)[:, 4:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_step_that_fails_in_a_run_leaves_the_state_as_it_was(rows: int) -> None:
    session, ids = decoding_session("reference", maximum=64), tokens(8)
    state = session.new_state()
    step_logits(session, ids[:, :5], state)
    wrong = ids[:, 5 : 5 + rows].copy()
    wrong[0, -1] = 10_000  # no token of the table
    with pytest.raises(InlayError):
        step_logits(session, wrong, state)
    assert state.length == 5
    np.testing.assert_allclose(step_logits(session, ids[:, 5:], state), whole_logits(ids)[:, 5:], rtol=0, atol=1e-5)


def test_misused_states_and_sessions_are_refused() -> None:
    session, other = decoding_session("reference", maximum=64), decoding_session("reference", maximum=64)
    state, inputs = session.new_state(), {"input_ids": ONE}
    with raises_exactly(InvalidArguments, "state is none of this session: give one that its new_state() returned"):
        other.step(inputs, state=state)
    with raises_exactly(
        InvalidArguments, "the session keeps states between runs: call step, or compile without state="
    ):
        session.run(inputs)
    with raises_exactly(InvalidArguments, "batch is 0: give a whole number from 1 on"):
        session.new_state(batch=0)
    for length in (1, -1, True, 0.5):
        with raises_exactly(
            InvalidArguments,
            f"length is {length!r}, and the state keeps 0 positions: give a whole number from 0 to 0",
        ):
            state.truncate(length)  # type: ignore[arg-type]
    with raises_exactly(InvalidArguments, "a state is memory of one process: run the same steps in the other one"):
        pickle.dumps(state)
    with raises_exactly(InvalidArguments, "a state is memory of one process: run the same steps in the other one"):
        copy.copy(state)
    state.close()
    state.close()
    assert state.nbytes == state.length == 0
    for use in (state.reset, lambda: session.step(inputs, state=state)):
        with raises_exactly(InvalidArguments, "the state is closed: make another one with session.new_state()"):
            use()
    session.close()
    for call in (session.new_state, lambda: session.step(inputs)):
        with raises_exactly(InvalidArguments, "the session is closed: compile another one"):
            call()


def test_a_session_without_states_refuses_steps() -> None:
    session = inlay.compile(inlay.load(model()), engine="reference", costs="analytic")
    text = "the session keeps no states: compile the network with state=inlay.StateOptions()"
    for use in (session.new_state, lambda: session.step({"input_ids": ONE})):
        with raises_exactly(InvalidArguments, text):
            use()


def test_memory_that_cannot_be_reserved_is_refused() -> None:
    session = decoding_session("reference", maximum=1 << 50)
    with raises_exactly(
        OutOfMemory,
        f"{1 << 50} positions of 4 states cannot be allocated: give a smaller maximum, or a page",
    ):
        session.new_state()
    with raises_exactly(OutOfMemory, "64 positions of 4 states cannot be allocated: give a smaller maximum, or a page"):
        decoding_session("reference", maximum=64).new_state(batch=1 << 80)
    with decoding_session("reference", maximum=1 << 50, page=64).new_state() as state:
        assert repr(state) == f"<DecodingState: 0 of {1 << 50} positions, batch 1, 0.0 MB>"
