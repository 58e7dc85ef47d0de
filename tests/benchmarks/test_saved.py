"""The benchmark of saved plans: fresh processes that load a plan, and the pages that two of them share."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import saved
from benchmarks.saved import SavedFigures, is_met, measure_saved, saved_table
from inlay.measure.statistics import Spread

TIME = Spread(0.1, 0.1, 0.1)
FIGURES = SavedFigures("resnet50", 100, 120, 1.0, TIME, TIME, TIME, TIME, rss=120, pss=60)


@pytest.mark.heavy
def test_a_network_is_loaded_in_fresh_processes_that_share_its_weights() -> None:
    found = measure_saved("squeezenet", 1)
    assert found.nbytes > found.weights > 4_000_000
    assert found.start.median > found.load.median > 0 < found.run.median
    if Path("/proc/self/smaps").exists():
        assert found.nbytes <= found.rss + 4096
        assert found.pss < 0.6 * found.rss


def test_aims() -> None:
    assert is_met(FIGURES)
    assert not is_met(replace(FIGURES, pss=120))
    assert not is_met(replace(FIGURES, start=Spread(saved.START_AIM, 0.1, 0.4)))
    assert is_met(replace(FIGURES, network="squeezenet", start=Spread(1.0, 1.0, 1.0)))


def test_the_table_has_a_column_for_each_network() -> None:
    table = saved_table([FIGURES, replace(FIGURES, network="squeezenet")])
    assert [column.header for column in table.columns] == ["", "resnet50", "squeezenet", "aim"]


def test_only_maps_of_the_file_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """7f00-7f10 r--s 00000000 08:01 12   /tmp/net.inlay
Rss:      40 kB
Pss:      20 kB
7f10-7f20 rw-p 00000000 00:00 0
Rss:      90 kB
Pss:      90 kB
"""
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    assert saved._read_smaps(1, Path("/tmp/net.inlay")) == (40 * 1024, 20 * 1024)
