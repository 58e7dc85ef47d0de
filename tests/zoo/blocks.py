"""Building blocks that several architectures of the zoo share.

The modules follow the papers that their docstrings name, and are spelled as torchvision, timm and transformers spell
them, so that both exporters of PyTorch write the nodes that they write for those packages. Widths and depths are small.
"""

from typing import Any, TypeAlias

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
nn: Any = torch.nn
functional: Any = torch.nn.functional
Module: Any = nn.Module
Tensor: TypeAlias = Any


def conv_norm(
    inner: int, outer: int, kernel: Any = 3, stride: int = 1, groups: int = 1, activation: Any = nn.ReLU, **options: Any
) -> Any:
    """Return a convolution, its batch normalization, and its activation unless that is None."""
    pair = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    padding = options.pop("padding", tuple(extent // 2 for extent in pair))
    conv = nn.Conv2d(inner, outer, pair, stride, padding, groups=groups, bias=False, **options)
    return nn.Sequential(conv, nn.BatchNorm2d(outer), *([] if activation is None else [activation()]))


def classifier(inner: int, classes: int = 10) -> Any:
    """Return the mean over space and a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes))


class Residual(Module):
    """The sum of a body and a shortcut, the identity if there is none (He et al., 2016)."""

    def __init__(self, body: Any, shortcut: Any = None, activation: Any = None) -> None:
        super().__init__()
        self.body, self.shortcut, self.activation = body, shortcut, activation

    def forward(self, x: Tensor) -> Tensor:
        total = self.body(x) + (x if self.shortcut is None else self.shortcut(x))
        return total if self.activation is None else self.activation(total)


class SqueezeExcite(Module):
    """Channel weights from the mean over space (Hu et al., 2018)."""

    def __init__(self, width: int, inner: int, activation: Any = nn.ReLU, gate: Any = nn.Sigmoid) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.expand = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)
        self.activation, self.gate = activation(), gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.activation(self.reduce(self.pool(x)))))


def inverted_residual(
    inner: int,
    outer: int,
    ratio: float,
    kernel: int = 3,
    stride: int = 1,
    activation: Any = nn.ReLU6,
    squeeze: Any = None,
) -> Any:
    """Return the block of MobileNet v2 (Sandler et al., 2018); `squeeze` builds a module for the expanded channels."""
    width = int(inner * ratio)
    layers = [] if width == inner else [conv_norm(inner, width, 1, activation=activation)]
    layers.append(conv_norm(width, width, kernel, stride, width, activation))
    if squeeze is not None:
        layers.append(squeeze(width))
    body = nn.Sequential(*layers, conv_norm(width, outer, 1, activation=None))
    return Residual(body) if stride == 1 and inner == outer else body


def basic_block(inner: int, outer: int, stride: int = 1) -> Any:
    """Return the block of two convolutions of ResNet-18 (He et al., 2016)."""
    body = nn.Sequential(conv_norm(inner, outer, 3, stride), conv_norm(outer, outer, activation=None))
    return Residual(body, _projection(inner, outer, stride), nn.ReLU())


def bottleneck(
    inner: int, width: int, outer: int, stride: int = 1, groups: int = 1, squeeze: int = 0, dilation: int = 1
) -> Any:
    """Return the block of three convolutions of ResNet-50, ResNeXt and RegNet; `squeeze` channels are for gates."""
    layers = [conv_norm(inner, width, 1)]
    layers.append(conv_norm(width, width, 3, stride, groups, dilation=dilation, padding=dilation))
    if squeeze:
        layers.append(SqueezeExcite(width, squeeze))
    body = nn.Sequential(*layers, conv_norm(width, outer, 1, activation=None))
    return Residual(body, _projection(inner, outer, stride), nn.ReLU())


def _projection(inner: int, outer: int, stride: int) -> Any:
    """Return the shortcut of a residual block that changes dims, None if it changes none."""
    return None if (inner, stride) == (outer, 1) else conv_norm(inner, outer, 1, stride, activation=None)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Return (batch, length, width) as (batch, heads, length, width / heads)."""
    return x.view(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Return (batch, heads, length, size) as (batch, length, heads * size)."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


class Attention(Module):
    """Multi-head attention with a projection for each input (Vaswani et al., 2017)."""

    def __init__(self, width: int, heads: int, context: int = 0, is_causal: bool = False) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(context or width, width) for _ in range(2))

    def forward(self, x: Tensor, context: Tensor = None, mask: Tensor = None) -> Tensor:
        source = x if context is None else context
        parts = (self.query(x), self.key(source), self.value(source))
        query, key, value = (split_heads(part, self.heads) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=self.is_causal)
        return self.out(merge_heads(mixed))


class MergedAttention(Module):
    """Self-attention with one projection for queries, keys and values, as timm writes that of ViT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def feed_forward(width: int, inner: int, activation: Any = nn.GELU) -> Any:
    """Return two linear layers and the activation between them."""
    return nn.Sequential(nn.Linear(width, inner), activation(), nn.Linear(inner, width))


class EncoderLayer(Module):
    """A transformer layer; normalized before each part (`is_first`), or after each addition as in BERT."""

    def __init__(self, attention: Any, width: int, is_first: bool = True, activation: Any = nn.GELU) -> None:
        super().__init__()
        self.attention, self.is_first = attention, is_first
        self.mlp = feed_forward(width, 4 * width, activation)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        if self.is_first:
            x = x + self.attention(self.first(x), *more)
            return x + self.mlp(self.second(x))
        x = self.first(x + self.attention(x, *more))
        return self.second(x + self.mlp(x))


class RMSNorm(Module):
    """Division by the root of the mean of squares (Zhang and Sennrich, 2019), as transformers spells it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class LayerNorm2d(Module):
    """Layer normalization of the channels of images, between two transpositions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
