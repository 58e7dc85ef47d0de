"""The engine of each file, with descriptors and primitives of its own."""

import pytest

from inlay.engines.onednn import OnednnEngine, make_engine


@pytest.fixture(scope="module")
def engine() -> OnednnEngine:
    return make_engine()
