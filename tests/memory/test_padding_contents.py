"""What padding holds is part of a `Memory` and follows every operation: the statement is true after each of them.

The oracle reads each lane by `Layout.offset`, or applies the function to one element.
"""

import copy
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments
from inlay.memory import (
    UNDEFINED,
    ZERO,
    Filled,
    Memory,
    PaddingContents,
    Reorder,
    check_padding,
    fill_padding,
    map_padded,
    pack,
    poison_padding,
    reorder,
    zero_padding,
)
from inlay.memory.padding import preserves_padding
from inlay.memory.padding_contents import count_lanes, element_bytes
from inlay.testing import descriptors
from tests.memory.test_padding import BLOCKED, NIBBLES, code_at, lanes_of, typed
from tests.support.bit_patterns import random_bits, same_bits
from tests.support.refusals import raises_exactly

SOME = settings(max_examples=60)
CONTENTS = [ZERO, UNDEFINED, Filled(1), Filled(-2.0), Filled(float("nan"))]


def padded(contents: PaddingContents = ZERO, desc: MemoryDesc = BLOCKED) -> Memory:
    """Return memory whose padding holds `contents`."""
    memory = pack(np.ones(desc.dims, np.float32), desc)
    if isinstance(contents, Filled):
        fill_padding(memory, contents.value)
    else:
        poison_padding(memory)
    assert memory.padding == contents
    return memory


class TestWriting:
    @SOME
    @given(descriptors(), st.integers(0, 99), st.sampled_from([0, 1, 2, 5]))
    def test_every_lane_holds_the_value_and_every_other_bit_stays(
        self, desc: MemoryDesc, seed: int, value: int
    ) -> None:
        kind = typed(desc)
        memory = Memory(desc)
        memory.buffer[:] = np.random.default_rng(seed).integers(0, 256, memory.buffer.size)
        expected = memory.buffer.copy()
        fill_padding(memory, value)
        code = int.from_bytes(element_bytes(value, kind).tobytes(), "little")
        for offset in lanes_of(desc)[1]:
            assert code_at(memory.buffer, offset, kind) == code
            if kind.bits == 4:
                kept = int(expected[offset // 2]) & 0xF0 >> 4 * (offset % 2)
                expected[offset // 2] = kept | code << 4 * (offset % 2)
            else:
                expected[offset * kind.itemsize : (offset + 1) * kind.itemsize] = list(
                    code.to_bytes(kind.itemsize, "little")
                )
        assert memory.buffer.tobytes() == expected.tobytes()
        assert check_padding(memory, memory.padding).is_clean

    @SOME
    @given(descriptors(), st.data())
    def test_a_lane_that_differs_from_the_value_is_found(self, desc: MemoryDesc, data: st.DataObject) -> None:
        kind = typed(desc)
        coordinates, offsets = lanes_of(desc)
        memory = Memory(desc)
        fill_padding(memory, 1)
        if not offsets:
            return
        i = data.draw(st.integers(0, len(offsets) - 1))
        if kind.bits == 4:
            memory.buffer[offsets[i] // 2] ^= 2 << 4 * (offsets[i] % 2)
        else:
            memory.buffer[offsets[i] * kind.itemsize] ^= 2
        report = check_padding(memory, Filled(1))
        assert (report.dirty, [lane.coordinate for lane in report.first]) == (1, [coordinates[i]])

    def test_large_padding_is_written_and_checked_in_parts(self) -> None:
        memory = pack(np.ones((3, 17, 130, 120), np.float32), "nChw16c")
        fill_padding(memory, 3)
        offsets = memory.desc.offset(np.argwhere(np.indices(memory.desc.padded_dims)[1] >= 17))
        held = memory.buffer.view(np.float32)
        assert (held[offsets] == 3).all()
        assert check_padding(memory, Filled(3)).is_clean
        held[offsets[-1]] = 4
        report = check_padding(memory, Filled(3))
        assert (report.dirty, report.first[0].coordinate) == (1, (2, 31, 129, 119))
        assert check_padding(memory).dirty == len(offsets)
        assert np.array_equal(memory.unpack(), np.ones(memory.shape))

    @pytest.mark.parametrize("name", ["f32", "bf16", "s8", "f64"])
    @pytest.mark.parametrize("tag", ["nChw8c", "nChw16c", "nChw32c"])
    @settings(max_examples=8)
    @given(channels=st.integers(17, 40), data=st.data())
    def test_one_lane_among_many_blocks_is_found_and_data_is_not(
        self, name: str, tag: str, channels: int, data: st.DataObject
    ) -> None:
        desc = MemoryDesc((2, channels, 40, 41), name, tag)
        first = data.draw(st.integers(0, 1))
        view = Memory(desc).submemory((2 - first, channels, 40, 41), (first, 0, 0, 0))
        width = typed(desc).itemsize
        view.buffer[:] = 0xA5
        zero_padding(view)
        assert check_padding(view).is_clean
        lanes = view.desc.padded_dims[1] - channels
        if lanes:
            point = [data.draw(st.integers(0, dim - 1)) for dim in view.shape]
            point[1] = channels + data.draw(st.integers(0, lanes - 1))
            view.buffer[view.desc.offset(point) * width + max(0, width - 2)] = 1
            report = check_padding(view)
            assert (report.dirty, report.first[0].coordinate) == (1, tuple(point))

    @pytest.mark.parametrize("name", list(DATA_TYPES))
    def test_poison_is_not_zero_in_any_type(self, name: str) -> None:
        memory = pack(random_bits((5,), name), "A8a")
        values = memory.unpack()
        poison_padding(memory)
        assert (memory.padding, check_padding(memory).dirty) == (UNDEFINED, 3)
        assert same_bits(memory.unpack(), values)

    def test_the_report_names_the_value(self) -> None:
        memory = padded(Filled(1))
        memory.buffer.view(np.float32)[BLOCKED.offset((0, 17, 0, 0))] = 2
        lines = str(check_padding(memory, Filled(1))).splitlines()
        assert lines[0] == f"1 of 28 padding lanes of {BLOCKED!r} do not hold 1:"
        assert str(check_padding(padded(Filled(1)), Filled(1))) == f"clean: all 28 padding lanes of {BLOCKED!r} hold 1"
        assert check_padding(memory, UNDEFINED).is_clean


class TestStatements:
    def test_new_memory_is_zero_and_wrapped_memory_undefined_unless_stated(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bytes_ = np.zeros(BLOCKED.size, np.uint8)
        assert Memory(BLOCKED).padding == ZERO
        assert Memory(BLOCKED, bytes_).padding == UNDEFINED
        assert Memory(BLOCKED, bytes_, padding=Filled(2)).padding == Filled(2)
        assert Memory(MemoryDesc((2, 3), "f32"), np.zeros(6, np.float32)).padding == ZERO  # there is none
        monkeypatch.setenv("INLAY_POISON", "1")
        assert Memory(BLOCKED).padding == UNDEFINED
        assert pack(np.ones(BLOCKED.dims, np.float32), BLOCKED).padding == ZERO

    @pytest.mark.parametrize("contents", CONTENTS, ids=str)
    def test_copies_files_pickles_and_views_state_the_same(self, contents: PaddingContents, tmp_path: Path) -> None:
        memory = padded(contents)
        memory.save(tmp_path / "m.npz")
        copies = [memory.copy(), copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))]
        copies += [Memory.load(tmp_path / "m.npz"), memory.T, memory.reshape(1, 17, 4), memory[:, 16:]]
        for other in copies:
            assert other.padding == contents
            assert check_padding(other, contents).is_clean

    @SOME
    @given(descriptors(), st.sampled_from([0, 1, 3]))
    def test_a_file_keeps_the_value_in_every_type(self, desc: MemoryDesc, value: int) -> None:
        memory = Memory(desc)
        fill_padding(memory, value)
        with tempfile.TemporaryDirectory() as folder:
            memory.save(Path(folder) / "m.npz")
            assert Memory.load(Path(folder) / "m.npz").padding == memory.padding

    def test_a_view_and_its_memory_share_the_statement(self) -> None:
        memory = padded()
        whole, part = memory.T, memory[:, :, 1:]
        fill_padding(whole, 5)
        assert (memory.padding, part.padding) == (Filled(5), Filled(5))
        zero_padding(part)  # the rest of the lanes still holds 5
        assert (memory.padding, whole.padding) == (UNDEFINED, UNDEFINED)
        zero_padding(memory)
        assert (part.padding, whole.padding) == (ZERO, ZERO)
        zero_padding(part)
        assert memory.padding == ZERO
        assert memory[:, :8].padding == ZERO

    def test_reorders_write_zeros_and_state_it(self) -> None:
        src = padded(Filled(7))
        assert reorder(src, "nChw16c").padding == ZERO
        for run in (lambda out: reorder(src, BLOCKED, out=out), lambda out: Reorder(BLOCKED, BLOCKED)(src, out)):
            out = padded(UNDEFINED)
            run(out)
            assert out.padding == ZERO
            assert check_padding(out).is_clean

    @pytest.mark.parametrize(
        ("f", "held", "after"),
        [
            (lambda x: np.maximum(x, 0), ZERO, ZERO),
            (lambda x: np.maximum(x, 0), Filled(-2), Filled(0)),
            (np.negative, ZERO, ZERO),
            (np.exp, ZERO, Filled(1)),
            (np.exp, UNDEFINED, UNDEFINED),
            (np.sqrt, Filled(4), Filled(2)),
            (np.log, ZERO, Filled(-np.inf)),
        ],
        ids=["relu", "relu of -2", "negative", "exp", "exp of undefined", "sqrt", "log"],
    )
    @pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value", "ignore:overflow")
    def test_a_function_over_all_lanes_maps_the_statement(
        self, f: Callable[[Any], Any], held: PaddingContents, after: PaddingContents
    ) -> None:
        memory = padded(held)
        map_padded(f, memory, include_padding=True)
        assert memory.padding == after
        assert check_padding(memory, after).is_clean
        assert np.array_equal(memory.unpack(), f(np.ones(BLOCKED.dims, np.float32)))

    def test_by_default_a_function_leaves_zero_or_what_it_preserves(self) -> None:
        for held, f, after in (
            (ZERO, np.tanh, ZERO),
            (ZERO, np.exp, ZERO),
            (Filled(3), np.exp, ZERO),
            (Filled(1), np.sqrt, Filled(1)),
            (UNDEFINED, np.exp, ZERO),
        ):
            memory = padded(held)
            map_padded(f, memory)
            assert memory.padding == after
            assert check_padding(memory, after).is_clean
        memory = padded(Filled(3))
        map_padded(np.exp, memory, include_padding=False)
        assert check_padding(memory, Filled(3)).is_clean
        assert memory.padding == Filled(3)

    def test_a_function_preserves_a_value(self) -> None:
        assert preserves_padding(np.sqrt, "f32", 1)
        assert not preserves_padding(np.sqrt, "f32", 4)
        assert preserves_padding(lambda x: np.maximum(x, 0), "bf16", 5)

    def test_four_bit_padding(self) -> None:
        memory = pack(np.array([1, -1, 2, 3, 4]).astype(NIBBLES.dtype), NIBBLES)
        fill_padding(memory, -3)
        assert (memory.padding, memory.unpack().astype(int).tolist()) == (Filled(-3), [1, -1, 2, 3, 4])
        assert count_lanes(NIBBLES) == 3


class TestPrimitives:
    """A primitive reads padding as zero: padding that is not stated to be zero is checked, and repaired or refused."""

    @staticmethod
    def convolution() -> tuple[Any, Memory, Memory]:
        src, weights = MemoryDesc((1, 17, 4, 4), "f32", "nChw8c"), MemoryDesc((8, 17, 1, 1), "f32", "OIhw8i8o")
        product = inlay.primitives.Convolution(src, weights, dst=MemoryDesc((1, 8, 4, 4), "f32", "nChw8c"))
        return product, pack(np.ones(src.dims, np.float32), src), pack(np.ones(weights.dims, np.float32), weights)

    @pytest.mark.parametrize("contents", [UNDEFINED, Filled(3)], ids=str)
    def test_padding_that_is_not_zero_is_repaired(self, contents: PaddingContents) -> None:
        product, src, weights = self.convolution()
        for _ in range(3):  # the second call with the same memories skips all other checks
            for memory in (src, weights):
                fill_padding(memory, 3.0)
                memory.note_padding(contents)
            result = product(src=src, weights=weights)
            assert (result.unpack() == 17).all()
            assert (src.padding, weights.padding, result.padding) == (ZERO, ZERO, ZERO)
            assert check_padding(src).is_clean

    def test_the_same_memories_are_checked_again_after_their_padding_changed(self) -> None:
        product, src, weights = self.convolution()
        dst = Memory(product.dst_desc)
        for _ in range(3):
            poison_padding(src)
            assert (product(src=src, weights=weights, dst=dst).unpack() == 17).all()

    def test_read_only_memory_is_refused_if_its_padding_is_not_zero(self) -> None:
        product, src, weights = self.convolution()
        held = weights.buffer.copy()
        held.flags.writeable = False
        clean = Memory(weights.desc, held)
        assert (product(src=src, weights=clean).unpack() == 17).all()
        assert clean.padding == ZERO
        poison_padding(weights)
        spoiled = weights.buffer.copy()
        spoiled.flags.writeable = False
        with pytest.raises(InvalidArguments) as raised:
            product(src=src, weights=Memory(weights.desc, spoiled))
        assert str(raised.value).splitlines()[:2] == [
            "Convolution: weights has padding that must be zero, and is read-only: copy it with m.copy(), and call "
            "inlay.zero_padding",
            f"56 of 56 padding lanes of {weights.desc!r} are not zero:",
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (
                lambda: Memory(BLOCKED, padding=0),  # type: ignore[arg-type]
                "padding is 0: give ZERO, UNDEFINED or Filled with a number",
            ),
            (
                lambda: check_padding(Memory(BLOCKED), 1),  # type: ignore[arg-type]
                "padding is 1: give ZERO, UNDEFINED or Filled with a number",
            ),
            (lambda: fill_padding(Memory(BLOCKED), "x"), "value is 'x': give one number"),
            (lambda: fill_padding(Memory(BLOCKED), [1, 2]), "value is [1, 2]: give one number"),
            (lambda: fill_padding(Memory(NIBBLES), 9), "value is 9: s4 holds -8 to 7"),
            (
                lambda: fill_padding(Memory(BLOCKED, bytes(BLOCKED.size)), 1),
                "fill_padding writes to a memory that is read-only: give it a writable buffer",
            ),
            (
                lambda: poison_padding(Memory(BLOCKED, bytes(BLOCKED.size))),
                "poison_padding writes to a memory that is read-only: give it a writable buffer",
            ),
        ],
    )
    def test_a_mistake_is_refused(self, call: Callable[[], Any], text: str) -> None:
        with raises_exactly(InvalidArguments, text):
            call()

    def test_a_file_with_other_contents_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "m.npz"
        padded(Filled(1)).save(path)
        arrays = dict(np.load(path))
        text = str(arrays["memory"])
        assert '"padding": "0000803f"' in text
        np.savez(path, buffer0=arrays["buffer0"], memory=np.array(text.replace("0000803f", "0000803")))
        with pytest.raises(FileError, match="it is 'undefined' or 8 hexadecimal digits"):
            Memory.load(path)
