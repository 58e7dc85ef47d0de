"""A fresh process that times itself and prints seconds as JSON: `startup` starts it.

    python -m benchmarks.startup_probe import     `import inlay`
    python -m benchmarks.startup_probe needs      importing NumPy and ml_dtypes, which Inlay needs
    python -m benchmarks.startup_probe compile    `compile_reorder`, pair by pair; INLAY_CACHE_DIR must be set
    python -m benchmarks.startup_probe call       a call that moves four elements
    python -m benchmarks.startup_probe small      calls of 64 kB, Inlay's and oneDNN's
    python -m benchmarks.startup_probe saved FOLDER      `Session.load` and the first run of a saved plan
    python -m benchmarks.startup_probe planned FOLDER    the same by `load`, `plan` and `compile`

Only modules that Python itself has loaded may be imported at the top: others would be missing from the first answer.
"""

import os
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.cases import Case
    from inlay.descriptor import MemoryDesc


def time_import(*modules: str) -> dict[str, float]:
    """Time the import of modules in a process that has loaded nothing but Python."""
    started = time.perf_counter()
    for module in modules:
        import_module(module)
    return {"import": time.perf_counter() - started}


def time_compilation() -> dict[str, float]:
    """Time loading the compiler; the first pair, LLVM's start included; then each pair, in its largest size.

    Each pair is compiled in a process forked from this one, with a cache directory of its own: nothing that one pair
    leaves in memory or on disk serves the next. Before its clock starts each child compiles a pair of f64, which is not
    measured: otherwise it would first copy the pages of memory that it shares with its parent.
    """
    seconds = {"load": time_import("inlay.reordering")["import"]}
    from benchmarks.cases import all_cases
    from benchmarks.record import this_machine
    from inlay.descriptor import MemoryDesc
    from inlay.reordering import compile_reorder

    cases = all_cases(this_machine().sizes[-1:])
    seconds["first"] = _compile_in_fork("first", cases[0], None)
    small, large = ((MemoryDesc((n, n), "f64", "ab"), MemoryDesc((n, n), "f64", "ba")) for n in (2, 8))
    compile_reorder(*small)
    return seconds | {case.label: _compile_in_fork(str(i), case, large) for i, case in enumerate(cases)}


def _compile_in_fork(folder: str, case: "Case", unmeasured: "tuple[MemoryDesc, MemoryDesc] | None") -> float:
    """Return the seconds to compile the reorder in a child of this process, with a cache folder of its own."""
    from multiprocessing import get_context

    from inlay.reordering import compile_reorder

    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        os.environ["INLAY_CACHE_DIR"] = f"{os.environ['INLAY_CACHE_DIR']}/{folder}"
        if unmeasured is not None:
            compile_reorder(*unmeasured)
        src, dst = case.src, case.dst
        started = time.perf_counter()
        compile_reorder(src, dst, case.pair.attributes)
        sender.send(time.perf_counter() - started)

    child = context.Process(target=work)
    child.start()
    sender.close()
    seconds: float = receiver.recv()
    child.join()
    return seconds


def time_calls() -> dict[str, float]:
    """Time a `Reorder` that was called before, and a compiled reorder on bare addresses; both of four elements."""
    import inlay
    from inlay.measure.interleaved import seconds_per_call
    from inlay.reordering import compile_reorder

    src, dst = (inlay.Memory(inlay.MemoryDesc((2, 2), "f32", tag)) for tag in ("ab", "ba"))
    reorder, run = inlay.Reorder(src.desc, dst.desc), compile_reorder(src.desc, dst.desc).run
    of, to = src.address, dst.address
    calls = {"Reorder": lambda: reorder(src, dst), "run": lambda: run(of, to)}
    for call in calls.values():
        seconds_per_call(call, 1000)
    return {name: seconds_per_call(call, 20_000) for name, call in calls.items()}


def time_small_calls() -> dict[str, float]:
    """Time a `Reorder` of a tensor of 64 kB, and the same by each oneDNN that is installed, in turns."""
    from functools import partial
    from statistics import median

    import inlay
    from benchmarks.peers import find_peers
    from benchmarks.rounds import Rounds
    from inlay.measure.interleaved import Call
    from inlay.reordering.threads import available_threads

    seconds, image = {}, (1, 64, 16, 16)
    peers, _ = find_peers(available_threads(), "oneDNN")
    for dims, tags in ((image, ("nchw", "nChw16c")), (image, ("nchw", "nhwc")), ((128, 128), ("ab", "ba"))):
        src, dst = (inlay.Memory(inlay.MemoryDesc(dims, "f32", tag)) for tag in tags)
        calls: dict[str, Call] = {"Inlay": partial(inlay.Reorder(src.desc, dst.desc), src, dst)}
        calls |= {peer.name: peer.prepare_plain(src, dst) for peer in peers}
        for name, times in Rounds().measure(calls, warm=True).items():
            seconds[f"{' -> '.join(tags)}, {name}"] = median(times)
    return seconds


def time_session(folder: str, *, is_saved: bool) -> dict[str, float]:
    """Time `Session.load` of net.inlay in a folder, or load, plan and compile of net.onnx; then the first run.

    Inlay is imported and the inputs are read before the clock starts.
    """
    import numpy as np

    import inlay

    with np.load(f"{folder}/inputs.npz") as file:
        inputs = {name: file[name] for name in file.files}
    began = time.perf_counter()
    if is_saved:
        session = inlay.Session.load(f"{folder}/net.inlay")
    else:
        session = inlay.plan(inlay.load(f"{folder}/net.onnx")).compile()
    loaded = time.perf_counter()
    session.run(inputs)
    return {"load": loaded - began, "run": time.perf_counter() - loaded}


if __name__ == "__main__":
    probes = {"compile": time_compilation, "call": time_calls, "small": time_small_calls}
    probes |= {"import": lambda: time_import("inlay"), "needs": lambda: time_import("numpy", "ml_dtypes")}
    probes |= {"saved": lambda: time_session(sys.argv[2], is_saved=True)}
    probes |= {"planned": lambda: time_session(sys.argv[2], is_saved=False)}
    answer = probes[sys.argv[1]]()
    import json

    print(json.dumps(answer))
