"""Errors of infer and verify: golden/mistakes/inference.txt; diagnoses with their whole texts; files; the example."""

import ctypes
import subprocess
import sys
from pathlib import Path

import ml_dtypes  # noqa: F401  calls of the file name it
import numpy as np
import pytest

import inlay
from inlay.cli import main
from inlay.descriptor import MemoryDesc
from inlay.inference import Diagnosis, infer, verify
from inlay.inference.index_files import read_indices
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.paths import ROOT


@pytest.mark.parametrize(("call", "error"), read_mistakes("inference"))
def test_a_wrong_argument_gives_the_whole_text(call: str, error: str) -> None:
    names = {"infer": infer, "verify": verify, "np": np, "MemoryDesc": MemoryDesc, "ctypes": ctypes, "inlay": inlay}
    assert_mistake(call, error, {**names, "memset": ctypes.memset, "read_indices": read_indices, "Path": Path})


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            [0, 1, 2, 3, 4, 4, 6, 7],
            "1 element has more than one place: element 4 at (1, 0) is in places 4 and 5, and 1 element has no place, "
            "the first is 5 at (1, 1)\n    nearest layout: ab: dims 2x4 of f32",
        ),
        (
            [0, 1, 2, 3, 4, -1, 6, 7],
            "1 element has no place, the first is 5 at (1, 1)\n    nearest layout: ab: dims 2x4 of f32",
        ),
    ],
)
def test_diagnoses_of_tables(table: list[int], text: str) -> None:
    assert str(infer(table, (2, 4), table="physical")) == text


def test_a_packer_that_sorts_depends_on_values() -> None:
    found = infer(lambda x: np.sort(x.reshape(-1)), (3, 5), "u8")
    assert isinstance(found, Diagnosis)
    assert found.rule == "values"
    assert str(found) == (
        "place 0 holds element 0 at (0, 0) in one call and 14 at (2, 4) in another: the place is not a function of "
        "coordinates"
    )


@pytest.mark.parametrize("name", ["table.npy", "table.json", "table.csv", "table.bin"])
def test_the_commands_read_every_kind_of_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = np.arange(12, dtype=np.int32).reshape(3, 4).T.copy()
    np.save("table.npy", table)
    Path("table.json").write_text(str(table.tolist()))
    Path("table.csv").write_text("\n".join(",".join(map(str, row)) for row in table.tolist()))
    table.tofile("table.bin")
    raw = ["--index-type", "s32"] if name.endswith(".bin") else []
    assert main(["infer", name, "3x4", "--table", "physical", *raw]) == 0
    assert capsys.readouterr().out == "ba: dims 3x4 of f32\n"
    assert main(["verify", "ab", "3x4", name, "--table", "physical", *raw]) == 2
    assert capsys.readouterr().err == (
        "error: element 1 at (0, 1) is in place 3, expected 1; the first wrong byte is 4\n"
        "    ba instead of ab makes it right\n"
    )


def test_the_commands_compare_a_packed_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    logical = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    np.save("logical.npy", logical)
    logical.T.copy().tofile("packed.bin")
    assert main(["verify", "ba", "3x4", "packed.bin", "--logical", "logical.npy"]) == 0
    assert main(["infer", "packed.bin", "3x4", "--logical", "logical.npy"]) == 0
    out = capsys.readouterr().out
    assert out == "ba: all 12 elements of dims 3x4 are in their places\nba: dims 3x4 of f32\n"


def test_the_command_compares_a_buffer_with_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quants, scale = np.arange(64, dtype=np.uint8).reshape(2, 32) % 16, np.ones((2, 1), np.float16)
    np.savez("streams.npz", quants=quants, scale=scale)
    packed = np.concatenate([scale.view(np.uint8), quants[:, :16] | quants[:, 16:] << 4], axis=1)
    packed.tofile("packed.bin")
    call = ["verify", "ggml:Q4_0", "2x32", "packed.bin", "--logical", "streams.npz"]
    assert main(call) == 0
    assert capsys.readouterr().out == "ggml:Q4_0 2x32: all 66 numbers of 2 streams are in their places\n"
    packed[1, 5] ^= 0x20
    packed.tofile("packed.bin")
    assert main(call) == 2
    assert capsys.readouterr().err == "error: quants at (1, 19) is 1, expected 3: bit 5 of byte 23 is wrong\n"
    Path("streams.npz").write_bytes(b"no archive")
    assert main(call) == 2
    assert "streams.npz holds no arrays of streams" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (
            "t.csv",
            "0,1,,\n2,3,,",
            "line 1 of t.csv is '0,1,,': give integers, with the number of --marker (-1) where no ",
        ),
        ("t.csv", "0;1\n2;3", "line 1 of t.csv is '0;1': give integers, with the number of --marker (-1) where no "),
        ("t.json", "[0, 1, null, 3]", "t.json holds no array of numbers: give integers, with the number of --marker "),
        ("t.json", "[[0, 1], [2]]", "t.json holds no array of numbers: give integers, with the number of --marker "),
        ("t.npz", "", "t.npz holds several arrays: save the one to read as .npy"),
        ("t.bin", "", "t.bin is a raw file: give the type of the entries of a table, as in --index-type s32, or the "),
    ],
)
def test_files_that_are_no_tables_are_refused_with_a_remedy(
    name: str,
    content: str,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    assert main(["infer", name, "2x2"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {error}")


def test_a_table_with_a_byte_order_mark_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("T.CSV").write_text("0 2\n1 3\n", encoding="utf-8-sig")
    assert main(["infer", "T.CSV", "2x2"]) == 0
    assert capsys.readouterr().out == "ba: dims 2x2 of f32\n"


def test_the_command_that_infers_no_layout_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.json").write_text("[0, 1, 2, 3, 4, 6, 5, 7]")
    assert main(["infer", "t.json", "2x4"]) == 2
    assert capsys.readouterr().err.startswith("error: elements 5 at (1, 1) and 6 at (1, 2) are exchanged")


@pytest.mark.parametrize("data_type", ["uint8", "float16", "bfloat16"])
def test_the_data_type_of_files_is_that_of_the_logical_array(
    data_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of NumPy have no type of bfloat16: it is passed, and may always be."""
    monkeypatch.chdir(tmp_path)
    x = np.arange(12).astype(data_type).reshape(3, 4)
    np.save("x.npy", x)
    x.T.copy().tofile("packed.bin")
    for options in ([], ["--dtype", data_type]):
        if options or data_type != "bfloat16":
            assert main(["infer", "packed.bin", "3x4", "--logical", "x.npy", *options]) == 0
            assert main(["verify", "ba", "3x4", "packed.bin", "--logical", "x.npy", *options]) == 0
    assert capsys.readouterr().out.startswith("ba: dims 3x4 of ")
    with pytest.raises(inlay.errors.InvalidArguments, match="unknown data type 'f23'"):
        read_indices(tmp_path / "packed.bin", "f23")


def test_the_example_runs() -> None:
    call = [sys.executable, str(ROOT / "examples" / "infer_packer.py")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "aBcd8b: dims 2x17x5x4 of f32, padded to 2x24x5x4, header of 16 elements\n"
        "    also openvino:b_fs_yx_fsv8, onnxruntime:NCHW8c, tvm:NCHW8c and 1 more\n"
        "aBcd8b: all 680 elements of dims 2x17x5x4 are in their places\n"
        "element 0 at (0, 0, 0, 0) is in place 16, expected 0; the first wrong byte is 0\n"
        "    aBcd8b instead of nhwc, padded_dims (2, 24, 5, 4) instead of (2, 17, 5, 4), offset0 16 instead of 0 "
        "makes it right\n"
    )
