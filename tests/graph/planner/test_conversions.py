"""Reorders to another type also change the format, where a kernel after them reads that."""

import numpy as np
from onnx import helper, numpy_helper

import inlay


def quantized_convolution() -> bytes:
    """A quantized convolution of an image of f32."""
    rng = np.random.default_rng(3)
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(120),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "w": rng.integers(-60, 61, (64, 3, 3, 3)).astype(np.int8),
        "rs": np.float32(0.05),
        "rz": np.uint8(128),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["r"], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["r", "rs", "rz"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, (1, 3, 96, 96))
    y = helper.make_tensor_value_info("y", 2, (1, 64, 96, 96))
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "conversion", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def test_an_image_is_quantized_and_reordered_in_one_step() -> None:
    plan = inlay.plan(inlay.load(quantized_convolution()), costs="analytic", isa="AVX512_CORE_VNNI")
    first, second = plan.program.steps[:2]
    assert [first.kind, second.kind] == ["reorder", "convolution"]
    assert first.operation is not None
    src, dst = (first.operation.descs[name] for name in ("src", "dst"))
    assert (str(src.data_type), src.tag) == ("f32", "abcd")
    assert (str(dst.data_type), dst.tag) == ("u8", "acdb")
