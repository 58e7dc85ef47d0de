"""`inlay doctor`: facts of an installation, extras, and faults with their remedy."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from inlay import __version__
from inlay.cli import doctor_command, installation, main
from inlay.cli.extras import PURPOSES, ExtraState, RequiredPackage, extra_states, required_packages
from inlay.errors import FileError
from inlay.primitives import set_engine
from tests.support.command_line import Capture, outputs

FACTS = [
    "inlay",
    "python",
    "processor",
    "processors",
    "memory",
    "caches",
    "engine",
    "cache directory",
    "machine code",
    "completion",
    "environment",
]


def run_doctor(capsys: Capture, code: int) -> str:
    """The output of the command, which ends with this code and prints no error."""
    assert main(["doctor"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_facts_extras_and_the_result_are_printed(capsys: Capture) -> None:
    lines = run_doctor(capsys, 0).splitlines()
    assert [name for name in FACTS if not any(line.startswith(f"{name} ") for line in lines)] == []
    assert lines[0].startswith(f"inlay            {__version__} in ")
    assert lines[-1] == "no faults found"
    assert [line for line in lines if len(line) > 80 and max(map(len, line.split())) < 30] == []


def test_the_document_has_the_measured_caches_and_processors(capsys: Capture) -> None:
    found = json.loads(outputs(capsys, "doctor", "--json")[0])
    assert found["caches"]["model"]["source"] == "measured" or "INLAY_MACHINE" in os.environ
    assert found["processors"]["count"] == len(found["processors"]["shares"])
    assert found["processor"]["vector_bits"] in (128, 256, 512)
    assert found["machine_code"]["is_right"] is True


def test_the_engine_and_its_reason_are_printed(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    set_engine("reference")
    fact = installation._engine_fact()
    assert fact.text.startswith("reference (NumPy), far slower than oneDNN")
    assert (fact.values["version"], fact.fault) == (None, None)


def test_a_cache_directory_that_cannot_be_used_is_a_fault(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    (directory / "file").touch()
    monkeypatch.setenv("INLAY_CACHE_DIR", str(directory / "file"))
    out = run_doctor(capsys, 1)
    assert "\ncache directory  does not work, see below\n" in out
    last = out.splitlines()[-1]
    assert last.startswith(f"fault: cache directory: cannot create the cache directory {directory / 'file'}")


def test_a_reorder_with_wrong_values_is_a_fault(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "array_equal", lambda *_: False)
    assert run_doctor(capsys, 1).splitlines()[-1] == (
        "fault: machine code: a reorder to nChw8c and back gives other values: report this as a defect of Inlay"
    )


def test_every_fact_may_fail(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> installation.InstallationFact:
        raise FileError("cannot read it")

    monkeypatch.setattr(installation, "_FACTS", dict.fromkeys(FACTS, fail))
    lines = run_doctor(capsys, 1).splitlines()
    assert lines[-len(FACTS) :] == [f"fault: {name}: cannot read it" for name in FACTS]


def test_the_state_of_completion_is_printed(capsys: Capture, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert installation._completion_fact().text == "not installed for fish: inlay completion --install"
    outputs(capsys, "completion", "--install")
    fact = installation._completion_fact()
    assert (fact.text, fact.values) == ("installed for fish", {"shell": "fish", "version": __version__})
    path = directory / ".config/fish/completions/inlay.fish"
    path.write_text(path.read_text().replace(f"of version {__version__}.", "of version 0.0.1."))
    assert installation._completion_fact().text == (
        "the script of fish is of version 0.0.1: write it again by inlay completion --install"
    )
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert installation._completion_fact().text == "scripts are for bash, zsh, fish; SHELL is dash"


REQUIREMENTS = [
    "numpy>=2",
    "typer (>=999.5)",
    'onnx>=1.19; extra == "onnx"',
    "nowhere-to-be-found; extra == 'storage'",
    "numpy>=1; extra == 'storage'",
    'inlay[onnx,storage]; extra == "torch"',
    "torch<3,>=999; extra == 'torch' and sys_platform == 'linux'",
    "pytest>=8; extra == 'test'",
]


def test_requirements_are_read_from_metadata() -> None:
    numpy, typer = required_packages(REQUIREMENTS)
    assert (numpy.is_usable, typer.is_usable, typer.least) == (True, False, "999.5")
    assert str(typer) == f"typer {typer.version} is older than 999.5"
    states = {state.name: state for state in extra_states(REQUIREMENTS)}
    assert list(states) == [name for name in PURPOSES if name in ("onnx", "torch", "storage")]
    assert [package.name for package in states["torch"].packages] == ["torch", "onnx", "nowhere-to-be-found", "numpy"]
    assert states["storage"].command == "pip install 'inlay[storage]'"
    assert not states["storage"].is_usable


def extra_lines(states: Sequence[ExtraState]) -> list[str]:
    return doctor_command._extra_lines(states)


def test_a_missing_extra_is_printed_with_its_command() -> None:
    zarr, dask = RequiredPackage("zarr", "3.1", "2.18"), RequiredPackage("dask", None, "2026.8")
    onnx, torch = RequiredPackage("onnx", "1.19", "1.19.1"), RequiredPackage("torch", "2.9", None)
    states = [
        ExtraState("storage", "Zarr", (zarr, dask)),
        ExtraState("onnx", "networks", (onnx,)),
        ExtraState("torch", "modules", (onnx, torch)),
    ]
    assert extra_lines(states) == [
        "storage  Zarr      zarr 2.18 is older than 3.1: pip install 'inlay[storage]'",
        "onnx     networks  onnx 1.19.1",
        "torch    modules   torch is missing: pip install 'inlay[torch]'",
    ]
    assert extra_lines([]) == ["the packages of extras are unknown, since Inlay is used without being installed"]


@pytest.mark.parametrize(
    ("version", "least", "is_usable"),
    [
        ("2.0", "2", True),
        ("2", "2.0.0", True),
        ("1.19.0rc1", "1.19", True),
        ("0.9", "0.10", False),
        (None, None, False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str | None, least: str | None, is_usable: bool) -> None:
    assert RequiredPackage("some", least, version).is_usable == is_usable
