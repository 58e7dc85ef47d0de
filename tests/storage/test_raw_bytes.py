"""Files of raw bytes: dims, type and offset come from the caller; any layout is written as its bytes."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments
from inlay.memory import pack
from inlay.storage import open_store, plan
from inlay.storage.formats import open_written
from inlay.storage.options import OpenOptions
from tests.support.refusals import raises_exactly
from tests.support.stored_arrays import assert_holds, run_with
from tests.support.tensor_files import numbered, run


@pytest.mark.parametrize("name", ["w.raw", "w.dat", "w.bin", "w.weights", "w"])
def test_raw_bytes_are_read_under_any_name(name: str) -> None:
    array = numbered((33, 17), ml_dtypes.bfloat16)
    array.tofile(name)
    run_with(name, "out.safetensors", read=OpenOptions((33, 17), "bf16"))
    assert_holds("out.safetensors", {"w": array})


def test_bytes_before_an_offset_and_behind_the_tensor_are_left_out() -> None:
    array = numbered((3, 5))
    Path("w.raw").write_bytes(b"header!" + array.tobytes() + b"trailer")
    run_with("w.raw", "out.npy", read=OpenOptions((3, 5), "f32", 7))
    assert np.load("out.npy").tobytes() == array.tobytes()


def test_without_dims_all_bytes_are_one_axis() -> None:
    numbered((24,)).tofile("w.raw")
    run_with("w.raw", "out.npy", read=OpenOptions(data_type="f32"))
    assert np.load("out.npy").shape == (24,)


def test_elements_of_half_a_byte() -> None:
    Path("w.raw").write_bytes(bytes(range(12)))
    tensor = open_store("w.raw", OpenOptions((3, 8), "s4")).tensors[0]
    assert (tensor.nbytes, tensor.desc) == (12, MemoryDesc((3, 8), "s4", "ab"))


@pytest.mark.parametrize("tag", ["abcd", "nhwc", "nChw16c", "nChw8c"])
def test_any_layout_is_written_as_its_bytes(tag: str) -> None:
    array = numbered((2, 17, 5, 4))
    np.save("in.npy", array)
    run("in.npy", "out.raw", tag)
    expected = pack(array, tag)
    assert Path("out.raw").read_bytes() == expected.buffer.tobytes()[: expected.desc.size]
    made = plan("in.npy", "out.raw", [tag])
    written = open_written(made.target, [each.new for each in made.tensors])
    assert [(tensor.name, tensor.desc) for tensor in written.tensors] == [("in", expected.desc)]
    run_with("out.raw", "back.npy", "plain", read=OpenOptions((expected.desc.size // 4,), "f32"))
    assert np.load("back.npy").size == expected.desc.size // 4


def test_blocks_without_a_header_are_read_by_from() -> None:
    array = numbered((2, 17, 5, 4))
    np.save("in.npy", array)
    run("in.npy", "out.raw", "nChw16c")
    options = OpenOptions(data_type="f32")
    run("out.raw", "back.npy", "plain", from_=["nChw16c"], dims=(2, 17, 5, 4), source_options=options)
    assert np.load("back.npy").tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            OpenOptions((3, 5), "f32"),
            "cannot read w.raw: dims (3, 5) of f32 need 60 bytes from byte 0, and the file has 64 bytes; give the "
            "right dims (--dims), type (--dtype) or offset (--offset)",
        ),
        (
            OpenOptions((3, 6), "f32"),
            "cannot read w.raw: dims (3, 6) of f32 need 72 bytes from byte 0, and the file has 64 bytes; give the "
            "right dims (--dims), type (--dtype) or offset (--offset)",
        ),
        (
            OpenOptions((16,), "f32", 1),
            "cannot read w.raw: dims (16,) of f32 need 64 bytes from byte 1, and the file has 64 bytes; give the right "
            "dims (--dims), type (--dtype) or offset (--offset)",
        ),
        (
            OpenOptions(None, "f32", 3),
            "cannot read w.raw: 61 bytes from byte 3 are no whole number of elements of f32; give the right type "
            "(--dtype) or offset (--offset)",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: OpenOptions, text: str) -> None:
    Path("w.raw").write_bytes(bytes(64))
    with raises_exactly(FileError, text):
        open_store("w.raw", options)


def test_what_is_missing_or_needless_is_said() -> None:
    Path("w.raw").write_bytes(bytes(64))
    text = "w.raw holds raw bytes: state the type of its elements and its dims (--dtype, --dims)"
    with raises_exactly(InvalidArguments, text):
        open_store("w.raw")
    with raises_exactly(InvalidArguments, "offset -1 is before the first byte of w.raw: give 0 or more"):
        open_store("w.raw", OpenOptions((4,), "f32", -1))
    Path("w.bin").write_bytes(bytes(64))
    end = "if it holds raw bytes, state their dims and type (--dims, --dtype)"
    text = f"cannot read w.bin: it is no file of PyTorch; {end}"
    with raises_exactly(FileError, text):
        open_store("w.bin")
    np.save("w.npy", numbered((4,)))
    text = (
        "dims, type and offset describe raw bytes, and w.npy is read as npy, whose header states them: leave them out "
        "(--from-dtype, --offset)"
    )
    with raises_exactly(InvalidArguments, text):
        open_store("w.npy", OpenOptions((4,), "f32"))


def test_one_tensor_is_written() -> None:
    np.savez("in.npz", a=numbered((3,)), b=numbered((3,)))
    text = "cannot write out.raw: raw bytes hold one tensor, and there are 2 tensors; write a .safetensors file instead"
    with raises_exactly(FileError, text):
        plan("in.npz", "out.raw")
