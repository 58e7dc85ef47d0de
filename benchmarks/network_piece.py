"""One network in a process of its own: `python -m benchmarks.network_piece resnet50 1 run FILE`.

    plan    seconds to plan and compile it, with whatever the cache directory of the process knows
    run     runs beside those of other runtimes, and beside what was predicted

The result is written to FILE as JSON. A process of its own has no kernels of the engine ready and no other network's
memory.
"""

import json
import sys
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import inlay
from benchmarks.networks import bert, light
from inlay.bench.networks import bench_network, values_of
from inlay.graph.costs import measured
from inlay.graph.lowering.translation import lower_network
from inlay.measure.disturbance import OtherLoad
from inlay.measure.interleaved import time_call

BERT = "bert"
"""Our name of the encoder as BERT's, of 4 layers."""
_LIBRARIES = ("onnxruntime", "openvino", "torch", "onednn-cpu-gomp")
_ROUNDS = 25
_GLANCES = 5  # at how slow the machine is, before and after each round


def model_bytes(name: str, batch: int) -> bytes:
    """The file of a network, weights random."""
    model = bert(batch=batch) if name == BERT else light(name, batch)
    data: bytes = model.SerializeToString()
    return data


def planned(name: str, batch: int) -> dict[str, Any]:
    """Seconds from the network to the session."""
    network = inlay.load(model_bytes(name, batch))
    planning, plan = time_call(lambda: inlay.plan(network))
    compiling, _ = time_call(plan.compile)
    return {"planning": planning, "compiling": compiling}


def run(name: str, batch: int, rounds: int) -> dict[str, Any]:
    """What `inlay bench` measures, what others took of the machine meanwhile, and how good the prediction is."""
    model = model_bytes(name, batch)
    watched = OtherLoad()
    report = bench_network(model, rounds=rounds)
    return {
        **report.as_json(),
        "share_of_others": watched.share(),
        "times_predicted": times_predicted(model),
        "versions": {library: _version(library) for library in _LIBRARIES},
    }


def times_predicted(model: bytes) -> float:
    """How many times the predicted milliseconds a run takes, if the machine were as fast as it can be.

    Before and after each run somebody looks how slow the machine is: its clock goes up and down. The median of rounds.
    """
    network = inlay.load(model)
    plan = inlay.plan(network)
    graph, session = lower_network(network), plan.compile()
    costs = measured(weights=sum(array.nbytes for op in graph.ops for array in op.constants.values()))
    inputs = {name: values_of(network.tensors[name]) for name in network.inputs}
    found = []
    for _ in range(_ROUNDS):
        slow = [costs.slowdown() for _ in range(_GLANCES)]
        session.run(inputs)
        seconds, _ = time_call(lambda: session.run(inputs))
        slow += [costs.slowdown() for _ in range(_GLANCES)]
        found.append(1e3 * seconds / (plan.ms * median(slow)))
    return median(found)


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
