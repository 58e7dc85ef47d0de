"""Draw the picture of this folder anew: `python docs/pictures/networks/draw_plan.py`.

It is the plan of `small.onnx`, the network of the pages' examples, for a processor that is told in numbers, so that it
is the same on every machine. A test holds that what is committed is what this draws.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.graph.costs import AnalyticCosts, Machine
from inlay.render.network import PlanPicture

FOLDER = Path(__file__).parent
PROCESSOR = Machine("AVX2", threads=2, peak=200.0, cache_bandwidth=100.0, memory_bandwidth=40.0, cache_bytes=32 << 20)


def small() -> bytes:
    """Three convolutions, two of them side by side, and ten scores of the mean over space; the batch is open."""
    rng = np.random.default_rng(1)
    weights = {"w1": (32, 3, 3, 3), "w2": (32, 32, 1, 1), "w3": (32, 32, 3, 3), "w4": (10, 64)}
    arrays = [numpy_helper.from_array(rng.standard_normal(dims, np.float32) / 9, n) for n, dims in weights.items()]
    nodes = [
        helper.make_node("Conv", ["data", "w1"], ["stem"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["stem"], ["active"], "relu"),
        helper.make_node("Conv", ["active", "w2"], ["left"], "left"),
        helper.make_node("Conv", ["active", "w3"], ["right"], "right", pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["left", "right"], ["both"], "both", axis=1),
        helper.make_node("GlobalAveragePool", ["both"], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "w4"], ["scores"], "scores", transB=1),
        helper.make_node("Softmax", ["scores"], ["classes"], "softmax", axis=1),
    ]
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, ["batch", 3, 32, 32])
    classes = helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "small", [data], [classes], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def pictures() -> dict[str, PlanPicture]:
    """The picture by the name of its file."""
    plan = inlay.plan(inlay.load(small(), batch=1), costs=AnalyticCosts(PROCESSOR))
    return {"plan.svg": PlanPicture(plan)}


if __name__ == "__main__":
    for name, picture in pictures().items():
        picture.save(FOLDER / name)
