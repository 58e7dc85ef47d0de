"""`inlay run --profile` and `--trace`: the table of steps, the file of the trace, and mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import IMAGE, Capture, complaint, succeed, write_classifier
from tests.support.profiles import require_narrow


@pytest.fixture(autouse=True)
def files(directory: Path) -> Path:
    """The classifier and its input."""
    write_classifier()
    np.save("x.npy", IMAGE)
    return directory


RUN = ("run", "net.onnx", "-i", "x.npy", "--costs", "analytic")


def table_of(out: str) -> list[str]:
    """The lines of the table, after the summary of the outputs."""
    lines = out.splitlines()
    return lines[lines.index("") + 1 :]


def test_the_table_follows_the_outputs(capsys: Capture) -> None:
    out = succeed(capsys, *RUN, "--profile")
    assert out.startswith("y (2, 12) float32: from ")
    table = table_of(out)
    require_narrow("\n".join(table))
    assert table[0].startswith("tiny: a run takes ")
    head = next(i for i, line in enumerate(table) if line.split()[:2] == ["share", "ms"])
    assert table[head].split() == ["share", "ms", "predicted", "count", "step", "formats", "kernel"]
    shares = [float(line.split()[0]) for line in table[head + 1 :]]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert all(line.split()[4] == "1" for line in table[head + 1 :])


def test_all_rows_are_printed_on_request(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlay.graph.profiling.profile.TOP", 1)
    monkeypatch.setattr("inlay.graph.profiling.profile.Profile.__str__", lambda self: self.table(top=1))
    first, everything = (table_of(succeed(capsys, *RUN, "--profile", *more)) for more in ([], ["--all"]))
    assert "more steps: " in first[-1]
    assert not any("more steps: " in line for line in everything)
    assert len(everything) > len(first)


def test_a_trace_is_written_beside_the_outputs(capsys: Capture) -> None:
    out = succeed(capsys, *RUN, "-o", "y.npy", "--trace", "steps.json")
    lines = out.splitlines()
    assert lines[0] == "wrote y.npy: y"
    content = json.loads(Path("steps.json").read_text())
    steps = [event for event in content["traceEvents"] if event["ph"] == "X" and event["tid"] == 2]
    assert lines[-1] == f"wrote steps.json: a trace of {len(steps)} steps"
    assert not any("share" in line for line in lines), "the table is for --profile"
    assert sorted(path.name for path in Path().iterdir()) == ["net.onnx", "steps.json", "x.npy", "y.npy"]


@pytest.mark.parametrize("target", ["net.onnx", "x.npy"])
def test_a_trace_replaces_no_file_that_is_read(capsys: Capture, target: str) -> None:
    before = Path(target).read_bytes()
    text = complaint(capsys, *RUN, "--trace", target)
    assert text == f"cannot write {target}: it is the file that is being read; choose another name"
    assert Path(target).read_bytes() == before


def test_the_outputs_and_the_trace_are_two_files(capsys: Capture) -> None:
    Path("y.npy").touch()
    text = complaint(capsys, *RUN, "-o", "y.npy", "--trace", "y.npy")
    assert text == "--trace and --output are both y.npy: choose another name for one of them"


def test_all_rows_are_of_a_table(capsys: Capture) -> None:
    text = complaint(capsys, *RUN, "--all")
    assert text == "--all is for the table of --profile: give both, or leave it out"


def test_a_trace_that_cannot_be_written_is_an_error(capsys: Capture) -> None:
    from inlay import cli

    assert cli.main([*RUN, "--trace", "nowhere/steps.json"]) == 2
    assert "error: cannot write nowhere/steps.json: " in capsys.readouterr().err
