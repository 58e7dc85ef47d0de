"""Extras of int8 weights: flags, masks and sizes, compared with oneDNN, and their properties."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import inlay
from inlay.data_type import DATA_TYPES
from inlay.descriptor import Extras, MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
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


def test_masks_select_padded_dims() -> None:
    assert MemoryDesc((17, 15, 3, 3), "s8", "ABcd4b16a4b", extras=S8S8).size == 32 * 16 * 9 + 4 * 32


def test_no_elements_and_runtime_have_no_room_for_extras() -> None:
    assert MemoryDesc((0, 4), "s8", extras=S8S8).size == 0
    assert MemoryDesc((RUNTIME, 4), "s8", extras=S8S8).size == 2**63


# Against the library


def draw_flagged(choose: Choices) -> tuple[MemoryDesc, MemoryDesc]:
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


@live
def test_equality_and_size_are_the_librarys() -> None:
    choose, seen = Seeded(5), Counter[bool]()
    for one, two in [draw_flagged(choose) for _ in range(800)]:
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
    descs = [draw_flagged(choose)[0] for _ in range(400)]
    for desc, text in zip(descs, onednn.texts([mirror_with_extras(d) for d in descs]), strict=True):
        if text is not None:
            start = 0 if MODERN else 5
            assert str(desc).split(":")[start:] == text.split(":")[start:]
            seen += 1
    assert seen > 50


def mirror_with_extras(desc: MemoryDesc) -> onednn.Desc:
    return poked.flagged(onednn.mirror(desc), desc.extras)


@live
def test_views_of_flagged_descriptors_are_the_librarys() -> None:
    choose, seen = Seeded(6), Counter[Any]()
    for desc in [draw_flagged(choose)[0] for _ in range(300)]:
        same = tuple(range(desc.ndims))
        for view in ("reshape", "permute_axes"):
            argument = desc.dims if view == "reshape" else same
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
@given(strategy(draw_flagged)())
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


@given(extras(4, gpu=True))
def test_repr_is_the_call(wanted: Extras) -> None:
    assert eval(repr(wanted), {"Extras": Extras}) == wanted
    desc = with_extras(WEIGHTS, wanted)
    names = {"MemoryDesc": MemoryDesc, "Extras": Extras}
    assert eval(repr(desc), names) == desc


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
        wanted = Extras(flags, 1 if flags & 5 else 0, asymmetric_mask=1 if flags & 8 else 0)
        desc = with_extras(WEIGHTS, wanted)
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


# Refusals, whole texts

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Extras(256), "flags is 256: give an integer from 0 to 255"),
    (lambda: Extras(True), "flags is True: give an integer from 0 to 255"),
    (lambda: Extras(64), "flags 64 have 64, which refines 32: set both"),
    (lambda: Extras(160), "flags 160 have 128, which refines 32 and 64: set all three"),
    (lambda: Extras(1), "compensation_mask is missing: flag 1 or 4 needs the axes that have numbers, such as 0b1"),
    (lambda: Extras(8, compensation_mask=1), "compensation_mask is 1, but flags 8 do not have 1 or 4: leave it out"),
    (lambda: Extras(1, 1, asymmetric_mask=1), "asymmetric_mask is 1, but flags 1 do not have 8: leave it out"),
    (lambda: Extras(1, compensation_mask=-1), "compensation_mask is -1: give an integer from 0 to 4095"),
    (lambda: Extras(1, compensation_mask=1.0), "compensation_mask is 1.0: give an integer from 0 to 4095"),  # type: ignore[arg-type]
    (lambda: Extras(1, 1, 0.5), "scale_adjust is 0.5, but flags 1 do not have 2: leave it out"),
    *[
        (
            lambda scale=scale: Extras(2, scale_adjust=scale),
            f"scale_adjust is {scale!r}: give a positive number that an f32 can hold",
        )
        for scale in (0, -1.0, float("nan"), float("inf"), 1e39, 1e-50, True, "1", None, 10**50)
    ],
    (
        lambda: Extras(2, scale_adjust=10**400),
        "scale_adjust is an integer of 1329 bits: give a positive number that an f32 can hold",
    ),
    (
        lambda: Extras(32, gpu_geometry=(1, 2)),
        "gpu_geometry is (1, 2): give a tuple of 12 integers, or none",
    ),
    (
        lambda: Extras(32, gpu_geometry=(1.5,) * 12),  # type: ignore[arg-type]
        "gpu_geometry[0] is 1.5: give an integer from 0 to 9223372036854775807",
    ),
    (lambda: Extras(gpu_nbytes=4), "gpu_geometry and gpu_nbytes belong to flag 32, which flags 0 lack"),
    (
        lambda: MemoryDesc((2, 3), "s8", extras=Extras(1, compensation_mask=4)),
        "compensation_mask 0b100 selects axis 2: 2 dims have axes 0..1",
    ),
    (
        lambda: MemoryDesc((2, 3), "s8", extras=Extras(8, asymmetric_mask=8)),
        "asymmetric_mask 0b1000 selects axis 3: 2 dims have axes 0..1",
    ),
    (
        lambda: Extras(32, gpu_nbytes=2**63),
        "gpu_nbytes is 9223372036854775808: give an integer from 0 to 9223372036854775807",
    ),
    (
        lambda: MemoryDesc((2, 3), "s8", "any", extras=S8S8),
        "extras follow the elements of a layout, and the format any has no layout yet",
    ),
    (
        lambda: MemoryDesc((2, 3), "s8", extras=1),  # type: ignore[arg-type]
        "extras is 1: give inlay.Extras(flags=1, compensation_mask=1) or the like",
    ),
    (
        lambda: with_extras(WEIGHTS, S8S8).reshape((32, 144)),
        "reshape needs elements alone: MemoryDesc((32, 16, 3, 3), 's8', 'ABcd4b16a4b', extras=Extras(flags=1, "
        "compensation_mask=0b1)) has buffers or factors that belong to its axes; describe the weights without extras, "
        "and fill them last",
    ),
    (
        lambda: with_extras(WEIGHTS, S8S8).permute_axes((1, 0, 2, 3)),
        "permute_axes needs elements alone: MemoryDesc((32, 16, 3, 3), 's8', 'ABcd4b16a4b', extras=Extras(flags=1, "
        "compensation_mask=0b1)) has buffers or factors that belong to its axes; describe the weights without extras, "
        "and fill them last",
    ),
    (
        lambda: MemoryDesc((2, 3), "s8", extras=Extras(32)).reshape((6,)),
        "reshape needs elements alone: MemoryDesc((2, 3), 's8', 'ab', extras=Extras(flags=32)) has buffers or factors "
        "that belong to its axes; describe the weights without extras, and fill them last",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_a_refusal_says_why(call: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        call()
    assert str(caught.value) == text


def test_the_zero_descriptor_takes_the_place_of_every_error() -> None:
    assert MemoryDesc((2, 3), "s8", extras=Extras(1, compensation_mask=4), allow_empty=True).is_zero
    layout, _ = WEIGHTS.require_layout("a test")
    assert MemoryDesc.from_layout(layout, "s8", extras=Extras(1, compensation_mask=64), allow_empty=True).is_zero


PLAIN = MemoryDesc((32, 16), "s8", "ab")


@pytest.mark.parametrize(
    ("src", "dst", "text"),
    [
        (
            PLAIN,
            with_extras(PLAIN, Extras(4, compensation_mask=1)),
            "the destination has extras of an RNN or a GPU (Extras(flags=4, compensation_mask=0b1)), which a reorder "
            "does not compute: give it flags 1, 2 and 8 only",
        ),
        (
            PLAIN,
            with_extras(MemoryDesc((32, 16), "s4", "ab"), S8S8),
            "compensation is a sum of s8 weights, and the destination is s4: make it s8",
        ),
        (
            MemoryDesc((16, 16), "s8", "ab"),
            with_extras(PLAIN, S8S8).submemory((16, 16), (16, 0)),
            "elements of the destination reach byte 512, and its compensation starts at byte 256: reorder to the whole "
            "tensor, not to a part of it",
        ),
        (
            with_extras(PLAIN, Extras(2, scale_adjust=0.5)),
            PLAIN,
            "the weights of the source were multiplied by 0.5, which a reorder does not undo: describe it without "
            "extras",
        ),
    ],
)
def test_extras_that_a_reorder_does_not_compute(src: MemoryDesc, dst: MemoryDesc, text: str) -> None:
    with pytest.raises(Unimplemented) as caught:
        inlay.Reorder(src, dst)
    assert str(caught.value) == text
