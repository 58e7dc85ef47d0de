"""The .npz format: read as NumPy writes it, written so that NumPy reads it, damaged archives refused."""

import io
import pickle
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.errors import FileError, InvalidArguments
from inlay.storage import convert, open_store, plan
from inlay.storage.box import Box
from inlay.storage.npz import NpzTarget
from inlay.storage.options import OpenOptions
from tests.support.refusals import raises_exactly
from tests.support.stored_arrays import Arrays, arrays, assert_equal, assert_holds, assert_not_executed, bomb, save_npz
from tests.support.tensor_files import numbered, run


def load(path: str) -> Arrays:
    with np.load(path) as archive:
        return dict(archive)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_numpy_are_read(save: Any) -> None:
    save("in.npz", **arrays())
    run("in.npz", "out.safetensors")
    assert_holds("out.safetensors", arrays())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_blocks_are_made_from_archives(save: Any) -> None:
    weights = numbered((33, 17, 3, 3))
    save("in.npz", w=weights, f=np.asfortranarray(numbered((5, 7))))
    run("in.npz", "packed.safetensors", "w=OIhw16i16o")
    run("packed.safetensors", "out.npz", "plain")
    assert_equal(load("out.npz"), {"w": weights, "f": numbered((5, 7))})


def test_numpy_reads_what_is_written_and_it_is_a_sound_archive() -> None:
    save_file(arrays(), "in.safetensors")
    run("in.safetensors", "out.npz")
    assert_equal(load("out.npz"), arrays())
    with zipfile.ZipFile("out.npz") as archive:
        assert archive.testzip() is None
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    first = Path("out.npz").read_bytes()
    run("in.safetensors", "again.npz")
    assert Path("again.npz").read_bytes() == first


def test_an_interrupted_commit_is_repeated() -> None:
    save_npz("in.npz", arrays())
    made = pickle.loads(pickle.dumps(plan("in.npz", "out.npz")))
    assert isinstance(made.target, NpzTarget)
    made.target.create("t")
    with made.source.open() as reader, made.target.open("t") as writer:
        for task in made.tasks():
            each = made.tensors[task.tensor]
            each.operation.apply(reader.read_box(each.tensor, each.src, task.box), task.box, writer)
    partial = made.target.files[0].partial("t")
    with partial.open("ab") as file:
        file.write(b"half of a directory")
    assert made.target.is_whole("t")
    made.target.commit("t")
    assert_equal(load("out.npz"), arrays())


@pytest.mark.heavy
def test_a_member_of_five_gigabytes_has_sizes_of_64_bits() -> None:
    with Path("in.raw").open("wb") as file:
        file.truncate(5 << 30)
        file.seek(-8, 2)
        file.write(b"the end.")
    convert(plan("in.raw", "out.npz", source_options=OpenOptions((5 << 27,), "s64")))
    Path("in.raw").unlink()
    with zipfile.ZipFile("out.npz") as archive:
        (info,) = archive.infolist()
        assert info.file_size > 5 << 30
    tensor = open_store("out.npz").tensors[0]
    array = np.memmap("out.npz", np.int64, "r", tensor.begin, (5 << 27,))
    assert array[-1].tobytes() == b"the end."


def test_a_compressed_member_has_to_fit_into_memory() -> None:
    np.savez_compressed("in.npz", w=np.zeros((1000, 1000), np.float32))
    run("in.npz", "out.safetensors", memory=8_000_000)
    text = (
        "a box (4000000,) of a tensor (4000000,) takes 8000000 bytes in u8::blocked:a::f0 and u8::blocked:a::f0, and "
        "1000000 are allowed: allow more (--memory)"
    )
    with raises_exactly(InvalidArguments, text):
        plan("in.npz", "out.safetensors", memory=1_000_000)
    np.savez("in.npz", w=np.zeros((1000, 1000), np.float32))
    run("in.npz", "larger.safetensors", memory=1_000_000)


def archive_of(members: list[tuple[str, bytes]], **options: Any) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile("in.npz", "w", **options) as archive:
        warnings.simplefilter("ignore")  # names may occur twice
        for name, content in members:
            archive.writestr(name, content)


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


W = npy(numbered((3, 5)))
MEMBER = "cannot read in.npz, member w.npy: "


@pytest.mark.parametrize(
    ("members", "options", "text"),
    [
        (
            [("w.npy", npy(np.array([{}]), allow_pickle=True))],
            {},
            f"{MEMBER}it holds Python objects, which are never unpickled; save numbers instead",
        ),
        (
            [("w.npy", bomb())],
            {},
            f"{MEMBER}it is no .npy file or its header is damaged; save it again",
        ),
        (
            [("w.npy", W[:-1])],
            {},
            f"{MEMBER}its header needs 188 bytes and it has 187; save the arrays again",
        ),
        ([("w.npy", W), ("w.npy", W)], {}, "cannot read in.npz: two members are named w; save the arrays again"),
        ([("w.npy", W), ("w", W)], {}, "cannot read in.npz: two members are named w; save the arrays again"),
        (
            [("w.npy", W)],
            {"compression": zipfile.ZIP_BZIP2},
            f"{MEMBER}it is compressed by another method than NumPy's; save the arrays again",
        ),
    ],
)
def test_members_that_are_no_arrays_are_refused(
    members: list[tuple[str, bytes]], options: dict[str, Any], text: str
) -> None:
    archive_of(members, **options)
    with raises_exactly(FileError, text):
        open_store("in.npz")
    assert_not_executed()


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"no archive at all", W])
def test_other_files_are_refused(content: bytes) -> None:
    Path("in.npz").write_bytes(content)
    text = "cannot read in.npz: the archive is damaged (File is not a zip file); copy it again from its source"
    with raises_exactly(FileError, text):
        open_store("in.npz")


def test_a_wrong_checksum_of_a_compressed_member_is_found() -> None:
    np.savez_compressed("in.npz", w=np.arange(1000))
    content = bytearray(Path("in.npz").read_bytes())
    with zipfile.ZipFile("in.npz") as archive:
        info = archive.infolist()[0]
    content[info.header_offset + 14 : info.header_offset + 18] = bytes(4)  # the checksum, in both headers
    at = content.index(struct.pack("<I", info.CRC))
    content[at : at + 4] = bytes(4)
    Path("in.npz").write_bytes(content)
    text = "cannot read in.npz: the archive is damaged (Bad CRC-32 for file 'w.npy'); copy it again from its source"
    with raises_exactly(FileError, text):
        run("in.npz", "out.safetensors")
    assert not Path("out.safetensors").exists()


def test_what_the_format_cannot_hold_is_refused() -> None:
    save_file({"w": numbered((3, 5), ml_dtypes.bfloat16)}, "in.safetensors")
    with raises_exactly(FileError, "a .npy file has no name for data type bf16: write a .safetensors file instead"):
        plan("in.safetensors", "out.npz")
    save_file({"w": numbered((3, 5)), "a.npy": numbered((3,))}, "in.safetensors")
    text = "out.npz cannot hold a tensor named 'a.npy': NumPy adds the suffix .npy to names, and removes it; rename it"
    with raises_exactly(InvalidArguments, text):
        plan("in.safetensors", "out.npz")
    save_file({"w": numbered((3, 5))}, "in.safetensors")
    text = (
        "cannot write out.npz: a .npz file stores only row-major tensors, not f32::blocked:ba::f0; "
        "write a .safetensors file instead"
    )
    with raises_exactly(FileError, text):
        plan("in.safetensors", "out.npz", ["w=ba"])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_compressed_member_is_read_at_once_by_each_of_its_boxes(order: str) -> None:
    array = np.asarray(numbered((40, 30)), order=order)  # type: ignore[call-overload]
    np.savez_compressed("in.npz", w=array)
    made = plan("in.npz", "out.safetensors", ["ba"])
    assert made.count == 1
    convert(made)
    store = open_store("in.npz")
    with store.open() as reader:
        (tensor,) = store.tensors
        assert tensor.desc is not None
        part = reader.read_box(tensor, tensor.desc, Box((8, 5), (16, 20)))
        reader.require_unchanged()
    assert part.unpack().tobytes() == np.ascontiguousarray(array[8:16, 5:20]).tobytes()
    run("out.safetensors", "out.npz", "plain")
    assert_equal(load("out.npz"), {"w": array})
