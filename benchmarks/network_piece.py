"""One network in a process of its own: `python -m benchmarks.network_piece resnet50 1 run FILE`.

    plan    seconds to plan and compile it, with whatever the cache directory of the process knows
    run     runs beside those of other runtimes, with what was predicted

The result is written to FILE as JSON. A process of its own has no kernels of the engine ready and no other network's
memory.
"""

import json
import sys
import time
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import inlay
from benchmarks.machine import Bystanders
from benchmarks.networks import bert, light
from inlay.bench.networks import bench_network
from inlay.graph.costs import measured
from inlay.graph.lowering.translation import lowered

BERT = "bert"
"""Our name of the encoder as BERT's, of 4 layers."""
_LIBRARIES = ("onnxruntime", "openvino", "torch", "onednn-cpu-gomp")
_GLANCES = 9  # at how slow the machine is


def model_bytes(name: str, batch: int) -> bytes:
    """The file of a network, weights random."""
    model = bert(batch=batch) if name == BERT else light(name, batch)
    data: bytes = model.SerializeToString()
    return data


def planned(name: str, batch: int) -> dict[str, Any]:
    """Seconds from the network to the session."""
    network = inlay.load(model_bytes(name, batch))
    started = time.perf_counter()
    plan = inlay.plan(network)
    between = time.perf_counter()
    plan.compile()
    return {"planning": between - started, "compiling": time.perf_counter() - between}


def run(name: str, batch: int, rounds: int) -> dict[str, Any]:
    """What `inlay bench` measures, and how slow the machine was, of what others took of it."""
    model = model_bytes(name, batch)
    graph = lowered(inlay.load(model))
    costs = measured(weights=sum(array.nbytes for op in graph.ops for array in op.constants.values()))
    before = [costs.slowdown() for _ in range(_GLANCES)]
    watched = Bystanders()
    report = bench_network(model, rounds=rounds)
    share = watched.share()
    after = [costs.slowdown() for _ in range(_GLANCES)]
    return {
        **report.as_json(),
        "slowdown": median(before + after),
        "share_of_others": share,
        "versions": {library: _version(library) for library in _LIBRARIES},
    }


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"


def main(name: str, batch: str, what: str, file: str, rounds: str = "15") -> None:
    """Do the piece and write what it found."""
    found = planned(name, int(batch)) if what == "plan" else run(name, int(batch), int(rounds))
    Path(file).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
