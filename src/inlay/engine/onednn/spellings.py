"""Equal descriptors that oneDNN computes differently: strides of axes of one element, and which of them it is given.

    (1, 1, 28, 28) as nchw    strides (784, 784, 28, 1)
    (1, 1, 28, 28) as nhwc    strides (784, 1, 28, 1)       the same offsets: the descriptors are equal

An axis is a unit axis if it has one element and no padding. The library compares the strides of unit axes with those of
a tag when it chooses a kernel, so a convolution takes 6 microseconds or 3.5 milliseconds for the same tensors. It does
not compare them when it looks up a primitive in its cache, so an earlier call would decide for a later one. Therefore
the library gets one of two spellings, each of which depends on the equality class alone:

    row major        unit axes are placed as in abcd: the first choice
    channels last    unit axes are placed as in acdb: for images, where it makes a faster kernel available

`kernel_rank` says which kernel is preferred: one for an instruction set, then any other, then a reference kernel.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Final

from inlay.descriptor import MemoryDesc
from inlay.layout import Axis, Layout
from inlay.primitives.attributes import PLAIN, Binary, PrimitiveAttributes
from inlay.primitives.operation import KernelKind, Operation
from inlay.primitives.signatures import RECURRENT

_LARGEST: Final = 2**63 - 1
_IMAGES: Final = (3, 4, 5)
"""Axes of a tensor with channels and one to three spatial axes."""
_MATRICES: Final = frozenset((*RECURRENT, "matmul", "layer_normalization", "reorder"))
"""Kinds that have no channels-last kernels."""
_REFERENCE: Final = re.compile(r"(^|[:_])ref([:_]|$)")
_OF_ISA: Final = re.compile(r":(sse|avx|uni|asimd|sve|acl|vsx|rv)")


def kernel_kind(name: str) -> KernelKind:
    """Return what sort of code an implementation of this name is.

    >>> [kernel_kind(name) for name in ("ref:any", "ref_int8:any", "jit:avx2", "x64:gemm:jit", "brgconv:avx512_core")]
    ['reference', 'reference', 'jit', 'gemm', 'other']
    """
    if _REFERENCE.search(name) is not None:
        return "reference"
    return "gemm" if "gemm" in name else "jit" if name.startswith("jit") else "other"


def kernel_rank(name: str) -> int:
    """Return the preference of an implementation by its name: 0 for the best.

    >>> [kernel_rank(name) for name in ("brgconv:avx512_core", "jit:uni", "x64:gemm:jit", "simple:any", "ref:any")]
    [0, 0, 1, 1, 2]
    """
    if kernel_kind(name) == "reference":
        return 2
    return 0 if _OF_ISA.search(name) else 1


def spellings(operation: Operation) -> tuple[Operation, ...]:
    """Return the operation in each spelling that the library may be given, the first choice first: one or two.

    Post-condition: their descriptors, those of post-operations included, are equal to those of `operation`, and depend
    on nothing else.
    """
    descs, attributes = operation.descs, operation.attributes
    spelled = {name: found for name, desc in descs.items() if 1 in desc.dims and (found := canonical(desc))}
    if not spelled and attributes is PLAIN:
        return (operation,)
    if attributes is not PLAIN:
        attributes = _respell_attributes(attributes)
    rows = {**descs, **{name: both[0] for name, both in spelled.items()}}
    first = replace(operation, descs=rows, attributes=attributes)
    if operation.kind in _MATRICES or all(row is last for row, last in spelled.values()):
        return (first,)
    return first, replace(first, descs={**descs, **{name: both[1] for name, both in spelled.items()}})


def _respell_attributes(attributes: PrimitiveAttributes) -> PrimitiveAttributes:
    """Attributes whose operands are spelled row-major."""
    if not any(isinstance(post_op, Binary) for post_op in attributes.post_ops):
        return attributes
    respelled = tuple(
        replace(post_op, src_1=(canonical(post_op.src_1) or (post_op.src_1,))[0])
        if isinstance(post_op, Binary)
        else post_op
        for post_op in attributes.post_ops
    )
    return replace(attributes, post_ops=respelled)


@lru_cache(maxsize=4096)
def canonical(desc: MemoryDesc) -> tuple[MemoryDesc, MemoryDesc] | None:
    """Return the equal descriptors spelled row-major and channels-last, one object if both are the same.

    None for a descriptor with one spelling, and where the library is not asked: without elements or with RUNTIME dims.
    Equal descriptors share an entry of this cache: the result is the same for all of them.

    >>> image = MemoryDesc((1, 1, 28, 28), "f32", "nhwc")
    >>> [desc.strides for desc in canonical(image)]
    [(784, 784, 28, 1), (784, 1, 28, 1)]
    """
    if desc.kind != "blocked" or 0 in desc.dims or desc.has_runtime or 1 not in desc.padded_dims:
        return None
    row_major = _respelled(desc, range(desc.ndims))
    channels_last = row_major
    if desc.ndims in _IMAGES:
        channels_last = _respelled(desc, (0, *range(2, desc.ndims), 1))
    return row_major, row_major if channels_last.strides == row_major.strides else channels_last


def _respelled(desc: MemoryDesc, preferred: Sequence[int]) -> MemoryDesc:
    layout, data_type = desc.require_layout("a spelling")
    axes = tuple(
        Axis(stride, axis.inner) for stride, axis in zip(_strides(layout, preferred), layout.axes, strict=True)
    )
    return MemoryDesc.from_layout(
        Layout(layout.dims, axes), data_type, dims=desc.dims, offset0=desc.offset0, extras=desc.extras
    )


def _strides(layout: Layout, preferred: Sequence[int]) -> list[int]:
    """The strides of all axes, where unit axes lie between the others as in the order `preferred`, outermost first."""
    strides = [axis.stride for axis in layout.axes]
    rank = {axis: i for i, axis in enumerate(preferred)}
    order = sorted(
        (axis for axis in preferred if layout.dims[axis] != 1), key=lambda axis: (-strides[axis], rank[axis])
    )
    for unit in reversed([axis for axis in preferred if layout.dims[axis] == 1]):
        inside = [i for i, axis in enumerate(order) if rank[axis] > rank[unit]]
        order.insert(inside[0] if inside else len(order), unit)
    below = prod(digit.extent for axis in layout.axes for digit in axis.inner)
    for axis in reversed(order):
        if layout.dims[axis] == 1:
            strides[axis] = min(below, _LARGEST)
        below = strides[axis] * (layout.dims[axis] // layout.axes[axis].block)
    return strides
