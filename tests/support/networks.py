"""The networks that tests read, plan and run: those of `examples.random_networks`, and what torch exports.

The exports are small: they are for the nodes that exports have, not for speed. All weights are seeded.
"""

import io
import warnings
from collections.abc import Callable
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
    torch = torch_or_skip()
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter is the old one, and says so
        torch.onnx.export(module.eval(), inputs, stream, dynamo=False, opset_version=opset, **options)
    return onnx.load_from_string(stream.getvalue())


def seeded(build: Callable[[Any], Module]) -> Module:
    """The module that `build` makes of torch, with the weights of seed 0 and running statistics unlike 0 and 1."""
    torch = torch_or_skip()
    torch.manual_seed(0)
    module = build(torch)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return module


def resnet(batch: int = 1, opset: int = 17, **options: Any) -> Model:
    """Four residual blocks of 16 to 32 channels on 3 x 32 x 32, and a classifier of 10."""
    torch = torch_or_skip()
    return exported(seeded(_resnet), (torch.randn(batch, 3, 32, 32),), opset, **options)


def unet(batch: int = 1, opset: int = 17, **options: Any) -> Model:
    """Two levels down, one up by a transposed convolution, one by a bilinear resize, skips concatenated."""
    torch = torch_or_skip()
    return exported(seeded(_unet), (torch.randn(batch, 3, 32, 32),), opset, **options)


def encoder(batch: int = 1, opset: int = 17, **options: Any) -> Model:
    """Two layers of torch's TransformerEncoder, with GELU, on 16 x 32; its attention needs opset 14."""
    torch = torch_or_skip()
    return exported(seeded(_encoder), (torch.randn(batch, 16, 32),), opset, **options)


def attention(batch: int = 1, opset: int = 17, **options: Any) -> Model:
    """A layer of an encoder from products and softmax, on 16 x 32: LayerNormalization is in parts before opset 17."""
    torch = torch_or_skip()
    return exported(seeded(_attention), (torch.randn(batch, 16, 32),), opset, **options)


def lstm(batch: int = 1, opset: int = 17, **options: Any) -> Model:
    """Two layers of LSTM on 8 steps of 16 features, and a classifier of the last step."""
    torch = torch_or_skip()
    return exported(seeded(_lstm), (torch.randn(batch, 8, 16),), opset, **options)


EXPORTS: dict[str, Callable[..., Model]] = {
    "resnet": resnet,
    "unet": unet,
    "encoder": encoder,
    "attention": attention,
    "lstm": lstm,
}
"""Each export by name: `EXPORTS[name](batch, opset)`."""


def residual_block(torch: Any) -> type:
    """The block of a ResNet of two convolutions, as a class of the channels read and written and of the stride."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer))
            self.second = nn.Sequential(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
            same = inner == outer and stride == 1
            conv = nn.Identity() if same else nn.Conv2d(inner, outer, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.Identity() if same else nn.BatchNorm2d(outer))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.second(torch.relu(self.first(x))) + self.short(x))

    return Block


def _resnet(torch: Any) -> Module:
    nn, block = torch.nn, residual_block(torch)
    stem = (nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = (block(16, 16, 1), block(16, 16, 1), block(16, 32, 2), block(32, 32, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10), nn.Softmax(1))


def _unet(torch: Any) -> Module:
    nn = torch.nn

    def double(inner: int, outer: int) -> Module:
        conv = [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.SiLU()]
        return nn.Sequential(*conv, nn.Conv2d(outer, outer, 3, padding=1), nn.GroupNorm(4, outer), nn.LeakyReLU(0.1))

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([double(3, 8), double(8, 16), double(16, 32)])
            self.pool = nn.MaxPool2d(2)
            self.transposed = nn.ConvTranspose2d(32, 16, 2, 2)
            self.resize = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            self.up = nn.ModuleList([double(32, 16), double(24, 8)])
            self.head = nn.Conv2d(8, 2, 1)

        def forward(self, x: Any) -> Any:
            first = self.down[0](x)
            second = self.down[1](self.pool(first))
            lowest = self.down[2](self.pool(second))
            middle = self.up[0](torch.cat([self.transposed(lowest), second], 1))
            return torch.sigmoid(self.head(self.up[1](torch.cat([self.resize(middle), first], 1))))

    return UNet()


def _encoder(torch: Any) -> Module:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _attention(torch: Any) -> Module:
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
            self.out = nn.Linear(32, 32)
            self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
            self.wide = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.Hardswish())

        def forward(self, x: Any) -> Any:
            batch, length, hidden = x.shape
            q, k, v = (part(x).view(batch, length, 4, hidden // 4).transpose(1, 2) for part in self.qkv)
            weights = torch.softmax(q @ k.transpose(2, 3) / (hidden // 4) ** 0.5, -1)
            context = (weights @ v).transpose(1, 2).reshape(batch, length, hidden)
            middle = self.norms[0](self.out(context) + x)
            return self.norms[1](self.wide(middle) + middle)

    return Layer()


def _lstm(torch: Any) -> Module:
    class Classifier(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(16, 24, 2, batch_first=True)
            self.head = torch.nn.Linear(24, 5)

        def forward(self, x: Any) -> Any:
            return torch.log_softmax(self.head(self.lstm(x)[0][:, -1]), 1)

    return Classifier()
