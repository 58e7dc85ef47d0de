"""The networks of PyTorch that tests export; torch is a peer that may be absent, so tests import this when they run."""

from collections.abc import Sequence
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
Module: Any = nn.Module


class ResidualBlock(Module):  # type: ignore[misc]
    """The block of a ResNet of two convolutions, of the channels read and written and of the stride."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer))
        self.second = nn.Sequential(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
        same = inner == outer and stride == 1
        conv = nn.Identity() if same else nn.Conv2d(inner, outer, 1, stride, bias=False)
        self.short = nn.Sequential(conv, nn.Identity() if same else nn.BatchNorm2d(outer))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.short(x))


def residual_network(widths: Sequence[tuple[int, int, int]], *last: Any) -> Any:
    """A stem on images of three channels, residual blocks, the mean over space, and the last layers."""
    inner, outer = widths[0][0], widths[-1][1]
    stem = (nn.Conv2d(3, inner, 7, 2, 3, bias=False), nn.BatchNorm2d(inner), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = [ResidualBlock(*width) for width in widths]
    classes = 10 if outer == 32 else 1000
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(outer, classes), *last)


def resnet() -> Any:
    """Four residual blocks of 16 to 32 channels, and a classifier of 10."""
    return residual_network([(16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1)], nn.Softmax(1))


def resnet18() -> Any:
    """ResNet-18 as torchvision has it."""
    widths = [(64, 64, 1), (64, 64, 1)]
    for inner in (64, 128, 256):
        widths += [(inner, 2 * inner, 2), (2 * inner, 2 * inner, 1)]
    return residual_network(widths)


def double_convolution(inner: int, outer: int) -> Any:
    conv = [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.SiLU()]
    return nn.Sequential(*conv, nn.Conv2d(outer, outer, 3, padding=1), nn.GroupNorm(4, outer), nn.LeakyReLU(0.1))


class UNet(Module):  # type: ignore[misc]
    """Two levels down, one up by a transposed convolution, one by a bilinear resize, skips concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([double_convolution(*width) for width in ((3, 8), (8, 16), (16, 32))])
        self.pool = nn.MaxPool2d(2)
        self.transposed = nn.ConvTranspose2d(32, 16, 2, 2)
        self.resize = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.up = nn.ModuleList([double_convolution(32, 16), double_convolution(24, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        first = self.down[0](x)
        second = self.down[1](self.pool(first))
        lowest = self.down[2](self.pool(second))
        middle = self.up[0](torch.cat([self.transposed(lowest), second], 1))
        return torch.sigmoid(self.head(self.up[1](torch.cat([self.resize(middle), first], 1))))


def encoder() -> Any:
    """Two layers of torch's TransformerEncoder, with GELU; its attention needs opset 14."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Attention(Module):  # type: ignore[misc]
    """A layer of an encoder from products and softmax: LayerNormalization is in parts before opset 17."""

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


class Lstm(Module):  # type: ignore[misc]
    """Two layers of LSTM on 16 features, and a classifier of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Any) -> Any:
        return torch.log_softmax(self.head(self.lstm(x)[0][:, -1]), 1)


WIDTH, HEADS, LETTERS = 64, 4, 100


class BertLayer(Module):  # type: ignore[misc]
    """A layer of `Bert`; a mask of truth values selects what is attended, another is added to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.inner, self.outer = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Any, mask: Any) -> Any:
        split = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
        query, key, value = (part(x).view(split).transpose(1, 2) for part in (self.query, self.key, self.value))
        if mask.dtype == torch.bool:
            context = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5 + mask
            context = torch.matmul(nn.functional.softmax(scores, dim=-1), value)
        x = self.first(self.dense(context.transpose(1, 2).reshape(x.shape)) + x)
        return self.second(self.outer(nn.functional.gelu(self.inner(x))) + x)


class Bert(Module):  # type: ignore[misc]
    """BERT as the package transformers spells it: it reads ids and a mask of 0 and 1, and returns two tensors.

    Token types come from a buffer by `gather`, and the pooler reads the first token. `mask="add"` is the eager
    attention of transformers 4, `mask="choose"` that by `scaled_dot_product_attention`, the default since.
    """

    def __init__(self, mask: str, layers: int = 2) -> None:
        super().__init__()
        self.mask = mask
        self.words, self.positions, self.types = (nn.Embedding(n, WIDTH) for n in (LETTERS, 128, 2))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(128).expand((1, -1)), persistent=False)
        self.register_buffer("type_ids", torch.zeros((1, 128), dtype=torch.long), persistent=False)
        self.layers = nn.ModuleList(BertLayer() for _ in range(layers))
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Any, attended: Any) -> Any:
        batch, length = ids.shape
        positions = self.position_ids[:, :length]
        buffered = self.type_ids.expand(positions.shape[0], -1)
        types = torch.gather(buffered, dim=1, index=positions).expand(batch, length)
        x = self.norm(self.words(ids) + self.types(types) + self.positions(positions))
        chosen = attended[:, None, None, :]
        if self.mask == "choose":
            chosen = chosen.bool().expand(batch, 1, length, length)
        else:
            chosen = (1.0 - chosen.to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, chosen)
        return x, torch.tanh(self.pooler(x[:, 0]))
