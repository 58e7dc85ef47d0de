"""Wrong input: each prints one error, with its whole text, has exit code 2, and leaves all files unchanged."""

import contextlib
import json
import os
import pickle
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.cli import main
from tests.support.command_line import IMAGE, INLAY, Capture, run_process, write_classifier, write_two
from tests.support.paths import DATA


class Mistake(NamedTuple):
    """One block of `mistakes.txt`."""

    name: str
    """Name of the mistake, used as the test's id."""
    arguments: list[str]
    """The command line."""
    text: str
    """All that is printed on the error stream."""


def make_files() -> None:
    """Write the files that the mistakes name into the current directory."""
    array = np.arange(680, dtype=np.float32).reshape(2, 17, 5, 4)
    np.save("a.npy", array)
    np.save("flat.npy", np.arange(640, dtype=np.float32))
    np.save("column-major.npy", np.asfortranarray(array))
    np.save("dates.npy", np.array([["2020-01-01"]], "M8[D]"))
    np.save("scalar.npy", np.array(3, np.float32))
    np.save("bf16.npy", np.zeros((2, 3), ml_dtypes.bfloat16))
    np.save("big-endian.npy", np.zeros((2, 3), ">f4"))
    np.save("objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    Path("pickled.npy").write_bytes(pickle.dumps([1, 2]))
    content = Path("a.npy").read_bytes()
    Path("cut.npy").write_bytes(content[:1000])
    Path("corrupt.npy").write_bytes(content[:20] + b"\xff" * 10 + content[30:])
    Path("empty.npy").write_bytes(b"")
    make_safetensors()
    Path("a.txt").write_text("hello")
    Path("directory.npy").mkdir()
    Path("link.npy").symlink_to("a.npy")
    os.mkfifo("pipe.npy")
    for name in ("b.npy", "b.safetensors"):
        Path(name).write_text("an old output")
    make_networks()


def make_networks() -> None:
    write_classifier()
    write_classifier("fixed.onnx", 2)
    write_two()
    np.save("x.npy", IMAGE)
    np.save("double.npy", IMAGE.astype(np.float64))
    np.save("wide.npy", np.zeros((2, 5), np.float32))
    Path("hard.npy").hardlink_to("x.npy")
    Path("model.npy").symlink_to("net.onnx")
    shutil.copy("net.onnx", "net.svg")
    Path("link.svg").symlink_to("net.svg")


def make_safetensors() -> None:
    weights = {"conv.weight": np.zeros((33, 17, 3, 3), np.float32), "conv.bias": np.zeros(33, np.float32)}
    save_file(weights | {"mask": np.zeros(3, bool), "scale": np.array(1, np.float32)}, "w.safetensors")
    save_file({}, "none.safetensors")
    header = json.dumps({"mask": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}).encode()
    Path("f4.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    Path("cut.safetensors").write_bytes(Path("w.safetensors").read_bytes()[:-1])
    Path("text.safetensors").write_text("this is no tensor file")
    for name, nbytes, described in (
        ("lie", 64, {"dims": [99999], "data_type": "f32", "tag": "a"}),
        ("packed", 5120, {"dims": [2, 17, 5, 4], "data_type": "f32", "tag": "aBcd16b"}),
    ):
        text = json.dumps({"version": 1, "tensors": {"t": described}})
        save_file({"t": np.zeros(nbytes, np.uint8)}, f"{name}.safetensors", {"inlay": text})


@pytest.fixture(scope="module")
def made_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    with contextlib.chdir(directory):
        make_files()
    return directory


@pytest.fixture
def files(made_files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which has the files that the mistakes name."""
    monkeypatch.chdir(made_files)
    return made_files


def state(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Every file with its number, size and time of change."""
    found = [(p, p.lstat()) for p in directory.rglob("*")]
    return {p.name: (s.st_ino, s.st_size, s.st_mtime_ns) for p, s in found if not p.is_dir()}


def read_mistakes() -> list[Mistake]:
    blocks = (DATA / "mistakes.txt").read_text().split("\n\n# ")
    parts = [block.removesuffix("\n").split("\n", 2) for block in blocks[1:]]
    return [Mistake(name, shlex.split(call.removeprefix("$ inlay")), text) for name, call, text in parts]


MISTAKES = read_mistakes()


def test_each_of_the_mistakes_is_another() -> None:
    assert len({tuple(m.arguments) for m in MISTAKES}) == len(MISTAKES) == len({m.name for m in MISTAKES}) > 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_gives_one_clear_error_and_leaves_every_file(files: Path, capsys: Capture, mistake: Mistake) -> None:
    before = state(files)
    assert main(mistake.arguments) == 2
    assert capsys.readouterr() == ("", f"{mistake.text}\n")
    assert state(files) == before


def test_a_file_beyond_the_size_limit_leaves_nothing(tmp_path: Path) -> None:
    def limit_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    np.save(tmp_path / "a.npy", np.zeros((64, 17, 16, 16), np.float32))
    arguments = ["convert", "a.npy", "-o", "b.safetensors", "--to", "nChw16c"]
    assert run_process([*INLAY, *arguments], preexec_fn=limit_size) == (
        2,
        "",
        "error: cannot write b.safetensors: it passes the size limit of this process or file system; "
        "raise it (ulimit -f) or write elsewhere\n",
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system; the size limit is tested instead")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, small_disk: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((64, 17, 16, 16), np.float32))
    (small_disk / "b.safetensors").write_text("old")
    arguments = ["convert", "a.npy", "-o", "disk/b.safetensors", "--to", "nChw16c", "--overwrite"]
    assert run_process([*INLAY, *arguments]) == (
        2,
        "",
        "error: cannot write disk/b.safetensors: the disk is full; free space or write elsewhere\n",
    )
    assert {p.name: p.read_text() for p in small_disk.iterdir()} == {"b.safetensors": "old"}


def test_a_directory_that_may_not_be_written_stays_as_it_is(capsys: Capture) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "a.npy"), Path(directory, "locked", "b.safetensors")
        np.save(source, np.zeros((2, 17), np.float32))
        target.parent.mkdir(mode=0o555)
        Path(directory).chmod(0o755)
        # A first run as ourselves loads every module, so that another user needs to read none of them.
        assert main(["convert", str(source), "-o", f"{directory}/c.safetensors", "--to", "ba"]) == 0
        capsys.readouterr()
        if user == 0:
            os.seteuid(65534)
        try:
            code = main(["convert", str(source), "-o", str(target), "--to", "ba"])
        finally:
            os.seteuid(user)
        assert list(target.parent.iterdir()) == []
    assert (code, *capsys.readouterr()) == (
        2,
        "",
        f"error: cannot write {target}: permission denied; check who may use it\n",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("options", [[], ["-u"]])
def test_a_full_device_under_the_output_is_an_error_in_words(options: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        code, _, err = run_process([sys.executable, *options, "-m", "inlay", "names"], stdout=full)
    assert (code, err) == (2, "error: cannot write the output: the disk is full; free space or write elsewhere\n")


@pytest.mark.usefixtures("files")
def test_no_mistake_shows_a_traceback_in_a_process_of_its_own() -> None:
    for name in ("wrong number of letters", "truncated safetensors", "output is the input", "missing -o"):
        mistake = next(m for m in MISTAKES if m.name == name)
        assert run_process([*INLAY, *mistake.arguments]) == (2, "", f"{mistake.text}\n")
