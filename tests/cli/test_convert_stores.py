"""`inlay convert` between stores: checkpoints, archives, raw bytes, URLs, and mistakes in their options."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.command_line import Capture, complaint, succeed
from tests.support.stored_arrays import arrays, assert_equal, assert_holds, save_npz, write_checkpoint
from tests.support.tensor_files import numbered


def test_a_checkpoint_is_packed_in_shards_of_a_size(capsys: Capture) -> None:
    items = list(arrays().items())
    write_checkpoint("in", [dict(items[:2]), dict(items[2:])])
    words = ("convert", "in", "-o", "packed/", "--to", "*weight=BA16a2b", "--shard-size", "2kB")
    assert succeed(capsys, *words).startswith("wrote packed: 1 of 6 tensors converted, ")
    index = json.loads(Path("packed/model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    succeed(capsys, "convert", "packed", "-o", "back.safetensors", "--to", "plain")
    assert_holds("back.safetensors", arrays())


def test_formats_are_changed_without_to(capsys: Capture) -> None:
    save_npz("in.npz", arrays())
    assert succeed(capsys, "convert", "in.npz", "-o", "out.safetensors").startswith("wrote out.safetensors: 0 of 6 ")
    assert_holds("out.safetensors", arrays())


@pytest.mark.parametrize("name", ["w.raw", "w.bin", "w.weights"])
def test_raw_bytes_in_and_out(capsys: Capture, name: str) -> None:
    array = numbered((33, 17))
    array.tofile(name)
    succeed(capsys, "convert", name, "-o", "out.npy", "--dims", "33x17", "--dtype", "f32")
    assert np.load("out.npy").tobytes() == array.tobytes()
    succeed(capsys, "convert", "out.npy", "-o", "out.raw", "--to", "ba")
    assert Path("out.raw").read_bytes() == array.T.tobytes()
    Path("w.dat").write_bytes(b"123" + array.tobytes() + b"end")
    succeed(
        capsys, "convert", "w.dat", "-o", "out.npy", "--dims", "33x17", "--dtype", "f32", "--offset", "3", "--overwrite"
    )
    assert np.load("out.npy").tobytes() == array.tobytes()


def test_raw_bytes_are_converted_to_another_type(capsys: Capture) -> None:
    array = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
    array.tofile("w.raw")
    words = ("--dims", "4x6", "--from-dtype", "f32", "--dtype", "f16", "--to", "plain")
    succeed(capsys, "convert", "w.raw", "-o", "out.npy", *words)
    assert np.array_equal(np.load("out.npy"), array.astype(np.float16))


def test_blocks_in_raw_bytes(capsys: Capture) -> None:
    array = numbered((2, 17, 5, 4))
    np.save("in.npy", array)
    succeed(capsys, "convert", "in.npy", "-o", "packed.bin", "--to", "nChw16c")
    words = ("--from", "nChw16c", "--dims", "2x17x5x4", "--dtype", "f32", "--to", "plain")
    succeed(capsys, "convert", "packed.bin", "-o", "out.npy", *words)
    assert np.load("out.npy").tobytes() == array.tobytes()


@pytest.mark.heavy
def test_a_bin_file_of_pytorch_needs_no_options(capsys: Capture) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save({"w": torch.arange(6.0).reshape(2, 3).t()}, "pytorch_model.bin")
    succeed(capsys, "convert", "pytorch_model.bin", "-o", "out.safetensors")
    assert_equal(load_file("out.safetensors"), {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T})


def test_urls(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    save_file(arrays(), "in.safetensors")
    words = ("-o", "memory://cli/out.npz", "--staging", str(tmp_path))
    assert succeed(capsys, "convert", "in.safetensors", *words).startswith("wrote memory://cli/out.npz: 0 of 6 ")
    succeed(capsys, "convert", "memory://cli/out.npz", "-o", f"file://{tmp_path}/out.safetensors")
    assert_holds("out.safetensors", arrays())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["in.npy", "-o", "out.npy", "--dtype", "f16"],
            "--dtype converts the tensors that --to matches: give --to too, such as --to plain",
        ),
        (
            ["in.npy", "-o", "out.npy", "--offset", "3"],
            "dims, type and offset describe raw bytes, and in.npy is read as npy, whose header states them: leave them "
            "out (--from-dtype, --offset)",
        ),
        (
            ["in.raw", "-o", "out.npy"],
            "in.raw holds raw bytes: state the type of its elements and its dims (--dtype, --dims)",
        ),
        (
            ["in.raw", "-o", "out.npy", "--dtype", "f32", "--dims", "4x5"],
            "cannot read in.raw: dims (4, 5) of f32 need 80 bytes from byte 0, and the file has 60 bytes; give the "
            "right dims (--dims), type (--dtype) or offset (--offset)",
        ),
        (
            ["in.npy", "-o", "out/", "--shard-size", "many"],
            "'many' is no number of bytes: write a number with a unit, as in 256 MB or 1 GiB",
        ),
        (
            ["in.npy", "-o", "out.npz", "--shard-size", "5GB"],
            "out.npz is one file without shards: name a folder (with a slash at its end) or an index, such as "
            "model.safetensors.index.json, or leave out the size of shards (--shard-size)",
        ),
        (
            ["in.npy", "-o", "out.npz", "--staging", "empty"],
            "out.npz is written where it is named: leave out the staging folder, which is for files at URLs "
            "(--staging)",
        ),
        (["in.npy", "-o", "out.pt"], "cannot write out.pt: Inlay only reads files of the format PyTorch"),
        (["in.npy", "-o", "out.onnx"], "cannot write out.onnx: Inlay only reads files of the format ONNX"),
        (
            ["empty", "-o", "out.npy"],
            "cannot read empty: the folder holds no .safetensors file and no index of shards; name a file",
        ),
    ],
)
def test_mistakes(capsys: Capture, words: list[str], text: str) -> None:
    np.save("in.npy", numbered((3, 5)))
    numbered((3, 5)).tofile("in.raw")
    Path("empty").mkdir()
    assert complaint(capsys, "convert", *words) == text
    assert sorted(path.name for path in Path().iterdir()) == ["empty", "in.npy", "in.raw"]
