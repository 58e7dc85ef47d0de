"""Lowering of LSTM, GRU and RNN: gates, biases, states and directions as in ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS, normal

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.heavy]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
KINDS = {"LSTM": "lstm", "GRU": "gru", "RNN": "vanilla_rnn"}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def cell(data: Any, operator: str, seed: int, direction: str) -> tuple[dict[str, lm.Array], list[str]]:
    """Draw arrays by name, and the node's inputs, of which optional ones may be left out."""
    times, batch, channels, states = (data.draw(st.integers(1, 4)) for _ in range(4))
    count, gates = DIRECTIONS[direction], GATES[operator]
    shapes = {
        "X": (times, batch, channels),
        "W": (count, gates * states, channels),
        "R": (count, gates * states, states),
        "B": (count, 2 * gates * states),
        "lengths": (batch,),
        "h": (count, batch, states),
    }
    if operator == "LSTM":
        shapes |= {"c": (count, batch, states), "P": (count, 3 * states)}
    arrays = {name: normal(seed + i, shape) for i, (name, shape) in enumerate(shapes.items())}
    arrays["lengths"] = np.full(batch, times, np.int32)
    kept = [name for name in shapes if name in "XWR" or data.draw(st.booleans(), name)]
    return {name: arrays[name] for name in kept}, [name if name in kept else "" for name in shapes]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("operator", GATES)
@given(data=st.data(), seed=SEEDS)
def test_cells_are_those_of_the_runtime(operator: str, direction: str, data: Any, seed: int) -> None:
    arrays, inputs = cell(data, operator, seed, direction)
    fixed = [name for name in arrays if name in ("W", "R", "B", "P", "lengths")]
    fixed += [name for name in ("h", "c") if name in arrays and data.draw(st.booleans(), f"constant {name}")]
    attributes: dict[str, Any] = {"hidden_size": arrays["R"].shape[2], "direction": direction}
    kind = KINDS[operator]
    if operator == "GRU" and data.draw(st.booleans(), "linear before reset"):
        attributes["linear_before_reset"], kind = 1, "lbr_gru"
    if operator == "RNN":
        attributes["activations"] = [data.draw(st.sampled_from(["Relu", "Sigmoid", "Tanh"]))] * DIRECTIONS[direction]
    opset = data.draw(st.sampled_from([7, 14, 22]), "opset")
    outputs = 3 if operator == "LSTM" else 2
    model, given_ = lm.model_of(operator, arrays, outputs, opset=opset, constants=fixed, inputs=inputs, **attributes)
    graph = lm.lower_and_compare(model, given_, 1e-4, values=lm.run_onnxruntime(model, given_))
    assert lm.kinds_of(graph) == [kind]


def forward(operator: str, x: lm.Array, outputs: int = 1, **rest: Any) -> tuple[Any, lm.Arrays]:
    """Return the model of a cell with 5 states that reads x, and its inputs."""
    rows = 5 * GATES[operator]
    arrays = {"X": x, "W": normal(1, (1, rows, 4)), "R": normal(2, (1, rows, 5))} | rest.pop("more", {})
    constants = [name for name in arrays if name != "X"]
    return lm.model_of(operator, arrays, outputs, opset=14, constants=constants, hidden_size=5, **rest)


@pytest.mark.parametrize("outputs", [1, 2])
def test_states_are_written_where_they_are_read(outputs: int) -> None:
    model, arrays = forward("LSTM", normal(0, (3, 2, 4)), outputs)
    graph = lm.lower_and_compare(model, arrays, values=lm.run_onnxruntime(model, arrays))
    (op,) = (op for op in graph.ops if op.kind == "lstm")
    assert list(op.writes) == ["dst_layer", "dst_iter", "dst_iter_c"][: 1 if outputs == 1 else 3]


@pytest.mark.parametrize("operator", GATES)
def test_batches_may_come_first(operator: str) -> None:
    x = normal(0, (2, 3, 4))
    values = lm.run_onnxruntime(*forward(operator, x.transpose(1, 0, 2).copy(), 2))
    values = {"y0": values["y0"].transpose(2, 0, 1, 3), "y1": values["y1"].transpose(1, 0, 2)}
    graph = lm.lower_and_compare(*forward(operator, x, 2, layout=1), values=values)
    assert lm.kinds_of(graph) == [KINDS[operator]]


LENGTHS = {"B": normal(3, (1, 10)), "lengths": np.array([3, 1], np.int32)}


@pytest.mark.parametrize(
    ("operator", "rest", "why"),
    [
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh"]}, "its activations are Sigmoid, Relu, Tanh"),
        ("LSTM", {"input_forget": 1}, "its input and forget gates are coupled"),
        ("GRU", {"clip": 1.0}, "it clips the inputs of activations"),
        ("RNN", {"activations": ["Affine"]}, "its activations are Affine"),
        ("RNN", {"more": LENGTHS}, "its sequences differ in length"),
    ],
)
def test_other_cells_are_references(operator: str, rest: dict[str, Any], why: str) -> None:
    model, arrays = forward(operator, normal(0, (3, 2, 4)), **rest)
    (op,) = lm.lower_model(model, arrays, {"y0": np.zeros((3, 1, 2, 5), np.float32)}).ops
    assert (op.kind, op.why) == ("reference", why)
