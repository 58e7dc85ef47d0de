"""Equal nodes: merged where operator, attributes, inputs and constants are equal bit by bit, and nowhere else."""

import pytest

from inlay.graph.onnx.reading import load_bound
from tests.support.lowered_models import normal
from tests.support.network_runs import run_model, run_network
from tests.support.written_models import written_model

CONSTANTS = "k = Constant <value_float = {}> () l = Constant <value_float = {}> ()"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a = Neg(x) b = Neg(x) y = Add(a, b)", 2),
        ("a = Neg(x) b = Exp(a) c = Neg(x) d = Exp(c) y = Add(b, d)", 3),
        ("a = Softmax <axis = 0> (x) b = Softmax <axis = 1> (x) y = Add(a, b)", 3),
        (f"{CONSTANTS.format(0.5, 0.5)} a = Max(x, k) b = Max(x, l) y = Add(a, b)", 2),
        (f"{CONSTANTS.format(0.0, -0.0)} a = Min(x, k) b = Min(x, l) y = Max(a, b)", 3),
        ("a = RandomNormalLike(x) b = RandomNormalLike(x) c = Sub(a, b) y = Add(c, x)", 4),
        ("a = Neg(x) y = Neg(x) z = Add(a, y)", 3),
        ("a, b = Split <axis = 0> (x) c, d = Split <axis = 0> (x) y = Concat <axis = 0> (a, d, b, c)", 2),
    ],
)
def test_equal_nodes_are_merged(text: str, count: int) -> None:
    outputs = "y z" if "z =" in text else "y"
    model = written_model(text, (2, 4), outputs)
    network = load_bound(model.SerializeToString())
    assert len(network.nodes) == count
    if "Random" not in text:
        inputs = {"x": normal(0, (2, 4))}
        found = run_network(network, inputs)
        assert all(found[name].tobytes() == array.tobytes() for name, array in run_model(model, inputs).items())
