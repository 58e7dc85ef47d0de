"""`inlay convert` with quantization: what it prints, and what it refuses."""

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inlay.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    w = np.random.default_rng(0).standard_normal((8, 64), np.float32)
    save_file({"fc.weight": w, "fc.bias": w[0].copy()}, "w.safetensors")
    return tmp_path


def convert(capsys: Capture, *arguments: str) -> str:
    assert main(["convert", *arguments]) == 0
    return capsys.readouterr().out


def refuse(capsys: Capture, *arguments: str) -> str:
    assert main(["convert", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    return err


def test_the_error_of_each_tensor_is_printed(capsys: Capture) -> None:
    options = ["--to", "plain", "--quantize", "absmax:group=32", "--dtype", "s8", "--scales-dtype", "bf16"]
    out = convert(capsys, "w.safetensors", "-o", "q.safetensors", *options, "--scales", "{name}.s")
    assert re.fullmatch(
        r"wrote q.safetensors: 1 of 2 tensors converted, 800 bytes in \S+ s\n"
        r"fc.weight: quantized with a relative RMS error of 0\.\d+ %, the greatest error is 0\.0\d+\n",
        out,
    )
    convert(capsys, "q.safetensors", "-o", "d.safetensors", "--dequantize", "--dtype", "f16")
    back = load_file("d.safetensors")
    assert back["fc.weight"].dtype == np.float16
    assert back["fc.bias"].dtype == np.float32
    assert np.abs(back["fc.weight"] - load_file("w.safetensors")["fc.weight"]).max() < 0.02


def test_gguf_files_are_converted_in_both_directions(capsys: Capture) -> None:
    out = convert(capsys, "w.safetensors", "-o", "w.gguf", "--to", "ggml:q8_0", "--quantize", "absmax")
    assert out.startswith("wrote w.gguf: 1 of 2 tensors converted, 800 bytes in ")
    out = convert(capsys, "w.gguf", "-o", "d.safetensors", "--dequantize", "--dry-run")
    assert out == (
        "fc.bias: F32 64, copied, 256 bytes\n"
        "fc.weight: 8x68, u8::blocked:ab::f0 -> f32::blocked:ab::f0, 544 -> 2048 bytes\n"
        "reads 800 bytes and writes 2.3 kB in 2 tasks of up to 2.6 kB\n"
    )
    convert(capsys, "w.gguf", "-o", "d.safetensors", "--dequantize")
    assert np.abs(load_file("d.safetensors")["fc.weight"] - load_file("w.safetensors")["fc.weight"]).max() < 0.02


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "ggml:Q8_0"], "ggml:Q8_0 quantizes tensor fc.weight, which rounds its numbers: ask for it"),
        (["--to", "plain", "--quantize", "absmax"], "tensor fc.weight is to be quantized to no type: choose one"),
        (["--to", "plain", "--quantize", "max", "--dtype", "s8"], "'max' is no way to quantize: write absmax"),
        (["--to", "plain", "--dequantize", "--quantize", "absmax"], "quantize and dequantize exclude each other"),
        (["--to", "plain", "--dtype", "mxfp4"], "mxfp4 has scales: quantize to it (--quantize absmax)"),
        (["--to", "plain", "--dtype", "s8"], "tensor fc.bias: 40.6 % of 64 non-zero elements become 0"),
        (
            ["--quantize", "absmax"],
            "quantize is for tensors that a rule matches: give their format (--to, such as plain)",
        ),
    ],
)
def test_mistakes_are_refused(capsys: Capture, arguments: list[str], message: str) -> None:
    assert refuse(capsys, "w.safetensors", "-o", "q.safetensors", *arguments).startswith(f"error: {message}")
    assert not Path("q.safetensors").exists()
