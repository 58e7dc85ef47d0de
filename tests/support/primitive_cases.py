"""Random problems for every kind of primitive but the recurrent ones: `draw(kind, seed)`.

They cover zero-size tensors, 1 x 1 images, channels that are no multiple of a block, groups, dilation, strided views,
blocked and channels-last sources, 8-bit and 16-bit types, and post-operations.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.primitives import attributes as a
from tests.support.primitive_runs import Case, assert_close, run

__all__ = ["DRAWERS", "Case", "assert_close", "draw", "run"]

Dims = tuple[int, ...]
Rng = np.random.Generator

CHANNELS = (1, 2, 3, 5, 8, 15, 16, 17, 24, 32, 33)
"""Numbers of channels: most are no multiple of a block."""

DRAWERS: dict[str, Callable[[Rng, int], Case]] = {}
"""The function of each kind that draws a case from a generator and a seed."""


def _drawer(draw: Callable[[Rng, int], Case]) -> Callable[[Rng, int], Case]:
    DRAWERS[draw.__name__.lstrip("_")] = draw
    return draw


def draw(kind: str, seed: int) -> Case:
    """The case of this kind and seed."""
    case = DRAWERS[kind](np.random.default_rng([seed, *kind.encode()]), seed)
    return replace(case, kind=kind, seed=seed)


def one_of(rng: Rng, choices: Any) -> Any:
    """One of the choices."""
    return choices[int(rng.integers(len(choices)))]


def batch_of(rng: Rng) -> int:
    """Return a number of images, sometimes 0."""
    return int(one_of(rng, (0, 1, 1, 2, 2, 3, 3)))


def shape_of(rng: Rng, *, least: int = 1, spatial: tuple[int, ...] = (1, 2, 3)) -> Dims:
    """The dims of images: batch, channels, and one to three spatial axes of `least` or more."""
    extents = tuple(int(rng.integers(least, least + 7)) for _ in range(one_of(rng, spatial)))
    if rng.random() < 0.1 and least == 1:
        extents = (1,) * len(extents)
    return (batch_of(rng), int(one_of(rng, CHANNELS)), *extents)


def type_of(rng: Rng) -> str:
    """A type of floats, mostly f32."""
    return str(one_of(rng, ("f32", "f32", "f32", "bf16")))


def source_desc(rng: Rng, dims: Dims, data_type: str) -> MemoryDesc:
    """Return the descriptor of a source: row-major, channels last, blocked, or a view with gaps."""
    way = int(rng.integers(5))
    letters = "abcdefghijkl"[: len(dims)]
    if way == 0 or len(dims) < 3:
        return MemoryDesc(dims, data_type, letters)
    if way == 1:
        return MemoryDesc(dims, data_type, letters[0] + letters[2:] + "b")
    if way in (2, 3):
        return MemoryDesc(dims, data_type, f"a{letters[1:].replace('b', 'B')}{8 * (way - 1)}b")
    wider = MemoryDesc((*dims[:-1], dims[-1] + 2), data_type, letters)
    return MemoryDesc(dims, data_type, strides=wider.strides)


def any_or(rng: Rng, dims: Dims, data_type: str) -> MemoryDesc:
    """Mostly `any`, sometimes a plain format or channels last."""
    letters = "abcdefghijkl"[: len(dims)]
    format = one_of(rng, ("any", "any", "any", letters, letters[0] + letters[2:] + "b" if len(dims) > 2 else letters))
    return MemoryDesc(dims, data_type, format)


def post_ops_of(rng: Rng, dims: Dims) -> a.PrimitiveAttributes | None:
    """Return attributes with post-operations, or None in half of the cases."""
    row = MemoryDesc((1, dims[1], *(1,) * (len(dims) - 2)), "f32")
    ways: tuple[tuple[a.PostOp, ...], ...] = (
        (a.EltwisePostOp("relu"),),
        (a.EltwisePostOp("linear", 0.5, 0.25),),
        (a.SumPostOp(),),
        (a.SumPostOp(0.5), a.EltwisePostOp("relu", 0.1)),
        (a.BinaryPostOp("add", row),),
    )
    return a.PrimitiveAttributes(post_ops=one_of(rng, ways)) if rng.random() < 0.5 else None


def _window(rng: Rng, count: int) -> tuple[Dims, dict[str, Any], Dims]:
    """Return a kernel, the parameters of its window, and the least extents of an image."""
    kernel = tuple(int(rng.integers(1, 4)) for _ in range(count))
    dilations = tuple(int(k > 1 and rng.random() < 0.25) for k in kernel)
    extents = tuple((k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    padding = [tuple(int(rng.integers(0, extent)) for extent in extents) for _ in range(2)]
    numbers = {
        "strides": tuple(int(rng.integers(1, 3)) for _ in range(count)),
        "dilations": dilations,
        "padding_l": padding[0],
        "padding_r": padding[1],
    }
    least = tuple(max(1, e - low - high) for e, low, high in zip(extents, *padding, strict=True))
    return kernel, numbers, least


def _convolution_case(rng: Rng, seed: int, forward: Any, backward: tuple[Any, ...]) -> Case:
    count = int(one_of(rng, (1, 2, 2, 2, 3)))
    kernel, numbers, least = _window(rng, count)
    groups = int(one_of(rng, (1, 1, 1, 2, 4)))
    inputs, outputs = int(one_of(rng, CHANNELS)), int(one_of(rng, CHANNELS))
    if rng.random() < 0.15:
        groups, inputs, outputs = int(one_of(rng, CHANNELS)), 1, 1
    room = int(forward is p.Deconvolution) * sum(numbers["padding_l"] + numbers["padding_r"])
    spatial = tuple(n + room + int(rng.integers(0, 6)) for n in least)
    quantized = rng.random() < 0.15
    data_type = str(one_of(rng, ("u8", "s8"))) if quantized else type_of(rng)
    weights_type = "s8" if quantized else data_type
    dims = (batch_of(rng), groups * inputs, *spatial)
    weights = (*((groups,) if groups > 1 else ()), outputs, inputs, *kernel)
    descs = {
        "src": any_or(rng, dims, data_type),
        "weights": MemoryDesc(weights, weights_type, "any"),
    }
    if rng.random() < 0.5:
        descs["bias"] = MemoryDesc((groups * outputs,), "f32" if quantized else data_type, "any")
    is_training = not quantized and rng.random() < 0.7
    attributes = None if is_training else post_ops_of(rng, (dims[0], groups * outputs, *spatial))
    options = {
        **numbers,
        "prop_kind": "forward_training" if is_training else "forward_inference",
        "attributes": attributes,
    }
    return Case("", seed, forward, descs, options, backward if is_training else ())


@_drawer
def _convolution(rng: Rng, seed: int) -> Case:
    return _convolution_case(rng, seed, p.Convolution, (p.ConvolutionBackwardData, p.ConvolutionBackwardWeights))


@_drawer
def _deconvolution(rng: Rng, seed: int) -> Case:
    return _convolution_case(rng, seed, p.Deconvolution, (p.DeconvolutionBackwardData, p.DeconvolutionBackwardWeights))


@_drawer
def _inner_product(rng: Rng, seed: int) -> Case:
    dims = shape_of(rng, spatial=(0, 0, 1, 2, 3))
    outputs = int(one_of(rng, CHANNELS))
    quantized = rng.random() < 0.15
    data_type = str(one_of(rng, ("u8", "s8"))) if quantized else type_of(rng)
    descs = {
        "src": any_or(rng, dims, data_type),
        "weights": MemoryDesc((outputs, *dims[1:]), "s8" if quantized else data_type, "any"),
    }
    if rng.random() < 0.5:
        descs["bias"] = MemoryDesc((outputs,), "f32" if quantized else data_type, "any")
    is_training = not quantized and rng.random() < 0.7
    attributes = None if is_training else post_ops_of(rng, (dims[0], outputs))
    options = {"prop_kind": "forward_training" if is_training else "forward_inference", "attributes": attributes}
    backward = (p.InnerProductBackwardData, p.InnerProductBackwardWeights) if is_training else ()
    return Case("", seed, p.InnerProduct, descs, options, backward)


@_drawer
def _matmul(rng: Rng, seed: int) -> Case:
    rows, inner, columns = (int(one_of(rng, (1, 2, 3, 7, 16, 17, 33))) for _ in range(3))
    batch = tuple(int(rng.integers(1, 4)) for _ in range(one_of(rng, (0, 0, 1, 2))))
    repeated = tuple(1 if rng.random() < 0.5 else n for n in batch)
    quantized = rng.random() < 0.15
    data_type = str(one_of(rng, ("u8", "s8"))) if quantized else type_of(rng)
    letters = "abcdef"[: len(batch) + 2]
    transposed = letters[:-2] + letters[-1] + letters[-2]
    descs = {
        "src": MemoryDesc((*batch, rows, inner), data_type, one_of(rng, ("any", letters, transposed))),
        "weights": MemoryDesc(
            (*repeated, inner, columns), "s8" if quantized else data_type, one_of(rng, ("any", letters, transposed))
        ),
    }
    dims = (*batch, rows, columns)
    if rng.random() < 0.4:
        descs["bias"] = MemoryDesc((*(1,) * (len(dims) - 1), columns), "f32", letters)
    return Case("", seed, p.MatMul, descs, {"attributes": post_ops_of(rng, dims) if len(dims) == 2 else None})


@_drawer
def _pooling(rng: Rng, seed: int) -> Case:
    count = int(one_of(rng, (1, 2, 2, 3)))
    kernel, numbers, least = _window(rng, count)
    spatial = tuple(n + int(rng.integers(0, 6)) for n in least)
    algorithm = str(one_of(rng, ("max", "avg_include_padding", "avg_exclude_padding")))
    if algorithm == "avg_exclude_padding":
        spatial = tuple(max(n, d + 1) for n, d in zip(spatial, numbers["dilations"], strict=True))
    dims = (batch_of(rng), int(one_of(rng, CHANNELS)), *spatial)
    options = {"algorithm": algorithm, "kernel": kernel, **numbers, "prop_kind": "forward_training"}
    descs = {"src": source_desc(rng, dims, type_of(rng))}
    return Case("", seed, p.Pooling, descs, options, (p.PoolingBackward,))


def _flags_of(rng: Rng, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if rng.random() < 0.5)


_SCALED = ("use_global_stats", "use_scale", "use_shift")


@_drawer
def _batch_normalization(rng: Rng, seed: int) -> Case:
    dims = shape_of(rng, least=3, spatial=(0, 1, 2, 3))
    flags = _flags_of(rng, _SCALED)
    if flags == ("use_global_stats",):
        # Only here the sign of what relu is given is exact, so that no gradient hangs on a rounding.
        flags = (*flags, "fuse_norm_relu")
    options = {"epsilon": 1e-3, "flags": flags, "prop_kind": "forward_training"}
    descs = {"src": source_desc(rng, (dims[0] + 5 * (len(dims) == 2), *dims[1:]), "f32")}
    return Case("", seed, p.BatchNormalization, descs, options, (p.BatchNormalizationBackward,))


@_drawer
def _layer_normalization(rng: Rng, seed: int) -> Case:
    dims = tuple(int(rng.integers(2, 20)) for _ in range(one_of(rng, (2, 3, 4))))
    options = {"epsilon": 1e-3, "flags": _flags_of(rng, _SCALED), "prop_kind": "forward_training"}
    descs = {"src": MemoryDesc(dims, "f32", "abcd"[: len(dims)])}
    return Case("", seed, p.LayerNormalization, descs, options, (p.LayerNormalizationBackward,))


@_drawer
def _group_normalization(rng: Rng, seed: int) -> Case:
    groups, dims = int(rng.integers(1, 5)), shape_of(rng, least=2)
    options = {"groups": groups, "epsilon": 1e-3, "flags": _flags_of(rng, _SCALED), "prop_kind": "forward_training"}
    descs = {"src": source_desc(rng, (max(dims[0], 1), groups * dims[1], *dims[2:]), "f32")}
    return Case("", seed, p.GroupNormalization, descs, options, (p.GroupNormalizationBackward,))


@_drawer
def _lrn(rng: Rng, seed: int) -> Case:
    options = {
        "algorithm": str(one_of(rng, ("across_channels", "across_channels", "within_channel"))),
        "local_size": int(one_of(rng, (1, 3, 5))),
        "alpha": 0.7,
        "beta": 0.75,
        "k": float(one_of(rng, (1.0, 2.0))),
        "prop_kind": "forward_training",
    }
    descs = {"src": source_desc(rng, shape_of(rng, spatial=(2,)), "f32")}
    return Case("", seed, p.LRN, descs, options, (p.LRNBackward,))


_POSITIVE = ("sqrt", "log", "pow", "sqrt_use_dst_for_bwd")


@_drawer
def _eltwise(rng: Rng, seed: int) -> Case:
    algorithm = str(p.algorithms.ALL_ELTWISE[seed % len(p.algorithms.ALL_ELTWISE)])
    numbers = (0.25, 0.75) if algorithm != "linear" else (1.5, -0.5)
    backward = () if algorithm == "round" else (p.EltwiseBackward,)
    options = {"algorithm": algorithm, "alpha": numbers[0], "beta": numbers[1], "prop_kind": "forward_training"}
    descs = {"src": source_desc(rng, shape_of(rng), "f32")}
    positive = frozenset({"src"} if algorithm in _POSITIVE else set())
    return Case("", seed, p.Eltwise, descs, options, backward, positive)


@_drawer
def _shuffle(rng: Rng, seed: int) -> Case:
    dims = shape_of(rng)
    axis = int(rng.integers(not dims[0], len(dims)))
    sizes = [n for n in range(1, dims[axis] + 1) if dims[axis] % n == 0]
    options = {"axis": axis, "group_size": int(one_of(rng, sizes)), "prop_kind": "forward_training"}
    descs = {"src": source_desc(rng, dims, str(one_of(rng, ("f32", "bf16"))))}
    return Case("", seed, p.Shuffle, descs, options, (p.ShuffleBackward,))


@_drawer
def _softmax(rng: Rng, seed: int) -> Case:
    dims = shape_of(rng, spatial=(0, 1, 2, 3))
    options = {
        "axis": int(rng.integers(0, len(dims))),
        "algorithm": str(one_of(rng, ("accurate", "log"))),
        "prop_kind": "forward_training",
    }
    return Case("", seed, p.Softmax, {"src": source_desc(rng, dims, "f32")}, options, (p.SoftmaxBackward,))


@_drawer
def _prelu(rng: Rng, seed: int) -> Case:
    dims = shape_of(rng)
    weights = tuple(1 if rng.random() < 0.5 else n for n in dims)
    descs = {"src": source_desc(rng, dims, "f32"), "weights": MemoryDesc(weights, "f32", "any")}
    return Case("", seed, p.PReLU, descs, {"prop_kind": "forward_training"}, (p.PReLUBackward,))


@_drawer
def _resampling(rng: Rng, seed: int) -> Case:
    dims = shape_of(rng)
    descs = {"src": source_desc(rng, dims, "f32")}
    descs["dst"] = MemoryDesc((*dims[:2], *(int(rng.integers(1, 12)) for _ in dims[2:])), "f32", "any")
    options = {"algorithm": str(one_of(rng, ("nearest", "linear"))), "prop_kind": "forward_training"}
    return Case("", seed, p.Resampling, descs, options, (p.ResamplingBackward,))


@_drawer
def _reduction(rng: Rng, seed: int) -> Case:
    dims = tuple(max(n, 2) for n in shape_of(rng))
    axis = int(rng.integers(0, len(dims)))
    kept = tuple(1 if i == axis or rng.random() < 0.3 else n for i, n in enumerate(dims))
    algorithm = str(p.algorithms.REDUCTION[seed % len(p.algorithms.REDUCTION)])
    descs = {"src": source_desc(rng, dims, "f32"), "dst": MemoryDesc(kept, "f32", "any")}
    options = {"algorithm": algorithm, "p": float(one_of(rng, (1.0, 2.0, 3.0))), "eps": 0.01}
    return Case("", seed, p.Reduction, descs, options, (), frozenset({"src"} if algorithm == "mul" else set()))


@_drawer
def _concat(rng: Rng, seed: int) -> Case:
    dims = shape_of(rng)
    axis = int(rng.integers(0, len(dims)))
    data_type = type_of(rng)
    descs = {}
    for i in range(int(rng.integers(2, 5))):
        extent = int(rng.integers(1, 20))
        descs[f"src_{i}"] = source_desc(rng, (*dims[:axis], extent, *dims[axis + 1 :]), data_type)
    return Case("", seed, p.Concat, descs, {"axis": axis})


@_drawer
def _sum(rng: Rng, seed: int) -> Case:
    dims, data_type = shape_of(rng), type_of(rng)
    descs = {f"src_{i}": source_desc(rng, dims, data_type) for i in range(int(rng.integers(2, 5)))}
    return Case("", seed, p.Sum, descs, {"scales": tuple(rng.permutation(5)[: len(descs)] / 2 + 0.5)})


@_drawer
def _binary(rng: Rng, seed: int) -> Case:
    algorithm = str(p.algorithms.BINARY[seed % len(p.algorithms.BINARY)])
    dims = shape_of(rng)
    repeated = tuple(1 if rng.random() < 0.3 else n for n in dims)
    descs = {"src_0": source_desc(rng, dims, "f32"), "src_1": source_desc(rng, repeated, "f32")}
    if algorithm == "select":
        descs = {"src_0": source_desc(rng, dims, "f32"), "src_1": source_desc(rng, dims, "f32")}
        descs["src_2"] = MemoryDesc(dims, "s8", "abcde"[: len(dims)])
    return Case("", seed, p.Binary, descs, {"algorithm": algorithm}, (), frozenset({"src_1"}))
