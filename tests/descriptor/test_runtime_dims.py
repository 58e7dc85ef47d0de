"""RUNTIME dims and strides: queries that work, queries that are errors, and binding to numbers."""

from math import prod

import numpy as np
import pytest
from hypothesis import given

import inlay
from inlay.descriptor import Extras, MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME as R
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.notation.format_tag import FormatTag
from inlay.testing import unbound_descriptors

Drawn = tuple[MemoryDesc, MemoryDesc, str]


@given(unbound_descriptors())
def test_bound_by_its_tag_or_its_strides_it_is_what_the_tag_gives(drawn: Drawn) -> None:
    unbound, bound, tag = drawn
    assert unbound.bind(bound.dims, format=tag) == bound
    assert unbound.bind(bound.dims, format=FormatTag.parse(tag)) == bound
    assert unbound.bind(bound.dims, strides=bound.strides) == bound
    assert bound.bind(bound.dims) == bound


@given(unbound_descriptors())
def test_one_unknown_stride_is_that_of_the_outermost_axis(drawn: Drawn) -> None:
    unbound, bound, _ = drawn
    if unbound.strides.count(R) <= 1:
        assert unbound.bind(bound.dims) == bound
    else:
        with pytest.raises(InvalidArguments, match="are RUNTIME, and their order is not known"):
            unbound.bind(bound.dims)
        assert unbound.bind(bound.dims, allow_empty=True).is_zero


@given(unbound_descriptors())
def test_what_is_known_is_kept(drawn: Drawn) -> None:
    unbound, bound, _ = drawn
    for known, got in ((unbound.strides, bound.strides), (unbound.padded_dims, bound.padded_dims)):
        assert all(a in (R, b) for a, b in zip(known, got, strict=True))
    assert (unbound.inner_blocks, unbound.data_type) == (bound.inner_blocks, bound.data_type)


@given(unbound_descriptors())
def test_queries_answer_and_offsets_refuse(drawn: Drawn) -> None:
    unbound, bound, _ = drawn
    if not unbound.has_runtime:
        return
    assert unbound.size == (0 if 0 in unbound.dims else 2**63)
    letters = str(unbound).split(":")[3]
    assert letters == "*" if R in unbound.strides else "*" not in letters
    assert (unbound.ndims, unbound.kind, unbound.offset0) == (bound.ndims, "blocked", 0)
    zero = (0,) * unbound.ndims
    for refused in (
        lambda: unbound.offset(zero),
        lambda: unbound.byte_offset(zero),
        lambda: unbound.submemory(bound.dims, zero),
        lambda: Memory(unbound),
        lambda: inlay.Reorder(unbound, unbound),
    ):
        with pytest.raises(Unimplemented):
            refused()
    for refused in (lambda: unbound.reshape(unbound.dims), lambda: unbound.permute_axes(range(unbound.ndims))):
        with pytest.raises(InvalidArguments):
            refused()


def test_padding_extras_and_free_digits_are_bound_too() -> None:
    unbound, bound = (MemoryDesc((n, 17), "f32", "aB8b").layout for n in (R, 3))
    assert isinstance(unbound, Layout)
    assert isinstance(bound, Layout)
    part = MemoryDesc.from_layout(unbound, "f32", dims=(R, 17), offset0=5)
    assert part.bind((3, 17)) == MemoryDesc.from_layout(bound, "f32", dims=(3, 17), offset0=5)
    extras = Extras(1, compensation_mask=1)
    blocked = MemoryDesc((R, R), "s8", "AB16a4b", extras=extras).bind((17, 5), format="AB16a4b")
    assert blocked == MemoryDesc((17, 5), "s8", "AB16a4b", extras=extras)
    assert (blocked.padded_dims, blocked.size) == ((32, 8), 256 + 128)


def test_bound_strides_are_integers() -> None:
    """Beyond 2**53 a float would be another number."""
    bound = MemoryDesc((R, 2**53 + 1), "u8", strides=(R, 1)).bind((2, 2**53 + 1))
    assert repr(bound.strides) == repr((2**53 + 1, 1))


def test_a_gap_is_kept() -> None:
    assert MemoryDesc((4, R), "f32", strides=(8, 1)).bind((4, 6)) == MemoryDesc((4, 6), "f32", strides=(8, 1))
    assert MemoryDesc((4, 6), "f32", strides=(R, 1)).bind((4, 6)) == MemoryDesc((4, 6), "f32")
    assert MemoryDesc((4, R, 5), "f32", strides=(R, 7, 1)).bind((4, 3, 5)).strides == (21, 7, 1)


def test_a_bound_descriptor_moves_data() -> None:
    image = np.arange(prod((2, 3, 2, 2)), dtype=np.float32).reshape(2, 3, 2, 2)
    memory = inlay.pack(image, MemoryDesc((R, 3, 2, 2), "f32", "nhwc").bind(image.shape, format="nhwc"))
    assert np.array_equal(memory.unpack(), image)


def test_allow_empty() -> None:
    unbound = MemoryDesc((R, 3), "f32")
    assert unbound.bind((2,), allow_empty=True).is_zero
    assert unbound.bind((2, 3), format="nonsense", allow_empty=True).is_zero
