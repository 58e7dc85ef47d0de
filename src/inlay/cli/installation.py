"""The facts of an installation: what `inlay doctor` prints, each with the fault that was found, if any.

A fact is a line of text and values by name. A fault is what keeps a part of Inlay from working, such as a cache
directory that others can write to; that an extra is not installed is none.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from inlay import __version__
from inlay.cli.completion import SHELLS, installed_version
from inlay.cli.extras import package_document, required_packages
from inlay.errors import InlayError

_MEGABYTE, _MEBIBYTE = 1_000_000, 1 << 20
_CPUINFO, _MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
_FEATURES = ("sse4.1", "avx2", "avx512bw", "avx512vbmi", "avx512bf16", "avx512fp16", "amx-tile", "neon", "sve")
"""Features of processors that change the code of reorders or kernels."""
_VARIABLES = ("INLAY_", "ONEDNN_", "OMP_", "GOMP_")
"""Beginnings of the names of variables of the environment that change how Inlay runs."""


@dataclass(frozen=True, slots=True)
class InstallationFact:
    """One fact of an installation."""

    name: str
    """Name of the fact, such as `engine`."""
    text: str
    """The fact in words; empty if it is not known because of the fault."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The fact as JSON values, by name."""
    fault: str | None = None
    """The fault and its remedy; None without a fault."""

    def as_json(self) -> dict[str, Any]:
        """Return the fact as a JSON object."""
        return {"text": self.text, **self.values, "fault": self.fault}


def list_facts() -> Iterator[InstallationFact]:
    """Yield the facts of this installation, in the order in which they are printed.

    The memory levels are measured if they were not, and the processors always, in under a second together.
    """
    for name, find in _FACTS.items():
        try:
            yield find()
        except (InlayError, OSError) as error:
            yield InstallationFact(name, "", fault=str(error))


def _inlay_fact() -> InstallationFact:
    """Return version and folder of Inlay, and the packages that it needs."""
    folder = str(Path(__file__).parents[1])
    packages = required_packages()
    wrong = [str(package) for package in packages if not package.is_usable]
    return InstallationFact(
        "inlay",
        f"{__version__} in {folder}",
        {"version": __version__, "folder": folder, "packages": [package_document(package) for package in packages]},
        f"{', '.join(wrong)}: pip install --upgrade inlay" if wrong else None,
    )


def _python_fact() -> InstallationFact:
    """Return version and program of Python, and the operating system."""
    version, system = platform.python_version(), f"{platform.system()} {platform.release()} {platform.machine()}"
    values = {"version": version, "executable": sys.executable, "system": system}
    return InstallationFact("python", f"{version} in {sys.executable}, {system}", values)


def _processor_fact() -> InstallationFact:
    """Return the name of the processor, and the instruction sets that reorders use."""
    from inlay.reordering.target import host_target

    target = host_target()
    enabled = {feature[1:] for feature in target.features.split(",") if feature.startswith("+")}
    features = [feature for feature in _FEATURES if feature in enabled]
    name = _processor_name()
    values = {"name": name, "llvm_name": target.cpu, "features": features, "vector_bits": 8 * target.vector_bytes}
    text = f"{name} ({target.cpu}), vectors of {8 * target.vector_bytes} bits; {' '.join(features)}"
    return InstallationFact("processor", text, values)


def _processor_name() -> str:
    """Return the name of the processor as the operating system has it."""
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _processors_fact() -> InstallationFact:
    """Return how many processors other programs leave free, measured now, and the threads of reorders."""
    from inlay.measure.processors import measure_processors
    from inlay.reordering.threads import get_num_threads

    measured, threads = measure_processors(), get_num_threads()
    values = {
        "count": measured.count,
        "shares": [round(share, 3) for share in measured.shares],
        "quota": measured.quota,
        "threads": threads,
    }
    busy = "; times that are measured now are too long" if measured.is_busy else ""
    text = f"{measured}; reorders use up to {threads} thread{'s' * (threads != 1)}{busy}"
    return InstallationFact("processors", text, values)


def _memory_fact() -> InstallationFact:
    """Return the memory of the machine, or that of the control group of this process if it is less."""
    from rich.filesize import decimal

    from inlay.measure.processors import memory_limit

    entries = _memory_entries()
    total, free, limit = entries.get("MemTotal"), entries.get("MemAvailable"), memory_limit()
    texts = ["unknown" if total is None else decimal(total)]
    if free is not None:
        texts.append(f"{decimal(free)} free")
    if limit is not None and (total is None or limit < total):
        texts.append(f"limited to {decimal(limit)} by a control group")
    return InstallationFact("memory", ", ".join(texts), {"nbytes": total, "free": free, "limit": limit})


def _memory_entries() -> dict[str, int]:
    """Return the sizes in /proc/meminfo, in bytes; the total of `os.sysconf` where there is no such file."""
    try:
        lines = _MEMINFO.read_text().splitlines()
        return {line.partition(":")[0]: 1024 * int(line.split()[1]) for line in lines if line.endswith("kB")}
    except (OSError, ValueError, IndexError):
        pass
    try:
        return {"MemTotal": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}
    except (AttributeError, OSError, ValueError):
        return {}


def _caches_fact() -> InstallationFact:
    """Return the measured memory levels; they are measured now if they were not since the machine started."""
    from inlay.bench.machine_report import MachineReport, measure_machine
    from inlay.machine import reported_caches
    from inlay.reordering.memory_levels import memory_model

    model = memory_model()
    report = measure_machine() if model.source == "assumed" else MachineReport(model, reported_caches())
    model = report.model
    text = (
        f"L2 {model.l2 / _MEBIBYTE:g} MB a thread, last level {model.last_level / _MEBIBYTE:g} MB, "
        f"{'measured' if model.source == 'measured' else f'from {model.source}'}; a thread copies "
        f"{model.l2_bandwidth:.0f} GB/s in L2, {model.l3_bandwidth:.0f} in the last level, "
        f"{model.memory_bandwidth:.0f} in memory"
    )
    return InstallationFact("caches", text, {"model": asdict(model), "reported": [asdict(c) for c in report.reported]})


def _engine_fact() -> InstallationFact:
    """Return the engine that computes networks, its version, threading runtime and library."""
    from inlay.primitives.engine import explain_fallback, get_engine

    engine, reason = get_engine(), explain_fallback()
    library = getattr(engine, "library", None)
    if library is None:
        note = f"; {reason}" if reason else ""
        values = {"name": engine.name, "version": None, "runtime": None, "library": None, "missing": reason}
        return InstallationFact(
            "engine",
            f"{engine.name} (NumPy), far slower than oneDNN{note}",
            values,
            reason if os.environ.get("INLAY_ONEDNN") and reason else None,
        )
    version = ".".join(map(str, library.version))
    values = {
        "name": engine.name,
        "version": version,
        "runtime": library.runtime,
        "library": library.path,
        "missing": None,
    }
    text = f"oneDNN {version}, threads of {library.runtime}, {library.path}"
    return InstallationFact("engine", text, values)


def _cache_fact() -> InstallationFact:
    """Return the directory of the cache, how much it holds, and its limit."""
    from rich.filesize import decimal

    from inlay.cache import measure_cache
    from inlay.cache.size_limit import cache_limit

    (path, count, nbytes), limit = measure_cache(), cache_limit()
    values = {"path": str(path), "files": count, "nbytes": nbytes, "limit": limit}
    files = f"{count} file{'s' * (count != 1)}"
    text = f"{path}, {decimal(nbytes)} in {files}, at most {decimal(limit)} (INLAY_CACHE_MB)"
    return InstallationFact("cache directory", text, values)


def _machine_code_fact() -> InstallationFact:
    """Return whether a reorder is compiled, runs, and gives the right bytes."""
    from inlay.memory import pack

    array = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
    is_right = np.array_equal(pack(array, "nChw8c").unpack(), array)
    fault = None if is_right else "a reorder to nChw8c and back gives other values: report this as a defect of Inlay"
    text = "nchw to nChw8c and back gives the same values" if is_right else "wrong"
    return InstallationFact("machine code", text, {"is_right": is_right}, fault)


def _completion_fact() -> InstallationFact:
    """Return whether the shell of the user completes commands of this version."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        text = f"scripts are for {', '.join(SHELLS)}; SHELL is {shell or 'not set'}"
        return InstallationFact("completion", text, {"shell": None, "version": None})
    version = installed_version(shell)
    if version is None:
        text = f"not installed for {shell}: inlay completion --install"
    elif version != __version__:
        text = f"the script of {shell} is of version {version}: write it again by inlay completion --install"
    else:
        text = f"installed for {shell}"
    return InstallationFact("completion", text, {"shell": shell, "version": version})


def _environment_fact() -> InstallationFact:
    """Return the variables of the environment that change how Inlay runs."""
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}
    text = " ".join(f"{name}={value}" for name, value in found.items()) or "no variable is set"
    return InstallationFact("environment", text, {"variables": found})


_FACTS: Mapping[str, Callable[[], InstallationFact]] = {
    "inlay": _inlay_fact,
    "python": _python_fact,
    "processor": _processor_fact,
    "processors": _processors_fact,
    "memory": _memory_fact,
    "caches": _caches_fact,
    "engine": _engine_fact,
    "cache directory": _cache_fact,
    "machine code": _machine_code_fact,
    "completion": _completion_fact,
    "environment": _environment_fact,
}
"""The function that finds each fact."""
