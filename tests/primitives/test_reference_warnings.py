"""A primitive that a reference kernel computes warns once with what to do; with avoid="reference" it raises."""

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
from inlay.primitives.engine import Engine, Implementation, KernelKind, Operation, PlainImplementation, forget_warnings
from tests.oracles import onednn as oracle

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

SRC, WEIGHTS = MemoryDesc((1, 4, 8, 8), "f32"), MemoryDesc((4, 4, 3, 3), "f32", "any")
ROWS = MemoryDesc((4, 6), "f32")


@dataclass
class Slow(Engine):
    """An engine whose kernels are those of the reference engine, by another name."""

    refuses: str = ""
    """A kind that it lacks."""
    fast: tuple[str, ...] = ()
    """Kinds of which it says that its kernels are fast."""
    name: str = "slow 1.0"

    def create(self, operation: Operation) -> Implementation:
        if operation.kind == self.refuses:
            raise Unimplemented(f"slow has no {operation.kind}")
        inner = p.get_engine("reference").create(operation)
        kind: KernelKind = "jit" if operation.kind in self.fast else "reference"
        return PlainImplementation(operation, inner.descs, "ref:any", inner.bind, kind)


@pytest.fixture(autouse=True)
def nothing_was_warned_of() -> Iterator[None]:
    forget_warnings()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield
    forget_warnings()
    p.set_engine(None)


def told(recorded: Any) -> list[str]:
    return [str(one.message) for one in recorded if issubclass(one.category, PerformanceWarning)]


def test_a_reference_kernel_is_warned_of_once_for_each_kind_and_direction() -> None:
    slow = Slow()
    with warnings.catch_warnings(record=True) as recorded:
        p.Convolution(SRC, WEIGHTS, padding_l=1, engine=slow)
        p.Convolution(SRC, WEIGHTS, engine=slow)
        p.Eltwise(ROWS, algorithm="relu", engine=slow)
        forward = p.Eltwise(ROWS, algorithm="relu", prop_kind="forward_training", engine=slow)
        p.EltwiseBackward(hint_forward=forward)
    slow_one = "slow 1.0 computes it by its reference kernel ref:any, many times as slowly as by others"
    formats = "to another format, such as row-major, channels last or blocked by 16; avoid='reference' raises here"
    assert told(recorded) == [
        f"Convolution: {slow_one}: describe src by 'any', and reorder to the formats that it chooses; "
        "avoid='reference' raises here",
        f"Eltwise: {slow_one}: reorder src {formats}",
        f"EltwiseBackward: {slow_one}: reorder src {formats}",
    ]
    assert {one.filename for one in recorded} == {__file__}


def test_what_has_any_formats_already_is_told_something_else() -> None:
    free = MemoryDesc(SRC.dims, "f32", "any")
    with pytest.warns(PerformanceWarning) as recorded:
        p.Convolution(free, WEIGHTS, engine=Slow())
    assert told(recorded) == [
        "Convolution: slow 1.0 computes it by its reference kernel ref:any, many times as slowly as by others: it has "
        "no other for these dims, types and attributes, so choose others, such as f32; avoid='reference' raises here"
    ]


def test_a_reference_kernel_is_refused_where_it_is_avoided() -> None:
    with pytest.raises(Unimplemented) as refusal:
        p.Softmax(ROWS, axis=1, engine=Slow(), avoid="reference")
    assert str(refusal.value) == (
        "Softmax: slow 1.0 computes it by its reference kernel ref:any, many times as slowly as by others: reorder src "
        "to another format, such as row-major, channels last or blocked by 16; or leave out avoid='reference'"
    )
    assert p.Softmax(ROWS, axis=1, engine=Slow(fast=("softmax",)), avoid="reference").impl == "ref:any"


def test_the_reference_engine_is_told_of_where_the_default_engine_lacks_the_kind() -> None:
    p.set_engine(Slow(refuses="shuffle"))
    with pytest.warns(PerformanceWarning) as recorded:
        shuffle = p.Shuffle(ROWS, axis=1, group_size=2)
    assert shuffle.engine.name == "reference"
    assert told(recorded) == [
        "Shuffle: no engine but the reference computes it, many times as slowly as by others: reorder src to another "
        "format, such as row-major, channels last or blocked by 16; avoid='reference' raises here"
    ]
    with pytest.raises(Unimplemented) as refusal:
        p.Shuffle(ROWS, axis=1, group_size=2, avoid="reference")
    assert str(refusal.value) == (
        "Shuffle: slow has no shuffle; leave out avoid='reference' to have the reference engine compute"
    )


def test_nothing_is_told_where_the_reference_engine_was_chosen() -> None:
    with warnings.catch_warnings(record=True) as recorded:
        p.Softmax(ROWS, axis=1, engine="reference")
        p.set_engine("reference")
        p.Softmax(ROWS, axis=1)
        forward = p.Softmax(ROWS, axis=1, prop_kind="forward_training")
        p.SoftmaxBackward(hint_forward=forward)
        p.Reorder(ROWS, MemoryDesc(ROWS.dims, "bf16", "ba"))
    assert told(recorded) == []


def test_calls_tell_nothing() -> None:
    with pytest.warns(PerformanceWarning):
        relu = p.Eltwise(ROWS, algorithm="relu", engine=Slow())
    forget_warnings()
    src = Memory(ROWS)
    with warnings.catch_warnings(record=True) as recorded:
        relu(src=src)
        relu(src=src)
    assert told(recorded) == []


@pytest.mark.parametrize("avoid", ["ref", True, "", 5])
def test_avoid_is_one_word(avoid: Any) -> None:
    with pytest.raises(InvalidArguments) as refusal:
        p.Softmax(ROWS, axis=1, engine="reference", avoid=avoid)
    assert str(refusal.value) == f"Softmax: avoid is {avoid!r}: give one of reference"


@needs_onednn
def test_onednn_says_itself_which_of_its_kernels_are_reference_kernels() -> None:
    shuffle = MemoryDesc((2, 8, 3, 5), "f32", "cbad")
    with warnings.catch_warnings(record=True) as recorded:
        made = p.Shuffle(shuffle, axis=1, group_size=2, engine="onednn")
        assert made.implementation.is_reference == made.impl.startswith("ref")
    assert len(told(recorded)) == made.implementation.is_reference
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
def test_networks_tell_nothing() -> None:
    command = [sys.executable, "-W", "error", "-c", NETWORK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
