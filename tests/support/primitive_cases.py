"""Random problems for every kind of primitive but the recurrent ones: `draw(kind, seed)`.

They cover zero-size tensors, 1 x 1 images, channels that are no multiple of a block, groups, dilation, negative
padding, strided views, blocked and channels-last sources, 8-bit and 16-bit types, and post-operations.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.primitives import algorithms
from inlay.primitives import attributes as a
from inlay.primitives.rules import WEIGHTED
from tests.support.primitive_runs import Case

Dims = tuple[int, ...]
Drawn = tuple[Mapping[str, MemoryDesc], Mapping[str, Any]]

LETTERS = "abcdefghijkl"
CHANNELS = (1, 2, 3, 5, 8, 15, 16, 17, 24, 32, 33)
"""Numbers of channels: most are no multiple of a block."""
TRAINING: dict[str, Any] = {"prop_kind": "forward_training"}


class Draw:
    """The choices of one problem, and the data type of its source."""

    def __init__(self, kind: str, seed: int, data_type: str | None) -> None:
        self.seed, self.rng = seed, np.random.default_rng([seed, *kind.encode()])
        self.is_quantized = kind in WEIGHTED and data_type is None and self.rng.random() < 0.15
        self.data_type = self.one_of("u8", "s8") if self.is_quantized else data_type or self.one_of(*_FLOATS)

    def one_of(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def numbers(self, low: int, high: int, count: int) -> Dims:
        """Return numbers from `low` to `high` - 1."""
        return tuple(map(int, self.rng.integers(low, high, count)))

    def repeated(self, dims: Dims, share: float) -> Dims:
        """Return the dims with this share of them 1."""
        return tuple(1 if self.rng.random() < share else n for n in dims)

    def batch(self) -> int:
        """Return a number of images, sometimes 0."""
        return int(self.one_of(0, 1, 1, 2, 2, 3, 3))

    def image(self, *, least: int = 1, spatial: Dims = (1, 2, 3)) -> Dims:
        """Return the dims of images: batch, channels, and spatial axes of `least` or more."""
        extents = self.numbers(least, least + 7, self.one_of(*spatial))
        if least == 1 and self.rng.random() < 0.1:
            extents = (1,) * len(extents)
        return (self.batch(), self.one_of(*CHANNELS), *extents)

    def source(self, dims: Dims) -> MemoryDesc:
        """Return the descriptor of a source: row-major, channels last, blocked, or a view with gaps."""
        letters = LETTERS[: len(dims)]
        blocked = [f"a{letters[1:].replace('b', 'B')}{block}b" for block in (8, 16)]
        tag = self.one_of(letters, _channels_last(dims), *blocked, None)
        if tag is not None or len(dims) < 3:
            return MemoryDesc(dims, self.data_type, tag if len(dims) > 2 else letters)
        return MemoryDesc((*dims[:-1], dims[-1] + 2), self.data_type).submemory(dims, (0,) * len(dims))

    def free(self, dims: Dims) -> MemoryDesc:
        """Return mostly `any`, sometimes a plain format or channels last."""
        format = self.one_of("any", "any", "any", LETTERS[: len(dims)], _channels_last(dims))
        return MemoryDesc(dims, self.data_type, format)

    def weights(self, dims: Dims, format: str = "any") -> MemoryDesc:
        """Return the descriptor of weights."""
        return MemoryDesc(dims, "s8" if self.is_quantized else self.data_type, format)

    def window(self, count: int, least_padding: bool = False) -> tuple[Dims, dict[str, Dims], Dims]:
        """Return a kernel, the parameters of its window, and the least extents of an image."""
        kernel, strides = self.numbers(1, 4, count), self.numbers(1, 4, count)
        dilations = tuple(int(k > 1 and self.rng.random() < 0.25) for k in kernel)
        extents = tuple((k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True))
        left = tuple(int(self.rng.integers(extent)) for extent in extents)
        negative = self.rng.random() < 0.2 and not least_padding
        lowest = [1 - stride if negative else 0 for stride in strides]
        right = tuple(int(self.rng.integers(low, extent)) for low, extent in zip(lowest, extents, strict=True))
        least = tuple(max(1, e - low - high) for e, low, high in zip(extents, left, right, strict=True))
        return kernel, {"strides": strides, "dilations": dilations, "padding_l": left, "padding_r": right}, least

    def flags(self) -> tuple[str, ...]:
        """Return flags of a normalization."""
        return tuple(name for name in ("use_global_stats", "use_scale", "use_shift") if self.rng.random() < 0.5)

    def post_ops(self, dims: Dims) -> a.PrimitiveAttributes | None:
        """Return attributes with post-operations, or None in half of the cases."""
        row = MemoryDesc((1, dims[1], *(1,) * (len(dims) - 2)), "f32")
        chain = self.one_of(
            (a.EltwisePostOp("relu"),),
            (a.EltwisePostOp("linear", 0.5, 0.25),),
            (a.SumPostOp(),),
            (a.SumPostOp(0.5), a.EltwisePostOp("relu", 0.1)),
            (a.BinaryPostOp("add", row),),
        )
        return a.PrimitiveAttributes(post_ops=chain) if self.rng.random() < 0.5 else None

    def weighted(self, src: Dims, weights: Dims, dst: Dims, **options: Any) -> Drawn:
        """Return a product with weights: training, or inference with post-operations."""
        descs = {"src": self.free(src), "weights": self.weights(weights)}
        if self.rng.random() < 0.5:
            descs["bias"] = MemoryDesc(dst[1:2], "f32" if self.is_quantized else self.data_type, "any")
        if not self.is_quantized and self.rng.random() < 0.7:
            return descs, options | TRAINING
        return descs, {**options, "prop_kind": "forward_inference", "attributes": self.post_ops(dst)}

    def convolution(self, is_transposed: bool = False) -> Drawn:
        """Return a convolution or deconvolution, sometimes depthwise."""
        kernel, window, least = self.window(self.one_of(1, 2, 2, 2, 3))
        groups, inputs, outputs = self.one_of(1, 1, 1, 2, 4), self.one_of(*CHANNELS), self.one_of(*CHANNELS)
        if self.rng.random() < 0.15:
            groups, inputs, outputs = self.one_of(*CHANNELS), 1, 1
        room = is_transposed * sum(map(max, window["padding_l"] + window["padding_r"], [0] * 6))
        spatial = tuple(n + room + extra for n, extra in zip(least, self.numbers(0, 6, len(least)), strict=True))
        batch, leading = self.batch(), (groups,) if groups > 1 else ()
        src, dst = (batch, groups * inputs, *spatial), (batch, groups * outputs, *spatial)
        return self.weighted(src, (*leading, outputs, inputs, *kernel), dst, **window)


_FLOATS = ("f32", "f32", "bf16")


def _channels_last(dims: Dims) -> str:
    letters = LETTERS[: len(dims)]
    return letters[0] + letters[2:] + "b" if len(dims) > 2 else letters


def _inner_product(draw: Draw) -> Drawn:
    dims, outputs = draw.image(spatial=(0, 0, 1, 2, 3)), draw.one_of(*CHANNELS)
    return draw.weighted(dims, (outputs, *dims[1:]), (dims[0], outputs))


def _matmul(draw: Draw) -> Drawn:
    rows, inner, columns = (draw.one_of(1, 2, 3, 7, 16, 17, 33) for _ in range(3))
    batch = draw.numbers(1, 4, draw.one_of(0, 0, 1, 2))
    dims, letters = (*batch, rows, columns), LETTERS[: len(batch) + 2]
    formats = ("any", letters, letters[:-2] + letters[-1] + letters[-2])
    descs = {
        "src": MemoryDesc((*batch, rows, inner), draw.data_type, draw.one_of(*formats)),
        "weights": draw.weights((*draw.repeated(batch, 0.5), inner, columns), draw.one_of(*formats)),
    }
    if draw.rng.random() < 0.4:
        descs["bias"] = MemoryDesc((*(1,) * (len(dims) - 1), columns), "f32")
    return descs, {"attributes": draw.post_ops(dims) if len(dims) == 2 else None}


def _pooling(draw: Draw) -> Drawn:
    kernel, window, least = draw.window(draw.one_of(1, 2, 2, 3), least_padding=True)
    spatial = tuple(n + extra for n, extra in zip(least, draw.numbers(0, 6, len(least)), strict=True))
    algorithm = draw.one_of(*algorithms.POOLING)
    if algorithm == "avg_exclude_padding":
        spatial = tuple(max(n, d + 1) for n, d in zip(spatial, window["dilations"], strict=True))
    dims = (draw.batch(), draw.one_of(*CHANNELS), *spatial)
    return {"src": draw.source(dims)}, {"algorithm": algorithm, "kernel": kernel, **window, **TRAINING}


def _batch_normalization(draw: Draw) -> Drawn:
    dims, flags = draw.image(least=3, spatial=(0, 1, 2, 3)), draw.flags()
    if flags == ("use_global_stats",):
        # Only here the sign of what relu is given is exact, so that no gradient hangs on a rounding.
        flags = (*flags, "fuse_norm_relu")
    src = draw.source((dims[0] + 5 * (len(dims) == 2), *dims[1:]))
    return {"src": src}, {"epsilon": 1e-3, "flags": flags, **TRAINING}


def _layer_normalization(draw: Draw) -> Drawn:
    dims = draw.numbers(2, 20, draw.one_of(2, 3, 4))
    src = draw.one_of(MemoryDesc(dims, draw.data_type), draw.source(dims))
    return {"src": src}, {"epsilon": 1e-3, "flags": draw.flags(), **TRAINING}


def _group_normalization(draw: Draw) -> Drawn:
    groups, dims = draw.one_of(1, 2, 3, 4), draw.image(least=2)
    src = draw.source((max(dims[0], 1), groups * dims[1], *dims[2:]))
    return {"src": src}, {"groups": groups, "epsilon": 1e-3, "flags": draw.flags(), **TRAINING}


def _lrn(draw: Draw) -> Drawn:
    constants = {"alpha": 0.7, "beta": 0.75, "k": draw.one_of(1.0, 2.0)}
    sizes = {
        "algorithm": draw.one_of("across_channels", *algorithms.LRN),
        "local_size": draw.one_of(1, 2, 3, 3, 4, 5, 7),
    }
    return {"src": draw.source(draw.image(spatial=(2, 2, 3)))}, {**sizes, **constants, **TRAINING}


def _eltwise(draw: Draw) -> Drawn:
    algorithm = algorithms.ALL_ELTWISE[draw.seed % len(algorithms.ALL_ELTWISE)]
    alpha, beta = (0.25, 0.75) if algorithm != "linear" else (1.5, -0.5)
    prop_kind = "forward_inference" if algorithm == "round" else "forward_training"
    options = {"algorithm": algorithm, "alpha": alpha, "beta": beta, "prop_kind": prop_kind}
    draw.data_type = "f32" if algorithm == "round" else draw.data_type  # oneDNN rounds f32 only
    return {"src": draw.source(draw.image())}, options


def _shuffle(draw: Draw) -> Drawn:
    dims = draw.image()
    axis = int(draw.rng.integers(not dims[0], len(dims)))
    group_size = draw.one_of(*(n for n in range(1, dims[axis] + 1) if dims[axis] % n == 0))
    return {"src": draw.source(dims)}, {"axis": axis, "group_size": group_size, **TRAINING}


def _softmax(draw: Draw) -> Drawn:
    dims = draw.image(spatial=(0, 1, 2, 3))
    options = {"axis": draw.one_of(*range(len(dims))), "algorithm": draw.one_of(*algorithms.SOFTMAX)}
    return {"src": draw.source(dims)}, options | TRAINING


def _prelu(draw: Draw) -> Drawn:
    dims = draw.image()
    by_channel = (1, dims[1], *(1,) * (len(dims) - 2))
    weights = by_channel if draw.rng.random() < 0.7 else draw.repeated(dims, 0.5)
    return {"src": draw.source(dims), "weights": draw.weights(weights)}, TRAINING


def _resampling(draw: Draw) -> Drawn:
    dims = draw.image()
    dst = MemoryDesc((*dims[:2], *draw.numbers(1, 12, len(dims) - 2)), draw.data_type, "any")
    return {"src": draw.source(dims), "dst": dst}, {"algorithm": draw.one_of(*algorithms.RESAMPLING), **TRAINING}


def _reduction(draw: Draw) -> Drawn:
    dims = tuple(max(n, 2) for n in draw.image())
    axis, others = draw.one_of(*range(len(dims))), draw.repeated(dims, 0.3)
    dst = MemoryDesc((*others[:axis], 1, *others[axis + 1 :]), draw.data_type, "any")
    algorithm = algorithms.REDUCTION[draw.seed % len(algorithms.REDUCTION)]
    return {"src": draw.source(dims), "dst": dst}, {
        "algorithm": algorithm,
        "p": draw.one_of(1.0, 2.0, 3.0),
        "eps": 0.01,
    }


def _reorder(draw: Draw) -> Drawn:
    dims = draw.image()
    return {"src": draw.source(dims), "dst": draw.source(dims)}, {}


def _concat(draw: Draw) -> Drawn:
    dims = draw.image()
    axis, extents = draw.one_of(*range(len(dims))), draw.numbers(1, 20, draw.one_of(1, 2, 3, 4))
    parts = [draw.source((*dims[:axis], extent, *dims[axis + 1 :])) for extent in extents]
    return {f"src_{i}": part for i, part in enumerate(parts)}, {"axis": axis}


def _sum(draw: Draw) -> Drawn:
    dims, count = draw.image(), draw.one_of(1, 2, 3, 4, 11)
    scales = tuple(draw.rng.permutation(count) / 2 + 0.5)
    return {f"src_{i}": draw.source(dims) for i in range(count)}, {"scales": scales}


def _binary(draw: Draw) -> Drawn:
    dims = draw.image(spatial=(0, 1, 2, 3))
    algorithm = algorithms.BINARY[draw.seed % len(algorithms.BINARY)]
    if algorithm == "select":
        condition = MemoryDesc(dims, "s8")
        return {"src_0": draw.source(dims), "src_1": draw.source(dims), "src_2": condition}, {"algorithm": algorithm}
    descs = {"src_0": draw.source(dims), "src_1": draw.source(draw.repeated(dims, 0.3))}
    return descs, {"algorithm": algorithm}


DRAWERS: Mapping[str, Callable[[Draw], Drawn]] = {
    "convolution": Draw.convolution,
    "deconvolution": lambda draw: draw.convolution(is_transposed=True),
    "inner_product": _inner_product,
    "matmul": _matmul,
    "pooling": _pooling,
    "batch_normalization": _batch_normalization,
    "layer_normalization": _layer_normalization,
    "group_normalization": _group_normalization,
    "lrn": _lrn,
    "eltwise": _eltwise,
    "shuffle": _shuffle,
    "softmax": _softmax,
    "prelu": _prelu,
    "resampling": _resampling,
    "reduction": _reduction,
    "reorder": _reorder,
    "concat": _concat,
    "sum": _sum,
    "binary": _binary,
}
"""The function of each kind that draws descriptors and other arguments of its class."""


def draw(kind: str, seed: int, data_type: str | None = None) -> Case:
    """Return the case of this kind and seed; its sources have the data type, or one that is drawn."""
    descs, options = DRAWERS[kind](Draw(kind, seed, data_type))
    return Case(kind, seed, descs, options)
