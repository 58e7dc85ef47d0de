"""Table lookups in machine code beside NumPy, between guard pages, with and without permutations of bytes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.engines.inlay import table_lookup
from inlay.engines.inlay.table_lookup import build_module, create_table_lookup, supports_table_lookup
from inlay.errors import Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives.engine import Operation
from inlay.reordering.target import TARGETS, assembly_of, host_target, load_permanently
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.refusals import raises_exactly
from tests.support.thread_teams import require_team

TYPES = (np.uint8, np.int8)
REMEDY = "give both the same layout, without padding; the destination may have bytes between rows of elements"
HAS_PERMUTATION = host_target().arithmetic.permute_bits == 8


def operation(src: MemoryDesc, table: Any, dst: MemoryDesc | None = None) -> Operation:
    entries = MemoryDesc((256,), table)
    result = dst or MemoryDesc(src.dims, table, "any")
    return Operation("table_lookup", "forward_inference", {"src": src, "table": entries, "dst": result})


def guarded(desc: MemoryDesc, content: Any = None) -> tuple[Memory, GuardedBuffer]:
    buffer = GuardedBuffer(desc.size)
    if content is not None:
        buffer.bytes[:] = content
    return Memory(desc, buffer.bytes), buffer


@given(
    st.sampled_from([(1,), (63,), (64,), (65,), (3, 64), (5, 7, 11), (2, 16, 9, 9), (40_000,), (33_001,)]),
    st.sampled_from(TYPES),
    st.sampled_from(TYPES),
    st.integers(1, 4),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_each_element_is_the_entry_of_its_bits(
    dims: tuple[int, ...], source: Any, result: Any, threads: int, reverse: bool, random: Any
) -> None:
    axes = "abcd"[: len(dims)]
    src = MemoryDesc(dims, source, axes[::-1] if reverse else axes)
    x = np.frombuffer(random.randbytes(src.size), np.uint8)
    table = np.frombuffer(random.randbytes(256), np.uint8)
    made = create_table_lookup(operation(src, result), require_team(), threads)
    sides = {"src": guarded(src, x), "table": guarded(made.descs["table"], table), "dst": guarded(made.descs["dst"])}
    made.bind({name: memory for name, (memory, _) in sides.items()})()
    assert all(buffer.gap_is_untouched for _, buffer in sides.values())
    np.testing.assert_array_equal(sides["dst"][1].bytes, table[x])
    assert made.descs["dst"].tag == src.tag


@given(
    st.sampled_from([(1, 32, 9, 7), (2, 5, 8, 3), (1, 64, 1, 40), (3, 200, 5, 1), (1, 96, 40, 40), (2, 1, 6, 6)]),
    st.sampled_from(["abcd", "acdb", "cdab"]),
    st.sampled_from([(0, 3), (1, 0), (5, 7), (32, 32)]),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_slices_of_channels_are_written_between_others(
    dims: tuple[int, int, int, int], tag: str, around: tuple[int, int], threads: int, random: Any
) -> None:
    src, (batch, channels, *image) = MemoryDesc(dims, "u8", tag), dims
    whole = MemoryDesc((batch, channels + sum(around), *image), "u8", tag)
    dst = whole.submemory(dims, (0, around[0], 0, 0))
    x = np.frombuffer(random.randbytes(src.size), np.uint8)
    table = np.frombuffer(random.randbytes(256), np.uint8)
    made = create_table_lookup(operation(src, "u8", dst), require_team(), threads)
    sides = {"src": guarded(src, x), "table": guarded(made.descs["table"], table), "dst": guarded(whole, 170)}
    memories = {name: memory for name, (memory, _) in sides.items()}
    made.bind({**memories, "dst": Memory(dst, sides["dst"][1].bytes)})()
    assert all(buffer.gap_is_untouched for _, buffer in sides.values())
    expected = np.full(whole.dims, 170, np.uint8)
    expected[:, around[0] : around[0] + channels] = table[Memory(src, x.copy()).unpack()]
    np.testing.assert_array_equal(memories["dst"].unpack(), expected)


@pytest.mark.parametrize("permutes", {False, HAS_PERMUTATION})
def test_the_code_of_processors_without_permutations_computes_the_same(
    permutes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = host_target()
    text = build_module(permutes, target.attributes)
    (entry,) = load_permanently(text, lambda: text, target, table_lookup.ENTRY)
    monkeypatch.setattr(table_lookup, "_compile_entry", lambda _: entry)
    x, table = np.arange(100_003) * 7 % 256, np.random.default_rng(1).integers(0, 256, 256)
    src, entries = pack(x.astype(np.uint8), "a"), pack(table.astype(np.uint8), "a")
    made = create_table_lookup(operation(src.desc, "u8"), require_team(), 2)
    dst = Memory(made.descs["dst"])
    made.bind({"src": src, "table": entries, "dst": dst})()
    np.testing.assert_array_equal(dst.unpack(), table[x])


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_target_has_code(name: str) -> None:
    target = TARGETS[name]
    permutes = target.arithmetic.permute_bits == 8
    assembly = assembly_of(build_module(permutes, target.attributes), target)
    assert ("vpermi2b" in assembly or "vpermt2b" in assembly) == permutes


def test_padding_and_other_layouts_are_refused() -> None:
    padded = MemoryDesc((1, 5, 2, 2), "u8", "aBcd8b")
    with raises_exactly(
        Unimplemented,
        f"table lookup has no {padded!r} to {padded!r}: {REMEDY}",
    ):
        create_table_lookup(operation(padded, "u8", padded), require_team(), 1)
    rows, columns = (MemoryDesc((3, 4), "u8", tag) for tag in ("ab", "ba"))
    with raises_exactly(
        Unimplemented,
        f"table lookup has no {rows!r} to {columns!r}: {REMEDY}",
    ):
        create_table_lookup(operation(rows, "u8", columns), require_team(), 1)


def test_a_part_of_an_image_is_dense_if_there_is_one_image() -> None:
    part = MemoryDesc((1, 8, 5, 5), "u8").submemory((1, 4, 5, 5), (0, 0, 0, 0))
    plain = MemoryDesc((1, 4, 5, 5), "u8")
    assert supports_table_lookup(operation(part, "u8", plain))
    assert not supports_table_lookup(
        operation(MemoryDesc((2, 8, 5, 5), "u8").submemory((2, 4, 5, 5), (0, 0, 0, 0)), "u8")
    )


def test_a_part_of_one_image_is_divided_among_threads() -> None:
    """It is one row of the whole, whose bytes follow one another."""
    src = MemoryDesc((1, 16, 32, 32), "u8")
    part = MemoryDesc((1, 64, 32, 32), "u8").submemory(src.dims, (0, 16, 0, 0))
    resolved = table_lookup._resolve_result(operation(src, "u8", part))
    assert resolved is not None
    assert resolved[1] == table_lookup._Rows(4, 4096, 4096)
