"""Extras of int8 weights: flags, masks and sizes, compared with oneDNN, and their properties.

Their errors are in golden/mistakes/descriptors.txt.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME
from inlay.memory import Memory, reorder
from inlay.testing import descriptors, draw_blocked, draw_extras, extras, strategy
from inlay.testing.cases import Scope
from inlay.testing.choices import Choices, Seeded
from tests.oracles import extras as poked
from tests.oracles import onednn

LIVE = onednn.why_unavailable() is None
MODERN = LIVE and onednn.version() >= (3, 13)
live = pytest.mark.skipif(not LIVE, reason=str(onednn.why_unavailable()))

WEIGHTS = MemoryDesc((32, 16, 3, 3), "s8", "OIhw4i16o4i")
S8S8 = Extras(flags=1, compensation_mask=1)


def with_extras(desc: MemoryDesc, wanted: Extras) -> MemoryDesc:
    layout, data_type = desc.require_layout("extras")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0, extras=wanted)


# Sizes


@pytest.mark.parametrize(
    ("wanted", "behind"),
    [
        (Extras(), {}),
        (S8S8, {1: 4 * 17}),
        (Extras(1, compensation_mask=3), {1: 4 * 17 * 15}),
        (Extras(2, scale_adjust=0.5), {}),
        (Extras(4, compensation_mask=2), {4: 4 * 15}),
        (Extras(8, asymmetric_mask=1), {8: 4 * 17}),
        (Extras(16), {}),
        (Extras(32, gpu_nbytes=40), {32: 40}),
        (Extras(13, compensation_mask=2, asymmetric_mask=1), {1: 60, 4: 60, 8: 68}),
    ],
)
def test_numbers_lie_behind_the_elements_in_the_order_of_flags(wanted: Extras, behind: dict[int, int]) -> None:
    desc = MemoryDesc((17, 15, 3, 3), "s8", extras=wanted)
    assert list(wanted.buffer_sizes(desc.padded_dims).items()) == list(behind.items())
    elements = 17 * 15 * 9
    assert desc.size == (elements + (-elements % 4 if behind else 0) + sum(behind.values()))


def test_masks_select_padded_dims_and_no_elements_and_runtime_have_no_room_for_extras() -> None:
    assert MemoryDesc((17, 15, 3, 3), "s8", "ABcd4b16a4b", extras=S8S8).size == 32 * 16 * 9 + 4 * 32
    assert MemoryDesc((0, 4), "s8", extras=S8S8).size == 0
    assert MemoryDesc((RUNTIME, 4), "s8", extras=S8S8).size == 2**63


# Against the library


def draw_pair(choose: Choices) -> tuple[MemoryDesc, MemoryDesc]:
    """Two descriptors whose extras differ in nothing, in one field, or in anything."""
    types = [DATA_TYPES[name] for name in ("s8", "u8", "f32", "bf16")]
    desc = draw_blocked(choose, Scope(data_types=types))
    first = draw_extras(choose, desc.ndims, gpu=MODERN)
    near = [first, draw_extras(choose, desc.ndims, gpu=MODERN)]
    near += [replace(first, scale_adjust=0.125)] if first.flags & 2 else []
    near += [replace(first, compensation_mask=1)] if first.flags & 5 else []
    near += [replace(first, asymmetric_mask=1)] if first.flags & 8 else []
    near += [replace(first, gpu_nbytes=400)] if first.flags & 32 else []
    near += [replace(first, gpu_geometry=(7,) * 12)] if first.flags & 32 else []
    second = choose.pick(near)
    return with_extras(desc, first), with_extras(desc, second)


def mirror_with_extras(desc: MemoryDesc) -> onednn.Desc:
    return poked.flagged(onednn.mirror(desc), desc.extras)


@live
def test_equality_and_size_are_the_librarys() -> None:
    choose, seen = Seeded(5), Counter[bool]()
    for one, two in [draw_pair(choose) for _ in range(800)]:
        # 3.2 leaves the fields of other flags out of account where flag 16 is set, and counts buffers several times.
        if MODERN or not (one.extras.flags | two.extras.flags) & 16:
            assert (one == two) == (mirror_with_extras(one) == mirror_with_extras(two)), (one, two)
            seen[one == two] += 1
        if MODERN:
            assert one.size == mirror_with_extras(one).size, one
    assert min(seen[True], seen[False]) > 50


@live
def test_text_is_the_librarys() -> None:
    """3.2 sorts axes of equal strides otherwise: there only the part of the extras is compared."""
    choose, seen = Seeded(7), 0
    descs = [draw_pair(choose)[0] for _ in range(400)]
    for desc, text in zip(descs, onednn.texts([mirror_with_extras(d) for d in descs]), strict=True):
        if text is not None:
            start = 0 if MODERN else 5
            assert str(desc).split(":")[start:] == text.split(":")[start:]
            seen += 1
    assert seen > 50


@live
def test_views_of_flagged_descriptors_are_the_librarys() -> None:
    choose, seen = Seeded(6), Counter[Any]()
    for desc in [draw_pair(choose)[0] for _ in range(300)]:
        for view, argument in (("reshape", desc.dims), ("permute_axes", tuple(range(desc.ndims)))):
            theirs = status_of(onednn.Refused, getattr(mirror_with_extras(desc), view), argument)
            assert status_of(InvalidArguments, getattr(desc, view), argument) == theirs
            seen[view, theirs] += 1
    assert seen["reshape", "invalid_arguments"] == 300
    assert seen["permute_axes", "invalid_arguments"] > 50
    assert not MODERN or seen["permute_axes", None] > 50


def status_of(error: type[Exception], call: Callable[..., object], *arguments: object) -> Any:
    try:
        call(*arguments)
    except error as refused:
        return refused.status  # type: ignore[attr-defined]
    return None


@live
@settings(max_examples=100, deadline=None)
@given(strategy(draw_pair)())
def test_a_submemory_keeps_the_extras(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    desc = pair[0]
    part = desc.submemory(desc.dims, (0,) * desc.ndims)
    assert part.extras == desc.extras
    assert mirror_with_extras(desc).submemory(desc.dims, (0,) * desc.ndims) == mirror_with_extras(part)


# Laws


@given(descriptors(), st.data())
def test_extras_are_part_of_the_value(desc: MemoryDesc, data: st.DataObject) -> None:
    wanted = data.draw(extras(desc.ndims, gpu=True))
    layout, data_type = desc.require_layout("extras")
    # Some views of 4-bit elements have odd strides, which no constructor takes.
    assume(not MemoryDesc.from_layout(layout, data_type, dims=desc.dims, allow_empty=True).is_zero)
    flagged = with_extras(desc, wanted)
    assert flagged != desc
    assert not flagged.equivalent(desc)
    assert flagged == with_extras(desc, wanted)
    assert hash(flagged) == hash(with_extras(desc, wanted))
    assert flagged.tag is None
    assert str(flagged).endswith(f":{wanted}")
    assert eval(repr(wanted), {"Extras": Extras}) == wanted


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (Extras(), "f0"),
        (Extras(2), "f2"),
        (Extras(3, compensation_mask=1, scale_adjust=0.5), "f3:s8m1:sa0.5"),
        (Extras(9, compensation_mask=3, asymmetric_mask=1), "f9:s8m3:zpm1"),
        (Extras(2, scale_adjust=1e-7), "f2:sa1e-07"),
        (Extras(2, scale_adjust=1 / 3), "f2:sa0.333333"),
        (
            Extras(34, scale_adjust=2, gpu_geometry=tuple(range(12)), gpu_nbytes=8),
            "f34:zid0:zih1:ziw2:zod3:zoh4:zow5:zpd6:zph7:zpw8:zdd9:zdh10:zdw11:zs8:sa2",
        ),
    ],
)
def test_text(wanted: Extras, text: str) -> None:
    assert str(wanted) == text


def test_axes_may_be_relabeled_under_the_gpus_flags_only() -> None:
    for flags in range(256):
        if (flags & 64 and not flags & 32) or (flags & 128 and not flags & 64):
            continue
        desc = with_extras(WEIGHTS, Extras(flags, int(flags & 5 > 0), asymmetric_mask=int(flags & 8 > 0)))
        allowed = flags in (0, 32, 96, 224)
        answer = status_of(InvalidArguments, desc.permute_axes, (1, 0, 2, 3))
        assert answer == (None if allowed else "invalid_arguments")
        if allowed:
            assert desc.permute_axes((1, 0, 2, 3)).extras == desc.extras


def test_memory_has_room_for_extras_and_a_reorder_leaves_them_alone() -> None:
    desc = with_extras(WEIGHTS, S8S8)
    memory = Memory(desc)
    assert memory.buffer.size == desc.size == 4608 + 128
    assert memory.end - memory.begin == desc.size
    with pytest.raises(InvalidArguments, match=r"buffer of 4608 bytes is too small: .* reaches 4736 bytes"):
        Memory(desc, np.zeros(4608, np.uint8))
    memory.buffer[:4608] = np.arange(4608) % 100
    plain = Memory(WEIGHTS, memory.buffer)
    assert np.array_equal(memory.unpack(), plain.unpack())
    assert np.array_equal(reorder(memory, "abcd").unpack(), plain.unpack())


def test_the_zero_descriptor_takes_the_place_of_every_error() -> None:
    assert MemoryDesc((2, 3), "s8", extras=Extras(1, compensation_mask=4), allow_empty=True).is_zero
    layout, _ = WEIGHTS.require_layout("a test")
    assert MemoryDesc.from_layout(layout, "s8", extras=Extras(1, compensation_mask=64), allow_empty=True).is_zero
