"""Kernels of engines that lend no threads: the calling thread alone computes them."""

import numpy as np

from inlay import MemoryDesc
from inlay.engines.inlay.engine import InlayEngine
from inlay.memory import Memory, pack
from inlay.primitives.engine import Operation


def test_a_table_lookup_needs_no_threads_of_another_engine() -> None:
    x = np.arange(100_000).astype(np.uint8)
    table = np.random.default_rng(0).integers(0, 256, 256).astype(np.uint8)
    src, entries = pack(x, "a"), pack(table, "a")
    descs = {"src": src.desc, "table": entries.desc, "dst": MemoryDesc(x.shape, "u8", "any")}
    made = InlayEngine().create(Operation("table_lookup", "forward_inference", descs))
    dst = Memory(made.descs["dst"])
    made.bind({"src": src, "table": entries, "dst": dst})()
    np.testing.assert_array_equal(dst.unpack(), table[x])


def test_neither_does_a_dynamic_quantization() -> None:
    x = np.random.default_rng(0).normal(0, 1, 100_000).astype(np.float32)
    src = pack(x, "a")
    values = {"scale": MemoryDesc((1,), "f32"), "zero_point": MemoryDesc((1,), "s32")}
    descs = {"src": src.desc, "dst": MemoryDesc(x.shape, "u8", "any"), **values}
    made = InlayEngine().create(Operation("dynamic_quantization", "forward_inference", descs))
    memories = {"src": src, **{name: Memory(made.descs[name]) for name in ("dst", *values)}}
    made.bind(memories)()
    scale, zero = (memories[name].unpack()[0] for name in values)
    assert scale == np.float32((x.max() - x.min()) / np.float32(255))
    assert np.abs((memories["dst"].unpack().astype(np.float64) - zero) * scale - x).max() <= 0.51 * scale


def test_a_winograd_convolution_needs_them() -> None:
    image, weights = MemoryDesc((1, 16, 8, 8), "f32", "nhwc"), MemoryDesc((16, 16, 3, 3), "f32", "any")
    window = {"strides": (1, 1), "dilations": (0, 0), "padding_l": (1, 1), "padding_r": (1, 1)}
    descs = {"src": image, "weights": weights, "dst": image}
    operation = Operation("convolution", "forward_inference", descs, {"algorithm": "winograd", **window})
    assert not InlayEngine().supports(operation)
