"""`inlay plan` and `inlay run`: output, written files, and errors."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest

from inlay import cli, load, plan
from inlay.cli.application import MeasurementProgress
from inlay.graph.costs.measuring import MeasuredCosts
from inlay.graph.report import explain_plan, figures
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.session import Session
from inlay.render.network import PlanPicture
from inlay.render.saving import scrolling
from inlay.reordering.threads import get_num_threads
from tests.support.command_line import (
    IMAGE,
    WEIGHTS,
    Capture,
    complaint,
    outputs,
    run_process,
    succeed,
    write_classifier,
    write_two,
)


def expected() -> np.ndarray[Any, np.dtype[np.float32]]:
    """The classifier's answer to `IMAGE`, by NumPy alone."""
    windows = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), (2, 3))
    means = np.maximum(np.einsum("nchwij,ocij->nohw", windows, WEIGHTS), 0).mean((2, 3))
    powers = np.exp(means - means.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True), np.float32)


# plan


@pytest.mark.usefixtures("quiet_machine")  # how many threads a plan is for depends on what else runs
def test_plan_prints_what_the_library_says(capsys: Capture) -> None:
    write_classifier()
    found = plan(load("net.onnx", batch=4), costs="probed")
    assert succeed(capsys, "plan", "net.onnx", "--batch", "4", "--costs", "probed") == f"{explain_plan(found)}\n"


def test_plan_prints_json(capsys: Capture) -> None:
    write_classifier()
    out = succeed(capsys, "plan", "net.onnx", "--dim", "n=4", "--costs", "analytic", "--json")
    assert json.loads(out) == json.loads(json.dumps(figures(plan(load("net.onnx", batch=4), costs="analytic"))))


def test_a_plan_for_another_processor_needs_no_word_on_costs(capsys: Capture) -> None:
    write_classifier(batch=2)
    for options in (["--isa", "avx2"], ["--isa", "SSE41", "--threads", "7"], ["--threads", "1", "--costs", "analytic"]):
        figures = json.loads(succeed(capsys, "plan", "net.onnx", "--json", *options))
        assert figures["costs"] == "analytic"
        if "--threads" in options:
            assert figures["threads"] == int(options[options.index("--threads") + 1])
        if "--isa" in options:
            assert figures["isa"] == options[1].upper()


def test_threads_are_those_of_this_machine(capsys: Capture) -> None:
    write_classifier(batch=2)
    for costs in ("probed", "analytic"):
        figures = json.loads(succeed(capsys, "plan", "net.onnx", "--json", "--threads", "1", "--costs", costs))
        assert (figures["costs"], figures["threads"]) == (costs, 1)
    most = get_num_threads()
    assert complaint(capsys, "plan", "net.onnx", "--threads", "9999") == (
        f"threads is 9999, and Inlay may use {most} thread{'s' * (most > 1)} on this machine: give at most {most}, or "
        "the isa of another machine"
    )


def test_plan_lists_every_step_on_request(capsys: Capture) -> None:
    write_classifier(batch=2)
    found = plan(load("net.onnx"), costs="analytic")
    out = succeed(capsys, "plan", "net.onnx", "--costs", "analytic", "--all")
    assert out == f"{found.explain(every_step=True)}\n" != f"{found}\n"
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", ["net.svg", "net.html"])
def test_plan_draws_a_picture(capsys: Capture, name: str) -> None:
    write_classifier(batch=2)
    out = succeed(capsys, "plan", "net.onnx", "--costs", "analytic", "--picture", name)
    found = plan(load("net.onnx"), costs="analytic")
    assert out == f"{explain_plan(found)}\n\nwrote {name}\n"
    svg = PlanPicture(found).svg()
    assert (scrolling(svg) if name.endswith(".html") else svg) in Path(name).read_text()


def test_beside_json_the_picture_is_named_on_the_error_stream(capsys: Capture) -> None:
    write_classifier(batch=2)
    out, err = outputs(capsys, "plan", "net.onnx", "--costs", "analytic", "--json", "--picture", "a.svg")
    assert json.loads(out)["network"] == "tiny"
    assert err == "wrote a.svg\n"


@pytest.mark.usefixtures("quiet_machine")
def test_plan_measures_once_and_says_how_long_that_took(
    capsys: Capture, has_engine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_engine:
        pytest.skip("no oneDNN")
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    write_classifier(batch=2)
    out, err = outputs(capsys, "plan", "net.onnx", "--json")
    assert json.loads(out)["costs"] == "measured"
    assert re.fullmatch(r"measured ([0-9]+) kernels and reorders in [0-9.]+ s; they are remembered\n", err)
    succeed(capsys, "plan", "net.onnx", "--json")


def test_plan_and_run_say_in_one_line_that_the_machine_is_busy(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("inlay.engines.onednn")
    from inlay.graph import planning
    from inlay.graph.costs import measuring
    from inlay.measure.processors import Processors

    for module in (planning, measuring):
        monkeypatch.setattr(module, "recent_processors", lambda *_: Processors((0.6, 0.5)))
    monkeypatch.setattr(planning, "get_num_threads", lambda: 2)
    write_classifier(batch=2)
    line = (
        "the machine is busy, 1.1 of 2 processors are free: planned for 1 thread, and costs that are not stored "
        "are estimated"
    )
    assert " ".join(succeed(capsys, "plan", "net.onnx").split()).count(line) == 1
    figures = json.loads(outputs(capsys, "plan", "net.onnx", "--json")[0])
    assert (figures["load"], figures["threads"]) == (line, 1)
    np.save("x.npy", IMAGE)
    out, err = outputs(capsys, "run", "net.onnx", "-i", "x.npy")
    assert (out.count(line), err.count(line)) == (0, 1)


def test_what_was_measured_before_an_interrupt_is_kept(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_engine: bool
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


def test_run_prints_ranges_and_the_greatest_scores(capsys: Capture) -> None:
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


def test_run_uses_as_many_threads_as_it_is_told(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classifier()
    np.save("x.npy", IMAGE)
    used: list[int | None] = []
    prepare = Session.prepare

    def prepared(self: Session) -> ProgramSession:
        used.append(self.plans[0].most_threads)
        return prepare(self)

    monkeypatch.setattr(Session, "prepare", prepared)
    command = ("run", "net.onnx", "--input", "x.npy", "--costs", "probed")
    first, second = (outputs(capsys, *command, *options)[0].splitlines()[0] for options in (("--threads", "1"), ()))
    assert first == second
    assert used == [1, None]
    assert complaint(capsys, *command, "--threads", "0") == "threads is 0: give a whole number from 1 on"


def test_run_writes_every_output_by_name(capsys: Capture) -> None:
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


def test_run_writes_one_output_as_npy_for_any_batch(capsys: Capture) -> None:
    write_classifier()
    np.save("x.npy", IMAGE)
    for batch in ([], ["--batch", "2"]):
        succeed(capsys, "run", "net.onnx", "-i", "x=x.npy", "-o", "y.npy", "--costs", "analytic", *batch)
        np.testing.assert_allclose(np.load("y.npy"), expected(), rtol=1e-4, atol=1e-6)
        Path("y.npy").unlink()


def test_run_and_plan_accept_an_empty_batch(capsys: Capture) -> None:
    write_classifier()
    np.save("none.npy", IMAGE[:0])
    for options in ([], ["--batch", "0"]):
        out = succeed(capsys, "run", "net.onnx", "-i", "none.npy", "--costs", "analytic", *options)
        assert out.splitlines()[0].endswith(" float32: no elements")
    assert succeed(capsys, "run", "net.onnx", "-i", "none.npy", "--costs", "analytic", "-o", "none-out.npy")
    assert np.load("none-out.npy").shape == (0, *expected().shape[1:])
    assert succeed(capsys, "plan", "net.onnx", "--batch", "0", "--costs", "analytic")


def test_a_file_whose_name_has_an_equals_sign_is_a_file(capsys: Capture) -> None:
    write_classifier()
    np.save("x=1.npy", IMAGE)
    assert succeed(capsys, "run", "net.onnx", "-i", "x=1.npy", "--costs", "analytic").startswith("y (2, 12)")


def test_without_onnx_the_error_names_the_command_that_installs_it() -> None:
    write_classifier(batch=2)
    code = "import sys\nsys.modules['onnx'] = None\nfrom inlay import cli\nsys.exit(cli.main(['plan', 'net.onnx']))\n"
    error = "error: onnx is not installed: pip install 'inlay[onnx]'\n"
    assert run_process([sys.executable, "-c", code]) == (2, "", error)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_help_has_examples(capsys: Capture, command: str) -> None:
    out = succeed(capsys, command, "--help")
    assert out.startswith(f"Usage: inlay {command} [OPTIONS] ")
    assert out.count(f"\n    inlay {command} ") >= 2


def test_a_bar_is_drawn_only_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Mock()
    monkeypatch.setattr("inlay.cli.application._new_bar", lambda: (bar, 0))
    with MeasurementProgress() as watch:
        watch.update(1, 3)
    assert (bar.mock_calls, watch.count) == ([], 1)
    monkeypatch.setattr(sys, "stderr", Mock(isatty=lambda: True))
    with MeasurementProgress() as watch:
        watch.update(2, 3)
    assert bar.mock_calls == [call.update(0, completed=2, total=3), call.stop()]
