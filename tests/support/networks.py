"""The networks that tests read, plan and run: those of `examples.random_networks`, and what torch exports.

The exports are small: they are for the nodes that exports have, not for speed. All weights are seeded.
"""

import io
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import onnx
import pytest

from examples.random_networks import LIGHT as LIGHT
from examples.random_networks import Model as Model
from examples.random_networks import bert as bert
from examples.random_networks import inputs_of as inputs_of
from examples.random_networks import light as light

Module = Any  # a class of torch, which is a peer that may be absent


def torch_or_skip() -> Any:
    """PyTorch, which heavy tests alone use."""
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def exported(module: Module, inputs: tuple[Any, ...], opset: int = 17, **options: Any) -> Model:
    """The module as torch's exporter writes it; `training` and `do_constant_folding` are options of it."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter is the old one, and says so
        torch_or_skip().onnx.export(module.eval(), inputs, stream, dynamo=False, opset_version=opset, **options)
    return onnx.load_from_string(stream.getvalue())


def seeded(build: Callable[[], Module]) -> Module:
    """The module that `build` makes, with the weights of seed 0 and running statistics unlike 0 and 1."""
    torch = torch_or_skip()
    torch.manual_seed(0)
    module = build()
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return module


def _export(name: str, dims: tuple[int, ...], batch: int = 1, opset: int = 17, **options: Any) -> Model:
    torch = torch_or_skip()
    from tests.support import torch_modules

    return exported(seeded(getattr(torch_modules, name)), (torch.randn(batch, *dims),), opset, **options)


EXPORTS: Mapping[str, Callable[..., Model]] = {
    "resnet": partial(_export, "resnet", (3, 32, 32)),
    "unet": partial(_export, "UNet", (3, 32, 32)),
    "encoder": partial(_export, "encoder", (16, 32)),
    "attention": partial(_export, "Attention", (16, 32)),
    "lstm": partial(_export, "Lstm", (8, 16)),
}
"""Each export by name: `EXPORTS[name](batch, opset)`."""
