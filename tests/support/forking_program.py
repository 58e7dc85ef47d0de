"""A program that forks while it uses Inlay.

`python -m tests.support.forking_program KIND COUNT`, with KIND a key of `KINDS`.

It prints for each child what that wrote: `right`, or the text of an error; or `hung` for one that did not end in time.
"""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np

import inlay
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError
from inlay.memory import Memory, pack
from tests.support.graph_programs import conv, drawn, graph_of, pointwise, relu

SECONDS = 60.0
"""After which a child counts as one that hangs."""
DIMS = (2, 32, 28, 28)


def in_child(work: Callable[[], bool]) -> str:
    """What a forked child says of `work`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = "right" if work() else "wrong"
        except InlayError as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    ended, until = 0, time.monotonic() + SECONDS
    while not ended and time.monotonic() < until:
        ended, _ = os.waitpid(child, os.WNOHANG)
        time.sleep(1e-3)
    if not ended:
        os.kill(child, 9)
        os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return (pipe.read().decode() or "died") if ended else "hung"


def beside(threads: int, work: Callable[[int], bool], child: Callable[[int], bool], rounds: int) -> list[str]:
    """Fork while threads repeat `work`, each time with a new number; each child does its own with another one."""
    done, numbers = threading.Event(), count(3)

    def repeat() -> None:
        while not done.is_set():
            work(next(numbers))

    workers = [threading.Thread(target=repeat) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        return [in_child(lambda: child(next(numbers))) for _ in range(rounds)]
    finally:
        done.set()
        for worker in workers:
            worker.join()


def compiling(rounds: int) -> list[str]:
    """Forks while two threads compile reorders, each for new dims; the child compiles one too."""

    def moved(number: int) -> bool:
        array = np.arange(number * 6, dtype=np.float32).reshape(2, 3, number)
        return bool(np.array_equal(pack(array, f"aBc{2 + number % 29}b").unpack(), array))

    return beside(2, moved, lambda number: moved(number + 10_000), rounds)


def _convolution(channels: int) -> p.Primitive:
    src, weights = (MemoryDesc(dims, "f32", "any") for dims in (DIMS, (channels, 32, 3, 3)))
    return p.Convolution(src, weights, padding_l=1, engine="onednn")


def _memories(primitive: p.Primitive) -> dict[str, Memory]:
    rng = np.random.default_rng(3)
    return {
        name: pack(rng.normal(size=primitive.desc(name).dims).astype(np.float32), primitive.desc(name))
        for name in ("src", "weights")
    }


def primitives(rounds: int) -> list[str]:
    """Forks after a primitive ran on several threads; the child runs it, and one of its own."""
    old = _convolution(32)
    memories = _memories(old)
    expected = old(**memories).unpack()

    def work() -> bool:
        new = _convolution(48)
        new(**_memories(new))
        return bool(np.array_equal(old(**memories).unpack(), expected))

    found = []
    for _ in range(rounds):
        found.append(in_child(work))
        old(**memories)
    return found


def creating(rounds: int) -> list[str]:
    """Forks while another thread creates primitives; the child creates one too."""

    def make(channels: int) -> bool:
        made = _convolution(channels)
        return bool(made(**_memories(made)).desc.dims[1] == channels)

    make(1)
    return beside(1, lambda number: make(number % 97 + 1), lambda number: make(number + 200), rounds)


def sessions(rounds: int) -> list[str]:
    """Forks after a session ran; the child runs it, and plans, compiles and runs the network anew."""
    weights = drawn(16, 8, 1, 1)
    dims = {"x": (1, 8, 14, 14), "y": (1, 16, 14, 14), "z": (1, 16, 14, 14)}
    graph = graph_of([conv("conv", "x", "y", weights), relu("relu", "y", "z")], dims, "x", "z")
    image = drawn(*dims["x"])
    expected = np.maximum(pointwise(image, weights), 0)

    def is_right(session: Any) -> bool:
        return bool(np.allclose(session.run({"x": image})["z"], expected, rtol=1e-3, atol=1e-4))

    session = inlay.plan(graph, costs="analytic", engine="onednn").compile()
    assert is_right(session)

    def work() -> bool:
        return is_right(session) and is_right(inlay.plan(graph, costs="analytic", engine="onednn").compile())

    return [in_child(work) for _ in range(rounds) if is_right(session)]


KINDS: Mapping[str, Callable[[int], list[str]]] = {
    "compiling": compiling,
    "primitives": primitives,
    "creating": creating,
    "sessions": sessions,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads
    for answer in KINDS[sys.argv[1]](int(sys.argv[2])):
        sys.stdout.write(answer + "\n")
