"""What all tests have in common."""

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no example is judged by the time it takes.
settings.register_profile("inlay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("inlay")


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run() -> Iterator[None]:
    """Machine code is compiled anew: no test passes because of what an earlier version left in the user's cache."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["INLAY_CACHE_DIR"] = directory
        yield
