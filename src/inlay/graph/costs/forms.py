"""Formats of activations by what kernels make of them: channels first, channels last, channels in blocks.

>>> [form(MemoryDesc((2, 32, 4, 4), "f32", tag)) for tag in ("nchw", "nhwc", "nChw16c", "cdba")]
[Form(kind='ncx', block=1), Form(kind='nxc', block=1), Form(kind='blocked', block=16), Form(kind='other', block=1)]
"""

import re
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal, TypeAlias

from inlay.descriptor import MemoryDesc

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
