"""Options of `inlay convert` together: what the parts of the package do for one command."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.command_line import Capture, complaint, outputs, succeed
from tests.support.storage_peers import zarr_or_skip


@pytest.fixture(autouse=True)
def weights(directory: Path) -> Path:
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal((64, 96), np.float32) for name in ("k", "q")}
    save_file({**values, "bias": np.ones(64, np.float32)}, "w.safetensors")
    return directory


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_shards_are_quantized_by_workers_verified_reported_and_replaced(capsys: Capture) -> None:
    succeed(capsys, "convert", "w.safetensors", "-o", "shards/", "--shard-size", "30kB")
    options = [
        "--to",
        "[kq]=ggml:Q8_0",
        "--quantize",
        "absmax",
        "--workers",
        "2",
        "--verify",
        "--report",
        "report.json",
    ]
    call = ["convert", "shards/", "-o", "q.gguf", "--memory", "60kB", *options]
    out, err = outputs(capsys, *call)
    assert err == ""
    assert lines(out)[0].startswith("wrote q.gguf: 2 of 3 tensors converted, 13.3 kB in ")
    assert [line.split(":")[0] for line in lines(out)[1:3]] == ["k", "q"]
    assert lines(out)[3].startswith("verified q.gguf: every element is that of the source, in ")
    described = json.loads(Path("report.json").read_text())
    errors = {tensor["name"]: tensor.get("relative_error") for tensor in described["tensors"]}
    assert errors["bias"] is None
    assert 0 < errors["k"] < 0.01
    assert complaint(capsys, *call).startswith("cannot write q.gguf: it exists; choose another name")
    assert outputs(capsys, *call, "--overwrite")[1] == ""
    table = lines(succeed(capsys, "info", "q.gguf"))
    assert [line.split()[:4] for line in table[1:4]] == [
        ["bias", "64", "f32", "row-major"],
        ["k", "64x96", "blocks", "ggml:Q8_0"],
        ["q", "64x96", "blocks", "ggml:Q8_0"],
    ]
    succeed(capsys, "convert", "q.gguf", "-o", "back/", "--dequantize", "--shard-size", "30kB", "--verify")
    back = load_file("back/model-00001-of-00002.safetensors")
    assert np.abs(back["k"] - load_file("w.safetensors")["k"]).max() < 0.05


def test_arrays_of_zarr_are_verified_reported_compared_and_replaced(capsys: Capture) -> None:
    zarr_or_skip()
    options = ["--to", "?=ba", "--chunks", "?=-1,16", "--memory", "100kB", "--verify", "--report", "report.json"]
    call = ["convert", "w.safetensors", "-o", "w.zarr", *options]
    assert lines(succeed(capsys, *call))[1].startswith("verified w.zarr: every element is that of the source, in ")
    assert json.loads(Path("report.json").read_text())["first_pass"] is None
    assert complaint(capsys, *call).startswith("cannot write w.zarr: it exists; choose another name")
    succeed(capsys, *call, "--overwrite", "--workers", "2")
    assert lines(succeed(capsys, "diff", "w.safetensors", "w.zarr"))[-1] == "equal elements, different formats"
    succeed(capsys, "convert", "w.zarr", "-o", "back.safetensors", "--to", "*=plain", "--verify")
    assert lines(succeed(capsys, "diff", "w.safetensors", "back.safetensors"))[-1] == "equal elements, equal formats"
    planned = json.loads(succeed(capsys, "convert", "w.zarr", "-o", "x.zarr", "--dry-run", "--json"))
    assert planned["bytes_read"] == 2 * 64 * 96 * 4 + 64 * 4
