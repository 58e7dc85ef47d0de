"""Whatever a descriptor is asked, it answers as the real oneDNN does.

Every case is run by both. They must give the same status and, where they succeed, the same dims, padding, strides,
inner blocks, offset and size. The library that is loaded may be 3.2 (`onednn-cpu-gomp`) or 3.13 (`onednn`); where 3.2
answers otherwise than its successors, `MODERN` below limits what is compared. What Inlay answers otherwise on purpose
is one test each under "intended differences". INLAY_PARITY_EXAMPLES sets the number of cases of each test.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from oracles import onednn

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.format_tag import ENUMERATED, FormatTag
from inlay.layout import RUNTIME, Dims
from inlay.testing import descriptors, format_tags

pytestmark = [
    pytest.mark.skipif(onednn.why_unavailable() is not None, reason=str(onednn.why_unavailable())),
    pytest.mark.parity,
]

TYPES = [] if onednn.why_unavailable() else [t for t in DATA_TYPES.values() if onednn.knows(t.code)]
MODERN = not onednn.why_unavailable() and onednn.version() >= (3, 13)
"""Whether the library is the one whose every answer counts."""

many = settings(
    max_examples=int(os.environ.get("INLAY_PARITY_EXAMPLES", "300")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

Answer = tuple[str, dict[str, Any]]
DIM = st.one_of(st.integers(1, 6), st.sampled_from((0, 1, 2, 8, 12, 16, 17, 31, 32)))
HUGE = st.integers(20, 62).map(lambda n: 2**n)


def facts(desc: MemoryDesc | onednn.Desc) -> dict[str, Any]:
    """What both kinds of descriptors can be asked."""
    answers: dict[str, Any] = {
        "kind": desc.kind,
        "dims": desc.dims,
        "padded_dims": desc.padded_dims,
        "padded_offsets": desc.padded_offsets,
        "offset0": desc.offset0,
    }
    if desc.kind == "blocked":
        answers |= {"strides": desc.strides, "inner_blocks": desc.inner_blocks}
    # 3.2 answers 0 for every submemory that does not start at the origin.
    if MODERN or desc.offset0 == 0:
        answers["size"] = desc.size % 2**64  # See `test_sizes_do_not_wrap`.
    return answers


def ours(make: Callable[[], MemoryDesc]) -> Answer:
    try:
        return "success", facts(make())
    except InlayError as error:
        return str(error.status), {}


def theirs(make: Callable[[], onednn.Desc]) -> Answer:
    try:
        return "success", facts(make())
    except onednn.Refused as refused:
        return refused.status, {}


def run_reaching(check: Callable[[], None], seen: Counter[str], **least: int) -> None:
    """Run a property and hold that its cases got each of these answers in at least so many of a hundred cases."""
    check()
    total = sum(seen.values())
    for status, percent in least.items():
        assert 100 * seen[status] >= percent * total, f"only {seen} of {total} cases"


def _known_tags() -> list[str]:
    """The tags whose code the library knows: 3.2 has fewer, and other codes for some."""
    if onednn.why_unavailable():
        return []
    if MODERN:
        return list(ENUMERATED)
    known = []
    for text, code in ENUMERATED.items():
        dims = (3,) * FormatTag.parse(text).ndims
        try:
            if onednn.by_tag(dims, 3, code) == onednn.by_string_tag(dims, 3, text):
                known.append(text)
        except onednn.Refused:
            continue
    return known


KNOWN_TAGS = _known_tags()


def _dims_of(n: int, dims: Dims) -> Dims:
    """The first `n` of `dims`, 2s where they end."""
    return (dims + (2,) * n)[:n]


@pytest.mark.parametrize("dims", [(17, 3, 5, 9, 2, 3), (1, 33, 1, 2, 1, 1)])
def test_every_enumerated_tag_gives_the_librarys_layout(dims: Dims) -> None:
    """On dims that need padding."""
    for text in ENUMERATED:
        shape = _dims_of(FormatTag.parse(text).ndims, dims)
        assert facts(MemoryDesc(shape, "f32", text)) == facts(onednn.by_string_tag(shape, 3, text)), text


def test_every_known_tag_gives_the_librarys_layout_when_a_dim_is_0() -> None:
    assert len(KNOWN_TAGS) > 750
    for text in KNOWN_TAGS:
        dims = _dims_of(FormatTag.parse(text).ndims, (3, 0, 33, 1, 2, 1))
        assert facts(MemoryDesc(dims, "f32", text)) == facts(onednn.by_tag(dims, 3, ENUMERATED[text])), text


def test_sizes_of_elements() -> None:
    for data_type in TYPES:
        assert data_type.itemsize == onednn.data_type_size(data_type.code)


def test_create_by_tag() -> None:
    seen: Counter[str] = Counter()

    @many
    @given(st.data())
    def check(data: st.DataObject) -> None:
        text = data.draw(st.sampled_from(KNOWN_TAGS))
        data_type = data.draw(st.sampled_from(TYPES))
        tag = FormatTag.parse(text)
        odd = st.one_of(DIM, DIM, DIM, DIM, st.sampled_from((RUNTIME, -1)), HUGE if MODERN else DIM)
        dims = tuple(data.draw(st.lists(odd, min_size=tag.ndims, max_size=tag.ndims)))
        # Where counts and blocks wrap, the library divides by zero: see `test_huge_tags_are_refused`.
        known = [max(1, -(-max(0, dim) // tag.blocks(i))) * tag.blocks(i) for i, dim in enumerate(dims)]
        assume(prod(known) < 2**63)
        mine = ours(lambda: MemoryDesc(dims, data_type, text))
        assert mine == theirs(lambda: onednn.by_tag(dims, data_type.code, ENUMERATED[text]))
        seen[mine[0]] += 1

    run_reaching(check, seen, success=20, invalid_arguments=3)


def test_create_with_any_or_the_wrong_number_of_letters() -> None:
    codes = {"any": onednn.TAG_ANY, "undef": onednn.TAG_UNDEF, "abcd": ENUMERATED["abcd"]}

    @many
    @given(
        st.lists(st.one_of(DIM, st.sampled_from((RUNTIME, -1))), max_size=13),
        st.sampled_from(TYPES),
        st.sampled_from(sorted(codes)),
    )
    def check(dims: list[int], data_type: DataType, text: str) -> None:
        mine = ours(lambda: MemoryDesc(dims, data_type, text))
        assert mine == theirs(lambda: onednn.by_tag(dims, data_type.code, codes[text]))

    check()


@st.composite
def strides_for(draw: st.DrawFn, dims: Dims, data_type: DataType) -> list[int]:
    """Nested strides with gaps, of which some cases are then spoiled."""
    strides, need = [0] * len(dims), 1
    for i in draw(st.permutations(range(len(dims)))):
        stride = need + draw(st.sampled_from((0, 0, 0, 1, 2, 5)))
        if data_type.is_sub_byte and stride > 1 and draw(st.integers(0, 9)):
            stride += stride % 2
        strides[i], need = stride, min(stride * max(1, dims[i]), 2**62)
    if draw(st.booleans()):
        spoiled = st.one_of(st.integers(-1, 12), st.just(0), st.just(RUNTIME), HUGE if MODERN else st.just(3))
        strides[draw(st.integers(0, len(dims) - 1))] = draw(spoiled)
    return strides


def test_create_by_strides() -> None:
    seen: Counter[str] = Counter()

    @many
    @given(st.data())
    def check(data: st.DataObject) -> None:
        odd = st.one_of(DIM, DIM, DIM, DIM, DIM, st.sampled_from((RUNTIME, -1)), HUGE if MODERN else DIM)
        dims = tuple(data.draw(st.lists(odd, min_size=1, max_size=6)))
        data_type = data.draw(st.sampled_from(TYPES))
        strides = data.draw(st.one_of(st.none(), strides_for(dims, data_type), strides_for(dims, data_type)))
        # See `test_default_strides_left_of_a_runtime_dim`.
        assume(strides is not None or dims[-1] != RUNTIME)
        mine = ours(lambda: MemoryDesc(dims, data_type, strides=strides))
        assert mine == theirs(lambda: onednn.by_strides(dims, data_type.code, strides))
        seen[mine[0]] += 1

    run_reaching(check, seen, success=20, invalid_arguments=5)


@st.composite
def blocked(draw: st.DrawFn) -> MemoryDesc:
    """A descriptor that oneDNN can say, a part of another one among them."""
    desc = draw(descriptors(data_type=draw(st.sampled_from(TYPES)), broadcast=True))
    assume(desc.kind == "blocked")
    return desc


def test_mirrored_descriptors_have_the_same_size() -> None:
    @many
    @given(blocked())
    def check(desc: MemoryDesc) -> None:
        assert facts(desc) == facts(onednn.mirror(desc))

    check()


def test_submemory() -> None:
    seen: Counter[str] = Counter()

    @many
    @given(blocked(), st.data())
    def check(desc: MemoryDesc, data: st.DataObject) -> None:
        dims, offsets = [], []
        for dim, axis in zip(desc.dims, desc.layout.axes, strict=True):  # type: ignore[union-attr]
            whole = axis.block * data.draw(st.integers(0, dim // axis.block))
            offset = data.draw(st.sampled_from((0, whole, whole, data.draw(st.integers(-1, dim)))))
            size = data.draw(st.sampled_from((dim - offset, dim - offset, axis.block, data.draw(st.integers(0, dim)))))
            offsets.append(offset)
            dims.append(size)
        mine = ours(lambda: desc.submemory(dims, offsets))
        assert mine == theirs(lambda: onednn.mirror(desc).submemory(dims, offsets))
        seen[mine[0]] += 1

    run_reaching(check, seen, success=5, invalid_arguments=5, unimplemented=1)


def _factors(n: int) -> list[int]:
    return [d for d in (2, 3, 5, 7) if n % d == 0 and n > d]


@st.composite
def reshapes_of(draw: st.DrawFn, dims: Dims) -> Dims:
    """New dims: axes split, joined, unit axes dropped and inserted, sometimes out of order or of another volume."""
    new: list[int] = []
    for dim in dims:
        if dim == 1 and draw(st.booleans()):
            continue
        if _factors(dim) and draw(st.integers(0, 3)) == 0:
            factor = draw(st.sampled_from(_factors(dim)))
            new += draw(st.permutations([factor, dim // factor]))
        else:
            new.append(dim)
    i = 0
    while i + 1 < len(new):
        if draw(st.integers(0, 4)) == 0:
            new[i : i + 2] = [new[i] * new[i + 1]]
        else:
            i += 1
    for _ in range(draw(st.integers(0, 2))):
        new.insert(draw(st.integers(0, len(new))), 1)
    if draw(st.integers(0, 19)) == 0:
        new = list(draw(st.permutations(new)))
    if new and draw(st.integers(0, 19)) == 0:
        new[0] += 1
    return tuple(new)


def _keeps_a_stray_block(desc: MemoryDesc, result: dict[str, Any]) -> bool:
    """Whether a block of the result belongs to no axis of it: see `test_a_blocked_axis_is_neither_dropped_nor_joined`.

    It does where the axis was a unit axis, or where a tensor with that block does not reach the bytes of `desc`.
    """
    if any(desc.dims[axis] == 1 for axis, _ in desc.inner_blocks):
        return True
    blocks, dims = result["inner_blocks"], result["dims"]
    if any(axis >= len(dims) for axis, _ in blocks):
        return True
    return _offsets(dims, result["strides"], blocks) != _offsets(desc.dims, desc.strides, desc.inner_blocks)


def _offsets(dims: Dims, strides: Dims, blocks: Sequence[tuple[int, int]]) -> list[int]:
    """Where each element of a blocked tensor lies, by oneDNN's formula."""
    x = np.indices(dims, dtype=np.int64).reshape(len(dims), -1).T.copy()
    total, step = np.zeros(len(x), np.int64), 1
    for axis, size in reversed(blocks):
        total += x[:, axis] % size * step
        x[:, axis] //= size
        step *= size
    return list((total + x @ np.array(strides, np.int64)).tolist())


def test_reshape() -> None:
    seen: Counter[str] = Counter()

    @many
    @given(blocked(), st.data())
    def check(desc: MemoryDesc, data: st.DataObject) -> None:
        dims = data.draw(reshapes_of(desc.dims))
        mine = ours(lambda: desc.reshape(dims))
        real = theirs(lambda: onednn.mirror(desc).reshape(dims))
        if real[0] == "success" != mine[0] and _keeps_a_stray_block(desc, real[1]):
            with pytest.raises(InlayError, match="in blocks of"):
                desc.reshape(dims)
            return
        assert mine == real
        seen[mine[0]] += 1

    run_reaching(check, seen, success=10, invalid_arguments=5)


def test_reshape_of_any() -> None:
    @many
    @given(st.lists(st.one_of(DIM, st.just(0)), min_size=1, max_size=5).map(tuple), st.data())
    def check(dims: Dims, data: st.DataObject) -> None:
        new = data.draw(reshapes_of(dims))
        mine = ours(lambda: MemoryDesc(dims, "f32", "any").reshape(new))
        assert mine == theirs(lambda: onednn.by_tag(dims, 3, onednn.TAG_ANY).reshape(new))

    check()


def test_permute_axes() -> None:
    seen: Counter[str] = Counter()

    @many
    @given(blocked(), st.data())
    def check(desc: MemoryDesc, data: st.DataObject) -> None:
        permutation = list(data.draw(st.permutations(range(desc.ndims))))
        if data.draw(st.integers(0, 4)) == 0:
            permutation[0] = data.draw(st.integers(-1, desc.ndims))
        mine = ours(lambda: desc.permute_axes(permutation))
        assert mine == theirs(lambda: onednn.mirror(desc).permute_axes(permutation))
        seen[mine[0]] += 1

    run_reaching(check, seen, success=20, invalid_arguments=1)


def test_equality() -> None:
    """Of descriptors that differ in nothing, in strides that do not count, or in one thing that does."""
    seen: Counter[str] = Counter()

    @many
    @given(blocked(), st.data())
    def check(desc: MemoryDesc, data: st.DataObject) -> None:
        other = data.draw(_near(desc))
        equal = desc == other
        assert equal == (onednn.mirror(desc) == onednn.mirror(other))
        if equal:
            assert hash(desc) == hash(other)
        seen["equal" if equal else "different"] += 1

    run_reaching(check, seen, equal=5, different=5)


@st.composite
def _near(draw: st.DrawFn, desc: MemoryDesc) -> MemoryDesc:
    """The descriptor again, or one that differs in a stride, the type, the padding, the offset or the spelling."""
    layout, data_type = desc.require_layout("a change")
    change = draw(st.sampled_from(("nothing", "nothing", "stride", "stride", "type", "blocks", "reshaped")))
    if change == "reshaped":
        return desc.reshape(desc.dims, allow_empty=True)
    if change == "type":
        wide = st.sampled_from([t for t in TYPES if not t.is_sub_byte])
        return MemoryDesc.from_layout(layout, draw(wide), dims=desc.dims, offset0=desc.offset0)
    if change == "blocks":
        return MemoryDesc(desc.dims, data_type, strides=desc.strides, allow_empty=True)
    if change == "stride":
        i = draw(st.integers(0, desc.ndims - 1))
        axes = list(layout.axes)
        axes[i] = type(axes[i])(axes[i].stride + draw(st.integers(0, 9)), axes[i].inner)
        layout = type(layout)(layout.dims, tuple(axes))
    try:
        return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0)
    except InlayError:
        return desc


@st.composite
def _with_plain_strides(draw: st.DrawFn) -> MemoryDesc:
    """By a tag, or half of such a tensor: no two strides are equal and none is 0, where 3.2 sorts axes otherwise."""
    tag = draw(format_tags())
    blocks = [tag.blocks(i) for i in range(tag.ndims)]
    dims = tuple(2 * block + draw(st.sampled_from((0, 2))) for block in blocks)
    desc = MemoryDesc(dims, draw(st.sampled_from(("f32", "bf16", "s8"))), tag)
    half = tuple(block if draw(st.booleans()) else dim for block, dim in zip(blocks, dims, strict=True))
    return desc.submemory(half, (0,) * len(half)) if 1 not in half else desc


def test_text() -> None:
    """The form of the verbose log, wherever a reorder of the descriptor to itself is logged."""
    seen: Counter[str] = Counter()

    @settings(many, max_examples=many.max_examples // 3)
    @given(st.one_of(_with_plain_strides(), blocked()) if MODERN else _with_plain_strides())
    def check(desc: MemoryDesc) -> None:
        try:
            text = onednn.text(onednn.mirror(desc))
        except onednn.Refused:
            seen["refused"] += 1
            return
        assert str(desc) == text
        seen["success"] += 1

    run_reaching(check, seen, success=10)


# Intended differences: each is one rule, with what the library does beside it.


def test_huge_tags_are_refused() -> None:
    """The library divides by zero there and the process dies."""
    status, _ = ours(lambda: MemoryDesc((1, 2**62), "bf16", "AB16b16a2b"))
    assert status == "invalid_arguments"


def test_volumes_that_wrap_are_refused_though_a_dim_is_0() -> None:
    dims, tag = (2**29, 0, 2**27, 1, 12), "aBCde16c16b4c"
    assert ours(lambda: MemoryDesc(dims, "f64", tag))[0] == "invalid_arguments"
    if MODERN:
        assert theirs(lambda: onednn.by_tag(dims, 7, ENUMERATED[tag]))[0] == "success"


def test_default_strides_left_of_a_runtime_dim() -> None:
    """They are RUNTIME; the library multiplies the placeholder like a number, which wraps to 0."""
    assert MemoryDesc((2, 4, RUNTIME), "f32").strides == (RUNTIME, RUNTIME, 1)
    assert onednn.by_strides((2, 4, RUNTIME), 3, None).strides == (0, RUNTIME, 1)


def test_a_blocked_axis_is_neither_dropped_nor_joined() -> None:
    """The library looks for blocks in the first axis of a run only, and keeps those of another one on no axis."""
    unit = MemoryDesc((4, 8), "f32", "Ab8a").submemory((1, 8), (0, 0))
    assert onednn.mirror(unit).reshape((8,)).inner_blocks == ((0, 8),)
    with pytest.raises(InlayError, match="cannot be dropped: it lies in blocks of 8"):
        unit.reshape((8,))
    last = MemoryDesc((2, 4), "f32", "aB2b").submemory((2, 2), (0, 0))
    assert onednn.mirror(last).reshape((4,)).inner_blocks == ((1, 2),)
    with pytest.raises(InlayError, match=r"the 2 elements of axis 1 \(b\) lie in blocks of 2"):
        last.reshape((4,))


def test_offsets_do_not_wrap() -> None:
    strides = (2**62, 4, 1)
    parent = MemoryDesc((4, 0, 3), "f32", strides=strides)
    assert ours(lambda: parent.submemory((1, 0, 3), (3, 0, 0)))[0] == "invalid_arguments"
    assert onednn.by_strides((4, 0, 3), 3, strides).submemory((1, 0, 3), (3, 0, 0)).offset0 < 0


def test_sizes_do_not_wrap() -> None:
    """The library's bound lets one shape through whose bytes are just 2**64, and answers 0 for them."""
    dims = (2**31, 2**31)
    assert MemoryDesc(dims, "f32").size == 2**64
    assert onednn.by_strides(dims, 3, None).size == 0
