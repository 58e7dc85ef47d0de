"""The pause of the garbage collector while a saved plan is loaded: it always ends."""

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from inlay.graph.garbage_collection import pause_garbage_collection


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_a_pause_ends_after_an_error() -> None:
    def load() -> None:
        with pause_garbage_collection():
            assert not gc.isenabled()
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        load()
    assert gc.isenabled()


def test_a_collector_that_the_caller_disabled_stays_disabled() -> None:
    gc.disable()
    with pause_garbage_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_pauses_of_several_threads_end() -> None:
    entered, leave = threading.Event(), threading.Event()

    def load() -> None:
        with pause_garbage_collection():
            entered.set()
            leave.wait(60)

    other = threading.Thread(target=load)
    other.start()
    entered.wait(60)
    with pause_garbage_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    other.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_collects() -> None:
    with pause_garbage_collection():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
