"""Profile a network, save a Chrome trace, and refine its plan: which steps take how long, and are they as predicted?

Run with `python examples/profile_network.py [FOLDER]`, which writes `FOLDER/steps.json`; open it in chrome://tracing or
https://ui.perfetto.dev. The network is an encoder with random weights, and needs the package onnx. With the engine
oneDNN, kernels are measured for ten seconds at most; else costs are those of a model, and there is nothing to refine.
"""

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.primitives import get_engine

LAYERS, WIDTH, ROWS = 4, 192, 64


def encoder() -> bytes:
    """Return a model of equal blocks: a product, a bias, a ReLU, a product back, the shortcut, and a normalization."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"

    def constant(name: str, *dims: int) -> str:
        """Add random weights, and return their name."""
        values = (rng.standard_normal(dims) / np.sqrt(dims[0])).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    for layer in range(LAYERS):
        names = {part: f"layer{layer}.{part}" for part in ("up", "bias", "relu", "down", "sum", "norm")}
        nodes += [
            helper.make_node("MatMul", [last, constant(f"w{layer}.up", WIDTH, 4 * WIDTH)], [names["up"]], names["up"]),
            helper.make_node("Add", [names["up"], constant(f"b{layer}", 4 * WIDTH)], [names["bias"]], names["bias"]),
            helper.make_node("Relu", [names["bias"]], [names["relu"]], names["relu"]),
            helper.make_node(
                "MatMul", [names["relu"], constant(f"w{layer}.down", 4 * WIDTH, WIDTH)], [names["down"]], names["down"]
            ),
            helper.make_node("Add", [names["down"], last], [names["sum"]], names["sum"]),
            helper.make_node(
                "LayerNormalization",
                [names["sum"], constant(f"s{layer}", WIDTH), constant(f"t{layer}", WIDTH)],
                [names["norm"]],
                names["norm"],
            ),
        ]
        last = names["norm"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (ROWS, WIDTH))
    y = helper.make_tensor_value_info(last, TensorProto.FLOAT, (ROWS, WIDTH))
    graph = helper.make_graph(nodes, "encoder", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def main(folder: Path) -> None:
    """Plan, profile and refine the encoder, and write its trace."""
    has_engine = get_engine().name != "reference"
    network = inlay.load(encoder())
    plan = inlay.plan(network, seconds=10) if has_engine else inlay.plan(network, costs="analytic")
    inputs = {"x": np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)}
    with plan.compile() as session:
        profile = session.profile(inputs)
    print(profile)
    slowest = max(profile, key=lambda one: one.ms)
    print(f"\nthe slowest step is {slowest.label}: {slowest.ms:.3f} ms in {slowest.formats} by {slowest.impl}")
    profile.save_trace(folder / "steps.json")
    print(f"wrote {folder / 'steps.json'}")
    if has_engine:
        print(f"\n{plan.refine(inputs, seconds=10).refinement}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
