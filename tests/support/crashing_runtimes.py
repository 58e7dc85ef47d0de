"""Runtimes for `inlay.bench` that end their process, refuse a network, or run it; a new process can import them."""

import os
import signal
from collections.abc import Iterator
from typing import Any

from inlay.bench.runtimes import Configuration, NetworkInputs
from inlay.errors import Unimplemented


def crashing(case: NetworkInputs) -> Iterator[Configuration]:
    """A segmentation fault while the network is compiled."""
    os.kill(os.getpid(), signal.SIGSEGV)
    yield from running(case)


def crashing_late(case: NetworkInputs) -> Iterator[Configuration]:
    """A failed assertion in a run of the second configuration; the first raises an exception."""

    def fail() -> Any:
        raise RuntimeError("no kernel")

    yield Configuration("first", fail, fail)
    yield Configuration("second", os.abort, os.abort)


def refusing(case: NetworkInputs) -> Iterator[Configuration]:
    """A refusal of the network."""
    raise Unimplemented("cannot run it")
    yield from running(case)


def running(case: NetworkInputs) -> Iterator[Configuration]:
    """A runtime that returns its inputs, which it needs, as the model and the graph."""
    names = [value.name for value in case.model.graph.output]
    if list(case.graph.outputs) != names:
        os.abort()
    yield Configuration("as it is", dict, lambda: dict.fromkeys(names, case.inputs["x"]))
