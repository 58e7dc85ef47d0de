"""Plans of quantized networks: their kernels, their files, and results beside f32 and ONNX Runtime."""

from pathlib import Path

import numpy as np
import pytest

import inlay
from tests.support.static_quantization import FORMS, NETWORKS, quantized, run_onnxruntime, sample

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.heavy


@pytest.fixture
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    network, form = request.param
    (tmp_path / "model.onnx").write_bytes(quantized(network, form))
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("model", [(network, form) for network in NETWORKS for form in FORMS], indirect=True)
def test_no_kernel_is_a_reference(model: Path) -> None:
    plan = inlay.plan(inlay.load(model), costs="probed")
    impls = {step.name: step.impl for step in plan.program.steps}
    slow = {name: impl for name, impl in impls.items() if impl.startswith(("ref", "numpy", "onnxruntime"))}
    assert slow == {}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("form", FORMS)
def test_a_network_is_as_close_to_f32_as_onnxruntime(network: str, form: str) -> None:
    source = NETWORKS[network]()
    theirs, ours = 0.0, 0.0
    session = inlay.compile(inlay.load(quantized(network, form)), costs="analytic")
    for seed in range(200, 208):
        inputs = {"x": sample(source, seed)}
        exact = run_onnxruntime(source.SerializeToString(), inputs)["y"]
        theirs += float(np.square(run_onnxruntime(quantized(network, form), inputs)["y"] - exact).sum())
        ours += float(np.square(session.run(inputs)["y"] - exact).sum())
    session.close()
    assert ours <= 1.1**2 * theirs


@pytest.mark.parametrize("network", ["residual network", "upsampling network"])
def test_a_saved_plan_has_integers_and_the_same_results(network: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(quantized(network, FORMS[0]))
    plan, x = inlay.plan(inlay.load(tmp_path / "model.onnx"), costs="analytic"), sample(NETWORKS[network](), 3)
    plan.save(tmp_path / "plan.inlay")
    with plan.compile() as one, inlay.Session.load(tmp_path / "plan.inlay") as other:
        assert one.run({"x": x})["y"].tobytes() == other.run({"x": x})["y"].tobytes()
