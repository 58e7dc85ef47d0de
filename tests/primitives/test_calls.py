"""Primitives: derived descriptors, results of calls, repeated calls, reorders, and the choice of the engine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives import attributes as a
from inlay.primitives import engine
from inlay.primitives.engine import Engine
from inlay.primitives.spatial import WindowNames, infer_window
from tests.support.primitive_runs import distinct
from tests.support.refusals import raises_exactly


def any_of(*dims: int, data_type: str = "f32") -> MemoryDesc:
    return MemoryDesc(dims, data_type, "any")


def rows(*values: list[float]) -> Memory:
    return pack(np.array(values, np.float32), "ab")


def relu(desc: MemoryDesc, **options: Any) -> p.Eltwise:
    return p.Eltwise(desc, algorithm="relu", **{"engine": "reference", **options})


# Windows


NAMES = WindowNames("Convolution", "src", "dst")
IMAGES, KERNELS, STRIDES, PADDING = st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3)


@given(IMAGES, KERNELS, STRIDES, st.integers(0, 2), PADDING, PADDING)
def test_a_window_has_the_positions_inside_the_padded_image(
    image: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> None:
    last = (kernel - 1) * (dilation + 1)
    starts = [start for start in range(-before, image + after, stride) if start + last < image + after]
    numbers: Any = {"strides": stride, "dilations": dilation, "padding_l": before, "padding_r": after}
    if not starts:
        with pytest.raises(InvalidArguments, match="along spatial axis 0 the window covers"):
            infer_window(NAMES, (image,), None, (kernel,), **numbers)
        return
    assert infer_window(NAMES, (image,), None, (kernel,), **numbers).result == (len(starts),)
    # Of the images in which a window takes so many positions, the one that follows from the result is the least.
    if (len(starts) - 1) * stride + last + 1 >= before + after:
        least = infer_window(NAMES, None, (len(starts),), (kernel,), **numbers).image[0]
        assert least <= image < least + stride


@given(IMAGES, KERNELS, STRIDES, PADDING, st.integers(1, 6))
def test_the_default_padding_on_the_right_is_the_smallest_that_fits(
    image: int, kernel: int, stride: int, before: int, result: int
) -> None:
    fitting = [r for r in range(-stride, 40) if (image - kernel + before + r) // stride + 1 == result]
    numbers: Any = {"strides": stride, "dilations": 0, "padding_l": before, "padding_r": None}
    if fitting:
        assert infer_window(NAMES, (image,), (result,), (kernel,), **numbers).padding_r == (min(fitting, key=abs),)
    else:
        with pytest.raises(InvalidArguments, match="it is at least -stride"):
            infer_window(NAMES, (image,), (result,), (kernel,), **numbers)


# Descriptors


def test_a_destination_that_is_left_out_has_the_dims_that_follow() -> None:
    conv = p.Convolution(any_of(2, 16, 9, 7), any_of(4, 5, 4, 3, 3), strides=2, padding_l=1, engine="reference")
    assert conv.dst_desc.dims == (2, 20, 5, 4)
    assert p.MatMul(any_of(3, 1, 4, 5), any_of(1, 2, 5, 6), engine="reference").dst_desc.dims == (3, 2, 4, 6)
    quantized = p.InnerProduct(any_of(2, 8, data_type="u8"), any_of(3, 8, data_type="s8"), engine="reference")
    assert str(quantized.dst_desc.data_type) == "f32"


def test_descriptors_that_a_primitive_has_not_are_the_zero_descriptor() -> None:
    primitive = relu(MemoryDesc((2, 3), "f32"))
    others = (primitive.weights_desc, primitive.bias_desc, primitive.workspace_desc, primitive.scratchpad_desc)
    assert all(desc.is_zero for desc in (*others, primitive.diff_src_desc, primitive.desc("workspace")))
    assert primitive.arguments == ("src", "dst")


def test_repr_has_formats_kernel_and_engine() -> None:
    text = "<Eltwise forward_inference: src f32::blocked:ab::f0, dst f32::blocked:ab::f0; numpy:f64 of reference>"
    assert repr(relu(MemoryDesc((2, 3), "f32"))) == text


# Calls


def test_a_call_returns_the_memory_of_the_caller_or_new_memory() -> None:
    src = rows([1.0, -2.0])
    dst = Memory(src.desc)
    primitive = relu(src.desc)
    assert primitive(src=src, dst=dst) is dst
    fresh = primitive(src=src)
    assert fresh is not dst
    assert fresh.unpack().tolist() == dst.unpack().tolist() == [[1.0, 0.0]]


def test_several_results_are_a_mapping() -> None:
    image = pack(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), "nchw")
    options: Any = {"algorithm": "max", "kernel": 2, "strides": 2, "engine": "reference"}
    pool = p.Pooling(image.desc, prop_kind="forward_training", **options)
    assert list(pool(src=image)) == ["dst", "workspace"]
    assert p.Pooling(image.desc, **options)(src=image).unpack().ravel().tolist() == [5, 7, 13, 15]


def test_each_call_computes_and_checks_its_memories_again() -> None:
    src = rows([1.0, -2.0])
    dst = Memory(src.desc)
    primitive = relu(src.desc)
    for sign in (1, -1, 1):
        src.buffer.view(np.float32)[:] = (sign, -2 * sign)
        assert primitive(src=src, dst=dst).unpack().tolist() == [[max(sign, 0), max(-2 * sign, 0)]]
    assert primitive(src=rows([-3.0, 4.0]), dst=Memory(src.desc)).unpack().tolist() == [[0.0, 4.0]]
    with pytest.raises(InvalidArguments, match="src is missing"):
        primitive(dst=Memory(src.desc), weights=src)


def test_eltwise_and_sum_work_in_place() -> None:
    src = rows([1.0, -2.0])
    assert relu(src.desc)(src=src, dst=src) is src
    assert src.unpack().tolist() == [[1.0, 0.0]]
    both = p.Sum([src.desc, src.desc], engine="reference")
    assert both(src_0=src, src_1=rows([1.0, 1.0]), dst=src).unpack().tolist() == [[2.0, 1.0]]


def test_values_of_attributes_are_numbers_arrays_or_memory() -> None:
    scaled = p.PrimitiveAttributes(scales={"src": inlay.Scales(), "weights": inlay.Scales(mask=0b10)})
    desc, matrix = MemoryDesc((1, 2), "s8", "ab"), MemoryDesc((2, 2), "s8", "ab")
    product = p.MatMul(desc, matrix, attributes=scaled, engine="reference")
    given = {
        "src": pack(np.array([[1, 2]], np.int8), desc),
        "weights": pack(np.array([[1, 2], [3, 4]], np.int8), matrix),
    }
    by_array = product(**given, src_scales=0.5, weights_scales=np.array([1, 10]))
    by_memory = product(**given, src_scales=pack(np.array([0.5], np.float32), "a"), weights_scales=[1, 10])
    assert by_array.unpack().tolist() == by_memory.unpack().tolist() == [[3.5, 50.0]]


def test_operands_of_post_operations_are_arguments() -> None:
    desc = MemoryDesc((1, 2), "f32")
    follows = p.PrimitiveAttributes(
        post_ops=(a.BinaryPostOp("add", MemoryDesc((1, 2), "f32")), a.EltwisePostOp("relu"))
    )
    product = p.MatMul(desc, MemoryDesc((2, 2), "f32"), attributes=follows, engine="reference")
    given = {"src": rows([1.0, 2.0]), "weights": rows([1.0, 0.0], [0.0, 1.0])}
    assert product.arguments == ("src", "weights", "post_op_0_src_1", "dst")
    assert product(**given, post_op_0_src_1=rows([10.0, -10.0])).unpack().tolist() == [[11.0, 0.0]]


def test_gradients_of_an_empty_batch_are_zero() -> None:
    train: Any = {"prop_kind": "forward_training"}
    conv = p.Convolution(any_of(0, 3, 5, 5), any_of(4, 3, 3, 3), any_of(4), **train)
    data = {name: Memory(conv.desc(name)) for name in ("src", "weights", "bias")}
    assert conv(**data).desc.dims == (0, 4, 3, 3)
    gradient = p.ConvolutionBackwardWeights(hint_forward=conv)
    diff_weights = pack(np.ones((4, 3, 3, 3), np.float32), gradient.diff_weights_desc)
    given = {"src": Memory(gradient.src_desc), "diff_dst": Memory(gradient.diff_dst_desc)}
    written = gradient(**given, diff_weights=diff_weights)
    assert not written["diff_weights"].unpack().any()
    assert not written["diff_bias"].unpack().any()


def test_many_threads_call_one_primitive() -> None:
    desc = MemoryDesc((64, 32), "f32")
    primitive = relu(desc, engine=None)

    def is_right(number: int) -> bool:
        array = distinct(np.random.default_rng(number), desc)
        src, dst = pack(array, "ab"), Memory(desc)
        return all(np.array_equal(primitive(src=src, dst=dst).unpack(), np.maximum(array, 0)) for _ in range(200))

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(is_right, range(6)))


# Reorders and weights


def test_a_reorder_is_inlays_own_unless_an_engine_is_named() -> None:
    image = pack(np.arange(24, dtype=np.float32).reshape(1, 6, 2, 2), "nchw")
    wanted = MemoryDesc((1, 6, 2, 2), "bf16", "nhwc")
    own, reference = p.Reorder(image.desc, wanted), p.Reorder(image.desc, wanted, engine="reference")
    assert (own.engine.name, own.impl, reference.engine.name) == ("inlay", "compiled", "reference")
    assert np.array_equal(own(src=image).buffer, reference(src=image).buffer)
    assert p.Reorder(wanted, any_of(1, 6, 2, 2)).dst_desc == MemoryDesc((1, 6, 2, 2), "f32", "nhwc")


def test_a_reorder_supports_scales_zero_points_and_a_sum() -> None:
    desc, bytes_ = MemoryDesc((1, 2), "f32"), MemoryDesc((1, 2), "s8", "ab")
    attributes = p.PrimitiveAttributes(
        scales={"src": inlay.Scales()}, zero_points={"dst": inlay.ZeroPoints()}, post_ops=(a.SumPostOp(2.0),)
    )
    reorder = p.Reorder(desc, bytes_, attributes=attributes)
    dst = pack(np.array([[1, 2]], np.int8), "ab")
    reorder(src=rows([1.0, 2.0]), dst=dst, src_scales=10, dst_zero_points=-3)
    assert dst.unpack().tolist() == [[10 + 2 - 3, 20 + 4 - 3]]


# Engines


@pytest.fixture(autouse=True)
def default_engine() -> Iterator[None]:
    yield
    p.set_engine(None)


def test_an_engine_is_made_once() -> None:
    assert p.get_engine("reference") is p.get_engine("reference")
    p.set_engine("reference")
    assert relu(MemoryDesc((2,), "f32"), engine=None).engine is p.get_engine() is p.get_engine("reference")


class Unsupporting(Engine):
    """An engine that supports no operation."""

    name = "unsupporting"

    def create(self, operation: object) -> Any:
        raise Unimplemented("not this one")


def test_the_reference_computes_what_the_default_engine_does_not_support() -> None:
    p.set_engine(Unsupporting())
    desc = MemoryDesc((2, 3), "f32")
    forward = relu(desc, engine=None, prop_kind="forward_training")
    assert forward.engine.name == "reference"
    assert p.EltwiseBackward(hint_forward=forward).engine.name == "reference"
    with pytest.raises(Unimplemented, match="not this one"):
        relu(desc, engine=Unsupporting())


def test_without_a_library_the_reference_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingExtra("no library")

    p.set_engine(None)
    monkeypatch.delenv("INLAY_ENGINE", raising=False)
    monkeypatch.setattr(engine, "_engines", {})
    monkeypatch.setattr("inlay.engines.onednn.make_engine", missing)
    assert p.get_engine().name == "reference"


def test_the_environment_names_the_engine() -> None:
    program = "from inlay import primitives as p; print(p.get_engine().name)"
    environment = {**os.environ, "INLAY_ENGINE": "reference"}
    assert subprocess.check_output([sys.executable, "-c", program], text=True, env=environment) == "reference\n"


def test_an_unknown_engine_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    p.set_engine(None)
    monkeypatch.setenv("INLAY_ENGINE", "cuda")
    text = "INLAY_ENGINE is 'cuda': set it to one of 'onednn', 'inlay', 'reference', or unset it"
    with raises_exactly(InvalidArguments, text):
        p.get_engine()
