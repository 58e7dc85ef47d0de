"""The engine of oneDNN: what it chooses and computes, beside NumPy and the reference engine."""

import numpy as np
import pytest
from oracles import onednn as oracle

from inlay.descriptor import MemoryDesc
from inlay.engine import reference
from inlay.engine.onednn import OnednnEngine, make_engine
from inlay.memory import Memory, pack
from inlay.primitives.operation import Operation, Parameter

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))


@pytest.fixture(scope="module")
def engine() -> OnednnEngine:
    return make_engine()


def any_of(*dims: int, data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, "any")


RELU: dict[str, Parameter] = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
WINDOW: dict[str, Parameter] = {
    "algorithm": "direct",
    "strides": (1, 1),
    "dilations": (0, 0),
    "padding_l": (1, 1),
    "padding_r": (1, 1),
}


def relu(desc: MemoryDesc) -> Operation:
    return Operation("eltwise", "forward_inference", {"src": desc, "dst": any_of(*desc.dims)}, RELU)


def convolution() -> Operation:
    descs = {
        "src": any_of(2, 17, 9, 8),
        "weights": any_of(19, 17, 3, 3),
        "bias": any_of(19),
        "dst": any_of(2, 19, 9, 8),
    }
    return Operation("convolution", "forward_inference", descs, WINDOW)


def test_the_destination_of_a_relu_takes_the_format_that_arrives(engine: OnednnEngine) -> None:
    src = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    implementation = engine.create(relu(src))
    assert implementation.descs == {"src": src, "dst": src}
    values = np.random.default_rng(0).normal(size=src.dims).astype(np.float32)
    memories = {"src": pack(values, src), "dst": Memory(src)}
    run = implementation.bind(memories)
    for _ in range(2):
        run()
        assert np.array_equal(memories["dst"].unpack(), np.maximum(values, 0))
        memories["dst"].buffer[:] = 1


def test_a_convolution_chooses_formats_and_computes_what_the_reference_does(engine: OnednnEngine) -> None:
    random = np.random.default_rng(1)
    arrays = {name: random.normal(size=desc.dims).astype(np.float32) for name, desc in convolution().descs.items()}
    results = []
    for implementation in (engine.create(convolution()), reference.make_engine().create(convolution())):
        memories = {name: pack(arrays[name], desc) for name, desc in implementation.descs.items()}
        implementation.bind(memories)()
        results.append(memories["dst"].unpack())
    np.testing.assert_allclose(results[0], results[1], atol=1e-4)
