"""Export of an architecture to ONNX by either exporter of PyTorch, with seeded random weights.

Random weights as layers are initialized let activations fade from layer to layer, so that two runtimes agree whatever
they compute. Here each layer is scaled so that its results have a standard deviation of 1 on the example inputs
(Mishkin and Matas, All You Need is a Good Init, 2016).
"""

import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlay.graph.op_graph import Array
from tests.support.networks import Model
from tests.zoo.architectures import SCALES, Architecture, Scale, draw_inputs
from tests.zoo.blocks import nn, torch

Exporter: TypeAlias = Literal["script", "dynamo"]
OPSETS: Mapping[Exporter, int] = {"script": 17, "dynamo": 20}
"""The opset that each exporter writes."""


def export(
    name: str,
    exporter: Exporter,
    dynamic: bool = False,
    suppression: bool = True,
    *,
    scale: Scale = "small",
    batch: int = 1,
) -> bytes:
    """Return the ONNX file of an architecture at a scale and batch; `dynamic` leaves its open axes open.

    Detectors end with NonMaxSuppression, or without `suppression` with all boxes and scores.

    The example has a batch of 2 where the axis is open, since the newer exporter takes an extent of 1 for fixed.
    """
    architecture = SCALES[scale][name]
    example = draw_inputs(architecture, {"batch": 2 if dynamic else batch})
    module = build_lively(architecture, example)
    model = _EXPORTERS[exporter](module, architecture, example, dynamic)
    if architecture.has_suppression and suppression:
        append_suppression(model)
    return bytes(model.SerializeToString())


def export_module(module: Any, architecture: Architecture, example: Mapping[str, Array]) -> bytes:
    """Return the ONNX file of a module of an architecture, by the older exporter and with fixed dims."""
    return bytes(_export_script(module, architecture, example, False).SerializeToString())


def build_lively(architecture: Architecture, example: Mapping[str, Array]) -> Any:
    """Return the module with weights of seed 0, in evaluation mode, whose results vary and are finite."""
    torch.manual_seed(0)
    module = architecture.build(**architecture.options).eval()
    hooks = [part.register_forward_hook(_normalize) for part in module.modules() if isinstance(part, _SCALED)]
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    arguments = [torch.from_numpy(array) for array in example.values()]
    with torch.no_grad():
        module(*arguments)
        for hook in hooks:
            hook.remove()
        results = module(*arguments)
    for result in results if isinstance(results, tuple) else (results,):
        assert torch.isfinite(result).all()
        assert result.std() > 1e-3
    return module


_SCALED = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.Linear)


def _normalize(layer: Any, arguments: Any, result: Any) -> Any:
    """Scale a layer to results of a standard deviation of 1, and return these; a hook that runs after the layer."""
    if not hasattr(layer, "parametrizations"):
        factor = 1 / max(float(result.std()), 1e-6)
        for parameter in layer.parameters(recurse=False):
            parameter.mul_(factor)
        return result * factor
    return result


def _names(architecture: Architecture) -> dict[str, Any]:
    names = {"input_names": [sample.name for sample in architecture.samples]}
    return names | ({"output_names": ["boxes", "scores"]} if architecture.has_suppression else {})


def _axes(architecture: Architecture) -> dict[str, dict[int, str]]:
    """Return the names of the open axes of each input."""
    return {
        sample.name: {axis: dim for axis, dim in enumerate(sample.dims) if dim in architecture.open_axes}
        for sample in architecture.samples
    }


def _export_script(module: Any, architecture: Architecture, example: Mapping[str, Array], dynamic: bool) -> Model:
    stream, options = io.BytesIO(), _names(architecture)
    if dynamic:
        options["dynamic_axes"] = _axes(architecture)
    arguments = tuple(torch.from_numpy(array) for array in example.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter is the old one, and says so
        torch.onnx.export(module, arguments, stream, dynamo=False, opset_version=OPSETS["script"], **options)
    return onnx.load_from_string(stream.getvalue())


def _export_dynamo(module: Any, architecture: Architecture, example: Mapping[str, Array], dynamic: bool) -> Model:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    options = _names(architecture)
    if dynamic:
        options["dynamic_shapes"] = tuple(_axes(architecture).values())
    arguments = tuple(torch.from_numpy(array) for array in example.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module, arguments, dynamo=True, opset_version=OPSETS["dynamo"], verbose=False, **options
        )
    return program.model_proto


_EXPORTERS: Mapping[Exporter, Callable[..., Model]] = {"script": _export_script, "dynamo": _export_dynamo}


def append_suppression(model: Model, best: int = 10) -> None:
    """Append NonMaxSuppression to a detector, and gathers of the boxes and scores that it selects, as exporters do."""
    constants: dict[str, Array] = {
        "best": np.array([best], np.int64),
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.05], np.float32),
        "image_and_box": np.array([0, 2], np.int64),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    reads = ["boxes", "scores", "best", "overlap", "least"]
    model.graph.node.extend(
        [
            helper.make_node("NonMaxSuppression", reads, ["selected"], "suppression"),
            helper.make_node("Gather", ["selected", "image_and_box"], ["places"], "places", axis=1),
            helper.make_node("GatherND", ["boxes", "places"], ["selected_boxes"], "selected_boxes"),
            helper.make_node("GatherND", ["scores", "selected"], ["selected_scores"], "selected_scores"),
        ]
    )
    model.graph.ClearField("output")
    for name, kind, dims in (
        ("selected", TensorProto.INT64, ("count", 3)),
        ("selected_boxes", TensorProto.FLOAT, ("count", 4)),
        ("selected_scores", TensorProto.FLOAT, ("count",)),
    ):
        model.graph.output.append(helper.make_tensor_value_info(name, kind, dims))
