"""The machine model of this process: specified by INLAY_MACHINE, stored by an earlier process, measured, or assumed.

The model is measured with this package's own copies when a tensor above 4 MB is moved for the first time. A measurement
is divided into slices of at most 50 ms, one for each reorder that is compiled. The result is stored for the processor,
the boot and the number of threads. Until it is complete, `machine.assume_model` provides the model.

    INLAY_MACHINE=machine.json    use this model, which `inlay bench --machine --json` printed
"""

import os
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from inlay.errors import FileError, InvalidArguments, OutOfMemory
from inlay.forks import at_fork
from inlay.machine import (
    MemoryModel,
    assume_model,
    estimate_model,
    model_document,
    parse_model,
    read_model,
    reported_caches,
)
from inlay.measure.calibration import Buffer, Calibration, CopyKernel
from inlay.measure.timing_database import TimingTable
from inlay.reordering.conversion import LINE
from inlay.reordering.target import host_target
from inlay.reordering.threads import get_num_threads

FIRST_MEASURED = 4 << 20
"""Bytes of source plus destination above which a reorder starts or continues the measurement."""
SLICE = 0.04
"""Seconds after which a slice starts no further copy."""
_KIND, _MODEL = "machine", "model"  # suffix of the file, name of its only entry
_VERSION = "2"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LARGEST_FILE = 1 << 20

_models: dict[int, MemoryModel] = {}
_calibrations: dict[int, Calibration] = {}
_measuring = threading.Lock()


def memory_model() -> MemoryModel:
    """Return the model for the threads of this process, without measuring: specified, measured, stored or assumed.

    Raises:
        InvalidArguments: INLAY_MACHINE names a file that holds no model.
        FileError: INLAY_MACHINE names a file that cannot be read.
    """
    path = os.environ.get("INLAY_MACHINE")
    if path:
        return _read_specified(path)
    threads = get_num_threads()
    model = _models.get(threads)
    if model is None:
        model = _models[threads] = _load_model(threads) or assume_model(reported_caches(), threads)
    return model


def measure_slice(moved_bytes: int, copy: CopyKernel, seconds: float = SLICE) -> None:
    """Measure for about `seconds` more, unless the memory model is already measured.

    Args:
        moved_bytes: bytes of source and destination of a reorder; one of at most `FIRST_MEASURED` bytes does not need
            the model, so nothing is measured.
        copy: the copies that are timed.
    """
    if moved_bytes <= FIRST_MEASURED or memory_model().source != "assumed" or not _measuring.acquire(blocking=False):
        return
    try:
        with suppress(OutOfMemory):  # the reorder itself may need less memory
            _advance(get_num_threads(), copy, seconds)
    finally:
        _measuring.release()


def measure_all(copy: CopyKernel) -> MemoryModel:
    """Measure the model completely, even if one is stored or specified, and store it.

    Raises:
        OutOfMemory: the memory for the copies cannot be allocated.
    """
    threads = get_num_threads()
    with _measuring:
        _calibrations.pop(threads, None)
        while not _advance(threads, copy, 1.0):
            pass
    return _models[threads]


def _advance(threads: int, copy: CopyKernel, seconds: float) -> bool:
    """Measure one slice; return whether that completed the model, which is then stored.

    Raises:
        OutOfMemory: the memory for the copies cannot be allocated.
    """
    calibration = _calibrations.get(threads)
    if calibration is None:
        calibration = _calibrations[threads] = Calibration(copy, allocate_lines, threads)
    try:
        if not calibration.advance(seconds):
            return False
    except MemoryError:
        del _calibrations[threads]
        raise OutOfMemory("the 64 MB for the copies that measure the machine cannot be allocated") from None
    del _calibrations[threads]
    model = _models[threads] = estimate_model(calibration.samples, threads)
    table = _table(threads)
    table.put(_MODEL, model_document(model, reported_caches()))
    table.save()
    return True


def allocate_lines(nbytes: int) -> Buffer:
    """Allocate uninitialized bytes that begin at a cache line, on pages of the same kind as NumPy's arrays."""
    buffer = np.empty(nbytes + LINE, np.uint8)
    return buffer[-buffer.ctypes.data % LINE :][:nbytes]


@lru_cache(maxsize=8)
def _read_specified(path: str) -> MemoryModel:
    """Read the model that INLAY_MACHINE names."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST_FILE)
    except OSError as error:
        raise FileError(f"INLAY_MACHINE names {path!r}, which cannot be read: {error.strerror or error}") from None
    return parse_model(text, path)


def _load_model(threads: int) -> MemoryModel | None:
    """Return the model that an earlier process measured since the machine was booted; None if there is none."""
    try:
        return read_model(_table(threads).get(_MODEL), "measured")
    except InvalidArguments:
        return None


def _table(threads: int) -> TimingTable:
    """Return the table that stores the model of this processor, boot and number of threads."""
    target = host_target()
    try:
        boot = _BOOT.read_text()
    except OSError:
        boot = ""
    return TimingTable(_KIND, _VERSION, target.cpu, target.features, boot, str(threads))


def _forget() -> None:
    """Drop measurements in a forked child: those of its parent may be incomplete."""
    global _measuring
    _measuring = threading.Lock()
    _calibrations.clear()


at_fork(after_in_child=_forget)
