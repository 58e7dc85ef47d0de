"""A decoder of ONNX's Attention whose cache a caller gives back, beside whole sequences in float64 and ONNX Runtime."""

from typing import Any

import numpy as np
import pytest

import inlay
from inlay.graph.op_graph import Array
from tests.support.attention_decoder import draw_weights, expected_logits, step_inputs, write_decoder

TOKENS = np.random.default_rng(12).integers(0, 32, (2, 12))
CHUNKS = (5, 1, 3, 1, 1, 1)  # positions of each step


def decode(run: Any) -> Array:
    """Return the logits of all tokens, which are given in several steps."""
    results: dict[str, Array] = {}
    logits, past = [], 0
    for count in CHUNKS:
        results = run(step_inputs(TOKENS[:, past : past + count], results, past))
        logits.append(results["logits"])
        past += count
    return np.concatenate(logits, 1)


@pytest.mark.parametrize("engine", [None, "reference"])
def test_steps_with_a_cache_equal_the_whole_sequence(engine: Any) -> None:
    weights = draw_weights()
    session = inlay.compile(inlay.load(write_decoder(weights)), costs="analytic", engine=engine)
    np.testing.assert_allclose(decode(session.run), expected_logits(TOKENS, weights), atol=1e-5)


def test_attention_needs_no_numpy() -> None:
    network = inlay.load(write_decoder(draw_weights()))
    session = inlay.compile(network, costs="analytic", engine="reference")
    session.run(step_inputs(TOKENS[:, :4], {}, 0))
    past = {f"present.{i}.{part}": np.zeros((2, 2, 4, 6), np.float32) for i in (0, 1) for part in ("key", "value")}
    session.run(step_inputs(TOKENS[:, 4:5], past, 4))
    for plan in session.plans:
        assert "Attention" not in {step.node.operator for step in plan.program.steps if step.node is not None}


@pytest.mark.heavy
def test_steps_equal_those_of_onnx_runtime() -> None:
    ort = pytest.importorskip("onnxruntime")
    model = write_decoder(draw_weights())
    peer = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [one.name for one in peer.get_outputs()]
    session = inlay.compile(inlay.load(model), costs="analytic")
    found = decode(session.run)
    wanted = decode(lambda inputs: dict(zip(names, peer.run(names, inputs), strict=True)))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
