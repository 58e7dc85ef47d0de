"""Operations of conversions that count, fail, wait or end their process: values that any process executes."""

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from inlay.layout import Dims
from inlay.memory import Memory, pack
from inlay.storage import ConversionPlan
from inlay.storage.box import Box
from inlay.storage.operation import BoxCounts, BoxOperation, ScanResult
from inlay.storage.target import TargetTensor, TargetWriter


@dataclass(frozen=True)
class WrappedOperation:
    """Does what another operation does."""

    inner: BoxOperation

    @property
    def targets(self) -> tuple[TargetTensor, ...]:
        return self.inner.targets

    @property
    def units(self) -> Dims | None:
        return self.inner.units

    @property
    def needs_scan(self) -> bool:
        return self.inner.needs_scan

    def scan(self, memory: Memory) -> ScanResult:
        return self.inner.scan(memory)

    def with_scan(self, greatest: ScanResult) -> "WrappedOperation":
        return replace(self, inner=self.inner.with_scan(greatest))

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        return self.inner.apply(memory, box, writer)


@dataclass(frozen=True)
class CountedOperation(WrappedOperation):
    """Appends a line to a file when a box begins, and takes at least `seconds`."""

    log: Path
    seconds: float = 0.0

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        _append(self.log, f"{box}\n")
        time.sleep(self.seconds)
        return self.inner.apply(memory, box, writer)


@dataclass(frozen=True)
class FailingOperation(WrappedOperation):
    """Raises an error for the box that begins at `begin`, the first `times` times; `log` counts them."""

    begin: Dims
    times: int
    log: Path
    error: Exception

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        if box.begin == self.begin and _append(self.log, "x") < self.times:
            raise self.error
        return self.inner.apply(memory, box, writer)


@dataclass(frozen=True)
class EndingOperation(WrappedOperation):
    """Kills its process at the box that begins at `begin`, the first `times` times."""

    begin: Dims
    times: int
    log: Path

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        if box.begin == self.begin and _append(self.log, "x") < self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.apply(memory, box, writer)


@dataclass(frozen=True)
class ScaledOperation(WrappedOperation):
    """Divides each element by the greatest magnitude of its tensor, and counts the squares of the source."""

    greatest: float | None = None

    @property
    def needs_scan(self) -> bool:
        return True

    def scan(self, memory: Memory) -> float:
        return float(np.abs(memory.unpack()).max())

    def with_scan(self, greatest: ScanResult) -> "ScaledOperation":
        return replace(self, greatest=float(greatest))

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        assert self.greatest is not None
        elements: Any = np.asarray(memory.unpack())
        scaled = pack((elements / np.float32(self.greatest)).astype(elements.dtype), memory.desc)
        squared = float(np.square(elements.astype(np.float64)).sum())
        return self.inner.apply(scaled, box, writer) + BoxCounts(squared=squared)


def with_operation(plan: ConversionPlan, kind: type[WrappedOperation], *arguments: Any) -> ConversionPlan:
    """Return the plan with each of its operations wrapped."""
    tensors = (replace(each, operation=kind(each.operation, *arguments)) for each in plan.tensors)
    return replace(plan, tensors=tuple(tensors))


def _append(path: Path, text: str) -> int:
    """Append to a file in one write, and return its size before, in bytes."""
    with path.open("ab", buffering=0) as file:
        file.write(text.encode())
        return file.tell() - len(text)
