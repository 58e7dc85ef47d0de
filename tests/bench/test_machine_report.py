"""`inlay bench --machine`: the model beside what the system reports, and a file that INLAY_MACHINE reads."""

import json
from pathlib import Path

import pytest

from inlay import cli
from inlay.bench import machine_report
from inlay.bench.machine_report import MachineReport
from inlay.machine import MemoryModel, ReportedCache
from inlay.reordering import memory_levels

MODEL = MemoryModel(1 << 20, 24 << 20, 8 << 20, 2, 80.0, 40.5, 20.25, "measured")
REPORTED = (ReportedCache(1, "Data", 1 << 15, (0,)), ReportedCache(3, "Unified", 480 << 20, (0, 1)))


def test_the_table_has_what_is_measured_beside_what_is_reported() -> None:
    assert str(MachineReport(MODEL, REPORTED)).splitlines() == [
        "capacities in bytes of source plus destination, bandwidths of copies on 2 threads",
        "                measured  reported  GB/s a thread",
        "L2, per thread      1 MB         -           80.0",
        "last level         24 MB    480 MB           40.5",
        "memory                                       20.2",
        "streaming stores win from 8 MB where nothing reads the result",
    ]


def test_what_json_prints_is_the_model_of_whoever_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine_report, "measure_all", lambda copy: MODEL)
    assert cli.main(["bench", "--machine", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["memory"]["last_level"] == 24 << 20
    path = tmp_path / "machine.json"
    path.write_text(out)
    monkeypatch.setenv("INLAY_MACHINE", str(path))
    assert memory_levels.memory_model().last_level == 24 << 20


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tune"], "--tune is for a reorder or a network, and --machine is given: leave it out"),
        (["--batch", "2"], "--batch is for a reorder or a network, and --machine is given: leave it out"),
        (["ab"], "--machine measures the memory of this machine: leave out 'ab'"),
    ],
)
def test_nothing_else_goes_with_it(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--machine", *arguments]) == 2
    assert capsys.readouterr().err == f"error: {text}\n"
