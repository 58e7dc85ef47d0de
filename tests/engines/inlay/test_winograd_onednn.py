"""Winograd convolutions on the threads of oneDNN: formats, calls, weights, and primitives, against the reference."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.descriptor import MemoryDesc
from inlay.engines import reference
from inlay.engines.inlay import InlayEngine
from inlay.engines.inlay import engine as inlay_engine
from inlay.engines.onednn import make_engine
from inlay.engines.onednn.execution import find_thread_team
from inlay.errors import Unimplemented
from inlay.memory import Memory, pack, reorder
from inlay.primitives import Convolution, Reorder, set_engine
from inlay.primitives.attributes import EltwisePostOp, PrimitiveAttributes
from inlay.primitives.engine import Implementation, Operation, Parameter, create_with_companions
from inlay.reordering.target import TARGETS, host_target
from inlay.reordering.threads import set_num_threads
from tests.oracles import onednn as oracle

if oracle.why_unavailable() is not None:
    pytest.skip(str(oracle.why_unavailable()), allow_module_level=True)
if make_engine().thread_team is None:
    pytest.skip("this oneDNN does not run on GNU OpenMP", allow_module_level=True)

Arrays = Mapping[str, npt.NDArray[np.float32]]
REFERENCE = reference.make_engine()
BLOCKED = f"aBcd{host_target().vector_bytes // 4}b"
RELU = PrimitiveAttributes(post_ops=(EltwisePostOp("relu", 0.0, 0.0),))
USER = PrimitiveAttributes(scratchpad_mode="user")
CLOSE = 2e-5
"""Largest difference, as a share of the largest value; single layers of few channels differ by about 1e-6."""


@pytest.fixture(scope="module")
def engine() -> InlayEngine:
    return InlayEngine(make_engine())


def convolution(
    src: MemoryDesc | str = "any",
    dst: MemoryDesc | str = "any",
    *,
    image: tuple[int, int, int, int] = (2, 32, 13, 10),
    channels: int = 48,
    kernel: tuple[int, int] = (3, 3),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (1, 1)),
    has_bias: bool = True,
    attributes: PrimitiveAttributes | None = None,
    **changes: Parameter,
) -> Operation:
    """Return a convolution with algorithm winograd; src and dst are descriptors or formats."""
    before, after = padding
    spatial = [n + p + q - k + 1 for n, p, q, k in zip(image[2:], before, after, kernel, strict=True)]
    descs = {
        "src": MemoryDesc(image, "f32", src) if isinstance(src, str) else src,
        "weights": MemoryDesc((channels, image[1], *kernel), "f32", "any"),
        "dst": MemoryDesc((image[0], channels, *spatial), "f32", dst) if isinstance(dst, str) else dst,
    }
    if has_bias:
        descs["bias"] = MemoryDesc((channels,), "f32")
    windows: dict[str, Parameter] = {"strides": (1, 1), "dilations": (0, 0), "padding_l": before, "padding_r": after}
    parameters = {"algorithm": "winograd", **windows, **changes}
    return Operation("convolution", "forward_inference", descs, parameters, attributes or PrimitiveAttributes())


def random_arrays(operation: Operation) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    names = [name for name in ("src", "weights", "bias") if name in operation.descs]
    return {name: rng.standard_normal(operation.descs[name].dims, np.float32) for name in names}


def expected(operation: Operation, arrays: Arrays) -> npt.NDArray[np.float32]:
    """Return the result of a direct convolution by the reference engine."""
    plain = {name: MemoryDesc(desc.dims, "f32") for name, desc in operation.descs.items()}
    parameters = {**operation.parameters, "algorithm": "direct"}
    implementation = REFERENCE.create(replace(operation, descs=plain, parameters=parameters))
    memories = {name: pack(array, plain[name]) for name, array in arrays.items()} | {"dst": Memory(plain["dst"])}
    implementation.bind(memories)()
    found: npt.NDArray[np.float32] = memories["dst"].unpack()
    return found


def transform_weights(
    engine: InlayEngine, weights: npt.NDArray[np.float32], desc: MemoryDesc, tag: str = "abcd"
) -> Memory:
    """Return the weights in the format of the convolution."""
    plain, found = pack(weights, tag), Memory(desc)
    move = engine.create(Operation("reorder", "forward_inference", {"src": plain.desc, "dst": desc}))
    move.bind({"src": plain, "dst": found})()
    return found


def memories_of(engine: InlayEngine, implementation: Implementation, arrays: Arrays) -> dict[str, Memory]:
    descs = implementation.descs
    found = {name: pack(arrays[name], descs[name]) for name in arrays if name != "weights"}
    found["weights"] = transform_weights(engine, arrays["weights"], descs["weights"])
    return found | {name: Memory(descs[name]) for name in ("dst", "scratchpad") if name in descs}


def assert_close(found: npt.NDArray[np.float32], wanted: npt.NDArray[np.float32]) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= CLOSE * np.abs(wanted).max()


def assert_computes(engine: InlayEngine, operation: Operation) -> Implementation:
    implementation = engine.create(operation)
    assert implementation.impl == "winograd:4x4_3x3"
    assert implementation.operation is operation
    arrays = random_arrays(operation)
    memories = memories_of(engine, implementation, arrays)
    implementation.bind(memories)()
    assert_close(memories["dst"].unpack(), expected(operation, arrays))
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
    inner = src.desc.submemory((2, 32, 9, 8), (0, 16, 1, 3))
    outer = dst.desc.submemory((2, 48, 9, 8), (0, 16, 2, 0))
    operation = convolution(inner, outer, image=(2, 32, 9, 8))
    implementation = engine.create(operation)
    assert (implementation.descs["src"], implementation.descs["dst"]) == (inner, outer)
    arrays = {**random_arrays(operation), "src": Memory(inner, src.buffer).unpack()}
    before, wanted = dst.unpack(), expected(operation, arrays)
    weights = transform_weights(engine, arrays["weights"], implementation.descs["weights"])
    places = {"src": Memory(inner, src.buffer), "dst": Memory(outer, dst.buffer)}
    bias = pack(arrays["bias"], implementation.descs["bias"])
    implementation.bind({**places, "weights": weights, "bias": bias})()
    after = dst.unpack()
    assert_close(after[:, 16:, 2:, :8], wanted)
    before[:, 16:, 2:, :8] = after[:, 16:, 2:, :8]
    assert np.array_equal(after, before)


# Calls


def test_each_call_reads_the_current_content_of_its_memories(engine: InlayEngine) -> None:
    operation = convolution(has_bias=False)
    implementation = engine.create(operation)
    arrays = random_arrays(operation)
    memories = memories_of(engine, implementation, arrays)
    run = implementation.bind(memories)
    run()
    first = memories["dst"].unpack()
    memories["src"].buffer.view(np.float32)[:] *= -2
    for _ in range(2):
        memories["dst"].buffer[:] = 0
        run()
        np.testing.assert_allclose(memories["dst"].unpack(), -2 * first, rtol=1e-5, atol=1e-5)


def test_the_caller_may_own_the_scratchpad(engine: InlayEngine) -> None:
    operation = convolution(attributes=USER)
    assert assert_computes(engine, operation).descs["scratchpad"].data_type == MemoryDesc((1,), "u8").data_type
    arrays = random_arrays(operation)
    implementation = engine.create(operation)
    found = []
    for filling in (0, 255):  # 255 in all bytes is a NaN
        memories = memories_of(engine, implementation, arrays)
        memories["scratchpad"].buffer[:] = filling
        implementation.bind(memories)()
        found.append(memories["dst"].unpack())
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("threads", [1, 2, None])
def test_the_number_of_threads_may_be_limited(engine: InlayEngine, threads: int | None) -> None:
    set_num_threads(threads)
    try:
        assert_computes(engine, convolution(image=(1, 64, 28, 28), channels=64))
    finally:
        set_num_threads(None)


def test_it_runs_between_calls_of_the_library(engine: InlayEngine) -> None:
    """Run a direct, a Winograd and a direct convolution, each on the result of the previous one."""
    host = make_engine()
    operation = convolution(image=(1, 32, 13, 10), channels=32, has_bias=False)
    arrays = random_arrays(operation)
    parameters = {**operation.parameters, "algorithm": "direct"}
    image = arrays["src"]
    steps = [replace(operation, parameters=parameters), operation, replace(operation, parameters=parameters)]
    memory, runs = pack(image, "nhwc"), []
    for step in steps:
        descs = {**step.descs, "src": memory.desc, "dst": memory.desc}
        _, implementation = create_with_companions(host, replace(step, descs=descs))
        assert implementation.is_batched == (step is not operation)
        desc = implementation.descs["weights"]
        weights = (
            transform_weights(engine, arrays["weights"], desc)
            if desc.kind == "opaque"
            else pack(arrays["weights"], desc)
        )
        target = Memory(memory.desc)
        runs.append(implementation.bind({"src": memory, "weights": weights, "dst": target}))
        memory = target
        image = expected(operation, {**arrays, "src": image})
    for _ in range(3):
        for run in runs:
            run()
        assert_close(memory.unpack(), image)


# Weights


def test_transformed_weights_cannot_be_reordered_back(engine: InlayEngine) -> None:
    desc = engine.create(convolution()).descs["weights"]
    plain = MemoryDesc(desc.dims, "f32")
    with pytest.raises(Unimplemented) as caught:
        engine.create(Operation("reorder", "forward_inference", {"src": desc, "dst": plain}))
    name = str(desc).split(":")[2]
    assert str(caught.value) == (
        "inlay has no reorder forward_inference such as this: it computes reorders between layouts, and Winograd "
        "convolutions on threads of GNU OpenMP"
    )
    host = make_engine()
    with pytest.raises(Unimplemented) as caught:
        create_with_companions(host, Operation("reorder", "forward_inference", {"src": desc, "dst": plain}))
    assert str(caught.value) == (
        f"the opaque format {name} of dims {desc.dims} was not created by this {host.library.name}: only the engine "
        "that created it can read it, in the same process"
    )


# Primitives


def test_a_primitive_selects_it_by_its_algorithm(engine: InlayEngine) -> None:
    operation = convolution()
    descs, arrays = operation.descs, random_arrays(operation)
    set_engine(make_engine())
    try:
        primitive = Convolution(descs["src"], descs["weights"], bias=descs["bias"], padding_l=1, algorithm="winograd")
        weights = pack(arrays["weights"], "oihw")
        transform = Reorder(weights.desc, primitive.weights_desc)
        image = pack(arrays["src"], primitive.src_desc)
        bias = pack(arrays["bias"], primitive.bias_desc)
        found = primitive(src=image, weights=transform(src=weights), bias=bias).unpack()
    finally:
        set_engine(None)
    assert (primitive.impl, transform.impl) == ("winograd:4x4_3x3", "winograd:weights")
    assert_close(found, expected(operation, arrays))


def test_the_reference_computes_unsupported_sizes(engine: InlayEngine) -> None:
    set_engine(make_engine())
    try:
        image, weights = MemoryDesc((1, 3, 8, 8), "f32", "any"), MemoryDesc((5, 3, 3, 3), "f32", "any")
        assert Convolution(image, weights, algorithm="winograd").engine.name == "reference"
    finally:
        set_engine(None)


# Unsupported operations


def test_training_and_other_runtimes_raise_the_error_of_the_library() -> None:
    engine = make_engine()
    head = f"{engine.library.name} has no implementation of convolution"

    def text(operation: Operation) -> str:
        with pytest.raises(Unimplemented) as caught:
            create_with_companions(engine, operation)
        return str(caught.value)

    training = replace(convolution(), prop_kind="forward_training")
    assert text(training).startswith(f"{head} forward_training, src f32::any")
    engine.thread_team = None
    assert text(convolution()).startswith(f"{head} forward_inference, src f32::any")


def test_only_gnu_openmp_has_a_thread_team() -> None:
    library: Any = make_engine().library
    assert find_thread_team(library) is not None
    for other in (SimpleNamespace(runtime="sycl", cdll=library.cdll), SimpleNamespace(runtime="omp", cdll=object())):
        without: Any = other
        assert find_thread_team(without) is None


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
