"""Networks as torch exports them: BERT by both exporters, and ResNet-18 in float16 and bfloat16."""

import warnings

import numpy as np
import pytest

import inlay
from inlay.data_type import as_data_type
from inlay.graph.costs.instruction_sets import allowed_isa
from inlay.graph.onnx.reading import load_bound
from inlay.graph.precision import supported_types
from tests.support.network_runs import run_by_onnxruntime
from tests.support.networks import Model, exported, seeded, torch_or_skip

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("is_dynamo", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("mask", ["add", "choose"])
def test_bert_agrees_with_onnx_runtime(mask: str, is_dynamo: bool) -> None:
    torch = torch_or_skip()
    from tests.support.torch_modules import LETTERS, Bert

    module = seeded(lambda: Bert(mask)).eval()
    torch.manual_seed(1)
    ids, attended = torch.randint(0, LETTERS, (2, 16)), torch.ones(2, 16, dtype=torch.long)
    attended[1, 10:] = 0
    if is_dynamo:
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(module, (ids, attended), dynamo=True, opset_version=20, verbose=False)
        model: Model = program.model_proto
    else:
        model = exported(module, (ids, attended))
    given = (array.numpy() for array in (ids, attended))
    inputs = {value.name: array for value, array in zip(model.graph.input, given, strict=True)}
    wanted = run_by_onnxruntime(model, inputs)
    session = inlay.plan(inlay.load(model.SerializeToString()), costs="probed").compile().prepare()
    for name, found in session.run(inputs).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)
    assert session._exact is None  # a mask of the least number is no reason for exact kernels


@pytest.mark.parametrize(("name", "error"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_resnet18_of_narrow_floats_agrees_with_torch(name: str, error: float) -> None:
    """Inputs, weights and results are of the narrow type, and results are as exact as it is."""
    torch = torch_or_skip()
    from tests.support.torch_modules import resnet18

    dtype = getattr(torch, name)
    module = seeded(resnet18).eval().to(dtype)
    image = torch.randn(1, 3, 224, 224).to(dtype)
    network = load_bound(exported(module, (image,), 18).SerializeToString())
    session = inlay.plan(network, costs="probed").compile().prepare()
    (found,) = session.run({network.inputs[0]: image}).values()
    with torch.no_grad():
        exact, own = module.float()(image.float()).numpy(), module.to(dtype)(image).float().numpy()
    assert str(found.dtype) == name
    largest = np.abs(exact).max()
    assert np.abs(found.astype(np.float32) - exact).max() <= error * largest
    assert np.abs(found.astype(np.float32) - own).max() <= 16 * error * largest
    conversions = [step.operation.descs for step in session.program.steps if step.operation and step.kind == "reorder"]
    types = [
        tuple(str(descs[side].require_layout("test")[1].dtype) for side in ("src", "dst")) for descs in conversions
    ]
    is_computed = as_data_type(found.dtype).name in supported_types(allowed_isa())
    conversions_in_f32 = [] if is_computed else [(name, "float32"), ("float32", name)]
    assert [pair for pair in types if pair[0] != pair[1]] == conversions_in_f32
