"""One fresh process that measures itself and prints seconds as JSON: what `startup` starts.

    python -m benchmarks.startup_probe import     how long `import inlay` takes
    python -m benchmarks.startup_probe needs      how long NumPy and ml_dtypes take, which it needs
    python -m benchmarks.startup_probe compile    how long `compile_reorder` takes, pair by pair
    python -m benchmarks.startup_probe call       how long a call takes that moves four elements
    python -m benchmarks.startup_probe small      how long calls of 64 kB take, ours and oneDNN's

`compile` keeps code in folders of the directory INLAY_CACHE_DIR, which must be set: a second run with the same
directory finds everything on disk.

Only what Python itself has loaded may be imported up here: everything else would be missing from the first answer.
"""

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.cases import Case
    from inlay.descriptor import MemoryDesc


def import_seconds() -> dict[str, float]:
    """`import inlay` in a process that has loaded nothing but Python."""
    started = time.perf_counter()
    import inlay

    return {f"inlay {inlay.__version__}": time.perf_counter() - started}


def needs_seconds() -> dict[str, float]:
    """What `import inlay` loads of others, in a process that has loaded nothing but Python."""
    started = time.perf_counter()
    import ml_dtypes
    import numpy

    return {f"{numpy.__name__} and {ml_dtypes.__name__}": time.perf_counter() - started}


def compile_seconds() -> dict[str, float]:
    """Loading the compiler; the first pair, LLVM's start included; then each pair of formats and type, largest size.

    Each pair is compiled in a process forked from this one, with a cache directory of its own: what one pair leaves in
    memory or on disk is of no use to the next. Before its clock starts each child compiles a pair of f64, of which none
    is measured: otherwise it would first of all copy the pages of memory that it shares with its parent.
    """
    started = time.perf_counter()
    from inlay.reordering import compile_reorder

    found = {"load": time.perf_counter() - started}
    from benchmarks.cases import sizes_of
    from benchmarks.families import all_cases
    from benchmarks.machine import this_machine
    from inlay.descriptor import MemoryDesc

    cases = all_cases([sizes_of(this_machine())[-1]])
    found["first"] = _in_a_fork("first", cases[0], None)
    small, large = ((MemoryDesc((n, n), "f64", "ab"), MemoryDesc((n, n), "f64", "ba")) for n in (2, 8))
    compile_reorder(*small)
    for i, case in enumerate(cases):
        found[case.label] = _in_a_fork(str(i), case, large)
    return found


def _in_a_fork(folder: str, case: "Case", unmeasured: "tuple[MemoryDesc, MemoryDesc] | None") -> float:
    """Seconds to compile the reorder in a child of this process, whose cache is the given folder of ours."""
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
        compile_reorder(src, dst, case.attributes)
        sender.send(time.perf_counter() - started)

    child = context.Process(target=work)
    child.start()
    sender.close()
    seconds: float = receiver.recv()
    child.join()
    return seconds


def call_seconds() -> dict[str, float]:
    """A `Reorder` that was called before, and a compiled reorder on bare addresses; both on four elements."""
    import numpy as np

    import inlay
    from inlay.measure.interleaved import seconds_per_call
    from inlay.reordering import compile_reorder

    src, dst = inlay.MemoryDesc((2, 2), "f32", "ab"), inlay.MemoryDesc((2, 2), "f32", "ba")
    of, to = np.ones(4, np.float32), np.zeros(4, np.float32)
    reorder, run = inlay.Reorder(src, dst), compile_reorder(src, dst).run
    src_memory, dst_memory = inlay.Memory(src, of), inlay.Memory(dst, to)
    src_address, dst_address = of.ctypes.data, to.ctypes.data
    calls = {
        "Reorder": lambda: reorder(src_memory, dst_memory),
        "run": lambda: run(src_address, dst_address),
    }
    for call in calls.values():
        seconds_per_call(call, 1000)
    return {name: seconds_per_call(call, 20_000) for name, call in calls.items()}


def small_seconds() -> dict[str, float]:
    """A `Reorder` of a tensor of 64 kB, and the same by each oneDNN that is here; they take turns."""
    from functools import partial
    from statistics import median

    import numpy as np

    import inlay
    from benchmarks.machine import this_machine
    from benchmarks.peers import FINDERS, Missing
    from benchmarks.timing import Rounds, take_turns
    from inlay.measure.interleaved import Call

    found = {}
    peers = [find(this_machine().threads) for name, find in FINDERS.items() if name.startswith("oneDNN")]
    for dims, tags in (
        ((1, 64, 16, 16), ("nchw", "nChw16c")),
        ((1, 64, 16, 16), ("nchw", "nhwc")),
        ((128, 128), ("ab", "ba")),
    ):
        src, dst = (inlay.MemoryDesc(dims, "f32", tag) for tag in tags)
        buffers = [np.ones(desc.size, np.uint8) for desc in (src, dst)]
        memories = [inlay.Memory(desc, buffer) for desc, buffer in zip((src, dst), buffers, strict=True)]
        calls: dict[str, Call] = {"Inlay": partial(inlay.Reorder(src, dst), *memories)}
        for peer in peers:
            if not isinstance(peer, Missing):
                calls[peer.name] = peer.prepare(src, buffers[0], dst, buffers[1])
        for name, seconds in take_turns(calls, Rounds(), warm=True).items():
            found[f"{' -> '.join(tags)}, {name}"] = median(seconds)
    return found


PROBES = {
    "import": import_seconds,
    "needs": needs_seconds,
    "compile": compile_seconds,
    "call": call_seconds,
    "small": small_seconds,
}

if __name__ == "__main__":
    answer = PROBES[sys.argv[1]]()
    import json

    print(json.dumps(answer))
