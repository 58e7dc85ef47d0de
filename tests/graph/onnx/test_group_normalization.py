"""Group normalizations by scales of groups or channels, and as PyTorch exports them: loaded, planned and run."""

from typing import Any

import numpy as np
import pytest

import inlay
from inlay.graph.onnx.reading import load_bound
from tests.oracles import onednn as oracle
from tests.support import lowered_models as lm
from tests.support.lowered_models import normal
from tests.support.networks import Model
from tests.support.written_models import written_model

GROUPS, CHANNELS, SIDE = 4, 12, 6
SILU = "g = Sigmoid(n) y = Mul(n, g)"


def scales(*dims: int) -> dict[str, Any]:
    return {"s": normal(5, dims), "b": normal(6, dims)}


def normalized(batch: int, opset: int) -> Model:
    """Return a model of a group normalization and SiLU; opset 21 has scales by channel, opset 18 by group."""
    text = f"n = GroupNormalization <num_groups = {GROUPS}, epsilon = 1e-3> (x, s, b) {SILU}"
    constants = scales(CHANNELS if opset >= 21 else GROUPS)
    return written_model(text, (batch, CHANNELS, SIDE, SIDE), opset=opset, **constants)


def exported(batch: int) -> Model:
    """Return the same model as torch.onnx.export writes it before opset 21."""
    text = f"""
        r = Reshape(x, rows)
        i = InstanceNormalization <epsilon = 1e-3> (r, ones, zeros)
        j = Reshape(i, image)
        k = Mul(j, s)
        n = Add(k, b)
        {SILU}
    """
    dims = (batch, CHANNELS, SIDE, SIDE)
    constants: dict[str, Any] = {
        "rows": np.array([0, GROUPS, -1]),
        "image": np.array(dims),
        "ones": np.ones(GROUPS, np.float32),
        "zeros": np.zeros(GROUPS, np.float32),
    }
    return written_model(text, dims, **constants, **scales(CHANNELS, 1, 1))


MODELS = {
    "opset 18": lambda batch: normalized(batch, 18),
    "opset 21": lambda batch: normalized(batch, 21),
    "exported": exported,
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_onnx_runtime_computes_by_primitives_of_every_release(name: str, batch: int) -> None:
    model = MODELS[name](batch)
    given = {"x": 2 + 3 * normal(batch, (batch, CHANNELS, SIDE, SIDE))}
    plan = inlay.plan(inlay.load(model.SerializeToString()), costs="analytic", isa="avx2", threads=1)
    kinds = {op.kind for op in plan.graph.ops} - {"view"}
    assert kinds == {"layer_normalization", "binary", "eltwise"}
    with plan.compile().prepare() as session:
        found = session.run(given)["y"]
        if oracle.why_unavailable() is None:
            assert "numpy:f64" not in session.impls.values()
    np.testing.assert_allclose(found, lm.run_onnxruntime(model, given)["y"], rtol=0, atol=1e-5)


def test_one_of_opset_18_is_read_within_a_branch() -> None:
    branch = f"() => (float r) {{ r = GroupNormalization <num_groups = {GROUPS}> (x, s, b) }}"
    text = f"y = If <then_branch = then {branch}, else_branch = other {branch}> (yes)"
    model = written_model(text, (1, CHANNELS, 2, 2), opset=18, yes=np.array(True), **scales(GROUPS))
    network = load_bound(model.SerializeToString())
    assert "GroupNormalization" in [node.operator for node in network.nodes]
    assert network.tensors["y"].dims == (1, CHANNELS, 2, 2)
