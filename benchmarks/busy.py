"""`python -m benchmarks.busy`: networks on processors that other programs or a quota take away.

    python -m benchmarks.busy quota     sessions under a quota of one processor, and after it is lifted
    python -m benchmarks.busy loops     plans made and run beside a busy loop on each processor

Every figure is a median with the quartiles beside it, of runs that take turns in blocks where two are compared.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

import inlay
from benchmarks.mobile_networks import mobilenet_v3, resnet18
from benchmarks.networks import Model, inputs_of, light
from benchmarks.shared_processors import busy_loops, one_processor
from inlay.graph.runtime.session import Session
from inlay.measure.interleaved import clock, time_call
from inlay.measure.processors import allowed_processors
from inlay.measure.statistics import spread

app = typer.Typer(add_completion=False, help=__doc__)

QUOTA_NETWORKS = ("resnet50", "squeezenet")
LOOP_NETWORKS: Mapping[str, Callable[[], Model]] = {"resnet18": resnet18, "mobilenet_v3": mobilenet_v3}
_BEFORE = 10  # runs under the quota that do not count
_BLOCK = 0.5  # seconds
_BLOCKS = 6
_LIFTED = 5.0  # seconds within which a session is to use all threads again
_BENCH = 8  # rounds beside ONNX Runtime

Seconds = Annotated[float, typer.Option(help="Seconds of measuring of the plans.")]


@app.command()
def quota() -> None:
    """Time sessions that may use all processors beside ones of one thread, under a quota of one processor."""
    for name in QUOTA_NETWORKS:
        model = light(name)
        inputs = inputs_of(model)
        team, alone = _sessions(model)
        everything = team.threads
        list(_seconds(team, inputs, 1.0))
        with one_processor() as how:
            first = [_run(team, inputs) for _ in range(_BEFORE)]
            print(f"{name}, {how}: the first runs took {', '.join(f'{1e3 * s:.0f}' for s in first)} ms")
            blocks = [(list(_seconds(alone, inputs)), list(_seconds(team, inputs))) for _ in range(_BLOCKS)]
            threads = team.threads
        _print_ratio(name, blocks, threads)
        print(f"{name}, lifted: {_words_on_return(team, inputs, everything)}")


def _sessions(model: Model) -> tuple[Session, Session]:
    """The network on as many threads as run, and on one."""
    plan = inlay.plan(inlay.load(model.SerializeToString()), costs="probed")
    team = plan.compile()
    inlay.set_num_threads(1)
    alone = plan.compile()
    inlay.set_num_threads(None)
    return team, alone


def _run(session: Session, inputs: Mapping[str, Any]) -> float:
    return time_call(lambda: session.run(inputs))[0]


def _seconds(session: Session, inputs: Mapping[str, Any], seconds: float = _BLOCK) -> Iterator[float]:
    """The times of runs for so many seconds."""
    end = clock() + seconds
    while clock() < end:
        yield _run(session, inputs)


def _print_ratio(name: str, blocks: list[tuple[list[float], list[float]]], threads: int) -> None:
    alone, team = ([s for block in blocks for s in block[side]] for side in (0, 1))
    ratios = [fmean(mine) / fmean(one) for one, mine in blocks]
    ratio = spread(ratios)
    print(f"  on one thread {_spread(alone)}; on as many as run {_spread(team)}, {threads} at the end")
    words = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    print(f"  mean over mean of one thread: {words}; the aim is at most 1.2")


def _spread(seconds: list[float]) -> str:
    ms = spread(seconds).times(1e3)
    return f"{ms.median:.1f} ms ({ms.low:.1f} to {ms.high:.1f})"


def _words_on_return(team: Session, inputs: Mapping[str, Any], everything: int) -> str:
    began = clock()
    while clock() < began + 2 * _LIFTED:
        session_threads = team.threads
        _run(team, inputs)
        if session_threads == team.threads == everything and clock() > began + 0.1:
            last = [_run(team, inputs) for _ in range(15)]
            if team.threads == everything:
                return f"{everything} threads after {clock() - began:.1f} s, {_spread(last)}"
    return f"still {team.threads} threads after {2 * _LIFTED:.0f} s"


@app.command()
def loops(seconds: Seconds = 2.0) -> None:
    """Plan networks beside a busy loop on each processor, and time them beside ONNX Runtime."""
    processors = len(allowed_processors())
    with tempfile.TemporaryDirectory() as folder, busy_loops(processors):
        for name, make in LOOP_NETWORKS.items():
            file = Path(folder) / f"{name}.onnx"
            file.write_bytes(make().SerializeToString())
            unmeasured, _ = _command(["plan", str(file), "--seconds", "0"])
            taken, text = _command(["plan", str(file), "--seconds", f"{seconds:g}"])
            busy = next((line for line in text.splitlines() if "busy" in line), "the plan does not say that it is busy")
            print(f"{name} beside {processors} busy loops: plan --seconds 0 took {unmeasured:.1f} s, ", end="")
            print(f"--seconds {seconds:g} took {taken:.1f} s\n  {busy}")
            _, text = _command(
                ["bench", str(file), "--seconds", f"{seconds:g}", "--rounds", str(_BENCH), "--peers", "onnxruntime"]
            )
            print("\n".join(f"  {line}" for line in text.splitlines()[-3:]))


def _command(words: list[str]) -> tuple[float, str]:
    """How long a command took with an empty cache, and what it printed."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "INLAY_CACHE_DIR": cache}
        command = [sys.executable, "-m", "inlay", *words]
        seconds, done = time_call(
            lambda: subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        )
        return seconds, done.stdout


if __name__ == "__main__":
    app()
