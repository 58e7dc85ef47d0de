"""Warnings about reference kernels: one for each kind and direction; with avoid="reference" they are errors."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, PerformanceWarning, Unimplemented
from inlay.memory import Memory
from inlay.primitives.engine import Engine, Implementation, KernelKind, Operation, PlainImplementation
from inlay.primitives.reference_kernels import forget_warnings
from tests.oracles import onednn as oracle
from tests.support.refusals import raises_exactly

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

SRC, WEIGHTS = MemoryDesc((1, 4, 8, 8), "f32"), MemoryDesc((4, 4, 3, 3), "f32", "any")
ROWS = MemoryDesc((4, 6), "f32")
BY_REFERENCE = "slow 1.0 computes it by its reference kernel ref:any, many times slower than an optimized kernel"
FORMATS = "to another format, such as row-major, channels last or blocked by 16"
RAISES = "; avoid='reference' raises here"


@dataclass
class Slow(Engine):
    """An engine with the kernels of the reference engine under another name."""

    refuses: str = ""
    """A kind that it does not support; empty if none."""
    fast: tuple[str, ...] = ()
    """Kinds whose kernels count as optimized."""
    name: str = "slow 1.0"

    def create(self, operation: Operation) -> Implementation:
        if operation.kind == self.refuses:
            raise Unimplemented(f"slow has no {operation.kind}")
        inner = p.get_engine("reference").create(operation)
        kind: KernelKind = "jit" if operation.kind in self.fast else "reference"
        return PlainImplementation(operation, inner.descs, "ref:any", inner.bind, kind)


@pytest.fixture(autouse=True)
def no_warnings_issued() -> Iterator[None]:
    forget_warnings()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield
    forget_warnings()
    p.set_engine(None)


def texts_of(recorded: Any) -> list[str]:
    return [str(one.message) for one in recorded if issubclass(one.category, PerformanceWarning)]


def test_there_is_one_warning_for_each_kind_and_direction() -> None:
    slow = Slow()
    with warnings.catch_warnings(record=True) as recorded:
        p.Convolution(SRC, WEIGHTS, padding_l=1, engine=slow)
        p.Convolution(SRC, WEIGHTS, engine=slow)
        p.Eltwise(ROWS, algorithm="relu", engine=slow)
        forward = p.Eltwise(ROWS, algorithm="relu", prop_kind="forward_training", engine=slow)
        p.EltwiseBackward(hint_forward=forward)
    assert texts_of(recorded) == [
        f"Convolution: {BY_REFERENCE}: describe src by 'any', and reorder to the formats that it chooses{RAISES}",
        f"Eltwise: {BY_REFERENCE}: reorder src {FORMATS}{RAISES}",
        f"EltwiseBackward: {BY_REFERENCE}: reorder src {FORMATS}{RAISES}",
    ]
    assert {one.filename for one in recorded} == {__file__}


def test_the_advice_differs_if_all_formats_are_any() -> None:
    free = MemoryDesc(SRC.dims, "f32", "any")
    with pytest.warns(PerformanceWarning) as recorded:
        p.Convolution(free, WEIGHTS, engine=Slow())
    assert texts_of(recorded) == [
        f"Convolution: {BY_REFERENCE}: it has no other for these dims, types and attributes, so choose others, such as "
        f"f32{RAISES}"
    ]


def test_avoid_raises_an_error() -> None:
    with raises_exactly(
        Unimplemented, f"Softmax: {BY_REFERENCE}: reorder src {FORMATS}; or leave out avoid='reference'"
    ):
        p.Softmax(ROWS, axis=1, engine=Slow(), avoid="reference")
    assert p.Softmax(ROWS, axis=1, engine=Slow(fast=("softmax",)), avoid="reference").impl == "ref:any"


def test_a_fallback_to_the_reference_engine_issues_a_warning() -> None:
    p.set_engine(Slow(refuses="shuffle"))
    with pytest.warns(PerformanceWarning) as recorded:
        shuffle = p.Shuffle(ROWS, axis=1, group_size=2)
    assert shuffle.engine.name == "reference"
    assert texts_of(recorded) == [
        "Shuffle: no engine but the reference computes it, many times slower than an optimized kernel: reorder src "
        f"{FORMATS}{RAISES}"
    ]
    text = "Shuffle: slow has no shuffle; leave out avoid='reference' to have the reference engine compute"
    with raises_exactly(Unimplemented, text):
        p.Shuffle(ROWS, axis=1, group_size=2, avoid="reference")


def test_there_is_no_warning_if_the_reference_engine_was_chosen() -> None:
    with warnings.catch_warnings(record=True) as recorded:
        p.Softmax(ROWS, axis=1, engine="reference")
        p.set_engine("reference")
        p.Softmax(ROWS, axis=1)
        forward = p.Softmax(ROWS, axis=1, prop_kind="forward_training")
        p.SoftmaxBackward(hint_forward=forward)
        p.Reorder(ROWS, MemoryDesc(ROWS.dims, "bf16", "ba"))
    assert texts_of(recorded) == []


def test_calls_issue_no_warning() -> None:
    with pytest.warns(PerformanceWarning):
        relu = p.Eltwise(ROWS, algorithm="relu", engine=Slow())
    forget_warnings()
    src = Memory(ROWS)
    with warnings.catch_warnings(record=True) as recorded:
        relu(src=src)
        relu(src=src)
    assert texts_of(recorded) == []


@pytest.mark.parametrize("avoid", ["ref", True, "", 5])
def test_avoid_is_one_word(avoid: Any) -> None:
    with raises_exactly(InvalidArguments, f"Softmax: avoid is {avoid!r}: give one of reference"):
        p.Softmax(ROWS, axis=1, engine="reference", avoid=avoid)


@needs_onednn
def test_onednn_reports_its_reference_kernels() -> None:
    shuffle = MemoryDesc((2, 8, 3, 5), "f32", "cbad")
    with warnings.catch_warnings(record=True) as recorded:
        made = p.Shuffle(shuffle, axis=1, group_size=2, engine="onednn")
        assert made.implementation.is_reference == made.impl.startswith("ref")
    assert len(texts_of(recorded)) == made.implementation.is_reference
    relu = p.Eltwise(ROWS, algorithm="relu", engine="onednn")
    assert relu.implementation.is_reference == relu.impl.startswith("ref")


NETWORK = """
import numpy as np
from tests.support.graph_programs import conv, drawn, graph_of
import inlay
dims = {"x": (1, 8, 14, 14), "y": (1, 16, 14, 14)}
graph = graph_of([conv("conv", "x", "y", drawn(16, 8, 1, 1))], dims, "x", "y")
plan = inlay.plan(graph, costs="probed", engine="onednn")
plan.compile().run({"x": drawn(*dims["x"])})
"""


@needs_onednn
def test_networks_issue_no_warning() -> None:
    command = [sys.executable, "-W", "error", "-c", NETWORK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
