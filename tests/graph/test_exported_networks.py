"""Networks as torch exports them: BERT by both exporters, and ResNet-18 in float16 and bfloat16."""

import io
import warnings
from typing import Any

import numpy as np
import pytest

import inlay
from tests.support.bert_modules import LETTERS, bert_module
from tests.support.networks import exported, residual_block, seeded, torch_or_skip

pytestmark = pytest.mark.heavy


def exported_bert(mask: str, is_dynamo: bool, arguments: tuple[Any, ...]) -> bytes:
    torch = torch_or_skip()
    module = bert_module(torch, mask)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_dynamo:
            pytest.importorskip("onnxscript", reason="onnxscript is not installed")
            program = torch.onnx.export(module, arguments, dynamo=True, opset_version=20, verbose=False)
            return bytes(program.model_proto.SerializeToString())
        stream = io.BytesIO()
        torch.onnx.export(module, arguments, stream, dynamo=False, opset_version=17)
        return stream.getvalue()


@pytest.mark.parametrize("is_dynamo", [False, True], ids=["script", "dynamo"])
@pytest.mark.parametrize("mask", ["add", "choose"])
def test_bert_agrees_with_onnx_runtime(mask: str, is_dynamo: bool) -> None:
    torch, ort = torch_or_skip(), pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    torch.manual_seed(1)
    ids, attended = torch.randint(0, LETTERS, (2, 16)), torch.ones(2, 16, dtype=torch.long)
    attended[1, 10:] = 0
    model = exported_bert(mask, is_dynamo, (ids, attended))
    peer = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    inputs = {value.name: array.numpy() for value, array in zip(peer.get_inputs(), (ids, attended), strict=True)}
    session = inlay.plan(inlay.load(model), costs="probed").compile()
    for found, wanted in zip(session.run(inputs).values(), peer.run(None, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert session._exact is None  # a mask of the least number is no reason for exact kernels


def resnet18(torch: Any) -> Any:
    """ResNet-18 as torchvision has it."""
    nn, block = torch.nn, residual_block(torch)
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    blocks = [block(*size) for size in (*sizes, (512, 512, 1))]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


@pytest.mark.parametrize(("name", "error"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_resnet18_of_narrow_floats_agrees_with_torch(name: str, error: float) -> None:
    """Inputs, weights and results are of the narrow type, and results are as exact as it is."""
    torch = torch_or_skip()
    dtype = getattr(torch, name)
    module = seeded(resnet18).eval().to(dtype)
    image = torch.randn(1, 3, 224, 224).to(dtype)
    network = inlay.load(exported(module, (image,), 18).SerializeToString())
    session = inlay.plan(network, costs="probed").compile()
    (found,) = session.run({network.inputs[0]: image}).values()
    with torch.no_grad():
        exact, own = module.float()(image.float()).numpy(), module.to(dtype)(image).float().numpy()
    assert str(found.dtype) == name
    largest = np.abs(exact).max()
    assert np.abs(found.astype(np.float32) - exact).max() <= error * largest
    assert np.abs(found.astype(np.float32) - own).max() <= 16 * error * largest
    assert [step.node.operator for step in session.program.steps if step.node is not None] == ["Cast", "Cast"]
