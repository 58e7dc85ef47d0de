"""Runtimes that crash: each runs a network once in a process of its own, before it does so in this one.

    find_crashes({"OpenVINO": openvino}, case)      {"OpenVINO": "crashed (signal 11)"}

A signal, such as that of a segmentation fault, ends a whole process, and cannot be caught as an exception. Only signals
count here: what a runtime refuses, and numbers that differ, are found later, in this process.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from inlay.bench.runtimes import NetworkInputs, Runtime
from inlay.graph.onnx_package import onnx


def find_crashes(runtimes: Mapping[str, Runtime], case: NetworkInputs) -> dict[str, str]:
    """Return the runtimes whose process is ended by a signal when they run a network, each with that reason.

    Args:
        runtimes: functions of modules that a new process can import, by name.
        case: the network and its inputs.
    """
    if not runtimes:
        return {}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "case.pickle"
        with file.open("wb") as stream:
            trial = replace(case, model=case.model.SerializeToString(), compiles=False)
            pickle.dump(trial, stream, pickle.HIGHEST_PROTOCOL)
        signals = {name: _signal_of(runtime, file) for name, runtime in runtimes.items()}
    return {name: f"crashed (signal {signal})" for name, signal in signals.items() if signal}


def _signal_of(runtime: Runtime, file: Path) -> int:
    """Return the number of the signal that ends the process of a runtime; 0 if none does."""
    command = [sys.executable, "-m", "inlay.bench.crashes", runtime.__module__, runtime.__qualname__, str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    return max(0, -done.returncode)


def _run_once(module: str, name: str, file: Path) -> None:
    """Run a network once in each configuration of a runtime, and ignore what it raises."""
    _write_no_core()
    runtime: Runtime = getattr(import_module(module), name)
    case: NetworkInputs = pickle.loads(file.read_bytes())
    with suppress(Exception):
        for one in runtime(replace(case, model=onnx.load_from_string(case.model))):
            with suppress(Exception):
                one.results()


def _write_no_core() -> None:
    """Let the system write no file of this process's memory when a signal ends it."""
    with suppress(ImportError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _module, _name, _file = sys.argv[1:]
    _run_once(_module, _name, Path(_file))
