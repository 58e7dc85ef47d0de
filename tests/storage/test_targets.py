"""Targets of files: complete under their names or absent; links, permissions, directories; systems without pread."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError
from inlay.memory import Memory
from inlay.storage import convert, file_target, open_memories, plan, positioned_io
from inlay.storage.box import whole_box
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.target import TargetTensor
from tests.support.refusals import raises_exactly
from tests.support.tensor_files import numbered, run

unix = pytest.mark.skipif(os.name != "posix", reason="links and permissions are Unix's")
IMAGE = numbered((2, 17, 5, 4))


def two_files() -> FileTarget:
    """A target of two files of 16 bytes, the second with a header of 4 bytes."""
    tensors = {
        "a": TargetTensor("a", MemoryDesc((4,), "f32", "a"), 16),
        "b": TargetTensor("b", MemoryDesc((3,), "f32", "a"), 12, begin=4, file=1),
    }
    files = (TargetFile(Path("a.bin"), 16, b""), TargetFile(Path("b.bin"), 16, b"head"))
    return FileTarget(Path("b.bin"), tensors, files)


def write_both(target: FileTarget, token: str) -> None:
    with target.open(token) as writer:
        for tensor in target.tensors.values():
            box = whole_box(tensor.desc.dims)
            desc = writer.box_desc(tensor, box)
            writer.write_box(tensor, box, Memory(desc, numbered(desc.dims)))
        writer.sync()


def test_files_get_their_names_when_all_are_written(directory: Path) -> None:
    target = two_files()
    assert not target.is_whole("t")
    target.create("t")
    assert target.is_whole("t")
    write_both(target, "t")
    assert sorted(path.name for path in directory.iterdir()) == [".a.bin.t.inlay.partial", ".b.bin.t.inlay.partial"]
    assert target.find_existing() is None
    target.commit("t")
    assert sorted(path.name for path in directory.iterdir()) == ["a.bin", "b.bin"]
    assert Path("a.bin").read_bytes() == numbered((4,)).tobytes()
    assert Path("b.bin").read_bytes() == b"head" + numbered((3,)).tobytes()
    assert target.find_existing() == "a.bin"


def test_what_is_missing_or_short_is_not_whole() -> None:
    target = two_files()
    target.create("t")
    os.truncate(target.files[1].partial("t"), 15)
    assert not target.is_whole("t")
    target.discard("t")
    assert list(Path().iterdir()) == []
    with raises_exactly(FileError, "cannot write a.bin: there is no such file; check the name"):
        target.open("t")


def test_a_target_is_a_value_that_other_processes_open() -> None:
    target = two_files()
    target.create("t")
    write_both(pickle.loads(pickle.dumps(target)), "t")
    target.commit("t")
    assert Path("a.bin").read_bytes() == numbered((4,)).tobytes()


def test_a_target_that_exists_needs_permission_to_be_replaced() -> None:
    np.save("a.npy", IMAGE)
    Path("b.npy").write_text("old")
    planned = plan("a.npy", "b.npy", ["plain"])
    text = (
        "cannot write b.npy: it exists; choose another name, or allow that it is replaced (--overwrite, in Python "
        "overwrite=True)"
    )
    with raises_exactly(FileError, text):
        convert(planned)
    assert Path("b.npy").read_text() == "old"
    convert(planned, overwrite=True)
    assert Path("b.npy").read_bytes() == Path("a.npy").read_bytes()


@unix
def test_a_file_behind_a_link_is_replaced_and_keeps_its_permissions(directory: Path) -> None:
    np.save("a.npy", IMAGE)
    (directory / "elsewhere").mkdir()
    final = directory / "elsewhere" / "b.npy"
    final.write_text("old")
    final.chmod(0o640)
    Path("link.npy").symlink_to(final)
    convert(plan("a.npy", "link.npy", ["plain"]), overwrite=True)
    assert Path("link.npy").is_symlink()
    assert final.read_bytes() == Path("a.npy").read_bytes()
    assert final.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in final.parent.iterdir()] == ["b.npy"]


@unix
def test_a_link_to_a_file_that_is_yet_to_be_is_followed() -> None:
    np.save("a.npy", IMAGE)
    Path("link.npy").symlink_to("b.npy")
    convert(plan("a.npy", "link.npy", ["plain"]))
    assert not Path("b.npy").is_symlink()
    assert Path("b.npy").read_bytes() == Path("a.npy").read_bytes()


@unix
def test_a_file_of_the_source_is_never_written() -> None:
    np.save("a.npy", IMAGE)
    Path("link.npy").symlink_to("a.npy")
    Path("hard.npy").hardlink_to("a.npy")
    for name in ("a.npy", "link.npy", "hard.npy"):
        text = f"cannot write {name}: it is the file that is being read; choose another name"
        with raises_exactly(FileError, text):
            plan("a.npy", name, ["plain"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("name", ["reserve", "write_at", "sync"])
def test_whatever_ends_a_conversion_leaves_the_old_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], name: str
) -> None:
    np.save("a.npy", IMAGE)
    Path("p.safetensors").write_text("old")

    def end(*_: object) -> None:
        raise error

    monkeypatch.setattr(file_target, name, end)
    with pytest.raises(FileError if error is OSError else error):
        convert(plan("a.npy", "p.safetensors", ["nChw16c"]), overwrite=True)
    assert sorted(path.name for path in directory.iterdir()) == ["a.npy", "p.safetensors"]
    assert Path("p.safetensors").read_text() == "old"


def test_complex_numbers_are_stored_with_their_descriptor() -> None:
    np.save("a.npy", np.arange(15).reshape(3, 5) * (1 + 2j))
    run("a.npy", "p.safetensors", "plain")
    assert open_memories("p.safetensors")["a"].desc == MemoryDesc((3, 5), "complex128", "ab")
    run("p.safetensors", "b.npy", "plain")
    assert Path("b.npy").read_bytes() == Path("a.npy").read_bytes()


# Positioned reads and writes


@pytest.fixture
def without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """`os` as it is on Windows: without reads and writes at offsets, and without reserved space."""
    for name in ("preadv", "pwrite", "posix_fallocate", "fdatasync"):
        monkeypatch.delattr(os, name, raising=False)


@pytest.mark.usefixtures("without_positions")
def test_systems_without_positioned_reads_write_the_same_files() -> None:
    save_file({"w": IMAGE, "b": numbered((7,))}, "a.safetensors")
    run("a.safetensors", "p.safetensors", "w=nChw8c")
    run("p.safetensors", "b.safetensors", "plain")
    assert open_memories("b.safetensors")["w"].unpack().tobytes() == IMAGE.tobytes()


@pytest.mark.usefixtures("without_positions")
@given(st.lists(st.tuples(st.integers(0, 40), st.binary(min_size=1, max_size=20)), max_size=8))
def test_bytes_are_written_at_their_offsets(tmp_path_factory: Any, pieces: list[tuple[int, bytes]]) -> None:
    path = tmp_path_factory.mktemp("offsets") / "a.bin"
    expected = bytearray(64)
    path.write_bytes(bytes(64))
    descriptor = positioned_io.open_to_write(path)
    try:
        for offset, piece in pieces:
            positioned_io.write_at(descriptor, memoryview(piece), offset)
            expected[offset : offset + len(piece)] = piece
        data = bytearray(70)
        assert positioned_io.read_at(descriptor, memoryview(data), 3) == 61
        assert bytes(data[:61]) == expected[3:]
    finally:
        os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system reserves no space")
@pytest.mark.parametrize("number", [95, 22])
def test_a_file_system_that_reserves_no_space_gets_the_size(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with Path("a.bin").open("xb") as file:
        positioned_io.reserve(file.fileno(), 1000)
    assert Path("a.bin").stat().st_size == 1000


def test_short_reads_and_writes_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.bin").write_bytes(bytes(100))
    read, write = positioned_io._read_some, positioned_io._write_some
    monkeypatch.setattr(positioned_io, "_read_some", lambda fd, data, offset: read(fd, data[:7], offset))
    monkeypatch.setattr(positioned_io, "_write_some", lambda fd, data, offset: write(fd, data[:9], offset))
    descriptor = positioned_io.open_to_write(Path("a.bin"))
    try:
        positioned_io.write_at(descriptor, memoryview(bytes(range(50))), 20)
        data = bytearray(60)
        assert positioned_io.read_at(descriptor, memoryview(data), 15) == 60
    finally:
        os.close(descriptor)
    assert bytes(data) == bytes(5) + bytes(range(50)) + bytes(5)
