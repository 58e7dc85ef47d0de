"""Commands in this process and in one of their own, and the small networks that they read."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from inlay import cli
from tests.support.network_runs import model_of, node

Capture = pytest.CaptureFixture[str]
INLAY = [sys.executable, "-m", "inlay"]
IMAGE = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
"""An input of the classifier."""
WEIGHTS = np.random.default_rng(1).standard_normal((12, 3, 3, 3)).astype(np.float32)
"""The weights of the classifier's convolution."""


def outputs(capsys: Capture, *args: str) -> tuple[str, str]:
    """Return the text on both streams of a successful command."""
    assert cli.main(args) == 0
    return capsys.readouterr()


def succeed(capsys: Capture, *args: str) -> str:
    """Return the output of a successful command that prints no note."""
    out, err = outputs(capsys, *args)
    assert err == ""
    return out


def complaint(capsys: Capture, *args: str) -> str:
    """Return the error of a command that fails."""
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    return err.removeprefix("error: ").removesuffix("\n")


def matches(expected: str, output: str) -> bool:
    """Return whether the output of a command is the expected one, in which `...` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, output, re.DOTALL) is not None


def run_process(call: list[str], **options: Any) -> tuple[int, str | None, str]:
    """Return exit code, output and errors of a command in a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 120} | options
    done = subprocess.run(call, text=True, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def write_classifier(path: str = "net.onnx", batch: int | str = "n") -> None:
    """A convolution, its mean over space, and a softmax over 12 classes."""
    nodes = [
        node("Conv", "x w", "c"),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "m"),
        node("Flatten", "m", "f"),
        node("Softmax", "f", "y", axis=1),
    ]
    Path(path).write_bytes(model_of(nodes, {"x": (batch, 3, 8, 8)}, ["y"], {"w": WEIGHTS}).SerializeToString())


def write_two(path: str = "two.onnx") -> None:
    """The sum and the product of two inputs."""
    nodes = [node("Add", "a b", "sum"), node("Mul", "a b", "product")]
    model = model_of(nodes, {"a": (2, "k"), "b": (2, "k")}, ["sum", "product"])
    Path(path).write_bytes(model.SerializeToString())


def write_activations(dims: tuple[int, ...], name: str = "small", out: str = "y") -> None:
    """Write net.onnx: a ReLU and a sigmoid whose graph, nodes and input have this name."""
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, dims) for end in (f"x{name}", out)]
    nodes = [
        helper.make_node("Relu", [f"x{name}"], ["h"], name),
        helper.make_node("Sigmoid", ["h"], [out], f"{name} 2"),
    ]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path("net.onnx").write_bytes(model.SerializeToString())
