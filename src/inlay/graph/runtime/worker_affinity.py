"""`keep_workers_apart`: binds each worker of a thread team to a processor that is not the caller's.

    keep_workers_apart(team, threads=2)     before each run; returns at once while the caller stays on its processor

GNU OpenMP has a pool of workers for each calling thread. Workers that sleep between runs may wake up on the processor
of the caller, and there both spin at a barrier, each while the other should compute; Linux may leave them there for
tens of milliseconds, in which a run takes two to five times as long. The same happens if another program runs for a
moment on the caller's processor: the caller is moved to that of a worker.

So each worker of a team that fills all allowed processors is bound to one of them, and the caller, which is never
bound, has the remaining one. If the caller has moved, the worker of its new processor gets the old one. A smaller team
leaves processors free, where the system wakes threads up; its workers may run on all of them.

Source: sched_setaffinity(2) of Linux, which moves a running thread at once and a sleeping one when it wakes up.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from inlay.forks import at_fork
from inlay.measure.processors import allowed_processors
from inlay.primitives.engine import ThreadTeam

_TASKS = Path("/proc/self/task")


@dataclass(slots=True)
class WorkerBinding:
    """The bound workers of one calling thread."""

    threads: int = 0
    """Number of threads of the team, the caller included; 0 before the first run."""
    processor: int = -1
    """Number of the processor of the caller when the workers were bound."""
    workers: dict[int, int] = field(default_factory=dict)
    """Thread id of the worker that is bound to a processor, by the processor's number."""


class _BindingsOfThread(threading.local):
    """The bindings of the calling thread, by team."""

    def __init__(self) -> None:
        self.bindings: dict[ThreadTeam, WorkerBinding] = {}


_of_thread = _BindingsOfThread()
# The engine ends the workers before a fork, and the parent and the child start new ones.
at_fork(after_in_child=lambda: _of_thread.bindings.clear(), before=lambda: _of_thread.bindings.clear())
_current_processor: Callable[[], int] | None = (
    ctypes.CDLL(None).sched_getcpu if hasattr(os, "sched_setaffinity") else None
)


def keep_workers_apart(team: ThreadTeam | None, threads: int) -> None:
    """Bind the workers of the calling thread's team so that none runs on the processor of the caller.

    Post-condition: if `threads` is the number of allowed processors, each worker is bound to one of them, no two to the
    same, none to the caller's. Otherwise no worker is bound by this function. Workers that something else has bound
    keep their processors, and nothing is done on a system without affinity.

    Args:
        team: the threads of an engine; None does nothing.
        threads: number of threads of the next run, the caller included.
    """
    if team is None or _current_processor is None:
        return
    binding = _of_thread.bindings.get(team)
    if binding is None:
        binding = _of_thread.bindings[team] = WorkerBinding()
    processor = _current_processor()
    if processor == binding.processor and threads == binding.threads:
        return
    if threads != binding.threads or not _exchange(binding, processor):
        _bind(team, binding, threads, processor)
    binding.threads, binding.processor = threads, processor


def _exchange(binding: WorkerBinding, processor: int) -> bool:
    """Bind the worker of the caller's new processor to the old one; return whether all workers are apart then."""
    if len(allowed_processors()) != binding.threads:
        return not binding.workers
    worker = binding.workers.pop(processor, None)
    if worker is None or not _set_affinity(worker, {binding.processor}):
        return False
    binding.workers[binding.processor] = worker
    return True


def _set_affinity(worker: int, processors: set[int]) -> bool:
    """Let a thread run on `processors` only; return False if it is no thread of this process or may not run there."""
    if (_TASKS / str(worker)).exists():
        with suppress(OSError):
            os.sched_setaffinity(worker, processors)
            return True
    return False


def _bind(team: ThreadTeam, binding: WorkerBinding, threads: int, processor: int) -> None:
    """Release the bound workers; bind those of a team that fills all allowed processors, one to each but the caller's.

    The workers bind themselves: nothing else tells which threads of the process they are.
    """
    allowed = set(allowed_processors())
    for worker in binding.workers.values():
        _set_affinity(worker, allowed)
    binding.workers.clear()
    if not 1 < threads == len(allowed) or processor not in allowed:
        return
    targets = [processor, *sorted(allowed - {processor})]
    thread_num = ctypes.CFUNCTYPE(ctypes.c_int)(team.thread_num)

    def bind_self(_: object) -> None:
        number = thread_num()
        with suppress(OSError):
            if number and os.sched_getaffinity(0) == allowed:
                os.sched_setaffinity(0, {targets[number]})
                binding.workers[targets[number]] = threading.get_native_id()

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(bind_self)
    parallel = ctypes.CFUNCTYPE(None, type(function), ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(team.parallel)
    parallel(function, None, threads, 0)
