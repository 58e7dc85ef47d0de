"""Invalid arguments of primitives raise an InlayError, never an error from inside of NumPy or Python.

Every parameter of every class, and every argument of a call, is set to more than a hundred invalid values.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

import inlay
from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments
from inlay.memory import Memory
from inlay.primitives import attributes as a

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

IMAGE, MATRIX = MemoryDesc((2, 4, 6, 6), "f32"), MemoryDesc((3, 4), "f32")
SOURCE, ATTENTION = MemoryDesc((5, 2, 6), "f32"), MemoryDesc((5, 2, 1), "f32")


def gates(count: int) -> dict[str, MemoryDesc]:
    weights = MemoryDesc((1, 1, 6, count, 6), "f32")
    return {"src_layer": SOURCE, "weights_layer": weights, "weights_iter": weights}


VALID: Mapping[str, Mapping[str, Any]] = {
    "Convolution": {"src": IMAGE, "weights": MemoryDesc((8, 4, 3, 3), "f32")},
    "Deconvolution": {"src": IMAGE, "weights": MemoryDesc((8, 4, 3, 3), "f32")},
    "InnerProduct": {"src": IMAGE, "weights": MemoryDesc((8, 4, 6, 6), "f32")},
    "MatMul": {"src": MATRIX, "weights": MemoryDesc((4, 5), "f32")},
    "Pooling": {"src": IMAGE, "algorithm": "max", "kernel": 2},
    "Eltwise": {"src": IMAGE, "algorithm": "relu"},
    "Softmax": {"src": IMAGE, "axis": 1},
    "LRN": {"src": IMAGE, "local_size": 3, "alpha": 1.0, "beta": 0.75},
    "BatchNormalization": {"src": IMAGE, "epsilon": 1e-3},
    "LayerNormalization": {"src": IMAGE, "epsilon": 1e-3},
    "GroupNormalization": {"src": IMAGE, "groups": 2, "epsilon": 1e-3},
    "Shuffle": {"src": IMAGE, "axis": 1, "group_size": 2},
    "PReLU": {"src": IMAGE, "weights": MemoryDesc((1, 4, 1, 1), "f32")},
    "Resampling": {"src": IMAGE, "factors": 2},
    "Reduction": {"src": IMAGE, "dst": MemoryDesc((2, 4, 1, 1), "f32"), "algorithm": "mean"},
    "Concat": {"srcs": [IMAGE, IMAGE], "axis": 1},
    "Sum": {"srcs": [IMAGE, IMAGE]},
    "Binary": {"src_0": IMAGE, "src_1": IMAGE, "algorithm": "add"},
    "Reorder": {"src": IMAGE, "dst": MemoryDesc((2, 4, 6, 6), "f32", "nhwc")},
    "VanillaRNN": {**gates(1), "activation": "relu"},
    "LSTM": gates(4),
    "GRU": gates(3),
    "LBRGRU": gates(3),
    "AUGRU": {**gates(3), "attention": ATTENTION},
    "LBRAUGRU": {**gates(3), "attention": ATTENTION},
}
"""Valid arguments of each forward class."""
BACKWARD = ("Backward", "BackwardData", "BackwardWeights")
HUGE = 10**5000
ATTRIBUTES: tuple[Any, ...] = (
    {},
    {"scales": 5},
    {"scales": {"src": 5}},
    {"scales": {3: inlay.Scales()}},
    {"zero_points": [1]},
    {"post_ops": 5},
    {"post_ops": (5,)},
    {"post_ops": (a.SumPostOp(HUGE),)},
    {"post_ops": (a.SumPostOp(data_type=5),)},  # type: ignore[arg-type]
    {"post_ops": (a.EltwisePostOp("relu", None),)},  # type: ignore[arg-type]
    {"post_ops": (a.BinaryPostOp("add", 5),)},  # type: ignore[arg-type]
    {"post_ops": (a.PReLUPostOp(-1),)},
    {"post_ops": (a.DepthwiseConvolution(5, 5, 5, 5, 5, 5),)},  # type: ignore[arg-type]
    {"post_ops": (a.DepthwiseConvolution("f32", None, "f32", 3, 1, 1),)},
    {"recurrent": 5},
    {"recurrent": a.RecurrentScales(None, None, None, None)},  # type: ignore[arg-type]
    {"recurrent": a.RecurrentScales(1.0, 0.0, (), ())},
    {"scratchpad_mode": 5},
    {"fpmath_mode": None},
)
NUMBERS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), HUGE, -HUGE, 0.5, -0.0, 1e308, -1e308),
    *(float("inf"), float("nan"), 1 + 2j, np.float32(1), np.int64(3), np.bool_(True), np.datetime64("2020")),
)
TEXTS: tuple[Any, ...] = ("", "a", "x" * 1000, "٣", "\udcff", "\0", "any", "f32", "relu", "onednn", b"", b"abc")
COLLECTIONS: tuple[Any, ...] = (
    *((), [], {}, set(), {1}, frozenset((1,)), (1,), (1, 2), (1, 2, 3), [1.5, 2], (None,), ("a",), (HUGE,) * 2),
    *(((1, 2), (3,)), range(3), range(10**15), iter(()), bytearray(3), np.arange(4), np.ones((2, 2)), np.array(None)),
    *(np.array([None]), np.ma.array([1.0], mask=[True]), np.void(b"abc")),
)
OBJECTS: tuple[Any, ...] = (
    *(object(), object, int, np.float32, inlay.Scales, inlay.MemoryDesc, inlay.Scales(), inlay.ZeroPoints()),
    *(inspect, print, type, Exception(), NotImplemented, ..., gates, MemoryDesc.strides),
    p.get_engine("reference"),
    p.Eltwise(IMAGE, algorithm="relu", engine="reference"),
    p.Eltwise(IMAGE, algorithm="relu", prop_kind="forward_training", engine="reference"),
    Memory(MemoryDesc((2,), "f32")),
)
DESCS: tuple[Any, ...] = (
    *(MemoryDesc(), IMAGE, MemoryDesc(IMAGE.dims, "s8"), MemoryDesc(IMAGE.dims, "f32", "any"), MATRIX, SOURCE),
    *(MemoryDesc((0, 4, 6, 6), "f32"), MemoryDesc((1,), "f32"), MemoryDesc((-(2**63), 4, 6, 6), "f32")),
    *(MemoryDesc.csr((3, 4), "f32", 2), MemoryDesc.coo((3, 4), "f32", 2), MemoryDesc.host_scalar("f32")),
)
HOSTILE: tuple[Any, ...] = (
    *NUMBERS,
    *TEXTS,
    *COLLECTIONS,
    *OBJECTS,
    *DESCS,
    *(p.PrimitiveAttributes(**given) for given in ATTRIBUTES),
)


def created(name: str, **changed: Any) -> Any:
    return getattr(p, name)(**{**VALID[name], "engine": "reference", **changed})


def attempts(name: str) -> Iterator[tuple[Callable[[], object], str]]:
    """Yield every call with one invalid value, and its description."""
    cls = getattr(p, name)
    for parameter in inspect.signature(cls).parameters:
        for i, value in enumerate(HOSTILE):
            yield partial(created, name, **{parameter: value}), f"{name}({parameter}=HOSTILE[{i}])"
    for suffix in BACKWARD:
        backward = getattr(p, name + suffix, None)
        if backward is not None:
            hint = created(name, prop_kind="forward_training")
            for parameter in inspect.signature(backward).parameters:
                for i, value in enumerate(HOSTILE):
                    given = {"hint_forward": hint, "engine": "reference", parameter: value}
                    yield partial(backward, **given), f"{name}{suffix}({parameter}=HOSTILE[{i}])"
    primitive = created(name)
    memories = {argument: Memory(primitive.desc(argument)) for argument in primitive.arguments}
    for argument in (*memories, "srcs", "other"):
        for i, value in enumerate(HOSTILE):
            yield partial(primitive, **{**memories, argument: value}), f"{name}()({argument}=HOSTILE[{i}])"


def assert_refused_or_taken(attempt: Callable[[], object], what: str) -> None:
    text = ""
    try:
        attempt()
    except InlayError as error:
        text = str(error)
    assert len(text) < 3000, what


def test_there_are_more_than_a_hundred_hostile_values() -> None:
    assert len(HOSTILE) > 100


@pytest.mark.parametrize("name", VALID)
def test_hostile_arguments_are_refused_with_an_error_of_inlay(name: str) -> None:
    for attempt, what in attempts(name):
        assert_refused_or_taken(attempt, what)


MEANINGLESS: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "batch": (
        "BatchNormalization",
        {"epsilon": -(2**63)},
        "BatchNormalization: epsilon is -9.22337e+18: it is at least 0",
    ),
    "layer": ("LayerNormalization", {"epsilon": -1e-3}, "LayerNormalization: epsilon is -0.001: it is at least 0"),
    "digits": ("Eltwise", {"alpha": "٣"}, "Eltwise: alpha is '٣': give a number"),
    "truth": ("Eltwise", {"beta": True}, "Eltwise: beta is True: give a number"),
    "f32": ("Eltwise", {"alpha": 1e39}, "Eltwise: alpha is 1e+39: give a number that f32 can hold, up to 3.40282e+38"),
    "large": ("Eltwise", {"alpha": HUGE}, "Eltwise: alpha is an integer of 16610 bits: give a number"),
    "axis": ("Softmax", {"axis": True}, "Softmax: axis is True: give an integer"),
    "set": ("Convolution", {"strides": {1}}, "Convolution: strides is {1}: give one number, or a tuple of 2"),
    "groups": ("GroupNormalization", {"groups": True}, "GroupNormalization: groups is True: give an integer"),
    "factors": (
        "Resampling",
        {"factors": 1e308},
        "Resampling: factor is 1e+308: give a number that f32 can hold, up to 3.40282e+38",
    ),
    "class": (
        "Convolution",
        {"src": np.float32},
        "Convolution: src is <class 'numpy.float32'>: give a MemoryDesc, such as MemoryDesc((2, 16, 8, 8), 'f32', "
        "'any')",
    ),
    "src_layer": (
        "GRU",
        {"src_layer": None},
        "GRU: src_layer is None: give a MemoryDesc of (times, batch, channels), such as MemoryDesc((5, 2, 6), 'f32', "
        "'any')",
    ),
    "weights_iter": (
        "LSTM",
        {"weights_iter": None},
        "LSTM: weights_iter is None: give a MemoryDesc of (layers, directions, state channels in, gates, channels "
        "out), such as MemoryDesc((1, 1, 6, 4, 6), 'f32', 'any')",
    ),
    "attention": (
        "AUGRU",
        {"attention": None},
        "AUGRU: attention is None: give a MemoryDesc of (times, batch, 1), such as MemoryDesc((5, 2, 1), 'f32', 'any')",
    ),
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_a_meaningless_value_raises_this_error(name: str) -> None:
    kind, changed, text = MEANINGLESS[name]
    with pytest.raises(InvalidArguments) as refusal:
        created(kind, **changed)
    assert str(refusal.value) == text


def test_a_gradient_has_no_post_operations() -> None:
    hint = created("Convolution", prop_kind="forward_training")
    attributes = p.PrimitiveAttributes(post_ops=(a.EltwisePostOp("relu"),))
    with pytest.raises(InvalidArguments) as refusal:
        p.ConvolutionBackwardData(hint_forward=hint, attributes=attributes)
    assert str(refusal.value) == (
        "ConvolutionBackwardData: post_ops follow forward primitives: leave them out of a gradient"
    )
