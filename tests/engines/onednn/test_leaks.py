"""Objects of oneDNN that are created and dropped leave no memory behind."""

import gc
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import OnednnEngine, load_library, make_engine
from inlay.memory import Memory
from inlay.primitives.engine import Implementation
from inlay.primitives.rules import KINDS
from tests.oracles import onednn as oracle
from tests.support.onednn_cases import backward, directions, forward

STATM = Path("/proc/self/statm")
pytestmark = [
    pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable())),
    pytest.mark.skipif(not STATM.exists(), reason="only Linux says what a process takes"),
]
LIMIT = 1 << 20


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def require_no_growth(work: Callable[[int], Any], warm: int, count: int, limit: int = LIMIT) -> None:
    """Do `work` `warm` times, then `count` times, which must add less than `limit` bytes.

    Threads of libraries take memory when they like, but a leak is in each of three attempts: the first that stays
    under the limit ends them.
    """
    for i in range(warm):
        work(i)
    added = limit
    for _ in range(3):
        before = resident()
        for i in range(count):
            work(i)
        added = min(added, resident() - before)
        if added < limit:
            return
    raise AssertionError(f"{added} bytes or more")


def bind(implementation: Implementation) -> Callable[[], None]:
    return implementation.bind({name: Memory(desc) for name, desc in implementation.descs.items()})


def cycles(engine: OnednnEngine) -> Mapping[str, Callable[[int], Any]]:
    """What makes and drops each kind of handle."""
    relu = forward("eltwise", "forward_inference")
    softmax = engine.create(forward("softmax", "forward_inference"))
    memories = {name: Memory(desc) for name, desc in softmax.descs.items()}
    hint = engine.create(forward("convolution"))
    return {
        "memory": lambda i: softmax.bind(memories)(),
        "more memory than is kept": lambda i: [softmax.bind(memories) for _ in range(7)],
        "memory_desc": lambda i: engine.descriptors.handle(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")),
        "primitive_desc": lambda i: engine.create(relu),
        "backward": lambda i: engine.create(backward(hint, "backward_data")),
    }


# One leaked memory_desc of 3.2 in each cycle would be over 600 bytes: 1.2 MB at the least.
COUNTS = {
    "memory": 20_000,
    "more memory than is kept": 3_000,
    "memory_desc": 20_000,
    "primitive_desc": 10_000,
    "backward": 2_000,
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_hundred_thousand_handles_leave_nothing(engine: OnednnEngine, name: str) -> None:
    require_no_growth(cycles(engine)[name], max(500, COUNTS[name] // 4), COUNTS[name])


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "count"),
    [("more memory than is kept", 150_000), ("memory_desc", 1_000_000), ("primitive_desc", 1_000_000)],
)
def test_a_million_handles_leave_nothing(engine: OnednnEngine, name: str, count: int) -> None:
    require_no_growth(cycles(engine)[name], 20_000, count, 4 * LIMIT)


@pytest.fixture
def no_primitive_cache() -> Iterator[None]:
    """The library remembers primitives of engines that are gone, 1024 of them."""
    set_capacity = load_library().cdll.dnnl_set_primitive_cache_capacity
    set_capacity(0)
    yield
    set_capacity(1024)


@pytest.mark.usefixtures("no_primitive_cache")
def test_engines_and_primitives_leave_nothing() -> None:
    if load_library().runtime == "sycl":
        pytest.skip("SYCL keeps 20 kB of each stream that executed")
    require_no_growth(lambda i: bind(make_engine().create(forward("eltwise", "forward_inference")))(), 50, 300)


@pytest.mark.heavy
def test_every_kind_leaves_nothing(engine: OnednnEngine) -> None:
    kinds = [kind for kind in KINDS if kind not in ("group_normalization", "augru", "lbr_augru")]

    def work(i: int) -> None:
        kind = kinds[i % len(kinds)]
        implementation = engine.create(forward(kind))
        bind(implementation)()
        for direction in directions(kind):
            engine.create(backward(implementation, direction))

    require_no_growth(work, 20 * len(kinds), 200 * len(kinds), 8 * LIMIT)
