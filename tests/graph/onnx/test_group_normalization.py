"""Group normalizations by scales of groups or channels, and as PyTorch exports them: loaded, planned and run."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from tests.oracles import onednn as oracle
from tests.support import lowered_models as lm
from tests.support.network_runs import model_of
from tests.support.networks import Model

GROUPS, CHANNELS, SIDE = 4, 12, 6


def normalized(batch: int, opset: int) -> Model:
    """Return a model of a group normalization and SiLU; opset 21 has scales by channel, opset 18 by group."""
    count = CHANNELS if opset >= 21 else GROUPS
    nodes = [helper.make_node("GroupNormalization", ["x", "s", "b"], ["n"], num_groups=GROUPS, epsilon=1e-3), *silu()]
    return model_of(nodes, {"x": (batch, CHANNELS, SIDE, SIDE)}, ["y"], numbers((count,)), opset)


def exported(batch: int, opset: int) -> Model:
    """Return the same model as torch.onnx.export writes it before opset 21."""
    shapes = {"rows": np.array([0, GROUPS, -1]), "image": np.array([batch, CHANNELS, SIDE, SIDE])}
    plain = {"ones": np.ones(GROUPS, np.float32), "zeros": np.zeros(GROUPS, np.float32)}
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["r"]),
        helper.make_node("InstanceNormalization", ["r", "ones", "zeros"], ["i"], epsilon=1e-3),
        helper.make_node("Reshape", ["i", "image"], ["j"]),
        helper.make_node("Mul", ["j", "s"], ["k"]),
        helper.make_node("Add", ["k", "b"], ["n"]),
        *silu(),
    ]
    constants: dict[str, Any] = {**shapes, **plain, **numbers((CHANNELS, 1, 1))}
    return model_of(nodes, {"x": (batch, CHANNELS, SIDE, SIDE)}, ["y"], constants, opset)


def silu() -> list[Any]:
    return [helper.make_node("Sigmoid", ["n"], ["g"]), helper.make_node("Mul", ["n", "g"], ["y"])]


def numbers(dims: tuple[int, ...]) -> dict[str, lm.Array]:
    rng = np.random.default_rng(5)
    return {name: rng.standard_normal(dims).astype(np.float32) for name in "sb"}


MODELS = {
    "opset 18": lambda batch: normalized(batch, 18),
    "opset 21": lambda batch: normalized(batch, 21),
    "exported": lambda batch: exported(batch, 17),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_onnx_runtime_computes_by_primitives_of_every_release(name: str, batch: int) -> None:
    model = MODELS[name](batch)
    given = {"x": np.random.default_rng(batch).normal(2, 3, (batch, CHANNELS, SIDE, SIDE)).astype(np.float32)}
    plan = inlay.plan(inlay.load(model.SerializeToString()), costs="analytic", isa="avx2", threads=1)
    kinds = {op.kind for op in plan.graph.ops} - {"view"}
    assert kinds == {"layer_normalization", "binary", "eltwise"}
    with plan.compile() as session:
        found = session.run(given)["y"]
        if oracle.why_unavailable() is None:
            assert "numpy:f64" not in session.impls.values()
    np.testing.assert_allclose(found, lm.run_onnxruntime(model, given)["y"], rtol=0, atol=1e-5)


def test_one_of_opset_18_is_read_within_a_branch() -> None:
    inner = helper.make_node("GroupNormalization", ["x", "s", "b"], ["r"], num_groups=GROUPS)
    value = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branches = {side: helper.make_graph([inner], side, [], [value]) for side in ("then_branch", "else_branch")}
    constants = {"yes": np.array(True), **numbers((GROUPS,))}
    node = helper.make_node("If", ["yes"], ["y"], **branches)
    network = inlay.load(model_of([node], {"x": (1, CHANNELS, 2, 2)}, ["y"], constants, 18).SerializeToString())
    assert "GroupNormalization" in [node.operator for node in network.nodes]
    assert network.tensors["y"].dims == (1, CHANNELS, 2, 2)
