"""Transformers for images."""

import itertools
import math
from typing import Any

from tests.zoo.blocks import (
    Attention,
    EncoderLayer,
    MergedAttention,
    Module,
    Residual,
    SqueezeExcite,
    Tensor,
    basic_block,
    conv_norm,
    feed_forward,
    functional,
    nn,
    torch,
)


class ViT(Module):
    """ViT (Dosovitskiy et al., An Image is Worth 16x16 Words, 2021), as timm writes it."""

    def __init__(
        self, size: int = 64, patch: int = 8, width: int = 64, layers: int = 4, heads: int = 4, classes: int = 10
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.5 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(EncoderLayer(MergedAttention(width, heads), width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


def partition(x: Tensor, size: int) -> Tensor:
    """Return (batch, height, width, channels) as windows (windows, size * size, channels)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // size, size, width // size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, channels)


def merge_windows(x: Tensor, size: int, height: int, width: int) -> Tensor:
    """Return windows (windows, size * size, channels) as (batch, height, width, channels)."""
    channels = x.shape[-1]
    x = x.view(-1, height // size, width // size, size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, channels)


class WindowAttention(Module):
    """Attention within windows, with a bias for each relative position and a mask for shifted windows."""

    def __init__(self, width: int, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * size - 1) ** 2, heads))
        axis = torch.arange(size)
        places = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
        distance = places[:, :, None] - places[:, None, :] + size - 1
        self.register_buffer("index", distance[0] * (2 * size - 1) + distance[1], persistent=False)

    def forward(self, x: Tensor, mask: Tensor = None) -> Tensor:
        count, length, width = x.shape
        parts = self.qkv(x).reshape(count, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        scores = query * (width // self.heads) ** -0.5 @ key.transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(length, length, -1).permute(2, 0, 1)
        scores = scores + bias[None]
        if mask is not None:
            masked = scores.view(-1, mask.shape[0], self.heads, length, length) + mask[None, :, None]
            scores = masked.view(-1, self.heads, length, length)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(count, length, width))


class SwinBlock(Module):
    """A block of Swin; where `shift` is not 0, windows are shifted and a mask separates what was not adjacent."""

    def __init__(self, width: int, extent: int, heads: int, shift: int, size: int = 4) -> None:
        super().__init__()
        self.size, self.shift = size, shift
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = WindowAttention(width, size, heads), feed_forward(width, 4 * width)
        if shift:
            axis = torch.zeros(extent)
            axis[-size:], axis[-shift:] = 1, 2
            regions = partition((3 * axis[:, None] + axis)[None, :, :, None], size)[..., 0]
            apart = regions[:, None, :] != regions[:, :, None]
            self.register_buffer("mask", apart.float() * -100.0, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, _ = x.shape
        y = self.first(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.attention(partition(y, self.size), self.mask if self.shift else None)
        y = merge_windows(y, self.size, height, width)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.second(x))


class PatchMerging(Module):
    """Four neighbors, read by slices with a step of 2, concatenated and projected to twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(Module):
    """Swin (Liu et al., Hierarchical Vision Transformer using Shifted Windows, 2021)."""

    def __init__(
        self, width: int = 32, depths: tuple[int, ...] = (2, 2, 2), size: int = 64, window: int = 4, head: int = 16
    ) -> None:
        super().__init__()
        self.patches, self.enter = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        layers: list[Any] = []
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(PatchMerging(width))
                width *= 2
            extent = size >> (2 + stage)
            shift = window // 2 if extent > window else 0
            layers += [SwinBlock(width, extent, width // head, shift * (i % 2), window) for i in range(depth)]
        self.layers, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.enter(self.patches(x).permute(0, 2, 3, 1)))
        return self.head(self.norm(x).mean((1, 2)))


class ReducedAttention(Module):
    """Attention of SegFormer: keys and values come from an image made smaller by a strided convolution."""

    def __init__(self, width: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.shrink = nn.Conv2d(width, width, ratio, ratio) if ratio > 1 else None
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        if self.shrink is None:
            return self.attention(x)
        image = x.permute(0, 2, 1).reshape(x.shape[0], x.shape[2], height, width)
        return self.attention(x, self.norm(self.shrink(image).flatten(2).transpose(1, 2)))


class MixBlock(Module):
    """A block of SegFormer, whose feed-forward has a depthwise convolution."""

    def __init__(self, width: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.attention = ReducedAttention(width, heads, ratio)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.depthwise = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        x = x + self.attention(self.first(x), height, width)
        y = self.wide(self.second(x))
        image = y.transpose(1, 2).view(y.shape[0], y.shape[2], height, width)
        y = functional.gelu(self.depthwise(image).flatten(2).transpose(1, 2))
        return x + self.narrow(y)


class SegFormer(Module):
    """SegFormer (Xie et al., Simple and Efficient Design for Semantic Segmentation, 2021)."""

    def __init__(
        self,
        widths: tuple[int, ...] = (16, 32, 64),
        heads: tuple[int, ...] = (1, 2, 4),
        ratios: tuple[int, ...] = (4, 2, 1),
        depth: int = 1,
        head: int = 48,
        classes: int = 6,
    ) -> None:
        super().__init__()
        strided = ((3, 7, 4), *((inner, 3, 2) for inner in widths[:-1]))
        self.patches = nn.ModuleList(
            nn.Conv2d(inner, width, kernel, stride, kernel // 2)
            for (inner, kernel, stride), width in zip(strided, widths, strict=True)
        )
        self.enter, self.leave = (nn.ModuleList(nn.LayerNorm(width) for width in widths) for _ in range(2))
        shapes = zip(widths, heads, ratios, strict=True)
        self.blocks = nn.ModuleList(nn.ModuleList(MixBlock(*shape) for _ in range(depth)) for shape in shapes)
        self.project = nn.ModuleList(nn.Linear(width, head) for width in widths)
        merged = conv_norm(len(widths) * head, head, 1)
        self.head = nn.Sequential(merged, nn.Dropout(0.1), nn.Conv2d(head, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Tensor] = []
        for patches, enter, blocks, leave, project in zip(
            self.patches, self.enter, self.blocks, self.leave, self.project, strict=True
        ):
            x = patches(x)
            batch, _, height, width = x.shape
            tokens = enter(x.flatten(2).transpose(1, 2))
            for block in blocks:
                tokens = block(tokens, height, width)
            tokens = leave(tokens)
            x = tokens.reshape(batch, height, width, -1).permute(0, 3, 1, 2)
            level = project(tokens).permute(0, 2, 1).reshape(batch, -1, height, width)
            size = levels[0].shape[2:] if levels else (height, width)
            levels.append(functional.interpolate(level, size=size, mode="bilinear", align_corners=False))
        return self.head(torch.cat(levels[::-1], 1))


class DetrLayer(Module):
    """A layer of DETR's encoder or decoder: positions are added to queries and keys, not to values."""

    def __init__(self, width: int, heads: int, is_decoder: bool) -> None:
        super().__init__()
        self.own = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, batch_first=True) if is_decoder else None
        self.mlp = feed_forward(width, 2 * width, nn.ReLU)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, places: Tensor, memory: Tensor = None, around: Tensor = None) -> Tensor:
        placed = x + places
        x = self.norms[0](x + self.own(placed, placed, x, need_weights=False)[0])
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x + places, memory + around, memory, need_weights=False)[0])
        return self.norms[2](x + self.mlp(x))


class DETR(Module):
    """DETR (Carion et al., End-to-End Object Detection with Transformers, 2020) on residual blocks."""

    def __init__(
        self,
        width: int = 64,
        queries: int = 10,
        classes: int = 6,
        stages: tuple[int, ...] = (16, 32),
        heads: int = 4,
        layers: int = 2,
        size: int = 64,
    ) -> None:
        super().__init__()
        blocks = (basic_block(inner, outer, 2) for inner, outer in itertools.pairwise(stages))
        self.body = nn.Sequential(conv_norm(3, stages[0], 7, 2), nn.MaxPool2d(3, 2, 1), *blocks)
        self.project = nn.Conv2d(stages[-1], width, 1)
        self.register_buffer("places", self._grid(width, size >> len(stages) + 1), persistent=False)
        self.queries = nn.Parameter(torch.randn(1, queries, width))
        self.encoder = nn.ModuleList(DetrLayer(width, heads, False) for _ in range(layers))
        self.decoder = nn.ModuleList(DetrLayer(width, heads, True) for _ in range(layers))
        self.norm, self.kinds = nn.LayerNorm(width), nn.Linear(width, classes + 1)
        self.boxes = nn.Sequential(feed_forward(width, width, nn.ReLU), nn.ReLU(), nn.Linear(width, 4))

    @staticmethod
    def _grid(width: int, extent: int) -> Tensor:
        """Return sines and cosines of rows and columns, (1, places, width)."""
        rates = torch.exp(-math.log(10000.0) * torch.arange(width // 4) / (width // 4))
        angles = torch.arange(1, extent + 1)[:, None] * rates * (2 * math.pi / extent)
        waves = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
        rows, columns = (waves[:, None].expand(-1, extent, -1), waves[None].expand(extent, -1, -1))
        return torch.cat((rows, columns), -1).reshape(1, extent * extent, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.project(self.body(x)).flatten(2).permute(0, 2, 1)
        for layer in self.encoder:
            memory = layer(memory, self.places)
        queries = self.queries.expand(x.shape[0], -1, -1)
        found = torch.zeros_like(queries)
        for layer in self.decoder:
            found = layer(found, queries, memory, self.places)
        found = self.norm(found)
        return self.kinds(found), self.boxes(found).sigmoid()


class QuickGELU(Module):
    """The product of x and the sigmoid of 1.702 x, as CLIP has it."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class CLIP(Module):
    """CLIP (Radford et al., Learning Transferable Visual Models, 2021): a tower for images and one for texts."""

    def __init__(
        self, width: int = 64, layers: int = 2, heads: int = 4, patch: int = 8, places: int = 65, length: int = 16
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch, bias=False)
        self.token, self.places = nn.Parameter(torch.randn(width)), nn.Embedding(places, width)
        self.words, self.positions = nn.Embedding(100, width), nn.Embedding(length, width)
        self.enter, self.leave, self.end = (nn.LayerNorm(width) for _ in range(3))
        self.image, self.text = (
            nn.Sequential(
                *(EncoderLayer(Attention(width, heads, 0, is_text), width, True, QuickGELU) for _ in range(layers))
            )
            for is_text in (False, True)
        )
        self.from_image, self.from_text = (nn.Linear(width, 3 * width // 4, bias=False) for _ in range(2))
        self.scale = nn.Parameter(torch.tensor(2.6592))

    def forward(self, image: Tensor, ids: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], 1, -1), x), 1) + self.places.weight
        seen = self.from_image(self.leave(self.image(self.enter(x))[:, 0]))
        y = self.end(self.text(self.words(ids) + self.positions.weight))
        last = y[torch.arange(y.shape[0]), ids.argmax(-1)]
        read = self.from_text(last)
        seen, read = (v / v.norm(p=2, dim=-1, keepdim=True) for v in (seen, read))
        return self.scale.exp() * read @ seen.t()


class GridAttention(Module):
    """Attention of MaxViT within windows, or across a grid of equally distant pixels where `is_grid`."""

    def __init__(self, width: int, is_grid: bool, size: int, head: int) -> None:
        super().__init__()
        self.size, self.is_grid = size, is_grid
        self.norm, self.attention = nn.LayerNorm(width), WindowAttention(width, size, width // head)
        self.second, self.mlp = nn.LayerNorm(width), feed_forward(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        y, size = self.norm(x), self.size
        if self.is_grid:
            y = y.view(batch, size, height // size, size, width // size, channels).permute(0, 2, 4, 1, 3, 5)
            y = self.attention(y.reshape(-1, size * size, channels))
            y = y.view(batch, height // size, width // size, size, size, channels).permute(0, 3, 1, 4, 2, 5)
            y = y.reshape(batch, height, width, channels)
        else:
            y = merge_windows(self.attention(partition(y, size)), size, height, width)
        x = x + y
        return x + self.mlp(self.second(x))


class MaxViTBlock(Module):
    """An inverted bottleneck with gates, attention within windows, and attention across the grid."""

    def __init__(self, inner: int, outer: int, stride: int, window: int, head: int) -> None:
        super().__init__()
        wide = 4 * outer
        depthwise = conv_norm(wide, wide, 3, stride, wide, nn.GELU)
        layers = (nn.BatchNorm2d(inner), conv_norm(inner, wide, 1, activation=nn.GELU), depthwise)
        body = nn.Sequential(*layers, SqueezeExcite(wide, outer // 4, nn.SiLU), nn.Conv2d(wide, outer, 1))
        shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(inner, outer, 1)) if stride == 2 else None
        self.conv = Residual(body, shortcut)
        self.block, self.grid = (GridAttention(outer, is_grid, window, head) for is_grid in (False, True))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).permute(0, 2, 3, 1)
        return self.grid(self.block(x)).permute(0, 3, 1, 2)


def maxvit(
    inner: int = 32,
    widths: tuple[int, ...] = (32, 64),
    depths: tuple[int, ...] = (1, 1),
    window: int = 4,
    head: int = 16,
) -> Any:
    """Build MaxViT (Tu et al., Multi-Axis Vision Transformer, 2022)."""
    layers = [conv_norm(3, inner, 3, 2, activation=nn.GELU), nn.Conv2d(inner, inner, 3, padding=1)]
    for outer, depth in zip(widths, depths, strict=True):
        for index in range(depth):
            layers.append(MaxViTBlock(inner, outer, 1 if index else 2, window, head))
            inner = outer
    last = (nn.LayerNorm(inner), nn.Linear(inner, inner), nn.Tanh(), nn.Linear(inner, 10))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *last)
