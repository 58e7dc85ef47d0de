"""Networks that return images: segmentation of cells, super-resolution, generation and denoising."""

import math
from typing import Any

from tests.zoo.blocks import Attention, Module, Tensor, conv_norm, feed_forward, functional, nn, torch


class UNet(Module):
    """U-Net (Ronneberger et al., Convolutional Networks for Biomedical Image Segmentation, 2015)."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128), classes: int = 2) -> None:
        super().__init__()
        pairs = zip((3, *widths), widths, strict=False)
        self.down = nn.ModuleList(nn.Sequential(conv_norm(a, b), conv_norm(b, b)) for a, b in pairs)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.join = nn.ModuleList(nn.Sequential(conv_norm(2 * w, w), conv_norm(w, w)) for w in widths[-2::-1])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for index, down in enumerate(self.down):
            x = down(x if index == 0 else self.pool(x))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips[:-1]), strict=True):
            x = join(torch.cat((skip, up(x)), 1))
        return self.head(x)


def espcn() -> Any:
    """Build ESPCN (Shi et al., Real-Time Super-Resolution by Sub-Pixel Convolution, 2016), three times as large."""
    first = (nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh())
    return nn.Sequential(*first, nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3))


def dcgan(latent: int = 64, width: int = 128) -> Any:
    """Build the generator of DCGAN (Radford et al., Unsupervised Representation Learning, 2016): 64x64 images."""
    layers: list[Any] = [nn.Unflatten(1, (latent, 1, 1))]
    inner = latent
    for ratio, stride, padding in ((1, 1, 0), (2, 2, 1), (4, 2, 1), (8, 2, 1)):
        outer = width // ratio
        transposed = nn.ConvTranspose2d(inner, outer, 4, stride, padding, bias=False)
        layers += [transposed, nn.BatchNorm2d(outer), nn.ReLU()]
        inner = outer
    return nn.Sequential(*layers, nn.ConvTranspose2d(inner, 3, 4, 2, 1, bias=False), nn.Tanh())


class DnCNN(Module):
    """DnCNN (Zhang et al., Beyond a Gaussian Denoiser, 2017): the noise of an image, subtracted from it."""

    def __init__(self, depth: int = 8, width: int = 32) -> None:
        super().__init__()
        middle = [conv_norm(width, width) for _ in range(depth - 2)]
        first, last = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1, bias=False)
        self.noise = nn.Sequential(first, nn.ReLU(), *middle, last)

    def forward(self, x: Tensor) -> Tensor:
        return x - self.noise(x)


def sinusoids(steps: Tensor, width: int) -> Tensor:
    """Return the embedding of time steps (batch,) as cosines and sines (batch, width)."""
    rates = torch.exp(-math.log(10000.0) * torch.arange(width // 2, dtype=torch.float32) / (width // 2))
    angles = steps[:, None].float() * rates[None]
    return torch.cat((torch.cos(angles), torch.sin(angles)), -1)


class TimedBlock(Module):
    """A residual block with group normalization that adds a projection of the time."""

    def __init__(self, inner: int, outer: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1))
        self.time = nn.Linear(time, outer)
        self.second = nn.Sequential(nn.GroupNorm(8, outer), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1))
        self.shortcut = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(x) + self.time(functional.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.second(y)


class GatedLinear(Module):
    """The feed-forward of Stable Diffusion: half of a projection is gated by GELU of the other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.wide(x).chunk(2, -1)
        return self.narrow(value * functional.gelu(gate))


class SpatialTransformer(Module):
    """Attention of pixels to one another and to a text (Rombach et al., 2022)."""

    def __init__(self, width: int, context: int, heads: int = 4) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.own, self.cross = Attention(width, heads), Attention(width, heads, context)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.mlp = GatedLinear(width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        batch, width, rows, columns = x.shape
        y = self.enter(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, rows * columns, width)
        y = y + self.own(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), context)
        y = y + self.mlp(self.norms[2](y))
        return x + self.leave(y.reshape(batch, rows, columns, width).permute(0, 3, 1, 2))


class DiffusionUNet(Module):
    """The U-Net of latent diffusion (Rombach et al., 2022) of two levels, with time and text."""

    def __init__(self, width: int = 32, context: int = 48) -> None:
        super().__init__()
        time = 4 * width
        self.width, self.time = width, feed_forward(width, time, nn.SiLU)
        self.widen = nn.Linear(width, time)
        self.enter, self.leave = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.first, self.shrink = TimedBlock(width, width, time), nn.Conv2d(width, width, 3, 2, 1)
        self.second, self.middle = TimedBlock(width, 2 * width, time), TimedBlock(2 * width, 2 * width, time)
        self.attend, self.grow = SpatialTransformer(2 * width, context), nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.last = TimedBlock(3 * width, width, time)
        self.norm = nn.GroupNorm(8, width)

    def forward(self, x: Tensor, step: Tensor, context: Tensor) -> Tensor:
        time = self.widen(self.time(sinusoids(step, self.width)))
        high = self.first(self.enter(x), time)
        low = self.attend(self.second(self.shrink(high), time), context)
        low = self.middle(low, time)
        grown = self.grow(functional.interpolate(low, scale_factor=2.0, mode="nearest"))
        return self.leave(functional.silu(self.norm(self.last(torch.cat((grown, high), 1), time))))
