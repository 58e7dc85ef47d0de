"""Eight architectures of the zoo, small, in the forms that ONNX Runtime's quantizer writes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from inlay.graph.op_graph import Array
from tests.support.static_quantization import FORMS as ALL_FORMS
from tests.support.static_quantization import quantize
from tests.zoo.architectures import ZOO, Architecture
from tests.zoo.calibration import SAMPLES, draw_sample, export_calibrated

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        **{name: ZOO[name] for name in ("resnet18", "mobilenet_v2", "densenet", "squeezenet", "unet", "vit")},
        **{name: replace(ZOO[name], options={"layers": 2}) for name in ("bert", "gpt2")},
    }
)
"""The architectures; layers of a language model are alike, so two are enough."""
_USUAL = ("QDQ u8 s8 per channel", "QDQ s8 s8", "QOperator u8 s8 per channel")
FORMS = tuple(form for form in ALL_FORMS if form in _USUAL)
"""The forms that are most usual."""


@cache
def exported(name: str) -> bytes:
    """The model in f32, with statistics of seeded samples."""
    return export_calibrated(ARCHITECTURES[name])


@cache
def quantized(name: str, form: str) -> bytes:
    """The model in one of `FORMS`."""
    model = onnx.load_from_string(exported(name))
    samples = [draw_sample(ARCHITECTURES[name], seed) for seed in range(SAMPLES)]
    return quantize(model, samples, form, excluded=masking_nodes(model))


def masking_nodes(model: Any) -> list[str]:
    """Names of the nodes from masks to probabilities: infinities of a mask would leave one integer to all scores."""
    masked: set[str] = set()
    names = []
    for node in model.graph.node:  # in the order in which they run
        if node.op_type in ("Where", "IsNaN") or (node.op_type in ("Add", "Softmax") and masked & set(node.input)):
            names.append(node.name)
            masked.update(() if node.op_type == "Softmax" else node.output)
    return names


def quantum(model: bytes, output: str) -> float | None:
    """The scale of an output that is a DequantizeLinear of one scale; None of another one."""
    graph = onnx.load_from_string(model).graph
    writer = next(node for node in graph.node if output in node.output)
    scales: dict[str, Array] = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    if writer.op_type != "DequantizeLinear" or writer.input[1] not in scales:
        return None
    return float(np.max(scales[writer.input[1]]))
