"""Runtimes whose process a signal ends: they are absent, and the others are timed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from inlay.bench import networks, runtimes
from inlay.bench.crashes import find_crashes
from inlay.bench.networks import bench_network
from inlay.bench.runtimes import NetworkInputs
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from tests.bench.test_networks import fake
from tests.bench.test_precision import X, product, quantized
from tests.support.crashing_runtimes import crashing, crashing_late, refusing, running

pytestmark = pytest.mark.usefixtures("short_turns")


def test_signals_are_found_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that raises an error is not absent yet: its reason is found later."""
    monkeypatch.chdir(tmp_path)
    model: Any = onnx.load_from_string(quantized())
    case = NetworkInputs(model, lower_network(load_bound(quantized())), {"x": X}, (), 1, precision="int8")
    tried = {"early": crashing, "late": crashing_late, "refusing": refusing, "running": running}
    assert find_crashes(tried, case) == {"early": "crashed (signal 11)", "late": "crashed (signal 6)"}
    assert find_crashes({}, case) == {}
    assert list(tmp_path.iterdir()) == []  # no file of the memory of a process


def test_a_runtime_that_crashes_is_absent_and_others_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "RUNTIMES", {"crashing": crashing, "right": fake()})
    found = bench_network(product(), rounds=1, costs="analytic", engine="reference", precision="bf16")
    assert list(found.measured.seconds) == ["Inlay", "right"]
    assert found.measured.absent == {"crashing": "crashed (signal 11)"}
    assert str(found).splitlines()[-1] == "crashing: crashed (signal 11)"


@pytest.mark.parametrize(
    ("model", "precision", "is_tried"),
    [
        (product(), None, False),
        (product(), "f32", False),
        (product(), "bf16", True),
        (quantized(), None, True),
        (quantized(), "int8", True),
    ],
)
def test_runtimes_are_tried_where_they_are_known_to_crash(
    model: bytes, precision: Any, is_tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def record(peers: Mapping[str, Any], case: NetworkInputs) -> dict[str, str]:
        tried.append(list(peers))
        return {}

    monkeypatch.setattr(networks, "find_crashes", record)
    monkeypatch.setattr(runtimes, "RUNTIMES", {})
    bench_network(model, rounds=1, costs="analytic", engine="reference", precision=precision)
    assert tried == [[]] * is_tried
