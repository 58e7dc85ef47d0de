"""`inlay plan -o` and `inlay run` with a saved plan: output, written files, and errors."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.graph.saved_plans.checked_file import map_sections, write_sections
from tests.support.command_line import IMAGE, Capture, outputs, run_process, write_classifier


@pytest.fixture(name="saved")
def save(capsys: Capture) -> None:
    """The plan of the classifier in `net.inlay`, and an image in `x.npy`."""
    write_classifier(batch=len(IMAGE))
    np.save("x.npy", IMAGE)
    options = ["--costs", "analytic", "--engine", "reference", "-o", "net.inlay"]
    report, _ = outputs(capsys, "plan", "net.onnx", *options)
    text = f"saved net.inlay, {Path('net.inlay').stat().st_size / 1e6:.1f} MB\n"
    assert report.endswith(f"\n\n{text}")
    figures, err = outputs(capsys, "plan", "net.onnx", "--json", *options)
    assert json.loads(figures)["network"] == "tiny"
    assert err == text


@pytest.mark.usefixtures("saved")
def test_a_saved_plan_runs_as_its_model(capsys: Capture) -> None:
    options = ["--input", "x.npy", "--engine", "reference"]
    model, _ = outputs(capsys, "run", "net.onnx", "--costs", "analytic", *options)
    plan, err = outputs(capsys, "run", "net.inlay", *options)
    assert plan.splitlines()[:-1] == model.splitlines()[:-1]
    assert "; predicted " in plan.splitlines()[-1]
    assert err == ""
    outputs(capsys, "run", "net.inlay", *options, "-o", "plan.npz")
    outputs(capsys, "run", "net.onnx", "--costs", "analytic", *options, "-o", "model.npz")
    with np.load("plan.npz") as one, np.load("model.npz") as other:
        assert one.files == other.files
        assert all(np.array_equal(one[name], other[name]) for name in one.files)


@pytest.mark.usefixtures("saved")
def test_a_file_is_known_by_its_content(capsys: Capture) -> None:
    Path("net.inlay").rename("net.bin")
    out, _ = outputs(capsys, "run", "net.bin", "--input", "x.npy", "--engine", "reference")
    assert "predicted" in out


@pytest.mark.usefixtures("saved", "quiet_machine")
def test_the_note_on_a_plan_for_another_machine_is_printed(capsys: Capture) -> None:
    sections = {name: np.array(data) for name, data in map_sections(Path("net.inlay")).items()}
    records = json.loads(sections["plan"].tobytes())
    records["origin"]["cpu"] = "z80"
    text = json.dumps(records).encode()
    sections["plan"] = np.frombuffer(text + b" " * (-len(text) % 64), np.uint8)
    write_sections(Path("net.inlay"), sections)
    out, err = outputs(capsys, "run", "net.inlay", "--input", "x.npy", "--engine", "reference")
    assert err.startswith("note: net.inlay was saved for processor z80 and not ")
    assert err.endswith(": it is planned again with probed costs; save a plan here to start faster\n")
    assert "predicted" in out


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["run", "net.inlay", "-i", "x.npy", "--costs", "probed"],
            "net.inlay is a saved plan, for which --costs comes too late: leave it out, or give it to `inlay plan` "
            "with the model and -o",
        ),
        (
            ["run", "net.inlay", "-i", "x.npy", "--batch", "2"],
            "net.inlay is a saved plan, for which --batch comes too late: leave it out, or give it to `inlay plan` "
            "with the model and -o",
        ),
        (["run", "net.inlay"], "no input is given: give the arrays of the network, as --input [NAME=]FILE.npy"),
        (
            ["run", "net.inlay", "-i", "y=x.npy", "--engine", "reference"],
            f"the network has no input 'y': it takes x {IMAGE.shape} float32",
        ),
        (
            ["run", "net.inlay", "-i", "x.npy", "-o", "net.inlay"],
            "cannot write net.inlay: it is the file that is being read; choose another name",
        ),
        (
            ["plan", "net.inlay"],
            "net.inlay is a saved plan already: `inlay run` runs it; give an ONNX model to plan again",
        ),
        (
            ["plan", "net.onnx", "-o", "net.plan"],
            "-o is 'net.plan': a plan is saved as a file that ends in .inlay; --picture draws it",
        ),
        (
            ["plan", "net.onnx", "-o", "net.inlay", "--isa", "avx2"],
            "-o saves weights in the formats of kernels of this processor, and --isa avx2 plans for another one: leave "
            "one of them out, and save the plan where it is to run",
        ),
        (
            ["plan", "net.onnx", "-o", "net.onnx"],
            "cannot write net.onnx: it is the file that is being read; choose another name",
        ),
        (
            ["run", "broken.inlay", "-i", "x.npy"],
            "broken.inlay is no saved plan: give a file that Plan.save or `inlay plan -o` wrote; inlay.load reads ONNX "
            "models",
        ),
    ],
)
def test_mistakes(capsys: Capture, words: list[str], text: str) -> None:
    Path("broken.inlay").write_bytes(Path("net.onnx").read_bytes())
    assert inlay.cli.main(words) == 2
    assert capsys.readouterr().err == f"error: {text}\n"


@pytest.mark.usefixtures("saved")
@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_link_to_the_model_is_the_model(capsys: Capture) -> None:
    Path("link.inlay").symlink_to("net.onnx")
    assert inlay.cli.main(["plan", "net.onnx", "-o", "link.inlay"]) == 2
    assert capsys.readouterr().err == (
        "error: cannot write link.inlay: it is the file that is being read; choose another name\n"
    )


@pytest.mark.usefixtures("saved")
def test_the_package_onnx_is_not_needed_to_run_a_saved_plan() -> None:
    program = (
        "import sys; from inlay import cli; sys.modules['onnx'] = None; "
        "sys.exit(cli.main(['run', 'net.inlay', '-i', 'x.npy', '--engine', 'reference']))"
    )
    code, out, err = run_process([sys.executable, "-c", program])
    assert (code, err) == (0, "")
    assert out is not None
    assert "predicted" in out
