"""Networks that find objects in images or classify each pixel.

`yolo`, `ssd` and `retinanet` return boxes (batch, count, 4) and scores (batch, classes, count), as NonMaxSuppression
reads them; `exporting` appends that operator.
"""

from typing import Any

from tests.zoo.blocks import Module, Tensor, basic_block, bottleneck, conv_norm, functional, nn, torch


def resize_like(x: Tensor, other: Tensor, mode: str = "nearest") -> Tensor:
    """Return images resized to the height and width of others."""
    options = {} if mode == "nearest" else {"align_corners": False}
    return functional.interpolate(x, size=other.shape[2:], mode=mode, **options)


def _silu(inner: int, outer: int, kernel: int = 1, stride: int = 1) -> Any:
    return conv_norm(inner, outer, kernel, stride, activation=nn.SiLU)


class CrossStage(Module):
    """A block of YOLOv8 (C2f): half of the channels pass each bottleneck, and all results are concatenated."""

    def __init__(self, inner: int, outer: int, depth: int = 1, has_shortcut: bool = True) -> None:
        super().__init__()
        half, self.has_shortcut = outer // 2, has_shortcut
        self.first, self.last = _silu(inner, outer), _silu((2 + depth) * half, outer)
        self.blocks = nn.ModuleList(nn.Sequential(_silu(half, half, 3), _silu(half, half, 3)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            result = block(parts[-1])
            parts.append(parts[-1] + result if self.has_shortcut else result)
        return self.last(torch.cat(parts, 1))


class SpatialPyramid(Module):
    """Three pooling layers of 5x5 in a row, concatenated (SPPF of YOLOv5)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _silu(width, width // 2), _silu(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class DistanceHead(Module):
    """The head of YOLOv8 with decoded boxes: distances to four sides as means over 16 bins (Li et al., 2020)."""

    def __init__(self, widths: tuple[int, ...], classes: int, size: int) -> None:
        super().__init__()
        self.classes = classes
        self.boxes = nn.ModuleList(nn.Sequential(_silu(w, 32, 3), nn.Conv2d(32, 64, 1)) for w in widths)
        self.kinds = nn.ModuleList(nn.Sequential(_silu(w, 32, 3), nn.Conv2d(32, classes, 1)) for w in widths)
        self.register_buffer("bins", torch.arange(16.0).view(1, 16, 1, 1))
        centers, strides = [], []
        for stride in (8, 16, 32):
            steps = torch.arange(size // stride) + 0.5
            y, x = torch.meshgrid(steps, steps, indexing="ij")
            centers.append(torch.stack((x.flatten(), y.flatten())))
            strides.append(torch.full((1, x.numel()), float(stride)))
        self.register_buffer("centers", torch.cat(centers, 1)[None])
        self.register_buffer("strides", torch.cat(strides, 1)[None])

    def forward(self, levels: list[Tensor]) -> tuple[Tensor, Tensor]:
        heads = zip(levels, self.boxes, self.kinds, strict=True)
        merged = [torch.cat((box(x), kind(x)), 1).flatten(2) for x, box, kind in heads]
        bins, kinds = torch.cat(merged, 2).split((64, self.classes), 1)
        shares = bins.view(bins.shape[0], 4, 16, -1).transpose(2, 1).softmax(1)
        before, after = functional.conv2d(shares, self.bins).squeeze(1).chunk(2, 1)
        low, high = self.centers - before, self.centers + after
        boxes = torch.cat((low, high), 1) * self.strides
        return boxes.transpose(1, 2), kinds.sigmoid()


class Yolo(Module):
    """A detector as YOLOv8 (Jocher et al., 2023): cross-stage blocks, two paths between levels, decoded boxes."""

    def __init__(self, size: int = 96, classes: int = 8, widths: tuple[int, int, int, int] = (32, 64, 96, 128)) -> None:
        super().__init__()
        a, b, c, d = widths
        self.stem = nn.Sequential(_silu(3, a // 2, 3, 2), _silu(a // 2, a, 3, 2), CrossStage(a, a))
        self.third = nn.Sequential(_silu(a, b, 3, 2), CrossStage(b, b, 2))
        self.fourth = nn.Sequential(_silu(b, c, 3, 2), CrossStage(c, c, 2))
        self.fifth = nn.Sequential(_silu(c, d, 3, 2), CrossStage(d, d), SpatialPyramid(d))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.join_fourth, self.join_third = CrossStage(c + d, c, 1, False), CrossStage(b + c, b, 1, False)
        self.down_third, self.down_fourth = _silu(b, b, 3, 2), _silu(c, c, 3, 2)
        self.out_fourth, self.out_fifth = CrossStage(b + c, c, 1, False), CrossStage(c + d, d, 1, False)
        self.head = DistanceHead((b, c, d), classes, size)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        third = self.third(self.stem(x))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        fourth = self.join_fourth(torch.cat((self.up(fifth), fourth), 1))
        third = self.join_third(torch.cat((self.up(fourth), third), 1))
        fourth = self.out_fourth(torch.cat((self.down_third(third), fourth), 1))
        fifth = self.out_fifth(torch.cat((self.down_fourth(fourth), fifth), 1))
        boxes, scores = self.head([third, fourth, fifth])
        return boxes, scores


def decode_offsets(offsets: Tensor, priors: Tensor) -> Tensor:
    """Return corners of boxes from offsets to priors of center and size, as SSD and Faster R-CNN encode them."""
    centers = priors[:, :2] + offsets[..., :2] * 0.1 * priors[:, 2:]
    sizes = priors[:, 2:] * torch.exp(torch.clamp(offsets[..., 2:] * 0.2, max=4.0))
    return torch.cat((centers - sizes / 2, centers + sizes / 2), -1)


def priors_of(extents: tuple[int, ...], shapes: tuple[tuple[float, float], ...]) -> Tensor:
    """Return priors (count, 4) of square levels: centers in 0 to 1, and sizes that grow with each level."""
    priors = []
    for level, extent in enumerate(extents):
        for row in range(extent):
            for column in range(extent):
                center = ((column + 0.5) / extent, (row + 0.5) / extent)
                priors += [(*center, width * (level + 1), height * (level + 1)) for width, height in shapes]
    return torch.tensor(priors)


SHAPES = ((0.2, 0.2), (0.28, 0.14), (0.14, 0.28))
"""Widths and heights of the priors at each place of the first level, in parts of the image."""


class ChannelNorm(Module):
    """Division by the Euclidean norm over channels, and a learned scale, as SSD has it after its fourth stage."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 20.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale.view(1, -1, 1, 1) * functional.normalize(x)


class SSD(Module):
    """SSD (Liu et al., Single Shot MultiBox Detector, 2016) on a narrow VGG with a dilated sixth stage."""

    def __init__(
        self, size: int = 96, width: int = 16, depths: tuple[int, ...] = (1, 1, 2, 2), classes: int = 6
    ) -> None:
        super().__init__()
        layers: list[Any] = []
        inner = 3
        for stage, depth in enumerate(depths):
            outer = width << stage
            for _ in range(depth):
                layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU()]
                inner = outer
            layers.append(nn.MaxPool2d(2, 2, ceil_mode=True))
        self.low, self.norm = nn.Sequential(*layers[:-1]), ChannelNorm(inner)
        dilated = nn.Conv2d(inner, inner + 2 * width, 3, padding=6, dilation=6)
        shallow = nn.Conv2d(inner + 2 * width, inner, 1)
        self.middle = nn.Sequential(layers[-1], dilated, nn.ReLU(), shallow, nn.ReLU())
        shrink = nn.Conv2d(inner // 2, 6 * width, 3, 2, 1)
        self.high = nn.Sequential(nn.Conv2d(inner, inner // 2, 1), nn.ReLU(), shrink, nn.ReLU())
        widths = (inner, inner, 6 * width)
        self.classes, count = classes, len(SHAPES)
        self.boxes = nn.ModuleList(nn.Conv2d(w, 4 * count, 3, padding=1) for w in widths)
        self.kinds = nn.ModuleList(nn.Conv2d(w, classes * count, 3, padding=1) for w in widths)
        self.register_buffer("priors", priors_of((size // 8, size // 16, size // 32), SHAPES))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low = self.low(x)
        middle = self.middle(low)
        levels = [self.norm(low), middle, self.high(middle)]
        offsets, scores = self._heads(levels)
        return decode_offsets(offsets, self.priors), torch.softmax(scores, -1).transpose(1, 2)[:, 1:]

    def _heads(self, levels: list[Tensor]) -> tuple[Tensor, Tensor]:
        parts = []
        for heads, width in ((self.boxes, 4), (self.kinds, self.classes)):
            results = (head(x).permute(0, 2, 3, 1) for head, x in zip(heads, levels, strict=True))
            parts.append(torch.cat([result.reshape(result.shape[0], -1, width) for result in results], 1))
        return parts[0], parts[1]


class RetinaNet(Module):
    """RetinaNet (Lin et al., Focal Loss, 2017): a pyramid, shared heads, and the best of each level's scores."""

    def __init__(self, size: int = 96, width: int = 32, side: int = 48, classes: int = 6, best: int = 40) -> None:
        super().__init__()
        self.classes, self.best = classes, best
        self.stem = nn.Sequential(conv_norm(3, width // 2, 3, 2), basic_block(width // 2, width, 2))
        self.stages = nn.ModuleList(basic_block(w * width, 2 * w * width, 2) for w in (1, 2, 4))
        self.sides = nn.ModuleList(nn.Conv2d(w * width, side, 1) for w in (2, 4, 8))
        self.outs = nn.ModuleList(nn.Conv2d(side, side, 3, padding=1) for _ in range(3))
        self.boxes, self.kinds = (self._head(side, len(SHAPES) * count) for count in (4, classes))
        for level in range(3):
            priors = priors_of((size // (8 << level),), SHAPES)
            self.register_buffer(f"priors{level}", priors * torch.tensor([1, 1, 1, 1 + level]))

    @staticmethod
    def _head(side: int, outer: int) -> Any:
        tower = [part for _ in range(2) for part in (nn.Conv2d(side, side, 3, padding=1), nn.ReLU())]
        return nn.Sequential(*tower, nn.Conv2d(side, outer, 3, padding=1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, sides = self.stem(x), []
        for stage, side in zip(self.stages, self.sides, strict=True):
            x = stage(x)
            sides.append(side(x))
        sides[1] = sides[1] + resize_like(sides[2], sides[1])
        sides[0] = sides[0] + resize_like(sides[1], sides[0])
        levels = [self._best(level, out(side)) for level, (out, side) in enumerate(zip(self.outs, sides, strict=True))]
        boxes, scores = zip(*levels, strict=True)
        return torch.cat(boxes, 1), torch.cat(scores, 1).transpose(1, 2)

    def _best(self, level: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoded boxes and scores of the places with the highest scores."""
        offsets, kinds = (head(x).permute(0, 2, 3, 1) for head in (self.boxes, self.kinds))
        offsets = offsets.reshape(x.shape[0], -1, 4)
        scores = kinds.reshape(x.shape[0], -1, self.classes).sigmoid()
        places = scores.amax(2).topk(min(self.best, scores.shape[1]), 1).indices
        boxes = decode_offsets(offsets, getattr(self, f"priors{level}"))
        chosen = boxes.gather(1, places[..., None].expand(-1, -1, 4))
        return chosen, scores.gather(1, places[..., None].expand(-1, -1, self.classes))


class Atrous(Module):
    """Dilated convolutions side by side and the mean of the image (ASPP of DeepLab v3)."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList([conv_norm(inner, outer, 1)])
        for rate in (2, 4, 6):
            self.branches.append(conv_norm(inner, outer, 3, padding=rate, dilation=rate))
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_norm(inner, outer, 1))
        self.project = nn.Sequential(conv_norm(5 * outer, outer, 1), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        mean = resize_like(self.mean(x), x, "bilinear")
        return self.project(torch.cat([*(branch(x) for branch in self.branches), mean], 1))


class DeepLab(Module):
    """DeepLab v3 (Chen et al., Rethinking Atrous Convolution, 2017) on residual blocks, the last ones dilated."""

    def __init__(self, w: int = 16, depths: tuple[int, int, int] = (1, 1, 1), classes: int = 6) -> None:
        super().__init__()
        layers = [conv_norm(3, 2 * w, 7, 2), nn.MaxPool2d(3, 2, 1)]
        layers += [bottleneck(4 * w if index else 2 * w, w, 4 * w) for index in range(depths[0])]
        layers += [bottleneck(8 * w if i else 4 * w, 2 * w, 8 * w, 1 if i else 2) for i in range(depths[1])]
        layers += [bottleneck(8 * w, 2 * w, 8 * w, dilation=2) for _ in range(depths[2])]
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(Atrous(8 * w, 3 * w), conv_norm(3 * w, 3 * w), nn.Conv2d(3 * w, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        return resize_like(self.head(self.body(x)), x, "bilinear")


class FCN(Module):
    """FCN-8s (Long et al., Fully Convolutional Networks, 2015): transposed convolutions and skips, on a narrow VGG."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 96, 128), wide: int = 192, classes: int = 6) -> None:
        super().__init__()
        stages, inner = [], 3
        for outer in widths:
            convs = (nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(), nn.Conv2d(outer, outer, 3, padding=1), nn.ReLU())
            stages.append(nn.Sequential(*convs, nn.MaxPool2d(2, 2)))
            inner = outer
        self.third, self.fourth, self.fifth = nn.Sequential(*stages[:3]), stages[3], stages[4]
        last = (nn.Conv2d(inner, wide, 3, padding=1), nn.ReLU(), nn.Dropout2d(), nn.Conv2d(wide, classes, 1))
        self.score = nn.Sequential(*last)
        self.score_fourth, self.score_third = nn.Conv2d(widths[3], classes, 1), nn.Conv2d(widths[2], classes, 1)
        self.twice, self.again = (nn.ConvTranspose2d(classes, classes, 4, 2, 1) for _ in range(2))
        self.eightfold = nn.ConvTranspose2d(classes, classes, 16, 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        third = self.third(x)
        fourth = self.fourth(third)
        total = self.twice(self.score(self.fifth(fourth))) + self.score_fourth(fourth)
        return self.eightfold(self.again(total) + self.score_third(third))
