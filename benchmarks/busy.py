"""Networks on processors that other programs or a quota take away; every figure is a median with quartiles beside it.

A quota needs a folder of control groups that this process may write. Where there is none, the threads of this process
share one processor with a busy loop on each of the others, which the system does not report to the process.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import inlay
from examples.random_networks import inputs_of, light, mobilenet_v3, resnet18
from inlay.graph.runtime.program_session import ProgramSession
from inlay.measure.interleaved import clock, time_call
from inlay.measure.processors import allowed_processors
from inlay.measure.statistics import spread

QUOTA_NETWORKS = ("resnet50", "squeezenet")
LOOP_NETWORKS = {"resnet18": resnet18, "mobilenet_v3": mobilenet_v3}
_GROUPS = Path("/sys/fs/cgroup")
_PERIOD = "100000"  # microseconds
_LOOP = "import os, sys\nif sys.argv[1:]: os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
_BEFORE = 10  # runs under the quota that do not count
_BLOCK, _BLOCKS = 0.5, 6  # seconds of a block of runs, and blocks
_LIFTED = 5.0  # seconds within which a session is to use all threads again


@contextmanager
def busy_loops(count: int, *, on: int | None = None) -> Iterator[None]:
    """Run processes that compute all the time, on processor `on` or wherever the system puts them."""
    command = [sys.executable, "-c", _LOOP, *([] if on is None else [str(on)])]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def one_processor() -> Iterator[str]:
    """Leave one processor to the threads of this process, and yield how that is done."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(_quota())
        except OSError:
            for processor in allowed_processors()[1:]:
                stack.enter_context(busy_loops(3, on=processor))
            yield "three busy loops on each other processor"


@contextmanager
def _quota() -> Iterator[str]:
    """Set a quota of one processor.

    Raises `OSError`: there are no control groups, or this process may not write them.
    """
    is_first_version = (_GROUPS / "cpu" / "cpu.cfs_quota_us").exists()
    above = _GROUPS / "cpu" if is_first_version else _GROUPS
    files = {"cpu.cfs_period_us": _PERIOD, "cpu.cfs_quota_us": _PERIOD} if is_first_version else {}
    group = above / "inlay-benchmark"
    group.mkdir(exist_ok=True)
    try:
        for name, text in (files or {"cpu.max": f"{_PERIOD} {_PERIOD}"}).items():
            (group / name).write_text(text)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield "a quota of one processor"
        finally:
            (above / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        with suppress(OSError):
            group.rmdir()


def time_under_quota() -> None:
    """Time sessions that may use all processors beside ones of one thread, under a quota of one processor."""
    for name in QUOTA_NETWORKS:
        model = light(name)
        inputs = inputs_of(model)
        plan = inlay.plan(inlay.load(model.SerializeToString()), costs="probed")
        team = plan.compile().prepare()
        inlay.set_num_threads(1)
        alone = plan.compile().prepare()
        inlay.set_num_threads(None)
        everything = team.threads
        _runs(team, inputs, 1.0)
        with one_processor() as how:
            first = ", ".join(f"{1e3 * _run(team, inputs):.0f}" for _ in range(_BEFORE))
            print(f"{name}, {how}: the first runs took {first} ms")
            one, several = zip(*((_runs(alone, inputs), _runs(team, inputs)) for _ in range(_BLOCKS)), strict=True)
            print(f"  on one thread {_ms(chain(*one))}; on as many as run {_ms(chain(*several))}", end="")
            ratio = spread([fmean(many) / fmean(single) for single, many in zip(one, several, strict=True)])
            print(f", {team.threads} at the end\n  mean over mean of one thread: ", end="")
            print(f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}); the aim is at most 1.2")
        print(f"{name}, lifted: {_time_return(team, inputs, everything)}")


def _run(session: ProgramSession, inputs: Mapping[str, Any]) -> float:
    return time_call(lambda: session.run(inputs))[0]


def _runs(session: ProgramSession, inputs: Mapping[str, Any], seconds: float = _BLOCK) -> list[float]:
    """Return the times of runs for so many seconds."""
    end, times = clock() + seconds, list[float]()
    while clock() < end:
        times.append(_run(session, inputs))
    return times


def _ms(seconds: Iterable[float]) -> str:
    ms = spread(list(seconds)).times(1e3)
    return f"{ms.median:.1f} ms ({ms.low:.1f} to {ms.high:.1f})"


def _time_return(team: ProgramSession, inputs: Mapping[str, Any], everything: int) -> str:
    """Return how long it takes until the session uses all threads again."""
    began = clock()
    while clock() < began + 2 * _LIFTED:
        before = team.threads
        _run(team, inputs)
        if before == team.threads == everything and clock() > began + 0.1:
            last = [_run(team, inputs) for _ in range(15)]
            if team.threads == everything:
                return f"{everything} threads after {clock() - began:.1f} s, {_ms(last)}"
    return f"still {team.threads} threads after {2 * _LIFTED:.0f} s"


def time_beside_loops(seconds: float) -> None:
    """Plan networks beside a busy loop on each processor, and time them beside ONNX Runtime."""
    processors = len(allowed_processors())
    with tempfile.TemporaryDirectory() as folder, busy_loops(processors):
        for name, make in LOOP_NETWORKS.items():
            file = Path(folder) / f"{name}.onnx"
            file.write_bytes(make().SerializeToString())
            unmeasured, _ = _command("plan", str(file), "--seconds", "0")
            measured, text = _command("plan", str(file), "--seconds", f"{seconds:g}")
            busy = next((line for line in text.splitlines() if "busy" in line), "the plan does not say that it is busy")
            print(f"{name} beside {processors} busy loops: plan --seconds 0 took {unmeasured:.1f} s, ", end="")
            print(f"--seconds {seconds:g} took {measured:.1f} s\n  {busy}")
            options = ("--seconds", f"{seconds:g}", "--rounds", "8", "--peers", "onnxruntime")
            print("\n".join(f"  {line}" for line in _command("bench", str(file), *options)[1].splitlines()[-3:]))


def _command(*words: str) -> tuple[float, str]:
    """Run a command of Inlay with an empty cache; return its seconds and its output."""
    command: list[str] = [sys.executable, "-m", "inlay", *words]
    with tempfile.TemporaryDirectory() as cache:
        run = partial(subprocess.run, env={**os.environ, "INLAY_CACHE_DIR": cache}, capture_output=True, check=True)
        seconds, done = time_call(lambda: run(command, text=True))
        return seconds, done.stdout
