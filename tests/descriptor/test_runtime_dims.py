"""RUNTIME dims and strides: queries that work, queries that are errors, and binding to numbers."""

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import given

import inlay
from inlay.descriptor import Extras, MemoryDesc
from inlay.errors import InlayError, InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Dims, Layout
from inlay.memory import Memory
from inlay.notation.format_tag import FormatTag
from inlay.testing import unbound_descriptors

R = RUNTIME
Drawn = tuple[MemoryDesc, MemoryDesc, str]


@given(unbound_descriptors())
def test_bound_by_its_tag_or_its_strides_it_is_what_the_tag_gives(drawn: Drawn) -> None:
    unbound, bound, tag = drawn
    assert unbound.bind(bound.dims, format=tag) == bound
    assert unbound.bind(bound.dims, format=FormatTag.parse(tag)) == bound
    assert unbound.bind(bound.dims, strides=bound.strides) == bound


@given(unbound_descriptors())
def test_one_unknown_stride_is_that_of_the_outermost_axis(drawn: Drawn) -> None:
    unbound, bound, _ = drawn
    if unbound.strides.count(RUNTIME) <= 1:
        assert unbound.bind(bound.dims) == bound
    else:
        with pytest.raises(InvalidArguments, match="are RUNTIME, and their order is not known"):
            unbound.bind(bound.dims)
        assert unbound.bind(bound.dims, allow_empty=True).is_zero


@given(unbound_descriptors())
def test_what_is_known_is_kept(drawn: Drawn) -> None:
    unbound, bound, _ = drawn
    for known, got in ((unbound.strides, bound.strides), (unbound.padded_dims, bound.padded_dims)):
        assert all(a in (RUNTIME, b) for a, b in zip(known, got, strict=True))
    assert (unbound.inner_blocks, unbound.data_type) == (bound.inner_blocks, bound.data_type)
    assert bound.bind(bound.dims) == bound


@given(unbound_descriptors())
def test_queries_answer_and_offsets_refuse(drawn: Drawn) -> None:
    unbound, bound, _ = drawn
    if not unbound.has_runtime:
        return
    assert unbound.size == (0 if 0 in unbound.dims else 2**63)
    letters = str(unbound).split(":")[3]
    assert letters == "*" if RUNTIME in unbound.strides else "*" not in letters
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
    layout = MemoryDesc((R, 17), "f32", "aB8b").layout
    assert isinstance(layout, Layout)
    part = MemoryDesc.from_layout(layout, "f32", dims=(R, 17), offset0=5)
    assert part.bind((3, 17)) == MemoryDesc.from_layout(
        MemoryDesc((3, 17), "f32", "aB8b").layout,  # type: ignore[arg-type]
        "f32",
        dims=(3, 17),
        offset0=5,
    )
    blocked = MemoryDesc((R, R), "s8", "AB16a4b", extras=Extras(1, compensation_mask=1))
    bound = blocked.bind((17, 5), format="AB16a4b")
    assert bound == MemoryDesc((17, 5), "s8", "AB16a4b", extras=Extras(1, compensation_mask=1))
    assert (bound.padded_dims, bound.size) == ((32, 8), 256 + 128)


def test_bound_strides_are_integers() -> None:
    """Beyond 2**53 a float would be another number."""
    bound = MemoryDesc((RUNTIME, 2**53 + 1), "u8", strides=(RUNTIME, 1)).bind((2, 2**53 + 1))
    assert repr(bound.strides) == repr((2**53 + 1, 1))


def test_a_gap_is_kept() -> None:
    assert MemoryDesc((4, R), "f32", strides=(8, 1)).bind((4, 6)) == MemoryDesc((4, 6), "f32", strides=(8, 1))
    assert MemoryDesc((4, 6), "f32", strides=(R, 1)).bind((4, 6)) == MemoryDesc((4, 6), "f32")
    assert MemoryDesc((4, R, 5), "f32", strides=(R, 7, 1)).bind((4, 3, 5)).strides == (21, 7, 1)


def test_a_bound_descriptor_moves_data() -> None:
    batches = MemoryDesc((R, 3, 2, 2), "f32", "nhwc")
    image = np.arange(prod((2, 3, 2, 2)), dtype=np.float32).reshape(2, 3, 2, 2)
    memory = inlay.pack(image, batches.bind(image.shape, format="nhwc"))
    assert np.array_equal(memory.unpack(), image)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: MemoryDesc((2, R, R), "f32", "acb").bind((2, 4, 3)),
        "the strides of axis 0 (a), axis 2 (c) are RUNTIME, and their order is not known: give all strides with "
        "strides=, or the order with format=",
    ),
    (
        lambda: MemoryDesc((R, 3), "f32").bind((2,)),
        "dims (2,) to bind has 1 entries: the descriptor has 2 dims",
    ),
    (lambda: MemoryDesc((R, 3), "f32").bind((R, 3)), "dims[0] to bind is RUNTIME: give its number"),
    (
        lambda: MemoryDesc((R, 3), "f32").bind((2, 4)),
        "dims[1] to bind is 4, but axis 1 (b) is known to have 3",
    ),
    (
        lambda: MemoryDesc((R, 3), "f32").bind((2, 3), strides=(3, 2)),
        "strides[1] to bind is 2, but axis 1 (b) is known to have 1",
    ),
    (
        lambda: MemoryDesc((R, 3), "f32").bind((2, 3), strides=(3,)),
        "strides (3,) to bind has 1 entries: the descriptor has 2 dims",
    ),
    (
        lambda: MemoryDesc((4, 3), "f32", strides=(R, 1)).bind((4, 3), strides=(2, 1)),
        "stride 2 of axis 0 (a) is too small: axis 1 (b) inside it reaches 3, so 3 is the least",
    ),
    (
        lambda: MemoryDesc((R, 3), "f32").bind((2, 3), strides=(3, 1), format="ab"),
        "strides and format each specify the order of the axes: give one of them",
    ),
    (
        lambda: MemoryDesc((R, 3), "f32").bind((2, 3), format="aB4b"),
        "format aB4b has other inner blocks than the descriptor: give its own",
    ),
    (
        lambda: MemoryDesc((R, 3), "f32").bind((2, 3), format="abc"),
        "format tag abc places 3 axes, dims (2, 3) have 2",
    ),
    (lambda: MemoryDesc((R, 3), "f32").bind((-2, 3)), "dim 0 is -2: dims are 0 or more"),
    (
        lambda: MemoryDesc((2, 3), "f32", "any").bind((2, 3)),
        "bind needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_a_refusal_says_why(call: Callable[[], object], text: str) -> None:
    with pytest.raises(InlayError) as caught:
        call()
    assert str(caught.value) == text


def test_allow_empty() -> None:
    unbound = MemoryDesc((R, 3), "f32")
    assert unbound.bind((2,), allow_empty=True).is_zero
    assert unbound.bind((2, 3), format="nonsense", allow_empty=True).is_zero
    assert MemoryDesc.host_scalar("boolean", allow_empty=True).is_zero
    assert MemoryDesc.from_layout(Layout.from_strides((4, 4), (2**63, 1)), "f32", allow_empty=True).is_zero


def test_what_no_offset_can_count_is_refused() -> None:
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc.from_layout(Layout.from_strides((4, 1), (1, 2**70)), "f32")
    assert str(caught.value) == ("axis 1 (b) has a stride or extent of 1180591620717411303424: both fit in 64 bits")


@pytest.mark.parametrize("dims", [(0, 1, 4, 3), (0, 2, 2, 3)])
def test_strides_do_not_wrap(dims: Dims) -> None:
    """Intended difference: no rule bounds the strides of a tensor without elements, and the library's wrap."""
    with pytest.raises(InvalidArguments) as caught:
        MemoryDesc((0, 4, 3), "f32", strides=(1, 2**62, 2**61)).reshape(dims)
    assert "has a stride or extent of" in str(caught.value)
