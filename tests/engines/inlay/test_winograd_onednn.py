"""Winograd convolution on oneDNN's threads: what the reference computes, in every format, and what is declined."""

import threading
from collections.abc import Callable, Mapping
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
from inlay.primitives.attributes import Binary, Eltwise, PrimitiveAttributes, Sum
from inlay.primitives.engine import Implementation, Operation, Parameter, create_beside
from inlay.reordering.attributes import Scales
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
RELU = PrimitiveAttributes(post_ops=(Eltwise("relu", 0.0, 0.0),))
USER = PrimitiveAttributes(scratchpad_mode="user")
CLOSE = 2e-5
"""Of the largest value: single layers of few channels are off by about 1e-6, in the worst element."""


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
    **told: Parameter,
) -> Operation:
    """A convolution by Winograd's algorithm; of src and dst the descriptors, or formats."""
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
    parameters = {"algorithm": "winograd", **windows, **told}
    return Operation("convolution", "forward_inference", descs, parameters, attributes or PrimitiveAttributes())


def drawn(operation: Operation) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    names = [name for name in ("src", "weights", "bias") if name in operation.descs]
    return {name: rng.standard_normal(operation.descs[name].dims, np.float32) for name in names}


def expected(operation: Operation, arrays: Arrays) -> npt.NDArray[np.float32]:
    """What the reference engine computes, by sums of products."""
    plain = {name: MemoryDesc(desc.dims, "f32") for name, desc in operation.descs.items()}
    told = {**operation.parameters, "algorithm": "direct"}
    implementation = REFERENCE.create(replace(operation, descs=plain, parameters=told))
    memories = {name: pack(array, plain[name]) for name, array in arrays.items()} | {"dst": Memory(plain["dst"])}
    implementation.bind(memories)()
    found: npt.NDArray[np.float32] = memories["dst"].unpack()
    return found


def laid_out(engine: InlayEngine, weights: npt.NDArray[np.float32], desc: MemoryDesc, tag: str = "abcd") -> Memory:
    """Weights as the convolution takes them."""
    plain, found = pack(weights, tag), Memory(desc)
    move = engine.create(Operation("reorder", "forward_inference", {"src": plain.desc, "dst": desc}))
    move.bind({"src": plain, "dst": found})()
    return found


def memories_of(engine: InlayEngine, implementation: Implementation, arrays: Arrays) -> dict[str, Memory]:
    descs = implementation.descs
    found = {name: pack(arrays[name], descs[name]) for name in arrays if name != "weights"}
    found["weights"] = laid_out(engine, arrays["weights"], descs["weights"])
    return found | {name: Memory(descs[name]) for name in ("dst", "scratchpad") if name in descs}


def assert_close(found: npt.NDArray[np.float32], wanted: npt.NDArray[np.float32]) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= CLOSE * np.abs(wanted).max()


def assert_computes(engine: InlayEngine, operation: Operation) -> Implementation:
    implementation = engine.create(operation)
    assert implementation.impl == "winograd:4x4_3x3"
    assert implementation.operation is operation
    arrays = drawn(operation)
    memories = memories_of(engine, implementation, arrays)
    implementation.bind(memories)()
    assert_close(memories["dst"].unpack(), expected(operation, arrays))
    return implementation


# Formats and sizes


@pytest.mark.parametrize("dst", ["any", "nhwc", BLOCKED])
@pytest.mark.parametrize("src", ["any", "nhwc", BLOCKED])
def test_it_computes_what_the_reference_does_in_every_format(engine: InlayEngine, src: str, dst: str) -> None:
    descs = assert_computes(engine, convolution(src, dst)).descs
    assert descs["src"] == MemoryDesc((2, 32, 13, 10), "f32", "nhwc" if src == "any" else src)
    assert descs["dst"] == MemoryDesc((2, 48, 13, 10), "f32", "nhwc" if dst == "any" else dst)
    assert descs["weights"].kind == "opaque"
    assert "scratchpad" not in descs


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("attributes", [None, RELU])
def test_a_bias_and_a_relu_are_as_they_are_asked_for(
    engine: InlayEngine, has_bias: bool, attributes: PrimitiveAttributes | None
) -> None:
    descs = assert_computes(engine, convolution(has_bias=has_bias, attributes=attributes)).descs
    assert ("bias" in descs) == has_bias


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((2, 2), (2, 2)), ((0, 1), (2, 0)), ((1, 0), (1, 2))])
@pytest.mark.parametrize("image", [(1, 16, 3, 3), (3, 16, 4, 4), (1, 16, 5, 22)])
def test_images_of_any_size_with_any_padding(
    engine: InlayEngine, image: tuple[int, int, int, int], padding: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    assert_computes(engine, convolution(image=image, channels=16, padding=padding))


@pytest.mark.parametrize("channels", [16, 64, 128, 176])
def test_channels_need_not_fill_what_is_computed_at_once(engine: InlayEngine, channels: int) -> None:
    assert_computes(engine, convolution(image=(1, 48, 9, 9), channels=channels))
    assert_computes(engine, convolution(image=(1, channels, 9, 9), channels=48))


@pytest.mark.parametrize("tag", ["nhwc", BLOCKED])
def test_boxes_of_larger_tensors_are_read_and_written_where_they_lie(engine: InlayEngine, tag: str) -> None:
    rng = np.random.default_rng(5)
    src, dst = (pack(rng.standard_normal((2, 64, 11, 12), np.float32), tag) for _ in range(2))
    inner = src.desc.submemory((2, 32, 9, 8), (0, 16, 1, 3))
    outer = dst.desc.submemory((2, 48, 9, 8), (0, 16, 2, 0))
    operation = convolution(inner, outer, image=(2, 32, 9, 8))
    implementation = engine.create(operation)
    assert (implementation.descs["src"], implementation.descs["dst"]) == (inner, outer)
    arrays = {**drawn(operation), "src": Memory(inner, src.buffer).unpack()}
    before, wanted = dst.unpack(), expected(operation, arrays)
    weights = laid_out(engine, arrays["weights"], implementation.descs["weights"])
    places = {"src": Memory(inner, src.buffer), "dst": Memory(outer, dst.buffer)}
    bias = pack(arrays["bias"], implementation.descs["bias"])
    implementation.bind({**places, "weights": weights, "bias": bias})()
    after = dst.unpack()
    assert_close(after[:, 16:, 2:, :8], wanted)
    before[:, 16:, 2:, :8] = after[:, 16:, 2:, :8]
    assert np.array_equal(after, before)


# Calls


def test_it_computes_on_what_its_memories_hold_then(engine: InlayEngine) -> None:
    operation = convolution(has_bias=False)
    implementation = engine.create(operation)
    arrays = drawn(operation)
    memories = memories_of(engine, implementation, arrays)
    run = implementation.bind(memories)
    run()
    first = memories["dst"].unpack()
    memories["src"].buffer.view(np.float32)[:] *= -2
    for _ in range(2):
        memories["dst"].buffer[:] = 0
        run()
        np.testing.assert_allclose(memories["dst"].unpack(), -2 * first, rtol=1e-5, atol=1e-5)


def test_a_scratchpad_is_given_where_that_is_asked_for(engine: InlayEngine) -> None:
    operation = convolution(attributes=USER)
    assert assert_computes(engine, operation).descs["scratchpad"].data_type == MemoryDesc((1,), "u8").data_type
    arrays = drawn(operation)
    implementation = engine.create(operation)
    found = []
    for filling in (0, 255):  # 255 in all bytes is a NaN
        memories = memories_of(engine, implementation, arrays)
        memories["scratchpad"].buffer[:] = filling
        implementation.bind(memories)()
        found.append(memories["dst"].unpack())
    assert np.array_equal(found[0], found[1])


def test_threads_may_call_the_same_at_once(engine: InlayEngine) -> None:
    operation = convolution(image=(1, 64, 28, 28), channels=64)
    implementation = engine.create(operation)
    arrays = drawn(operation)
    wanted, found = expected(operation, arrays), [memories_of(engine, implementation, arrays) for _ in range(4)]
    runs = [implementation.bind(memories) for memories in found]

    def often(run: Callable[[], None]) -> None:
        for _ in range(10):
            run()

    threads = [threading.Thread(target=often, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for memories in found:
        assert_close(memories["dst"].unpack(), wanted)


@pytest.mark.parametrize("threads", [1, 2, None])
def test_it_may_run_on_fewer_threads(engine: InlayEngine, threads: int | None) -> None:
    set_num_threads(threads)
    try:
        assert_computes(engine, convolution(image=(1, 64, 28, 28), channels=64))
    finally:
        set_num_threads(None)


def test_it_stands_between_calls_of_the_library(engine: InlayEngine) -> None:
    """Direct, by Winograd's algorithm, and direct again, each on what the one before has written."""
    host = make_engine()
    operation = convolution(image=(1, 32, 13, 10), channels=32, has_bias=False)
    arrays = drawn(operation)
    told = {**operation.parameters, "algorithm": "direct"}
    image = arrays["src"]
    steps = [replace(operation, parameters=told), operation, replace(operation, parameters=told)]
    memory, runs = pack(image, "nhwc"), []
    for step in steps:
        descs = {**step.descs, "src": memory.desc, "dst": memory.desc}
        _, implementation = create_beside(host, replace(step, descs=descs))
        assert implementation.is_batched == (step is not operation)
        desc = implementation.descs["weights"]
        weights = laid_out(engine, arrays["weights"], desc) if desc.kind == "opaque" else pack(arrays["weights"], desc)
        target = Memory(memory.desc)
        runs.append(implementation.bind({"src": memory, "weights": weights, "dst": target}))
        memory = target
        image = expected(operation, {**arrays, "src": image})
    for _ in range(3):
        for run in runs:
            run()
        assert_close(memory.unpack(), image)


# Weights


@pytest.mark.parametrize("tag", ["abcd", "cdba", "acdb", "Abcd16a"])
def test_weights_are_laid_out_from_any_layout(engine: InlayEngine, tag: str) -> None:
    operation = convolution()
    desc = engine.create(operation).descs["weights"]
    weights = drawn(operation)["weights"]
    plain = laid_out(engine, weights, desc)
    assert np.array_equal(laid_out(engine, weights, desc, tag).buffer, plain.buffer)
    move = Operation("reorder", "forward_inference", {"src": pack(weights, tag).desc, "dst": desc})
    assert engine.create(move).impl == "winograd:weights"


def test_there_is_no_way_back(engine: InlayEngine) -> None:
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
        create_beside(host, Operation("reorder", "forward_inference", {"src": desc, "dst": plain}))
    assert str(caught.value) == (
        f"the opaque format {name} of dims {desc.dims} was not created by this {host.library.name}: only the engine "
        "that created it can read it, in the same process"
    )
    double = MemoryDesc(desc.dims, "f64")
    with pytest.raises(Unimplemented) as caught:
        engine.create(Operation("reorder", "forward_inference", {"src": double, "dst": desc}))
    assert str(caught.value) == (
        f"weights of a Winograd convolution are made of f32 in a layout: no reorder from {double!r}"
    )


# Primitives


def test_it_is_a_primitive_like_any_other(engine: InlayEngine) -> None:
    operation = convolution()
    descs, arrays = operation.descs, drawn(operation)
    set_engine(make_engine())
    try:
        primitive = Convolution(descs["src"], descs["weights"], bias=descs["bias"], padding_l=1, algorithm="winograd")
        weights = pack(arrays["weights"], "oihw")
        lay_out = Reorder(weights.desc, primitive.weights_desc)
        image = pack(arrays["src"], primitive.src_desc)
        bias = pack(arrays["bias"], primitive.bias_desc)
        found = primitive(src=image, weights=lay_out(src=weights), bias=bias).unpack()
    finally:
        set_engine(None)
    assert (primitive.impl, lay_out.impl) == ("winograd:4x4_3x3", "winograd:weights")
    assert_close(found, expected(operation, arrays))


def test_what_it_is_not_for_the_reference_computes(engine: InlayEngine) -> None:
    set_engine(make_engine())
    try:
        image, weights = MemoryDesc((1, 3, 8, 8), "f32", "any"), MemoryDesc((5, 3, 3, 3), "f32", "any")
        assert Convolution(image, weights, algorithm="winograd").engine.name == "reference"
    finally:
        set_engine(None)


# What is declined


def text_of(engine: InlayEngine, operation: Operation) -> str:
    with pytest.raises(Unimplemented) as caught:
        engine.create(operation)
    return str(caught.value)


def described(operation: Operation, **descs: MemoryDesc) -> Operation:
    return replace(operation, descs={**operation.descs, **descs})


SIDE = MemoryDesc((2, 48, 13, 10), "f32", "nchw")
GROUPS = described(convolution(channels=32), weights=MemoryDesc((2, 16, 16, 3, 3), "f32", "any"))
SCALED = PrimitiveAttributes(scales={"weights": Scales(mask=1)})
DECLINED: Mapping[str, tuple[Operation, str]] = {
    "pointwise": (
        convolution(kernel=(1, 1), padding=((0, 0), (0, 0))),
        "weights of dims (48, 32, 1, 1): give one group of 3x3",
    ),
    "groups": (GROUPS, "weights of dims (2, 16, 16, 3, 3): give one group of 3x3"),
    "strides": (
        described(convolution(strides=(2, 2)), dst=MemoryDesc((2, 48, 7, 5), "f32", "any")),
        "strides (2, 2): they are (1, 1)",
    ),
    "dilations": (
        described(convolution(dilations=(1, 1)), dst=MemoryDesc((2, 48, 11, 8), "f32", "any")),
        "dilations (1, 1): they are (0, 0)",
    ),
    "weights": (
        described(convolution(), weights=MemoryDesc((48, 32, 3, 3), "f32", "abcd")),
        "weights f32::blocked:abcd::f0: leave them any",
    ),
    "sum": (
        convolution("nhwc", "nhwc", attributes=PrimitiveAttributes(post_ops=(Sum(),))),
        f"post-operations {(Sum(),)}: it ends with a ReLU or with nothing",
    ),
    "leaky": (
        convolution(attributes=PrimitiveAttributes(post_ops=(Eltwise("relu", 0.1, 0.0),))),
        f"post-operations {(Eltwise('relu', 0.1, 0.0),)}: it ends with a ReLU or with nothing",
    ),
    "binary": (
        convolution("nhwc", "nhwc", attributes=PrimitiveAttributes(post_ops=(Binary("add", SIDE),))),
        f"post-operations {(Binary('add', SIDE),)}: it ends with a ReLU or with nothing",
    ),
    "modes": (
        convolution(attributes=PrimitiveAttributes(fpmath_mode="bf16")),
        "attributes but a scratchpad mode and a ReLU",
    ),
}


@pytest.mark.parametrize("case", DECLINED)
def test_what_it_is_not_for_is_declined(engine: InlayEngine, case: str) -> None:
    operation, text = DECLINED[case]
    assert text_of(engine, operation) == f"Winograd convolution has no {text}"


def test_channels_fill_registers(engine: InlayEngine) -> None:
    lanes = host_target().vector_bytes // 4
    text = f"Winograd convolution has no 32 and 17 channels: both are multiples of {lanes}, and no dim is 0"
    assert text_of(engine, convolution(channels=17)) == text


@pytest.mark.parametrize("name", ["src", "dst"])
@pytest.mark.parametrize("tag", ["nchw", f"aBcd{host_target().vector_bytes // 2}b"])
def test_images_are_channels_last_or_in_registers(engine: InlayEngine, name: str, tag: str) -> None:
    formats = {"src": "nhwc", "dst": "nhwc", name: tag}
    operation = convolution(**formats)  # type: ignore[arg-type]
    lanes = host_target().vector_bytes // 4
    assert text_of(engine, operation) == (
        f"Winograd convolution has no {name} {operation.descs[name]}: give nhwc, or blocks of {lanes} channels, "
        "without padding"
    )


def test_for_training_and_without_gnu_openmp_the_library_is_quoted() -> None:
    engine = make_engine()
    head = f"{engine.library.name} has no implementation of convolution"

    def text(operation: Operation) -> str:
        with pytest.raises(Unimplemented) as caught:
            create_beside(engine, operation)
        return str(caught.value)

    training = replace(convolution(), prop_kind="forward_training")
    assert text(training).startswith(f"{head} forward_training, src f32::any")
    engine.thread_team = None
    assert text(convolution()).startswith(f"{head} forward_inference, src f32::any")


def test_only_gnu_openmp_is_a_team() -> None:
    library: Any = make_engine().library
    assert find_thread_team(library) is not None
    for other in (SimpleNamespace(runtime="sycl", cdll=library.cdll), SimpleNamespace(runtime="omp", cdll=object())):
        without: Any = other
        assert find_thread_team(without) is None


@pytest.mark.parametrize(("name", "is_fast"), [("x86-64-v2", False), ("x86-64-v3", True), ("aarch64", True)])
def test_only_processors_that_multiply_and_add_at_once_have_it(
    name: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inlay_engine, "host_target", lambda: TARGETS[name])
    assert InlayEngine(make_engine()).supports(convolution()) == is_fast


def test_a_reorder_between_layouts_stays_the_librarys() -> None:
    weights = pack(drawn(convolution())["weights"], "abcd")
    descs = {"src": weights.desc, "dst": MemoryDesc(weights.desc.dims, "f32", "cdba")}
    _, move = create_beside(make_engine(), Operation("reorder", "forward_inference", descs))
    assert move.is_batched
    found = Memory(move.descs["dst"])
    move.bind({"src": weights, "dst": found})()
    assert np.array_equal(found.buffer, reorder(weights, "cdba").buffer)
