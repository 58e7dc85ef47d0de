"""The commands in README.md and docs/cli.md print what the pages say, and the demo keeps its promise."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from inlay.cli import main

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/cli.md")


class Example(NamedTuple):
    """One command of a page."""

    arguments: list[str]
    """What follows `$ inlay`."""
    expected: str
    """What the page says it prints; `...` stands for anything."""


def examples(page: str) -> list[Example]:
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        for part in re.split(r"^\$ inlay ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            found.append(Example(shlex.split(command), expected))
    return found


def make_files() -> None:
    """What the pages say is there."""
    np.save("image.npy", np.arange(680, dtype=np.float32).reshape(2, 17, 5, 4))
    np.save("blob.npy", np.arange(1280, dtype=np.float32))
    weights = {
        "conv1.weight": np.ones((33, 3, 7, 7), np.float32),
        "conv1.bias": np.ones(33, np.float32),
        "conv2.weight": np.ones((17, 33, 3, 3), np.float32),
        "fc.weight": np.ones((10, 17), np.float32),
        "mask": np.array([True, False, True]),
    }
    save_file(weights, "weights.safetensors")
    np.save("photo.npy", np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32))
    write_network(Path("small.onnx"))


def write_network(path: Path) -> None:
    """Two convolutions, their results side by side, and ten scores of the mean over space; the batch is open."""
    rng = np.random.default_rng(1)
    weights = {"w1": (32, 3, 3, 3), "w2": (32, 32, 1, 1), "w3": (32, 32, 3, 3), "w4": (10, 64)}
    arrays = [numpy_helper.from_array(rng.standard_normal(dims, np.float32) / 9, n) for n, dims in weights.items()]
    nodes = [
        helper.make_node("Conv", ["data", "w1"], ["stem"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["stem"], ["active"], "relu"),
        helper.make_node("Conv", ["active", "w2"], ["left"], "left"),
        helper.make_node("Conv", ["active", "w3"], ["right"], "right", pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["left", "right"], ["both"], "both", axis=1),
        helper.make_node("GlobalAveragePool", ["both"], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "w4"], ["scores"], "scores", transB=1),
        helper.make_node("Softmax", ["scores"], ["classes"], "softmax", axis=1),
    ]
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, ["batch", 3, 32, 32])
    classes = helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "small", [data], [classes], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_files()
    for example in examples(page):
        assert main(example.arguments) == 0
        parts = [re.escape(part) for part in example.expected.split("...")]
        out = capsys.readouterr().out
        assert re.fullmatch(".*".join(parts), out, re.DOTALL), out


@pytest.mark.parametrize(("page", "least"), [("README.md", 3), ("docs/cli.md", 8)])
def test_the_pages_have_commands(page: str, least: int) -> None:
    assert len(examples(page)) >= least


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_demo_runs_and_all_its_results_are_equal() -> None:
    call = [sys.executable, str(ROOT / "examples" / "demo.py"), "--seconds", "0.5"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n  equal  ") == 4
    assert "\n  close  scores of this plan and of inlay, all nchw, nothing fused: within " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("All results are equal.")
