"""Contestants: Inlay and other runtimes that run one network, each in a process of its own, and take turns.

A process prepares the network, sends its numbers, and then sends the seconds of a block of runs whenever it gets a
message. Before a turn ends it waits until its threads sleep, so that the next contestant has the processors for itself.

MNN and ncnn read the file by their own converters, and convolutional networks only.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

import inlay
from inlay.bench.contenders import require_installed
from inlay.bench.measurement import INLAY
from inlay.bench.runtimes import Configuration, NetworkInputs, onnxruntime, openvino, softmax_inputs, torch
from inlay.errors import InlayError, Unimplemented
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.onnx_package import onnx
from inlay.graph.op_graph import Array
from inlay.graph.runtime.arguments import draw_input
from inlay.measure.disturbance import IdleWait, OtherLoad
from inlay.measure.interleaved import Turn, measure_interleaved
from inlay.reordering.threads import set_num_threads

TURN = Turn(warm=50e-3, block=25e-3)
"""A turn, as in `inlay.bench.networks`."""
_LONGEST = 1e6  # seconds of a run, before the first is timed
_TRIALS = 3
"""Rounds in which the configurations of a runtime compete."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A network that a contestant runs."""

    file: Path
    """The ONNX file; all its dims are fixed."""
    threads: int
    """The number of threads that the contestant may use."""
    cache: Path
    """The directory of Inlay's stored costs."""
    network: Network
    """The loaded file."""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """An array for each input, equal for all contestants."""


def inlay_configuration(entry: Entry) -> Iterator[Configuration]:
    """Yield Inlay with measured costs."""
    set_num_threads(entry.threads)
    session = inlay.plan(entry.network).compile()
    compared = softmax_inputs(onnx.load(entry.file)).values()

    def results() -> Mapping[str, Array]:
        traced = session.trace(entry.inputs) if compared else {}
        return {**session.run(entry.inputs), **{name: traced[name] for name in compared if name in traced}}

    yield Configuration("measured costs", lambda: session.run(entry.inputs), results)


def _runtime(runtime: Callable[[NetworkInputs], Iterator[Configuration]]) -> Callable[[Entry], Iterator[Configuration]]:
    """Return a contestant from a runtime of `inlay bench`."""

    def configurations(entry: Entry) -> Iterator[Configuration]:
        model: Any = onnx.load(entry.file)
        graph = inlay.plan(entry.network, costs="probed").graph if runtime is torch else None
        compared = tuple(dict.fromkeys(softmax_inputs(model).values()))
        yield from runtime(NetworkInputs(model, graph, entry.inputs, compared, entry.threads))  # type: ignore[arg-type]

    return configurations


def _converted(tool: str, *arguments: str) -> None:
    """Run a converter of a peer; raise `Unimplemented` with its last line if it fails."""
    command = [str(Path(sys.executable).with_name(tool)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        last = next(reversed((done.stdout + done.stderr).strip().splitlines()), "no text")
        raise Unimplemented(f"its converter fails: {last}")


def mnn(entry: Entry) -> Iterator[Configuration]:
    """Yield MNN (https://github.com/alibaba/MNN) with arithmetic of f32."""
    library = require_installed("MNN")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.mnn"
        _converted(
            "mnnconvert", "-f", "ONNX", "--modelFile", str(entry.file), "--MNNModel", str(file), "--bizCode", "0"
        )
        if not file.exists():
            raise Unimplemented("its converter does not read the file")
        network = library.Interpreter(str(file))
    session = network.createSession({"backend": "CPU", "numThread": entry.threads, "precision": "high"})
    for name, array in entry.inputs.items():
        source = library.Tensor(array.shape, library.Halide_Type_Float, array, library.Tensor_DimensionType_Caffe)
        network.getSessionInput(session, name).copyFrom(source)
    yield Configuration("f32", lambda: network.runSession(session), lambda: _mnn_results(library, network, session))


def _mnn_results(library: Any, network: Any, session: Any) -> Mapping[str, Array]:
    """Run MNN once and return copies of its outputs."""
    network.runSession(session)
    results = {}
    for name, tensor in network.getSessionOutputAll(session).items():
        dims = tensor.getShape()
        plain = np.empty(dims, np.float32)
        copy = library.Tensor(dims, library.Halide_Type_Float, plain, library.Tensor_DimensionType_Caffe)
        tensor.copyToHostTensor(copy)
        results[name] = np.array(copy.getNumpyData()).reshape(dims)
    return results


def ncnn(entry: Entry) -> Iterator[Configuration]:
    """Yield ncnn (https://github.com/Tencent/ncnn) with arithmetic of f32; it has no batches."""
    library = require_installed("ncnn")
    require_installed("pnnx")
    if any(array.shape[0] != 1 for array in entry.inputs.values()):
        raise Unimplemented("it has no batches")
    network = library.Net()
    network.opt.num_threads = entry.threads
    network.opt.use_fp16_packed = network.opt.use_fp16_storage = network.opt.use_fp16_arithmetic = False
    network.opt.use_bf16_storage = False
    with TemporaryDirectory() as folder:
        stem = str(Path(folder) / "model")
        Path(f"{stem}.onnx").symlink_to(entry.file.resolve())
        _converted("pnnx", f"{stem}.onnx", "fp16=0")
        if network.load_param(f"{stem}.ncnn.param") or network.load_model(f"{stem}.ncnn.bin"):
            raise Unimplemented("it does not load what its converter writes")
    names = entry.network.outputs
    arrays = {f"in{index}": library.Mat(array[0]) for index, array in enumerate(entry.inputs.values())}

    def results() -> Mapping[str, Array]:
        extractor = network.create_extractor()
        for name, array in arrays.items():
            extractor.input(name, array)
        return {name: np.array(extractor.extract(f"out{index}")[1]) for index, name in enumerate(names)}

    yield Configuration("f32", results, results)


CONTESTANTS: Mapping[str, Callable[[Entry], Iterator[Configuration]]] = {
    INLAY: inlay_configuration,
    "ONNX Runtime": _runtime(onnxruntime),
    "OpenVINO": _runtime(openvino),
    "torch": _runtime(torch),
    "MNN": mnn,
    "ncnn": ncnn,
}
"""The configurations of each contestant, by name."""


def fastest(configurations: Iterator[Configuration]) -> Configuration:
    """Return the fastest of configurations."""
    best = next(configurations)
    for other in configurations:
        times = measure_interleaved({"best": best.call, "other": other.call}, _TRIALS, TURN)
        if median(times["other"]) < median(times["best"]):
            best = other
    return best


def serve(connection: Connection, name: str, file: Path, threads: int, cache: Path) -> None:
    """Prepare a contestant, send (words, results) or an error's text, then take a turn for each message until None."""
    os.environ["INLAY_CACHE_DIR"] = str(cache)
    try:
        network = load_bound(file)
        inputs = {name: draw_input(network.tensors[name]) for name in network.inputs}
        chosen = fastest(CONTESTANTS[name](Entry(file, threads, cache, network, inputs)))
        connection.send((chosen.how, dict(chosen.results())))
    except InlayError as error:
        connection.send((str(error), None))
        return
    while connection.recv() is not None:
        load = OtherLoad()
        seconds = TURN.take(chosen.call, _LONGEST)
        IdleWait().wait()
        connection.send((seconds, load.share()))


Answer: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A contestant's process, seen from the one that calls the turns."""

    process: Any
    connection: Connection

    @classmethod
    def start(cls, name: str, file: Path, threads: int, cache: Path) -> "Contestant":
        """Start the process, which prepares the network."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, name, file, threads, cache), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def answer(self) -> Answer | None:
        """Wait for what the process sends; None if it has ended."""
        with suppress(EOFError, ConnectionError):
            return tuple(self.connection.recv())
        return None

    def turn(self) -> Answer | None:
        """Let it take a turn: seconds of a run and the share of others; None if the process has ended."""
        with suppress(ConnectionError):
            self.connection.send(True)
        return self.answer()

    def stop(self) -> None:
        """End the process."""
        with suppress(ConnectionError):
            self.connection.send(None)
        self.process.join(5)
        self.process.kill()
