"""What all tests have in common."""

import os
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.paths import DATA, ROOT

# Programs that tests start import what the tests import, a mutated or an installed copy of Inlay too.
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*filter(None, sys.path), str(ROOT), str(ROOT / "src")]))


# A busy machine is no fault of the code: no example is judged by the time it takes.
settings.register_profile("inlay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For `make mutation`: a failing test kills the mutant, and needs no smallest example.
settings.register_profile(
    "mutation",
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
)
settings.load_profile("mutation" if "INLAY_MUTATION" in os.environ else "inlay")


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run() -> Iterator[None]:
    """Start from an empty cache and the same machine model everywhere: nothing is left over, nothing is the host's."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["INLAY_CACHE_DIR"] = directory
        os.environ["INLAY_MACHINE"] = str(DATA / "machine.json")
        yield


@pytest.fixture
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time that is measured counts, whatever else the machine does meanwhile."""
    from inlay.graph import plan
    from inlay.graph.costs import measuring, timing
    from inlay.measure import disturbance
    from inlay.measure.processors import Processors

    for module in (plan, measuring):
        monkeypatch.setattr(module, "recent_processors", lambda *_: Processors((1.0, 1.0)))
    monkeypatch.setattr(disturbance, "_LOST", float("inf"))
    monkeypatch.setattr(timing, "_YARDSTICK_LIMIT", float("inf"))
