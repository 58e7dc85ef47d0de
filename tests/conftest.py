"""Settings and fixtures of all tests: Hypothesis profiles, the cache directory, the machine model, a browser."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.browser import SIZES, run_chromium
from tests.support.paths import DATA, ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Programs that tests start import what the tests import, a mutated or an installed copy of Inlay too.
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*filter(None, sys.path), str(ROOT), str(ROOT / "src")]))

# The time that an example takes depends on the machine, so no example fails because of it.
settings.register_profile("inlay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For `make mutation`: a failing test kills the mutant, and needs no smallest example.
settings.register_profile(
    "mutation",
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
)
settings.register_profile("quick", settings.get_profile("inlay"), max_examples=8)
PROFILE = os.environ.get("INLAY_TESTS", "inlay")
"""`inlay`; `quick` for `make check`: few examples, and no file that takes over two seconds; `mutation`."""
settings.load_profile(PROFILE)
collect_ignore = (DATA / "slow_files.txt").read_text().split() if PROFILE == "quick" else []

MACHINE_CODE = Path(os.environ.get("INLAY_TEST_CODE", ROOT / "build" / "machine-code"))
"""The folder that keeps machine code between runs. The name of an object is the digest of Inlay's sources, the kernel
and the processor, so a kept object is what the compiler would make again."""
MOST_BYTES = 400_000_000
"""Bytes of machine code to keep; beyond that the objects used longest ago are removed."""


def pytest_collection_finish() -> None:
    """Leave the collected tests, which live to the end, out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run() -> Iterator[None]:
    """Use a cache directory that holds machine code only, and the same machine model everywhere.

    Measured times and tuned choices start empty in each run. `INLAY_TEST_CODE` names another folder of machine code: an
    empty one makes the run compile every kernel.
    """
    with tempfile.TemporaryDirectory() as directory:
        os.environ["INLAY_CACHE_DIR"] = directory
        os.environ["INLAY_MACHINE"] = str(DATA / "machine.json")
        _copy_objects(MACHINE_CODE, Path(directory))
        yield
        _keep_objects(Path(directory))


def _copy_objects(source: Path, target: Path) -> None:
    """Copy the objects that `target` lacks; each appears under its name when it is whole."""
    for path in source.glob("*.o"):
        if not (target / path.name).exists():
            with suppress(OSError):
                shutil.copy2(path, target / f".{path.name}.{os.getpid()}")
                (target / f".{path.name}.{os.getpid()}").replace(target / path.name)


def _keep_objects(directory: Path) -> None:
    from inlay.cache.size_limit import trim

    with suppress(OSError):
        MACHINE_CODE.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy_objects(directory, MACHINE_CODE)
        trim(MACHINE_CODE, MOST_BYTES)


@pytest.fixture
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time that is measured counts, whatever else the machine does meanwhile."""
    from inlay.graph import planning
    from inlay.graph.costs import measuring, timing
    from inlay.measure import disturbance
    from inlay.measure.processors import Processors

    for module in (planning, measuring):
        monkeypatch.setattr(module, "recent_processors", lambda *_: Processors((1.0, 1.0)))
    monkeypatch.setattr(disturbance, "_MAX_WAIT_SHARE", float("inf"))
    monkeypatch.setattr(timing, "_YARDSTICK_LIMIT", float("inf"))


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """Chromium for the tests of a module; where no module uses it, Playwright's event loop does not run."""
    with run_chromium() as browser:
        yield browser


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> str:
    """Each size of window."""
    return str(request.param)
