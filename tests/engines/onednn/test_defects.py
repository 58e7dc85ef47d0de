"""Known defects of oneDNN: defective operations are refused; all others stay inside their memory and are correct.

Each memory has a border of known bytes, and each result is compared with that of the reference engine.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import OnednnEngine
from inlay.engines.onednn.defects import find_defect
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory, pack
from inlay.primitives.attributes import BinaryPostOp, PReLUPostOp, SumPostOp
from inlay.reordering.attributes import Scales, ZeroPoints
from tests.oracles import onednn as oracle
from tests.support.processes import run_python
from tests.support.refusals import raises_exactly

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

DIMS = (2, 13, 5, 3)
BORDER = 1 << 14


def f32(*dims: int, format: str | None = None) -> MemoryDesc:
    return MemoryDesc(dims, "f32", format)


FORMATS: Mapping[str, MemoryDesc] = {
    **{tag: f32(*DIMS, format=tag) for tag in ("nchw", "nhwc", "nChw4c", "nChw16c", "NChw16n16c")},
    "gaps": MemoryDesc(DIMS, "f32", strides=(2600, 200, 20, 2)),
    "rows": MemoryDesc(DIMS, "f32", strides=(832, 64, 8, 1)),
    "offset": MemoryDesc.from_layout(Layout.from_strides(DIMS, (195, 15, 3, 1)), "f32", offset0=3),
}
PLAIN, GAPS, ROWS = FORMATS["nchw"], FORMATS["gaps"], FORMATS["rows"]
WEIGHTS = f32(1, 13, 1, 1)
FORWARD: Mapping[str, partial[Any]] = {
    "eltwise": partial(p.Eltwise, algorithm="tanh"),
    "softmax": partial(p.Softmax, axis=1),
    "log of softmax": partial(p.Softmax, axis=3, algorithm="log"),
    "layer": partial(p.LayerNormalization, epsilon=1e-3),
    "batch": partial(p.BatchNormalization, epsilon=1e-3),
    "shuffle": partial(p.Shuffle, axis=1, group_size=13),
    "pooling": partial(p.Pooling, kernel=1, algorithm="avg_include_padding"),
    "fused": partial(p.BatchNormalization, epsilon=1e-3, flags="fuse_norm_relu"),
    "lrn": partial(p.LRN, local_size=5, alpha=1.0, beta=0.75),
    "prelu": partial(p.PReLU, weights=WEIGHTS),
}


def bordered(desc: MemoryDesc, random: np.random.Generator) -> tuple[Memory, npt.NDArray[np.uint8]]:
    """Memory with numbers from 1 to 2, and all bytes around it."""
    count = Memory(desc).buffer.size
    every = np.full(count + 2 * BORDER, 0xA5, np.uint8)
    memory = Memory(desc, every[BORDER : BORDER + count])
    if desc.data_type is not None and desc.data_type.kind == "float":
        memory.buffer[:] = pack(random.uniform(1, 2, desc.dims).astype(np.float32), desc).buffer
    else:
        memory.buffer[:] = 0
    return memory, every


def run(primitive: p.Primitive, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """What it writes; nothing else may change."""
    random = np.random.default_rng(seed)
    made = {name: bordered(primitive.desc(name), random) for name in primitive.arguments}
    primitive(**{name: memory for name, (memory, _) in made.items()})
    for name, (memory, every) in made.items():
        around = np.concatenate([every[:BORDER], every[BORDER + memory.buffer.size :]])
        assert (around == 0xA5).all(), f"{primitive!r} writes outside of {name}"
    written = primitive.operation.signature.writes
    return {name: made[name][0].unpack() for name in primitive.arguments if name in written and name != "workspace"}


def back(kind: str, diff_dst: str, diff_src: str, forward_engine: str | None = None) -> p.Primitive:
    forward = FORWARD[kind](PLAIN, prop_kind="forward_training", engine=forward_engine)
    backward = getattr(p, f"{type(forward).__name__}Backward")
    made: p.Primitive = backward(FORMATS[diff_dst], FORMATS[diff_src], hint_forward=forward)
    return made


def assert_equal_in_all_formats(make: Callable[..., p.Primitive], atol: float) -> None:
    """Compare the default engine with the reference, for each pair of formats."""
    for pair in product(FORMATS, repeat=2):
        found = make(*pair, None)
        if found.operation.direction == "forward" or "workspace" not in found.arguments:
            expected = run(make(*pair, "reference"))
            for name, array in run(found).items():
                np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=atol, err_msg=f"{found!r}")


@pytest.fixture
def onednn_by_default() -> Iterator[None]:
    """oneDNN is the default engine, and the reference computes what it declines."""
    p.set_engine("onednn")
    yield
    p.set_engine(None)


@needs_onednn
@pytest.mark.usefixtures("onednn_by_default")
@pytest.mark.parametrize("kind", FORWARD)
def test_forward_stays_in_its_memory_and_is_correct_between_all_formats(kind: str) -> None:
    def make(src: str, dst: str, engine: str | None) -> p.Primitive:
        made: p.Primitive = FORWARD[kind](FORMATS[src], dst=FORMATS[dst], prop_kind="forward_training", engine=engine)
        return made

    assert_equal_in_all_formats(make, 1e-4)


@needs_onednn
@pytest.mark.usefixtures("onednn_by_default")
@pytest.mark.parametrize("kind", list(FORWARD)[:7])
def test_backward_stays_in_its_memory_and_is_correct_between_all_formats(kind: str) -> None:
    assert_equal_in_all_formats(partial(back, kind), 1e-3)


# Operations that are not passed to the library

TRAIN: Mapping[str, Any] = {"prop_kind": "forward_training", "engine": "reference"}
EMPTY, F64 = f32(0, 13, 5, 3), MemoryDesc(DIMS, "f64")
HALVES = MemoryDesc(DIMS, "bf16", "nChw4c")
HEADS = (1, 4, 16, 16)
"""One sentence, four heads, matrices of 16 x 16."""
OLD, LATER = (3, 2, 0), (3, 13, 2)


def with_attributes(kind: Any, *args: Any, **more: Any) -> p.Primitive:
    """A primitive with attributes, and parameters."""
    names = ("scales", "zero_points", "post_ops")
    attributes = p.PrimitiveAttributes(**{name: more.pop(name) for name in names if name in more})
    made: p.Primitive = kind(*args, **more, attributes=attributes, engine="reference")
    return made


def lrn(local_size: int, src: MemoryDesc = PLAIN) -> p.Primitive:
    return p.LRN(src, local_size=local_size, alpha=1.0, beta=0.75, **TRAIN)


def convolve(kind: Any, src: MemoryDesc, kernel: int, stride: int, padding: int = 0) -> p.Primitive:
    """A convolution or its transpose to 8 channels."""
    purpose = "forward_inference" if kind is p.Deconvolution else "forward_training"
    weights = MemoryDesc((8, src.dims[1], kernel, kernel), "bf16" if purpose == "forward_training" else "s8", "any")
    window: Any = {"strides": stride, "padding_l": padding, "padding_r": padding}
    return kind(src, weights, **window, prop_kind=purpose, engine="reference")  # type: ignore[no-any-return]


def plane(data_type: str, dst: str, channels: int = 1, outputs: int = 8) -> p.Primitive:
    """A convolution of integers whose source is in nchw."""
    src, weights = (
        MemoryDesc((2, channels, 5, 4), data_type, "nchw"),
        MemoryDesc((outputs, channels, 1, 1), "s8", "any"),
    )
    return p.Convolution(src, weights, dst=MemoryDesc((2, outputs, 5, 4), "s32", dst), engine="reference")


def fused(src: MemoryDesc) -> p.Primitive:
    return p.BatchNormalization(src, epsilon=1e-3, flags="fuse_norm_relu", **TRAIN)


def layer(src: MemoryDesc, dst: MemoryDesc | None = None) -> p.Primitive:
    return p.LayerNormalization(src, dst=dst, epsilon=1e-3, engine="reference")


def pool(src: MemoryDesc, **attributes: Any) -> p.Primitive:
    purpose = "forward_inference" if attributes else "forward_training"
    return with_attributes(p.Pooling, src, algorithm="max", kernel=2, prop_kind=purpose, **attributes)


def prelu(src: MemoryDesc, weights: MemoryDesc = WEIGHTS) -> p.Primitive:
    return p.PReLU(src, weights, **TRAIN)


def dense(outputs: int) -> p.Primitive:
    return p.InnerProduct(f32(2, 16), f32(outputs, 16), **TRAIN)


def resample(src: MemoryDesc, **more: Any) -> p.Primitive:
    return with_attributes(p.Resampling, src, factors=2, **more)


def softmax(src: MemoryDesc, **more: Any) -> p.Primitive:
    return with_attributes(p.Softmax, src, axis=1, **more)


def tanh(post_op: Any) -> p.Primitive:
    return with_attributes(p.Eltwise, PLAIN, algorithm="tanh", post_ops=(post_op,))


def add(*dims: int) -> tuple[BinaryPostOp]:
    return (BinaryPostOp("add", f32(*dims)),)


def pixels(data_type: str, dims: tuple[int, ...], tag: str) -> p.Primitive:
    weights = MemoryDesc((5, *dims[1:]), "s8", "any")
    return p.InnerProduct(MemoryDesc(dims, data_type, tag), weights, engine="reference")


def heads(src: str, weights: str) -> p.Primitive:
    return p.MatMul(f32(*HEADS, format=src), f32(*HEADS, format=weights), engine="reference")


def copied(src_type: str, dst_type: str, tag: str = "nChw8c") -> p.Primitive:
    src, dst = MemoryDesc(DIMS, src_type, tag), MemoryDesc(DIMS, dst_type, "nChw8c")
    return p.Reorder(src, dst, engine="reference")


SOFTMAX_BACKWARD = back("softmax", "nchw", "nChw16c", "reference")
U8, BF16 = (MemoryDesc(DIMS, data_type, "nhwc") for data_type in ("u8", "bf16"))
POINT = MemoryDesc((2, 13, 1, 1), "bf16")
PLANES = "correct convolution of one channel of integers whose result has channels that are not innermost"
LRN_TEXT = "correct gradient of LRN across channels for this type or local_size in channels last"
NO_GAPS, NO_BINARY = "of a view with gaps", "with a binary post-operation"

IN_BOTH = [
    (lrn(1), "safe gradient of LRN with a local_size of 1"),
    *((lrn(size, src), LRN_TEXT) for size, src in ((7, FORMATS["nhwc"]), (5, BF16))),
    (convolve(p.Deconvolution, U8, 1, 2), "correct deconvolution of integers with a stride above the kernel"),
    (
        convolve(p.Convolution, POINT, 2, 2, 1),
        "correct gradient of convolution of bf16 with a tap that meets padding only",
    ),
    (fused(GAPS), f"safe gradient of batch_normalization {NO_GAPS}"),
    (pool(GAPS), f"safe gradient of pooling {NO_GAPS}"),
    (prelu(GAPS), f"safe gradient of prelu {NO_GAPS}"),
    (prelu(EMPTY), "safe PReLU of tensors without elements"),
    (layer(ROWS), f"correct layer_normalization {NO_GAPS}"),
    (layer(PLAIN, FORMATS["nhwc"]), "correct layer_normalization between different formats"),
    (SOFTMAX_BACKWARD, "correct softmax between different formats"),
    (with_attributes(p.Binary, HALVES, HALVES, algorithm="add"), "safe binary of halves in blocks of less than 8"),
    (resample(F64), "computation in f64 on a processor"),
    (with_attributes(p.Shuffle, F64, axis=1, group_size=13), "computation in f64 on a processor"),
    (softmax(PLAIN, scales={"src": Scales()}), "scales of src that softmax takes before it computes"),
    (with_attributes(p.Concat, [PLAIN, PLAIN], axis=1, scales={"dst": Scales()}), "concat with scales of dst"),
    (tanh(PReLUPostOp(2)), "eltwise with a post-operation PReLU"),
    (tanh(SumPostOp()), "eltwise with a post-operation sum"),
    (pool(PLAIN, post_ops=add(2, 13, 4, 2)), f"correct pooling {NO_BINARY} for each element"),
    (
        softmax(f32(2, 5, format="ba"), post_ops=add(1, 5)),
        f"correct softmax in this format {NO_BINARY} along the last axis",
    ),
]
IN_OLD = [
    (
        p.PReLU(FORMATS["nChw4c"], f32(*DIMS), engine="reference"),
        "correct PReLU of padded blocks with weights for each element",
    ),
    (
        resample(f32(2, 5, 3, 3, format="acdb"), post_ops=add(1, 1, 6, 6)),
        f"correct resampling {NO_BINARY} along other axes than channels",
    ),
]
IN_LATER = [
    (plane("u8", "nchw"), PLANES),
    (plane("s8", "nchw"), PLANES),
    (prelu(PLAIN, f32(1, 13, 5, 1)), "correct gradient of PReLU whose weights differ along other axes than channels"),
    (dense(1), "correct inner product of one output"),
    (resample(f32(2, 3, 1)), "safe resampling of an axis of one element"),
    *(
        (heads(*tags), "correct matmul of matrices with another axis between their rows and columns in memory")
        for tags in (("abcd", "dabc"), ("abcd", "acbd"), ("dabc", "abcd"))
    ),
]
CORRECT = [
    *(lrn(3), lrn(5, FORMATS["nhwc"]), lrn(7, FORMATS["nChw16c"])),
    convolve(p.Deconvolution, U8, 2, 2),
    *(plane("u8", "nhwc"), plane("s8", "any"), plane("u8", "nchw", channels=2), plane("u8", "nchw", outputs=1)),
    *(fused(PLAIN), pool(PLAIN), prelu(PLAIN), dense(2), resample(f32(2, 3, 2))),
]
DEFECTS = [
    *((primitive, (OLD, LATER), text) for primitive, text in IN_BOTH),
    *((primitive, (OLD,), text) for primitive, text in IN_OLD),
    *((primitive, (LATER,), text) for primitive, text in IN_LATER),
    *((primitive, (), "") for primitive in CORRECT),
]
"""Primitives, the releases that have a defect, and the text."""


@pytest.mark.parametrize(("primitive", "releases", "text"), DEFECTS)
def test_a_defective_operation_is_declined_in_these_words(primitive: p.Primitive, releases: Any, text: str) -> None:
    for version in (OLD, LATER):
        assert find_defect(version, replace(primitive.operation, hint=None)) == (text if version in releases else None)


AVX2, AVX2_VNNI, AVX512, FP16, AMX = 0x7, 0xF, 0x27, 0x1EF, 0xFEF
"""Words of instruction sets."""
PRODUCT = "correct inner product of integers in channels last on AVX2"
STRIDED = "correct deconvolution of s8 or with zero points of src, with a stride above 1"
S8 = MemoryDesc(DIMS, "s8", "nhwc")


def transpose(src: MemoryDesc, stride: int, **attributes: Any) -> p.Primitive:
    """A deconvolution with a kernel of 3."""
    weights = MemoryDesc((8, src.dims[1], 3, 3), "s8", "any")
    return with_attributes(p.Deconvolution, src, weights, strides=stride, prop_kind="forward_inference", **attributes)


@pytest.mark.parametrize(
    ("primitive", "isa", "text"),
    [
        *(
            (pixels(data_type, dims, tag), isa, text)
            for data_type in ("u8", "s8")
            for dims, tag, isa, text in (
                ((1, 3, 5, 4), "any", AVX2, PRODUCT),
                ((2, 3, 5, 4), "nhwc", AVX2, PRODUCT),
                ((2, 3, 5, 4), "nchw", AVX2, None),
                ((2, 1, 5, 4), "any", AVX2, None),
                ((2, 3, 1, 1), "any", AVX2, None),
                ((2, 3), "any", AVX2, None),
                ((1, 3, 5, 4), "any", AVX2_VNNI, None),
                ((1, 3, 5, 4), "any", AVX512, None),
            )
        ),
        (transpose(S8, 2), AVX512, STRIDED),
        (transpose(S8, 2), AVX2_VNNI, STRIDED),
        (transpose(S8, 2), AVX2, None),
        (transpose(S8, 1), AVX512, None),
        (transpose(U8, 2), AVX512, None),
        (transpose(U8, 2, zero_points={"src": ZeroPoints()}), AVX512, STRIDED),
        (copied("f8_e5m2", "f8_e5m2"), AMX, "reorder of f8_e5m2 with AMX"),
        (copied("f8_e5m2", "f8_e5m2"), FP16, None),
        (copied("f8_e4m3", "f8_e4m3"), AMX, None),
        (copied("f32", "f32"), AMX, None),
        (copied("bf16", "s4"), FP16, "correct reorder from bf16 to s4 of the same layout"),
        (copied("f16", "e8m0"), 0x1, "correct reorder from f16 to e8m0 of the same layout"),
        (copied("bf16", "s4", "nchw"), FP16, None),
        (copied("f32", "s4"), FP16, None),
        (copied("bf16", "s8"), AMX, None),
    ],
)
def test_later_releases_have_defects_of_instruction_sets(primitive: p.Primitive, isa: int, text: str | None) -> None:
    assert find_defect(LATER, primitive.operation, isa) == text
    assert find_defect(OLD, primitive.operation, isa) is None


def test_a_convolution_of_bf16_whose_taps_all_meet_elements_has_no_defect() -> None:
    operation = convolve(p.Convolution, MemoryDesc(DIMS, "bf16"), 3, 1, 1).operation
    assert {find_defect(version, operation) for version in (OLD, LATER)} == {None}


def test_batch_normalization_of_six_axes_is_declined() -> None:
    operation = replace(fused(PLAIN).operation, descs=dict.fromkeys(("src", "dst"), f32(2, 5, 3, 3, 3, 3)))
    assert find_defect(OLD, operation) == "correct batch_normalization of more than five axes"


@needs_onednn
@pytest.mark.parametrize(("primitive", "releases", "text"), [row for row in DEFECTS if row[0] is not SOFTMAX_BACKWARD])
def test_the_engine_declines_defective_operations_and_no_others(
    primitive: p.Primitive, releases: Any, text: str, engine: OnednnEngine
) -> None:
    if (LATER if oracle.version() >= (3, 3) else OLD) in releases:
        with raises_exactly(Unimplemented, f"{engine.library.name} has no {text}"):
            engine.create(primitive.operation)
    else:
        engine.create(primitive.operation).create_primitive()


AFTER_A_FAILURE = """
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import OnednnImplementation, make_engine
from inlay.engines.onednn.creation import create_primitive_desc
from inlay.errors import OutOfMemory
from inlay.memory import Memory
from inlay.primitives import Resampling
from inlay.primitives import Eltwise

engine = make_engine()
for i in range(1, 9):
    src = MemoryDesc((2, 16, 8, 7 + i), "f64")
    operation = Resampling(src, factors=2.0, engine="reference").operation
    desc = create_primitive_desc(engine, operation, engine._plain_attributes, None)
    made = OnednnImplementation(engine, operation, operation, desc, 0)
    try:
        made.bind({name: Memory(made.descs[name]) for name in ("src", "dst")})
    except OutOfMemory:
        print("failed")
    del made, desc, operation
for i in range(1, 99):
    src = Memory(MemoryDesc((3, i), "f32"))
    Eltwise(src.desc, algorithm="relu", engine=engine)(src=src)
print("fine")
"""


@needs_onednn
@pytest.mark.skipif(oracle.version() >= (3, 3), reason="later releases refuse f64 when the descriptor is made")
def test_the_library_forgets_primitives_that_it_could_not_make() -> None:
    settings = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "20", "MALLOC_PERTURB_": "165"}
    done = run_python("-c", AFTER_A_FAILURE, timeout=60, **settings)
    assert done.stdout.split() == ["failed"] * 8 + ["fine"]


@needs_onednn
def test_an_engine_keeps_nothing_of_primitives_that_were_made(engine: OnednnEngine) -> None:
    src = Memory(PLAIN)
    p.Eltwise(src.desc, algorithm="relu", engine=engine)(src=src)
    assert engine.failed_descriptors == []


PIXELS = """
import numpy as np
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.memory import pack
rng = np.random.default_rng(1)
for dims in ((1, 3, 5, 4), (2, 8, 7), (3, 17, 2, 3), (2, 4, 2, 3, 4), (2, 16), (4, 1, 5, 5)):
    for data_type, tag in (("u8", "any"), ("s8", "any"), ("u8", None)):
        weights = (5, *dims[1:])
        product = p.InnerProduct(MemoryDesc(dims, data_type, tag), MemoryDesc(weights, "s8", "any"))
        x = rng.integers(0, 16, dims).astype(np.uint8 if data_type == "u8" else np.int8)
        w = (2 * rng.integers(-8, 8, weights)).astype(np.int8)
        found = product(src=pack(x, product.src_desc), weights=pack(w, product.weights_desc)).unpack()
        expected = x.reshape(len(x), -1).astype(int) @ w.reshape(5, -1).T.astype(int)
        assert np.array_equal(found, expected), product
"""


@needs_onednn
@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX2_VNNI", "AVX512_CORE", "ALL"])
def test_products_of_integer_pixels_are_right_on_every_instruction_set(isa: str) -> None:
    # Small numbers, of which no product is rounded or saturated before VNNI.
    run_python("-W", "ignore", "-c", PIXELS, timeout=100, ONEDNN_MAX_CPU_ISA=isa)


@needs_onednn
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("tag", ["".join(order) for order in permutations("abcd")])
def test_products_of_heads_are_right_however_they_lie(side: int, tag: str) -> None:
    tags = ["abcd", "abcd"]
    tags[side] = tag
    rng = np.random.default_rng(7)
    src, weights = (rng.integers(-3, 4, HEADS).astype(np.float32) for _ in tags)
    descs = [MemoryDesc(HEADS, "f32", one) for one in tags]
    matmul = p.MatMul(descs[0], descs[1], dst=MemoryDesc(HEADS, "f32", "abcd"))
    found = matmul(src=pack(src, matmul.src_desc), weights=pack(weights, matmul.weights_desc))
    assert np.array_equal(found.unpack(), src @ weights)


@needs_onednn
@pytest.mark.filterwarnings("ignore::inlay.PerformanceWarning")
@pytest.mark.usefixtures("onednn_by_default")
@pytest.mark.parametrize("tag", ["nchw", "nhwc", "any"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_convolutions_of_one_channel_of_integers_are_right(dtype: Any, tag: str) -> None:
    src, weights = MemoryDesc((2, 1, 5, 4), dtype, "nchw"), MemoryDesc((8, 1, 1, 1), "s8", "any")
    convolution = p.Convolution(src, weights, dst=MemoryDesc((2, 8, 5, 4), "s32", tag))
    x = np.random.default_rng(5).integers(0, 100, src.dims).astype(dtype)
    w = np.arange(-8, 8, 2, dtype=np.int8).reshape(8, 1, 1, 1)  # even: without VNNI, kernels halve them
    found = convolution(src=pack(x, src), weights=pack(w, convolution.weights_desc))
    assert np.array_equal(found.unpack(), x.astype(np.int32) * w.reshape(1, 8, 1, 1))
