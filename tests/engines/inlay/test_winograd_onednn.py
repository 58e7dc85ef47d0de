"""Winograd convolutions on the threads of oneDNN: formats, calls, weights, and primitives, against the reference."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay import InlayEngine
from inlay.engines.inlay import engine as inlay_engine
from inlay.engines.onednn import make_engine
from inlay.engines.onednn.execution import find_thread_team
from inlay.errors import Unimplemented
from inlay.memory import Memory, pack, reorder
from inlay.primitives import Convolution, Reorder, set_engine
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Implementation, Operation, create_with_companions
from inlay.reordering.target import TARGETS
from inlay.reordering.threads import set_num_threads
from tests.engines.inlay.test_winograd import (
    LANES,
    Floats,
    direct_convolution,
    memories_of,
    operation,
    random_arrays,
    relative_error,
    weights_memory,
)
from tests.oracles import onednn as oracle
from tests.support.refusals import raises_exactly

if oracle.why_unavailable() is not None:
    pytest.skip(str(oracle.why_unavailable()), allow_module_level=True)
if make_engine().thread_team is None:
    pytest.skip("this oneDNN does not run on GNU OpenMP", allow_module_level=True)

BLOCKED = f"aBcd{LANES}b"
CLOSE = 2e-5
"""Largest difference, as a share of the largest value; single layers of few channels differ by about 1e-6."""


@pytest.fixture(scope="module")
def engine() -> InlayEngine:
    return InlayEngine(make_engine())


@pytest.fixture
def primitives_on_onednn() -> Iterator[None]:
    set_engine(make_engine())
    yield
    set_engine(None)


def convolution(
    src: str = "any",
    dst: str = "any",
    *,
    image: tuple[int, int, int, int] = (2, 32, 13, 10),
    channels: int = 48,
    bias: bool = True,
) -> Operation:
    """Return a convolution of two formats, whose dst has the size of its src and whose scratchpad is its own."""
    descs = MemoryDesc(image, "f32", src), MemoryDesc((image[0], channels, *image[2:]), "f32", dst)
    return replace(operation(*descs, bias=bias), attributes=PrimitiveAttributes())


def assert_computes(engine: InlayEngine, operation: Operation) -> Implementation:
    implementation = engine.create(operation)
    assert implementation.impl == "winograd:4x4_3x3"
    assert implementation.operation is operation
    assert relative_error(implementation) <= CLOSE
    return implementation


# Formats and sizes


@pytest.mark.parametrize("dst", ["any", "nhwc", BLOCKED])
@pytest.mark.parametrize("src", ["any", "nhwc", BLOCKED])
def test_results_in_every_format_are_those_of_the_reference(engine: InlayEngine, src: str, dst: str) -> None:
    descs = assert_computes(engine, convolution(src, dst)).descs
    assert descs["src"] == MemoryDesc((2, 32, 13, 10), "f32", "nhwc" if src == "any" else src)
    assert descs["dst"] == MemoryDesc((2, 48, 13, 10), "f32", "nhwc" if dst == "any" else dst)
    assert descs["weights"].kind == "opaque"
    assert "scratchpad" not in descs


@pytest.mark.parametrize("channels", [16, 64, 128, 176])
def test_channels_need_not_fill_a_panel(engine: InlayEngine, channels: int) -> None:
    assert_computes(engine, convolution(image=(1, 48, 9, 9), channels=channels))
    assert_computes(engine, convolution(image=(1, channels, 9, 9), channels=48))


@pytest.mark.parametrize("tag", ["nhwc", BLOCKED])
def test_submemory_is_read_and_written_without_a_copy(engine: InlayEngine, tag: str) -> None:
    rng = np.random.default_rng(5)
    src, dst = (pack(rng.standard_normal((2, 64, 11, 12), np.float32), tag) for _ in range(2))
    inner = Memory(src.desc.submemory((2, 32, 9, 8), (0, 16, 1, 3)), src.buffer)
    outer = Memory(dst.desc.submemory((2, 48, 9, 8), (0, 16, 2, 0)), dst.buffer)
    problem = operation(inner.desc, outer.desc)
    made = engine.create(problem)
    assert (made.descs["src"], made.descs["dst"]) == (inner.desc, outer.desc)
    arrays = random_arrays(problem) | {"src": inner.unpack()}
    before = dst.unpack()
    made.bind(memories_of(made, arrays) | {"src": inner, "dst": outer})()
    after = dst.unpack()
    assert_close(after[:, 16:, 2:, :8], direct_convolution(problem, **arrays))
    before[:, 16:, 2:, :8] = after[:, 16:, 2:, :8]
    assert np.array_equal(after, before)


def assert_close(found: Floats, wanted: npt.NDArray[np.float64]) -> None:
    assert np.abs(found - wanted).max() <= CLOSE * np.abs(wanted).max()


# Calls


def test_each_call_reads_the_current_content_of_its_memories(engine: InlayEngine) -> None:
    made = engine.create(convolution(bias=False))
    memories = memories_of(made, random_arrays(made.operation))
    run = made.bind(memories)
    run()
    first = memories["dst"].unpack()
    memories["src"].buffer.view(np.float32)[:] *= -2
    for _ in range(2):
        memories["dst"].buffer[:] = 0
        run()
        np.testing.assert_allclose(memories["dst"].unpack(), -2 * first, rtol=1e-5, atol=1e-5)


def test_the_caller_may_own_the_scratchpad(engine: InlayEngine) -> None:
    problem = replace(convolution(), attributes=PrimitiveAttributes(scratchpad_mode="user"))
    assert str(assert_computes(engine, problem).descs["scratchpad"].data_type) == "u8"


@pytest.mark.parametrize("threads", [1, 2, None])
def test_the_number_of_threads_may_be_limited(engine: InlayEngine, threads: int | None) -> None:
    set_num_threads(threads)
    try:
        assert_computes(engine, convolution(image=(1, 64, 28, 28), channels=64))
    finally:
        set_num_threads(None)


def test_it_runs_between_calls_of_the_library() -> None:
    """Run a direct, a Winograd and a direct convolution, each on the result of the previous one."""
    host = make_engine()
    winograd = convolution("nhwc", "nhwc", image=(1, 32, 13, 10), channels=32, bias=False)
    direct = replace(winograd, parameters={**winograd.parameters, "algorithm": "direct"})
    arrays = random_arrays(winograd)
    memory, image, runs = pack(arrays["src"], "nhwc"), arrays["src"], []
    for step in (direct, winograd, direct):
        _, made = create_with_companions(host, step)
        assert made.is_batched == (step is direct)
        desc = made.descs["weights"]
        weights = pack(arrays["weights"], desc) if step is direct else weights_memory(arrays["weights"], desc)
        target = Memory(memory.desc)
        runs.append(made.bind({"src": memory, "weights": weights, "dst": target}))
        memory = target
        image = direct_convolution(step, **{**arrays, "src": image}).astype(np.float32)
    for _ in range(3):
        for run in runs:
            run()
        assert_close(memory.unpack(), image.astype(np.float64))


# Weights


def test_transformed_weights_cannot_be_reordered_back(engine: InlayEngine) -> None:
    desc, host = engine.create(convolution()).descs["weights"], make_engine()
    back = Operation("reorder", "forward_inference", {"src": desc, "dst": MemoryDesc(desc.dims, "f32")})
    with raises_exactly(
        Unimplemented,
        "inlay has no reorder forward_inference such as this: it computes reorders between layouts and cache writes; "
        "and on threads of GNU OpenMP Winograd convolutions, products with integer weights or weights in panels, "
        "batches of products of few rows, dynamic quantization and table lookups",
    ):
        engine.create(back)
    with raises_exactly(
        Unimplemented,
        f"the opaque format {str(desc).split(':')[2]} of dims {desc.dims} was not created by this "
        f"{host.library.name}: only the engine that created it can read it, in the same process",
    ):
        create_with_companions(host, back)


# Primitives


@pytest.mark.usefixtures("primitives_on_onednn")
def test_a_primitive_selects_it_by_its_algorithm() -> None:
    problem = convolution()
    descs, arrays = problem.descs, random_arrays(problem)
    primitive = Convolution(descs["src"], descs["weights"], bias=descs["bias"], padding_l=1, algorithm="winograd")
    weights, image = pack(arrays["weights"], "oihw"), pack(arrays["src"], primitive.src_desc)
    transform = Reorder(weights.desc, primitive.weights_desc)
    bias = pack(arrays["bias"], primitive.bias_desc)
    found = primitive(src=image, weights=transform(src=weights), bias=bias).unpack()
    assert (primitive.impl, transform.impl) == ("winograd:4x4_3x3", "winograd:weights")
    assert_close(found, direct_convolution(problem, **arrays))


@pytest.mark.usefixtures("primitives_on_onednn")
def test_the_reference_computes_unsupported_sizes() -> None:
    image, weights = MemoryDesc((1, 3, 8, 8), "f32", "any"), MemoryDesc((5, 3, 3, 3), "f32", "any")
    assert Convolution(image, weights, algorithm="winograd").engine.name == "reference"


# Unsupported operations


def test_training_and_other_runtimes_raise_the_error_of_the_library() -> None:
    engine = make_engine()
    training = replace(convolution(), prop_kind="forward_training")
    for problem, what in ((training, "forward_training"), (convolution(), "forward_inference")):
        with pytest.raises(Unimplemented) as caught:
            create_with_companions(engine, problem)
        head = f"{engine.library.name} has no implementation of convolution {what}, src f32::any"
        assert str(caught.value).startswith(head)
        engine.thread_team = None


def test_only_gnu_openmp_has_a_thread_team() -> None:
    library: Any = make_engine().library
    others: list[Any] = [
        SimpleNamespace(runtime="sycl", cdll=library.cdll),
        SimpleNamespace(runtime="omp", cdll=object()),
    ]
    assert [find_thread_team(one) is not None for one in (library, *others)] == [True, False, False]


@pytest.mark.parametrize(("name", "is_fast"), [("x86-64-v2", False), ("x86-64-v3", True), ("aarch64", True)])
def test_it_needs_fused_multiply_add_instructions(name: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlay_engine, "host_target", lambda: TARGETS[name])
    assert InlayEngine(make_engine()).supports(convolution()) == is_fast


def test_the_library_computes_reorders_between_layouts() -> None:
    weights = pack(random_arrays(convolution())["weights"], "abcd")
    descs = {"src": weights.desc, "dst": MemoryDesc(weights.desc.dims, "f32", "cdba")}
    _, move = create_with_companions(make_engine(), Operation("reorder", "forward_inference", descs))
    assert move.is_batched
    found = Memory(move.descs["dst"])
    move.bind({"src": weights, "dst": found})()
    assert np.array_equal(found.buffer, reorder(weights, "cdba").buffer)
