"""GroupQueryAttention with a past as a state: beside ONNX Runtime, and steps beside one run of the whole sequence."""

from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import InvalidArguments
from inlay.graph.op_graph import Array
from inlay.graph.session import Session
from inlay.graph.states import StateOptions
from tests.support.group_query_decoder import FEATURES, GROUPS, LAYERS, VOCABULARY, group_query_decoder
from tests.support.refusals import raises_exactly

pytest.importorskip("onnxruntime")  # finds the dims of the operator's results
pytestmark = pytest.mark.heavy

FORMS: dict[str, dict[str, Any]] = {
    "rotary": {},
    "interleaved": {"rotary_interleaved": 1},
    "packed": {"is_packed": True},
    "without rotary": {"do_rotary": 0},
    "scale and cap": {"scale": 0.2, "softcap": 5.0},
}
CLOSE = 1e-5


def decoding_session(**options: Any) -> Session:
    network = inlay.load(group_query_decoder(**options))
    return inlay.compile(network, costs="analytic", state=StateOptions(maximum=256))


def tokens(count: int, batch: int = 1) -> Array:
    return np.random.default_rng(5).integers(0, VOCABULARY, (batch, count))


def step_logits(session: Session, ids: Array, state: Any, **more: Array) -> Array:
    return session.step({"input_ids": ids, **more}, state=state)["logits"]


@pytest.mark.parametrize("form", FORMS)
def test_steps_equal_one_run_of_the_sequence(form: str) -> None:
    session, ids = decoding_session(**FORMS[form]), tokens(70)
    whole, state = step_logits(session, ids, session.new_state()), session.new_state()
    rows = [
        step_logits(session, ids[:, :3], state),
        *(step_logits(session, ids[:, at, None], state) for at in range(3, 70)),
    ]
    np.testing.assert_allclose(np.concatenate(rows, 1), whole, rtol=0, atol=CLOSE)


def test_padding_before_or_after_a_prompt_has_no_share() -> None:
    """The second sequence has three tokens of padding, whose place makes no difference."""
    session, ids = decoding_session(), tokens(12)
    alone = step_logits(session, ids, session.new_state())
    for valid in (slice(3, 8), slice(5)):
        prompt, mask = np.zeros((2, 8), np.int64), np.ones((2, 12), np.int64)
        prompt[0], prompt[1, valid], mask[1, :8] = ids[0, :8], ids[0, :5], 0
        mask[1, valid] = 1
        state = session.new_state(batch=2)
        found = step_logits(session, prompt, state, attention_mask=mask[:, :8])
        np.testing.assert_allclose(found[0], alone[0, :8], rtol=0, atol=CLOSE)
        np.testing.assert_allclose(found[1, valid], alone[0, :5], rtol=0, atol=CLOSE)
        for at in range(8, 12):
            new = np.array([[ids[0, at]], [ids[0, at - 3]]])
            found = step_logits(session, new, state, attention_mask=mask[:, : at + 1])
            np.testing.assert_allclose(found[:, 0], alone[0, [at, at - 3]], rtol=0, atol=CLOSE)


def test_the_engine_computes_all_of_the_attention() -> None:
    session = decoding_session()
    session.step({"input_ids": tokens(1)})
    (plan,) = session.plans
    assert sum(step.kind == "cache_write" for step in plan.program.steps) == 2 * LAYERS
    nodes = [step.name for step in plan.program.steps if step.kind == "reference" and "attention_" in step.name]
    assert not nodes


@pytest.mark.parametrize("options", [{"local_window_size": 8}, {"smooth_softmax": 1}, {"less": 2}])
def test_a_window_and_another_number_of_keys_are_refused(options: dict[str, Any]) -> None:
    with raises_exactly(
        InvalidArguments,
        "past_key_values.0.key is read by GroupQueryAttention 'attention_0': a state is read by one Concat along axis "
        "2 that writes present.0.key: export the model with such a cache, or name its states by names=",
    ):
        decoding_session(**options)


@pytest.mark.parametrize("form", FORMS)
def test_steps_equal_onnxruntime_with_its_outputs_fed_back(form: str) -> None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    other = ort.InferenceSession(group_query_decoder(**FORMS[form]), options, providers=["CPUExecutionProvider"])
    session, ids = decoding_session(**FORMS[form]), tokens(80, batch=2)
    names, state = [value.name for value in other.get_outputs()], session.new_state(batch=2)
    past = {name.replace("present", "past_key_values"): np.zeros((2, GROUPS, 0, FEATURES), "f") for name in names[1:]}
    for first, last in ((0, 6), *((at, at + 1) for at in range(6, 80))):
        part = ids[:, first:last]
        expected = other.run(None, {"input_ids": part, "attention_mask": np.ones((2, last), np.int64), **past})
        past = dict(zip(past, expected[1:], strict=True))
        np.testing.assert_allclose(step_logits(session, part, state), expected[0], rtol=0, atol=CLOSE)
