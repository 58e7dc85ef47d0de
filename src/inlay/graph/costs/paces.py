"""Which kernels are fast in which format, as a table for each instruction set, and what they take.

The table holds what oneDNN was seen to do with networks' shapes in f32 under SSE41, AVX2 and AVX512_CORE: convolutions
want channels last or in blocks of their registers, on both sides alike; what works along an axis wants it innermost;
what broadcasts over channels wants them unblocked. Where no fast kernel fits, generic code computes element by element,
up to thousands of times slower: a cliff.

>>> image = MemoryDesc((8, 64, 56, 56), "f32", "nhwc")
>>> layer = Operation("softmax", "forward_inference", {"src": image, "dst": image}, {"axis": 3})
>>> pace(layer, "AVX2").impl
'ref'

**Formats of activations by what kernels make of them: channels first, channels last, channels in blocks.**

>>> [form(MemoryDesc((2, 32, 4, 4), "f32", tag)) for tag in ("nchw", "nhwc", "nChw16c", "cdba")]
[Form(kind='ncx', block=1), Form(kind='nxc', block=1), Form(kind='blocked', block=16), Form(kind='other', block=1)]
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Literal, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import algorithm_of
from inlay.graph.costs.machine import Machine, elements, isa_level, multiplications, work
from inlay.primitives.engine import Operation
from inlay.primitives.rules import RECURRENT, WEIGHTED

FormKind: TypeAlias = Literal["ncx", "nxc", "blocked", "other"]
_BLOCKED = re.compile(r"aBc?d?e?(\d+)b")
_LETTERS = "abcdefghijkl"


@dataclass(frozen=True, slots=True)
class Form:
    """How a kernel sees a format."""

    kind: FormKind
    """Channels before the spatial axes, after them, in blocks after them, or anything else."""
    block: int = 1
    """Channels in a block."""


def form(desc: MemoryDesc) -> Form:
    """The form of a descriptor that is not `any`. Of matrices, and where channels or all else is 1, channels last."""
    return _form(desc, desc.exact_key)


@lru_cache(maxsize=8192)
def _form(desc: MemoryDesc, _: Hashable) -> Form:
    tag = desc.tag or ""
    letters = _LETTERS[: desc.ndims]
    if found := _BLOCKED.fullmatch(tag):
        return Form("blocked", int(found[1]))
    if tag == "a" + letters[2:] + "b":
        return Form("nxc")
    if tag == letters:
        return Form("ncx")
    return Form("other")


def same(one: MemoryDesc, other: MemoryDesc) -> bool:
    """Whether two tensors have the same form; channels first and last are one where channels or all else is 1.

    >>> pooled, image = MemoryDesc((2, 8, 1, 1), "f32", "nhwc"), MemoryDesc((2, 8, 4, 4), "f32", "nchw")
    >>> same(pooled, image)
    True
    """
    kinds = {form(one).kind, form(other).kind}
    return form(one) == form(other) or (kinds == {"ncx", "nxc"} and (_is_either(one) or _is_either(other)))


def _is_either(desc: MemoryDesc) -> bool:
    return desc.ndims > 1 and (desc.dims[1] == 1 or prod(desc.dims[2:]) == 1)


def tag_of(form: Form, ndims: int) -> str:
    """The tag of a form.

    >>> tag_of(Form("blocked", 8), 5), tag_of(Form("nxc"), 4)
    ('aBcde8b', 'acdb')
    """
    letters = _LETTERS[:ndims]
    if form.kind == "blocked":
        return f"aB{letters[2:]}{form.block}b"
    return "a" + letters[2:] + "b" if form.kind == "nxc" else letters


@lru_cache(maxsize=8192)
def inner_axes(desc: MemoryDesc) -> tuple[int, ...]:
    """Axes of more than one element, the one whose elements lie nearest first; nothing for blocked formats."""
    if desc.kind != "blocked" or desc.inner_blocks:
        return ()
    strides = desc.strides
    axes = [axis for axis, n in enumerate(desc.dims) if n > 1]
    return tuple(sorted(axes, key=lambda axis: (strides[axis], -axis)))


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a kind of code is."""

    impl: str
    """What sort of code: `jit`, `gemm`, `simple` or `ref`."""
    efficiency: float = 1.0
    """Of the peak, while it computes."""
    slowness: float = 1.2
    """Times what its bytes take."""
    each: float = 0.0
    """Of generic code: nanoseconds that a thread spends on each element or product."""


JIT = Pace("jit", 0.96)
OVERHEAD = 0.004
"""Milliseconds that a call and its threads take."""


def milliseconds(operation: Operation, pace: Pace, machine: Machine) -> float:
    """What an operation in settled formats takes at this pace."""
    least = work(operation)
    if pace.each:
        return OVERHEAD + pace.each * _points(operation) / machine.threads / 1e6
    computing = machine.computing(least.flops, type_name(operation)) / pace.efficiency
    algorithm = algorithm_of(operation)
    passing = 0.0 if algorithm is None else algorithm.intermediate_bytes(operation) / machine.near / 1e6
    return OVERHEAD + max(computing, machine.moving(least) * pace.slowness) + passing


def type_name(operation: Operation) -> str:
    """The data type that an operation computes in: its first source's."""
    desc = next(iter(operation.descs.values()))
    return desc.data_type.name if desc.data_type is not None else "f32"


def _points(operation: Operation) -> int:
    if operation.kind in (*WEIGHTED, *RECURRENT):
        return multiplications(operation)
    if operation.kind == "pooling":
        return max(work(operation).flops, elements(operation))
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


def ref(operation: Operation) -> Pace:
    """The pace of generic code."""
    each = _REF_EACH.get(operation.kind, 72.0)
    forms = [form(operation.descs[name]) for name in ("src", "dst") if name in operation.descs]
    if operation.kind in ("convolution", "deconvolution") and all(f.kind in ("ncx", "nxc") for f in forms):
        each = _REF_PLAIN
    return Pace("ref", each=each)


def pace(operation: Operation, isa: str) -> Pace:
    """How fast the best kernel for these formats is; none of an activation may be `any`."""
    rule = _RULES.get(operation.kind)
    found = Pace("jit", 0.8, 2.0) if rule is None else rule(operation, isa)
    if found is None:
        return ref(operation)
    if found.impl == "gemm" and operation.attributes.post_ops:
        return replace(found, efficiency=found.efficiency * 0.8)  # they are applied in a pass of their own
    return found


def blocks(isa: str) -> tuple[int, ...]:
    """Channels in a block that kernels of an instruction set are made for, the best first."""
    return (16, 8) if isa_level(isa) >= isa_level("AVX512_CORE") else (8,)


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels of a convolution."""

    groups: int
    """How many parts it has."""
    src: int
    """Channels of a part of the source."""
    dst: int
    """Channels of a part of the destination."""

    @property
    def is_depthwise(self) -> bool:
        """Whether every channel is for itself."""
        return self.groups > 1 and self.src == self.dst == 1

    @property
    def is_stem(self) -> bool:
        """Whether it reads an image: too few channels for a block."""
        return self.groups == 1 and self.src <= 4


def channels(operation: Operation) -> Channels:
    """Channels of a convolution or deconvolution."""
    src, dst, weights = (operation.descs[name].dims for name in ("src", "dst", "weights"))
    groups = weights[0] if len(weights) > len(src) else 1
    return Channels(groups, src[1] // groups, dst[1] // groups)


def _convolution(operation: Operation, isa: str) -> Pace | None:
    src, dst, of = form(operation.descs["src"]), form(operation.descs["dst"]), channels(operation)
    if of.is_stem and src.kind == "ncx" and dst.kind == "blocked":
        return JIT if dst.block in blocks(isa) else None
    if not same(operation.descs["src"], operation.descs["dst"]) or src.kind == "other":
        return None
    if src.kind == "blocked":
        return _in_blocks(of, src.block, isa)
    if src.kind == "nxc":
        return _channels_last(of, isa)
    if of.groups > 1:
        return Pace("gemm", 0.8 if of.src >= 16 else 0.1 if of.src > 1 else 0.027)
    return Pace("gemm", 0.88 if prod(operation.descs["weights"].dims[2:]) == 1 else 0.63)


def _in_blocks(of: Channels, block: int, isa: str) -> Pace | None:
    is_wide = len(blocks(isa)) > 1
    if block == 4 and is_wide and of.groups > 1 and of.src % 4 == of.dst % 4 == 0:
        return Pace("jit", 0.42 if of.src == 4 else 0.24)
    if block not in blocks(isa) or of.is_stem:
        return None
    if of.is_depthwise:
        return Pace("jit", 0.47)
    is_whole = of.src % block == of.dst % block == 0
    if not is_whole and (of.groups > 1 or isa_level(isa) < isa_level("AVX2")):
        return None
    # Padded channels are computed along.
    filled = of.src * of.dst / (-(-of.src // block) * -(-of.dst // block) * block * block)
    return replace(JIT, efficiency=JIT.efficiency * filled * (1.0 if block == blocks(isa)[0] else 0.97))


def _channels_last(of: Channels, isa: str) -> Pace:
    if isa_level(isa) < isa_level("AVX2"):
        fits = of.groups == 1 and of.src % 8 == of.dst % 8 == 0
        return (
            Pace("jit", 0.65) if fits or of.is_depthwise or of.is_stem else Pace("gemm", 0.7 if of.src >= 16 else 0.1)
        )
    if of.is_depthwise:
        return Pace("jit", 0.45)
    if of.groups > 1:
        is_small = of.src < 16
        return Pace("gemm", 0.06) if is_small and len(blocks(isa)) == 1 else Pace("jit", 0.33 if is_small else 0.8)
    lanes = 16 if len(blocks(isa)) > 1 else 8
    return replace(JIT, efficiency=JIT.efficiency * (of.dst / (-(-of.dst // lanes) * lanes)) ** 0.5)


def _deconvolution(operation: Operation, isa: str) -> Pace | None:
    forward = _convolution(operation, isa)
    if forward is None or form(operation.descs["src"]).kind == "nxc":
        return forward
    return replace(forward, efficiency=forward.efficiency * 0.35)


def _matmul(operation: Operation, isa: str) -> Pace | None:
    if any(form(operation.descs[name]).kind == "blocked" for name in ("src", "dst")):
        return None
    is_free = operation.descs["weights"].kind == "any" or bool(operation.descs["weights"].inner_blocks)
    if isa_level(isa) < isa_level("AVX512_CORE"):
        return Pace("gemm", 0.85)
    return Pace("jit", 0.95 if is_free else 0.75)


def _binary(operation: Operation, isa: str) -> Pace | None:
    first, second, dst = (operation.descs[name] for name in ("src_0", "src_1", "dst"))
    shape = form(first)
    if not same(first, dst):
        return None
    is_blocked = shape.kind == "blocked"
    if is_blocked and (shape.block not in blocks(isa) or isa_level(isa) < isa_level("AVX2")):
        return None
    if first.dims == second.dims:
        return Pace("jit") if same(first, second) else None
    if is_blocked:
        is_per_channel = second.dims[1] == first.dims[1] and prod(second.dims[2:]) == 1
        return Pace("jit") if is_per_channel and form(second) == shape and shape.block == blocks(isa)[0] else None
    return Pace("jit", slowness=2.4 if shape.kind == "nxc" else 1.2)


def _pooling(operation: Operation, isa: str) -> Pace | None:
    src = form(operation.descs["src"])
    if not same(operation.descs["src"], operation.descs["dst"]):
        return None
    if src.kind == "blocked":
        return Pace("jit") if src.block in blocks(isa) else None
    if src.kind == "nxc":
        return Pace("jit") if prod(_sizes(operation, "kernel")) <= _LARGEST_WINDOW else None
    if isa_level(isa) >= isa_level("AVX512_CORE"):
        return Pace("jit", slowness=4.0)
    return Pace("simple", slowness=12.0, efficiency=0.008)


_LARGEST_WINDOW = 400


def _sizes(operation: Operation, name: str) -> tuple[int, ...]:
    value = operation.parameters[name]
    return tuple(int(n) for n in value) if isinstance(value, tuple) else ()


def _blocks_or_plain(
    slow_first: float, slow_last: float, slow_blocked: float
) -> Callable[[Operation, str], Pace | None]:
    """A rule: so many times what the bytes take with channels first, last and in the blocks of the registers."""

    def rule(operation: Operation, isa: str) -> Pace | None:
        src = form(operation.descs["src"])
        if not same(operation.descs["src"], operation.descs["dst"]):
            return None
        if src.kind == "blocked":
            return Pace("jit", slowness=slow_blocked) if src.block in blocks(isa) else None
        return Pace("jit", slowness=slow_last if src.kind == "nxc" else slow_first)

    return rule


def _softmax(operation: Operation, isa: str) -> Pace | None:
    src, axis = operation.descs["src"], operation.parameters["axis"]
    if not same(src, operation.descs["dst"]):
        return None
    if src.inner_blocks:
        return Pace("jit", 0.3) if axis == 1 and form(src).block in blocks(isa) and isa != "SSE41" else None
    order = inner_axes(src)
    return Pace("jit", 0.3) if not order or order[0] == axis or src.dims[int(str(axis))] == 1 else None


def _along_last(operation: Operation, isa: str) -> Pace | None:
    src = operation.descs["src"]
    order = inner_axes(src)
    is_inner = not src.inner_blocks and (not order or order[0] == src.ndims - 1)
    return Pace("jit", 0.5, 4.0) if is_inner and same(src, operation.descs["dst"]) else None


def _reduction(operation: Operation, isa: str) -> Pace | None:
    src, dst = operation.descs["src"], operation.descs["dst"]
    reduced = {axis for axis, n in enumerate(src.dims) if n > 1 and dst.dims[axis] == 1}
    order = inner_axes(src)
    if src.inner_blocks or set(order[: len(reduced)]) != reduced:
        return None
    return Pace("jit", slowness=1.2)


def _joined(operation: Operation, isa: str) -> Pace:
    is_last = form(operation.descs["dst"]).kind == "nxc"
    return Pace("simple", slowness=3.0 if operation.kind == "sum" else 2.0 if is_last else 1.4)


def _resampling(operation: Operation, isa: str) -> Pace | None:
    rule = _blocks_or_plain(5.0, 2.0, 2.0)
    found = rule(operation, isa)
    is_slow = found is not None and form(operation.descs["src"]).kind == "ncx"
    linear = operation.parameters["algorithm"] == "linear"
    return replace(found, slowness=20.0) if found is not None and is_slow and linear else found


_RULES: Mapping[str, Callable[[Operation, str], Pace | None]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "inner_product": lambda operation, isa: Pace("gemm", 0.85, 1.2),
    "matmul": _matmul,
    **dict.fromkeys(RECURRENT, lambda operation, isa: Pace("gemm", 0.75)),
    "eltwise": lambda operation, isa: JIT,
    "binary": _binary,
    "sum": _joined,
    "concat": _joined,
    "pooling": _pooling,
    "batch_normalization": _blocks_or_plain(10.0, 1.3, 1.3),
    "lrn": _blocks_or_plain(5.0, 5.0, 8.0),
    "shuffle": lambda operation, isa: Pace(
        "simple", slowness=2.0 if form(operation.descs["src"]).kind == "ncx" else 5.0
    ),
    "softmax": _softmax,
    "layer_normalization": _along_last,
    "group_normalization": lambda operation, isa: (
        None if operation.descs["src"].inner_blocks else Pace("jit", 0.5, 6.0)
    ),
    "reduction": _reduction,
    "resampling": _resampling,
    "prelu": _blocks_or_plain(1.3, 2.2, 1.2),
    "reorder": lambda operation, isa: Pace("jit", slowness=1.6),
}


def answers(operation: Operation, isa: str) -> Operation:
    """The operation with what an engine would choose for each activation that is `any`; weights stay as they are."""
    descs = dict(operation.descs)
    chosen = _wanted(operation, isa)
    for name, desc in operation.descs.items():
        if desc.kind == "any" and "weights" not in name:
            assert desc.data_type is not None
            descs[name] = MemoryDesc(desc.dims, desc.data_type, chosen(name, desc))
    return replace(operation, descs=descs)


def _wanted(operation: Operation, isa: str) -> Callable[[str, MemoryDesc], str | None]:
    from_model = _following(operation)
    if operation.kind not in ("convolution", "deconvolution"):
        return lambda name, desc: from_model(desc)
    src, dst = operation.descs["src"], operation.descs["dst"]
    of, wide = channels(operation), blocks(isa)[0]
    both = preferred(operation, isa)
    sides = {"src": both, "dst": both}
    if of.is_stem and (src.kind == "any" or form(src).kind == "ncx"):
        sides = {"src": Form("ncx"), "dst": Form("blocked", wide)}
    elif src.kind != "any" or dst.kind != "any":
        given = form(src if src.kind != "any" else dst)
        sides = {"src": given, "dst": given}
    return lambda name, desc: _tag(sides[name], desc) if name in sides else None


def preferred(operation: Operation, isa: str) -> Form:
    """The form that convolutions with these channels are fastest in."""
    of = channels(operation)
    if isa_level(isa) >= isa_level("AVX2"):
        is_small = of.groups > 1 and not of.is_depthwise and of.src < 16
        if not is_small:
            return Form("nxc")
        return Form("blocked", 4) if len(blocks(isa)) > 1 and of.src % 4 == of.dst % 4 == 0 else Form("ncx")
    fits = of.is_depthwise or (of.src % 8 == of.dst % 8 == 0 and of.groups == 1)
    return Form("blocked", 8) if fits else Form("ncx")


def _following(operation: Operation) -> Callable[[MemoryDesc], str | None]:
    """Where nothing is multiplied by weights the destination follows the source."""
    model = operation.descs.get("src") or operation.descs.get("src_0")
    if operation.kind in (*WEIGHTED, *RECURRENT) or model is None or model.kind == "any":
        return lambda desc: None
    found = form(model)
    return lambda desc: _tag(found, desc) if desc.ndims == model.ndims else None


def _tag(found: Form, desc: MemoryDesc) -> str | None:
    return None if found.kind == "other" else tag_of(found, desc.ndims)
