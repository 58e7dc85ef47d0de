"""The threads of oneDNN for tests of machine code that runs on them."""

import pytest

from inlay.primitives.engine import ThreadTeam, get_engine
from tests.oracles import onednn as oracle


def require_team() -> ThreadTeam:
    """Return the OpenMP threads of oneDNN; skip the test if there are none."""
    found = None if oracle.why_unavailable() else get_engine("onednn").thread_team
    if found is None:
        pytest.skip("there is no library on GNU OpenMP")
    return found
