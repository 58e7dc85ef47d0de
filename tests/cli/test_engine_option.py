"""Engine selection of `inlay plan`, `run` and `bench`, notes on the reference engine, and reports of measurements."""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inlay import load, plan
from inlay.cli.application import MeasurementProgress
from inlay.engines import onednn
from inlay.engines.onednn.library import install_command, load_library
from inlay.errors import MissingExtra
from inlay.graph.costs import CostSources, analytic, measured
from inlay.graph.planning import _effective_tier
from inlay.primitives import engine, set_engine
from tests.support.command_line import IMAGE, Capture, complaint, outputs, succeed, write_classifier

NO_ENGINE = f"no oneDNN is installed: {install_command()}"


pytestmark = pytest.mark.usefixtures("quiet_machine")


@pytest.fixture(autouse=True)
def _model(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory with a model and its input; an empty cache; and nobody chose an engine yet."""
    monkeypatch.setenv("INLAY_CACHE_DIR", str(directory / "cache"))
    monkeypatch.delenv("INLAY_ENGINE", raising=False)
    write_classifier(batch=2)
    np.save("x.npy", IMAGE)
    set_engine(None)
    yield
    set_engine(None)


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> str:
    """No library of oneDNN is found; return the reason."""

    def refuse() -> None:
        raise MissingExtra(NO_ENGINE)

    monkeypatch.setattr(onednn, "load_library", refuse)
    monkeypatch.delitem(engine._engines, "onednn", raising=False)
    return NO_ENGINE


@pytest.fixture
def needs_engine(has_engine: bool) -> None:
    if not has_engine:
        pytest.skip("no oneDNN")


@pytest.fixture
def wrong_path(monkeypatch: pytest.MonkeyPatch) -> str:
    """INLAY_ONEDNN names what does not exist; return the reason."""
    monkeypatch.setattr(onednn, "load_library", load_library.__wrapped__)
    monkeypatch.delitem(engine._engines, "onednn", raising=False)
    monkeypatch.setenv("INLAY_ONEDNN", "/nowhere/lib")
    return "INLAY_ONEDNN is '/nowhere/lib', which does not exist: give a libdnnl.so of version 3, or unset INLAY_ONEDNN"


@pytest.fixture
def chosen_reference(monkeypatch: pytest.MonkeyPatch) -> str:
    """INLAY_ENGINE chooses the reference engine; return the reason."""
    monkeypatch.setenv("INLAY_ENGINE", "reference")
    return "INLAY_ENGINE is 'reference'"


# Without an engine


@pytest.mark.parametrize("fixture", ["no_engine", "wrong_path", "chosen_reference"])
def test_a_line_says_why_onednn_does_not_compute(capsys: Capture, request: pytest.FixtureRequest, fixture: str) -> None:
    why = request.getfixturevalue(fixture)
    assert outputs(capsys, "plan", "net.onnx")[1] == f"note: costs are analytic, since {why}\n"
    out, err = outputs(capsys, "run", "net.onnx", "-i", "x.npy")
    assert re.search(r"\nran in [0-9.]+ ms with reference, .* by analytic costs\n$", out)
    assert err == f"note: NumPy computes, far slower than oneDNN, since {why}\n"


@pytest.mark.usefixtures("no_engine")
def test_without_onednn_a_plan_has_analytic_costs_and_a_line_says_why(capsys: Capture) -> None:
    out, _ = outputs(capsys, "plan", "net.onnx", "--json")
    assert (json.loads(out)["costs"], json.loads(out)["sources"]) == ("analytic", None)
    out, err = outputs(capsys, "plan", "net.onnx", "--json", "--costs", "probed")
    assert json.loads(out)["costs"] == "probed"
    assert err == f"note: costs are those of NumPy, since {NO_ENGINE}\n"
    for options in (["--costs", "analytic"], ["--isa", "avx2"], ["--isa", "avx2", "--threads", "64"]):
        succeed(capsys, "plan", "net.onnx", *options)


@pytest.mark.usefixtures("no_engine")
def test_without_onednn_nothing_is_timed_unless_numpy_is_chosen(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complaint(capsys, "bench", "net.onnx") == (
        f"{NO_ENGINE}\n(in its place NumPy would be timed, far slower: choose the engine 'reference' to see that)"
    )
    command = ("bench", "net.onnx", "--rounds", "1", "--peers", "")
    assert "analytic costs, the reference engine" in succeed(capsys, *command, "--engine", "reference")
    monkeypatch.setenv("INLAY_ENGINE", "reference")
    set_engine(None)
    assert "analytic costs, the reference engine" in succeed(capsys, *command)


def test_a_wrong_path_in_the_environment_is_refused_where_onednn_has_to_compute(
    capsys: Capture, wrong_path: str
) -> None:
    assert complaint(capsys, "plan", "net.onnx", "--engine", "onednn") == wrong_path
    assert complaint(capsys, "bench", "net.onnx").splitlines()[0] == wrong_path


# The option


def test_the_engine_that_is_named_computes(capsys: Capture) -> None:
    out = succeed(capsys, "run", "net.onnx", "-i", "x.npy", "--engine", "reference")
    assert " ms with reference, " in out
    found = json.loads(succeed(capsys, "plan", "net.onnx", "--engine", "reference", "--costs", "probed", "--json"))
    assert (found["costs"], found["engine"]) == ("probed", "reference")


@pytest.mark.usefixtures("needs_engine")
def test_the_option_goes_before_the_environment(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_ENGINE", "reference")
    out = succeed(capsys, "run", "net.onnx", "-i", "x.npy", "--engine", "onednn", "--costs", "probed")
    assert " ms with onednn " in out


def test_a_plan_is_compiled_for_the_engine_that_it_was_made_for() -> None:
    for costs in ("analytic", "probed"):
        found = plan(load("net.onnx"), costs=costs, engine="reference")
        with found.compile() as session:
            assert session.engine.name == "reference"
            assert session.run({"x": IMAGE})["y"].shape == (2, 12)


def test_a_plan_without_a_measurement_does_not_claim_one() -> None:
    found = plan(load("net.onnx"), engine="reference", seconds=0)
    assert found.costs == "probed"
    assert found.sources == CostSources(modelled=found.sources.total if found.sources else 0, is_out_of_time=True)
    assert {step.source for step in found.program.steps} <= {"probed", "modelled"}


def test_a_plan_is_called_measured_if_the_time_of_one_of_its_steps_is() -> None:
    program = plan(load("net.onnx"), costs="analytic").program
    first, *others = program.steps
    with_one = replace(program, steps=(replace(first, source="measured"), *others))
    costs, some = measured("reference", seconds=0), CostSources(measured=9, modelled=3)
    assert _effective_tier(costs, some, program) == "probed"
    assert _effective_tier(costs, some, with_one) == "measured"
    assert _effective_tier(costs, CostSources(), replace(program, steps=())) == "measured"
    assert _effective_tier(analytic("AVX2", threads=1), None, program) == "analytic"


# How much was measured


@pytest.mark.usefixtures("needs_engine")
@pytest.mark.parametrize("command", [["plan"], ["run", "-i", "x.npy"]])
def test_without_time_nothing_is_called_measured(capsys: Capture, command: list[str]) -> None:
    out, err = outputs(capsys, *command, "net.onnx", "--seconds", "0")
    match = re.fullmatch(
        r"estimated ([0-9]+) of \1 kernels and reorders by a model: no time was left to measure them \(--seconds\)\n",
        err,
    )
    assert match
    assert "measured costs" not in out
    assert "probed costs" in out
    if command == ["plan"]:
        assert f"\ncosts of {match[1]} kernels and reorders: {match[1]} estimated by a model\n" in out
    assert list(Path("cache").glob("*.costs")) == []


def _make_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path.touch()
    return f"cannot create the cache directory {path}: File exists"


def _fill_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    return f"cannot write to the cache directory {path}: the disk is full; free space or write elsewhere"


@pytest.mark.usefixtures("needs_engine")
@pytest.mark.parametrize("spoil", [_make_a_file, _fill_the_disk])
def test_a_cache_that_cannot_be_written_stops_no_plan(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path, pytest.MonkeyPatch], str],
) -> None:
    why = spoil(Path(os.environ["INLAY_CACHE_DIR"]), monkeypatch)
    _, err = outputs(capsys, "run", "net.onnx", "-i", "x.npy")
    assert re.fullmatch(
        rf"measured [0-9]+ kernels and reorders in [0-9.]+ s; they are not remembered: {re.escape(why)}\n", err
    )
    out, _ = outputs(capsys, "plan", "net.onnx", "--json")
    found = json.loads(out)
    assert found["sources"]["unsaved"] == why
    assert (found["costs"], found["sources"]["remembered"]) == ("measured", 0)


@pytest.mark.usefixtures("needs_engine")
def test_bench_tells_how_much_was_measured(capsys: Capture) -> None:
    out, err = outputs(capsys, "bench", "net.onnx", "--rounds", "1", "--peers", "", "--json")
    first = json.loads(out)["sources"]
    assert re.fullmatch(r"measured [0-9]+ kernels and reorders in [0-9.]+ s; they are remembered\n", err)
    assert (first["measured"] > 0, first["remembered"], first["unsaved"]) == (True, 0, None)


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (None, ""),
        (CostSources(remembered=7, modelled=2), ""),
        (CostSources(measured=7), "measured 7 kernels and reorders in 0.0 s; they are remembered\n"),
        (
            CostSources(measured=1, remembered=2, scaled=3, is_out_of_time=True, unsaved="the disk is full"),
            "measured 1 of 6 kernels and reorders in 0.0 s; they are not remembered: the disk is full\n"
            "estimated 3 of 6 kernels and reorders by a model: no time was left to measure them (--seconds)\n",
        ),
    ],
)
def test_lines_on_what_was_measured(capsys: Capture, sources: CostSources | None, text: str) -> None:
    MeasurementProgress().report(sources)
    assert capsys.readouterr() == ("", text)
