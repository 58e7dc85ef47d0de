"""Analytic models of oneDNN's kernels: for each kind and instruction set, which formats have optimized code, how fast.

The models distinguish formats of activations by the position of channels: first, last, or in blocks.

>>> images = [MemoryDesc((2, 32, 4, 4), "f32", tag) for tag in ("nchw", "nhwc", "nChw16c", "cdba")]
>>> [(channel_layout(image).kind, channel_layout(image).block) for image in images]
[('ncx', 1), ('nxc', 1), ('blocked', 16), ('other', 1)]

The table holds what oneDNN does with the shapes of networks in f32 under SSE41, AVX2 and AVX512_CORE. Convolutions are
optimized for channels last and for blocks as wide as a register, with the same layout on both sides. Kernels that work
along an axis need that axis innermost. Kernels that broadcast over channels need them unblocked. All else is computed
by scalar code, up to thousands of times slower: a cliff. Convolutions and poolings of 8-bit integers are optimized for
channels last alone.

>>> image = MemoryDesc((8, 64, 56, 56), "f32", "nhwc")
>>> layer = Operation("softmax", "forward_inference", {"src": image, "dst": image}, {"axis": 3})
>>> select_kernel_model(layer, "AVX2").impl
'ref'
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Literal, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.graph.costs.instruction_sets import isa_level
from inlay.graph.costs.machine import Machine, elements, multiplications, taps, workload
from inlay.layout.axis import LETTERS
from inlay.primitives.engine import Operation
from inlay.primitives.rules import RECURRENT, WEIGHTED

ChannelOrder: TypeAlias = Literal["ncx", "nxc", "blocked", "other"]
_BLOCKED = re.compile(r"aBc?d?e?(\d+)b")


@dataclass(frozen=True, slots=True)
class ChannelLayout:
    """The position of channels in a format."""

    kind: ChannelOrder
    """Channels before the spatial axes (ncx), after them (nxc), in blocks after them (blocked), or any other order."""
    block: int = 1
    """Channels in a block; 1 without blocks."""


def channel_layout(desc: MemoryDesc) -> ChannelLayout:
    """Return the channel layout of a descriptor that is not `any`.

    A matrix counts as channels last, since it has no spatial axes.
    """
    return _channel_layout(desc, desc.exact_key)


@lru_cache(maxsize=8192)
def _channel_layout(desc: MemoryDesc, _: Hashable) -> ChannelLayout:
    """Return the layout of the channels of a descriptor."""
    tag = desc.tag or ""
    letters = LETTERS[: desc.ndims]
    if found := _BLOCKED.fullmatch(tag):
        return ChannelLayout("blocked", int(found[1]))
    if tag == "a" + letters[2:] + "b":
        return ChannelLayout("nxc")
    if tag == letters:
        return ChannelLayout("ncx")
    return ChannelLayout("other")


def has_same_channel_layout(one: MemoryDesc, other: MemoryDesc) -> bool:
    """Return whether two tensors have the same channel layout.

    Channels first and channels last are the same for a tensor that has one channel or one pixel.

    >>> pooled, image = MemoryDesc((2, 8, 1, 1), "f32", "nhwc"), MemoryDesc((2, 8, 4, 4), "f32", "nchw")
    >>> has_same_channel_layout(pooled, image)
    True
    """
    first, second = channel_layout(one), channel_layout(other)
    is_first_and_last = {first.kind, second.kind} == {"ncx", "nxc"}
    return first == second or (is_first_and_last and (_has_both_forms(one) or _has_both_forms(other)))


def _has_both_forms(desc: MemoryDesc) -> bool:
    """Return whether a tensor is channels first and channels last at once: one channel, or one pixel."""
    return desc.ndims > 1 and (desc.dims[1] == 1 or prod(desc.dims[2:]) == 1)


def tag_of(form: ChannelLayout, ndims: int) -> str:
    """Return the tag of a channel layout for tensors of `ndims` axes.

    >>> tag_of(ChannelLayout("blocked", 8), 5), tag_of(ChannelLayout("nxc"), 4)
    ('aBcde8b', 'acdb')
    """
    letters = LETTERS[:ndims]
    if form.kind == "blocked":
        return f"aB{letters[2:]}{form.block}b"
    return "a" + letters[2:] + "b" if form.kind == "nxc" else letters


@lru_cache(maxsize=8192)
def inner_axes(desc: MemoryDesc) -> tuple[int, ...]:
    """Return the axes of more than one element from the innermost to the outermost; empty for blocked formats."""
    if desc.kind != "blocked" or desc.inner_blocks:
        return ()
    strides = desc.strides
    axes = [axis for axis, n in enumerate(desc.dims) if n > 1]
    return tuple(sorted(axes, key=lambda axis: (strides[axis], -axis)))


@dataclass(frozen=True, slots=True)
class KernelModel:
    """The speed of a sort of kernel code.

    Optimized code takes the longer of its arithmetic and its memory traffic. Scalar code takes a fixed time for each
    element.
    """

    impl: str
    """Sort of code: `jit`, `gemm`, `simple` or `ref`."""
    efficiency: float = 1.0
    """Share of the machine's peak that the arithmetic reaches."""
    traffic_factor: float = 1.2
    """Time of the memory traffic, as a multiple of the time at full bandwidth."""
    ns_per_element: float = 0.0
    """Nanoseconds of one thread for each element or product; 0 for optimized code."""


JIT = KernelModel("jit", 0.96)
OVERHEAD = 0.004
"""Milliseconds that a call and waking its threads take."""


def predict_ms(operation: Operation, model: KernelModel, machine: Machine) -> float:
    """Return the predicted run time of an operation in concrete formats, in milliseconds."""
    least = workload(operation)
    if model.ns_per_element:
        return OVERHEAD + model.ns_per_element * _scalar_steps(operation) / machine.threads / 1e6
    computing = machine.compute_ms(least.flops, arithmetic_type(operation)) / model.efficiency
    algorithm = algorithm_of(operation)
    intermediate = 0.0 if algorithm is None else algorithm.intermediate_bytes(operation) / machine.cache_bandwidth / 1e6
    return OVERHEAD + max(computing, machine.transfer_ms(least) * model.traffic_factor) + intermediate


def type_name(operation: Operation) -> str:
    """Return the data type of an operation's first source."""
    desc = next(iter(operation.descs.values()))
    return desc.data_type.name if desc.data_type is not None else "f32"


def arithmetic_type(operation: Operation) -> str:
    """Return the data type that decides how fast an operation computes.

    Only sums of products have instructions for types narrower than f32. All other kinds, and depthwise convolutions,
    which have no sums over channels, convert such elements and compute in f32.
    """
    name = type_name(operation)
    is_sum = operation.kind in (*WEIGHTED, *RECURRENT)
    if is_sum and operation.kind in ("convolution", "deconvolution"):
        is_sum = not channels(operation).is_depthwise
    return name if is_sum or name == "f64" else "f32"


def _scalar_steps(operation: Operation) -> int:
    """Return the number of elements or products that scalar code computes one by one."""
    if operation.kind in (*WEIGHTED, *RECURRENT):
        return multiplications(operation)
    if operation.kind == "pooling":
        return max(workload(operation).flops, elements(operation))
    return elements(operation)


_REF_EACH: Mapping[str, float] = {
    "reduction": 22.0,
    "pooling": 25.0,
    "batch_normalization": 24.0,
    "lrn": 18.0,
    "prelu": 50.0,
    "softmax": 100.0,
    "layer_normalization": 110.0,
    "group_normalization": 50.0,
    "convolution": 44.0,
    "deconvolution": 44.0,
}
_REF_PLAIN = 5.7


def reference_model(operation: Operation) -> KernelModel:
    """Return the model of scalar code for an operation."""
    each = _REF_EACH.get(operation.kind, 72.0)
    forms = [channel_layout(operation.descs[name]) for name in ("src", "dst") if name in operation.descs]
    if operation.kind in ("convolution", "deconvolution") and all(f.kind in ("ncx", "nxc") for f in forms):
        each = _REF_PLAIN
    return KernelModel("ref", ns_per_element=each)


def select_kernel_model(operation: Operation, isa: str) -> KernelModel:
    """Return the model of the fastest kernel for an operation whose activations have concrete formats."""
    rule = _RULES.get(operation.kind)
    if operation.kind in _CHANNELS_LAST_INTEGERS and type_name(operation) in ("s8", "u8") and not _is_last(operation):
        return reference_model(operation)
    found = KernelModel("jit", 0.8, 2.0) if rule is None else rule(operation, isa)
    if found is None:
        return reference_model(operation)
    if found.impl == "gemm" and operation.attributes.post_ops:
        return replace(found, efficiency=found.efficiency * 0.8)  # a second pass applies the post-operations
    return found


_CHANNELS_LAST_INTEGERS = ("convolution", "deconvolution", "pooling")
"""Kinds whose optimized code for 8-bit integers needs channels last."""


def _is_last(operation: Operation) -> bool:
    """Return whether the channels of the source and of the result are last, or there are no others in memory."""
    images = [operation.descs[name] for name in ("src", "dst") if name in operation.descs]
    return all(channel_layout(image).kind == "nxc" or _has_both_forms(image) for image in images)


def blocks(isa: str) -> tuple[int, ...]:
    """Return the block sizes that kernels of an instruction set are optimized for, the best first."""
    return (16, 8) if isa_level(isa) >= isa_level("AVX512_CORE") else (8,)


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels of a convolution."""

    groups: int
    """Number of groups."""
    src: int
    """Source channels of a group."""
    dst: int
    """Destination channels of a group."""

    @property
    def is_depthwise(self) -> bool:
        """Return whether each group has one source and one destination channel."""
        return self.groups > 1 and self.src == self.dst == 1

    @property
    def is_stem(self) -> bool:
        """Return whether the convolution reads an image of at most four channels, too few for a block."""
        return self.groups == 1 and self.src <= 4


def channels(operation: Operation) -> Channels:
    """Return the channels of a convolution or deconvolution."""
    src, dst, weights = (operation.descs[name].dims for name in ("src", "dst", "weights"))
    groups = weights[0] if len(weights) > len(src) else 1
    return Channels(groups, src[1] // groups, dst[1] // groups)


def _convolution(operation: Operation, isa: str) -> KernelModel | None:
    """Return the model of a convolution; None where only scalar code computes these formats."""
    src, dst, shape = (
        channel_layout(operation.descs["src"]),
        channel_layout(operation.descs["dst"]),
        channels(operation),
    )
    if shape.is_stem and src.kind == "ncx" and dst.kind == "blocked":
        return JIT if dst.block in blocks(isa) else None
    if not has_same_channel_layout(operation.descs["src"], operation.descs["dst"]) or src.kind == "other":
        return None
    if src.kind == "blocked":
        return _blocked_convolution(shape, src.block, isa)
    if src.kind == "nxc":
        return _channels_last_convolution(shape, isa)
    if shape.groups > 1:
        return KernelModel("gemm", 0.8 if shape.src >= 16 else 0.1 if shape.src > 1 else 0.027)
    return KernelModel("gemm", 0.88 if prod(operation.descs["weights"].dims[2:]) == 1 else 0.63)


def _blocked_convolution(shape: Channels, block: int, isa: str) -> KernelModel | None:
    """Return the model of a convolution with channels in blocks on both sides."""
    is_wide = len(blocks(isa)) > 1
    if block == 4 and is_wide and shape.groups > 1 and shape.src % 4 == shape.dst % 4 == 0:
        return KernelModel("jit", 0.42 if shape.src == 4 else 0.24)
    if block not in blocks(isa) or shape.is_stem:
        return None
    if shape.is_depthwise:
        return KernelModel("jit", 0.47)
    is_whole = shape.src % block == shape.dst % block == 0
    if not is_whole and (shape.groups > 1 or isa_level(isa) < isa_level("AVX2")):
        return None
    # The kernel computes padded channels too.
    filled = shape.src * shape.dst / (-(-shape.src // block) * -(-shape.dst // block) * block * block)
    return replace(JIT, efficiency=JIT.efficiency * filled * (1.0 if block == blocks(isa)[0] else 0.97))


def _channels_last_convolution(shape: Channels, isa: str) -> KernelModel:
    """Return the model of a convolution with channels last on both sides."""
    if isa_level(isa) < isa_level("AVX2"):
        fits = shape.groups == 1 and shape.src % 8 == shape.dst % 8 == 0
        return (
            KernelModel("jit", 0.65)
            if fits or shape.is_depthwise or shape.is_stem
            else KernelModel("gemm", 0.7 if shape.src >= 16 else 0.1)
        )
    if shape.is_depthwise:
        return KernelModel("jit", 0.45)
    if shape.groups > 1:
        is_small = shape.src < 16
        return (
            KernelModel("gemm", 0.06)
            if is_small and len(blocks(isa)) == 1
            else KernelModel("jit", 0.33 if is_small else 0.8)
        )
    lanes = 16 if len(blocks(isa)) > 1 else 8
    return replace(JIT, efficiency=JIT.efficiency * (shape.dst / (-(-shape.dst // lanes) * lanes)) ** 0.5)


def _deconvolution(operation: Operation, isa: str) -> KernelModel | None:
    """Return the model of a deconvolution: that of a convolution, slower where channels are not last."""
    forward = _convolution(operation, isa)
    if forward is None or channel_layout(operation.descs["src"]).kind == "nxc":
        return forward
    return replace(forward, efficiency=forward.efficiency * 0.35)


def _matmul(operation: Operation, isa: str) -> KernelModel | None:
    """Model an inner product or matrix product, whose optimized code writes rows."""
    dst = operation.descs["dst"]
    if any(channel_layout(operation.descs[name]).kind == "blocked" for name in ("src", "dst")):
        return None
    if dst.dims[-1] > 1 and dst.strides[-1] != 1:
        return None
    is_free = operation.descs["weights"].kind == "any" or bool(operation.descs["weights"].inner_blocks)
    if isa_level(isa) < isa_level("AVX512_CORE"):
        return KernelModel("gemm", 0.85)
    return KernelModel("jit", 0.95 if is_free else 0.75)


def _binary(operation: Operation, isa: str) -> KernelModel | None:
    """Model an element-wise operation on two tensors."""
    first, second, dst = (operation.descs[name] for name in ("src_0", "src_1", "dst"))
    shape = channel_layout(first)
    if not has_same_channel_layout(first, dst):
        return None
    is_blocked = shape.kind == "blocked"
    if is_blocked and (shape.block not in blocks(isa) or isa_level(isa) < isa_level("AVX2")):
        return None
    if first.dims == second.dims:
        return KernelModel("jit") if has_same_channel_layout(first, second) else None
    if is_blocked:
        is_per_channel = second.dims[1] == first.dims[1] and prod(second.dims[2:]) == 1
        return (
            KernelModel("jit")
            if is_per_channel and channel_layout(second) == shape and shape.block == blocks(isa)[0]
            else None
        )
    return KernelModel("jit", traffic_factor=2.4 if shape.kind == "nxc" else 1.2)


_LARGEST_WINDOW = 400


def _pooling(operation: Operation, isa: str) -> KernelModel | None:
    """Model a pooling."""
    src = channel_layout(operation.descs["src"])
    if not has_same_channel_layout(operation.descs["src"], operation.descs["dst"]):
        return None
    if src.kind == "blocked":
        return KernelModel("jit") if src.block in blocks(isa) else None
    if src.kind == "nxc":
        return KernelModel("jit") if taps(operation.parameters) <= _LARGEST_WINDOW else None
    if isa_level(isa) >= isa_level("AVX512_CORE"):
        return KernelModel("jit", traffic_factor=4.0)
    return KernelModel("simple", traffic_factor=12.0, efficiency=0.008)


def _bandwidth_rule(
    slow_first: float, slow_last: float, slow_blocked: float
) -> Callable[[Operation, str], KernelModel | None]:
    """Return the rule of a kind whose run time is its memory traffic, as a multiple of the time at full bandwidth.

    The multiples are those for channels first, channels last, and blocks as wide as a register.
    """

    def rule(operation: Operation, isa: str) -> KernelModel | None:
        """Model an operation that is limited by memory bandwidth."""
        src = channel_layout(operation.descs["src"])
        if not has_same_channel_layout(operation.descs["src"], operation.descs["dst"]):
            return None
        if src.kind == "blocked":
            return KernelModel("jit", traffic_factor=slow_blocked) if src.block in blocks(isa) else None
        return KernelModel("jit", traffic_factor=slow_last if src.kind == "nxc" else slow_first)

    return rule


def _softmax(operation: Operation, isa: str) -> KernelModel | None:
    """Return the model of a softmax: optimized where its axis is innermost, or the blocked one."""
    src, axis = operation.descs["src"], operation.parameters["axis"]
    if not has_same_channel_layout(src, operation.descs["dst"]):
        return None
    if src.inner_blocks:
        return (
            KernelModel("jit", 0.3)
            if axis == 1 and channel_layout(src).block in blocks(isa) and isa != "SSE41"
            else None
        )
    order = inner_axes(src)
    return KernelModel("jit", 0.3) if not order or order[0] == axis or src.dims[int(str(axis))] == 1 else None


def _along_last(operation: Operation, isa: str) -> KernelModel | None:
    """Return the model of a kind that works along the last axis, which must be innermost."""
    src = operation.descs["src"]
    order = inner_axes(src)
    is_inner = not src.inner_blocks and (not order or order[0] == src.ndims - 1)
    return KernelModel("jit", 0.5, 4.0) if is_inner and has_same_channel_layout(src, operation.descs["dst"]) else None


def _reduction(operation: Operation, isa: str) -> KernelModel | None:
    """Return the model of a reduction: optimized where the reduced axes are innermost."""
    src, dst = operation.descs["src"], operation.descs["dst"]
    reduced = {axis for axis, n in enumerate(src.dims) if n > 1 and dst.dims[axis] == 1}
    order = inner_axes(src)
    if src.inner_blocks or set(order[: len(reduced)]) != reduced:
        return None
    return KernelModel("jit", traffic_factor=1.2)


def _concat_or_sum(operation: Operation, isa: str) -> KernelModel:
    """Return the model of a concatenation or a sum."""
    is_last = channel_layout(operation.descs["dst"]).kind == "nxc"
    return KernelModel("simple", traffic_factor=3.0 if operation.kind == "sum" else 2.0 if is_last else 1.4)


def _resampling(operation: Operation, isa: str) -> KernelModel | None:
    """Model a resampling."""
    found = _bandwidth_rule(5.0, 2.0, 2.0)(operation, isa)
    is_slow = channel_layout(operation.descs["src"]).kind == "ncx" and operation.parameters["algorithm"] == "linear"
    return replace(found, traffic_factor=20.0) if found is not None and is_slow else found


_RULES: Mapping[str, Callable[[Operation, str], KernelModel | None]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "inner_product": lambda operation, isa: KernelModel("gemm", 0.85, 1.2),
    "matmul": _matmul,
    **dict.fromkeys(RECURRENT, lambda operation, isa: KernelModel("gemm", 0.75)),
    "eltwise": lambda operation, isa: JIT,
    "binary": _binary,
    "sum": _concat_or_sum,
    "concat": _concat_or_sum,
    "pooling": _pooling,
    "batch_normalization": _bandwidth_rule(10.0, 1.3, 1.3),
    "lrn": _bandwidth_rule(5.0, 5.0, 8.0),
    "shuffle": lambda operation, isa: KernelModel(
        "simple", traffic_factor=2.0 if channel_layout(operation.descs["src"]).kind == "ncx" else 5.0
    ),
    "softmax": _softmax,
    "layer_normalization": _along_last,
    "group_normalization": lambda operation, isa: (
        None if operation.descs["src"].inner_blocks else KernelModel("jit", 0.5, 6.0)
    ),
    "dynamic_quantization": lambda operation, isa: KernelModel("jit", traffic_factor=2.8),
    "reduction": _reduction,
    "resampling": _resampling,
    "prelu": _bandwidth_rule(1.3, 2.2, 1.2),
    "reorder": lambda operation, isa: KernelModel("jit", traffic_factor=1.6),
}


def resolve_formats(operation: Operation, isa: str) -> Operation:
    """Return the operation with the format that an engine would choose for each activation that is `any`.

    Weights that are `any` stay so.
    """
    descs = dict(operation.descs)
    chosen = _select_tags(operation, isa)
    for name, desc in operation.descs.items():
        if desc.kind == "any" and "weights" not in name:
            assert desc.data_type is not None
            descs[name] = MemoryDesc(desc.dims, desc.data_type, chosen(name, desc))
    return replace(operation, descs=descs)


def _select_tags(operation: Operation, isa: str) -> Callable[[str, MemoryDesc], str | None]:
    """Return the function from an argument's name and descriptor to the tag that an engine would choose."""
    follow = _follow_source(operation)
    if operation.kind not in ("convolution", "deconvolution"):
        return lambda name, desc: follow(desc)
    src, dst = operation.descs["src"], operation.descs["dst"]
    shape, wide = channels(operation), blocks(isa)[0]
    both = fastest_layout(operation, isa)
    sides = {"src": both, "dst": both}
    if shape.is_stem and (src.kind == "any" or channel_layout(src).kind == "ncx"):
        sides = {"src": ChannelLayout("ncx"), "dst": ChannelLayout("blocked", wide)}
    elif src.kind != "any" or dst.kind != "any":
        given = channel_layout(src if src.kind != "any" else dst)
        sides = {"src": given, "dst": given}
    return lambda name, desc: _tag_like(sides[name], desc) if name in sides else None


def fastest_layout(operation: Operation, isa: str) -> ChannelLayout:
    """Return the channel layout in which a convolution with these channels is fastest."""
    shape = channels(operation)
    if isa_level(isa) >= isa_level("AVX2"):
        is_small = shape.groups > 1 and not shape.is_depthwise and shape.src < 16
        if not is_small:
            return ChannelLayout("nxc")
        return (
            ChannelLayout("blocked", 4)
            if len(blocks(isa)) > 1 and shape.src % 4 == shape.dst % 4 == 0
            else ChannelLayout("ncx")
        )
    fits = shape.is_depthwise or (shape.src % 8 == shape.dst % 8 == 0 and shape.groups == 1)
    return ChannelLayout("blocked", 8) if fits else ChannelLayout("ncx")


def _follow_source(operation: Operation) -> Callable[[MemoryDesc], str | None]:
    """Return the function from a descriptor to the tag of the source's channel layout.

    It returns None for operations with weights, and where the source is `any` itself.
    """
    model = operation.descs.get("src") or operation.descs.get("src_0")
    if operation.kind in (*WEIGHTED, *RECURRENT) or model is None or model.kind == "any":
        return lambda desc: None
    found = channel_layout(model)
    return lambda desc: _tag_like(found, desc) if desc.ndims == model.ndims else None


def _tag_like(found: ChannelLayout, desc: MemoryDesc) -> str | None:
    """Return the tag with a channel layout for the axes of a descriptor; None if there is none."""
    return None if found.kind == "other" else tag_of(found, desc.ndims)
