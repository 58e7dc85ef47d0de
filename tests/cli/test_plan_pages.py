"""`inlay plan --html` and `inlay run --html`: the page of a plan, with measured times after a run, and mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest

from inlay import cli, load, plan
from inlay.graph.report import explain_plan
from inlay.render.plan_page import PlanPage
from tests.support.command_line import IMAGE, Capture, complaint, outputs, succeed, write_classifier
from tests.support.plan_pages import PageParts

PLAN = ("plan", "net.onnx", "--costs", "analytic")
RUN = ("run", "net.onnx", "-i", "x.npy", "--costs", "analytic")


@pytest.fixture(autouse=True)
def files(directory: Path) -> Path:
    """The classifier and its input."""
    write_classifier(batch=2)
    np.save("x.npy", IMAGE)
    return directory


def test_plan_writes_the_page(capsys: Capture) -> None:
    out = succeed(capsys, *PLAN, "--html", "net.html")
    found = plan(load("net.onnx"), costs="analytic")
    assert out == f"{explain_plan(found)}\n\nwrote net.html\n"
    assert PageParts(Path("net.html").read_text()).data["plan"] == json.loads(json.dumps(PlanPage(found).record()))


def test_beside_json_the_page_is_named_on_the_error_stream(capsys: Capture) -> None:
    out, err = outputs(capsys, *PLAN, "--json", "--html", "net.html")
    assert json.loads(out)["network"] == "tiny"
    assert err == "wrote net.html\n"


def test_run_writes_the_page_with_measured_times(capsys: Capture) -> None:
    out = succeed(capsys, *RUN, "--profile", "--html", "net.html", "--trace", "steps.json")
    assert out.splitlines()[-1] == "wrote net.html"
    record = PageParts(Path("net.html").read_text()).data["plan"]
    trace = json.loads(Path("steps.json").read_text())
    measured = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["tid"] == 2]
    assert [step["measured"]["ms"] for step in record["steps"]] == [event["args"]["ms"] for event in measured]
    assert sum(step["measured"]["share"] for step in record["steps"]) == pytest.approx(1)


def test_a_page_needs_no_table(capsys: Capture) -> None:
    lines = succeed(capsys, *RUN, "--html", "net.html").splitlines()
    assert lines[-1] == "wrote net.html"
    assert not any("share" in line for line in lines), "the table is for --profile"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_after_exact_kernels_the_page_has_predicted_times(capsys: Capture) -> None:
    image = IMAGE.copy()
    image[0, 0, 0, 0] = np.inf
    np.save("x.npy", image)
    lines = succeed(capsys, *RUN, "--html", "net.html").splitlines()
    record = PageParts(Path("net.html").read_text()).data["plan"]
    if record["measured"] is None:
        assert lines[-2:] == [
            "wrote net.html",
            "its times are predicted: exact kernels ran, and these are other steps than those of the plan",
        ]
    else:  # no kernel of this engine is inexact for infinities
        assert lines[-1] == "wrote net.html"


@pytest.mark.parametrize("command", [PLAN, RUN])
def test_a_page_ends_in_html(capsys: Capture, command: tuple[str, ...]) -> None:
    before = sorted(path.name for path in Path().iterdir())
    assert complaint(capsys, *command, "--html", "net.svg") == "the page of a plan is saved as .html, not '.svg'"
    assert (
        complaint(capsys, *command, "--html", "net") == "the page of a plan is saved as .html, not 'without an ending'"
    )
    assert sorted(path.name for path in Path().iterdir()) == before


def test_a_page_replaces_no_file_that_is_read(capsys: Capture) -> None:
    Path("net.html").symlink_to("net.onnx")
    for command in (PLAN, RUN):
        text = complaint(capsys, *command, "--html", "net.html")
        assert text == "cannot write net.html: it is the file that is being read; choose another name"


def test_each_file_has_its_own_name(capsys: Capture) -> None:
    text = complaint(capsys, *PLAN, "--picture", "a.html", "--html", "./a.html")
    assert text == "--picture and --html are both a.html: choose another name for one of them"
    text = complaint(capsys, *RUN, "--trace", "a.html", "--html", "a.html")
    assert text == "--trace and --html are both a.html: choose another name for one of them"


def test_a_page_that_cannot_be_written_is_an_error(capsys: Capture) -> None:
    text = complaint_after_output(capsys, *PLAN, "--html", "nowhere/net.html")
    assert text.startswith("error: cannot write nowhere/net.html: ")


def complaint_after_output(capsys: Capture, *args: str) -> str:
    """The error of a command that fails after it has printed its result."""
    assert cli.main(args) == 2
    return capsys.readouterr().err
