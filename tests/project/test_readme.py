"""The commands in README.md and docs/cli.md print the text on the pages; links lead somewhere; examples are named."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file

from inlay.cli import main
from tests.support.command_line import matches
from tests.support.drawing_scripts import PLAN, drawing_script
from tests.support.paths import ROOT

PAGES = ("README.md", "docs/cli.md", "docs/dictionary.md", "docs/explorer.md", "docs/json.md")


class Example(NamedTuple):
    """One command of a page."""

    arguments: list[str]
    """Arguments after `$ inlay`."""
    expected: str
    """Expected output; `...` stands for any text."""


def examples(page: str) -> list[Example]:
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        for part in re.split(r"^\$ inlay ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            found.append(Example(shlex.split(command), expected))
    return found


def make_files() -> None:
    """Write the files that the pages name."""
    np.save("image.npy", np.arange(680, dtype=np.float32).reshape(2, 17, 5, 4))
    np.save("table.npy", np.arange(12).reshape(3, 4).T)
    np.savez("streams.npz", quants=np.full((2, 32), 9, np.uint8), scale=np.ones((2, 1), np.float16))
    Path("packed.bin").write_bytes(2 * (np.float16(1).tobytes() + 16 * b"\x99"))
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
    Path("small.onnx").write_bytes(drawing_script(PLAN).small())


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_files()
    for example in examples(page):
        assert main(example.arguments) == 0
        out = capsys.readouterr().out
        assert matches(example.expected, out), out


@pytest.mark.parametrize(("page", "least"), [("README.md", 3), ("docs/cli.md", 8)])
def test_the_pages_have_commands(page: str, least: int) -> None:
    assert len(examples(page)) >= least


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_readme_names_every_example() -> None:
    parts_of_the_demo = {"demo_network.py", "demo_output.py", "efficientnet_lite.py", "random_networks.py"}
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")} - parts_of_the_demo
    named = set(re.findall(r"`(\w+\.py)`", (ROOT / "README.md").read_text()))
    assert named == scripts
