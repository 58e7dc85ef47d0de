"""Where costs come from: measured now, measured earlier, or estimated; and the costs of reorders."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from inlay.graph.costs import CostSources, MeasuredCosts, measured, probed, reorder_source
from inlay.graph.costs.timing import Bench
from inlay.graph.costs.timing_records import TimingRecords, operation_key
from inlay.machine import MemoryModel
from inlay.primitives.engine import companion_engines, get_engine
from tests.graph.costs.test_measured import CASES, MACHINE, POOL, costs_of, engine_of, prepared, sources
from tests.support import cost_cases as cases

pytestmark = pytest.mark.usefixtures("directory")
MOVE = cases.image("nchw"), cases.image("nhwc")


def reordering_costs(seconds: float = 60.0) -> MeasuredCosts:
    engine = get_engine("reference")
    bench = Bench(engine, POOL, partial(next, count(step=1e-4)), lambda: 0.0)
    return MeasuredCosts(companion_engines(engine), MACHINE, bench, TimingRecords("reorders"), seconds)


def test_sources_count_what_was_measured_now_and_earlier_and_what_was_estimated() -> None:
    first = costs_of(engine_of())
    assert first.sources == CostSources()
    first.prepare(CASES[:2])
    assert first.sources == CostSources(measured=2)
    more = engine_of()
    more.refused.add(operation_key(CASES[5]))
    second = prepared(more, 0.015, CASES[2:3])
    second.prepare(CASES)
    assert sources(second, CASES[:5]) == ["measured"] * 3 + ["scaled"] * 2
    assert second.sources == CostSources(measured=1, remembered=2, scaled=2, is_out_of_time=True)


def test_without_time_nothing_is_measured_and_a_reorder_costs_what_the_model_says() -> None:
    costs = costs_of(engine_of(), seconds=0)
    costs.prepare(CASES, [MOVE])
    assert costs.sources == CostSources(modelled=len(CASES) + 1, is_out_of_time=True)
    assert costs.reorder_source(*MOVE) == reorder_source(probed("reference"), *MOVE) == "modelled"
    costs.save()
    assert costs.sources.unsaved == ""
    reorders = reordering_costs(seconds=0.0)
    assert reorders.reorder(MOVE[0], MOVE[0]) == reorders.reorder(*MOVE)  # a copy moves as many bytes
    assert reorders.reorder(*MOVE) == pytest.approx(0.003 + 1.4 * 2 * 2 * 64 * 784 * 4 / 100e6)


def test_sources_say_why_nothing_could_be_saved(directory: Path) -> None:
    directory.rmdir()
    directory.touch()
    why = f"cannot create the cache directory {directory}: File exists"
    assert prepared(engine_of()).sources == CostSources(measured=len(CASES), unsaved=why)


def test_a_reorder_is_measured_once_for_tensors_of_about_its_size() -> None:
    costs = reordering_costs()
    move, wider = ([cases.image(tag, (1, c, 28, 28)) for tag in ("nchw", "nhwc")] for c in (64, 96))
    known = costs.reorder(*move)
    assert known > 0
    assert costs.reorder(*wider) == pytest.approx(1.5 * known)
    empty = cases.image("nchw", (0, 64, 28, 28))
    assert costs.reorder(empty, empty) == 0.0
    assert costs.sources == CostSources(measured=1)
    assert (costs.reorder_source(*move), reorder_source(costs, *move)) == ("measured", "measured")
    assert costs.reorder(move[0], move[0]) > 0  # a copy
    costs.save()
    again = reordering_costs(seconds=0)
    assert again.reorder(*move) == pytest.approx(known)
    assert again.sources == CostSources(remembered=1, is_out_of_time=True)
    assert again.reorder_source(*move) == "measured"


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (CostSources(), "no kernels and no reorders"),
        (CostSources(measured=7, unsaved="why"), "7 kernels and reorders: 7 measured now"),
        (
            CostSources(remembered=2, scaled=1, modelled=3),
            "6 kernels and reorders: 2 measured earlier, 4 estimated by a model",
        ),
    ],
)
def test_sources_in_words(sources: CostSources, text: str) -> None:
    assert str(sources) == text


def test_prices_are_remembered_whatever_the_caches_were_measured_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured capacity differs from one start of a machine to the next; what a price follows from does not."""
    found = []
    for last_level in (20 << 20, 50 << 20):
        model = MemoryModel(1 << 20, last_level, last_level)
        monkeypatch.setattr("inlay.graph.costs.measuring.memory_model", partial(replace, model))
        found.append([measured("reference", weights=weights)._records.name for weights in (None, 1 << 30, 1)])
    assert found[0] == found[1]
    assert found[0][0] == found[0][1] != found[0][2]
