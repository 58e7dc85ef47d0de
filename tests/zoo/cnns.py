"""Convolutional networks that classify images; default arguments make small ones (see `architectures.REAL_SIZES`)."""

from functools import partial
from typing import Any

from tests.zoo.blocks import (
    LayerNorm2d,
    Module,
    Residual,
    SqueezeExcite,
    Tensor,
    basic_block,
    bottleneck,
    classifier,
    conv_norm,
    inverted_residual,
    nn,
    torch,
)


def resnet18() -> Any:
    """Build ResNet-18 (He et al., Deep Residual Learning for Image Recognition, 2016) of full width."""
    layers = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for inner, outer, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [basic_block(inner, outer, stride), basic_block(outer, outer)]
    return nn.Sequential(*layers, classifier(512))


def resnext(stem: int = 32, width: int = 32, depths: tuple[int, ...] = (2, 2, 2, 1), groups: int = 8) -> Any:
    """Build ResNeXt (Xie et al., Aggregated Residual Transformations, 2017)."""
    layers, inner = [conv_norm(3, stem, 7, 2), nn.MaxPool2d(3, 2, 1)], stem
    for stage, depth in enumerate(depths):
        for index in range(depth):
            stride = 2 if stage and not index else 1
            layers.append(bottleneck(inner, width, 2 * width, stride, groups))
            inner = 2 * width
        width *= 2
    return nn.Sequential(*layers, classifier(inner))


class DenseBlock(Module):
    """Layers that each read all results before them."""

    def __init__(self, inner: int, growth: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self._layer(inner + index * growth, growth) for index in range(depth))

    @staticmethod
    def _layer(inner: int, growth: int) -> Any:
        first = (nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, 4 * growth, 1, bias=False))
        second = (nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))
        return nn.Sequential(*first, *second)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


def densenet(growth: int = 16, depths: tuple[int, ...] = (4, 6, 6)) -> Any:
    """Build DenseNet (Huang et al., Densely Connected Convolutional Networks, 2017)."""
    inner = 2 * growth
    layers = [conv_norm(3, inner, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for index, depth in enumerate(depths):
        if index:
            squeeze = nn.Conv2d(inner, inner // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(inner), nn.ReLU(), squeeze, nn.AvgPool2d(2)]
            inner //= 2
        layers.append(DenseBlock(inner, growth, depth))
        inner += depth * growth
    return nn.Sequential(*layers, nn.BatchNorm2d(inner), nn.ReLU(), classifier(inner))


def mobilenet_v2(
    widths: tuple[int, ...] = (16, 8, 16, 16, 32, 48, 80, 160, 640), depths: tuple[int, ...] = (1, 2, 2, 3, 2, 2, 1)
) -> Any:
    """Build MobileNet v2 (Sandler et al., Inverted Residuals and Linear Bottlenecks, 2018)."""
    inner, *outers, head = widths
    layers = [conv_norm(3, inner, 3, 2, activation=nn.ReLU6)]
    for outer, depth, stride in zip(outers, depths, (1, 2, 2, 2, 1, 2, 1), strict=True):
        for index in range(depth):
            ratio = 6 if len(layers) > 1 else 1
            layers.append(inverted_residual(inner, outer, ratio, 3, 1 if index else stride))
            inner = outer
    last = (conv_norm(inner, head, 1, activation=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, *last, nn.Dropout(0.2), nn.Linear(head, 10))


def mobilenet_v3(head: int = 256) -> Any:
    """Build MobileNet v3 small (Howard et al., Searching for MobileNetV3, 2019)."""
    layers = [conv_norm(3, 16, 3, 2, activation=nn.Hardswish)]
    for kernel, inner, width, outer, has_gate, activation, stride in (
        (3, 16, 16, 16, True, nn.ReLU, 2), (3, 16, 72, 24, False, nn.ReLU, 2), (3, 24, 88, 24, False, nn.ReLU, 1),
        (5, 24, 96, 40, True, nn.Hardswish, 2), (5, 40, 240, 40, True, nn.Hardswish, 1),
        (5, 40, 120, 48, True, nn.Hardswish, 1), (5, 48, 288, 96, True, nn.Hardswish, 2),
        (5, 96, 576, 96, True, nn.Hardswish, 1),
    ):  # fmt: skip
        gate = partial(_hard_gate, max(8, width // 32 * 8)) if has_gate else None
        layers.append(inverted_residual(inner, outer, width / inner, kernel, stride, activation, gate))
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, head), nn.Hardswish(), nn.Linear(head, 10))
    return nn.Sequential(*layers, conv_norm(96, 576, 1, activation=nn.Hardswish), *last)


def _hard_gate(inner: int, width: int) -> Any:
    return SqueezeExcite(width, inner, gate=nn.Hardsigmoid)


class ShuffleUnit(Module):
    """A unit of ShuffleNet v2: half of the channels pass, or both halves are computed where the stride is 2."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        half, read = outer // 2, inner if stride == 2 else inner // 2
        depthwise = conv_norm(half, half, 3, stride, half, None)
        self.right = nn.Sequential(conv_norm(read, half, 1), depthwise, conv_norm(half, half, 1))
        self.left = None
        if stride == 2:
            self.left = nn.Sequential(conv_norm(inner, inner, 3, 2, inner, None), conv_norm(inner, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.left is None:
            left, right = x.chunk(2, 1)
        else:
            left, right = self.left(x), x
        joined = torch.cat((left, self.right(right)), 1)
        batch, channels, height, width = joined.shape
        return joined.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(joined.shape)


def shufflenet_v2(width: int = 48, depths: tuple[int, ...] = (3, 5, 3), head: int = 512) -> Any:
    """Build ShuffleNet v2 (Ma et al., Practical Guidelines for Efficient CNN Architecture Design, 2018)."""
    layers, inner = [conv_norm(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)], 24
    for stage, depth in enumerate(depths):
        for index in range(depth):
            layers.append(ShuffleUnit(inner, width << stage, 1 if index else 2))
            inner = width << stage
    return nn.Sequential(*layers, conv_norm(inner, head, 1), classifier(head))


class Fire(Module):
    """A module of SqueezeNet: 1x1 and 3x3 convolutions of few channels, concatenated."""

    def __init__(self, inner: int, squeeze: int, outer: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inner, squeeze, 1)
        self.one, self.three = nn.Conv2d(squeeze, outer, 1), nn.Conv2d(squeeze, outer, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


def squeezenet() -> Any:
    """Build SqueezeNet 1.1 (Iandola et al., AlexNet-level accuracy with 50x fewer parameters, 2016)."""
    layers: list[Any] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU()]
    for inner, squeeze, outer in (
        (64, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128), (256, 48, 192), (384, 48, 192), (384, 64, 256),
        (512, 64, 256),
    ):  # fmt: skip
        if (inner, squeeze) in ((64, 16), (128, 32), (256, 48)):
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        layers.append(Fire(inner, squeeze, outer))
    head = (nn.Dropout(0.5), nn.Conv2d(512, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, *head)


def efficientnet(
    widths: tuple[int, ...] = (16, 8, 12, 20, 40, 56, 96, 160, 640), depths: tuple[int, ...] = (1, 2, 2, 2, 2, 2, 1)
) -> Any:
    """Build EfficientNet (Tan and Le, Rethinking Model Scaling, 2019) with the stages of B0."""
    inner, *outers, head = widths
    layers = [conv_norm(3, inner, 3, 2, activation=nn.SiLU)]
    kernels = zip((1, 2, 2, 2, 1, 2, 1), (3, 3, 5, 3, 5, 5, 3), strict=True)
    for outer, depth, (stride, kernel) in zip(outers, depths, kernels, strict=True):
        for index in range(depth):
            ratio = 6 if len(layers) > 1 else 1
            gate = partial(SqueezeExcite, inner=max(1, inner // 4), activation=nn.SiLU)
            layers.append(inverted_residual(inner, outer, ratio, kernel, 1 if index else stride, nn.SiLU, gate))
            inner = outer
    return nn.Sequential(*layers, conv_norm(inner, head, 1, activation=nn.SiLU), classifier(head))


class Parallel(Module):
    """Branches that read the same tensor; their results are concatenated."""

    def __init__(self, *branches: Any) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _chain(inner: int, *layers: tuple[int, Any]) -> Any:
    parts = []
    for outer, kernel in layers:
        parts.append(conv_norm(inner, outer, kernel))
        inner = outer
    return nn.Sequential(*parts)


def _pooled(inner: int, outer: int) -> Any:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_norm(inner, outer, 1))


def _inception_a(inner: int, f: int) -> Any:
    deep = _chain(inner, (16 * f, 1), (24 * f, 3), (24 * f, 3))
    return Parallel(conv_norm(inner, 16 * f, 1), _chain(inner, (12 * f, 1), (16 * f, 5)), deep, _pooled(inner, 8 * f))


def _inception_c(inner: int, f: int) -> Any:
    once = ((32 * f, 1), (32 * f, (1, 7)), (48 * f, (7, 1)))
    twice = ((32 * f, 1), (32 * f, (7, 1)), (32 * f, (1, 7)), (32 * f, (7, 1)), (48 * f, (1, 7)))
    return Parallel(conv_norm(inner, 48 * f, 1), _chain(inner, *once), _chain(inner, *twice), _pooled(inner, 48 * f))


def _inception_e(inner: int, f: int) -> Any:
    width = 48 * f
    first, second = (Parallel(conv_norm(width, width, (1, 3)), conv_norm(width, width, (3, 1))) for _ in range(2))
    twice = nn.Sequential(_chain(inner, (56 * f, 1), (width, 3)), first)
    once = nn.Sequential(conv_norm(inner, width, 1), second)
    return Parallel(conv_norm(inner, 40 * f, 1), once, twice, _pooled(inner, 24 * f))


def inception_v3(factor: int = 1, stem: int = 32, depths: tuple[int, int, int] = (1, 1, 1)) -> Any:
    """Build Inception v3 (Szegedy et al., Rethinking the Inception Architecture, 2016): each kind of block."""
    f = factor
    layers = [conv_norm(3, 16, 3, 2, padding=0), conv_norm(16, 16, 3, padding=0), conv_norm(16, stem)]
    layers.append(nn.MaxPool2d(3, 2))
    layers += [_inception_a(stem if index == 0 else 64 * f, f) for index in range(depths[0])]
    lower = nn.Sequential(_chain(64 * f, (16 * f, 1), (24 * f, 3)), conv_norm(24 * f, 24 * f, 3, 2, padding=0))
    layers.append(Parallel(conv_norm(64 * f, 96 * f, 3, 2, padding=0), lower, nn.MaxPool2d(3, 2)))
    layers += [_inception_c(192 * f if index else 184 * f, f) for index in range(depths[1])]
    first = nn.Sequential(conv_norm(192 * f, 48 * f, 1), conv_norm(48 * f, 80 * f, 3, 2, padding=0))
    long = _chain(192 * f, (48 * f, 1), (48 * f, (1, 7)), (48 * f, (7, 1)))
    second = nn.Sequential(long, conv_norm(48 * f, 48 * f, 3, 2, padding=0))
    layers.append(Parallel(first, second, nn.MaxPool2d(3, 2)))
    layers += [_inception_e(256 * f if index else 320 * f, f) for index in range(depths[2])]
    return nn.Sequential(*layers, classifier(256 * f))


def regnet(stem: int = 16, widths: tuple[int, ...] = (24, 56, 112, 224), depths: tuple[int, ...] = (1, 2, 3, 1)) -> Any:
    """Build RegNetY (Radosavovic et al., Designing Network Design Spaces, 2020) of four stages."""
    layers, inner = [conv_norm(3, stem, 3, 2)], stem
    for outer, depth in zip(widths, depths, strict=True):
        for index in range(depth):
            layers.append(bottleneck(inner, outer, outer, 1 if index else 2, outer // 8, max(1, inner // 4)))
            inner = outer
    return nn.Sequential(*layers, classifier(inner))


class ConvNeXtBlock(Module):
    """A depthwise convolution of 7x7, a normalization, two linear layers and a scale for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.rand(width) + 0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(nn.functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext(width: int = 32, depths: tuple[int, ...] = (1, 1, 3, 1)) -> Any:
    """Build ConvNeXt (Liu et al., A ConvNet for the 2020s, 2022)."""
    layers: list[Any] = [nn.Conv2d(3, width, 4, 4), LayerNorm2d(width)]
    for stage, depth in enumerate(depths):
        if stage:
            layers += [LayerNorm2d(width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [ConvNeXtBlock(width) for _ in range(depth)]
    head = (nn.AdaptiveAvgPool2d(1), LayerNorm2d(width), nn.Flatten(), nn.Linear(width, 10))
    return nn.Sequential(*layers, *head)


class Ghost(Module):
    """A convolution for half of the channels, and a depthwise one that makes the other half from them."""

    def __init__(self, inner: int, outer: int, activation: Any = nn.ReLU) -> None:
        super().__init__()
        self.outer, half = outer, (outer + 1) // 2
        self.primary = conv_norm(inner, half, 1, activation=activation)
        self.cheap = conv_norm(half, half, 3, groups=half, activation=activation)

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary(x)
        return torch.cat([first, self.cheap(first)], 1)[:, : self.outer]


def _ghost_bottleneck(inner: int, width: int, outer: int, kernel: int, stride: int, gate: bool) -> Any:
    middle = [conv_norm(width, width, kernel, 2, width, None)] if stride == 2 else []
    middle += [_hard_gate(width // 4, width)] if gate else []
    body = nn.Sequential(Ghost(inner, width), *middle, Ghost(width, outer, None))
    if stride == 1 and inner == outer:
        return Residual(body)
    depthwise = conv_norm(inner, inner, kernel, stride, inner, None)
    return Residual(body, nn.Sequential(depthwise, conv_norm(inner, outer, 1, activation=None)))


GHOSTS = (
    (16, 16, 16, 3, 1, False), (16, 48, 24, 3, 2, False), (24, 72, 24, 3, 1, False), (24, 72, 40, 5, 2, True),
    (40, 120, 40, 5, 1, True), (40, 241, 80, 3, 2, False), (80, 184, 80, 3, 1, True), (80, 320, 112, 5, 2, True),
)  # fmt: skip
"""Blocks of a short GhostNet: widths before, within and after, kernel, stride, and whether there are gates."""


def ghostnet(
    blocks: tuple[tuple[int, int, int, int, int, bool], ...] = GHOSTS, last: int = 240, head: int = 320
) -> Any:
    """Build GhostNet (Han et al., More Features from Cheap Operations, 2020)."""
    layers = [conv_norm(3, 16, 3, 2), *(_ghost_bottleneck(*block) for block in blocks)]
    layers.append(conv_norm(blocks[-1][2], last, 1))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Conv2d(last, head, 1), nn.ReLU(), nn.Flatten(), nn.Linear(head, 10)
    )


def mnasnet(
    widths: tuple[int, ...] = (16, 8, 16, 24, 40, 48, 96, 160, 640), depths: tuple[int, ...] = (3, 3, 3, 2, 2, 1)
) -> Any:
    """Build MnasNet (Tan et al., Platform-Aware Neural Architecture Search, 2019)."""
    stem, inner, *outers, head = widths
    layers = [conv_norm(3, stem, 3, 2), conv_norm(stem, stem, 3, groups=stem)]
    layers.append(conv_norm(stem, inner, 1, activation=None))
    kinds = ((3, 2, 3), (3, 2, 5), (6, 2, 5), (6, 1, 3), (6, 2, 5), (6, 1, 3))
    for outer, depth, (ratio, stride, kernel) in zip(outers, depths, kinds, strict=True):
        for index in range(depth):
            layers.append(inverted_residual(inner, outer, ratio, kernel, 1 if index else stride, nn.ReLU))
            inner = outer
    return nn.Sequential(*layers, conv_norm(inner, head, 1), classifier(head))


class Fusion(Module):
    """Exchange between branches of HRNet: every branch is the sum of all, resized to its dims."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        rows = ([self._path(widths, i, j) for j in range(len(widths))] for i in range(len(widths)))
        self.paths = nn.ModuleList(nn.ModuleList(row) for row in rows)

    @staticmethod
    def _path(widths: list[int], target: int, source: int) -> Any:
        if target == source:
            return nn.Identity()
        if target < source:
            resize = nn.Upsample(scale_factor=2.0 ** (source - target), mode="nearest")
            return nn.Sequential(conv_norm(widths[source], widths[target], 1, activation=None), resize)
        steps = range(source, target - 1)
        down = [conv_norm(widths[source], widths[source], 3, 2) for _ in steps]
        return nn.Sequential(*down, conv_norm(widths[source], widths[target], 3, 2, activation=None))

    def forward(self, branches: list[Tensor]) -> list[Tensor]:
        results = []
        for row in self.paths:
            total = row[0](branches[0])
            for path, branch in zip(list(row)[1:], branches[1:], strict=True):
                total = total + path(branch)
            results.append(torch.relu(total))
        return results


class HRNet(Module):
    """HRNet (Wang et al., Deep High-Resolution Representation Learning, 2019): branches of three resolutions."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.stem = nn.Sequential(conv_norm(3, 32, 3, 2), bottleneck(32, 16, 64))
        entries = (conv_norm(64, width), conv_norm(64, 2 * width, 3, 2), conv_norm(2 * width, 4 * width, 3, 2))
        self.entries = nn.ModuleList(entries)
        self.blocks = nn.ModuleList(nn.ModuleList(basic_block(w, w) for w in widths[:n]) for n in (2, 3, 3))
        self.fusions = nn.ModuleList(Fusion(widths[:n]) for n in (2, 3, 3))
        self.head = nn.Sequential(conv_norm(sum(widths), 64, 1), classifier(64))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        branches = [self.entries[0](x), self.entries[1](x)]
        for blocks, fusion in zip(self.blocks, self.fusions, strict=True):
            if len(blocks) > len(branches):
                branches.append(self.entries[2](branches[-1]))
            branches = fusion([block(branch) for block, branch in zip(blocks, branches, strict=True)])
        size = branches[0].shape[2:]
        resized = [nn.functional.interpolate(b, size=size, mode="bilinear") for b in branches[1:]]
        return self.head(torch.cat([branches[0], *resized], 1))


def vgg(width: int = 32, head: int = 512) -> Any:
    """Build VGG-11 (Simonyan and Zisserman, Very Deep Convolutional Networks, 2015)."""
    layers: list[Any] = []
    inner = 3
    for ratio, depth in ((1, 1), (2, 1), (4, 2), (8, 2), (8, 2)):
        outer = ratio * width
        for _ in range(depth):
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU()]
            inner = outer
        layers.append(nn.MaxPool2d(2, 2))
    dense = (nn.Linear(4 * inner, head), nn.ReLU(), nn.Dropout(), nn.Linear(head, head), nn.ReLU(), nn.Linear(head, 10))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), *dense)
