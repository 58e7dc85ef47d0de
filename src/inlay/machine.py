"""The machine model: effective capacity and bandwidth of each memory level, measured for this process.

Operating systems report the caches of a socket. A process in a virtual machine, in a container or on a busy host gets
an unknown part of them: a last-level cache that is reported as 480 MB may hold 30 MB of one process. The model is
therefore computed from timed copies of growing footprints, on one thread and on all threads of the process:

- *L2*: the largest footprint that one thread copies at the bandwidth of its private cache.
- *last level*: the largest footprint for which ordinary (cached) stores are at least as fast as streaming
  (non-temporal) stores when every copy reads what the copy before wrote.
- *streaming from*: the smallest footprint from which streaming stores are faster when nothing reads the result. Between
  this footprint and the last level the better store depends on the program, and a paired trial decides.

A footprint is source plus destination, in bytes. Bandwidths are bytes read plus bytes written per ns and thread.

The copies are parameters, so this module does not depend on kernels. The method is that of microbenchmarks of cache
capacity (lmbench's `bw_mem`, McVoy and Staelin 1996), with the store instruction as a second variable.

>>> estimate_model([CopySample(f << 20, 2, *rates) for f, rates in ((4, (40, 30, 60, 20)), (8, (20, 30, 20, 30)))], 2)
MemoryModel(l2=1048576, last_level=4194304, streaming_from=8388608, threads=2, l2_bandwidth=20.0, \
l3_bandwidth=30.0, memory_bandwidth=15.0, source='measured')
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from math import sqrt
from pathlib import Path
from typing import Any

from inlay.errors import InvalidArguments
from inlay.measure.calibration import CopySample

_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ASSUMED_L2, _ASSUMED_LAST = 1 << 20, 32 << 20
_LARGEST_L2 = 16 << 20
_KNEE = 1.3  # a private cache is recognized only if it is faster than the next level by this factor
_MIN_STREAMING_GAIN = 1.05  # streaming stores must be faster by this factor where nothing reads the result


@dataclass(frozen=True, slots=True)
class ReportedCache:
    """A cache of the first processor, as the operating system reports it."""

    level: int
    """Level of the cache; 1 is nearest to the processor."""
    kind: str
    """`Data`, `Instruction` or `Unified`."""
    nbytes: int
    """Capacity in bytes."""
    shared_by: tuple[int, ...]
    """Numbers of the processors that share the cache."""

    @property
    def holds_data(self) -> bool:
        """True for a data cache and a unified cache."""
        return self.kind != "Instruction"


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Effective capacities and bandwidths of the memory levels of this process."""

    l2: int
    """Footprint in bytes that one thread keeps in its private cache."""
    last_level: int
    """Footprint in bytes that all threads together keep in the caches."""
    streaming_from: int
    """Footprint in bytes from which streaming stores are faster if nothing reads the result; at most `last_level`, or
    the next larger footprint that was measured."""
    threads: int = 1
    """Threads that shared the copies."""
    l2_bandwidth: float = 80.0
    """Bytes per ns and thread, read plus written, of footprints up to `l2` on each thread."""
    l3_bandwidth: float = 55.0
    """Bytes per ns and thread, read plus written, of footprints up to `last_level`."""
    memory_bandwidth: float = 22.0
    """Bytes per ns and thread, read plus written, of larger footprints."""
    source: str = "assumed"
    """Origin of the model: `measured`, `assumed` before any measurement, or the path of the file that contains it."""


def assume_model(reported: Sequence[ReportedCache], threads: int = 1) -> MemoryModel:
    """Return the model that is used before any measurement, with a last level of at most 32 MB.

    >>> assume_model([ReportedCache(3, "Unified", 480 << 20, (0, 1))]).last_level
    33554432
    """
    sizes = {cache.level: cache.nbytes for cache in reported if cache.holds_data}
    l2 = min(sizes.get(2, _ASSUMED_L2), _LARGEST_L2)
    last = min(max(sizes.values(), default=_ASSUMED_LAST), _ASSUMED_LAST)
    return MemoryModel(l2, max(l2, last), max(l2, last), threads)


def estimate_model(samples: Iterable[CopySample], threads: int) -> MemoryModel:
    """Return the model that follows from the bandwidths of copies.

    Args:
        samples: copies on one thread, with footprints around the size of an L2, and on `threads` threads, with larger
            ones.
        threads: the number of threads of the process.

    Raises:
        InvalidArguments: no sample was taken on `threads` threads.
    """
    ordered = sorted(samples, key=lambda sample: sample.footprint)
    private = [sample for sample in ordered if sample.threads == 1]
    shared = [sample for sample in ordered if sample.threads == threads]
    if not shared:
        raise InvalidArguments(f"no copy was measured on {threads} threads: the capacity of the caches is unknown")
    l2, l2_bandwidth = _private_cache(private, shared, threads)
    shared = [sample for sample in shared if sample.footprint > l2] or shared[-1:]
    cached = [sample for sample in shared if sample.cached_reread >= sample.streamed_reread]
    last = max([l2 * threads, *(sample.footprint for sample in cached)])
    l3 = max([sample.cached_reread for sample in cached], default=shared[0].cached_reread)
    memory = max(shared[-1].streamed_reread, shared[-1].cached_reread)
    rates = [round(float(rate), 2) for rate in (l2_bandwidth, l3 / threads, memory / threads)]
    return MemoryModel(l2, last, _first_streamed(shared), threads, rates[0], rates[1], rates[2], "measured")


def _private_cache(private: Sequence[CopySample], shared: Sequence[CopySample], threads: int) -> tuple[int, float]:
    """Return the capacity in bytes of the private cache of one thread, and its bandwidth."""
    if not private:
        return _ASSUMED_L2, shared[0].cached / threads
    near, far = max(sample.cached for sample in private[:2]), private[-1].cached
    if near < _KNEE * far:
        return _ASSUMED_L2, near
    capacity = private[0].footprint
    for sample in private:
        if sample.cached < sqrt(near * far):
            break
        capacity = sample.footprint
    return capacity, near


def _first_streamed(shared: Sequence[CopySample]) -> int:
    """Return the footprint from which on streaming stores are faster; twice the largest one if there is none."""
    first = 2 * shared[-1].footprint
    for sample in reversed(shared):
        if sample.streamed < _MIN_STREAMING_GAIN * sample.cached:
            break
        first = sample.footprint
    return first


# As JSON


def model_to_json(model: MemoryModel, reported: Sequence[ReportedCache] = ()) -> str:
    """Return the model as JSON text, together with the caches that the operating system reports.

    >>> parse_model(model_to_json(MemoryModel(1 << 20, 32 << 20, 8 << 20)), "machine.json").l2
    1048576
    """
    return json.dumps(model_document(model, reported), indent=2)


def model_document(model: MemoryModel, reported: Sequence[ReportedCache] = ()) -> dict[str, Any]:
    """Return the model as a JSON object, together with the caches that the operating system reports."""
    caches = [asdict(cache) for cache in reported]
    return {"version": 1, "memory": asdict(model), "reported": caches}


def parse_model(text: str, name: str) -> MemoryModel:
    """Return the model from the text that `model_to_json` returned; its `source` is `name`.

    Raises:
        InvalidArguments: the text is not such JSON, or a number is not positive.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    return read_model(document, name)


def read_model(document: Any, name: str) -> MemoryModel:
    """Return the model from an object that `model_document` returned; its `source` is `name`.

    Raises:
        InvalidArguments: the object has another form, or a number is not positive.
    """
    try:
        numbers = dict(document["memory"])
        numbers["source"] = name
        model = MemoryModel(**numbers)
        is_sound = document["version"] == 1 and all(_is_positive(getattr(model, f.name)) for f in fields(model)[:-1])
    except (ValueError, TypeError, KeyError):
        is_sound, model = False, None
    if model is None or not is_sound or model.l2 > model.last_level:
        raise InvalidArguments(
            f"{name} contains no machine model: write one with `inlay bench --machine --json`, or unset INLAY_MACHINE"
        )
    return model


def _is_positive(value: object) -> bool:
    """Return whether a value from a file is a positive number of plausible size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1 << 60


# As the operating system reports it


def reported_caches(folder: Path = _SYSTEM) -> tuple[ReportedCache, ...]:
    """Return the data and instruction caches that the system describes in `folder`, the nearest first.

    The result is empty if the folder does not exist.

    >>> reported_caches(Path("nowhere"))
    ()
    """
    caches = [_read_cache(index) for index in folder.glob("index*")]
    return tuple(sorted((cache for cache in caches if cache is not None), key=lambda cache: (cache.level, cache.kind)))


def cache_hierarchy(caches: Sequence[ReportedCache]) -> str:
    """Return the levels and sizes of the data caches as text; a machine has the same text after each start.

    >>> cache_hierarchy([ReportedCache(1, "Data", 32768, (0,)), ReportedCache(3, "Unified", 32 << 20, (0, 1))])
    'L1 32768, L3 33554432'
    """
    levels = {(cache.level, cache.nbytes) for cache in caches if cache.holds_data}
    return ", ".join(f"L{level} {nbytes}" for level, nbytes in sorted(levels))


def _read_cache(index: Path) -> ReportedCache | None:
    """Return the cache that a folder describes; None if its files cannot be read."""
    try:
        names = ("level", "type", "size", "shared_cpu_list")
        level, kind, size, shared_by = ((index / name).read_text().strip() for name in names)
        return ReportedCache(int(level), kind, int(size[:-1]) * _UNITS[size[-1:]], parse_processor_list(shared_by))
    except (OSError, ValueError, KeyError):
        return None


def parse_processor_list(text: str) -> tuple[int, ...]:
    """Return the processor numbers in a list of the operating system.

    Raises:
        ValueError: the text is not a list of numbers and ranges.

    >>> parse_processor_list("0-2,8")
    (0, 1, 2, 8)
    """
    ends = [part.split("-") for part in text.split(",") if part]
    return tuple(n for end in ends for n in range(int(end[0]), int(end[-1]) + 1))
