"""`inlay plan` and `inlay run`: output, written files, and errors."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlay import cli, load, plan
from inlay.cli.application import MeasurementProgress
from inlay.graph.costs.measuring import MeasuredCosts
from inlay.graph.report import explain_plan, figures
from inlay.primitives import engine, set_engine
from inlay.render.network import PlanPicture

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def _in_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INLAY_DEBUG", raising=False)


@pytest.fixture(autouse=True)
def has_engine() -> Iterator[bool]:
    """Return True if oneDNN computes; otherwise the reference engine is selected, and no note is printed."""
    before = list(engine._default)
    is_here = engine.explain_fallback() is None
    if not is_here:
        set_engine("reference")
    yield is_here
    engine._default[:] = before


def info(name: str, *dims: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def write_model(path: str, nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: Any) -> None:
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path(path).write_bytes(model.SerializeToString())


def write_classifier(path: str = "net.onnx", batch: int | str = "n") -> None:
    """A convolution, its mean over space, and a softmax over 12 classes."""
    weights = np.random.default_rng(1).standard_normal((12, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["m"], "mean"),
        helper.make_node("Flatten", ["m"], ["f"], "flat"),
        helper.make_node("Softmax", ["f"], ["y"], "softmax", axis=1),
    ]
    write_model(path, nodes, [info("x", batch, 3, 8, 8)], [info("y", batch, 12)], w=weights)


def write_two(path: str = "two.onnx") -> None:
    """The sum and the product of two inputs."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"], "add"),
        helper.make_node("Mul", ["a", "b"], ["product"], "mul"),
    ]
    write_model(path, nodes, [info("a", 2, "k"), info("b", 2, "k")], [info("sum", 2, "k"), info("product", 2, "k")])


def expected() -> np.ndarray[Any, np.dtype[np.float32]]:
    """The classifier's answer to `IMAGE`, by NumPy alone."""
    weights = np.random.default_rng(1).standard_normal((12, 3, 3, 3)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), (2, 3))
    means = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weights), 0).mean((2, 3))
    powers = np.exp(means - means.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True), np.float32)


def succeed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Return the output of a successful command."""
    assert cli.main(args) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return str(out)


def complaint(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The error of a command that fails."""
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    return str(err.removeprefix("error: ").removesuffix("\n"))


# plan


@pytest.mark.usefixtures("quiet_machine")  # how many threads a plan is for depends on what else runs
def test_plan_prints_what_the_library_says(capsys: pytest.CaptureFixture[str]) -> None:
    write_classifier()
    found = plan(load("net.onnx", batch=4), costs="probed")
    assert succeed(capsys, "plan", "net.onnx", "--batch", "4", "--costs", "probed") == f"{explain_plan(found)}\n"


def test_plan_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    write_classifier()
    out = succeed(capsys, "plan", "net.onnx", "--dim", "n=4", "--costs", "analytic", "--json")
    assert json.loads(out) == json.loads(json.dumps(figures(plan(load("net.onnx", batch=4), costs="analytic"))))


def test_a_plan_for_another_processor_needs_no_word_on_costs(capsys: pytest.CaptureFixture[str]) -> None:
    write_classifier(batch=2)
    for options in (["--isa", "avx2"], ["--isa", "SSE41", "--threads", "7"], ["--threads", "3", "--costs", "analytic"]):
        figures = json.loads(succeed(capsys, "plan", "net.onnx", "--json", *options))
        assert figures["costs"] == "analytic"
        if "--threads" in options:
            assert figures["threads"] == int(options[options.index("--threads") + 1])
        if "--isa" in options:
            assert figures["isa"] == options[1].upper()


@pytest.mark.parametrize("name", ["net.svg", "net.html"])
def test_plan_draws_a_picture(capsys: pytest.CaptureFixture[str], name: str) -> None:
    write_classifier(batch=2)
    out = succeed(capsys, "plan", "net.onnx", "--costs", "analytic", "--picture", name)
    found = plan(load("net.onnx"), costs="analytic")
    assert out == f"{explain_plan(found)}\n\nwrote {name}\n"
    assert PlanPicture(found).svg() in Path(name).read_text()


def test_beside_json_the_picture_is_named_on_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    write_classifier(batch=2)
    assert cli.main(["plan", "net.onnx", "--costs", "analytic", "--json", "--picture", "a.svg"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["network"] == "small"
    assert err == "wrote a.svg\n"


@pytest.mark.usefixtures("quiet_machine")
def test_plan_measures_once_and_says_how_long_that_took(capsys: pytest.CaptureFixture[str], has_engine: bool) -> None:
    if not has_engine:
        pytest.skip("no oneDNN")
    write_classifier(batch=2)
    assert cli.main(["plan", "net.onnx", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["costs"] == "measured"
    words = re.compile(r"measured ([0-9]+) kernels and reorders in [0-9.]+ s; they are remembered\n")
    assert words.fullmatch(err)
    assert cli.main(["plan", "net.onnx", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_plan_and_run_say_in_one_line_that_the_machine_is_busy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("inlay.engines.onednn")
    from inlay.graph import plan
    from inlay.graph.costs import measuring
    from inlay.measure.processors import Processors

    for module in (plan, measuring):
        monkeypatch.setattr(module, "recent_processors", lambda *_: Processors((0.6, 0.5)))
    monkeypatch.setattr(plan, "get_num_threads", lambda: 2)
    write_classifier(batch=2)
    line = (
        "the machine is busy, 1.1 of 2 processors are free: planned for 1 thread, and costs that are not stored "
        "are estimated"
    )
    assert cli.main(["plan", "net.onnx"]) == 0
    out, err = capsys.readouterr()
    assert (out.count(line), err) == (1, "")
    assert cli.main(["plan", "net.onnx", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["load"], figures["threads"]) == (line, 1)
    np.save("x.npy", np.zeros((2, 3, 8, 8), np.float32))
    assert cli.main(["run", "net.onnx", "-i", "x.npy"]) == 0
    out, err = capsys.readouterr()
    assert (out.count(line), err.count(line)) == (0, 1)


def test_what_was_measured_before_an_interrupt_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_engine: bool
) -> None:
    if not has_engine:
        pytest.skip("no oneDNN")
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    write_classifier(batch=2)
    tell = MeasurementProgress.update

    def interrupted(self: MeasurementProgress, done: int, total: int) -> None:
        tell(self, done, total)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(MeasurementProgress, "update", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main(["plan", "net.onnx"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "")
    monkeypatch.undo()
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    counts: list[int] = []
    known = MeasuredCosts.prepare

    def counted(self: MeasuredCosts, operations: Any, reorders: Any = ()) -> None:
        wanted = list(operations)
        counts.extend([len(wanted), len(list(self._select_unmeasured(wanted)))])
        known(self, wanted, reorders)

    monkeypatch.setattr(MeasuredCosts, "prepare", counted)
    assert cli.main(["plan", "net.onnx", "--seconds", "0", "--json"]) == 0
    asked, unknown = counts[:2]
    assert 0 < unknown < asked


# run


def test_run_prints_ranges_and_the_greatest_scores(capsys: pytest.CaptureFixture[str]) -> None:
    write_classifier()
    np.save("x.npy", IMAGE)
    lines = succeed(capsys, "run", "net.onnx", "--input", "x.npy", "--costs", "analytic").splitlines()
    scores = expected()
    assert lines[0].startswith("y (2, 12) float32: from ")
    for row in range(2):
        best = np.argsort(-scores[row])[:5]
        assert lines[1 + row].startswith(f"  row {row}: [{best[0]}] {scores[row, best[0]]:.3g}"[:-1])
        assert [int(part.split("]")[0]) for part in lines[1 + row].split("[")[1:]] == best.tolist()
    assert lines[3].startswith("ran in ")
    assert lines[3].endswith(" ms by analytic costs")
    assert len(lines) == 4


def test_run_writes_every_output_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    write_two()
    a, b = np.random.default_rng(2).standard_normal((2, 2, 5)).astype(np.float32)
    np.save("a.npy", a)
    np.save("b.npy", b)
    files = ("-i", "a=a.npy", "-i", "b=b.npy")
    out = succeed(capsys, "run", "two.onnx", *files, "-o", "out.npz", "--costs", "analytic")
    assert out.startswith("wrote out.npz: sum, product\nran in ")
    with np.load("out.npz") as found:
        assert sorted(found) == ["product", "sum"]
        np.testing.assert_array_equal(found["sum"], a + b)
        np.testing.assert_array_equal(found["product"], a * b)
    assert sorted(path.name for path in Path().iterdir()) == ["a.npy", "b.npy", "out.npz", "two.onnx"]


def test_run_writes_one_output_as_npy_for_any_batch(capsys: pytest.CaptureFixture[str]) -> None:
    write_classifier()
    np.save("x.npy", IMAGE)
    for batch in ([], ["--batch", "2"]):
        succeed(capsys, "run", "net.onnx", "-i", "x=x.npy", "-o", "y.npy", "--costs", "analytic", *batch)
        np.testing.assert_allclose(np.load("y.npy"), expected(), rtol=1e-4, atol=1e-6)
        Path("y.npy").unlink()


def test_a_file_whose_name_has_an_equals_sign_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    write_classifier()
    np.save("x=1.npy", IMAGE)
    assert succeed(capsys, "run", "net.onnx", "-i", "x=1.npy", "--costs", "analytic").startswith("y (2, 12)")


# Mistakes

MISTAKES: dict[str, tuple[list[str], str]] = {
    "no-file": (["plan", "no.onnx"], "cannot read no.onnx: there is no such file; check the name"),
    "no-model": (
        ["plan", "x.npy"],
        "cannot read x.npy: it is no ONNX model, or was cut short; export or copy it again",
    ),
    "open-dim": (
        ["plan", "net.onnx"],
        "input 'x' leaves axis 0, 'n', open: say how large it is, as dims={'n': 1} or batch=1\n"
        "(here: --dim NAME=N and --batch N)",
    ),
    "fixed-batch": (
        ["plan", "fixed.onnx", "--batch", "3"],
        "batch=3: input 'x' has the fixed extent 2 on axis 0; export the model with that axis left open\n"
        "(here: --dim NAME=N and --batch N)",
    ),
    "no-such-dim": (
        ["plan", "net.onnx", "--batch", "1", "--dim", "m=3"],
        "dims names 'm', and the model leaves open 'n': name one of them\n(here: --dim NAME=N and --batch N)",
    ),
    "dim-without-a-number": (
        ["plan", "net.onnx", "--dim", "n"],
        "--dim is NAME=N, such as height=224 or x[2]=224: 'n' is not",
    ),
    "costs": (["plan", "fixed.onnx", "--costs", "guessed"], "--costs is 'guessed': give measured, probed, analytic"),
    "isa": (
        ["plan", "fixed.onnx", "--isa", "avx3"],
        "there is no instruction set 'AVX3': give one of SSE41, AVX, AVX2, AVX2_VNNI, AVX2_VNNI_2, AVX512_CORE, "
        "AVX512_CORE_VNNI, AVX512_CORE_BF16, AVX512_CORE_FP16, AVX512_CORE_AMX, AVX512_CORE_AMX_FP16",
    ),
    "isa-measured": (
        ["plan", "fixed.onnx", "--isa", "avx2", "--costs", "measured"],
        "--costs measured is of this machine, and --isa plans for another one: leave one of them out",
    ),
    "seconds": (
        ["plan", "fixed.onnx", "--isa", "avx2", "--seconds", "3"],
        "--seconds is for measuring, and costs are analytic here: leave it out",
    ),
    "negative-seconds": (["plan", "fixed.onnx", "--seconds", "-3"], "--seconds is -3: give a number from 0 on"),
    "picture": (
        ["plan", "fixed.onnx", "--picture", "a.png"],
        "the picture of a plan is saved as .svg or .html, not '.png'",
    ),
    "no-input": (
        ["run", "net.onnx"],
        "no input is given: give the arrays of the network, as --input [NAME=]FILE.npy",
    ),
    "no-array": (
        ["run", "net.onnx", "-i", "net.onnx"],
        "cannot read net.onnx: it is no .npy file or its header is damaged; save it again",
    ),
    "no-array-file": (
        ["run", "net.onnx", "-i", "no.npy"],
        "cannot read no.npy: there is no such file; check the name",
    ),
    "input-name": (["run", "net.onnx", "-i", "data=x.npy"], "the model has no input 'data': its inputs are x"),
    "input-missing": (["run", "two.onnx", "-i", "a=x.npy"], "input 'b' is missing: the model's inputs are a, b"),
    "input-twice": (
        ["run", "two.onnx", "-i", "a=x.npy", "-i", "a=x.npy"],
        "--input a is given twice: give each input one file, as NAME=FILE",
    ),
    "input-unnamed": (
        ["run", "two.onnx", "-i", "x.npy"],
        "the model has 2 inputs, a, b: name the one that is meant",
    ),
    "input-half-named": (
        ["run", "two.onnx", "-i", "x.npy", "-i", "b=x.npy"],
        "--input x.npy does not say for which input it is: give NAME=FILE for each",
    ),
    "input-dims": (
        ["run", "net.onnx", "-i", "wide.npy"],
        "input 'x' cannot have dims (2, 5), in the model they are (open, 3, 8, 8): "
        "export the model with the axes left open that vary",
    ),
    "other-batch": (
        ["run", "net.onnx", "-i", "x.npy", "--batch", "3"],
        "batch=3: input 'x' is given dims (2, 3, 8, 8); give arrays with 3 on axis 0, or leave the batch out\n"
        "(here: --batch N)",
    ),
    "other-fixed-batch": (
        ["run", "fixed.onnx", "-i", "x.npy", "--batch", "3"],
        "batch=3: input 'x' has the fixed extent 2 on axis 0; export the model with that axis left open\n"
        "(here: --batch N)",
    ),
    "no-batch": (
        ["run", "net.onnx", "-i", "x.npy", "--batch", "0"],
        "batch is 0: the extent of a dim is a whole number from 1 on",
    ),
    "input-type": (
        ["run", "net.onnx", "-i", "double.npy", "--costs", "analytic"],
        "input x is float64, the network takes float32: convert it, as with astype('float32')",
    ),
    "output-suffix": (
        ["run", "net.onnx", "-i", "x.npy", "-o", "out.txt"],
        "outputs are written as .npz, or one of them as .npy, not '.txt'",
    ),
    "outputs-in-one-npy": (
        ["run", "two.onnx", "-i", "a=wide.npy", "-i", "b=wide.npy", "-o", "out.npy", "--costs", "analytic"],
        "the network has 2 outputs, sum, product: a .npy file holds one, write a .npz file",
    ),
    "output-directory": (
        ["run", "net.onnx", "-i", "x.npy", "-o", "no/out.npz", "--costs", "analytic"],
        "cannot write no/out.npz: the directory no does not exist; create it first",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_with_a_remedy(capsys: pytest.CaptureFixture[str], name: str) -> None:
    write_classifier()
    write_classifier("fixed.onnx", 2)
    write_two()
    np.save("x.npy", IMAGE)
    np.save("double.npy", IMAGE.astype(np.float64))
    np.save("wide.npy", np.zeros((2, 5), np.float32))
    before = sorted(path.name for path in Path().iterdir())
    arguments, message = MISTAKES[name]
    assert complaint(capsys, *arguments) == message
    assert sorted(path.name for path in Path().iterdir()) == before


def test_without_onnx_the_error_names_the_command_that_installs_it() -> None:
    write_classifier(batch=2)
    code = "import sys\nsys.modules['onnx'] = None\nfrom inlay import cli\nsys.exit(cli.main(['plan', 'net.onnx']))\n"
    env = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: onnx is not installed: pip install 'inlay[onnx]'\n"


@pytest.mark.parametrize("command", ["plan", "run"])
def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    out = succeed(capsys, command, "--help")
    assert out.startswith(f"Usage: inlay {command} [OPTIONS] ")
    assert out.count(f"\n    inlay {command} ") >= 2


def test_a_bar_is_drawn_only_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    drawn: list[Callable[[], object]] = []

    class Bar:
        def update(self, task: object, completed: int, total: int) -> None:
            drawn.append(lambda: (completed, total))

        def stop(self) -> None:
            drawn.append(lambda: "stopped")

    monkeypatch.setattr("inlay.cli.application._new_bar", lambda: (Bar(), 0))
    with MeasurementProgress() as watch:
        watch.update(1, 3)
    assert (drawn, watch.count) == ([], 1)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with MeasurementProgress() as watch:
        watch.update(2, 3)
    assert [call() for call in drawn] == [(2, 3), "stopped"]
