"""Operations on integers that an engine has no optimized kernel for are computed in f32, with the same results."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.graph.costs import analytic
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Tensor
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array, Op, OpGraph
from inlay.graph.planner.dequantization import dequantize_unsupported, is_supported
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Operation
from inlay.reordering.attributes import Scales
from tests.support.graph_programs import plain_plan
from tests.support.static_quantization import NETWORKS, quantized, sample

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.heavy


class Costs:
    """Costs of an engine that has reference kernels only for integers of `kinds`."""

    def __init__(self, *kinds: str) -> None:
        self.kinds, self.inner = kinds, analytic("avx512_core_vnni")

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        found = self.inner.kernel(operation)
        src = operation.descs.get("src") or operation.descs["src_0"]
        is_slow = operation.kind in self.kinds and str(src.data_type) != "f32"
        return replace(found, impl="ref:any") if found is not None and is_slow else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    "kinds", [("convolution",), ("matmul",), ("binary", "pooling"), ("convolution", "matmul", "binary")]
)
@pytest.mark.parametrize("network", NETWORKS)
def test_results_stay_within_a_quantum(network: str, kinds: tuple[str, ...]) -> None:
    graph = lower_network(load_bound(quantized(network, "QDQ u8 s8 per channel")))
    changed = dequantize_unsupported(graph, Costs(*kinds))
    known = {name for name, tensor in graph.tensors.items() if tensor.dtype != np.float32}
    assert {
        op.kind
        for op in changed.ops
        if op.kind in kinds and changed.tensors[next(iter(op.reads.values()))].name in known
    } == set()
    results = []
    for one in (graph, changed):
        with ProgramSession(plain_plan(one).program, one, engine="reference") as session:
            results.append(session.run({"x": sample(NETWORKS[network](), 5)})["y"])
    scale = np.unique(np.abs(np.diff(np.unique(results[0])))).min()
    assert np.abs(results[0] - results[1]).max() <= 6 * max(scale, 1e-3)


def test_a_graph_of_supported_operations_stays_as_it_is() -> None:
    graph = lower_network(load_bound(quantized("residual network", "QDQ s8 s8")))
    changed = dequantize_unsupported(graph, analytic("avx512_core_vnni"))
    assert changed == graph
    assert all(is_supported(op, graph, Costs("pooling")) for op in graph.ops if op.kind == "convolution")


@pytest.mark.parametrize(
    ("isa", "src", "largest", "is_exact"),
    [
        ("avx2", np.uint8, 64, True),
        ("avx2", np.uint8, 65, False),
        ("avx2", np.uint8, -128, False),
        ("avx512_core", np.uint8, 64, True),
        ("avx512_core", np.int8, 1, False),
        ("avx2_vnni", np.uint8, 127, True),
        ("avx512_core_vnni", np.int8, -128, True),
    ],
)
def test_products_that_saturate_without_vnni_are_computed_in_f32(
    isa: str, src: type[np.generic], largest: int, is_exact: bool
) -> None:
    tensors = {"x": Tensor("x", (4, 8), np.dtype(src)), "y": Tensor("y", (4, 6), np.dtype(np.float32))}
    weights = np.ones((8, 6), np.int8)
    weights[3, 2] = largest
    attributes = PrimitiveAttributes(scales={"src": Scales()})
    constants: dict[str, Array] = {"weights": weights, "src_scales": np.full(1, 0.5, np.float32)}
    product = Op("m", "matmul", {"src": "x"}, {"dst": "y"}, constants, attributes=attributes)
    graph = OpGraph("", 20, ("x",), ("y",), (product,), tensors)
    changed = dequantize_unsupported(graph, analytic(isa))
    assert changed.outputs == tuple(changed.ops[-1].writes.values())
    kinds = [op.kind for op in changed.ops]
    assert kinds == (["matmul"] if is_exact else ["reorder", "matmul"])
