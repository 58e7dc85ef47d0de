"""`inlay plan` and `inlay run` with --precision, --tolerance and --errors."""

import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from inlay.graph import planning
from inlay.graph.costs import analytic
from tests.support.command_line import IMAGE, Capture, complaint, succeed, write_classifier
from tests.support.narrow_graphs import NarrowPays, types_chosen

PLAN = ("plan", "net.onnx", "--costs", "analytic", "--engine", "reference")


@pytest.fixture(autouse=True)
def typed(directory: Path) -> Iterator[None]:
    write_classifier(batch=IMAGE.shape[0])
    np.save("x.npy", IMAGE)
    cheap = mock.patch.object(planning, "analytic", lambda *options: NarrowPays(analytic(*options)))
    with types_chosen(), cheap:
        yield


def test_errors_are_printed_with_the_plan(capsys: Capture) -> None:
    text = succeed(capsys, *PLAN, "--precision", "bf16", "--errors", "--input", "x.npy")
    assert text.splitlines()[-1].startswith("error of y: ")
    assert "tolerance" not in text
    figures = json.loads(succeed(capsys, *PLAN, "--precision", "bf16", "--errors", "--json"))
    assert set(figures["errors"]) == {"tolerance", "outputs", "layers"}
    text = succeed(capsys, *PLAN, "--precision", "auto", "--tolerance", "0.02", "--input", "x=x.npy", "--errors")
    assert text.splitlines()[-1].endswith(", tolerance 2.0e-02")
    assert complaint(capsys, *PLAN, "--precision", "bf16", "--input", "x.npy") == (
        "--input is for measuring errors: give --errors or --tolerance too, or leave it out"
    )


def test_a_run_measures_errors_on_its_inputs(capsys: Capture) -> None:
    call = "run", "net.onnx", "--costs", "analytic", "--engine", "reference", "--input", "x.npy"
    f32 = succeed(capsys, *call, "--precision", "f32", "-o", "f32.npy")
    assert f32.startswith("wrote f32.npy: y")
    succeed(capsys, *call, "--precision", "bf16", "-o", "bf16.npy")
    succeed(capsys, *call, "--precision", "auto", "--tolerance", "1e-6", "-o", "auto.npy")
    wide, narrow, auto = (np.load(f"{name}.npy") for name in ("f32", "bf16", "auto"))
    assert 1e-5 < np.abs(narrow - wide).max() < 0.02
    np.testing.assert_allclose(auto, wide, rtol=1e-6)


def test_a_saved_plan_takes_no_precision(capsys: Capture) -> None:
    succeed(capsys, *PLAN, "-o", "net.inlay")
    assert complaint(capsys, "run", "net.inlay", "--input", "x.npy", "--precision", "bf16") == (
        "net.inlay is a saved plan, for which --precision comes too late: leave it out, or give it to `inlay plan` "
        "with the model and -o"
    )


def test_options_that_do_not_fit_are_refused(capsys: Capture) -> None:
    for options, text in (
        (["--precision", "half"], "--precision is 'half': give one of f32, bf16, f16, auto, model"),
        (
            ["--precision", "f32", "--tolerance", "0.1"],
            "--tolerance is 0.1, and precision f32 chooses no types by their error: leave it out, or give --precision "
            "auto",
        ),
        (
            ["--precision", "auto", "--isa", "avx2"],
            "--precision auto with a tolerance runs the plan on this machine, and --isa avx2 plans for another one: "
            "leave it out, or give --precision bf16 alone",
        ),
        (
            ["--errors", "--isa", "avx2"],
            "--errors runs the plan on this machine, and --isa avx2 plans for another one: leave one of them out",
        ),
    ):
        assert complaint(capsys, "plan", "net.onnx", *options) == text
