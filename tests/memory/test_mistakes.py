"""Wrong uses of memory and reorders, each with the whole text of its error."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments, OutOfMemory, Unimplemented
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.memory import Memory, Reorder, pack, reorder

ROWS = MemoryDesc((2, 3), "f32", "ab")
COLUMNS = MemoryDesc((2, 3), "f32", "ba")


def read_only() -> npt.NDArray[np.float32]:
    held = np.zeros(6, np.float32)
    held.flags.writeable = False
    return held


def misaligned() -> npt.NDArray[np.uint8]:
    held = np.zeros(64, np.uint8)
    return held[1 - held.ctypes.data % 4 :][:24]


SHARED = np.zeros(9, np.float32)
THREE = pack(np.zeros((2, 3), np.float32), "ab")
NIBBLES = MemoryDesc((2, 4), "s4", "ab")
REPEATED = MemoryDesc((2, 4), "s4", strides=(0, 1))
BELOW = MemoryDesc.from_layout(Layout((4, 2), (Axis(-4, (Digit(2, 2),)), Axis(1))), "u8")

MISTAKES: list[tuple[str, Callable[[], object], type[InlayError], str]] = [
    (
        "desc_is_text",
        lambda: Memory("nchw"),  # type: ignore[arg-type]
        InvalidArguments,
        "desc is 'nchw': describe the memory first, as in MemoryDesc((2, 3), 'f32', 'ab')",
    ),
    (
        "kind_any",
        lambda: Memory(MemoryDesc((2, 3), "f32", "any")),
        InvalidArguments,
        "memory needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any; "
        "give a format tag, or query a primitive for its format",
    ),
    (
        "kind_undef",
        lambda: Memory(MemoryDesc()),
        InvalidArguments,
        "memory needs a layout: MemoryDesc() is of kind undef; it describes nothing",
    ),
    (
        "kind_host_scalar",
        lambda: Memory(MemoryDesc.host_scalar("f32")),
        InvalidArguments,
        "memory needs a layout: MemoryDesc.host_scalar('f32') is of kind host_scalar; "
        "its value is passed with the call",
    ),
    (
        "runtime",
        lambda: Memory(MemoryDesc((RUNTIME, 3), "f32", strides=(RUNTIME, 1))),
        Unimplemented,
        "memory needs known dims and strides: MemoryDesc((RUNTIME, 3), 'f32', strides=(RUNTIME, 1)) has RUNTIME ones, "
        "bind them first",
    ),
    (
        "below_the_start",
        lambda: Memory(BELOW),
        InvalidArguments,
        f"{BELOW!r} reaches 4 elements below the start of its buffer: give it a larger offset0",
    ),
    (
        "too_small",
        lambda: Memory(ROWS, np.zeros(5, np.float32)),
        InvalidArguments,
        "buffer of 20 bytes is too small: MemoryDesc((2, 3), 'f32', 'ab') reaches 24 bytes",
    ),
    (
        "too_small_for_offset0",
        lambda: Memory(MemoryDesc((4, 6), "f32").submemory((2, 3), (2, 3)), np.zeros(23, np.float32)),
        InvalidArguments,
        f"buffer of 92 bytes is too small: {MemoryDesc((4, 6), 'f32').submemory((2, 3), (2, 3))!r} reaches 96 bytes",
    ),
    (
        "too_small_for_padding",
        lambda: Memory(MemoryDesc((1, 17), "u8", "aB8b"), bytes(17)),
        InvalidArguments,
        "buffer of 17 bytes is too small: MemoryDesc((1, 17), 'u8', 'aB8b') reaches 24 bytes",
    ),
    (
        "wrong_type",
        lambda: Memory(ROWS, np.zeros(6)),
        InvalidArguments,
        "buffer holds float64, the descriptor f32 (float32): convert values with astype, "
        "or pass the bits as they are with view('u1')",
    ),
    (
        "wrong_byte_order",
        lambda: Memory(ROWS, np.zeros(6, ">f4")),
        InvalidArguments,
        "buffer holds >f4, the descriptor f32 (float32): convert values with astype, "
        "or pass the bits as they are with view('u1')",
    ),
    (
        "integers_of_4_bits_in_bytes",
        lambda: Memory(NIBBLES, np.zeros(8, ml_dtypes.int4)),
        InvalidArguments,
        "buffer holds int4, one element in a byte, and s4 memory two: "
        "pass its bytes as uint8, or make the memory with inlay.pack",
    ),
    (
        "not_contiguous",
        lambda: Memory(ROWS, np.zeros(12, np.float32)[::2]),
        InvalidArguments,
        "buffer of shape (6,) and byte strides (8,) is not contiguous: wrap the array it is a view of, "
        "or move its elements with inlay.pack",
    ),
    (
        "no_buffer",
        lambda: Memory(ROWS, [0.0] * 6),
        InvalidArguments,
        "buffer of type list cannot be wrapped "
        "(it has neither the buffer protocol, nor __array_interface__, nor DLPack): "
        "pass a NumPy array or bytes",
    ),
    (
        "scalar_buffer",
        lambda: Memory(MemoryDesc((1,), "f32"), np.float32(3)),
        InvalidArguments,
        "buffer of type float32 cannot be wrapped (a NumPy scalar has no memory of its own): "
        "pass a NumPy array or bytes",
    ),
    (
        "misaligned",
        lambda: Memory(ROWS, misaligned()),
        InvalidArguments,
        "buffer starts at an address that is no multiple of the 4 bytes of f32: copy it to an array of its own",
    ),
    (
        "no_room",
        lambda: Memory(MemoryDesc((2**58,), "u8")),
        OutOfMemory,
        "288230376151711744 bytes cannot be allocated: reorder in parts (`submemory`), or give a memory-mapped buffer",
    ),
    (
        "read_only_destination",
        lambda: reorder(THREE, ROWS, out=Memory(ROWS, read_only())),
        InvalidArguments,
        "the destination is read-only: give a writable buffer, or none to have one allocated",
    ),
    (
        "bytes_as_destination",
        lambda: Reorder(ROWS, ROWS)(THREE, Memory(ROWS, bytes(24))),
        InvalidArguments,
        "the destination is read-only: give a writable buffer, or none to have one allocated",
    ),
    (
        "in_place",
        lambda: reorder(THREE, "ba", out=Memory(COLUMNS, THREE.buffer)),
        InvalidArguments,
        "source and destination share 24 bytes of memory: a reorder is not done in place, give another buffer",
    ),
    (
        "partly_in_place",
        lambda: Reorder(ROWS, COLUMNS)(Memory(ROWS, SHARED[:6]), Memory(COLUMNS, SHARED[3:])),
        InvalidArguments,
        "source and destination share 12 bytes of memory: a reorder is not done in place, give another buffer",
    ),
    (
        "overlapping_destination",
        lambda: reorder(THREE, MemoryDesc((2, 3), "f32", strides=(0, 1))),
        InvalidArguments,
        "elements of the destination overlap: give every element an offset of its own",
    ),
    (
        "overlapping_destination_of_4_bits",
        lambda: reorder(Memory(NIBBLES), REPEATED),
        InvalidArguments,
        "elements of the destination overlap: give every element an offset of its own",
    ),
    (
        "other_dims",
        lambda: reorder(THREE, MemoryDesc((3, 2), "f32")),
        InvalidArguments,
        "a reorder keeps the dims: source (2, 3), destination (3, 2)",
    ),
    (
        "other_dims_of_4_bits",
        lambda: reorder(Memory(NIBBLES), MemoryDesc((4, 2), "s4")),
        InvalidArguments,
        "a reorder keeps the dims: source (2, 4), destination (4, 2)",
    ),
    (
        "array_as_source",
        lambda: reorder(np.zeros(6), "ba"),  # type: ignore[arg-type]
        InvalidArguments,
        "src is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
    (
        "array_as_out",
        lambda: reorder(THREE, "ba", out=np.zeros(6)),  # type: ignore[arg-type]
        InvalidArguments,
        "out is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
    (
        "array_to_reorder",
        lambda: Reorder(ROWS, COLUMNS)(np.zeros(6), Memory(COLUMNS)),  # type: ignore[arg-type]
        InvalidArguments,
        "src is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
    (
        "out_of_another_descriptor",
        lambda: reorder(THREE, "ba", out=Memory(ROWS)),
        InvalidArguments,
        "out is MemoryDesc((2, 3), 'f32', 'ab'), but the destination is MemoryDesc((2, 3), 'f32', 'ba'): "
        "give both the same descriptor",
    ),
    (
        "other_source_than_compiled",
        lambda: Reorder(ROWS, COLUMNS)(Memory(COLUMNS), Memory(COLUMNS)),
        InvalidArguments,
        "the source is MemoryDesc((2, 3), 'f32', 'ba'), but this reorder was compiled for "
        "MemoryDesc((2, 3), 'f32', 'ab'): make one for it",
    ),
    (
        "other_destination_than_compiled",
        lambda: Reorder(ROWS, COLUMNS)(Memory(ROWS), Memory(ROWS)),
        InvalidArguments,
        "the destination is MemoryDesc((2, 3), 'f32', 'ab'), but this reorder was compiled for "
        "MemoryDesc((2, 3), 'f32', 'ba'): make one for it",
    ),
    (
        "reorder_of_text",
        lambda: Reorder("ab", "ba"),  # type: ignore[arg-type]
        InvalidArguments,
        "src is 'ab': a Reorder is made from two MemoryDescs; inlay.reorder(memory, 'nhwc') takes a tag",
    ),
    (
        "pack_a_scalar",
        lambda: pack(np.float32(3), "a"),
        InvalidArguments,
        "array is a scalar, which has no axes to place: give it one with reshape(1)",
    ),
    (
        "pack_a_scalar_array",
        lambda: pack(np.array(3.0), "a"),
        InvalidArguments,
        "array is a scalar, which has no axes to place: give it one with reshape(1)",
    ),
    (
        "pack_text",
        lambda: pack("image.png", "nchw"),
        InvalidArguments,
        "array is of type str, which has no data type: give an array, as np.asarray(values, np.float32) is",
    ),
    (
        "pack_lists",
        lambda: pack([[1, 2], [3, 4]], "ab"),
        InvalidArguments,
        "array is of type list, which has no data type: give an array, as np.asarray(values, np.float32) is",
    ),
    (
        "pack_dates",
        lambda: pack(np.zeros((2, 3), "M8[s]"), "ab"),
        InvalidArguments,
        "unknown data type datetime64[s]: use one of f16, bf16, f32, s32, s8, u8, f64, f8_e5m2, f8_e4m3, s4, u4, e8m0, "
        "f4_e2m1, s64, bool, s16, u16, u32, u64, complex64, complex128, or the NumPy or ml_dtypes type of the same "
        "meaning",
    ),
    (
        "pack_truth_values_as_numbers",
        lambda: pack(np.zeros((2, 3), bool), "ab", "u8"),
        Unimplemented,
        "no conversion from bool to u8 exists: bool only moves; convert the array with astype first",
    ),
    (
        "scale_what_only_moves",
        lambda: reorder(pack(np.zeros((2, 3), np.complex64), "ab"), "ba", src_scales=2.0),
        InvalidArguments,
        "attributes compute with numbers: the elements of src are complex64, which only move",
    ),
    (
        "pack_another_byte_order",
        lambda: pack(np.zeros((2, 3), ">f4"), "ab"),
        InvalidArguments,
        "data type >f4 is not in this machine's byte order: convert with array.astype('float32')",
    ),
    (
        "pack_without_format",
        lambda: pack(np.zeros((2, 3), np.float32), (1, 0)),  # type: ignore[arg-type]
        InvalidArguments,
        "format is (1, 0): give a format tag such as 'nChw16c', or a MemoryDesc",
    ),
    (
        "reorder_by_number",
        lambda: reorder(THREE, 16),  # type: ignore[arg-type]
        InvalidArguments,
        "dst is 16: give a format tag such as 'nChw16c', or a MemoryDesc",
    ),
    (
        "pack_other_dims",
        lambda: pack(np.zeros((3, 2), np.float32), ROWS),
        InvalidArguments,
        "array has dims (3, 2), but format MemoryDesc((2, 3), 'f32', 'ab') has (2, 3): give equal dims",
    ),
    (
        "pack_two_types",
        lambda: pack(np.zeros((2, 3), np.float32), ROWS, "bf16"),
        InvalidArguments,
        "data_type is bf16, but format MemoryDesc((2, 3), 'f32', 'ab') is f32: leave one out",
    ),
    (
        "pack_any",
        lambda: pack(np.zeros((2, 3), np.float32), "any"),
        InvalidArguments,
        "memory needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any; "
        "give a format tag, or query a primitive for its format",
    ),
    (
        "masked_array",
        lambda: pack(np.ma.masked_equal(np.zeros((2, 3), np.float32), 0), "ab"),
        InvalidArguments,
        "buffer of type MaskedArray cannot be wrapped (its mask would be lost): pass a NumPy array or bytes",
    ),
    (
        "device_tensor",
        lambda: Memory(ROWS, OnDevice()),
        InvalidArguments,
        "buffer of type OnDevice cannot be wrapped (unsupported device): pass a NumPy array or bytes",
    ),
]


class OnDevice:
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("unsupported device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


@pytest.mark.parametrize(("mistake", "error", "text"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_told_whole(mistake: Callable[[], object], error: type[InlayError], text: str) -> None:
    with pytest.raises(error) as caught:
        mistake()
    assert str(caught.value) == text
    assert type(caught.value) is error


@pytest.mark.parametrize("name", ["address", "begin", "end", "desc", "buffer", "other"])
def test_what_machine_code_relies_on_cannot_be_set_or_deleted(name: str) -> None:
    """With `address` at 0, unpack ended the process."""
    memory = Memory(MemoryDesc((2, 3), "f32", "ba"), np.arange(6, dtype=np.float32))
    before = memory.address, memory.begin, memory.end
    with pytest.raises(AttributeError) as caught:
        setattr(memory, name, 0)
    assert str(caught.value) == (f"{name} of a Memory cannot be set: make a new Memory of a descriptor and a buffer")
    with pytest.raises(AttributeError) as caught:
        delattr(memory, name)
    assert str(caught.value) == f"{name} of a Memory cannot be deleted: delete the Memory"
    assert (memory.address, memory.begin, memory.end) == before
    assert memory.unpack().tolist() == [[0, 2, 4], [1, 3, 5]]


def test_the_value_of_a_host_scalar_can_still_be_set_and_memories_copied() -> None:
    scalar = Memory(MemoryDesc.host_scalar("s32"), 3)
    scalar.value = 4
    assert (int(scalar.value), int(copy.copy(scalar).value), int(pickle.loads(pickle.dumps(scalar)).value)) == (4, 4, 4)
