"""Steps of decoding equal the whole sequence in one run, and ONNX Runtime with its outputs fed back."""

from collections.abc import Mapping
from functools import cache
from threading import Thread
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import inlay
from examples.random_decoder import random_decoder
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenNetwork
from inlay.graph.session import Session
from inlay.graph.states import StateOptions
from inlay.primitives.engine import get_engine

VOCABULARY, LAYERS, HEADS, FEATURES = 96, 2, 2, 16
CLOSE = 1e-5


@cache
def model(**options: Any) -> bytes:
    """The model of a small decoder."""
    sizes = LAYERS, HEADS * FEATURES, HEADS, VOCABULARY
    made: bytes = random_decoder(*sizes, **options).SerializeToString()
    return made


def network(**options: Any) -> OpenNetwork:
    """The network of the small decoder, with open dims."""
    loaded = inlay.load(model(**options))
    assert isinstance(loaded, OpenNetwork)
    return loaded


def tokens(count: int, batch: int = 1, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (batch, count))


def decoding_session(engine: str | None = None, maximum: int = 512, page: int | None = None, **options: Any) -> Session:
    """A session of the small decoder that keeps states."""
    costs: Literal["analytic", "probed"] = "analytic" if engine == "reference" else "probed"
    return inlay.compile(network(**options), engine=engine, costs=costs, state=StateOptions(maximum=maximum, page=page))


def whole_logits(ids: Array, mask: Array | None = None, places: Array | None = None, **options: Any) -> Array:
    """The logits of all positions in one run without past, by Inlay's reference engine."""
    batch, count = ids.shape
    bound = {"batch": batch, "sequence": count, "past": 0} | ({"total": count} if options.get("has_mask", True) else {})
    bounded = network(**options).bind(bound)
    session = inlay.plan(bounded, costs="analytic").compile("reference")
    inputs: dict[str, Array] = {"input_ids": ids, "attention_mask": np.ones_like(ids) if mask is None else mask}
    if "attention_mask" not in bounded.inputs:
        del inputs["attention_mask"]
    if "position_ids" in bounded.inputs:
        inputs["position_ids"] = np.tile(np.arange(count), (batch, 1)) if places is None else places
    return session.run(inputs | empty_past(batch))["logits"]


def empty_past(batch: int = 1) -> dict[str, Array]:
    """The past of no positions."""
    empty = np.zeros((batch, HEADS, 0, FEATURES), np.float32)
    return {f"past_key_values.{i}.{part}": empty for i in range(LAYERS) for part in ("key", "value")}


def step_logits(session: Session, ids: Array, state: Any, **more: Array) -> Array:
    return session.step({"input_ids": ids, **more}, state=state)["logits"]


@pytest.mark.parametrize(
    "options",
    [{}, {"is_additive": True}, {"has_mask": False}],
    ids=["truth values", "additive", "no mask"],
)
def test_each_of_300_steps_equals_the_whole_sequence(options: Mapping[str, Any]) -> None:
    ids = tokens(305)
    whole = whole_logits(ids, **options)
    session = decoding_session(**options)
    state = session.new_state()
    np.testing.assert_allclose(step_logits(session, ids[:, :5], state), whole[:, :5], rtol=0, atol=CLOSE)
    for at in range(5, 305):
        found = step_logits(session, ids[:, at : at + 1], state)
        np.testing.assert_allclose(found, whole[:, at : at + 1], rtol=0, atol=CLOSE, err_msg=f"position {at}")
        assert state.length == at + 1
    lengths = {tensor.dims[0] for plan in session.plans for tensor in plan.inputs if "past" in tensor.name}
    assert lengths == {64, 128, 256, 512}


def test_the_reference_engine_computes_the_same_steps() -> None:
    ids = tokens(70)
    whole, session = whole_logits(ids), decoding_session("reference")
    state = session.new_state()
    np.testing.assert_allclose(step_logits(session, ids[:, :62], state), whole[:, :62], rtol=0, atol=CLOSE)
    for at in range(62, 67):
        np.testing.assert_allclose(step_logits(session, ids[:, at : at + 1], state), whole[:, at : at + 1], atol=CLOSE)


@pytest.mark.heavy
def test_steps_equal_onnxruntime_with_its_outputs_fed_back() -> None:
    runtime = pytest.importorskip("onnxruntime")
    peer = runtime.InferenceSession(model(), providers=["CPUExecutionProvider"])
    names = [output.name for output in peer.get_outputs()]
    ids, past, session = tokens(140), empty_past(), decoding_session()
    state = session.new_state()
    for at in range(140):
        one = ids[:, at : at + 1]
        fed = {"input_ids": one, "attention_mask": np.ones((1, at + 1), np.int64), "position_ids": np.array([[at]])}
        results = dict(zip(names, peer.run(None, {**fed, **past}), strict=True))
        past = {name.replace("present", "past_key_values"): results[name] for name in names[1:]}
        np.testing.assert_allclose(step_logits(session, one, state), results["logits"], rtol=0, atol=CLOSE)


def test_several_positions_after_a_prompt_equal_the_whole_sequence() -> None:
    ids = tokens(80)
    whole, session = whole_logits(ids), decoding_session()
    state = session.new_state()
    for first, last in ((0, 60), (60, 67), (67, 68), (68, 80)):
        found = step_logits(session, ids[:, first:last], state)
        np.testing.assert_allclose(found, whole[:, first:last], rtol=0, atol=CLOSE)


def test_a_batch_with_prompts_of_several_lengths_equals_each_alone() -> None:
    ids = tokens(70, batch=3)
    mask = np.ones_like(ids)
    mask[1, :9], mask[2, :30] = 0, 0  # padding before the prompts
    places = np.maximum(np.cumsum(mask, -1) - 1, 0)
    session = decoding_session()
    state = session.new_state(batch=3)
    assert state.batch == 3
    for first, last in ((0, 60), *((at, at + 1) for at in range(60, 70))):
        more = {"attention_mask": mask[:, :last], "position_ids": places[:, first:last]}
        found = step_logits(session, ids[:, first:last], state, **more)
        for row, start in enumerate((0, 9, 30)):
            alone = whole_logits(ids[row : row + 1, start:])
            begin = max(first, start)
            np.testing.assert_allclose(
                found[row, begin - first :], alone[0, begin - start : last - start], rtol=0, atol=CLOSE
            )


def test_truncated_and_reset_states_go_on_from_there() -> None:
    ids = tokens(40)
    whole, session = whole_logits(ids), decoding_session()
    state = session.new_state()
    step_logits(session, ids[:, :20], state)
    step_logits(session, tokens(10, seed=7), state)
    state.truncate(20)
    np.testing.assert_allclose(step_logits(session, ids[:, 20:21], state), whole[:, 20:21], rtol=0, atol=CLOSE)
    state.reset()
    assert state.length == 0
    np.testing.assert_allclose(step_logits(session, ids[:, :40], state), whole, rtol=0, atol=CLOSE)


def test_a_state_that_grows_by_pages_equals_one_that_is_reserved() -> None:
    ids = tokens(150)
    reserved, paged = decoding_session(), decoding_session(page=64)
    whole, grown = reserved.new_state(), paged.new_state()
    row = 2 * LAYERS * HEADS * FEATURES * 4
    sizes = set()
    for first, last in ((0, 50), *((at, at + 1) for at in range(50, 150))):
        one, other = (step_logits(s, ids[:, first:last], k) for s, k in ((reserved, whole), (paged, grown)))
        np.testing.assert_array_equal(one, other)
        sizes.add(grown.nbytes)
        assert whole.nbytes == 512 * row
    assert sizes == {64 * row, 128 * row, 256 * row}


def test_a_state_that_grows_within_a_step_keeps_the_positions_of_that_step() -> None:
    ids = tokens(140)
    whole, session = whole_logits(ids), decoding_session("reference", page=64)
    state = session.new_state()
    for first, last in ((0, 60), (60, 70), (70, 126), (126, 140)):
        found = step_logits(session, ids[:, first:last], state)
        np.testing.assert_allclose(found, whole[:, first:last], rtol=0, atol=CLOSE)


def test_a_maximum_of_one_position_is_a_step_without_past() -> None:
    ids = tokens(1)
    session = decoding_session("reference", maximum=1)
    for _ in range(2):
        with session.new_state() as state:
            np.testing.assert_allclose(step_logits(session, ids, state), whole_logits(ids), rtol=0, atol=CLOSE)
            assert state.length == 1


def test_states_of_several_threads_do_not_disturb_each_other() -> None:
    session, results = decoding_session(), dict[int, list[Array]]()
    sequences = {seed: tokens(100, seed=seed) for seed in range(4)}

    def generate(seed: int) -> None:
        state, ids = session.new_state(), sequences[seed]
        rows = [step_logits(session, ids[:, :30], state)]
        results[seed] = rows + [step_logits(session, ids[:, at : at + 1], state) for at in range(30, 100)]

    threads = [Thread(target=generate, args=(seed,)) for seed in sequences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, ids in sequences.items():
        np.testing.assert_allclose(np.concatenate(results[seed], 1), whole_logits(ids), rtol=0, atol=CLOSE)


def test_steps_of_two_states_in_turn_write_each_its_own() -> None:
    session = decoding_session()
    sequences = [tokens(20, seed=seed) for seed in (3, 4)]
    states = [session.new_state() for _ in sequences]
    found: list[list[Array]] = [[], []]
    for at in range(20):
        for i, ids in enumerate(sequences):
            found[i].append(step_logits(session, ids[:, at : at + 1], states[i]))
    for i, ids in enumerate(sequences):
        np.testing.assert_allclose(np.concatenate(found[i], 1), whole_logits(ids), rtol=0, atol=CLOSE)


def special_network() -> OpenNetwork:
    """The network of the small decoder, whose token 7 is NaN, and token 8 has a number of 1e30."""
    proto = onnx.load_from_string(model())
    table = next(one for one in proto.graph.initializer if tuple(one.dims) == (VOCABULARY, HEADS * FEATURES))
    array = numpy_helper.to_array(table).copy()
    array[7], array[8, 0] = np.nan, 1e30
    table.CopyFrom(numpy_helper.from_array(array, table.name))
    changed = inlay.load(proto.SerializeToString())
    assert isinstance(changed, OpenNetwork)
    return changed


def test_a_prompt_with_nan_leaves_none_in_a_state_that_is_reset() -> None:
    ids = tokens(5)
    ids[0, 3], ids[0, ids[0] == 8] = 7, 1
    session = inlay.compile(special_network(), engine="reference", costs="analytic", state=StateOptions(maximum=128))
    state = session.new_state()
    assert np.isnan(step_logits(session, ids, state)[:, 3:]).all()
    state.reset()
    for at in range(3):
        assert np.isfinite(step_logits(session, ids[:, at : at + 1], state)).all()


def test_special_values_are_those_of_the_whole_sequence() -> None:
    changed = special_network()
    ids = tokens(12)
    ids[0, ids[0] == 7] = ids[0, ids[0] == 8] = 1
    ids[0, 4], ids[0, 8] = 8, 7
    bound = changed.bind({"batch": 1, "sequence": 8, "past": 0, "total": 8})
    inputs = {"input_ids": ids[:, :8], "attention_mask": np.ones((1, 8), np.int64), "position_ids": np.arange(8)[None]}
    before = inlay.plan(bound, costs="analytic").compile("reference").run(inputs | empty_past())["logits"]
    assert np.isfinite(before).all()
    session = inlay.compile(changed, costs="probed", state=StateOptions(maximum=64))
    state = session.new_state()
    rows = [step_logits(session, ids[:, at : at + 1], state) for at in range(12)]
    np.testing.assert_allclose(np.concatenate(rows[:8], 1), before, rtol=0, atol=CLOSE)
    assert np.isnan(np.concatenate(rows[8:], 1)).all()
    state.truncate(8)
    again = step_logits(session, ids[:, 3:4], state)
    assert np.isfinite(again).all()


def test_a_session_keeps_a_state_of_its_own() -> None:
    ids = tokens(12)
    with decoding_session() as session:
        rows = [session.step({"input_ids": ids[:, at : at + 1]})["logits"] for at in range(12)]
    np.testing.assert_allclose(np.concatenate(rows, 1), whole_logits(ids), rtol=0, atol=CLOSE)


@pytest.mark.skipif(not get_engine().batches_machine_calls, reason="the engine executes each call of its own")
def test_writes_and_checks_of_a_step_run_inside_batches() -> None:
    """A step with more layers has no more calls from Python."""
    counts = []
    for layers in (1, 4):
        decoder = inlay.load(random_decoder(layers, HEADS * FEATURES, HEADS, VOCABULARY).SerializeToString())
        session = inlay.compile(decoder, costs="analytic", state=StateOptions(maximum=64))
        session.step({"input_ids": tokens(1)})
        (kept,) = session._shapes.values()
        assert len(kept.program.program.states) == 2 * layers
        assert kept.program.compiled.guards.masked
        counts.append(len(kept.program._pool()[1].free[0]._calls))
    assert counts[0] == counts[1]


@pytest.mark.skipif(get_engine().thread_team is None, reason="the engine has no threads of GNU OpenMP")
def test_keys_and_values_are_multiplied_where_they_are() -> None:
    decoder = inlay.load(random_decoder(LAYERS, HEADS * FEATURES, HEADS, VOCABULARY).SerializeToString())
    session = inlay.compile(decoder, costs="probed", state=StateOptions(maximum=64))
    session.step({"input_ids": tokens(1)})
    (plan,) = session.plans
    assert [step.impl for step in plan.program.steps].count("matvec:batch") == 2 * LAYERS


def test_the_memory_of_plans_does_not_contain_states() -> None:
    session = decoding_session()
    session.step({"input_ids": tokens(1)})
    (plan,) = session.plans
    (kept,) = session._shapes.values()
    assert len(plan.program.states) == 2 * LAYERS
    buffers = set(plan.program.states.values())
    assert not buffers & kept.program.arena.offsets.keys()
    assert [step.impl for step in plan.program.steps if step.kind == "cache_write"] == ["compiled"] * 2 * LAYERS
