"""The oneDNN engine: formats and results, compared with NumPy and the reference engine."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import S8S8, SCALE_ADJUST
from inlay.engines import reference
from inlay.engines.onednn import BoundPrimitive, OnednnEngine, make_engine
from inlay.errors import InlayError, Unimplemented
from inlay.memory import Memory, check_padding, pack, reorder
from inlay.primitives.attributes import (
    BinaryPostOp,
    DepthwiseConvolution,
    EltwisePostOp,
    PostOp,
    PReLUPostOp,
    PrimitiveAttributes,
    SumPostOp,
)
from inlay.primitives.engine import Implementation, Operation, Parameter
from inlay.primitives.rules import KINDS
from inlay.reordering.attributes import Scales, ZeroPoints
from inlay.reordering.threads import set_num_threads
from tests.oracles import onednn as oracle
from tests.support.onednn_cases import FORWARD, forward
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

Arrays = Mapping[str, npt.NDArray[Any]]
REFERENCE = reference.make_engine()


def any_of(*dims: int, data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, "any")


def values(name: str, desc: MemoryDesc) -> npt.NDArray[Any]:
    """Distinct small numbers, the same for every engine."""
    rng = np.random.default_rng(list(name.encode()))
    assert desc.data_type is not None
    if desc.data_type.kind != "float":
        return rng.integers(0, 5, desc.dims).astype(desc.data_type.dtype)
    spread = rng.permutation(int(np.prod(desc.dims))).reshape(desc.dims) + 1.0
    # Statistics and scales are positive.
    array = spread / spread.size if name in ("variance", "scale", "attention") else 2 * spread / spread.size - 1
    return array.astype(desc.data_type.dtype)


def filled(implementation: Implementation, given: Arrays | None = None, suffix: str = "") -> dict[str, Memory]:
    """All memories of one execution: what is read drawn by its name and a suffix, or as given."""
    known = given or {}
    return {
        name: Memory(desc)
        if name in ("scratchpad", "workspace")
        else pack(known[name] if name in known else values(name + suffix, desc), desc)
        for name, desc in implementation.descs.items()
    }


def execute(implementation: Implementation, given: Arrays | None = None) -> dict[str, Memory]:
    memories = filled(implementation, given)
    implementation.bind(memories)()
    return memories


def written(implementation: Implementation, memories: Mapping[str, Memory]) -> dict[str, npt.NDArray[Any]]:
    names = [name for name in implementation.operation.signature.writes if name in memories and name != "workspace"]
    return {name: memories[name].unpack().astype(np.float64) for name in names}


def assert_same(engine: OnednnEngine, operation: Operation, *, tolerance: float = 1e-4) -> Implementation:
    """oneDNN and the reference write the same numbers, and padding stays zero."""
    results = []
    for one in (engine, REFERENCE):
        implementation = one.create(operation)
        memories = execute(implementation)
        results.append(written(implementation, memories))
        for name in results[-1]:
            assert check_padding(memories[name]).is_clean, name
    for name, array in results[0].items():
        np.testing.assert_allclose(array, results[1][name], rtol=tolerance, atol=tolerance, err_msg=name)
    return engine.create(operation)


def lacking(engine: OnednnEngine, prop_kind: str) -> set[str]:
    """Kinds that a version has not, or not right."""
    kinds = {"augru", "lbr_augru"} if prop_kind == "forward_training" else set()
    return kinds if engine.library.version >= (3, 3) else kinds | {"group_normalization"}


def eltwise(algorithm: str, src: MemoryDesc, dst: MemoryDesc) -> Operation:
    parameters: dict[str, Parameter] = {"algorithm": algorithm, "alpha": 0.0, "beta": 0.0}
    return Operation("eltwise", "forward_inference", {"src": src, "dst": dst}, parameters)


# Every primitive


@pytest.mark.parametrize("prop_kind", FORWARD)
@pytest.mark.parametrize("kind", KINDS)
def test_forward_is_what_the_reference_computes(engine: OnednnEngine, kind: str, prop_kind: Any) -> None:
    operation = forward(kind, prop_kind)
    if kind in lacking(engine, prop_kind):
        with pytest.raises(Unimplemented):
            engine.create(operation)
        return
    implementation = assert_same(engine, operation)
    assert implementation.impl
    assert set(operation.descs) <= set(implementation.descs)
    assert "any" not in {desc.kind for desc in implementation.descs.values()}


def test_a_bound_primitive_reads_the_current_content_of_its_memories(engine: OnednnEngine) -> None:
    src = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    implementation = engine.create(eltwise("relu", src, any_of(*src.dims)))
    assert implementation.descs == {"src": src, "dst": src}
    memories = {"src": pack(values("src", src), src), "dst": Memory(src)}
    run = implementation.bind(memories)
    for sign in (1, -1, 1):
        memories["src"].buffer.view(np.float32)[:] *= sign
        run()
        assert np.array_equal(memories["dst"].unpack(), np.maximum(memories["src"].unpack(), 0))


def test_a_new_binding_does_not_write_earlier_memories(engine: OnednnEngine) -> None:
    """The library's memory objects are used again, with other addresses."""
    implementation = engine.create(forward("softmax"))
    first, second = (filled(implementation, suffix=suffix) for suffix in "12")
    implementation.bind(first)()
    kept = first["dst"].unpack()
    implementation.bind(second)()
    assert np.array_equal(first["dst"].unpack(), kept)
    assert not np.array_equal(second["dst"].unpack(), kept)


# Formats


def test_submemories_are_read_and_written_in_place(engine: OnednnEngine) -> None:
    whole = pack(values("src", MemoryDesc((2, 24, 8, 7), "f32")), "nChw8c")
    for tag in ("nChw8c", "nchw", "nhwc"):
        there = reorder(whole, tag)
        part = there.desc.submemory((2, 16, 8, 7), (0, 8, 0, 0))
        source, target = Memory(part, there.buffer), Memory(part)
        implementation = engine.create(eltwise("square", part, part))
        assert implementation.descs == {"src": part, "dst": part}
        implementation.bind({"src": source, "dst": target})()
        np.testing.assert_allclose(target.unpack(), whole.unpack()[:, 8:] ** 2, rtol=1e-6)
        assert (target.buffer.view(np.float32)[: part.offset0] == 0).all()


def test_descriptors_with_formats_are_returned_unchanged(engine: OnednnEngine) -> None:
    descs = {name: MemoryDesc(desc.dims, "f32") for name, desc in forward("convolution").descs.items()}
    implementation = assert_same(engine, replace(forward("convolution"), descs=descs))
    for name, desc in descs.items():
        assert implementation.descs[name] is desc


def test_int8_weights_get_extras(engine: OnednnEngine) -> None:
    types = {"src": "s8", "weights": "s8", "bias": "f32", "dst": "f32"}
    descs = {name: any_of(*d.dims, data_type=types[name]) for name, d in forward("convolution").descs.items()}
    operation = replace(forward("convolution", "forward_inference"), descs=descs)
    implementation = engine.create(operation)
    weights = implementation.descs["weights"]
    extras = weights.extras
    assert extras.flags & ~(S8S8 | SCALE_ADJUST) == 0
    assert extras.compensation_mask == (extras.flags & S8S8 and 1)
    # The weights are packed by Inlay's own reorder, their sums behind them; without VNNI, at half of their size.
    numbers = values("weights", weights)
    stored = np.rint(numbers * extras.scale_adjust) / extras.scale_adjust
    found = written(implementation, execute(implementation, {"weights": numbers}))["dst"]
    expected = written(REFERENCE.create(operation), execute(REFERENCE.create(operation), {"weights": stored}))["dst"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("data_type", ["bf16", "f16"])
def test_halves_are_computed_where_the_processor_can(engine: OnednnEngine, data_type: str) -> None:
    for kind in ("convolution", "inner_product", "matmul", "eltwise", "softmax", "pooling"):
        descs = {
            name: MemoryDesc(d.dims, data_type, "any" if d.kind == "any" else d.tag)
            for name, d in forward(kind).descs.items()
        }
        operation = replace(forward(kind, "forward_inference"), descs=descs)
        try:
            engine.create(operation)
        except Unimplemented:
            continue
        assert_same(engine, operation, tolerance=2e-2)


# Attributes

POST_OPS: Mapping[str, tuple[PostOp, ...]] = {
    "binary any": (BinaryPostOp("add", any_of(2, 19, 4, 5)),),
    "prelu": (PReLUPostOp(0b10),),
    "all": (
        BinaryPostOp("max", MemoryDesc((1, 1, 1, 1), "f32")),
        SumPostOp(0.25),
        EltwisePostOp("linear", 2.0, 1.0),
        PReLUPostOp(0),
    ),
}


@pytest.mark.parametrize("name", POST_OPS)
def test_post_operations_are_those_of_the_reference(engine: OnednnEngine, name: str) -> None:
    attributes = PrimitiveAttributes(post_ops=POST_OPS[name])
    for kind in ("convolution",) if "binary" in name else ("convolution", "deconvolution"):
        assert_same(engine, replace(forward(kind, "forward_inference"), attributes=attributes))


def test_a_depthwise_convolution_follows(engine: OnednnEngine) -> None:
    then = DepthwiseConvolution("f32", "f32", "f32", 3, 1, 1)
    numbers = {"strides": (1, 1), **dict.fromkeys(("dilations", "padding_l", "padding_r"), (0, 0))}
    parameters: dict[str, Parameter] = {"algorithm": "direct", **numbers}
    descs = {"src": any_of(2, 32, 8, 8), "weights": any_of(16, 32, 1, 1), "dst": any_of(2, 16, 8, 8)}
    operation = Operation("convolution", "forward_inference", descs, parameters, PrimitiveAttributes(post_ops=(then,)))
    implementation = assert_same(engine, operation)
    assert implementation.descs["post_op_0_weights"].dims == (16, 1, 1, 3, 3)
    assert implementation.descs["post_op_0_bias"].dims == (16,)


def test_scales_and_zero_points_are_those_of_the_reference(engine: OnednnEngine) -> None:
    types = {"src": "u8", "weights": "s8", "dst": "f32"}
    dims = {"src": (6, 32), "weights": (32, 16), "dst": (6, 16)}
    descs = {name: any_of(*shape, data_type=types[name]) for name, shape in dims.items()}
    attributes = PrimitiveAttributes(
        scales={"src": Scales(), "weights": Scales(mask=0b10)}, zero_points={"src": ZeroPoints()}
    )
    operation = Operation("matmul", "forward_inference", descs, {}, attributes)
    implementation = assert_same(engine, operation)
    assert implementation.descs["src_scales"] == MemoryDesc((1,), "f32")
    assert implementation.descs["weights_scales"] == MemoryDesc((16,), "f32")
    assert implementation.descs["src_zero_points"] == MemoryDesc((1,), "s32")


def test_f32_may_be_computed_in_bf16(engine: OnednnEngine) -> None:
    attributes = PrimitiveAttributes(fpmath_mode="bf16")
    operation = replace(forward("matmul", "forward_inference"), attributes=attributes)
    assert_same(engine, operation, tolerance=5e-2)


def test_the_scratchpad_is_the_callers_or_the_engines(engine: OnednnEngine) -> None:
    operation = forward("convolution")
    own = engine.create(operation)
    assert "scratchpad" not in own.descs
    given = engine.create(replace(operation, attributes=PrimitiveAttributes(scratchpad_mode="user")))
    assert given.descs["scratchpad"].size > 0
    assert given.descs["scratchpad"].data_type is not None
    memories = execute(given)
    np.testing.assert_array_equal(memories["dst"].unpack(), execute(own)["dst"].unpack())


def test_a_sum_after_normalization_is_fused_in_training(engine: OnednnEngine) -> None:
    if oracle.version() < (3, 13):
        pytest.skip("this oneDNN has it on GPUs only")
    base = forward("batch_normalization")
    flags = frozenset({"use_scale", "use_shift", "fuse_norm_relu"})
    operation = replace(base, parameters={**base.parameters, "flags": flags})
    implementation = assert_same(engine, operation)
    assert implementation.descs["workspace"].size > 0


# Threads


def test_one_bound_primitive_is_called_by_eight_threads(engine: OnednnEngine) -> None:
    implementation = engine.create(forward("convolution"))
    expected = execute(implementation)["dst"].unpack()
    memories = filled(implementation)
    shared = implementation.bind(memories)
    start = Barrier(8)

    def work(i: int) -> None:
        start.wait()
        for k in range(40):
            if i % 2:
                shared()
            own = execute(engine.create(forward("convolution")) if k % 10 == 0 else implementation)
            assert np.array_equal(own["dst"].unpack(), expected), k

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert np.array_equal(memories["dst"].unpack(), expected)


def test_every_kind_is_created_and_run_by_eight_threads_at_once(engine: OnednnEngine) -> None:
    kinds = [kind for kind in KINDS if kind not in lacking(engine, "forward_training")]
    expected = {kind: written(i := engine.create(forward(kind)), execute(i)) for kind in kinds}

    def work(offset: int) -> None:
        for kind in kinds[offset:] + kinds[:offset]:
            implementation = engine.create(forward(kind))
            for name, array in written(implementation, execute(implementation)).items():
                np.testing.assert_allclose(array, expected[kind][name], atol=1e-5, err_msg=f"{kind} {name}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(0, 24, 3)))


def test_the_context_of_an_ended_thread_is_reused() -> None:
    engine = make_engine()

    def work(kind: str) -> tuple[int, int, int]:
        context = engine.thread_contexts.current
        assert context.threads == -1
        execute(engine.create(forward(kind)))
        return context.stream, context.size, context.threads

    seen = []
    for kind in ("lstm", "eltwise", "lstm"):
        with ThreadPoolExecutor(1) as thread:
            seen.append(thread.submit(work, kind).result())
    assert seen[0][1] > 0
    assert seen[0] == seen[1] == seen[2]


def test_a_limit_of_threads_is_that_of_primitives_made_under_it(engine: OnednnEngine) -> None:
    if engine.team.max_threads == 0:
        pytest.skip("this oneDNN starts threads of its own accord")
    try:
        set_num_threads(1)
        single = engine.create(forward("convolution"))
        set_num_threads(None)
        several = engine.create(forward("convolution"))
        results = []
        for implementation, threads in ((several, engine.team.num_threads), (single, 1)) * 2:
            results.append(execute(implementation)["dst"].unpack())
            assert engine.thread_contexts.current.threads == threads
        np.testing.assert_allclose(results[0], results[1], atol=1e-5)
        np.testing.assert_array_equal(results[0], results[2])
    finally:
        set_num_threads(None)


def test_submitted_executions_are_complete_after_a_wait(engine: OnednnEngine) -> None:
    implementation = engine.create(forward("convolution"))
    expected = execute(implementation)["dst"].unpack()
    memories = filled(implementation)
    bound: list[Any] = [implementation.bind({**memories, "dst": Memory(implementation.descs["dst"])}) for _ in range(5)]
    assert all(isinstance(one, BoundPrimitive) for one in bound)
    for one in bound:
        one.submit()
    engine.wait()
    for one in bound:
        assert np.array_equal(one.memories["dst"].unpack(), expected)


def test_the_name_says_which_library_computes(engine: OnednnEngine) -> None:
    assert engine.name == f"onednn {'.'.join(map(str, engine.library.version))}"
    assert engine.library.version[:2] == oracle.version()


def test_no_wait_for_threads_that_a_fork_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    engine.wait()
    monkeypatch.setattr(engine.team, "_ended_threads", False)
    monkeypatch.setattr(engine.team, "_lost_threads", False)
    engine.team.mark_threads_lost()
    name, runtime = engine.library.name, engine.library.runtime
    text = (
        f"{name} runs on {runtime} and was used before this process was forked, which left its threads behind: start "
        "processes by spawn, as multiprocessing.get_context('spawn') does"
    )
    with raises_exactly(InlayError, text):
        engine.wait()
