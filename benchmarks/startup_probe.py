"""One fresh process that measures itself and prints seconds as JSON: what `startup` starts.

    python -m benchmarks.startup_probe import     how long `import inlay` takes
    python -m benchmarks.startup_probe compile    how long `compile_reorder` takes, pair by pair
    python -m benchmarks.startup_probe call       how long a call takes that moves four elements

`compile` keeps code in folders of the directory INLAY_CACHE_DIR, which must be set: a second run with the same
directory finds everything on disk.

Only what Python itself has loaded may be imported up here: everything else would be missing from the first answer.
"""

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inlay.descriptor import MemoryDesc


def import_seconds() -> dict[str, float]:
    """`import inlay` in a process that has loaded nothing but Python."""
    started = time.perf_counter()
    import inlay

    return {f"inlay {inlay.__version__}": time.perf_counter() - started}


def compile_seconds() -> dict[str, float]:
    """Loading the compiler; the first pair, LLVM's start included; then each pair of formats and type, largest size.

    Each pair is compiled in a process forked from this one, with a cache directory of its own: what one pair leaves in
    memory or on disk is of no use to the next.
    """
    started = time.perf_counter()
    from inlay.reordering import compile_reorder

    found = {"load": time.perf_counter() - started}
    from benchmarks.cases import sizes_of
    from benchmarks.families import all_cases
    from benchmarks.machine import this_machine
    from inlay.descriptor import MemoryDesc

    cases = all_cases([sizes_of(this_machine())[-1]])
    found["first"] = _in_a_fork("first", cases[0].src, cases[0].dst)
    compile_reorder(MemoryDesc((2, 2), "f64", "ab"), MemoryDesc((2, 2), "f64", "ba"))
    for i, case in enumerate(cases):
        found[case.label] = _in_a_fork(str(i), case.src, case.dst)
    return found


def _in_a_fork(folder: str, src: "MemoryDesc", dst: "MemoryDesc") -> float:
    """Seconds to compile the reorder in a child of this process, whose cache is the given folder of ours."""
    from multiprocessing import get_context

    from inlay.reordering import compile_reorder

    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        os.environ["INLAY_CACHE_DIR"] = f"{os.environ['INLAY_CACHE_DIR']}/{folder}"
        started = time.perf_counter()
        compile_reorder(src, dst)
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
    from benchmarks.timing import seconds_per_call
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


if __name__ == "__main__":
    answer = {"import": import_seconds, "compile": compile_seconds, "call": call_seconds}[sys.argv[1]]()
    import json

    print(json.dumps(answer))
