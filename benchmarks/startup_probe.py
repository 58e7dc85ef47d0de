"""One fresh process that measures itself and prints seconds as JSON: what `startup` starts.

    python -m benchmarks.startup_probe import     how long `import inlay` takes
    python -m benchmarks.startup_probe compile    how long the first call of `compile_reorder` takes, pair by pair
    python -m benchmarks.startup_probe call       how long a call takes that moves four elements

Only what Python itself has loaded may be imported up here: everything else would be missing from the first answer.
"""

import sys
import time


def import_seconds() -> dict[str, float]:
    """`import inlay` in a process that has loaded nothing but Python."""
    started = time.perf_counter()
    import inlay

    return {f"inlay {inlay.__version__}": time.perf_counter() - started}


def compile_seconds() -> dict[str, float]:
    """Loading the compiler, then each pair of formats and type of the benchmark, largest size.

    The first pair is compiled in the same call that starts LLVM.
    """
    started = time.perf_counter()
    from inlay.reordering import compile_reorder

    found = {"load": time.perf_counter() - started}
    from benchmarks.cases import all_cases, sizes_of
    from benchmarks.machine import this_machine

    largest = sizes_of(this_machine())[-1]
    for case in all_cases([largest]):
        src, dst = case.src, case.dst
        started = time.perf_counter()
        compile_reorder(src, dst)
        found[case.label] = time.perf_counter() - started
    return found


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
