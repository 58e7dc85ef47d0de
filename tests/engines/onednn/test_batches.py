"""Batches: primitives that one call executes give the same results and errors as separate calls, from any thread."""

import threading
from typing import Any

import numpy as np
import pytest

import inlay
from inlay import primitives
from inlay.errors import InvalidArguments, MissingExtra
from inlay.graph.runtime.guards import ScanLimits, scan_addresses
from inlay.primitives.engine import MachineCall

try:
    ENGINE: Any = primitives.get_engine("onednn")
except MissingExtra:
    pytest.skip("no oneDNN", allow_module_level=True)


class Chain:
    """x -> 1x1 convolution -> softmax over an axis that needs a scratchpad -> linear, and so on, with all memories."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        plain = inlay.MemoryDesc((2, 16, 7, 7), "f32", "nchw")
        weights = inlay.pack(rng.normal(size=(16, 16, 1, 1)).astype(np.float32), "oihw")
        conv = primitives.Convolution(plain, weights.desc, dst=plain, engine="onednn")
        norm = primitives.Softmax(plain, plain, axis=1, engine="onednn")
        line = primitives.Eltwise(plain, plain, algorithm="linear", alpha=2, beta=1, engine="onednn")
        self.src = inlay.pack(rng.normal(size=plain.dims).astype(np.float32), plain)
        self.tensors = [self.src] + [inlay.Memory(plain) for _ in range(3)]
        self.bound: list[Any] = []
        for primitive, src, dst in zip((conv, norm, line), self.tensors, self.tensors[1:], strict=False):
            more = {"weights": weights} if primitive is conv else {}
            self.bound.append(primitive.implementation.bind({"src": src, "dst": dst, **more}))

    def results(self) -> list[bytes]:
        return [memory.buffer.tobytes() for memory in self.tensors[1:]]

    def one_by_one(self) -> list[bytes]:
        for one in self.bound:
            one()
        results = self.results()
        for memory in self.tensors[1:]:
            memory.buffer[:] = 0
        return results


def test_a_batch_computes_what_separate_calls_do_and_its_memories_may_be_replaced() -> None:
    chain, other = Chain(0), Chain(1)
    expected = chain.one_by_one(), other.one_by_one()
    (together,) = ENGINE.batch(chain.bound)
    assert len(together) == 3
    for _ in range(2):
        together.submit()
        ENGINE.wait()
        assert chain.results() == expected[0]
        for i, one in enumerate(other.bound):
            together.put(i, one)
        together.submit()
        ENGINE.wait()
        assert other.results() == expected[1]
        for i, one in enumerate(chain.bound):
            together.put(i, one)


def test_one_thread_after_another_uses_its_own_stream_and_scratchpad() -> None:
    chain = Chain()
    expected = chain.one_by_one()
    (together,) = ENGINE.batch(chain.bound)
    found: list[list[bytes]] = []

    def work() -> None:
        together.submit()
        ENGINE.wait()
        found.append(chain.results())

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        work()
    assert found == [expected] * 6


def test_numbers_of_threads_divide_what_is_together() -> None:
    if not ENGINE.team.num_threads:
        pytest.skip("OpenMP does not decide")
    try:
        inlay.set_num_threads(1)
        one = Chain()
        inlay.set_num_threads(2)
        two = Chain()
    finally:
        inlay.set_num_threads(None)
    assert [len(together) for together in ENGINE.batch([*one.bound, *two.bound, *one.bound])] == [3, 3, 3]
    assert ENGINE.batch([]) == []


def test_a_failure_says_which_primitive() -> None:
    chain = Chain()
    chain.bound[1].executable.count = 0
    (together,) = ENGINE.batch(chain.bound)
    with pytest.raises(InvalidArguments) as refused:
        together.submit()
    with pytest.raises(InvalidArguments) as alone:
        chain.bound[1].submit()
    ENGINE.wait()
    assert str(refused.value) == str(alone.value)
    assert "softmax forward_inference" in str(refused.value)


@pytest.mark.skipif(not ENGINE.batches_machine_calls, reason="this library computes while its caller goes on")
def test_a_check_may_stand_before_the_first_primitive() -> None:
    class Failed(Exception):
        pass

    one = int(np.float32(1.0).view(np.uint32))
    scan = scan_addresses(ScanLimits(one), 4)
    if scan is None:
        pytest.skip("no machine code for this processor")
    values, chain = np.zeros(70, np.float32), Chain()
    check = MachineCall(scan[0], values.ctypes.data, values.size, values, Failed)
    (together,) = ENGINE.batch([check, *chain.bound])
    assert len(together) == 4
    together.submit()
    values[69] = np.nan
    with pytest.raises(Failed):
        together.submit()
    ENGINE.wait()
    others = np.zeros(70, np.float32)
    together.put(0, MachineCall(scan[0], others.ctypes.data, others.size, others, lambda: Failed("others")))
    together.submit()
    others[3] = np.inf
    with pytest.raises(Failed, match=r"^others$"):
        together.submit()
    ENGINE.wait()
